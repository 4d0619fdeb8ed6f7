/* The admin server and its client: routes, errors, bounds, metrics, and a server that is silent. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <arpa/inet.h>
#include <fcntl.h>
#include <grp.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>
#include "admin/admin_internal.h"
#include "admin/audit.h"
#include "admin/listen.h"
#include "admin/page_internal.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/file.h"
#include "tests/unit/admin/http_ask.h"
#include "tests/unit/net/principals.h"

#define TIMEOUT (60 * CLOCK_SECOND)

#define TEST_COUNTERS(X)                                                               \
	X(reads, "granary_test_reads_total", COUNTER, "requests", "Reads of the test") \
	X(waiting, "granary_test_waiting", GAUGE, "requests", "Reads of the test in progress")
COUNTER_STRUCT(test_counters, TEST_COUNTERS);
#define TEST_ROW(symbol, name, kind, unit, help) \
	COUNTER_ROW(test_counters, symbol, name, kind, unit, help)
static const struct counter_info rows[] = { TEST_COUNTERS(TEST_ROW) };

struct fixture {
	char dir[64];
	char path[100];
	struct admin_server *server;
	struct test_counters counters;
	int calls;
	bool broken;
};

static int get_status(
	void *arg, const struct admin_request *request, json_t **ret_json, struct err *e)
{
	struct fixture *f = arg;

	(void)e;
	f->calls++;
	*ret_json = json_pack(
		"{s:s,s:s?}", "path", request->path, "verbose", request->query(request, "verbose"));
	return 0;
}

static int echo(void *arg, const struct admin_request *request, json_t **ret_json, struct err *e)
{
	struct fixture *f = arg;

	f->calls++;
	if (!request->body)
		return err_set(e, -EINVAL, "a body is needed");
	*ret_json = json_incref((json_t *)(uintptr_t)request->body);
	return 0;
}

/* Of an object with three members. */
static int replace(void *arg, const struct admin_request *request, json_t **ret_json, struct err *e)
{
	json_t *before = json_pack("{s:i, s:s, s:i}", "quota", 1, "same", "x", "gone", 3);
	bool fails = request->query(request, "fail") != NULL;

	(void)arg;
	(void)ret_json;
	audit_change(request->changes, before, request->body);
	json_decref(before);
	return fails ? err_set(e, -EBUSY, "in use") : 0;
}

static int fail_as_asked(
	void *arg, const struct admin_request *request, json_t **ret_json, struct err *e)
{
	const char *code = request->query(request, "code");

	(void)arg;
	(void)ret_json;
	if (code && strcmp(code, "busy") == 0)
		return err_set(e, -EBUSY, "the mount is \"in use\" by 3 processes: stop them");
	if (code && strcmp(code, "stale") == 0)
		return -ESTALE; /* without a line of its own */
	return err_set(e, -ENOENT, "no dataset of that name");
}

static int get_named(
	void *arg, const struct admin_request *request, json_t **ret_json, struct err *e)
{
	(void)arg;
	(void)e;
	*ret_json = json_pack("{s:s, s:s, s:s?, s:s?, s:b, s:i, s:i}", "path", request->path,
		"name", request->param(request, "name"), "id", request->param(request, "id"),
		"other", request->param(request, "nam"), "known",
		request->caller.peer.kind == PEER_NODE, "uid", (int)request->caller.peer.uid, "pid",
		(int)request->caller.pid);
	return 0;
}

static int get_number(
	void *arg, const struct admin_request *request, json_t **ret_json, struct err *e)
{
	uint64_t n = 1;
	int r = admin_query_number(request, "n", 7, &n, e);

	(void)arg;
	if (r == 0)
		*ret_json = json_pack("{s:I}", "n", (json_int_t)n);
	else
		assert_int_equal(n, 1);
	return r;
}

static int nothing(void *arg, const struct admin_request *request, json_t **ret_json, struct err *e)
{
	(void)arg;
	(void)request;
	(void)ret_json;
	(void)e;
	return 0;
}

static const struct admin_route routes[] = {
	{ "GET", "/v1/status", get_status, NULL },
	{ "POST", "/v1/echo", echo, "echo" },
	{ "PUT", "/v1/echo", echo, "echo" },
	{ "GET", "/v1/fail", fail_as_asked, NULL },
	{ "GET", "/v1/sets/first", get_status, NULL },
	{ "GET", "/v1/sets/{name}", get_named, NULL },
	{ "PATCH", "/v1/sets/{name}", get_named, "set.change" },
	{ "GET", "/v1/sets/{name}/versions/{id}", get_named, NULL },
	{ "DELETE", "/v1/nothing", nothing, "nothing.delete" },
	{ "GET", "/v1/number", get_number, NULL },
	{ "PUT", "/v1/replace", replace, "replace" },
	{ 0 },
};

/* One more each time. */
static void count_metrics(void *arg)
{
	struct fixture *f = arg;

	counter_add(&f->counters.waiting, 1);
}

static void say_ready(void *arg, json_t *reasons)
{
	struct fixture *f = arg;

	if (f->broken)
		(void)json_array_append_new(reasons, json_string("no tier is in service"));
}

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));
	struct err e = ERR_INIT;

	assert_non_null(f);
	(void)snprintf(f->dir, sizeof(f->dir), "/tmp/granary-test-XXXXXX");
	assert_non_null(mkdtemp(f->dir));
	(void)snprintf(f->path, sizeof(f->path), "%s/admin", f->dir);
	assert_int_equal(admin_server_new(f->path, routes, f, &f->server, &e), 0);
	assert_int_equal(
		admin_server_add_counters(f->server, rows, ARRAY_SIZE(rows), &f->counters), 0);
	admin_server_on_metrics(f->server, count_metrics, f);
	admin_server_on_ready(f->server, say_ready, f);
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	admin_server_free(f->server);
	assert_int_equal(rmdir(f->dir), 0); /* the socket went with its server */
	free(f);
	return 0;
}

