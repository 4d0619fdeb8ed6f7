/* Feeds of announced orders: the reads that follow them, what is asked for next. See order.h. */
#include "fuse/order/order_internal.h"
#include "base/arena.h"

#include <sys/eventfd.h>

#define PUMP_RANGES 256u /* asked for before the sockets are looked at again */

void order_wake(struct order *order)
{
	if (!atomic_exchange(&order->woken, true))
		(void)eventfd_write(order->wake_fd, 1); /* cannot overflow */
}

/* ---- feeds ----------------------------------------------------------------------------------- */

/* Each has the same share of what may be in flight. */
static void share_window_locked(struct order *order)
{
	uint32_t n = max(atomic_load(&order->n_feeds), 1u);

	list_for_each (node, &order->feeds) {
		struct order_feed *feed = list_entry(node, struct order_feed, link);

		order_window_limit(&feed->window, ORDER_FILES, order->window_bytes, n);
		order_window_start(&feed->window, max(order->n_jobs, n));
	}
}

/* Ranks connect when they start and announce one after the other: the first leaves their share to the others. */
static uint32_t count_jobs(const struct order *order)
{
	uint32_t n = 0;

	for (size_t i = 0; i < ARRAY_SIZE(order->jobs); i++)
		n += order->jobs[i].fd >= 0 && order->jobs[i].state != ORDER_JOB_NEW;
	return n;
}

/* A worker is known some time after the mount has begun, or has another tier now. */
static void measure_window(struct order *order)
{
	const struct order_ops *ops = order->config.ops;
	uint64_t capacity = ops->capacity ? ops->capacity(order->config.arg) : 0;
	uint64_t bytes = order->config.window_bytes;
	uint32_t jobs = count_jobs(order);

	if (capacity > 0)
		bytes = min(capacity / ORDER_TIER_SHARE, (uint64_t)ORDER_WINDOW_MAX);
	pthread_mutex_lock(&order->lock);
	if (bytes != order->window_bytes || jobs != order->n_jobs) {
		order->window_bytes = bytes;
		order->n_jobs = jobs;
		share_window_locked(order);
	}
	pthread_mutex_unlock(&order->lock);
}

int order_feed_add(
	struct order *order, struct order_sequence *sequence, struct order_feed **ret_feed)
{
	struct order_feed *feed = arena_calloc(ARENA_ORDERS, 1, sizeof(*feed));
	int r;

	if (!feed)
		return -ENOMEM;
	r = order_array_new(
		&order->space, (sequence->n + 63) / 64, sizeof(uint64_t), &feed->passed);
	if (r < 0) {
		arena_free(ARENA_ORDERS, feed, sizeof(*feed));
		return r;
	}
	feed->sequence = sequence;
	order_window_init(&feed->window, sequence->n, &feed->asked, feed->passed.data);
	pthread_mutex_lock(&order->lock);
	list_push_back(&order->feeds, &feed->link);
	atomic_fetch_add(&order->n_feeds, 1);
	share_window_locked(order);
	pthread_mutex_unlock(&order->lock);
	counter_add(&order->counters.announced, 1);
	*ret_feed = feed;
	return 0;
}

void order_feed_remove(struct order *order, struct order_feed *feed)
{
	if (!feed)
		return;
	pthread_mutex_lock(&order->lock);
	list_remove(&feed->link);
	atomic_fetch_sub(&order->n_feeds, 1);
	share_window_locked(order);
	pthread_mutex_unlock(&order->lock);
	order_sequence_unref(feed->sequence);
	order_array_release(&feed->passed);
	arena_free(ARENA_ORDERS, feed, sizeof(*feed));
}

/* ---- what is read ---------------------------------------------------------------------------- */

static uint32_t blocks_of(const struct order_sample *sample)
{
	return (uint32_t)(sample->length / BLOCK_BYTES);
}

/* A sample was read, or is looked for (upto 0). True: it is announced (order_window_covers). */
static bool note_sample_locked(
	struct order *order, const struct order_samples *list, uint32_t number, uint32_t upto)
{
	const struct order_sample *sample = &list->samples[number];
	bool announced = false;

	list_for_each (node, &order->feeds) {
		struct order_feed *feed = list_entry(node, struct order_feed, link);
		uint32_t place;

		if (feed->sequence->samples != list)
			continue;
		place = order_sequence_place(feed->sequence, number);
		if (place == ORDER_NOWHERE)
			continue;
		announced |= order_window_covers(&feed->window, place);
		if (upto == 0)
			continue;
		feed->follows = max(feed->follows,
			order_window_read(&feed->window, place, upto, blocks_of(sample)));
		if (order_window_room(&feed->window))
			order_wake(order);
	}
	return announced;
}

/*
 * A READ touches more than a job asked for, and samples are part of several orders: it is a hit of
 * those that it follows, and a miss only when it follows none.
 */
static void judge_locked(struct order *order)
{
	enum order_follows best = ORDER_NOT_TOUCHED;

	list_for_each (node, &order->feeds)
		best = max(best, list_entry(node, struct order_feed, link)->follows);
	if (best == ORDER_FOLLOWS)
		counter_add(&order->counters.hits, 1);
	if (best == ORDER_FOLLOWS_NOT)
		counter_add(&order->counters.misses, 1);
	list_for_each (node, &order->feeds) {
		struct order_feed *feed = list_entry(node, struct order_feed, link);
		bool judged = feed->follows == best &&
			      (best == ORDER_FOLLOWS || best == ORDER_FOLLOWS_NOT);

		feed->follows = ORDER_NOT_TOUCHED;
		if (!judged || !order_window_judge(&feed->window, best == ORDER_FOLLOWS))
			continue;
		if (feed->window.off)
			counter_add(&order->counters.suspended, 1);
		order_wake(order);
	}
}

