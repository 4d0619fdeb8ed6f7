/*
 * The asking end of a lane on one connection: opens it when large answers are asked for, proves it, keeps its destinations
 * (net/lane_table.h), breaks it at the first failure, and fences it before anything is reused.
 *
 *	OFF		not open: not yet wanted, or at rest after a failure
 *	OPENING		the queue pair is being made
 *	OFFERED		the peer received OPEN
 *	CONNECTING	it answered OPENED
 *	PROVING		it was asked for the first write
 *	OPEN		requests have destinations
 *	FENCING		broken, or closed: waits until the queue pair is destroyed
 *
 * A lane that broke is off for 30 s, then for twice as long each time, to 10 min; one that stayed open for longer than its last rest
 * begins with 30 s again.
 *
 * Threads: the loop's only. Upcalls come from inside its functions and from the lane; inside any upcall but on_gone()
 * every function is allowed.
 */
#pragma once

#include "net/lane.h"
#include "net/lane_table.h"

#define LANE_REST_NS     (30 * 1000000000ull)
#define LANE_REST_MAX_NS (600 * 1000000000ull)
#define LANE_SETUP_NS    (5 * 1000000000ull)  /* from OPENING to OPEN */
#define LANE_IDLE_NS     (60 * 1000000000ull) /* without a request: the lane is closed */

struct lane_asker;

/* As in a request's payload. */
struct lane_destination {
	uint8_t lane; /* its number on the connection: 1 to 255, and 1 again */
	uint64_t address;
	uint32_t key;
	uint32_t bytes;
	uint32_t cookie;
};

struct lane_asker_events {
	/* Words for the peer, of the lane with this number on the connection. */
	void (*send_open)(void *arg, uint8_t lane, const struct lane_end *own);
	void (*send_probe)(void *arg, uint8_t lane);
	void (*send_close)(
		void *arg, uint8_t lane, enum lane_cause cause); /* LANE_WELL: it is idle */
	/* The lane is open, or off again: lane_asker_look() has more. */
	void (*on_change)(void *arg);
	/* What became of a destination: LANE_COMPLETE, LANE_RELEASE or LANE_REPEAT. It is free, and the owner's again. */
	void (*on_verdict)(void *arg, void *owner, enum lane_verdict verdict);
	/* After lane_asker_close(), and after all verdicts: the last upcall; the asker is freed behind it. */
	void (*on_gone)(void *arg);
};

struct lane_asker_options {
	const struct lane_ops *ops;
	struct sockaddr_storage local; /* of the connection's socket */
	struct sockaddr_storage remote;
	unsigned int slots; /* destinations at the same time, 1..LANE_WRITES_MAX */
	uint64_t share;     /* bytes of them */
	const struct lane_asker_events *events;
	void *arg;
};

/* -ENOMEM. */
int lane_asker_new(struct loop *loop, const struct lane_asker_options *options,
	struct lane_asker **ret_asker) __must_check;
/* The connection ended. on_gone() follows, perhaps from inside. */
void lane_asker_close(struct lane_asker *asker);

/* Large answers are asked for: opens the lane when it is off and not at rest. */
void lane_asker_want(struct lane_asker *asker);
/* To be called about once a second: set-up that lasts too long, idle lanes. */
void lane_asker_watch(struct lane_asker *asker);

/* Words of the peer. Those of an earlier lane do nothing; one that does not fit breaks the lane. */
void lane_asker_opened(struct lane_asker *asker, uint8_t lane, const struct lane_end *peer);
void lane_asker_broken(struct lane_asker *asker, uint8_t lane, enum lane_cause cause);

/* A destination for a request that is to be sent now. -ENOTCONN: the lane is not open; -EFAULT: the memory is not that of lanes;
 * -ENOBUFS: too many are in flight. The request then goes without. */
int lane_asker_ask(struct lane_asker *asker, void *owner, void *data, uint32_t bytes,
	struct lane_destination *ret_destination) __must_check;
/* What happens to a request with a destination, which on_verdict() may follow from inside. Of a lane that is not open any more the
 * functions do nothing: its fence frees all.
 *
 * The header of the answer, from the peer; `written`: it names the lane. */
void lane_asker_header(
	struct lane_asker *asker, const struct lane_destination *destination, bool written);
/* The request was never sent. */
void lane_asker_unsent(struct lane_asker *asker, const struct lane_destination *destination);
/* The request ended, and had no header or no immediate. */
void lane_asker_cancel(struct lane_asker *asker, const struct lane_destination *destination);

struct lane_asker_state {
	bool open;
	uint8_t lane;          /* the number of the last */
	enum lane_cause cause; /* why the last one broke; LANE_WELL: none did */
	uint64_t rest_until_ns;
	uint64_t breaks;
	uint64_t completed;   /* answers */
	uint64_t quarantined; /* bytes, now */
};
void lane_asker_look(const struct lane_asker *asker, struct lane_asker_state *ret_state);