static void test_routes(void **state)
{
	struct fixture *f = *state;
	struct err e = ERR_INIT;
	json_t *body = json_pack("{s:[i,i,s]}", "list", 1, 2, "three \xc3\xa9");
	json_t *json = NULL;
	struct stat st;
	const json_t *bounds;

	assert_int_equal(stat(f->path, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
	assert_int_equal(
		admin_call(f->path, NULL, "/v1/status?verbose=a%20b", NULL, TIMEOUT, &json, &e), 0);
	assert_string_equal(json_string_value(json_object_get(json, "path")), "/v1/status");
	assert_string_equal(json_string_value(json_object_get(json, "verbose")), "a b");
	bounds = json_object_get(json, "bounds");
	assert_true(json_integer_value(
			    json_object_get(json_object_get(bounds, "descriptors"), "used")) > 0);
	assert_true(
		json_integer_value(json_object_get(json_object_get(bounds, "maps"), "max")) > 0);
	assert_true(json_is_object(json_object_get(json_object_get(bounds, "memory"), "users")));
	assert_true(json_is_integer(json_object_get(json_object_get(bounds, "log"), "left_out")));
	json_decref(json);
	assert_int_equal(admin_call(f->path, NULL, "/v1/echo", body, TIMEOUT, &json, &e), 0);
	assert_true(json_equal(json, body));
	json_decref(json);
	assert_int_equal(admin_call(f->path, "PUT", "/v1/echo", body, TIMEOUT, NULL, &e), 0);
	assert_int_equal(admin_call(f->path, "DELETE", "/v1/nothing", NULL, TIMEOUT, &json, &e), 0);
	assert_int_equal(json_object_size(json), 0);
	json_decref(json);
	json_decref(body);
	assert_int_equal(f->calls, 3);
}

static void test_errors(void **state)
{
	struct fixture *f = *state;
	struct err e = ERR_INIT;
	json_t *json = NULL;

	assert_int_equal(
		admin_call(f->path, NULL, "/v1/nowhere", NULL, TIMEOUT, &json, &e), -ENOENT);
	assert_int_equal(
		admin_call(f->path, "DELETE", "/v1/status", NULL, TIMEOUT, &json, &e), -EOPNOTSUPP);
	assert_int_equal(
		admin_call(f->path, "POST", "/metrics", NULL, TIMEOUT, &json, &e), -EOPNOTSUPP);
	assert_int_equal(admin_call(f->path, NULL, "/v1/fail", NULL, TIMEOUT, &json, &e), -ENOENT);
	assert_string_equal(e.text, "no dataset of that name");
	assert_int_equal(
		admin_call(f->path, NULL, "/v1/fail?code=busy", NULL, TIMEOUT, &json, &e), -EBUSY);
	assert_string_equal(e.text, "the mount is \"in use\" by 3 processes: stop them");
	assert_int_equal(admin_call(f->path, NULL, "/v1/fail?code=stale", NULL, TIMEOUT, &json, &e),
		-ESTALE);
	assert_int_equal(
		admin_call(f->path, "POST", "/v1/echo", NULL, TIMEOUT, &json, &e), -EINVAL);
	assert_string_equal(e.text, "a body is needed");
	assert_int_equal(
		admin_call(f->path, NULL, "/v1/status HTTP/1.1\r\n", NULL, TIMEOUT, &json, &e),
		-EINVAL);
	assert_null(json);
}

static const char *text_of(const json_t *json, const char *name)
{
	return json_string_value(json_object_get(json, name));
}

/* As the wire of the cluster asks. */
static int asked(struct fixture *f, const char *method, const char *path, const char *body,
	enum principal who, json_t **ret_json, struct err *e)
{
	_cleanup_(buf_release) struct buf out = BUF_INIT(ADMIN_ANSWER_BYTES);
	struct admin_ask ask = {
		.method = method, .path = path, .body = body, .len = body ? strlen(body) : 0
	};
	unsigned int status = 0;

	ask.caller.peer = peer_of(who);
	assert_int_equal(admin_server_ask(f->server, &ask, &status, &out), 0);
	return admin_take_answer(status, path, buf_str(&out), out.len, ret_json, e);
}

/* Takes `n` groups, and looks at what a socket's other end has. -1: this process may not change its groups. */
static int look_at_groups(unsigned int n, struct admin_caller *ret_caller)
{
	gid_t groups[2 * CLAIMS_GROUPS];
	int ends[2];

	for (unsigned int i = 0; i < n; i++)
		groups[i] = 1000 + i;
	if (setgroups(n, groups) != 0)
		return -1;
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
	admin_caller_of(ends[0], ret_caller);
	(void)close(ends[0]);
	(void)close(ends[1]);
	return 0;
}

static void test_groups_of_a_caller(void **state)
{
	static const unsigned int all[] = { 0, 1, CLAIMS_GROUPS - 1, CLAIMS_GROUPS,
		2 * CLAIMS_GROUPS };
	struct admin_caller caller;
	gid_t before[2 * CLAIMS_GROUPS];
	int n = getgroups(ARRAY_SIZE(before), before);

	(void)state;
	assert_true(n >= 0);
	for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
		if (look_at_groups(all[i], &caller) < 0) {
			print_message("no right to change groups: not tested\n");
			return;
		}
		assert_int_equal(caller.n_groups, 1 + min(all[i], CLAIMS_GROUPS - 1));
		assert_int_equal(caller.groups[0], getegid());
		for (unsigned int k = 1; k < caller.n_groups; k++)
			assert_int_equal(caller.groups[k], 1000 + k - 1);
	}
	assert_int_equal(setgroups((size_t)n, before), 0);
}

static void test_asked_over_the_wire(void **state)
{
	static const char *const wrong[] = { "/v1/number?n=%", "/v1/number?n=%0",
		"/v1/number?n=%00", "/v1/number?a&b&c&d&e&f&g&h&i", "/v1/number?n=1&n=2" };
	struct fixture *f = *state;
	struct err e = ERR_INIT;
	json_t *json = NULL;

	assert_int_equal(asked(f, "GET", "/v1/status?a=b&verbose=a%20b+c&z", NULL, PRINCIPAL_NONE,
				 &json, &e),
		0);
	assert_string_equal(text_of(json, "verbose"), "a b c");
	assert_non_null(json_object_get(json, "bounds"));
	json_decref(json);
	assert_int_equal(asked(f, "GET", "/v1/number?n=12", NULL, PRINCIPAL_NONE, &json, &e), 0);
	assert_int_equal(json_integer_value(json_object_get(json, "n")), 12);
	json_decref(json);
	assert_int_equal(asked(f, "GET", "/v1/sets/a%20b", NULL, PRINCIPAL_CLUSTER, &json, &e), 0);
	assert_string_equal(text_of(json, "name"), "a b");
	json_decref(json);
	json = NULL;
	assert_int_equal(asked(f, "POST", "/v1/echo", "{}", PRINCIPAL_NONE, &json, &e), -EPERM);
	assert_int_equal(asked(f, "POST", "/v1/echo", "{}", PRINCIPAL_TOKEN, &json, &e), -EPERM);
	assert_non_null(strstr(e.text, "token 00"));
	assert_int_equal(asked(f, "POST", "/v1/echo", "{", PRINCIPAL_ADMIN, &json, &e), -EINVAL);
	assert_int_equal(
		asked(f, "GET", "/v1/echo", NULL, PRINCIPAL_ADMIN, &json, &e), -EOPNOTSUPP);
	assert_int_equal(asked(f, "GET", "/metrics", NULL, PRINCIPAL_ADMIN, &json, &e), -ENOENT);
	assert_int_equal(
		asked(f, "GET", "/v1/fail?code=busy", NULL, PRINCIPAL_ADMIN, &json, &e), -EBUSY);
	assert_string_equal(e.text, "the mount is \"in use\" by 3 processes: stop them");
	for (size_t i = 0; i < ARRAY_SIZE(wrong); i++)
		assert_int_equal(
			asked(f, "GET", wrong[i], NULL, PRINCIPAL_ADMIN, &json, &e), -EINVAL);
	assert_null(json);
	assert_int_equal(asked(f, "POST", "/v1/echo", "{\"a\":1}", PRINCIPAL_ADMIN, &json, &e), 0);
	assert_int_equal(json_integer_value(json_object_get(json, "a")), 1);
	json_decref(json);
}

static json_t *named(const struct fixture *f, const char *method, const char *path)
{
	struct err e = ERR_INIT;
	json_t *json = NULL;

	assert_int_equal(admin_call(f->path, method, path, NULL, TIMEOUT, &json, &e), 0);
	return json;
}

static void test_query_number(void **state)
{
	static const char *const wrong[] = { "", "-1", "%2B1", "%201", "1%20", "0x10", "seven",
		"9223372036854775808", "18446744073709551616" };
	static const struct {
		const char *path;
		json_int_t n;
	} right[] = { { "/v1/number", 7 }, { "/v1/number?n=0", 0 }, { "/v1/number?n=007", 7 },
		{ "/v1/number?n=9223372036854775807", INT64_MAX } };
	struct fixture *f = *state;
	json_t *json = NULL;
	char path[64];

	for (size_t i = 0; i < ARRAY_SIZE(right); i++) {
		assert_int_equal(
			admin_call(f->path, NULL, right[i].path, NULL, TIMEOUT, &json, NULL), 0);
		assert_int_equal(json_integer_value(json_object_get(json, "n")), right[i].n);
		json_decref(json);
	}
	for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
		struct err e = ERR_INIT;

		(void)snprintf(path, sizeof(path), "/v1/number?n=%s", wrong[i]);
		assert_int_equal(
			admin_call(f->path, NULL, path, NULL, TIMEOUT, &json, &e), -EINVAL);
		assert_string_equal(e.text, "'n' must be a number");
	}
}

