/*
 * The fill protocol, explored exhaustively: readers and workers with tables of different age, one
 * unit of a chunk, and every order in which messages arrive, tables come, workers die and
 * connections break. The decisions are placement/duty.h's, the ones that run; what a worker does with
 * them is said here in a few lines:
 *
 *	FETCH		has it: DATA. Else duty_of(): NONE sends away; OWNER and COPY join the unit's flight or
 *			begin one. FRAME_PEER and FRAME_LAST never wait for a flight that pulls: it turns into
 *			one that ends here
 *	SEEK		has it: DATA, else MISS, at once. Causes nothing. Whoever is to end it waits for what comes
 *			from the origin (-EALREADY, asked again for some seconds; here: until it comes), never for
 *			what is pulled
 *	flight		PULL (a COPY's: by its route) -> ASK (who may have it: SEEK, one by one) -> ORIGIN
 *
 * Checked in every state: somebody can go on until all readers have their bytes (no deadlock), no
 * state leads back to itself (no livelock), the origin is asked for the unit as often as allowed, and
 * no reader is left with nobody to ask. Each rule that the protocol needs is then left out in turn, and
 * the exploration must find what goes wrong. Left out is what ends by itself: pauses (pull_wait.c).
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/hash.h"
#include "placement/duty.h"

#define N        PLACEMENT_NONE
#define WORKERS  3
#define READERS  3                   /* at most; a scenario may have fewer */
#define ACTORS   (READERS + WORKERS) /* readers first */
#define VERSIONS 4
#define DEPTH    400

enum phase { IDLE, SENT, PARKED, ANSWERED };
enum answer { DATA, MOVED, HERD, MISS, DEAD };
enum mode { NO_FLIGHT, PULL, ASK, ORIGIN };

/* A reader, or a worker with its flight; each has one request in progress at most. */
struct actor {
	uint8_t version; /* of the table that it has */
	uint8_t phase;   /* of its request */
	uint8_t to;
	uint8_t cached;
	uint8_t last;
	uint8_t answer;
	uint8_t x;    /* whom the answer names */
	uint8_t done; /* a reader: has its bytes */
	uint8_t has;  /* a worker, from here on */
	uint8_t alive;
	uint8_t mode;
	uint8_t asked; /* bit per worker */
	uint8_t had;   /* likewise: had it when this flight began to ask */
	struct route route;
};

struct state {
	struct actor a[ACTORS];
	uint8_t gets;
	uint8_t deaths; /* that may still happen, and so on */
	uint8_t cuts;
	uint8_t herds;
};

struct version {
	struct placement_slot slot;
	struct duty_states up;
};

/* A rule that is left out. */
enum broken {
	BROKEN_NOTHING,
	BROKEN_PEER_FORWARDS,  /* a COPY answers FRAME_PEER by pulling itself */
	BROKEN_LAST_WAITS,     /* FRAME_LAST waits for a flight that pulls */
	BROKEN_CACHED_WAITS,   /* FETCH_CACHED waits for whatever flight there is */
	BROKEN_LAST_SENT_AWAY, /* and nobody counts */
	BROKEN_OWNER_NO_ASK,   /* an owner goes to the origin at once */
	BROKEN_END
};

struct scenario {
	const char *name;
	uint8_t versions;
	struct version v[VERSIONS];
	bool whole[WORKERS]; /* keeps copies of all */
	uint8_t local;       /* the first reader asks that worker first; WORKERS: none */
	uint8_t deaths;
	uint8_t cuts;
	uint8_t herds;
	uint8_t gets;    /* the most that is allowed */
	uint8_t readers; /* 0: two */
	bool frozen;     /* everybody keeps the table that he has: the i-th the i-th */
};

struct exploration {
	const struct scenario *scenario;
	enum broken broken;
	uint64_t *seen; /* hashes of states; a power of two of places */
	uint8_t *open;  /* on the way that is being explored */
	uint64_t places;
	uint64_t states;
	uint32_t most_gets;
	const char *wrong;
};

static bool is_worker(uint32_t i)
{
	return i >= READERS;
}

static uint16_t number_of(uint32_t i)
{
	return is_worker(i) ? (uint16_t)(i - READERS) : N;
}

static const struct version *version_of(const struct exploration *e, const struct actor *a)
{
	return &e->scenario->v[a->version];
}

