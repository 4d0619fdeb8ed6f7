/* Sources over a directory as the origin, and what somebody who asks for one gets. */
#pragma once

#include <dirent.h>
#include "tests/unit/master/fixture.h"

struct source_fixture {
	struct store *store;
	struct source_set *set;
	struct ufs_config origin;
	uint64_t epoch;
	uint64_t hold_ns; /* of the set opened next */
	uint64_t grace_ns;
	uint64_t patience_ns; /* with an origin */
};

extern struct source_fixture sf;

/* A new epoch, with the times in sf. */
void sf_open(void);
void sf_close(void);

/* As cmocka wants them: an origin of two files, and a set without sources. */
int sf_setup(void **state);
int sf_teardown(void **state);

/* What one asker got. */
struct got {
	struct source_wait wait;
	int status;
	struct err e;
	struct record_generation generation;
	struct generation_id newest;
	struct tier_policy policy;
	bool listed;
	char notice[512];
	struct table *table;
};

void sf_on_done(
	struct source_wait *wait, int status, struct source_answer *answer, const struct err *e);

/* Opens the source, which must be answered at once. */
struct got sf_ask(bool refresh, const struct source_seen *seen);

/* Likewise of a given generation. */
struct got sf_ask_table(const struct volume_id *volume, uint64_t lineage, uint64_t generation,
	const struct source_seen *seen);

/* Sealed; after a change of what it returns by sf_seal() again. */
struct source_seen sf_seen_of(const struct got *got);
void sf_seal(const struct got *got, struct source_seen *seen);
void sf_drop(struct got *got);
unsigned int sf_count_tables(void);

/* The answer must succeed with these; drops it. */
void sf_expect_generation(struct got *got, uint64_t number, uint64_t files);
