/*
 * The scrub: reads what lies in the tiers and compares it with its checksums, and, when asked, a
 * sample of it with the origin (docs/decisions/scrub.md).
 *
 *	UNVERIFIED	pieces of an earlier boot, as soon as the worker started
 *	PASS		all pieces, in order of their chunks, once in max_age; where it is outlives
 *			the worker, so the chunk that comes next is the one verified longest ago
 *	ORDERED		all pieces (of one volume), now: POST /v1/scrub; perhaps a sample
 *
 * Damaged pieces are dropped, counted, logged and fetched again. It is one periodic work, with the memory
 * of one unit, keeps to a rate, and yields to readers.
 *
 * Threads: scrub_open() and so on by the worker; the routes on the admin server's.
 */
#pragma once

#include "admin/admin.h"
#include "cacheworker/worker.h"

#define SCRUB_RATE    (8ull << 20)                       /* bytes a second */
#define SCRUB_MAX_AGE (7ull * 24 * 3600 * 1000000000ull) /* ns */

int scrub_open(struct worker *w) __must_check; /* after the tiers, before anybody asks */
void scrub_start(struct worker *w);            /* once the master can be asked */
void scrub_stop(struct worker *w);             /* it begins nothing more; first of all */
void scrub_close(struct worker *w); /* once nothing it waits for can come; waits for its end */

/* {"state", "pass", "ordered", ...}: what GET /v1/scrub and the status say. */
json_t *scrub_json(struct worker *w);
int scrub_get(void *arg, const struct admin_request *request, json_t **ret_json, struct err *e);
int scrub_post(void *arg, const struct admin_request *request, json_t **ret_json, struct err *e);
