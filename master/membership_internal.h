/* The parts of a membership. See membership.h. */
#pragma once

#include "base/periodic.h"
#include "master/membership.h"

#define GATHER_NS   (200 * CLOCK_MS)
#define LOOK_NS     (250 * CLOCK_MS)
#define RETRY_NS    CLOCK_SECOND
#define PACE_NS     (500 * CLOCK_MS)   /* from one step to the next: all must be able to follow */
#define HOT_PACE_NS (5 * CLOCK_SECOND) /* likewise, when it says only what is hot */
#define REPLICAS    2u

/* Marks that go round the loop on which beats are read (membership_late.c). Under the lock. */
struct late {
	struct loop *loop; /* NULL: there is none */
	struct loop_task mark;
	uint64_t sent_ns;    /* the mark, while it is under way */
	uint32_t rounds;     /* that it has still to make; 0: it is not under way */
	pthread_cond_t back; /* it is not any more */
};

/* Who joined and is answered when that is stored (membership_join.c). Under the lock. */
struct joins {
	struct list waiting; /* rpc_request.link; priv is the number */
	bool storing;        /* a thread does, until none is left */
};

struct membership {
	struct membership_config config;
	struct membership_counters counters;
	pthread_mutex_t
		writing; /* before `lock`: over changes of members that are stored, and their writes */
	pthread_mutex_t lock;
	struct members members;
	struct slots slots;
	struct watch watch;
	uint64_t dirty[PLACEMENT_MAX / 64]; /* numbers of those that changed since the last step */
	bool is_dirty;
	bool only_hot;          /* it is for what is hot alone */
	bool moves;             /* slots may have to */
	uint64_t changed_ns;    /* since when `is_dirty` */
	uint64_t stepped_ns;    /* the last step */
	uint64_t due_ns;        /* the next step */
	uint64_t hot_ns;        /* the next look at what is hot */
	struct hot_rate *rates; /* room for it: PLACEMENT_MAX * MEMBER_HOT, once needed */
	uint32_t cap_rates;
	struct late late;
	struct joins joins;
	uint64_t rested_ns; /* the next look for numbers that rested */
	struct pool *pool;  /* for `work` */
	struct periodic_work work;
};

/* The member as it is now goes into the store, if it is not there. With `writing`, without `lock`. */
int membership_store(struct membership *m, uint16_t number, struct err *e) __must_check;
/* `value` was written: it is `stored` unless it changed since. Not before: a worker that joins is answered at once when it is. With
 * `writing` and `lock`. */
void membership_mark_stored_locked(struct membership *m, uint16_t number, const struct buf *value);
/* Its line, for who is refused for it. */
int membership_refuse_store(struct err *e, int r);
/* A reply of `packed`, malloc'ed; NULL: there was no memory. */
void membership_reply(struct rpc_request *request, uint8_t *packed, size_t len);
/* Answers all that wait for less than there is now. Without locks. */
void membership_wake(struct membership *m);
/* All members that are not stored as they are, with `more` in the same write (NULL: nothing); at most a few hundred,
 * then *ret_rest. With `writing`, without `lock`. */
int membership_store_all(
	struct membership *m, const struct store_change *more, bool *ret_rest) __must_check;
/* True: beats are not read as they come, so it is not known which are missing (membership_late.c). Sends the next mark. */
bool membership_is_late_locked(struct membership *m, uint64_t now);
/* One step, if something changed (membership_step.c). Without locks. */
void membership_step(struct membership *m);
