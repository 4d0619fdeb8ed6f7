/* Threads that read requests into slots and answer them. See session.h. */
#include "fuse/session/session_internal.h"
#include "base/clock.h"
#include "base/direct.h"
#include "base/log.h"
#include "mount/request.h"

#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/uio.h>

#define SESSION_MAGIC   0x5E5510A1u
#define THREADS_DEFAULT 6u
#define BLAME_MAX       (4 * SLOTS_BLAME_HANDLED) /* a request that saw so much death gets EIO */
#define STOP_GRACE      (10 * CLOCK_SECOND)
#define STALL_NS        (5 * CLOCK_SECOND) /* a READ that is at the disk for so long is parked */
#define BUF_BYTES       (LIMIT_PAYLOAD_BYTES + BLOCK_BYTES) /* the longest range of a READ */
#define LOOK_MS         250
#define IDLE_MS \
	10000 /* a thread without a request for so long gives the memory of its buffer back */

#define ROW(...) COUNTER_ROW(session_counters, __VA_ARGS__)
static const struct counter_info counter_rows[] = { SESSION_COUNTERS(ROW) };

const struct counter_info *session_counter_table(uint32_t *ret_n)
{
	*ret_n = ARRAY_SIZE(counter_rows);
	return counter_rows;
}

const struct histogram_info *session_histogram_table(uint32_t *ret_n)
{
#define TIMES(...) HISTOGRAM_ROW(session_histograms, __VA_ARGS__)
	static const struct histogram_info table[] = { SESSION_HISTOGRAMS(TIMES) };
#undef TIMES

	*ret_n = ARRAY_SIZE(table);
	return table;
}

/* ---- threads --------------------------------------------------------------------------------- */

static void connection_gone(struct session *s)
{
	if (!atomic_exchange(&s->gone, true) && s->config.on_gone)
		s->config.on_gone(s->config.arg);
}

/*
 * One request into a free slot. 0: handled; -EAGAIN: none there; -ENODEV: connection gone;
 * -ECANCELED: stopping.
 */
static int serve_one(struct worker *w)
{
	struct session *s = w->session;
	uint32_t slot = 0;
	ssize_t n;

	if (slots_take(s->config.slots, &slot) < 0)
		return -ECANCELED;
	n = read(s->config.dev_fd, slot_data(s->config.slots, slot), SLOT_BYTES);
	if (n > 0) {
		session_handle(w, slot, (uint32_t)n);
		return 0;
	}
	ensure(slot_move(s->config.slots, slot, SLOT_READING, SLOT_FREE));
	if (n == 0 || errno == ENODEV || errno == ECONNABORTED || errno == ECONNRESET)
		return -ENODEV;
	if (errno == EAGAIN)
		return -EAGAIN;
	if (errno != EINTR && errno != ENOENT) { /* ENOENT: interrupted before it was read */
		LOG_LIMITED(
			LOG_WARN, "read from the kernel failed", "error=%s", err_name(err_errno()));
		clock_sleep_ns(10 * CLOCK_MS); /* nothing known: do not spin */
	}
	return 0;
}

static void handle_left(struct worker *w, uint32_t slot, uint32_t blame)
{
	struct session *s = w->session;
	uint64_t unique = request_unique(slot_data(s->config.slots, slot), SLOT_BYTES);

	counter_add(&s->counters->taken_over, 1);
	if (blame < BLAME_MAX) {
		session_handle(w, slot, slot_len(s->config.slots, slot));
		return;
	}
	log_error("request given up", "unique=%" PRIu64 " blame=%u answer=EIO", unique, blame);
	session_refuse_slot(s, slot, unique, -EIO);
}

static void left_done(struct worker *w)
{
	struct session *s = w->session;

	pthread_mutex_lock(&s->left_lock);
	if (s->left_by == w) {
		s->left_by = NULL;
		pthread_cond_broadcast(&s->left_done);
	}
	pthread_mutex_unlock(&s->left_lock);
}

/*
 * What a predecessor left: one at a time, and nothing new before. The one of them that kills whoever
 * works on it then takes no other's good name with it.
 */
static void serve_left(struct worker *w)
{
	struct session *s = w->session;
	uint32_t slot;
	uint32_t blame;

	pthread_mutex_lock(&s->left_lock);
	for (;;) {
		while (s->left_by)
			pthread_cond_wait(&s->left_done, &s->left_lock);
		if (atomic_load(&s->handing) || slots_take_left(s->config.slots, &slot, &blame) < 0)
			break;
		s->left_by = w;
		pthread_mutex_unlock(&s->left_lock);
		handle_left(w, slot, blame);
		left_done(w);
		pthread_mutex_lock(&s->left_lock);
	}
	pthread_mutex_unlock(&s->left_lock);
}

/*
 * A request wakes one of the waiting threads (EPOLLEXCLUSIVE), where poll(2) would wake all: three
 * switches for nothing with each READ. The device is added when it had nothing: before a mount it
 * would not tell of requests to come.
 */
