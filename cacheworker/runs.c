/* Runs of pieces from object tables. See runs.h. */
#include "cacheworker/runs.h"
#include "cacheworker/source.h"
#include "base/piece.h"

#include <stdlib.h>

static struct table *find_table(struct worker *w, const struct chunk_id *id)
{
	struct table *table = NULL;

	pthread_mutex_lock(&w->sources.lock);
	list_for_each (node, &w->sources.all) {
		const struct source *source = list_entry(node, struct source, link);

		if (source->table && source->lineage == id->lineage &&
			volume_id_equal(&source->volume, &id->volume)) {
			table = table_ref(source->table);
			break;
		}
	}
	pthread_mutex_unlock(&w->sources.lock);
	return table;
}

/* The object's pieces from the first that begins in the chunk; an object may begin in the chunk
 * before, at a multiple of a piece from here. */
static void cut(const struct table_row *row, uint64_t chunk, struct piece_run *ret_run)
{
	uint64_t start = max(row->offset, chunk * CHUNK_BYTES);
	uint64_t end = min(row->offset + row->size, (chunk + 1) * CHUNK_BYTES);

	*ret_run = (struct piece_run){
		.offset = (uint32_t)(start % CHUNK_BYTES),
		.length = (uint32_t)(end - start),
		.object_seed = piece_object_seed(row->key, row->key_len, row->tag, row->tag_len),
		.first_piece = (start - row->offset) >> PIECE_BITS,
	};
}

int runs_next(void *arg, const struct chunk_id *id, uint32_t offset, struct piece_run *ret_run)
{
	struct table *table = find_table(arg, id);
	struct table_row *row = malloc(sizeof(*row));
	uint64_t at = id->chunk * CHUNK_BYTES + offset;
	int r = -EAGAIN;

	if (table && row)
		r = source_row_from(table, at, row);
	if (r == 0 && row->offset >= (id->chunk + 1) * CHUNK_BYTES)
		r = -ENOENT;
	if (r == 0)
		cut(row, id->chunk, ret_run);
	free(row);
	table_unref(table);
	return r;
}
