/*
 * Fuzzer of what a peer says before it is trusted: greetings, tokens, both sides of TLS, proofs; and of what comes through TLS from
 * one that is.
 *
 * The first byte picks: 0 greeting, 1 claims of a token, 2 a token file's line, 3 TLS records to a server, 4 the same behind an
 * honest client's first message, 5 bytes from a client that was let in, 6 TLS records to a client, 7 the same behind the first
 * records of an honest server, 8 an identity and a proof (32 bytes, then the identity).
 */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/check.h"
#include "base/hash.h"
#include "net/tls_internal.h"
#include "proto/hello.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void load_key(void)
{
	char path[] = "/tmp/granary-fuzz-key-XXXXXX";
	const struct net_keys_config config = { .cluster_key = path };
	struct err e = ERR_INIT;
	int fd = mkstemp(path);

	ensure(fd >= 0);
	ensure(dprintf(fd, CLUSTER_KEY_WORD " 00c0ffee %064d\n", 7) > 0);
	(void)close(fd);
	ensure(net_keys_load(&config, &e) == 0);
	(void)unlink(path);
	net_debug_self = true;
}

/* What is believed of it can be said again. */
static void greet(const uint8_t *data, size_t size)
{
	uint8_t packed[HELLO_BYTES_MAX];
	struct hello hello;
	struct hello again;

	if (hello_unpack(data, size, &hello) < 0)
		return;
	ensure(hello.identity_len <= HELLO_IDENTITY_MAX);
	ensure(hello_unpack(packed, hello_pack(&hello, packed), &again) == 0);
	ensure(strcmp(hello.process, again.process) == 0 &&
		hello.identity_len == again.identity_len);
}

static void claim(const uint8_t *data, size_t size)
{
	uint8_t packed[TOKEN_CLAIMS_MAX];
	struct token_claims claims;

	if (token_unpack(data, size, &claims) < 0)
		return;
	ensure(token_pack(&claims, packed) == size);
	ensure(memcmp(packed, data, size) ==
		0); /* one way to say a thing: what is signed is what is read */
}

static void read_line(const uint8_t *data, size_t size)
{
	struct err e = ERR_INIT;
	struct token token;
	char *text = strndup((const char *)data, size);

	if (text && token_parse("token", text, &token, &e) == 0)
		ensure(token.packed_len <= TOKEN_CLAIMS_MAX);
	free(text);
}

static size_t give(struct tls *to, const uint8_t *data, size_t size)
{
	size_t room;
	uint8_t *space = tls_space(to, &room);
	size_t n = min(size, room);

	if (!space)
		return size;
	memcpy(space, data, n);
	tls_received(to, n);
	return n;
}

static void carry(struct tls *from, struct tls *to)
{
	size_t n = from->out_end - from->out_begin;

	if (n > 0)
		tls_sent(from, give(to, from->out + from->out_begin, n));
}

#define FLIGHT_LEAST 64 /* of the server's first records: less does not end them */

/* Nobody completes a handshake without the other end: a client does not believe a server that does not have the key. */
static void handshake(const uint8_t *data, size_t size, bool to_server, bool behind)
{
	struct tls *server;
	struct tls *client;
	struct tls *to;
	int r = 0;

	ensure(tls_new(true, &server) == 0);
	ensure(tls_new(false, &client) == 0);
	to = to_server ? server : client;
	(void)tls_handshake(client); /* its first message */
	if (behind || !to_server) {
		carry(client, server);
		r = to_server ? tls_handshake(server) : 0;
	}
	if (behind && !to_server) {
		(void)tls_handshake(server); /* its flight, of which the end is missing */
		server->out_end -= min(server->out_end - server->out_begin, (size_t)FLIGHT_LEAST);
		carry(server, client);
		r = tls_handshake(client);
	}
	while (size > 0 && r == 0) {
		size_t n = give(to, data, size);

		data += n;
		size -= n;
		r = tls_handshake(to);
		if (n == 0)
			break;
	}
	ensure(r <= 0);
	tls_free(server);
	tls_free(client);
}

/* Nobody is believed without the key, whatever is said. */
static void prove(const uint8_t *data, size_t size)
{
	struct proof_channel channel = { .ring = keyring_get(), .tls = true };
	uint8_t proof[HELLO_PROOF_BYTES];
	struct peer_identity peer = { 0 };

	if (size >= HELLO_PROOF_BYTES && proof_expected(&channel, data + HELLO_PROOF_BYTES,
						 size - HELLO_PROOF_BYTES, &peer, proof) == 0) {
		ensure(peer.kind == PEER_CLUSTER || peer.kind == PEER_TOKEN);
		ensure(!hash_equal(proof, data, sizeof(proof)));
	}
	keyring_unref(channel.ring);
}

static void inside(const uint8_t *data, size_t size)
{
	uint8_t out[512];
	struct tls *server;
	struct tls *client;
	ssize_t n;

	ensure(tls_new(true, &server) == 0);
	ensure(tls_new(false, &client) == 0);
	for (int i = 0; i < 3; i++) {
		(void)tls_handshake(client); /* told by the two below */
		carry(client, server);
		(void)tls_handshake(server);
		carry(server, client);
	}
	ensure(tls_write(client, data, size) == 0);
	while (client->out_end > client->out_begin) {
		carry(client, server);
		while ((n = tls_read(server, out, sizeof(out))) > 0) {
			ensure((size_t)n <= size && memcmp(out, data, (size_t)n) == 0);
			data += n;
			size -= (size_t)n;
		}
		ensure(n == 0);
	}
	ensure(size == 0);
	tls_free(server);
	tls_free(client);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static bool loaded;

	if (!loaded)
		load_key();
	loaded = true;
	if (size == 0)
		return 0;
	switch (data[0] % 9) {
	case 0:
		greet(data + 1, size - 1);
		break;
	case 1:
		claim(data + 1, size - 1);
		break;
	case 2:
		read_line(data + 1, size - 1);
		break;
	case 3:
		handshake(data + 1, size - 1, true, false);
		break;
	case 4:
		handshake(data + 1, size - 1, true, true);
		break;
	case 5:
		inside(data + 1, size - 1);
		break;
	case 6:
		handshake(data + 1, size - 1, false, false);
		break;
	case 7:
		handshake(data + 1, size - 1, false, true);
		break;
	default:
		prove(data + 1, size - 1);
	}
	return 0;
}
