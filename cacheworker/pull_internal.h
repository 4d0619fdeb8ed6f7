/*
 * What the files of pulls share. Does not leave the folder.
 *
 *	pull		who is asked next, from the first to the end
 *	pull_route	who that is
 *	pull_wait	whoever does not answer now is asked again a little later
 *	pull_land	an answer's bytes become those of flights
 */
#pragma once

#include "base/backoff.h"
#include "base/clock.h"
#include "base/deadline.h"
#include "cacheworker/duty.h"
#include "cacheworker/flight_internal.h"
#include "cacheworker/pull.h"

/* How long one is waited for, here (worker_config.peer_patience). */
static inline uint64_t pull_lasts(const struct worker *w, uint64_t patience_ns)
{
	return patience_ns * max(w->config->peer_patience, 1u);
}

struct pull {
	struct list link; /* pulls.all */
	struct worker *worker;
	struct source *source;
	struct chunk_id id;
	uint32_t offset; /* in the chunk */
	uint32_t length; /* whole blocks */
	/* The first of them, which a request asks for: UNIT_BYTES at most, as many as an answer may have. */
	uint32_t asked;
	uint32_t asked_length;
	uint64_t generation;
	enum ufs_class class;
	uint64_t until_ns; /* the latest of its flights'; 0: no limit */
	struct route route;
	uint16_t owner; /* by the table, when it is a copy */
	bool copy;      /* pulled from who serves the chunk; else it ends here */
	bool sought;    /* `holders` are known */
	bool rechecking;
	bool cut; /* the call's deadline is its readers', not the peer's */
	struct holder holders[DUTY_HOLDERS_MAX];
	uint32_t n_holders;
	uint32_t next;
	uint32_t steps;
	bool coming;            /* one of those asked has it soon */
	bool direct;            /* likewise, from its own origin */
	bool busy;              /* or answers that he has no room for it now */
	bool owed;              /* one of those passed by may have it, and is worth waiting for */
	uint64_t waited_ns;     /* its first pause began; 0: there was none */
	struct backoff backoff; /* of its pauses */
	/* Under flights.lock: */
	bool calling;
	bool waiting; /* pauses */
	bool awaits;  /* `direct`, as of this round or the one before */
	bool woken;   /* from that: the job */
	bool overdue; /* the call was ended for its time */
	bool given_up;
	uint64_t due_ns; /* of the pause, or of the call before its deadline; 0: none */
	struct view_peer *peer;
	uint64_t began_ns;
	struct rpc_call call;
	int status; /* of the call */
	struct pool_job job;
	uint32_t n;
	struct flight *flights[];
};

/* pull.c */
bool pulls_closing(struct worker *w);

/* pull_route.c. Of a copy: who serves the chunk and can be asked; NULL: it ends here. */
struct view_peer *pull_next_server(struct pull *p);
/* The owner is passed by, since his breaker is open: is he worth waiting for? */
bool pull_owner_is_owed(struct pull *p);
/* An answer without bytes sends it somewhere else; false: that is its end. */
bool pull_sent_on(struct pull *p, int status);
/* Of one that ends here: a worker that can have it, and was not asked; NULL: none, but for the one that p->owed waits for. */
struct view_peer *pull_next_holder(struct pull *p);
/* It is this worker's to end, whoever else was asked so far. */
void pull_end_here(struct pull *p);
bool pull_given_up(struct pull *p); /* a copy that is to end here */
/* From the first on: the table may be another by now, and so who serves it. */
void pull_begin(struct pull *p);
/* No worker answered, as opposed to one that has it not. */
bool pull_no_answer(int status);

/* pull_wait.c. A worker that does not answer, or is busy: may this pull wait for it? */
bool pull_may_wait(const struct pull *p, const struct view_peer *peer, enum holder_kind kind);
/* A worker says that it has it soon, from the origin: may this pull wait for that? One that a reader waits
 * for does so for as long as for an answer. */
bool pull_may_await(const struct pull *p);
/* It goes on a little later, by run() of its job with `woken` set; at once when a reader has come to wait. */
void pull_wait(struct pull *p);
void pull_wake_locked(struct pull *p); /* flights.lock */
/* It pauses, or calls, until then at most. flights.lock is held. */
void pull_due_locked(struct pull *p, uint64_t at_ns);
void pull_clock_init(struct worker *w);
void pull_clock_stop(struct worker *w); /* no pull is left; not on the loop */

/* pull_land.c. Is the answer what was asked for? -EBADMSG. */
int pull_check_shape(const struct pull *p) __must_check;
/* Hands over what was asked for and matches; keeps the rest. True: some of what came does not match, or has no memory. */
bool pull_land(struct pull *p);
