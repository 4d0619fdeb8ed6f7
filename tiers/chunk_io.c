/* Writing, reading and checking the pieces of a chunk. See tiers.h. */
#include "tiers/tier_set_internal.h"
#include "base/clock.h"
#include "base/crash_point.h"
#include "base/hash.h"
#include "base/piece.h"
#include "tiers/move_internal.h"

/* Most that a write adds to a file in addition to its data: pages of the table and of the tree of
 * extents. */
#define WRITE_SLACK_BYTES (24u << 10)

/* Pieces that follow one another, at most CHUNK_IO_BYTES: what one call of the file takes. */
struct span {
	uint32_t offset; /* in the chunk */
	uint32_t length;
	uint32_t n;     /* pieces */
	uint64_t piece; /* number of the first in its object */
	uint64_t object_seed;
};

static bool run_is_valid(const struct piece_run *run)
{
	return run->offset % BLOCK_BYTES == 0 && run->length > 0 && run->offset < CHUNK_BYTES &&
	       run->length <= CHUNK_BYTES - run->offset;
}

static struct span span_at(const struct piece_run *run, uint32_t done)
{
	uint32_t length = min(run->length - done, CHUNK_IO_BYTES);

	return (struct span){
		.offset = run->offset + done,
		.length = length,
		.n = (length + PIECE_BYTES - 1) / PIECE_BYTES,
		.piece = run->first_piece + done / PIECE_BYTES,
		.object_seed = run->object_seed,
	};
}

static uint32_t piece_length(const struct span *span, uint32_t i)
{
	return min(span->length - i * PIECE_BYTES, PIECE_BYTES);
}

static struct span span_piece(const struct span *span, uint32_t i)
{
	return (struct span){
		.offset = span->offset + i * PIECE_BYTES,
		.length = piece_length(span, i),
		.n = 1,
		.piece = span->piece + i,
		.object_seed = span->object_seed,
	};
}

static uint32_t first_block(const struct span *span)
{
	return span->offset / BLOCK_BYTES;
}

static uint32_t blocks(const struct span *span)
{
	return (span->length + BLOCK_BYTES - 1) / BLOCK_BYTES;
}

static uint64_t checksum(const struct span *span, uint32_t i, const void *data)
{
	return hash_xxh3(
		data, piece_length(span, i), piece_seed(span->object_seed, span->piece + i));
}

/* The file's mode after its state changed; a failure only leaves it as it was. */
static void note_progress(struct chunk *chunk)
{
	if (chunk_note_progress(chunk))
		chunk_note_mode(chunk);
}

/* ---- writing --------------------------------------------------------------------------------- */

/* Encodes the entries of their pieces; returns how many bytes of the table these take. */
static uint32_t fill_entries(const struct chunk_part *parts, uint32_t n, uint8_t *table)
{
	uint32_t at = 0;

	for (uint32_t p = 0; p < n; p++) {
		const struct piece_run *run = &parts[p].run;

		for (uint32_t i = 0; i * PIECE_BYTES < run->length; i++) {
			const char *piece = (const char *)parts[p].data + (size_t)i * PIECE_BYTES;
			struct piece_entry entry = { .length = min(run->length - i * PIECE_BYTES,
							     PIECE_BYTES) };

			entry.xxh3 = parts[p].sums ? parts[p].sums[i]
						   : hash_xxh3(piece, entry.length,
							     piece_seed(run->object_seed,
								     run->first_piece + i));
			at = (run->offset - parts[0].run.offset + i * PIECE_BYTES) / BLOCK_BYTES *
			     CHUNK_ENTRY_BYTES;
			piece_entry_encode(&entry, table + at);
		}
	}
	return at + CHUNK_ENTRY_BYTES;
}

static uint32_t blocks_of_parts(const struct chunk_part *parts, uint32_t n)
{
	const struct piece_run *last = &parts[n - 1].run;

	return (last->offset - parts[0].run.offset + last->length + BLOCK_BYTES - 1) / BLOCK_BYTES;
}

