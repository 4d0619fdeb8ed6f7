#include "tests/unit/net/tls_world.h"
#include "base/clock.h"
#include "base/file.h"
#include "proto/frame.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void on_request(struct rpc_request *request, void *arg)
{
	struct tls_world *f = arg;
	struct frame reply = { .length = sizeof(f->answer) - 16, .checksums = 2 };
	struct net_payload payload = NET_PAYLOAD_NONE;

	f->seen = *rpc_conn_peer(request->conn);
	payload.parts[0].data = f->answer;
	payload.parts[0].len = 12345;
	payload.parts[1].data = f->answer + 12345;
	payload.parts[1].len = sizeof(f->answer) - 12345;
	payload.n = 2;
	rpc_reply(request, 0, &reply, payload);
}

const struct rpc_server_ops world_ops = { .on_request = on_request };

void world_write(const char *path, const char *text)
{
	assert_int_equal(file_write_atomic(path, text, strlen(text), 0600), 0);
}

int world_load(const char *key, const char *token, bool encrypt_data)
{
	const struct net_keys_config config = {
		.cluster_key = key, .token = token, .encrypt_data = encrypt_data
	};
	struct err e = ERR_INIT;
	int r = net_keys_load(&config, &e);

	if (r < 0)
		assert_int_not_equal(e.text[0], '\0');
	return r;
}

int world_set_up(void **state)
{
	struct tls_world *f = calloc(1, sizeof(*f));
	struct err e = ERR_INIT;

	assert_non_null(f);
	*state = f;
	net_debug_self = true;
	(void)snprintf(f->dir, sizeof(f->dir), "/tmp/granary-test-XXXXXX");
	assert_non_null(mkdtemp(f->dir));
	(void)snprintf(f->key, sizeof(f->key), "%s/key", f->dir);
	(void)snprintf(f->token, sizeof(f->token), "%s/token", f->dir);
	for (size_t i = 0; i < sizeof(f->answer); i++)
		f->answer[i] = (uint8_t)(i * 31 >> 3);
	f->server_loop = loop_new("server");
	f->client_loop = loop_new("client");
	world_write(f->key, KEY_A);
	assert_int_equal(world_load(f->key, NULL, false), 0);
	assert_int_equal(
		rpc_server_new(f->server_loop, "tcp:127.0.0.1:0", &world_ops, f, &f->server, &e),
		0);
	return 0;
}

int world_tear_down(void **state)
{
	struct tls_world *f = *state;

	rpc_server_free(f->server);
	loop_free(f->client_loop);
	loop_free(f->server_loop);
	assert_int_equal(world_load(NULL, NULL, false), 0);
	(void)unlink(f->key);
	(void)unlink(f->token);
	assert_int_equal(rmdir(f->dir), 0);
	free(f);
	return 0;
}

int world_call(struct tls_world *f, struct err *e)
{
	struct rpc_client *client = NULL;
	struct rpc_call c = { .frame = { .op = FRAME_FETCH, .length = 1 },
		.deadline_ns = clock_mono_ns() + 60 * CLOCK_SECOND };
	int r;

	memset(&f->seen, 0, sizeof(f->seen));
	assert_int_equal(
		rpc_client_new(f->client_loop, rpc_server_address(f->server), &client, e), 0);
	r = rpc_call_wait(client, &c, e);
	if (r == 0) {
		assert_int_equal(c.reply.payload, sizeof(f->answer));
		assert_memory_equal(c.reply_payload, f->answer, sizeof(f->answer));
	}
	rpc_call_release(&c);
	rpc_client_free(client);
	return r;
}

