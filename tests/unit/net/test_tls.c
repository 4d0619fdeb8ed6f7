/* Who may connect with which keys: the cluster key, tokens, none, wrong ones, changed ones; and that what comes over
 * such a connection is what was sent. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/file.h"
#include "net/rights.h"
#include "proto/frame.h"
#include "proto/hello.h"
#include "tests/clock/test_clock.h"
#include "tests/unit/net/tls_world.h"

static void test_cluster_key(void **state)
{
	struct tls_world *f = *state;
	struct err e = ERR_INIT;

	assert_int_equal(world_call(f, &e), 0);
	assert_int_equal(f->seen.kind, PEER_CLUSTER);
	assert_int_equal(principal_of(&f->seen), PRINCIPAL_CLUSTER);
	/* One that wants records decides for both, whoever it is. */
	assert_int_equal(world_load(f->key, NULL, true), 0);
	assert_int_equal(world_call(f, &e), 0);
}

static void test_modes_are_agreed(void **state)
{
	struct tls_world *f = *state;

	for (int i = 0; i < 4; i++) {
		struct tls *server;
		struct tls *client;
		int r;

		keyring_unref(tls_pair(i & 1, i & 2, f->key, &server, &client));
		assert_int_equal(tls_shake(server, client, &r), 1);
		assert_int_equal(r, 1);
		assert_int_equal(server->raw, i == 0);
		assert_int_equal(client->raw, i == 0);
		assert_memory_equal(
			server->channel.binding, client->channel.binding, PROOF_BINDING_BYTES);
		tls_free(server);
		tls_free(client);
	}
}

static void test_keys_are_used_up(void **state)
{
	struct tls_world *f = *state;
	struct tls *server;
	struct tls *client;
	int r;

	keyring_unref(tls_pair(false, false, f->key, &server, &client));
	assert_int_equal(tls_shake(server, client, &r), 1);
	client->records = TLS_RECORDS_MAX - 2;
	for (int i = 0; i < 5; i++) {
		char sent = (char)('a' + i);
		char got = 0;

		assert_int_equal(tls_write(client, &sent, 1), 0);
		tls_carry(client, server);
		assert_int_equal(tls_read(server, &got, 1), 1);
		assert_int_equal(got, sent);
		assert_int_equal(tls_write(server, &sent, 1), 0);
		tls_carry(server, client);
		assert_int_equal(tls_read(client, &got, 1), 1);
		assert_int_equal(got, sent);
	}
	assert_int_equal(client->records, 3);
	tls_free(server);
	tls_free(client);
}

static void test_keys_change(void **state)
{
	struct tls_world *f = *state;

	assert_int_equal(world_meet(f, KEY_A, KEY_A, NULL), 1);
	assert_int_equal(world_meet(f, KEY_A KEY_B, KEY_A, NULL), 1);
	assert_int_equal(world_meet(f, KEY_A KEY_B, KEY_B KEY_A, NULL), 1);
	assert_int_equal(world_meet(f, KEY_B KEY_A, KEY_A KEY_B, NULL), 1);
	assert_int_equal(world_meet(f, KEY_B, KEY_B KEY_A, NULL), 1);
	assert_int_equal(world_meet(f, KEY_B, KEY_A KEY_B, NULL), -EKEYREVOKED);
	assert_int_equal(world_meet(f, KEY_B, KEY_A, NULL), -EKEYREVOKED);
	assert_int_equal(world_meet(f, KEY_FALSE, KEY_A, NULL), -EKEYREVOKED);
}

