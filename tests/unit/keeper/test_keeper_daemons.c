/*
 * The keeper of a private cache with stand-ins for the daemons: shell scripts that report READY or ERROR and
 * then sleep. Their process ids and starts are seen through the keeper's own answers.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "admin/admin.h"
#include "base/clock.h"
#include "base/exit.h"
#include "base/file.h"
#include "keeper/keeper.h"
#include "tests/clock/test_clock.h"

#define DEADLINE (60 * CLOCK_SECOND)

static char dir[64];
static char path_buffer[256];
static char cache[80];
static char run[80];
static pid_t keeper;

static const char *in(const char *name)
{
	(void)snprintf(path_buffer, sizeof(path_buffer), "%s/%s", dir, name);
	return path_buffer;
}

/* `serving` runs once the arguments are parsed: $fd is the ready descriptor, $all all arguments. */
static void write_daemon(const char *name, const char *serving)
{
	char text[1024];
	int n = snprintf(text, sizeof(text),
		"#!/bin/bash\nall=\"$*\"\nfd=2\nwhile [ $# -gt 0 ]; do [ \"$1\" = --ready-fd ] && "
		"fd=$2; shift; done\n"
		"echo \"$all\" >>%s/%s.starts\n%s\n",
		dir, name, serving);

	assert_int_equal(file_mkdirs(in("bin"), 0755), 0);
	(void)snprintf(path_buffer, sizeof(path_buffer), "%s/bin/%s", dir, name);
	assert_int_equal(file_write_atomic(path_buffer, text, (size_t)n, 0755), 0);
}

#define SERVES "eval \"echo READY {} >&$fd; exec $fd>&-\"; exec -a \"$0\" sleep 1000"
/* Waits until some process has the fifo of that name in `dir` open for writing. */
#define AFTER(name) ": <\"${0%/bin/*}/" name "\"; "
#define OPENS(name) "exec 7<>\"${0%/bin/*}/" name "\"; "

static int setup(void **state)
{
	(void)state;
	(void)snprintf(dir, sizeof(dir), "/var/tmp/granary-kd.XXXXXX");
	if (!mkdtemp(dir))
		return -1;
	setenv("GRANARY_BIN_DIR", in("bin"), 1);
	(void)snprintf(cache, sizeof(cache), "%s/cache", dir);
	(void)snprintf(run, sizeof(run), "%s/run", dir);
	write_daemon("cachemaster", SERVES);
	write_daemon("cacheworker", SERVES);
	write_daemon("cachefuse", SERVES);
	if (mkfifo(in("begun"), 0600) != 0 || mkfifo(in("go"), 0600) != 0)
		return -1;
	return file_mkdirs(in("cache/log"), 0700);
}

static int keep(uint64_t idle_ns, int ready_fd)
{
	struct keeper_config config = { .cache = cache,
		.run = run,
		.private_memory = 1 << 30,
		.is_private = true,
		.log_level = "info",
		.dead_after_ns = KEEPER_DEAD_AFTER,
		.idle_ns = idle_ns };

	config.memory = keeper_daemons_rest(&config);
	return keeper_run(&config, ready_fd);
}

static void start_idle(uint64_t idle_ns)
{
	int ready[2];
	char line[8] = "";

	assert_int_equal(pipe(ready), 0);
	keeper = fork();
	if (keeper == 0) {
		close(ready[0]);
		_exit(keep(idle_ns, ready[1]));
	}
	close(ready[1]);
	assert_true(read(ready[0], line, sizeof(line) - 1) > 0);
	assert_memory_equal(line, "READY", 5);
	close(ready[0]);
}

static void start(void)
{
	start_idle(0);
}

static int teardown(void **state)
{
	char command[128];

	(void)state;
	if (keeper > 0) {
		kill(keeper, SIGTERM);
		waitpid(keeper, NULL, 0);
		keeper = 0;
	}
	(void)snprintf(command, sizeof(command), "rm -rf %s", dir);
	return system(command);
}

static const char *in_run(const char *name, char out[SOCKET_PATH_MAX])
{
	(void)snprintf(out, SOCKET_PATH_MAX, "%s/%s", run, name);
	return out;
}