static void test_params(void **state)
{
	static const char *const bad[] = { "/v1/sets/a%2Fb", "/v1/sets/a%00", "/v1/sets/%",
		"/v1/sets/%4", "/v1/sets/%zz" };
	static const char *const absent[] = { "/v1/sets", "/v1/sets/", "/v1/sets/a/",
		"/v1/sets/a/versions", "/v1/sets//versions/1", "/v1/sets/a/versions/1/more",
		"/v1%2Fstatus", "/" };
	struct fixture *f = *state;
	struct err e = ERR_INIT;
	char longest[300];
	json_t *json = named(f, NULL, "/v1/sets/im%61ge%20%C3%A9?name=x");

	assert_string_equal(text_of(json, "path"), "/v1/sets/{name}");
	assert_string_equal(text_of(json, "name"), "image \xc3\xa9");
	assert_null(text_of(json, "id"));
	assert_null(text_of(json, "other"));
	assert_true(json_is_true(json_object_get(json, "known")));
	assert_int_equal(json_integer_value(json_object_get(json, "uid")), getuid());
	assert_int_equal(json_integer_value(json_object_get(json, "pid")), getpid());
	json_decref(json);
	json = named(f, "PATCH", "/v1/sets/a");
	assert_string_equal(text_of(json, "name"), "a");
	json_decref(json);
	json = named(f, NULL, "/v1/sets/a.b/versions/12");
	assert_string_equal(text_of(json, "name"), "a.b");
	assert_string_equal(text_of(json, "id"), "12");
	json_decref(json);
	json = named(f, NULL, "/v1/%73ets/first"); /* the first in the table */
	assert_string_equal(text_of(json, "path"), "/v1/sets/first");
	json_decref(json);
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		assert_int_equal(
			admin_call(f->path, NULL, bad[i], NULL, TIMEOUT, NULL, &e), -EINVAL);
	for (size_t i = 0; i < ARRAY_SIZE(absent); i++)
		assert_int_equal(
			admin_call(f->path, NULL, absent[i], NULL, TIMEOUT, NULL, &e), -ENOENT);
	(void)snprintf(longest, sizeof(longest), "/v1/sets/%0255d", 0);
	json_decref(named(f, NULL, longest));
	(void)snprintf(longest, sizeof(longest), "/v1/sets/%0256d", 0);
	assert_int_equal(admin_call(f->path, NULL, longest, NULL, TIMEOUT, NULL, &e), -EINVAL);
	assert_int_equal(
		admin_call(f->path, "PUT", "/v1/sets/a", NULL, TIMEOUT, NULL, &e), -EOPNOTSUPP);
}