/* ---- who is asked ---------------------------------------------------------------------------- */

static void candidate_add(uint16_t *list, uint32_t *n, uint16_t number, uint16_t self)
{
	if (number == N || number == self)
		return;
	for (uint32_t i = 0; i < *n; i++) {
		if (list[i] == number)
			return;
	}
	if (*n < ROUTE_CANDIDATES)
		list[(*n)++] = number;
}

/* As view_find(): the owner, deputies, the previous owner; those that are down come last. */
static uint32_t candidates_of(const struct version *v, uint16_t self, uint16_t *list, uint32_t n)
{
	for (int up = 1; up >= 0; up--) {
		if (v->up.owner_up == up)
			candidate_add(list, &n, v->slot.owner, self);
		for (uint32_t i = 0; i < 2; i++) {
			if (v->up.replica_up[i] == up)
				candidate_add(list, &n, v->slot.replicas[i], self);
		}
		if (v->up.previous_up == up)
			candidate_add(list, &n, v->slot.previous, self);
	}
	return n;
}

static void send(struct actor *a, uint16_t to, bool cached, bool last)
{
	a->phase = SENT;
	a->to = (uint8_t)to;
	a->cached = cached;
	a->last = last;
}

static void begin_route(const struct exploration *e, struct state *s, uint32_t i)
{
	struct actor *a = &s->a[i];
	const struct version *v = version_of(e, a);
	uint16_t list[ROUTE_CANDIDATES];
	uint16_t owner = v->slot.owner;
	uint32_t n = 0;

	if (i == 0 && e->scenario->local < WORKERS) {
		list[n++] = e->scenario->local;
		owner = list[0];
	}
	n = candidates_of(v, number_of(i), list, n);
	route_begin(&a->route, list, n, owner, number_of(i));
}

/* ---- flights --------------------------------------------------------------------------------- */

/* Everybody who waits at that worker is answered. */
static void release(struct state *s, uint32_t at, enum answer answer)
{
	for (uint32_t i = 0; i < ACTORS; i++) {
		if (s->a[i].phase == PARKED && s->a[i].to + (uint32_t)READERS == at) {
			s->a[i].phase = ANSWERED;
			s->a[i].answer = (uint8_t)answer;
		}
	}
}

static void flight_end(struct state *s, uint32_t i)
{
	struct actor *w = &s->a[i];

	w->has = 1;
	w->mode = NO_FLIGHT;
	w->phase = IDLE;
	w->asked = 0;
	w->had = 0;
	memset(&w->route, 0, sizeof(w->route));
	release(s, i, DATA);
}

static bool ask_one(struct actor *w, uint32_t self, uint16_t number)
{
	if (number == N || number == self || (w->asked >> number & 1))
		return false;
	w->asked |= (uint8_t)(1u << number);
	send(w, number, true, false);
	return true;
}

/* Those of the slot, as far as the worker's table says, that have the unit. */
static uint8_t who_has(const struct exploration *e, const struct state *s, const struct actor *w)
{
	const struct placement_slot *slot = &version_of(e, w)->slot;
	uint8_t has = 0;

	for (uint32_t i = 0; i < WORKERS; i++) {
		if (i == slot->owner || i == slot->previous || i == slot->replicas[0] ||
			i == slot->replicas[1])
			has |= (uint8_t)(s->a[READERS + i].has << i);
	}
	return has;
}

/* The next who may have it: who serves the chunk, the previous owner, those before him as this worker
 * remembers them, the replicas; then the origin. */
static void ask_next(struct exploration *e, struct state *s, uint32_t i)
{
	struct actor *w = &s->a[i];
	const struct version *v = version_of(e, w);
	uint16_t self = number_of(i);

	if (w->mode != ASK)
		w->had = who_has(e, s, w);
	w->mode = ASK;
	if (e->broken != BROKEN_OWNER_NO_ASK) {
		if (ask_one(w, self, duty_serves(&v->slot, &v->up)))
			return;
		if (v->up.previous_up && ask_one(w, self, v->slot.previous))
			return;
		for (uint32_t k = w->version; k > 0; k--) {
			if (ask_one(w, self, e->scenario->v[k - 1].slot.owner))
				return;
		}
		for (uint32_t k = 0; k < 2; k++) {
			if (v->up.replica_up[k] && ask_one(w, self, v->slot.replicas[k]))
				return;
		}
	}
	w->phase = IDLE;
	w->mode = ORIGIN;
	s->gets++;
	if (w->had && s->deaths == e->scenario->deaths && s->cuts == e->scenario->cuts)
		e->wrong = "the origin is asked for what a peer has";
}

