/*
 * An event loop in a thread of its own, over libuv: how other threads hand it work, and timers.
 *
 * Everything that belongs to a loop is touched on its thread only; loop_post() is the one function
 * for other threads. A loop never blocks. Tasks posted before loop_free() run before the loop ends.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include "base/list.h"

struct loop;
struct uv_loop_s;

struct loop_task {
	struct list link;                    /* the loop's while queued */
	void (*run)(struct loop_task *task); /* on the loop's thread; may free the task */
};

/* Starts the thread; name at most 15 bytes. NULL without memory or descriptors. */
struct loop *loop_new(const char *name);

/*
 * Stops the loop, runs what was posted, joins the thread. Handles of the loop's owner must be
 * closing already: the loop ends when no handle is left. Never called on the loop's thread.
 */
void loop_free(struct loop *loop);

/*
 * Hands a task to the loop; never allocates, never fails; any thread. From another thread it wakes the loop. What
 * is posted on the loop's own runs, without a system call, before the loop waits for descriptors and timers again.
 */
void loop_post(struct loop *loop, struct loop_task *task);

/* Runs fn on the loop's thread and waits for it; directly when already there. */
void loop_call(struct loop *loop, void (*fn)(void *arg), void *arg);

/*
 * Have all loops of this process turned since the last call? To be called about every second, by one thread: it hands each a task. A loop
 * whose thread hangs, which never blocks on purpose, answers false from the second call on.
 */
bool loops_turn(void);

bool loop_on_thread(const struct loop *loop);
struct uv_loop_s *loop_uv(struct loop *loop);

/* A one-shot timer of a loop; embeds into its owner. Loop thread only. */
struct loop_timer;
/* Calls fn(arg) once after `ns` unless stopped; NULL without memory. The timer frees itself when
 * fired or stopped. */
struct loop_timer *loop_timer_start(
	struct loop *loop, uint64_t ns, void (*fn)(void *arg), void *arg);
void loop_timer_stop(struct loop_timer *timer); /* NULL is allowed; not after it fired */

/*
 * Watches a descriptor, which stays the caller's, until it is stopped: calls fn(arg, events) when it is ready for some of `events`
 * (POLLIN, POLLOUT), or has an error or a hangup, which look like these. Close the descriptor after the stop. Loop thread only.
 */
struct loop_watch;
struct loop_watch *loop_watch_start(struct loop *loop, int fd, short events,
	void (*fn)(void *arg, short events), void *arg);        /* NULL without memory */
void loop_watch_change(struct loop_watch *watch, short events); /* 0: nothing for now */
void loop_watch_stop(struct loop_watch *watch);                 /* NULL is allowed */
