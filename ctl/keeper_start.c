/* Starting the keeper of a private cache. See keeper_start.h. */
#include "ctl/keeper_start.h"
#include "base/child.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/exit.h"
#include "base/programs.h"
#include "base/ready.h"
#include "base/watchdog.h"
#include "ctl/fleet.h"
#include "ctl/service.h"

#include <fcntl.h>
#include <inttypes.h>
#include <linux/close_range.h>
#include <linux/nsfs.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/pidfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define READY_FD  3 /* of the keeper */
#define WORDS_MAX 24
#define NUMBER    32
#define END_MS    10000 /* from SIGKILL to its end */

struct words {
	char *argv[WORDS_MAX];
	unsigned int n;
	char program[PATH_MAX + 16];
	char log[PATH_MAX + 32];
	char audit_log[PATH_MAX + 32];
	char numbers[3][NUMBER];
};

static void add(struct words *w, const char *word)
{
	ensure(w->n + 1 < WORDS_MAX);
	w->argv[w->n++] = (char *)(uintptr_t)word; /* execve() changes nothing */
	w->argv[w->n] = NULL;
}

static void add_option(struct words *w, const char *option, const char *value)
{
	add(w, option);
	add(w, value);
}

static void plan(struct words *w, const struct cache_dir *cache,
	const struct keeper_settings *settings, bool recovers)
{
	(void)snprintf(w->log, sizeof(w->log), "%s/log/keeper.log", cache->path); /* both fit */
	(void)snprintf(w->audit_log, sizeof(w->audit_log), "%s/log/audit.log", cache->path);
	(void)snprintf(w->numbers[0], NUMBER, "%" PRIu64 "B", settings->memory);
	(void)snprintf(w->numbers[1], NUMBER, "%" PRIu64 "B", settings->capacity);
	(void)snprintf(w->numbers[2], NUMBER, "%" PRIu64 "ms",
		(uint64_t)(settings->dead_after_ns / CLOCK_MS));
	add(w, w->program);
	add(w, "--private");
	add_option(w, "--cache", cache->path);
	add_option(w, "--run", cache->run);
	add_option(w, "--log-level", settings->log_level);
	add_option(w, "--log-file", w->log);
	add_option(w, "--audit-log", w->audit_log);
	add_option(w, "--memory", w->numbers[0]);
	if (settings->capacity)
		add_option(w, "--capacity", w->numbers[1]);
	if (settings->dead_after_ns)
		add_option(w, "--dead-after", w->numbers[2]);
	if (recovers)
		add(w, "--again");
	add_option(w, "--ready-fd", "3");
}

static int find_program(struct words *w, const char *dir, struct err *e)
{
	char own[PATH_MAX];

	if (!dir && programs_dir(own, e) < 0)
		return e->code;
	(void)snprintf(
		w->program, sizeof(w->program), "%s/cachekeeper", dir ? dir : own); /* fits */
	if (access(w->program, X_OK) != 0)
		return err_set(e, err_errno(),
			"%s cannot be run: %m: install the programs next to cachectl, or set "
			"GRANARY_BIN_DIR",
			w->program);
	return 0;
}

/* The process that a row of keeper.json names, if it runs; 0. */
static pid_t running_of(const json_t *row, const char *field, const char *program)
{
	pid_t pid = (pid_t)json_integer_value(json_object_get(row, field));
	uint64_t started = (uint64_t)json_integer_value(json_object_get(row, "started"));

	return child_process_is(pid, program, started) ? pid : 0;
}

/* A process of the cache that runs; 0: none. */
static pid_t find_running(const json_t *state)
{
	const json_t *row;
	size_t i;

	json_array_foreach (json_object_get(state, "mounts"), i, row) {
		pid_t pid = running_of(row, "daemon", "/cachefuse");

		if (pid)
			return pid;
	}
	json_array_foreach (json_object_get(state, "daemons"), i, row) {
		const char *name = json_string_value(json_object_get(row, "name"));
		char program[64];
		pid_t pid;

		(void)snprintf(
			program, sizeof(program), "/cache%s", name ? name : ""); /* or none */
		pid = running_of(row, "pid", program);
		if (pid)
			return pid;
	}
	return 0;
}

