/*
 * Threads that a disk holds. A READ of what lies on this node is one pread by the thread that took
 * it; when the disk does not answer, that thread hangs, and with a few of them the mount. One more
 * thread looks at the clock: a READ that is at the disk for 5 s is parked, as if its bytes were not
 * on this node (the worker gets them elsewhere), and another thread takes the place of the one that
 * hangs. That one, once its call returns, finds that its request is not its own any more.
 *
 * While any hangs the reader is told not to touch this node's disks at all.
 */
#include "base/clock.h"
#include "base/log.h"
#include "fuse/session_internal.h"

#include <poll.h>

#define LOOK_MS 250

void session_read_begin(struct worker *w, fuse_req_t req, const struct tree_range *range)
{
	pthread_mutex_lock(&w->lock);
	w->reading_since = clock_mono_ns();
	w->reading_slot = w->slot;
	w->reading_req = req;
	w->reading = *range;
	pthread_mutex_unlock(&w->lock);
}

bool session_read_end(struct worker *w)
{
	struct reader *reader = w->session->config.reader;
	bool taken;

	pthread_mutex_lock(&w->lock);
	taken = w->taken;
	w->taken = false;
	w->read_ns = clock_mono_ns() - w->reading_since;
	w->reading_since = 0;
	pthread_mutex_unlock(&w->lock);
	if (taken && reader->ops->hangs)
		reader->ops->hangs(reader, false);
	return !taken;
}

/* Parks what the thread has been reading for too long. */
static bool rescue(struct session *s, struct worker *w, uint64_t now)
{
	struct reader *reader = s->config.reader;
	struct tree_range range = { 0 };
	fuse_req_t req = NULL;
	uint32_t slot = 0;
	bool late;

	pthread_mutex_lock(&w->lock);
	late = w->reading_since && !w->taken && now > w->reading_since &&
	       now - w->reading_since >= s->stall_ns;
	if (late) {
		w->taken = true;
		slot = w->reading_slot;
		req = w->reading_req;
		range = w->reading;
	}
	pthread_mutex_unlock(&w->lock);
	if (!late)
		return false;
	if (reader->ops->hangs)
		reader->ops->hangs(reader, true);
	counter_add(&s->counters->stalled, 1);
	LOG_LIMITED(
		LOG_WARN, "a disk does not answer", "slot=%u next=\"read from the worker\"", slot);
	session_park(s, slot, req, &range);
	session_left_done(w);
	return true;
}

static void *watch_main(void *arg)
{
	struct session *s = arg;
	struct pollfd stop = { .fd = s->stop_fd, .events = POLLIN };

	pthread_setname_np(pthread_self(), "fuse-watch");
	while (!atomic_load(&s->stopping)) {
		unsigned int n = s->started;

		for (unsigned int i = 0; i < n; i++)
			if (rescue(s, &s->workers[i], clock_mono_ns()) &&
				s->started < SESSION_THREADS_MAX &&
				session_start_threads(s, s->started + 1) < 0)
				LOG_LIMITED(LOG_WARN, "no thread in place of one that hangs",
					"next=\"the others continue\"");
		(void)poll(&stop, 1, LOOK_MS); /* looked at above */
	}
	return NULL;
}

int session_watch_start(struct session *s)
{
	int r;

	if (s->stall_ns == 0)
		s->stall_ns = SESSION_STALL_NS;
	r = pthread_create(&s->watch, NULL, watch_main, s);
	s->watched = r == 0;
	return -r;
}

void session_watch_stop(struct session *s)
{
	if (s->watched)
		pthread_join(s->watch, NULL);
	s->watched = false;
}

/* The others may wait for that one: after a takeover none takes a request before those left have their answers. */
static bool is_at_disk(struct session *s)
{
	bool is = false;

	for (unsigned int i = 0; i < s->started && !is; i++) {
		struct worker *w = &s->workers[i];

		pthread_mutex_lock(&w->lock);
		is = w->reading_since != 0;
		pthread_mutex_unlock(&w->lock);
	}
	return is;
}

bool session_turns(struct session *s)
{
	uint64_t taken = counter_get(&s->counters->total) + counter_get(&s->counters->forget);
	struct pollfd dev = { .fd = s->config.dev_fd, .events = POLLIN };
	bool moved = taken != s->turned;
	struct slots_use use;

	s->turned = taken;
	if (moved || atomic_load(&s->stopping) || poll(&dev, 1, 0) != 1 || dev.revents != POLLIN)
		return true;
	slots_use(s->config.slots, &use);
	return use.held >= use.max || is_at_disk(s);
}
