/* Threads that read requests into slots and answer them. See session.h. */
#include "fuse/session.h"
#include "base/clock.h"
#include "base/log.h"
#include "fuse/request.h"

#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/uio.h>

#define SESSION_MAGIC   0x5E5510A1u
#define THREADS_DEFAULT 4u
#define THREADS_MAX     16u
#define SPARE_SLOTS(n) \
	((n) / 4 < 64 ? (n) / 4 : 64)        /* never filled by READs: for all other requests */
#define BLAME_MAX  (2 * SLOTS_BLAME_HANDLED) /* a request that saw so much death gets EIO */
#define STOP_GRACE (10 * CLOCK_SECOND)
#define BUF_BYTES  (LIMIT_PAYLOAD_BYTES + BLOCK_BYTES) /* the longest range of a READ */

/*
 * A READ that waits for the network, in the slot of the same number. Three parties touch it, each
 * until it gave its reference back; the last one frees the slot:
 *
 *	the reader	until on_done
 *	the answer	until the request was answered: by on_done, or by who gave up on it
 *	the submitter	until read() returned
 */
struct parked {
	struct client_read read;
	struct session *session;
	uint32_t slot;
	uint32_t skip; /* the answer is `size` bytes from here on */
	uint32_t size;
	_Atomic uint32_t refs;
	_Atomic uint32_t flags; /* PARKED_* */
};

#define PARKED_SUBMITTED 1u /* read() returned: cancel() may be called */
#define PARKED_UNWANTED  2u /* answered without the bytes */

struct worker {
	struct session *session;
	pthread_t thread;
	unsigned char *buf; /* BUF_BYTES, aligned for direct I/O */
	void *scratch;      /* the tree's */
};

struct session {
	uint32_t magic;
	struct session_config config;
	struct session_counters *counters;
	struct parked *parked; /* one per slot */
	struct worker workers[THREADS_MAX];
	unsigned int started;
	int stop_fd; /* eventfd: readable once the threads are to end */
	_Atomic bool stopping;
	_Atomic bool refusing;
	_Atomic bool gone;
	_Atomic uint32_t n_parked; /* parked reads whose on_done has not run */
};

#define ROW(...) COUNTER_ROW(session_counters, __VA_ARGS__)
static const struct counter_info counter_rows[] = { SESSION_COUNTERS(ROW) };

const struct counter_info *session_counter_table(uint32_t *ret_n)
{
	*ret_n = ARRAY_SIZE(counter_rows);
	return counter_rows;
}

/* ---- answers --------------------------------------------------------------------------------- */

static int write_whole(int fd, const struct iovec *iov, int n)
{
	while (writev(fd, iov, n) < 0) {
		struct pollfd wait = { .fd = fd, .events = POLLOUT };

		if (errno == EAGAIN)
			(void)poll(&wait, 1, 1000); /* only a test's socket is ever full */
		else if (errno != EINTR)
			return err_errno();
	}
	return 0;
}

/*
 * Sends the answer to `unique`: `data`, or a negative errno. False: the kernel did not take it; the
 * request may be gone by now (-ENOENT), which is fine.
 */
static bool send_answer(
	struct session *s, uint64_t unique, int status, const void *data, size_t len)
{
	struct fuse_out_header head = { .error = status, .unique = unique };
	struct iovec iov[2] = { { .iov_base = &head, .iov_len = sizeof(head) },
		{ .iov_base = (void *)(uintptr_t)data, .iov_len = len } };
	int n = status == 0 && len > 0 ? 2 : 1;
	int r;

	head.len = (uint32_t)(sizeof(head) + (n == 2 ? len : 0));
	r = write_whole(s->config.dev_fd, iov, n);
	if (r == 0)
		return true;
	if (r == -ENOENT || r == -ENODEV || r == -EPIPE)
		return false;
	LOG_LIMITED(LOG_WARN, "answer refused by the kernel",
		"unique=%" PRIu64 " bytes=%zu error=%s", unique, len, err_name(r));
	if (status == 0) { /* bytes could not be taken; an errno can */
		head.error = -EIO;
		head.len = sizeof(head);
		(void)write_whole(s->config.dev_fd, iov, 1); /* nothing more can be done for it */
	}
	return false;
}

/* Nodes that the kernel does not know (any more). A daemon that died may have counted one twice. */
static void forget(struct session *s, uint64_t n)
{
	uint64_t known = counter_get(&s->counters->known);

	while (!atomic_compare_exchange_weak(&s->counters->known, &known, known - min(known, n)))
		;
}

