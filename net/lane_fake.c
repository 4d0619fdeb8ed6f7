/*
 * Lanes in this process. See lane_fake.h.
 *
 * the_fakes.lock covers everything that two ends share, and each arrival of bytes: what is destroyed under it is written no more.
 * Upcalls are made by the lane's loop, one by one, in lane_run().
 */
#include "net/lane_fake.h"
#include "net/lane.h"
#include "base/check.h"
#include "base/err.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define LANE_MAGIC 0x464c414eu

enum fake_state {
	FAKE_INIT,  /* the asker's, until connect() */
	FAKE_READY, /* RTR, or RTS */
	FAKE_ERR,
};

struct fake_lane {
	struct lane lane;
	uint32_t magic;
	struct loop *loop;
	enum lane_side side;
	unsigned int writes;
	struct loop_task task;

	/* Under the lock. */
	struct list link;
	enum fake_state state;
	uint32_t qpn;
	uint32_t peer;
	unsigned int in_flight; /* writes without on_written() */
	unsigned int receives;  /* the asker's, that no write used */
	unsigned int late;      /* writes that still arrive in FAKE_ERR */
	uint32_t immediates[LANE_WRITES_MAX + 1];
	unsigned int n_immediates;
	struct list delayed; /* writes, each with its timer */
	struct list done;    /* writes, until on_written() */
	enum lane_cause cause;
	bool posted;
	bool opened; /* on_open() was called, and so on */
	bool connected;
	bool broken;
	bool closing;
};

struct fake_write {
	struct list link;
	struct fake_lane *from; /* NULL: it is closed */
	struct loop_timer *timer;
	uint32_t to;
	struct lane_write what;
	bool well;
	unsigned char *
		copy; /* of what outlives its lane; else the parts are read as it arrives, as by a card */
};

static struct {
	pthread_mutex_t lock;
	struct list lanes;
	struct list memories;
	struct list held; /* writes */
	unsigned int n_memories;
	unsigned int n_held;
	uint32_t last;  /* queue pair */
	uint32_t key;   /* of memory, the last */
	uint32_t chaos; /* state of the generator */
	bool hold;
	bool no_device;
	struct lane_fake_faults faults;
} the_fakes = {
	.lock = PTHREAD_MUTEX_INITIALIZER,
	.lanes = LIST_INIT(the_fakes.lanes),
	.memories = LIST_INIT(the_fakes.memories),
	.held = LIST_INIT(the_fakes.held),
	.chaos = 1,
	.last = 16,
};

static struct fake_lane *fake_lane(struct lane *lane)
{
	struct fake_lane *f = container_of(lane, struct fake_lane, lane);

	CHECK_MAGIC(f, LANE_MAGIC);
	return f;
}

static uint32_t chance_locked(uint32_t below)
{
	uint32_t x = the_fakes.chaos;

	x ^= x << 13;
	x ^= x >> 17;
	x ^= x << 5;
	the_fakes.chaos = x;
	return below ? x % below : 0;
}

static void post_locked(struct fake_lane *f)
{
	if (!f->posted) {
		f->posted = true;
		loop_post(f->loop, &f->task);
	}
}

static void fail_locked(struct fake_lane *f, enum lane_cause cause)
{
	if (f->state == FAKE_ERR)
		return;
	f->state = FAKE_ERR;
	f->late = 1;
	f->cause = cause;
	post_locked(f);
}

/* ---- memory ---------------------------------------------------------------------------------- */

static const struct lane_memory *memory_find_locked(
	const void *data, size_t bytes, unsigned int domain)
{
	const char *from = data;

	list_for_each (node, &the_fakes.memories) {
		const struct lane_memory *m = list_entry(node, struct lane_memory, link);
		const char *base = m->base;

		if ((m->domains & domain) && from >= base && bytes <= m->bytes &&
			(size_t)(from - base) <= m->bytes - bytes)
			return m;
	}
	return NULL;
}

