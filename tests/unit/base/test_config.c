/* Options from file, environment and command line: who wins, every line for what is wrong, and what
 * a second look changes. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/address.h"
#include "base/config.h"
#include "base/file.h"
#include "base/units.h"

struct values {
	const char *config;
	struct option_list tiers;
	const char *listen;
	const char *log_level;
	const char *state;
	uint64_t memory;
	uint64_t rate;
	uint64_t wait;
	uint64_t count;
	uint64_t umask;
	bool create;
	int ready_fd;
	uint64_t tried;
};

static int check_state(const char *text, struct err *e)
{
	if (*text != '/')
		return err_set(e, -EINVAL, "'%s' is no path; allowed: /DIR", text);
	return 0;
}

static const struct option_spec specs[] = {
	OPTION_STRING_ROW(struct values, config, "config", "FILE", "a file"),
	OPTION_ROW(struct values, tiers, "tier", OPTION_LIST, .metavar = "DIR", .help = "places"),
	OPTION_ROW(struct values, listen, "listen", OPTION_STRING, .metavar = "ADDR",
		.required = true, .help = "an address"),
	OPTION_ROW(struct values, log_level, "log-level", OPTION_CHOICE,
		.choices = "error|info|debug", .reload = true, .help = "what to log"),
	OPTION_ROW(struct values, state, "state", OPTION_STRING, .metavar = "DIR", .reload = true,
		.check = check_state, .help = "a directory"),
	OPTION_SIZE_ROW(struct values, memory, "memory", 16 * MiB, 0, "a size"),
	OPTION_ROW(struct values, rate, "rate", OPTION_SIZE, .reload = true, .help = "a size"),
	OPTION_ROW(struct values, wait, "wait", OPTION_DURATION, .help = "a time"),
	OPTION_ROW(
		struct values, count, "count", OPTION_UINT, .min = 1, .max = 9, .help = "a number"),
	OPTION_ROW(struct values, umask, "umask", OPTION_OCTAL, .max = 0777, .help = "a umask"),
	OPTION_BOOL_ROW(struct values, create, "create", "a switch"),
	OPTION_FD_ROW(struct values, ready_fd, "ready-fd", "a descriptor"),
	OPTION_ROW(struct values, tried, "tried", OPTION_UINT, .hidden = true, .help = "for tests"),
};

static const struct option_set set = {
	.program = "prog",
	.arguments = "",
	.section = "worker",
	.specs = specs,
	.n = ARRAY_SIZE(specs),
};

static const struct values defaults = {
	.log_level = "info", .memory = 512 * MiB, .rate = 8 * MiB, .umask = 022, .ready_fd = -1
};

static char dir[] = "/tmp/granary-config-XXXXXX";
static char path[sizeof(dir) + 16];

static int make_dir(void **state)
{
	(void)state;
	if (!mkdtemp(dir))
		return -1;
	(void)snprintf(path, sizeof(path), "%s/f.yaml", dir);
	return 0;
}

static int remove_dir(void **state)
{
	(void)state;
	(void)unlink(path);
	return rmdir(dir);
}

static void write_file(const char *text)
{
	assert_int_equal(file_write_atomic(path, text, strlen(text), 0600), 0);
}

/* The file has `text`; `words` are split at blanks. */
static int open_with(const char *text, const char *words, struct values *values,
	struct config **ret_config, struct err *e)
{
	static char copy[512];
	static char *argv[32];
	char *rest;
	int argc = 0;

	write_file(text);
	*values = defaults;
	(void)snprintf(copy, sizeof(copy), "prog --config %s %s", path, words);
	for (char *word = strtok_r(copy, " ", &rest); word; word = strtok_r(NULL, " ", &rest))
		argv[argc++] = word;
	return config_open(&set, argc, argv, values, sizeof(*values), ret_config, e);
}

static struct config *opened(const char *text, const char *words, struct values *values)
{
	struct config *config = NULL;
	struct err e = ERR_INIT;

	if (open_with(text, words, values, &config, &e) != 0)
		fail_msg("%s", e.text);
	return config;
}

