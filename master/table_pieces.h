/*
 * FRAME_TABLE: table files in pieces, for askers to whom no descriptor can go along.
 *
 *	request ──► parked ──memory──► read on a pool ──► reply, memory until it was taken
 *
 * Replies that are on their way have a bound of memory together (ARENA_REPLIES), and each connection
 * a share of it, so that a thousand workers that start at once wait for each other, not for memory.
 *
 * Threads: table_pieces_answer() and _cancelled() on the server's loop.
 */
#pragma once

#include "base/pool.h"
#include "master/source.h"
#include "net/net.h"

#define TABLE_PIECES_CONN 16u /* replies to one connection at once */

struct table_pieces;

/* Both are borrowed. NULL without memory. */
struct table_pieces *table_pieces_new(struct source_set *sources, struct pool *pool);
/* No request may be under way. NULL is allowed. */
void table_pieces_free(struct table_pieces *pieces);

/* Replies, now or later. */
void table_pieces_answer(struct table_pieces *pieces, struct rpc_request *request);
void table_pieces_cancelled(struct table_pieces *pieces, struct rpc_request *request);
