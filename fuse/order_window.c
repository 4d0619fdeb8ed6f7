/* The window of an announced order. See order_window.h. */
#include "fuse/order_window.h"
#include "base/layout.h"

#include <string.h>

static struct order_entry *entry_of(const struct order_window *w, uint64_t place)
{
	return &w->ring[place % ORDER_SPAN];
}

static uint32_t open_blocks(const struct order_entry *entry)
{
	return entry->asked > entry->read ? entry->asked - entry->read : 0;
}

void order_window_init(struct order_window *w, uint64_t count, struct order_entry *ring)
{
	*w = (struct order_window){ .count = count, .max_files = 1, .max_bytes = 1, .ring = ring };
}

void order_window_limit(struct order_window *w, uint32_t max_files, uint64_t max_bytes)
{
	w->max_files = max(max_files, 1u);
	w->max_bytes = max(max_bytes, (uint64_t)1);
}

bool order_window_room(const struct order_window *w)
{
	return w->next < w->count && w->next < w->first + ORDER_SPAN &&
	       w->next < w->seen + ORDER_SPAN &&
	       w->files < min(w->max_files, ORDER_START_FILES + w->grown) &&
	       w->bytes < min(w->max_bytes, ORDER_START_BYTES + (uint64_t)w->grown * UNIT_BYTES);
}

uint32_t order_window_done(const struct order_window *w)
{
	const struct order_entry *entry = entry_of(w, w->next);

	return max(entry->asked, entry->read);
}

/* The one way in which an entry changes. */
static void set_entry(
	struct order_window *w, struct order_entry *entry, uint32_t asked, uint32_t read)
{
	uint32_t before = open_blocks(entry);
	uint32_t after;

	entry->asked = asked;
	entry->read = read;
	after = open_blocks(entry);
	w->bytes = w->bytes + (uint64_t)after * BLOCK_BYTES - (uint64_t)before * BLOCK_BYTES;
	w->files = w->files + (after > 0) - (before > 0);
}

/* What is behind leaves the ring. */
static void advance(struct order_window *w)
{
	while (w->first < w->next && open_blocks(entry_of(w, w->first)) == 0)
		*entry_of(w, w->first++) = (struct order_entry){ 0 };
	w->oldest = max(w->oldest, w->first);
}

void order_window_ask(struct order_window *w, uint32_t blocks)
{
	struct order_entry *entry = entry_of(w, w->next);

	set_entry(w, entry, order_window_done(w) + blocks, entry->read);
}

void order_window_pass(struct order_window *w)
{
	w->next++;
	advance(w);
}

void order_window_present(struct order_window *w, uint64_t place, uint32_t from, uint32_t upto)
{
	struct order_entry *entry = entry_of(w, place);

	if (place < w->first || place >= w->first + ORDER_SPAN || entry->asked < upto ||
		entry->read != from)
		return;
	set_entry(w, entry, entry->asked, upto);
	advance(w);
}

static void forget(struct order_window *w, struct order_entry *entry)
{
	set_entry(w, entry, entry->asked, max(entry->asked, entry->read));
}

static void forget_oldest(struct order_window *w)
{
	for (; w->oldest < w->next; w->oldest++) {
		struct order_entry *entry = entry_of(w, w->oldest);

		if (open_blocks(entry) > 0) {
			forget(w, entry);
			return;
		}
	}
}

static void forget_before(struct order_window *w, uint64_t place)
{
	uint32_t window = w->files;

	while (w->first < w->next && w->first + window < place) {
		forget(w, entry_of(w, w->first));
		advance(w);
	}
}

/* Moves the window to where the job reads. */
static void move_to_strays(struct order_window *w)
{
	uint64_t lowest = w->strays[0];

	for (uint32_t i = 1; i < ORDER_STRAYS; i++)
		lowest = min(lowest, w->strays[i]);
	memset(w->ring, 0, ORDER_SPAN * sizeof(*w->ring));
	w->first = w->next = w->oldest = w->seen = lowest;
	w->bytes = 0;
	w->files = 0;
	for (uint32_t i = 0; i < ORDER_STRAYS; i++)
		if (w->strays[i] < lowest + ORDER_SPAN)
			entry_of(w, w->strays[i])->read = UINT32_MAX; /* all of it */
	w->n_strays = 0;
}

