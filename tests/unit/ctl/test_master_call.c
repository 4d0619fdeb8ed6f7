/* Which master a command asks, and what it says when nobody is there. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "admin/admin.h"
#include "admin/listen.h"
#include "base/clock.h"
#include "base/file.h"
#include "ctl/cache_dir.h"
#include "ctl/fleet.h"
#include "ctl/master_call.h"
#include "ctl/master_wire.h"
#include "ctl/node_config.h"
#include "ctl/service.h"

static char dir[48];

static const char *in(const char *name)
{
	static char path[128];

	(void)snprintf(path, sizeof(path), "%s/%s", dir, name);
	return path;
}

static int make_dir(void **state)
{
	(void)state;
	(void)snprintf(dir, sizeof(dir), "/var/tmp/granary-mc.XXXXXX");
	if (!mkdtemp(dir) || mkdir(in("run"), 0700) != 0 || unsetenv("GRANARY_MASTER") != 0)
		return -1;
	return setenv("GRANARY_RUN_DIR", in("run"), 1) == 0 && setenv("HOME", in("home"), 1) == 0 &&
			       setenv("XDG_CACHE_HOME", in("home"), 1) == 0 &&
			       setenv("GRANARY_CONFIG", in("granary.yaml"), 1) == 0
		       ? 0
		       : -1;
}

static int remove_dir(void **state)
{
	char command[128];

	(void)state;
	(void)snprintf(command, sizeof(command), "rm -rf %s", dir);
	return system(command);
}

static int whoami(void *arg, const struct admin_request *request, json_t **ret_json, struct err *e)
{
	(void)request;
	(void)e;
	*ret_json = json_pack("{s:s}", "name", (const char *)arg);
	return *ret_json ? 0 : -ENOMEM;
}

static int refuse(void *arg, const struct admin_request *request, json_t **ret_json, struct err *e)
{
	(void)arg;
	(void)request;
	(void)ret_json;
	return err_set(e, -ENOENT, "no dataset x");
}

static const struct admin_route routes[] = {
	{ .method = "GET", .path = "/v1/whoami", .handler = whoami },
	{ .method = "GET", .path = "/v1/refuse", .handler = refuse },
	{ .method = "POST", .path = "/v1/change", .handler = refuse, .act = "test.change" },
	{ 0 },
};

static struct admin_server *serve(const char *directory, const char *name)
{
	struct admin_server *server = NULL;
	struct err e = ERR_INIT;
	char path[160];

	assert_int_equal(file_mkdirs(directory, 0700), 0);
	(void)snprintf(path, sizeof(path), "%s/master.sock", directory);
	assert_int_equal(admin_server_new(path, routes, (void *)(uintptr_t)name, &server, &e), 0);
	return server;
}

/* The name of the master that answers; NULL and the line. */
static const char *ask(const struct master_where *where, struct err *e)
{
	static char name[32];
	json_t *json = NULL;

	*e = ERR_INIT;
	if (master_call(where, NULL, "/v1/whoami", NULL, MASTER_CALL_NS, &json, e) < 0)
		return NULL;
	(void)snprintf(name, sizeof(name), "%s", json_string_value(json_object_get(json, "name")));
	json_decref(json);
	return name;
}

static void test_private(void **state)
{
	const struct master_where any = { 0 };
	struct master_where of_cache = { 0 };
	struct cache_dir one;
	struct cache_dir two;
	struct admin_server *first;
	struct admin_server *second;
	struct err e = ERR_INIT;

	(void)state;
	assert_null(ask(&any, &e));
	assert_non_null(strstr(e.text, "no master is running on this host"));
	assert_int_equal(mkdir(in("one"), 0700), 0);
	assert_int_equal(mkdir(in("two"), 0700), 0);
	assert_int_equal(cache_dir_find(in("one"), &one, &e), 0);
	assert_int_equal(cache_dir_find(in("two"), &two, &e), 0);
	assert_int_equal(cache_dir_find(in("three"), &two, &e), -ENOMEDIUM);

	first = serve(one.run, "one");
	assert_string_equal(ask(&any, &e), "one");
	second = serve(two.run, "two");
	assert_null(ask(&any, &e));
	assert_int_equal(e.code, -EEXIST);
	assert_non_null(strstr(e.text, "--cache"));
	of_cache.cache = in("two");
	assert_string_equal(ask(&of_cache, &e), "two");
	admin_server_free(second);
	of_cache.cache = in("two");
	assert_null(ask(&of_cache, &e));
	assert_int_equal(e.code, -ECONNREFUSED);
	admin_server_free(first);
}

