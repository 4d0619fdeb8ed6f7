/* Answers, and READs that wait for their bytes. See session_internal.h. */
#include "fuse/session/session_internal.h"
#include "base/clock.h"
#include "base/layout.h"
#include "base/limits.h"
#include "base/log.h"
#include "mount/request.h"
#include "fuse/session/requester.h"

#include <assert.h>
#include <inttypes.h>
#include <poll.h>
#include <string.h>
#include <sys/uio.h>

#define WRITE_BYTES      4096u
#define PARKED_SUBMITTED 1u /* read() returned: cancel() may be called */
#define PARKED_UNWANTED  2u /* answered without the bytes */

_Thread_local struct worker *session_worker;

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

/* The request may be gone by now (-ENOENT), which is fine. */
static void write_reply(struct session *s, struct iovec *iov, int n)
{
	struct fuse_out_header *head = iov[0].iov_base;
	int r = write_whole(s->config.dev_fd, iov, n);

	if (r == 0 || r == -ENOENT || r == -ENODEV || r == -EPIPE)
		return;
	LOG_LIMITED(LOG_WARN, "answer refused by the kernel",
		"unique=%" PRIu64 " bytes=%zu error=%s", head->unique, head->len - sizeof(*head),
		err_name(r));
	if (head->error == 0) { /* bytes could not be taken; an errno can */
		head->error = -EIO;
		head->len = sizeof(*head);
		(void)write_whole(s->config.dev_fd, iov, 1); /* nothing more can be done for it */
	}
}

void session_answer_errno(struct session *s, uint64_t unique, int status)
{
	struct fuse_out_header head = { .len = sizeof(head), .error = status, .unique = unique };
	struct iovec iov = { &head, sizeof(head) };

	write_reply(s, &iov, 1);
}

void session_refuse_slot(struct session *s, uint32_t slot, uint64_t unique, int status)
{
	ensure(slot_move(s->config.slots, slot, SLOT_READING, SLOT_ANSWERING));
	session_answer_errno(s, unique, status);
	ensure(slot_move(s->config.slots, slot, SLOT_ANSWERING, SLOT_FREE));
}

/*
 * What libfuse 3.14 cannot express. It derives the pages of a READ from max_write; nothing is
 * written, and a small one keeps the kernel's demand on the buffer of a read(2) at 8 KiB, a slot.
 * It wants PARALLEL_DIROPS and does not send it.
 */
static void finish_init(struct session *s, const struct iovec *body)
{
	struct fuse_init_out *out = body->iov_base;

	ensure(body->iov_len >= sizeof(*out));
	out->max_write = WRITE_BYTES;
	if (s->wanted & FUSE_CAP_PARALLEL_DIROPS)
		out->flags |= FUSE_PARALLEL_DIROPS;
	slots_mount(s->config.slots)->fuse_minor = min(s->kernel_minor, out->minor);
	s->agreed = true;
}

/* The reply to the request that the library has on this thread. False: it gets that once more. */
static bool begin_reply(struct worker *w, const struct iovec *iov, int n)
{
	struct session *s = w->session;
	const struct fuse_in_header *request = slot_data(s->config.slots, w->slot);
	struct fuse_out_header *head = iov[0].iov_base;

	ensure(head->unique == request->unique);
	w->again = head->error == -ENOMEM && w->tries-- > 0;
	if (w->again)
		return false;
	ensure(slot_move(s->config.slots, w->slot, SLOT_READING, SLOT_ANSWERING));
	if (request->opcode == FUSE_INIT && n == 2)
		finish_init(s, &iov[1]);
	else if (head->error == -ENOSYS && request_is_write(request->opcode))
		head->error = s->config.tree->write_status;
	else if (head->error == -ENOSYS && request->opcode == FUSE_IOCTL)
		head->error = -ENOTTY;
	return true;
}

