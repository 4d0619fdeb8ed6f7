/*
 * The server: accepts connections, passes requests to the handler, sends its replies. See net.h.
 *
 * Lifetimes: a connection exists while its transport does and while requests refer to it; a request exists until its reply is sent
 * or dropped. The server counts both, and rpc_server_free() waits for them. All of that happens on the loop; rpc_reply() from
 * another thread posts the request to it.
 *
 * Limits: a connection is not read from while LIMIT_CONN_REQUESTS of its requests, or LIMIT_CONN_OUT_BYTES of their payloads,
 * are in progress, or while LIMIT_CONN_OUT_BYTES of replies wait for a peer that does not receive them. While the process has
 * LIMIT_REQUESTS, or no memory for more, connections with two requests in progress are not read from: one of the two may be
 * parked, and the connection still makes progress with the other. The same applies to the connections of a token that has
 * LIMIT_TOKEN_REQUESTS. A connection beyond the limits on descriptors, memory or its token is closed; its peer connects again.
 */
#include "net/allowance.h"
#include "net/conn_internal.h"
#include "net/lane_replies.h"
#include "net/lanes.h"
#include "base/arena.h"
#include "base/bounds.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/deadline.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/map.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <uv.h>

#define SERVER_MAGIC      0x53525652u
#define PEER_MAGIC        0x50454552u
#define REQUEST_MAGIC     0x52455153u
#define CONN_BUCKETS      1024 /* of requests by id; chains of 8 at the maximum */
#define WATCH_MS          1000
#define CONNS_LEAST       8u
#define GREETING_LEAST_NS CLOCK_SECOND /* each connection has as long to greet */
/* Charged to the arena: including the stream's buffer, and the handler's memory for a request. */
#define CONN_BYTES    (sizeof(struct rpc_conn) + CONN_BUCKETS * sizeof(void *) + 20480)
#define REQUEST_BYTES (sizeof(struct request) + 1024)

struct rpc_server {
	uint32_t magic;
	struct loop *loop;
	const struct rpc_server_ops *ops;
	void *arg;
	struct transport_listener *listener;
	uint64_t seed; /* of the hash over request ids, which peers choose */

	/* Used on the loop only. */
	struct list conns;
	struct list greeting; /* connections that have not greeted, the oldest first */
	uint32_t n_conns;
	uint32_t n_greeting;
	uint32_t max_conns;
	unsigned int handles; /* listener and timer */
	bool closing;
	uv_timer_t watch;

	pthread_mutex_t lock;
	pthread_cond_t idle;
	uint64_t alive; /* under lock: connections, requests, and 1 while handles are open */
};

struct rpc_conn {
	uint32_t magic;
	struct conn conn;
	struct rpc_server *server;
	struct list link;
	struct list greeting;        /* unlinked after its greeting */
	struct list requests;        /* in progress, not cancelled */
	struct map by_id;            /* requests in progress, and cancelled ones */
	uint64_t in_bytes;           /* of their payloads */
	struct allowance *allowance; /* of its token, from its greeting on; NULL: it has none */
	bool counted;                /* as a connection of the allowance */
	uint64_t refs;               /* its requests, its lanes, and 1 while the transport lives */
	struct lane_replies *lane;   /* NULL: none was opened */
};

struct request {
	struct rpc_request rpc;
	uint32_t magic;
	struct list link; /* in rpc_conn.requests; unlinked when it is cancelled */
	struct map_node node;
	struct loop_task task;
	struct frame reply;
	struct conn_message message;
	struct lane_destination destination; /* `lane` 0: none */
	uint8_t *checksums;                  /* of bytes that went by the lane */
	uint8_t word[LANE_WORD_BYTES];
	uint64_t charged; /* to the arena */
	_Atomic bool replied;
};

/* ---- lifetimes ------------------------------------------------------------------------------- */