static void test_service(void **state)
{
	const struct master_where any = { 0 };
	struct master_where named = { 0 };
	struct admin_server *master;
	struct admin_server *other;
	struct err e = ERR_INIT;
	char socket[SOCKET_PATH_MAX];
	char run[SOCKET_PATH_MAX];
	char path[160];
	json_t *json = NULL;

	(void)state;
	assert_false(service_there());
	assert_int_equal(file_mkdirs(in("run/keeper"), 0700), 0);
	assert_int_equal(file_mkdirs(in("run/master"), 0700), 0);
	assert_true(service_there());
	assert_null(ask(&any, &e));
	assert_int_equal(e.code, -ECONNREFUSED);
	assert_non_null(strstr(e.text, "systemctl start granary-master"));
	assert_non_null(strstr(e.text, " since 20"));

	master = serve(in("run/master"), "service");
	other = serve(in("other"), "other");
	assert_string_equal(ask(&any, &e), "service");
	assert_int_equal(
		master_call(&any, NULL, "/v1/refuse", NULL, MASTER_CALL_NS, &json, &e), -ENOENT);
	assert_string_equal(e.text, "no dataset x");
	(void)snprintf(path, sizeof(path), "%s/master.sock", in("other"));
	named.master = path;
	assert_string_equal(ask(&named, &e), "other");
	assert_int_equal(setenv("GRANARY_MASTER", path, 1), 0);
	assert_string_equal(ask(&any, &e), "other");
	assert_int_equal(unsetenv("GRANARY_MASTER"), 0);
	named.cache = "x";
	assert_null(ask(&named, &e));
	assert_int_equal(e.code, -EINVAL);
	assert_int_equal(service_path(service_run(run), "worker.sock", socket), 0);
	assert_string_equal(socket, in("run/worker/worker.sock"));
	admin_server_free(other);
	admin_server_free(master);
}

/* A master's listener for questions, by its address. */
static void test_tcp(void **state)
{
	struct master_where there = { 0 };
	struct admin_server *master = serve(in("run/tcp"), "over tcp");
	struct err e = ERR_INIT;
	char address[40];
	uint16_t port = 0;

	(void)state;
	assert_int_equal(admin_server_listen(master,
				 &(struct admin_listen){ .address = "127.0.0.1:0" }, &port, &e),
		0);
	there.master = address;
	(void)snprintf(address, sizeof(address), "127.0.0.1:%u", port);
	assert_string_equal(ask(&there, &e), "over tcp");
	(void)snprintf(address, sizeof(address), "localhost:%u", port);
	assert_string_equal(ask(&there, &e), "over tcp");
	assert_int_equal(setenv("GRANARY_MASTER", address, 1), 0);
	assert_string_equal(ask(&(struct master_where){ 0 }, &e), "over tcp");
	assert_int_equal(unsetenv("GRANARY_MASTER"), 0);
	assert_int_equal(
		master_call(&there, "POST", "/v1/change", NULL, MASTER_CALL_NS, NULL, &e), -EPERM);
	assert_non_null(strstr(e.text, "is read-only"));
	assert_non_null(strstr(e.text, "localhost:"));
	admin_server_free(master);
	assert_null(ask(&there, &e));
	assert_int_equal(e.code, -ECONNREFUSED);
	assert_non_null(strstr(e.text, "--admin-listen"));
	for (size_t i = 0; i < 4; i++) {
		static const char *const wrong[] = { "host:", ":9", "host:port", "tcp:9" };

		there.master = wrong[i];
		assert_null(ask(&there, &e));
		assert_int_equal(e.code, -EINVAL);
	}
}

