/*
 * What a session answers: the operations of libfuse3, in terms of a tree and a reader. See session.h.
 *
 * The library has a request while session_handle() runs, and its slot is the worker's; a READ that
 * waits takes both along (struct parked). An INTERRUPT it does not get: the library keeps those that
 * match no request in memory that a successor does not have.
 */
#include "base/clock.h"
#include "base/log.h"
#include "mount/request.h"
#include "fuse/session/requester.h"
#include "fuse/session/session_internal.h"

#include <linux/fuse.h>

#define SPARE_SLOTS(n) \
	((n) / 4 < 64 ? (n) / 4 : 64) /* never filled by READs: for all other requests */
#define ASK_AGAIN    (CLOCK_MS / 10)
#define MEMORY_TRIES 100u /* of a request that the library has no memory for: 1 s */
#define MEMORY_PAUSE (10 * CLOCK_MS)

/*
 * Used where the kernel has them, and no others of the library's choice:
 *	ASYNC_READ, ASYNC_DIO, PARALLEL_DIROPS	many READs of one file in flight
 *	EXPLICIT_INVAL_DATA			the kernel drops nothing by itself
 */
#define CAPABILITIES                                                           \
	(FUSE_CAP_ASYNC_READ | FUSE_CAP_ASYNC_DIO | FUSE_CAP_PARALLEL_DIROPS | \
		FUSE_CAP_EXPLICIT_INVAL_DATA)

static void answer_errno(fuse_req_t req, int status)
{
	(void)fuse_reply_err(req, -status); /* session_send() logs, as of all replies below */
}

/* ---- requests -------------------------------------------------------------------------------- */

static void on_init(void *arg, struct fuse_conn_info *conn)
{
	struct session *s = container_of(arg, struct session, lowlevel);
	uint32_t count = slots_count(s->config.slots);

	s->kernel_minor = conn->proto_minor;
	conn->want = conn->capable & (CAPABILITIES | s->config.tree->capabilities);
	if (conn->proto_minor < SESSION_MINOR_LEAST) {
		log_error("this kernel's FUSE is too old", "protocol=%u.%u", conn->proto_major,
			conn->proto_minor);
		conn->want = ~conn->capable; /* the library answers EPROTO */
	}
	s->wanted = conn->want;
	/*
	 * READs of EROFS are asynchronous: max_background is how many the kernel lets be in flight.
	 * Never queue there, behind one that waits for a stalled origin.
	 */
	conn->max_background = count - SPARE_SLOTS(count);
	conn->congestion_threshold = conn->max_background;
}

static void on_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct worker *w = session_worker;
	struct tree *tree = w->session->config.tree;
	struct fuse_entry_param entry = { 0 };
	int r = tree->ops->lookup(tree, w->scratch, parent, name, &entry);

	if (r < 0) {
		answer_errno(req, r);
		return;
	}
	if (entry.ino != 0)
		counter_add(&w->session->counters->known, tree->ops->give(tree, entry.ino));
	(void)fuse_reply_entry(req, &entry);
}

static void on_getattr(fuse_req_t req, fuse_ino_t node, struct fuse_file_info *file)
{
	struct worker *w = session_worker;
	struct tree *tree = w->session->config.tree;
	struct stat attr;
	int r = tree->ops->getattr(tree, w->scratch, node, &attr);

	(void)file;
	if (r < 0)
		answer_errno(req, r);
	else
		(void)fuse_reply_attr(req, &attr, TREE_VALID_SECONDS);
}

static void answer_open(fuse_req_t req, int r, const struct fuse_file_info *file)
{
	if (r < 0)
		answer_errno(req, r);
	else
		(void)fuse_reply_open(req, file);
}

static void on_open(fuse_req_t req, fuse_ino_t node, struct fuse_file_info *file)
{
	struct tree *tree = session_worker->session->config.tree;

	answer_open(req, tree->ops->open(tree, node, file), file);
}

static void on_opendir(fuse_req_t req, fuse_ino_t node, struct fuse_file_info *file)
{
	struct tree *tree = session_worker->session->config.tree;

	answer_open(req, tree->ops->opendir(tree, node, file), file);
}

static struct request request_of(uint32_t opcode, fuse_ino_t node, size_t size, off_t offset)
{
	return (struct request){ .opcode = opcode,
		.nodeid = node,
		.read = { .offset = (uint64_t)offset, .size = (uint32_t)size } };
}

static void list(fuse_req_t req, const struct request *request)
{
	struct worker *w = session_worker;
	struct session_counters *counters = w->session->counters;
	struct tree *tree = w->session->config.tree;
	uint64_t known = counter_get(&counters->known);
	struct tree_entries entries = {
		.buf = w->buf,
		.size = min(request->read.size, LIMIT_PAYLOAD_BYTES),
		.prime = tree->prime_max - min(tree->prime_max, known),
	};
	int r = tree->ops->readdir(tree, w->scratch, request, &entries);

	if (r < 0) {
		answer_errno(req, r);
		return;
	}
	counter_add(&counters->known, entries.given);
	(void)fuse_reply_buf(req, entries.buf, entries.len);
}

