/*
 * In-process transport that misbehaves on demand. See fake.h.
 *
 * Each end is run by its own loop: end_run() moves what it may. Whatever another end needs to know
 * (a packet, room in the window, a cut) is written under the_fakes.lock, and its loop woken. An end
 * is freed on its own loop when nothing refers to it: handle closed, no wake-up in flight, peer
 * notified.
 */
#include "net/fake.h"
#include "net/transport.h"
#include "base/cleanup.h"
#include "base/clock.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>

#define END_MAGIC      0x46414b45u
#define LISTENER_MAGIC 0x464b4c53u
#define NAME_BYTES     64

enum end_state {
	END_NEW,     /* its loop has not seen it */
	END_WAITING, /* accepted, not started */
	END_OPEN,
	END_FAILED, /* the next run ends it */
	END_CLOSED,
};

struct packet {
	struct list link;
	uint64_t due_ns;
	uint8_t header[FRAME_BYTES];
	size_t len;
	int fd;
	uint8_t payload[];
};

struct fake_listener {
	struct transport_listener listener;
	uint32_t magic;
	struct list link; /* of the_fakes */
	struct loop *loop;
	struct loop_task task;
	char name[NAME_BYTES];
	unsigned int refs; /* under lock: 1, and one per end not yet accepted */
	bool closed;
	bool refuse;
	uint64_t max_delay_ns;
};

struct end {
	struct transport transport;
	uint32_t magic;
	struct loop *loop;
	struct fake_listener *listener; /* an accepting end's until it is accepted */
	char name[NAME_BYTES];

	/* Under the lock. */
	struct list link; /* of the_fakes.ends */
	struct end *peer; /* NULL once either side closed */
	struct list inbox;
	size_t inbox_bytes;
	uint64_t last_due_ns;
	bool cut;
	bool posted;

	/* The loop's. */
	enum end_state state;
	int status;
	bool paused;
	struct list out;
	struct loop_task task;
	uv_timer_t timer;
	bool timer_open;
};

static struct {
	pthread_mutex_t lock;
	struct list listeners;
	struct list ends;
} the_fakes = { PTHREAD_MUTEX_INITIALIZER, LIST_INIT(the_fakes.listeners),
	LIST_INIT(the_fakes.ends) };

/* ---- listeners ------------------------------------------------------------------------------- */

static struct fake_listener *listener_find_locked(const char *name)
{
	list_for_each (node, &the_fakes.listeners) {
		struct fake_listener *l = list_entry(node, struct fake_listener, link);

		if (strcmp(l->name, name) == 0)
			return l;
	}
	return NULL;
}

static void listener_unref_locked(struct fake_listener *l)
{
	if (--l->refs == 0)
		free(l);
}

static int fake_check(const char *where, struct err *e)
{
	return strlen(where) < NAME_BYTES
		       ? 0
		       : err_set(e, -ENAMETOOLONG, "name '%s' is too long", where);
}

static int fake_listen(struct loop *loop, const char *where, const struct transport_listener *user,
	struct transport_listener **ret_listener, struct err *e)
{
	struct fake_listener *l;
	bool taken;
	int r = fake_check(where, e);

	if (r < 0)
		return r;
	l = calloc(1, sizeof(*l));
	if (!l)
		return err_set(e, -ENOMEM, "no memory to listen on 'fake:%s'", where);
	l->listener = *user;
	l->listener.ops = &transport_fake;
	(void)snprintf(l->listener.address, sizeof(l->listener.address), "fake:%s",
		where); /* fits: fake_check() */
	(void)snprintf(l->name, sizeof(l->name), "%s", where);
	l->magic = LISTENER_MAGIC;
	l->loop = loop;
	l->refs = 1;
	*ret_listener = &l->listener;
	pthread_mutex_lock(&the_fakes.lock);
	taken = listener_find_locked(where) != NULL;
	if (!taken)
		list_push_back(&the_fakes.listeners, &l->link);
	pthread_mutex_unlock(&the_fakes.lock);
	if (!taken)
		return 0;
	free(l);
	*ret_listener = NULL;
	return err_set(e, -EADDRINUSE, "another process listens on 'fake:%s'", where);
}

static void on_unlistened(struct loop_task *task)
{
	struct fake_listener *l = container_of(task, struct fake_listener, task);
	void (*on_closed)(void *arg) = l->listener.on_closed;
	void *arg = l->listener.arg;

	pthread_mutex_lock(&the_fakes.lock);
	listener_unref_locked(l);
	pthread_mutex_unlock(&the_fakes.lock);
	on_closed(arg);
}

