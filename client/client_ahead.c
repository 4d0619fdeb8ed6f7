/* Running ahead of sequential streams. See client_ahead.h. */
#include "client/client_ahead.h"
#include "base/clock.h"
#include "client/client_internal.h"
#include "client/client_local.h"
#include "client/client_route.h"

#define PREFETCH_DEADLINE (60 * CLOCK_SECOND)

/* Handlers take the kernel's asynchronous reads in any order: how far one may lie behind or before
 * the furthest. */
#define REORDER_BYTES (4ull * CLIENT_READ_MAX)

/* Reads in a row of at least this much together are looked up in the table: not those of small
 * files. */
#define SEQUENTIAL_BYTES (128u << 10)

/* Ranges asked for at once. What does not fit goes out with the next read of the stream. */
#define RANGES_MAX 64

struct range {
	uint64_t offset;
	uint32_t length;
};

void client_ahead_init(struct client_ahead *ahead)
{
	*ahead = (struct client_ahead){ 0 };
	pthread_mutex_init(&ahead->lock, NULL);
}

void client_ahead_release(struct client_ahead *ahead)
{
	pthread_mutex_destroy(&ahead->lock);
}

static struct client_stream *find_stream_locked(struct client_ahead *ahead, uint64_t offset)
{
	for (uint32_t i = 0; i < CLIENT_STREAMS; i++) {
		struct client_stream *s = &ahead->streams[i];

		if (offset >= s->start && offset < s->end && offset <= s->next + REORDER_BYTES &&
			offset + REORDER_BYTES >= s->next)
			return s;
	}
	return NULL;
}

/* True when the read goes on where another one ended, and both are more than one small file has:
 * time to look what it is. */
static bool note_candidate_locked(struct client_ahead *ahead, uint64_t offset, uint64_t end)
{
	struct client_candidate *c;

	for (uint32_t i = 0; i < CLIENT_CANDIDATES; i++) {
		c = &ahead->candidates[i];
		if (c->next != offset || c->next == c->start)
			continue;
		c->next = end;
		if (end - c->start < SEQUENTIAL_BYTES)
			return false;
		c->start = offset;
		return true;
	}
	c = &ahead->candidates[ahead->hand];
	*c = (struct client_candidate){ .start = offset, .next = end };
	ahead->hand = (ahead->hand + 1) % CLIENT_CANDIDATES;
	return false;
}

static struct client_stream *oldest_stream_locked(struct client_ahead *ahead)
{
	struct client_stream *oldest = &ahead->streams[0];

	for (uint32_t i = 1; i < CLIENT_STREAMS; i++)
		if (ahead->streams[i].used < oldest->used)
			oldest = &ahead->streams[i];
	return oldest;
}

/* The rest of a chunk, which the worker asks for by one request; in a window of less than two, of a unit. Ends of units
 * count from the object's start and never lie behind a chunk's end: what the worker fills at once. */
static uint64_t range_end(const struct client_stream *s, uint64_t window)
{
	uint64_t end = s->start + align_down(s->ahead - s->start, UNIT_BYTES) + UNIT_BYTES;
	uint64_t chunk = align_down(s->ahead, CHUNK_BYTES) + CHUNK_BYTES;

	end = window >= 2 * CHUNK_BYTES ? chunk : min(end, chunk);
	return min(end, s->end);
}

/* As far ahead as was read already: who stops early has had little fetched for nothing, who goes on
 * fills a long way to the origin. */
static uint64_t window_of(const struct client *client, const struct client_stream *s)
{
	return min(max(s->next - s->began, client->ahead_bytes), client->ahead_max_bytes);
}

static uint32_t take_ranges_locked(
	struct client_stream *s, uint64_t window, struct range *ranges, uint32_t max)
{
	uint64_t target = min(s->next + window, s->end);
	/* A chunk begins in the middle of the one before, or nothing would be requested between the two. */
	uint64_t most = window >= 2 * CHUNK_BYTES ? target + CHUNK_BYTES / 2 : target;
	uint32_t n = 0;

	if (s->ahead < s->next)
		s->ahead = s->next;
	while (n < max && s->ahead < target) {
		uint64_t stop = range_end(s, window);

		/* Whole ones only, or each read would ask for its own small piece. */
		if (stop > most)
			break;
		ranges[n++] = (struct range){ s->ahead, (uint32_t)(stop - s->ahead) };
		s->ahead = stop;
	}
	return n;
}

static void on_note_done(struct rpc_call *call, int status)
{
	struct client_note *note = call->arg;
	struct client_volume *volume = note->volume;
	struct client *client = volume->client;

	/* A reader will ask again for what was not prefetched. */
	if (status == -EREMOTE && note->peer == view_local(client->view))
		client_route_elsewhere(volume);
	rpc_call_release(call);
	pthread_mutex_lock(&client->lock);
	list_remove(&note->link);
	list_push_back(&client->notes_free, &note->link);
	client->notes_used--;
	if (--volume->pending == 0)
		pthread_cond_broadcast(&client->idle);
	pthread_mutex_unlock(&client->lock);
}

