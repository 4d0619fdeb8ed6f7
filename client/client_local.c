/*
 * Reads from the tier files of this node. What was verified once is one pread; at first touch every
 * piece is read whole and checked against the piece table with a seed made from the object's key
 * and tag, so that bytes under a wrong layout fail as damaged ones do.
 */
#include "client/client_local.h"
#include "base/file.h"
#include "base/hash.h"
#include "client/client_internal.h"
#include "client/client_pieces.h"

#include <string.h>

/* Pieces and gaps of one read: at most one per block, and one more reaching in at each end. */
#define SPANS_MAX (CLIENT_READ_MAX / BLOCK_BYTES + 2)

/* A part of a read within one chunk. */
struct segment {
	struct client_chunk *chunk; /* NULL: nothing is known of it */
	uint64_t offset;            /* in the volume */
	uint32_t length;
	uint8_t *buf;
	uint64_t seq; /* of the chunk in the map, before anything was read */
	bool noted;   /* the worker knows that it is read */
};

static uint32_t in_chunk(uint64_t offset)
{
	return (uint32_t)(offset % CHUNK_BYTES);
}

static uint32_t block_of(uint64_t offset)
{
	return in_chunk(offset) / BLOCK_BYTES;
}

/* `offset` is one of the volume. */
static int pread_chunk(
	const struct client_chunk *chunk, void *buf, uint32_t length, uint64_t offset)
{
	return file_pread_exact(chunk->fd, buf, length, chunk->place.data + in_chunk(offset));
}

static bool is_present(struct client_chunk *chunk, const struct piece_span *span)
{
	uint32_t block = block_of(span->offset);
	uint32_t n = span->padded / BLOCK_BYTES;

	if (client_bits_all(&chunk->present, block, n))
		return true;
	client_chunk_refresh(chunk);
	return client_bits_all(&chunk->present, block, n);
}

/* Splits the segment into spans; -EAGAIN unless every piece of it is present. */
static int find_spans(struct client_volume *volume, const struct segment *seg,
	struct piece_span *spans, uint32_t *ret_n, bool *ret_any)
{
	struct piece_walk walk;
	uint32_t n = 0;
	bool any = false;
	int r;

	piece_walk_init(&walk, volume->table, seg->offset, seg->length);
	while (ensure(n < SPANS_MAX), (r = piece_walk_next(&walk, &spans[n])) > 0) {
		const struct piece_span *span = &spans[n];

		n++;
		if (!span->length && volume->named_only)
			return -EAGAIN; /* client_plan() says what it is */
		if (!span->length)
			continue;
		any = true;
		if (!seg->chunk || !is_present(seg->chunk, span))
			return -EAGAIN;
	}
	if (r < 0)
		/* The worker's bytes are checked against the same table: it fails there, with a
		 * line. */
		return -EAGAIN;
	*ret_n = n;
	*ret_any = any;
	return 0;
}

static int check_bytes(
	const struct segment *seg, const struct piece_span *span, uint32_t last, const void *data)
{
	struct client_chunk *chunk = seg->chunk;
	uint32_t block = block_of(span->offset);
	struct piece_entry entry;
	int r = client_chunk_entry(chunk, block, max(last, block), &entry);

	if (r < 0)
		return r;
	if (entry.length == span->length &&
		hash_xxh3(data, span->length, span->seed) == entry.xxh3) {
		client_chunk_verified(chunk, seg->seq, block, span->padded / BLOCK_BYTES);
		return 0;
	}
	client_chunk_damage(chunk, block, span->padded / BLOCK_BYTES);
	return -EBADMSG;
}

/* A piece that reaches out of the segment is read whole, into other memory; the part asked for is taken from
 * the bytes that were checked. */
static __attribute__((noinline)) int check_edge(
	const struct segment *seg, const struct piece_span *span, uint32_t last)
{
	_Alignas(BLOCK_BYTES) uint8_t piece[PIECE_BYTES];
	uint64_t from = max(span->offset, seg->offset);
	uint64_t to = min(span->offset + span->padded, seg->offset + seg->length);
	int r = pread_chunk(seg->chunk, piece, span->padded, span->offset);

	if (r == 0)
		r = check_bytes(seg, span, last, piece);
	if (r < 0)
		return r;
	memset(piece + span->length, 0, span->padded - span->length);
	memcpy(seg->buf + (from - seg->offset), piece + (from - span->offset), to - from);
	return 0;
}

static int check_span(const struct segment *seg, const struct piece_span *span, uint32_t last)
{
	uint8_t *at = seg->buf + (span->offset - seg->offset);
	int r;

	if (!span->length) {
		memset(at, 0, span->padded); /* bytes of a later generation may lie there by now */
		return 0;
	}
	if (client_bits_all(
		    &seg->chunk->verified, block_of(span->offset), span->padded / BLOCK_BYTES))
		return 0;
	if (span->offset < seg->offset || span->offset + span->padded > seg->offset + seg->length)
		return check_edge(seg, span, last);
	r = check_bytes(seg, span, last, at);
	if (r == 0)
		memset(at + span->length, 0, span->padded - span->length);
	return r;
}