static void every_kind_from_a_file(void **state)
{
	struct values v;
	struct config *config = opened("log-level: error\n"
				       "master:\n"
				       "  whatever: not looked at\n"
				       "worker:\n"
				       "  tier:\n"
				       "    - /a\n"
				       "    - /b,kind=ram\n"
				       "  listen: unix:/x\n"
				       "  log-level: debug\n"
				       "  memory: 2GiB\n"
				       "  wait: 250ms\n"
				       "  count: 9\n"
				       "  umask: 027\n"
				       "  create: true\n",
		"", &v);

	(void)state;
	assert_int_equal(v.tiers.n, 2);
	assert_string_equal(v.tiers.values[0], "/a");
	assert_string_equal(v.tiers.values[1], "/b,kind=ram");
	assert_string_equal(v.listen, "unix:/x");
	assert_string_equal(v.log_level, "debug"); /* the section over the top */
	assert_int_equal(v.memory, 2 * GiB);
	assert_int_equal(v.rate, 8 * MiB);
	assert_int_equal(v.wait, 250000000);
	assert_int_equal(v.count, 9);
	assert_int_equal(v.umask, 027);
	assert_true(v.create);
	assert_string_equal(config_file(config), path);
	assert_true(config_has_sections(config));
	config_free(config);
}

static void a_file_of_one_daemon_has_no_sections(void **state)
{
	struct values v;
	struct config *config = opened("listen: a\ntier: /one\nrate: 1MiB\n", "", &v);

	(void)state;
	assert_string_equal(v.listen, "a");
	assert_int_equal(v.tiers.n, 1);
	assert_string_equal(v.tiers.values[0], "/one");
	assert_int_equal(v.rate, MiB);
	assert_false(config_has_sections(config));
	config_free(config);
	config = opened("worker:\nmaster:\n", "--listen a", &v); /* nothing in them */
	assert_int_equal(v.rate, 8 * MiB);
	config_free(config);
}

static void later_places_override_earlier_ones(void **state)
{
	static const char text[] = "worker:\n  listen: file\n  memory: 1GiB\n  rate: 1MiB\n"
				   "  tier: [ /f1, /f2 ]\n  create: true\n";
	struct values v;
	struct config *config;

	(void)state;
	assert_int_equal(setenv("GRANARY_WORKER_MEMORY", "2GiB", 1), 0);
	assert_int_equal(setenv("GRANARY_WORKER_RATE", "2MiB", 1), 0);
	assert_int_equal(setenv("GRANARY_WORKER_TIER", "/e1 /e2  /e3", 1), 0);
	assert_int_equal(setenv("GRANARY_LOG_LEVEL", "error", 1), 0);
	assert_int_equal(setenv("GRANARY_WORKER_PORT", "tcp://10.0.0.1:80", 1), 0); /* nobody's */
	assert_int_equal(setenv("GRANARY_MASTER_LISTEN", "another's", 1), 0);
	config = opened(text, "--memory 4GiB --no-create", &v);
	assert_string_equal(v.listen, "file");
	assert_int_equal(v.memory, 4 * GiB);
	assert_int_equal(v.rate, 2 * MiB);
	assert_int_equal(v.tiers.n, 3);
	assert_string_equal(v.tiers.values[2], "/e3");
	assert_string_equal(v.log_level, "error");
	assert_false(v.create);
	config_free(config);
	assert_int_equal(setenv("GRANARY_WORKER_LOG_LEVEL", "debug", 1), 0);
	config = opened(text, "--tier /c", &v);
	assert_int_equal(v.tiers.n, 1);
	assert_string_equal(v.tiers.values[0], "/c");
	assert_string_equal(v.log_level, "debug");
	assert_int_equal(v.memory, 2 * GiB);
	config_free(config);
	assert_int_equal(clearenv(), 0);
}

static void origins_are_shown(void **state)
{
	_Alignas(8) char text[4096] = "";
	char wanted[4096];
	struct values v;
	struct config *config;
	FILE *out = fmemopen(text, sizeof(text), "w");

	(void)state;
	assert_int_equal(setenv("GRANARY_LOG_LEVEL", "error", 1), 0);
	assert_int_equal(setenv("GRANARY_WORKER_WAIT", "90s", 1), 0);
	config = opened(
		"worker:\n  listen: a\n  tier: [ /a, /b ]\n  rate: 1048577\n", "--memory 1GiB", &v);
	config_show(config, out);
	assert_int_equal(fclose(out), 0);
	(void)snprintf(wanted, sizeof(wanted),
		"tier\t/a /b\t%s:3\n"
		"listen\ta\t%s:2\n"
		"log-level\terror\tGRANARY_LOG_LEVEL\n"
		"state\t\tdefault\n"
		"memory\t1GiB\tcommand line\n"
		"rate\t1048577B\t%s:4\n"
		"wait\t90s\tGRANARY_WORKER_WAIT\n"
		"count\t0\tdefault\n"
		"umask\t022\tdefault\n"
		"create\tfalse\tdefault\n",
		path, path, path);
	assert_string_equal(text, wanted);
	config_free(config);
	assert_int_equal(clearenv(), 0);
}