static void pull_next(struct exploration *e, struct state *s, uint32_t i)
{
	struct actor *w = &s->a[i];

	if (w->route.to == number_of(i))
		ask_next(e, s, i);
	else
		send(w, w->route.to, w->route.cached, w->route.last);
}

/* ---- requests -------------------------------------------------------------------------------- */

static void answer(struct actor *a, enum answer what, uint16_t x)
{
	a->phase = ANSWERED;
	a->answer = (uint8_t)what;
	a->x = (uint8_t)x;
}

static void handle_cached(const struct exploration *e, struct actor *a, const struct actor *w)
{
	bool waits = e->broken == BROKEN_CACHED_WAITS && w->mode != NO_FLIGHT;
	bool coming = a->mode == ASK && w->mode == ORIGIN;

	if (w->has)
		answer(a, DATA, 0);
	else if (waits || coming)
		a->phase = PARKED;
	else
		answer(a, MISS, 0);
}

static struct duty duty_at(
	const struct exploration *e, const struct state *s, uint32_t i, const struct actor *a)
{
	const struct version *v = version_of(e, &s->a[i]);
	struct duty_ask ask = {
		.self = number_of(i),
		.slot = v->slot,
		.up = v->up,
		.whole = e->scenario->whole[i - READERS],
		.copies = 1,
		.peer = is_worker((uint32_t)(a - s->a)) && e->broken != BROKEN_PEER_FORWARDS,
		.last = a->last && e->broken != BROKEN_LAST_SENT_AWAY,
	};

	return duty_of(&ask);
}

/* Must a flight that pulls turn into one that ends here, for the sake of this request? */
static bool ends_here(
	const struct exploration *e, const struct actor *a, bool peer, enum duty_kind kind)
{
	return kind == DUTY_OWNER && (peer || a->last) && e->broken != BROKEN_LAST_WAITS;
}

/* A request arrives. */
static void arrive(struct exploration *e, struct state *s, struct actor *a)
{
	uint32_t i = a->to + READERS;
	struct actor *w = &s->a[i];
	bool peer = is_worker((uint32_t)(a - s->a));
	struct duty d;

	if (!w->alive) {
		answer(a, DEAD, 0);
		return;
	}
	if (a->cached) {
		handle_cached(e, a, w);
		return;
	}
	if (w->has) {
		answer(a, DATA, 0);
		return;
	}
	d = duty_at(e, s, i, a);
	if (d.kind == DUTY_NONE) {
		answer(a, MOVED, d.serves);
		return;
	}
	a->phase = PARKED;
	if (w->mode == NO_FLIGHT && d.kind == DUTY_COPY) {
		begin_route(e, s, i);
		w->mode = PULL;
		pull_next(e, s, i);
	} else if (w->mode == NO_FLIGHT || (w->mode == PULL && ends_here(e, a, peer, d.kind))) {
		ask_next(e, s, i);
	}
}

/* An answer arrives. */
static void take_answer(struct exploration *e, struct state *s, uint32_t i)
{
	static const enum route_outcome outcomes[] = {
		[MOVED] = ROUTE_MOVED, [HERD] = ROUTE_HERD, [MISS] = ROUTE_MISS, [DEAD] = ROUTE_DEAD
	};
	struct actor *a = &s->a[i];

	a->phase = IDLE;
	if (a->answer == DATA && !is_worker(i)) {
		a->done = 1;
		memset(&a->route, 0, sizeof(a->route));
	} else if (a->answer == DATA) {
		flight_end(s, i);
	} else if (is_worker(i) && a->mode == ASK) {
		ask_next(e, s, i);
	} else {
		if (e->broken == BROKEN_LAST_SENT_AWAY && a->answer == MOVED)
			a->route.to = a->x;
		else
			route_next(&a->route, outcomes[a->answer], a->x);
		if (is_worker(i))
			pull_next(e, s, i);
		else if (a->route.to == N)
			e->wrong = "a reader has nobody left to ask";
		else
			send(a, a->route.to, a->route.cached, a->route.last);
	}
}

/* ---- steps ----------------------------------------------------------------------------------- */