static __attribute__((noinline)) int first_touch(
	struct client_volume *volume, const struct segment *seg)
{
	struct piece_span spans[SPANS_MAX];
	uint32_t last = block_of(seg->offset + seg->length - 1);
	uint32_t n;
	bool any;
	int r = find_spans(volume, seg, spans, &n, &any);

	if (r < 0)
		return r;
	if (!any) {
		memset(seg->buf, 0, seg->length);
		return 0;
	}
	ensure(seg->chunk); /* or its pieces would not have been found present */
	r = pread_chunk(seg->chunk, seg->buf, seg->length, seg->offset);
	for (uint32_t i = 0; i < n && r == 0; i++) {
		bool was = !spans[i].length ||
			   client_bits_all(&seg->chunk->verified, block_of(spans[i].offset),
				   spans[i].padded / BLOCK_BYTES);

		r = check_span(seg, &spans[i], last);
		if (r == 0 && !was)
			counter_add(&volume->client->counters.verified, 1);
	}
	if (r == -EBADMSG)
		counter_add(&volume->client->counters.mismatches, 1);
	return r;
}

/* Not seen before: the worker's map may know it. */
static __attribute__((noinline)) struct client_chunk *open_chunk(
	struct client_volume *volume, const struct chunk_id *id)
{
	struct client_chunk *chunk = client_chunks_open(volume->client->chunks, id);

	if (chunk)
		counter_add(&volume->client->counters.mapped, 1);
	return chunk;
}

static int read_segment(struct client_volume *volume, struct segment *seg)
{
	struct client_chunks *chunks = volume->client->chunks;
	struct chunk_id id = client_volume_chunk(volume, seg->offset);
	int r;

	seg->chunk = client_chunks_get(chunks, &id);
	if (!seg->chunk)
		seg->chunk = open_chunk(volume, &id);
	if (seg->chunk) {
		seg->seq = atomic_load_explicit(&seg->chunk->seq, memory_order_acquire);
		client_chunk_age(seg->chunk, volume->client->verify_age_ns);
	}
	if (seg->chunk && client_bits_all(&seg->chunk->verified, block_of(seg->offset),
				  seg->length / BLOCK_BYTES))
		r = pread_chunk(seg->chunk, seg->buf, seg->length, seg->offset);
	else
		r = first_touch(volume, seg);
	if (r < 0 && r != -EAGAIN && r != -EBADMSG) {
		/* The disk failed: a request to the worker gets the bytes from where they are
		 * whole. */
		if (seg->chunk && r != -ENOMEM)
			client_chunks_drop(chunks, seg->chunk);
		r = -EAGAIN;
	}
	if (r == 0 && seg->chunk && !seg->noted)
		atomic_fetch_add_explicit(
			&seg->chunk->read_blocks, seg->length / BLOCK_BYTES, memory_order_relaxed);
	client_chunk_unref(seg->chunk);
	return r;
}

static int read_range(
	struct client_volume *volume, uint64_t offset, uint32_t length, void *buf, bool noted)
{
	uint64_t end = offset + length;
	uint8_t *out = buf;
	int r = 0;

	CHECK_MAGIC(volume, CLIENT_VOLUME_MAGIC);
	ensure(length && length <= CLIENT_READ_MAX && offset <= UINT64_MAX - CHUNK_BYTES);
	ensure(offset % BLOCK_BYTES == 0 && length % BLOCK_BYTES == 0);
	ensure((uintptr_t)buf % BLOCK_BYTES == 0);
	if (atomic_load(&volume->client->hanging) > 0)
		return -EAGAIN;
	while (offset < end && r == 0) {
		uint64_t stop = min(end, align_down(offset, CHUNK_BYTES) + CHUNK_BYTES);
		struct segment seg = {
			.offset = offset,
			.length = (uint32_t)(stop - offset),
			.buf = out,
			.noted = noted,
		};

		r = read_segment(volume, &seg);
		out += seg.length;
		offset = stop;
	}
	return r;
}

int client_local_read(struct client_volume *volume, uint64_t offset, uint32_t length, void *buf)
{
	return read_range(volume, offset, length, buf, true);
}

void client_local_hangs(struct client_volume *volume, bool now)
{
	if (now)
		atomic_fetch_add(&volume->client->hanging, 1);
	else
		atomic_fetch_sub(&volume->client->hanging, 1);
}

int client_read_local(struct client_volume *volume, uint64_t offset, uint32_t length, void *buf)
{
	struct client_counters *counters = &volume->client->counters;

	if (read_range(volume, offset, length, buf, false) < 0)
		return -EAGAIN;
	counter_add(&counters->local_reads, 1);
	counter_add(&counters->local_bytes, length);
	counter_add(&volume->use->local_bytes, length);
	return 0;
}

bool client_local_present(struct client_volume *volume, uint64_t offset, uint64_t length)
{
	uint64_t end = offset + length;

	while (offset < end) {
		uint64_t stop = min(end, align_down(offset, CHUNK_BYTES) + CHUNK_BYTES);
		struct chunk_id id = client_volume_chunk(volume, offset);
		uint64_t file;

		if (!client_chunks_have(volume->client->chunks, &id, block_of(offset),
			    (uint32_t)((stop - offset) / BLOCK_BYTES), &file))
			return false;
		offset = stop;
	}
	return true;
}
