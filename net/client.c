/*
 * The client: calls pipelined by id over one connection, their deadlines and cancels, and reconnecting. See net.h.
 *
 * Other threads put calls and cancels into the inbox; everything else happens on the loop. exchange.c has the states of a call.
 */
#include "net/client_internal.h"
#include "net/keys_internal.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CLIENT_BUCKETS 512 /* of calls by id; a mount has a client for each worker */
#define WATCH_MS       1000
#define MISSED_NS      (5 * CLOCK_SECOND) /* eager after a call without a connection */

static void client_hasten(struct rpc_client *client);

/* ---- calls ----------------------------------------------------------------------------------- */

/* Whether one end of the connection refused the other's proof, or got none. */
static bool is_distrust(int status)
{
	return status == -EKEYREJECTED || status == -EKEYREVOKED || status == -EPFNOSUPPORT;
}

/* The status of a call that was not sent because `status` ended the connection or the attempt. It lets the caller try again:
 * keys change, tokens are renewed, memory becomes available, and anybody on the path can damage a handshake or a record. */
static int unsent_status(int status)
{
	if (is_distrust(status) || status == -ENOKEY)
		return -ECONNREFUSED;
	return status == -EPROTO || status == -ENOMEM ? -ECONNRESET : status;
}

static int why_unconnected(const struct rpc_client *client)
{
	return client->last.code < 0 ? client->last.code : -ECONNREFUSED;
}

/* There is no connection: ends calls that can be sent to another peer and so do not wait for the next connection. */
static void end_hurried(struct rpc_client *client, int status)
{
	list_for_each_safe (node, &client->waiting) {
		struct exchange *x = list_entry(node, struct exchange, link);

		if (!x->hurry)
			continue;
		client->missed_ns = clock_mono_ns();
		exchange_end(x, status);
		exchange_settle(x);
	}
}

/* The connection was lost, or the last attempt failed, and there is no connection yet. An attempt may be in progress, which takes
 * long when the peer's host does not answer. */
static bool is_away(struct rpc_client *client)
{
	return !client->connected &&
	       (client->last.code < 0 || uv_is_active((uv_handle_t *)&client->reconnect));
}

/* On the loop: starts a call from the inbox. */
static void call_start(struct rpc_client *client, struct rpc_call *call)
{
	struct frame frame = call->frame;
	struct exchange *x = NULL;
	int r = client->closing ? -ECANCELED : 0;

	frame.flags &= (uint16_t) ~(FRAME_REPLY | FRAME_FD);
	frame.status = 0;
	frame.lane = 0;
	frame.left_ms = 0;
	frame.payload = (uint32_t)min(net_payload_bytes(&call->payload), (size_t)UINT32_MAX);
	if (r == 0 && call->deadline_ns && call->deadline_ns <= clock_mono_ns())
		r = -ETIMEDOUT;
	if (r == 0)
		r = frame_check(&frame);
	if (r == 0 && call->hurry && is_away(client)) {
		client->missed_ns = clock_mono_ns();
		r = unsent_status(why_unconnected(client));
	}
	if (r == 0)
		x = exchange_new(client, call, &frame);
	if (!x) {
		net_payload_release(&call->payload);
		exchange_call_end(client, call, r < 0 ? r : -ENOMEM);
		return;
	}
	call->priv = x;
	list_push_back(&client->waiting, &x->link);
	if (call->deadline_ns)
		wheel_add(&client->wheel, &x->deadline, call->deadline_ns);
}

/* ---- replies --------------------------------------------------------------------------------- */

static struct rpc_client *client_of(struct conn *conn)
{
	struct rpc_client *client = container_of(conn, struct rpc_client, conn);

	CHECK_MAGIC(client, CLIENT_MAGIC);
	return client;
}