static json_t *ask(const char *method, const char *path, const json_t *body, int expect)
{
	char socket[SOCKET_PATH_MAX];
	json_t *json = NULL;
	struct err e = ERR_INIT;
	int r = admin_call(in_run("keeper.sock", socket), method, path, body, DEADLINE, &json, &e);

	if (r != expect)
		fail_msg("%s: %s %s", path, err_name(r), e.text);
	return json;
}

static int post_mount(const char *mountpoint, int expect)
{
	json_t *body = json_pack("{s:s, s:s}", "source", "s3://bucket/x", "mountpoint", mountpoint);
	json_t *answer = ask("POST", "/v1/mounts", body, expect);
	int id = (int)json_integer_value(json_object_get(answer, "id"));

	json_decref(body);
	json_decref(answer);
	return id;
}

/* The pid of daemon or mount `name` if it is in `state` with at least `restarts`, or -1. */
static pid_t find(const char *name, const char *state, int restarts)
{
	json_t *status = ask(NULL, "/v1/status", NULL, 0);
	const char *lists[] = { "daemons", "mounts" };
	const json_t *child;
	pid_t pid = -1;
	size_t i;

	for (size_t k = 0; k < 2; k++)
		json_array_foreach (json_object_get(status, lists[k]), i, child)
			if (strcmp(json_string_value(json_object_get(child, "name")), name) == 0 &&
				strcmp(json_string_value(json_object_get(child, "state")), state) ==
					0 &&
				json_integer_value(json_object_get(child, "restarts")) >= restarts)
				pid = (pid_t)json_integer_value(json_object_get(child, "pid"));
	json_decref(status);
	return pid;
}

static pid_t await(const char *name, const char *state, int restarts)
{
	pid_t pid;

	test_wait((pid = find(name, state, restarts)) >= 0);
	return pid;
}

static void expect_end(int status)
{
	int got = 0;

	assert_int_equal(waitpid(keeper, &got, 0), keeper);
	assert_true(WIFEXITED(got));
	assert_int_equal(WEXITSTATUS(got), status);
	assert_int_equal(access(run, F_OK), -1);
	keeper = 0;
}

static bool starts_contain(const char *name, unsigned int line, const char *word)
{
	struct buf text = BUF_INIT(65536);
	char file[64];
	char *at;
	bool found;

	(void)snprintf(file, sizeof(file), "%s.starts", name);
	assert_int_equal(file_read_all(in(file), &text), 0);
	at = text.data;
	while (line-- > 0 && at)
		at = strchr(at, '\n') + 1;
	at[strcspn(at, "\n")] = '\0';
	found = strstr(at, word) != NULL;
	buf_release(&text);
	return found;
}

/* /proc stands for a mount that is there; a directory that is no mount for one that is gone. */
static void test_restarts(void **state)
{
	pid_t worker;
	pid_t mount;

	(void)state;
	start();
	post_mount("/proc", 0);
	mount = await("mount-1", "serving", 0);
	worker = await("worker", "serving", 0);
	assert_true(starts_contain("cachefuse", 0, "--source s3://bucket/x --mountpoint /proc"));
	assert_true(starts_contain("cachefuse", 0, "--fuse-fd"));
	assert_true(starts_contain("cachefuse", 0, "--refresh"));
	assert_int_equal(kill(worker, SIGKILL), 0);
	assert_int_not_equal(await("worker", "serving", 1), worker);
	assert_int_equal(kill(mount, SIGKILL), 0);
	assert_int_not_equal(await("mount-1", "serving", 1), mount);
	assert_false(starts_contain("cachefuse", 1, "--refresh"));
	assert_true(starts_contain("cachefuse", 1, "--slots-fd"));
	/* a worker that is told to end by somebody else is needed all the same */
	assert_int_equal(kill(await("worker", "serving", 1), SIGTERM), 0);
	await("worker", "serving", 2);
}

static void test_ends_with_last_mount(void **state)
{
	int go;

	(void)state;
	write_daemon(
		"cachefuse", "eval \"echo READY {} >&$fd; exec $fd>&-\"; " AFTER("go") "exit 0");
	start();
	post_mount("/proc", 0);
	await("mount-1", "serving", 0);
	go = open(in("go"), O_RDWR | O_CLOEXEC);
	assert_true(go >= 0);
	expect_end(EXIT_OK);
	close(go);
}

