/* Reading from the origin while no worker answers. See client_direct.h. */
#include "client/client_direct.h"
#include "base/log.h"
#include "client/client_internal.h"
#include "client/client_op.h"

#include <stdlib.h>
#include <string.h>

#define REQUESTS_MAX  32u
#define LISTS_MAX     1u
#define REFUSED_AGAIN (30 * CLOCK_SECOND)

/* One object's share of a part. */
struct direct_get {
	struct list link;
	struct client_direct *direct;
	struct ufs_get get;
	bool sent;    /* under the lock: can be cancelled */
	char names[]; /* key and tag */
};

struct client_direct {
	struct client_op *op;
	void (*done)(struct client_op *op);
	struct pool_job job;
	struct loop_task task;
	pthread_mutex_t lock; /* of what follows */
	struct list gets;
	uint32_t left; /* of them, and one while they are begun */
	bool cancelled;
	struct ufs *ufs; /* NULL: not yet */
	int status;      /* the first failure */
	struct err why;
};

void client_origin_init(struct client_origin *origin, bool allowed, struct ufs_config *config)
{
	*origin = (struct client_origin){ .config = *config };
	*config = (struct ufs_config){ 0 };
	pthread_mutex_init(&origin->lock, NULL);
	client_origin_allow(origin, allowed);
}

void client_origin_allow(struct client_origin *origin, bool allowed)
{
	atomic_store(&origin->allowed, allowed && origin->config.prefix);
}

void client_origin_release(struct client_origin *origin)
{
	ufs_free(origin->ufs);
	ufs_config_release(&origin->config);
	pthread_mutex_destroy(&origin->lock);
}

/* ---- when ------------------------------------------------------------------------------------ */

void client_direct_down(struct client_volume *volume)
{
	uint64_t up = 0;

	if (volume->origin.allowed)
		(void)atomic_compare_exchange_strong(&volume->origin.down, &up, clock_mono_ns());
}

void client_direct_up(struct client_volume *volume)
{
	uint64_t since = atomic_exchange(&volume->origin.down, 0);

	if (since && clock_mono_ns() - since >= CLIENT_DIRECT_AFTER)
		LOG_LIMITED(LOG_INFO, "a worker answers again", "down_s=%llu",
			(unsigned long long)((clock_mono_ns() - since) / CLOCK_SECOND));
}

bool client_direct_wanted(struct client_volume *volume, uint64_t chunk)
{
	uint64_t since = atomic_load(&volume->origin.down);
	struct view *view = volume->client->view;
	struct view_peer *local = view_local(view);
	struct view_candidates c;

	if (!volume->origin.allowed || !since || clock_mono_ns() - since < CLIENT_DIRECT_AFTER)
		return false;
	view_find(view, volume->hash, chunk, &c);
	for (uint32_t i = 0; i < c.n; i++)
		if (view_usable(view, c.peers[i]))
			return false;
	if (client_route_keeper(volume, chunk))
		return false;
	return !local || !view_usable(view, local);
}

/* On an I/O thread. */
static int open_origin(struct client_volume *volume, struct ufs **ret_ufs, struct err *e)
{
	struct client_origin *origin = &volume->origin;
	struct ufs_limits limits = UFS_LIMITS_DEFAULT;
	uint64_t now = clock_mono_ns();
	int r = 0;

	limits.max_requests = REQUESTS_MAX;
	limits.list_requests = LISTS_MAX;
	limits.deadline_ns = volume->client->read_deadline_ns;
	limits.bytes_per_s = volume->client->direct_bandwidth;
	pthread_mutex_lock(&origin->lock);
	if (!origin->ufs && origin->refused_ns && now - origin->refused_ns < REFUSED_AGAIN) {
		r = -EAGAIN;
	} else if (!origin->ufs) {
		r = ufs_open(&origin->config, &limits, &origin->ufs, e);
		origin->refused_ns = r < 0 ? now : 0;
		if (r < 0)
			LOG_LIMITED(LOG_WARN, "the origin cannot be read from here",
				"text=\"%s\" next=\"reads wait for a worker\"", e->text);
		else
			log_warn("no worker answers",
				"next=\"reads go to the origin, at most %llu bytes per second\"",
				(unsigned long long)limits.bytes_per_s);
	}
	*ret_ufs = origin->ufs;
	pthread_mutex_unlock(&origin->lock);
	return r;
}

/* ---- one read -------------------------------------------------------------------------------- */

static void direct_free(struct client_direct *direct)
{
	struct list *node;

	while ((node = list_pop_front(&direct->gets)) != NULL)
		free(list_entry(node, struct direct_get, link));
	pthread_mutex_destroy(&direct->lock);
	free(direct);
}

static void run_done(struct loop_task *task)
{
	struct client_direct *direct = container_of(task, struct client_direct, task);
	void (*done)(struct client_op * op) = direct->done;
	struct client_op *op = direct->op;

	op->work_status = direct->status;
	if (direct->status < 0 && direct->status != -ECANCELED)
		LOG_LIMITED(LOG_WARN, "read from the origin failed", "error=%s text=\"%s\"",
			err_name(direct->status), direct->why.text);
	op->direct = NULL;
	direct_free(direct);
	done(op);
}