static void test_rights(void **state)
{
	static const char *const refusals[] = { [PEER_UNKNOWN] = "this address is read-only",
		[PEER_NODE] = "may only read; run this as root",
		[PEER_CLUSTER] = "",
		[PEER_TOKEN] = "token 0000000000000000 may only read" };

	(void)state;
	for (enum principal p = 0; p < PRINCIPALS; p++) {
		const struct admin_caller caller = { .peer = peer_of(p) };
		bool may = rights_of(p, RIGHTS_ADMIN, RIGHTS_OP_CHANGE) != RIGHT_NONE;
		struct err e = ERR_INIT;

		assert_int_equal(admin_caller_may_change(&caller, &e), may ? 0 : -EPERM);
		assert_true(may || strstr(e.text, refusals[caller.peer.kind]));
		/* Routes that only read ask for no right. */
		assert_true(rights_of(p, RIGHTS_ADMIN, RIGHTS_OP_SHOW) != RIGHT_NONE);
	}
}

static void test_route_list(void **state)
{
	struct fixture *f = *state;
	json_t *json = named(f, NULL, "/v1/routes");
	const json_t *list = json_object_get(json, "routes");
	const json_t *patch = json_array_get(list, 6);

	assert_int_equal(json_array_size(list), ARRAY_SIZE(routes) - 1);
	assert_string_equal(text_of(patch, "method"), "PATCH");
	assert_string_equal(text_of(patch, "path"), "/v1/sets/{name}");
	assert_string_equal(text_of(patch, "act"), "set.change");
	assert_true(json_is_null(json_object_get(json_array_get(list, 0), "act")));
	json_decref(json);
}

/* The server's answer to raw bytes. */
static void raw(const struct fixture *f, const void *data, size_t len, char *out, size_t size)
{
	struct sockaddr_un sun = { .sun_family = AF_UNIX };
	_cleanup_close_ int fd = socket(AF_UNIX, SOCK_STREAM, 0);
	size_t got = 0;
	ssize_t n;

	(void)snprintf(sun.sun_path, sizeof(sun.sun_path), "%s", f->path);
	assert_int_equal(connect(fd, (struct sockaddr *)&sun, sizeof(sun)), 0);
	for (size_t at = 0; at < len; at += (size_t)n) {
		n = send(fd, (const char *)data + at, len - at, MSG_NOSIGNAL);
		if (n <= 0)
			break; /* refused before the end */
	}
	assert_int_equal(shutdown(fd, SHUT_WR), 0);
	while (got + 1 < size && (n = recv(fd, out + got, size - got - 1, 0)) > 0)
		got += (size_t)n;
	out[got] = '\0';
}

