/*
 * See test_clock.h. Every wait with a timeout that libc offers is wrapped here, for the program and the libraries that
 * it is linked with. A wait is entered into a list with the time at which it ends; the monitor, a thread of its own,
 * ends those that are due and advances the clock when all threads are idle.
 *
 * Idle: twice in a row all threads but the monitor sleep (state S), and none has run in between. A thread that was woken
 * and has no processor yet is in state R, so a busy machine does not make a program look idle.
 *
 * Waits for descriptors are ended by WAKE_SIGNAL, which is blocked but in these waits; waits for conditions by a
 * broadcast, which is a spurious wake-up to those that are not due.
 */
#include "tests/clock/test_clock.h"
#include "base/check.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/single_threaded.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define SECOND    1000000000ull
#define SLOWNESS  8u  /* of the clock while the program works: of real time one part in so many */
#define TICKS_MAX 16u /* between two looks at a program that works */
#define TICK_NS \
	UINT64_C(250000) /* between two looks: what the kernel delivers to a thread takes less */
#define POLL_TICKS  8    /* that tests which poll have at most to see that the program is idle */
#define NEVER       UINT64_MAX
#define WAKE_SIGNAL (SIGRTMIN + 5)

struct wait {
	struct wait *next, **link;
	pid_t tid;
	pthread_t thread;
	uint64_t until;       /* of the tests' clock; NEVER: polls */
	pthread_cond_t *cond; /* NULL: for descriptors, or for time alone */

