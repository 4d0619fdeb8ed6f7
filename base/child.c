/* A daemon that is started again when it dies. See child.h. */
#include "base/child.h"
#include "base/capabilities.h"
#include "base/alive.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/notify.h"
#include "base/ready.h"
#include "base/watchdog.h"

#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define CHILD_MAGIC     0x43484c44u
#define CHILD_WORDS_MAX (CHILD_ARGS_MAX + 2 * CHILD_FDS_MAX + 6)
#define CHILD_LOG_MAX   (16u << 20) /* a longer log is moved aside at the next start */
#define COMM_CHARS      15          /* of a process's name, of which the kernel cuts the rest */

static const char *const state_names[CHILD_STATES] = {
	[CHILD_STOPPED] = "stopped",
	[CHILD_STARTING] = "starting",
	[CHILD_SERVING] = "serving",
	[CHILD_WAITING] = "restarting",
	[CHILD_ENDING] = "ending",
	[CHILD_FAILED] = "failed",
};

/* allowed[from] has a bit per state that may follow. */
static const unsigned int allowed[CHILD_STATES] = {
	[CHILD_STOPPED] = 1u << CHILD_STARTING | 1u << CHILD_SERVING | 1u << CHILD_FAILED |
			  1u << CHILD_WAITING,
	[CHILD_STARTING] = 1u << CHILD_SERVING | 1u << CHILD_WAITING | 1u << CHILD_FAILED |
			   1u << CHILD_ENDING | 1u << CHILD_STOPPED,
	[CHILD_SERVING] =
		1u << CHILD_WAITING | 1u << CHILD_ENDING | 1u << CHILD_STOPPED | 1u << CHILD_FAILED,
	[CHILD_WAITING] = 1u << CHILD_STARTING | 1u << CHILD_STOPPED | 1u << CHILD_WAITING,
	[CHILD_ENDING] = 1u << CHILD_STOPPED,
	[CHILD_FAILED] = 1u << CHILD_STOPPED,
};

const char *child_state_name(enum child_state state)
{
	return state_names[state];
}

static void set_state(struct child *child, enum child_state state)
{
	ensure(allowed[child->state] >> state & 1);
	child->state = state;
	child->since_ns = clock_mono_ns();
	child->wake_ns = 0;
}

void child_init(struct child *child, const char *name)
{
	*child = (struct child){
		.magic = CHILD_MAGIC,
		.alive_fd = -1,
		.pidfd = -1,
		.ready_fd = -1,
		.backoff = { .min_ns = 100 * CLOCK_MS, .max_ns = 5 * CLOCK_SECOND },
		.kill_ns = CHILD_KILL_NS,
		.line = BUF_INIT(4096),
	};
	(void)snprintf(child->name, sizeof(child->name), "%s", name); /* names are ours and short */
}

static void drop_process(struct child *child)
{
	cleanup_close(&child->pidfd);
	cleanup_close(&child->ready_fd);
	child->pidfd = -1;
	child->ready_fd = -1;
	child->pid = 0;
	child->started = 0;
	buf_clear(&child->line);
}

void child_release(struct child *child)
{
	CHECK_MAGIC(child, CHILD_MAGIC);
	drop_process(child);
	for (unsigned int i = 0; i < child->n_args; i++)
		free(child->args[i]);
	free(child->log_path);
	buf_release(&child->line);
	child->magic = 0;
}

int child_arg(struct child *child, const char *fmt, ...)
{
	va_list ap;
	char *text = NULL;
	int n;

	if (child->n_args >= CHILD_ARGS_MAX)
		return -E2BIG;
	va_start(ap, fmt);
	n = vasprintf(&text, fmt, ap);
	va_end(ap);
	if (n < 0)
		return -ENOMEM;
	child->args[child->n_args++] = text;
	return 0;
}

int child_arg_text(struct child *child, const char *option, const char *value)
{
	int r = child_arg(child, "%s", option);

	return r == 0 ? child_arg(child, "%s", value) : r;
}

int child_arg_number(struct child *child, const char *option, uint64_t value)
{
	int r = child_arg(child, "%s", option);

	return r == 0 ? child_arg(child, "%" PRIu64, value) : r;
}

int child_arg_size(struct child *child, const char *option, uint64_t bytes)
{
	int r = child_arg(child, "%s", option);

	return r == 0 ? child_arg(child, "%" PRIu64 "B", bytes) : r;
}