/* Data, then entries, then bits: a non-zero entry is a present piece at any time. CHUNK_IO_BYTES at most. */
static int write_parts(
	struct chunk *chunk, const struct chunk_part *parts, uint32_t n, void *bounce)
{
	uint8_t table[CHUNK_IO_BYTES / BLOCK_BYTES * CHUNK_ENTRY_BYTES] = { 0 };
	uint32_t bytes = fill_entries(parts, n, table);
	const struct chunk_fds *fds = chunk_fds(chunk);
	uint32_t offset = parts[0].run.offset;
	uint64_t began = clock_mono_ns();
	int r = chunk_file_write_parts(fds, &chunk->place, parts, n, bounce);

	CRASH_POINT("piece.written");
	if (r == 0)
		r = chunk_file_write_entries(fds, &chunk->place, offset, table, bytes);
	CRASH_POINT("piece.entered");
	if (tier_io(chunk->tier, r, began) < 0)
		return r;
	chunk_bits_set(chunk, offset / BLOCK_BYTES, blocks_of_parts(parts, n));
	histogram_note(&chunk->set->histograms.write_time, clock_mono_ns() - began);
	for (uint32_t i = 0; i < n; i++)
		counter_add(&chunk->set->counters.written, parts[i].run.length);
	return 0;
}

/* The same with its bytes charged, before and after. */
static int write_charged(
	struct chunk *chunk, const struct chunk_part *parts, uint32_t n, void *bounce)
{
	uint64_t reserved = (uint64_t)blocks_of_parts(parts, n) * BLOCK_BYTES + WRITE_SLACK_BYTES;
	uint64_t allocated = 0;
	int r = chunk_reserve(chunk, reserved, 0);

	if (r < 0)
		return r;
	r = write_parts(chunk, parts, n, bounce);
	if (chunk_file_allocated(chunk_fds(chunk), &allocated) < 0)
		allocated = 0; /* the next look will charge it */
	chunk_settle(chunk, reserved, allocated);
	if (r == -ENOSPC)
		tier_refresh_space(chunk->tier, true);
	return r;
}

/* The next pieces of the span that are not present: cut from its front; n == 0 when none is
 * left. */
static struct span next_absent(const struct chunk *chunk, struct span *rest)
{
	struct span found = { 0 };
	uint32_t i = 0;

	for (; i < rest->n; i++) {
		struct span piece = span_piece(rest, i);
		bool present = chunk_bits_all(chunk->present, first_block(&piece), blocks(&piece));

		if (present && found.n)
			break;
		if (present)
			continue;
		if (!found.n)
			found = piece;
		else
			found.length += piece.length;
		found.n += piece.offset != found.offset;
	}
	rest->offset += i * PIECE_BYTES;
	rest->length -= min(i * PIECE_BYTES, rest->length);
	rest->piece += i;
	rest->n -= i;
	return found;
}

/* Takes a place at the disk and opens the file. */
static int enter(struct chunk *chunk, enum gate_kind kind, struct gate_call *ret_call)
{
	int r = gate_enter(&chunk->tier->gate, kind, ret_call);

	if (r < 0)
		return r;
	r = chunk_pin(chunk);
	if (r < 0)
		gate_leave(&chunk->tier->gate, ret_call);
	return r;
}

static void leave(struct chunk *chunk, const struct gate_call *call)
{
	chunk_unpin(chunk);
	gate_leave(&chunk->tier->gate, call);
}

int chunk_write(struct chunk *chunk, const struct piece_run *run, const void *data)
{
	return chunk_write_summed(chunk, run, data, NULL);
}

/* Takes a place at the disk for a write, and opens the file. */
static int write_enter(struct chunk *chunk, struct gate_call *ret_call)
{
	int r = chunk_write_begin(chunk);

	if (r < 0)
		return r;
	r = enter(chunk, GATE_WRITE, ret_call);
	if (r == 0)
		return 0;
	chunk_write_end(chunk);
	return r == -ENODATA ? -ENOSPC : r;
}

static void write_leave(struct chunk *chunk, const struct gate_call *call)
{
	note_progress(chunk);
	leave(chunk, call);
	chunk_write_end(chunk);
}

int chunk_write_summed(
	struct chunk *chunk, const struct piece_run *run, const void *data, const uint64_t *sums)
{
	struct gate_call call;
	void *bounce;
	int r;