/* What brings somebody on. */
static bool go_on(struct exploration *e, struct state *s, uint32_t i)
{
	struct actor *a = &s->a[i];

	if (is_worker(i) && !a->alive)
		return false;
	if (is_worker(i) && a->mode == ORIGIN) {
		flight_end(s, i);
		return true;
	}
	if (!is_worker(i) && a->phase == IDLE && !a->done) {
		begin_route(e, s, i);
		send(a, a->route.to, a->route.cached, a->route.last);
		return true;
	}
	if (a->phase == SENT)
		arrive(e, s, a);
	else if (a->phase == ANSWERED)
		take_answer(e, s, i);
	else
		return false;
	return true;
}

static void die(struct state *s, uint32_t i, bool for_good)
{
	struct actor *w = &s->a[i];

	if (w->mode == ORIGIN)
		s->gets--; /* it has to be made again */
	w->mode = NO_FLIGHT;
	w->phase = IDLE;
	w->asked = 0;
	w->had = 0;
	memset(&w->route, 0, sizeof(w->route));
	w->alive = !for_good;
	release(s, i, DEAD);
	s->deaths--;
}

enum event {
	GO_ON,
	NEW_TABLE,
	DIES,
	RESTARTS, /* with what it has */
	CUT,      /* the asker's connection breaks; the asked goes on */
	NAMED,    /* an owner answers a peer "ask X" */
	EVENTS
};

static bool named(struct exploration *e, struct state *s, uint32_t i, uint32_t x)
{
	struct actor *a = &s->a[i];

	if (!is_worker(i) || a->phase != SENT || a->cached || a->last || !s->herds || x == a->to ||
		x == number_of(i) || duty_at(e, s, a->to + READERS, a).kind != DUTY_OWNER ||
		!s->a[a->to + READERS].alive)
		return false;
	s->herds--;
	answer(a, HERD, (uint16_t)x);
	return true;
}

static bool happens(struct exploration *e, struct state *s, enum event event, uint32_t i)
{
	struct actor *a = &s->a[i];

	switch (event) {
	case GO_ON:
		return go_on(e, s, i);
	case NEW_TABLE:
		/* A reader looks at its table when it begins. */
		if (e->scenario->frozen || a->version + 1 >= e->scenario->versions ||
			(is_worker(i) ? !a->alive : a->phase != IDLE || a->done))
			return false;
		a->version++;
		return true;
	case DIES:
	case RESTARTS:
		if (!s->deaths || !is_worker(i) || !a->alive)
			return false;
		die(s, i, event == DIES);
		return true;
	case CUT:
		if (!s->cuts || (a->phase != SENT && a->phase != PARKED))
			return false;
		s->cuts--;
		answer(a, DEAD, 0);
		return true;
	case NAMED:
	case EVENTS:
		break;
	}
	return false;
}

/* ---- exploration ----------------------------------------------------------------------------- */

static uint64_t hash_place(const struct exploration *e, uint64_t hash)
{
	uint64_t at = hash & (e->places - 1);

	while (e->seen[at] && e->seen[at] != hash)
		at = (at + 1) & (e->places - 1);
	return at;
}

/* Readers have their bytes, and no flight is left. */
static bool all_done(const struct state *s)
{
	for (uint32_t i = 0; i < ACTORS; i++) {
		if (is_worker(i) ? s->a[i].mode != NO_FLIGHT : !s->a[i].done)
			return false;
	}
	return true;
}

static void explore(struct exploration *e, const struct state *s, uint32_t depth);

/* Every event that may happen to one actor. True when it can go on. */
static bool explore_actor(struct exploration *e, const struct state *s, uint32_t i, uint32_t depth)
{
	struct state next;
	bool goes = false;

	for (uint32_t event = 0; event < EVENTS && !e->wrong; event++) {
		next = *s;
		if (!happens(e, &next, event, i))
			continue;
		goes |= event == GO_ON;
		explore(e, &next, depth + 1);
	}
	for (uint32_t x = 0; x < WORKERS && s->herds && !e->wrong; x++) {
		next = *s;
		if (named(e, &next, i, x))
			explore(e, &next, depth + 1);
	}
	return goes;
}