/*
 * Answers the request of a slot that this thread alone has (READING), and frees the slot. `given`:
 * the nodes that the kernel knows by it.
 */
static void answer_giving(
	struct session *s, uint32_t slot, int status, const void *data, size_t len, uint64_t given)
{
	uint64_t unique = request_unique(slot_data(s->config.slots, slot), SLOT_BYTES);

	ensure(slot_move(s->config.slots, slot, SLOT_READING, SLOT_ANSWERING));
	counter_add(&s->counters->known, given);
	if (!send_answer(s, unique, status, data, len) && given)
		forget(s, given);
	ensure(slot_move(s->config.slots, slot, SLOT_ANSWERING, SLOT_FREE));
}

static void answer(struct session *s, uint32_t slot, int status, const void *data, size_t len)
{
	answer_giving(s, slot, status, data, len, 0);
}

/* Frees the slot of a request that wants no answer. */
static void drop(struct session *s, uint32_t slot)
{
	ensure(slot_move(s->config.slots, slot, SLOT_READING, SLOT_FREE));
}

/* What the reader of a READ that failed gets to see. */
static int read_errno(const struct session *s, int status)
{
	if (status == -EINTR)
		return -EINTR;
	if (s->config.tree->read_status)
		return s->config.tree->read_status;
	return status == -ESTALE ? -ESTALE : -EIO;
}

static void count_failure(struct session *s, uint64_t offset, uint32_t length, int status)
{
	counter_add(&s->counters->failed, 1);
	if (s->config.on_failure)
		s->config.on_failure(s->config.arg, offset, length, status);
}

/* ---- parked reads ---------------------------------------------------------------------------- */

static void parked_unref(struct parked *p, uint32_t refs)
{
	struct session *s = p->session;

	if (atomic_fetch_sub(&p->refs, refs) != refs)
		return;
	ensure(slot_move(s->config.slots, p->slot, SLOT_ANSWERING, SLOT_FREE));
}

/* The reader's answer; on a thread of the reader. */
static void on_read_done(struct client_read *read, int status, const void *data)
{
	struct parked *p = read->arg;
	struct session *s = p->session;
	uint32_t refs = 1;

	if (slot_move(s->config.slots, p->slot, SLOT_HELD, SLOT_ANSWERING)) {
		uint64_t unique = request_unique(slot_data(s->config.slots, p->slot), SLOT_BYTES);

		if (status < 0)
			count_failure(s, read->offset, read->length, status);
		(void)send_answer(s, unique, status < 0 ? read_errno(s, status) : 0,
			status < 0 ? NULL : (const char *)data + p->skip, p->size);
		refs = 2;
	}
	parked_unref(p, refs);
	atomic_fetch_sub(&s->n_parked, 1); /* last: the session may end now */
}

static void park(struct session *s, uint32_t slot, const struct tree_range *range)
{
	struct parked *p = &s->parked[slot];

	p->session = s;
	p->slot = slot;
	p->skip = range->skip;
	p->size = range->size;
	p->read = (struct client_read){
		.offset = range->offset,
		.length = range->length,
		.on_done = on_read_done,
		.arg = p,
	};
	list_init(&p->read.link);
	atomic_store(&p->refs, 3);
	atomic_store(&p->flags, 0);
	atomic_fetch_add(&s->n_parked, 1);
	ensure(slot_move(s->config.slots, slot, SLOT_READING, SLOT_HELD));
	s->config.reader->ops->read(s->config.reader, &p->read);
	if (atomic_fetch_or(&p->flags, PARKED_SUBMITTED) & PARKED_UNWANTED) {
		/*
		 * Given up while it was being submitted: that party left its reference for us to
		 * cancel under.
		 */
		s->config.reader->ops->cancel(s->config.reader, &p->read);
		parked_unref(p, 1);
	}
	parked_unref(p, 1);
}

/*
 * Answers a parked request with `status` at once and cancels its read. False: it is not parked (any
 * more). `ticket` says which request is meant, should the slot be given to another meanwhile.
 */
static bool give_up(struct session *s, uint32_t slot, uint32_t ticket, int status)
{
	struct parked *p = &s->parked[slot];

	if (!slot_move_ticket(s->config.slots, slot, ticket, SLOT_HELD, SLOT_ANSWERING))
		return false;
	(void)send_answer(
		s, request_unique(slot_data(s->config.slots, slot), SLOT_BYTES), status, NULL, 0);
	if (atomic_fetch_or(&p->flags, PARKED_UNWANTED) & PARKED_SUBMITTED) {
		s->config.reader->ops->cancel(s->config.reader, &p->read);
		parked_unref(p, 1);
	}
	return true;
}

