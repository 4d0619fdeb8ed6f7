/*
 * Answers of what is warm, given where the request came in: small ranges that lie in the page cache, for readers
 * elsewhere. No other thread is woken, which would cost more than the answer, and nothing is waited for: the bytes
 * are copied as far as they are in memory (RWF_NOWAIT), no object table is looked into, for the piece table next to
 * them says where pieces begin, and locks are those that a source and a chunk are found by. What is not answered so
 * takes the long way (fetch_plan.c), as if nothing had been tried. See fetch.c.
 */
#include "cacheworker/fetch_internal.h"
#include "base/cleanup.h"

#include <endian.h>
#include <stdlib.h>
#include <string.h>

#define NOW_BYTES   (128u << 10) /* of longer ones the copy costs more than a thread */
#define NOW_ANSWERS 4u           /* that wait to be sent: with more to do, threads share it */

/* A reader elsewhere wants bytes, and not too many. */
static bool is_for_now(const struct fetch *fetch)
{
	const struct frame *asked = &fetch->request->frame;

	return (asked->op == FRAME_FETCH || asked->op == FRAME_FETCH_CACHED) &&
	       !(asked->flags & (FRAME_LOCAL_OK | FRAME_PEER)) && asked->length <= NOW_BYTES &&
	       !fetch->request->cancelled && atomic_load(&fetch->worker->answers) < NOW_ANSWERS;
}

/* Pieces follow one another from the range's first block to its last: their checksums; what is behind an object's end
 * in its last block is zeros. False: they do not. */
static bool take_sums(
	struct fetch *fetch, const struct chunk_sum *table, uint32_t length, uint32_t *ret_bytes)
{
	struct gathered *out = fetch->out;
	uint32_t bytes = 0;
	uint32_t n = 0;

	for (uint32_t at = 0; at < length;) {
		const struct chunk_sum *sum = &table[at / BLOCK_BYTES];
		uint32_t padded = (uint32_t)align_up(sum->length, BLOCK_BYTES);

		if (padded == 0 || padded > length - at)
			return false;
		memset(out->data + at + sum->length, 0, padded - sum->length);
		out->sums[n++] = htole64(sum->sum);
		bytes += sum->length;
		at += padded;
	}
	fetch->n_sums = n;
	*ret_bytes = bytes;
	return true;
}

/* The range is in fetch->out, with its checksums; *ret_bytes of it are objects'. */
static bool take(struct fetch *fetch, struct chunk *chunk, uint32_t *ret_bytes)
{
	struct chunk_sum table[NOW_BYTES / BLOCK_BYTES];
	uint32_t at = (uint32_t)(fetch->request->frame.offset & (CHUNK_BYTES - 1));
	uint32_t length = fetch->request->frame.length;

	fetch->n_sums = length / BLOCK_BYTES; /* at most */
	if (!chunk_present(chunk, at, length) || fetch_make_head(fetch, BUDGET_DEMAND, length) < 0)
		return false;
	fetch->out->data = buffers_take(&fetch->worker->buffers, length);
	return fetch->out->data &&
	       chunk_read_blocks_now(chunk, at, length, fetch->out->data, table) == 0 &&
	       take_sums(fetch, table, length, ret_bytes);
}

bool fetch_answer_now(struct fetch *fetch)
{
	const struct frame *asked = &fetch->request->frame;
	struct worker *w = fetch->worker;
	struct chunk *chunk = is_for_now(fetch) ? fetch_find_chunk(fetch, asked->offset) : NULL;
	uint32_t bytes = 0;
	bool taken = chunk && take(fetch, chunk, &bytes);

	if (taken) {
		if (fetch_is_read(fetch))
			chunk_note_read(chunk);
		tier_volume_asked(w->tiers, &fetch->source->volume, 0, asked->length);
		fetch_note_hit(fetch);
		counter_add(&w->counters.hit_bytes, bytes);
		if (fetch_counts(fetch))
			counter_add(&fetch->source->use.tier_bytes, bytes);
		counter_add(&w->counters.at_once, 1);
		fetch_reply_out(fetch);
	} else {
		fetch_gathered_free(TAKE(fetch->out));
		fetch->n_sums = 0;
	}
	chunk_unref_by(chunk, w->disk); /* it may have been evicted meanwhile */
	return taken;
}