static void wait_for_request(struct worker *w)
{
	bool parked = atomic_load(&w->session->n_parked) > 0;
	int ms = parked ? SWEEP_MS : w->buf_used ? IDLE_MS : -1;
	struct epoll_event event = { .events = EPOLLIN | EPOLLEXCLUSIVE };

	if (!w->waits_for_dev &&
		epoll_ctl(w->wait_fd, EPOLL_CTL_ADD, w->session->config.dev_fd, &event) != 0) {
		clock_sleep_ns(CLOCK_MS); /* no memory for it: the read is tried again */
		return;
	}
	w->waits_for_dev = true;
	/* Errors show in the read that follows. */
	if (epoll_wait(w->wait_fd, &event, 1, ms) == 0 && ms == IDLE_MS) {
		(void)madvise(w->buf, BUF_BYTES, MADV_DONTNEED); /* more memory without */
		w->buf_used = false;
	}
}

static void *worker_main(void *arg)
{
	struct worker *w = arg;
	struct session *s = w->session;

	pthread_setname_np(pthread_self(), "fuse-serve");
	session_worker = w;
	serve_left(w);
	while (!atomic_load(&s->stopping)) {
		int r = serve_one(w);

		session_sweep(s);
		if (r == -ENODEV) {
			connection_gone(s);
			break;
		}
		if (r == -ECANCELED)
			break;
		if (r == -EAGAIN)
			wait_for_request(w);
		else
			w->buf_used = true;
	}
	return NULL;
}

/* What a thread without a request waits on, without the device; wait_for_request() adds that. */
static int wait_fd_new(const struct session *s)
{
	struct epoll_event event = { .events = EPOLLIN };
	int fd = epoll_create1(EPOLL_CLOEXEC);
	int r;

	if (fd < 0)
		return err_errno();
	if (epoll_ctl(fd, EPOLL_CTL_ADD, s->stop_fd, &event) == 0)
		return fd;
	r = err_errno();
	(void)close(fd); /* holds nothing */
	return r;
}

static char *buffer_new(struct session *s, unsigned int i)
{
	return i < s->n_buffers ? s->buffers + (size_t)i * BUF_BYTES : direct_buffer_new(BUF_BYTES);
}

static void worker_release(struct worker *w)
{
	if (w->wait_fd >= 0)
		(void)close(w->wait_fd); /* as above */
	if (w >= w->session->workers + w->session->n_buffers)
		free(w->buf);
	free(w->scratch);
	pthread_mutex_destroy(&w->lock);
}

/* Until there are so many. */
static int start_threads(struct session *s, unsigned int threads)
{
	sigset_t all;
	sigset_t old;
	int r = 0;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old); /* signals belong to the main thread */
	while (s->started < threads && r == 0) {
		struct worker *w = &s->workers[s->started];

		w->session = s;
		w->slot = SESSION_NO_SLOT;
		pthread_mutex_init(&w->lock, NULL);
		w->buf = buffer_new(s, s->started);
		w->scratch = calloc(1, max(s->config.tree->scratch_bytes, (size_t)1));
		w->wait_fd = wait_fd_new(s);
		r = !w->buf || !w->scratch ? ENOMEM
		    : w->wait_fd < 0       ? -w->wait_fd
					   : pthread_create(&w->thread, NULL, worker_main, w);
		if (r == 0)
			s->started++;
		else
			worker_release(w);
	}
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return -r;
}

/* ---- disks that hang ------------------------------------------------------------------------- */

/*
 * Threads that a disk holds. A READ of what lies on this node is one pread by the thread that took
 * it; when the disk does not answer, that thread hangs, and with a few of them the mount. One more
 * thread looks at the clock: a READ that is at the disk for 5 s is parked, as if its bytes were not
 * on this node (the worker gets them elsewhere), and another thread takes the place of the one that
 * hangs. That one, once its call returns, finds that its request is not its own any more.
 *
 * While any hangs the reader is told not to touch this node's disks at all.
 */

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
	left_done(w);
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
				start_threads(s, s->started + 1) < 0)
				LOG_LIMITED(LOG_WARN, "no thread in place of one that hangs",
					"next=\"the others continue\"");
		(void)poll(&stop, 1, LOOK_MS); /* looked at above */
	}
	return NULL;
}

static int watch_start(struct session *s)
{
	int r;

	if (s->stall_ns == 0)
		s->stall_ns = STALL_NS;
	r = pthread_create(&s->watch, NULL, watch_main, s);
	s->watched = r == 0;
	return -r;
}

static void watch_stop(struct session *s)
{
	if (s->watched)
		pthread_join(s->watch, NULL);
	s->watched = false;
}

/* ---- the session ----------------------------------------------------------------------------- */

