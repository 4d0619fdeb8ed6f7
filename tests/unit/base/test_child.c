/* A daemon that is told to end while it starts: what it says afterwards changes nothing. When one is started again. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/child.h"
#include "base/clock.h"
#include "base/secret.h"
#include "base/watchdog.h"
#include "tests/clock/test_clock.h"

/* Says READY only when it is told to end. $0: made once it can be told; $2: its --ready-fd. It waits for a process that
 * waits for a writer of a fifo: a trap ends `wait` at once. */
#define SCRIPT                                   \
	"mkfifo \"$0.fifo\"; cat \"$0.fifo\" & " \
	"trap 'echo \"READY {}\" > /proc/self/fd/$2; kill $!; exit 0' TERM; : > \"$0\"; wait"

#define NOBODY 65534
#define SOCKET "/run/notify.sock" /* nothing is there */

static void await(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };

	assert_int_equal(poll(&p, 1, -1), 1);
}

static void ready_too_late(void **state)
{
	char dir[] = "/tmp/granary-child-XXXXXX";
	char up[sizeof(dir) + 8];
	char fifo[sizeof(up) + 8];
	struct child child;

	(void)state;
	assert_non_null(mkdtemp(dir));
	assert_true(snprintf(up, sizeof(up), "%s/up", dir) > 0);
	assert_true(snprintf(fifo, sizeof(fifo), "%s.fifo", up) > 0);
	child_init(&child, "late");
	assert_int_equal(child_arg(&child, "/bin/sh"), 0);
	assert_int_equal(child_arg_text(&child, "-c", SCRIPT), 0);
	assert_int_equal(child_arg(&child, "%s", up), 0);
	child_start(&child);
	assert_int_equal(child.state, CHILD_STARTING);
	test_wait(access(up, F_OK) == 0);
	child_end(&child);
	assert_int_equal(child.state, CHILD_ENDING);
	await(child.ready_fd);
	child_on_ready(&child); /* its line comes before its end is seen */
	assert_int_equal(child.state, CHILD_ENDING);
	await(child.pidfd);
	child_on_exit(&child);
	assert_int_equal(child.state, CHILD_STOPPED);
	child_release(&child);
	assert_int_equal(unlink(up), 0);
	assert_int_equal(unlink(fifo), 0);
	assert_int_equal(rmdir(dir), 0);
}

static void start(struct child *child)
{
	child_start(child);
	assert_int_equal(child->state, CHILD_STARTING);
	await(child->ready_fd);
	child_on_ready(child);
	assert_int_equal(child->state, CHILD_SERVING);
}

/* One that served and died is started again soon, then after twice as long each time. */
static void restarts(void **state)
{
	struct child child;

	(void)state;
	child_init(&child, "mortal");
	assert_int_equal(child_arg(&child, "/bin/sh"), 0);
	assert_int_equal(
		child_arg_text(&child, "-c", "echo 'READY {}' > /proc/self/fd/$2; exec sleep 1000"),
		0);
	assert_int_equal(child_arg(&child, "sh"), 0);
	for (uint64_t wait = 100 * CLOCK_MS; wait <= 400 * CLOCK_MS; wait *= 2) {
		uint64_t before;

		start(&child);
		/* However long that took, it did not serve for long. */
		child.since_ns = clock_mono_ns();
		assert_int_equal(kill(child.pid, SIGKILL), 0);
		await(child.pidfd);
		before = clock_mono_ns();
		child_on_exit(&child);
		assert_int_equal(child.state, CHILD_WAITING);
		assert_in_range(child.wake_ns, before + wait, clock_mono_ns() + wait);
	}
	start(&child);
	assert_int_equal(child.restarts, 3);
	child_end(&child);
	await(child.pidfd);
	child_on_exit(&child);
	assert_int_equal(child.state, CHILD_STOPPED);
	child_release(&child);
}

/* One that was adopted, and dies before it has served, said why to another process: it is started again, once. */
static void adopted_too_early(void **state)
{
	struct child child;
	pid_t pid = fork();

	(void)state;
	assert_true(pid >= 0);
	if (pid == 0) {
		(void)pause();
		_exit(0);
	}
	child_init(&child, "adopted");
	assert_int_equal(child_adopt(&child, pid, false), 0);
	assert_int_equal(child.state, CHILD_SERVING);
	assert_int_equal(kill(pid, SIGKILL), 0);
	await(child.pidfd);
	child_on_exit(&child);
	assert_int_equal(child.state, CHILD_WAITING);
	assert_int_equal(child_arg(&child, "/bin/false"), 0);
	child_on_time(&child);
	assert_int_equal(child.state, CHILD_STARTING);
	await(child.pidfd);
	child_on_exit(&child);
	assert_int_equal(child.state, CHILD_FAILED);
	child_end(&child);
	assert_int_equal(child.state, CHILD_STOPPED);
	child_release(&child);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
}