static void server_hold(struct rpc_server *server)
{
	pthread_mutex_lock(&server->lock);
	server->alive++;
	pthread_mutex_unlock(&server->lock);
}

static void server_drop(struct rpc_server *server)
{
	pthread_mutex_lock(&server->lock);
	if (--server->alive == 0)
		pthread_cond_signal(&server->idle);
	pthread_mutex_unlock(&server->lock);
}

static void peer_unref(struct rpc_conn *peer)
{
	struct rpc_server *server = peer->server;

	CHECK_MAGIC(peer, PEER_MAGIC);
	if (--peer->refs > 0)
		return;
	ensure(peer->by_id.count == 0);
	allowance_unref(peer->allowance);
	map_release(&peer->by_id);
	peer->magic = 0;
	free(peer);
	arena_give(ARENA_CONNECTIONS, CONN_BYTES);
	bound_sub(BOUND_CONNECTIONS, 1);
	server_drop(server);
}

static void request_free(struct request *request)
{
	struct rpc_conn *peer = request->rpc.conn;

	net_payload_release(&request->message.payload);
	free(request->rpc.payload);
	free(request->checksums);
	if (request->rpc.fd >= 0)
		(void)close(request->rpc.fd); /* only read from */
	arena_give(ARENA_CONNECTIONS, request->charged);
	bound_sub(BOUND_REQUESTS, 1);
	allowance_give(peer->allowance, ALLOWANCE_REQUESTS);
	request->magic = 0;
	free(request);
	peer_unref(peer);
}

/* ---- requests -------------------------------------------------------------------------------- */

static uint64_t id_hash(const struct rpc_conn *peer, uint64_t id)
{
	return hash_xxh3(&id, sizeof(id), peer->server->seed);
}

static struct request *request_find(struct rpc_conn *peer, uint64_t id)
{
	for (struct map_node *node = map_first(&peer->by_id, id_hash(peer, id)); node;
		node = map_next_same(node)) {
		struct request *request = container_of(node, struct request, node);

		if (request->rpc.frame.id == id)
			return request;
	}
	return NULL;
}

/* All connections, or those of its token, are at a limit. Checked again when a request of the connection ends. */
static bool too_much(const struct rpc_conn *peer)
{
	return peer->by_id.count > 1 && /* one may be parked */
	       (bound_used(BOUND_REQUESTS) >= LIMIT_REQUESTS || arena_full(ARENA_CONNECTIONS) ||
		       allowance_used(peer->allowance, ALLOWANCE_REQUESTS) >= LIMIT_TOKEN_REQUESTS);
}

static void peer_throttle(struct rpc_conn *peer)
{
	conn_pause(&peer->conn, peer->conn.congested || peer->by_id.count >= LIMIT_CONN_REQUESTS ||
					peer->in_bytes >= LIMIT_CONN_OUT_BYTES || too_much(peer));
}

static void request_cancel(struct request *request)
{
	struct rpc_server *server = request->rpc.conn->server;

	list_remove(&request->link);
	request->rpc.cancelled = true;
	if (server->ops->on_cancel && !request->replied)
		server->ops->on_cancel(&request->rpc, server->arg);
}

static struct rpc_conn *peer_of(struct conn *conn)
{
	struct rpc_conn *peer = container_of(conn, struct rpc_conn, conn);

	CHECK_MAGIC(peer, PEER_MAGIC);
	return peer;
}

static int on_header(struct conn *conn, const struct frame *frame)
{
	struct rpc_conn *peer = peer_of(conn);

	if (frame->flags & FRAME_REPLY)
		return -EPROTO; /* a server sends no requests */
	if (frame->op == FRAME_CANCEL)
		return frame->payload ? -EPROTO : 0;
	if (frame->lane && frame->payload != LANE_DESTINATION_BYTES)
		return -EPROTO;
	return request_find(peer, frame->id) ? -EPROTO : 0;
}

/* ---- lanes ----------------------------------------------------------------------------------- */

