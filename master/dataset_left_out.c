/* Keys of a generation that no file can have, by the rules of the image. See dataset.h. */
#include "base/cleanup.h"
#include "base/hash.h"
#include "master/dataset.h"

#include <string.h>

#define KEYS_LISTED 100u

struct walk {
	const struct dataset_mount *mount;
	struct table *table;
	struct table_cursor cursor;
	struct table_row row;
	struct table_row other;           /* looked up meanwhile */
	char before[LIMIT_KEY_BYTES + 1]; /* the directory of the key before */
	uint32_t before_len;
	uint32_t subtree_len; /* of the mount: its keys begin after it */
	json_t *keys;
	uint64_t n;
};

static void note(struct walk *w, const struct table_row *row, const char *reason)
{
	const char *name = row->key + w->subtree_len;
	uint32_t len = row->key_len - w->subtree_len;
	char hex[2 * LIMIT_KEY_BYTES + 1];
	json_t *json;

	if (w->n++ >= KEYS_LISTED)
		return;
	json = json_pack("{s:s, s:s}", "reason", reason, "mount", w->mount->path);
	if (json_object_set_new(json, "key", json_stringn(name, len)) < 0) {
		hash_hex(name, len, hex);
		(void)json_object_set_new(json, "key_hex", json_string(hex)); /* counted */
	}
	(void)json_array_append_new(w->keys, json); /* counted */
}

/* Is the first `len` bytes of the key the directory before it, or above that? All keys below one
 * directory stand together: then it was looked at. */
static bool was_seen(const struct walk *w, uint32_t len)
{
	return w->before_len >= len && memcmp(w->before, w->row.key, len) == 0 &&
	       (w->before_len == len || w->before[len] == '/');
}

/* Directories above a key win over objects of the same name. */
static int look_above(struct walk *w)
{
	uint32_t above = 0;

	for (uint32_t len = w->subtree_len + 1; len < w->row.key_len; len++) {
		int r;

		if (w->row.key[len] != '/')
			continue;
		above = len;
		if (was_seen(w, len))
			continue;
		r = table_find_key(w->table, w->row.key, len, &w->other);
		if (r == 0 && !(w->other.flags & ROW_DIRECTORY))
			note(w, &w->other, "a directory has the same name");
		else if (r < 0 && r != -ENOENT)
			return r;
	}
	memcpy(w->before, w->row.key, above);
	w->before_len = above;
	return 0;
}

static int walk(struct walk *w)
{
	const char *subtree = w->mount->subtree ? w->mount->subtree : "";
	uint32_t len = (uint32_t)strlen(subtree);
	int r = table_lower_bound(w->table, subtree, len, &w->cursor.ordinal);

	w->subtree_len = len;
	while (r == 0 && (r = table_next(w->table, &w->cursor, &w->row)) == 0) {
		const char *reason;

		if (w->row.key_len < len || memcmp(w->row.key, subtree, len) != 0)
			return 0;
		if (w->row.flags & ROW_DEAD)
			continue;
		reason = image_key_refuse(w->row.key + len, w->row.key_len - len);
		if (reason)
			note(w, &w->row, reason);
		else
			r = look_above(w);
		if (r < 0)
			return r;
	}
	return r == -ENOENT ? 0 : r;
}

static int walk_mount(struct source_set *sources, const struct dataset *d,
	const struct dataset_mount *mount, struct walk *w, struct err *e)
{
	const struct dataset_generation *shown = dataset_shown(d, &mount->volume);
	struct source_pin which = { 0 }; /* the newest */
	struct source_view view;
	int r;

	if (source_set_view(sources, &mount->volume, &view) < 0 || view.newest.serial == 0)
		return 0; /* not listed yet */
	w->mount = mount;
	w->cursor = (struct table_cursor){ 0 };
	w->before_len = 0;
	if (shown)
		which = (struct source_pin){ shown->lineage, shown->generation };
	r = source_set_open_table(sources, &mount->volume, &which, &w->table, e);
	if (r == 0)
		r = walk(w);
	table_cursor_release(&w->cursor);
	table_unref(TAKE(w->table));
	return r;
}

int dataset_left_out_json(
	struct source_set *sources, const struct dataset *d, json_t **ret_json, struct err *e)
{
	uint64_t failures = admin_json_failures();
	struct walk *w = calloc(1, sizeof(*w));
	json_t *json;
	int r = 0;

	if (!w)
		return err_set(e, -ENOMEM, "out of memory");
	w->keys = json_array();
	for (uint32_t i = 0; i < d->n_mounts && r == 0; i++)
		r = walk_mount(sources, d, &d->mounts[i], w, e);
	json = json_pack("{s:I, s:O}", "count", (json_int_t)w->n, "keys", w->keys);
	json_decref(w->keys);
	free(w);
	if (r == 0 && (!json || admin_json_failures() != failures))
		r = -ENOMEM;
	if (r < 0) {
		json_decref(json);
		return err_default(e, r, "the objects that are left out are unknown");
	}
	*ret_json = json;
	return 0;
}
