/* Paths of an image back to rows of its table, by the rules of image.c. See catalog.h. */
#include "catalog/image_internal.h"
#include "base/cleanup.h"

#include <stdlib.h>

/* Is there a live key below `dir` (ends with '/', or is empty) that the image can name? */
static int directory_exists(struct table *table, const char *dir, uint32_t len,
	uint32_t subtree_len, struct table_row *row)
{
	_cleanup_(table_cursor_release) struct table_cursor cursor = { 0 };
	int r = table_lower_bound(table, dir, len, &cursor.ordinal);

	while (r == 0 && (r = table_next(table, &cursor, row)) == 0) {
		if (row->key_len < len || memcmp(row->key, dir, len) != 0)
			return -ENOENT;
		if (!(row->flags & ROW_DEAD) &&
			!image_key_refuse(row->key + subtree_len, row->key_len - subtree_len))
			return 0;
	}
	return r;
}

/* The row of a directory that exists: its marker's, or one made up. `dir` ends with '/' or is
 * empty. */
static int directory_row(struct table *table, const char *dir, uint32_t len, struct table_row *row)
{
	int r = len ? table_find_key(table, dir, len, row) : -ENOENT;

	if (r != -ENOENT)
		return r;
	memset(row, 0, offsetof(struct table_row, key));
	row->flags = ROW_DIRECTORY;
	row->key_len = (uint16_t)len;
	memcpy(row->key, dir, len);
	row->key[len] = '\0';
	row->tag[0] = '\0';
	return 0;
}

/* -ENOTDIR when a part of the path is a file, else -ENOENT. */
static int missing(struct table *table, const char *key, uint32_t len, uint32_t subtree_len,
	struct table_row *row)
{
	for (uint32_t i = subtree_len; i < len; i++) {
		int r;

		if (key[i] != '/')
			continue;
		r = directory_exists(table, key, i + 1, subtree_len, row);
		if (r == -ENOENT)
			r = table_find_key(table, key, i, row) == 0 ? -ENOTDIR : -ENOENT;
		if (r < 0)
			return r;
	}
	return -ENOENT;
}

static int resolve(
	struct table *table, const char *subtree_text, const char *path, struct table_row *row)
{
	char key[LIMIT_KEY_BYTES + 2];
	const char *subtree;
	uint32_t subtree_len;
	size_t path_len = strlen(path);
	uint32_t len;
	int r;

	if (image_subtree(subtree_text, &subtree, &subtree_len) < 0)
		return -EINVAL;
	if (path_len > LIMIT_KEY_BYTES - subtree_len || (path_len && path[path_len - 1] == '/') ||
		image_key_refuse(path, (uint32_t)path_len))
		return -ENOENT;
	memcpy(key, subtree, subtree_len);
	memcpy(key + subtree_len, path, path_len + 1);
	len = subtree_len + (uint32_t)path_len;
	if (path_len == 0)
		return directory_row(table, key, len, row);
	key[len] = '/';
	r = directory_exists(table, key, len + 1, subtree_len, row);
	if (r == 0)
		return directory_row(table, key, len + 1, row);
	if (r == -ENOENT)
		r = table_find_key(table, key, len, row);
	return r == -ENOENT ? missing(table, key, len, subtree_len, row) : r;
}

int image_resolve(struct table *table, const struct image_options *options, const char *path,
	struct table_row *row)
{
	return resolve(table, options ? options->subtree : NULL, path, row);
}

/* ---- several sources ------------------------------------------------------------------------- */

/* The row of a directory for which no source has a row. */
static void made_up(struct table_row *row, const char *path, size_t len)
{
	len = min(len, (size_t)LIMIT_KEY_BYTES);
	memset(row, 0, offsetof(struct table_row, key));
	row->flags = ROW_DIRECTORY;
	row->key_len = (uint16_t)len;
	memcpy(row->key, path, len);
	row->key[len] = '\0';
	row->tag[0] = '\0';
}

int image_source_at(const struct image_source *sources, uint32_t n, const char *path,
	uint32_t *ret_source, const char **ret_rest)
{
	size_t len = strlen(path);
	size_t best = 0;
	int r = -ENOENT;

	for (uint32_t i = 0; i < n; i++) {
		size_t at_len = strlen(sources[i].path);

		if (!image_path_below(path, len, sources[i].path, at_len) ||
			(r == 0 && at_len < best))
			continue;
		best = at_len;
		*ret_source = i;
		*ret_rest = path + at_len + (at_len > 0 && path[at_len] == '/');
		r = 0;
	}
	return r;
}

/* The last one that lies below the path; `n`: none does. */
static uint32_t source_below(const struct image_source *sources, uint32_t n, const char *path)
{
	size_t len = strlen(path);
	uint32_t found = n;

	for (uint32_t i = 0; i < n; i++) {
		size_t at_len = strlen(sources[i].path);

		if (at_len > len && image_path_below(sources[i].path, at_len, path, len))
			found = i;
	}
	return found;
}

int image_resolve_sources(const struct image_source *sources, uint32_t n, const char *path,
	uint32_t *ret_source, struct table_row *row)
{
	uint32_t leads = source_below(sources, n, path);
	uint32_t source = 0;
	const char *rest;
	int r = image_source_at(sources, n, path, &source, &rest);

	if (r == 0)
		r = resolve(sources[source].table, sources[source].subtree, rest, row);
	/* A directory that leads to a source is there whatever another says; it may have a row. */
	if (leads < n &&
		(r == -ENOENT || r == -ENOTDIR || (r == 0 && !(row->flags & ROW_DIRECTORY)))) {
		made_up(row, path, strlen(path));
		source = leads;
		r = 0;
	}
	if (r == 0)
		*ret_source = source;
	return r;
}