static int fake_add(struct lane_memory *memory)
{
	int r = 0;

	pthread_mutex_lock(&the_fakes.lock);
	if (the_fakes.n_memories == LANE_MEMORIES_MAX) {
		r = -ENOSPC;
	} else {
		the_fakes.n_memories++;
		memory->land[0].key = ++the_fakes.key;
		list_push_back(&the_fakes.memories, &memory->link);
	}
	pthread_mutex_unlock(&the_fakes.lock);
	return r;
}

static void fake_remove(struct lane_memory *memory)
{
	pthread_mutex_lock(&the_fakes.lock);
	list_remove(&memory->link);
	the_fakes.n_memories--;
	pthread_mutex_unlock(&the_fakes.lock);
}

static int fake_key(struct lane *lane, const void *data, size_t bytes, uint32_t *ret_key)
{
	const struct lane_memory *m;

	(void)fake_lane(lane);
	pthread_mutex_lock(&the_fakes.lock);
	m = memory_find_locked(data, bytes, LANE_LAND);
	if (m)
		*ret_key = m->land[0].key;
	pthread_mutex_unlock(&the_fakes.lock);
	return m ? 0 : -EFAULT;
}

/* ---- arrival --------------------------------------------------------------------------------- */

static struct fake_lane *asker_find_locked(uint32_t qpn)
{
	list_for_each (node, &the_fakes.lanes) {
		struct fake_lane *f = list_entry(node, struct fake_lane, link);

		if (f->qpn == qpn && f->side == LANE_ASKER)
			return f;
	}
	return NULL;
}

/* Where the bytes go; NULL: they may not. */
static unsigned char *destination_locked(const struct fake_write *w, size_t bytes)
{
	list_for_each (node, &the_fakes.memories) {
		const struct lane_memory *m = list_entry(node, struct lane_memory, link);
		uint64_t offset = w->what.address - (uintptr_t)m->base;

		if ((m->domains & LANE_LAND) && m->land[0].key == w->what.key &&
			offset <= m->bytes && bytes <= m->bytes - offset)
			return (unsigned char *)m->base + offset;
	}
	return NULL;
}

static size_t write_bytes(const struct lane_write *what)
{
	size_t bytes = 0;

	for (unsigned int i = 0; i < what->n; i++)
		bytes += what->parts[i].bytes;
	return bytes;
}

static void gather(const struct lane_write *what, unsigned char *to)
{
	for (unsigned int i = 0; i < what->n; i++) {
		memcpy(to, what->parts[i].data, what->parts[i].bytes);
		to += what->parts[i].bytes;
	}
}

/* The last part first: nothing says that bytes arrive in their order. */
static void land_locked(const struct fake_write *w, unsigned char *to, size_t bytes)
{
	if (w->copy) {
		memcpy(to, w->copy, bytes);
		return;
	}
	for (unsigned int i = w->what.n; i-- > 0;) {
		bytes -= w->what.parts[i].bytes;
		memcpy(to + bytes, w->what.parts[i].data, w->what.parts[i].bytes);
	}
}

static void immediate_locked(struct fake_lane *to, uint32_t cookie)
{
	ensure(to->receives > 0);
	to->receives--;
	to->immediates[to->n_immediates++] = cookie;
	post_locked(to);
}

/* What the sender learns: LANE_WELL, or why its queue pair fails. */
static enum lane_cause arrive_locked(struct fake_write *w)
{
	const struct lane_fake_faults *faults = &the_fakes.faults;
	struct fake_lane *to = asker_find_locked(w->to);
	size_t bytes = write_bytes(&w->what);
	unsigned char *at = bytes ? destination_locked(w, bytes) : NULL;

