/* Messages of protobuf-c: taking them from a call, and answering with them. Threads: the loop's. */
#pragma once

#include <protobuf-c/protobuf-c.h>
#include "csi/grpc.h"

/* A new message; free with protobuf_c_message_free_unpacked(). NULL: the call was answered. */
void *csi_message_take(struct grpc_call *call, const ProtobufCMessageDescriptor *type,
	const void *data, size_t len);
void csi_message_reply(struct grpc_call *call, const ProtobufCMessage *message);
/* An answer without fields. */
void csi_message_reply_empty(struct grpc_call *call);
