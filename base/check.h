/*
 * Assertions that stay in production, and typed objects.
 *
 * ensure() is for bugs of this program only. What a peer, a user or a disk can cause is an error,
 * never an ensure(). A failed ensure() prints one line and aborts.
 *
 * A long-lived struct starts with `uint32_t magic;`, set by its constructor and cleared by its
 * destructor: CHECK_MAGIC(obj, TIER_MAGIC) at the entries of its functions finds a stale or foreign
 * pointer early.
 */
#pragma once

#include <stdint.h>

#define __must_check        __attribute__((warn_unused_result))
#define __printf(fmt, args) __attribute__((format(printf, fmt, args)))
#define ARRAY_SIZE(a)       (sizeof(a) / sizeof((a)[0]))
#define container_of(ptr, type, member) \
	((type *)(void *)((char *)(ptr) - __builtin_offsetof(type, member)))

#define min(a, b)                                  \
	({                                         \
		__typeof__((a) + (b)) min_a = (a); \
		__typeof__((a) + (b)) min_b = (b); \
		min_a < min_b ? min_a : min_b;     \
	})
#define max(a, b)                                  \
	({                                         \
		__typeof__((a) + (b)) max_a = (a); \
		__typeof__((a) + (b)) max_b = (b); \
		max_a > max_b ? max_a : max_b;     \
	})

_Noreturn void check_failed(const char *expr, const char *file, int line, const char *func);

#define ensure(expr)                             \
	(__builtin_expect(!!(expr), 1) ? (void)0 \
				       : check_failed(#expr, __FILE__, __LINE__, __func__))

#define CHECK_MAGIC(obj, value) ensure((obj) && (obj)->magic == (value))

static inline uint64_t align_up(uint64_t n, uint64_t power_of_two)
{
	return (n + power_of_two - 1) & ~(power_of_two - 1);
}

static inline uint64_t align_down(uint64_t n, uint64_t power_of_two)
{
	return n & ~(power_of_two - 1);
}