	if (!to || to->state == FAKE_INIT || chance_locked(1000) < faults->fail)
		return LANE_WRITE_CAUSE;
	if (to->state == FAKE_ERR) {
		if (at && to->late > 0) {
			to->late--;
			land_locked(w, at, bytes);
		}
		return LANE_WRITE_CAUSE;
	}
	if (bytes && !at) {
		fail_locked(to, LANE_RECEIVE_CAUSE);
		return LANE_ACCESS_CAUSE;
	}
	if (bytes)
		land_locked(w, at, bytes);
	if (chance_locked(1000) < faults->lose)
		return LANE_WELL;
	if (to->receives == 0)
		return LANE_RECEIVER_CAUSE;
	immediate_locked(to, w->what.cookie);
	if (to->receives > 0 && chance_locked(1000) < faults->twice)
		immediate_locked(to, w->what.cookie);
	return chance_locked(1000) < faults->fail_written ? LANE_WRITE_CAUSE : LANE_WELL;
}

static void done_locked(struct fake_write *w, enum lane_cause cause)
{
	struct fake_lane *from = w->from;

	if (!from) {
		free(w->copy);
		free(w);
		return;
	}
	/* Those behind a failed one are flushed; some of them have been written all the same. */
	w->well = cause == LANE_WELL && from->state == FAKE_READY;
	list_push_back(&from->done, &w->link);
	if (cause != LANE_WELL)
		fail_locked(from, cause);
	post_locked(from);
}

static void on_due(void *arg)
{
	struct fake_write *w = arg;

	pthread_mutex_lock(&the_fakes.lock);
	w->timer = NULL;
	list_remove(&w->link);
	done_locked(w, arrive_locked(w));
	pthread_mutex_unlock(&the_fakes.lock);
}

/* ---- operations ------------------------------------------------------------------------------ */

static void lane_run(struct loop_task *task);

static struct lane *fake_open(struct loop *loop, const struct lane_options *options)
{
	struct fake_lane *f = calloc(1, sizeof(*f));

	ensure(options->writes > 0 && options->writes <= LANE_WRITES_MAX);
	if (!f)
		return NULL;
	f->lane =
		(struct lane){ .ops = &lane_fake, .events = options->events, .arg = options->arg };
	f->magic = LANE_MAGIC;
	f->loop = loop;
	f->side = options->side;
	f->writes = options->writes;
	f->task.run = lane_run;
	list_init(&f->delayed);
	list_init(&f->done);
	pthread_mutex_lock(&the_fakes.lock);
	f->state = options->side == LANE_ASKER ? FAKE_INIT : FAKE_READY;
	f->peer = options->peer.qpn;
	f->qpn = ++the_fakes.last;
	f->receives = options->side == LANE_ASKER ? options->writes + 1 : 0;
	if (the_fakes.no_device) {
		f->state = FAKE_ERR;
		f->cause = LANE_DEVICE_CAUSE;
	}
	list_push_back(&the_fakes.lanes, &f->link);
	post_locked(f);
	pthread_mutex_unlock(&the_fakes.lock);
	return &f->lane;
}

static void fake_connect(struct lane *lane, const struct lane_end *peer)
{
	struct fake_lane *f = fake_lane(lane);

	ensure(f->side == LANE_ASKER && !f->closing);
	pthread_mutex_lock(&the_fakes.lock);
	f->peer = peer->qpn;
	if (f->state == FAKE_INIT)
		f->state = FAKE_READY;
	post_locked(f);
	pthread_mutex_unlock(&the_fakes.lock);
}

static struct fake_write *write_new(struct fake_lane *f, const struct lane_write *what)
{
	struct fake_write *w = calloc(1, sizeof(*w));

	if (!w)
		return NULL;
	list_init(&w->link);
	w->from = f;
	w->to = f->peer;
	w->what = *what;
	return w;
}

static int write_check_locked(struct fake_lane *f, const struct lane_write *what)
{
	if (f->state != FAKE_READY || f->side != LANE_ANSWERER)
		return -ENOTCONN;
	if (f->in_flight == f->writes)
		return -EAGAIN;
	for (unsigned int i = 0; i < what->n; i++)
		if (!memory_find_locked(what->parts[i].data, what->parts[i].bytes, LANE_SERVE))
			return -EFAULT;
	return 0;
}