static int on_header(struct conn *conn, const struct frame *frame)
{
	struct exchange *x;

	if (!(frame->flags & FRAME_REPLY))
		return -EPROTO; /* a client takes no requests */
	x = exchange_find(client_of(conn), frame->id);
	/* A request that was not sent has no reply. One that was sent cannot be recalled. */
	return x && x->frame.op == frame->op && x->message.transport.sent > 0
		       ? lane_calls_check(x, frame)
		       : -EPROTO;
}

static void on_message(struct conn *conn, const struct frame *frame, void *payload, int fd)
{
	struct rpc_client *client = client_of(conn);
	struct exchange *x = exchange_find(client, frame->id);
	struct rpc_call *call;
	int status = frame->status;

	ensure(x); /* checked by on_header(); an id is valid until its reply, or until the connection ends */
	backoff_reset(&client->backoff);
	exchange_forget_id(x);
	if (lane_calls_reply(x, frame, payload)) {
		client_pump(client);
		return;
	}
	call = x->call;
	if (!call) {
		free(payload);
		if (fd >= 0)
			(void)close(fd); /* of a late reply */
		exchange_settle(x);
		client_pump(client);
		return;
	}
	call->reply = *frame;
	call->reply.flags &= (uint16_t)~FRAME_FD;
	call->reply_payload = payload;
	call->reply_fd = fd;
	if (frame->flags & FRAME_FD && fd < 0 && status == 0)
		status = -EMFILE;
	exchange_end(x, status);
	exchange_settle(x);
	if (!list_empty(&client->waiting))
		client_pump(client);
}

/* ---- connection ------------------------------------------------------------------------------ */

static void client_connect(struct rpc_client *client);

static void on_reconnect(uv_timer_t *timer)
{
	client_connect(timer->data);
}

/* Connects again after the backoff. */
static void client_retry(struct rpc_client *client)
{
	if (client->closing)
		return;
	uv_update_time(loop_uv(client->loop));
	(void)uv_timer_start(&client->reconnect, on_reconnect,
		backoff_next(&client->backoff) / CLOCK_MS + 1, 0); /* has a callback */
	client_hasten(client);
}

static bool is_missed(const struct rpc_client *client)
{
	return !list_empty(&client->waiting) ||
	       (client->missed_ns && clock_mono_ns() - client->missed_ns < MISSED_NS);
}

/* Calls wait, or one ended a moment ago without a connection: shortens the pause before the next attempt to `eager_ns`. */
static void client_hasten(struct rpc_client *client)
{
	uint64_t ms;

	if (!client->eager_ns || client->refused || client->closing || !is_missed(client) ||
		!uv_is_active((uv_handle_t *)&client->reconnect) ||
		uv_timer_get_due_in(&client->reconnect) <= client->eager_ns / CLOCK_MS)
		return;
	ms = backoff_spread(client->eager_ns, BACKOFF_HALF) / CLOCK_MS + 1;
	(void)uv_timer_start(&client->reconnect, on_reconnect, ms, 0); /* has a callback */
}

static void on_ready(struct conn *conn)
{
	struct rpc_client *client = client_of(conn);

	if (client->fence && fence_check(client->fence, &conn->peer.master, client->address,
				     &client->last) < 0) {
		client->fenced = true;
		conn_close(conn, -ECONNREFUSED);
		return;
	}
	client->connected = true;
	client->last = ERR_INIT;
	lane_calls_start(client);
	client_pump(client);
	if (client->on_connected)
		client->on_connected(client->connected_arg);
}

static void on_drained(struct conn *conn)
{
	client_pump(client_of(conn));
}

/* A call that was sent and not answered: it waits for the next connection, in the same order, or ends. */
static void exchange_lost(struct exchange *x, bool refused, struct list *again)
{
	/* A peer that refuses the connection has processed no request. */
	bool started = x->message.transport.sent > 0 && !refused;

	exchange_forget_id(x);
	lane_calls_lost(x);
	if (x->call && !x->hurry && (x->resend || !started)) {
		list_remove(&x->link);
		list_push_back(again, &x->link);
		return;
	}
	if (x->call)
		exchange_end(x, -ECONNRESET);
	exchange_settle(x);
}