void child_keep_fd(struct child *child, const char *option, int fd)
{
	ensure(child->n_keep < CHILD_FDS_MAX);
	child->keep[child->n_keep].option = option;
	child->keep[child->n_keep++].fd = fd;
}

/* ---- starting -------------------------------------------------------------------------------- */

static bool old_log(const char *path, char out[PATH_MAX])
{
	return snprintf(out, PATH_MAX, "%s.1", path) < PATH_MAX;
}

static void rotate_log(const char *path)
{
	char old[PATH_MAX];
	struct stat st;

	if (stat(path, &st) != 0 || st.st_size < CHILD_LOG_MAX)
		return;
	if (old_log(path, old))
		(void)rename(path, old); /* else it grows on; no reason not to start */
}

void child_remove_log(const struct child *child)
{
	char old[PATH_MAX];

	if (!child->log_path)
		return;
	(void)unlink(child->log_path); /* or there is none */
	if (old_log(child->log_path, old))
		(void)unlink(old); /* most have none */
}

/* In the new process: only calls that are safe after fork() of a threaded process. */
_Noreturn static void exec_child(const struct child *child, char **argv, char **envp, int ready_fd)
{
	const struct sigaction plain = { .sa_handler = SIG_DFL };
	sigset_t none;
	int null = open("/dev/null", O_RDWR); // NOLINT(android-cloexec-open): becomes stdin

	sigemptyset(&none);
	(void)sigprocmask(SIG_SETMASK, &none, NULL); /* cannot fail */
	(void)sigaction(SIGPIPE, &plain, NULL);      /* cannot fail */
	if (null >= 0)
		(void)dup2(null, STDIN_FILENO);
	(void)fcntl(ready_fd, F_SETFD, 0);
	for (unsigned int i = 0; i < child->n_keep; i++)
		(void)fcntl(child->keep[i].fd, F_SETFD, 0);
	if (child->adoptable) /* fails without Yama, which then forbids nothing */
		(void)prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
	if (child->capabilities && capabilities_keep(child->capabilities) < 0)
		_exit(126);
	(void)execve(argv[0], argv, envp);
	_exit(127);
}

/* Variables that are the daemon's own: what this process has under these names is for itself. */
static const char *const own_variables[] = { ALIVE_ENV, NOTIFY_SOCKET_ENV, NOTIFY_WATCHDOG_ENV,
	NOTIFY_WATCHDOG_PID_ENV };

static bool is_own_variable(const char *entry)
{
	for (size_t i = 0; i < ARRAY_SIZE(own_variables); i++) {
		size_t len = strlen(own_variables[i]);

		if (strncmp(entry, own_variables[i], len) == 0 && entry[len] == '=')
			return true;
	}
	return false;
}

#define SET_MAX 3u /* variables that are set */

struct environment {
	char **all; /* NULL at the end; those behind the first n are this process's */
	unsigned int n;
};

static void environment_release(struct environment *env)
{
	for (unsigned int i = 0; env->all && i < env->n; i++)
		free(env->all[i]);
	free(env->all);
}

__printf(2, 3) static int environment_set(struct environment *env, const char *fmt, ...)
{
	char *entry = NULL;
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vasprintf(&entry, fmt, ap);
	va_end(ap);
	if (n < 0)
		return -ENOMEM;
	env->all[env->n++] = entry;
	return 0;
}

static int make_environment(const struct child *child, struct environment *env)
{
	size_t n = 0;
	size_t out;
	int r;

	while (environ[n])
		n++;
	env->all = calloc(n + SET_MAX + 1, sizeof(*env->all));
	if (!env->all)
		return -ENOMEM;
	r = environment_set(env, ALIVE_ENV "=%d", child->alive_fd); /* -1: watches nothing */
	if (r == 0 && child->notify)
		r = environment_set(env, NOTIFY_SOCKET_ENV "=%s", child->notify);
	if (r == 0 && child->notify)
		r = environment_set(
			env, NOTIFY_WATCHDOG_ENV "=%" PRIu64, (uint64_t)(WATCHDOG_NS / 1000));
	out = env->n;
	for (size_t i = 0; i < n; i++)
		if (!is_own_variable(environ[i]))
			env->all[out++] = environ[i];
	return r;
}