void world_make_token(struct tls_world *f, uint64_t expires_s, bool admin)
{
	struct token_claims claims = { .n_volumes = 2, .expires_s = expires_s, .admin = admin };
	char text[TOKEN_TEXT_MAX];
	struct err e = ERR_INIT;

	world_write(f->key, KEY_A);
	assert_int_equal(world_load(f->key, NULL, false), 0);
	memset(claims.dataset, 0xda, sizeof(claims.dataset));
	memset(claims.volumes[0].bytes, 1, sizeof(claims.volumes[0].bytes));
	memset(claims.volumes[1].bytes, 2, sizeof(claims.volumes[1].bytes));
	memcpy(claims.serial, "serialno", 8);
	assert_int_equal(token_make(&claims, text, &e), 0);
	world_write(f->token, text);
}

void world_token_text(const struct tls_world *f, char out[TOKEN_TEXT_MAX])
{
	FILE *file = fopen(f->token, "r");

	assert_non_null(file);
	assert_non_null(fgets(out, TOKEN_TEXT_MAX, file));
	assert_int_equal(fclose(file), 0);
}

void world_read_token(const struct tls_world *f, struct token *ret_token)
{
	char text[TOKEN_TEXT_MAX];
	struct err e = ERR_INIT;

	world_token_text(f, text);
	assert_int_equal(token_parse(f->token, text, ret_token, &e), 0);
}

uint64_t now_s(void)
{
	return clock_wall_ns() / CLOCK_SECOND;
}

struct keyring *tls_pair(bool server_encrypts, bool client_encrypts, const char *key,
	struct tls **ret_server, struct tls **ret_client)
{
	assert_int_equal(world_load(key, NULL, server_encrypts), 0);
	assert_int_equal(tls_new(true, ret_server), 0);
	assert_int_equal(world_load(key, NULL, client_encrypts), 0);
	assert_int_equal(tls_new(false, ret_client), 0);
	return keyring_get();
}

void tls_carry(struct tls *from, struct tls *to)
{
	size_t size;
	size_t n = from->out_end - from->out_begin;
	uint8_t *space = tls_space(to, &size);

	assert_true(space && n <= size);
	memcpy(space, from->out + from->out_begin, n);
	tls_sent(from, n);
	tls_received(to, n);
}

int tls_shake(struct tls *server, struct tls *client, int *ret_client)
{
	int r = 0;

	*ret_client = 0;
	for (int i = 0; i < 4 && r == 0; i++) {
		if (*ret_client == 0)
			*ret_client = tls_handshake(client);
		tls_carry(client, server);
		r = tls_handshake(server);
		tls_carry(server, client);
	}
	if (*ret_client == 0)
		*ret_client = tls_handshake(client);
	return r;
}

int tls_show(const struct tls *client, const struct tls *server, struct peer_identity *ret_peer)
{
	uint8_t identity[IDENTITY_MAX];
	size_t len = identity_own(client->channel.ring, identity);
	uint8_t expected[HELLO_PROOF_BYTES];
	uint8_t proof[HELLO_PROOF_BYTES];
	int r = proof_expected(&server->channel, identity, len, ret_peer, expected);

	proof_own(&client->channel, proof);
	if (r < 0)
		return r;
	return memcmp(proof, expected, sizeof(proof)) == 0 ? 1 : -EKEYREJECTED;
}

int world_meet(struct tls_world *f, const char *server_keys, const char *client_keys,
	const char *client_token)
{
	struct tls *server;
	struct tls *client;
	int r_client;
	int r;

	world_write(f->key, server_keys);
	assert_int_equal(world_load(f->key, NULL, false), 0);
	assert_int_equal(tls_new(true, &server), 0);
	if (client_keys)
		world_write(f->key, client_keys);
	assert_int_equal(world_load(client_keys ? f->key : NULL, client_token, false), 0);
	assert_int_equal(tls_new(false, &client), 0);
	r = tls_shake(server, client, &r_client);
	assert_int_equal(r == 1, r_client == 1);
	if (r == 1)
		r = tls_show(client, server, &f->seen);
	else
		r = r_client;
	tls_free(server);
	tls_free(client);
	return r;
}
