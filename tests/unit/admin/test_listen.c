/* Addresses of --admin-listen: their form, and what one that other hosts can reach answers without a cluster key. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include "admin/admin_internal.h"
#include "admin/listen.h"
#include "tests/unit/admin/http_ask.h"

#define OWN_NAME "node7.example"

/* The resolver is the test's: all addresses here are numbers of IPv4, or OWN_NAME. */
int getaddrinfo(const char *node, const char *service, const struct addrinfo *hints,
	struct addrinfo **ret_all)
{
	struct {
		struct addrinfo info;
		struct sockaddr_in address;
	} *made = calloc(1, sizeof(*made));

	(void)hints;
	assert_non_null(made);
	made->address.sin_family = AF_INET;
	made->address.sin_port = htons((uint16_t)atoi(service)); // NOLINT(cert-err34-c)
	assert_int_equal(inet_pton(AF_INET, strcmp(node, OWN_NAME) == 0 ? "127.0.1.1" : node,
				 &made->address.sin_addr),
		1);
	made->info = (struct addrinfo){ .ai_family = AF_INET,
		.ai_addrlen = sizeof(made->address),
		.ai_addr = (struct sockaddr *)&made->address };
	*ret_all = &made->info;
	return 0;
}

void freeaddrinfo(struct addrinfo *all)
{
	free(all);
}

struct fixture {
	char dir[64];
	char path[100];
	struct admin_server *server;
	int calls;
};

static int get_status(
	void *arg, const struct admin_request *request, json_t **ret_json, struct err *e)
{
	struct fixture *f = arg;

	(void)request;
	(void)ret_json;
	(void)e;
	f->calls++;
	return 0;
}

static const struct admin_route routes[] = { { "GET", "/v1/status", get_status, NULL },
	{ "POST", "/v1/things", get_status, "thing.create" },
	{ "PUT", "/v1/things", get_status, "thing.replace" },
	{ "PATCH", "/v1/things", get_status, "thing.update" },
	{ "DELETE", "/v1/things", get_status, "thing.remove" }, { 0 } };

static int set_up(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));
	struct err e = ERR_INIT;

	assert_non_null(f);
	*state = f;
	(void)snprintf(f->dir, sizeof(f->dir), "/tmp/granary-listen-XXXXXX");
	assert_non_null(mkdtemp(f->dir));
	(void)snprintf(f->path, sizeof(f->path), "%s/admin", f->dir);
	assert_int_equal(admin_server_new(f->path, routes, f, &f->server, &e), 0);
	return 0;
}

static int tear_down(void **state)
{
	struct fixture *f = *state;

	admin_server_free(f->server);
	assert_int_equal(rmdir(f->dir), 0);
	free(f);
	return 0;
}

static void test_listen_check(void **state)
{
	static const char *const good[] = { "127.0.0.1:9182", "localhost:0", "[::1]:9182",
		"0.0.0.0:9182", "[::]:9182", "h1.example:9182" };
	static const char *const bad[] = { ":9182", "9182", "127.0.0.1",
		"127.0.0.1:", "127.0.0.1:65536", "127.0.0.1:x", "127.0.0.1:1x", "::1:80", "a b:80",
		"" };
	struct err e = ERR_INIT;

	(void)state;
	assert_int_equal(admin_check_listen(&(struct admin_listen){ 0 }, &e), 0);
	for (size_t i = 0; i < ARRAY_SIZE(good); i++)
		assert_int_equal(
			admin_check_listen(&(struct admin_listen){ .address = good[i] }, &e), 0);
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		e = ERR_INIT;
		assert_int_equal(
			admin_check_listen(&(struct admin_listen){ .address = bad[i] }, &e),
			-EINVAL);
		assert_non_null(strstr(e.text, "use HOST:PORT"));
	}
}

#define ASK(path) "GET " path " HTTP/1.1\r\nHost: h1.example\r\nConnection: close\r\n\r\n"

static void say_not_ready(void *arg, json_t *reasons)
{
	(void)arg;
	assert_int_equal(json_array_append_new(reasons, json_string("the reason")), 0);
}