/* The words of the command line; numbers are printed into `numbers`. */
static void make_argv(const struct child *child, int ready_fd, char *argv[CHILD_WORDS_MAX],
	char numbers[CHILD_FDS_MAX + 1][12])
{
	unsigned int n = child->n_args;

	memcpy(argv, child->args, n * sizeof(*argv));
	if (child->again && child->served)
		argv[n++] = (char *)(uintptr_t)child->again; /* execve() changes nothing */
	if (child->log_path) {
		argv[n++] = (char *)(uintptr_t) "--log-file"; /* execve() changes nothing */
		argv[n++] = child->log_path;
	}
	for (unsigned int i = 0; i < child->n_keep; i++) {
		if (!child->keep[i].option)
			continue;
		(void)snprintf(numbers[i], sizeof(numbers[i]), "%d", child->keep[i].fd); /* fits */
		argv[n++] = (char *)(uintptr_t)child->keep[i].option;
		argv[n++] = numbers[i];
	}
	(void)snprintf(numbers[CHILD_FDS_MAX], sizeof(numbers[0]), "%d", ready_fd); /* fits */
	argv[n++] = (char *)(uintptr_t) "--ready-fd";
	argv[n++] = numbers[CHILD_FDS_MAX];
	argv[n] = NULL;
}

static int spawn(struct child *child, int ready_fd)
{
	char numbers[CHILD_FDS_MAX + 1][12];
	char *argv[CHILD_WORDS_MAX];
	_cleanup_(environment_release) struct environment env = { 0 };
	pid_t pid;

	if (make_environment(child, &env) < 0)
		return -ENOMEM;
	if (child->log_path)
		rotate_log(child->log_path);
	make_argv(child, ready_fd, argv, numbers);
	pid = fork();
	if (pid == 0)
		exec_child(child, argv, env.all, ready_fd);
	if (pid < 0)
		return err_errno();
	child->pid = pid;
	child->started = child_process_started(pid);
	child->pidfd = pidfd_open(pid, 0);
	return child->pidfd < 0 ? err_errno() : 0;
}

void child_start_later(struct child *child)
{
	uint64_t wait_ns = backoff_next(&child->backoff);

	set_state(child, CHILD_WAITING);
	child->wake_ns = clock_mono_ns() + wait_ns;
	log_warn("daemon restarts", "name=%s in_ms=%" PRIu64 " restarts=%" PRIu64 " cause=\"%s\"",
		child->name, (uint64_t)(wait_ns / CLOCK_MS), child->restarts, child->failure.text);
}

/*
 * Will not serve this time: for good when it never did, else after a while. One that another process started may have ended with
 * that, and its reason was said there: it is started once more.
 */
static void give_up(struct child *child)
{
	drop_process(child);
	if (child->served || child->adopted)
		child_start_later(child);
	else
		set_state(child, CHILD_FAILED);
}

void child_start(struct child *child)
{
	int ready[2];
	int r;

	CHECK_MAGIC(child, CHILD_MAGIC);
	ensure(!child_running(child));
	if (child->served)
		child->restarts++;
	set_state(child, CHILD_STARTING);
	child->exit_status = EXIT_RUNTIME;
	child->adopted = false;
	child->told = false;
	child->killed = false;
	child->hung = false;
	if (access(child->args[0], X_OK) != 0) {
		(void)err_set(&child->failure, err_errno(),
			"%s cannot be run: %m: install the programs next to cachectl, or set "
			"GRANARY_BIN_DIR",
			child->args[0]);
		give_up(child);
		return;
	}
	if (pipe2(ready, O_CLOEXEC) != 0) {
		(void)err_set(&child->failure, err_errno(),
			"%s cannot be started: %m: raise the limit of open files (ulimit -n)",
			child->name);
		give_up(child);
		return;
	}
	child->ready_fd = ready[0];
	(void)fcntl(ready[0], F_SETFL, O_NONBLOCK);     /* a descriptor just made */
	r = buf_reserve(&child->line, child->line.max); /* what it says is not lost later */
	if (r == 0)
		r = spawn(child, ready[1]);
	(void)close(ready[1]); /* the daemon's end */
	if (r < 0) {
		(void)err_set(&child->failure, r,
			"%s cannot be started: %s: raise the limits of processes and memory "
			"(ulimit -u, ulimit -v)",
			child->name, err_str(r));
		if (child->pid > 0) { /* started, but not to be watched */
			(void)kill(child->pid, SIGKILL);
			(void)waitpid(child->pid, NULL, 0);
		}
		give_up(child);
		return;
	}
	log_info("daemon started", "name=%s pid=%d", child->name, (int)child->pid);
}

void child_set_served(struct child *child)
{
	child->served = true;
	child->beat_ns = clock_mono_ns(); /* the next one is due WATCHDOG_NS from now */
}