static void give_up_all(struct session *s)
{
	for (uint32_t i = 0; i < slots_count(s->config.slots); i++)
		if (slot_state(s->config.slots, i) == SLOT_HELD)
			(void)give_up(s, i, slot_ticket(s->config.slots, i),
				-EIO); /* or it is answered */
}

/* ---- requests -------------------------------------------------------------------------------- */

static void on_init(struct session *s, uint32_t slot, const struct request *req)
{
	uint32_t count = slots_count(s->config.slots);
	struct fuse_init_out out;
	int r = request_answer_init(&req->init, s->config.tree->init_flags,
		(uint16_t)(count - SPARE_SLOTS(count)), &out);

	if (r < 0) {
		log_error("this kernel's FUSE is too old", "protocol=%u.%u", req->init.major,
			req->init.minor);
		answer(s, slot, r, NULL, 0);
		return;
	}
	slots_mount(s->config.slots)->fuse_minor = out.minor;
	answer(s, slot, 0, &out, sizeof(out));
	if (slots_phase(s->config.slots) == SLOTS_NEW)
		slots_set_phase(s->config.slots, SLOTS_CONNECTED);
}

static void on_lookup(struct worker *w, uint32_t slot, const struct request *req)
{
	struct session *s = w->session;
	struct tree *tree = s->config.tree;
	struct fuse_entry_out out = { 0 };
	int r = tree->ops->lookup(tree, w->scratch, req->nodeid, req->name, &out);

	counter_add(&s->counters->lookup, 1);
	answer_giving(s, slot, r, &out, sizeof(out), r == 0 && out.nodeid != 0);
}

static void on_getattr(struct worker *w, uint32_t slot, const struct request *req)
{
	struct session *s = w->session;
	struct tree *tree = s->config.tree;
	struct fuse_attr_out out = { 0 };
	int r = tree->ops->getattr(tree, w->scratch, req->nodeid, &out);

	counter_add(&s->counters->other, 1);
	answer(s, slot, r, &out, sizeof(out));
}

static void on_open(struct session *s, uint32_t slot, const struct request *req)
{
	struct tree *tree = s->config.tree;
	struct fuse_open_out out = { 0 };
	int r;

	if (req->opcode == FUSE_OPEN) {
		counter_add(&s->counters->open, 1);
		r = tree->ops->open(tree, req->nodeid, &out);
	} else {
		counter_add(&s->counters->other, 1);
		r = tree->ops->opendir(tree, req->nodeid, &out);
	}
	answer(s, slot, r, &out, sizeof(out));
}

static void on_readdir(struct worker *w, uint32_t slot, const struct request *req)
{
	struct session *s = w->session;
	struct tree *tree = s->config.tree;
	uint64_t known = counter_get(&s->counters->known);
	struct tree_entries entries = {
		.buf = w->buf,
		.size = min(req->read.size, LIMIT_PAYLOAD_BYTES),
		.prime = tree->prime_max - min(tree->prime_max, known),
	};
	int r = tree->ops->readdir(tree, w->scratch, req, &entries);

	counter_add(&s->counters->readdir, 1);
	answer_giving(s, slot, r, w->buf, entries.len, r == 0 ? entries.given : 0);
}

/* 0: the whole range is in the thread's buffer. */
static int read_local(struct worker *w, const struct tree_range *range)
{
	struct reader *reader = w->session->config.reader;
	uint32_t first = min(range->length, LIMIT_PAYLOAD_BYTES);
	int r = reader->ops->read_local(reader, range->offset, first, w->buf);

	if (r == 0 && first < range->length)
		r = reader->ops->read_local(
			reader, range->offset + first, range->length - first, w->buf + first);
	return r;
}