/*
 * A small sample is read with its first READ, a large one as far as it goes. A READ that begins before a sample is of another
 * one, and touches this one because the kernel reads ahead.
 */
static uint32_t read_upto(const struct order_sample *sample, uint64_t offset, uint64_t end)
{
	uint64_t bytes = sample->length;

	if (sample->length > UNIT_BYTES || offset < sample->start)
		bytes = min(bytes, end > sample->start ? end - sample->start : 0);
	return (uint32_t)(bytes / BLOCK_BYTES);
}

static bool look(struct order *order, uint64_t offset, uint32_t length, bool note)
{
	bool announced = false;

	if (atomic_load(&order->n_feeds) == 0)
		return false;
	pthread_mutex_lock(&order->lock);
	list_for_each (node, &order->lists) {
		struct order_samples *list = list_entry(node, struct order_samples, link);
		uint32_t i = order_samples_find(list, offset, length);

		for (uint32_t n = 0; n < ORDER_TOUCHED && i < list->n_by_start; n++, i++) {
			uint32_t number = list->by_start[i];
			const struct order_sample *sample = &list->samples[number];

			if (!order_sample_touches(sample, offset, length))
				break;
			announced |= note_sample_locked(order, list, number,
				note ? read_upto(sample, offset, offset + length) : 0);
		}
	}
	if (note)
		judge_locked(order);
	pthread_mutex_unlock(&order->lock);
	return announced;
}

bool order_note_read(struct order *order, uint64_t offset, uint32_t length)
{
	bool announced = look(order, offset, length, true);

	if (announced)
		counter_add(&order->counters.followed, 1);
	return announced;
}

bool order_covers(struct order *order, uint64_t offset, uint32_t length)
{
	return look(order, offset, length, false);
}

/* ---- what is asked for ----------------------------------------------------------------------- */

/* Whole units at most, and never over a chunk's end. */
static struct order_range cut(const struct order_sample *sample, uint64_t place, uint32_t from)
{
	uint64_t offset = sample->start + (uint64_t)from * BLOCK_BYTES;
	uint64_t end = min(sample->start + sample->length, offset + UNIT_BYTES);

	end = min(end, align_down(offset, CHUNK_BYTES) + CHUNK_BYTES);
	return (struct order_range){
		.place = place,
		.offset = offset,
		.length = (uint32_t)(end - offset),
		.from = from,
	};
}

/* Takes the next range into the window. False: there is none, or no room. */
static bool next_range_locked(struct order_feed *feed, struct order_range *ret)
{
	struct order_window *w = &feed->window;

	while (order_window_room(w)) {
		uint32_t done;
		uint64_t place = order_window_next(w, &done);
		uint32_t number = order_sequence_sample(feed->sequence, place);
		const struct order_sample *sample = &feed->sequence->samples->samples[number];
		uint32_t total = blocks_of(sample);

		if (done >= total) {
			order_window_pass(w);
			continue;
		}
		*ret = cut(sample, place, done);
		order_window_ask(w, ret->length / BLOCK_BYTES);
		if (done + ret->length / BLOCK_BYTES >= total)
			order_window_pass(w);
		return true;
	}
	return false;
}

/* The feed whose turn it is, with something to ask for: it comes last now. */
static struct order_feed *next_feed(struct order *order)
{
	struct order_feed *found = NULL;

	pthread_mutex_lock(&order->lock);
	list_for_each (node, &order->feeds) {
		struct order_feed *feed = list_entry(node, struct order_feed, link);

		if (feed->window.off) {
			feed->held.length = 0;
			continue;
		}
		if (feed->held.length == 0 && !next_range_locked(feed, &feed->held))
			continue;
		found = feed;
		list_remove(&feed->link);
		list_push_back(&order->feeds, &feed->link);
		break;
	}
	pthread_mutex_unlock(&order->lock);
	return found;
}

static void note_present(struct order *order, struct order_feed *feed)
{
	const struct order_range *range = &feed->held;

	pthread_mutex_lock(&order->lock);
	order_window_present(&feed->window, range->place, range->from,
		range->from + range->length / BLOCK_BYTES);
	pthread_mutex_unlock(&order->lock);
	counter_add(&order->counters.present, 1);
}

enum order_pumped order_pump(struct order *order)
{
	measure_window(order);
	for (unsigned int i = 0; i < PUMP_RANGES; i++) {
		struct order_feed *feed = next_feed(order);
		int r;

		if (!feed)
			return ORDER_PUMPED_ALL;
		r = order->config.ops->prefetch(
			order->config.arg, feed->held.offset, feed->held.length);
		if (r == -EAGAIN)
			return ORDER_PUMPED_BUSY;
		if (r == -EALREADY) {
			note_present(order, feed);
		} else {
			counter_add(&order->counters.asked, 1);
			counter_add(&order->counters.asked_bytes, feed->held.length);
		}
		feed->held.length = 0;
	}
	return ORDER_PUMPED_SOME;
}
