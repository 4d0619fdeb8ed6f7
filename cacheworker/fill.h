/*
 * Fills: which units are fetched without having been asked for (docs/decisions/fill-policy.md).
 *
 * The requested object comes first and alone. Objects of its chunk follow that are of the kinds that jobs read
 * (kinds.h): at most FILL_NEIGHBOURS times the requested bytes and requests until 2 % of the source was requested, then
 * the whole chunk from the requested object on, with at most FILL_REQUESTS requests for each miss, and as many again
 * for the first miss of a kind. Ranges announced by a reader (PREFETCH) are filled whole. Nothing is filled that no tier
 * would admit.
 *
 * One pump job at a time takes units from the active fills while fewer than max_in_flight are under
 * way: what was announced first, then neighbours, each oldest first.
 */
#pragma once

#include "cacheworker/source.h"

/* Together with the asked bytes at most 4 x: a job that reads few files at random costs the origin
 * little. */
#define FILL_NEIGHBOURS  3u
#define FILL_WHOLE_SHARE 50u /* 1/50 = 2 % of the source */
#define FILL_REQUESTS    128u
/* A fill ends when it has passed more objects without credit in a row: each has to be read from the table. */
#define FILL_PASSED 128u

/* The first bytes of a unit arrived that no reader had waited for before this one. */
void fill_asked(struct source *source, uint64_t start, uint32_t length);

/* A reader will want [offset, offset + length), which lies in one chunk. -EAGAIN: too much is
 * announced already; -ENOMEM, -ECANCELED. */
int fill_ahead(struct source *source, uint64_t offset, uint32_t length) __must_check;
/* The same for one of many ranges of an order (docs/order.md): each by itself, in the order of the
 * calls, and nothing that lies between them. */
int fill_exact(struct source *source, uint64_t offset, uint32_t length) __must_check;

/* A unit of a fill ended. */
void fill_unit_ended(struct worker *w);
/* A unit's memory was given back. Any thread, no lock held. */
void fill_memory_freed(struct worker *w);

int fills_init(struct worker *w) __must_check;
void fills_close(struct worker *w);   /* starts nothing more */
void fills_release(struct worker *w); /* after the pools ended */