bool order_window_read(struct order_window *w, uint64_t place, uint32_t upto)
{
	struct order_entry *entry;
	bool unexpected;

	if (place >= w->count || place < w->first)
		return false;
	if (w->n_strays == ORDER_STRAYS)
		move_to_strays(w);
	if (place >= w->first + ORDER_SPAN)
		return false;
	entry = entry_of(w, place);
	unexpected = place >= w->next && entry->read == 0 && entry->asked == 0;
	if (open_blocks(entry) > 0) {
		w->n_strays = 0;
		forget_before(w, place);
	}
	set_entry(w, entry, entry->asked, max(entry->read, upto));
	if (unexpected)
		forget_oldest(w);
	w->seen = max(w->seen, place + 1);
	advance(w);
	return true;
}

bool order_window_covers(const struct order_window *w, uint64_t place)
{
	if (w->off)
		return false;
	return w->trusted || place < w->next ||
	       (place < w->first + ORDER_SPAN && entry_of(w, place)->asked > 0);
}

static void note_stray(struct order_window *w, uint64_t place)
{
	if (place >= w->next + w->max_files && w->n_strays < ORDER_STRAYS)
		w->strays[w->n_strays++] = place;
}

static uint32_t trail_size(const struct order_window *w)
{
	return max((uint32_t)min(w->count / (8 * ORDER_GAP), (uint64_t)ORDER_TRAIL), 1u);
}

/* Consecutive places that one READ touches take one entry of the trail. */
static void leave_trail(struct order_window *w, uint64_t place)
{
	uint32_t size = trail_size(w);
	uint32_t *last = &w->trail[(w->n_trail + size - 1) % size];

	if (w->n_trail == 0 || *last + 1 != place)
		last = &w->trail[w->n_trail++ % size];
	*last = (uint32_t)place;
}

enum order_follows order_window_follows(struct order_window *w, uint64_t place)
{
	/* At most an eighth of all places are this close behind an entry of the trail. */
	uint64_t gap = max(w->count / (8 * ORDER_TRAIL), (uint64_t)ORDER_GAP);
	uint64_t before = place + 1; /* as if the place before the first had been read */
	uint64_t behind = UINT64_MAX;

	for (uint32_t i = 0; i < min(w->n_trail, trail_size(w)); i++) {
		uint64_t other = w->trail[i];

		if (other == place)
			return ORDER_FOLLOWS_UNKNOWN;
		if (other < place)
			before = min(before, place - other);
		else
			behind = min(behind, other - place);
	}
	leave_trail(w, place);
	if (before > min(gap, behind))
		return ORDER_FOLLOWS_NOT;
	note_stray(w, place);
	return ORDER_FOLLOWS;
}

/* What was passed while nothing was fetched is asked for, from the first place on. */
static void ask_again(struct order_window *w)
{
	for (uint64_t place = w->first; place < w->next; place++)
		set_entry(w, entry_of(w, place), 0, entry_of(w, place)->read);
	w->next = w->oldest = w->first;
}

bool order_window_judge(struct order_window *w, bool hit)
{
	unsigned int hits;

	w->reads++;
	w->hits += hit;
	w->recent[1] = w->recent[1] << 1 | w->recent[0] >> 63;
	w->recent[0] = w->recent[0] << 1 | hit;
	w->judged = min(w->judged + 1, ORDER_JUDGED);
	w->grown = min(w->grown + hit, ORDER_SPAN);
	hits = (unsigned int)(__builtin_popcountll(w->recent[0]) +
			      __builtin_popcountll(w->recent[1]));
	w->trusted = hits >= ORDER_ENOUGH || (w->trusted && hits >= ORDER_FEW);
	if (w->judged < ORDER_JUDGED || (w->off ? hits < ORDER_ENOUGH : hits >= ORDER_FEW))
		return false;
	w->off = !w->off;
	if (w->off)
		w->grown = 0;
	else
		ask_again(w);
	return true;
}
