/* The asking end of a lane. See lane_asker.h. */
#include "net/lane_asker.h"
#include "base/backoff.h"
#include "base/clock.h"
#include "base/err.h"

#include <stdlib.h>

#define ASKER_MAGIC 0x4c41534bu

enum asker_state {
	ASKER_OFF,
	ASKER_OPENING,
	ASKER_OFFERED,
	ASKER_CONNECTING,
	ASKER_PROVING,
	ASKER_OPEN,
	ASKER_FENCING,
};

struct lane_asker {
	uint32_t magic;
	enum asker_state state;
	struct loop *loop;
	struct lane_asker_options options;
	struct lane_table table;
	struct lane *lane;     /* NULL in ASKER_OFF */
	uint8_t number;        /* of the lane */
	enum lane_cause cause; /* of the last break */
	bool idle;             /* the lane is being closed since it was not needed */
	bool closing;
	uint64_t began_ns; /* OPENING, then OPEN */
	bool asked;        /* since lane_asker_watch() */
	uint64_t asked_ns; /* lane_asker_watch() last saw a request */
	struct backoff rest;
	uint64_t rest_ns; /* the last */
	uint64_t rest_until_ns;
	uint64_t breaks;
	uint64_t completed;
};

static const struct lane_events lane_events;

int lane_asker_new(
	struct loop *loop, const struct lane_asker_options *options, struct lane_asker **ret_asker)
{
	struct lane_asker *asker = calloc(1, sizeof(*asker));
	int r;

	ensure(options->slots <= LANE_WRITES_MAX);
	if (!asker)
		return -ENOMEM;
	r = lane_table_init(&asker->table, options->slots, options->share);
	if (r < 0) {
		free(asker);
		return r;
	}
	asker->magic = ASKER_MAGIC;
	asker->loop = loop;
	asker->options = *options;
	asker->rest = (struct backoff){ .min_ns = LANE_REST_NS, .max_ns = LANE_REST_MAX_NS };
	*ret_asker = asker;
	return 0;
}

static void asker_free(struct lane_asker *asker)
{
	void (*on_gone)(void *arg) = asker->options.events->on_gone;
	void *arg = asker->options.arg;

	lane_table_release(&asker->table);
	asker->magic = 0;
	free(asker);
	on_gone(arg);
}

void lane_asker_want(struct lane_asker *asker)
{
	struct lane_options options = { .side = LANE_ASKER,
		.local = asker->options.local,
		.remote = asker->options.remote,
		.writes = asker->options.slots,
		.events = &lane_events,
		.arg = asker };

	CHECK_MAGIC(asker, ASKER_MAGIC);
	if (asker->state != ASKER_OFF || asker->closing || clock_mono_ns() < asker->rest_until_ns)
		return;
	asker->lane = asker->options.ops->open(asker->loop, &options);
	if (!asker->lane)
		return; /* the next request tries again */
	asker->number = (uint8_t)(asker->number % UINT8_MAX + 1);
	asker->state = ASKER_OPENING;
	asker->began_ns = clock_mono_ns();
}

/* Leaves every state but OFF and FENCING, of which it does nothing. The first cause is the one that is kept. */
static void asker_break(struct lane_asker *asker, enum lane_cause cause)
{
	bool peer_knows = asker->state >= ASKER_OFFERED && cause != LANE_CONNECTION_CAUSE &&
			  cause != LANE_PEER_CAUSE;

	if (asker->state == ASKER_OFF || asker->state == ASKER_FENCING)
		return;
	asker->idle = cause == LANE_WELL;
	if (!asker->idle) {
		asker->cause = cause;
		asker->breaks++;
	}
	/* A lane that worked for longer than it was off has earned a short rest. */
	if (asker->state == ASKER_OPEN && clock_mono_ns() - asker->began_ns > asker->rest_ns)
		backoff_reset(&asker->rest);
	asker->state = ASKER_FENCING;
	asker->options.ops->close(asker->lane);
	if (peer_knows)
		asker->options.events->send_close(asker->options.arg, asker->number, cause);
}

