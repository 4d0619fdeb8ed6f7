/*
 * The rows of several sources as one sequence, sorted by the bytes of their paths in the image: a
 * row's key behind the path of its source. See image_internal.h.
 *
 * Of a directory all that is below it comes in one run, whoever it belongs to, since what begins
 * with "a/b/" lies together. A source begins with its own directory, so that it is there when the
 * source is empty. What a source has at or below the path of one that is deeper is left out.
 */
#include "catalog/image_internal.h"
#include "base/cleanup.h"

#include <stdlib.h>

struct rows_source {
	const char *path;
	uint32_t path_len;
	const char *subtree;
	uint32_t subtree_len;
	struct table *table;
	struct table_cursor cursor;
	uint32_t deeper; /* bits: sources that are shown inside this one */
	bool begun;      /* its directory came */
	bool found;      /* it has a row */
	bool ended;
	struct table_row row;
	const char *full; /* path of the row, or of the directory; in the row, or built below */
	uint32_t full_len;
	char built[IMAGE_FULL_MAX + 1];
};

struct image_rows {
	uint32_t n;
	struct rows_source *given; /* came last; NULL: none did */
	struct rows_source all[];
};

/* ---- one source ------------------------------------------------------------------------------ */

static bool is_hidden(const struct image_rows *rows, const struct rows_source *s)
{
	for (uint32_t i = 0; s->deeper >> i; i++)
		if (s->deeper >> i & 1 && image_path_below(s->full, s->full_len, rows->all[i].path,
						  rows->all[i].path_len))
			return true;
	return false;
}

/* Its path in the image; of a source at the root that is the key. */
static void set_full(struct rows_source *s)
{
	const char *rel = s->row.key + s->subtree_len;
	uint32_t len = s->row.key_len - s->subtree_len;

	s->full = rel;
	s->full_len = len;
	if (s->path_len == 0)
		return;
	memcpy(s->built + s->path_len + 1, rel, len); /* behind the path and its '/' */
	s->full = s->built;
	s->full_len += s->path_len + 1;
}

/* The next live row that is shown, or the end. */
static int advance(const struct image_rows *rows, struct rows_source *s)
{
	int r;

	while ((r = table_next(s->table, &s->cursor, &s->row)) == 0) {
		if (s->row.key_len < s->subtree_len ||
			memcmp(s->row.key, s->subtree, s->subtree_len) != 0)
			break;
		if (s->row.flags & ROW_DEAD)
			continue;
		s->found = true;
		set_full(s);
		if (!s->deeper || !is_hidden(rows, s))
			return 0;
	}
	if (r < 0 && (r != -ENOENT || s->cursor.ordinal < table_info(s->table)->rows))
		return r;
	s->ended = true;
	return s->found || s->subtree_len == 0 ? 0 : -ENOENT;
}

static int source_init(struct rows_source *s, const struct image_source *from, struct err *e)
{
	int r;

	if (image_check_path(from->path) < 0)
		return err_set(e, -EINVAL, "invalid path '%s' for a source", from->path);
	if (image_subtree(from->subtree, &s->subtree, &s->subtree_len) < 0)
		return err_set(
			e, -EINVAL, "subtree %s must be a directory and end with /", from->subtree);
	s->path = from->path;
	s->path_len = (uint32_t)strlen(from->path);
	s->table = from->table;
	r = table_lower_bound(s->table, s->subtree, s->subtree_len, &s->cursor.ordinal);
	if (r < 0)
		return err_set(e, r, "the object table cannot be read: %s", err_str(r));
	memcpy(s->built, s->path, s->path_len);
	s->built[s->path_len] = '/';
	s->full = s->built;
	s->full_len = s->path_len ? s->path_len + 1 : 0;
	return 0;
}

/* ---- all ------------------------------------------------------------------------------------- */

static int find_deeper(struct image_rows *rows, struct err *e)
{
	for (uint32_t i = 0; i < rows->n; i++)
		for (uint32_t k = 0; k < rows->n; k++) {
			const struct rows_source *a = &rows->all[i];
			const struct rows_source *b = &rows->all[k];

			if (i == k || !image_path_below(b->path, b->path_len, a->path, a->path_len))
				continue;
			if (a->path_len == b->path_len)
				return err_set(
					e, -EINVAL, "two sources have the path /%s", a->path);
			rows->all[i].deeper |= 1u << k;
		}
	return 0;
}

int image_rows_new(
	const struct image_source *sources, uint32_t n, struct image_rows **ret_rows, struct err *e)
{
	struct image_rows *rows;
	int r = 0;

	ensure(n > 0 && n <= LAYOUT_SOURCES_MAX);
	rows = calloc(1, sizeof(*rows) + n * sizeof(rows->all[0]));
	if (!rows)
		return err_set(e, -ENOMEM, "out of memory");
	rows->n = n;
	for (uint32_t i = 0; i < n && r == 0; i++)
		r = source_init(&rows->all[i], &sources[i], e);
	if (r == 0)
		r = find_deeper(rows, e);
	if (r < 0) {
		image_rows_free(rows);
		return r;
	}
	*ret_rows = rows;
	return 0;
}

void image_rows_free(struct image_rows *rows)
{
	if (!rows)
		return;
	for (uint32_t i = 0; i < rows->n; i++)
		table_cursor_release(&rows->all[i].cursor);
	free(rows);
}

/* The one whose path comes first; NULL: all have ended. */
static struct rows_source *first_of(struct image_rows *rows)
{
	struct rows_source *best = NULL;

	for (uint32_t i = 0; i < rows->n; i++) {
		struct rows_source *s = &rows->all[i];

		if (!s->ended && (!best || key_compare(s->full, s->full_len, best->full,
						   best->full_len) < 0))
			best = s;
	}
	return best;
}

int image_rows_next(struct image_rows *rows, struct image_row *ret)
{
	struct rows_source *s = rows->given;
	int r = s ? advance(rows, s) : 0;

	if (s)
		ret->source = (uint32_t)(s - rows->all);
	if (r < 0)
		return r;
	s = first_of(rows);
	rows->given = s;
	if (!s)
		return 0;
	*ret = (struct image_row){
		.source = (uint32_t)(s - rows->all),
		.path = s->full,
		.len = s->full_len,
		.row = s->begun ? &s->row : NULL,
	};
	s->begun = true;
	return 1;
}