static int send_prefetch(struct client_volume *volume, const struct range *range, uint16_t flags)
{
	struct client *client = volume->client;
	bool last;
	struct view_peer *owner = client_route_serves(volume, range->offset >> CHUNK_BITS, &last);
	struct list *node = NULL;
	struct client_note *note;

	if (!owner)
		return -EAGAIN;
	pthread_mutex_lock(&client->lock);
	if (!volume->closing &&
		(!(flags & FRAME_EXACT) || client->notes_used < CLIENT_ORDER_AHEADS))
		node = list_pop_front(&client->notes_free);
	if (!node) { /* enough are in flight */
		pthread_mutex_unlock(&client->lock);
		return -EAGAIN;
	}
	note = list_entry(node, struct client_note, link);
	note->volume = volume;
	note->rpc = owner->rpc;
	note->peer = owner;
	note->call = (struct rpc_call){
		.frame = { .op = FRAME_PREFETCH,
			.class = FRAME_AHEAD,
			.flags = (uint16_t)(flags | (last ? FRAME_LAST : 0) |
					    (owner->local ? FRAME_LOCAL_OK : 0)),
			.volume = volume->id,
			.lineage = volume->lineage,
			.generation = volume->generation,
			.offset = range->offset,
			.length = range->length },
		.payload = NET_PAYLOAD_NONE,
		.deadline_ns = clock_mono_ns() + PREFETCH_DEADLINE,
		.on_done = on_note_done,
		.arg = note,
		.reply_fd = -1,
	};
	client->notes_used++;
	volume->pending++;
	/* Under the lock: client_volume_close() cancels what is on the list, which must have been
	 * sent. */
	rpc_call(note->rpc, &note->call);
	list_push_back(&volume->notes, &note->link);
	pthread_mutex_unlock(&client->lock);
	counter_add(&client->counters.prefetches, 1);
	return 0;
}

int client_prefetch(struct client_volume *volume, uint64_t offset, uint32_t length)
{
	const struct range range = { .offset = offset, .length = length };

	CHECK_MAGIC(volume, CLIENT_VOLUME_MAGIC);
	ensure(length > 0 && offset % BLOCK_BYTES == 0 && length % BLOCK_BYTES == 0);
	ensure(offset % CHUNK_BYTES + length <= CHUNK_BYTES);
	if (client_local_present(volume, offset, length))
		return -EALREADY;
	return send_prefetch(volume, &range, FRAME_EXACT);
}

uint64_t client_capacity(struct client *client)
{
	return client_chunks_capacity(client->chunks);
}

/* A second read in a row: which object is it, and is it worth running ahead of? Not under the lock:
 * the lookup may decode. */
static void add_stream(struct client_volume *volume, uint64_t offset, uint64_t end)
{
	struct client_ahead *ahead = &volume->ahead;
	struct table_row row;
	struct client_stream *s;

	if (table_find_offset(volume->table, offset, &row) < 0 || row.size <= UNIT_BYTES)
		return;
	pthread_mutex_lock(&ahead->lock);
	s = find_stream_locked(ahead, offset);
	if (!s) {
		s = oldest_stream_locked(ahead);
		*s = (struct client_stream){
			.start = row.offset,
			.end = align_up(row.offset + row.size, BLOCK_BYTES),
			.began = offset,
			.next = end,
			.ahead = end,
		};
	}
	s->used = ++ahead->clock;
	pthread_mutex_unlock(&ahead->lock);
}

/* Many nodes begin the same stream at once: each begins with another chunk of its window, so that they do
 * not all come to one owner after the other. */
static uint32_t first_of(const struct client *client, const struct range *ranges, uint32_t n)
{
	uint64_t chunk = ranges[0].offset >> CHUNK_BITS;
	uint64_t chunks = (ranges[n - 1].offset >> CHUNK_BITS) - chunk + 1;
	uint32_t i = 0;

	while (i + 1 < n && ranges[i].offset >> CHUNK_BITS < chunk + client->rank % chunks)
		i++;
	return i;
}

void client_note_read(struct client_volume *volume, uint64_t offset, uint32_t length)
{
	struct client_ahead *ahead = &volume->ahead;
	struct range ranges[RANGES_MAX];
	struct client_stream *s;
	bool second = false;
	uint32_t first;
	uint32_t n = 0;

	CHECK_MAGIC(volume, CLIENT_VOLUME_MAGIC);
	for (;;) {
		pthread_mutex_lock(&ahead->lock);
		s = find_stream_locked(ahead, offset);
		if (s) {
			s->used = ++ahead->clock;
			s->next = max(s->next, min(offset + length, s->end));
			n = take_ranges_locked(s, window_of(volume->client, s), ranges, RANGES_MAX);
		} else if (!second) {
			second = note_candidate_locked(ahead, offset, offset + length);
		} else {
			second = false; /* no large object there */
		}
		pthread_mutex_unlock(&ahead->lock);
		if (s || !second)
			break;
		add_stream(volume, offset, offset + length);
	}
	client_near_note(volume, offset, length);
	first = n ? first_of(volume->client, ranges, n) : 0;
	for (uint32_t i = 0; i < n; i++) {
		const struct range *range = &ranges[(first + i) % n];

		if (!client_local_present(volume, range->offset, range->length))
			(void)send_prefetch(volume, range, 0); /* a favour */
	}
}