static void on_read(struct worker *w, uint32_t slot, const struct request *req)
{
	struct session *s = w->session;
	struct tree *tree = s->config.tree;
	struct reader *reader = s->config.reader;
	struct tree_range range = { 0 };
	uint32_t ticket;
	int r = tree->ops->range(tree, w->scratch, req, &range);

	counter_add(&s->counters->read, 1);
	counter_add(&s->counters->read_bytes, req->read.size);
	if (r == 0 && atomic_load(&s->refusing))
		r = -EIO;
	if (r < 0 || range.size == 0) {
		answer(s, slot, r, NULL, 0);
		return;
	}
	reader->ops->note(reader, range.offset, range.length);
	ticket = slot_ticket(s->config.slots, slot);
	if (read_local(w, &range) == 0) {
		answer(s, slot, 0, w->buf + range.skip, range.size);
		return;
	}
	park(s, slot, &range);
	/* A refusal that looked for parked reads just before this one was. */
	if (atomic_load(&s->refusing))
		(void)give_up(s, slot, ticket, -EIO); /* or it is answered already */
}

/*
 * Somebody was killed while he waits for `unique`. If that is not parked it is being read, answered
 * or was answered: the kernel asks again on EAGAIN as long as it is not.
 */
static void on_interrupt(struct session *s, uint32_t slot, const struct request *req)
{
	uint64_t self = req->unique;
	bool found = false;

	counter_add(&s->counters->interrupt, 1);
	for (uint32_t i = 0; i < slots_count(s->config.slots) && !found; i++) {
		uint32_t ticket = slot_ticket(s->config.slots, i);

		if (slot_state(s->config.slots, i) == SLOT_HELD &&
			request_unique(slot_data(s->config.slots, i), SLOT_BYTES) ==
				req->interrupted)
			found = give_up(s, i, ticket, -EINTR);
	}
	drop(s, slot);
	if (!found) {
		sched_yield(); /* to the thread that has it */
		(void)send_answer(s, self, -EAGAIN, NULL, 0);
	}
}

static void on_statfs(struct session *s, uint32_t slot)
{
	struct fuse_statfs_out out = { 0 };

	s->config.tree->ops->statfs(s->config.tree, &out);
	counter_add(&s->counters->other, 1);
	answer(s, slot, 0, &out, sizeof(out));
}

/* ENOSYS: the kernel does not ask again, or knows what to do. */
static int status_of_other(const struct session *s, uint32_t opcode)
{
	switch (opcode) {
	case FUSE_RELEASE:
	case FUSE_RELEASEDIR:
	case FUSE_DESTROY:
		return 0;
	case FUSE_IOCTL:
		return -ENOTTY;
	default:
		return request_is_write(opcode) ? s->config.tree->write_status : -ENOSYS;
	}
}

static void on_forget(struct session *s, uint32_t slot, const struct request *req)
{
	counter_add(&s->counters->other, 1);
	forget(s, req->forgotten);
	drop(s, slot);
}

static void handle(struct worker *w, uint32_t slot, uint32_t len)
{
	struct session *s = w->session;
	const void *data = slot_data(s->config.slots, slot);
	struct request req;

	counter_add(&s->counters->total, 1);
	if (request_parse(data, len, &req) < 0) {
		LOG_LIMITED(LOG_WARN, "request not understood", "bytes=%u", len);
		if (request_unique_of_refused(data, len) != 0)
			answer(s, slot, -EINVAL, NULL, 0);
		else
			drop(s, slot);
		return;
	}
	switch (req.opcode) {
	case FUSE_INIT:
		on_init(s, slot, &req);
		return;
	case FUSE_LOOKUP:
		on_lookup(w, slot, &req);
		return;
	case FUSE_GETATTR:
		on_getattr(w, slot, &req);
		return;
	case FUSE_OPEN:
	case FUSE_OPENDIR:
		on_open(s, slot, &req);
		return;
	case FUSE_READ:
		on_read(w, slot, &req);
		return;
	case FUSE_READDIR:
	case FUSE_READDIRPLUS:
		on_readdir(w, slot, &req);
		return;
	case FUSE_INTERRUPT:
		on_interrupt(s, slot, &req);
		return;
	case FUSE_FORGET:
	case FUSE_BATCH_FORGET:
		on_forget(s, slot, &req);
		return;
	case FUSE_STATFS:
		on_statfs(s, slot);
		return;
	default:
		counter_add(&s->counters->other, 1);
		answer(s, slot, status_of_other(s, req.opcode), NULL, 0);
		return;
	}
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
		handle(w, slot, (uint32_t)n);
		return 0;
	}
	drop(s, slot);
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

/* What a predecessor left. */
static void serve_left(struct worker *w)
{
	struct session *s = w->session;
	uint32_t slot;
	uint32_t blame;

	while (slots_take_left(s->config.slots, &slot, &blame) == 0) {
		counter_add(&s->counters->taken_over, 1);
		if (blame < BLAME_MAX) {
			handle(w, slot, slot_len(s->config.slots, slot));
			continue;
		}
		log_error("request given up", "unique=%" PRIu64 " blame=%u answer=EIO",
			request_unique(slot_data(s->config.slots, slot), SLOT_BYTES), blame);
		answer(s, slot, -EIO, NULL, 0);
	}
}

