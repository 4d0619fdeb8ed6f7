/* A request on its way. See client_ask.h. */
#include "client/client_ask.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/deadline.h"

#include <stdlib.h>

/* ---- facts about peers ----------------------------------------------------------------------- */

static bool replied(const struct rpc_call *call)
{
	return call->reply.flags & FRAME_REPLY;
}

static void note_peer(struct view *view, struct view_peer *peer, const struct rpc_call *call,
	uint64_t asked_ns, int status)
{
	if (!replied(call) && (status == -ECANCELED ||
				      (status == -ETIMEDOUT && rpc_client_connected(peer->rpc)))) {
		view_dropped(view, peer);
		return;
	}
	view_end(view, peer, clock_mono_ns() - asked_ns, !replied(call));
	if (status == 0)
		view_note_bytes(peer, call->reply.length);
	if (status == 0 && call->reply.flags & FRAME_MOVED)
		view_stale(view);
}

bool client_ask_unanswered(const struct client_op *op, int status)
{
	if (op->downed)
		return true;
	if (replied(&op->call))
		return status == -ECANCELED;
	return status != -ETIMEDOUT || !rpc_client_connected(op->owner->rpc);
}

/* ---- the second one -------------------------------------------------------------------------- */

static void on_hedge_done(struct rpc_call *call, int status)
{
	struct client_op *op = call->arg;
	struct client_hedge *hedge = &op->hedge;
	struct client *client = client_op_client(op);

	hedge->out = false;
	note_peer(client->view, hedge->peer, call, hedge->asked_ns, status);
	/* An answer of the wrong size is not waited for by anybody. */
	if (status == 0 && hedge->wanted && call->reply_payload &&
		call->reply.length == call->frame.length &&
		call->reply.payload ==
			(uint64_t)call->reply.length + (uint64_t)call->reply.checksums * 8) {
		counter_add(&client->counters.hedges_won, 1);
		hedge->won = true;
		rpc_cancel(op->owner->rpc, &op->call);
	} else {
		rpc_call_release(call);
	}
	client_op_unref(op);
}

/* Another one that may have the bytes: those that the slot names, or one that keeps all of the volume. */
static struct view_peer *find_other(const struct client_op *op)
{
	struct view *view = client_op_client(op)->view;
	uint64_t chunk = op->call.frame.offset >> CHUNK_BITS;
	struct view_peer *keeper;
	struct view_candidates c;

	view_find(view, op->volume->hash, chunk, &c);
	for (uint32_t i = 0; i < c.n_up; i++)
		if (c.peers[i] != op->owner && c.peers[i]->rpc)
			return c.peers[i];
	keeper = client_route_keeper(op->volume, chunk);
	return keeper && keeper != op->owner && keeper->rpc ? keeper : NULL;
}

static void on_hedge_timer(void *arg)
{
	struct client_op *op = arg;
	struct client *client = client_op_client(op);
	struct client_hedge *hedge = &op->hedge;

	hedge->timer = NULL;
	hedge->peer = find_other(op);
	if (!hedge->peer)
		return;
	pthread_mutex_lock(&client->lock);
	op->refs++;
	pthread_mutex_unlock(&client->lock);
	hedge->out = true;
	hedge->wanted = true;
	hedge->asked_ns = clock_mono_ns();
	hedge->call = (struct rpc_call){
		.frame = op->call.frame,
		.payload = NET_PAYLOAD_NONE,
		.deadline_ns =
			deadline_earlier(op->deadline_ns, hedge->asked_ns + DEADLINE_PROMPT_NS),
		.hurry = true,
		.on_done = on_hedge_done,
		.arg = op,
		.reply_fd = -1,
	};
	hedge->call.frame.op = FRAME_FETCH_CACHED;
	hedge->call.frame.flags = 0;
	counter_add(&client->counters.hedges, 1);
	view_hedged(client->view);
	view_begin(client->view, hedge->peer);
	rpc_call(hedge->peer->rpc, &hedge->call);
}

/* ---- the call -------------------------------------------------------------------------------- */

void client_ask(struct client_op *op, struct rpc_call call)
{
	struct client *client = client_op_client(op);
	uint64_t after = 0;

	op->asked_ns = clock_mono_ns();
	op->downed = false;
	op->call = call;
	if (call.frame.op == FRAME_FETCH && !op->owner->local && !op->hedge.out)
		after = view_hedge_after(client->view, op->owner);
	if (after) /* without memory for a timer there is none */
		op->hedge.timer = loop_timer_start(client->loop, after, on_hedge_timer, op);
	view_begin(client->view, op->owner);
	rpc_call(op->owner->rpc, &op->call);
}

int client_ask_ended(struct client_op *op, int status)
{
	struct client_hedge *hedge = &op->hedge;

	note_peer(client_op_client(op)->view, op->owner, &op->call, op->asked_ns, status);
	loop_timer_stop(hedge->timer);
	hedge->timer = NULL;
	hedge->wanted = false;
	if (hedge->out)
		rpc_cancel(hedge->peer->rpc, &hedge->call);
	op->asked_status = hedge->won ? 0 : status;
	if (!hedge->won)
		return status;
	hedge->won = false;
	rpc_call_release(&op->call);
	op->call.reply = hedge->call.reply;
	op->call.reply_payload = TAKE(hedge->call.reply_payload);
	op->call.reply_fd = TAKE_FD(hedge->call.reply_fd);
	return 0;
}

static void leave(struct client_op *op)
{
	op->downed = true;
	rpc_cancel(op->owner->rpc, &op->call);
}

static bool is_asking(const struct client_op *op)
{
	return (op->state == OP_FETCH || op->state == OP_RECHECK) && !op->downed;
}

/* Another one is asked, or the origin is: a worker that alone has what is wanted may answer yet. */
static bool has_choice(const struct client_op *op)
{
	return find_other(op) || op->volume->origin.allowed ||
	       !rpc_client_connected(op->owner->rpc);
}

void client_ask_watch(struct client_op *op)
{
	if (is_asking(op) && (view_down(op->owner) || view_hangs(op->owner)) && has_choice(op))
		leave(op);
}

void client_ask_hang(void *arg)
{
	struct client *client = arg;

	pthread_mutex_lock(&client->lock);
	list_for_each (node, &client->active)
		client_ask_watch(list_entry(node, struct client_op, link));
	pthread_mutex_unlock(&client->lock);
}
