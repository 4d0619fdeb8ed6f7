/*
 * Supervisor and keeper with stand-ins for the daemons: shell scripts that say READY or ERROR and
 * then sleep. Their process ids and starts are seen through the supervisor's own answers.
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
#include "ctl/supervisor.h"
#include "tests/clock/test_clock.h"

#define DEADLINE (60 * CLOCK_SECOND)

static char dir[64];
static char path_buffer[256];
static struct cache_dir cache;
static pid_t supervisor;

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

/* The real one, of the same build: $(B)/unit/ctl/test_supervisor, $(B)/bin/cachekeeper. */
static void link_keeper(void)
{
	char self[128];
	char target[192];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);

	assert_true(n > 0);
	self[n] = '\0';
	for (int up = 0; up < 3; up++)
		*strrchr(self, '/') = '\0';
	(void)snprintf(target, sizeof(target), "%s/bin/cachekeeper", self);
	assert_int_equal(access(target, X_OK), 0);
	assert_int_equal(symlink(target, in("bin/cachekeeper")), 0);
}

static int setup(void **state)
{
	struct err e = ERR_INIT;

	(void)state;
	(void)snprintf(dir, sizeof(dir), "/var/tmp/granary-sv.XXXXXX");
	if (!mkdtemp(dir))
		return -1;
	setenv("GRANARY_RUN_DIR", in("run"), 1);
	setenv("GRANARY_BIN_DIR", in("bin"), 1);
	write_daemon("cachemaster", SERVES);
	write_daemon("cacheworker", SERVES);
	write_daemon("cachefuse", SERVES);
	link_keeper();
	if (mkfifo(in("begun"), 0600) != 0 || mkfifo(in("go"), 0600) != 0)
		return -1;
	return cache_dir_open(in("cache"), 0, &cache, &e);
}

static void start_as(bool early, uint64_t idle_ns)
{
	int ready[2];
	char line[8] = "";

	assert_int_equal(pipe(ready), 0);
	supervisor = fork();
	if (supervisor == 0) {
		const struct supervisor_config config = { .cache = cache.path,
			.memory = 1 << 30,
			.log_level = "info",
			.idle_ns = idle_ns,
			.early = early };

		close(ready[0]);
		_exit(supervisor_run(&config, ready[1]));
	}
	close(ready[1]);
	assert_true(read(ready[0], line, sizeof(line) - 1) > 0);
	assert_memory_equal(line, "READY", 5);
	close(ready[0]);
}

static void start(void)
{
	start_as(false, 0);
}

static int teardown(void **state)
{
	char command[128];

	(void)state;
	if (supervisor > 0) {
		kill(supervisor, SIGTERM);
		waitpid(supervisor, NULL, 0);
		supervisor = 0;
	}
	(void)snprintf(command, sizeof(command), "rm -rf %s", dir);
	return system(command);
}

