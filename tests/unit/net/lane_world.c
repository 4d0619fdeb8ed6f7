/* Both ends of a lane. See lane_world.h. */
#include "tests/unit/net/lane_world.h"
#include "base/err.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define POISON 0xa5

static const struct lane_asker_events asker_events;
static const struct lane_events answerer_events;

static char *land_of(struct lane_world *w, const struct lane_world_slot *slot)
{
	return (char *)w->land.base + (size_t)(slot - w->slots) * LANE_WORLD_BYTES;
}

static char *serve_of(struct lane_world *w, const struct lane_world_slot *slot)
{
	return (char *)w->serve.base + (size_t)(slot - w->slots) * LANE_WORLD_BYTES;
}

static void turn(struct lane_world *w)
{
	pthread_mutex_lock(&w->lock);
	w->turns++;
	pthread_cond_broadcast(&w->changed);
	pthread_mutex_unlock(&w->lock);
}

/* ---- bytes ----------------------------------------------------------------------------------- */

static uint32_t next_random(uint32_t *state)
{
	*state = *state * 1664525u + 1013904223u;
	return *state >> 8;
}

static uint32_t reply_bytes(uint32_t index)
{
	uint32_t state = index * 2654435761u;
	uint32_t bits = next_random(&state) % 21;
	uint32_t bytes = (1u << bits) + (bits ? next_random(&state) % (1u << bits) : 0);

	/* Some of the largest, and some at the edges of packets. */
	if (index % 10 == 0)
		return LANE_WORLD_BYTES;
	if (index % 10 == 1)
		return 4096u * (1 + index % 7) + index % 3 - 1;
	return min(bytes, LANE_WORLD_BYTES);
}

/* Eight bytes at a time: an emulated machine is slow. */
static uint64_t reply_word(uint32_t index, uint32_t at)
{
	return (index + 1) * 0x9e3779b97f4a7c15u + at * 0x0101010101010101u;
}

static void reply_fill(char *to, uint32_t index, uint32_t bytes)
{
	for (uint32_t i = 0; i < bytes; i += 8) {
		uint64_t word = reply_word(index, i);

		memcpy(to + i, &word, min(bytes - i, 8u));
	}
}

static bool reply_same(const char *got, uint32_t index, uint32_t bytes)
{
	for (uint32_t i = 0; i < bytes; i += 8) {
		uint64_t word = reply_word(index, i);

		if (memcmp(got + i, &word, min(bytes - i, 8u)) != 0)
			return false;
	}
	return true;
}

/* Are the first bytes of a free slot poison, each as the one before it? */
static void slot_check(struct lane_world *w, struct lane_world_slot *slot, uint32_t bytes)
{
	const char *land = land_of(w, slot);

	if (!slot->used && (land[0] != (char)POISON || memcmp(land, land + 1, bytes - 1) != 0))
		w->late++;
}

/* ---- answers --------------------------------------------------------------------------------- */

static void on_header(struct loop_task *task)
{
	struct lane_world_slot *slot = container_of(task, struct lane_world_slot, header);

	slot->header_posted = false;
	if (slot->used)
		lane_asker_header(slot->world->asker, &slot->destination, true);
}

/* The answerer's part: false when it cannot write, and so answers by TCP. */
static bool slot_answer(struct lane_world *w, struct lane_world_slot *slot)
{
	struct lane_write write = { .n = slot->bytes > 1 ? 2 : 1,
		.address = slot->destination.address,
		.key = slot->destination.key,
		.cookie = slot->destination.cookie,
		.context = slot };
	uint32_t half = slot->bytes / 2;

	if (!w->answerer || w->answerer_closing)
		return false;
	reply_fill(serve_of(w, slot), slot->index, slot->bytes);
	write.parts[0].data = serve_of(w, slot);
	write.parts[0].bytes = slot->bytes - half;
	write.parts[1].data = serve_of(w, slot) + slot->bytes - half;
	write.parts[1].bytes = half;
	if (w->ops->write(w->answerer, &write) < 0)
		return false;
	slot->writing = true;
	return true;
}

static void world_task(struct loop_task *task)
{
	struct lane_world *w = container_of(task, struct lane_world, task);

	w->posted = false;
	if (w->todo)
		w->todo(w);
	turn(w);
}

static void again(struct lane_world *w)
{
	if (!w->posted) {
		w->posted = true;
		loop_post(w->loop, &w->task);
	}
}

