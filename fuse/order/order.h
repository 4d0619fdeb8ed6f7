/*
 * Jobs say in which order they will read, and are run ahead of (docs/order.md).
 *
 *	job ──socket──► samples, order ──► window ──► PREFETCH of exactly that, in that order
 *	kernel ──READ──► order_note_read() ──► the window moves on
 *
 * A job is known by its connection, and forgotten with it. Whoever can open the mount's root may
 * announce: he sends a descriptor of it. The socket is DIRECTORY/m-HASH, and found by the device
 * number that stat(2) shows of the mount, DIRECTORY/MAJOR:MINOR, a link.
 *
 * Threads: one of its own does everything that takes time; the others call order_note_read(),
 * order_covers(), order_show() and order_json(), which hold a lock for some comparisons. It calls
 * its ops without a lock.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <jansson.h>
#include "base/counter.h"
#include "base/err.h"

struct order;

#define ORDER_COUNTERS(X)                                                                    \
	X(jobs, "granary_order_jobs", GAUGE, "jobs", "Jobs that announce an order now")      \
	X(announced, "granary_order_announced_total", COUNTER, "orders", "Orders announced") \
	X(asked, "granary_order_asked_total", COUNTER, "requests",                           \
		"Ranges requested because they were announced")                              \
	X(asked_bytes, "granary_order_asked_bytes_total", COUNTER, "bytes",                  \
		"Bytes requested because they were announced")                               \
	X(present, "granary_order_present_total", COUNTER, "ranges",                         \
		"Announced ranges that were on this node already")                           \
	X(followed, "granary_order_reads_total", COUNTER, "requests",                        \
		"READs of what was announced")                                               \
	X(hits, "granary_order_hits_total", COUNTER, "requests",                             \
		"READs just behind another one in an announced order")                       \
	X(misses, "granary_order_misses_total", COUNTER, "requests",                         \
		"READs of what was announced, but elsewhere in the order")                   \
	X(suspended, "granary_order_suspended_total", COUNTER, "orders",                     \
		"Orders suspended because few reads followed them")                          \
	X(refused, "granary_order_refused_total", COUNTER, "requests",                       \
		"Messages of jobs that were refused")

COUNTER_STRUCT(order_counters, ORDER_COUNTERS);
const struct counter_info *order_counter_table(uint32_t *ret_n);
const struct order_counters *order_counters(const struct order *order);

struct order_ops {
	/* Where the bytes of a file lie, by its path below the mount: 0, or a negative errno. */
	int (*find)(void *arg, const char *path, uint64_t *ret_offset, uint64_t *ret_size);
	/* As client_prefetch(). */
	int (*prefetch)(void *arg, uint64_t offset, uint32_t length);
	/* Bytes that the node's tiers may hold; 0, or NULL: not known. */
	uint64_t (*capacity)(void *arg);
	/* Whether the mount point is about to have this device number, or has it and order_show() was not called yet. NULL: never. */
	bool (*shows)(void *arg, uint64_t dev);
};

struct order_config {
	const struct order_ops *ops; /* borrowed */
	void *arg;
	uint64_t
		window_bytes; /* asked for and not read, of all jobs together, while no capacity is known */
	uint64_t memory;       /* of lists and orders of all jobs; */
	uint64_t disk;         /* what does not fit is in unnamed files, */
	const char *directory; /* borrowed, there; NULL: nowhere */
};

/* NULL without memory. */
struct order *order_new(const struct order_config *config);
/* Nobody may call the others any more. NULL is allowed. */
void order_free(struct order *order);

/*
 * Serves jobs from now on. `directory` is made, open to all; `name` tells this mount from others
 * and is the same after a crash.
 */
int order_listen(
	struct order *order, const char *directory, const char *name, struct err *e) __must_check;
/* The mount has this device number now; jobs that know an earlier one are welcome too. To be called
 * every now and then: once another order listens at the same name, for the mount's next daemon, this one
 * hangs up on its jobs. Cheap when nothing changed. */
void order_show(struct order *order, uint64_t dev);

/* The mount shows another generation: hangs up on the jobs, whose lists name places of the previous one. They
 * announce again. Any thread. */
void order_changed(struct order *order);

/* The kernel reads this. True: it was announced, in an order that is not suspended. Any thread, cheap. */
bool order_note_read(struct order *order, uint64_t offset, uint32_t length);
/* Was it announced, in an order that is not suspended? */
bool order_covers(struct order *order, uint64_t offset, uint32_t length);

json_t *order_json(struct order *order); /* for the status; NULL without memory */