static void test_unmounted_behind_its_back(void **state)
{
	pid_t mount;

	(void)state;
	start();
	post_mount(dir, 0);
	mount = await("mount-1", "serving", 0);
	assert_int_equal(kill(mount, SIGKILL), 0);
	expect_end(EXIT_OK);
}

static bool has_failed(const char *path, int status, const char *says)
{
	char socket[SOCKET_PATH_MAX];
	struct err e = ERR_INIT;
	json_t *json = NULL;
	int r = admin_call(in_run("keeper.sock", socket), NULL, path, NULL, DEADLINE, &json, &e);
	bool failed;

	if (r < 0)
		fail_msg("%s: %s %s", path, err_name(r), e.text);
	failed = strcmp(json_string_value(json_object_get(json, "state")), "failed") == 0;
	if (failed) {
		assert_int_equal(json_integer_value(json_object_get(json, "exit")), status);
		assert_non_null(strstr(json_string_value(json_object_get(json, "text")), says));
	}
	json_decref(json);
	return failed;
}

static void await_failed(int id, int status, const char *says)
{
	char socket[SOCKET_PATH_MAX];
	char path[64];

	(void)snprintf(path, sizeof(path), "/v1/mount?id=%d", id);
	test_wait(has_failed(path, status, says));
	/* It may end before its answer is out. */
	(void)!admin_call(in_run("keeper.sock", socket), "POST", path, NULL, DEADLINE, NULL, NULL);
}

static void test_mount_fails(void **state)
{
	(void)state;
	write_daemon("cachefuse", "eval \"echo ERROR 4 no such bucket: create it >&$fd\"; exit 4");
	start();
	await_failed(post_mount("/proc", 0), EXIT_ORIGIN, "no such bucket: create it");
	expect_end(EXIT_OK);
	assert_false(starts_contain("cachefuse", 0, "\n")); /* once */
}

static void test_worker_fails(void **state)
{
	(void)state;
	write_daemon("cacheworker", "eval \"echo ERROR 5 the tier is foreign >&$fd\"; exit 5");
	start();
	await_failed(post_mount("/proc", 0), EXIT_CACHE, "the tier is foreign");
	expect_end(EXIT_OK);
}

/* Master and worker answer before the first mount is requested, and serve that one, too. */
static void test_begins_at_once(void **state)
{
	(void)state;
	start();
	await("master", "serving", 0);
	await("worker", "serving", 0);
	post_mount("/proc", 0);
	await("mount-1", "serving", 0);
}

/* However long a worker takes to open its tiers, it answers before the keeper ends for want of a mount. */
static void test_waits_for_a_worker(void **state)
{
	int fd;

	(void)state;
	write_daemon("cacheworker", AFTER("go") ": >\"${0%/bin/*}/served\"; " SERVES);
	start_idle(1);
	await("master", "serving", 0);
	await("worker", "starting", 0);
	fd = open(in("go"), O_RDWR | O_CLOEXEC);
	assert_true(fd >= 0);
	expect_end(EXIT_OK);
	assert_int_equal(access(in("served"), F_OK), 0);
	close(fd);
}

/* It is not tried again: the reason is kept for the mount that is about to be requested. */
static void test_reason_waits_for_a_mount(void **state)
{
	struct buf starts = BUF_INIT(65536);

	(void)state;
	write_daemon("cacheworker", "eval \"echo ERROR 5 the tier is foreign >&$fd\"; exit 5");
	start();
	await("worker", "failed", 0);
	await_failed(post_mount("/proc", 0), EXIT_CACHE, "the tier is foreign");
	expect_end(EXIT_OK);
	assert_int_equal(file_read_all(in("cacheworker.starts"), &starts), 0);
	assert_ptr_equal(strchr(starts.data, '\n'), starts.data + starts.len - 1);
	buf_release(&starts);
	assert_int_equal(access(in("cachefuse.starts"), F_OK), -1);
}

