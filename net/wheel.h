/*
 * Deadlines of many calls under one timer: a hashed timing wheel (Varghese and Lauck, SOSP 1987,
 * scheme 6). Adding and removing cost nothing; a deadline fires at most WHEEL_TICK_NS late, never
 * early. A deadline further away than one turn of the wheel is looked at once per turn.
 *
 * Not thread-safe. Entries are the caller's.
 */
#pragma once

#include <stdint.h>
#include "base/list.h"

#define WHEEL_SLOTS   256u
#define WHEEL_TICK_NS 8000000ull

struct wheel_entry {
	struct list link; /* unlinked when it has no deadline */
	uint64_t deadline_ns;
};

struct wheel {
	struct list slots[WHEEL_SLOTS];
	uint64_t tick; /* all before are done */
};

void wheel_init(struct wheel *wheel, uint64_t now_ns);
void wheel_add(struct wheel *wheel, struct wheel_entry *entry, uint64_t deadline_ns);
void wheel_remove(struct wheel_entry *entry); /* may be unlinked already */

/* Moves every entry whose deadline passed to `expired`. */
void wheel_advance(struct wheel *wheel, uint64_t now_ns, struct list *expired);

/* When to advance next: a time at or before the earliest deadline's tick; UINT64_MAX when the wheel
 * is empty. */
uint64_t wheel_next_ns(const struct wheel *wheel);
