/* The frame's 80 bytes <-> struct frame, and what a frame may ask for. See frame.h. */
#include "proto/frame.h"
#include "proto/seal.h"

#include <assert.h>

static_assert(FRAME_BYTES == 80, "the header is fixed for version 3");

void frame_encode(const struct frame *frame, uint8_t out[FRAME_BYTES])
{
	memset(out, 0, FRAME_BYTES);
	little_put32(out, FRAME_MAGIC);
	out[4] = FRAME_VERSION;
	out[5] = frame->op;
	little_put16(out + 6, frame->flags);
	little_put64(out + 8, frame->id);
	memcpy(out + 16, frame->volume.bytes, VOLUME_ID_LEN);
	little_put64(out + 32, frame->lineage);
	little_put64(out + 40, frame->offset);
	little_put32(out + 48, frame->length);
	little_put32(out + 52, frame->payload);
	little_put32(out + 56, frame->flags & FRAME_REPLY
				       ? (uint32_t)wire_error_from_errno(frame->status)
				       : frame->left_ms);
	little_put16(out + 60, frame->checksums);
	out[62] = frame->class;
	out[63] = frame->lane;
	little_put64(out + 64, frame->generation);
	little_put64(out + 72, frame->extent);
}

/* Longest payload and range of a data operation; control messages have no range to speak of. */
static void frame_limits(const struct frame *f, uint64_t *ret_payload, uint64_t *ret_length)
{
	*ret_payload = LIMIT_FRAME_BYTES;
	*ret_length = UINT32_MAX;
	if (f->op == FRAME_HELLO || f->op == FRAME_CANCEL || f->op == FRAME_PING ||
		f->status != 0) {
		*ret_payload = FRAME_SMALL_BYTES;
	} else if (f->op == FRAME_GET_SLOTS && f->flags & FRAME_REPLY) {
		*ret_payload = FRAME_SLOTS_BYTES;
	} else if (frame_op_fetches(f->op)) {
		*ret_length = LIMIT_PAYLOAD_BYTES;
		*ret_payload = f->flags & FRAME_REPLY
				       ? LIMIT_PAYLOAD_BYTES + (uint64_t)f->checksums * 8
				       : FRAME_SMALL_BYTES;
	} else if (f->op == FRAME_PREFETCH || f->op == FRAME_RECHECK || f->op == FRAME_HELD ||
		   f->op == FRAME_MAP || f->op == FRAME_FILE || f->op == FRAME_REFUSED) {
		*ret_length = CHUNK_BYTES;
		*ret_payload = FRAME_SMALL_BYTES;
	} else if (f->op == FRAME_SEAL) {
		*ret_length = SEAL_PAGE;
		*ret_payload = f->flags & FRAME_REPLY ? SEAL_STATES_BYTES : SEAL_ASK_BYTES;
	}
}

int frame_check(const struct frame *frame)
{
	uint64_t payload;
	uint64_t length;

	if (frame->checksums > FRAME_CHECKSUMS_MAX)
		return -EMSGSIZE;
	frame_limits(frame, &payload, &length);
	return frame->payload > payload || frame->length > length ? -EMSGSIZE : 0;
}

int frame_decode(const uint8_t in[FRAME_BYTES], struct frame *ret_frame)
{
	struct frame f = {
		.version = in[4],
		.op = in[5],
		.flags = little_get16(in + 6),
		.id = little_get64(in + 8),
		.lineage = little_get64(in + 32),
		.offset = little_get64(in + 40),
		.length = little_get32(in + 48),
		.payload = little_get32(in + 52),
		.checksums = little_get16(in + 60),
		.class = in[62],
		.lane = in[63],
		.generation = little_get64(in + 64),
		.extent = little_get64(in + 72),
	};
	int r;

	if (little_get32(in) != FRAME_MAGIC)
		return -EBADMSG;
	if (f.version != FRAME_VERSION)
		return -EPROTONOSUPPORT;
	memcpy(f.volume.bytes, in + 16, VOLUME_ID_LEN);
	if (f.flags & FRAME_REPLY)
		f.status = wire_error_to_errno((int32_t)little_get32(in + 56));
	else
		f.left_ms = little_get32(in + 56);
	if (f.op == 0 || f.class > FRAME_AHEAD || f.offset > UINT64_MAX - f.length)
		return -EBADMSG;
	if (f.lane != 0 && !frame_op_fetches(f.op))
		return -EBADMSG;
	r = frame_check(&f);
	if (r < 0)
		return r;
	if ((uint64_t)f.checksums * 8 > f.payload)
		return -EBADMSG;
	*ret_frame = f;
	return 0;
}