static void delivered(struct lane_world *w)
{
	ensure(w->left > 0);
	w->left--;
	again(w);
}

static void slot_start(struct lane_world *w, struct lane_world_slot *slot)
{
	unsigned int orders = w->orders ? w->orders : (1u << LANE_N_ORDERS) - 1;

	slot_check(w, slot, max(slot->bytes, 4096u));
	slot->index = w->next++;
	slot->bytes = reply_bytes(slot->index);
	do {
		slot->order = (enum lane_world_order)(next_random(&w->seed) % LANE_N_ORDERS);
	} while (!(orders & 1u << slot->order));
	if (lane_asker_ask(w->asker, slot, land_of(w, slot), slot->bytes, &slot->destination) < 0) {
		w->by_tcp++;
		delivered(w);
		return;
	}
	slot->used = true;
	slot->cancelled = false;
	if (slot->order == LANE_HEADER_FIRST)
		lane_asker_header(w->asker, &slot->destination, true);
	if (!slot_answer(w, slot)) {
		/* It said that it would write and cannot: by its end of the lane all is fenced. */
		if (slot->order != LANE_HEADER_FIRST)
			lane_asker_header(w->asker, &slot->destination, false);
		else
			lane_asker_broken(w->asker, w->number, LANE_WRITE_CAUSE);
		return;
	}
	if (slot->order == LANE_HEADER_WITH) {
		slot->header_posted = true;
		loop_post(w->loop, &slot->header);
	}
	if (next_random(&w->seed) % 1000 < w->cancel) {
		slot->cancelled = true;
		w->cancelled++;
		delivered(w); /* by another way */
		lane_asker_cancel(w->asker, &slot->destination);
	}
}

static bool slot_idle(const struct lane_world_slot *slot)
{
	return !slot->used && !slot->writing && !slot->header_posted;
}

static void slots_start(struct lane_world *w)
{
	unsigned int in_flight = 0;

	for (unsigned int i = 0; i < LANE_WORLD_SLOTS; i++)
		in_flight += w->slots[i].used && !w->slots[i].cancelled;
	for (unsigned int i = 0; i < LANE_WORLD_SLOTS && in_flight < w->left; i++) {
		struct lane_world_slot *slot = &w->slots[i];

		if (!slot_idle(slot))
			continue;
		slot_start(w, slot);
		in_flight += slot->used && !slot->cancelled;
	}
}

static void on_verdict(void *arg, void *owner, enum lane_verdict verdict)
{
	struct lane_world *w = arg;
	struct lane_world_slot *slot = owner;

	ensure(slot->used);
	slot->used = false;
	if (verdict == LANE_COMPLETE) {
		w->wrong += !reply_same(land_of(w, slot), slot->index, slot->bytes);
		w->by_lane++;
	} else if (!slot->cancelled) {
		w->by_tcp++;
	}
	memset(land_of(w, slot), POISON, slot->bytes);
	if (!slot->cancelled)
		delivered(w);
	again(w);
}

/* ---- words ----------------------------------------------------------------------------------- */

static void answerer_close(struct lane_world *w)
{
	if (w->answerer && !w->answerer_closing) {
		w->answerer_closing = true;
		w->ops->close(w->answerer);
	}
}

static void send_open(void *arg, uint8_t lane, const struct lane_end *own)
{
	struct lane_world *w = arg;
	struct lane_options options = { .side = LANE_ANSWERER,
		.local = w->local[1],
		.remote = w->local[0],
		.peer = *own,
		.writes = LANE_WORLD_SLOTS,
		.events = &answerer_events,
		.arg = w };

	w->ends[0] = *own;
	w->number = lane;
	/* One of an earlier connection may still be closing: the test waits for it before it opens another. */
	ensure(!w->answerer);
	w->answerer_ready = w->answerer_closing = w->answerer_broken = false;
	w->answerer = w->ops->open(w->loop, &options);
	ensure(w->answerer);
}

static void send_probe(void *arg, uint8_t lane)
{
	struct lane_world *w = arg;
	struct lane_write probe = { .cookie = w->probe, .key = 12345, .address = 67890 };

	ensure(lane == w->number);
	if (w->answerer && !w->answerer_closing)
		(void)w->ops->write(w->answerer, &probe); /* if not, the asker waits in vain */
}

static void send_close(void *arg, uint8_t lane, enum lane_cause cause)
{
	(void)lane;
	(void)cause;
	answerer_close(arg);
}

