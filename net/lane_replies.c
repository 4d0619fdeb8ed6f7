/* The answering end of a lane. See lane_replies.h. */
#include "net/lane_replies.h"
#include "base/limits.h"
#include "base/list.h"
#include "net/lanes.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static_assert(LANES_SLOT_BYTES == LIMIT_PAYLOAD_BYTES, "a slot takes any answer");

#define REPLIES_MAGIC 0x4c52504cu
#define ANSWERERS_MAX 2u /* one that is ending, and one more */

/* One lane. */
struct answerer {
	struct list link;
	struct lane_replies *lr;
	struct lane *lane;
	struct lane_word word; /* the client's OPEN */
	void *context;         /* of the OPEN, until it is answered */
	bool answered;
	bool usable;
	bool closing;
};

struct staged {
	struct answerer *answerer;
	void *slot;
	void *context;
};

struct lane_replies {
	uint32_t magic;
	struct loop *loop;
	struct transport *transport;
	const struct lane_replies_events *events;
	void *arg;
	struct list answerers;
	unsigned int n;
	struct answerer *current; /* NULL: none */
	bool ended;
};

static const struct lane_events lane_events;

struct lane_replies *lane_replies_new(struct loop *loop, struct transport *transport,
	const struct lane_replies_events *events, void *arg)
{
	struct lane_replies *lr = calloc(1, sizeof(*lr));

	if (!lr)
		return NULL;
	lr->magic = REPLIES_MAGIC;
	lr->loop = loop;
	lr->transport = transport;
	lr->events = events;
	lr->arg = arg;
	list_init(&lr->answerers);
	return lr;
}

static void check_gone(struct lane_replies *lr)
{
	void (*on_gone)(void *arg) = lr->events->on_gone;
	void *arg = lr->arg;

	if (!lr->ended || !list_empty(&lr->answerers))
		return;
	lr->magic = 0;
	free(lr);
	on_gone(arg);
}

static void answer_open(struct answerer *a, int status, const struct lane_end *own)
{
	struct lane_word word = {
		.kind = LANE_WORD_OPEN, .lane = a->word.lane, .writes = a->word.writes
	};

	if (a->answered)
		return;
	a->answered = true;
	if (own)
		word.end = *own;
	a->lr->events->on_opened(a->lr->arg, a->context, status, &word);
}

static void answerer_close(struct answerer *a)
{
	if (a->closing)
		return;
	a->closing = true;
	a->usable = false;
	if (a->lr->current == a)
		a->lr->current = NULL;
	a->lane->ops->close(a->lane);
}

static void open_lane(struct lane_replies *lr, const struct lane_word *word, void *context)
{
	const struct lane_ops *ops = lanes_ops();
	struct lane_options options = { .side = LANE_ANSWERER,
		.peer = word->end,
		.writes = word->writes,
		.events = &lane_events };
	struct answerer *a = NULL;

	if (lr->current)
		answerer_close(lr->current);
	if (ops && lr->n < ANSWERERS_MAX && lr->transport->ops->addresses &&
		lr->transport->ops->addresses(lr->transport, &options.local, &options.remote) == 0)
		a = calloc(1, sizeof(*a));
	if (a) {
		options.arg = a;
		a->lr = lr;
		a->word = *word;
		a->context = context;
		a->lane = ops->open(lr->loop, &options);
	}
	if (!a || !a->lane) {
		free(a);
		lr->events->on_opened(lr->arg, context, -EOPNOTSUPP, word);
		return;
	}
	list_push_back(&lr->answerers, &a->link);
	lr->n++;
	lr->current = a;
}

void lane_replies_word(struct lane_replies *lr, const struct lane_word *word, void *context)
{
	struct answerer *a =
		lr->current && lr->current->word.lane == word->lane ? lr->current : NULL;
	struct lane_write probe = { .cookie = LANE_PROBE };

	CHECK_MAGIC(lr, REPLIES_MAGIC);
	if (word->kind == LANE_WORD_OPEN)
		open_lane(lr, word, context);
	else if (a && (word->kind == LANE_WORD_CLOSE || !a->usable ||
			      a->lane->ops->write(a->lane, &probe) < 0))
		answerer_close(a); /* if it was to be proved, the client waits in vain */
}

static void gather(const struct net_payload *payload, size_t bytes, uint8_t *to)
{
	for (unsigned int i = 0; i < payload->n && bytes > 0; i++) {
		size_t n = min(bytes, payload->parts[i].len);

		memcpy(to, payload->parts[i].data, n);
		to += n;
		bytes -= n;
	}
}

int lane_replies_write(struct lane_replies *lr, const struct lane_destination *d,
	const struct net_payload *payload, size_t bytes, void *context)
{
	struct answerer *a = lr->current;
	struct lane_write write = {
		.n = 1, .address = d->address, .key = d->key, .cookie = d->cookie
	};
	struct staged *s;
	int r;

	CHECK_MAGIC(lr, REPLIES_MAGIC);
	ensure(bytes > 0 && bytes <= LANES_SLOT_BYTES);
	if (!a || !a->usable || a->word.lane != d->lane)
		return -ENOTCONN;
	s = calloc(1, sizeof(*s));
	if (s)
		s->slot = lanes_take(LANE_SERVE);
	if (!s || !s->slot) {
		free(s);
		return -EAGAIN;
	}
	s->answerer = a;
	s->context = context;
	gather(payload, bytes, s->slot);
	write.parts[0].data = s->slot;
	write.parts[0].bytes = bytes;
	write.context = s;
	r = a->lane->ops->write(a->lane, &write);
	if (r < 0) {
		lanes_give(LANE_SERVE, s->slot);
		free(s);
	}
	return r;
}

void lane_replies_end(struct lane_replies *lr)
{
	CHECK_MAGIC(lr, REPLIES_MAGIC);
	lr->ended = true;
	if (lr->current)
		answerer_close(lr->current);
	check_gone(lr);
}

/* ---- the lane's upcalls ---------------------------------------------------------------------- */

static void on_open(void *arg, enum lane_cause cause, const struct lane_end *own)
{
	struct answerer *a = arg;

	a->usable = cause == LANE_WELL && !a->closing;
	answer_open(a, a->usable ? 0 : -EOPNOTSUPP, own);
	if (!a->usable)
		answerer_close(a);
}

static void on_connected(void *arg)
{
	(void)arg;
	ensure(false); /* it is connected as it is opened */
}

static void on_immediate(void *arg, uint32_t cookie)
{
	(void)arg;
	(void)cookie;
	ensure(false); /* nothing can be written to it */
}

static void on_written(void *arg, void *context, bool well)
{
	struct answerer *a = arg;
	struct staged *s = context;

	if (!s)
		return; /* the probe */
	lanes_give(LANE_SERVE, s->slot);
	a->lr->events->on_written(a->lr->arg, s->context, well);
	free(s);
}

static void on_broken(void *arg, enum lane_cause cause)
{
	(void)cause;
	answerer_close(arg);
}

static void on_closed(void *arg)
{
	struct answerer *a = arg;
	struct lane_replies *lr = a->lr;

	answer_open(a, -ECANCELED, NULL);
	list_remove(&a->link);
	lr->n--;
	free(a);
	check_gone(lr);
}

static const struct lane_events lane_events = {
	.on_open = on_open,
	.on_connected = on_connected,
	.on_immediate = on_immediate,
	.on_written = on_written,
	.on_broken = on_broken,
	.on_closed = on_closed,
};