/* Where the bytes may be written. One that is none is as if the request had named none. */
static void take_destination(struct request *request)
{
	struct rpc_request *rpc = &request->rpc;

	if (lane_destination_unpack(rpc->payload, rpc->frame.payload, &request->destination) == 0)
		request->destination.lane = rpc->frame.lane;
	free(TAKE(rpc->payload));
	rpc->frame.payload = 0;
	rpc->frame.lane = 0;
}

static void on_lane_opened(void *arg, void *context, int status, const struct lane_word *word)
{
	struct request *request = context;
	struct net_payload payload = NET_PAYLOAD_NONE;

	(void)arg;
	if (status == 0) {
		lane_word_pack(word, request->word);
		payload.parts[0].data = request->word;
		payload.parts[0].len = sizeof(request->word);
		payload.n = 1;
	}
	rpc_reply(&request->rpc, status, NULL, payload);
}

static void on_lane_written(void *arg, void *context, bool well)
{
	struct request *request = context;
	struct rpc_conn *peer = request->rpc.conn;
	struct frame *reply = &request->reply;

	(void)arg;
	if (!peer->conn.transport) {
		request_free(request);
		return;
	}
	if (!well) {
		net_payload_release(&request->message.payload);
		reply->status = -ENOTCONN;
		reply->length = 0;
		reply->checksums = 0;
	}
	reply->lane = request->destination.lane;
	reply->payload = reply->checksums * 8u;
	conn_send(&peer->conn, &request->message, reply);
	peer_throttle(peer);
}

static void on_lane_gone(void *arg)
{
	peer_unref(arg);
}

static const struct lane_replies_events lane_replies_events = {
	.on_opened = on_lane_opened,
	.on_written = on_lane_written,
	.on_gone = on_lane_gone,
};

static void lane_word(struct request *request)
{
	struct rpc_conn *peer = request->rpc.conn;
	struct lane_word word;
	int r = lane_word_unpack(request->rpc.payload, request->rpc.frame.payload, &word);

	if (r == 0 && !peer->lane && word.kind == LANE_WORD_OPEN && lanes_ops()) {
		peer->lane = lane_replies_new(
			peer->server->loop, peer->conn.transport, &lane_replies_events, peer);
		peer->refs += peer->lane != NULL;
	}
	if (r == 0 && !peer->lane)
		r = -EOPNOTSUPP;
	if (r == 0)
		lane_replies_word(peer->lane, &word, request);
	if (r < 0 || word.kind != LANE_WORD_OPEN)
		rpc_reply(&request->rpc, r, NULL, NET_PAYLOAD_NONE);
}

/* Copies the end of a payload, from `skip` on. */
static void payload_tail(const struct net_payload *payload, size_t skip, uint8_t *to, size_t len)
{
	for (unsigned int i = 0; i < payload->n && len > 0; i++) {
		const uint8_t *data = payload->parts[i].data;
		size_t here = payload->parts[i].len;
		size_t from = min(skip, here);
		size_t n = min(here - from, len);

		memcpy(to, data + from, n);
		to += n;
		len -= n;
		skip -= from;
	}
}

/* The answer's bytes go by the lane, and the checksums, behind them, when they have gone. */
static bool by_lane(struct request *request)
{
	struct rpc_conn *peer = request->rpc.conn;
	struct frame *reply = &request->reply;
	struct net_payload *payload = &request->message.payload;
	size_t sums = reply->checksums * 8u;
	uint8_t *checksums;
	int r;

	if (!request->destination.lane || !peer->lane || reply->status != 0 ||
		reply->flags & FRAME_LOCAL || reply->payload < sums + LANES_LEAST ||
		reply->length != reply->payload - sums ||
		reply->length > request->destination.bytes)
		return false;
	checksums = malloc(sums + 1);
	if (!checksums)
		return false;
	r = lane_replies_write(peer->lane, &request->destination, payload, reply->length, request);
	if (r < 0) {
		free(checksums);
		if (r != -ENOTCONN)
			return false;
		/* The client does not know yet that its lane is of no use. */
		net_payload_release(payload);
		on_lane_written(peer, request, false);
		return true;
	}
	payload_tail(payload, reply->length, checksums, sums);
	net_payload_release(payload);
	request->checksums = checksums;
	payload->parts[0].data = checksums;
	payload->parts[0].len = sums;
	payload->n = 1;
	return true;
}