void lane_asker_close(struct lane_asker *asker)
{
	CHECK_MAGIC(asker, ASKER_MAGIC);
	ensure(!asker->closing);
	asker->closing = true;
	asker_break(asker, LANE_CONNECTION_CAUSE);
	if (asker->state == ASKER_OFF)
		asker_free(asker);
}

void lane_asker_watch(struct lane_asker *asker)
{
	uint64_t now_ns = clock_mono_ns();

	CHECK_MAGIC(asker, ASKER_MAGIC);
	if (asker->state == ASKER_OPEN) {
		if (asker->asked || asker->table.bytes > asker->table.quarantined)
			asker->asked_ns = now_ns;
		asker->asked = false;
		if (now_ns > asker->asked_ns + LANE_IDLE_NS)
			asker_break(asker, LANE_WELL);
	} else if (now_ns > asker->began_ns + LANE_SETUP_NS) {
		asker_break(asker, LANE_PROBE_CAUSE);
	}
}

/* ---- the lane's upcalls ---------------------------------------------------------------------- */

static void on_open(void *arg, enum lane_cause cause, const struct lane_end *own)
{
	struct lane_asker *asker = arg;

	CHECK_MAGIC(asker, ASKER_MAGIC);
	if (cause != LANE_WELL) {
		asker_break(asker, cause);
	} else if (asker->state == ASKER_OPENING) {
		asker->state = ASKER_OFFERED;
		asker->options.events->send_open(asker->options.arg, asker->number, own);
	}
}

static void on_connected(void *arg)
{
	struct lane_asker *asker = arg;

	CHECK_MAGIC(asker, ASKER_MAGIC);
	if (asker->state != ASKER_CONNECTING)
		return;
	asker->state = ASKER_PROVING;
	asker->options.events->send_probe(asker->options.arg, asker->number);
}

static void asker_event(struct lane_asker *asker, uint32_t cookie, enum lane_event event)
{
	void *owner;
	enum lane_verdict verdict = lane_table_event(&asker->table, cookie, event, &owner);

	if (verdict == LANE_BREAK) {
		asker_break(asker, LANE_PROTOCOL_CAUSE);
		return;
	}
	asker->completed += verdict == LANE_COMPLETE;
	if (verdict != LANE_WAIT)
		asker->options.events->on_verdict(asker->options.arg, owner, verdict);
}

static void on_immediate(void *arg, uint32_t cookie)
{
	struct lane_asker *asker = arg;

	CHECK_MAGIC(asker, ASKER_MAGIC);
	if (asker->state == ASKER_PROVING && cookie == LANE_PROBE) {
		asker->state = ASKER_OPEN;
		asker->began_ns = clock_mono_ns();
		asker->asked_ns = asker->began_ns;
		asker->options.events->on_change(asker->options.arg);
	} else if (asker->state == ASKER_OPEN) {
		asker_event(asker, cookie, LANE_ON_IMMEDIATE);
	} else {
		asker_break(asker, LANE_PROTOCOL_CAUSE);
	}
}

static void on_written(void *arg, void *context, bool well)
{
	(void)arg;
	(void)context;
	(void)well;
	ensure(false); /* an asker writes nothing */
}

static void on_freed(void *arg, void *owner, enum lane_verdict verdict)
{
	struct lane_asker *asker = arg;

	asker->options.events->on_verdict(asker->options.arg, owner, verdict);
}

static void on_broken(void *arg, enum lane_cause cause)
{
	struct lane_asker *asker = arg;

	CHECK_MAGIC(asker, ASKER_MAGIC);
	asker_break(asker, cause);
}

