/* Who is no server and no client whatever it makes of files, tokens and other connections; and the handshake's golden parts. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <arpa/inet.h>
#include <errno.h>
#include <openssl/core_names.h>
#include <openssl/params.h>
#include <openssl/ssl.h>
#include <sched.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/loop.h"
#include "proto/frame.h"
#include "proto/hello.h"
#include "tests/clock/test_clock.h"
#include "tests/unit/net/call_result.h"
#include "tests/unit/net/tls_world.h"

/* A handshake between a client with what is loaded now, and a server of that certificate. */
static int meet_impostor(const struct certificate *shown)
{
	struct tls *client;
	struct tls *server;
	struct keyring ring = { .refs = 2, .n_cluster = 1, .cluster = { { .id = 0x0a } } };
	struct keyring *own;
	int r_client;
	int r;

	ring.cluster[0].certificate = *shown;
	assert_int_equal(tls_new(false, &client), 0);
	own = keyring_get();
	if (own->n_cluster == 0) { /* any that may be a server; its keys are replaced */
		char text[] = "/tmp/granary-test-key-XXXXXX";
		int fd = mkstemp(text);

		assert_true(fd >= 0);
		assert_int_equal(write(fd, KEY_B, strlen(KEY_B)), (ssize_t)strlen(KEY_B));
		assert_int_equal(close(fd), 0);
		assert_int_equal(world_load(text, NULL, false), 0);
		assert_int_equal(unlink(text), 0);
	}
	assert_int_equal(tls_new(true, &server), 0);
	keyring_unref(server->channel.ring);
	server->channel.ring = &ring;
	r = tls_shake(server, client, &r_client);
	assert_int_equal(r == 1, r_client == 1);
	keyring_unref(own);
	tls_free(server);
	tls_free(client);
	assert_int_equal(ring.refs, 1);
	return r_client;
}

/* Public and private key of two that do not belong together. */
static EVP_PKEY *chimera(EVP_PKEY *public, EVP_PKEY *private)
{
	uint8_t x[KEY_BYTES];
	uint8_t d[KEY_BYTES];
	size_t x_len = sizeof(x);
	size_t d_len = sizeof(d);
	EVP_PKEY_CTX *ctx = EVP_PKEY_CTX_new_from_name(NULL, "ED25519", NULL);
	OSSL_PARAM params[] = { OSSL_PARAM_octet_string(OSSL_PKEY_PARAM_PUB_KEY, x, sizeof(x)),
		OSSL_PARAM_octet_string(OSSL_PKEY_PARAM_PRIV_KEY, d, sizeof(d)), OSSL_PARAM_END };
	EVP_PKEY *made = NULL;

	assert_int_equal(EVP_PKEY_get_raw_public_key(public, x, &x_len), 1);
	assert_int_equal(EVP_PKEY_get_raw_private_key(private, d, &d_len), 1);
	assert_int_equal(EVP_PKEY_fromdata_init(ctx), 1);
	assert_int_equal(EVP_PKEY_fromdata(ctx, &made, EVP_PKEY_KEYPAIR, params), 1);
	EVP_PKEY_CTX_free(ctx);
	return made;
}

/* Whatever somebody without the cluster key makes of what there is, clients of neither kind take it for a server. */
static void test_impostor(void **state)
{
	struct tls_world *f = *state;
	struct certificate own;
	struct certificate stolen;
	struct keyring *ring;
	struct token token;

	world_make_token(f, now_s() + 3600, false);
	world_read_token(f, &token);
	ring = keyring_get();
	assert_int_equal(certificate_init(&own, token.key), 0); /* of all that it knows */
	stolen.x509 = ring->cluster[0].certificate.x509;        /* anybody is shown it */
	memcpy(stolen.pin, ring->cluster[0].certificate.pin, PIN_BYTES);
	stolen.key_pair = chimera(ring->cluster[0].certificate.key_pair, own.key_pair);
	for (int with_key = 0; with_key < 2; with_key++) {
		const char *key = with_key ? f->key : NULL;

		assert_int_equal(world_load(key, f->token, false), 0);
		assert_int_equal(meet_impostor(&own), -EKEYREVOKED);
		assert_int_equal(world_load(key, f->token, false), 0);
		assert_int_equal(meet_impostor(&stolen), -EKEYREVOKED);
		assert_int_equal(world_load(key, f->token, false), 0);
		assert_int_equal(meet_impostor(&ring->cluster[0].certificate), 1);
	}
	EVP_PKEY_free(stolen.key_pair);
	certificate_release(&own);
	keyring_unref(ring);
}

