/*
 * The worker whole, for its tests: a directory as origin, a real tier, real sockets, and a master
 * of the test's own that hands out a table.
 */
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <fcntl.h>
#include <ftw.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/units.h"
#include "proto/held.h"
#include "cacheworker/worker.h"
#include "cacheworker/flight.h"
#include "cacheworker/source.h"
#include "base/piece.h"
#include "proto/granary.pb-c.h"
#include "tests/clock/test_clock.h"

#define DEADLINE (60 * CLOCK_SECOND)

/* One world per test, torn down by its end. */
struct world {
	char dir[64];
	char address[128];
	const char *listen[1];
	char master_address[128];
	char admin[128];
	char tier[128];
	struct loop *loop;
	struct rpc_server *master;
	struct rpc_client *client;
	struct table *table;
	char *table_path;
	struct table *elder; /* of another lineage, which the master still has; or NULL */
	const char *elder_path;
	char other_tier[128]; /* "": there is one tier */
	struct tier_config tiers[2];
	struct worker_config config;
	struct worker worker;
	uint8_t *model; /* the volume's bytes as they should be */
	uint64_t model_bytes;
	uint64_t size;   /* of every file; 0: of many sizes */
	uint64_t memory; /* of the worker; 0: 64 MiB */
	uint64_t taken;  /* of it, by the test */
	uint64_t scrub_rate;
	uint64_t scrub_max_age;
	uint64_t seal_rate;
	/* Under lock: the master keeps requests until it is let go. */
	pthread_mutex_t lock;
	bool hold;
	struct list held;
	unsigned int asked;
	uint64_t shown; /* generation that the worker said it has seen; 0: it said nothing */
	/* What the master answers to GET_RETENTION: a packed message, under lock; none: no source. */
	uint8_t retention[512];
	size_t terms_len;
	unsigned int retention_asked;
	uint8_t report[512]; /* that came with the last question */
	size_t report_len;
	uint64_t quota;     /* of the policy that comes with the table; 0: none comes */
	uint64_t bandwidth; /* likewise, with it */
	uint32_t copies;    /* likewise; 0: none comes */
	/* Answers to PRELOAD; NULL: they are not understood. */
	void (*_Atomic preload)(struct world *w, struct rpc_request *request);
	/* Answers to JOIN, BEAT and GET_SLOTS; NULL: as PRELOAD. */
	void (*_Atomic cluster)(struct world *w, struct rpc_request *request);
};

/* ---- a master that knows one table ----------------------------------------------------------- */

/* Answers GET_TABLE with w->table, or with w->elder if its lineage is requested. */
void world_answer_table(struct world *w, struct rpc_request *request);

/* Of the master; its argument is the world. */
extern const struct rpc_server_ops world_master_ops;

/* ---- a source -------------------------------------------------------------------------------- */

/* Files [first, end) of the origin, of world.size bytes or of many sizes. */
void world_write_files(struct world *w, unsigned int first, unsigned int end);

/* Lists the directory: the first generation, or the one after w->table. */
struct table *world_make_table(struct world *w, const char *name);

/* w->model, from w->table and the files of the origin. */
void world_make_model(struct world *w);

/* With a tier of `capacity` bytes, and w->client connected to it. */
void world_start_worker(struct world *w, uint64_t capacity);

/* All but the worker. */
struct world *world_prepare(unsigned int files, uint64_t size, uint64_t memory);

struct world *world_new_sized(
	uint64_t capacity, unsigned int files, uint64_t size, uint64_t memory);

/* With files of many sizes, and a worker that has the usual memory. */
struct world *world_new(uint64_t capacity, unsigned int files);

/* The client too; the world can start another one. */
void world_stop_worker(struct world *w);

/* Without a worker. */
void world_end(struct world *w);

void world_free(struct world *w);

/* ---- reading --------------------------------------------------------------------------------- */

/* A request about w->table that may take DEADLINE. */
struct rpc_call world_make_call(
	const struct world *w, enum frame_op op, uint64_t offset, uint32_t length, uint16_t flags);

/* The checksums behind an answer's bytes: of every piece touched, whole. */
void world_check_sums(const struct world *w, uint64_t offset, uint32_t length, const void *payload,
	uint32_t checksums);

/* Reads a range by whatever answer comes and compares it. Returns true when the answer was a
 * descriptor. */
bool world_read_range(const struct world *w, uint64_t offset, uint32_t length, uint16_t flags);

/* The volume range by range; counts the ranges, and those answered by a descriptor. */
void world_read_all(
	const struct world *w, uint16_t flags, uint32_t *ret_local, uint32_t *ret_ranges);

/* Requests to the origin since the worker started. */
uint64_t world_origin_gets(struct world *w);

/* Fetch units of w->table; checks the bounds of each. */
uint64_t world_units(const struct world *w);

/* Fills that wait or run. */
unsigned int world_fills(struct world *w);

/* Until no flight and no fill is left. */
void world_wait_written(struct world *w);

/* Of file-NNN in the volume. */
uint64_t world_offset_of(const struct world *w, unsigned int file);

/* All of the budget for the test. A flight that has ended gives its own back a moment later:
 * otherwise to a reader that is to starve. */
void world_take_memory(struct world *w);

/* Gives some of it back as the worker does. */
void world_give_memory_of(struct world *w, uint64_t bytes);

void world_give_memory(struct world *w);
