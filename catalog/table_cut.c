/*
 * A table cut to a part of its source: the rows of that part alone, at the offsets that they have. Who gets it learns
 * nothing of the others: neither names nor numbers of rows, nor where the volume ends. The same table and part always
 * give the same bytes.
 */
#include "catalog/catalog_internal.h"
#include "base/cleanup.h"

#include <stdlib.h>

DEFINE_CLEANUP(struct table_writer *, table_writer_free);

/* The rows whose keys begin with `prefix`; *end is raised to where they end. */
static int copy_rows(struct table *table, const struct key_prefix *prefix, struct table_writer *w,
	uint64_t *end, struct err *e)
{
	_cleanup_(table_cursor_release) struct table_cursor cursor = { 0 };
	_cleanup_free_ struct table_row *row = malloc(sizeof(*row));
	int r = row ? table_lower_bound(table, prefix->text, prefix->len, &cursor.ordinal)
		    : -ENOMEM;

	while (r == 0 && (r = table_next(table, &cursor, row)) == 0) {
		if (row->key_len < prefix->len || memcmp(row->key, prefix->text, prefix->len) != 0)
			return 0;
		if (row_has_bytes(row))
			*end = max(*end, layout_after(row->offset, row->size));
		r = table_writer_add(w, row, e);
	}
	return r == -ENOENT ? 0 : r;
}

int table_cut(struct table *table, const struct key_prefixes *part, const char *path,
	uint8_t ret_hash[SHA256_BYTES], struct err *e)
{
	_cleanup_(table_writer_free_p) struct table_writer *w = table_writer_new();
	const struct table_info *info = table_info(table);
	struct generation_id id = { .volume = info->id.volume,
		.lineage = info->id.lineage,
		.generation = info->id.generation };
	uint64_t end = 0;
	int r = w ? table_writer_open(w, path, e) : -ENOMEM;

	for (uint32_t i = 0; i < part->n && r == 0; i++)
		r = copy_rows(table, &part->all[i], w, &end, e);
	if (r == 0) {
		table_writer_built_at(w, info->built_at);
		r = table_writer_finish(w, &id, end, e);
	}
	if (r < 0)
		return err_default(e, r, "an object table cannot be cut");
	memcpy(ret_hash, id.hash, SHA256_BYTES);
	return 0;
}
