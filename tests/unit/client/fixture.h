/*
 * What the tests of client/ share: a small volume with known bytes, a master and a worker that
 * answer for it over real sockets and can misbehave, and reads that wait.
 */
#pragma once

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include "proto/held.h"
#include "base/file.h"
#include "base/units.h"
#include "client/client.h"
#include "locate/chunk_map.h"
#include "locate/extent_format.h"
#include "net/net.h"
#include "proto/granary.pb-c.h"

#define FIX_OBJECTS 64
#define FIX_CHUNKS  4
#define FIX_LOG     16384

struct fix_object {
	char key[32];
	uint64_t offset;
	uint64_t size;
	uint64_t seed;
};

/* One request as the worker saw it. */
struct fix_seen {
	uint8_t op;
	uint8_t class;
	uint16_t flags;
	uint64_t offset;
	uint32_t length;
};

struct fix {
	void (*on_hold)(struct fix *f, struct rpc_request *request);
	void (*on_seal)(struct fix *f, struct rpc_request *request);
	void (*on_slots)(struct fix *f, struct rpc_request *request);
	void *priv; /* the test's */
	char dir[64];
	struct ufs_config source;
	struct budget budget;
	struct client *client;
	struct client_volume *volume;
	struct loop *loop;
	struct rpc_server *master;
	struct rpc_server *worker;
	char master_address[96];
	char worker_address[96];
	char table_path[128]; /* what the master hands out */
	char sent_path[128];  /* the table it sends with that, when another one */
	bool master_fails;
	void (*on_open)(struct fix *f); /* before an answer about the source; or NULL */
	struct volume_id volume_id;
	uint64_t lineage;

	pthread_mutex_t lock;
	/* How the worker behaves; under the lock. */
	bool local;     /* answers with descriptors when asked to */
	bool bytes_odd; /* chunks with an odd number are answered with bytes */
	bool whole;     /* the bitmap shows everything, not only what was asked for */
	bool park;      /* holds FETCHes */
	int fail;       /* status of the next `fail_n` FETCHes */
	uint32_t fail_n;
	struct chunk_map_writer *writer; /* hands its map out; NULL: knows of none */
	uint32_t maps;                   /* times that it did */
	bool in_extent;                  /* every chunk lies in one file */
	int file_fails;                  /* status of FILE */
	int recheck;
	uint64_t holds; /* number of the last */ /* answer to RECHECK */
	uint32_t corrupt_n;                      /* next answers with bytes to damage */
	bool repairs;                            /* RECHECK ends that */
	uint32_t file_version[FIX_CHUNKS];       /* another number: another file */
	uint8_t bitmap[FIX_CHUNKS][CHUNK_BITMAP_BYTES];
	struct list parked;
	uint32_t parked_n;
	uint32_t cancelled_n;
	struct fix_seen seen[FIX_LOG];
	uint32_t seen_n;

	struct fix_object objects[FIX_OBJECTS];
	uint32_t n_objects;
	uint64_t end; /* of the last object, rounded up */
};

/* ---- the bytes ------------------------------------------------------------------------------- */

/* A number that follows from x and looks like chance. */
uint64_t fix_mix(uint64_t x);
/* The object must exist. */
const struct fix_object *fix_object(const struct fix *f, const char *key);
/* Paths in the directory of the fixture; storage of four calls of a thread. */
const char *fix_path(const struct fix *f, const char *name);
const char *fix_chunk_path(const struct fix *f, uint32_t chunk);

/* Calls fn for each piece of the volume that lies in [offset, offset + length). */
void fix_each_piece(const struct fix *f, uint64_t offset, uint64_t length,
	void (*fn)(const struct fix_object *o, uint64_t number, void *arg), void *arg);

#define FIX_EXTENT (4ull * CHUNK_BYTES)

/* As in the head of the file that the chunk lies in. */
uint64_t fix_file_id(const struct fix *f, uint32_t chunk);

/* The chunk as a file of its own, unless it exists. */
void fix_write_chunk(const struct fix *f, uint32_t chunk);

/* ---- the worker ------------------------------------------------------------------------------ */

void fix_mark(const struct fix_object *o, uint64_t number, void *arg);
/* Answers with the bytes and their checksums. */
void fix_reply_bytes(struct fix *f, struct rpc_request *request);

/* Answers what was held. */
void fix_unpark(struct fix *f);

/* At the address of the fixture; fix_new() starts the first one. */
void fix_start_worker(struct fix *f);
void fix_stop_worker(struct fix *f);

/* Requests of one kind so far. */
uint32_t fix_count(struct fix *f, enum frame_op op);

/* ---- the master ------------------------------------------------------------------------------ */

/* Answers with a packed message, which it frees, and a descriptor, or -1. */
void fix_reply_packed(struct rpc_request *request, uint8_t *packed, size_t len, int fd);

void fix_on_master(struct rpc_request *request, void *arg);

/* ---- set-up ---------------------------------------------------------------------------------- */

void fix_add(struct listing *l, const char *key, uint64_t size);
/* The objects of the first generation. */
void fix_listing(struct listing *l);

/* The generation after `prev` (or the first) as a file. */
struct table *fix_build(struct fix *f, struct table *prev, struct listing *l, const char *path);

/* A client with the master and the budget of the fixture, and the source opened. Returns 0. */
int fix_start_client(struct fix *f, struct client_config config);

/* Master, worker (answering with descriptors), no client yet. */
struct fix *fix_new(const char *worker_address);

/* Ends client and servers; no budget may be left in use. */
void fix_free(struct fix *f);
/* As cmocka wants them: *state is the fixture, with a client of no options. */
int fix_setup(void **state);
int fix_teardown(void **state);

/* ---- reads ----------------------------------------------------------------------------------- */

struct fix_read {
	struct client_read read;
	pthread_mutex_t lock;
	pthread_cond_t ended;
	bool done;
	int status;
	uint8_t *data; /* a copy */
};

/* The read ends by fix_read_end(). */
struct fix_read *fix_read_start(struct fix *f, uint64_t offset, uint32_t length);
bool fix_read_done(struct fix_read *r);

/* Waits and compares; `status` is what it must end with. Frees the read. */
void fix_read_end(struct fix *f, struct fix_read *r, int status);

/* A read that must succeed. */
void fix_read(struct fix *f, uint64_t offset, uint32_t length);

/* client_read_local(), compared when it succeeds. */
int fix_read_local(struct fix *f, uint64_t offset, uint32_t length);

/* client_borrow(), compared when it succeeds. */
bool fix_borrow(struct fix *f, uint64_t offset, uint32_t length);

/* Waits until the worker holds n requests. */
void fix_wait_parked(struct fix *f, uint32_t n);

/* A counter of the client by its symbol. */
uint64_t fix_counter(struct fix *f, const char *symbol);
