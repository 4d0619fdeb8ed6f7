/*
 * Connections that are refused, cut, slow or flip bits of data. See net_fault.h and faults.h.
 *
 * Each connection wraps one of the lower transport: messages pass unchanged on their way out; on
 * their way in one may be held back, with the lower one paused meanwhile, so that order is kept and
 * no more than one is held. Bits flip in data that has checksums only: the rest is believed as TCP
 * and the kernel brought it. The greeting is left alone.
 */
#include "tests/debug/net_fault.h"
#include "base/clock.h"
#include "net/transport.h"
#include "tests/debug/faults.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SLICE_NS (20 * CLOCK_MS)

/* One lower transport, with the table that takes its place. */
struct wrap {
	const struct transport_ops *lower;
	struct transport_ops ops;
};

struct faulty {
	struct transport transport;
	const struct wrap *wrap;
	struct transport *lower;
	struct loop *loop;
	bool paused; /* by the user */
	/* A message held back, until `until_ns`. */
	struct loop_timer *timer; /* NULL: none */
	struct frame frame;
	void *payload;
	int fd;
	uint64_t until_ns;
	uint64_t version; /* of the fault line, for a stall; UINT64_MAX: a delay */
};

struct faulty_listener {
	struct transport_listener listener;
	const struct wrap *wrap;
	struct transport_listener *lower;
	struct loop *loop;
};

static struct faulty *faulty_of(struct transport *transport)
{
	return container_of(transport, struct faulty, transport);
}

/* What a watch for stalls looks at, and who the peer is. */
static void sync_progress(struct faulty *f)
{
	f->transport.bytes_in = f->lower->bytes_in;
	f->transport.bytes_out = f->lower->bytes_out;
	f->transport.mid_frame = f->lower->mid_frame;
	f->transport.peer = f->lower->peer;
	f->transport.channel = f->lower->channel;
}

static void discard(void *payload, int fd)
{
	free(payload);
	if (fd >= 0)
		(void)close(fd); /* only passed on */
}

/* ---- messages that come in --------------------------------------------------------------------- */

static void flip(const struct frame *frame, void *payload, uint64_t random)
{
	uint64_t sums = 8ull * frame->checksums;

	if (frame->checksums && frame->payload > sums)
		((uint8_t *)payload)[random / 8 % (frame->payload - sums)] ^=
			(uint8_t)(1u << random % 8);
}

static void deliver(struct faulty *f, const struct frame *frame, void *payload, int fd)
{
	struct fault fault = faults_draw(faults_global(), FAULT_NET, FAULT_MESSAGE, NULL);

	if (fault.kind == FAULT_CUT) {
		discard(payload, fd);
		f->wrap->lower->close(f->lower, -ECONNRESET);
		return;
	}
	if (fault.kind == FAULT_FLIP)
		flip(frame, payload, fault.random);
	f->transport.events->on_message(f->transport.arg, frame, payload, fd);
}

static void on_timer(void *arg)
{
	struct faulty *f = arg;
	uint64_t now = clock_mono_ns();
	struct frame frame = f->frame;

	f->timer = NULL;
	if (now < f->until_ns &&
		(f->version == UINT64_MAX || f->version == faults_version(faults_global())))
		f->timer = loop_timer_start(
			f->loop, min(f->until_ns - now, (uint64_t)SLICE_NS), on_timer, f);
	if (f->timer)
		return;
	deliver(f, &frame, f->payload, f->fd);
	if (!f->paused)
		f->wrap->lower->pause(f->lower, false);
}

/* Holds a message back when it is to be; false: it is delivered now. */
static bool hold(struct faulty *f, const struct frame *frame, void *payload, int fd)
{
	bool stall;
	uint64_t ms = faults_draw_wait(faults_global(), FAULT_NET, FAULT_MESSAGE, NULL, &stall);

	if (ms == 0)
		return false;
	f->until_ns = clock_mono_ns() + ms * CLOCK_MS;
	f->version = stall ? faults_version(faults_global()) : UINT64_MAX;
	f->timer = loop_timer_start(f->loop, min(ms * CLOCK_MS, (uint64_t)SLICE_NS), on_timer, f);
	if (!f->timer)
		return false;
	f->frame = *frame;
	f->payload = payload;
	f->fd = fd;
	f->wrap->lower->pause(f->lower, true);
	return true;
}

static void on_open(void *arg)
{
	struct faulty *f = arg;

	sync_progress(f);
	f->transport.events->on_open(f->transport.arg);
}

static int on_header(void *arg, const struct frame *frame, void **ret_payload)
{
	struct faulty *f = arg;

	sync_progress(f);
	return f->transport.events->on_header(f->transport.arg, frame, ret_payload);
}

static void on_message(void *arg, const struct frame *frame, void *payload, int fd)
{
	struct faulty *f = arg;

	sync_progress(f);
	f->transport.mid_frame = false;
	if (frame->op == FRAME_HELLO)
		f->transport.events->on_message(f->transport.arg, frame, payload, fd);
	else if (!hold(f, frame, payload, fd))
		deliver(f, frame, payload, fd);
}

static void drop_held(struct faulty *f)
{
	if (!f->timer)
		return;
	loop_timer_stop(f->timer);
	f->timer = NULL;
	discard(f->payload, f->fd);
}

static void on_closed(void *arg, int status)
{
	struct faulty *f = arg;

	drop_held(f);
	f->transport.events->on_closed(f->transport.arg, status);
	free(f);
}

static const struct transport_events lower_events = {
	.on_open = on_open,
	.on_header = on_header,
	.on_message = on_message,
	.on_closed = on_closed,
};

/* ---- the table --------------------------------------------------------------------------------- */

