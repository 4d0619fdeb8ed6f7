/* Copies from other places of a tier. See adopt.h. */
#include "cacheworker/adopt.h"
#include "cacheworker/duty.h"
#include "base/cleanup.h"
#include "cacheworker/flight.h"
#include "cacheworker/tier_call.h"

#include <stdlib.h>
#include <string.h>

#define WRITE_ATTEMPTS 4u

static bool closing(const struct worker *w)
{
	return atomic_load(&w->retention.closing);
}

static struct chunk_id chunk_at(const struct volume_id *volume, uint64_t lineage, uint64_t at)
{
	return (struct chunk_id){
		.volume = *volume, .lineage = lineage, .chunk = at >> CHUNK_BITS
	};
}

/* Reads pieces at `at`, in the one or two chunks that they lie in. */
static int read_place(struct worker *w, const struct volume_id *volume, uint64_t lineage,
	uint64_t at, const struct adopt_request *request, char *out)
{
	uint32_t done = 0;
	int r = 0;

	while (r == 0 && done < request->length) {
		struct chunk_id id = chunk_at(volume, lineage, at + done);
		struct chunk *chunk = tier_chunk_find(w->tiers, &id);
		struct piece_run run = {
			.offset = (uint32_t)((at + done) & (CHUNK_BYTES - 1)),
			.object_seed = request->seed,
			.first_piece = (request->object_offset + done) >> PIECE_BITS,
		};

		run.length = min(request->length - done, CHUNK_BYTES - run.offset);
		r = chunk && chunk_present(chunk, run.offset, run.length)
			    ? chunk_read(chunk, &run, out + done)
			    : -ENODATA;
		chunk_unref(chunk);
		done += run.length;
	}
	return r;
}

/* All places that `table` has for the object, but `own`. */
static int read_twins(struct worker *w, struct table *table, const struct adopt_request *request,
	uint64_t own, char *out)
{
	const struct generation_id *id = &table_info(table)->id;
	struct table_row *twin = malloc(2 * sizeof(*twin));
	struct table_row *of = twin + 1;
	uint32_t at = 0;
	int r = -ENOMEM;

	if (!twin)
		return r;
	memcpy(of, request->row, sizeof(*of));
	of->offset = own;
	while ((r = table_find_twin(table, of, &at, twin)) == 0) {
		r = read_place(w, &id->volume, id->lineage, twin->offset + request->object_offset,
			request, out);
		if (r == 0)
			break;
	}
	free(twin);
	return r == 0 ? 0 : -ENODATA;
}

bool adopt_possible(struct source *source)
{
	bool possible;

	pthread_mutex_lock(&source->worker->sources.lock);
	possible =
		source->n_elders > 0 || (source->table && table_info(source->table)->dead_rows > 0);
	pthread_mutex_unlock(&source->worker->sources.lock);
	return possible;
}

/* A look for one unit, which a disk that hangs may keep. */
struct look {
	struct source *source;
	struct table_row row;
	struct adopt_request request;
	char out[];
};

static int run_look(void *arg)
{
	struct look *look = arg;
	struct source *source = look->source;
	struct table *tables[1 + SOURCE_ELDERS];
	uint32_t n = 0;
	int r = -ENODATA;

	pthread_mutex_lock(&source->worker->sources.lock);
	tables[n++] = table_ref(source->table);
	for (uint32_t i = 0; i < source->n_elders; i++)
		tables[n++] = table_ref(source->elders[i]);
	pthread_mutex_unlock(&source->worker->sources.lock);
	for (uint32_t i = 0; i < n; i++) {
		/* In another lineage the same offset is another place. */
		if (r < 0)
			r = read_twins(source->worker, tables[i], &look->request,
				i == 0 ? look->row.offset : UINT64_MAX, look->out);
		table_unref(tables[i]);
	}
	return r;
}

int adopt_read(struct source *source, const struct adopt_request *request, char *out)
{
	struct look *look = malloc(sizeof(*look) + request->length);
	int r;

	if (!look)
		return -ENODATA; /* it is fetched */
	look->source = source;
	memcpy(&look->row, request->row, sizeof(look->row));
	look->request = *request;
	look->request.row = &look->row;
	r = tier_call(source->worker, run_look, free, look);
	if (r == 0) {
		memcpy(out, look->out, request->length);
		counter_add(&source->worker->counters.adopted, 1);
		counter_add(&source->worker->counters.adopted_bytes, request->length);
	}
	if (r != -ETIMEDOUT)
		free(look);
	return r == 0 ? 0 : -ENODATA;
}

/* ---- what is about to be dropped ------------------------------------------------------------- */

/* A piece in memory, out of the budget of units. */
struct piece_kept {
	struct list link;
	struct chunk_id id;
	struct piece_run run;
	char data[];
};

int rescue_init(struct rescue *r)
{
	list_init(&r->pending);
	r->row = malloc(sizeof(*r->row));
	r->live = malloc(sizeof(*r->live));
	r->piece = malloc(PIECE_BYTES);
	if (r->row && r->live && r->piece)
		return 0;
	rescue_release(r);
	return -ENOMEM;
}

