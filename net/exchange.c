/*
 * One call of a client and what the wire needs of it. See client_internal.h.
 *
 * A struct rpc_call is the caller's and gone after on_done; what the wire still needs after that (the rest of a frame
 * that is half sent, the memory of an id whose late reply must be known) is in the exchange:
 *
 *	state       leaves by
 *	WAITING     connection ready, room -> SENT; deadline, cancel -> ended
 *	SENT        reply -> ended;
 *		    connection lost: `resend` or nothing on the wire yet -> WAITING, else -> ended;
 *		    deadline, cancel: nothing on the wire yet -> ended,
 *		    else FRAME_CANCEL, -> ABANDONED
 *	ABANDONED   reply (dropped), connection lost -> freed
 *	(ended)     on_done was called; freed when no queue holds its messages
 */
#include "net/client_internal.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/deadline.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct exchange *exchange_find(struct rpc_client *client, uint64_t id)
{
	for (struct map_node *node = map_first(&client->by_id, id); node;
		node = map_next_same(node)) {
		struct exchange *x = container_of(node, struct exchange, node);

		if (x->frame.id == id)
			return x;
	}
	return NULL;
}

static bool exchange_in_map(const struct exchange *x)
{
	return x->state != EXCHANGE_WAITING;
}

void exchange_settle(struct exchange *x)
{
	if (x->call || x->message_queued || x->cancel_queued || exchange_in_map(x))
		return;
	net_payload_release(&x->message.payload);
	free(x);
}

void exchange_forget_id(struct exchange *x)
{
	if (!exchange_in_map(x))
		return;
	map_remove(&x->client->by_id, &x->node);
	x->state = EXCHANGE_WAITING;
}

void exchange_call_end(struct rpc_client *client, struct rpc_call *call, int status)
{
	pthread_mutex_lock(&client->lock);
	call->state = CALL_ENDED;
	list_remove(&call->cancel_link);
	pthread_mutex_unlock(&client->lock);
	call->priv = NULL;
	call->on_done(call, status);
}

void exchange_end(struct exchange *x, int status)
{
	struct rpc_call *call = TAKE(x->call);

	list_remove(&x->link);
	wheel_remove(&x->deadline);
	exchange_call_end(x->client, call, status);
}

void exchange_set_text(struct rpc_call *call, const char *text)
{
	size_t len = strlen(text);

	call->reply_payload = strdup(text); /* without memory the status alone must do */
	call->reply.payload = call->reply_payload ? (uint32_t)len : 0;
}

static void on_cancel_sent(struct conn_message *message, int status)
{
	struct exchange *x = container_of(message, struct exchange, cancel);

	(void)status; /* a lost connection cancels as well */
	x->cancel_queued = false;
	exchange_settle(x);
}

void exchange_abort(struct exchange *x, int status)
{
	struct rpc_client *client = x->client;

	if (x->state == EXCHANGE_SENT && x->message_queued &&
		conn_recall(&client->conn, &x->message)) {
		x->message_queued = false;
		exchange_forget_id(x);
		lane_calls_detach(x, true);
	} else if (x->state == EXCHANGE_SENT && client->conn.transport) {
		struct frame cancel = { .op = FRAME_CANCEL, .id = x->frame.id };

		x->state = EXCHANGE_ABANDONED;
		x->cancel.payload = NET_PAYLOAD_NONE;
		x->cancel.done = on_cancel_sent;
		x->cancel_queued = true;
		conn_send(&client->conn, &x->cancel, &cancel);
	}
	lane_calls_detach(x, false);
	if (status == -ETIMEDOUT && !client->connected) {
		char text[ERR_TEXT_MAX + 64];

		(void)snprintf(text, sizeof(text), "no connection to %s: %s", client->address,
			client->last.text[0] ? client->last.text : "no answer yet"); /* fits */
		exchange_set_text(x->call, text);
	}
	exchange_end(x, status);
	exchange_settle(x);
}

static void on_request_sent(struct conn_message *message, int status)
{
	struct exchange *x = container_of(message, struct exchange, message);

	x->message_queued = false;
	if (status == 0 && !x->resend)
		net_payload_release(&x->message.payload);
	exchange_settle(x);
}

void exchange_send(struct exchange *x)
{
	struct rpc_client *client = x->client;

	if (x->until_ns && deadline_to_ms(x->until_ns, clock_mono_ns(), &x->frame.left_ms) < 0) {
		exchange_abort(x, -ETIMEDOUT); /* what is left is too short for a frame */
		return;
	}
	list_remove(&x->link);
	list_push_back(&client->sent, &x->link);
	x->frame.id = client->next_id++;
	x->state = EXCHANGE_SENT;
	lane_calls_attach(x);
	map_insert(&client->by_id, &x->node, x->frame.id);
	x->message_queued = true;
	conn_send(&client->conn, &x->message, &x->frame);
}

struct exchange *exchange_new(
	struct rpc_client *client, struct rpc_call *call, const struct frame *frame)
{
	struct exchange *x = calloc(1, sizeof(*x));

	if (!x)
		return NULL;
	x->client = client;
	x->call = call;
	x->frame = *frame;
	x->resend = call->resend;
	x->hurry = call->hurry;
	x->until_ns = call->until_ns ? call->until_ns : call->deadline_ns;
	x->message.payload = call->payload;
	x->message.done = on_request_sent;
	list_init(&x->deadline.link);
	call->payload = NET_PAYLOAD_NONE;
	return x;
}
