/* Descriptors in readers' hands. See holds.h. */
#include "cacheworker/holds.h"
#include "cacheworker/handout.h"
#include "base/arena.h"
#include "base/hash.h"
#include "net/identity.h"
#include "net/net.h"
#include "proto/held.h"

#include <stdlib.h>

#define CONNS_EXPECTED  64u
#define CHUNKS_EXPECTED 256u

struct hold {
	struct map_node by_chunk;
	struct map_node by_number;
	struct list link; /* of its holder, or of those to be freed */
	struct chunk *chunk;
	uint64_t number;
};

/* One connection. */
struct holder {
	struct map_node node;
	const struct rpc_conn *conn;
	struct map by_chunk;
	struct map by_number;
	struct list all;
	uint32_t n;
};

/* Work for another thread than the loop. */
struct ending {
	struct pool_job job;
	struct worker *worker;
	struct list holds;
};

static uint64_t pointer_hash(const void *p)
{
	return hash_xxh3(&p, sizeof(p), 0);
}

static uint64_t number_hash(uint64_t number)
{
	return hash_xxh3(&number, sizeof(number), 0);
}

int holds_init(struct worker *w)
{
	struct holds *holds = &w->holds;

	pthread_mutex_init(&holds->lock, NULL);
	/* A number of an earlier worker means nothing here. */
	hash_random(&holds->number, sizeof(holds->number));
	holds->number = holds->number >> 2 | 1;
	return map_init(&holds->conns, CONNS_EXPECTED);
}

void holds_release(struct worker *w)
{
	ensure(w->holds.n == 0); /* every connection is closed */
	map_release(&w->holds.conns);
	pthread_mutex_destroy(&w->holds.lock);
}

static struct holder *find_locked(struct holds *holds, const struct rpc_conn *conn)
{
	struct map_node *node = map_first(&holds->conns, pointer_hash(conn));

	for (; node; node = map_next_same(node)) {
		struct holder *holder = container_of(node, struct holder, node);

		if (holder->conn == conn)
			return holder;
	}
	return NULL;
}

static struct holder *get_locked(struct holds *holds, const struct rpc_conn *conn)
{
	struct holder *holder = find_locked(holds, conn);

	if (holder)
		return holder;
	holder = calloc(1, sizeof(*holder));
	if (!holder)
		return NULL;
	holder->conn = conn;
	list_init(&holder->all);
	if (map_init(&holder->by_chunk, CHUNKS_EXPECTED) < 0 ||
		map_init(&holder->by_number, CHUNKS_EXPECTED) < 0) {
		map_release(&holder->by_chunk);
		map_release(&holder->by_number);
		free(holder);
		return NULL;
	}
	map_insert(&holds->conns, &holder->node, pointer_hash(conn));
	return holder;
}

static struct hold *find_chunk_locked(struct holder *holder, const struct chunk *chunk)
{
	struct map_node *node = map_first(&holder->by_chunk, pointer_hash(chunk));

	for (; node; node = map_next_same(node)) {
		struct hold *hold = container_of(node, struct hold, by_chunk);

		if (hold->chunk == chunk)
			return hold;
	}
	return NULL;
}

static struct hold *find_number_locked(struct holder *holder, uint64_t number)
{
	struct map_node *node = map_first(&holder->by_number, number_hash(number));

	for (; node; node = map_next_same(node)) {
		struct hold *hold = container_of(node, struct hold, by_number);

		if (hold->number == number)
			return hold;
	}
	return NULL;
}

static struct hold *add_locked(struct holds *holds, struct holder *holder, struct chunk *chunk)
{
	struct hold *hold;

	if (holder->n >= HOLDS_PER_CONN || holds->n >= HOLDS_MAX)
		return NULL;
	hold = arena_calloc(ARENA_CHUNKS, 1, sizeof(*hold));
	if (!hold)
		return NULL;
	hold->chunk = chunk_ref(chunk);
	map_insert(&holder->by_chunk, &hold->by_chunk, pointer_hash(chunk));
	list_push_back(&holder->all, &hold->link);
	holder->n++;
	holds->n++;
	return hold;
}

uint64_t holds_give(struct worker *w, const struct rpc_request *request, struct chunk *chunk)
{
	struct holds *holds = &w->holds;
	struct holder *holder = NULL;
	struct hold *hold = NULL;
	uint64_t number = 0;

	pthread_mutex_lock(&holds->lock);
	/* A connection's requests are cancelled before holds_end() looks for its holds. */
	if (!request->cancelled)
		holder = get_locked(holds, request->conn);
	if (holder)
		hold = find_chunk_locked(holder, chunk);
	if (hold)
		map_remove(&holder->by_number, &hold->by_number);
	else if (holder)
		hold = add_locked(holds, holder, chunk);
	if (hold) {
		number = hold->number = holds->number++;
		map_insert(&holder->by_number, &hold->by_number, number_hash(number));
	}
	pthread_mutex_unlock(&holds->lock);
	return number;
}