int child_adopt(struct child *child, pid_t pid, bool served)
{
	int fd = pidfd_open(pid, 0);

	if (fd < 0)
		return err_errno();
	child->pid = pid;
	child->started = child_process_started(pid);
	child->pidfd = fd;
	child->adopted = true;
	child->served = false;
	child->told = false;
	child->hung = false;
	if (served)
		child_set_served(child);
	child->exit_status = EXIT_RUNTIME;
	set_state(child, CHILD_SERVING);
	log_info("daemon recovered", "name=%s pid=%d", child->name, (int)pid);
	return 0;
}

/* Of /proc/PID/stat: "PID (NAME) STATE ...". False: it has ended. */
static bool read_stat(pid_t pid, struct buf *text, char **ret_name, char **ret_state)
{
	char path[64];
	char *name;
	char *end;

	(void)snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid); /* fits */
	if (pid <= 0 || file_read_all(path, text) < 0)
		return false;
	name = strchr(buf_str(text), '(');
	end = strrchr(buf_str(text), ')');
	if (!name || !end || end[1] != ' ' || end[2] == 'Z' || end[2] == 'X')
		return false;
	*end = '\0';
	*ret_name = name + 1;
	*ret_state = end + 2;
	return true;
}

/* The 22nd field; the state is the third. */
static uint64_t started_in(const char *state)
{
	for (unsigned int field = 3; state && field < 22; field++) {
		state = strchr(state, ' ');
		state = state ? state + 1 : NULL;
	}
	return state ? strtoull(state, NULL, 10) : 0;
}

uint64_t child_process_started(pid_t pid)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(1024);
	char *name;
	char *state;

	return read_stat(pid, &text, &name, &state) ? started_in(state) : 0;
}

bool child_process_is(pid_t pid, const char *program, uint64_t started)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(1024);
	const char *expected = strrchr(program, '/');
	char *name;
	char *state;

	return expected && read_stat(pid, &text, &name, &state) &&
	       strncmp(name, expected + 1, COMM_CHARS) == 0 &&
	       (started == 0 || started == started_in(state));
}

void child_end(struct child *child)
{
	switch (child->state) {
	case CHILD_STARTING:
	case CHILD_SERVING:
		set_state(child, CHILD_ENDING);
		child->wake_ns = clock_mono_ns() + child->kill_ns;
		(void)pidfd_send_signal(
			child->pidfd, SIGTERM, NULL, 0); /* gone already: seen by its pidfd */
		break;
	case CHILD_WAITING:
	case CHILD_FAILED:
		set_state(child, CHILD_STOPPED);
		break;
	case CHILD_STOPPED:
	case CHILD_ENDING:
	case CHILD_STATES:
		break;
	}
}

/* ---- events ---------------------------------------------------------------------------------- */

static const char *log_of(const struct child *child)
{
	return child->log_path ? child->log_path : "its standard error";
}

/* How it died, in words; true when it ended of itself with status 0. */
static bool describe_exit(struct child *child, const siginfo_t *info)
{
	if (child->hung) {
		(void)err_set(&child->failure, -ETIMEDOUT,
			"%s did not respond for %llu s and was killed: its log is %s", child->name,
			WATCHDOG_NS / CLOCK_SECOND, log_of(child));
		return false;
	}
	if (child->adopted) {
		(void)err_set(&child->failure, -EIO,
			"%s, which an earlier process started, ended: its log is %s", child->name,
			log_of(child));
		return false;
	}
	if (info->si_code == CLD_EXITED && info->si_status == 0)
		return true;
	if (info->si_code == CLD_EXITED) {
		if (info->si_status >= EXIT_RUNTIME && info->si_status <= EXIT_UNCHANGED)
			child->exit_status = info->si_status;
		if (!child->told)
			(void)err_set(&child->failure, -EIO,
				"%s ended with status %d: its log is %s", child->name,
				info->si_status, log_of(child));
	} else {
		(void)err_set(&child->failure, -EIO,
			"%s was ended by signal %d (%s): its log is %s", child->name,
			info->si_status,
			strsignal(info->si_status), // NOLINT(concurrency-mt-unsafe): loop only
			log_of(child));
	}
	return false;
}

