/*
 * An origin that follows a script, and requests that are waited for. For tests of decorators.
 */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include "base/err.h"
#include "base/list.h"
#include "ufs/ufs_internal.h"

#define SIZE 1000u /* of each object */

/* One answer: so many bytes, then this status. */
struct step {
	uint32_t bytes;
	int status;
	uint64_t retry_after_ns;
};

struct script {
	struct ufs base;
	struct loop *loop;
	const struct step *steps;
	uint32_t n;
	_Atomic uint32_t at;
	_Atomic uint32_t asked;
	_Atomic bool hangs;  /* never answers until freed */
	_Atomic bool yields; /* but gives up what is cancelled */
	_Atomic bool slow;   /* takes a second attempt only when a promotion was called */
	_Atomic bool promoting;
	_Atomic bool inside;    /* is taking one */
	_Atomic bool overtaken; /* by a promotion meanwhile */
	struct list hanging;
	uint64_t deadline_ns; /* of the last request */
	_Atomic enum ufs_class promoted;
	const struct ufs_get *_Atomic cancelled;
	uint32_t probes;
};

struct script *script_new(const struct step *steps, uint32_t n, uint64_t deadline_ns);
/* What hangs is answered by the script. */
void answer_hanging(struct script *s);

struct wait {
	struct ufs_get get;
	pthread_mutex_t lock;
	pthread_cond_t news;
	bool done;
	int status;
	struct err e;
	uint64_t progress; /* must only grow */
	char buf[SIZE];
};

/* A request for a part of the object `key`, of one character. */
struct wait *wait_new(const char *key, enum ufs_class class, uint64_t offset, uint64_t length);
struct wait *start_as(
	struct ufs *ufs, const char *key, enum ufs_class class, uint64_t offset, uint64_t length);
/* A reader's, of the object "k". */
struct wait *start(struct ufs *ufs, uint64_t offset, uint64_t length);
/* Returns its status. */
int await(struct wait *w);
/* As await(), then frees it; 0: its bytes were right. */
int finish(struct wait *w, struct err *e);
