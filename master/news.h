/*
 * Tells the worker that there is something new in what GET_TERMS answers: it asks every ten seconds
 * or so anyway, so that a word that is lost does no harm.
 *
 * Threads: news_tell() any.
 */
#pragma once

#include "base/loop.h"
#include "base/err.h"

struct news;

/* NULL, with a line, without memory or for an address that is none. */
struct news *news_new(struct loop *loop, const char *worker, struct err *e);
/* Not on the loop's thread; NULL is allowed. */
void news_free(struct news *news);
/* Never blocks; NULL is allowed: there is no worker. */
void news_tell(struct news *news);