	/* Of one that polls: */
	_Atomic uint64_t looks; /* how often its condition did not hold */
	_Atomic bool pauses;    /* between two looks */
	uint64_t looks_when_idle;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* a leaf */
static struct wait *waits;
static uint64_t changes;                                /* of `waits` */
static pthread_cond_t begun = PTHREAD_COND_INITIALIZER; /* the first wait */
static _Atomic enum { NOT_STARTED, STARTED, STOPPING, STOPPED, UNAVAILABLE } monitor_state;
static pthread_t monitor_thread;
static _Atomic uint64_t advanced;   /* added to the clock so far, ns */
static _Atomic uint64_t real_began; /* start of the slow pace; 0: real pace */
static _Atomic bool is_started_by_test;
static __thread bool is_monitor;
static long tasks; /* /proc/self/task, a descriptor of the monitor */

/* The next definition: libc's, or a sanitizer's. */
#define NEXT(name)                                                \
	static __typeof__(name) *_Atomic next_##name;             \
	__typeof__(name) *next = next_##name;                     \
	if (!next) {                                              \
		next = (__typeof__(next))dlsym(RTLD_NEXT, #name); \
		next_##name = next;                               \
	}

static uint64_t ns_of(const struct timespec *t)
{
	return (uint64_t)t->tv_sec * SECOND + (uint64_t)t->tv_nsec;
}

static struct timespec timespec_of(uint64_t ns)
{
	return (struct timespec){ .tv_sec = (time_t)(ns / SECOND), .tv_nsec = (long)(ns % SECOND) };
}

/* ---- the clock ------------------------------------------------------------------------------- */

static bool is_moved(clockid_t id)
{
	return id == CLOCK_MONOTONIC || id == CLOCK_REALTIME || id == CLOCK_BOOTTIME ||
	       id == CLOCK_MONOTONIC_COARSE || id == CLOCK_REALTIME_COARSE;
}

static uint64_t real_ns(clockid_t id)
{
	struct timespec t;
	NEXT(clock_gettime)

	(void)next(id, &t); /* a clock that is there */
	return ns_of(&t);
}

void test_real_time(void)
{
	is_started_by_test = true;
}

uint64_t test_real_now(void)
{
	return real_ns(CLOCK_MONOTONIC);
}

/* What is to be added to a real clock at that real time. Modulo 2^64: it may be less than 0. */
static uint64_t offset_at(uint64_t real)
{
	uint64_t began = real_began, passed = began && real > began ? real - began : 0;

	return advanced - (passed - passed / SLOWNESS);
}

/* Reads the real clock once: a thread preempted between two reads could go back in time. */
uint64_t test_now(void)
{
	uint64_t real = test_real_now();

	return real + offset_at(real);
}

/* A wrapped clock. Its distance from the monotonic clock is fixed when it is first read. */
static uint64_t moved_ns(clockid_t id)
{
	static _Atomic uint64_t wall, boot;
	_Atomic uint64_t *apart = id == CLOCK_BOOTTIME ? &boot : &wall;

	if (id == CLOCK_MONOTONIC || id == CLOCK_MONOTONIC_COARSE)
		return test_now();
	if (*apart == 0) {
		uint64_t none = 0, now = real_ns(id) - test_real_now();

		atomic_compare_exchange_strong(apart, &none, now + (now == 0));
	}
	return test_now() + *apart;
}

int clock_gettime(clockid_t id, struct timespec *ret)
{
	NEXT(clock_gettime)
	int r = next(id, ret);

	if (r == 0 && is_moved(id))
		*ret = timespec_of(moved_ns(id));
	return r;
}

time_t time(time_t *ret)
{
	time_t t = (time_t)(moved_ns(CLOCK_REALTIME) / SECOND);

	if (ret)
		*ret = t;
	return t;
}

int gettimeofday(struct timeval *restrict ret, void *restrict zone)
{
	uint64_t ns = moved_ns(CLOCK_REALTIME);

	(void)zone;
	*ret = (struct timeval){ .tv_sec = (time_t)(ns / SECOND),
		.tv_usec = (suseconds_t)(ns % SECOND / 1000) };
	return 0;
}

/* ---- the monitor ----------------------------------------------------------------------------- */

/* One real wait: for time, for descriptors, or until WAKE_SIGNAL. As ppoll(2). */
static int wait_really(struct pollfd *fds, nfds_t n, const sigset_t *others, uint64_t ns)
{
	struct timespec t = timespec_of(ns);
	sigset_t mask;
	NEXT(ppoll)

	if (others)
		mask = *others;
	else
		(void)pthread_sigmask(SIG_SETMASK, NULL, &mask); /* reads it */
	(void)sigdelset(&mask, WAKE_SIGNAL);
	return next(fds, n, ns == NEVER ? NULL : &t, &mask);
}

static void wake(const struct wait *w)
{
	NEXT(pthread_cond_broadcast)

	if (w->cond)
		(void)next(w->cond);
	else
		(void)pthread_kill(
			w->thread, WAKE_SIGNAL); /* it is in the list, and so in its wait */
}

/* Ends waits that are due. Returns when the next one is: NEVER without one. */
static uint64_t end_due_locked(void)
{
	uint64_t now = test_now(), first = NEVER;

	for (const struct wait *w = waits; w; w = w->next) {
		if (w->until <= now)
			wake(w);
		if (w->until < first)
			first = w->until;
	}
	return first;
}

/* True for the monitor and for tests that poll a condition: their state does not matter. */
static bool is_left_out(pid_t tid)
{
	bool polls = tid == (pid_t)syscall(SYS_gettid);

	(void)pthread_mutex_lock(&lock);
	for (const struct wait *w = waits; w && !polls; w = w->next)
		polls = w->tid == tid && w->until == NEVER;
	(void)pthread_mutex_unlock(&lock);
	return polls;
}

/* Reads a file of /proc/self/task, by system calls that no sanitizer follows: see own_descriptors(). */
static bool read_task(pid_t tid, const char *what, char *text, size_t size)
{
	char path[64];
	ssize_t n;
	long fd;

	(void)snprintf(path, sizeof(path), "%d/%s", (int)tid, what); /* fits */
	fd = syscall(SYS_openat, tasks, path, O_RDONLY);
	if (fd < 0)
		return false;
	n = syscall(SYS_read, fd, text, size - 1);
	(void)syscall(SYS_close_range, fd, fd, 0);
	text[n > 0 ? n : 0] = '\0';
	return n > 0;
}

/* Is the thread in state S? Adds how often it has run to *sum. */
static bool sleeps(pid_t tid, uint64_t *sum)
{
	char text[256];
	const char *p;

	if (!read_task(tid, "stat", text, sizeof(text)))
		return false; /* it has just ended */
	p = strrchr(text, ')');
	if (!p || p[1] != ' ' || p[2] != 'S' || !read_task(tid, "schedstat", text, sizeof(text)))
		return false;
	p = strrchr(text, ' ');
	*sum += p ? strtoull(p, NULL, 10) : 0;
	return p;
}

/* *ret_sum: how often the threads have run; a thread that ends changes it, too. */
static bool all_sleep(uint64_t *ret_sum)
{
	static pid_t last; /* the thread that did not, last time */
	_Alignas(struct dirent64) char entries[4096];
	const struct dirent64 *e;
	uint64_t sum = 0;
	long n;

	if (last && !sleeps(last, &sum) && !is_left_out(last)) {
		last = 0;
		return false;
	}
	sum = 0;
	(void)syscall(SYS_lseek, tasks, 0L, SEEK_SET); /* a directory can */
	while ((n = syscall(SYS_getdents64, tasks, entries, sizeof(entries))) > 0)
		for (const char *p = entries; p < entries + n; p += e->d_reclen) {
			pid_t tid;

			e = (const struct dirent64 *)(const void *)p;
			tid = (pid_t)strtol(e->d_name, NULL, 10);
			if (tid == 0 || is_left_out(tid) || sleeps(tid, &sum))
				continue; /* 0: "." and ".." */
			last = tid;
			return false;
		}
	*ret_sum = sum;
	return n == 0;
}

/* Does another process take real time for what this one waits for? */
static bool has_others(void)
{
	siginfo_t info = { .si_pid = 0 };

	return is_started_by_test || waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0;
}

static bool has_looked(const struct wait *w)
{
	uint64_t sum = 0;

	if (w->until != NEVER || w->looks >= w->looks_when_idle + 2)
		return true;
	return !w->pauses && sleeps(w->tid, &sum); /* what it evaluates waits, perhaps for time */
}

/*
 * The program is idle: did what it did before make a condition hold for which a test polls? The test has looked, and
 * goes on, before the clock advances. Twice: the first look may have begun before the program was idle.
 */
static bool have_polls_looked(void)
{
	bool all = false;

	(void)pthread_mutex_lock(&lock);
	for (struct wait *w = waits; w; w = w->next)
		w->looks_when_idle = w->looks;
	(void)pthread_mutex_unlock(&lock);
	for (int i = 0; i < POLL_TICKS && !all; i++) {
		(void)wait_really(NULL, 0, NULL, TICK_NS);
		(void)pthread_mutex_lock(&lock);
		all = true;
		for (struct wait *w = waits; w; w = w->next)
			if (!has_looked(w)) {
				all = false;
				wake(w);
			}
		(void)pthread_mutex_unlock(&lock);
	}
	return all;
}

/* Advances the clock to the end of the first wait. */
static void advance_locked(void)
{
	uint64_t first = end_due_locked(), now = test_now();

	if (first == NEVER || first <= now)
		return;
	advanced += first - now;
	(void)end_due_locked();
}

/* One round: ends what is due, and advances the clock if the program is idle. `real` is when the last one began. */
static uint64_t one_round(uint64_t real)
{
	uint64_t first, began, before, after, now = test_real_now();

	(void)pthread_mutex_lock(&lock);
	if (!waits) {
		while (!waits && monitor_state == STARTED)
			(void)pthread_cond_wait(&begun, &lock);
		real = now = test_real_now();
	}
	if (has_others())
		advanced += (now - real) - (now - real) / SLOWNESS;
	first = end_due_locked();
	began = changes;
	(void)pthread_mutex_unlock(&lock);
	/* Again: a thread may have started a child since. */
	if (first == NEVER || first < test_now() + TICK_NS / SLOWNESS || !all_sleep(&before) ||
		has_others())
		return now;
	if (!have_polls_looked() || !all_sleep(&after) || before != after)
		return now;
	(void)pthread_mutex_lock(&lock);
	if (changes == began)
		advance_locked();
	(void)pthread_mutex_unlock(&lock);
	return now;
}

/*
 * The monitor has a table of descriptors of its own: what it opens takes no number from tests that run out of them or
 * count them, and it keeps nothing of theirs open. Numbers mean something else there, hence no calls that a sanitizer
 * follows.
 */
static void own_descriptors(void)
{
	(void)syscall(SYS_close_range, 0, ~0u, CLOSE_RANGE_UNSHARE);
	tasks = syscall(SYS_openat, AT_FDCWD, "/proc/self/task", O_RDONLY | O_DIRECTORY);
}

static void *monitor(void *arg)
{
	uint64_t real = test_real_now(), pause = TICK_NS;

	(void)arg;
	is_monitor = true;
	own_descriptors();
	(void)pthread_setname_np(pthread_self(), "test-clock"); /* for debuggers */
	while (monitor_state == STARTED) {
		uint64_t before = advanced;

		real = one_round(real);
		/* A program that works is checked less and less often. */
		pause = advanced != before ? TICK_NS : min(2 * pause, TICKS_MAX * TICK_NS);
		(void)wait_really(NULL, 0, NULL, pause);
	}
	return NULL;
}

static __thread volatile sig_atomic_t is_woken; /* by our signal */

static void on_wake(int number)
{
	(void)number;
	is_woken = true;
}

/* A child without exec has no monitor: its time passes as real time does. */
static void in_child(void)
{
	advanced = offset_at(test_real_now());
	real_began = 0;
	(void)pthread_mutex_init(&lock, NULL);
	waits = NULL;
	monitor_state = UNAVAILABLE;
}

/*
 * The monitor ends before a fork, and starts again with the next wait: a program whose own threads have ended may fork a
 * child that starts threads, which the thread sanitizer refuses where the parent has any.
 */
static void end_monitor(void)
{
	NEXT(pthread_join)
	bool started;

	(void)pthread_mutex_lock(&lock);
	started = monitor_state == STARTED && !is_monitor;
	if (started) {
		monitor_state = STOPPING;
		(void)pthread_cond_broadcast(&begun);
	}
	(void)pthread_mutex_unlock(&lock);
	if (!started)
		return;
	(void)next(monitor_thread, NULL);
	(void)pthread_mutex_lock(&lock);
	monitor_state = STOPPED;
	(void)pthread_mutex_unlock(&lock);
}

static void start_monitor_locked(void)
{
	NEXT(pthread_create) /* not as a symbol of the program: tests/threaded */
	struct sigaction action = { .sa_handler = on_wake };
	sigset_t all, old;

	(void)sigaction(WAKE_SIGNAL, &action, NULL);
	(void)sigfillset(&all);
	(void)pthread_sigmask(SIG_SETMASK, &all, &old);
	monitor_state = STARTED; /* it runs as long as that is so */
	if (next(&monitor_thread, NULL, monitor, NULL) != 0)
		monitor_state = UNAVAILABLE;
	else if (!real_began)
		real_began = test_real_now();
	(void)pthread_sigmask(SIG_SETMASK, &old, NULL);
}

/* Threads that wait have not started it: they were in their waits. */
static void after_fork(void)
{
	(void)pthread_mutex_lock(&lock);
	if (waits && monitor_state == STOPPED)
		start_monitor_locked();
	(void)pthread_mutex_unlock(&lock);
}

/* Not when the monitor starts: a child that is forked before would have one. */
__attribute__((constructor)) static void at_start(void)
{
	(void)pthread_atfork(end_monitor, after_fork, in_child);
	(void)atexit(end_monitor);
}

/* ---- waits ----------------------------------------------------------------------------------- */

/* Has the program one thread, and never had more? */
static bool is_alone(void)
{
	return __libc_single_threaded && monitor_state == NOT_STARTED;
}

/* The only thread of a program without children would wait: the time passes now. */
static bool pass_alone(uint64_t ns)
{
	if (!is_alone() || has_others())
		return false;
	advanced += ns;
	return true;
}

/* Enters a wait. False: time is real here. */
static bool enter(struct wait *w, uint64_t until, pthread_cond_t *cond)
{
	sigset_t set;
	NEXT(pthread_cond_signal)

	/* With one thread there is nothing to monitor: pass_alone(). A monitor would make a program that forks, and whose
	 * child starts threads, one of several threads, which the thread sanitizer refuses. */
	if (is_monitor || is_alone())
		return false;
	(void)sigemptyset(&set);
	(void)sigaddset(&set, WAKE_SIGNAL);
	(void)pthread_sigmask(SIG_BLOCK, &set, NULL);
	*w = (struct wait){ .tid = (pid_t)syscall(SYS_gettid),
		.thread = pthread_self(),
		.until = until,
		.cond = cond };
	(void)pthread_mutex_lock(&lock);
	if (monitor_state == NOT_STARTED || monitor_state == STOPPED)
		start_monitor_locked();
	if (monitor_state != STARTED) { /* no thread, or a fork is in progress */
		(void)pthread_mutex_unlock(&lock);
		return false;
	}
	if (!waits)
		(void)next(&begun);
	w->next = waits;
	w->link = &waits;
	if (waits)
		waits->link = &w->next;
	waits = w;
	changes++;
	(void)pthread_mutex_unlock(&lock);
	return true;
}

static void leave(struct wait *w)
{
	(void)pthread_mutex_lock(&lock);
	*w->link = w->next;
	if (w->next)
		w->next->link = w->link;
	changes++;
	(void)pthread_mutex_unlock(&lock);
}

static uint64_t left_until(uint64_t until)
{
	uint64_t now = test_now();

	return until > now ? until - now : 0;
}

/* How long a wait may take at most if the clock never advances by itself. */
static uint64_t real_of(uint64_t ns, bool entered)
{
	return entered ? (ns < NEVER / SLOWNESS / 8 ? ns * SLOWNESS : NEVER / 8) : ns;
}

/* As ppoll(2); -1 with EINTR after a signal that is not ours. */
static int wait_for(struct pollfd *fds, nfds_t n, const sigset_t *mask, uint64_t ns)
{
	struct wait w;
	uint64_t until = test_now() + ns;
	bool entered = enter(&w, until, NULL);
	int r, e;

	if (!entered && !is_monitor) {
		r = wait_really(fds, n, mask, 0);
		if (r != 0 || pass_alone(ns))
			return r;
	}
	do {
		is_woken = false;
		r = wait_really(fds, n, mask, real_of(left_until(until), entered));
		e = errno; /* our signal may be one for an earlier wait */
	} while ((r == 0 || (r < 0 && e == EINTR && is_woken)) && test_now() < until);
	if (entered)
		leave(&w);
	if (r < 0 && e == EINTR && test_now() >= until)
		return 0;
	errno = e;
	return r;
}

int nanosleep(const struct timespec *t, struct timespec *left)
{
	uint64_t until = test_now() + ns_of(t);

	if (wait_for(NULL, 0, NULL, ns_of(t)) == 0)
		return 0;
	if (left)
		*left = timespec_of(left_until(until));
	return -1;
}

int clock_nanosleep(clockid_t id, int flags, const struct timespec *t, struct timespec *left)
{
	struct timespec relative = *t;

	if (flags & TIMER_ABSTIME) {
		struct timespec now;
		(void)clock_gettime(id, &now);
		relative = timespec_of(ns_of(t) > ns_of(&now) ? ns_of(t) - ns_of(&now) : 0);
	}
	return nanosleep(&relative, left) == 0 ? 0 : errno;
}

int usleep(useconds_t us)
{
	struct timespec t = timespec_of((uint64_t)us * 1000);

	return nanosleep(&t, NULL);
}

int ppoll(struct pollfd *fds, nfds_t n, const struct timespec *t, const sigset_t *mask)
{
	NEXT(ppoll)

	if (!t || ns_of(t) == 0)
		return next(fds, n, t, mask);
	return wait_for(fds, n, mask, ns_of(t));
}

int poll(struct pollfd *fds, nfds_t n, int ms)
{
	NEXT(poll)

	if (ms <= 0)
		return next(fds, n, ms);
	return wait_for(fds, n, NULL, (uint64_t)ms * 1000000u);
}

/* What the two are in fortified programs, where the number of descriptors is not constant. */
int __ppoll_chk(
	struct pollfd *fds, nfds_t n, const struct timespec *t, const sigset_t *mask, size_t size);
int __poll_chk(struct pollfd *fds, nfds_t n, int ms, size_t size);

int __ppoll_chk(
	struct pollfd *fds, nfds_t n, const struct timespec *t, const sigset_t *mask, size_t size)
{
	ensure(size / sizeof(*fds) >= n);
	return ppoll(fds, n, t, mask);
}

int __poll_chk(struct pollfd *fds, nfds_t n, int ms, size_t size)
{
	ensure(size / sizeof(*fds) >= n);
	return poll(fds, n, ms);
}

int epoll_pwait(int fd, struct epoll_event *events, int n, int ms, const sigset_t *mask)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };
	uint64_t until = test_now() + (uint64_t)ms * 1000000u;
	int r;
	NEXT(epoll_pwait)

