/* The log and the signals of a daemon: what is written where, and what ends a wait. */
#include "base/daemon.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/file.h"
#include "base/log.h"
#include "base/units.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>

#define DIR_TEMPLATE "/tmp/granary-daemon-XXXXXX"

static void log_goes_to_the_file_from_the_level_on(void **state)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(4096);
	char dir[] = DIR_TEMPLATE;
	char path[sizeof(dir) + 8];
	struct rlimit core;
	struct stat st;

	(void)state;
	assert_non_null(mkdtemp(dir));
	(void)snprintf(path, sizeof(path), "%s/log", dir);
	for (int run = 0; run < 2; run++) {
		assert_int_equal(daemon_begin("worker", "warn", path, NULL), 0);
		log_info("quiet", "run=%d", run);
		log_warn("loud", "run=%d", run);
	}
	assert_int_equal(file_read_all(path, &text), 0);
	assert_non_null(strstr(buf_str(&text), "worker["));
	assert_non_null(strstr(buf_str(&text), "loud: run=0"));
	assert_non_null(strstr(buf_str(&text), "loud: run=1")); /* appended */
	assert_null(strstr(buf_str(&text), "quiet"));
	assert_int_equal(getrlimit(RLIMIT_CORE, &core), 0);
	assert_int_equal(core.rlim_max, 0); /* no core dump */
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(rmdir(dir), 0);
}

static void what_cannot_be_opened_is_said(void **state)
{
	struct err e = ERR_INIT;

	(void)state;
	assert_int_equal(daemon_begin("worker", "loud", NULL, &e), -EINVAL);
	assert_non_null(strstr(e.text, "'loud'"));
	e = ERR_INIT;
	assert_int_equal(daemon_begin("worker", "info", "/nonexistent/log", &e), -ENOENT);
	assert_non_null(strstr(e.text, "/nonexistent/log"));
}

static void a_lost_peer_is_an_error_not_a_death(void **state)
{
	int ends[2];

	(void)state;
	assert_int_equal(daemon_begin("worker", "error", NULL, NULL), 0);
	assert_int_equal(pipe(ends), 0);
	assert_int_equal(close(ends[0]), 0);
	assert_int_equal(write(ends[1], "x", 1), -1);
	assert_int_equal(errno, EPIPE);
	assert_int_equal(close(ends[1]), 0);
}

static void a_held_signal_ends_the_wait(void **state)
{
	static const int ends[] = { SIGTERM, SIGINT };
	sigset_t signals;
	sigset_t left;

	(void)state;
	daemon_signals_block(&signals);
	for (size_t i = 0; i < ARRAY_SIZE(ends); i++) {
		assert_int_equal(raise(ends[i]), 0);
		daemon_signals_wait(&signals, NULL, NULL, NULL);
		assert_int_equal(sigpending(&left), 0);
		assert_int_equal(sigismember(&left, ends[i]), 0);
	}
}

#define KEEPERS 12
#define KEPT    48u /* MiB that each has once, one after the other */

static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t all_there;

static void *take_and_free(void *arg)
{
	void *buffers[KEPT];

	free(malloc(1)); /* a heap of its own, as far as there are */
	pthread_barrier_wait(&all_there);
	pthread_mutex_lock(&turn);
	for (size_t i = 0; i < KEPT; i++) {
		buffers[i] = malloc(MiB);
		memset(buffers[i], 1, MiB);
	}
	for (size_t i = 0; i < KEPT; i++)
		free(buffers[i]);
	pthread_mutex_unlock(&turn);
	pthread_barrier_wait(&all_there);
	return arg;
}

static uint64_t resident_bytes(void)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(4096);
	const char *field;

	assert_int_equal(file_read_all("/proc/self/statm", &text), 0);
	field = strchr(buf_str(&text), ' ');
	assert_non_null(field);
	return strtoull(field, NULL, 10) * (uint64_t)sysconf(_SC_PAGESIZE);
}

/* Freed memory is kept, but not by every thread that ever had some. */
static void kept_memory_is_bounded(void **state)
{
	pthread_t threads[KEEPERS];

	(void)state;
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
	skip(); /* another malloc */
#endif
	assert_int_equal(daemon_begin("worker", "error", NULL, NULL), 0);
	assert_int_equal(pthread_barrier_init(&all_there, NULL, KEEPERS), 0);
	for (size_t i = 0; i < KEEPERS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, take_and_free, NULL), 0);
	for (size_t i = 0; i < KEEPERS; i++)
		assert_int_equal(pthread_join(threads[i], NULL), 0);
	assert_true(resident_bytes() < 300 * MiB); /* of 576 */
}

#define CONSTANT_BYTES (512u * KiB)
#define PRESENT        (1ull << 63) /* proc_pid_pagemap(5) */

static const uint8_t constant[CONSTANT_BYTES] = { [CONSTANT_BYTES / 2] = 7 };

static bool is_mapped(const void *address)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
	uint64_t entry = 0;
	int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(pread(fd, &entry, sizeof(entry),
				 (off_t)((uintptr_t)address / page * sizeof(entry))),
		sizeof(entry));
	assert_int_equal(close(fd), 0);
	return entry & PRESENT;
}

/* Constants, and code likewise, that were used once are not mapped after; and are still there. */
static void what_is_not_used_is_not_mapped(void **state)
{
	/* Nothing near it is used: the kernel maps pages around the one that is touched. */
	const uint8_t *middle = constant + CONSTANT_BYTES / 2;

	(void)state;
	assert_int_equal(*(const volatile uint8_t *)middle, 7);
	assert_true(is_mapped(middle));
	daemon_give_back();
	assert_false(is_mapped(middle));
	assert_int_equal(*(const volatile uint8_t *)middle, 7);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(log_goes_to_the_file_from_the_level_on),
		cmocka_unit_test(what_cannot_be_opened_is_said),
		cmocka_unit_test(a_lost_peer_is_an_error_not_a_death),
		cmocka_unit_test(a_held_signal_ends_the_wait),
		cmocka_unit_test(kept_memory_is_bounded),
		cmocka_unit_test(what_is_not_used_is_not_mapped),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