static void fake_unlisten(struct transport_listener *listener)
{
	struct fake_listener *l = container_of(listener, struct fake_listener, listener);

	CHECK_MAGIC(l, LISTENER_MAGIC);
	pthread_mutex_lock(&the_fakes.lock);
	list_remove(&l->link);
	l->closed = true;
	pthread_mutex_unlock(&the_fakes.lock);
	l->task.run = on_unlistened;
	loop_post(l->loop, &l->task);
}

/* ---- ends ------------------------------------------------------------------------------------ */

static void end_wake_locked(struct end *end)
{
	if (end->posted)
		return;
	end->posted = true;
	loop_post(end->loop, &end->task);
}

static void end_wake(struct end *end)
{
	pthread_mutex_lock(&the_fakes.lock);
	end_wake_locked(end);
	pthread_mutex_unlock(&the_fakes.lock);
}

static void packet_free(struct packet *packet)
{
	if (packet->fd >= 0)
		(void)close(packet->fd); /* only passed on */
	free(packet);
}

static void end_maybe_free(struct end *end)
{
	bool posted;

	pthread_mutex_lock(&the_fakes.lock);
	posted = end->posted;
	pthread_mutex_unlock(&the_fakes.lock);
	/* Without a peer and outside the list of ends it cannot be woken any more. */
	if (end->state != END_CLOSED || end->timer_open || posted)
		return;
	end->magic = 0;
	free(end);
}

static void on_timer_closed(uv_handle_t *handle)
{
	struct end *end = handle->data;

	end->timer_open = false;
	end_maybe_free(end);
}

static void end_finish(struct end *end)
{
	struct list lost = LIST_INIT(lost);
	struct list *node;

	pthread_mutex_lock(&the_fakes.lock);
	list_remove(&end->link);
	if (end->peer) {
		end->peer->peer = NULL;
		end_wake_locked(end->peer);
		end->peer = NULL;
	}
	list_splice_back(&lost, &end->inbox);
	pthread_mutex_unlock(&the_fakes.lock);
	while ((node = list_pop_front(&lost)) != NULL)
		packet_free(list_entry(node, struct packet, link));
	while ((node = list_pop_front(&end->out)) != NULL) {
		struct transport_message *m = list_entry(node, struct transport_message, link);

		m->on_sent(m, end->status);
	}
	end->state = END_CLOSED;
	uv_close((uv_handle_t *)&end->timer, on_timer_closed);
	if (end->transport.events)
		end->transport.events->on_closed(end->transport.arg, end->status);
}

static void end_fail(struct end *end, int status)
{
	if (end->state >= END_FAILED)
		return;
	end->state = END_FAILED;
	end->status = status;
	end_wake(end);
}

/* ---- messages -------------------------------------------------------------------------------- */

static struct packet *packet_new(const struct transport_message *m)
{
	size_t len = m->bytes - FRAME_BYTES;
	struct packet *packet = malloc(sizeof(*packet) + len);
	size_t at = 0;

	if (!packet)
		return NULL;
	memcpy(packet->header, m->header, FRAME_BYTES);
	packet->len = len;
	packet->fd =
		frame_flags(m->header) & FRAME_FD ? fcntl(m->payload->fd, F_DUPFD_CLOEXEC, 3) : -1;
	for (unsigned int i = 0; m->payload && i < m->payload->n; i++) {
		if (m->payload->parts[i].len)
			memcpy(packet->payload + at, m->payload->parts[i].data,
				m->payload->parts[i].len);
		at += m->payload->parts[i].len;
	}
	return packet;
}

static uint64_t delay_locked(const struct end *end)
{
	const struct fake_listener *l = listener_find_locked(end->name);
	uint64_t chance = (uint64_t)random();

	return l && l->max_delay_ns ? chance * 1000 % l->max_delay_ns : 0;
}

/* Puts a packet before the peer, if its window has room: 1; 0: no room; -ECONNRESET: no peer. */
static int packet_pass(struct end *end, struct packet *packet)
{
	int r = 1;

	pthread_mutex_lock(&the_fakes.lock);
	if (!end->peer || end->cut) {
		r = -ECONNRESET;
	} else if (end->peer->inbox_bytes >= FAKE_WINDOW) {
		r = 0;
	} else {
		struct end *peer = end->peer;

		packet->due_ns = max(peer->last_due_ns, clock_mono_ns() + delay_locked(end));
		peer->last_due_ns = packet->due_ns;
		peer->inbox_bytes += FRAME_BYTES + packet->len;
		list_push_back(&peer->inbox, &packet->link);
		end_wake_locked(peer);
	}
	pthread_mutex_unlock(&the_fakes.lock);
	return r;
}