static void start_steady(struct child *child)
{
	child_init(child, "steady");
	assert_int_equal(child_arg(child, "/bin/sh"), 0);
	assert_int_equal(
		child_arg_text(child, "-c", "echo 'READY {}' > /proc/self/fd/$2; exec sleep 1000"),
		0);
	assert_int_equal(child_arg(child, "sh"), 0);
	child->notify = SOCKET;
	start(child);
}

static void end(struct child *child)
{
	child_end(child);
	if (child_running(child)) {
		await(child->pidfd);
		child_on_exit(child);
	}
	assert_int_equal(child->state, CHILD_STOPPED);
	child_release(child);
}

/* It is started again, as if it had died. */
static void a_silent_one_is_killed(void **state)
{
	const uint64_t t = 1000 * CLOCK_SECOND;
	struct child child;

	(void)state;
	start_steady(&child);
	child_beat(&child, t);
	assert_int_equal(child_beat_due(&child), t + WATCHDOG_NS);
	child_check_beat(&child, t + WATCHDOG_NS - 1, false);
	assert_false(child.hung);
	child_beat(&child, t + CLOCK_SECOND);
	child_check_beat(&child, t + WATCHDOG_NS, false);
	assert_false(child.hung);
	child_check_beat(&child, t + CLOCK_SECOND + WATCHDOG_NS, false);
	assert_true(child.hung);
	assert_int_equal(child_beat_due(&child), 0);
	await(child.pidfd);
	child_on_exit(&child);
	assert_int_equal(child.state, CHILD_WAITING);
	assert_non_null(strstr(child.failure.text, "steady did not respond for 5 s"));
	child_on_time(&child);
	assert_int_equal(child_beat_due(&child), 0); /* it may start for longer */
	await(child.ready_fd);
	child_on_ready(&child);
	assert_int_equal(child.state, CHILD_SERVING);
	assert_int_equal(child.restarts, 1);
	end(&child);
}

/* It may hang before its first beat. */
static void beats_are_due_once_it_serves(void **state)
{
	uint64_t before = clock_mono_ns();
	struct child child;
	struct child next;

	(void)state;
	start_steady(&child);
	assert_in_range(
		child_beat_due(&child), before + WATCHDOG_NS, clock_mono_ns() + WATCHDOG_NS);
	child.notify = NULL;
	assert_int_equal(child_beat_due(&child), 0); /* nothing receives them */

	child_init(&next, "adopted");
	next.notify = SOCKET;
	before = clock_mono_ns();
	assert_int_equal(child_adopt(&next, child.pid, true), 0);
	assert_in_range(child_beat_due(&next), before + WATCHDOG_NS, clock_mono_ns() + WATCHDOG_NS);
	child_release(&next);

	child_init(&next, "starting");
	next.notify = SOCKET;
	assert_int_equal(child_adopt(&next, child.pid, false), 0);
	assert_int_equal(child_beat_due(&next), 0);
	before = clock_mono_ns();
	child_set_served(&next);
	assert_in_range(child_beat_due(&next), before + WATCHDOG_NS, clock_mono_ns() + WATCHDOG_NS);
	child_release(&next);
	end(&child);
}

/* All were stopped, the process that watches too: everything has the full time again. */
static void silence_counts_from_when_the_watcher_runs(void **state)
{
	const uint64_t t = 1000 * CLOCK_SECOND;
	struct child child;

	(void)state;
	start_steady(&child);
	child_beat(&child, t);
	child_check_beat(&child, t + 60 * CLOCK_SECOND, true);
	assert_false(child.hung);
	assert_int_equal(child_beat_due(&child), t + 60 * CLOCK_SECOND + WATCHDOG_NS);
	end(&child);
}

static void one_that_is_debugged_is_spared(void **state)
{
	const uint64_t t = 1000 * CLOCK_SECOND;
	struct child child;

	(void)state;
	start_steady(&child);
	child_beat(&child, t);
	assert_int_equal(ptrace(PTRACE_SEIZE, child.pid, NULL, NULL), 0);
	child_check_beat(&child, t + WATCHDOG_NS, false);
	assert_false(child.hung);
	assert_int_equal(ptrace(PTRACE_INTERRUPT, child.pid, NULL, NULL), 0);
	assert_int_equal(waitpid(child.pid, NULL, __WALL), child.pid);
	assert_int_equal(ptrace(PTRACE_DETACH, child.pid, NULL, NULL), 0);
	child_check_beat(&child, t + 2 * WATCHDOG_NS, false);
	assert_true(child.hung);
	end(&child);
}

