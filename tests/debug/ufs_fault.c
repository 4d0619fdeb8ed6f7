/*
 * The fault decorator: an origin that misbehaves as the fault plane says, for tests of everything
 * above it.
 *
 * eio: fails with -EIO; short: half of the bytes, then -EIO; stale: -ESTALE; stall: nothing until
 * the timeout; delay: later.
 */
#include "tests/debug/ufs_fault.h"
#include "base/clock.h"
#include "base/loop.h"
#include "tests/debug/faults.h"
#include "ufs/ufs_internal.h"

#include <pthread.h>
#include <stdlib.h>

struct fault_ufs {
	struct ufs base;
	struct loop *loop;
	struct faults *faults; /* borrowed */
	pthread_mutex_t lock;  /* closing, and the priv of the callers' requests */
	bool closing;
	struct list waiting; /* the loop's thread only */
};

struct faulty {
	struct list link; /* fault.waiting */
	struct loop_task task;
	struct loop_timer *timer;
	struct fault_ufs *fault;
	struct ufs_get get;
	struct ufs_get *outer;
	enum fault_kind kind;
	uint64_t delay_ns;
	bool below; /* handed to the lower origin */
};

static struct fault_ufs *fault_of(struct ufs *ufs)
{
	return container_of(ufs, struct fault_ufs, base);
}

static void finish(struct faulty *f, int status, const struct err *e)
{
	struct ufs_get *outer = f->outer;

	pthread_mutex_lock(&f->fault->lock);
	outer->priv = NULL;
	pthread_mutex_unlock(&f->fault->lock);
	outer->got = f->get.got;
	outer->retry_after_ns = f->get.retry_after_ns;
	outer->cause = f->get.cause;
	outer->final = f->get.final;
	outer->sum = f->get.sum;
	outer->wrong = f->get.wrong;
	outer->wrongs = f->get.wrongs;
	free(f);
	outer->on_done(outer, status, e);
}

static void finish_fault(struct faulty *f, int status, const char *what)
{
	struct err e = ERR_INIT;

	(void)err_set(&e, status, "injected fault: %s", what);
	finish(f, status, &e);
}

static void on_progress(struct ufs_get *get, uint64_t bytes)
{
	struct faulty *f = get->arg;

	f->outer->got = bytes;
	f->outer->on_progress(f->outer, bytes);
}

static int on_room(struct ufs_get *get, uint64_t at, struct ufs_room *ret_room)
{
	struct faulty *f = get->arg;

	return f->outer->on_room(f->outer, at, ret_room);
}

static void on_done(struct ufs_get *get, int status, const struct err *e)
{
	struct faulty *f = get->arg;

	if (status == 0 && f->kind == FAULT_SHORT)
		finish_fault(f, -EIO, "short answer");
	else
		finish(f, status, e);
}

static void forward(struct faulty *f)
{
	int r;

	if (f->kind == FAULT_SHORT) {
		f->get.length /= 2;
		if (f->get.length == 0) {
			finish_fault(f, -EIO, "short answer");
			return;
		}
	}
	pthread_mutex_lock(&f->fault->lock);
	f->below = true;
	pthread_mutex_unlock(&f->fault->lock);
	r = ufs_get(f->fault->base.lower, &f->get);
	if (r < 0)
		finish_fault(f, r, "the origin is being closed");
}

static void act(struct faulty *f)
{
	switch (f->kind) {
	case FAULT_EIO:
		finish_fault(f, -EIO, "failed");
		return;
	case FAULT_STALE:
		finish_fault(f, -ESTALE, "changed");
		return;
	case FAULT_STALL:
		finish_fault(f, -ETIMEDOUT, "stalled");
		return;
	case FAULT_NONE:
	case FAULT_SHORT:
	case FAULT_ENOSPC:
	case FAULT_EROFS:
	case FAULT_FLIP:
	case FAULT_TORN:
	case FAULT_DELAY:
	case FAULT_CUT:
	case FAULT_REFUSE:
	case FAULT_KINDS:
		break;
	}
	forward(f);
}

static void on_timer(void *arg)
{
	struct faulty *f = arg;

	list_remove(&f->link);
	act(f);
}

static void on_task(struct loop_task *task)
{
	struct faulty *f = container_of(task, struct faulty, task);
	struct fault_ufs *fault = f->fault;
	bool closing;

	pthread_mutex_lock(&fault->lock);
	closing = fault->closing;
	pthread_mutex_unlock(&fault->lock);
	if (closing) {
		finish_fault(f, -ECANCELED, "the origin is being closed");
		return;
	}
	f->timer = f->delay_ns ? loop_timer_start(fault->loop, f->delay_ns, on_timer, f) : NULL;
	if (f->timer)
		list_push_back(&fault->waiting, &f->link);
	else
		act(f);
}

static void choose(struct faulty *f)
{
	struct fault_ufs *fault = f->fault;
	bool stall;
	uint64_t ms = faults_draw_wait(fault->faults, FAULT_UFS, FAULT_GET, NULL, &stall);

	f->kind = stall ? FAULT_STALL : faults_draw(fault->faults, FAULT_UFS, FAULT_GET, NULL).kind;
	f->delay_ns = stall ? fault->base.limits.request_timeout_ns : ms * CLOCK_MS;
}