/* The master that this node's keeper has on another one, where there is none here. */
static void test_wire(void **state)
{
	static const char text[] =
		"token: /top\nkeeper:\n  master: tcp:127.0.0.1:1\n  cluster-key: /own\n";
	const struct master_where any = { 0 };
	struct master_where there = { .master = "tcp:127.0.0.1:2" };
	char at[SOCKET_PATH_MAX];
	struct node_config config;
	struct admin_server *master;
	struct err e = ERR_INIT;

	(void)state;
	assert_int_equal(master_find(&there, at, &e), 0);
	assert_true(master_is_wire(at));
	assert_string_equal(at + strlen(MASTER_WIRE), "tcp:127.0.0.1:2");
	assert_int_equal(master_find(&any, at, &e), -ENOENT);
	assert_int_equal(node_config_read(&config, &e), 0);
	assert_string_equal(config.file, "");
	assert_int_equal(file_write_atomic(in("granary.yaml"), text, sizeof(text) - 1, 0600), 0);
	assert_int_equal(node_config_read(&config, &e), 0);
	assert_string_equal(config.cluster_key, "/own");
	assert_string_equal(config.token, "/top");
	assert_int_equal(master_find(&any, at, &e), 0);
	assert_string_equal(at, MASTER_WIRE "tcp:127.0.0.1:1");
	assert_int_equal(mkdir(in("run/keeper"), 0700), 0); /* a service without a master */
	assert_int_equal(mkdir(in("run/master"), 0700), 0);
	assert_int_equal(master_find(&any, at, &e), 0);
	assert_string_equal(at, MASTER_WIRE "tcp:127.0.0.1:1");
	master = serve(in("run/master/master.sock"), "the service");
	assert_int_equal(master_find(&any, at, &e), 0); /* its own goes first */
	assert_string_equal(at, in("run/master/master.sock"));
	admin_server_free(master);
	assert_int_equal(file_write_atomic(in("granary.yaml"), "a: [", 4, 0600), 0);
	assert_int_equal(node_config_read(&config, &e), -EINVAL);
	assert_null(ask(&there, &e)); /* what is wrong with the file is said */
	assert_int_equal(e.code, -EINVAL);
	assert_int_equal(file_write_atomic(in("granary.yaml"), "a: b\n", 5, 0600), 0);
	assert_null(ask(&there, &e));
	assert_int_equal(e.code, -ECONNREFUSED);
	assert_non_null(strstr(e.text, "tcp:127.0.0.1:2"));
}

static void check_warning(const char *text, const char *warning)
{
	struct node_config config;
	struct err e = ERR_INIT;

	assert_int_equal(file_write_atomic(in("granary.yaml"), text, strlen(text), 0600), 0);
	assert_int_equal(node_config_read(&config, &e), 0);
	if (!warning)
		assert_string_equal(config.warning, "");
	else if (!strstr(config.warning, warning))
		fail_msg("'%s' is not in '%s'", warning, config.warning);
}

/* A slip of the pen in what commands take from the file is not left out in silence. */
static void test_slips(void **state)
{
	(void)state;
	check_warning("keeper:\n  mastr: tcp:127.0.0.1:1\n",
		"granary.yaml:2: mastr: unknown key: did you mean master?");
	check_warning("log-level: info\nkeeper:\n  cluster_key: /own\n",
		"granary.yaml:3: cluster_key: unknown key: did you mean cluster-key?");
	check_warning("keepr:\n  master: tcp:127.0.0.1:1\nworker:\n  tier: /t\n",
		"granary.yaml:1: keepr: unknown key: did you mean keeper?");
	check_warning("keepr:\n  master: tcp:127.0.0.1:1\n", /* all there is */
		"granary.yaml:1: keepr: unknown key: did you mean keeper?");
	check_warning("keeper:\nmaster: tcp:127.0.0.1:1\n", /* not indented */
		"granary.yaml:2: master: is outside of a section: ignored here");
	check_warning("token: /top\nkeeper:\n  master: tcp:127.0.0.1:1\n  memory: 1GiB\n  run: /r\n"
		      "  cache: /c\n  dead-after: 30s\n  stay: true\n  leave-mounts: true\n"
		      "  audit-log: /a\n  admin-listen: x\n  log-level: info\n  log-file: /l\n"
		      "worker:\n  mastre: daemons say that\nmaster:\nmount:\n",
		NULL);
	check_warning("tier: /t\nmemry: 1GiB\n", NULL); /* one daemon's own */
	check_warning("[a, b]\n", NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_tcp, make_dir, remove_dir),
		cmocka_unit_test_setup_teardown(test_private, make_dir, remove_dir),
		cmocka_unit_test_setup_teardown(test_service, make_dir, remove_dir),
		cmocka_unit_test_setup_teardown(test_wire, make_dir, remove_dir),
		cmocka_unit_test_setup_teardown(test_slips, make_dir, remove_dir),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