/* A daemon that does `then` once the mount's daemon has started. */
static void write_late(const char *name, const char *then)
{
	char serving[256];

	(void)snprintf(serving, sizeof(serving), "%s%s", AFTER("begun"), then);
	write_daemon(name, serving);
	write_daemon("cachefuse", OPENS("begun") SERVES);
}

/* The mount's daemon does not wait for the others' start, nor they for each other's. */
static void test_all_start_at_once(void **state)
{
	(void)state;
	write_late("cachemaster", SERVES);
	write_late("cacheworker", SERVES);
	start();
	post_mount("/proc", 0);
	await("mount-1", "serving", 0);
	await("master", "serving", 0);
	await("worker", "serving", 0);
}

/* Its daemon serves, but the mount is not ready before master and worker are. */
static void test_ready_with_the_last(void **state)
{
	int go;

	(void)state;
	write_daemon("cacheworker", AFTER("go") SERVES);
	start();
	post_mount("/proc", 0);
	test_wait(find("mount-1", "waiting", 0) > 0);
	assert_int_equal(find("mount-1", "serving", 0), -1);
	go = open(in("go"), O_RDWR | O_CLOEXEC);
	assert_true(go >= 0);
	await("mount-1", "serving", 0);
	close(go);
}

static void test_worker_fails_late(void **state)
{
	(void)state;
	write_late("cacheworker", "eval \"echo ERROR 5 the tier is foreign >&$fd\"; exit 5");
	start();
	await_failed(post_mount("/proc", 0), EXIT_CACHE, "the tier is foreign");
	expect_end(EXIT_OK);
	assert_false(starts_contain("cachefuse", 1, "--")); /* once */
	assert_false(starts_contain("cacheworker", 1, "--"));
}

static void test_dies_without_a_word(void **state)
{
	(void)state;
	write_daemon("cachemaster", "kill -SEGV $$");
	start();
	await_failed(post_mount("/proc", 0), EXIT_RUNTIME, "was ended by signal 11");
	expect_end(EXIT_OK);
}

static void test_refuses(void **state)
{
	int second;

	(void)state;
	start();
	post_mount("/proc", 0);
	post_mount("/proc", -EEXIST);
	post_mount("relative", -EINVAL);
	second = fork();
	if (second == 0)
		_exit(keep(0, -1));
	assert_int_equal(waitpid(second, &second, 0) > 0 && WIFEXITED(second), 1);
	assert_int_equal(WEXITSTATUS(second), EXIT_BUSY);
	await("mount-1", "serving", 0); /* the loser took nothing away */
}

/* Daemons that are recognised by their executables: copies of sleep under their names. */
static void stand_still(void)
{
	static const char *const names[] = { "cachemaster", "cacheworker", "cachefuse" };

	(void)snprintf(path_buffer, sizeof(path_buffer),
		"mkdir -p %s/real && for d in cachemaster cacheworker cachefuse; do cp /bin/sleep "
		"%s/real/$d; done",
		dir, dir);
	assert_int_equal(system(path_buffer), 0);
	for (int i = 0; i < 3; i++) {
		char serving[256];

		(void)snprintf(serving, sizeof(serving),
			"eval \"echo READY {} >&$fd; exec $fd>&-\"; exec %s/real/%s 1000", dir,
			names[i]);
		write_daemon(names[i], serving);
	}
}

/* What keeper `pid` left for the next one about its mount: the number of a descriptor in it, or -1 so far. */
static int find_saved_fd(pid_t pid, const char *name)
{
	struct buf text = BUF_INIT(65536);
	char path[SOCKET_PATH_MAX];
	json_t *json;
	const json_t *mount;
	int fd = -1;

	assert_int_equal(file_read_all(in_run("keeper.json", path), &text), 0);
	json = json_loadb(buf_str(&text), text.len, 0, NULL);
	mount = json_array_get(json_object_get(json, "mounts"), 0);
	if (json_integer_value(json_object_get(json, "keeper")) == pid &&
		json_integer_value(json_object_get(mount, "pid")) > 0)
		fd = (int)json_integer_value(json_object_get(json_object_get(mount, "its"), name));
	json_decref(json);
	buf_release(&text);
	return fd;
}

static int saved_fd(pid_t pid, const char *name)
{
	int fd;

	test_wait((fd = find_saved_fd(pid, name)) >= 0);
	return fd;
}