static int fault_get(struct ufs *ufs, struct ufs_get *outer)
{
	struct fault_ufs *fault = fault_of(ufs);
	struct faulty *f = calloc(1, sizeof(*f));

	if (!f)
		return -ENOMEM;
	pthread_mutex_lock(&fault->lock);
	if (fault->closing) {
		pthread_mutex_unlock(&fault->lock);
		free(f);
		return -ECANCELED;
	}
	f->fault = fault;
	f->outer = outer;
	choose(f);
	f->task.run = on_task;
	f->get = *outer;
	f->get.on_progress = outer->on_progress ? on_progress : NULL;
	f->get.on_room = outer->on_room ? on_room : NULL;
	f->get.on_done = on_done;
	f->get.arg = f;
	f->get.priv = NULL;
	list_init(&f->get.link);
	outer->priv = f;
	loop_post(fault->loop, &f->task);
	pthread_mutex_unlock(&fault->lock);
	return 0;
}

static void fault_promote(struct ufs *ufs, struct ufs_get *outer, enum ufs_class class)
{
	struct fault_ufs *fault = fault_of(ufs);
	struct faulty *f;

	pthread_mutex_lock(&fault->lock);
	f = outer->priv;
	if (f && f->below)
		ufs_promote(ufs->lower, &f->get, class);
	else if (f)
		f->get.class = min(class, f->get.class);
	pthread_mutex_unlock(&fault->lock);
}

static bool fault_find_wait(
	struct ufs *ufs, const char *key, uint32_t key_len, struct ufs_wait *ret_wait)
{
	return ufs_find_wait(ufs->lower, key, key_len, ret_wait);
}

static void fault_cancel(struct ufs *ufs, struct ufs_get *outer)
{
	struct fault_ufs *fault = fault_of(ufs);
	struct faulty *f;

	pthread_mutex_lock(&fault->lock);
	f = outer->priv;
	if (f && f->below)
		ufs_cancel(ufs->lower, &f->get);
	pthread_mutex_unlock(&fault->lock);
}

static int fault_list_page(struct ufs *ufs, const struct ufs_page_request *request,
	struct ufs_page *page, struct err *e)
{
	struct fault_ufs *fault = fault_of(ufs);
	bool stall;
	uint64_t ms = faults_draw_wait(fault->faults, FAULT_UFS, FAULT_LIST, NULL, &stall);
	enum fault_kind kind = faults_draw(fault->faults, FAULT_UFS, FAULT_LIST, NULL).kind;

	ufs_list_sleep(ufs, request, stall ? ufs->limits.request_timeout_ns : ms * CLOCK_MS);
	if (stall)
		return err_set(e, -ETIMEDOUT, "injected fault: LIST stalled");
	if (kind == FAULT_EIO || kind == FAULT_SHORT)
		return err_set(e, -EIO, "injected fault: LIST failed");
	return ufs_list_page(ufs->lower, request, page, e);
}

static int fault_probe(struct ufs *ufs, struct err *e)
{
	return ufs_probe(ufs->lower, e);
}

static void cancel_waiting(void *arg)
{
	struct fault_ufs *fault = arg;
	struct list *node;

	while ((node = list_pop_front(&fault->waiting)) != NULL) {
		struct faulty *f = list_entry(node, struct faulty, link);

		loop_timer_stop(f->timer);
		finish_fault(f, -ECANCELED, "the origin is being closed");
	}
}

static void fault_free(struct ufs *ufs)
{
	struct fault_ufs *fault = fault_of(ufs);

	pthread_mutex_lock(&fault->lock);
	fault->closing = true;
	pthread_mutex_unlock(&fault->lock);
	loop_call(fault->loop, cancel_waiting, fault);
	loop_free(fault->loop); /* runs what was posted, which sees `closing` */
	ufs_free(ufs->lower);
	pthread_mutex_destroy(&fault->lock);
	ufs_base_release(ufs);
	free(fault);
}

static const struct ufs_ops fault_ops = {
	.name = "fault",
	.get = fault_get,
	.promote = fault_promote,
	.find_wait = fault_find_wait,
	.cancel = fault_cancel,
	.list_page = fault_list_page,
	.probe = fault_probe,
	.free = fault_free,
};

int ufs_fault_new(struct ufs *lower, struct faults *faults, struct ufs **ret_ufs, struct err *e)
{
	struct fault_ufs *fault = calloc(1, sizeof(*fault));

	if (!fault)
		return err_set(e, -ENOMEM, "fault: no memory");
	fault->faults = faults;
	fault->loop = loop_new("ufs-fault");
	if (!fault->loop || ufs_base_init(&fault->base, &fault_ops, lower, &lower->limits) < 0) {
		if (fault->loop)
			loop_free(fault->loop);
		free(fault);
		return err_set(e, -ENOMEM, "fault: no memory");
	}
	pthread_mutex_init(&fault->lock, NULL);
	list_init(&fault->waiting);
	*ret_ufs = &fault->base;
	return 0;
}

static int wrap(struct ufs *lower, struct ufs **ret_ufs, struct err *e)
{
	return ufs_fault_new(lower, faults_global(), ret_ufs, e);
}

void ufs_fault_install(void)
{
	ensure(ufs_debug_wrap == NULL);
	ufs_debug_wrap = wrap;
}
