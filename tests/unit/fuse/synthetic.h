/*
 * A reader without client, worker or origin: the bytes of a volume as a function of their offset.
 * What lies in `stall` is parked until it is released; what lies in `fail` fails; what lies in
 * `later` is answered by another thread; what lies in `hang` hangs in read_local(); what lies in `slow`
 * takes its time there, and in `kill` whoever is asked for it dies. The control block may be shared
 * between processes.
 */
#pragma once

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/limits.h"
#include "fuse/session/reader.h"
#include "tests/clock/test_clock.h"

struct synthetic_range {
	_Atomic uint64_t from;
	_Atomic uint64_t to;
	_Atomic uint32_t *changes; /* the control's, which is at the same address in children */
};

struct synthetic_control {
	struct synthetic_range stall;
	struct synthetic_range fail;
	struct synthetic_range later;
	struct synthetic_range hang;
	struct synthetic_range slow;
	struct synthetic_range kill;
	_Atomic uint32_t hanging; /* as the session said */
	_Atomic uint32_t cancels;
	_Atomic uint32_t notes;
	_Atomic uint32_t reads;   /* that were not answered at once */
	_Atomic uint32_t changes; /* of ranges and parked reads: a futex */
};

struct synthetic {
	struct reader reader;
	struct synthetic_control *control;
	pthread_mutex_t lock;
	pthread_t thread;
	struct list parked;
	_Atomic bool ending;
	void *_Atomic last; /* memory that read_local() filled last */
};

/* The bytes of [offset, offset + length), which are multiples of 8. */
void synthetic_fill(uint64_t offset, uint32_t length, void *buf);

/* Zeroed, in memory that children share. */
struct synthetic_control *synthetic_control_new(void);

/* A reader, and the thread that answers what is not answered at once. */
void synthetic_start(struct synthetic *s, struct synthetic_control *control);

/* No read may be left. */
void synthetic_stop(struct synthetic *s);

/* [from, to) of the volume; 0, 0: none of it. */
void synthetic_set(struct synthetic_range *r, uint64_t from, uint64_t to);
