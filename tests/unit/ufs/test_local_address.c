/* A name that led elsewhere when its source was named: connections to this host and its link are refused. */
#include "tests/unit/ufs/server.h"
#include "ufs/ufs.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <dlfcn.h>
#include <netdb.h>

static struct server server;
static _Atomic uint32_t requests;
static const char *leads_to; /* where the name "rebind.test" leads */

/* As libc's, for libcurl as well. */
int getaddrinfo(
	const char *node, const char *service, const struct addrinfo *hints, struct addrinfo **ret)
{
	int (*call)(const char *, const char *, const struct addrinfo *, struct addrinfo **) = 0;

	*(void **)&call = dlsym(RTLD_NEXT, "getaddrinfo");
	return call(
		node && strcmp(node, "rebind.test") == 0 ? leads_to : node, service, hints, ret);
}

static bool answer(struct server *s, int fd, const char *head)
{
	(void)s;
	(void)head;
	requests++;
	server_puts(fd, "HTTP/1.1 200 OK\r\nContent-Length: 136\r\n\r\n"
			"<ListBucketResult><IsTruncated>false</IsTruncated><Contents><Key>x</Key>"
			"<Size>1</Size><ETag>e</ETag></Contents></ListBucketResult>      ");
	return true;
}

static const char *const variables[] = { "http_proxy", "https_proxy", "HTTPS_PROXY", "all_proxy",
	"ALL_PROXY", "no_proxy", "NO_PROXY" };

static int setup(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(variables); i++)
		unsetenv(variables[i]);
	leads_to = "127.0.0.1";
	requests = 0;
	server_start(&server, answer, NULL);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	server_stop(&server);
	return 0;
}

static const char *at_port(const char *host, unsigned int port)
{
	static char url[100];

	(void)snprintf(url, sizeof(url), "http://%s:%u", host, port);
	return url;
}

static struct ufs *open_at(const char *endpoint, bool no_local)
{
	struct ufs_limits limits = UFS_LIMITS_DEFAULT;
	struct ufs_config config;
	struct ufs *ufs = NULL;

	assert_int_equal(ufs_config_parse("s3://bucket/", &config, NULL), 0);
	config.endpoint = strdup(endpoint);
	config.path_style = config.anonymous = true;
	config.no_local = no_local;
	assert_int_equal(ufs_open(&config, &limits, &ufs, NULL), 0);
	ufs_config_release(&config);
	return ufs;
}

static void expect(const char *endpoint, int want, const char *text)
{
	struct ufs *ufs = open_at(endpoint, true);
	struct err e = ERR_INIT;
	int r = ufs_probe(ufs, &e);

	if (r != want || (text && !strstr(e.text, text)))
		fail_msg("%s: %d %s", endpoint, r, e.text);
	ufs_free(ufs);
}

static void refused(void **state)
{
	char here[64];

	(void)state;
	(void)snprintf(here, sizeof(here), "it resolves to 127.0.0.1:%u,", server.port);
	expect(at_port("rebind.test", server.port), -EHOSTUNREACH, here);
	expect(at_port("rebind.test", server.port), -EHOSTUNREACH, "refused");
	expect(at_port("127.0.0.1", server.port), -EHOSTUNREACH, here);
	leads_to = "::1";
	expect(at_port("rebind.test", server.port), -EHOSTUNREACH, "::1");
	leads_to = "169.254.169.254";
	expect(at_port("rebind.test", 80), -EHOSTUNREACH, "169.254.169.254:80");
	assert_int_equal(requests, 0);
}

static void allowed(void **state)
{
	struct ufs *ufs;

	(void)state;
	ufs = open_at(at_port("rebind.test", server.port), false);
	assert_int_equal(ufs_probe(ufs, NULL), 0);
	ufs_free(ufs);
	assert_int_equal(requests, 1);
}

/* The same origin, and the name leads elsewhere after its first request: its next connection is refused. */
static void checked_at_each_connection(void **state)
{
	struct err e = ERR_INIT;
	struct ufs *ufs;

	(void)state;
	leads_to = "192.0.2.1";
	ufs = open_at(at_port("rebind.test", server.port), true);
	leads_to = "127.0.0.1";
	assert_int_equal(ufs_probe(ufs, &e), -EHOSTUNREACH);
	assert_non_null(strstr(e.text, "127.0.0.1"));
	assert_int_equal(requests, 0);
	ufs_free(ufs);
}

/* The operator's proxy may be at such an address; nothing else there may. */
static void proxy(void **state)
{
	(void)state;
	setenv("http_proxy", at_port("rebind.test", server.port), 1);
	expect("http://s3.invalid", 0, NULL);
	assert_int_equal(requests, 1);
	setenv("no_proxy", "*", 1);
	expect(at_port("rebind.test", server.port == 9 ? 10u : 9u), -EHOSTUNREACH, "127.0.0.1");
	assert_int_equal(requests, 1);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(refused),
		TEST(allowed),
		TEST(checked_at_each_connection),
		TEST(proxy),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