static void test_token(void **state)
{
	struct tls_world *f = *state;
	struct volume_id volume;

	world_make_token(f, now_s() + 3600, false);
	assert_int_equal(world_meet(f, KEY_A, NULL, f->token), 1);
	assert_int_equal(f->seen.kind, PEER_TOKEN);
	assert_int_equal(f->seen.claims.n_volumes, 2);
	assert_int_equal(principal_of(&f->seen), PRINCIPAL_TOKEN);
	memset(volume.bytes, 2, sizeof(volume.bytes));
	assert_true(peer_may_read(&f->seen, &volume));
	assert_true(peer_may_open(&f->seen, f->seen.claims.dataset));
	volume.bytes[15] = 3;
	assert_false(peer_may_read(&f->seen, &volume));
	f->seen.claims.expires_s = now_s();
	volume.bytes[15] = 2;
	assert_false(peer_may_read(&f->seen, &volume));
	assert_false(peer_may_open(&f->seen, f->seen.claims.dataset));
	/* Of the key before the one in use. */
	assert_int_equal(world_meet(f, KEY_B KEY_A, NULL, f->token), 1);
	/* Of another cluster, or of a key that is out of use. */
	assert_int_equal(world_meet(f, KEY_B, NULL, f->token), -EKEYREVOKED);
	assert_int_equal(world_meet(f, KEY_FALSE, NULL, f->token), -EKEYREVOKED);
}

static void test_token_expired(void **state)
{
	struct tls_world *f = *state;

	world_make_token(f, now_s(), false);
	assert_int_equal(world_meet(f, KEY_A, NULL, f->token), -EKEYREJECTED);
	world_make_token(f, now_s() + 3600, true);
	assert_int_equal(world_meet(f, KEY_A, NULL, f->token), 1);
	assert_int_equal(principal_of(&f->seen), PRINCIPAL_ADMIN);
	assert_false(peer_may_open(&f->seen, f->seen.claims.dataset));
	f->seen.claims.expires_s = now_s();
	assert_int_equal(principal_of(&f->seen), PRINCIPAL_NONE);
}

/* Claims that were changed are not signed. */
static void test_token_changed(void **state)
{
	struct tls_world *f = *state;
	char text[TOKEN_TEXT_MAX];
	size_t end;

	world_make_token(f, now_s() + 3600, false);
	world_token_text(f, text);
	end = (size_t)(strchr(text + strlen("granary-token "), ' ') - text);
	for (size_t i = strlen("granary-token ") + 56; i < end; i += 9) {
		char was = text[i];

		text[i] = was == 'Q' ? 'g' : 'Q';
		world_write(f->token, text);
		if (world_load(f->key, f->token, false) == 0)
			assert_int_equal(world_meet(f, KEY_A, NULL, f->token), -EKEYREJECTED);
		text[i] = was;
	}
	world_write(f->token, text);
	assert_int_equal(world_meet(f, KEY_A, NULL, f->token), 1);
}

/* A process that somebody connects to itself does not take itself for another of the cluster. */
static void test_reflected(void **state)
{
	struct tls_world *f = *state;
	struct err e = ERR_INIT;

	net_debug_self = false;
	assert_int_equal(world_call(f, &e), -ECONNREFUSED);
	assert_non_null(strstr(e.text, "leads back to this process"));
	net_debug_self = true;
	assert_int_equal(world_call(f, &e), 0);
}

static void test_key_before_token(void **state)
{
	struct tls_world *f = *state;
	struct err e = ERR_INIT;

	world_make_token(f, now_s() + 3600, false);
	assert_int_equal(world_load(f->key, f->token, false), 0);
	assert_int_equal(world_call(f, &e), 0);
	assert_int_equal(f->seen.kind, PEER_CLUSTER); /* the cluster key goes first */
}

static void test_files(void **state)
{
	struct tls_world *f = *state;

	assert_int_equal(chmod(f->key, 0640), 0);
	assert_int_equal(world_load(f->key, NULL, false), -EACCES);
	assert_int_equal(chmod(f->key, 0600), 0);
	world_write(f->key, "granary-cluster-key 1 2\n");
	assert_int_equal(world_load(f->key, NULL, false), -EINVAL);
	world_write(f->key, "# nothing\n");
	assert_int_equal(world_load(f->key, NULL, false), -EINVAL);
	world_write(f->key, KEY_A KEY_A);
	assert_int_equal(world_load(f->key, NULL, false), -EINVAL);
	world_write(f->key, KEY_A KEY_B KEY_FALSE);
	assert_int_equal(world_load(f->key, NULL, false), -EINVAL);
	world_write(f->key, "# the key in use\n\n  " KEY_A "# the one before\n" KEY_B);
	assert_int_equal(world_load(f->key, NULL, false), 0);
	assert_true(net_keys_cluster());
	world_write(f->token, "granary-token AAAA BBBB\n");
	assert_int_equal(world_load(NULL, f->token, false), -EINVAL);
	assert_int_equal(world_load(NULL, "/nonexistent/token", false), -ENOENT);
	/* What failed changed nothing. */
	assert_true(net_keys_cluster());
}