void session_send(struct lowlevel *l, struct iovec *iov, int n)
{
	struct session *s = container_of(l, struct session, lowlevel);
	struct worker *w = session_worker;

	if (!w || w->slot == SESSION_NO_SLOT || begin_reply(w, iov, n))
		write_reply(s, iov, n);
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

static struct parked *parked_of(struct session *s, uint32_t slot, enum parked_part part)
{
	return &s->parked[2 * (size_t)slot + (part == PARKED_LAST_BLOCK)];
}

/* Where the last block of a range waits for the rest. */
static unsigned char *kept_block(struct session *s, uint32_t slot)
{
	static_assert(sizeof(struct fuse_in_header) + sizeof(struct fuse_read_in) <=
			      SLOT_BYTES - BLOCK_BYTES,
		"behind the request");
	return (unsigned char *)slot_data(s->config.slots, slot) + SLOT_BYTES - BLOCK_BYTES;
}

static void parked_unref(struct parked *p, uint32_t refs)
{
	struct session *s = p->session;

	if (atomic_fetch_sub(&p->refs, refs) != refs)
		return;
	if (p->goes_on)
		parked_unref(parked_of(s, p->slot, PARKED_REST), 1);
	else
		ensure(slot_move(s->config.slots, p->slot, SLOT_ANSWERING, SLOT_FREE));
}

static void answer_parked(struct parked *p, int status, const void *data)
{
	struct session *s = p->session;
	const char *bytes = (const char *)data + p->skip;
	uint32_t here;

	if (status < 0) {
		count_failure(s, p->place, p->read.length, status);
		(void)fuse_reply_err(p->req, -read_errno(s, status)); /* session_send() logs */
		return;
	}
	here = min(p->size, p->read.length - p->skip);
	if (here == p->size)
		(void)fuse_reply_buf(p->req, bytes, here);
	else
		(void)fuse_reply_iov(p->req,
			(struct iovec[]){ { (void *)(uintptr_t)bytes, here },
				{ kept_block(s, p->slot), p->size - here } },
			2);
}

static void park_rest(struct parked *last, const void *data);

/* The reader's answer; on a thread of the reader. */
static void on_read_done(struct client_read *read, int status, const void *data)
{
	struct parked *p = read->arg;
	struct session *s = p->session;
	bool more = p->part == PARKED_LAST_BLOCK && status == 0;
	uint32_t refs = 1;

	if (slot_move(s->config.slots, p->slot, SLOT_HELD, more ? SLOT_READING : SLOT_ANSWERING)) {
		if (more)
			park_rest(p, data);
		else
			answer_parked(p, status, data);
		refs = 2;
	}
	parked_unref(p, refs);
	atomic_fetch_sub(&s->n_parked, 1); /* last: the session may end now */
}

/* Hands a part of a READ to the reader; set are its request, part, skip and size, place and length. */
static void park(struct session *s, uint32_t slot, struct parked *p, uint32_t refs)
{
	uint32_t ticket = slot_ticket(s->config.slots, slot);

	p->session = s;
	p->slot = slot;
	p->goes_on = false;
	p->read.offset = p->place;
	p->read.on_done = on_read_done;
	p->read.arg = p;
	list_init(&p->read.link);
	atomic_store(&p->refs, refs);
	atomic_store(&p->flags, 0);
	atomic_store(&s->part[slot], (uint8_t)p->part);
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
	/* Who refuses, or ends the session, looked for parked reads just before this one was. */
	if (atomic_load(&s->refusing) || (atomic_load(&s->stopping) && !atomic_load(&s->handing)))
		(void)session_give_up(s, slot, ticket, -EIO); /* or it is answered already */
}

void session_park(struct session *s, uint32_t slot, fuse_req_t req, const struct tree_range *range)
{
	enum parked_part part =
		range->length > LIMIT_PAYLOAD_BYTES ? PARKED_LAST_BLOCK : PARKED_WHOLE;
	struct parked *p = parked_of(s, slot, part);

	p->req = req;
	p->part = part;
	p->skip = range->skip;
	p->size = range->size;
	p->place = range->offset;
	p->read = (struct client_read){ .length = range->length };
	if (part == PARKED_LAST_BLOCK) {
		p->place += LIMIT_PAYLOAD_BYTES;
		p->read.length -= LIMIT_PAYLOAD_BYTES;
	}
	park(s, slot, p, 3);
}

/* The last block is here, and the slot this thread's (READING). */
static void park_rest(struct parked *last, const void *data)
{
	struct session *s = last->session;
	struct parked *p = parked_of(s, last->slot, PARKED_REST);

	memcpy(kept_block(s, last->slot), data, last->read.length);
	p->req = last->req;
	p->part = PARKED_REST;
	p->skip = last->skip;
	p->size = last->size;
	p->place = last->place - LIMIT_PAYLOAD_BYTES;
	p->read = (struct client_read){ .length = LIMIT_PAYLOAD_BYTES };
	last->goes_on = true;
	park(s, last->slot, p, 4); /* one of `last`, whose submitter may still be in read() */
}

bool session_give_up(struct session *s, uint32_t slot, uint32_t ticket, int status)
{
	struct parked *p;

	if (!slot_move_ticket(s->config.slots, slot, ticket, SLOT_HELD, SLOT_ANSWERING))
		return false;
	p = parked_of(s, slot, (enum parked_part)atomic_load(&s->part[slot]));
	(void)fuse_reply_err(p->req, -status); /* session_send() logs */
	if (atomic_fetch_or(&p->flags, PARKED_UNWANTED) & PARKED_SUBMITTED) {
		s->config.reader->ops->cancel(s->config.reader, &p->read);
		parked_unref(p, 1);
	}
	return true;
}

void session_give_up_all(struct session *s)
{
	for (uint32_t i = 0; i < slots_count(s->config.slots); i++)
		if (slot_state(s->config.slots, i) == SLOT_HELD)
			(void)session_give_up(s, i, slot_ticket(s->config.slots, i),
				-EIO); /* or it is answered */
}

/*
 * Once who was killed did not die from one sweep to the next. Of what comes soon nobody asks who
 * waits.
 */
static void sweep_slot(struct session *s, uint32_t slot)
{
	struct slots *slots = s->config.slots;
	struct swept *swept = &s->swept[slot];
	uint32_t ticket = slot_ticket(slots, slot);
	const void *data = slot_data(slots, slot);
	struct swept now = { 0 };

	if (slot_state(slots, slot) == SLOT_HELD)
		now.unique = request_unique(data, SLOT_BYTES);
	if (now.unique && now.unique == swept->unique)
		now.dies = requester_state(request_pid(data, SLOT_BYTES)) == REQUESTER_DIES;
	if (now.dies && swept->dies)
		(void)session_give_up(s, slot, ticket, -EINTR); /* or it is answered */
	*swept = now;
}

void session_sweep(struct session *s)
{
	uint64_t due = atomic_load(&s->sweep_ns);

	if (atomic_load(&s->n_parked) == 0 || clock_mono_ns() < due ||
		!atomic_compare_exchange_strong(&s->sweep_ns, &due, UINT64_MAX))
		return;
	for (uint32_t i = 0; i < slots_count(s->config.slots); i++)
		sweep_slot(s, i);
	atomic_store(&s->sweep_ns, clock_mono_ns() + SWEEP_MS * CLOCK_MS);
}