static void every_line_for_what_is_wrong(void **state)
{
	static const struct {
		const char *text;
		const char *says; /* after the file's name */
	} cases[] = {
		{ "worker:\n  memroy: 1GiB\n", ":2: memroy: unknown key: did you mean memory?; "
					       "allowed: tier, listen, log-level, "
					       "state, memory, rate, wait, count, umask, create" },
		{ "worker:\n  zzzzzz: 1\n", ":2: zzzzzz: unknown key; allowed: tier, " },
		{ "memroy: 1GiB\n",
			":1: memroy: unknown key: did you mean memory?; allowed: tier, " },
		{ "wroker:\n  memory: 1GiB\n",
			":1: wroker: unknown key: did you mean worker?; allowed: tier, " },
		{ "worker: {}\nmemory: 1GiB\n",
			":2: memory: is outside its section: put it below worker:; "
			"allowed: log-level, cluster-key, token, net-data, master, worker, mount, "
			"keeper" },
		{ "ready-fd: 3\n", ":1: ready-fd: unknown key" },
		{ "tried: 3\n", ":1: tried: unknown key" },
		{ "config: x\n", ":1: config: unknown key" },
		{ "memory: 1QB\n",
			":1: memory: '1QB' is not a size: write a number and a unit, such "
			"as 512MiB, 20GiB or 2TB" },
		{ "memory: 1MiB\n", ":1: memory: 1MiB is too small; allowed: at least 16.0MiB" },
		{ "\n\nmemory: -1\n", ":3: memory: '-1' is not a size" },
		{ "wait: 3\n", ":1: wait: '3' is not a duration" },
		{ "count: 10\n", ":1: count: 10 is out of range; allowed: 1 to 9" },
		{ "count: one\n", ":1: count: 'one' is not a whole number" },
		{ "umask: 9\n", ":1: umask: '9' is not an octal number" },
		{ "create: yes\n",
			":1: create: 'yes' is neither true nor false; allowed: true, false" },
		{ "log-level: loud\n",
			":1: log-level: 'loud' is unknown; allowed: one of error|info|debug" },
		{ "state: var\n", ":1: state: 'var' is no path; allowed: /DIR" },
		{ "listen: ''\n", ":1: listen: must not be empty; allowed: ADDR" },
		{ "listen:\n",
			":1: listen: has no value: remove the key, or give one; allowed: ADDR" },
		{ "listen: [ a ]\n", ":1: listen: is a list; allowed: ADDR" },
		{ "listen: { a: b }\n", ":1: listen: is a map; allowed: ADDR" },
		{ "tier: { a: b }\n", ":1: tier: is a map; allowed: DIR, or a list of them" },
		{ "tier:\n  - a\n  - [ b ]\n", ":3: tier: has an item that is not a string; "
					       "allowed: DIR, or a list of them" },
		{ "tier:\n  - a\n  -\n", ":3: tier: has an item that is not a string" },
		{ "listen: a\nlisten: b\n", ":2: listen: given twice, first in line 1" },
		{ "worker: {}\nworker: {}\n", ":2: worker: given twice" },
		{ "- a\n", ":1: is not a map; allowed: KEY: VALUE in each line" },
		{ "tier: [a,b,c,d,e,f,g,h,i,j,k,l,m,n,o,p,q]\n",
			":1: tier: is given too often; allowed: 16 times" },
		{ "a: [\n", ":2: not YAML: " },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct config *config = NULL;
		struct err e = ERR_INIT;
		struct values v;

		assert_int_equal(open_with(cases[i].text, "--listen x", &v, &config, &e), -EINVAL);
		assert_null(config);
		assert_memory_equal(&v, &defaults, sizeof(v)); /* untouched */
		if (strncmp(e.text, path, strlen(path)) != 0 ||
			strncmp(e.text + strlen(path), cases[i].says, strlen(cases[i].says)) != 0)
			fail_msg("'%s' says: %s", cases[i].text, e.text);
	}
}