/* A token that names another server. */
static void test_wrong_pin(void **state)
{
	struct tls_world *f = *state;
	char text[TOKEN_TEXT_MAX];
	char *pin;

	world_make_token(f, now_s() + 3600, false);
	world_token_text(f, text);
	pin = strrchr(text, ' ') + 1;
	for (int i = 0; i < 42; i++) { /* the last digit has bits that are none */
		char was = pin[i];

		pin[i] = was == 'Q' ? 'g' : 'Q';
		world_write(f->token, text);
		assert_int_equal(world_meet(f, KEY_A, NULL, f->token), -EKEYREVOKED);
		pin[i] = was;
	}
	world_write(f->token, text);
	assert_int_equal(world_meet(f, KEY_A, NULL, f->token), 1);
}

/* The server is asked for the certificate of the client's key, and has two: tokens of both are good while keys change. */
static void test_token_while_keys_change(void **state)
{
	struct tls_world *f = *state;

	world_make_token(f, now_s() + 3600, false);
	assert_int_equal(world_meet(f, KEY_A KEY_B, NULL, f->token), 1);
	assert_int_equal(world_meet(f, KEY_B KEY_A, NULL, f->token), 1);
	assert_int_equal(world_meet(f, KEY_B, NULL, f->token), -EKEYREVOKED);
}

/* What one connection's client says is of no use on another, with the same server, keys and identity. */
static void test_proof_of_another(void **state)
{
	struct tls_world *f = *state;
	static const char label[] = "EXPORTER-granary-client-proof";
	struct key_shown keys[KEYS_MAX];
	uint8_t wanted[PROOF_BINDING_BYTES];
	struct peer_identity peer;
	struct tls *server[2];
	struct tls *client[2];
	struct err e = ERR_INIT;
	int r;

	assert_int_equal(keys_read(f->key, keys, &e), 1);
	for (int i = 0; i < 2; i++) {
		keyring_unref(tls_pair(false, false, f->key, &server[i], &client[i]));
		assert_int_equal(tls_shake(server[i], client[i], &r), 1);
		assert_int_equal(r, 1);
		/* Of this connection and this server. */
		assert_int_equal(SSL_export_keying_material(client[i]->ssl, wanted, sizeof(wanted),
					 label, sizeof(label) - 1, keys[0].pin, PIN_BYTES, 1),
			1);
		assert_memory_equal(client[i]->channel.binding, wanted, sizeof(wanted));
	}
	for (int i = 0; i < 2; i++) {
		assert_int_equal(tls_show(client[i], server[i], &peer), 1);
		assert_int_equal(tls_show(client[i], server[1 - i], &peer), -EKEYREJECTED);
	}
	for (int i = 0; i < 2; i++) {
		tls_free(server[i]);
		tls_free(client[i]);
	}
}

/* What breaks a connection that stands says nothing of the server. */
static void test_damaged_later(void **state)
{
	struct tls_world *f = *state;
	struct tls *server;
	struct tls *client;
	uint8_t byte = 1;
	int r;

	keyring_unref(tls_pair(false, false, f->key, &server, &client));
	assert_int_equal(tls_shake(server, client, &r), 1);
	assert_int_equal(r, 1);
	assert_int_equal(tls_write(server, &byte, 1), 0);
	server->out[server->out_end - 1] ^= 1;
	tls_carry(server, client);
	assert_int_equal(tls_read(client, &byte, 1), -EPROTO);
	tls_free(server);
	tls_free(client);
}

