/*
 * The lane of a client's connection: its words, and where the bytes of answers land. What client.c and exchange.c call is in
 * client_internal.h.
 *
 * A request with a destination has a landing, from the time when it is sent until the asker's verdict, which may come after the call has
 * ended: only then its memory is used again. A call whose lane broke is sent again without one, once its reply says that nothing
 * more comes of the first time.
 */
#include "net/client_internal.h"
#include "net/lane_word.h"
#include "net/lanes.h"
#include "base/clock.h"
#include "base/cleanup.h"
#include "base/log.h"

#include <stdlib.h>
#include <string.h>

#define CALLS_MAGIC 0x4c43414cu
#define SLOTS       32u
#define WORD_NS     (5 * CLOCK_SECOND)

struct lane_calls {
	uint32_t magic;
	struct rpc_client *client;
	struct lane_asker *asker; /* NULL: it is gone */
	unsigned int words;       /* in flight */
	struct loop_task gone;
	bool ended; /* the connection has */
};

struct lane_landing {
	struct lane_calls *calls;
	struct exchange *x; /* NULL: the call has ended */
	struct lane_destination destination;
	void *slot;
	struct frame reply;
	uint8_t *checksums; /* the reply's payload */
	bool replied;
};

struct word_call {
	struct rpc_call call;
	struct lane_calls *calls;
	struct lane_word word;
	uint8_t bytes[LANE_WORD_BYTES];
};

/* ---- words ----------------------------------------------------------------------------------- */

static void run_gone(struct loop_task *task)
{
	struct lane_calls *calls = container_of(task, struct lane_calls, gone);
	struct rpc_client *client = calls->client;

	CHECK_MAGIC(calls, CALLS_MAGIC);
	calls->magic = 0;
	free(calls);
	client->handles--;
	client_check_gone(client);
}

/* By a task, as the client may be in the middle of its own end. */
static void calls_check_gone(struct lane_calls *calls)
{
	if (calls->asker || calls->words > 0 || calls->gone.run)
		return;
	calls->gone.run = run_gone;
	loop_post(calls->client->loop, &calls->gone);
}

static void on_word_done(struct rpc_call *call, int status)
{
	struct word_call *w = container_of(call, struct word_call, call);
	struct lane_calls *calls = w->calls;
	struct lane_word reply;

	CHECK_MAGIC(calls, CALLS_MAGIC);
	calls->words--;
	if (calls->asker && !calls->ended) {
		if (status == 0 && w->word.kind == LANE_WORD_OPEN)
			status = lane_word_unpack(call->reply_payload, call->reply.payload, &reply);
		if (status < 0)
			lane_asker_broken(calls->asker, w->word.lane, LANE_PEER_CAUSE);
		else if (w->word.kind == LANE_WORD_OPEN)
			lane_asker_opened(calls->asker, w->word.lane, &reply.end);
	}
	rpc_call_release(call);
	free(w);
	calls_check_gone(calls);
}

static void send_word(struct lane_calls *calls, const struct lane_word *word)
{
	struct word_call *w = calloc(1, sizeof(*w));

	if (!w)
		return; /* what is set up ends after LANE_SETUP_NS */
	w->calls = calls;
	w->word = *word;
	lane_word_pack(word, w->bytes);
	w->call.frame.op = FRAME_LANE;
	w->call.payload = NET_PAYLOAD_NONE;
	w->call.payload.parts[0].data = w->bytes;
	w->call.payload.parts[0].len = sizeof(w->bytes);
	w->call.payload.n = 1;
	w->call.hurry = true;
	w->call.deadline_ns = clock_mono_ns() + WORD_NS;
	w->call.on_done = on_word_done;
	calls->words++;
	rpc_call(calls->client, &w->call);
}

static void send_open(void *arg, uint8_t lane, const struct lane_end *own)
{
	send_word(
		arg, &(struct lane_word){
			     .kind = LANE_WORD_OPEN, .lane = lane, .writes = SLOTS, .end = *own });
}

static void send_probe(void *arg, uint8_t lane)
{
	send_word(arg, &(struct lane_word){ .kind = LANE_WORD_PROVE, .lane = lane });
}