static void explore(struct exploration *e, const struct state *s, uint32_t depth)
{
	uint64_t hash = hash_xxh3(s, sizeof(*s), 0) | 1;
	uint64_t at = hash_place(e, hash);
	bool goes = false;

	if (e->wrong)
		return;
	if (e->seen[at]) {
		if (e->open[at])
			e->wrong = "livelock";
		return;
	}
	e->seen[at] = hash;
	e->open[at] = 1;
	assert_true(++e->states * 4 < e->places * 3);
	e->most_gets = max(e->most_gets, s->gets);
	if (s->gets > e->scenario->gets)
		e->wrong = "too many requests to the origin";
	if (depth > DEPTH)
		e->wrong = "no end";
	if (all_done(s)) {
		e->open[at] = 0;
		return;
	}
	for (uint32_t i = 0; i < ACTORS && !e->wrong; i++)
		goes |= explore_actor(e, s, i, depth);
	if (!goes && !e->wrong)
		e->wrong = "deadlock";
	e->open[hash_place(e, hash)] = 0;
}

/* `places` for the hashes of states: a power of two. */
static struct exploration run(const struct scenario *scenario, enum broken broken, uint64_t places)
{
	struct exploration e = { .scenario = scenario, .broken = broken, .places = places };
	struct state s;

	e.seen = calloc(e.places, sizeof(*e.seen));
	e.open = calloc(e.places, 1);
	assert_non_null(e.seen);
	assert_non_null(e.open);
	memset(&s, 0, sizeof(s));
	for (uint32_t i = READERS; i < ACTORS; i++)
		s.a[i].alive = 1;
	for (uint32_t i = scenario->readers ? scenario->readers : 2; i < READERS; i++)
		s.a[i].done = 1;
	for (uint32_t i = 0; i < ACTORS && scenario->frozen; i++)
		s.a[i].version = (uint8_t)((is_worker(i) ? number_of(i) : i) % scenario->versions);
	s.deaths = scenario->deaths;
	s.cuts = scenario->cuts;
	s.herds = scenario->herds;
	explore(&e, &s, 0);
	free(e.seen);
	free(e.open);
	print_message("%-28s %8llu states, origin at most %u: %s\n", scenario->name,
		(unsigned long long)e.states, e.most_gets, e.wrong ? e.wrong : "ok");
	return e;
}

#define ALL_UP                     \
	{                          \
		true, true,        \
		{                  \
			true, true \
		}                  \
	}
#define V(o, p, r0, r1)                      \
	{                                    \
		{ o, p, { r0, r1 } }, ALL_UP \
	}
#define DOWN(o, p, r0, r1)                 \
	{                                  \
		{ o, p, { r0, r1 } },      \
		{                          \
			false, true,       \
			{                  \
				true, true \
			}                  \
		}                          \
	}

#define SHARED .local = WORKERS
#define COPIES                   \
	{                        \
		true, true, true \
	}

/* `gets` counts those that did not die with who made them: one that is needed, and one more for each table
 * beyond the first that is in use at a time, for each death, for each connection that breaks. */
static const struct scenario scenarios[] = {
	{ "one table", 1, { V(0, N, 1, 2) }, SHARED, .gets = 1 },
	{ "one table, copies", 1, { V(0, N, 1, 2) }, COPIES, 1, .herds = 3, .gets = 1 },
	{ "A->B", 2, { V(0, N, 1, 2), V(1, 0, 2, 0) }, SHARED, .gets = 2 },
	{ "A->B, copies", 2, { V(0, N, 1, 2), V(1, 0, 2, 0) }, COPIES, 2, .herds = 1, .gets = 2 },
	{ "A, B own it", 2, { V(0, N, 1, 2), V(1, 0, 2, 0) }, SHARED, .gets = 2, .readers = 3,
		.frozen = true },
	{ "A, B own it, copies", 2, { V(0, N, 1, 2), V(1, 0, 2, 0) }, COPIES, 2, .gets = 2,
		.readers = 3, .frozen = true },
	{ "A, B, C own it", 3, { V(0, N, 1, 2), V(1, 0, 2, 0), V(2, 1, 0, 1) }, SHARED, .gets = 3,
		.readers = 3, .frozen = true },
	{ "A down, up", 3, { V(0, N, 1, 2), DOWN(0, N, 1, 2), V(0, N, 1, 2) }, SHARED, .gets = 2 },
	{ "A down, up, copies", 3, { V(0, N, 1, 2), DOWN(0, N, 1, 2), V(0, N, 1, 2) }, COPIES, 1,
		.gets = 2 },
	{ "A down, B owns", 3, { V(0, N, 1, 2), DOWN(0, N, 1, 2), V(1, 0, 2, 0) }, COPIES, 2,
		.gets = 2 },
	{ "death", 1, { V(0, N, 1, 2) }, SHARED, .deaths = 1, .gets = 2 },
	{ "death, copies", 1, { V(0, N, 1, 2) }, COPIES, 1, .deaths = 1, .herds = 1, .gets = 2 },
	{ "cut", 1, { V(0, N, 1, 2) }, SHARED, .cuts = 1, .gets = 2 },
	{ "cut, copies", 1, { V(0, N, 1, 2) }, COPIES, 1, .cuts = 1, .herds = 1, .gets = 2 },
	{ "A->B->C, a copy", 3, { V(0, N, 1, 2), V(1, 0, 2, 0), V(2, 1, 0, 1) },
		{ true, false, false }, 0, .gets = 2 },
	{ "A->B->C, copies", 3, { V(0, N, 1, 2), V(1, 0, 2, 0), V(2, 1, 0, 1) }, COPIES, 1,
		.gets = 2 },
	{ "A->B->A", 3, { V(0, N, 1, 2), V(1, 0, 2, 0), V(0, 1, 2, 1) }, SHARED, .gets = 2 },
	{ "death, A->B", 2, { V(0, N, 1, 2), V(1, 0, 2, 0) }, SHARED, .deaths = 1, .gets = 2 },
};