/* One of another version hears so; one of before there were certificates is no server, and none falls back to what it was. */
static void test_other_versions(void **state)
{
	static const unsigned char later[] = "\016granary4-plain";
	struct tls_world *f = *state;
	struct tls *server;
	struct tls *client;
	int r;

	keyring_unref(tls_pair(false, false, f->key, &server, &client));
	assert_int_equal(SSL_set_alpn_protos(client->ssl, later, sizeof(later) - 1), 0);
	assert_int_equal(tls_shake(server, client, &r), -EPROTO);
	assert_int_equal(r, -EPFNOSUPPORT);
	tls_free(server);
	tls_free(client);
	keyring_unref(tls_pair(false, false, f->key, &server, &client));
	SSL_set_cert_cb(server->ssl, NULL, NULL);
	assert_int_equal(tls_shake(server, client, &r), -EPROTO);
	assert_int_equal(r, -EKEYREVOKED);
	tls_free(server);
	tls_free(client);
}

/* ---- a client by hand, over TCP ---------------------------------------------------------------- */

struct by_tls {
	int fd;
	struct tls *tls;
};

static void put_tls(struct by_tls *h)
{
	size_t n = h->tls->out_end - h->tls->out_begin;

	(void)send(h->fd, h->tls->out + h->tls->out_begin, n, MSG_NOSIGNAL); /* or it is closed */
	tls_sent(h->tls, n);
}

/* Never idle: what is on its way through the kernel is nobody's work, and the tests' clock would not wait for it. */
static bool take_tls(struct by_tls *h)
{
	size_t size;
	uint8_t *space = tls_space(h->tls, &size);
	ssize_t n;

	while ((n = recv(h->fd, space, size, MSG_DONTWAIT)) < 0 && errno == EAGAIN)
		(void)sched_yield(); /* never fails */
	if (n > 0)
		tls_received(h->tls, (size_t)n);
	return n > 0;
}

