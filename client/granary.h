/*
 * libgranary: a job tells the Granary mount that it reads from in which order it will read, so that
 * what comes next is fetched before it is asked for (docs/order.md). Reading itself needs nothing
 * of this: files are opened and read as always.
 *
 *	struct granary_order *order;
 *
 *	if (granary_order_open("/mnt/imagenet", 0, &order) < 0)
 *		...no worker to announce to: read on, it only takes longer
 *	granary_order_samples(order, samples, n);	the data set, in its own order, once
 *	for (epoch = 0; epoch < epochs; epoch++) {
 *		granary_announce(order, numbers, n_numbers);	what this process will read
 *		...
 *	}
 *	granary_order_close(order);
 *
 * Link with -lgranary -lcrypto -lxxhash. Functions return 0 or a negative errno. An order is one
 * thread's at a time; it is the mount's for as long as it is open, and forgotten with the process.
 * After -ECONNRESET or -EPIPE (the mount's daemon was restarted, or shows another
 * generation) and -ETIMEDOUT open another one.
 *
 * A call waits for the mount no longer than the deadline that granary_order_open() was given, and for long lists and orders
 * 20 us more for each sample and 1 us for each number, which the mount looks up and sorts. granary_order_open() asks the
 * file system, too, which may wait for a mount's daemon that is stopped: a job that must not wait calls it in a thread.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct granary_order;

/* A file, or a part of one, that is read as one sample. */
struct granary_sample {
	const char *path; /* below the mount, without a leading slash */
	uint64_t offset;
	uint64_t length; /* 0: to its end */
};

/*
 * Connects to the mount that `path` is below. GRANARY_SOCKET in the environment names its socket
 * where it cannot be found, as in a container. Calls wait for the mount `deadline_ms`, or a second with 0. -ENOENT: there is no such mount, or it takes no
 * orders from this user; -EACCES: `path` cannot be read.
 */
int granary_order_open(const char *path, uint32_t deadline_ms, struct granary_order **ret_order);
/* Forgets the order; NULL is allowed. */
void granary_order_close(struct granary_order *order);

/* Registers what orders are made of; the list is copied. Forgets what was announced before. */
int granary_order_samples(
	struct granary_order *order, const struct granary_sample *samples, uint32_t n);
/* Files of the list that are not there. */
uint64_t granary_order_unknown(const struct granary_order *order);

/* Announces one of these, in place of what was announced before: the samples `numbers[0..n)` of the
 * list; or, with NULL, all of them as they are listed; */
int granary_announce(struct granary_order *order, const uint32_t *numbers, uint32_t n);
/* nothing. */
int granary_announce_nothing(struct granary_order *order);

/* How the reads of this node follow what was announced last: a hit came just behind another one in the order.
 * Suspended: few of the last reads were hits, and nothing is fetched by the order until more are. */
struct granary_hits {
	uint64_t reads;
	uint64_t hits;
	bool suspended;
};
int granary_order_hits(struct granary_order *order, struct granary_hits *ret_hits);

/* Why the last call failed, for a person: one line, or ""; valid until the next call. */
const char *granary_order_error(const struct granary_order *order);

#ifdef __cplusplus
}
#endif