static void test_hostile(void **state)
{
	static const char bad[] = "POST /v1/echo HTTP/1.1\r\nHost: x\r\nConnection: "
				  "close\r\nContent-Length: 5\r\n\r\n{\"a\":";
	static const char method[] =
		"PATCH /v1/echo HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
	enum { LARGE = (1 << 20) + 4096 };
	struct fixture *f = *state;
	_cleanup_free_ char *large = malloc(LARGE);
	char out[4096];
	int n;

	raw(f, bad, sizeof(bad) - 1, out, sizeof(out));
	assert_non_null(strstr(out, " 400 "));
	assert_non_null(strstr(out, "not JSON"));
	raw(f, method, sizeof(method) - 1, out, sizeof(out));
	assert_non_null(strstr(out, " 405 "));
	assert_non_null(strstr(out, "Allow: POST, PUT\r\n"));
	memset(large, ' ', LARGE);
	n = snprintf(large, LARGE,
		"POST /v1/echo HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: "
		"%d\r\n\r\n",
		(1 << 20) + 1);
	large[n] = ' ';
	raw(f, large, (size_t)n + (1 << 20) + 1, out, sizeof(out));
	assert_non_null(strstr(out, " 413 "));
	raw(f, "\x16\x03\x01 garbage\r\n\r\n", 15, out, sizeof(out));
	assert_null(strstr(out, " 200 "));
	assert_int_equal(f->calls, 0); /* no handler saw any of it */
}

/* What a proxy or a check before this server took must not be another value than the handler takes. */
static void test_query_twice(void **state)
{
	static const char *const wrong[][2] = {
		{ "/v1/number?n=1&n=2", "'n' occurs twice in the query: send it once" },
		{ "/v1/number?n=1&n=1", "'n' occurs twice in the query: send it once" },
		{ "/v1/number?m&n=1&m=", "'m' occurs twice in the query: send it once" },
		{ "/v1/number?&n=1&&n=2&", "'n' occurs twice in the query: send it once" },
		{ "/v1/number?n=1%00", "invalid value of 'n' in the query" },
		{ "/v1/number?a&b&c&d&e&f&g&h&i", "the query has more than 8 names: send fewer" },
	};
	static const char get[] = "GET /v1/status?verbose=1&verbose=2 HTTP/1.1\r\nHost: "
				  "x\r\nConnection: close\r\n\r\n";
	struct fixture *f = *state;
	char out[4096];

	for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
		json_t *json = NULL;
		struct err e = ERR_INIT;

		assert_int_equal(
			admin_call(f->path, NULL, wrong[i][0], NULL, TIMEOUT, &json, &e), -EINVAL);
		assert_string_equal(e.text, wrong[i][1]);
		assert_int_equal(
			asked(f, "GET", wrong[i][0], NULL, PRINCIPAL_ADMIN, &json, &e), -EINVAL);
		assert_string_equal(e.text, wrong[i][1]);
		assert_null(json);
	}
	raw(f, get, sizeof(get) - 1, out, sizeof(out));
	assert_non_null(strstr(out, " 400 "));
	assert_int_equal(f->calls, 0); /* no handler saw any of it */
}

static void test_metrics(void **state)
{
	static const char want[] =
		"# HELP granary_test_reads_total Reads of the test (requests)\n"
		"# TYPE granary_test_reads_total counter\n"
		"granary_test_reads_total 41\n"
		"# HELP granary_test_waiting Reads of the test in progress (requests)\n"
		"# TYPE granary_test_waiting gauge\n"
		"granary_test_waiting 7\n";
	struct fixture *f = *state;
	struct buf out = BUF_INIT(100000);
	struct err e = ERR_INIT;
	json_t *json;

	counter_add(&f->counters.reads, 41);
	counter_set(&f->counters.waiting, 6); /* 7 when it is asked for */
	assert_int_equal(admin_call_text(f->path, "/metrics", TIMEOUT, &out, &e), 0);
	assert_int_equal(strncmp(buf_str(&out), want, strlen(want)), 0);
	assert_non_null(strstr(buf_str(&out), "\ngranary_memory_bytes{user=\"units\"} "));
	assert_non_null(strstr(buf_str(&out), "\ngranary_log_lines_left_out_total "));
	buf_clear(&out);
	assert_int_equal(admin_call_text(f->path, "/healthz", TIMEOUT, &out, &e), 0);
	assert_string_equal(buf_str(&out), "ok\n");
	assert_int_equal(admin_call_text(f->path, "/nowhere", TIMEOUT, &out, &e), -ENOENT);
	buf_release(&out);
	json = admin_counters_json(rows, ARRAY_SIZE(rows), &f->counters);
	assert_int_equal(json_integer_value(json_object_get(json, "reads")), 41);
	assert_int_equal(json_integer_value(json_object_get(json, "waiting")), 7);
	json_decref(json);
}

static void test_ready(void **state)
{
	static const char ask[] = "GET /readyz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
	struct fixture *f = *state;
	char out[4096];

	raw(f, ask, sizeof(ask) - 1, out, sizeof(out));
	assert_non_null(strstr(out, " 200 "));
	assert_non_null(strstr(out, "{\"ready\":true,\"reasons\":[]}"));
	f->broken = true;
	raw(f, ask, sizeof(ask) - 1, out, sizeof(out));
	assert_non_null(strstr(out, " 503 "));
	assert_non_null(strstr(out, "{\"ready\":false,\"reasons\":[\"no tier is in service\"]}"));
}

