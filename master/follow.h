/*
 * Follows sources: those of datasets whose consistency is `follow`, and those of mounts that want it
 * (source.h) are listed again and again, and each generation that comes of it is sent to workers.
 * Mounts hear of it by what they hold (HoldNews).
 *
 * Threads: periodic work finds what is due; listings have a pool of their own, so that those that somebody
 * waits for are never behind them.
 */
#pragma once

#include "master/dataset.h"
#include "master/membership.h"

struct follow;

struct follow_config {
	struct source_set *sources; /* borrowed, as the following */
	struct dataset_set *datasets;
	struct membership *membership; /* NULL: nothing is sent */
};

/* NULL without memory or threads. */
struct follow *follow_new(const struct follow_config *config);
/* Looks no more, and lists no more: after source_set_stop(). What another thread's flight is to answer
 * may still be answered. NULL is allowed. */
void follow_stop(struct follow *follow);
/* Stops it, if it was not. No flight may be under way. NULL is allowed. */
void follow_free(struct follow *follow);