static void on_readdir(
	fuse_req_t req, fuse_ino_t node, size_t size, off_t offset, struct fuse_file_info *file)
{
	const struct request request = request_of(FUSE_READDIR, node, size, offset);

	(void)file;
	list(req, &request);
}

static void on_readdirplus(
	fuse_req_t req, fuse_ino_t node, size_t size, off_t offset, struct fuse_file_info *file)
{
	const struct request request = request_of(FUSE_READDIRPLUS, node, size, offset);

	(void)file;
	list(req, &request);
}

/* Around a read from this node's disks: the watch of session.c parks one that takes too long. */
static void read_begin(struct worker *w, fuse_req_t req, const struct tree_range *range)
{
	pthread_mutex_lock(&w->lock);
	w->reading_since = clock_mono_ns();
	w->reading_slot = w->slot;
	w->reading_req = req;
	w->reading = *range;
	pthread_mutex_unlock(&w->lock);
}

/* False when the request was parked meanwhile. */
static bool read_end(struct worker *w)
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

/* True: it was answered with bytes that are in memory. */
static bool answer_zero_copy(struct session *s, fuse_req_t req, const struct tree_range *range)
{
	struct reader *reader = s->config.reader;
	struct reader_loan loan;

	if (!reader->ops->borrow ||
		!reader->ops->borrow(reader, range->offset, range->length, &loan))
		return false;
	(void)fuse_reply_buf(req, (const char *)loan.loan.data + range->skip, range->size);
	reader->ops->give(reader, &loan);
	return true;
}

/* The request and its slot are not the worker's any more. */
static void park(struct worker *w, fuse_req_t req, const struct tree_range *range)
{
	uint32_t slot = w->slot;

	w->slot = SESSION_NO_SLOT;
	session_park(w->session, slot, req, range);
}

static void read_range(struct worker *w, fuse_req_t req, const struct tree_range *range)
{
	struct session *s = w->session;
	struct reader *reader = s->config.reader;
	int r;

	reader->ops->note(reader, range->offset, range->length);
	if (answer_zero_copy(s, req, range))
		return;
	read_begin(w, req, range);
	r = read_local(w, range);
	if (!read_end(w)) {
		w->slot = SESSION_NO_SLOT; /* it was parked meanwhile */
	} else if (r == 0) {
		histogram_note(&s->histograms.node, w->read_ns);
		(void)fuse_reply_buf(req, w->buf + range->skip, range->size);
	} else {
		park(w, req, range);
	}
}

static void on_read(
	fuse_req_t req, fuse_ino_t node, size_t size, off_t offset, struct fuse_file_info *file)
{
	struct worker *w = session_worker;
	struct session *s = w->session;
	struct tree *tree = s->config.tree;
	const struct request request = request_of(FUSE_READ, node, size, offset);
	struct tree_range range = { 0 };
	int r = tree->ops->own ? tree->ops->own(tree, &request, w->buf) : -ENXIO;

	(void)file;
	counter_add(&s->counters->read_bytes, request.read.size);
	if (r == 0) {
		(void)fuse_reply_buf(req, w->buf, request.read.size);
		return;
	}
	if (r == -ENXIO)
		r = tree->ops->range(tree, w->scratch, &request, &range);
	if (r == 0 && atomic_load(&s->refusing))
		r = -EIO;
	if (r < 0)
		answer_errno(req, r);
	else if (range.size == 0)
		(void)fuse_reply_buf(req, NULL, 0);
	else
		read_range(w, req, &range);
}

static void on_statfs(fuse_req_t req, fuse_ino_t node)
{
	struct session *s = session_worker->session;
	struct statvfs st = { 0 };

	(void)node;
	s->config.tree->ops->statfs(s->config.tree, &st);
	st.f_bfree =
		(fsblkcnt_t)((double)st.f_blocks * atomic_load(&s->missing) / SESSION_CACHED_WHOLE);
	st.f_bavail = st.f_bfree;
	(void)fuse_reply_statfs(req, &st);
}

/* ---- forgotten nodes ------------------------------------------------------------------------- */

/* Takes one from the nodes that predecessors gave, if any is left. */
static uint64_t forget_inherited(struct session *s)
{
	uint64_t left = atomic_load(&s->inherited);

	while (left && !atomic_compare_exchange_weak(&s->inherited, &left, left - 1))
		;
	return left != 0;
}