/* Files for browsers: as they are, and kept from being more than that. */
static void test_pages(void **state)
{
	static const char html[] = "<!doctype html><title>x</title>";
	static const struct admin_page pages[] = { { "/", "text/html; charset=utf-8", html,
							   sizeof(html) - 1 },
		{ "/page.js", "text/javascript", "0\0001", 3 }, { 0 } };
	static const char get[] = "GET /?a=b HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
	static const char head[] = "HEAD / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
	static const char post[] = "POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
	struct fixture *f = *state;
	struct err e = ERR_INIT;
	char out[4096];
	json_t *json;

	raw(f, get, sizeof(get) - 1, out, sizeof(out));
	assert_non_null(strstr(out, " 404 "));
	admin_server_set_pages(f->server, pages);
	raw(f, get, sizeof(get) - 1, out, sizeof(out));
	assert_non_null(strstr(out, " 200 "));
	assert_non_null(strstr(out, html));
	assert_non_null(strstr(out, "Content-Type: text/html; charset=utf-8\r\n"));
	assert_non_null(
		strstr(out, "Content-Security-Policy: default-src 'none'; script-src 'self'"));
	assert_non_null(strstr(out, "X-Content-Type-Options: nosniff\r\n"));
	assert_null(strstr(out, "unsafe"));
	raw(f, head, sizeof(head) - 1, out, sizeof(out));
	assert_non_null(strstr(out, " 200 "));
	assert_null(strstr(out, html));
	raw(f, post, sizeof(post) - 1, out, sizeof(out));
	assert_non_null(strstr(out, " 405 "));
	assert_int_equal(admin_call(f->path, NULL, "/v1/routes", NULL, TIMEOUT, &json, &e), 0);
	json_t *first = json_array_get(json_object_get(json, "routes"), 0);
	assert_string_equal(text_of(first, "path"), "/");
	assert_true(json_is_null(json_object_get(first, "act")));
	json_decref(json);
	/* Answers are no pages. */
	static const char routes_too[] =
		"GET /v1/routes HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
	raw(f, routes_too, sizeof(routes_too) - 1, out, sizeof(out));
	assert_non_null(
		strstr(out, "Content-Security-Policy: default-src 'none'; frame-ancestors"));
	assert_non_null(strstr(out, "X-Content-Type-Options: nosniff\r\n"));
}

static void test_foreign(void **state)
{
	(void)state;
	assert_false(admin_page_is_foreign(NULL, NULL)); /* no browser, or an old one */
	assert_false(admin_page_is_foreign("same-origin", "cors"));
	assert_false(admin_page_is_foreign("none", "navigate"));
	assert_false(admin_page_is_foreign("cross-site", "navigate"));
	assert_true(admin_page_is_foreign("cross-site", "no-cors"));
	assert_true(admin_page_is_foreign("cross-site", NULL));
	assert_true(admin_page_is_foreign("same-site", "cors")); /* another port of this host */
}

static void test_loopback(void **state)
{
	const struct admin_listen where = { .address = "127.0.0.1:0" };
	struct fixture *f = *state;
	struct err e = ERR_INIT;
	uint16_t port = 0;
	char out[65536];

	assert_int_equal(admin_server_listen(f->server, &where, &port, &e), 0);
	http_ask(port, "GET /v1/sets/a HTTP/1.1\r\nHost: localhost:1\r\nConnection: close\r\n\r\n",
		out, sizeof(out));
	assert_non_null(strstr(out, " 200 "));
	assert_non_null(strstr(out, "\"known\":false"));
	http_ask(port, "GET /metrics HTTP/1.1\r\nHost: [::1]\r\nConnection: close\r\n\r\n", out,
		sizeof(out));
	assert_non_null(strstr(out, "text/plain; version=0.0.4"));
	http_ask(port,
		"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nAccept: "
		"application/openmetrics-text;version=1.0.0,*/*;q=0.1\r\n\r\n",
		out, sizeof(out));
	assert_non_null(strstr(out, "application/openmetrics-text; version=1.0.0"));
	assert_non_null(strstr(out, "\n# EOF\n"));
	/* Nobody changes anything from there, nor asks by another name. */
	http_ask(port,
		"DELETE /v1/nothing HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", out,
		sizeof(out));
	assert_non_null(strstr(out, " 403 "));
	assert_non_null(strstr(out, "unix socket"));
	http_ask(port, "GET /v1/status HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n",
		out, sizeof(out));
	assert_non_null(strstr(out, " 403 "));
	http_ask(port,
		"GET /v1/status HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
		"Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: no-cors\r\n\r\n",
		out, sizeof(out));
	assert_non_null(strstr(out, " 403 "));
	assert_int_equal(f->calls, 0);
	assert_int_equal(admin_call(f->path, "DELETE", "/v1/nothing", NULL, TIMEOUT, NULL, &e), 0);
}

static char *read_text(const char *path)
{
	struct buf text = BUF_INIT(1u << 20);

	assert_int_equal(file_read_all(path, &text), 0);
	assert_true(text.len > 0);
	return text.data;
}

static json_t *audit_line(const char *text, unsigned int i)
{
	json_t *json;

	for (; i > 0; i--)
		text = strchr(text, '\n') + 1;
	json = json_loadb(text, strcspn(text, "\n"), 0, NULL);
	assert_non_null(json);
	return json;
}

