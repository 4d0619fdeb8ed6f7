/* Hosts that are given by name: looked up without keeping a loop waiting, again when they are used again, and what is said of those
 * that are not found. The resolver is the test's. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <arpa/inet.h>
#include <netdb.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/clock.h"
#include "base/limits.h"
#include "net/names.h"
#include "net/net.h"
#include "tests/clock/test_clock.h"
#include "tests/unit/net/cluster_key.h"

#define HOST "granary-master"

/* ---- a resolver ------------------------------------------------------------------------------ */

static struct {
	pthread_mutex_t lock;
	const char *numbers[3]; /* of HOST, until NULL; none: it is not found */
	_Atomic unsigned int lookups;
	_Atomic bool stuck; /* does not answer */
} dns = { .lock = PTHREAD_MUTEX_INITIALIZER };

static struct addrinfo *answer(const char *number, const char *port)
{
	struct {
		struct addrinfo info;
		struct sockaddr_in address;
	} *made = calloc(1, sizeof(*made));

	assert_non_null(made);
	made->address.sin_family = AF_INET;
	made->address.sin_port = htons((uint16_t)(port ? atoi(port) : 0)); // NOLINT(cert-err34-c)
	assert_int_equal(inet_pton(AF_INET, number, &made->address.sin_addr), 1);
	made->info = (struct addrinfo){ .ai_family = AF_INET,
		.ai_addrlen = sizeof(made->address),
		.ai_addr = (struct sockaddr *)&made->address };
	return &made->info;
}

int getaddrinfo(const char *node, const char *service, const struct addrinfo *hints,
	struct addrinfo **ret_all)
{
	struct addrinfo **end = ret_all;

	*ret_all = NULL;
	if (hints->ai_flags & AI_NUMERICHOST) {
		*ret_all = answer(node, service);
		return 0;
	}
	atomic_fetch_add(&dns.lookups, 1);
	test_wait(!atomic_load(&dns.stuck));
	pthread_mutex_lock(&dns.lock);
	for (size_t i = 0; strcmp(node, HOST) == 0 && i < ARRAY_SIZE(dns.numbers) && dns.numbers[i];
		i++) {
		*end = answer(dns.numbers[i], service);
		end = &(*end)->ai_next;
	}
	pthread_mutex_unlock(&dns.lock);
	return *ret_all ? 0 : EAI_NONAME;
}

void freeaddrinfo(struct addrinfo *all)
{
	while (all) {
		struct addrinfo *next = all->ai_next;

		free(all);
		all = next;
	}
}

static void answers(const char *first, const char *second)
{
	pthread_mutex_lock(&dns.lock);
	dns.numbers[0] = first;
	dns.numbers[1] = second;
	pthread_mutex_unlock(&dns.lock);
}

/* ---- names ----------------------------------------------------------------------------------- */

/* The number that a connection would use now; "" without one. */
static const char *number_of(const char *host, struct err *e)
{
	static char text[INET_ADDRSTRLEN];
	union host_address address;

	text[0] = '\0';
	if (names_get(host, &address, e) == 0)
		assert_non_null(inet_ntop(AF_INET, &address.v4.sin_addr, text, sizeof(text)));
	return text;
}

static void test_no_wait(void **state)
{
	union host_address address;
	struct err e = ERR_INIT;

	(void)state;
	answers("192.0.2.1", NULL);
	atomic_store(&dns.stuck, true);
	assert_int_equal(names_get(HOST, &address, &e), -EHOSTUNREACH);
	assert_string_equal(e.text, "host name '" HOST "' is being looked up");
	test_wait(atomic_load(&dns.lookups) == 1);
	assert_int_equal(names_get(HOST, &address, &e), -EHOSTUNREACH);
	atomic_store(&dns.stuck, false);
	test_wait(names_get(HOST, &address, &e) == 0);
	assert_int_equal(atomic_load(&dns.lookups), 1);
}

static void test_looked_up_again(void **state)
{
	struct err e = ERR_INIT;
	unsigned int before = atomic_load(&dns.lookups);

	(void)state;
	answers("192.0.2.1", "192.0.2.2");
	test_advance(2 * CLOCK_SECOND);
	assert_string_equal(number_of(HOST, &e), "192.0.2.1"); /* as before */
	test_wait(atomic_load(&dns.lookups) == before + 1);
	/* One after the other. */
	test_wait(strcmp(number_of(HOST, &e), "192.0.2.2") == 0);
	assert_string_equal(number_of(HOST, &e), "192.0.2.1");
	assert_int_equal(atomic_load(&dns.lookups), before + 1); /* a moment ago */
	/* When it is not found any more, what was found stays. */
	answers(NULL, NULL);
	test_advance(2 * CLOCK_SECOND);
	assert_string_equal(number_of(HOST, &e), "192.0.2.2");
	test_wait(atomic_load(&dns.lookups) == before + 2);
	assert_string_equal(number_of(HOST, &e), "192.0.2.1");
}

