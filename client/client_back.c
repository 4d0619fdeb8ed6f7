/* Reads that pause before they ask again. See client_back.h. */
#include "client/client_back.h"
#include "base/backoff.h"
#include "base/clock.h"
#include "client/client_internal.h"

#include <errno.h>

#define PAUSE_MIN  (10 * CLOCK_MS)
#define PAUSE_MAX  (2 * CLOCK_SECOND)
#define WAKE_LEAST (10 * CLOCK_MS) /* between two times that all who wait ask again */

bool client_back_is_away(int error)
{
	static const int codes[] = { ECONNRESET, ECONNREFUSED, ECONNABORTED, EPIPE, ENOTCONN,
		ETIMEDOUT, EHOSTUNREACH, ENETUNREACH, ECANCELED };

	for (size_t i = 0; i < ARRAY_SIZE(codes); i++)
		if (error == -codes[i])
			return true;
	return false;
}

static void on_pause(void *arg)
{
	struct client_op *op = arg;

	op->timer = NULL;
	list_remove(&op->waiter);
	client_fetch_resume(op);
}

static uint64_t pause_ns(const struct client_op *op)
{
	const struct backoff backoff = { .min_ns = PAUSE_MIN,
		.max_ns = PAUSE_MAX,
		.spread = { 50, 150 },
		.doublings = op->attempts };

	return client_op_client(op)->pause_ns ? client_op_client(op)->pause_ns
					      : backoff_ns(&backoff);
}

void client_back_wait(struct client_op *op, int error, uint64_t now_ns)
{
	struct client *client = client_op_client(op);
	uint64_t ns = pause_ns(op);

	ensure(now_ns < op->deadline_ns);
	client_op_set_state(op, OP_BACKOFF);
	if (client_back_is_away(error)) {
		list_push_back(&client->away, &op->waiter);
		if (op->backs != client->backs) /* after this attempt had passed him over */
			ns = PAUSE_MIN;
	}
	op->timer = loop_timer_start(client->loop, min(ns, op->deadline_ns - now_ns), on_pause, op);
	if (op->timer)
		return;
	list_remove(&op->waiter); /* no memory: at once, then */
	client_op_set_state(op, OP_START);
	loop_post(client->loop, &op->task);
}

void client_back_leave(struct client_op *op)
{
	loop_timer_stop(op->timer);
	op->timer = NULL;
	list_remove(&op->waiter);
}

static void wake(struct client *client)
{
	struct list woken = LIST_INIT(woken);
	struct list *node;

	list_splice_back(&woken, &client->away);
	while ((node = list_pop_front(&woken)) != NULL) {
		struct client_op *op = list_entry(node, struct client_op, waiter);

		loop_timer_stop(op->timer);
		op->timer = NULL;
		client_fetch_resume(op);
	}
	client->woken_ns = clock_mono_ns();
}

static void on_wake(void *arg)
{
	struct client *client = arg;

	client->wake_timer = NULL;
	wake(client);
}

/* The first one at once. A network that is back brings hundreds: not each of them wakes all, of whom most wait for
 * another one yet. */
void client_back(void *arg)
{
	struct client *client = arg;
	uint64_t since = clock_mono_ns() - client->woken_ns;

	client->backs++;
	if (client->wake_timer || list_empty(&client->away))
		return;
	if (since < WAKE_LEAST) /* without memory: now */
		client->wake_timer =
			loop_timer_start(client->loop, WAKE_LEAST - since, on_wake, client);
	if (!client->wake_timer)
		wake(client);
}