static void test_open_addresses(void **state)
{
	struct tls_world *f = *state;
	struct rpc_server *server;
	struct err e = ERR_INIT;

	assert_int_equal(
		rpc_server_new(f->server_loop, "tcp:0.0.0.0:0", &world_ops, f, &server, &e), 0);
	rpc_server_free(server);
	world_make_token(f, now_s() + 3600, false);
	assert_int_equal(world_load(NULL, f->token, false), 0);
	assert_int_equal(
		rpc_server_new(f->server_loop, "tcp:0.0.0.0:0", &world_ops, f, &server, &e),
		-ENOKEY);
	assert_int_equal(world_load(NULL, NULL, false), 0);
	assert_int_equal(
		rpc_server_new(f->server_loop, "tcp:0.0.0.0:0", &world_ops, f, &server, &e),
		-ENOKEY);
	assert_non_null(strstr(e.text, "cachectl key create"));
}

/* ---- tokens over unix sockets, by hand ------------------------------------------------------- */

static int unix_of(const struct tls_world *f, struct sockaddr_un *ret)
{
	*ret = (struct sockaddr_un){ .sun_family = AF_UNIX };
	(void)snprintf(ret->sun_path, sizeof(ret->sun_path), "%s/rpc", f->dir);
	return socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
}

static void put_frame(int fd, uint8_t op, const void *payload, size_t len)
{
	const struct frame frame = { .op = op, .id = 7, .length = 1, .payload = (uint32_t)len };
	uint8_t bytes[FRAME_BYTES + HELLO_BYTES_MAX];

	frame_encode(&frame, bytes);
	memcpy(bytes + FRAME_BYTES, payload, len);
	(void)send(fd, bytes, FRAME_BYTES + len, MSG_NOSIGNAL); /* who is gone does not answer */
}

static void put_hello(int fd, const struct hello *hello)
{
	uint8_t bytes[HELLO_BYTES_MAX];

	put_frame(fd, FRAME_HELLO, bytes, hello_pack(hello, bytes));
}

/* The next frame, its payload up to `size` bytes of it; false at the end. */
static bool get_frame(int fd, struct frame *ret_frame, uint8_t *payload, size_t size)
{
	uint8_t header[FRAME_BYTES];

	if (recv(fd, header, sizeof(header), MSG_WAITALL) != sizeof(header))
		return false;
	assert_int_equal(frame_decode(header, ret_frame), 0);
	for (uint32_t left = ret_frame->payload; left > 0;) {
		uint8_t rest[4096];
		ssize_t n =
			recv(fd, size ? payload : rest, min(left, size ? (uint32_t)size : 4096), 0);

		if (n <= 0)
			return false;
		size -= size ? (size_t)n : 0;
		left -= (uint32_t)n;
	}
	return true;
}

static bool get_hello(int fd, struct hello *ret)
{
	uint8_t bytes[HELLO_BYTES_MAX];
	struct frame frame;

	return get_frame(fd, &frame, bytes, sizeof(bytes)) && frame.op == FRAME_HELLO &&
	       hello_unpack(bytes, frame.payload, ret) == 0;
}

struct by_hand {
	int fd;
	struct hello server; /* its greeting */
	struct hello hello;  /* ours */
	uint8_t identity[IDENTITY_MAX];
	size_t identity_len;
	struct token token;
};

static void greet(struct tls_world *f, struct by_hand *h)
{
	struct sockaddr_un sa;

	h->fd = unix_of(f, &sa);
	assert_int_equal(connect(h->fd, (struct sockaddr *)&sa, sizeof(sa)), 0);
	h->hello = (struct hello){ .version = FRAME_VERSION, .has_nonce = true };
	memset(h->hello.nonce, 0x5a, sizeof(h->hello.nonce));
	h->hello.identity_len = (uint16_t)h->identity_len;
	memcpy(h->hello.identity, h->identity, h->identity_len);
	put_hello(h->fd, &h->hello);
	assert_true(get_hello(h->fd, &h->server));
	assert_true(h->server.has_nonce);
}

