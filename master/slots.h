/*
 * Who owns which slot: members and the slot table, kept in the store so that a restart moves
 * nothing.
 *
 * Threads: slots_open() blocks on the store; afterwards the object never changes.
 */
#pragma once

#include "master/store.h"
#include "placement/placement.h"

#define SLOTS_BYTES (PLACEMENT_SLOTS * sizeof(struct placement_slot))

struct slots {
	struct placement_table *table;
	struct placement_worker worker;
	char *address; /* of the worker; NULL: none */
};

/* One worker, number 0, at `address` (NULL: no worker, every slot is nobody's). Its random id is
 * made once. */
int slots_open(struct store *store, uint64_t epoch, const char *address, struct slots *ret_slots,
	struct err *e) __must_check;
void slots_release(struct slots *slots);

/* The packed SlotTable message; freed by the caller. NULL without memory. */
uint8_t *slots_message(const struct slots *slots, size_t *ret_len);