/* With GRANARY_MODEL_LONG in the environment. */
static const struct scenario long_scenarios[] = {
	{ "A->B->C", 3, { V(0, N, 1, 2), V(1, 0, 2, 0), V(2, 1, 0, 1) }, SHARED, .gets = 2 },
	{ "death, A->B, copies", 2, { V(0, N, 1, 2), V(1, 0, 2, 0) }, COPIES, 1, .deaths = 1,
		.herds = 1, .gets = 3 },
	{ "two deaths", 1, { V(0, N, 1, 2) }, SHARED, .deaths = 2, .gets = 3 },
	{ "two deaths, copies", 1, { V(0, N, 1, 2) }, COPIES, 1, .deaths = 2, .gets = 3 },
	{ "cut, A->B", 2, { V(0, N, 1, 2), V(1, 0, 2, 0) }, SHARED, .cuts = 1, .gets = 3 },
	{ "death, A->B->C, copies", 3, { V(0, N, 1, 2), V(1, 0, 2, 0), V(2, 1, 0, 1) }, COPIES, 1,
		.deaths = 1, .gets = 3 },
	{ "death, A->B->C", 3, { V(0, N, 1, 2), V(1, 0, 2, 0), V(2, 1, 0, 1) }, SHARED, .deaths = 1,
		.gets = 3 },
	{ "cut, A->B->C, copies", 3, { V(0, N, 1, 2), V(1, 0, 2, 0), V(2, 1, 0, 1) }, COPIES, 1,
		.cuts = 1, .gets = 3 },
};

static void explored(void **state)
{
	uint32_t wrong = 0;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(scenarios); i++)
		wrong += run(&scenarios[i], BROKEN_NOTHING, 1u << 21).wrong != NULL;
	assert_int_equal(wrong, 0);
}

static void explored_long(void **state)
{
	uint32_t wrong = 0;

	(void)state;
	if (!getenv("GRANARY_MODEL_LONG"))
		skip();
	for (size_t i = 0; i < ARRAY_SIZE(long_scenarios); i++)
		wrong += run(&long_scenarios[i], BROKEN_NOTHING, 1u << 28).wrong != NULL;
	assert_int_equal(wrong, 0);
}

/* Without any one of its rules the protocol is wrong, and the exploration says how. */
static void every_rule_is_needed(void **state)
{
	(void)state;
	for (enum broken b = BROKEN_NOTHING + 1; b < BROKEN_END; b++) {
		const char *wrong = NULL;

		for (size_t i = 0; i < ARRAY_SIZE(scenarios) && !wrong; i++)
			wrong = run(&scenarios[i], b, 1u << 21).wrong;
		print_message("-> without rule %d: %s\n", b, wrong ? wrong : "nothing");
		assert_non_null(wrong);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(explored),
		cmocka_unit_test(every_rule_is_needed),
		cmocka_unit_test(explored_long),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