static void knock(struct tls_world *f, struct by_hand *h)
{
	world_read_token(f, &h->token);
	memcpy(h->identity, "t:", 2);
	memcpy(h->identity + 2, h->token.packed, h->token.packed_len);
	h->identity_len = 2 + h->token.packed_len;
	greet(f, h);
}

/* The proof of the token's holder on a unix socket with these nonces. */
static void prove_token(const struct token *token, const uint8_t client[HELLO_NONCE_BYTES],
	const uint8_t server[HELLO_NONCE_BYTES], uint8_t out[HELLO_PROOF_BYTES])
{
	struct keyring ring = { .has_token = true, .token = *token };
	struct proof_channel channel = { .ring = &ring };

	memcpy(channel.binding, client, HELLO_NONCE_BYTES);
	memcpy(channel.binding + HELLO_NONCE_BYTES, server, HELLO_NONCE_BYTES);
	proof_own(&channel, out);
}

/* Shows the proof and asks. Is there an answer? Else it is refused, and nothing else is heard. */
static bool prove(struct by_hand *h, const uint8_t proof[HELLO_PROOF_BYTES])
{
	struct hello hello = { .version = FRAME_VERSION, .has_proof = true };
	struct hello last;
	struct frame frame = { 0 };
	uint8_t bytes[HELLO_BYTES_MAX];
	bool answered;

	memcpy(hello.proof, proof, sizeof(hello.proof));
	put_hello(h->fd, &hello);
	put_frame(h->fd, FRAME_FETCH, "", 0);
	answered = get_frame(h->fd, &frame, bytes, sizeof(bytes)) && frame.op == FRAME_FETCH;
	if (!answered) {
		assert_int_equal(frame.op, FRAME_HELLO);
		assert_int_equal(hello_unpack(bytes, frame.payload, &last), 0);
		assert_true(last.refused);
		assert_false(get_frame(h->fd, &frame, bytes, sizeof(bytes)));
	}
	(void)close(h->fd);
	return answered;
}

static void test_proof(void **state)
{
	struct tls_world *f = *state;
	uint8_t proof[HELLO_PROOF_BYTES];
	uint8_t old[HELLO_PROOF_BYTES];
	struct rpc_server *server;
	struct err e = ERR_INIT;
	char address[128];
	struct by_hand h;

	(void)snprintf(address, sizeof(address), "unix:%s/rpc", f->dir);
	assert_int_equal(rpc_server_new(f->server_loop, address, &world_ops, f, &server, &e), 0);
	world_make_token(f, now_s() + 3600, false);
	knock(f, &h);
	prove_token(&h.token, h.hello.nonce, h.server.nonce, old);
	assert_true(prove(&h, old));
	assert_int_equal(f->seen.kind, PEER_TOKEN);
	assert_int_equal(f->seen.claims.n_volumes, 2);
	/* Replayed: the server's nonce is another. */
	knock(f, &h);
	assert_false(prove(&h, old));
	/* Reflected: what the server could be made to say, as if it came from the client. */
	knock(f, &h);
	prove_token(&h.token, h.server.nonce, h.hello.nonce, proof);
	assert_false(prove(&h, proof));
	/* A token of another volume with the key of this one. */
	knock(f, &h);
	h.token.packed[TOKEN_CLAIMS_HEAD] ^= 1;
	prove_token(&h.token, h.hello.nonce, h.server.nonce, proof);
	assert_false(prove(&h, proof));
	rpc_server_free(server);
}

/* One that is good no more, or of nobody's key, is refused at the first greeting; as is the cluster key itself, for which a
 * unix socket is not. */