	CHECK_MAGIC(chunk, CHUNK_MAGIC);
	if (!run_is_valid(run))
		return -EINVAL;
	if (chunk_present(chunk, run->offset, run->length))
		return 0;
	r = write_enter(chunk, &call);
	if (r < 0)
		return r;
	bounce = run->whole_blocks ? NULL : buffers_take(&chunk->set->bounce, CHUNK_IO_BYTES);
	if (!bounce && !run->whole_blocks)
		r = -ENOMEM;
	for (uint32_t done = 0; r == 0 && done < run->length; done += CHUNK_IO_BYTES) {
		struct span rest = span_at(run, done);
		struct span absent = next_absent(chunk, &rest);

		while (r == 0 && absent.n) {
			uint32_t at = absent.offset - run->offset;
			const struct chunk_part part = {
				.run = { .offset = absent.offset,
					.length = absent.length,
					.object_seed = absent.object_seed,
					.first_piece = absent.piece },
				.data = (const char *)data + at,
				.sums = sums ? sums + at / PIECE_BYTES : NULL,
			};

			r = write_charged(chunk, &part, 1, bounce);
			absent = next_absent(chunk, &rest);
		}
	}
	buffers_give(&chunk->set->bounce, bounce, CHUNK_IO_BYTES);
	write_leave(chunk, &call);
	return r == -ENOSPC ? move_spill(chunk, run->length) : r;
}

/* True if each part is a valid run and starts in the block after the previous one. */
static bool parts_are_valid(const struct chunk_part *parts, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		const struct piece_run *run = &parts[i].run;

		if (!run_is_valid(run) || run->length > CHUNK_IO_BYTES ||
			(i > 0 && run->offset != parts[0].run.offset +
							 blocks_of_parts(parts, i) * BLOCK_BYTES))
			return false;
	}
	return n > 0 && blocks_of_parts(parts, n) * BLOCK_BYTES <= CHUNK_IO_BYTES;
}

int chunk_write_parts(struct chunk *chunk, const struct chunk_part *parts, uint32_t n)
{
	bool whole_blocks = true;
	struct gate_call call;
	void *bounce;
	int r;

	CHECK_MAGIC(chunk, CHUNK_MAGIC);
	if (!parts_are_valid(parts, n))
		return -EINVAL;
	if (chunk_bits_any(
		    chunk->present, parts[0].run.offset / BLOCK_BYTES, blocks_of_parts(parts, n)))
		return -EEXIST;
	r = write_enter(chunk, &call);
	if (r < 0)
		return r;
	for (uint32_t i = 0; i < n; i++)
		whole_blocks &= parts[i].run.whole_blocks;
	bounce = whole_blocks ? NULL : buffers_take(&chunk->set->bounce, CHUNK_IO_BYTES);
	if (bounce || whole_blocks)
		r = write_charged(chunk, parts, n, bounce);
	else
		r = -ENOMEM;
	buffers_give(&chunk->set->bounce, bounce, CHUNK_IO_BYTES);
	write_leave(chunk, &call);
	return r;
}

/* ---- reading --------------------------------------------------------------------------------- */

/* Reads a span and its entries. */
static int load_span(struct chunk *chunk, const struct span *span, void *out,
	struct piece_entry entries[CHUNK_RUN_PIECES], void *bounce)
{
	const struct chunk_fds *fds = chunk_fds(chunk);
	uint64_t began = clock_mono_ns();
	int r = chunk_file_read_entries(fds, &chunk->place, span->offset, entries, span->n);

	if (r == 0)
		r = chunk_file_read(fds, &chunk->place, span->offset, out, span->length, bounce);
	if (r == -ENODATA)
		r = -EIO; /* somebody cut the file */
	histogram_note(&chunk->set->histograms.read_time, clock_mono_ns() - began);
	return tier_io(chunk->tier, r, began);
}

static bool piece_matches(
	const struct span *span, uint32_t i, const struct piece_entry *entry, const void *data)
{
	return entry->length == piece_length(span, i) && entry->xxh3 == checksum(span, i, data);
}

/* Makes a piece ABSENT. The entry goes first: a writer that sees the bit gone may write at once. */
static void drop_piece(struct chunk *chunk, const struct span *piece)
{
	static const uint8_t none[CHUNK_ENTRY_BYTES];
	uint64_t began = clock_mono_ns();
	int r = chunk_file_write_entries(
		chunk_fds(chunk), &chunk->place, piece->offset, none, sizeof(none));

	CRASH_POINT("piece.dropped");
	/* When the entry stays, the next start sees the piece again, and its first read drops
	 * it. */
	(void)tier_io(chunk->tier, r, began);
	chunk_bits_clear(chunk, first_block(piece), blocks(piece));
	extent_unmark(chunk, true);
	counter_add(&chunk->set->counters.mismatches, 1);
	note_progress(chunk);
}

