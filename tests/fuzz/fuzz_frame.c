/*
 * Fuzzer of frame_decode(), hello_unpack() and the messages about sealed extents: no input may crash,
 * and what decodes encodes to the same again.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "proto/frame.h"
#include "proto/hello.h"
#include "proto/seal.h"
#include "tests/fuzz/seeds.h"

#define EXTENTS 100u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void try_seal(const uint8_t *data, size_t size)
{
	struct seal_status states[EXTENTS];
	struct seal_status back[EXTENTS];
	uint8_t packed[SEAL_ASK_BYTES];
	struct seal_ask again;
	struct seal_ask ask;
	uint64_t epoch;
	uint8_t *out;
	size_t len;

	if (seal_ask_unpack(data, size, EXTENTS, &ask) == 0) {
		ensure(seal_ask_unpack(
			       packed, seal_ask_pack(&ask, EXTENTS, packed), EXTENTS, &again) == 0);
		ensure(memcmp(ask.held, again.held, sizeof(ask.held)) == 0 && ask.end == again.end);
	}
	if (seal_states_unpack(data, size, EXTENTS, &epoch, states) < 0)
		return;
	out = seal_states_pack(epoch, states, EXTENTS, &len);
	ensure(out && seal_states_unpack(out, len, EXTENTS, &epoch, back) == 0);
	for (uint32_t i = 0; i < EXTENTS; i++)
		ensure(states[i].state == back[i].state && states[i].missing == back[i].missing);
	free(out);
}

/* Most bytes that may follow a frame: only a slot table is longer than a frame of any other kind. */
static uint64_t payload_limit(const struct frame *frame)
{
	if (frame->op == FRAME_GET_SLOTS && frame->flags & FRAME_REPLY)
		return FRAME_SLOTS_BYTES;
	return LIMIT_FRAME_BYTES + FRAME_CHECKSUMS_MAX * 8;
}

/* Headers of each kind, a greeting and an ask about extents. */
void fuzz_seeds(void)
{
	static const struct frame frames[] = {
		{ .op = FRAME_FETCH, .id = 1, .left_ms = 60000, .length = BLOCK_BYTES },
		{ .op = FRAME_SEEK, .flags = FRAME_PEER, .class = FRAME_AHEAD, .lane = 1 },
		{ .op = FRAME_FETCH,
			.flags = FRAME_REPLY,
			.length = 8,
			.payload = 16,
			.checksums = 1 },
		{ .op = FRAME_FETCH,
			.flags = FRAME_REPLY,
			.length = 8,
			.payload = 8,
			.checksums = 1,
			.lane = 1 },
		{ .op = FRAME_FILE,
			.flags = FRAME_REPLY | FRAME_LOCAL | FRAME_FD,
			.extent = 1 << 30 },
		{ .op = FRAME_FETCH_CACHED, .flags = FRAME_REPLY, .status = -ENODATA },
		{ .op = FRAME_CANCEL, .id = UINT64_MAX },
	};
	static const struct hello hello = { .version = FRAME_VERSION, .process = "seed" };
	uint8_t greeting[HELLO_BYTES_MAX];
	uint8_t bytes[FRAME_BYTES];
	uint8_t ask[SEAL_ASK_BYTES];
	char name[32];

	for (unsigned int i = 0; i < ARRAY_SIZE(frames); i++) {
		frame_encode(&frames[i], bytes);
		(void)snprintf(name, sizeof(name), "frame-%u", i); /* fits */
		fuzz_seed(name, bytes, sizeof(bytes));
	}
	fuzz_seed("greeting", greeting, hello_pack(&hello, greeting));
	fuzz_seed("seal", ask, seal_ask_pack(&(struct seal_ask){ .end = EXTENTS }, EXTENTS, ask));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct hello hello;
	struct frame frame;
	struct frame again;
	uint8_t bytes[FRAME_BYTES];

	try_seal(data, size);
	if (hello_unpack(data, size, &hello) == 0)
		ensure(strnlen(hello.process, sizeof(hello.process)) < sizeof(hello.process));
	if (size < FRAME_BYTES || frame_decode(data, &frame) != 0)
		return 0;
	ensure(frame.payload <= payload_limit(&frame));
	ensure(frame.offset + frame.length >= frame.offset);
	frame_encode(&frame, bytes);
	ensure(frame_decode(bytes, &again) == 0);
	ensure(frame.id == again.id && frame.payload == again.payload &&
		frame.status == again.status && frame.left_ms == again.left_ms);
	ensure(frame.flags == again.flags && frame.class == again.class &&
		frame.lane == again.lane && frame.checksums == again.checksums);
	ensure(frame.lane == 0 || frame_op_fetches(frame.op));
	return 0;
}