static void on_message(struct conn *conn, const struct frame *frame, void *payload, int fd)
{
	struct rpc_conn *peer = peer_of(conn);
	struct rpc_server *server = peer->server;
	struct request *request;

	if (frame->op == FRAME_CANCEL) {
		request = request_find(peer, frame->id);
		if (fd >= 0)
			(void)close(fd); /* a cancel has none */
		if (request && !request->rpc.cancelled)
			request_cancel(request); /* otherwise its reply was sent already */
		return;
	}
	request = peer_is_current(&conn->identity) ? calloc(1, sizeof(*request)) : NULL;
	if (!request) { /* out of memory, or its token has expired: the peer may connect again with another token */
		free(payload);
		if (fd >= 0)
			(void)close(fd); /* not used */
		conn_close(conn, -ENOMEM);
		return;
	}
	request->charged = REQUEST_BYTES + frame->payload;
	/* Its bytes were received already: peer_throttle() stops the next ones. */
	arena_must(ARENA_CONNECTIONS, request->charged);
	bound_add(BOUND_REQUESTS, 1);
	allowance_add(peer->allowance, ALLOWANCE_REQUESTS);
	request->magic = REQUEST_MAGIC;
	request->rpc.frame = *frame;
	request->rpc.frame.flags &= (uint16_t)~FRAME_FD;
	if (!conn->transport->ops->passes_fd) /* it cannot get one: none is opened */
		request->rpc.frame.flags &= (uint16_t)~FRAME_LOCAL_OK;
	if (frame->left_ms)
		request->rpc.deadline_ns = deadline_from_ms(frame->left_ms, clock_mono_ns());
	request->rpc.conn = peer;
	request->rpc.payload = payload;
	if (frame->lane)
		take_destination(request);
	request->rpc.fd = fd;
	request->rpc.pipe_ok = !frame->lane && frame_op_fetches(frame->op) &&
			       conn->transport->ops->takes_pipe &&
			       conn->transport->ops->takes_pipe(conn->transport);
	list_init(&request->rpc.link);
	request->message.payload = NET_PAYLOAD_NONE;
	list_push_back(&peer->requests, &request->link);
	map_insert(&peer->by_id, &request->node, id_hash(peer, frame->id));
	peer->in_bytes += frame->payload;
	peer->refs++;
	peer_throttle(peer);
	if (frame->op == FRAME_LANE)
		lane_word(request);
	else if (frame->op == FRAME_PING)
		rpc_reply(&request->rpc, 0, NULL, NET_PAYLOAD_NONE);
	else
		server->ops->on_request(&request->rpc, server->arg);
}

static void on_reply_sent(struct conn_message *message, int status)
{
	(void)status; /* a peer that is gone needs no reply */
	request_free(container_of(message, struct request, message));
}