static void forget_abandoned(struct map_node *node, void *arg)
{
	struct exchange *x = container_of(node, struct exchange, node);

	(void)arg;
	if (x->state != EXCHANGE_ABANDONED)
		return;
	exchange_forget_id(x);
	lane_calls_lost(x);
	exchange_settle(x);
}

/* Stores in `last` why there is no connection. */
static void explain_lost(struct rpc_client *client, int status)
{
	if (status == -EPROTONOSUPPORT)
		(void)err_set(&client->last, status,
			"%s uses another version of the protocol (this process uses %u): upgrade "
			"the older of the two",
			client->address, FRAME_VERSION);
	else if (is_distrust(status))
		keys_explain_refusal(client->address, status, &client->last);
	else if (status == -ENOMEM)
		(void)err_set(&client->last, status, "the connection to %s failed: out of memory",
			client->address);
	else
		(void)err_set(
			&client->last, status, "the connection was lost: %s", err_str(status));
}

static void on_closed(struct conn *conn, int status)
{
	struct rpc_client *client = client_of(conn);
	struct list again = LIST_INIT(again);
	bool fenced = client->fenced;
	/* All calls end now, because the next attempt is likely to fail, too. */
	bool refused = fenced || status == -EPROTONOSUPPORT || is_distrust(status);

	client->fenced = false;
	client->has_conn = false;
	client->connected = false;
	client->refused = refused;
	if (!fenced)
		explain_lost(client, status);
	LOG_LIMITED(LOG_DEBUG, "connection lost", "address=%s error=%s", client->address,
		err_name(status));
	map_each(&client->by_id, forget_abandoned, NULL);
	while (!list_empty(&client->sent))
		exchange_lost(
			list_entry(client->sent.next, struct exchange, link), refused, &again);
	lane_calls_end(client);
	list_splice_back(&again, &client->waiting);
	list_splice_back(&client->waiting, &again);
	if (refused)
		while (!list_empty(&client->waiting)) {
			struct exchange *x =
				list_entry(client->waiting.next, struct exchange, link);

			exchange_set_text(x->call, client->last.text);
			exchange_end(x, unsent_status(status));
			exchange_settle(x);
		}
	end_hurried(client, unsent_status(why_unconnected(client)));
	client_retry(client);
	client_check_gone(client);
}

static const struct conn_ops client_conn_ops = {
	.on_ready = on_ready,
	.on_header = on_header,
	.on_message = on_message,
	.on_drained = on_drained,
	.on_closed = on_closed,
};

static void client_connect(struct rpc_client *client)
{
	int r;

	if (client->has_conn || client->closing)
		return;
	r = conn_connect(&client->conn, client->loop, client->transport, client->where,
		&client_conn_ops, &client->last);
	if (r < 0) {
		end_hurried(client, unsent_status(why_unconnected(client)));
		client_retry(client);
		return;
	}
	client->has_conn = true;
	if (client->patience_ns && client->transport->patience)
		client->transport->patience(
			client->conn.transport, (uint32_t)(client->patience_ns / CLOCK_MS));
}

/* Sends waiting calls, as far as the connection and its limits allow. */
void client_pump(struct rpc_client *client)
{
	while (client->connected && client->conn.transport && !client->conn.congested &&
		!list_empty(&client->waiting) && client->by_id.count < LIMIT_CONN_REQUESTS)
		exchange_send(list_entry(client->waiting.next, struct exchange, link));
}

/* ---- deadlines ------------------------------------------------------------------------------- */

static void arm_deadlines(struct rpc_client *client);

static void on_deadlines(uv_timer_t *timer)
{
	struct rpc_client *client = timer->data;
	struct list expired = LIST_INIT(expired);
	struct list *node;

	wheel_advance(&client->wheel, clock_mono_ns(), &expired);
	while ((node = list_pop_front(&expired)) != NULL)
		exchange_abort(list_entry(node, struct exchange, deadline.link), -ETIMEDOUT);
	arm_deadlines(client);
}

