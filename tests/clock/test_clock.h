/*
 * The clock of unit tests: time passes at once while a program only waits.
 *
 * Each unit program is linked with this clock. When no thread of the process runs and at least one waits until some
 * time, the clock advances so that the earliest of those waits ends now. So backoffs, deadlines and idle times cost no
 * real time, in libuv and libcurl as in our own code, and they end in the order in which they would have ended. While a
 * thread runs, or waits for a disk (state D), the clock passes at an eighth of real time, so that a busy machine does
 * not make work miss its deadline. The wall clock moves with the monotonic one.
 *
 * While the process has children the clock is as fast as real time: what another process does takes real time.
 *
 * A unit test does not sleep (tools/check-sleeps); it calls one of the two below.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* Returns when the clock has advanced by `ns`: all timers that were due before have fired, though what they started
 * may still run. */
void test_advance(uint64_t ns);

/*
 * Waits until `condition` holds. It is evaluated again and again, and other threads' waits end meanwhile as described
 * above. Ends the test when the condition does not hold after TEST_WAIT_NS of real time.
 */
#define test_wait(condition)                                                                  \
	do {                                                                                  \
		uint64_t test_wait_began_ = test_wait_begin();                                \
		while (!(condition))                                                          \
			test_wait_a_little(test_wait_began_, #condition, __FILE__, __LINE__); \
		test_wait_end();                                                              \
	} while (0)

/* As test_wait(), but false if the condition does not hold within `ns` of the tests' clock. */
#define test_wait_for(ns, condition)                                                          \
	({                                                                                    \
		uint64_t test_wait_until_ = test_now() + (ns);                                \
		uint64_t test_wait_began_ = test_wait_begin();                                \
		bool test_wait_holds_;                                                        \
		while (!(test_wait_holds_ = (condition)) && test_now() < test_wait_until_)    \
			test_wait_a_little(test_wait_began_, #condition, __FILE__, __LINE__); \
		test_wait_end();                                                              \
		test_wait_holds_;                                                             \
	})

#define TEST_WAIT_NS 120000000000ull

/* From now on the clock is as fast as real time: for a program that a test starts, and that others wait for. */
void test_real_time(void);

/* Real time, in which a bound on work can be stated: monotonic nanoseconds. */
uint64_t test_real_now(void);
uint64_t test_now(void);

/* For the macros, which do not nest. */
uint64_t test_wait_begin(void);
void test_wait_a_little(uint64_t began, const char *condition, const char *file, int line);
void test_wait_end(void);
