/* What a worker answered: a chunk file to read, or bytes to check. On an I/O thread as a rule. See
 * client_op.h. */
#include "base/cleanup.h"
#include "base/hash.h"
#include "client/client_hang.h"
#include "client/client_op.h"
#include "client/client_pieces.h"

#include <endian.h>
#include <string.h>

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

static int work_local(struct client_op *op, struct client_buffer *buffer, const void **ret_data)
{
	uint8_t *out = buffer->data;
	uint64_t from;
	uint32_t length;
	int r;

	client_plan_wanted(op, &from, &length);
	if (op->buffer)
		out = op->buffer + (from - op->offset);
	r = client_hang_read(op, from, length, out);
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
