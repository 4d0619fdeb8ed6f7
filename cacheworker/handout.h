/*
 * What readers on this node find cached bytes with, without asking for each: the chunk map
 * (locate/chunk_map.h), once a connection, and descriptors by its files, once a file. One map: all
 * readers of a worker are in one circle of trust, that of its socket.
 *
 * Without memory for a map there is none, and readers ask as before.
 *
 * Threads: handout_open() and _close() as worker_open(); the rest any.
 */
#pragma once

#include <stdint.h>

struct rpc_request;
struct worker;

/* Makes the map; before readers are served. */
void handout_open(struct worker *w);
/* Before the tiers are closed. */
void handout_close(struct worker *w);

/* Answers FRAME_MAP. Never blocks. */
void handout_answer(struct worker *w, struct rpc_request *request);
/* The start of the map, as sent to readers with each FRAME_HELD; 0: there is none. */
uint64_t handout_start(const struct worker *w);
/* A reader read so many bytes of the chunk of that slot of the map. */
void handout_note_read(struct worker *w, uint32_t slot, uint64_t bytes);
/* Brings the counters up to date. */
void handout_count(struct worker *w);