static void arm_deadlines(struct rpc_client *client)
{
	uint64_t next = wheel_next_ns(&client->wheel);
	uint64_t now = clock_mono_ns();

	if (next == UINT64_MAX || client->closing) {
		(void)uv_timer_stop(&client->deadlines); /* never fails */
		return;
	}
	uv_update_time(loop_uv(client->loop));
	(void)uv_timer_start(&client->deadlines, on_deadlines,
		next > now ? (next - now) / CLOCK_MS + 1 : 0, 0); /* has a callback */
}

static void on_watch(uv_timer_t *timer)
{
	struct rpc_client *client = timer->data;
	uint64_t now = clock_mono_ns();

	if (client->has_conn && !client->connected && client->patience_ns &&
		now - client->conn.began_ns > client->patience_ns)
		conn_close(&client->conn, -ETIMEDOUT);
	conn_watch(&client->conn, now);
	lane_calls_watch(client);
}

/* ---- inbox ----------------------------------------------------------------------------------- */

/* The list is used on the loop only, but rpc_cancel() reads its links. */
static struct rpc_call *pop_cancel(struct rpc_client *client, struct list *cancels)
{
	struct list *node;

	pthread_mutex_lock(&client->lock);
	node = list_pop_front(cancels);
	pthread_mutex_unlock(&client->lock);
	return node ? list_entry(node, struct rpc_call, cancel_link) : NULL;
}

static void on_wake(struct loop_task *task)
{
	struct rpc_client *client = container_of(task, struct rpc_client, wake);
	struct list starts = LIST_INIT(starts);
	struct list cancels = LIST_INIT(cancels);
	struct rpc_call *call;
	struct list *node;

	CHECK_MAGIC(client, CLIENT_MAGIC);
	pthread_mutex_lock(&client->lock);
	client->woken = false;
	list_splice_back(&starts, &client->starts);
	list_splice_back(&cancels, &client->cancels); /* of calls in `starts` or before */
	pthread_mutex_unlock(&client->lock);
	if (!list_empty(&starts))
		client->wanted = true;
	while ((node = list_pop_front(&starts)) != NULL)
		call_start(client, list_entry(node, struct rpc_call, link));
	while ((call = pop_cancel(client, &cancels)) != NULL)
		exchange_abort(call->priv, -ECANCELED);
	if (client->wanted && !client->has_conn && !uv_is_active((uv_handle_t *)&client->reconnect))
		client_connect(client);
	client_hasten(client);
	client_pump(client);
	arm_deadlines(client);
	client_check_gone(client);
}

/* Posts the wake-up unless one is in flight. Called with the lock held, which it releases. */
static void wake_and_unlock(struct rpc_client *client)
{
	bool post = !client->woken;

	client->woken = true;
	if (post)
		loop_post(client->loop, &client->wake); /* locked: rpc_client_free() waits */
	pthread_mutex_unlock(&client->lock);
}

void rpc_call(struct rpc_client *client, struct rpc_call *call)
{
	CHECK_MAGIC(client, CLIENT_MAGIC);
	call->reply = (struct frame){ 0 };
	call->reply_payload = NULL;
	call->reply_fd = -1;
	call->priv = NULL;
	list_init(&call->cancel_link);
	pthread_mutex_lock(&client->lock);
	call->state = CALL_ACTIVE;
	list_push_back(&client->starts, &call->link);
	wake_and_unlock(client);
}

void rpc_cancel(struct rpc_client *client, struct rpc_call *call)
{
	CHECK_MAGIC(client, CLIENT_MAGIC);
	pthread_mutex_lock(&client->lock);
	if (call->state == CALL_ENDED || !list_empty(&call->cancel_link)) {
		pthread_mutex_unlock(&client->lock);
		return;
	}
	list_push_back(&client->cancels, &call->cancel_link);
	wake_and_unlock(client);
}