static void knock_by_tls(struct tls_world *f, struct by_tls *h)
{
	struct sockaddr_in sa = { .sin_family = AF_INET,
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int r;

	sa.sin_port =
		htons((uint16_t)strtoul(strrchr(rpc_server_address(f->server), ':') + 1, NULL, 10));
	h->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(connect(h->fd, (struct sockaddr *)&sa, sizeof(sa)), 0);
	assert_int_equal(tls_new(false, &h->tls), 0);
	while ((r = tls_handshake(h->tls)) == 0) {
		put_tls(h);
		assert_true(take_tls(h));
	}
	assert_int_equal(r, 1);
}

static void say_by_tls(struct by_tls *h, const struct hello *hello)
{
	const struct frame ask = { .op = FRAME_FETCH, .id = 7, .length = 1 };
	struct frame frame = { .op = FRAME_HELLO };
	uint8_t bytes[FRAME_BYTES + HELLO_BYTES_MAX];

	if (hello) {
		frame.payload = (uint32_t)hello_pack(hello, bytes + FRAME_BYTES);
		frame_encode(&frame, bytes);
		assert_int_equal(tls_write(h->tls, bytes, FRAME_BYTES + frame.payload), 0);
	}
	frame_encode(&ask, bytes);
	assert_int_equal(tls_write(h->tls, bytes, FRAME_BYTES), 0);
	put_tls(h);
}

/* Everything that the server says up to its end, or to an answer; then closes. */
static size_t heard_by_tls(struct by_tls *h, uint8_t *out, size_t size)
{
	size_t got = 0;

	for (;;) {
		ssize_t n = tls_read(h->tls, out + got, size - got);

		if (n > 0)
			got += (size_t)n;
		if (n < 0 || (n == 0 && !take_tls(h)))
			break;
		if (got > FRAME_BYTES + 64)
			break;
	}
	tls_free(h->tls);
	(void)close(h->fd);
	return got;
}

static struct hello proved_hello(const struct by_tls *h)
{
	struct hello hello = { .version = FRAME_VERSION, .has_proof = true };

	hello.identity_len = (uint16_t)identity_own(h->tls->channel.ring, hello.identity);
	proof_own(&h->tls->channel, hello.proof);
	return hello;
}

/* Says so and asks: is it refused, and hears not even whom it speaks to? */
static void refused_by_tls(struct tls_world *f, struct by_tls *h, const struct hello *hello)
{
	uint8_t bytes[4096];
	struct frame frame;
	struct hello last;
	size_t n;

	f->seen.kind = PEER_UNKNOWN;
	say_by_tls(h, hello);
	n = heard_by_tls(h, bytes, sizeof(bytes));
	assert_int_equal(f->seen.kind, PEER_UNKNOWN); /* it got no request */
	if (!hello) {
		assert_int_equal(n, 0);
		return;
	}
	assert_true(n >= FRAME_BYTES);
	assert_int_equal(frame_decode(bytes, &frame), 0);
	assert_int_equal(frame.op, FRAME_HELLO);
	assert_int_equal(n, FRAME_BYTES + frame.payload);
	assert_int_equal(hello_unpack(bytes + FRAME_BYTES, frame.payload, &last), 0);
	assert_true(last.refused && last.pid == 0 && last.process[0] == '\0');
}

static void test_proof_over_tls(void **state)
{
	struct tls_world *f = *state;
	uint8_t bytes[4096];
	struct by_tls first;
	struct by_tls h;
	struct hello hello;
	struct hello old;

	/* As it should be: what else is wrong is what is refused. */
	knock_by_tls(f, &first);
	old = proved_hello(&first);
	say_by_tls(&first, &old);
	assert_true(heard_by_tls(&first, bytes, sizeof(bytes)) > FRAME_BYTES + 64);
	assert_int_equal(f->seen.kind, PEER_CLUSTER);

	knock_by_tls(f, &h); /* replayed, or relayed by who has a connection of its own */
	refused_by_tls(f, &h, &old);
	knock_by_tls(f, &h); /* none */
	hello = (struct hello){ .version = FRAME_VERSION };
	refused_by_tls(f, &h, &hello);
	knock_by_tls(f, &h); /* an identity alone */
	hello = proved_hello(&h);
	hello.has_proof = false;
	refused_by_tls(f, &h, &hello);
	knock_by_tls(f, &h); /* a proof alone */
	hello = proved_hello(&h);
	hello.identity_len = 0;
	refused_by_tls(f, &h, &hello);
	knock_by_tls(f, &h); /* of another key than it names */
	hello = proved_hello(&h);
	hello.identity[2] ^= 1;
	refused_by_tls(f, &h, &hello);
	knock_by_tls(f, &h); /* reflected: as if the server had proved itself so */
	net_debug_self = false;
	hello = proved_hello(&h);
	refused_by_tls(f, &h, &hello);
	net_debug_self = true;
	knock_by_tls(f, &h); /* a request first */
	refused_by_tls(f, &h, NULL);
}

/* ---- servers that prove nothing ---------------------------------------------------------------- */

struct hold {
	struct loop_task task;
	sem_t held;
	sem_t go;
};

static void hold_loop(struct loop_task *task)
{
	struct hold *hold = container_of(task, struct hold, task);

	sem_post(&hold->held);
	while (sem_wait(&hold->go) != 0)
		;
}

/* Sends these bytes and resets the connection, before the client's loop sees either. */
static void answer_and_reset(struct tls_world *f, int fd, const void *answer, size_t len)
{
	const struct linger at_once = { .l_onoff = 1 };
	struct hold hold = { .task.run = hold_loop };

	sem_init(&hold.held, 0, 0);
	sem_init(&hold.go, 0, 0);
	loop_post(f->client_loop, &hold.task);
	while (sem_wait(&hold.held) != 0)
		;
	assert_int_equal(send(fd, answer, len, MSG_NOSIGNAL), (ssize_t)len);
	assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once)), 0);
	assert_int_equal(close(fd), 0);
	sem_post(&hold.go);
}

