/* The chunk map in readers' hands. See handout.h. */
#include "cacheworker/handout.h"
#include "base/arena.h"
#include "base/log.h"
#include "cacheworker/worker.h"

#define SHARE_OF_MEMORY 32u /* of --memory, at most */

void handout_open(struct worker *w)
{
	int r = tier_set_publish(w->tiers, w->config->memory / SHARE_OF_MEMORY);
	struct tier_map_use use;

	if (r < 0)
		log_warn("no chunk map",
			"error=%s next=\"readers on this node send a request for each chunk\"",
			err_name(r));
	tier_map_use(w->tiers, &use);
	arena_must(ARENA_FIXED, use.bytes);
}

void handout_close(struct worker *w)
{
	struct tier_map_use use;

	if (!w->tiers)
		return;
	tier_map_use(w->tiers, &use);
	arena_give(ARENA_FIXED, use.bytes);
}

uint64_t handout_start(const struct worker *w)
{
	return tier_map_start(w->tiers);
}

void handout_answer(struct worker *w, struct rpc_request *request)
{
	struct net_payload payload = NET_PAYLOAD_NONE;
	struct frame reply = { .generation = handout_start(w) };
	int r = reply.generation ? 0 : -EOPNOTSUPP;

	/* One that the reader has is not sent again. */
	if (r == 0 && request->frame.generation != reply.generation) {
		r = tier_map_fd(w->tiers, &payload.fd);
		counter_add(&w->counters.maps, 1);
	}
	rpc_reply(request, r, &reply, payload);
}

void handout_note_read(struct worker *w, uint32_t slot, uint64_t bytes)
{
	tier_map_note_read(w->tiers, slot, bytes);
}

void handout_count(struct worker *w)
{
	struct tier_map_use use;

	tier_map_use(w->tiers, &use);
	counter_set(&w->counters.map_entries, use.chunks);
	counter_set(&w->counters.map_max, use.max);
	counter_set(&w->counters.map_refused, use.refused);
}
