/* What workers learn of open files (proto/held.h). See client_chunk_internal.h. */
#include "client/client_chunk_internal.h"
#include "proto/held.h"

void client_released_add_locked(
	struct client_chunks *chunks, struct view_peer *owner, uint64_t number)
{
	if (owner && number && chunks->n_released < CLIENT_RELEASED_MAX)
		chunks->released[chunks->n_released++] =
			(struct client_released){ .owner = owner, .number = number };
}

void client_chunk_release_hold(struct client_chunk *chunk)
{
	struct client_file *file = chunk->file;
	struct client_chunks *chunks = file->chunks;

	if (!chunk->hold)
		return;
	pthread_mutex_lock(&chunks->lock);
	/* Other chunks of the file may have none of their own. */
	if (file->refs > 1 && !file->hold && !chunk->let_go) {
		file->owner = chunk->owner;
		file->hold = chunk->hold;
	} else {
		client_released_add_locked(chunks, chunk->owner, chunk->hold);
	}
	pthread_mutex_unlock(&chunks->lock);
}

void client_chunk_held(struct client_chunks *chunks, struct client_chunk *chunk,
	struct view_peer *owner, uint64_t number)
{
	pthread_mutex_lock(&chunks->lock);
	if (chunk->owner == owner) {
		chunk->hold = max(chunk->hold, number); /* answers may overtake each other */
	} else {
		client_released_add_locked(chunks, chunk->owner, chunk->hold);
		chunk->owner = owner;
		chunk->hold = number;
	}
	pthread_mutex_unlock(&chunks->lock);
}

/* ---- to the worker --------------------------------------------------------------------------- */

/* The worker to which a read of the chunk is reported. */
static struct view_peer *owner_of(const struct client_chunk *chunk)
{
	return chunk->slot == CHUNK_MAP_NONE ? chunk->owner : chunk->map->owner;
}

/* What is reported of a chunk that was read. */
static uint64_t entry_of(struct client_chunk *chunk)
{
	if (chunk->slot == CHUNK_MAP_NONE)
		return held_entry(chunk->hold, true);
	return held_slot_entry(chunk->slot, atomic_exchange(&chunk->read_blocks, 0));
}

/* Those of one worker; the others stay for the next report. */
static uint32_t report_released_locked(
	struct client_chunks *chunks, struct view_peer *owner, uint8_t *out)
{
	uint32_t left = 0;
	uint32_t n = 0;

	for (uint32_t i = 0; i < chunks->n_released; i++) {
		const struct client_released *r = &chunks->released[i];

		if (r->owner == owner && n < HELD_ENTRIES_MAX)
			held_put(out, n++, held_entry(r->number, false));
		else
			chunks->released[left++] = *r;
	}
	chunks->n_released = left;
	return n;
}

struct view_peer *client_chunks_report(struct client_chunks *chunks, uint8_t *out, uint32_t *ret_n)
{
	struct view_peer *owner = NULL;
	uint32_t n = 0;

	pthread_mutex_lock(&chunks->lock);
	if (chunks->n_released)
		owner = chunks->released[0].owner;
	list_for_each (node, &chunks->clock) {
		if (!owner)
			owner = owner_of(list_entry(node, struct client_chunk, link));
	}
	if (owner)
		n = report_released_locked(chunks, owner, out);
	list_for_each (node, &chunks->clock) {
		struct client_chunk *chunk = list_entry(node, struct client_chunk, link);

		if (n == HELD_ENTRIES_MAX)
			break;
		if (!owner || owner_of(chunk) != owner || !atomic_exchange(&chunk->touched, false))
			continue;
		held_put(out, n++, entry_of(chunk));
	}
	pthread_mutex_unlock(&chunks->lock);
	*ret_n = n;
	return owner;
}

/* ---- from the worker ------------------------------------------------------------------------- */

/* Takes the chunks of a file that have no hold of their own out of the cache. */
static void remove_unheld_locked(
	struct client_chunks *chunks, const struct client_file *file, struct list *gone)
{
	list_for_each_safe (node, &chunks->clock) {
		struct client_chunk *chunk = list_entry(node, struct client_chunk, link);

		if (chunk->file != file || chunk->hold)
			continue;
		client_chunks_remove_locked(chunks, chunk);
		list_push_back(gone, &chunk->link);
	}
}

/* The hold is that of a file whose chunks have none. It ends with the last of them, or now when
 * others of the file have their own. */
static bool let_go_of_file_locked(struct client_chunks *chunks, uint64_t number, struct list *gone)
{
	struct client_file *file = NULL;
	bool others = false;

	list_for_each (node, &chunks->clock) {
		struct client_chunk *chunk = list_entry(node, struct client_chunk, link);

		if (chunk->file->hold == number)
			file = chunk->file;
	}
	if (!file)
		return false;
	list_for_each (node, &chunks->clock) {
		struct client_chunk *chunk = list_entry(node, struct client_chunk, link);

		others |= chunk->file == file && chunk->hold;
	}
	remove_unheld_locked(chunks, file, gone);
	if (others) {
		client_released_add_locked(chunks, file->owner, file->hold);
		file->hold = 0;
	}
	return true;
}

static bool let_go_of_chunk_locked(struct client_chunks *chunks, uint64_t number, struct list *gone)
{
	list_for_each (node, &chunks->clock) {
		struct client_chunk *chunk = list_entry(node, struct client_chunk, link);

		if (chunk->hold != number)
			continue;
		chunk->let_go = true;
		if (!chunk->file->hold)
			remove_unheld_locked(chunks, chunk->file, gone);
		client_chunks_remove_locked(chunks, chunk);
		list_push_back(gone, &chunk->link);
		return true;
	}
	return false;
}

void client_chunks_let_go(
	struct client_chunks *chunks, struct view_peer *owner, const uint8_t *entries, uint32_t n)
{
	struct list gone = LIST_INIT(gone); /* with the cache's references */
	struct list *node;

	pthread_mutex_lock(&chunks->lock);
	for (uint32_t i = 0; i < n; i++) {
		uint64_t number = held_number(held_get(entries, i));

		if (!number || let_go_of_chunk_locked(chunks, number, &gone) ||
			let_go_of_file_locked(chunks, number, &gone))
			continue;
		/* Of an answer that was not waited for any more. */
		client_released_add_locked(chunks, owner, number);
	}
	pthread_mutex_unlock(&chunks->lock);
	while ((node = list_pop_front(&gone)) != NULL)
		client_chunk_unref(list_entry(node, struct client_chunk, link));
}