static void send_close(void *arg, uint8_t lane, enum lane_cause cause)
{
	send_word(arg, &(struct lane_word){
			       .kind = LANE_WORD_CLOSE, .lane = lane, .cause = (uint8_t)cause });
}

/* ---- verdicts -------------------------------------------------------------------------------- */

static void on_change(void *arg)
{
	struct lane_calls *calls = arg;
	struct lane_asker_state state;

	CHECK_MAGIC(calls, CALLS_MAGIC);
	lane_asker_look(calls->asker, &state);
	LOG_LIMITED(LOG_DEBUG, state.open ? "lane open" : "lane closed", "address=%s cause=%s",
		calls->client->address, lane_cause_name(state.open ? LANE_WELL : state.cause));
}

/* The caller gets one payload, as if all had come by TCP. */
static int landing_deliver(struct lane_landing *l)
{
	struct rpc_call *call = l->x->call;
	uint32_t sums = l->reply.payload;
	uint8_t *payload = malloc((size_t)l->reply.length + sums + 1);

	if (!payload)
		return -ENOMEM;
	memcpy(payload, l->slot, l->reply.length);
	memcpy(payload + l->reply.length, l->checksums, sums);
	call->reply = l->reply;
	call->reply.lane = 0;
	call->reply.payload = l->reply.length + sums;
	call->reply_payload = payload;
	call->reply_fd = -1;
	return 0;
}

static void exchange_without_lane(struct exchange *x)
{
	x->landing = NULL;
	if (x->frame.lane == 0)
		return;
	x->frame.lane = 0;
	x->frame.payload = 0;
	x->message.payload = NET_PAYLOAD_NONE;
}

void lane_calls_repeat(struct exchange *x)
{
	struct rpc_client *client = x->client;

	exchange_without_lane(x);
	x->no_lane = true;
	list_remove(&x->link);
	list_push_front(&client->waiting, &x->link);
}

static void on_verdict(void *arg, void *owner, enum lane_verdict verdict)
{
	struct lane_calls *calls = arg;
	struct lane_landing *l = owner;
	struct exchange *x = l->x;
	bool again = false;

	CHECK_MAGIC(calls, CALLS_MAGIC);
	if (x) {
		ensure(x->landing == l);
		x->landing = NULL;
		if (verdict == LANE_COMPLETE) {
			exchange_end(x, landing_deliver(l));
			exchange_settle(x);
		} else if (verdict == LANE_REPEAT && l->replied) {
			lane_calls_repeat(x);
			again = true;
		}
	}
	lanes_give(LANE_LAND, l->slot);
	free(l->checksums);
	free(l);
	if (again && calls->client->connected)
		client_pump(calls->client);
}

static void on_gone(void *arg)
{
	struct lane_calls *calls = arg;

	CHECK_MAGIC(calls, CALLS_MAGIC);
	calls->asker = NULL;
	calls_check_gone(calls);
}

static const struct lane_asker_events asker_events = {
	.send_open = send_open,
	.send_probe = send_probe,
	.send_close = send_close,
	.on_change = on_change,
	.on_verdict = on_verdict,
	.on_gone = on_gone,
};

/* ---- a connection ---------------------------------------------------------------------------- */

void lane_calls_start(struct rpc_client *client)
{
	struct transport *transport = client->conn.transport;
	struct lane_asker_options options = { .ops = lanes_ops(),
		.slots = SLOTS,
		.share = (uint64_t)SLOTS * LANES_SLOT_BYTES,
		.events = &asker_events };
	struct lane_calls *calls;

	if (!options.ops || !transport->ops->addresses ||
		transport->ops->addresses(transport, &options.local, &options.remote) < 0)
		return;
	calls = calloc(1, sizeof(*calls));
	if (!calls)
		return; /* without a lane */
	calls->magic = CALLS_MAGIC;
	calls->client = client;
	options.arg = calls;
	if (lane_asker_new(client->loop, &options, &calls->asker) < 0) {
		free(calls);
		return;
	}
	client->handles++;
	client->lane = calls;
}

/* After the connection's exchanges were forgotten: what lands now has no call. */
void lane_calls_end(struct rpc_client *client)
{
	struct lane_calls *calls = TAKE(client->lane);

	if (!calls)
		return;
	calls->ended = true;
	lane_asker_close(calls->asker);
}