/* Where other hosts can connect, and without a key: no more than what is public. */
static void listen_without_keys(struct fixture *f, bool metrics)
{
	static const char *const refused[] = { ASK("/"), ASK("/v1/status"), ASK("/v1/routes"),
		ASK("/no-such-path"), ASK("/healthz/x") };
	const struct admin_listen where = { .address = "0.0.0.0:0", .anonymous_metrics = metrics };
	struct err e = ERR_INIT;
	uint16_t port = 0;
	char out[65536];

	admin_server_on_ready(f->server, say_not_ready, NULL);
	assert_int_equal(admin_server_listen(f->server, &where, &port, &e), 0);
	http_ask(port, ASK("/healthz"), out, sizeof(out));
	assert_non_null(strstr(out, " 200 "));
	http_ask(port, ASK("/readyz"), out, sizeof(out));
	assert_non_null(strstr(out, " 503 "));
	assert_non_null(strstr(out, "{\"ready\":false,\"reasons\":[]}"));
	http_ask(port, ASK("/metrics"), out, sizeof(out));
	assert_non_null(strstr(out, metrics ? "granary_admin_requests_total" : " 403 "));
	for (size_t i = 0; i < ARRAY_SIZE(refused); i++) {
		http_ask(port, refused[i], out, sizeof(out));
		assert_non_null(strstr(out, " 403 "));
		assert_non_null(strstr(out, "--cluster-key"));
	}
	assert_int_equal(f->calls, 0);
}

/* Refused from its headers alone: the peer sends no body and is answered all the same. */
static void test_body_not_awaited(void **state)
{
	static const char *const methods[] = { "POST", "PUT", "PATCH", "DELETE" };
	static const char *const hosts[] = { "0.0.0.0:0", "127.0.0.1:0" };
	struct fixture *f = *state;

	for (size_t i = 0; i < ARRAY_SIZE(methods); i++) {
		const struct admin_listen where = { .address = hosts[i % 2] };
		struct err e = ERR_INIT;
		uint16_t port = 0;
		char ask[256];
		char out[4096];

		admin_server_free(f->server);
		assert_int_equal(admin_server_new(f->path, routes, f, &f->server, &e), 0);
		assert_int_equal(admin_server_listen(f->server, &where, &port, &e), 0);
		(void)snprintf(ask, sizeof(ask),
			"%s /v1/things HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
			"Content-Length: 1000000\r\n\r\n",
			methods[i]);
		http_ask(port, ask, out, sizeof(out));
		assert_non_null(strstr(out, " 403 ")); /* not after the server's 30 s of silence */
		assert_non_null(strstr(out, "permission denied"));
	}
	assert_int_equal(f->calls, 0);
}

/* The body of a request that reads is not kept. */
static void test_body_discarded(void **state)
{
	struct fixture *f = *state;
	const struct admin_listen where = { .address = "127.0.0.1:0" };
	struct err e = ERR_INIT;
	uint16_t port = 0;
	char out[4096];

	assert_int_equal(admin_server_listen(f->server, &where, &port, &e), 0);
	http_ask(port,
		"GET /v1/status HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
		"Content-Length: 2\r\n\r\n{}",
		out, sizeof(out));
	assert_non_null(strstr(out, " 413 "));
	assert_int_equal(f->calls, 0);
}

/* Debian's /etc/hosts maps the host's own name to 127.0.1.1: monitoring of other hosts would not reach it. */
static void test_name_of_loopback(void **state)
{
	struct fixture *f = *state;
	const struct admin_listen where = { .address = OWN_NAME ":0" };
	struct err e = ERR_INIT;
	uint16_t port = 0;

	assert_int_equal(admin_server_listen(f->server, &where, &port, &e), -EADDRNOTAVAIL);
	assert_string_equal(e.text,
		"cannot listen on " OWN_NAME ":0: " OWN_NAME
		" resolves to the loopback address, which other hosts cannot reach; use an "
		"address, or correct /etc/hosts");
}

static void test_loopback_host(void **state)
{
	static const char *const good[] = { "127.0.0.1", "127.0.0.2:9182", "127.1.2.3", "localhost",
		"LOCALHOST:1", "[::1]", "[::1]:9182" };
	static const char *const bad[] = { "128.0.0.1", "127.0.0.1.example", "127.0.0.1x:1",
		"127.example", "localhost.example", "[::2]", "evil.example", "0.0.0.0", "" };

	(void)state;
	assert_true(admin_loopback_host(NULL));
	for (size_t i = 0; i < ARRAY_SIZE(good); i++)
		assert_true(admin_loopback_host(good[i]));
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		assert_false(admin_loopback_host(bad[i]));
}

static void test_open_address(void **state)
{
	listen_without_keys(*state, false);
}

static void test_open_metrics(void **state)
{
	listen_without_keys(*state, true);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_listen_check),
		cmocka_unit_test(test_loopback_host),
		cmocka_unit_test_setup_teardown(test_name_of_loopback, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_body_not_awaited, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_body_discarded, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_open_address, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_open_metrics, set_up, tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
