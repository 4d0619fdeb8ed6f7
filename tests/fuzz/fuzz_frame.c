/*
 * Fuzzer of frame_decode() and hello_unpack(): no input may crash, and what decodes encodes to the
 * same frame again.
 */
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include "proto/frame.h"
#include "proto/hello.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct hello hello;
	struct frame frame;
	struct frame again;
	uint8_t bytes[FRAME_BYTES];

	if (hello_unpack(data, size, &hello) == 0)
		ensure(strnlen(hello.process, sizeof(hello.process)) < sizeof(hello.process));
	if (size < FRAME_BYTES || frame_decode(data, &frame) != 0)
		return 0;
	ensure(frame.payload <= LIMIT_FRAME_BYTES + FRAME_CHECKSUMS_MAX * 8);
	ensure(frame.offset + frame.length >= frame.offset);
	frame_encode(&frame, bytes);
	ensure(frame_decode(bytes, &again) == 0);
	ensure(frame.id == again.id && frame.payload == again.payload &&
		frame.status == again.status);
	return 0;
}