static void on_forget_multi(fuse_req_t req, size_t n, struct fuse_forget_data *nodes)
{
	struct session *s = session_worker->session;
	struct tree *tree = s->config.tree;
	uint64_t known = counter_get(&s->counters->known);
	uint64_t fewer = 0;

	for (size_t i = 0; i < n; i++) {
		uint64_t own = tree->ops->forget(tree, nodes[i].ino, nodes[i].nlookup);

		fewer += own ? own : forget_inherited(s);
	}
	/* Not below 0: a predecessor may have counted a request that is still in its slot. */
	while (!atomic_compare_exchange_weak(
		&s->counters->known, &known, known - min(known, fewer)))
		;
	fuse_reply_none(req);
}

static void on_forget(fuse_req_t req, fuse_ino_t node, uint64_t lookups)
{
	struct fuse_forget_data one = { .ino = node, .nlookup = lookups };

	on_forget_multi(req, 1, &one);
}

/* The library answers ENOSYS to all others; session_send() replaces some of these. */
const struct fuse_lowlevel_ops session_ops = {
	.init = on_init,
	.lookup = on_lookup,
	.forget = on_forget,
	.forget_multi = on_forget_multi,
	.getattr = on_getattr,
	.open = on_open,
	.opendir = on_opendir,
	.read = on_read,
	.readdir = on_readdir,
	.readdirplus = on_readdirplus,
	.statfs = on_statfs,
};

/* ---- without the library --------------------------------------------------------------------- */

/*
 * A thread got a signal while it waits for `unique`. If the signal did not kill it, it keeps waiting:
 * programs do not expect EINTR from reading a file. The kernel does not report a later kill; a sweep
 * finds it. A request that is not parked is being read, being answered, or answered: on EAGAIN the
 * kernel sends the INTERRUPT again until it is answered.
 */
static void on_interrupt(struct session *s, uint32_t slot)
{
	struct slots *slots = s->config.slots;
	uint64_t self = request_unique(slot_data(slots, slot), SLOT_BYTES);
	uint64_t unwanted = request_interrupted(slot_data(slots, slot));
	bool found = false;

	for (uint32_t i = 0; i < slots_count(slots) && !found; i++) {
		uint32_t ticket = slot_ticket(slots, i);
		const void *data = slot_data(slots, i);

		if (slot_state(slots, i) == SLOT_HELD &&
			request_unique(data, SLOT_BYTES) == unwanted)
			found = requester_state(request_pid(data, SLOT_BYTES)) == REQUESTER_LIVES ||
				session_give_up(s, i, ticket, -EINTR);
	}
	ensure(slot_move(slots, slot, SLOT_READING, SLOT_FREE));
	if (!found) {
		/* The kernel sends it again at once: do not spin while a disk hangs. */
		clock_sleep_ns(ASK_AGAIN);
		session_answer_errno(s, self, -EAGAIN);
	}
}

/* ---------------------------------------------------------------------------------------------- */

static counter_t *counter_of(struct session_counters *counters, uint32_t opcode)
{
	switch (opcode) {
	case FUSE_LOOKUP:
		return &counters->lookup;
	case FUSE_OPEN:
		return &counters->open;
	case FUSE_READ:
		return &counters->read;
	case FUSE_READDIR:
	case FUSE_READDIRPLUS:
		return &counters->readdir;
	case FUSE_INTERRUPT:
		return &counters->interrupt;
	case FUSE_FORGET:
	case FUSE_BATCH_FORGET:
		return &counters->forget;
	default:
		return &counters->other;
	}
}

static void count(struct session *s, uint32_t opcode)
{
	if (opcode != FUSE_FORGET && opcode != FUSE_BATCH_FORGET)
		counter_add(&s->counters->total, 1);
	if (opcode != FUSE_INIT)
		counter_add(counter_of(s->counters, opcode), 1);
}

void session_handle(struct worker *w, uint32_t slot, uint32_t len)
{
	struct session *s = w->session;
	struct slots *slots = s->config.slots;
	const struct fuse_buf buf = { .mem = slot_data(slots, slot), .size = len };
	uint32_t opcode = request_opcode(buf.mem, len);

	count(s, opcode);
	if (opcode == FUSE_INTERRUPT) {
		on_interrupt(s, slot);
		return;
	}
	w->slot = slot;
	w->tries = MEMORY_TRIES;
	do {
		w->again = false;
		fuse_session_process_buf(s->lowlevel.session, &buf);
		if (w->again)
			clock_sleep_ns(MEMORY_PAUSE);
	} while (w->again);
	if (w->slot == SESSION_NO_SLOT)
		return; /* it waits */
	w->slot = SESSION_NO_SLOT;
	ensure(slot_move(slots, slot, slot_state(slots, slot), SLOT_FREE));
	if (opcode == FUSE_INIT && s->agreed && slots_phase(slots) == SLOTS_NEW)
		slots_set_phase(slots, SLOTS_CONNECTED);
}