static void *worker_main(void *arg)
{
	struct worker *w = arg;
	struct session *s = w->session;
	struct pollfd wait[2] = { { .fd = s->config.dev_fd, .events = POLLIN },
		{ .fd = s->stop_fd, .events = POLLIN } };

	pthread_setname_np(pthread_self(), "fuse-serve");
	serve_left(w);
	while (!atomic_load(&s->stopping)) {
		int r = serve_one(w);

		if (r == -ENODEV) {
			connection_gone(s);
			break;
		}
		if (r == -ECANCELED)
			break;
		if (r == -EAGAIN)
			(void)poll(
				wait, 2, -1); /* EINTR and errors show in the read that follows */
	}
	return NULL;
}

static void worker_release(struct worker *w)
{
	free(w->buf);
	free(w->scratch);
}

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
		w->buf = aligned_alloc(BLOCK_BYTES, BUF_BYTES);
		w->scratch = calloc(1, max(s->config.tree->scratch_bytes, (size_t)1));
		r = w->buf && w->scratch ? pthread_create(&w->thread, NULL, worker_main, w)
					 : ENOMEM;
		if (r == 0)
			s->started++;
		else
			worker_release(w);
	}
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return -r;
}

int session_new(const struct session_config *config, struct session **ret_session, struct err *e)
{
	unsigned int threads =
		config->threads ? min(config->threads, THREADS_MAX) : THREADS_DEFAULT;
	struct session *s = calloc(1, sizeof(*s));
	int flags = fcntl(config->dev_fd, F_GETFL);
	int r;

	if (!s)
		return err_set(e, -ENOMEM, "out of memory");
	s->magic = SESSION_MAGIC;
	s->config = *config;
	s->counters = slots_counters(config->slots);
	s->parked = calloc(slots_count(config->slots), sizeof(s->parked[0]));
	s->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (!s->parked || s->stop_fd < 0) {
		session_free(s);
		return err_set(e, -ENOMEM, "out of memory or descriptors");
	}
	if (flags < 0 || fcntl(config->dev_fd, F_SETFL, flags | O_NONBLOCK) != 0) {
		session_free(s);
		return err_set(e, err_errno(), "the FUSE descriptor cannot be used: %m");
	}
	if (slots_phase(config->slots) == SLOTS_MOUNTED)
		counter_add(&s->counters->crashes, 1);
	r = start_threads(s, threads);
	if (r < 0) {
		session_free(s);
		return err_set(e, r, "threads cannot be started: %s", err_str(r));
	}
	*ret_session = s;
	return 0;
}

static void end_parked(struct session *s)
{
	uint64_t deadline = clock_mono_ns() + STOP_GRACE;

	give_up_all(s);
	while (atomic_load(&s->n_parked) > 0 && clock_mono_ns() < deadline)
		clock_sleep_ns(CLOCK_MS);
}

void session_free(struct session *s)
{
	if (!s)
		return;
	CHECK_MAGIC(s, SESSION_MAGIC);
	atomic_store(&s->stopping, true);
	if (s->started) {
		slots_wake(s->config.slots);
		(void)eventfd_write(s->stop_fd, 1); /* cannot overflow */
	}
	for (unsigned int i = 0; i < s->started; i++)
		pthread_join(s->workers[i].thread, NULL);
	if (s->parked)
		end_parked(s);
	for (unsigned int i = 0; i < s->started; i++)
		worker_release(&s->workers[i]);
	if (s->stop_fd >= 0)
		(void)close(s->stop_fd); /* an eventfd */
	/*
	 * A reader that did not give its reads back in time still points here: leak rather than
	 * corrupt.
	 */
	if (atomic_load(&s->n_parked) > 0)
		return;
	free(s->parked);
	s->magic = 0;
	free(s);
}

void session_refuse(struct session *s, bool refuse)
{
	CHECK_MAGIC(s, SESSION_MAGIC);
	atomic_store(&s->refusing, refuse);
	if (refuse)
		give_up_all(s);
}

bool session_gone(const struct session *s)
{
	return atomic_load(&s->gone);
}

const struct session_counters *session_counters(const struct session *s)
{
	return s->counters;
}