void child_on_exit(struct child *child)
{
	siginfo_t info = { 0 };
	bool done;

	CHECK_MAGIC(child, CHILD_MAGIC);
	if (child->state == CHILD_STARTING)
		child_on_ready(child); /* its last line may still be in the pipe */
	if (!child->adopted && waitid(P_PIDFD, (id_t)child->pidfd, &info, WEXITED) != 0)
		info.si_code = CLD_KILLED;
	done = describe_exit(child, &info);
	log_info("daemon ended", "name=%s pid=%d %s=%d", child->name, (int)child->pid,
		info.si_code == CLD_EXITED ? "exit" : "signal", info.si_status);
	if (child->state == CHILD_SERVING && clock_mono_ns() - child->since_ns > CHILD_STEADY_NS)
		backoff_reset(&child->backoff);
	if (child->state == CHILD_ENDING || (done && child->served && !child->endless)) {
		drop_process(child);
		set_state(child, CHILD_STOPPED);
		return;
	}
	if (done)
		(void)err_set(&child->failure, -EIO, "%s ended unexpectedly: its log is %s",
			child->name, log_of(child));
	give_up(child);
}

static void take_line(struct child *child, const char *line)
{
	const char *json = NULL;
	struct err e = ERR_INIT;
	int status = EXIT_RUNTIME;

	if (ready_parse(line, &json, &status, &e) < 0) {
		(void)err_set(&child->failure, -EPROTO,
			"%s did not report READY (\"%.100s\"); use the same version of all "
			"programs",
			child->name, line);
		return;
	}
	if (!json) {
		child->failure = e;
		child->told = true;
		child->exit_status = status;
		return; /* its end follows */
	}
	if (child->state != CHILD_STARTING)
		return; /* told to end meanwhile */
	child_set_served(child);
	set_state(child, CHILD_SERVING);
	log_info("daemon serves", "name=%s pid=%d", child->name, (int)child->pid);
}

void child_on_ready(struct child *child)
{
	char *newline;

	CHECK_MAGIC(child, CHILD_MAGIC);
	while (child->ready_fd >= 0) {
		char part[512];
		ssize_t n = read(child->ready_fd, part, sizeof(part));

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			return;
		if (n > 0 && buf_append(&child->line, part, (size_t)n) < 0)
			n = 0; /* too long a line: takes what fits */
		newline = child->line.data ? strchr(child->line.data, '\n') : NULL;
		if (n > 0 && !newline)
			return;               /* more will come, or the end */
		(void)close(child->ready_fd); /* read only */
		child->ready_fd = -1;
		if (newline) {
			*newline = '\0';
			take_line(child, child->line.data);
		}
	}
}

void child_on_time(struct child *child)
{
	CHECK_MAGIC(child, CHILD_MAGIC);
	if (child->state == CHILD_WAITING) {
		child_start(child);
	} else if (child->state == CHILD_ENDING) {
		log_warn("daemon does not end", "name=%s pid=%d", child->name, (int)child->pid);
		(void)pidfd_send_signal(
			child->pidfd, SIGKILL, NULL, 0); /* gone already: seen by its pidfd */
		child->killed = true;
		child->wake_ns = 0;
	}
}

/* ---- beats ----------------------------------------------------------------------------------- */

void child_beat(struct child *child, uint64_t now_ns)
{
	child->beat_ns = now_ns;
}

/* A debugger stops it, and may for as long as its user likes. */
static bool is_traced(pid_t pid)
{
	_cleanup_(buf_release) struct buf status = BUF_INIT(8192);
	char path[64];
	const char *tracer;

	(void)snprintf(path, sizeof(path), "/proc/%d/status", (int)pid); /* fits */
	if (file_read_all(path, &status) < 0)
		return false;
	tracer = strstr(buf_str(&status), "TracerPid:\t");
	return tracer && tracer[strlen("TracerPid:\t")] != '0';
}

uint64_t child_beat_due(const struct child *child)
{
	return child->state == CHILD_SERVING && child->served && child->notify && !child->hung
		       ? child->beat_ns + WATCHDOG_NS
		       : 0;
}

void child_check_beat(struct child *child, uint64_t now_ns, bool late)
{
	uint64_t due = child_beat_due(child);

	CHECK_MAGIC(child, CHILD_MAGIC);
	if (due == 0)
		return;
	if (late || (now_ns >= due && is_traced(child->pid))) {
		child->beat_ns = now_ns;
		return;
	}
	if (now_ns < due)
		return;
	log_error("daemon hangs", "name=%s pid=%d next=\"it is killed and started again\"",
		child->name, (int)child->pid);
	child->hung = true;
	(void)pidfd_send_signal(
		child->pidfd, SIGKILL, NULL, 0); /* gone already: seen by its pidfd */
}