static void on_closed(void *arg)
{
	struct lane_asker *asker = arg;

	CHECK_MAGIC(asker, ASKER_MAGIC);
	ensure(asker->state == ASKER_FENCING);
	if (!asker->idle) {
		asker->rest_ns = backoff_next(&asker->rest);
		asker->rest_until_ns = clock_mono_ns() + asker->rest_ns;
	}
	lane_table_fence(&asker->table, on_freed, asker);
	asker->lane = NULL;
	asker->state = ASKER_OFF;
	if (asker->closing)
		asker_free(asker);
	else
		asker->options.events->on_change(asker->options.arg);
}

static const struct lane_events lane_events = {
	.on_open = on_open,
	.on_connected = on_connected,
	.on_immediate = on_immediate,
	.on_written = on_written,
	.on_broken = on_broken,
	.on_closed = on_closed,
};

/* ---- the peer's words ------------------------------------------------------------------------ */

void lane_asker_opened(struct lane_asker *asker, uint8_t lane, const struct lane_end *peer)
{
	CHECK_MAGIC(asker, ASKER_MAGIC);
	if (lane != asker->number)
		return;
	if (asker->state == ASKER_OFFERED && lane_end_valid(peer)) {
		asker->state = ASKER_CONNECTING;
		asker->options.ops->connect(asker->lane, peer);
	} else {
		asker_break(asker, LANE_PROTOCOL_CAUSE);
	}
}

void lane_asker_broken(struct lane_asker *asker, uint8_t lane, enum lane_cause cause)
{
	CHECK_MAGIC(asker, ASKER_MAGIC);
	if (lane == asker->number)
		asker_break(asker,
			cause == LANE_WELL || cause >= LANE_N_CAUSES ? LANE_PEER_CAUSE : cause);
}

/* ---- requests -------------------------------------------------------------------------------- */

int lane_asker_ask(struct lane_asker *asker, void *owner, void *data, uint32_t bytes,
	struct lane_destination *ret_destination)
{
	struct lane_destination d = {
		.lane = asker->number, .address = (uintptr_t)data, .bytes = bytes
	};
	int r;

	CHECK_MAGIC(asker, ASKER_MAGIC);
	if (asker->state != ASKER_OPEN)
		return -ENOTCONN;
	r = asker->options.ops->key(asker->lane, data, bytes, &d.key);
	if (r == 0)
		r = lane_table_ask(&asker->table, owner, bytes, &d.cookie);
	if (r < 0)
		return r;
	asker->asked = true;
	*ret_destination = d;
	return 0;
}

static bool has(const struct lane_asker *asker, const struct lane_destination *d)
{
	CHECK_MAGIC(asker, ASKER_MAGIC);
	return d->lane == asker->number &&
	       (asker->state == ASKER_OPEN || asker->state == ASKER_FENCING);
}

/* Also of a lane that is being fenced, whose requests need not all be repeated. */
void lane_asker_header(
	struct lane_asker *asker, const struct lane_destination *destination, bool written)
{
	if (has(asker, destination))
		asker_event(asker, destination->cookie, written ? LANE_ON_HEADER : LANE_ON_ABSENT);
}

void lane_asker_unsent(struct lane_asker *asker, const struct lane_destination *destination)
{
	if (has(asker, destination))
		asker_event(asker, destination->cookie, LANE_ON_ABSENT);
}

void lane_asker_cancel(struct lane_asker *asker, const struct lane_destination *destination)
{
	if (!has(asker, destination))
		return;
	asker_event(asker, destination->cookie, LANE_ON_CANCEL);
	if (lane_table_choked(&asker->table))
		asker_break(asker, LANE_QUARANTINE_CAUSE);
}

void lane_asker_look(const struct lane_asker *asker, struct lane_asker_state *ret_state)
{
	CHECK_MAGIC(asker, ASKER_MAGIC);
	*ret_state = (struct lane_asker_state){ .open = asker->state == ASKER_OPEN,
		.lane = asker->number,
		.cause = asker->cause,
		.rest_until_ns = asker->rest_until_ns,
		.breaks = asker->breaks,
		.completed = asker->completed,
		.quarantined = asker->table.quarantined };
}
