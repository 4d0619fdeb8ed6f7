/*
 * A set of datasets over a real store, in a directory that is the origin.
 */
#pragma once

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/units.h"
#include "master/dataset.h"
#include "tests/unit/master/fixture.h"

struct dataset_fixture {
	struct store *store;
	struct source_set *sources;
	struct dataset_set *set;
	struct pool *pool;
	struct err e;              /* of the last call that failed */
	_Atomic unsigned int told; /* how often the workers were */
};

/* The store, which may refuse, and counts. */
struct spy {
	struct store store;
	struct store *real;
	_Atomic bool refuses;
	_Atomic unsigned int writes;
	_Atomic unsigned int changes;                         /* of the last one */
	void (*on_write)(const struct store_change *changes); /* after each; NULL: nothing */
};

extern struct dataset_fixture df;
extern struct spy spy;

/* Waits for listings that nobody else waits for. */
void df_drain(void);

/* As a restart of the master. */
void df_reopen(void);

/* As cmocka wants them: a directory with two files, and a set without datasets. */
int df_setup(void **state);
int df_teardown(void **state);

/* A body of JSON with ' for " and @ for the directory. */
json_t *df_body(const char *text);

#define SOURCE "'mounts':[{'url':'file://@/origin'}]"

/* A dataset that is created without a check and not listed: the pool takes no job meanwhile. *ret is dataset_release()d. */
void df_create_unlisted(const char *text, struct dataset *ret);
/* A dataset from a body as df_body() takes it; what failed is in df.e. */
int df_create(const char *text);
int df_update(const char *name, const char *text);

/* It must exist; the caller releases it. */
struct dataset df_find(const char *name);

/* The dataset as the admin interface shows it. */
json_t *df_shown(const char *name);

/* Lists its source now, and waits for it: another thread may do that. */
void df_list_mount(const char *name, uint32_t mount);

/* Of its first mount. */
void df_list(const char *name);

/* Compares r with code, and looks for part in df.e. */
void df_expect(int r, int code, const char *part);