/* Is `fd` another namespace than `path`? */
static bool is_other(int fd, const char *path)
{
	struct stat ours;
	struct stat its;

	return fstat(fd, &its) != 0 || stat(path, &ours) != 0 || its.st_ino != ours.st_ino ||
	       its.st_dev != ours.st_dev;
}

/*
 * Where the mounts are: the keeper of mounts in another mount namespace could not unmount them. -1: this one, as far as this user
 * may know. The process may be another user's, whose number was used again: a namespace that an ordinary user made would show that
 * user's programs, and is not entered.
 */
static int open_namespace(const char *run)
{
	json_t *state = fleet_state(run);
	_cleanup_close_ int users = -1;
	char path[64];
	int fd;

	(void)snprintf(path, sizeof(path), "/proc/%d/ns/mnt", (int)find_running(state)); /* fits */
	json_decref(state);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	users = fd >= 0 && is_other(fd, "/proc/self/ns/mnt") ? ioctl(fd, NS_GET_USERNS) : -1;
	if (users >= 0 && !is_other(users, "/proc/self/ns/user"))
		return fd;
	cleanup_close(&fd);
	return -1;
}

static void enter_namespace(int fd, int ready_fd)
{
	struct err e = ERR_INIT;

	if (setns(fd, CLONE_NEWNS) == 0)
		return;
	(void)err_set(&e, -EXDEV,
		"the processes of this cache are in another mount namespace, which cannot be "
		"entered: %m: run the command there, or give another --cache");
	_exit(ready_error(ready_fd, "cachekeeper", EXIT_RUNTIME, &e));
}

/* In the forked child, which outlives this command. `namespace` -1: that of this command. */
_Noreturn static void run(const struct words *w, int namespace, int ready_fd)
{
	int null;
	int out;

	if (namespace >= 0)
		enter_namespace(namespace, ready_fd);
	/* Where this command has no standard input or output, any of these has its number. */
	ready_fd = fcntl(ready_fd, F_DUPFD_CLOEXEC, READY_FD + 1);
	null = open("/dev/null", O_RDWR); // NOLINT(android-cloexec-open): becomes stdin
	out = open(w->log, O_WRONLY | O_CREAT | O_APPEND,
		0600);  // NOLINT(android-cloexec-open): stdout
	(void)setsid(); /* a child is no group leader: cannot fail */
	(void)dup2(null, STDIN_FILENO);
	(void)dup2(out >= 0 ? out : null, STDOUT_FILENO);
	(void)dup2(out >= 0 ? out : null, STDERR_FILENO);
	(void)dup2(ready_fd, READY_FD);
	(void)close_range(READY_FD + 1, UINT_MAX, 0); /* what this command has open */
	if (chdir("/") == 0)
		(void)execve(w->program, w->argv, environ);
	_exit(EXIT_RUNTIME);
}

