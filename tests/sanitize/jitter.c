/*
 * Preloaded into unit tests (tests/run-jitter): each run has another order of threads, as on another machine.
 *
 *	LD_PRELOAD=build/tests/jitter.so GRANARY_JITTER=SEED build/unit/tiers/test_tier_model
 *
 * Of each two new threads one begins up to 60 ms late, the other one's creator is held instead. Before and after what
 * threads meet in (locks, conditions, sockets, pipes, waits) a thread may be held: what it is, one that is never, seldom
 * or often, is drawn when it begins and stays, so that in some runs a whole thread is many times slower than the others.
 * What is drawn depends on the seed, on which thread of which thread it is and on how many calls it made: not on time.
 *
 * Without GRANARY_JITTER nothing is held. No thread is held for more than 3 s altogether: a test ends in its time.
 */
#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define LATE_NS            60000000u
#define HELD_ALTOGETHER_NS 3000000000u

struct jitter {
	bool ready;
	uint64_t id;
	uint64_t random;
	uint64_t children;
	uint32_t one_in; /* calls, 0: never */
	uint32_t least_us, most_us;
	uint64_t left_ns;
};

static __thread struct jitter self;

/* SplitMix64. */
static uint64_t mix(uint64_t x)
{
	x += 0x9e3779b97f4a7c15u;
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
	return x ^ (x >> 31);
}

static uint64_t draw(void)
{
	self.random = mix(self.random);
	return self.random >> 8;
}

static void hold(uint64_t ns)
{
	struct timespec left = { .tv_sec = 0 };
	int keep = errno;

	if (ns > self.left_ns)
		ns = self.left_ns;
	self.left_ns -= ns;
	left.tv_sec = (time_t)(ns / 1000000000u);
	left.tv_nsec = (long)(ns % 1000000000u);
	(void)clock_nanosleep(CLOCK_MONOTONIC, 0, &left, NULL);
	errno = keep;
}

/* Of eight threads three are never held, three seldom, one often and briefly, one often and long. */
static void begin_as(uint64_t id)
{
	static const struct jitter profiles[8] = {
		{ .one_in = 0 },
		{ .one_in = 0 },
		{ .one_in = 0 },
		{ .one_in = 500, .least_us = 200, .most_us = 20000 },
		{ .one_in = 300, .least_us = 200, .most_us = 5000 },
		{ .one_in = 100, .least_us = 500, .most_us = 10000 },
		{ .one_in = 10, .least_us = 50, .most_us = 500 },
		{ .one_in = 20, .least_us = 1000, .most_us = 20000 },
	};

	self = profiles[mix(id) % 8];
	self.id = id;
	self.random = mix(id ^ 0x6a09e667f3bcc908u);
	self.left_ns = HELD_ALTOGETHER_NS;
	self.ready = true;
}

/* The first thread of a process, and those that a library made by other ways than pthread_create(). */
static void begin(void)
{
	const char *seed = getenv("GRANARY_JITTER");
	uint64_t id = 0;

	if (!seed) {
		self = (struct jitter){ .ready = true };
		return;
	}
	for (const char *p = program_invocation_short_name; p && *p; p++)
		id = mix(id ^ (uint64_t)(unsigned char)*p);
	begin_as(mix(id ^ strtoull(seed, NULL, 10)));
}

static void maybe(void)
{
	if (!self.ready)
		begin();
	if (self.one_in && self.left_ns && draw() % self.one_in == 0)
		hold((self.least_us + draw() % (self.most_us - self.least_us)) * 1000u);
}

