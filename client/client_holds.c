/* Reports of open chunk files. See client_holds.h. */
#include "client/client_holds.h"
#include "base/clock.h"
#include "client/client_internal.h"
#include "client/client_map.h"
#include "proto/held.h"

#include <stdlib.h>

#define REPORT_INTERVAL CLOCK_SECOND
#define REPORT_DEADLINE (60 * CLOCK_SECOND)

static void on_timer(void *arg);

static void again(struct client *client)
{
	if (!client->holds_timer && !client->holds_stopped)
		client->holds_timer =
			loop_timer_start(client->loop, REPORT_INTERVAL, on_timer, client);
}

static void on_answer(struct rpc_call *call, int status)
{
	struct client *client = call->arg;
	uint32_t n = call->reply.payload / HELD_ENTRY_BYTES;

	if (status == 0 && call->reply_payload)
		client_chunks_let_go(client->chunks, client->holds_owner, call->reply_payload, n);
	if (status == 0)
		client_map_told(client, client->holds_owner, call->reply.generation);
	rpc_call_release(call);
	client->holds_asked = false;
	again(client);
}

static void on_timer(void *arg)
{
	struct client *client = arg;
	uint8_t *entries = malloc(HELD_ENTRIES_MAX * HELD_ENTRY_BYTES);
	struct view_peer *owner;
	uint32_t n;

	client->holds_timer = NULL;
	client_map_ask(client);
	client_chunks_sweep(client->chunks); /* so that the worker hears of it now */
	owner = entries ? client_chunks_report(client->chunks, entries, &n) : NULL;
	if (!owner) {
		free(entries);
		again(client);
		return;
	}
	client->holds_asked = true;
	client->holds_owner = owner;
	client->holds_call = (struct rpc_call){
		.frame = { .op = FRAME_HELD, .class = FRAME_FILL },
		.payload = { .parts = { { .data = entries, .len = (size_t)n * HELD_ENTRY_BYTES } },
			.n = n ? 1 : 0,
			.release = free,
			.arg = entries,
			.fd = -1 },
		.deadline_ns = clock_mono_ns() + REPORT_DEADLINE,
		.resend = true,
		.on_done = on_answer,
		.arg = client,
		.reply_fd = -1,
	};
	rpc_call(owner->rpc, &client->holds_call);
}

void client_holds_start(struct client *client)
{
	client_map_ask(client);
	if (!client->holds_asked)
		again(client);
}

void client_holds_stop(struct client *client)
{
	client->holds_stopped = true;
	loop_timer_stop(client->holds_timer);
	client->holds_timer = NULL;
}
