/*
 * What the files of the retry decorator share:
 *
 *	retry.c		attempts of GETs
 *	retry_rules.c	what is asked for again, and when
 *	retry_object.c	what is remembered of objects, and how many GETs a doubtful one may have in flight
 *	retry_list.c	LISTs and probes, for which a thread waits
 *	retry_wait.c	GETs that wait for long: reported, found, and ended at their deadline
 */
#pragma once

#include <pthread.h>
#include "base/loop.h"
#include "base/map.h"
#include "ufs/refused.h"
#include "ufs/ufs_internal.h"

#define RETRY_MAGIC        0x55525452u
#define RETRY_REFUSALS_MAX 2u   /* of an object; then it is true */
#define RETRY_GIVEN        256u /* objects of which parts were given lately: a power of two */

/* An object of which parts were given lately. */
struct given {
	uint64_t object;
	uint64_t until_ns; /* monotonic; 0: none */
};

struct retry {
	struct ufs base;
	struct loop *loop;
	struct loop_task tick_task;
	struct loop_task cancel_task;
	struct loop_task open_task;

	pthread_mutex_t lock; /* of the following, and the priv of the callers' requests */
	bool closing;
	bool ticking; /* the tick is started, or its task is posted */
	bool cancels; /* the cancel task is posted */
	bool opens;   /* the open task is posted */
	struct refused refused;
	struct map partial; /* struct partial, by object */
	struct given given
		[RETRY_GIVEN]; /* by the low bits of the object; a newer one replaces another */
	unsigned int held;     /* attempts */
	uint64_t served_ns;    /* when the last GET was sent that brought bytes */
	uint64_t forgotten;    /* times that `refused` was emptied */
	struct list fresh;     /* attempts by age, not yet reported */
	struct list noted;     /* those that have waited long */

	/* The loop's thread only. */
	struct list waiting; /* attempts with a timer, and those that are held */
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
	uint64_t until_ns; /* no attempt begins later */
	uint64_t started_ns;
	uint64_t delay_ns;
	unsigned int attempts;
	unsigned int fruitless; /* attempts in a row that brought nothing: the backoff's exponent */
	uint64_t object;        /* hash of its key and tag */
	bool progressed;        /* bytes came */

	/* Under the lock: */
	struct partial *partial; /* NULL: it wants the whole object, and no part of it */
	bool held;               /* until the first answer for its object */
	bool in_flight;          /* it was sent, or is about to be */
	bool lower;              /* the lower has it */
	bool refused;            /* the last failure is to be believed */
	uint64_t forgotten;      /* retry.forgotten when it was sent */
	uint64_t sent_ns;        /* when it was sent last */
	struct list by_age;      /* retry.fresh or .noted */
	enum ufs_class class;    /* as promoted; the next attempt's */
	bool cancelled;
	bool late;             /* ended at its deadline, by us */
	unsigned int failures; /* attempts that have failed */
	int status;            /* of the last of them */
	struct err e;
	enum ufs_cause cause;
};

/*
 * An object of which parts are asked for. Before one of them brings bytes, no more GETs are in flight than may be refused
 * (RETRY_REFUSALS_MAX); the others are held, so that an object that has changed costs no request for each of its parts.
 * A reader's request is held for a few seconds at most, and none is after parts of the object were given lately.
 */
struct partial {
	struct map_node node; /* its hash: of key and tag */
	unsigned int attempts;
	unsigned int held; /* of them */
	unsigned int in_flight;
	bool served;                               /* one brought bytes: none is held any more */
	struct attempt *first[RETRY_REFUSALS_MAX]; /* in flight, of those before that; or NULL */
};

struct retry *retry_of(struct ufs *ufs);

/* ---- retry.c */
/* On the loop, for one that is in no list: it is sent, held, or ends. */
void retry_go(struct attempt *a);
/* It ends; `e` may be of the attempt. */
void retry_finish(struct attempt *a, int status, const struct err *e);

/* ---- retry_object.c; retry.lock is held where it says so */
/* May fail only before the first attempt of one that wants a part. -ENOMEM. */
int retry_object_join_locked(struct attempt *a) __must_check;
void retry_object_leave_locked(struct attempt *a);
enum retry_verdict {
	RETRY_SEND,    /* it counts as in flight from now on */
	RETRY_HOLD,    /* retry_go() will be called */
	RETRY_REFUSED, /* it ends without a request: a->status and a->e are set */
};
enum retry_verdict retry_object_judge_locked(struct attempt *a);
/* It is not in flight any more: it brought bytes (`served`), or was refused. Sets a->refused. */
void retry_object_answered_locked(struct attempt *a, int status, bool served);
/* It may be held: it is as urgent as the attempts that it waits for from now on. */
void retry_object_raise_locked(struct attempt *a);
/* Those that are held, if any, are judged again soon. */
void retry_object_open_locked(struct retry *retry);
/* It is past its deadline. */
void retry_object_late_locked(struct attempt *a);
/* Bytes came. The origin's thread; takes the lock, once. */
void retry_object_progress(struct attempt *a);
/* The open_task: those that were held go on. */
void retry_object_open(struct loop_task *task);
/* The table's. */
bool retry_refused(
	struct ufs *ufs, const char *key, uint32_t key_len, const char *tag, uint32_t tag_len);
void retry_note_refused(struct ufs *ufs, const char *key, uint32_t key_len, const char *tag,
	uint32_t tag_len, uint32_t times);
void retry_forget(struct ufs *ufs);

/* ---- retry_rules.c */
/* Lost connections and overload: they pass by themselves. */
bool retry_passes(int status);
/* Said of that version of the object: waiting does not mend it. */
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
