/* What differs between two generations of a source: both tables at once, in the order of keys. See
 * dataset.h. */
#include "base/cleanup.h"
#include "base/hash.h"
#include "master/dataset_internal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* The live rows of one table below the subtree. */
struct side {
	const char *subtree;
	uint32_t subtree_len;
	struct table *table;
	struct table_cursor cursor;
	struct table_row row;
	bool end;
};

struct diff {
	struct side from;
	struct side to;
	json_t *added;
	json_t *changed;
	json_t *removed;
	uint32_t n;
};

static int step(struct side *side)
{
	int r;

	do {
		r = table_next(side->table, &side->cursor, &side->row);
	} while (r == 0 && side->row.flags & ROW_DEAD);
	side->end =
		r == -ENOENT ||
		(r == 0 && (side->row.key_len < side->subtree_len ||
				   memcmp(side->row.key, side->subtree, side->subtree_len) != 0));
	return side->end ? 0 : r;
}

static int compare(const struct side *a, const struct side *b)
{
	uint32_t len = min(a->row.key_len, b->row.key_len);
	int order;

	if (a->end || b->end)
		return a->end ? !b->end : -1;
	order = memcmp(a->row.key, b->row.key, len);
	return order ? order
		     : (a->row.key_len > b->row.key_len) - (a->row.key_len < b->row.key_len);
}

static bool differ(const struct table_row *a, const struct table_row *b)
{
	return a->size != b->size || a->tag_len != b->tag_len ||
	       memcmp(a->tag, b->tag, a->tag_len) != 0;
}

static json_t *row_json(const struct side *side, const struct table_row *old)
{
	const struct table_row *row = &side->row;
	const char *name = row->key + side->subtree_len;
	uint32_t len = row->key_len - side->subtree_len;
	char hex[2 * LIMIT_KEY_BYTES + 1];
	json_t *json = json_pack("{s:I, s:I}", "size", (json_int_t)row->size, "mtime",
		(json_int_t)(row->mtime_ns / (int64_t)CLOCK_SECOND));
	json_t *key = json_stringn(name, len);

	if (old)
		(void)json_object_set_new(json, "old_size",
			json_integer((json_int_t)old->size)); /* failures are counted */
	if (key) {
		(void)json_object_set_new(json, "key", key); /* likewise */
		return json;
	}
	hash_hex(name, len, hex);
	(void)json_object_set_new(json, "key_hex", json_string(hex)); /* likewise */
	return json;
}

static int one(struct diff *d)
{
	int order = compare(&d->from, &d->to);
	int r = 0;

	if (order < 0)
		(void)json_array_append_new(d->removed, row_json(&d->from, NULL)); /* counted */
	else if (order > 0)
		(void)json_array_append_new(d->added, row_json(&d->to, NULL)); /* counted */
	else if (differ(&d->from.row, &d->to.row))
		(void)json_array_append_new(
			d->changed, row_json(&d->to, &d->from.row)); /* counted */
	else
		d->n--;
	d->n++;
	if (order <= 0)
		r = step(&d->from);
	if (r == 0 && order >= 0)
		r = step(&d->to);
	return r;
}

/* A number that is at most `most`, and what follows it. */
static bool take_ordinal(const char **at, uint64_t most, uint64_t *ret)
{
	char *end;

	if (**at < '0' || **at > '9')
		return false;
	errno = 0;
	*ret = strtoull(*at, &end, 10);
	*at = end;
	return errno == 0 && *ret <= most;
}

/* "FROM.TO": ordinals of the next rows. */
static bool take_after(struct diff *d, const char *after)
{
	return take_ordinal(&after, table_info(d->from.table)->rows, &d->from.cursor.ordinal) &&
	       *after++ == '.' &&
	       take_ordinal(&after, table_info(d->to.table)->rows, &d->to.cursor.ordinal) &&
	       *after == '\0';
}

static int seek(struct side *side)
{
	return table_lower_bound(
		side->table, side->subtree, side->subtree_len, &side->cursor.ordinal);
}

static int begin(struct diff *d, const char *after, struct err *e)
{
	int r;

	if (after && !take_after(d, after))
		return err_set(e, -EINVAL, "invalid 'after': use 'next' of the previous page");
	r = after ? 0 : seek(&d->from);
	if (r == 0 && !after)
		r = seek(&d->to);
	if (r == 0)
		r = step(&d->from);
	if (r == 0)
		r = step(&d->to);
	return r;
}

static void release(struct diff *d)
{
	table_cursor_release(&d->from.cursor);
	table_cursor_release(&d->to.cursor);
	table_unref(d->from.table);
	table_unref(d->to.table);
	json_decref(d->added);
	json_decref(d->changed);
	json_decref(d->removed);
	free(d);
}

static json_t *answer(struct diff *d, const struct dataset_mount *mount)
{
	json_t *json = json_pack("{s:s, s:I, s:I, s:O, s:O, s:O}", "mount", mount->path, "from",
		(json_int_t)table_info(d->from.table)->id.generation, "to",
		(json_int_t)table_info(d->to.table)->id.generation, "added", d->added, "changed",
		d->changed, "removed", d->removed);

	if (!d->from.end || !d->to.end)
		(void)json_object_set_new(json, "next", /* counted */
			json_sprintf("%" PRIu64 ".%" PRIu64,
				d->from.end ? table_info(d->from.table)->rows : d->from.row.ordinal,
				d->to.end ? table_info(d->to.table)->rows : d->to.row.ordinal));
	return json;
}

static int open_side(struct dataset_set *set, const struct dataset *d,
	const struct dataset_mount *mount, uint64_t generation, struct side *side, struct err *e)
{
	struct dataset_generation g;
	int r = dataset_find_generation(set, d, &mount->volume, generation, &g, e);

	side->subtree = mount->subtree ? mount->subtree : "";
	side->subtree_len = (uint32_t)strlen(side->subtree);
	return r < 0 ? r
		     : source_set_open_table(set->config.sources, &mount->volume,
			       &(struct source_pin){ g.lineage, g.generation }, &side->table, e);
}

int dataset_diff_json(struct dataset_set *set, const struct dataset *dataset,
	const struct dataset_mount *mount, uint64_t from, uint64_t to, const char *after,
	uint32_t limit, json_t **ret_json, struct err *e)
{
	uint64_t failures = admin_json_failures();
	struct diff *d = calloc(1, sizeof(*d));
	json_t *json = NULL;
	int r;

	if (!d)
		return err_set(e, -ENOMEM, "out of memory");
	d->added = json_array();
	d->changed = json_array();
	d->removed = json_array();
	r = open_side(set, dataset, mount, from, &d->from, e);
	if (r == 0)
		r = open_side(set, dataset, mount, to, &d->to, e);
	if (r == 0)
		r = begin(d, after, e);
	while (r == 0 && d->n < limit && !(d->from.end && d->to.end))
		r = one(d);
	if (r == 0)
		json = answer(d, mount);
	if (r == 0 && (!json || admin_json_failures() != failures))
		r = -ENOMEM;
	release(d);
	if (r < 0) {
		json_decref(json);
		return err_default(e, r, "the generations cannot be compared");
	}
	*ret_json = json;
	return 0;
}