/* What becomes of a call when these bytes answer the client's first ones; with `reset`, the connection ends right after them. */
static void call_answered_by(struct tls_world *f, const void *answer, size_t len, bool hurry,
	bool reset, struct call_result *ret_result)
{
	struct sockaddr_in sa = { .sin_family = AF_INET,
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t sa_len = sizeof(sa);
	int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct rpc_call call = { .frame = { .op = FRAME_FETCH, .length = 1 },
		.hurry = hurry,
		.on_done = call_result_note,
		.arg = ret_result };
	struct rpc_client *client = NULL;
	struct err e = ERR_INIT;
	char address[64];
	uint8_t bytes[4096];
	int fd;

	assert_int_equal(bind(listener, (struct sockaddr *)&sa, sizeof(sa)), 0);
	assert_int_equal(getsockname(listener, (struct sockaddr *)&sa, &sa_len), 0);
	assert_int_equal(listen(listener, 1), 0);
	(void)snprintf(address, sizeof(address), "tcp:127.0.0.1:%u", ntohs(sa.sin_port));
	assert_int_equal(rpc_client_new(f->client_loop, address, &client, &e), 0);
	rpc_call(client, &call);
	fd = accept(listener, NULL, NULL);
	assert_true(recv(fd, bytes, sizeof(bytes), 0) > 0);
	if (reset)
		answer_and_reset(f, TAKE_FD(fd), answer, len);
	else
		assert_int_equal(send(fd, answer, len, MSG_NOSIGNAL), (ssize_t)len);
	test_wait(ret_result->n > 0);
	rpc_client_free(client);
	cleanup_close(&fd);
	assert_int_equal(close(listener), 0);
}

/* An alert costs nothing to whoever is on the path: a call fails as if the server was away, so that it is made again. */
static void test_alert_without_proof(void **state)
{
	static const struct {
		uint8_t alert[7];
		const char *text;
	} cases[] = {
		{ { 21, 3, 3, 0, 2, 2, 120 }, "refused version 3 of the protocol" },
		{ { 21, 3, 3, 0, 2, 2, 40 }, "certificate of cluster key" },
		{ { 21, 3, 3, 0, 2, 2, 80 }, "certificate of cluster key" },
	};
	struct tls_world *f = *state;

	for (unsigned int i = 0; i < 4 * ARRAY_SIZE(cases); i++) {
		struct call_result result = { .n = 0 };

		call_answered_by(
			f, cases[i / 4].alert, sizeof(cases[0].alert), i % 2, i % 4 > 1, &result);
		assert_int_equal(result.status, -ECONNREFUSED);
		assert_non_null(strstr(result.text, "cannot trust tcp:127.0.0.1:"));
		assert_non_null(strstr(result.text, cases[i / 4].text));
	}
}

/* A token may have expired by the clock of either host: the line has both times that this one knows. */
static void test_clocks_are_named(void **state)
{
	struct tls_world *f = *state;
	char end[CLOCK_TEXT_MAX];

	for (int expired = 0; expired < 2; expired++) {
		uint64_t until = expired ? now_s() - 7 : now_s() + 3600;
		struct err e = ERR_INIT;

		world_make_token(f, until, false);
		assert_int_equal(world_load(NULL, f->token, false), 0);
		keys_explain_refusal("tcp:h:1", -EKEYREJECTED, &e);
		assert_non_null(strstr(e.text, clock_text(until, end)));
		assert_non_null(strstr(e.text, "this host's clock shows 20"));
		assert_non_null(strstr(e.text, "by NTP"));
		assert_non_null(
			strstr(e.text, expired ? ": it expired at" : "expired by the clock there"));
	}
}

/* ---- OpenSSL without memory -------------------------------------------------------------------- */

/* Which of the allocations that OpenSSL makes for TLS and X.509 on this thread fails, counted down to 0; < 0: none. Its digests, which
 * base/hash.h cannot do without, are left alone. */
static _Thread_local long allocations_left = -1;

static bool may_allocate(const char *file)
{
	if (allocations_left < 0 || !(strstr(file, "ssl/") || strstr(file, "x509/") ||
					    strstr(file, "asn1/") || strstr(file, "buffer/")))
		return true;
	return allocations_left-- > 0;
}

static void *limited_malloc(size_t n, const char *file, int line)
{
	(void)line;
	return may_allocate(file) ? malloc(n) : NULL;
}

static void *limited_realloc(void *p, size_t n, const char *file, int line)
{
	(void)line;
	return may_allocate(file) ? realloc(p, n) : NULL;
}

static void limited_free(void *p, const char *file, int line)
{
	(void)file;
	(void)line;
	free(p);
}

struct shortage {
	struct rpc_client *client;
	long left;         /* of the client's loop */
	char trouble[256]; /* the client's line */
};

static void begin_shortage(void *arg)
{
	struct shortage *shortage = arg;

	allocations_left = shortage->left;
}

static void end_shortage(void *arg)
{
	struct shortage *shortage = arg;

	shortage->left = allocations_left;
	allocations_left = -1;
	(void)snprintf(shortage->trouble, sizeof(shortage->trouble), "%s",
		rpc_client_trouble(shortage->client));
}

/* One call on a connection of its own, in which the client's allocation shortage->left fails. */
static int call_without_memory(struct tls_world *f, struct shortage *shortage)
{
	struct rpc_call call = { .frame = { .op = FRAME_FETCH, .length = 1 }, .hurry = true };
	struct err e = ERR_INIT;
	int r;

	loop_call(f->client_loop, begin_shortage, shortage);
	assert_int_equal(rpc_client_new(f->client_loop, rpc_server_address(f->server),
				 &shortage->client, &e),
		0);
	r = rpc_call_wait(shortage->client, &call, &e);
	loop_call(f->client_loop, end_shortage, shortage);
	rpc_call_release(&call);
	rpc_client_free(shortage->client);
	return r;
}

/* A client that runs out of memory does not blame the server, which is the right one: the call was interrupted and is made again. */
static void test_no_memory_is_no_distrust(void **state)
{
	struct tls_world *f = *state;
	struct shortage shortage = { .left = -1 };
	bool named = false;
	long nth = 0;
	int r;

	do {
		shortage.left = nth++;
		r = call_without_memory(f, &shortage);
		assert_true(r == 0 || r == -ECONNRESET);
		assert_null(strstr(shortage.trouble, "cannot trust"));
		named |= strstr(shortage.trouble, "failed: out of memory") != NULL;
	} while (shortage.left < 0);
	assert_int_equal(r, 0);
	assert_true(named);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_impostor, world_set_up, world_tear_down),
		cmocka_unit_test_setup_teardown(test_wrong_pin, world_set_up, world_tear_down),
		cmocka_unit_test_setup_teardown(
			test_token_while_keys_change, world_set_up, world_tear_down),
		cmocka_unit_test_setup_teardown(
			test_proof_of_another, world_set_up, world_tear_down),
		cmocka_unit_test_setup_teardown(test_damaged_later, world_set_up, world_tear_down),
		cmocka_unit_test_setup_teardown(test_other_versions, world_set_up, world_tear_down),
		cmocka_unit_test_setup_teardown(test_proof_over_tls, world_set_up, world_tear_down),
		cmocka_unit_test_setup_teardown(
			test_alert_without_proof, world_set_up, world_tear_down),
		cmocka_unit_test_setup_teardown(
			test_clocks_are_named, world_set_up, world_tear_down),
		cmocka_unit_test_setup_teardown(
			test_no_memory_is_no_distrust, world_set_up, world_tear_down),
	};

	if (!CRYPTO_set_mem_functions(limited_malloc, limited_realloc, limited_free))
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