/* On the loop: the handler is done with the request. */
static void reply_send(struct request *request)
{
	struct rpc_conn *peer = request->rpc.conn;
	struct frame *reply = &request->reply;

	list_remove(&request->link);
	map_remove(&peer->by_id, &request->node);
	peer->in_bytes -= request->rpc.frame.payload;
	if (!peer->conn.transport) {
		request_free(request);
		return;
	}
	if (request->rpc.cancelled) {
		net_payload_release(&request->message.payload);
		*reply = (struct frame){ .status = -ECANCELED };
	}
	reply->op = request->rpc.frame.op;
	reply->class = request->rpc.frame.class;
	reply->id = request->rpc.frame.id;
	reply->volume = request->rpc.frame.volume;
	reply->lineage = request->rpc.frame.lineage;
	reply->flags |= FRAME_REPLY;
	reply->lane = 0;
	reply->payload =
		(uint32_t)min(net_payload_bytes(&request->message.payload), (size_t)UINT32_MAX);
	if (frame_check(reply) < 0 || (uint64_t)reply->checksums * 8 > reply->payload) {
		/* The handler's answer does not fit in a frame: the caller gets that error instead. */
		net_payload_release(&request->message.payload);
		reply->status = -EMSGSIZE;
		reply->length = 0;
		reply->checksums = 0;
	}
	request->message.done = on_reply_sent;
	if (by_lane(request))
		return;
	conn_send(&peer->conn, &request->message, reply);
	peer_throttle(peer);
}

static void on_reply_task(struct loop_task *task)
{
	reply_send(container_of(task, struct request, task));
}

void rpc_reply(
	struct rpc_request *rpc, int status, const struct frame *reply, struct net_payload payload)
{
	struct request *request = container_of(rpc, struct request, rpc);
	struct loop *loop = rpc->conn->server->loop;

	CHECK_MAGIC(request, REQUEST_MAGIC);
	ensure(!atomic_exchange(&request->replied, true));
	ensure(payload.pipe <= 0 || (rpc->pipe_ok && status == 0));
	if (reply)
		request->reply = *reply;
	request->reply.status = status;
	request->message.payload = payload;
	if (loop_on_thread(loop)) {
		reply_send(request);
		return;
	}
	request->task.run = on_reply_task;
	loop_post(loop, &request->task);
}

void rpc_reply_err(struct rpc_request *rpc, int status, const struct err *e)
{
	struct net_payload payload = NET_PAYLOAD_NONE;
	char *text = e && e->text[0] ? strdup(e->text) : NULL;

	if (text) { /* without memory only the status is sent */
		payload.parts[0].data = text;
		payload.parts[0].len = strlen(text);
		payload.n = 1;
		payload.release = free;
		payload.arg = text;
	}
	rpc_reply(rpc, status, NULL, payload);
}

/* ---- connections ----------------------------------------------------------------------------- */

static void greeted(struct rpc_conn *peer)
{
	if (list_empty(&peer->greeting))
		return;
	list_remove(&peer->greeting);
	peer->server->n_greeting--;
}

/* Counts a connection of a token, which may have so many that there is room for others. */
static int count_connection(struct rpc_conn *peer)
{
	uint32_t most = min(peer->server->max_conns / 2, LIMIT_TOKEN_CONNS);
	int r = allowance_get(&peer->conn.identity, &peer->allowance);

	if (r < 0)
		return r;
	peer->counted = allowance_take(peer->allowance, ALLOWANCE_CONNECTIONS, most);
	return peer->counted ? 0 : -EMFILE;
}

static void on_ready(struct conn *conn)
{
	struct rpc_conn *peer = peer_of(conn);
	int r;

	greeted(peer); /* the client sends its greeting first */
	r = count_connection(peer);
	if (r == 0)
		return;
	LOG_LIMITED(LOG_WARN, "connection of a token refused",
		"open=%u error=%s next=\"the peer tries again\"",
		allowance_used(peer->allowance, ALLOWANCE_CONNECTIONS), err_name(r));
	conn_close(conn, r);
}

static void on_drained(struct conn *conn)
{
	peer_throttle(peer_of(conn));
}