static int write_locked(struct fake_lane *f, const struct lane_write *what)
{
	int r = write_check_locked(f, what);
	struct fake_write *w;

	if (r < 0)
		return r;
	w = write_new(f, what);
	if (!w)
		return -EAGAIN;
	if (the_fakes.hold) {
		list_push_back(&the_fakes.held, &w->link);
		the_fakes.n_held++;
	} else {
		w->timer = loop_timer_start(f->loop,
			the_fakes.faults.delay_ns
				? chance_locked(UINT32_MAX) % the_fakes.faults.delay_ns
				: 0,
			on_due, w);
		if (!w->timer) {
			free(w);
			return -EAGAIN;
		}
		list_push_back(&f->delayed, &w->link);
	}
	f->in_flight++;
	return 0;
}

static int fake_write(struct lane *lane, const struct lane_write *what)
{
	struct fake_lane *f = fake_lane(lane);
	int r;

	ensure(what->n <= LANE_PARTS && !f->closing);
	pthread_mutex_lock(&the_fakes.lock);
	r = write_locked(f, what);
	pthread_mutex_unlock(&the_fakes.lock);
	return r;
}

/* The queue pair is destroyed by the loop, as a real one is by another thread: until then it is as before. */
static void fake_close(struct lane *lane)
{
	struct fake_lane *f = fake_lane(lane);

	ensure(!f->closing);
	pthread_mutex_lock(&the_fakes.lock);
	f->closing = true;
	post_locked(f);
	pthread_mutex_unlock(&the_fakes.lock);
}

/* What was sent goes on; its sender learns nothing more of it. */
static void flush_held_locked(struct fake_lane *f)
{
	list_for_each (node, &the_fakes.held) {
		struct fake_write *w = list_entry(node, struct fake_write, link);
		struct fake_write *end;

		if (w->from != f)
			continue;
		w->from = NULL;
		w->copy = malloc(write_bytes(&w->what) + 1);
		ensure(w->copy); /* a test's, as below */
		gather(&w->what, w->copy);
		end = calloc(1, sizeof(*end));
		ensure(end);
		end->what.context = w->what.context;
		list_push_back(&f->done, &end->link);
	}
}

static void destroy_locked(struct fake_lane *f)
{
	struct list *node;

	while ((node = list_pop_front(&f->delayed)) != NULL) {
		struct fake_write *w = list_entry(node, struct fake_write, link);

		loop_timer_stop(w->timer);
		(void)arrive_locked(w); /* or not: the result is not used */
		w->well = false;
		list_push_back(&f->done, &w->link);
	}
	flush_held_locked(f);
	list_remove(&f->link);
}

/* ---- upcalls --------------------------------------------------------------------------------- */

static void call_open(struct fake_lane *f)
{
	struct lane_end own = { .qpn = f->qpn, .psn = f->qpn * 7919 & 0xffffff, .mtu = 3 };
	enum lane_cause cause = f->state == FAKE_ERR ? f->cause : LANE_WELL;

	f->opened = true;
	f->broken = cause != LANE_WELL;
	pthread_mutex_unlock(&the_fakes.lock);
	f->lane.events->on_open(f->lane.arg, cause, &own);
}

static void call_immediate(struct fake_lane *f)
{
	uint32_t cookie = f->immediates[0];

	f->n_immediates--;
	f->receives++;
	memmove(f->immediates, f->immediates + 1, f->n_immediates * sizeof(f->immediates[0]));
	pthread_mutex_unlock(&the_fakes.lock);
	f->lane.events->on_immediate(f->lane.arg, cookie);
}

static void call_written(struct fake_lane *f)
{
	struct fake_write *w = list_entry(list_pop_front(&f->done), struct fake_write, link);

	f->in_flight--;
	pthread_mutex_unlock(&the_fakes.lock);
	f->lane.events->on_written(f->lane.arg, w->what.context, w->well);
	free(w);
}

