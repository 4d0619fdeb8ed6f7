/*
 * What the files of the retry decorator share:
 *
 *	retry.c		attempts of GETs
 *	retry_rules.c	what is asked for again, and when
 *	retry_list.c	LISTs and probes, for which a thread waits
 *	retry_wait.c	GETs that wait for long: told of, found, and ended at their deadline
 */
#pragma once

#include <pthread.h>
#include "base/loop.h"
#include "ufs/ufs_internal.h"

#define RETRY_MAGIC          0x55525452u
#define RETRY_REFUSALS_MAX   8u               /* in a row; then it is true */
#define RETRY_REFUSAL_CAP_NS (250 * CLOCK_MS) /* a reader waits for an error that is likely true */

struct retry {
	struct ufs base;
	struct loop *loop;
	struct loop_task tick_task;
	struct loop_task cancel_task;

	pthread_mutex_t lock; /* of the following, and the priv of the callers' requests */
	bool closing;
	bool ticking;      /* the tick is started, or its task is posted */
	bool cancels;      /* the cancel task is posted */
	struct list fresh; /* attempts by age, not yet told of */
	struct list told;  /* those that have waited long */

	/* The loop's thread only. */
	struct list waiting; /* attempts with a timer */
	struct loop_timer *tick;
};

struct attempt {
	uint32_t magic;
	struct list link; /* retry.waiting */
	struct loop_task task;
	struct loop_timer *timer;
	struct retry *retry;
	struct ufs_get get; /* to the lower origin */
	struct ufs_get *outer;
	uint64_t received; /* by earlier attempts */
	uint64_t deadline_ns;
	uint64_t started_ns;
	uint64_t delay_ns;
	unsigned int attempts;
	unsigned int fruitless; /* attempts in a row that brought nothing: the backoff's exponent */
	unsigned int refusals;  /* the same refusal in a row */

	/* Under the lock: */
	struct list by_age;   /* retry.fresh or .told */
	enum ufs_class class; /* as promoted; the next attempt's */
	bool cancelled;
	bool late;             /* ended at its deadline, by us */
	unsigned int failures; /* attempts that have failed */
	int status;            /* of the last of them */
	struct err e;
	enum ufs_cause cause;
};

struct retry *retry_of(struct ufs *ufs);

/* ---- retry_rules.c */
/* Lost connections and overload: they pass by themselves. */
bool retry_passes(int status);
/* Said of the object: waiting does not mend it. */
bool retry_refuses(int status);
/* Asking again is no use: not the origin's doing, or for long. */
bool retry_is_final(int status);
/* How long to wait before the next attempt, after so many in a row that brought nothing; not shorter than the origin
 * asked for. */
uint64_t retry_backoff_ns(unsigned int fruitless, uint64_t asked_ns);

/* ---- retry_list.c: the table's */
int retry_list_page(struct ufs *ufs, const struct ufs_page_request *request, struct ufs_page *page,
	struct err *e) __must_check;
int retry_probe(struct ufs *ufs, struct err *e) __must_check;

/* ---- retry_wait.c */
/* The tick_task: from now on somebody looks every second, while there is a GET. */
void retry_wait_start(struct loop_task *task);
/* The table's. */
bool retry_find_wait(struct ufs *ufs, const char *key, uint32_t key_len, struct ufs_wait *ret_wait);