static void on_change(void *arg)
{
	again(arg);
}

static void on_gone(void *arg)
{
	struct lane_world *w = arg;

	w->asker = NULL;
	w->asker_gone = true;
	again(w);
}

static const struct lane_asker_events asker_events = {
	.send_open = send_open,
	.send_probe = send_probe,
	.send_close = send_close,
	.on_change = on_change,
	.on_verdict = on_verdict,
	.on_gone = on_gone,
};

static void answerer_on_open(void *arg, enum lane_cause cause, const struct lane_end *own)
{
	struct lane_world *w = arg;

	if (cause != LANE_WELL) {
		w->answerer_broken = true;
		w->answerer_cause = cause;
		answerer_close(w);
		if (w->asker)
			lane_asker_broken(w->asker, w->number, cause);
		return;
	}
	w->ends[1] = *own;
	w->answerer_ready = true;
	for (unsigned int i = 0; w->asker && i <= w->opened_again; i++)
		lane_asker_opened(w->asker, w->number, own);
}

static void answerer_on_connected(void *arg)
{
	(void)arg;
	ensure(false); /* it is connected as it is opened */
}

static void answerer_on_immediate(void *arg, uint32_t cookie)
{
	(void)arg;
	(void)cookie;
	ensure(false); /* nothing can be written to it */
}

static void answerer_on_written(void *arg, void *context, bool well)
{
	struct lane_world *w = arg;
	struct lane_world_slot *slot = context;

	if (slot) {
		ensure(slot->writing);
		slot->writing = false;
		if (well && slot->order == LANE_HEADER_AFTER && slot->used)
			lane_asker_header(w->asker, &slot->destination, true);
	}
	again(w);
}

static void answerer_on_broken(void *arg, enum lane_cause cause)
{
	struct lane_world *w = arg;

	w->answerer_broken = true;
	w->answerer_cause = cause;
	answerer_close(w);
	if (w->asker)
		lane_asker_broken(w->asker, w->number, cause);
	again(w);
}

static void answerer_on_closed(void *arg)
{
	struct lane_world *w = arg;

	w->answerer = NULL;
	again(w);
}

static const struct lane_events answerer_events = {
	.on_open = answerer_on_open,
	.on_connected = answerer_on_connected,
	.on_immediate = answerer_on_immediate,
	.on_written = answerer_on_written,
	.on_broken = answerer_on_broken,
	.on_closed = answerer_on_closed,
};

/* ---- the test's thread ----------------------------------------------------------------------- */

struct until {
	struct lane_world *world;
	void (*fn)(struct lane_world *w);
	bool (*condition)(struct lane_world *w);
	bool holds;
};

static void until_first(void *arg)
{
	struct until *u = arg;

	if (u->fn)
		u->fn(u->world);
	u->holds = u->condition(u->world);
}

static void until_more(void *arg)
{
	struct until *u = arg;

	u->holds = u->condition(u->world);
}

void lane_world_until(struct lane_world *w, void (*fn)(struct lane_world *w),
	bool (*condition)(struct lane_world *w))
{
	struct until u = { .world = w, .fn = fn, .condition = condition };
	unsigned int seen;

	pthread_mutex_lock(&w->lock);
	seen = w->turns;
	pthread_mutex_unlock(&w->lock);
	loop_call(w->loop, until_first, &u);
	while (!u.holds) {
		pthread_mutex_lock(&w->lock);
		while (w->turns == seen)
			pthread_cond_wait(&w->changed, &w->lock);
		seen = w->turns;
		pthread_mutex_unlock(&w->lock);
		loop_call(w->loop, until_more, &u);
	}
}

static void asker_start(struct lane_world *w)
{
	struct lane_asker_options options = { .ops = w->ops,
		.local = w->local[0],
		.remote = w->local[1],
		.slots = LANE_WORLD_SLOTS,
		.share = (uint64_t)LANE_WORLD_SLOTS * LANE_WORLD_BYTES,
		.events = &asker_events,
		.arg = w };

	w->asker_gone = false;
	ensure(lane_asker_new(w->loop, &options, &w->asker) == 0);
}

static bool at_once(struct lane_world *w)
{
	(void)w;
	return true;
}

static void address_set(struct sockaddr_storage *to, const char *text)
{
	struct sockaddr_in *in = (struct sockaddr_in *)to;

	in->sin_family = AF_INET;
	ensure(inet_pton(AF_INET, text, &in->sin_addr) == 1);
}