/*
 * A second look at a piece that seemed damaged; drops it when it is. The file is read again: what a
 * reader saw may have been its own fault, or replaced since.
 */
static int look_again(struct chunk *chunk, const struct span *piece, void *out, void *bounce)
{
	struct piece_entry entries[CHUNK_RUN_PIECES];
	int r = -ENODATA;

	pthread_mutex_lock(&chunk->repair);
	if (chunk_bits_any(chunk->present, first_block(piece), blocks(piece))) {
		r = load_span(chunk, piece, out, entries, bounce);
		/* Its place in an extent may be another life's of the chunk by now, whose entries
		 * are not ours to take. */
		if (chunk->extent && chunk_is_dropped(chunk))
			r = -ENODATA;
		else if (r == 0 && !piece_matches(piece, 0, &entries[0], out))
			r = -EBADMSG;
		if (r < 0 && r != -ENODATA)
			drop_piece(chunk, piece);
		else if (r == 0)
			chunk_bits_verified(chunk, first_block(piece), blocks(piece));
	}
	pthread_mutex_unlock(&chunk->repair);
	return r;
}

/* -ENODATA, -EBADMSG or -EIO of the worst piece; every piece is looked at. */
static int look_at_each(struct chunk *chunk, const struct span *span, void *out, void *bounce)
{
	int worst = 0;

	for (uint32_t i = 0; i < span->n; i++) {
		struct span piece = span_piece(span, i);
		int r = look_again(chunk, &piece, (char *)out + (size_t)i * PIECE_BYTES, bounce);

		if (r == -EBADMSG || worst == 0)
			worst = r;
	}
	return worst;
}

static int read_span(struct chunk *chunk, const struct span *span, void *out, void *bounce)
{
	struct piece_entry entries[CHUNK_RUN_PIECES];
	bool all_match = true;
	int r;

	if (!chunk_bits_all(chunk->present, first_block(span), blocks(span)))
		return -ENODATA;
	r = load_span(chunk, span, out, entries, bounce);
	for (uint32_t i = 0; r == 0 && all_match && i < span->n; i++)
		all_match = piece_matches(
			span, i, &entries[i], (const char *)out + (size_t)i * PIECE_BYTES);
	if (r < 0 || !all_match)
		return look_at_each(chunk, span, out, bounce);
	if (atomic_load(&chunk->unverified_blocks))
		chunk_bits_verified(chunk, first_block(span), blocks(span));
	counter_add(&chunk->set->counters.read, span->length);
	return 0;
}

int chunk_read(struct chunk *chunk, const struct piece_run *run, void *out)
{
	struct gate_call call;
	bool unverified;
	void *bounce;
	int r;

	CHECK_MAGIC(chunk, CHUNK_MAGIC);
	if (!run_is_valid(run))
		return -EINVAL;
	if (!chunk_present(chunk, run->offset, run->length))
		return -ENODATA;
	r = enter(chunk, GATE_READ, &call);
	if (r < 0)
		return r;
	unverified = atomic_load(&chunk->unverified_blocks) > 0;
	bounce = buffers_take(&chunk->set->bounce, CHUNK_IO_BYTES);
	if (!bounce)
		r = -ENOMEM;
	for (uint32_t done = 0; r == 0 && done < run->length; done += CHUNK_IO_BYTES) {
		struct span span = span_at(run, done);

		r = read_span(chunk, &span, (char *)out + done, bounce);
	}
	buffers_give(&chunk->set->bounce, bounce, CHUNK_IO_BYTES);
	if (unverified && atomic_load(&chunk->unverified_blocks) == 0)
		note_progress(chunk);
	leave(chunk, &call);
	return r;
}

static bool blocks_are_valid(uint32_t offset, uint32_t length)
{
	return offset % BLOCK_BYTES == 0 && length % BLOCK_BYTES == 0 && length > 0 &&
	       length <= CHUNK_IO_BYTES && length <= CHUNK_BYTES - offset;
}

