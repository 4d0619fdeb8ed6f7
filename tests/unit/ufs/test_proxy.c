/* The S3 origin behind a proxy: which variable names one, whom it is not used for, and what is said when it refuses. */
#include "tests/unit/ufs/server.h"
#include "ufs/ufs.h"
#include "base/clock.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

static struct server server;
static char first_line[SERVER_HEAD]; /* of the last request; under the server's lock */
static _Atomic uint32_t requests;
static _Atomic int connect_status; /* what CONNECT is answered */

static bool answer(struct server *s, int fd, const char *head)
{
	char text[100];

	pthread_mutex_lock(&s->lock);
	requests++;
	(void)snprintf(first_line, sizeof(first_line), "%.*s", (int)strcspn(head, "\r"), head);
	pthread_mutex_unlock(&s->lock);
	if (strncmp(head, "CONNECT ", 8) != 0) {
		server_puts(fd,
			"HTTP/1.1 200 OK\r\nContent-Length: 136\r\n\r\n"
			"<ListBucketResult><IsTruncated>false</IsTruncated><Contents><Key>x</Key>"
			"<Size>1</Size><ETag>e</ETag></Contents></ListBucketResult>      ");
		return true;
	}
	(void)snprintf(text, sizeof(text), "HTTP/1.1 %d x\r\n%s\r\n", connect_status,
		connect_status == 200 ? "" : "Content-Length: 0\r\n");
	server_puts(fd, text);
	if (connect_status == 200) /* what is at the other end speaks no TLS */
		server_puts(fd, "SSH-2.0-nothing\r\n");
	return connect_status == 200;
}

static const char *const variables[] = { "http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY",
	"all_proxy", "ALL_PROXY", "no_proxy", "NO_PROXY" };

static int setup(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(variables); i++)
		unsetenv(variables[i]);
	setenv("AWS_ACCESS_KEY_ID", "AKID", 1);
	setenv("AWS_SECRET_ACCESS_KEY", "SECRET", 1);
	unsetenv("AWS_CA_BUNDLE");
	requests = 0;
	first_line[0] = '\0';
	server_start(&server, answer, NULL);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	server_stop(&server);
	return 0;
}

static void name_proxy(const char *variable, const char *user)
{
	char url[100];

	(void)snprintf(url, sizeof(url), "http://%s127.0.0.1:%u", user, server.port);
	setenv(variable, url, 1);
}

/* A probe of an endpoint that exists for the proxy only. */
static int probe(const char *endpoint, struct err *e, enum ufs_cause *ret_cause)
{
	struct ufs_limits limits = UFS_LIMITS_DEFAULT;
	struct ufs_config config;
	struct ufs *ufs = NULL;
	uint32_t n;
	const struct counter_info *table = ufs_counter_table(&n);
	int r;

	assert_int_equal(ufs_config_parse("s3://bucket/", &config, NULL), 0);
	config.endpoint = strdup(endpoint);
	config.path_style = true;
	assert_int_equal(ufs_open(&config, &limits, &ufs, e), 0);
	ufs_config_release(&config);
	r = ufs_probe(ufs, e);
	*ret_cause = UFS_CAUSE_NONE;
	for (uint32_t i = 0; i < n; i++)
		for (int c = UFS_CAUSE_NONE + 1; c < UFS_CAUSE_COUNT; c++)
			if (strncmp(table[i].symbol, "cause_", 6) == 0 &&
				strcmp(table[i].symbol + 6, ufs_cause_name((enum ufs_cause)c)) ==
					0 &&
				counter_read(&table[i], ufs_counters(ufs)))
				*ret_cause = (enum ufs_cause)c;
	ufs_free(ufs);
	return r;
}

static void expect(const char *endpoint, int want, enum ufs_cause cause, const char *text)
{
	struct err e = ERR_INIT;
	enum ufs_cause why;
	int r = probe(endpoint, &e, &why);

	if (r != want || why != cause || (text && !strstr(e.text, text)))
		fail_msg("%d %s: %s", r, ufs_cause_name(why), e.text);
	assert_null(strstr(e.text, "HIDDEN"));
	assert_null(strstr(e.text, "SECRET"));
}

static void plain(void **state)
{
	(void)state;
	name_proxy("http_proxy", "");
	expect("http://s3.invalid", 0, UFS_CAUSE_NONE, NULL);
	assert_ptr_equal(strstr(first_line, "GET http://s3.invalid/bucket?"), first_line);
}

/* HTTP_PROXY in capitals can come from a request's header where programs run as CGI: curl reads
 * the small letters only. */
static void capitals(void **state)
{
	(void)state;
	name_proxy("HTTP_PROXY", "");
	expect("http://s3.invalid", -EHOSTUNREACH, UFS_CAUSE_DNS, "not found");
	assert_int_equal(requests, 0);
	name_proxy("HTTPS_PROXY", "");
	connect_status = 403;
	expect("https://s3.invalid", -ECONNREFUSED, UFS_CAUSE_PROXY, "(403)");
	assert_true(requests >= 1);
	unsetenv("HTTPS_PROXY");
	name_proxy("https_proxy", "");
	expect("https://s3.invalid", -ECONNREFUSED, UFS_CAUSE_PROXY, "(403)");
}

static void not_used(void **state)
{
	(void)state;
	name_proxy("http_proxy", "");
	setenv("no_proxy", "other.example,.invalid", 1);
	expect("http://s3.invalid", -EHOSTUNREACH, UFS_CAUSE_DNS, "s3.invalid");
	unsetenv("no_proxy");
	expect("http://127.0.0.1:1", -ECONNREFUSED, UFS_CAUSE_CONNECT, "127.0.0.1:1");
	expect("http://localhost:1", -ECONNREFUSED, UFS_CAUSE_CONNECT, "localhost:1");
	assert_int_equal(requests, 0);
}

static void refuses(void **state)
{
	(void)state;
	name_proxy("https_proxy", "NAME:HIDDEN@");
	connect_status = 407;
	expect("https://s3.invalid", -EACCES, UFS_CAUSE_PROXY, "name and a password");
	connect_status = 502;
	expect("https://s3.invalid", -ECONNREFUSED, UFS_CAUSE_PROXY, "(502)");
	assert_string_equal(first_line, "CONNECT s3.invalid:443 HTTP/1.1");
	connect_status = 200; /* through it, to what speaks no TLS */
	expect("https://s3.invalid", -EPROTO, UFS_CAUSE_TLS, "no TLS at this address");
}

static void away(void **state)
{
	(void)state;
	setenv("https_proxy", "http://127.0.0.1:1", 1);
	expect("https://s3.invalid", -ECONNREFUSED, UFS_CAUSE_PROXY, "https_proxy");
	setenv("https_proxy", "http://proxy.invalid:3128", 1);
	expect("https://s3.invalid", -EHOSTUNREACH, UFS_CAUSE_PROXY, "proxy.invalid");
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(plain),
		TEST(capitals),
		TEST(not_used),
		TEST(refuses),
		TEST(away),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