	if (ms <= 0)
		return next(fd, events, n, ms, mask);
	do {
		r = wait_for(&p, 1, mask, left_until(until));
		if (r < 0)
			return r;
		r = next(fd, events, n, 0, mask);
	} while (r == 0 && left_until(until) > 0);
	return r;
}

int epoll_wait(int fd, struct epoll_event *events, int n, int ms)
{
	NEXT(epoll_wait)

	return ms <= 0 ? next(fd, events, n, ms) : epoll_pwait(fd, events, n, ms, NULL);
}

/* All clocks advance together: `id` only decides how much time is left until `t`. */
static int wait_for_cond(pthread_cond_t *cond, pthread_mutex_t *mutex, clockid_t id,
	const struct timespec *t, bool by_clock)
{
	uint64_t now = moved_ns(id), left = ns_of(t) > now ? ns_of(t) - now : 0;
	struct wait w;
	bool entered = left > 0 && enter(&w, test_now() + left, cond);
	uint64_t wait_ns = !entered && pass_alone(left) ? 0 : real_of(left, entered);
	struct timespec real = timespec_of(real_ns(id) + wait_ns);
	int r;

	if (by_clock) {
		NEXT(pthread_cond_clockwait)
		r = next(cond, mutex, id, &real);
	} else {
		NEXT(pthread_cond_timedwait)
		r = next(cond, mutex, &real);
	}
	if (entered) {
		leave(&w);
		if (r == 0 && test_now() >= w.until)
			r = ETIMEDOUT;
	}
	return r;
}