static void test_refused_at_once(void **state)
{
	struct tls_world *f = *state;
	struct rpc_server *server;
	struct err e = ERR_INIT;
	char address[128];
	struct by_hand h;
	struct hello last;
	struct keyring *ring;

	(void)snprintf(address, sizeof(address), "unix:%s/rpc", f->dir);
	assert_int_equal(rpc_server_new(f->server_loop, address, &world_ops, f, &server, &e), 0);
	world_make_token(f, now_s(), false);
	knock(f, &h);
	assert_true(get_hello(h.fd, &last) && last.refused);
	(void)close(h.fd);
	ring = keyring_get();
	h.identity_len = identity_own(ring, h.identity);
	keyring_unref(ring);
	h.identity[h.identity_len - 1] ^= 1; /* another process */
	greet(f, &h);
	assert_true(get_hello(h.fd, &last) && last.refused);
	(void)close(h.fd);
	world_make_token(f, now_s() + 3600, false);
	assert_int_equal(world_load(NULL, NULL, false), 0);
	knock(f, &h);
	assert_true(get_hello(h.fd, &last) && last.refused);
	(void)close(h.fd);
	rpc_server_free(server);
}

/* Is it let in before the token's end, and not served behind it? False: it came too late. */
static bool outlives(struct tls_world *f, uint64_t until)
{
	struct hello hello = { .version = FRAME_VERSION, .has_proof = true };
	uint8_t bytes[HELLO_BYTES_MAX];
	struct frame frame = { 0 };
	struct by_hand h;
	bool in;

	knock(f, &h);
	prove_token(&h.token, h.hello.nonce, h.server.nonce, hello.proof);
	put_hello(h.fd, &hello);
	put_frame(h.fd, FRAME_FETCH, "", 0);
	in = get_frame(h.fd, &frame, bytes, sizeof(bytes)) && frame.op == FRAME_FETCH;
	if (in) {
		test_advance((until - now_s()) * CLOCK_SECOND);
		put_frame(h.fd, FRAME_FETCH, "", 0);
		assert_false(get_frame(h.fd, &frame, NULL, 0));
	}
	(void)close(h.fd);
	return in;
}

/* A live connection ends with its token. */
static void test_expires_while_connected(void **state)
{
	struct tls_world *f = *state;
	struct rpc_server *server;
	struct err e = ERR_INIT;
	char address[128];
	bool done = false;

	(void)snprintf(address, sizeof(address), "unix:%s/rpc", f->dir);
	assert_int_equal(rpc_server_new(f->server_loop, address, &world_ops, f, &server, &e), 0);
	for (uint64_t ttl = 2; !done && ttl < 60;
		ttl *= 2) { /* longer, where the machine is slow */
		uint64_t until = now_s() + ttl;

		world_make_token(f, until, false);
		done = outlives(f, until);
	}
	assert_true(done);
	rpc_server_free(server);
}

struct stranger {
	struct token token;
	const char *path;          /* of the client's token, */
	char next[TOKEN_TEXT_MAX]; /* which is replaced by this one between its two greetings */
	int listener;
	bool proved;
};

/* A worker by hand: checks the proof, then refuses. */
static void *be_worker(void *arg)
{
	struct stranger *stranger = arg;
	struct hello mine = { .version = FRAME_VERSION, .has_nonce = true };
	uint8_t proof[HELLO_PROOF_BYTES];
	struct hello hello;
	struct hello second = { 0 };
	int fd = accept(stranger->listener, NULL, NULL);

	memset(mine.nonce, 0xa5, sizeof(mine.nonce));
	if (get_hello(fd, &hello) && hello.identity_len == 2 + stranger->token.packed_len &&
		file_write_atomic(stranger->path, stranger->next, strlen(stranger->next), 0600) ==
			0 &&
		net_keys_reload(NULL) == 0) {
		put_hello(fd, &mine);
		(void)get_hello(fd, &second); /* else its proof is wrong */
		prove_token(&stranger->token, hello.nonce, mine.nonce, proof);
		stranger->proved =
			second.has_proof && memcmp(proof, second.proof, sizeof(proof)) == 0;
	}
	mine = (struct hello){ .version = FRAME_VERSION, .refused = true };
	put_hello(fd, &mine);
	while (recv(fd, proof, sizeof(proof), 0) > 0)
		; /* what it asked meanwhile */
	(void)close(fd);
	return NULL;
}