static void what_is_missing_or_wrong_elsewhere(void **state)
{
	struct config *config = NULL;
	struct err e = ERR_INIT;
	struct values v;
	char arg0[] = "prog";
	char help[] = "--help";
	char absent[] = "--config=/nonexistent/f.yaml";
	char *argv[] = { arg0, absent, NULL };

	(void)state;
	assert_int_equal(open_with("rate: 1MiB\n", "", &v, &config, &e), -EINVAL);
	assert_non_null(
		strstr(e.text, "f.yaml: --listen is missing: give --listen ADDR, or its key "
			       "in section worker"));
	assert_int_equal(open_with("listen: a\n", "--rate fast", &v, &config, &e), -EINVAL);
	assert_non_null(strstr(e.text, "--rate: 'fast' is not a size"));
	assert_int_equal(open_with("listen: a\n", "extra", &v, &config, &e), -EINVAL);
	assert_non_null(strstr(e.text, "too many arguments"));
	assert_int_equal(setenv("GRANARY_WORKER_COUNT", "0", 1), 0);
	assert_int_equal(open_with("listen: a\n", "", &v, &config, &e), -EINVAL);
	assert_string_equal(e.text, "GRANARY_WORKER_COUNT: 0 is out of range; allowed: 1 to 9");
	assert_int_equal(clearenv(), 0);
	assert_int_equal(config_open(&set, 2, argv, &v, sizeof(v), &config, &e), -ENOENT);
	assert_non_null(strstr(e.text, "/nonexistent/f.yaml: cannot be read"));
	argv[1] = help;
	assert_int_equal(config_open(&set, 2, argv, &v, sizeof(v), &config, &e), OPTION_HELP);
	assert_null(config);
}

static void the_file_may_be_named_by_the_environment(void **state)
{
	struct config *config = NULL;
	struct err e = ERR_INIT;
	struct values v = defaults;
	char arg0[] = "prog";
	char *argv[] = { arg0, NULL };

	(void)state;
	write_file("listen: from-the-file\n");
	assert_int_equal(setenv("GRANARY_WORKER_CONFIG", path, 1), 0);
	assert_int_equal(config_open(&set, 1, argv, &v, sizeof(v), &config, &e), 0);
	assert_string_equal(v.listen, "from-the-file");
	config_free(config);
	assert_int_equal(clearenv(), 0);
	v = defaults;
	v.listen = "without";
	assert_int_equal(config_open(&set, 1, argv, &v, sizeof(v), &config, &e), -EINVAL);
	assert_string_equal(e.text, "--listen is missing: give --listen ADDR");
}

static void a_second_look_changes_what_may_change(void **state)
{
	struct values v;
	struct config *config =
		opened("listen: a\nlog-level: error\nrate: 1MiB\nstate: /a\n", "--count 3", &v);
	struct err e = ERR_INIT;

	(void)state;
	assert_int_equal(config_reload(config, &e), 0); /* nothing is new */
	for (int i = 0; i < 3; i++) {
		char text[256];

		(void)snprintf(text, sizeof(text),
			"listen: other\nlog-level: debug\nrate: %dMiB\nstate: /new%d\n"
			"memory: 1GiB\ncount: 5\ntier: [ /t ]\n",
			i + 2, i);
		write_file(text);
		assert_int_equal(config_reload(config, &e), i == 0 ? 3 : 2);
		assert_int_equal(v.rate, (uint64_t)(i + 2) * MiB);
		(void)snprintf(text, sizeof(text), "/new%d", i);
		assert_string_equal(v.state, text);
	}
	assert_string_equal(v.log_level, "debug");
	assert_string_equal(v.listen, "a"); /* needs a restart */
	assert_int_equal(v.memory, 512 * MiB);
	assert_int_equal(v.count, 3); /* the command line goes on to win */
	assert_int_equal(v.tiers.n, 0);
	write_file("listen: a\n"); /* what is gone is as without it */
	assert_int_equal(config_reload(config, &e), 3);
	assert_string_equal(v.log_level, "info");
	assert_int_equal(v.rate, 8 * MiB);
	assert_null(v.state);
	config_free(config);
}

