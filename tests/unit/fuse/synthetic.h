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
#include "fuse/reader.h"

#define SYNTHETIC_SLOW_NS (100 * CLOCK_MS)

struct synthetic_range {
	_Atomic uint64_t from;
	_Atomic uint64_t to;
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
	_Atomic uint32_t reads; /* that were not answered at once */
};

struct synthetic {
	struct reader reader;
	struct synthetic_control *control;
	pthread_mutex_t lock;
	pthread_t thread;
	struct list parked;
	_Atomic bool ending;
};

static inline uint64_t synthetic_word(uint64_t offset)
{
	uint64_t x = offset / 8 * 0x9E3779B97F4A7C15ull;

	x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
	return x ^ (x >> 31);
}

static inline void synthetic_fill(uint64_t offset, uint32_t length, void *buf)
{
	uint64_t *words = buf;

	for (uint32_t i = 0; i < length / 8; i++)
		words[i] = synthetic_word(offset + 8 * (uint64_t)i);
}

static inline bool synthetic_in(struct synthetic_range *r, uint64_t offset, uint32_t length)
{
	return offset < atomic_load(&r->to) && atomic_load(&r->from) < offset + length;
}

static int synthetic_read_local(struct reader *reader, uint64_t offset, uint32_t length, void *buf)
{
	struct synthetic *s = container_of(reader, struct synthetic, reader);

	assert_true(length <= LIMIT_PAYLOAD_BYTES);
	if (synthetic_in(&s->control->kill, offset, length))
		(void)kill(getpid(), SIGKILL);
	if (synthetic_in(&s->control->slow, offset, length))
		clock_sleep_ns(SYNTHETIC_SLOW_NS);
	if (synthetic_in(&s->control->stall, offset, length) ||
		synthetic_in(&s->control->fail, offset, length) ||
		synthetic_in(&s->control->later, offset, length))
		return -EAGAIN;
	if (atomic_load(&s->control->hanging) > 0)
		return -EAGAIN;
	while (synthetic_in(&s->control->hang, offset, length))
		clock_sleep_ns(CLOCK_MS);
	synthetic_fill(offset, length, buf);
	return 0;
}

static void synthetic_hangs(struct reader *reader, bool now)
{
	struct synthetic *s = container_of(reader, struct synthetic, reader);

	if (now)
		atomic_fetch_add(&s->control->hanging, 1);
	else
		atomic_fetch_sub(&s->control->hanging, 1);
}

static void synthetic_read(struct reader *reader, struct client_read *read)
{
	struct synthetic *s = container_of(reader, struct synthetic, reader);

	assert_true(read->length <= LIMIT_PAYLOAD_BYTES);
	pthread_mutex_lock(&s->lock);
	list_push_back(&s->parked, &read->link);
	pthread_mutex_unlock(&s->lock);
	atomic_fetch_add(&s->control->reads, 1);
}

static void synthetic_cancel(struct reader *reader, struct client_read *read)
{
	struct synthetic *s = container_of(reader, struct synthetic, reader);
	bool mine = false;

	atomic_fetch_add(&s->control->cancels, 1);
	pthread_mutex_lock(&s->lock);
	if (!list_empty(&read->link)) {
		list_remove(&read->link);
		mine = true;
	}
	pthread_mutex_unlock(&s->lock);
	if (mine)
		read->on_done(read, -ECANCELED, NULL);
}

static void synthetic_note(struct reader *reader, uint64_t offset, uint32_t length)
{
	struct synthetic *s = container_of(reader, struct synthetic, reader);

	(void)offset;
	(void)length;
	atomic_fetch_add(&s->control->notes, 1);
}

static const struct reader_ops synthetic_ops = {
	.read_local = synthetic_read_local,
	.hangs = synthetic_hangs,
	.read = synthetic_read,
	.cancel = synthetic_cancel,
	.note = synthetic_note,
};

/* The first parked read that is not stalled (any more), unlinked. */
static struct client_read *synthetic_next(struct synthetic *s)
{
	struct client_read *found = NULL;

	pthread_mutex_lock(&s->lock);
	list_for_each (node, &s->parked) {
		struct client_read *read = list_entry(node, struct client_read, link);

		if (!synthetic_in(&s->control->stall, read->offset, read->length)) {
			list_remove(&read->link);
			found = read;
			break;
		}
	}
	pthread_mutex_unlock(&s->lock);
	return found;
}

static void *synthetic_main(void *arg)
{
	struct synthetic *s = arg;
	void *buf = malloc(LIMIT_PAYLOAD_BYTES);
	struct client_read *read;

	while (!atomic_load(&s->ending)) {
		while ((read = synthetic_next(s)) != NULL) {
			if (synthetic_in(&s->control->fail, read->offset, read->length)) {
				read->on_done(read, -ESTALE, NULL);
				continue;
			}
			synthetic_fill(read->offset, read->length, buf);
			read->on_done(read, 0, buf);
		}
		clock_sleep_ns(CLOCK_MS);
	}
	free(buf);
	return NULL;
}

/* Zeroed, in memory that children share. */
static inline struct synthetic_control *synthetic_control_new(void)
{
	void *p = mmap(NULL, sizeof(struct synthetic_control), PROT_READ | PROT_WRITE,
		MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	assert_true(p != MAP_FAILED);
	return p;
}

static inline void synthetic_start(struct synthetic *s, struct synthetic_control *control)
{
	memset(s, 0, sizeof(*s));
	s->reader.ops = &synthetic_ops;
	s->control = control;
	pthread_mutex_init(&s->lock, NULL);
	list_init(&s->parked);
	assert_int_equal(pthread_create(&s->thread, NULL, synthetic_main, s), 0);
}

static inline void synthetic_stop(struct synthetic *s)
{
	atomic_store(&s->ending, true);
	pthread_join(s->thread, NULL);
	assert_true(list_empty(&s->parked));
	pthread_mutex_destroy(&s->lock);
}

static inline void synthetic_set(struct synthetic_range *r, uint64_t from, uint64_t to)
{
	atomic_store(&r->to, 0);
	atomic_store(&r->from, from);
	atomic_store(&r->to, to);
}

#define PATIENCE (60 * CLOCK_SECOND) /* for what must come */

/* Waits until `condition`; the test fails when it does not come. */
#define eventually(condition)                                   \
	do {                                                    \
		uint64_t until = clock_mono_ns() + PATIENCE;    \
		while (!(condition) && clock_mono_ns() < until) \
			clock_sleep_ns(CLOCK_MS);               \
		assert_true(condition);                         \
	} while (0)