static void take_sums(struct chunk *chunk, const uint8_t *table, uint32_t length,
	struct chunk_sum *sums, uint64_t began)
{
	for (uint32_t i = 0; i < length / BLOCK_BYTES; i++) {
		struct piece_entry entry;

		piece_entry_decode(table + (size_t)i * CHUNK_ENTRY_BYTES, &entry);
		sums[i] = (struct chunk_sum){ .sum = entry.xxh3, .length = entry.length };
	}
	counter_add(&chunk->set->counters.read, length);
	histogram_note(&chunk->set->histograms.read_time, clock_mono_ns() - began);
}

int chunk_read_blocks(
	struct chunk *chunk, uint32_t offset, uint32_t length, void *out, struct chunk_sum *sums)
{
	uint8_t table[CHUNK_IO_BYTES / BLOCK_BYTES * CHUNK_ENTRY_BYTES];
	uint64_t began = clock_mono_ns();
	struct gate_call call;
	int r;

	CHECK_MAGIC(chunk, CHUNK_MAGIC);
	if (!blocks_are_valid(offset, length))
		return -EINVAL;
	if (chunk_unverified(chunk, offset, length))
		return -EAGAIN;
	r = enter(chunk, GATE_READ, &call);
	if (r < 0)
		return r;
	r = chunk_file_read_table(chunk_fds(chunk), &chunk->place, offset, table, length);
	if (r == 0)
		r = chunk_file_read_cached(chunk_fds(chunk), &chunk->place, offset, out, length);
	if (r == -ENODATA)
		r = -EIO; /* somebody cut the file */
	r = tier_io(chunk->tier, r, began);
	leave(chunk, &call);
	if (r == 0)
		take_sums(chunk, table, length, sums, began);
	return r;
}

/* Past the gate, which is for calls that a disk may keep. `out`, or a pipe when it is NULL. */
static int take_blocks_now(struct chunk *chunk, uint32_t offset, uint32_t length, void *out,
	int pipe, struct chunk_sum *sums)
{
	uint8_t table[CHUNK_IO_BYTES / BLOCK_BYTES * CHUNK_ENTRY_BYTES];
	uint64_t began = clock_mono_ns();
	int r;

	CHECK_MAGIC(chunk, CHUNK_MAGIC);
	if (!blocks_are_valid(offset, length))
		return -EINVAL;
	if (chunk_unverified(chunk, offset, length))
		return -EAGAIN;
	r = chunk_pin_open(chunk);
	if (r < 0)
		return r;
	if (out)
		r = chunk_file_read_now(
			chunk_fds(chunk), &chunk->place, offset, table, out, length);
	else
		r = chunk_file_splice_now(
			chunk_fds(chunk), &chunk->place, offset, table, pipe, length);
	chunk_unpin(chunk);
	if (r == 0)
		take_sums(chunk, table, length, sums, began);
	return r;
}

int chunk_read_blocks_now(
	struct chunk *chunk, uint32_t offset, uint32_t length, void *out, struct chunk_sum *sums)
{
	return take_blocks_now(chunk, offset, length, out, -1, sums);
}

int chunk_splice_blocks_now(
	struct chunk *chunk, uint32_t offset, uint32_t length, int pipe, struct chunk_sum *sums)
{
	return take_blocks_now(chunk, offset, length, NULL, pipe, sums);
}

int chunk_recheck(struct chunk *chunk, const struct piece_run *run)
{
	struct gate_call call;
	void *bounce = NULL;
	void *data = NULL;
	int worst = 0;
	int r;

	CHECK_MAGIC(chunk, CHUNK_MAGIC);
	if (!run_is_valid(run))
		return -EINVAL;
	r = enter(chunk, GATE_READ, &call);
	if (r < 0)
		return r;
	bounce = buffers_take(&chunk->set->bounce, CHUNK_IO_BYTES);
	data = buffers_take(&chunk->set->bounce, CHUNK_IO_BYTES);
	if (!bounce || !data)
		worst = -ENOMEM;
	for (uint32_t done = 0; worst != -ENOMEM && done < run->length; done += CHUNK_IO_BYTES) {
		struct span span = span_at(run, done);

		r = look_at_each(chunk, &span, data, bounce);
		if (r == -EBADMSG || worst == 0)
			worst = r;
	}
	buffers_give(&chunk->set->bounce, data, CHUNK_IO_BYTES);
	buffers_give(&chunk->set->bounce, bounce, CHUNK_IO_BYTES);
	leave(chunk, &call);
	return worst;
}