static void test_shows_token(void **state)
{
	struct tls_world *f = *state;
	struct stranger stranger = { 0 };
	struct rpc_call c = { .frame = { .op = FRAME_FETCH, .length = 1 },
		.deadline_ns = clock_mono_ns() + 60 * CLOCK_SECOND };
	struct rpc_client *client = NULL;
	struct err e = ERR_INIT;
	struct sockaddr_un sa;
	pthread_t thread;
	char address[128];

	world_make_token(f, now_s() + 7200, false);
	world_token_text(f, stranger.next);
	stranger.path = f->token;
	world_make_token(f, now_s() + 3600, false);
	world_read_token(f, &stranger.token);
	assert_int_equal(world_load(NULL, f->token, false), 0);
	stranger.listener = unix_of(f, &sa);
	assert_int_equal(bind(stranger.listener, (struct sockaddr *)&sa, sizeof(sa)), 0);
	assert_int_equal(listen(stranger.listener, 1), 0);
	assert_int_equal(pthread_create(&thread, NULL, be_worker, &stranger), 0);
	(void)snprintf(address, sizeof(address), "unix:%s", sa.sun_path);
	assert_int_equal(rpc_client_new(f->client_loop, address, &client, &e), 0);
	assert_int_equal(rpc_call_wait(client, &c, &e), -ECONNREFUSED);
	assert_non_null(strstr(e.text, "token"));
	assert_int_equal(pthread_join(thread, NULL), 0);
	assert_true(stranger.proved);
	rpc_call_release(&c);
	rpc_client_free(client);
	(void)close(stranger.listener);
	assert_int_equal(unlink(sa.sun_path), 0);
}

/* Those that never say who they are leave room for those that do. */
static void test_silent_ones(void **state)
{
	struct tls_world *f = *state;
	static int fds[LIMIT_CONNS_GREETING + 20];
	struct sockaddr_un sa;
	struct rpc_server *server;
	struct err e = ERR_INIT;
	char address[128];
	struct hello hello;

	(void)snprintf(address, sizeof(address), "unix:%s/rpc", f->dir);
	assert_int_equal(rpc_server_new(f->server_loop, address, &world_ops, f, &server, &e), 0);
	for (unsigned int i = 0; i < ARRAY_SIZE(fds); i++) {
		if (i == LIMIT_CONNS_GREETING) /* so long each has at least */
			test_advance(CLOCK_SECOND + 100 * CLOCK_MS);
		fds[i] = unix_of(f, &sa);
		assert_int_equal(connect(fds[i], (struct sockaddr *)&sa, sizeof(sa)), 0);
	}
	/* The oldest was let go: its end comes behind the server's greeting. */
	(void)get_hello(fds[0], &hello);
	assert_false(get_hello(fds[0], &hello));
	assert_int_equal(world_call(f, &e), 0);
	for (unsigned int i = 0; i < ARRAY_SIZE(fds); i++)
		(void)close(fds[i]);
	rpc_server_free(server);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_cluster_key, world_set_up, world_tear_down),
		cmocka_unit_test_setup_teardown(
			test_modes_are_agreed, world_set_up, world_tear_down),
		cmocka_unit_test_setup_teardown(
			test_keys_are_used_up, world_set_up, world_tear_down),
		cmocka_unit_test_setup_teardown(test_keys_change, world_set_up, world_tear_down),
		cmocka_unit_test_setup_teardown(test_token, world_set_up, world_tear_down),
		cmocka_unit_test_setup_teardown(test_token_expired, world_set_up, world_tear_down),
		cmocka_unit_test_setup_teardown(test_token_changed, world_set_up, world_tear_down),
		cmocka_unit_test_setup_teardown(test_reflected, world_set_up, world_tear_down),
		cmocka_unit_test_setup_teardown(
			test_key_before_token, world_set_up, world_tear_down),
		cmocka_unit_test_setup_teardown(test_files, world_set_up, world_tear_down),
		cmocka_unit_test_setup_teardown(test_open_addresses, world_set_up, world_tear_down),
		cmocka_unit_test_setup_teardown(test_proof, world_set_up, world_tear_down),
		cmocka_unit_test_setup_teardown(
			test_refused_at_once, world_set_up, world_tear_down),
		cmocka_unit_test_setup_teardown(
			test_expires_while_connected, world_set_up, world_tear_down),
		cmocka_unit_test_setup_teardown(test_shows_token, world_set_up, world_tear_down),
		cmocka_unit_test_setup_teardown(test_silent_ones, world_set_up, world_tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
