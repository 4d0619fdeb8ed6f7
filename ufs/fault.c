/*
 * The fault decorator: an origin that misbehaves on command, for tests of everything above it.
 *
 *	GRANARY_DEBUG=1 GRANARY_UFS_FAULT="seed=1,eio=0.05,short=0.02,stale=0.01,delay_ms=20"
 *
 * eio: fails with -EIO; short: half of the bytes, then -EIO; stale: -ESTALE; stall: nothing until
 * the timeout; each with its probability per request. delay_ms: every request waits as long. The
 * same seed gives the same faults in order of requests.
 */
#include "ufs/ufs_internal.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/loop.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum fault_kind {
	FAULT_NONE,
	FAULT_EIO,
	FAULT_SHORT,
	FAULT_STALE,
	FAULT_STALL,
	FAULT_KINDS,
};

struct fault {
	struct ufs base;
	struct loop *loop;
	uint64_t seed;
	uint64_t delay_ns;
	double odds[FAULT_KINDS];
	_Atomic uint64_t requests;
	pthread_mutex_t lock; /* closing, and the priv of the callers' requests */
	bool closing;
	struct list waiting; /* the loop's thread only */
};

struct faulty {
	struct list link; /* fault.waiting */
	struct loop_task task;
	struct loop_timer *timer;
	struct fault *fault;
	struct ufs_get get;
	struct ufs_get *outer;
	enum fault_kind kind;
	bool below; /* handed to the lower origin */
};

static struct fault *fault_of(struct ufs *ufs)
{
	return container_of(ufs, struct fault, base);
}

static enum fault_kind draw(struct fault *fault)
{
	uint64_t n = atomic_fetch_add(&fault->requests, 1);
	double x = (double)(hash_xxh3(&n, sizeof(n), fault->seed) >> 11) / (double)(1ull << 53);

	for (int kind = FAULT_EIO; kind < FAULT_KINDS; kind++) {
		if (x < fault->odds[kind])
			return (enum fault_kind)kind;
		x -= fault->odds[kind];
	}
	return FAULT_NONE;
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
	struct fault *fault = f->fault;
	uint64_t delay =
		f->kind == FAULT_STALL ? fault->base.limits.request_timeout_ns : fault->delay_ns;
	bool closing;

	pthread_mutex_lock(&fault->lock);
	closing = fault->closing;
	pthread_mutex_unlock(&fault->lock);
	if (closing) {
		finish_fault(f, -ECANCELED, "the origin is being closed");
		return;
	}
	f->timer = delay ? loop_timer_start(fault->loop, delay, on_timer, f) : NULL;
	if (f->timer)
		list_push_back(&fault->waiting, &f->link);
	else
		act(f);
}

static int fault_get(struct ufs *ufs, struct ufs_get *outer)
{
	struct fault *fault = fault_of(ufs);
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
	f->kind = draw(fault);
	f->task.run = on_task;
	f->get = *outer;
	f->get.on_progress = outer->on_progress ? on_progress : NULL;
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
	struct fault *fault = fault_of(ufs);
	struct faulty *f;

	pthread_mutex_lock(&fault->lock);
	f = outer->priv;
	if (f && f->below)
		ufs_promote(ufs->lower, &f->get, class);
	else if (f)
		f->get.class = min(class, f->get.class);
	pthread_mutex_unlock(&fault->lock);
}

static int fault_list_page(struct ufs *ufs, const struct ufs_page_request *request,
	struct ufs_page *page, struct err *e)
{
	struct fault *fault = fault_of(ufs);
	enum fault_kind kind = draw(fault);

	ufs_list_sleep(ufs, request, fault->delay_ns);
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
	struct fault *fault = arg;
	struct list *node;

	while ((node = list_pop_front(&fault->waiting)) != NULL) {
		struct faulty *f = list_entry(node, struct faulty, link);

		loop_timer_stop(f->timer);
		finish_fault(f, -ECANCELED, "the origin is being closed");
	}
}

static void fault_free(struct ufs *ufs)
{
	struct fault *fault = fault_of(ufs);

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
	.list_page = fault_list_page,
	.probe = fault_probe,
	.free = fault_free,
};

static int bad_spec(struct err *e, const char *spec)
{
	return err_set(e, -EINVAL,
		"GRANARY_UFS_FAULT=\"%.200s\": write it like "
		"seed=1,eio=0.05,short=0.02,stale=0.01,stall=0.001,delay_ms=20",
		spec);
}

static int set_item(struct fault *fault, const char *name, size_t name_len, double value)
{
	static const char *const kinds[FAULT_KINDS] = { NULL, "eio", "short", "stale", "stall" };

	if (value < 0 || value > 1e9)
		return -EINVAL;
	if (name_len == 4 && memcmp(name, "seed", 4) == 0) {
		fault->seed = (uint64_t)value;
		return 0;
	}
	if (name_len == 8 && memcmp(name, "delay_ms", 8) == 0) {
		fault->delay_ns = (uint64_t)(value * (double)CLOCK_MS);
		return 0;
	}
	for (int kind = FAULT_EIO; kind < FAULT_KINDS; kind++)
		if (strlen(kinds[kind]) == name_len && memcmp(name, kinds[kind], name_len) == 0) {
			fault->odds[kind] = value;
			return value <= 1 ? 0 : -EINVAL;
		}
	return -EINVAL;
}

static int parse_spec(struct fault *fault, const char *spec)
{
	const char *s = spec;

	while (*s) {
		size_t name = strcspn(s, "=,");
		char *end;
		double value;
		int r;

		if (s[name] != '=')
			return -EINVAL;
		value = strtod(s + name + 1, &end);
		if (end == s + name + 1 || (*end != '\0' && *end != ','))
			return -EINVAL;
		r = set_item(fault, s, name, value);
		if (r < 0)
			return r;
		s = *end ? end + 1 : end;
	}
	return 0;
}

int ufs_fault_new(struct ufs *lower, const char *spec, struct ufs **ret_ufs, struct err *e)
{
	struct fault *fault = calloc(1, sizeof(*fault));
	int r;

	if (!fault)
		return err_set(e, -ENOMEM, "fault: no memory");
	r = parse_spec(fault, spec);
	if (r < 0) {
		free(fault);
		return bad_spec(e, spec);
	}
	fault->loop = loop_new("ufs-fault");
	if (!fault->loop || ufs_base_init(&fault->base, &fault_ops, lower, &lower->limits) < 0) {
		loop_free(fault->loop);
		free(fault);
		return err_set(e, -ENOMEM, "fault: no memory");
	}
	pthread_mutex_init(&fault->lock, NULL);
	list_init(&fault->waiting);
	*ret_ufs = &fault->base;
	return 0;
}