void lane_calls_watch(struct rpc_client *client)
{
	if (client->lane)
		lane_asker_watch(client->lane->asker);
}

void lane_calls_look(const struct rpc_client *client, struct lane_asker_state *ret_state)
{
	*ret_state = (struct lane_asker_state){ 0 };
	if (client->lane)
		lane_asker_look(client->lane->asker, ret_state);
}

/* ---- exchanges ------------------------------------------------------------------------------- */

static struct lane_landing *landing_new(struct lane_calls *calls, struct exchange *x)
{
	struct lane_landing *l = calloc(1, sizeof(*l));

	if (!l)
		return NULL;
	l->calls = calls;
	l->x = x;
	l->slot = lanes_take(LANE_LAND);
	if (l->slot &&
		lane_asker_ask(calls->asker, l, l->slot, x->frame.length, &l->destination) == 0)
		return l;
	if (l->slot)
		lanes_give(LANE_LAND, l->slot);
	free(l);
	return NULL;
}

void lane_calls_attach(struct exchange *x)
{
	struct lane_calls *calls = x->client->lane;
	struct net_payload *payload = &x->message.payload;

	if (!calls || x->no_lane || !frame_op_fetches(x->frame.op) ||
		x->frame.length < LANES_LEAST || x->frame.length > LANES_SLOT_BYTES ||
		x->frame.payload > 0 || x->frame.flags & FRAME_LOCAL_OK)
		return;
	x->landing = landing_new(calls, x);
	if (!x->landing) {
		if (x->frame.length >= LANES_WANT)
			lane_asker_want(calls->asker);
		return;
	}
	lane_destination_pack(&x->landing->destination, x->destination);
	payload->parts[0].data = x->destination;
	payload->parts[0].len = sizeof(x->destination);
	payload->n = 1;
	x->frame.lane = x->landing->destination.lane;
	x->frame.payload = sizeof(x->destination);
}

void lane_calls_detach(struct exchange *x, bool unsent)
{
	struct lane_landing *l = TAKE(x->landing);

	if (!l)
		return;
	l->x = NULL;
	if (unsent)
		lane_asker_unsent(l->calls->asker, &l->destination);
	else if (!l->calls->ended)
		lane_asker_cancel(l->calls->asker, &l->destination);
}

void lane_calls_lost(struct exchange *x)
{
	if (x->landing)
		x->landing->x = NULL;
	exchange_without_lane(x);
}

int lane_calls_check(const struct exchange *x, const struct frame *frame)
{
	if (frame->lane == 0)
		return 0;
	if (frame->lane != x->frame.lane)
		return -EPROTO;
	if (frame->status == -ENOTCONN)
		return frame->payload == 0 ? 0 : -EPROTO;
	return frame->status == 0 && frame->length > 0 && frame->length <= x->frame.length &&
			       frame->payload == frame->checksums * 8u
		       ? 0
		       : -EPROTO;
}

bool lane_calls_reply(struct exchange *x, const struct frame *frame, void *payload)
{
	struct lane_landing *l = x->landing;
	struct lane_calls *calls = x->client->lane;

	if (frame->lane == 0) {
		if (l) {
			l->x = NULL;
			x->landing = NULL;
			lane_asker_header(calls->asker, &l->destination, false);
		}
		return false;
	}
	if (!x->call || !l) {
		/* No caller waits, or its lane broke meanwhile. */
		free(payload);
		if (frame->status < 0)
			lane_asker_broken(calls->asker, frame->lane, LANE_WRITE_CAUSE);
		if (x->call)
			lane_calls_repeat(x);
		else
			exchange_settle(x);
		return true;
	}
	if (l->replied) {
		free(payload);
		lane_asker_broken(calls->asker, frame->lane, LANE_PROTOCOL_CAUSE);
		return true;
	}
	l->replied = true;
	l->reply = *frame;
	l->checksums = payload;
	if (frame->status < 0)
		lane_asker_broken(calls->asker, frame->lane, LANE_WRITE_CAUSE);
	else
		lane_asker_header(calls->asker, &l->destination, true);
	return true;
}