static void test_not_found(void **state)
{
	char host[LIMIT_HOST_BYTES + 2];
	struct err e = ERR_INIT;

	(void)state;
	test_wait(number_of("no-such-host", &e)[0] == '\0' && strstr(e.text, "not found"));
	assert_non_null(strstr(e.text, "host name 'no-such-host' not found: "));
	assert_non_null(strstr(e.text, "DNS"));
	memset(host, 'a', sizeof(host) - 1);
	host[sizeof(host) - 1] = '\0';
	assert_string_equal(number_of(host, &e), "");
	assert_int_equal(e.code, -ENOSPC);
}

static void test_bounded(void **state)
{
	struct err e = ERR_INIT;
	char host[32];

	(void)state;
	for (unsigned int i = 0; i < LIMIT_HOST_NAMES + 10; i++) {
		(void)snprintf(host, sizeof(host), "h%u", i);
		/* The last one not used is looked up before another takes its place. */
		test_wait(number_of(host, &e)[0] == '\0' && e.code == -EHOSTUNREACH);
		if (i == 0)
			test_wait(number_of(host, &e)[0] == '\0' && strstr(e.text, "not found"));
	}
	/* The first one made room: it is looked up as if it were new. */
	test_wait(number_of("h0", &e)[0] == '\0' && e.code == -EHOSTUNREACH);
	assert_non_null(strstr(e.text, "is being looked up"));
}

/* ---- connections ----------------------------------------------------------------------------- */

static const struct rpc_server_ops no_requests = { 0 };

static int ping(struct loop *loop, const char *address, struct err *e)
{
	struct rpc_client *client = NULL;
	struct rpc_call call = { .frame = { .op = FRAME_PING },
		.deadline_ns = clock_mono_ns() + 20 * CLOCK_SECOND };
	int r = rpc_client_new(loop, address, &client, e);

	if (r == 0) {
		r = rpc_call_wait(client, &call, e);
		rpc_call_release(&call);
		rpc_client_free(client);
	}
	return r;
}

static void test_connect(void **state)
{
	struct loop *loop = loop_new("test");
	struct rpc_server *server = NULL;
	struct err e = ERR_INIT;
	char address[128];
	const char *port;

	(void)state;
	assert_non_null(loop);
	answers("127.0.1.1", NULL);
	assert_int_equal(rpc_server_new(loop, "tcp:" HOST ":0", &no_requests, NULL, &server, &e),
		-EADDRNOTAVAIL);
	assert_string_equal(e.text,
		"cannot listen on 'tcp:" HOST ":0': " HOST
		" resolves to the loopback address, which other hosts cannot reach; use an "
		"address, or correct /etc/hosts");
	answers("127.0.1.1", "0.0.0.0"); /* another host could reach the second one */
	assert_int_equal(
		rpc_server_new(loop, "tcp:" HOST ":0", &no_requests, NULL, &server, &e), 0);
	answers("127.0.0.1", NULL);
	port = strrchr(rpc_server_address(server), ':');
	(void)snprintf(address, sizeof(address), "tcp:" HOST "%s", port);
	assert_int_equal(ping(loop, address, &e), 0);
	/* A host whose address has changed: the old one is tried once. */
	answers("127.0.0.9", NULL);
	test_advance(2 * CLOCK_SECOND);
	rpc_server_free(server);
	assert_int_equal(
		rpc_server_new(loop, "tcp:127.0.0.9:0", &no_requests, NULL, &server, &e), 0);
	port = strrchr(rpc_server_address(server), ':');
	(void)snprintf(address, sizeof(address), "tcp:" HOST "%s", port);
	assert_int_equal(ping(loop, address, &e), 0);
	rpc_server_free(server);
	assert_int_equal(
		rpc_server_new(loop, "tcp:no-such-host:0", &no_requests, NULL, &server, &e),
		-EHOSTUNREACH);
	assert_non_null(strstr(e.text, "use an address of this host"));
	loop_free(loop);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_no_wait),
		cmocka_unit_test(test_looked_up_again),
		cmocka_unit_test(test_not_found),
		cmocka_unit_test_setup_teardown(
			test_connect, with_cluster_key, without_cluster_key),
		cmocka_unit_test(test_bounded),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