void rpc_call_release(struct rpc_call *call)
{
	free(TAKE(call->reply_payload));
	if (call->reply_fd >= 0)
		(void)close(TAKE_FD(call->reply_fd)); /* only read from */
}

/* ---- the client ------------------------------------------------------------------------------ */

/* Lets rpc_client_free() continue when no handle is open and no task is posted. The loop does not use the client
 * afterwards. */
void client_check_gone(struct rpc_client *client)
{
	if (!client->closing || client->has_conn || client->handles > 0)
		return;
	pthread_mutex_lock(&client->lock);
	if (!client->woken) {
		client->gone = true;
		pthread_cond_signal(&client->idle);
	}
	pthread_mutex_unlock(&client->lock);
}

static void on_handle_closed(uv_handle_t *handle)
{
	struct rpc_client *client = handle->data;

	client->handles--;
	client_check_gone(client);
}

static void start_on_loop(void *arg)
{
	struct rpc_client *client = arg;
	uv_timer_t *timers[] = { &client->deadlines, &client->reconnect, &client->watch };

	for (unsigned int i = 0; i < ARRAY_SIZE(timers); i++) {
		ensure(uv_timer_init(loop_uv(client->loop), timers[i]) == 0);
		timers[i]->data = client;
		client->handles++;
	}
	(void)uv_timer_start(&client->watch, on_watch, WATCH_MS, WATCH_MS); /* has a callback */
}

static void end_all(struct list *exchanges)
{
	while (!list_empty(exchanges)) {
		struct exchange *x = list_entry(exchanges->next, struct exchange, link);

		lane_calls_lost(x);
		if (x->state == EXCHANGE_SENT)
			x->state = EXCHANGE_ABANDONED; /* its id ends with the connection */
		exchange_end(x, -ECANCELED);
		exchange_settle(x);
	}
}

static void stop_on_loop(void *arg)
{
	struct rpc_client *client = arg;

	client->closing = true;
	client->connected = false;
	end_all(&client->sent);
	end_all(&client->waiting);
	conn_close(&client->conn, -ECANCELED);
	uv_close((uv_handle_t *)&client->deadlines, on_handle_closed);
	uv_close((uv_handle_t *)&client->reconnect, on_handle_closed);
	uv_close((uv_handle_t *)&client->watch, on_handle_closed);
}

int rpc_client_new(
	struct loop *loop, const char *address, struct rpc_client **ret_client, struct err *e)
{
	struct rpc_client *client = calloc(1, sizeof(*client));
	int r;

	if (!client || map_init(&client->by_id, CLIENT_BUCKETS) < 0 ||
		!(client->address = strdup(address))) {
		r = err_set(e, -ENOMEM, "no memory to connect to '%s'", address);
		goto fail;
	}
	r = transport_find(client->address, &client->transport, &client->where, e);
	if (r == 0)
		r = client->transport->check(client->where, e);
	if (r < 0)
		goto fail;
	client->magic = CLIENT_MAGIC;
	client->loop = loop;
	client->next_id = 1;
	client->backoff = (struct backoff){
		.min_ns = 10 * CLOCK_MS, .max_ns = 2 * CLOCK_SECOND, .spread = BACKOFF_HALF
	};
	client->wake.run = on_wake;
	list_init(&client->starts);
	list_init(&client->cancels);
	list_init(&client->waiting);
	list_init(&client->sent);
	wheel_init(&client->wheel, clock_mono_ns());
	pthread_mutex_init(&client->lock, NULL);
	pthread_cond_init(&client->idle, NULL);
	loop_call(loop, start_on_loop, client);
	*ret_client = client;
	return 0;
fail:
	if (client) {
		map_release(&client->by_id);
		free(client->address);
	}
	free(client);
	return r;
}

