/*
 * Answers of bytes that are in the page cache, for readers elsewhere: the pages themselves go out, through a pipe,
 * with the checksums that are stored next to them, which the reader compares. No byte is touched, nor copied, and no
 * memory of ours is used. See fetch.c.
 */
#include "cacheworker/fetch_internal.h"
#include "base/cleanup.h"
#include "base/piece.h"

#include <stdlib.h>

/* Shorter ones are copied: the calls cost more than that. */
#define ZERO_COPY_LEAST (64u << 10)

/* Does it begin and end with pieces, whose checksums are stored? */
static bool is_whole(const struct span *span)
{
	uint64_t end = span->object_offset + span->length;

	return span->object_offset % PIECE_BYTES == 0 &&
	       (end % PIECE_BYTES == 0 || end == span->object_size);
}

/* Objects follow one another from the range's begin to its end: what lies between would be of any content. */
static bool is_covered(const struct fetch *fetch)
{
	const struct frame *asked = &fetch->request->frame;
	uint64_t at = asked->offset;

	for (uint32_t i = 0; i < fetch->n_spans; i++) {
		const struct span *span = &fetch->spans[i];

		if (span->wait.flight || span->copied || span->at != at || !is_whole(span))
			return false;
		at = align_up(span->at + span->length, BLOCK_BYTES);
	}
	return at == asked->offset + asked->length;
}

static int send_pages(struct fetch *fetch, struct chunk *chunk, struct gathered *out)
{
	struct chunk_sum table[LIMIT_PAYLOAD_BYTES / BLOCK_BYTES];
	int r = pipes_take(&out->worker->pipes, &out->pipe);

	if (r == 0)
		r = chunk_splice_blocks_now(chunk, (uint32_t)(out->offset & (CHUNK_BYTES - 1)),
			out->length, out->pipe.in, table);
	if (r == 0 && !fetch_take_sums(out, fetch->spans, fetch->n_spans, table))
		r = -EAGAIN;
	if (r == 0)
		counter_add(&out->worker->counters.lent_bytes, out->length);
	return r;
}

bool fetch_zero_copy(struct fetch *fetch)
{
	struct chunk *chunk;
	int r;

	if (fetch->out || !fetch->request->pipe_ok ||
		fetch->request->frame.length < ZERO_COPY_LEAST || !is_covered(fetch))
		return false;
	chunk = fetch_find_chunk(fetch, fetch->request->frame.offset);
	if (!chunk)
		return false;
	r = fetch_make_head(fetch, BUDGET_DEMAND, 0);
	if (r == 0)
		r = send_pages(fetch, chunk, fetch->out);
	chunk_unref(chunk);
	if (r < 0)
		fetch_gathered_free(TAKE(fetch->out));
	return r == 0;
}