static void piece_free(struct worker *w, struct piece_kept *kept)
{
	budget_give(&w->memory, kept->run.length);
	free(kept);
	flight_memory_freed(w);
}

void rescue_release(struct rescue *r)
{
	struct list *node;

	while ((node = list_pop_front(&r->pending)))
		piece_free(r->worker, list_entry(node, struct piece_kept, link));
	free(TAKE(r->row));
	free(TAKE(r->live));
	free(TAKE(r->piece));
}

/* The row of the new table with the bytes that r->row has. */
static bool find_live(struct rescue *r)
{
	const struct table_row *row = r->row;

	return table_find_key(r->to, row->key, row->key_len, r->live) == 0 &&
	       r->live->size == row->size && r->live->tag_len == row->tag_len &&
	       memcmp(r->live->tag, row->tag, row->tag_len) == 0;
}

static void keep_piece(struct rescue *r, const struct chunk_id *id, const struct piece_run *run)
{
	struct piece_kept *kept;

	if (!budget_take(&r->worker->memory, BUDGET_FILL, run->length))
		return;
	kept = malloc(sizeof(*kept) + run->length);
	if (!kept) {
		budget_give(&r->worker->memory, run->length);
		return;
	}
	kept->id = *id;
	kept->run = *run;
	memcpy(kept->data, r->piece, run->length);
	list_push_back(&r->pending, &kept->link);
}

static int write_once(
	struct rescue *r, const struct chunk_id *id, const struct piece_run *run, const char *data)
{
	const struct tier_admission how = { .class = worker_class(
						    r->worker, &id->volume, id->chunk) };
	struct chunk *chunk;
	int status = tier_chunk_admit_as(r->worker->tiers, id, &how, &chunk);

	if (status < 0)
		return status;
	status = chunk_write(chunk, run, data);
	chunk_unref(chunk);
	return status;
}

static int write_piece(
	struct rescue *r, const struct chunk_id *id, const struct piece_run *run, const char *data)
{
	int status = -EAGAIN;

	/* -EAGAIN: the chunk was moved between the two, and is found where it is now. */
	for (uint32_t i = 0; status == -EAGAIN && i < WRITE_ATTEMPTS; i++)
		status = write_once(r, id, run, data);
	if (status == 0) {
		counter_add(&r->worker->counters.adopted_bytes, run->length);
		counter_add(&r->worker->counters.adopted, 1);
	}
	return status;
}

/* One piece of r->row at offset `at` of the object. */
static void copy_piece(struct rescue *r, struct chunk *old, uint64_t at)
{
	uint64_t to = r->live->offset + at;
	struct chunk_id id = chunk_at(&r->volume, r->to_lineage, to);
	struct chunk *there = tier_chunk_find(r->worker->tiers, &id);
	struct piece_run run = {
		.offset = (uint32_t)((r->row->offset + at) & (CHUNK_BYTES - 1)),
		.length = (uint32_t)min(r->row->size - at, (uint64_t)PIECE_BYTES),
		.object_seed = piece_object_seed(
			r->row->key, r->row->key_len, r->row->tag, r->row->tag_len),
		.first_piece = at >> PIECE_BITS,
	};
	uint32_t new_offset = (uint32_t)(to & (CHUNK_BYTES - 1));
	bool wanted = !there || !chunk_present(there, new_offset, run.length);

	chunk_unref(there);
	if (!wanted || !chunk_present(old, run.offset, run.length) ||
		chunk_read(old, &run, r->piece) < 0)
		return;
	run.offset = new_offset;
	if (write_piece(r, &id, &run, r->piece) == -ENOSPC)
		keep_piece(r, &id, &run);
}

void rescue_chunk(struct rescue *r, uint64_t number)
{
	struct chunk_id id = { .volume = r->volume, .lineage = r->from_lineage, .chunk = number };
	struct chunk *old = r->from ? tier_chunk_find(r->worker->tiers, &id) : NULL;
	uint64_t end = (number + 1) * CHUNK_BYTES;
	uint64_t at = number * CHUNK_BYTES;

	while (old && at < end && !closing(r->worker) &&
		source_row_from(r->from, at, r->row) == 0 && r->row->offset < end) {
		uint64_t stop = min(r->row->offset + r->row->size, end);

		at = max(at, r->row->offset);
		if (find_live(r))
			for (; at < stop; at += PIECE_BYTES)
				copy_piece(r, old, at - r->row->offset);
		at = align_up(stop, BLOCK_BYTES);
	}
	chunk_unref(old);
}

void rescue_flush(struct rescue *r)
{
	struct list *node;

	while ((node = list_pop_front(&r->pending))) {
		struct piece_kept *kept = list_entry(node, struct piece_kept, link);

		/* What still has no room is fetched when it is read. */
		(void)!write_piece(r, &kept->id, &kept->run, kept->data);
		piece_free(r->worker, kept);
	}
}
