/* See script.h. */
#include "tests/unit/ufs/script.h"
#include "base/clock.h"
#include "base/loop.h"
#include "tests/clock/test_clock.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdlib.h>

struct answer {
	struct loop_task task;
	struct script *script;
	struct ufs_get *get;
};

static char data_at(uint64_t offset)
{
	return (char)(offset * 7 + offset / 256);
}

static void on_task(struct loop_task *task)
{
	struct answer *a = container_of(task, struct answer, task);
	struct script *s = a->script;
	struct ufs_get *get = a->get;
	struct step step = s->at < s->n ? s->steps[s->at++] : (struct step){ SIZE, 0, 0 };
	struct err e = ERR_INIT;
	uint64_t n = min((uint64_t)step.bytes, get->length);

	free(a);
	/* It does not end before a promotion that waits for the lock has had it. */
	test_wait(!s->promoting || s->promoted != UFS_CLASSES);
	for (uint64_t i = 0; i < n; i++) {
		struct ufs_room room = { .buf = (char *)get->buf + i };

		if (get->on_room)
			assert_int_equal(get->on_room(get, i, &room), 0);
		*room.buf = data_at(get->offset + i);
	}
	get->got = n;
	if (get->on_progress && n)
		get->on_progress(get, n);
	get->retry_after_ns = step.retry_after_ns;
	get->cause = step.status == -EACCES  ? UFS_CAUSE_FORBIDDEN
		     : step.status == -EPERM ? UFS_CAUSE_ARCHIVED
					     : UFS_CAUSE_NONE;
	if (step.status < 0)
		(void)err_set(&e, step.status, "scripted %s", err_name(step.status));
	get->on_done(get, step.status, step.status < 0 ? &e : NULL);
}

static int script_get(struct ufs *ufs, struct ufs_get *get)
{
	struct script *s = container_of(ufs, struct script, base);
	struct answer *a;

	s->deadline_ns = get->deadline_ns;
	s->asked++;
	if (s->slow && s->at > 0) {
		s->inside = true;
		test_wait(s->promoting);
		test_advance(100 * CLOCK_MS); /* time for it to overtake */
		s->inside = false;
	}
	if (s->hangs) {
		list_push_back(&s->hanging, &get->link);
		return 0;
	}
	a = calloc(1, sizeof(*a));
	*a = (struct answer){ .task.run = on_task, .script = s, .get = get };
	loop_post(s->loop, &a->task);
	return 0;
}

static void script_promote(struct ufs *ufs, struct ufs_get *get, enum ufs_class class)
{
	struct script *s = container_of(ufs, struct script, base);

	(void)get;
	s->overtaken = s->inside;
	s->promoted = class;
}

static void script_cancel(struct ufs *ufs, struct ufs_get *get)
{
	struct script *s = container_of(ufs, struct script, base);

	if (s->hangs)
		s->cancelled = get;
	if (s->yields) {
		struct answer *a = calloc(1, sizeof(*a));

		list_remove(&get->link);
		*a = (struct answer){ .task.run = on_task, .script = s, .get = get };
		loop_post(s->loop, &a->task);
	}
}

static int script_page(struct ufs *ufs, const struct ufs_page_request *request,
	struct ufs_page *page, struct err *e)
{
	struct script *s = container_of(ufs, struct script, base);
	int status = s->at < s->n ? s->steps[s->at++].status : 0;

	(void)request;
	(void)page;
	return status < 0 ? err_set(e, status, "scripted") : 0;
}

static int script_probe(struct ufs *ufs, struct err *e)
{
	container_of(ufs, struct script, base)->probes++;
	return script_page(ufs, NULL, NULL, e);
}

static void script_free(struct ufs *ufs)
{
	struct script *s = container_of(ufs, struct script, base);
	struct err e = ERR_INIT;
	struct list *node;

	(void)err_set(&e, -ECANCELED, "closing");
	while ((node = list_pop_front(&s->hanging)) != NULL) {
		struct ufs_get *get = list_entry(node, struct ufs_get, link);

		get->on_done(get, -ECANCELED, &e);
	}
	loop_free(s->loop);
	ufs_base_release(ufs);
	free(s);
}

