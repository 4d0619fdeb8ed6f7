/*
 * What the files of pulls share. Does not leave the folder.
 *
 *	pull		who is asked next, from the first to the end
 *	pull_land	an answer's bytes become those of flights
 */
#pragma once

#include "cacheworker/duty.h"
#include "cacheworker/flight_internal.h"
#include "cacheworker/pull.h"

struct pull {
	struct list link; /* pulls.all */
	struct worker *worker;
	struct source *source;
	struct chunk_id id;
	uint32_t offset; /* in the chunk */
	uint32_t length; /* whole blocks */
	uint64_t generation;
	enum ufs_class class;
	struct route route;
	bool copy;   /* pulled from who serves the chunk; else it ends here */
	bool sought; /* `holders` are known */
	bool rechecking;
	uint16_t holders[DUTY_HOLDERS_MAX];
	uint32_t n_holders;
	uint32_t next;
	uint32_t steps;
	/* Under flights.lock: */
	bool calling;
	bool given_up;
	struct view_peer *peer;
	uint64_t began_ns;
	struct rpc_call call;
	int status; /* of the call */
	struct pool_job job;
	uint32_t n;
	struct flight *flights[];
};

/* pull_land.c. Is the answer what was asked for? -EBADMSG. */
int pull_check_shape(const struct pull *p) __must_check;
/* Hands over what matches; keeps what does not, or has no memory. */
void pull_land(struct pull *p);
