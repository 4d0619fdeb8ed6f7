/* What a reader knows of the workers, for people. Threads: any. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define CLIENT_PEER_NAME    64u
#define CLIENT_PEER_ADDRESS 160u

struct client;
struct client_volume;

struct client_peer {
	char name[CLIENT_PEER_NAME]; /* "": the table does not name it */
	char address[CLIENT_PEER_ADDRESS];
	const char *state; /* as the master says: "up", ... */
	bool local;        /* on this node */
	bool connected;
	bool broken; /* passed over for a while: it did not answer */
	uint64_t bytes;
	uint64_t answers;
	uint64_t failures;
	uint64_t in_flight;
	uint64_t p99_ns; /* 0: too few answers */
};

/* At most `max`, by number; returns how many. */
uint32_t client_peers(const struct client *client, struct client_peer *peers, uint32_t max);
/* (epoch, sequence) of the table in use; workers that are up, and all that are not out. */
struct client_cluster {
	uint64_t epoch;
	uint64_t sequence;
	uint32_t up;
	uint32_t known;
};
void client_cluster(const struct client *client, struct client_cluster *ret);

/* Who has a chunk, by the slot table. "": none. */
struct client_serving {
	char owner[CLIENT_PEER_NAME];
	char serves[CLIENT_PEER_NAME];      /* whom a reader here asks now */
	char deputies[2][CLIENT_PEER_NAME]; /* they have copies of what is hot, or kept twice */
	char previous[CLIENT_PEER_NAME];
	bool hot;
	bool here; /* `serves` is this node's worker */
};
void client_serving(const struct client_volume *volume, uint64_t chunk, struct client_serving *ret);