static const struct ufs_ops script_ops = {
	.name = "script",
	.get = script_get,
	.promote = script_promote,
	.cancel = script_cancel,
	.list_page = script_page,
	.probe = script_probe,
	.free = script_free,
};

struct script *script_new(const struct step *steps, uint32_t n, uint64_t deadline_ns)
{
	struct script *s = calloc(1, sizeof(*s));
	struct ufs_limits limits = UFS_LIMITS_DEFAULT;

	limits.deadline_ns = deadline_ns;
	assert_int_equal(ufs_base_init(&s->base, &script_ops, NULL, &limits), 0);
	s->loop = loop_new("script");
	s->steps = steps;
	s->n = n;
	list_init(&s->hanging);
	return s;
}

static void on_answer_hanging(struct loop_task *task)
{
	struct answer *all = container_of(task, struct answer, task);
	struct script *s = all->script;
	struct list *node;

	free(all);
	while ((node = list_pop_front(&s->hanging)) != NULL) {
		struct answer *a = calloc(1, sizeof(*a));

		*a = (struct answer){ .task.run = on_task,
			.script = s,
			.get = list_entry(node, struct ufs_get, link) };
		loop_post(s->loop, &a->task);
	}
}

void answer_hanging(struct script *s)
{
	struct answer *all = calloc(1, sizeof(*all));

	*all = (struct answer){ .task.run = on_answer_hanging, .script = s };
	loop_post(s->loop, &all->task);
}

/* ---- a request that is waited for ------------------------------------------------------------ */

static void on_progress(struct ufs_get *get, uint64_t bytes)
{
	struct wait *w = get->arg;

	assert_true(bytes >= w->progress && bytes <= get->length);
	for (uint64_t i = w->progress; i < bytes; i++)
		assert_int_equal(w->buf[i], data_at(get->offset + i));
	w->progress = bytes;
}

static void on_done(struct ufs_get *get, int status, const struct err *e)
{
	struct wait *w = get->arg;

	pthread_mutex_lock(&w->lock);
	assert_false(w->done);
	w->done = true;
	w->status = status;
	assert_true((status < 0) == (e != NULL));
	if (e)
		w->e = *e;
	pthread_cond_signal(&w->news);
	pthread_mutex_unlock(&w->lock);
}

struct wait *wait_new(const char *key, enum ufs_class class, uint64_t offset, uint64_t length)
{
	struct wait *w = calloc(1, sizeof(*w));

	pthread_mutex_init(&w->lock, NULL);
	pthread_cond_init(&w->news, NULL);
	w->get = (struct ufs_get){ .key = key,
		.key_len = 1,
		.tag = "t",
		.tag_len = 1,
		.size = SIZE,
		.offset = offset,
		.length = length,
		.buf = w->buf,
		.class = class,
		.on_progress = on_progress,
		.on_done = on_done,
		.arg = w };
	return w;
}

struct wait *start_as(
	struct ufs *ufs, const char *key, enum ufs_class class, uint64_t offset, uint64_t length)
{
	struct wait *w = wait_new(key, class, offset, length);

	assert_int_equal(ufs_get(ufs, &w->get), 0);
	return w;
}

struct wait *start(struct ufs *ufs, uint64_t offset, uint64_t length)
{
	return start_as(ufs, "k", UFS_DEMAND, offset, length);
}

int await(struct wait *w)
{
	pthread_mutex_lock(&w->lock);
	while (!w->done)
		pthread_cond_wait(&w->news, &w->lock);
	pthread_mutex_unlock(&w->lock);
	return w->status;
}

int finish(struct wait *w, struct err *e)
{
	int status = await(w);

	if (status == 0) {
		assert_int_equal(w->get.got, w->get.length);
		for (uint64_t i = 0; i < w->get.length; i++)
			assert_int_equal(w->buf[i], data_at(w->get.offset + i));
	}
	if (e)
		*e = w->e;
	free(w);
	return status;
}
