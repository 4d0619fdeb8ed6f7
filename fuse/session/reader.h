/*
 * Where a mount's bytes come from: the seam between the FUSE protocol and the client library. Two
 * implementations: the client (reader_client.c), and a synthetic volume in the tests.
 *
 * Threads: as client/client.h says for its functions; on_done never runs inside read().
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include "base/layout.h"
#include "client/client.h"

struct reader;
struct reader_set;
struct order;

struct reader_loan {
	struct client_loan loan;
	struct reader_set *set; /* the reader's */
};

struct reader_ops {
	/*
	 * May block on the disk, never on the network. 0: all `length` bytes are in buf; anything
	 * else: use read(). `offset` is a place (base/layout.h) here and in the others.
	 */
	int (*read_local)(struct reader *reader, uint64_t offset, uint32_t length, void *buf);
	/*
	 * A read_local() does not return, or one of which this was said did: until all have, none
	 * is to be tried. NULL: does not matter.
	 */
	void (*hangs)(struct reader *reader, bool now);
	/*
	 * Bytes that lie in memory already: true, and they are loan->loan.data until give(). NULL, with the
	 * next: there never are any.
	 */
	bool (*borrow)(struct reader *reader, uint64_t offset, uint32_t length,
		struct reader_loan *ret_loan);
	void (*give)(struct reader *reader, struct reader_loan *loan);
	/* Answers by read->on_done, exactly once; read->offset is the reader's from now on. */
	void (*read)(struct reader *reader, struct client_read *read);
	/*
	 * Not wanted any more: on_done follows soon, unless it ran. `read` still belongs to the
	 * caller.
	 */
	void (*cancel)(struct reader *reader, struct client_read *read);
	/* What the kernel asked for, in the order in which it did. Cheap. */
	void (*note)(struct reader *reader, uint64_t offset, uint32_t length);
};

#define READER_SETS 6u

/* The volumes of all sources, of one generation; borrowed. */
struct reader_set {
	struct client_volume *volumes[LAYOUT_SOURCES_MAX];
	uint32_t n;
	_Atomic uint32_t users; /* threads that ask one of them for something now */
};

struct reader {
	const struct reader_ops *ops;
	/* reader_client only: which of the sets is read from */
	struct reader_set sets[READER_SETS];
	_Atomic uint32_t now;
	struct order *order; /* what jobs announced; may be NULL */
};

/* The first volume; the others are added in their order, before the first read. They are borrowed
 * and must live longer. */
void reader_client_init(struct reader *reader, struct client_volume *volume);
void reader_client_add(struct reader *reader, struct client_volume *volume);
/*
 * From now on these are read, of the same sources in a later generation. *ret_set: what was read
 * before, until reader_client_left() says that nobody asks for it any more. -EBUSY: all sets are
 * in use. One thread.
 */
int reader_client_switch(struct reader *reader, struct client_volume *const *volumes, uint32_t n,
	uint32_t *ret_set) __must_check;
/* Nobody asks for volumes of that set, nor will: those without reads may be closed. Then, once said
 * to be `closed`, it may be used again. */
bool reader_client_left(const struct reader *reader, uint32_t set);
void reader_client_closed(struct reader *reader, uint32_t set);