static void kill_keeper(void)
{
	assert_int_equal(kill(keeper, SIGKILL), 0);
	assert_int_equal(waitpid(keeper, NULL, 0), keeper);
}

/* Killed, its daemons go on; the next one finds and keeps them, however often, and gives no number twice. */
static void test_recovers(void **state)
{
	pid_t master;
	pid_t worker;
	pid_t mount;
	int fuse;
	int slots;

	(void)state;
	stand_still();
	start();
	post_mount("/proc", 0);
	mount = await("mount-1", "serving", 0);
	master = await("master", "serving", 0);
	worker = await("worker", "serving", 0);
	fuse = saved_fd(keeper, "fuse");
	slots = saved_fd(keeper, "slots");
	for (int n = 0; n < 2; n++) {
		kill_keeper();
		assert_int_equal(kill(mount, 0), 0);
		start();
		assert_int_equal(await("mount-1", "serving", 0), mount);
		assert_int_equal(await("master", "serving", 0), master);
		assert_int_equal(await("worker", "serving", 0), worker);
		/* They are the daemon's, whatever number they have in the keeper that recovered it. */
		assert_int_equal(saved_fd(keeper, "fuse"), fuse);
		assert_int_equal(saved_fd(keeper, "slots"), slots);
	}
	assert_int_equal(post_mount("/sys", 0), 2);
	await("mount-2", "serving", 0);
	assert_int_equal(kill(mount, SIGKILL), 0);
	assert_int_not_equal(await("mount-1", "serving", 1), mount);
	/* Taken out of the first daemon. */
	assert_true(starts_contain("cachefuse", 2, "--fuse-fd"));
	assert_true(starts_contain("cachefuse", 2, "--slots-fd"));
	/* One of another process is watched as well. */
	assert_int_equal(kill(worker, SIGKILL), 0);
	assert_int_not_equal(await("worker", "serving", 1), worker);
}

/* Keeper and worker die together: readers need the worker, however often its start fails. */
static void test_recovers_without_a_worker(void **state)
{
	pid_t worker;

	(void)state;
	stand_still();
	start();
	post_mount("/proc", 0);
	await("mount-1", "serving", 0);
	worker = await("worker", "serving", 0);
	write_daemon("cacheworker", "eval \"echo ERROR 5 the tier is gone >&$fd\"; exit 5");
	assert_int_equal(kill(keeper, SIGSTOP), 0);
	assert_int_equal(kill(worker, SIGKILL), 0);
	kill_keeper();
	start();
	await("worker", "restarting", 1);
	assert_true(find("mount-1", "serving", 0) > 0);
	assert_true(starts_contain("cacheworker", 1, "--serve-without-tier"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_restarts, setup, teardown),
		cmocka_unit_test_setup_teardown(test_ends_with_last_mount, setup, teardown),
		cmocka_unit_test_setup_teardown(test_unmounted_behind_its_back, setup, teardown),
		cmocka_unit_test_setup_teardown(test_mount_fails, setup, teardown),
		cmocka_unit_test_setup_teardown(test_worker_fails, setup, teardown),
		cmocka_unit_test_setup_teardown(test_begins_at_once, setup, teardown),
		cmocka_unit_test_setup_teardown(test_waits_for_a_worker, setup, teardown),
		cmocka_unit_test_setup_teardown(test_reason_waits_for_a_mount, setup, teardown),
		cmocka_unit_test_setup_teardown(test_all_start_at_once, setup, teardown),
		cmocka_unit_test_setup_teardown(test_ready_with_the_last, setup, teardown),
		cmocka_unit_test_setup_teardown(test_worker_fails_late, setup, teardown),
		cmocka_unit_test_setup_teardown(test_dies_without_a_word, setup, teardown),
		cmocka_unit_test_setup_teardown(test_refuses, setup, teardown),
		cmocka_unit_test_setup_teardown(test_recovers, setup, teardown),
		cmocka_unit_test_setup_teardown(test_recovers_without_a_worker, setup, teardown),
	};

	if (access("/dev/fuse", R_OK | W_OK) != 0) {
		(void)fprintf(stderr, "skipped: /dev/fuse cannot be opened\n");
		return 0;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