static void call_closed(struct fake_lane *f)
{
	ensure(f->in_flight == 0);
	pthread_mutex_unlock(&the_fakes.lock);
	f->magic = 0;
	f->lane.events->on_closed(f->lane.arg);
	free(f);
}

/* Makes one upcall and has dropped the lock; false, with the lock: none is due. *ret_gone: it was the last. */
static bool upcall_locked(struct fake_lane *f, bool *ret_gone)
{
	*ret_gone = false;
	if (f->closing && !list_empty(&f->link))
		destroy_locked(f);
	if (!list_empty(&f->done)) {
		call_written(f);
	} else if (f->closing) {
		*ret_gone = true;
		call_closed(f);
	} else if (!f->opened) {
		call_open(f);
	} else if (f->side == LANE_ASKER && f->state == FAKE_READY && !f->connected) {
		f->connected = true;
		pthread_mutex_unlock(&the_fakes.lock);
		f->lane.events->on_connected(f->lane.arg);
	} else if (f->n_immediates > 0) {
		call_immediate(f);
	} else if (f->state == FAKE_ERR && !f->broken) {
		f->broken = true;
		pthread_mutex_unlock(&the_fakes.lock);
		f->lane.events->on_broken(f->lane.arg, f->cause);
	} else {
		return false;
	}
	return true;
}

static void lane_run(struct loop_task *task)
{
	struct fake_lane *f = container_of(task, struct fake_lane, task);
	bool gone;

	CHECK_MAGIC(f, LANE_MAGIC);
	pthread_mutex_lock(&the_fakes.lock);
	while (upcall_locked(f, &gone)) {
		if (gone)
			return;
		pthread_mutex_lock(&the_fakes.lock);
	}
	f->posted = false;
	pthread_mutex_unlock(&the_fakes.lock);
}

/* ---- control --------------------------------------------------------------------------------- */

void lane_fake_set_faults(const struct lane_fake_faults *faults)
{
	pthread_mutex_lock(&the_fakes.lock);
	the_fakes.faults = *faults;
	the_fakes.chaos = faults->seed ? faults->seed : 1;
	pthread_mutex_unlock(&the_fakes.lock);
}

void lane_fake_set_device(bool there)
{
	pthread_mutex_lock(&the_fakes.lock);
	the_fakes.no_device = !there;
	list_for_each (node, &the_fakes.lanes)
		if (!there)
			fail_locked(list_entry(node, struct fake_lane, link), LANE_REMOVED_CAUSE);
	pthread_mutex_unlock(&the_fakes.lock);
}

void lane_fake_break_answerers(void)
{
	pthread_mutex_lock(&the_fakes.lock);
	list_for_each (node, &the_fakes.lanes) {
		struct fake_lane *f = list_entry(node, struct fake_lane, link);

		if (f->side == LANE_ANSWERER)
			fail_locked(f, LANE_PORT_CAUSE);
	}
	pthread_mutex_unlock(&the_fakes.lock);
}

void lane_fake_hold(bool hold)
{
	pthread_mutex_lock(&the_fakes.lock);
	the_fakes.hold = hold;
	pthread_mutex_unlock(&the_fakes.lock);
}

unsigned int lane_fake_held(void)
{
	unsigned int n;

	pthread_mutex_lock(&the_fakes.lock);
	n = the_fakes.n_held;
	pthread_mutex_unlock(&the_fakes.lock);
	return n;
}

bool lane_fake_let(void)
{
	struct list *node;
	struct fake_write *w;

	pthread_mutex_lock(&the_fakes.lock);
	node = list_pop_front(&the_fakes.held);
	if (node) {
		the_fakes.n_held--;
		w = list_entry(node, struct fake_write, link);
		done_locked(w, arrive_locked(w));
	}
	pthread_mutex_unlock(&the_fakes.lock);
	return node;
}

const struct lane_ops lane_fake = {
	.name = "fake",
	.open = fake_open,
	.connect = fake_connect,
	.write = fake_write,
	.key = fake_key,
	.close = fake_close,
	.add = fake_add,
	.remove = fake_remove,
};