static void a_bad_second_look_changes_nothing(void **state)
{
	struct values v;
	struct config *config = opened("listen: a\nlog-level: error\nstate: /a\n", "", &v);
	const struct values before = v;
	struct err e = ERR_INIT;

	(void)state;
	write_file("listen: a\nlog-level: debug\nstate: /b\nrate: lots\n");
	assert_int_equal(config_reload(config, &e), -EINVAL);
	assert_non_null(strstr(e.text, "f.yaml:4: rate: 'lots' is not a size"));
	assert_memory_equal(&v, &before, sizeof(v));
	write_file("log-level: debug\n");
	assert_int_equal(config_reload(config, &e), -EINVAL);
	assert_non_null(strstr(e.text, "--listen is missing"));
	assert_int_equal(unlink(path), 0);
	assert_int_equal(config_reload(config, &e), -ENOENT);
	assert_memory_equal(&v, &before, sizeof(v));
	assert_string_equal(v.state, "/a");
	config_free(config);
}

static void addresses_are_checked_as_far_as_they_can_be(void **state)
{
	static const char *const good[] = { "unix:/run/x", "tcp:127.0.0.1:0", "tcp:[::1]:7000",
		"tcp:localhost:65535", "tcp:::1:7000", "tcp:[fe80::1%eth0]:7000",
		"tcp:granary-master:7420", "tcp:master-0.granary.svc.cluster.local:7420",
		"tcp:3com.example:1" };
	static const struct {
		const char *address;
		const char *says;
	} bad[] = {
		{ "/run/x", "'/run/x' is not an address; allowed: unix:/PATH or tcp:HOST:PORT" },
		{ "", "is not an address" },
		{ "unix:run/x", "has no absolute path" },
		{ "unix:", "has no absolute path" },
		{ "tcp:7000", "has no host and port" },
		{ "tcp::7000", "has no host and port" },
		{ "tcp:10.0.0:7420", ": use a name or an address, such as "
				     "tcp:master.example:7420 or tcp:10.0.0.1:7420" },
		{ "tcp:10.0.0.256:1", "invalid host" },
		{ "tcp:[]:1", "invalid host" },
		{ "tcp:a..b:1", "invalid host" },
		{ "tcp:a b:1", "invalid host" },
		{ "tcp:-a:1", "invalid host" },
		{ "tcp:a.:1", "invalid host" },
		{ "tcp:host:", "has no host and port" },
		{ "tcp:host:http", "has no host and port" },
		{ "tcp:host:70000", "has no host and port" },
		{ "tcp:host:-1", "has no host and port" },
	};
	char long_path[256];
	struct err e = ERR_INIT;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(good); i++)
		assert_int_equal(address_check(good[i], &e), 0);
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		assert_int_equal(address_check(bad[i].address, &e), -EINVAL);
		if (!strstr(e.text, bad[i].says))
			fail_msg("'%s' says: %s", bad[i].address, e.text);
	}
	(void)snprintf(long_path, sizeof(long_path), "unix:/%0107d", 0);
	assert_int_equal(address_check(long_path, &e), -EINVAL);
	assert_non_null(strstr(e.text, "is too long for a socket"));
	long_path[5 + 107] = '\0';
	assert_int_equal(address_check(long_path, &e), 0);
}

static void the_nearest_name(void **state)
{
	static const char *const names[] = { "scrub-rate", "seal-rate", "memory" };

	(void)state;
	assert_string_equal(config_nearest("scrubrate", names, 3), "scrub-rate");
	assert_string_equal(config_nearest("seal_rate", names, 3), "seal-rate");
	assert_string_equal(config_nearest("mem", names, 3) ? "near" : "none", "none");
	assert_null(config_nearest("listen", names, 3));
	assert_null(config_nearest("", names, 0));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_kind_from_a_file),
		cmocka_unit_test(a_file_of_one_daemon_has_no_sections),
		cmocka_unit_test(later_places_override_earlier_ones),
		cmocka_unit_test(origins_are_shown),
		cmocka_unit_test(every_line_for_what_is_wrong),
		cmocka_unit_test(what_is_missing_or_wrong_elsewhere),
		cmocka_unit_test(the_file_may_be_named_by_the_environment),
		cmocka_unit_test(a_second_look_changes_what_may_change),
		cmocka_unit_test(a_bad_second_look_changes_nothing),
		cmocka_unit_test(addresses_are_checked_as_far_as_they_can_be),
		cmocka_unit_test(the_nearest_name),
	};

	return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
