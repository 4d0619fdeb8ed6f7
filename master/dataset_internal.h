/* The parts of the set of datasets; see dataset.h. */
#pragma once

#include <pthread.h>
#include "base/list.h"
#include "master/dataset.h"

/* A record, never changed once it is in the list. */
struct dataset_entry {
	struct list link;
	struct dataset dataset;
};

#define VIEWS_COUNTED 64u /* subtrees whose size is remembered */

/* How much a view shows of a generation. */
struct view_count {
	struct volume_id volume;
	uint64_t lineage;
	uint64_t generation;
	char *subtree; /* owned */
	uint64_t files;
	uint64_t bytes;
};

struct dataset_set {
	struct dataset_set_config config;
	pthread_mutex_t change; /* one change at a time: held over the store's writes */
	pthread_mutex_t lock;   /* what follows; after `change`, a leaf */
	struct list entries;    /* by name */
	uint32_t n;
	struct view_count views[VIEWS_COUNTED];
	uint32_t n_views;
	uint32_t next_view; /* to be forgotten */
};

/* ---- dataset_set.c --------------------------------------------------------------------------- */

struct dataset_entry *dataset_find_locked(struct dataset_set *set, const char *name);
/* The name is free, and there is room. */
int dataset_check_free(struct dataset_set *set, const char *name, struct err *e) __must_check;

/*
 * Stores the record and puts it in place of the one with its UUID, if there is one; `policy`: that of
 * its sources with it, in one write. `d` is taken over, and *ret a copy of it. Under `change`.
 */
int dataset_publish(struct dataset_set *set, struct dataset *d, bool policy, struct dataset *ret,
	struct err *e) __must_check;
/* The reverse: sources that no other dataset has get the default. Under `change`. */
int dataset_withdraw(struct dataset_set *set, const struct dataset *d, struct err *e) __must_check;
/* What all datasets pin of a volume, to its source. */
void dataset_tell_pins(struct dataset_set *set, const struct volume_id *volume);
/* Workers should ask what has changed. */
void dataset_tell_workers(struct dataset_set *set);
/* -EBUSY with a line that ends in `next`: it is mounted, or that is not known yet. */
int dataset_check_unmounted(struct dataset_set *set, const struct dataset *d, const char *next,
	struct err *e) __must_check;