static void unlink_locked(struct holds *holds, struct holder *holder, struct hold *hold)
{
	map_remove(&holder->by_chunk, &hold->by_chunk);
	map_remove(&holder->by_number, &hold->by_number);
	list_remove(&hold->link);
	holder->n--;
	holds->n--;
}

static void free_holds(struct list *ended)
{
	struct list *node;

	while ((node = list_pop_front(ended)) != NULL) {
		struct hold *hold = list_entry(node, struct hold, link);

		chunk_unref(hold->chunk);
		arena_free(ARENA_CHUNKS, hold, sizeof(*hold));
	}
}

/* ---- what a reader says ---------------------------------------------------------------------- */

static void take_one_locked(
	struct holds *holds, struct holder *holder, uint64_t entry, struct list *ended)
{
	struct hold *hold;

	if (held_is_slot(entry))
		return; /* note_mapped() */
	hold = find_number_locked(holder, held_number(entry));
	if (hold && held_is_used(entry)) {
		chunk_note_read(hold->chunk);
	} else if (hold) {
		unlink_locked(holds, holder, hold);
		list_push_back(ended, &hold->link);
	}
}

/* Numbers of holds on chunks that are unlinked. */
static uint32_t find_dropped_locked(struct holder *holder, uint8_t *out)
{
	uint32_t n = 0;

	list_for_each (node, &holder->all) {
		const struct hold *hold = list_entry(node, struct hold, link);

		if (n == HELD_ENTRIES_MAX)
			break;
		if (chunk_is_dropped(hold->chunk))
			held_put(out, n++, held_entry(hold->number, false));
	}
	return n;
}

/* Chunks read by the map. */
static void note_mapped(struct worker *w, const struct rpc_request *request)
{
	for (uint32_t i = 0; i < request->frame.payload / HELD_ENTRY_BYTES; i++) {
		uint64_t entry = held_get(request->payload, i);

		if (held_is_slot(entry))
			handout_note_read(
				w, held_slot(entry), (uint64_t)held_blocks(entry) * BLOCK_BYTES);
	}
}

void holds_answer(struct worker *w, struct rpc_request *request)
{
	struct net_payload payload = NET_PAYLOAD_NONE;
	struct frame reply = { .generation = handout_start(w) };
	struct holds *holds = &w->holds;
	struct list ended = LIST_INIT(ended);
	uint8_t *out = malloc(HELD_ENTRIES_MAX * HELD_ENTRY_BYTES);
	struct holder *holder;
	uint32_t n = 0;

	if (!out) {
		rpc_reply(request, -ENOMEM, NULL, payload);
		return;
	}
	if (peer_is_trusted(rpc_conn_peer(request->conn))) /* others do not have the map */
		note_mapped(w, request);
	pthread_mutex_lock(&holds->lock);
	holder = find_locked(holds, request->conn);
	for (uint32_t i = 0; holder && i < request->frame.payload / HELD_ENTRY_BYTES; i++)
		take_one_locked(holds, holder, held_get(request->payload, i), &ended);
	if (holder)
		n = find_dropped_locked(holder, out);
	pthread_mutex_unlock(&holds->lock);
	free_holds(&ended);
	payload.parts[0].data = out;
	payload.parts[0].len = (size_t)n * HELD_ENTRY_BYTES;
	payload.n = n ? 1 : 0;
	payload.release = free;
	payload.arg = out;
	rpc_reply(request, 0, &reply, payload);
}

/* ---- the end of a connection ----------------------------------------------------------------- */

static void run_ending(struct pool_job *job)
{
	struct ending *ending = container_of(job, struct ending, job);

	free_holds(&ending->holds);
	free(ending);
}

static void holder_free(struct holder *holder)
{
	map_release(&holder->by_chunk);
	map_release(&holder->by_number);
	free(holder);
}

void holds_end(struct worker *w, const struct rpc_conn *conn)
{
	struct holds *holds = &w->holds;
	struct ending *ending = calloc(1, sizeof(*ending));
	struct list ended = LIST_INIT(ended);
	struct holder *holder;

	pthread_mutex_lock(&holds->lock);
	holder = find_locked(holds, conn);
	if (holder) {
		map_remove(&holds->conns, &holder->node);
		holds->n -= holder->n;
		list_splice_back(&ended, &holder->all);
	}
	pthread_mutex_unlock(&holds->lock);
	if (holder)
		holder_free(holder);
	if (ending) {
		ending->worker = w;
		ending->job.run = run_ending;
		list_init(&ending->holds);
		list_splice_back(&ending->holds, &ended);
	}
	/* At the very end, or without memory: here and now. */
	if (!ending || pool_submit(w->serve, &ending->job) < 0) {
		if (ending)
			list_splice_back(&ended, &ending->holds);
		free_holds(&ended);
		free(ending);
	}
}