/* The condition does not tell which clock it has: a machine is up for less than 30 years, and it is later than 2001. */
int pthread_cond_timedwait(pthread_cond_t *restrict cond, pthread_mutex_t *restrict mutex,
	const struct timespec *restrict t)
{
	return wait_for_cond(
		cond, mutex, t->tv_sec > 1000000000 ? CLOCK_REALTIME : CLOCK_MONOTONIC, t, false);
}

int pthread_cond_clockwait(pthread_cond_t *restrict cond, pthread_mutex_t *restrict mutex,
	clockid_t id, const struct timespec *restrict t)
{
	return wait_for_cond(cond, mutex, id, t, true);
}

/* ---- what tests call ------------------------------------------------------------------------- */

void test_advance(uint64_t ns)
{
	struct timespec t = timespec_of(ns);

	while (nanosleep(&t, &t) != 0)
		;
}

static __thread struct wait polls;
static __thread bool is_polling; /* `polls` is in the list: other threads change it there */

uint64_t test_wait_begin(void)
{
	if (is_polling)
		leave(&polls); /* a test that failed left it */
	is_polling = enter(&polls, NEVER, NULL);
	return test_real_now();
}

void test_wait_a_little(uint64_t began, const char *condition, const char *file, int line)
{
	uint64_t passed = test_real_now() - began;

	if (passed > TEST_WAIT_NS) {
		(void)fprintf(stderr, "%s:%d: error: not within %llu s: %s\n", file, line,
			TEST_WAIT_NS / SECOND, condition);
		abort();
	}
	polls.looks++;
	polls.pauses = true;
	(void)wait_really(NULL, 0, NULL, passed < SECOND / 100 ? 50000 : 500000);
	polls.pauses = false;
}

void test_wait_end(void)
{
	if (is_polling)
		leave(&polls);
	is_polling = false;
}
