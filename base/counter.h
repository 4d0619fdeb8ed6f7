/*
 * Counters, declared once. A daemon's list is an X-macro of (symbol, name, kind, unit, help):
 *
 *	#define WORKER_COUNTERS(X) \
 *		X(fetches, "granary_worker_fetches_total", COUNTER, "requests", "Ranges asked for")
 *
 * From it come a struct of atomics and a table for /metrics, `status` and the manual.
 * Threads: any; relaxed order.
 */
#pragma once

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

enum counter_kind {
	COUNTER, /* only grows */
	GAUGE,   /* goes up and down */
};

typedef _Atomic uint64_t counter_t;

struct counter_info {
	const char *symbol;
	const char *name;
	enum counter_kind kind;
	const char *unit;
	const char *help;
	size_t offset; /* of the counter_t in its struct */
};

#define COUNTER_FIELD(symbol, name, kind, unit, help) counter_t symbol;
#define COUNTER_STRUCT(tag, LIST)   \
	struct tag {                \
		LIST(COUNTER_FIELD) \
	}
/* One row of the table; `LIST##_TAG` names the struct. */
#define COUNTER_ROW(tag, symbol, name, kind, unit, help) \
	{ #symbol, name, kind, unit, help, offsetof(struct tag, symbol) },

static inline void counter_add(counter_t *c, uint64_t n)
{
	atomic_fetch_add_explicit(c, n, memory_order_relaxed);
}

static inline void counter_sub(counter_t *c, uint64_t n)
{
	atomic_fetch_sub_explicit(c, n, memory_order_relaxed);
}

static inline void counter_set(counter_t *c, uint64_t n)
{
	atomic_store_explicit(c, n, memory_order_relaxed);
}

static inline uint64_t counter_get(const counter_t *c)
{
	return atomic_load_explicit(c, memory_order_relaxed);
}

static inline uint64_t counter_read(const struct counter_info *info, const void *counters)
{
	return counter_get(
		(const counter_t *)(const void *)((const char *)counters + info->offset));
}