static struct faulty *faulty_new(const struct wrap *wrap, struct loop *loop)
{
	struct faulty *f = calloc(1, sizeof(*f));

	if (!f)
		return NULL;
	f->transport.ops = &wrap->ops;
	f->wrap = wrap;
	f->loop = loop;
	return f;
}

static int fault_connect(const struct wrap *wrap, struct loop *loop, const char *where,
	const struct transport_events *events, void *arg, struct transport **ret_transport,
	struct err *e)
{
	struct fault fault = faults_draw(faults_global(), FAULT_NET, FAULT_CONNECT, NULL);
	struct faulty *f;
	int r;

	if (fault.kind == FAULT_REFUSE || fault.kind == FAULT_CUT)
		return err_set(e, -ECONNREFUSED, "injected fault: %s refused", where);
	f = faulty_new(wrap, loop);
	if (!f)
		return err_set(e, -ENOMEM, "no memory to connect to %s", where);
	f->transport.events = events;
	f->transport.arg = arg;
	r = wrap->lower->connect(loop, where, &lower_events, f, &f->lower, e);
	if (r < 0) {
		free(f);
		return r;
	}
	*ret_transport = &f->transport;
	return 0;
}

static void on_accept(void *arg, struct transport *lower)
{
	struct faulty_listener *l = arg;
	struct faulty *f = faulty_new(l->wrap, l->loop);

	ensure(f); /* of a debug program: not worth a way out */
	f->lower = lower;
	sync_progress(f);
	l->listener.on_accept(l->listener.arg, &f->transport);
}

static void on_unlistened(void *arg)
{
	struct faulty_listener *l = arg;

	l->listener.on_closed(l->listener.arg);
	free(l);
}

static int fault_listen(const struct wrap *wrap, struct loop *loop, const char *where,
	const struct transport_listener *user, struct transport_listener **ret_listener,
	struct err *e)
{
	struct transport_listener own = { .on_accept = on_accept, .on_closed = on_unlistened };
	struct faulty_listener *l = calloc(1, sizeof(*l));
	int r;

	if (!l)
		return err_set(e, -ENOMEM, "no memory to listen on %s", where);
	l->listener = *user;
	l->listener.ops = &wrap->ops;
	l->wrap = wrap;
	l->loop = loop;
	own.arg = l;
	r = wrap->lower->listen(loop, where, &own, &l->lower, e);
	if (r < 0) {
		free(l);
		return r;
	}
	memcpy(l->listener.address, l->lower->address, sizeof(l->listener.address));
	*ret_listener = &l->listener;
	return 0;
}

static void fault_unlisten(struct transport_listener *listener)
{
	struct faulty_listener *l = container_of(listener, struct faulty_listener, listener);

	l->wrap->lower->unlisten(l->lower);
}

static void fault_start(
	struct transport *transport, const struct transport_events *events, void *arg)
{
	struct faulty *f = faulty_of(transport);

	f->transport.events = events;
	f->transport.arg = arg;
	f->wrap->lower->start(f->lower, &lower_events, f);
}

static void fault_send(struct transport *transport, struct transport_message *message)
{
	struct faulty *f = faulty_of(transport);

	f->wrap->lower->send(f->lower, message);
	sync_progress(f);
}

static bool fault_recall(struct transport *transport, struct transport_message *message)
{
	struct faulty *f = faulty_of(transport);

	return f->wrap->lower->recall(f->lower, message);
}

static void fault_pause(struct transport *transport, bool paused)
{
	struct faulty *f = faulty_of(transport);

	f->paused = paused;
	if (!f->timer)
		f->wrap->lower->pause(f->lower, paused);
}

static void fault_close(struct transport *transport, int status)
{
	struct faulty *f = faulty_of(transport);

	drop_held(f);
	f->wrap->lower->close(f->lower, status);
}

/* connect() and listen() are not told whose they are. */
#define WRAP(name)                                                                        \
	static struct wrap wrap_##name;                                                   \
	static int connect_##name(struct loop *loop, const char *where,                   \
		const struct transport_events *events, void *arg, struct transport **ret, \
		struct err *e)                                                            \
	{                                                                                 \
		return fault_connect(&wrap_##name, loop, where, events, arg, ret, e);     \
	}                                                                                 \
	static int listen_##name(struct loop *loop, const char *where,                    \
		const struct transport_listener *user, struct transport_listener **ret,   \
		struct err *e)                                                            \
	{                                                                                 \
		return fault_listen(&wrap_##name, loop, where, user, ret, e);             \
	}                                                                                 \
	static struct wrap wrap_##name = { .lower = &transport_##name,                    \
		.ops = { .listen = listen_##name,                                         \
			.unlisten = fault_unlisten,                                       \
			.connect = connect_##name,                                        \
			.start = fault_start,                                             \
			.send = fault_send,                                               \
			.recall = fault_recall,                                           \
			.pause = fault_pause,                                             \
			.close = fault_close } };

WRAP(unix)
WRAP(tcp)
WRAP(fake)

static struct wrap *const wraps[] = { &wrap_unix, &wrap_tcp, &wrap_fake };

static const struct transport_ops *wrap_transport(const struct transport_ops *lower)
{
	for (size_t i = 0; i < ARRAY_SIZE(wraps); i++)
		if (wraps[i]->lower == lower)
			return &wraps[i]->ops;
	return lower;
}

void net_fault_install(void)
{
	ensure(net_debug_wrap == NULL);
	for (size_t i = 0; i < ARRAY_SIZE(wraps); i++) {
		wraps[i]->ops.scheme = wraps[i]->lower->scheme;
		wraps[i]->ops.passes_fd = wraps[i]->lower->passes_fd;
		wraps[i]->ops.check = wraps[i]->lower->check;
	}
	net_debug_wrap = wrap_transport;
}