static void on_conn_closed(struct conn *conn, int status)
{
	struct rpc_conn *peer = peer_of(conn);
	struct list *node;

	if (status != -ECONNRESET && status != -ECANCELED && status != -EPIPE)
		LOG_LIMITED(LOG_DEBUG, "connection dropped", "process=%s pid=%u error=%s",
			conn->peer.process, conn->peer.pid, err_name(status));
	greeted(peer);
	if (peer->counted)
		allowance_give(peer->allowance, ALLOWANCE_CONNECTIONS);
	list_remove(&peer->link);
	peer->server->n_conns--;
	while ((node = list_pop_front(&peer->requests)) != NULL)
		request_cancel(list_entry(node, struct request, link));
	if (peer->lane)
		lane_replies_end(TAKE(peer->lane));
	if (peer->server->ops->on_close)
		peer->server->ops->on_close(peer, peer->server->arg);
	peer_unref(peer);
}

static const struct conn_ops peer_ops = {
	.on_ready = on_ready,
	.on_header = on_header,
	.on_message = on_message,
	.on_drained = on_drained,
	.on_closed = on_conn_closed,
};

static void on_refused(void *arg, int status)
{
	(void)arg;
	(void)status; /* no connection was made of it */
}

static void refuse(struct transport *transport, int status)
{
	static const struct transport_events refused = { .on_closed = on_refused };

	transport->ops->start(transport, &refused, NULL);
	transport->ops->close(transport, status);
}

/* Peers that do not greet must not keep others out. The oldest connection without a greeting is closed when there are too many of
 * them and it has had its time, so that many peers may connect at once; or at any age when the server is full. */
static void make_room(struct rpc_server *server, bool room)
{
	struct rpc_conn *oldest;

	if (server->n_greeting == 0 || (room && server->n_greeting < LIMIT_CONNS_GREETING))
		return;
	oldest = list_entry(server->greeting.next, struct rpc_conn, greeting);
	if (room && clock_mono_ns() - oldest->conn.began_ns < GREETING_LEAST_NS)
		return;
	greeted(oldest);
	conn_close(&oldest->conn, -ETIMEDOUT);
}

static void on_accept(void *arg, struct transport *transport)
{
	struct rpc_server *server = arg;
	bool room = server->n_conns < server->max_conns;
	struct hello_master self = { 0 };
	struct rpc_conn *peer;

	if (!server->closing)
		make_room(server, room);
	if (server->closing || !room || !arena_take(ARENA_CONNECTIONS, BUDGET_DEMAND, CONN_BYTES)) {
		if (!server->closing)
			LOG_LIMITED(LOG_WARN, "connection refused",
				"why=\"%s\" open=%u max=%u next=\"the peer tries again\"",
				room ? "no memory" : "too many", server->n_conns,
				server->max_conns);
		refuse(transport, -EMFILE);
		return;
	}
	peer = calloc(1, sizeof(*peer));
	if (!peer || map_init(&peer->by_id, CONN_BUCKETS) < 0) {
		free(peer);
		arena_give(ARENA_CONNECTIONS, CONN_BYTES);
		refuse(transport, -ENOMEM);
		return;
	}
	bound_add(BOUND_CONNECTIONS, 1);
	peer->magic = PEER_MAGIC;
	peer->server = server;
	peer->refs = 1;
	list_init(&peer->requests);
	list_init(&peer->greeting);
	list_push_back(&server->conns, &peer->link);
	server->n_conns++;
	list_push_back(&server->greeting, &peer->greeting);
	server->n_greeting++;
	server_hold(server);
	if (server->ops->identify)
		self = server->ops->identify(server->arg);
	conn_accept(&peer->conn, transport, &peer_ops, &self);
}

/* ---- the server ------------------------------------------------------------------------------ */

static void on_watch(uv_timer_t *timer)
{
	struct rpc_server *server = timer->data;
	uint64_t now = clock_mono_ns();

	list_for_each (node, &server->conns) {
		struct rpc_conn *peer = list_entry(node, struct rpc_conn, link);

		peer_throttle(peer); /* other connections may be below the limits again */
		conn_watch(&peer->conn, now);
	}
}

