/*
 * What this process remembers of the generations it saw, so that a master restored from an old copy
 * cannot give an offset another meaning. Embedded in struct client. Threads: any.
 */
#pragma once

#include <pthread.h>
#include "base/err.h"
#include "catalog/catalog.h"

#define CLIENT_GUARD_MAX 64 /* lineages remembered; the one not asked for longest is forgotten */

struct client_guard {
	pthread_mutex_t lock;
	uint32_t n;
	uint64_t clock;
	struct {
		uint64_t used;
		struct generation_id id; /* the highest of its lineage */
		struct table *table;     /* of that generation, referenced */
	} seen[CLIENT_GUARD_MAX];
};

void client_guard_init(struct client_guard *guard);
void client_guard_release(struct client_guard *guard);

/* Remembers the table, or refuses it with -ESTALE and a line: older than one seen of its lineage,
 * another one under the same number, or one that gives an offset a new meaning. */
int client_guard_check(struct client_guard *guard, struct table *table, struct err *e) __must_check;

/* The generation of `volume` that was taken last; false when there is none. */
bool client_guard_last(
	struct client_guard *guard, const struct volume_id *volume, struct generation_id *ret_id);

struct client;

/* What of a source's policy, and of who keeps all of it, concerns its readers. */
#define CLIENT_KEEPERS 4u
struct client_policy {
	uint32_t copies; /* COPIES_AUTO, ... */
	bool direct;
	bool keepers_known;
	uint16_t keepers[CLIENT_KEEPERS]; /* numbers of workers, PLACEMENT_NONE after the last */
};
/* The master's last word about all open volumes of that id. Any thread. */
void client_take_policy(
	struct client *client, const struct volume_id *id, const struct client_policy *policy);
