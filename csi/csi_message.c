/* See csi_message.h. */
#include "csi/csi_message.h"
#include "base/cleanup.h"

#include <stdlib.h>

#define MEMORY_MAX (16u << 20)

/* Fields of a few bytes become structures of many: a message may not have more of these than MEMORY_MAX. */
struct memory {
	size_t left;
};

static void *take(void *arg, size_t size)
{
	struct memory *memory = arg;

	if (size > memory->left)
		return NULL;
	memory->left -= size;
	return malloc(size);
}

static void give(void *arg, void *p)
{
	(void)arg;
	free(p);
}

void *csi_message_take(struct grpc_call *call, const ProtobufCMessageDescriptor *type,
	const void *data, size_t len)
{
	struct memory memory = { MEMORY_MAX };
	ProtobufCAllocator allocator = { take, give, &memory };
	void *message = protobuf_c_message_unpack(type, &allocator, len, data);

	if (!message && memory.left < len)
		grpc_call_fail(call, GRPC_RESOURCE_EXHAUSTED, "the request has too many fields");
	else if (!message)
		grpc_call_fail(call, GRPC_INVALID_ARGUMENT,
			"the request is not a message of type %s", type->short_name);
	return message;
}

void csi_message_reply(struct grpc_call *call, const ProtobufCMessage *message)
{
	size_t len = protobuf_c_message_get_packed_size(message);
	_cleanup_free_ uint8_t *data = malloc(len + 1);

	if (!data) {
		grpc_call_fail(call, GRPC_RESOURCE_EXHAUSTED, "out of memory");
		return;
	}
	(void)protobuf_c_message_pack(message, data); /* len bytes */
	grpc_call_reply(call, data, len);
}

void csi_message_reply_empty(struct grpc_call *call)
{
	grpc_call_reply(call, "", 0);
}
