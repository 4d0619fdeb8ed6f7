/* Reads that failed. See failures.h. */
#include "fuse/daemon/failures.h"
#include "base/clock.h"
#include "base/log.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct failure {
	uint64_t offset;
	uint32_t length;
	int status; /* 0: free entry */
	uint64_t count;
	uint64_t last_ns; /* monotonic: a clock set back must not make what is new the oldest */
	bool logged;
};

struct failures {
	pthread_mutex_t lock;
	struct failure rows[FAILURES_MAX];
};

struct failures *failures_new(void)
{
	struct failures *f = calloc(1, sizeof(*f));

	if (f)
		pthread_mutex_init(&f->lock, NULL);
	return f;
}

void failures_free(struct failures *f)
{
	if (!f)
		return;
	pthread_mutex_destroy(&f->lock);
	free(f);
}

/* Objects begin at blocks: what failed of one is never taken for its neighbour. */
static bool same_place(const struct failure *row, uint64_t offset, int status)
{
	return row->status == status && row->offset / BLOCK_BYTES == offset / BLOCK_BYTES;
}

bool failures_note(struct failures *f, uint64_t offset, uint32_t length, int status)
{
	struct failure *row = NULL;
	bool fresh;

	pthread_mutex_lock(&f->lock);
	for (uint32_t i = 0; i < FAILURES_MAX && !row; i++)
		if (same_place(&f->rows[i], offset, status))
			row = &f->rows[i];
	fresh = !row;
	if (fresh) { /* a free entry is the oldest of all */
		row = &f->rows[0];
		for (uint32_t i = 1; i < FAILURES_MAX; i++)
			if (f->rows[i].last_ns < row->last_ns)
				row = &f->rows[i];
		*row = (struct failure){ .status = status };
	}
	row->offset = offset;
	row->length = length;
	row->count++;
	row->last_ns = clock_mono_ns();
	pthread_mutex_unlock(&f->lock);
	return fresh;
}

static int newest_first(const void *a, const void *b)
{
	const struct failure *x = a;
	const struct failure *y = b;

	return x->last_ns < y->last_ns ? 1 : x->last_ns > y->last_ns ? -1 : 0;
}

/* A sorted copy; returns how many rows it has. */
static uint32_t copy_rows(struct failures *f, struct failure rows[FAILURES_MAX])
{
	uint32_t n = 0;

	pthread_mutex_lock(&f->lock);
	for (uint32_t i = 0; i < FAILURES_MAX; i++)
		if (f->rows[i].status != 0)
			rows[n++] = f->rows[i];
	pthread_mutex_unlock(&f->lock);
	qsort(rows, n, sizeof(rows[0]), newest_first);
	return n;
}

/* What a place is in. */
struct named {
	const struct image_source *sources;
	uint32_t n;
	struct table_row *object; /* scratch */
};

static const char *key_of(const struct named *named, const struct failure *row)
{
	uint32_t source = place_source(row->offset);
	uint64_t offset = place_offset(row->offset);

	if (source < named->n &&
		(table_find_offset(named->sources[source].table, offset, named->object) == 0 ||
			table_next_offset(named->sources[source].table, offset, named->object) ==
				0))
		return named->object->key;
	return "";
}

static const char *path_of(const struct named *named, const struct failure *row)
{
	uint32_t source = place_source(row->offset);

	return source < named->n ? named->sources[source].path : "";
}

/* The row of an object and error that is there already. */
static json_t *find_row(json_t *list, const char *path, const char *key, const char *error)
{
	size_t i;
	json_t *row;

	json_array_foreach (list, i, row)
		if (strcmp(json_string_value(json_object_get(row, "path")), path) == 0 &&
			strcmp(json_string_value(json_object_get(row, "key")), key) == 0 &&
			strcmp(json_string_value(json_object_get(row, "error")), error) == 0)
			return row;
	return NULL;
}

static json_t *key_json(const char *key)
{
	json_t *json = json_string(key);

	return json ? json : json_string("(not UTF-8)");
}

json_t *failures_json(struct failures *f, const struct image_source *sources, uint32_t n_sources)
{
	struct failure rows[FAILURES_MAX];
	const struct named named = { sources, n_sources, malloc(sizeof(struct table_row)) };
	json_t *list = json_array();
	uint32_t n = copy_rows(f, rows);
	uint64_t now = clock_mono_ns();

	for (uint32_t i = 0; i < n && named.object && list; i++) {
		const char *error = err_name(rows[i].status);
		const char *path = path_of(&named, &rows[i]);
		json_t *key = key_json(key_of(&named, &rows[i]));
		json_t *seen = find_row(list, path, json_string_value(key), error);
		json_int_t count = (json_int_t)rows[i].count;

		if (seen) {
			count += json_integer_value(json_object_get(seen, "count"));
			(void)json_object_set_new(
				seen, "count", json_integer(count)); /* else smaller */
			json_decref(key);
			continue;
		}
		(void)json_array_append_new(list,
			json_pack("{s:o, s:s, s:s, s:I, s:I, s:I}", "key", key, "path", path,
				"error", error, "count", count, "last_s",
				(json_int_t)((now - min(now, rows[i].last_ns)) / CLOCK_SECOND),
				"offset",
				(json_int_t)place_offset(
					rows[i].offset))); /* without memory: a row less */
	}
	free(named.object);
	return list;
}

int failures_last(struct failures *f, uint64_t offset, uint64_t bytes)
{
	struct failure rows[FAILURES_MAX];
	uint32_t n = copy_rows(f, rows);

	for (uint32_t i = 0; i < n; i++)
		if (rows[i].offset < offset + bytes && offset < rows[i].offset + rows[i].length)
			return rows[i].status;
	return 0;
}

void failures_log(struct failures *f, const struct image_source *sources, uint32_t n_sources)
{
	const struct named named = { sources, n_sources, malloc(sizeof(struct table_row)) };

	for (uint32_t i = 0; i < FAILURES_MAX && named.object; i++) {
		struct failure row;

		pthread_mutex_lock(&f->lock);
		row = f->rows[i];
		f->rows[i].logged = true;
		pthread_mutex_unlock(&f->lock);
		if (row.status != 0 && !row.logged)
			LOG_LIMITED(LOG_ERROR, "read failed",
				"key=\"%s\" error=%s offset=%" PRIu64 " length=%u answer=EIO",
				key_of(&named, &row), err_name(row.status),
				place_offset(row.offset), row.length);
	}
	free(named.object);
}