static void handle_closed(struct rpc_server *server)
{
	if (--server->handles == 0)
		server_drop(server);
}

static void on_timer_closed(uv_handle_t *handle)
{
	handle_closed(handle->data);
}

static void on_listener_closed(void *arg)
{
	handle_closed(arg);
}

static void start_on_loop(void *arg)
{
	struct rpc_server *server = arg;

	ensure(uv_timer_init(loop_uv(server->loop), &server->watch) == 0);
	server->watch.data = server;
	(void)uv_timer_start(
		&server->watch, on_watch, WATCH_MS, WATCH_MS); /* fails only without a callback */
	server->handles++;
}

static void stop_on_loop(void *arg)
{
	struct rpc_server *server = arg;

	server->closing = true;
	uv_close((uv_handle_t *)&server->watch, on_timer_closed);
	if (server->listener) {
		server->handles++;
		server->listener->ops->unlisten(server->listener);
	}
	list_for_each (node, &server->conns)
		conn_close(&list_entry(node, struct rpc_conn, link)->conn, -ECANCELED);
}

int rpc_server_new(struct loop *loop, const char *address, const struct rpc_server_ops *ops,
	void *arg, struct rpc_server **ret_server, struct err *e)
{
	struct transport_listener user = { .on_accept = on_accept,
		.on_closed = on_listener_closed };
	const struct transport_ops *transport;
	struct rpc_server *server;
	const char *where;
	int r = transport_find(address, &transport, &where, e);

	if (r < 0)
		return r;
	server = calloc(1, sizeof(*server));
	if (!server)
		return err_set(e, -ENOMEM, "no memory to listen on '%s'", address);
	server->magic = SERVER_MAGIC;
	server->loop = loop;
	server->ops = ops;
	server->arg = arg;
	server->alive = 1;
	server->max_conns = bounds_connection_share(CONNS_LEAST, LIMIT_CONNS);
	bound_raise_max(BOUND_CONNECTIONS, server->max_conns);
	bound_raise_max(BOUND_REQUESTS, LIMIT_REQUESTS);
	hash_random(&server->seed, sizeof(server->seed));
	list_init(&server->conns);
	list_init(&server->greeting);
	pthread_mutex_init(&server->lock, NULL);
	pthread_cond_init(&server->idle, NULL);
	loop_call(loop, start_on_loop, server);
	user.arg = server;
	r = transport->listen(loop, where, &user, &server->listener, e);
	if (r < 0) {
		server->listener = NULL; /* one that could not start is freed already */
		rpc_server_free(server);
		return r;
	}
	*ret_server = server;
	return 0;
}

const struct peer_identity *rpc_conn_peer(const struct rpc_conn *peer)
{
	CHECK_MAGIC(peer, PEER_MAGIC);
	return &peer->conn.identity;
}

struct allowance *rpc_conn_allowance(const struct rpc_conn *peer)
{
	CHECK_MAGIC(peer, PEER_MAGIC);
	return peer->allowance;
}

const char *rpc_server_address(const struct rpc_server *server)
{
	CHECK_MAGIC(server, SERVER_MAGIC);
	return server->listener->address;
}

void rpc_server_free(struct rpc_server *server)
{
	if (!server)
		return;
	CHECK_MAGIC(server, SERVER_MAGIC);
	ensure(!loop_on_thread(server->loop));
	loop_call(server->loop, stop_on_loop, server);
	pthread_mutex_lock(&server->lock);
	while (server->alive > 0)
		pthread_cond_wait(&server->idle, &server->lock);
	pthread_mutex_unlock(&server->lock);
	pthread_cond_destroy(&server->idle);
	pthread_mutex_destroy(&server->lock);
	bound_raise_max(BOUND_CONNECTIONS, -(uint64_t)server->max_conns);
	bound_raise_max(BOUND_REQUESTS, -(uint64_t)LIMIT_REQUESTS);
	server->magic = 0;
	free(server);
}
