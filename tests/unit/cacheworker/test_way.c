/* A source that is reached in another way while it is read: by a server that says half and no more, or
 * nothing, then as the directory that it is. */
#include "tests/unit/cacheworker/world.h"
#include "tests/unit/ufs/server.h"

#define FILES  12u
#define FILE_B (4 * MiB)
#define HALF   (300u * 1000)

static struct server server;
static _Atomic uint32_t halves; /* answers that were begun */
static _Atomic uint32_t refusals;

/* Half of what is asked for, as the listed version; the rest never comes. */
static bool answer_half(struct server *s, int fd, const char *head)
{
	struct world *w = s->arg;
	const char *range = strcasestr(head, "\r\nRange: bytes=");
	unsigned long long start = 0;
	unsigned long long end = 0;
	unsigned int file = 0;
	struct table_row *row = malloc(sizeof(*row));
	char key[32];
	char text[512];
	int n;

	ensure(row && range && sscanf(head, "GET /bucket/data/file-%u", &file) == 1 &&
		sscanf(range, "\r\nRange: bytes=%llu-%llu", &start, &end) == 2);
	(void)snprintf(key, sizeof(key), "file-%03u", file);
	ensure(table_find_key(w->table, key, (uint32_t)strlen(key), row) == 0);
	n = snprintf(text, sizeof(text),
		"HTTP/1.1 206 x\r\nETag: \"%.*s\"\r\nContent-Length: %llu\r\n"
		"Content-Range: bytes %llu-%llu/%llu\r\n\r\n",
		(int)row->tag_len, row->tag, end - start + 1, start, end,
		(unsigned long long)row->size);
	server_put(fd, text, (size_t)n);
	server_put(fd, (char *)w->model + row->offset + start,
		min((uint64_t)HALF, (end - start + 1) / 2));
	free(row);
	halves++;
	return true;
}

static bool answer_no(struct server *s, int fd, const char *head)
{
	(void)s;
	(void)head;
	server_error(fd, 403, "InvalidAccessKeyId", "");
	refusals++;
	return true;
}

static void set_way(struct world *w, bool directory)
{
	Granary__Source way = GRANARY__SOURCE__INIT;
	char endpoint[64];
	char bucket[] = "bucket";
	char prefix[160];

	(void)snprintf(endpoint, sizeof(endpoint), "http://127.0.0.1:%u", server.port);
	(void)snprintf(prefix, sizeof(prefix), "%s/data/", directory ? w->dir : "");
	way.has_scheme = way.has_path_style = way.has_anonymous = true;
	way.scheme = directory ? UFS_FILE : UFS_S3;
	way.path_style = way.anonymous = !directory;
	way.endpoint = directory ? NULL : endpoint;
	way.bucket = directory ? NULL : bucket;
	way.prefix = directory ? prefix : prefix + 1;
	source_set_way(&w->worker, &table_info(w->table)->id.volume, &way);
}

static struct source *source_of(struct world *w)
{
	return list_entry(w->worker.sources.all.next, struct source, link);
}

static uint64_t origin_bytes(struct world *w)
{
	struct ufs_counters counters;

	pthread_mutex_lock(&w->worker.sources.lock);
	source_origin_counters(source_of(w), &counters);
	pthread_mutex_unlock(&w->worker.sources.lock);
	return counter_get(&counters.bytes);
}

/* They hold from the first request on: all that was asked before comes at once. */
static void check_bounds(struct world *w)
{
	const struct ufs_counters *counters = ufs_counters(source_of(w)->ufs);

	assert_int_equal(counter_get(&counters->bound_bytes), 1ull << 40);
	assert_int_equal(counter_get(&counters->bound_requests), 1u << 20);
}

struct reading {
	struct world *w;
	uint64_t offset;
	uint32_t length;
};

static void *read_one(void *arg)
{
	struct reading *r = arg;

	(void)world_read_range(r->w, r->offset, r->length, 0);
	return NULL;
}

/* The server may be answering what nobody waits for any more, out of the world. */
static void end(struct world *w)
{
	world_stop_worker(w);
	server_stop(&server);
	world_end(w);
}

/* A unit whose bytes stopped coming, or that was refused: its reader gets it in the other way. */
static void check_stuck(
	bool (*answer)(struct server *s, int fd, const char *head), _Atomic uint32_t *stuck)
{
	struct world *w = world_new_sized(1 * GiB, FILES, FILE_B, 0);
	struct reading last = { w, world_offset_of(w, FILES - 1), UNIT_BYTES };
	pthread_t thread;
	uint64_t before;

	*stuck = 0;
	(void)world_read_range(w, 0, BLOCK_BYTES, 0);
	world_wait_written(w);
	before = origin_bytes(w);
	assert_true(before > 0);
	server_start(&server, answer, w);
	source_set_rates(&w->worker, &table_info(w->table)->id.volume, 1ull << 40, 1u << 20);
	set_way(w, false);
	assert_int_equal(origin_bytes(w), before); /* a counter never shrinks */
	check_bounds(w);
	assert_int_equal(pthread_create(&thread, NULL, read_one, &last), 0);
	test_wait(*stuck > 0);
	set_way(w, true);
	pthread_join(thread, NULL);
	check_bounds(w);
	assert_int_equal(source_of(w)->n_former, 1);
	assert_true(origin_bytes(w) > before);
	world_wait_written(w);
	(void)world_read_range(w, last.offset, last.length, 0);
	assert_int_equal(counter_get(&w->worker.counters.failed_units), 0);
	end(w);
}

static void half(void **state)
{
	(void)state;
	check_stuck(answer_half, &halves);
}

static void refused(void **state)
{
	(void)state;
	check_stuck(answer_no, &refusals);
}

/* Ways that change all the time lose nothing, whatever is asked just then. */
static void to_and_fro(void **state)
{
	struct world *w = world_new_sized(1 * GiB, FILES, FILE_B, 0);
	struct reading all = { w, 0, BLOCK_BYTES };
	pthread_t threads[FILES];
	struct reading readings[FILES];

	(void)state;
	(void)world_read_range(w, all.offset, all.length, 0);
	server_start(&server, answer_half, w);
	for (unsigned int i = 0; i < FILES; i++) {
		readings[i] = (struct reading){ w, world_offset_of(w, i) + FILE_B - UNIT_BYTES,
			UNIT_BYTES };
		assert_int_equal(pthread_create(&threads[i], NULL, read_one, &readings[i]), 0);
	}
	for (unsigned int i = 0; i < 20; i++)
		set_way(w, i % 2);
	for (unsigned int i = 0; i < FILES; i++)
		pthread_join(threads[i], NULL);
	world_wait_written(w);
	assert_int_equal(counter_get(&w->worker.counters.failed_units), 0);
	end(w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(half),
		cmocka_unit_test(refused),
		cmocka_unit_test(to_and_fro),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
