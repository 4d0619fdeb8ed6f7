/* Fetching the chunk map. See client_map.h. */
#include "client/client_map.h"
#include "base/clock.h"
#include "client/client_internal.h"
#include "locate/chunk_map.h"

#define MAP_DEADLINE (10 * CLOCK_SECOND)
#define MAP_AGAIN    (5 * CLOCK_SECOND) /* after a worker had none, or one that is not right */

static int take(struct client *client, const struct rpc_call *call)
{
	struct chunk_map *map;
	int r;

	if (call->reply_fd < 0)
		return -EBADMSG;
	r = chunk_map_open(call->reply_fd, &map);
	if (r < 0)
		return r;
	r = client_chunks_set_map(client->chunks, map, client->map_owner);
	if (r < 0)
		chunk_map_close(map);
	return r;
}

static void on_answer(struct rpc_call *call, int status)
{
	struct client *client = call->arg;
	uint64_t had = call->frame.generation;

	client->map_asked = false;
	if (status == 0 && !(had && call->reply.generation == had))
		status = take(client, call);
	client->map_wanted = status < 0;
	if (status < 0)
		client->map_next_ns = clock_mono_ns() + MAP_AGAIN;
	rpc_call_release(call);
}

void client_map_ask(struct client *client)
{
	struct view_peer *owner;

	if (!client->map_wanted || client->map_asked || clock_mono_ns() < client->map_next_ns)
		return;
	owner = view_local(client->view);
	if (!owner)
		return;
	client->map_asked = true;
	client->map_owner = owner;
	client->map_call = (struct rpc_call){
		.frame = { .op = FRAME_MAP,
			.class = FRAME_DEMAND,
			.generation = client_chunks_map_start(client->chunks) },
		.payload = NET_PAYLOAD_NONE,
		.deadline_ns = clock_mono_ns() + MAP_DEADLINE,
		.on_done = on_answer,
		.arg = client,
		.reply_fd = -1,
	};
	rpc_call(owner->rpc, &client->map_call);
}

void client_map_told(struct client *client, const struct view_peer *owner, uint64_t start)
{
	if (!start || owner != view_local(client->view) ||
		start == client_chunks_map_start(client->chunks))
		return;
	client->map_wanted = true;
	client_map_ask(client);
}