static void end_send(struct end *end)
{
	while (end->state == END_OPEN && !list_empty(&end->out)) {
		struct transport_message *m =
			list_entry(end->out.next, struct transport_message, link);
		struct packet *packet = packet_new(m);
		int r = packet ? packet_pass(end, packet) : -ENOMEM;

		if (r <= 0) {
			if (packet)
				packet_free(packet);
			if (r < 0)
				end_fail(end, r);
			return;
		}
		list_remove(&m->link);
		m->sent = m->bytes;
		end->transport.bytes_out += m->bytes;
		m->on_sent(m, 0);
	}
}

/* The next packet that is due; NULL and when to look again (UINT64_MAX: when woken). */
static struct packet *packet_next(struct end *end, uint64_t *ret_due_ns)
{
	struct packet *packet = NULL;

	*ret_due_ns = UINT64_MAX;
	pthread_mutex_lock(&the_fakes.lock);
	if (!list_empty(&end->inbox) && !end->cut) {
		packet = list_entry(end->inbox.next, struct packet, link);
		if (packet->due_ns > clock_mono_ns()) {
			*ret_due_ns = packet->due_ns;
			packet = NULL;
		} else {
			list_remove(&packet->link);
			end->inbox_bytes -= FRAME_BYTES + packet->len;
			if (end->peer)
				end_wake_locked(end->peer); /* there is room again */
		}
	}
	pthread_mutex_unlock(&the_fakes.lock);
	return packet;
}

static int packet_deliver(struct end *end, struct packet *packet)
{
	void *payload = NULL;
	struct frame frame;
	int r = frame_decode(packet->header, &frame);

	if (r == 0)
		r = end->transport.events->on_header(end->transport.arg, &frame, &payload);
	if (r < 0)
		return r;
	end->transport.bytes_in += FRAME_BYTES + packet->len;
	if (payload) {
		memcpy(payload, packet->payload, packet->len);
		((uint8_t *)payload)[packet->len] = '\0';
	}
	end->transport.events->on_message(end->transport.arg, &frame, payload, TAKE_FD(packet->fd));
	return 0;
}

static void on_timer(uv_timer_t *timer);

static void end_receive(struct end *end)
{
	while (end->state == END_OPEN && !end->paused) {
		uint64_t due;
		struct packet *packet = packet_next(end, &due);
		int r;

		if (!packet) {
			uint64_t now = clock_mono_ns();

			if (due != UINT64_MAX)
				(void)uv_timer_start(&end->timer, on_timer,
					due > now ? (due - now) / CLOCK_MS + 1 : 0, 0);
			return; /* the timer has a callback, so it starts */
		}
		r = packet_deliver(end, packet);
		packet_free(packet);
		if (r < 0)
			end_fail(end, r);
	}
}

/* Has the other side gone, and is all that it sent seen? */
static bool end_is_lost(struct end *end)
{
	bool lost;

	pthread_mutex_lock(&the_fakes.lock);
	lost = end->cut || (!end->peer && (list_empty(&end->inbox) || end->paused));
	pthread_mutex_unlock(&the_fakes.lock);
	return lost;
}

/* The first run on the end's own loop. */
static void end_begin(struct end *end)
{
	struct fake_listener *l = TAKE(end->listener);
	bool closed;

	ensure(uv_timer_init(loop_uv(end->loop), &end->timer) == 0);
	end->timer.data = end;
	end->timer_open = true;
	if (!l) {
		end->state = END_OPEN;
		end->transport.events->on_open(end->transport.arg);
		return;
	}
	end->state = END_WAITING;
	pthread_mutex_lock(&the_fakes.lock);
	closed = l->closed;
	pthread_mutex_unlock(&the_fakes.lock);
	if (closed)
		end_fail(end, -ECONNREFUSED);
	else
		l->listener.on_accept(l->listener.arg, &end->transport);
	pthread_mutex_lock(&the_fakes.lock);
	listener_unref_locked(l);
	pthread_mutex_unlock(&the_fakes.lock);
}

static void end_run(struct end *end)
{
	CHECK_MAGIC(end, END_MAGIC);
	if (end->state == END_NEW)
		end_begin(end);
	end_send(end);
	end_receive(end);
	if (end->state == END_OPEN && end_is_lost(end))
		end_fail(end, -ECONNRESET);
	if (end->state == END_FAILED)
		end_finish(end);
}

static void on_task(struct loop_task *task)
{
	struct end *end = container_of(task, struct end, task);

	pthread_mutex_lock(&the_fakes.lock);
	end->posted = false;
	pthread_mutex_unlock(&the_fakes.lock);
	if (end->state == END_CLOSED)
		end_maybe_free(end);
	else
		end_run(end);
}

static void on_timer(uv_timer_t *timer)
{
	end_run(timer->data);
}

/* ---- operations ------------------------------------------------------------------------------ */

