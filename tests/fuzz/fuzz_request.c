/*
 * Fuzzer of request_parse() and of the answer to INIT: no request may crash, and what is believed
 * lies inside the bytes given.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include "fuse/request.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const uint8_t *data, size_t size)
{
	struct fuse_init_out out;
	struct request req;

	if (request_parse(data, size, &req) != 0) {
		(void)request_unique_of_refused(data, size); /* must not crash */
		return;
	}
	ensure(request_unique(data, size) == req.unique);
	switch (req.opcode) {
	case FUSE_LOOKUP:
		ensure((const uint8_t *)req.name > data);
		ensure((const uint8_t *)req.name + strlen(req.name) < data + size);
		return;
	case FUSE_INIT:
		if (request_answer_init(&req.init, 0, 64, &out) == 0)
			ensure((out.flags & ~req.init.flags) == 0);
		return;
	case FUSE_BATCH_FORGET:
		for (uint32_t i = 0; i < req.forget.count; i++)
			(void)request_forgotten(&req, i); /* inside the bytes */
		return;
	default:
		ensure(!request_is_oneway(req.opcode) || !request_is_write(req.opcode));
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuse_in_header head;
	uint8_t *bytes;

	check(data, size);
	if (size < sizeof(head))
		return 0;
	memcpy(&head, data, sizeof(head)); /* the same with the length it should have */
	head.len = (uint32_t)size;
	head.opcode %= 64;
	bytes = malloc(size); /* of its own, so that a byte too many is seen */
	if (!bytes)
		return 0;
	memcpy(bytes, data, size);
	memcpy(bytes, &head, sizeof(head));
	check(bytes, size);
	free(bytes);
	return 0;
}
