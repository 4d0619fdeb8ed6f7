/* Several workers, which come and go, send reads away, and take their time; a reader, and its master. */
#pragma once

#include "tests/unit/client/fixture.h"
#include "client/client_internal.h"
#include "net/fake.h"

#define WORKERS  4u
#define PATIENCE (60 * CLOCK_SECOND) /* for what must come */

struct route_fix;

/* A worker as the tests want it to be; under the lock of the fixture. */
struct worker {
	struct route_fix *r;
	struct loop *loop;
	struct rpc_server *server;
	char name[32]; /* of the fake transport */
	enum cluster_state state;
	int status; /* of its answers; 0: bytes */
	uint16_t x; /* with -EREMOTE */
	uint16_t flags;
	bool park;
	bool park_cached;
	bool cold; /* has nothing cached */
	struct list parked;
	uint32_t fetches;
	uint32_t lasts; /* of them, with FRAME_LAST */
	uint32_t cached;
	uint32_t parked_cached;
	uint32_t prefetches;
	uint32_t cancelled;
};

struct route_fix {
	struct fix *f;
	struct worker workers[WORKERS];
	struct placement_slot slot; /* all of them are so */
	bool hot;
	uint64_t sequence;
	uint32_t asks;  /* of the master, for the table */
	uint32_t stale; /* of them, that were not to be parked */
	struct rpc_request *parked;
	bool ending; /* nothing is parked any more: what the client sent last may come after its end */
};

/* ---- workers --------------------------------------------------------------------------------- */

/* Answers what the worker held. */
void route_unpark(struct worker *w);

/* ---- the master ------------------------------------------------------------------------------ */

/* What was changed in the fixture becomes known to the client. */
void route_tell(struct route_fix *r);

/* ---- set-up ---------------------------------------------------------------------------------- */

/* As cmocka wants them: *state is the fixture, with a client that differs by its options. */
int route_setup(void **state);
int route_setup_impatient(void **state);

#define PATIENT_NS (4 * CLOCK_SECOND)

int route_setup_patient(void **state);

/* By itself no read asks a second time. */
int route_setup_pausing(void **state);

/* The fixture's own worker is the node's. */
int route_setup_local(void **state);

int route_teardown(void **state);
/* Waits until one of the counters above is at least n; reads one. */
void route_wait_for(struct route_fix *r, const uint32_t *counter, uint32_t n);
uint32_t route_count(struct route_fix *r, const uint32_t *counter);

void route_set_status(struct route_fix *r, uint32_t worker, int status, uint16_t x, uint16_t flags);

void route_set_state(struct route_fix *r, uint32_t worker, enum cluster_state to);
void route_set_park(struct route_fix *r, uint32_t worker);

/* The master says that worker 3 keeps all of the volume, and another that nobody knows. */
void route_set_keeper(struct route_fix *r);

void route_set_copies(struct route_fix *r, uint32_t copies);