void rpc_client_fence(struct rpc_client *client, struct fence *fence)
{
	CHECK_MAGIC(client, CLIENT_MAGIC);
	client->fence = fence;
}

void rpc_client_patience(struct rpc_client *client, uint64_t ns)
{
	CHECK_MAGIC(client, CLIENT_MAGIC);
	client->patience_ns = ns;
}

void rpc_client_eager(
	struct rpc_client *client, uint64_t pause_ns, void (*on_connected)(void *arg), void *arg)
{
	CHECK_MAGIC(client, CLIENT_MAGIC);
	client->eager_ns = pause_ns;
	client->on_connected = on_connected;
	client->connected_arg = arg;
}

void rpc_client_free(struct rpc_client *client)
{
	if (!client)
		return;
	CHECK_MAGIC(client, CLIENT_MAGIC);
	ensure(!loop_on_thread(client->loop));
	loop_call(client->loop, stop_on_loop, client);
	pthread_mutex_lock(&client->lock);
	while (!client->gone)
		pthread_cond_wait(&client->idle, &client->lock);
	pthread_mutex_unlock(&client->lock);
	ensure(client->by_id.count == 0);
	map_release(&client->by_id);
	pthread_cond_destroy(&client->idle);
	pthread_mutex_destroy(&client->lock);
	client->magic = 0;
	free(client->address);
	free(client);
}

bool rpc_client_connected(const struct rpc_client *client)
{
	CHECK_MAGIC(client, CLIENT_MAGIC);
	return client->connected;
}

uint64_t rpc_client_received(const struct rpc_client *client)
{
	CHECK_MAGIC(client, CLIENT_MAGIC);
	return client->has_conn && client->conn.transport ? client->conn.transport->bytes_in : 0;
}

bool rpc_client_idle(struct rpc_client *client)
{
	bool idle;

	CHECK_MAGIC(client, CLIENT_MAGIC);
	pthread_mutex_lock(&client->lock);
	idle = list_empty(&client->starts) && list_empty(&client->cancels);
	pthread_mutex_unlock(&client->lock);
	return idle && list_empty(&client->waiting) && list_empty(&client->sent) &&
	       client->by_id.count == 0;
}

const char *rpc_client_trouble(const struct rpc_client *client)
{
	CHECK_MAGIC(client, CLIENT_MAGIC);
	return client->last.text;
}

/* ---- blocking -------------------------------------------------------------------------------- */

struct wait {
	pthread_mutex_t lock;
	pthread_cond_t ended;
	bool done;
	int status;
};

static void on_wait_done(struct rpc_call *call, int status)
{
	struct wait *wait = call->arg;

	pthread_mutex_lock(&wait->lock);
	wait->done = true;
	wait->status = status;
	pthread_cond_signal(&wait->ended);
	pthread_mutex_unlock(&wait->lock);
}

int rpc_call_wait(struct rpc_client *client, struct rpc_call *call, struct err *e)
{
	struct wait wait = { .done = false };
	char address[160];

	ensure(!loop_on_thread(client->loop));
	/* A client that is being freed ends the call, and may be freed before this thread continues. */
	(void)snprintf(address, sizeof(address), "%s", client->address); /* cut */
	pthread_mutex_init(&wait.lock, NULL);
	pthread_cond_init(&wait.ended, NULL);
	call->on_done = on_wait_done;
	call->arg = &wait;
	rpc_call(client, call);
	pthread_mutex_lock(&wait.lock);
	while (!wait.done)
		pthread_cond_wait(&wait.ended, &wait.lock);
	pthread_mutex_unlock(&wait.lock);
	pthread_cond_destroy(&wait.ended);
	pthread_mutex_destroy(&wait.lock);
	if (wait.status < 0) {
		if (call->reply_payload)
			return err_set(e, wait.status, "%s", (const char *)call->reply_payload);
		return err_set(e, wait.status,
			"request to %s failed: %s: see the log of the daemon there", address,
			err_str(wait.status));
	}
	return 0;
}