/* What a service manager gave to this process is not for those that it starts. */
static void its_environment_names_the_socket(void **state)
{
	char dir[] = "/tmp/granary-child-XXXXXX";
	char out[sizeof(dir) + 8];
	char text[64] = "";
	struct child child;
	FILE *f;

	(void)state;
	assert_non_null(mkdtemp(dir));
	assert_true(snprintf(out, sizeof(out), "%s/out", dir) > 0);
	assert_int_equal(setenv("NOTIFY_SOCKET", "/run/systemd/notify", 1), 0);
	assert_int_equal(setenv("WATCHDOG_USEC", "1", 1), 0);
	assert_int_equal(setenv("WATCHDOG_PID", "1", 1), 0);
	child_init(&child, "told");
	assert_int_equal(child_arg(&child, "/bin/sh"), 0);
	assert_int_equal(child_arg_text(&child, "-c",
				 "echo \"$NOTIFY_SOCKET,$WATCHDOG_USEC,$WATCHDOG_PID\" > \"$0\"; "
				 "echo 'READY {}' > /proc/self/fd/$2; exec sleep 1000"),
		0);
	assert_int_equal(child_arg(&child, "%s", out), 0);
	child.notify = SOCKET;
	start(&child);
	f = fopen(out, "r");
	assert_non_null(f);
	assert_non_null(fgets(text, sizeof(text), f));
	assert_string_equal(text, "/run/notify.sock,5000000,\n");
	(void)fclose(f);
	end(&child);
	assert_int_equal(unlink(out), 0);
	assert_int_equal(rmdir(dir), 0);
}

/* By another process of its user, which may not read the path of its program. */
static void a_hidden_one_is_known_by_its_name(void **state)
{
	pid_t asker = fork();
	int status;

	(void)state;
	if (asker == 0) {
		int ready[2];
		char byte;
		pid_t hidden;
		bool known;

		if (pipe(ready) != 0 || (geteuid() == 0 && setresuid(NOBODY, NOBODY, NOBODY) != 0))
			_exit(2);
		hidden = fork();
		if (hidden == 0) {
			(void)prctl(PR_SET_NAME, "cachemaster");
			secret_hide_process();
			if (write(ready[1], "", 1) == 1)
				pause();
			_exit(2);
		}
		known = read(ready[0], &byte, 1) == 1 &&
			child_process_is(hidden, "/usr/bin/cachemaster", 0) &&
			!child_process_is(hidden, "/usr/bin/cachemast", 0) &&
			!child_process_is(hidden, "/usr/bin/cacheworker", 0);
		(void)kill(hidden, SIGKILL); /* our child */
		_exit(!known);
	}
	assert_int_equal(waitpid(asker, &status, 0), asker);
	assert_int_equal(status, 0);
}

/* Its number was used again: the name may be the same, the time of its start is not. */
static void another_one_of_its_name_is_not_it(void **state)
{
	uint64_t started = child_process_started(getpid());
	char name[16];
	char program[32];

	(void)state;
	assert_int_equal(prctl(PR_GET_NAME, name, 0, 0, 0), 0);
	(void)snprintf(program, sizeof(program), "/%s", name);
	assert_true(started > 0);
	assert_true(child_process_is(getpid(), program, started));
	assert_true(child_process_is(getpid(), program, 0));
	assert_false(child_process_is(getpid(), program, started - 1));
}

/* Its parent has not waited for it: its number and its name are still there. */
static void one_that_has_ended_is_none(void **state)
{
	siginfo_t info;
	pid_t pid = fork();

	(void)state;
	if (pid == 0) {
		(void)prctl(PR_SET_NAME, "cachemaster");
		_exit(0);
	}
	assert_int_equal(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0);
	assert_int_equal(child_process_started(pid), 0);
	assert_false(child_process_is(pid, "/usr/bin/cachemaster", 0));
	assert_int_equal(waitpid(pid, NULL, 0), pid);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(adopted_too_early),
		cmocka_unit_test(a_hidden_one_is_known_by_its_name),
		cmocka_unit_test(another_one_of_its_name_is_not_it),
		cmocka_unit_test(one_that_has_ended_is_none),
		cmocka_unit_test(ready_too_late),
		cmocka_unit_test(restarts),
		cmocka_unit_test(a_silent_one_is_killed),
		cmocka_unit_test(beats_are_due_once_it_serves),
		cmocka_unit_test(silence_counts_from_when_the_watcher_runs),
		cmocka_unit_test(one_that_is_debugged_is_spared),
		cmocka_unit_test(its_environment_names_the_socket),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
