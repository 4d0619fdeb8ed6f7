/* The functions of ufs.h over a stack's table, and the stack itself. See ufs.h, ufs_internal.h. */
#include "ufs/ufs_internal.h"
#include "ufs/lister.h"
#include "ufs/s3_tag.h"
#include "base/clock.h"
#include "base/log.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int ufs_base_init(struct ufs *ufs, const struct ufs_ops *ops, struct ufs *lower,
	const struct ufs_limits *limits)
{
	ufs->magic = UFS_MAGIC;
	ufs->ops = ops;
	ufs->lower = lower;
	ufs->limits = *limits;
	ufs->counters = lower ? lower->counters : calloc(1, sizeof(*ufs->counters));
	return ufs->counters ? 0 : -ENOMEM;
}

void ufs_base_release(struct ufs *ufs)
{
	ufs->magic = 0;
	if (!ufs->lower)
		free(ufs->counters);
}

static const struct {
	const char *name;
	size_t offset; /* of its counter */
} causes[UFS_CAUSE_COUNT] = { [UFS_CAUSE_NONE] = { "none", 0 },
#define ROW(X, NAME, name, help) \
	[UFS_CAUSE_##NAME] = { #name, offsetof(struct ufs_counters, cause_##name) },
	UFS_CAUSES(ROW, )
#undef ROW
};

const char *ufs_cause_name(enum ufs_cause cause)
{
	ensure(cause < UFS_CAUSE_COUNT);
	return causes[cause].name;
}

void ufs_count_end(struct ufs *ufs, int status, enum ufs_cause cause, uint64_t got)
{
	struct ufs_counters *c = ufs->counters;

	counter_add(&c->bytes, got);
	if (status == 0 || status == -ECANCELED)
		return;
	if (cause == UFS_CAUSE_NONE)
		cause = UFS_CAUSE_OTHER;
	counter_add(&c->errors, 1);
	counter_add((counter_t *)(void *)((char *)c + causes[cause].offset), 1);
	if (status == -EAGAIN)
		counter_add(&c->overloads, 1);
	if (status == -ETIMEDOUT)
		counter_add(&c->timeouts, 1);
	if (status == -ESTALE)
		counter_add(&c->stale, 1);
}

static int open_origin(const struct ufs_config *config, const struct ufs_limits *limits,
	struct ufs **ret_ufs, struct err *e)
{
	switch (config->scheme) {
	case UFS_S3:
	case UFS_OBS:
		return s3_open(config, limits, ret_ufs, e);
	case UFS_FILE:
		return ufs_file_open(config, limits, ret_ufs, e);
	}
	return err_set(e, -EINVAL, "origin: unknown scheme");
}

int (*ufs_debug_wrap)(struct ufs *lower, struct ufs **ret_ufs, struct err *e);

int ufs_open(const struct ufs_config *config, const struct ufs_limits *limits, struct ufs **ret_ufs,
	struct err *e)
{
	struct ufs *ufs = NULL;
	int r;

	ensure(limits->max_requests >= 1 && limits->list_requests >= 1);
	r = open_origin(config, limits, &ufs, e);

	if (r == 0 && ufs_debug_wrap)
		r = ufs_debug_wrap(ufs, &ufs, e);
	if (r == 0)
		r = ufs_throttle_new(ufs, &ufs);
	if (r == 0)
		r = ufs_retry_new(ufs, &ufs);
	if (r < 0) {
		ufs_free(ufs);
		return err_default(e, r, "origin");
	}
	*ret_ufs = ufs;
	return 0;
}

void ufs_free(struct ufs *ufs)
{
	if (!ufs)
		return;
	CHECK_MAGIC(ufs, UFS_MAGIC);
	ufs->ops->free(ufs);
}

int ufs_probe(struct ufs *ufs, struct err *e)
{
	CHECK_MAGIC(ufs, UFS_MAGIC);
	return ufs->ops->probe(ufs, e);
}

/* Counts what cannot be read. A sink's calls do not overlap. */
struct counting {
	ufs_list_sink sink;
	void *arg;
	uint64_t archived;
	char first[128];
};

static int count_archived(void *arg, const struct ufs_object *objects, uint32_t n)
{
	struct counting *c = arg;

	for (uint32_t i = 0; i < n; i++)
		if (objects[i].archived && c->archived++ == 0)
			(void)snprintf(c->first, sizeof(c->first), "%.*s",
				(int)min(objects[i].key_len, 120u), objects[i].key); /* cut */
	return c->sink(c->arg, objects, n);
}

static int list_pages(struct ufs *ufs, ufs_list_sink sink, void *arg, struct err *e)
{
	const struct ufs_page_request begin = { .begin = true };
	struct counting counting = { .sink = sink, .arg = arg };
	struct ufs_page page;
	int r = 0;

	for (struct ufs *u = ufs; u && r == 0; u = u->lower) {
		if (!u->ops->begins_lists)
			continue;
		ufs_page_init(&page);
		r = ufs_list_page(ufs, &begin, &page, e);
		ufs_page_release(&page);
	}
	if (r == 0)
		r = lister_run(ufs, min(ufs->limits.list_requests, LISTER_THREADS_MAX),
			count_archived, &counting, e);
	if (r == 0)
		counter_set(&ufs->counters->archived, counting.archived);
	if (r == 0 && counting.archived)
		LOG_LIMITED(LOG_WARN, "archived objects",
			"objects=%llu first=\"%s\" next=\"their reads fail until they are restored "
			"in "
			"the object store\"",
			(unsigned long long)counting.archived, counting.first);
	return r;
}

int ufs_list(struct ufs *ufs, ufs_list_sink sink, void *arg, struct err *e)
{
	CHECK_MAGIC(ufs, UFS_MAGIC);
	for (struct ufs *u = ufs; u; u = u->lower)
		if (u->ops->list)
			return u->ops->list(u, sink, arg, e);
	return list_pages(ufs, sink, arg, e);
}

const char *ufs_first_unreadable(const struct ufs *ufs)
{
	CHECK_MAGIC(ufs, UFS_MAGIC);
	while (ufs->lower)
		ufs = ufs->lower;
	return ufs->first_unreadable;
}

int ufs_set_rates(struct ufs *ufs, uint64_t bytes_per_s, uint64_t requests_per_s)
{
	CHECK_MAGIC(ufs, UFS_MAGIC);
	while (!ufs_is_throttle(ufs) && ufs->lower)
		ufs = ufs->lower;
	return ufs_is_throttle(ufs) ? ufs_throttle_set(ufs, bytes_per_s, requests_per_s) : 0;
}

void ufs_list_after(struct ufs *ufs, const struct ufs_listed *listed)
{
	CHECK_MAGIC(ufs, UFS_MAGIC);
	for (struct ufs *u = ufs; u; u = u->lower)
		u->listed = *listed;
}

bool ufs_tag_has_version(const char *tag, uint32_t tag_len)
{
	return s3_tag_of(tag, tag_len).version_len > 0;
}

void ufs_list_cancel(struct ufs *ufs)
{
	CHECK_MAGIC(ufs, UFS_MAGIC);
	for (struct ufs *u = ufs; u; u = u->lower)
		atomic_store(&u->lists_cancelled, true);
}

void ufs_list_sleep(const struct ufs *ufs, const struct ufs_page_request *request, uint64_t ns)
{
	while (ns && !ufs_list_is_over(ufs, request)) {
		uint64_t slice = min(ns, UFS_LIST_LOOK_NS);

		clock_sleep_ns(slice);
		ns -= slice;
	}
}

int ufs_list_page(struct ufs *ufs, const struct ufs_page_request *request, struct ufs_page *page,
	struct err *e)
{
	CHECK_MAGIC(ufs, UFS_MAGIC);
	ensure(ufs->ops->list_page);
	ufs_page_clear(page);
	if (ufs_list_is_over(ufs, request))
		return err_set(e, -ECANCELED, "the listing was canceled");
	return ufs->ops->list_page(ufs, request, page, e);
}

int ufs_get(struct ufs *ufs, struct ufs_get *get)
{
	CHECK_MAGIC(ufs, UFS_MAGIC);
	ensure(get->length >= 1 && get->offset <= get->size &&
		get->length <= get->size - get->offset);
	ensure(get->class < UFS_CLASSES && get->on_done && !(get->buf && get->on_room));
	get->got = 0;
	get->room = (struct ufs_room){ 0 };
	get->retry_after_ns = 0;
	get->cause = UFS_CAUSE_NONE;
	get->final = false;
	get->refused = 0;
	get->remembered = false;
	return ufs->ops->get(ufs, get);
}

uint64_t ufs_range_bytes(struct ufs *ufs)
{
	CHECK_MAGIC(ufs, UFS_MAGIC);
	if (ufs->ops->range_bytes)
		return ufs->ops->range_bytes(ufs);
	return ufs->lower ? ufs_range_bytes(ufs->lower) : 0;
}

bool ufs_find_wait(struct ufs *ufs, const char *key, uint32_t key_len, struct ufs_wait *ret_wait)
{
	CHECK_MAGIC(ufs, UFS_MAGIC);
	return ufs->ops->find_wait && ufs->ops->find_wait(ufs, key, key_len, ret_wait);
}

void ufs_promote(struct ufs *ufs, struct ufs_get *get, enum ufs_class class)
{
	CHECK_MAGIC(ufs, UFS_MAGIC);
	if (ufs->ops->promote)
		ufs->ops->promote(ufs, get, class);
}

void ufs_cancel(struct ufs *ufs, struct ufs_get *get)
{
	CHECK_MAGIC(ufs, UFS_MAGIC);
	if (ufs->ops->cancel)
		ufs->ops->cancel(ufs, get);
}

bool ufs_refused(
	struct ufs *ufs, const char *key, uint32_t key_len, const char *tag, uint32_t tag_len)
{
	CHECK_MAGIC(ufs, UFS_MAGIC);
	return ufs->ops->refused && ufs->ops->refused(ufs, key, key_len, tag, tag_len);
}

void ufs_note_refused(struct ufs *ufs, const char *key, uint32_t key_len, const char *tag,
	uint32_t tag_len, uint32_t times)
{
	CHECK_MAGIC(ufs, UFS_MAGIC);
	if (ufs->ops->note_refused)
		ufs->ops->note_refused(ufs, key, key_len, tag, tag_len, times);
}

void ufs_forget(struct ufs *ufs)
{
	CHECK_MAGIC(ufs, UFS_MAGIC);
	if (ufs->ops->forget)
		ufs->ops->forget(ufs);
}

const struct ufs_counters *ufs_counters(const struct ufs *ufs)
{
	CHECK_MAGIC(ufs, UFS_MAGIC);
	return ufs->counters;
}

#define ROW(symbol, name, kind, unit, help) \
	COUNTER_ROW(ufs_counters, symbol, name, kind, unit, help)
static const struct counter_info counter_table[] = { UFS_COUNTERS(ROW) };

const struct counter_info *ufs_counter_table(uint32_t *ret_n)
{
	*ret_n = ARRAY_SIZE(counter_table);
	return counter_table;
}