/* The first line, without its end; a process that still has the other end open does not delay it. */
static ssize_t read_line(int fd, char *line, size_t size)
{
	size_t len = 0;

	while (len + 1 < size) {
		ssize_t n = read(fd, line + len, size - 1 - len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			break;
		len += (size_t)n;
		if (memchr(line + len - n, '\n', (size_t)n))
			break;
	}
	line[len] = '\0';
	line[strcspn(line, "\n")] = '\0';
	return (ssize_t)len;
}

int keeper_start(const struct cache_dir *cache, const struct keeper_settings *settings,
	const char *dir, bool recovers, struct err *e)
{
	char line[ERR_TEXT_MAX + 64];
	struct words words = { .n = 0 };
	_cleanup_close_ int namespace = -1;
	const char *json = NULL;
	int status = EXIT_RUNTIME;
	int ready[2];
	pid_t pid;

	if (find_program(&words, dir, e) < 0)
		return EXIT_RUNTIME;
	if (cache_dir_make_run(cache, e) < 0)
		return EXIT_CACHE;
	plan(&words, cache, settings, recovers);
	namespace = open_namespace(cache->run);
	if (pipe2(ready, O_CLOEXEC) != 0) {
		(void)err_set(e, err_errno(),
			"no descriptors: %m: raise the limit of open files (ulimit -n)");
		return EXIT_RUNTIME;
	}
	pid = fork();
	if (pid == 0)
		run(&words, namespace, ready[1]);
	(void)close(ready[1]); /* the keeper's end */
	if (pid < 0)
		(void)err_set(e, err_errno(),
			"no process can be started: %m: raise the limit of processes (ulimit -u)");
	else if (read_line(ready[0], line, sizeof(line)) == 0 ||
		 ready_parse(line, &json, &status, e) < 0)
		(void)err_set(e, -EIO, "the mount keeper ended at once: its log is %s", words.log);
	(void)close(ready[0]); /* read only */
	if (!json && pid > 0)
		(void)waitpid(pid, NULL, 0); /* its line has said why */
	return json ? EXIT_OK : status;
}

/* ---- one more, where one was before ---------------------------------------------------------- */

/* False: no keeper of a private cache was killed there. */
static bool take_settings(
	const json_t *state, const char *run, struct cache_dir *cache, struct keeper_settings *out)
{
	const char *path = json_string_value(json_object_get(state, "cache"));

	if (!path || !json_is_true(json_object_get(state, "private")))
		return false;
	(void)snprintf(cache->path, sizeof(cache->path), "%s", path);
	(void)snprintf(cache->run, sizeof(cache->run), "%s", run); /* one of ours */
	*out = (struct keeper_settings){
		.capacity = (uint64_t)json_integer_value(json_object_get(state, "capacity")),
		.memory = (uint64_t)json_integer_value(json_object_get(state, "memory")),
		.dead_after_ns =
			(uint64_t)json_integer_value(json_object_get(state, "dead_after_ms")) *
			CLOCK_MS,
		.log_level = json_string_value(json_object_get(state, "log_level")),
	};
	return out->log_level && out->memory > 0;
}

int keeper_succeed(const char *run, const char *dir, struct err *e)
{
	json_t *state = fleet_state(run);
	struct keeper_settings settings;
	struct cache_dir cache = { 0 };
	int status = EXIT_RUNTIME;

	if (take_settings(state, run, &cache, &settings))
		status = keeper_start(&cache, &settings, dir, true, e);
	else
		(void)err_set(
			e, -ENOENT, "%s has no state of a keeper that could be recovered", run);
	json_decref(state);
	return status;
}

void keeper_end_hung(const char *run)
{
	_cleanup_close_ int fd = -1;
	char socket[SOCKET_PATH_MAX];
	struct pollfd p = { .events = POLLIN };
	pid_t pid;

	if (service_is_run(run) || service_path(run, "keeper.sock", socket) < 0 ||
		admin_call(socket, NULL, "/v1/mount?id=0", NULL, WATCHDOG_NS, NULL, NULL) !=
			-ETIMEDOUT)
		return;
	pid = fleet_listener(socket);
	fd = pid > 0 ? pidfd_open(pid, 0) : -1;
	if (fd < 0 || !child_process_is(pid, "/cachekeeper", 0))
		return;
	(void)fprintf(stderr,
		"cachectl: the mount keeper (pid %d) does not respond: it is replaced\n", (int)pid);
	(void)pidfd_send_signal(fd, SIGKILL, NULL, 0); /* gone already: fine */
	p.fd = fd;
	(void)poll(&p, 1, END_MS); /* then its lock is free */
}

int keeper_revive(const char *run)
{
	struct err e = ERR_INIT;
	int status;

	if (fleet_alive(run, "keeper.sock"))
		return 0;
	if (service_is_run(run))
		return -ENOENT;
	status = keeper_succeed(run, NULL, &e);
	if (status == EXIT_OK)
		return 0;
	return status == EXIT_BUSY ? -EBUSY : -ENOENT; /* BUSY: another command was faster */
}