static void memory_start(struct lane_world *w, struct lane_memory *memory, unsigned int domains)
{
	memory->bytes = (size_t)LANE_WORLD_SLOTS * LANE_WORLD_BYTES;
	memory->domains = domains;
	memory->base = mmap(NULL, memory->bytes, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	ensure(memory->base != MAP_FAILED);
	ensure(w->ops->add(memory) == 0);
}

void lane_world_start(struct lane_world *w, const struct lane_ops *ops, const char *const local[2])
{
	memset(w, 0, sizeof(*w));
	w->ops = ops;
	w->seed = 1;
	w->probe = LANE_PROBE;
	pthread_mutex_init(&w->lock, NULL);
	pthread_cond_init(&w->changed, NULL);
	w->loop = loop_new("lanes");
	ensure(w->loop);
	w->task.run = world_task;
	list_init(&w->task.link);
	for (unsigned int i = 0; local && i < 2; i++)
		address_set(&w->local[i], local[i]);
	memory_start(w, &w->land, LANE_LAND);
	memory_start(w, &w->serve, LANE_SERVE);
	memset(w->land.base, POISON, w->land.bytes);
	for (unsigned int i = 0; i < LANE_WORLD_SLOTS; i++) {
		w->slots[i].world = w;
		w->slots[i].header.run = on_header;
		list_init(&w->slots[i].header.link);
	}
	lane_world_until(w, asker_start, at_once);
}

static void all_end(struct lane_world *w)
{
	w->todo = NULL;
	answerer_close(w);
	lane_asker_close(w->asker);
}

static bool all_ended(struct lane_world *w)
{
	return w->asker_gone && !w->answerer;
}

void lane_world_stop(struct lane_world *w)
{
	lane_world_until(w, all_end, all_ended);
	w->ops->remove(&w->land);
	w->ops->remove(&w->serve);
	loop_free(w->loop);
	munmap(w->land.base, w->land.bytes);
	munmap(w->serve.base, w->serve.bytes);
	pthread_cond_destroy(&w->changed);
	pthread_mutex_destroy(&w->lock);
}

static void want(struct lane_world *w)
{
	struct lane_asker_state state;

	lane_asker_look(w->asker, &state);
	w->breaks = state.breaks;
	lane_asker_want(w->asker);
}

static bool opened(struct lane_world *w)
{
	struct lane_asker_state state;

	lane_asker_look(w->asker, &state);
	w->open_failed = !state.open && state.breaks != w->breaks;
	return state.open || w->open_failed;
}

bool lane_world_open(struct lane_world *w)
{
	lane_world_until(w, want, opened);
	return !w->open_failed;
}

static bool all_delivered(struct lane_world *w)
{
	return w->left == 0;
}

static void replies_begin(struct lane_world *w)
{
	w->left = w->wanted;
	w->todo = slots_start;
	again(w);
}

static void replies_end(struct lane_world *w)
{
	w->todo = NULL;
}

void lane_world_replies(struct lane_world *w, unsigned int n)
{
	w->wanted = n;
	lane_world_until(w, replies_begin, all_delivered);
	lane_world_until(w, replies_end, at_once);
}

static void cut(struct lane_world *w)
{
	w->todo = NULL;
	w->left = LANE_WORLD_SLOTS;
	slots_start(w);
	/* The answerer learns nothing: it writes until its writes fail. */
	lane_asker_close(w->asker);
}

static void cut_answerer(struct lane_world *w)
{
	w->left = 0;
	answerer_close(w);
}

static bool cut_ended(struct lane_world *w)
{
	for (unsigned int i = 0; i < LANE_WORLD_SLOTS; i++)
		if (w->slots[i].writing)
			return false;
	return w->asker_gone;
}

void lane_world_cut(struct lane_world *w)
{
	lane_world_until(w, cut, cut_ended);
	lane_world_until(w, cut_answerer, all_ended);
	lane_world_check(w);
	lane_world_until(w, asker_start, at_once);
}

static void check_all(struct lane_world *w)
{
	for (unsigned int i = 0; i < LANE_WORLD_SLOTS; i++)
		slot_check(w, &w->slots[i], LANE_WORLD_BYTES);
}

void lane_world_check(struct lane_world *w)
{
	lane_world_until(w, check_all, at_once);
}