static void test_audit(void **state)
{
	struct fixture *f = *state;
	struct err e = ERR_INIT;
	json_t *body = json_pack("{s:s, s:s, s:s, s:i}", "name", "imagenet", "secret", "hunter2",
		"source", "s3://key:hunter2@bucket/prefix?token=hunter2", "generation", 7);
	char path[128];
	char text[8192];
	struct stat st;
	json_t *line;
	json_t *caller;
	ssize_t n;
	int fd;

	(void)snprintf(path, sizeof(path), "%s/admin/audit", f->dir); /* in a socket */
	assert_int_equal(audit_open(path, "test", &e), -ENOTDIR);
	assert_non_null(strstr(e.text, "--audit-log"));
	(void)snprintf(path, sizeof(path), "%s/audit", f->dir);
	assert_int_equal(audit_open(path, "test", &e), 0);
	assert_int_equal(admin_call(f->path, NULL, "/v1/status", NULL, TIMEOUT, NULL, &e), 0);
	assert_int_equal(admin_call(f->path, NULL, "/v1/echo", body, TIMEOUT, NULL, &e), 0);
	assert_int_equal(admin_call(f->path, "POST", "/v1/echo", NULL, TIMEOUT, NULL, &e), -EINVAL);
	assert_int_equal(
		admin_call(f->path, "PATCH", "/v1/sets/a%22%ff", NULL, TIMEOUT, NULL, &e), 0);
	assert_int_equal(admin_call(f->path, "PATCH", "/v1/sets/ab", NULL, TIMEOUT, NULL, &e), 0);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	n = read(fd, text, sizeof(text) - 1);
	assert_true(n > 0);
	text[n] = '\0';
	assert_int_equal(fstat(fd, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
	assert_int_equal(close(fd), 0);
	assert_null(strstr(text, "hunter2"));
	line = audit_line(text, 0); /* of what only reads there is none */
	assert_string_equal(text_of(line, "act"), "echo");
	assert_string_equal(text_of(line, "result"), "ok");
	assert_string_equal(text_of(line, "process"), "test");
	assert_string_equal(text_of(json_object_get(line, "on"), "name"), "imagenet");
	assert_string_equal(text_of(json_object_get(line, "on"), "source"), "s3://bucket/prefix");
	caller = json_object_get(line, "caller");
	assert_int_equal(json_integer_value(json_object_get(caller, "uid")), getuid());
	assert_int_equal(json_integer_value(json_object_get(caller, "pid")), getpid());
	assert_string_equal(text_of(caller, "name"), "test_admin");
	json_decref(line);
	line = audit_line(text, 1);
	assert_string_equal(text_of(line, "result"), "EINVAL");
	assert_string_equal(text_of(line, "text"), "a body is needed");
	json_decref(line);
	json_decref(audit_line(text, 2));
	line = audit_line(text, 3);
	assert_string_equal(text_of(line, "act"), "set.change");
	assert_string_equal(text_of(json_object_get(line, "on"), "name"), "ab");
	json_decref(line);
	audit_close();
	assert_int_equal(unlink(path), 0);
	assert_int_equal(audit_lost(), 0);
	json_decref(body);
}

/* A caller that may only read cannot rotate the lines of others out of the file. */
static void test_audit_changes(void **state)
{
	struct fixture *f = *state;
	struct err e = ERR_INIT;
	json_t *body = json_pack("{s:i, s:s, s:[i]}", "quota", 2, "same", "x", "pins", 7);
	json_t *want = json_pack("{s:{s:i, s:i}, s:{s:i, s:n}, s:{s:n, s:[i]}}", "quota", "old", 1,
		"new", 2, "gone", "old", 3, "new", "pins", "old", "new", 7);
	char path[128];
	char text[8192];
	json_t *line;
	ssize_t n;
	int fd;

	(void)snprintf(path, sizeof(path), "%s/audit", f->dir);
	assert_int_equal(audit_open(path, "test", &e), 0);
	assert_int_equal(admin_call(f->path, "PUT", "/v1/replace", body, TIMEOUT, NULL, &e), 0);
	assert_int_equal(
		admin_call(f->path, "PUT", "/v1/replace?fail=1", body, TIMEOUT, NULL, &e), -EBUSY);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	n = read(fd, text, sizeof(text) - 1);
	assert_true(n > 0);
	text[n] = '\0';
	assert_int_equal(close(fd), 0);
	line = audit_line(text, 0);
	assert_true(json_equal(json_object_get(line, "changes"), want));
	json_decref(line);
	line = audit_line(text, 1); /* nothing was */
	assert_null(json_object_get(line, "changes"));
	json_decref(line);
	audit_close();
	assert_int_equal(unlink(path), 0);
	json_decref(want);
	json_decref(body);
}

static void count_act(void *arg, const struct audit_act *act)
{
	int *n = arg;

	assert_string_equal(act->act, "echo");
	assert_int_equal(act->code, -EINVAL);
	(*n)++;
}

static void test_audit_watched(void **state)
{
	struct fixture *f = *state;
	struct err e = ERR_INIT;
	int n = 0;

	audit_watch(count_act, &n); /* though no file is open */
	assert_int_equal(admin_call(f->path, "POST", "/v1/echo", NULL, TIMEOUT, NULL, &e), -EINVAL);
	audit_watch(NULL, NULL);
	assert_int_equal(admin_call(f->path, "POST", "/v1/echo", NULL, TIMEOUT, NULL, &e), -EINVAL);
	assert_int_equal(n, 1);
}

static void test_audit_refused(void **state)
{
	static const char request[] = "DELETE /v1/nothing HTTP/1.1\r\nHost: localhost\r\n"
				      "Connection: close\r\n\r\n";
	struct fixture *f = *state;
	struct err e = ERR_INIT;
	uint64_t began = clock_mono_ns();
	uint64_t seconds;
	struct stat st;
	char path[128];
	char out[4096];
	char *text = NULL;
	size_t lines = 0;
	uint16_t port;

	(void)snprintf(path, sizeof(path), "%s/audit", f->dir);
	assert_int_equal(admin_server_listen(f->server,
				 &(struct admin_listen){ .address = "127.0.0.1:0" }, &port, &e),
		0);
	assert_int_equal(audit_open(path, "test", &e), 0);
	/* The second that it is may have had its line already. */
	for (unsigned int i = 0; i < 40 || (stat(path, &st) == 0 && st.st_size == 0); i++) {
		http_ask(port, request, out, sizeof(out));
		assert_non_null(strstr(out, " 403 "));
	}
	seconds = (clock_mono_ns() - began) / CLOCK_SECOND;
	audit_close();
	text = read_text(path);
	for (const char *at = text; (at = strchr(at, '\n')) != NULL; at++)
		lines++;
	assert_true(lines >= 1);
	if (lines > seconds + 2)
		fail_msg("%zu lines in %llu s", lines, (unsigned long long)seconds);
	assert_non_null(strstr(text, "\"result\":\"EPERM\""));
	free(text);
	assert_int_equal(unlink(path), 0);
}

static void test_nobody(void **state)
{
	struct fixture *f = *state;
	struct sockaddr_un sun = { .sun_family = AF_UNIX };
	_cleanup_close_ int fd = socket(AF_UNIX, SOCK_STREAM, 0);
	struct admin_server *other = NULL;
	struct err e = ERR_INIT;
	json_t *json = NULL;
	char path[80];

	assert_int_equal(admin_server_new(f->path, routes, f, &other, &e), -EADDRINUSE);
	(void)snprintf(path, sizeof(path), "%s/silent", f->dir);
	assert_int_equal(
		admin_call(path, NULL, "/v1/status", NULL, TIMEOUT, &json, &e), -ECONNREFUSED);
	assert_non_null(strstr(e.text, "no daemon listens"));
	/* One that takes the connection and says nothing. */
	(void)snprintf(sun.sun_path, sizeof(sun.sun_path), "%s", path);
	assert_int_equal(bind(fd, (struct sockaddr *)&sun, sizeof(sun)), 0);
	assert_int_equal(listen(fd, 1), 0);
	assert_int_equal(
		admin_call(path, NULL, "/v1/status", NULL, 200 * CLOCK_MS, &json, &e), -ETIMEDOUT);
	assert_int_equal(close(TAKE_FD(fd)), 0);
	assert_int_equal(
		admin_call(path, NULL, "/v1/status", NULL, TIMEOUT, &json, &e), -ECONNREFUSED);
	/* A dead socket is replaced. */
	assert_int_equal(admin_server_new(path, routes, f, &other, &e), 0);
	assert_int_equal(admin_call(path, NULL, "/v1/status", NULL, TIMEOUT, NULL, &e), 0);
	admin_server_free(other);
}

struct ending {
	pthread_mutex_t lock;
	pthread_cond_t called;
	bool begun;
	char path[80];
	int result;
};

static int end_daemon(
	void *arg, const struct admin_request *request, json_t **ret_json, struct err *e)
{
	struct ending *ending = arg;

	(void)request;
	(void)e;
	*ret_json = json_pack("{s:b}", "ending", 1);
	pthread_mutex_lock(&ending->lock);
	ending->begun = true;
	pthread_cond_signal(&ending->called);
	pthread_mutex_unlock(&ending->lock);
	return 0;
}

static void *ask_to_end(void *arg)
{
	struct ending *ending = arg;

	ending->result = admin_call(ending->path, "POST", "/v1/end", NULL, TIMEOUT, NULL, NULL);
	return NULL;
}

/* Who asks a daemon to end hears the answer, although the server is freed at once. */
static void test_last_answer(void **state)
{
	static const struct admin_route end_routes[] = { { "POST", "/v1/end", end_daemon, "end" },
		{ 0 } };
	struct fixture *f = *state;

	for (int i = 0; i < 30; i++) {
		struct ending ending = { .lock = PTHREAD_MUTEX_INITIALIZER,
			.called = PTHREAD_COND_INITIALIZER };
		struct admin_server *server;
		struct err e = ERR_INIT;
		pthread_t thread;

		(void)snprintf(ending.path, sizeof(ending.path), "%s/end", f->dir);
		assert_int_equal(
			admin_server_new(ending.path, end_routes, &ending, &server, &e), 0);
		assert_int_equal(pthread_create(&thread, NULL, ask_to_end, &ending), 0);
		pthread_mutex_lock(&ending.lock);
		while (!ending.begun)
			pthread_cond_wait(&ending.called, &ending.lock);
		pthread_mutex_unlock(&ending.lock);
		admin_server_free(server);
		assert_int_equal(pthread_join(thread, NULL), 0);
		assert_int_equal(ending.result, 0);
	}
}

#define WITH_SERVER(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		WITH_SERVER(test_routes),
		WITH_SERVER(test_errors),
		cmocka_unit_test(test_groups_of_a_caller),
		WITH_SERVER(test_asked_over_the_wire),
		WITH_SERVER(test_params),
		cmocka_unit_test(test_rights),
		WITH_SERVER(test_query_number),
		WITH_SERVER(test_query_twice),
		WITH_SERVER(test_route_list),
		WITH_SERVER(test_hostile),
		WITH_SERVER(test_metrics),
		WITH_SERVER(test_ready),
		WITH_SERVER(test_pages),
		cmocka_unit_test(test_foreign),
		WITH_SERVER(test_loopback),
		WITH_SERVER(test_audit),
		WITH_SERVER(test_audit_changes),
		WITH_SERVER(test_audit_watched),
		WITH_SERVER(test_audit_refused),
		WITH_SERVER(test_nobody),
		WITH_SERVER(test_last_answer),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