/* The last one says so to the loop. */
static void part_ended(struct client_direct *direct, int status, const struct err *e)
{
	bool last;

	pthread_mutex_lock(&direct->lock);
	if (status < 0 && direct->status == 0) {
		direct->status = status;
		if (e)
			direct->why = *e;
	}
	last = --direct->left == 0;
	pthread_mutex_unlock(&direct->lock);
	if (last)
		loop_post(client_op_client(direct->op)->loop, &direct->task);
}

static void on_done(struct ufs_get *get, int status, const struct err *e)
{
	struct direct_get *part = container_of(get, struct direct_get, get);
	struct client *client = client_op_client(part->direct->op);

	if (status == 0)
		counter_add(&client->counters.direct_bytes, get->length);
	/* It is not the version that the mount shows. */
	part_ended(part->direct, status == -ENOENT ? -ESTALE : status, e);
}

static int begin_get(struct client_direct *direct, struct ufs *ufs, const struct table_row *row,
	uint64_t from, uint64_t to)
{
	struct client_op *op = direct->op;
	struct direct_get *part = calloc(1, sizeof(*part) + row->key_len + row->tag_len);
	bool cancelled;
	int r;

	if (!part)
		return -ENOMEM;
	memcpy(part->names, row->key, row->key_len);
	memcpy(part->names + row->key_len, row->tag, row->tag_len);
	part->direct = direct;
	part->get = (struct ufs_get){ .key = part->names,
		.key_len = row->key_len,
		.tag = part->names + row->key_len,
		.tag_len = row->tag_len,
		.size = row->size,
		.offset = from - row->offset,
		.length = to - from,
		.buf = op->buffer + (from - op->offset),
		.class = UFS_DEMAND,
		.deadline_ns = op->deadline_ns, /* the bytes serve no other read */
		.on_done = on_done };
	pthread_mutex_lock(&direct->lock);
	list_push_back(&direct->gets, &part->link);
	direct->ufs = ufs;
	direct->left++;
	pthread_mutex_unlock(&direct->lock);
	r = ufs_get(ufs, &part->get);
	if (r < 0) {
		part_ended(direct, r, NULL);
		return r;
	}
	pthread_mutex_lock(&direct->lock);
	part->sent = true;
	cancelled = direct->cancelled;
	pthread_mutex_unlock(&direct->lock);
	if (cancelled)
		ufs_cancel(ufs, &part->get);
	return cancelled ? -ECANCELED : 0;
}

/* All objects that the wanted bytes belong to; what belongs to none is zeros. */
static int begin_gets(struct client_direct *direct, struct ufs *ufs)
{
	struct client_op *op = direct->op;
	struct table *table = op->volume->table;
	struct table_row row;
	uint64_t at;
	uint64_t end;
	uint32_t length;
	int r = 0;

	client_plan_wanted(op, &at, &length);
	end = at + length;
	memset(op->buffer + (at - op->offset), 0, length);
	while (at < end && r == 0) {
		uint64_t stop;

		r = table_find_offset(table, at, &row);
		if (r == -ENOENT)
			r = table_next_offset(table, at, &row);
		if (r == -ENOENT || (r == 0 && row.offset >= end))
			return 0;
		if (r < 0)
			return r;
		at = max(at, row.offset);
		stop = min(end, row.offset + row.size);
		if (at < stop)
			r = begin_get(direct, ufs, &row, at, stop);
		at = align_up(row.offset + row.size, BLOCK_BYTES);
	}
	return r;
}

static void run_direct(struct pool_job *job)
{
	struct client_direct *direct = container_of(job, struct client_direct, job);
	struct err e = ERR_INIT;
	struct ufs *ufs = NULL;
	int r = open_origin(direct->op->volume, &ufs, &e);

	if (r == 0)
		r = begin_gets(direct, ufs);
	else if (r != -ENOMEM)
		r = -EAGAIN;
	part_ended(direct, r, &e);
}

int client_direct_read(struct client_op *op, void (*done)(struct client_op *op))
{
	struct client *client = client_op_client(op);
	struct client_direct *direct = calloc(1, sizeof(*direct));

	if (!direct)
		return -EAGAIN;
	direct->op = op;
	direct->done = done;
	direct->job.run = run_direct;
	direct->task.run = run_done;
	direct->left = 1;
	list_init(&direct->gets);
	pthread_mutex_init(&direct->lock, NULL);
	if (pool_submit(client->pool, &direct->job) < 0) {
		direct_free(direct);
		return -EAGAIN;
	}
	op->direct = direct;
	counter_add(&client->counters.direct_reads, 1);
	return 0;
}

void client_direct_cancel(struct client_op *op)
{
	struct client_direct *direct = op->direct;

	if (!direct)
		return;
	/* The gets go with the task, which is this thread's. */
	pthread_mutex_lock(&direct->lock);
	direct->cancelled = true;
	list_for_each (node, &direct->gets) {
		struct direct_get *part = list_entry(node, struct direct_get, link);

		if (part->sent)
			ufs_cancel(direct->ufs, &part->get);
	}
	pthread_mutex_unlock(&direct->lock);
}
