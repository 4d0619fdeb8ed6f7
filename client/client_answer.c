/* What a worker answered: a chunk file to read, or bytes to check. On an I/O thread as a rule. See
 * client_op.h. */
#include "base/cleanup.h"
#include "base/hash.h"
#include "base/timed_call.h"
#include "client/client_internal.h"
#include "client/client_local.h"
#include "client/client_op.h"
#include "client/client_pieces.h"
#include "proto/held.h"

#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FILE_TIMEOUT_NS (5 * CLOCK_SECOND) /* the disk hangs: its worker is asked for the bytes */
#define ANSWER_BYTES    (CHUNK_BITMAP_BYTES + HELD_ENTRY_BYTES)

/* Every piece of the answer against the checksums that came with it, seeded as our table says; gaps
 * and ends become zeros. */
static int check_payload(struct client_op *op)
{
	const struct client_part *part = client_plan_part(op);
	const uint8_t *sums = op->payload + part->length;
	struct piece_walk walk;
	struct piece_span span;
	uint32_t n = 0;
	int r;

	piece_walk_init(&walk, op->volume->table, part->offset, part->length);
	while ((r = piece_walk_next(&walk, &span)) > 0) {
		uint8_t *data = op->payload + (span.offset - part->offset);
		uint64_t sum;

		if (span.offset < part->offset ||
			span.offset + span.padded > part->offset + part->length)
			return -EBADMSG;
		if (span.length) {
			if (n == op->checksums)
				return -EBADMSG;
			memcpy(&sum, sums + (size_t)n++ * 8, sizeof(sum));
			if (hash_xxh3(data, span.length, span.seed) != le64toh(sum))
				return -EBADMSG;
		}
		memset(data + span.length, 0, span.padded - span.length);
	}
	if (r < 0)
		return r;
	return n == op->checksums ? 0 : -EBADMSG;
}

static int work_bytes(struct client_op *op, const void **ret_data)
{
	struct client_counters *counters = &client_op_client(op)->counters;
	uint64_t from;
	uint32_t length;
	int r = check_payload(op);

	if (r < 0) {
		counter_add(&counters->mismatches, 1);
		return r;
	}
	client_plan_wanted(op, &from, &length);
	*ret_data = op->payload + (from - client_plan_part(op)->offset);
	if (op->buffer)
		memcpy(op->buffer + (from - op->offset), *ret_data, length);
	counter_add(&counters->remote_bytes, length);
	return 0;
}

/* ---- a chunk file ---------------------------------------------------------------------------- */

/* A read of a chunk file that a worker answered with. A disk that hangs keeps it, and the memory it reads into
 * (docs/decisions/stalled-disks.md). It counts as one of the volume's pending reads. */
struct reading {
	struct client_volume *volume;
	struct chunk_id id;
	int fd;
	uint64_t extent;
	struct view_peer *owner; /* whose answer it is */
	uint8_t answer[ANSWER_BYTES];
	uint64_t from;
	uint32_t length;
	uint8_t *data; /* aligned */
};

static void reading_free(struct reading *r)
{
	struct client_volume *volume = r->volume;
	struct client *client = volume->client;

	if (r->fd >= 0)
		(void)close(r->fd); /* read only */
	free(r->data);
	free(r);
	pthread_mutex_lock(&client->lock);
	volume->pending--;
	pthread_cond_broadcast(&client->idle);
	pthread_mutex_unlock(&client->lock);
}

/* It returned after its reader had left. */
static void reading_late(void *arg)
{
	struct reading *r = arg;

	client_local_hangs(r->volume, false);
	reading_free(r);
}

static int install_and_read(void *arg)
{
	struct reading *r = arg;
	struct client_chunk *chunk;
	int fd = r->fd;
	int result;

	r->fd = -1;
	result = client_chunks_install(
		r->volume->client->chunks, &r->id, fd, r->extent, r->answer, &chunk);
	if (result < 0)
		return result;
	client_chunk_held(r->volume->client->chunks, chunk, r->owner,
		held_number(held_get(r->answer + CHUNK_BITMAP_BYTES, 0)));
	result = client_local_read(r->volume, r->from, r->length, r->data);
	client_chunk_unref(chunk);
	return result;
}

/* Takes op's descriptor. */
static struct reading *reading_new(struct client_op *op, uint64_t from, uint32_t length)
{
	struct reading *r = calloc(1, sizeof(*r));

	if (!r)
		return NULL;
	r->data = aligned_alloc(BLOCK_BYTES, length);
	if (!r->data) {
		free(r);
		return NULL;
	}
	r->volume = op->volume;
	r->id = client_volume_chunk(op->volume, client_plan_part(op)->offset);
	r->fd = op->fd;
	op->fd = -1;
	r->extent = op->call.reply.extent;
	r->owner = op->owner;
	memcpy(r->answer, op->payload, sizeof(r->answer));
	r->from = from;
	r->length = length;
	pthread_mutex_lock(&op->volume->client->lock);
	op->volume->pending++;
	pthread_mutex_unlock(&op->volume->client->lock);
	return r;
}

/* As client_local_read() of [from, from + length), and -EAGAIN when the disk does not answer. */
static int read_file(struct client_op *op, uint64_t from, uint32_t length, void *out)
{
	struct client *client = client_op_client(op);
	const struct timed_call timed = { .pool = client->disk,
		.timeout_ns = FILE_TIMEOUT_NS,
		.run = install_and_read,
		.release = reading_late };
	struct reading *r;
	int result;

	if (atomic_load(&client->hanging) > 0)
		return -EAGAIN;
	r = reading_new(op, from, length);
	if (!r)
		return -ENOMEM;
	result = timed_call(&timed, r);
	if (result == -ETIMEDOUT) {
		client_local_hangs(
			op->volume, true); /* may follow reading_late(), and undoes it then */
		return -EAGAIN;
	}
	if (result == 0)
		memcpy(out, r->data, length);
	reading_free(r);
	return result;
}

static int work_local(struct client_op *op, struct client_buffer *buffer, const void **ret_data)
{
	uint8_t *out = buffer->data;
	uint64_t from;
	uint32_t length;
	int r;

	client_plan_wanted(op, &from, &length);
	if (op->buffer)
		out = op->buffer + (from - op->offset);
	r = read_file(op, from, length, out);
	if (r == 0) {
		counter_add(&client_op_client(op)->counters.local_bytes, length);
		counter_add(&op->volume->use->local_bytes, length);
	}
	*ret_data = out;
	return r;
}

int client_answer_work(struct client_op *op, struct client_buffer *buffer, const void **ret_data)
{
	return op->fd >= 0 ? work_local(op, buffer, ret_data) : work_bytes(op, ret_data);
}