static json_t *ask(const char *method, const char *path, const json_t *body, int expect)
{
	char socket[SOCKET_PATH_MAX];
	json_t *json = NULL;
	struct err e = ERR_INIT;
	int r = admin_call(cache_dir_socket(&cache, "supervisor.sock", socket), method, path, body,
		DEADLINE, &json, &e);

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

	assert_int_equal(waitpid(supervisor, &got, 0), supervisor);
	assert_true(WIFEXITED(got));
	assert_int_equal(WEXITSTATUS(got), status);
	assert_int_equal(access(cache.run, F_OK), -1);
	supervisor = 0;
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
	int r = admin_call(cache_dir_socket(&cache, "supervisor.sock", socket), NULL, path, NULL,
		DEADLINE, &json, &e);
	bool failed;

	if (r == -EAGAIN) /* as `cachectl mount` does: it is ending */
		return false;
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
	(void)!admin_call(cache_dir_socket(&cache, "supervisor.sock", socket), "POST", path, NULL,
		DEADLINE, NULL, NULL);
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
static void test_early(void **state)
{
	(void)state;
	start_as(true, 0);
	await("master", "serving", 0);
	await("worker", "serving", 0);
	post_mount("/proc", 0);
	await("mount-1", "serving", 0);
}

/* However long a worker takes to open its tiers, it answers before the supervisor ends for want of a mount. */
static void test_early_waits(void **state)
{
	int fd;

	(void)state;
	write_daemon("cacheworker", AFTER("go") ": >\"${0%/bin/*}/served\"; " SERVES);
	start_as(true, 1);
	await("master", "serving", 0);
	await("worker", "starting", 0);
	fd = open(in("go"), O_RDWR | O_CLOEXEC);
	assert_true(fd >= 0);
	expect_end(EXIT_OK);
	assert_int_equal(access(in("served"), F_OK), 0);
	close(fd);
}

/* It ends instead of trying again: the reason is for the mount that will want the daemons. */
static void test_early_fails(void **state)
{
	struct buf starts = BUF_INIT(65536);

	(void)state;
	write_daemon("cacheworker", "eval \"echo ERROR 5 the tier is foreign >&$fd\"; exit 5");
	start_as(true, 0);
	expect_end(EXIT_OK);
	assert_int_equal(file_read_all(in("cacheworker.starts"), &starts), 0);
	assert_ptr_equal(strchr(starts.data, '\n'), starts.data + starts.len - 1);
	buf_release(&starts);
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

static bool mount_is(const char *process, const char *state)
{
	char socket[SOCKET_PATH_MAX];
	json_t *json = NULL;
	bool is = admin_call(cache_dir_socket(&cache, process, socket), NULL, "/v1/mount?id=1",
			  NULL, DEADLINE, &json, NULL) == 0 &&
		  strcmp(json_string_value(json_object_get(json, "state")), state) == 0;

	json_decref(json);
	return is;
}

static void test_ready_with_the_last(void **state)
{
	int go;

	(void)state;
	write_daemon("cacheworker", AFTER("go") SERVES);
	start();
	post_mount("/proc", 0);
	test_wait(mount_is("keeper.sock", "serving"));
	assert_true(mount_is("supervisor.sock", "waiting"));
	go = open(in("go"), O_RDWR | O_CLOEXEC);
	assert_true(go >= 0);
	test_wait(mount_is("supervisor.sock", "serving"));
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
	const struct supervisor_config config = {
		.cache = cache.path, .memory = 1 << 30, .log_level = "info"
	};

	(void)state;
	start();
	post_mount("/proc", 0);
	post_mount("/proc", -EEXIST);
	post_mount("relative", -EINVAL);
	second = fork();
	if (second == 0)
		_exit(supervisor_run(&config, -1));
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

	assert_int_equal(file_read_all(cache_dir_socket(&cache, "keeper.json", path), &text), 0);
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

/* The keeper alone: its daemons go on, and the next one knows them. */
static void test_keeper_dies(void **state)
{
	pid_t keeper;
	pid_t mount;
	pid_t next;

	(void)state;
	stand_still();
	start();
	post_mount("/proc", 0);
	mount = await("mount-1", "serving", 0);
	keeper = await("keeper", "serving", 0);
	assert_true(saved_fd(keeper, "fuse") >= 0); /* written down */
	assert_int_equal(kill(keeper, SIGKILL), 0);
	next = await("keeper", "serving", 1);
	assert_int_not_equal(next, keeper);
	assert_int_equal(await("mount-1", "serving", 0), mount);
	assert_int_equal(kill(mount, SIGKILL), 0);
	assert_int_not_equal(await("mount-1", "serving", 1), mount);
	assert_true(
		starts_contain("cachefuse", 1, "--fuse-fd")); /* taken out of the first daemon */
}

/* Killed, its daemons go on; the next one finds and keeps them: with the keeper, then without. */
static void test_adopts(void **state)
{
	pid_t worker;
	pid_t keeper;
	pid_t mount;
	int fuse;
	int slots;

	(void)state;
	stand_still();
	start();
	post_mount("/proc", 0);
	mount = await("mount-1", "serving", 0);
	worker = await("worker", "serving", 0);
	keeper = await("keeper", "serving", 0);
	fuse = saved_fd(keeper, "fuse");
	slots = saved_fd(keeper, "slots");
	for (int supervisors = 0; supervisors < 3; supervisors++) {
		assert_int_equal(kill(supervisor, SIGKILL), 0);
		assert_int_equal(waitpid(supervisor, NULL, 0), supervisor);
		if (supervisors > 0)
			assert_int_equal(kill(keeper, SIGKILL), 0);
		assert_int_equal(kill(mount, 0), 0);
		start();
		assert_int_equal(await("mount-1", "serving", 0), mount);
		assert_int_equal(await("worker", "serving", 0), worker);
		if (supervisors == 0)
			assert_int_equal(await("keeper", "serving", 0), keeper);
		else
			assert_int_not_equal(await("keeper", "serving", 0), keeper);
		keeper = await("keeper", "serving", 0);
		/* They are the daemon's, whatever number they have in who adopted it. */
		assert_int_equal(saved_fd(keeper, "fuse"), fuse);
		assert_int_equal(saved_fd(keeper, "slots"), slots);
	}
	assert_int_equal(kill(mount, SIGKILL), 0);
	assert_int_not_equal(await("mount-1", "serving", 1), mount);
	assert_true(
		starts_contain("cachefuse", 1, "--fuse-fd")); /* taken out of the first daemon */
	assert_true(starts_contain("cachefuse", 1, "--slots-fd"));
}

/* ---- what is given to a keeper, which a server of the test stands for ------------------------ */

static struct given {
	struct supervisor s;
	struct mount_request *request;
	struct admin_server *keeper;
	bool give_up; /* while the keeper has the request for the mount */
	int answer;   /* to the end of the mount */
	unsigned int ended;
	enum mount_request_state was; /* when it was to be ended */
} given;

static int take_mount(
	void *arg, const struct admin_request *request, json_t **ret_json, struct err *e)
{
	(void)arg, (void)request, (void)ret_json, (void)e;
	pthread_mutex_lock(&given.s.lock);
	given.request->given_up = given.give_up;
	pthread_mutex_unlock(&given.s.lock);
	return 0;
}

static int end_mount(
	void *arg, const struct admin_request *request, json_t **ret_json, struct err *e)
{
	(void)arg, (void)ret_json;
	pthread_mutex_lock(&given.s.lock);
	given.ended += request->query(request, "give_up") != NULL;
	given.was = given.request->state;
	pthread_mutex_unlock(&given.s.lock);
	return given.answer < 0 ? err_set(e, given.answer, "not ended") : 0;
}

static int know_no_mount(
	void *arg, const struct admin_request *request, json_t **ret_json, struct err *e)
{
	(void)arg, (void)request, (void)ret_json;
	return err_set(e, -ENOENT, "no such mount");
}

static int given_setup(void **state)
{
	static const struct admin_route routes[] = {
		{ "POST", "/v1/mounts", take_mount, NULL },
		{ "POST", "/v1/mount", end_mount, NULL },
		{ "GET", "/v1/mount", know_no_mount, NULL },
		{ 0 },
	};
	json_t *body = json_pack("{s:s, s:s}", "source", "s3://bucket/x", "mountpoint", "/proc");
	char socket[SOCKET_PATH_MAX];
	struct err e = ERR_INIT;
	unsigned int id;

	if (setup(state) != 0)
		return -1;
	given = (struct given){ .s = { .cache = cache, .next_id = 1 } };
	pthread_mutex_init(&given.s.lock, NULL);
	list_init(&given.s.requests);
	assert_int_equal(file_mkdirs(cache.run, 0700), 0);
	assert_int_equal(admin_server_new(cache_dir_socket(&cache, "keeper.sock", socket), routes,
				 NULL, &given.keeper, &e),
		0);
	assert_int_equal(mount_request_add_locked(&given.s, body, NULL, &id, &e), 0);
	json_decref(body);
	given.request = mount_request_find_locked(&given.s, id);
	return 0;
}

static int given_teardown(void **state)
{
	if (given.keeper)
		admin_server_free(given.keeper);
	mount_requests_free(&given.s);
	return teardown(state);
}

static void pass_it(void)
{
	pthread_mutex_lock(&given.s.lock);
	mount_requests_pass_locked(&given.s);
	assert_int_equal(given.request->state, MOUNT_REQUEST_PASSED);
	pthread_mutex_unlock(&given.s.lock);
}

static void fail_it(void)
{
	struct child child = { .exit_status = EXIT_CACHE };

	(void)err_set(&child.failure, -EIO, "the tier is foreign");
	pthread_mutex_lock(&given.s.lock);
	mount_requests_fail_locked(&given.s, &child);
	assert_int_equal(given.request->state, MOUNT_REQUEST_FAILED);
	assert_int_equal(given.request->exit_status, EXIT_CACHE);
	pthread_mutex_unlock(&given.s.lock);
}

static void test_given_up_while_passed(void **state)
{
	(void)state;
	given.give_up = true;
	pass_it();
	assert_int_equal(given.ended, 1);
	assert_int_equal(given.s.given, 0);
	mount_requests_drop_locked(&given.s);
	assert_true(list_empty(&given.s.requests));
}

/* Who asks while the keeper ends the mount hears why. */
static void test_fails_before_it_ends(void **state)
{
	(void)state;
	pass_it();
	assert_int_equal(given.ended, 0);
	assert_int_equal(given.s.given, 1);
	fail_it();
	assert_int_equal(given.ended, 1);
	assert_int_equal(given.was, MOUNT_REQUEST_FAILED);
	assert_int_equal(given.s.given, 0);
}

/* It may be mounted still: the keeper is needed until it says otherwise. */
static void test_not_ended(void **state)
{
	(void)state;
	given.answer = -EBUSY;
	pass_it();
	fail_it();
	assert_int_equal(given.s.given, 1);
}

static void test_ended_before(void **state)
{
	(void)state;
	given.answer = -ENOENT;
	pass_it();
	fail_it();
	assert_int_equal(given.s.given, 0);
}

static const char *query_id(const struct admin_request *request, const char *name)
{
	(void)request;
	return strcmp(name, "id") == 0 ? "1" : NULL;
}

/* The keeper has ended it since the request was looked at. */
static void test_asked_again(void **state)
{
	const struct admin_route *route = supervisor_routes();
	const struct admin_request request = { .path = "/v1/mount", .query = query_id };
	struct err e = ERR_INIT;
	json_t *json = NULL;

	(void)state;
	while (strcmp(route->method, "GET") != 0 || strcmp(route->path, "/v1/mount") != 0)
		route++;
	pass_it();
	assert_int_equal(route->handler(&given.s, &request, &json, &e), -EAGAIN);
	mount_requests_leave_locked(&given.s);
	assert_int_equal(route->handler(&given.s, &request, &json, &e), -ENOENT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_restarts, setup, teardown),
		cmocka_unit_test_setup_teardown(test_ends_with_last_mount, setup, teardown),
		cmocka_unit_test_setup_teardown(test_unmounted_behind_its_back, setup, teardown),
		cmocka_unit_test_setup_teardown(test_mount_fails, setup, teardown),
		cmocka_unit_test_setup_teardown(test_worker_fails, setup, teardown),
		cmocka_unit_test_setup_teardown(test_early, setup, teardown),
		cmocka_unit_test_setup_teardown(test_early_waits, setup, teardown),
		cmocka_unit_test_setup_teardown(test_early_fails, setup, teardown),
		cmocka_unit_test_setup_teardown(test_all_start_at_once, setup, teardown),
		cmocka_unit_test_setup_teardown(test_ready_with_the_last, setup, teardown),
		cmocka_unit_test_setup_teardown(test_worker_fails_late, setup, teardown),
		cmocka_unit_test_setup_teardown(test_dies_without_a_word, setup, teardown),
		cmocka_unit_test_setup_teardown(test_refuses, setup, teardown),
		cmocka_unit_test_setup_teardown(test_keeper_dies, setup, teardown),
		cmocka_unit_test_setup_teardown(test_adopts, setup, teardown),
		cmocka_unit_test_setup_teardown(
			test_given_up_while_passed, given_setup, given_teardown),
		cmocka_unit_test_setup_teardown(
			test_fails_before_it_ends, given_setup, given_teardown),
		cmocka_unit_test_setup_teardown(test_not_ended, given_setup, given_teardown),
		cmocka_unit_test_setup_teardown(test_ended_before, given_setup, given_teardown),
		cmocka_unit_test_setup_teardown(test_asked_again, given_setup, given_teardown),
	};

	if (access("/dev/fuse", R_OK | W_OK) != 0) {
		(void)fprintf(stderr, "skipped: /dev/fuse cannot be opened\n");
		return 0;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