/* What comes next, which may be a sanitizer's. */
#define NEXT(name)                                                \
	static __typeof__(name) *_Atomic next_##name;             \
	__typeof__(name) *next = next_##name;                     \
	if (!next) {                                              \
		next = (__typeof__(next))dlsym(RTLD_NEXT, #name); \
		next_##name = next;                               \
	}

struct start {
	void *(*run)(void *);
	void *arg;
	uint64_t id;
	uint64_t late_ns;
};

static void *run_thread(void *arg)
{
	struct start start = *(struct start *)arg;

	free(arg);
	begin_as(start.id);
	hold(start.late_ns);
	return start.run(start.arg);
}

int pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*run)(void *), void *arg)
{
	NEXT(pthread_create)
	struct start *start;
	uint64_t ns;
	bool creator;
	int rc;

	maybe();
	start = self.id ? malloc(sizeof(*start)) : NULL;
	if (!start)
		return next(thread, attr, run, arg);
	ns = draw() % LATE_NS;
	creator = draw() % 2 == 0;
	*start = (struct start){ .run = run,
		.arg = arg,
		.id = mix(self.id ^ mix(++self.children)),
		.late_ns = creator ? 0 : ns };
	rc = next(thread, attr, run_thread, start);
	if (rc != 0)
		free(start);
	else if (creator)
		hold(ns);
	return rc;
}

/*
 * Held before the call. What comes next takes this one's place (a tail call): a sanitizer sees who called, and whether
 * that is to be believed (tests/tsan.txt).
 */
#define HELD_BEFORE(name, params, args) \
	int name params                 \
	{                               \
		NEXT(name)              \
		maybe();                \
		return next args;       \
	}

HELD_BEFORE(pthread_mutex_lock, (pthread_mutex_t * m), (m))
HELD_BEFORE(pthread_mutex_unlock, (pthread_mutex_t * m), (m))
HELD_BEFORE(pthread_cond_signal, (pthread_cond_t * c), (c))
HELD_BEFORE(pthread_cond_broadcast, (pthread_cond_t * c), (c))
HELD_BEFORE(pthread_cond_wait, (pthread_cond_t * c, pthread_mutex_t *m), (c, m))
HELD_BEFORE(pthread_cond_timedwait,
	(pthread_cond_t * c, pthread_mutex_t *m, const struct timespec *t), (c, m, t))

/* Held before the call, and after it half as often: with the message, with the answer. */
#define HELD(ret, name, params, args) \
	ret name params               \
	{                             \
		NEXT(name)            \
		ret got;              \
                                      \
		maybe();              \
		got = next args;      \
		if (self.random & 1)  \
			maybe();      \
		return got;           \
	}

HELD(int, epoll_wait, (int fd, struct epoll_event *e, int n, int ms), (fd, e, n, ms))
HELD(int, epoll_pwait, (int fd, struct epoll_event *e, int n, int ms, const sigset_t *s),
	(fd, e, n, ms, s))
HELD(int, poll, (struct pollfd * p, nfds_t n, int ms), (p, n, ms))
HELD(int, accept4, (int fd, struct sockaddr *a, socklen_t *n, int f), (fd, a, n, f))
HELD(int, nanosleep, (const struct timespec *t, struct timespec *left), (t, left))
HELD(ssize_t, read, (int fd, void *b, size_t n), (fd, b, n))
HELD(ssize_t, write, (int fd, const void *b, size_t n), (fd, b, n))
HELD(ssize_t, readv, (int fd, const struct iovec *v, int n), (fd, v, n))
HELD(ssize_t, writev, (int fd, const struct iovec *v, int n), (fd, v, n))
HELD(ssize_t, pread, (int fd, void *b, size_t n, off_t at), (fd, b, n, at))
HELD(ssize_t, pwrite, (int fd, const void *b, size_t n, off_t at), (fd, b, n, at))
HELD(ssize_t, recv, (int fd, void *b, size_t n, int f), (fd, b, n, f))
HELD(ssize_t, send, (int fd, const void *b, size_t n, int f), (fd, b, n, f))
HELD(ssize_t, recvmsg, (int fd, struct msghdr *m, int f), (fd, m, f))
HELD(ssize_t, sendmsg, (int fd, const struct msghdr *m, int f), (fd, m, f))