int session_new(const struct session_config *config, struct session **ret_session, struct err *e)
{
	unsigned int threads =
		config->threads ? min(config->threads, SESSION_THREADS_MAX) : THREADS_DEFAULT;
	struct session *s = calloc(1, sizeof(*s));
	int flags = fcntl(config->dev_fd, F_GETFL);
	int r;

	if (!s)
		return err_set(e, -ENOMEM, "out of memory");
	s->magic = SESSION_MAGIC;
	s->config = *config;
	s->stall_ns = config->stall_ns;
	s->counters = slots_counters(config->slots);
	atomic_init(&s->inherited, counter_get(&s->counters->known));
	s->parked = calloc(2 * (size_t)slots_count(config->slots), sizeof(s->parked[0]));
	s->part = calloc(slots_count(config->slots), sizeof(s->part[0]));
	s->swept = calloc(slots_count(config->slots), sizeof(s->swept[0]));
	s->buffers = direct_buffer_new((size_t)threads * BUF_BYTES);
	s->n_buffers = threads;
	s->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	pthread_mutex_init(&s->left_lock, NULL);
	pthread_cond_init(&s->left_done, NULL);
	if (!s->parked || !s->part || !s->swept || !s->buffers || s->stop_fd < 0) {
		session_free(s);
		return err_set(e, -ENOMEM, "out of memory or descriptors");
	}
	if (flags < 0 || fcntl(config->dev_fd, F_SETFL, flags | O_NONBLOCK) != 0) {
		session_free(s);
		return err_set(e, err_errno(), "the FUSE descriptor cannot be used: %m");
	}
	s->lowlevel.send = session_send;
	r = lowlevel_init(&s->lowlevel, &session_ops);
	if (r < 0) {
		session_free(s);
		return err_set(e, r, "libfuse3 cannot be used: %s: free some memory", err_str(r));
	}
	if (slots_phase(config->slots) != SLOTS_NEW) /* 0: of a version that did not note it */
		lowlevel_resume(&s->lowlevel,
			max(slots_mount(config->slots)->fuse_minor, SESSION_MINOR_LEAST));
	if (slots_phase(config->slots) == SLOTS_MOUNTED && !slots_were_handed(config->slots))
		counter_add(&s->counters->crashes, 1);
	r = start_threads(s, threads);
	if (r == 0)
		r = watch_start(s);
	if (r < 0) {
		session_free(s);
		return err_set(e, r,
			"threads cannot be started: %s: raise the limit of processes (ulimit -u)",
			err_str(r));
	}
	*ret_session = s;
	return 0;
}

static void end_parked(struct session *s)
{
	uint64_t deadline = clock_mono_ns() + STOP_GRACE;

	session_give_up_all(s);
	while (atomic_load(&s->n_parked) > 0 && clock_mono_ns() < deadline)
		clock_sleep_ns(CLOCK_MS);
}

static void stop_threads(struct session *s)
{
	atomic_store(&s->stopping, true);
	if (s->stop_fd >= 0)
		(void)eventfd_write(s->stop_fd, 1); /* cannot overflow */
	watch_stop(s);                              /* it starts threads */
	if (s->started)
		slots_wake(s->config.slots);
	for (unsigned int i = 0; i < s->started; i++)
		pthread_join(s->workers[i].thread, NULL);
}

void session_hand_over(struct session *s)
{
	CHECK_MAGIC(s, SESSION_MAGIC);
	atomic_store(&s->handing, true);
	stop_threads(s);
	slots_hand_over(s->config.slots);
}

void session_free(struct session *s)
{
	if (!s)
		return;
	CHECK_MAGIC(s, SESSION_MAGIC);
	stop_threads(s);
	if (s->parked)
		end_parked(s);
	for (unsigned int i = 0; i < s->started; i++)
		worker_release(&s->workers[i]);
	free(s->buffers);
	if (s->stop_fd >= 0)
		(void)close(s->stop_fd); /* an eventfd */
	/*
	 * A reader that did not give its reads back in time still points here: leak rather than
	 * corrupt.
	 */
	if (atomic_load(&s->n_parked) > 0)
		return;
	lowlevel_release(&s->lowlevel);
	free(s->parked);
	free(s->part);
	free(s->swept);
	pthread_cond_destroy(&s->left_done);
	pthread_mutex_destroy(&s->left_lock);
	s->magic = 0;
	free(s);
}

void session_refuse(struct session *s, bool refuse)
{
	CHECK_MAGIC(s, SESSION_MAGIC);
	atomic_store(&s->refusing, refuse);
	if (refuse)
		session_give_up_all(s);
}

bool session_gone(const struct session *s)
{
	return atomic_load(&s->gone);
}

void session_set_cached(struct session *session, uint32_t part)
{
	CHECK_MAGIC(session, SESSION_MAGIC);
	ensure(part <= SESSION_CACHED_WHOLE);
	atomic_store(&session->missing, SESSION_CACHED_WHOLE - part);
}

const struct session_histograms *session_histograms(const struct session *s)
{
	return &s->histograms;
}

const struct session_counters *session_counters(const struct session *s)
{
	return s->counters;
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
