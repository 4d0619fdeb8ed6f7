/* The greeting of a connection. See hello.h. */
#include "proto/hello.h"
#include "proto/granary.pb-c.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

size_t hello_pack(const struct hello *hello, uint8_t out[HELLO_BYTES_MAX])
{
	Granary__Hello message = GRANARY__HELLO__INIT;
	struct hello copy = *hello; /* protobuf's pointers are not const */
	struct hello_master master = hello->master;
	char process[HELLO_PROCESS_MAX];

	(void)snprintf(process, sizeof(process), "%s", hello->process); /* fits: same size */
	message.process = process;
	message.has_version = 1;
	message.version = hello->version;
	message.has_pid = 1;
	message.pid = hello->pid;
	if (hello->master.epoch) {
		message.has_cluster = message.has_epoch = 1;
		message.cluster = (ProtobufCBinaryData){ HELLO_CLUSTER_BYTES, master.cluster };
		message.epoch = master.epoch;
	}
	message.has_nonce = hello->has_nonce;
	message.nonce = (ProtobufCBinaryData){ HELLO_NONCE_BYTES, copy.nonce };
	message.has_proof = hello->has_proof;
	message.proof = (ProtobufCBinaryData){ HELLO_PROOF_BYTES, copy.proof };
	message.has_identity = hello->identity_len > 0;
	message.identity = (ProtobufCBinaryData){ hello->identity_len, copy.identity };
	message.has_refused = message.refused = hello->refused;
	ensure(granary__hello__get_packed_size(&message) <= HELLO_BYTES_MAX);
	return granary__hello__pack(&message, out);
}

/* Of another length than they have is as if there were none. */
static void take_proof(const Granary__Hello *message, struct hello *hello)
{
	hello->has_nonce = message->nonce.len == HELLO_NONCE_BYTES;
	if (hello->has_nonce)
		memcpy(hello->nonce, message->nonce.data, HELLO_NONCE_BYTES);
	hello->has_proof = message->proof.len == HELLO_PROOF_BYTES;
	if (hello->has_proof)
		memcpy(hello->proof, message->proof.data, HELLO_PROOF_BYTES);
	hello->refused = message->refused;
	if (message->identity.len > 0 && message->identity.len <= HELLO_IDENTITY_MAX) {
		hello->identity_len = (uint16_t)message->identity.len;
		memcpy(hello->identity, message->identity.data, message->identity.len);
	} else if (message->identity.len > 0) {
		hello->identity_len = 1; /* none that is right */
	}
}

int hello_unpack(const void *data, size_t len, struct hello *ret_hello)
{
	Granary__Hello *message = granary__hello__unpack(NULL, len, data);
	struct hello hello = { 0 };

	if (!message)
		return -EBADMSG; /* without memory too: the library does not tell them apart */
	if (message->process)
		(void)snprintf(hello.process, sizeof(hello.process), "%s", message->process);
	for (char *c = hello.process; *c; c++)
		if (*c <= 0x20 || *c == 0x7f)
			*c = '?';
	hello.version = message->has_version ? message->version : 0;
	hello.pid = message->has_pid ? message->pid : 0;
	if (message->has_epoch && message->cluster.len == HELLO_CLUSTER_BYTES) {
		memcpy(hello.master.cluster, message->cluster.data, HELLO_CLUSTER_BYTES);
		hello.master.epoch = message->epoch;
	}
	take_proof(message, &hello);
	granary__hello__free_unpacked(message, NULL);
	*ret_hello = hello;
	return 0;
}