static struct end *end_new(struct loop *loop, const char *name)
{
	struct end *end = calloc(1, sizeof(*end));

	if (!end)
		return NULL;
	end->transport.ops = &transport_fake;
	end->transport.peer.kind = PEER_NODE; /* this process */
	end->magic = END_MAGIC;
	end->loop = loop;
	(void)snprintf(end->name, sizeof(end->name), "%s", name); /* fits: fake_check() */
	list_init(&end->inbox);
	list_init(&end->out);
	end->task.run = on_task;
	return end;
}

static int fake_connect(struct loop *loop, const char *where, const struct transport_events *events,
	void *arg, struct transport **ret_transport, struct err *e)
{
	struct end *here = end_new(loop, where);
	struct end *there = end_new(NULL, where);
	struct fake_listener *l;
	int r = here && there ? 0 : -ENOMEM;

	pthread_mutex_lock(&the_fakes.lock);
	l = listener_find_locked(where);
	if (r == 0 && (!l || l->refuse))
		r = -ECONNREFUSED;
	if (r == 0) {
		there->loop = l->loop;
		there->listener = l;
		l->refs++;
		here->peer = there;
		there->peer = here;
		here->transport.events = events;
		here->transport.arg = arg;
		list_push_back(&the_fakes.ends, &here->link);
		list_push_back(&the_fakes.ends, &there->link);
		end_wake_locked(here);
		end_wake_locked(there);
	}
	pthread_mutex_unlock(&the_fakes.lock);
	if (r < 0) {
		free(here);
		free(there);
		return err_set(e, r, "no answer at 'fake:%s': %s", where, err_str(r));
	}
	*ret_transport = &here->transport;
	return 0;
}

static struct end *end_of(struct transport *transport)
{
	struct end *end = container_of(transport, struct end, transport);

	CHECK_MAGIC(end, END_MAGIC);
	return end;
}

static void fake_start(
	struct transport *transport, const struct transport_events *events, void *arg)
{
	struct end *end = end_of(transport);

	transport->events = events;
	transport->arg = arg;
	if (end->state == END_WAITING)
		end->state = END_OPEN;
	end_wake(end);
}

static void fake_send(struct transport *transport, struct transport_message *message)
{
	struct end *end = end_of(transport);

	ensure(end->state != END_CLOSED);
	message->sent = 0;
	message->bytes = FRAME_BYTES + (message->payload ? net_payload_bytes(message->payload) : 0);
	list_push_back(&end->out, &message->link);
	end_wake(end);
}

static bool fake_recall(struct transport *transport, struct transport_message *message)
{
	if (message->sent > 0 || end_of(transport)->state >= END_FAILED)
		return false;
	list_remove(&message->link);
	return true;
}

static void fake_pause(struct transport *transport, bool paused)
{
	struct end *end = end_of(transport);

	end->paused = paused;
	end_wake(end);
}

static void fake_close(struct transport *transport, int status)
{
	end_fail(end_of(transport), status);
}

/* Of no family: there are only fake lanes here. */
static int fake_addresses(struct transport *transport, struct sockaddr_storage *ret_local,
	struct sockaddr_storage *ret_remote)
{
	(void)transport;
	memset(ret_local, 0, sizeof(*ret_local));
	memset(ret_remote, 0, sizeof(*ret_remote));
	return 0;
}

const struct transport_ops transport_fake = {
	.scheme = "fake",
	.passes_fd = true,
	.addresses = fake_addresses,
	.check = fake_check,
	.listen = fake_listen,
	.unlisten = fake_unlisten,
	.connect = fake_connect,
	.start = fake_start,
	.send = fake_send,
	.recall = fake_recall,
	.pause = fake_pause,
	.close = fake_close,
};

/* ---- mischief -------------------------------------------------------------------------------- */

void fake_set_delay(const char *name, uint64_t max_ns)
{
	struct fake_listener *l;

	pthread_mutex_lock(&the_fakes.lock);
	l = listener_find_locked(name);
	if (l)
		l->max_delay_ns = max_ns;
	pthread_mutex_unlock(&the_fakes.lock);
}

void fake_set_refuse(const char *name, bool refuse)
{
	struct fake_listener *l;

	pthread_mutex_lock(&the_fakes.lock);
	l = listener_find_locked(name);
	if (l)
		l->refuse = refuse;
	pthread_mutex_unlock(&the_fakes.lock);
}

void fake_cut(const char *name)
{
	pthread_mutex_lock(&the_fakes.lock);
	list_for_each (node, &the_fakes.ends) {
		struct end *end = list_entry(node, struct end, link);

		if (strcmp(end->name, name) != 0)
			continue;
		end->cut = true;
		end_wake_locked(end);
	}
	pthread_mutex_unlock(&the_fakes.lock);
}
