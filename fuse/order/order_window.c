/* The window of an announced order. See order_window.h. */
#include "fuse/order/order_window.h"
#include "base/layout.h"

static uint32_t open_blocks(const struct order_entry *entry)
{
	return entry->asked > entry->read ? entry->asked - entry->read : 0;
}

void order_window_init(
	struct order_window *w, uint64_t count, struct order_asked *asked, uint64_t *passed)
{
	*w = (struct order_window){ .count = count, .asked = asked, .passed = passed };
	order_window_limit(w, 1, 1, 1);
	order_window_start(w, 1);
	if (count > 0)
		w->runs[w->n_runs++] = (struct order_run){ 0 };
}

void order_window_limit(struct order_window *w, uint32_t files, uint64_t bytes, uint32_t n)
{
	w->max_files = min(max(files / n, 1u), ORDER_AHEAD);
	w->max_bytes = max(bytes / n, (uint64_t)1);
}

void order_window_start(struct order_window *w, uint32_t jobs)
{
	w->start_files = max(ORDER_START_FILES / jobs, ORDER_START_LEAST);
	w->start_bytes = max((uint64_t)ORDER_START_BYTES / jobs, (uint64_t)UNIT_BYTES);
}

/* ---- what was asked for ---------------------------------------------------------------------- */

static uint16_t *first_of(const struct order_window *w, uint64_t place)
{
	return &w->asked->first[place % ORDER_HASH];
}

static struct order_entry *find_open(const struct order_window *w, uint64_t place)
{
	uint16_t i = *first_of(w, place);

	while (i != 0 && w->asked->ring[i - 1].place != place)
		i = w->asked->ring[i - 1].other;
	return i ? &w->asked->ring[i - 1] : NULL;
}

static void remove_open(struct order_window *w, const struct order_entry *entry)
{
	uint16_t index = (uint16_t)(entry - w->asked->ring + 1);
	uint16_t *at = first_of(w, entry->place);

	while (*at != index)
		at = &w->asked->ring[*at - 1].other;
	*at = entry->other;
	w->files--;
}

/* Its blocks before `read` are read. */
static void set_read(struct order_window *w, struct order_entry *entry, uint32_t read)
{
	uint32_t before = open_blocks(entry);

	if (before == 0 || read <= entry->read)
		return;
	entry->read = read;
	w->bytes -= (uint64_t)(before - open_blocks(entry)) * BLOCK_BYTES;
	if (open_blocks(entry) == 0)
		remove_open(w, entry);
}

static void forget_oldest(struct order_window *w)
{
	while (w->oldest < w->turn) {
		struct order_entry *entry = &w->asked->ring[w->oldest++ % ORDER_RING];

		if (open_blocks(entry) > 0) {
			set_read(w, entry, entry->asked);
			return;
		}
	}
}

/* What was asked for a whole window before this. */
static void forget_before(struct order_window *w, const struct order_entry *entry)
{
	uint64_t index = (uint64_t)(entry - w->asked->ring);
	uint64_t turn = w->turn - 1 - (w->turn - 1 - index) % ORDER_RING;
	uint64_t window = w->files;

	for (; w->oldest + window < turn; w->oldest++) {
		struct order_entry *old = &w->asked->ring[w->oldest % ORDER_RING];

		set_read(w, old, old->asked);
	}
}

static struct order_entry *open_entry(struct order_window *w, uint64_t place, uint32_t from)
{
	uint16_t *first = first_of(w, place);
	struct order_entry *entry;

	while (w->turn - w->oldest >= ORDER_RING)
		forget_oldest(w);
	entry = &w->asked->ring[w->turn % ORDER_RING];
	*entry = (struct order_entry){
		.place = (uint32_t)place, .asked = from, .read = from, .other = *first
	};
	*first = (uint16_t)(w->turn++ % ORDER_RING + 1);
	w->files++;
	return entry;
}

/* ---- runs ------------------------------------------------------------------------------------ */

static bool is_passed(const struct order_window *w, uint64_t place)
{
	return w->passed[place / 64] >> place % 64 & 1;
}

/* The first place from there on that is not passed. */
static uint64_t skip_passed(const struct order_window *w, uint64_t place)
{
	while (place < w->count) {
		uint64_t left = ~w->passed[place / 64] >> place % 64;

		if (left != 0)
			return min(place + (uint64_t)__builtin_ctzll(left), w->count);
		place = (place / 64 + 1) * 64;
	}
	return w->count;
}

/* A run is over at the end of the order, and where another one is. */
static void move_on(struct order_window *w, struct order_run *run)
{
	bool over;

	run->next = skip_passed(w, run->next);
	run->part = 0;
	over = run->next >= w->count;
	for (uint32_t i = 0; i < w->n_runs && !over; i++) {
		struct order_run *other = &w->runs[i];

		if (other == run || other->next != run->next)
			continue;
		other->seen = max(other->seen, run->seen);
		other->used = max(other->used, run->used);
		over = true;
	}
	if (over)
		*run = w->runs[--w->n_runs];
}

static void pass(struct order_window *w, uint64_t place)
{
	w->passed[place / 64] |= (uint64_t)1 << place % 64;
	w->n_passed++;
	for (uint32_t i = 0; i < w->n_runs; i++)
		if (w->runs[i].next == place) {
			move_on(w, &w->runs[i]);
			return;
		}
}

static struct order_run *begin_run(struct order_window *w, uint64_t place)
{
	struct order_run *run = &w->runs[0];

	if (w->n_runs < ORDER_RUNS)
		run = &w->runs[w->n_runs++];
	else
		for (uint32_t i = 1; i < ORDER_RUNS; i++)
			if (w->runs[i].used < run->used)
				run = &w->runs[i];
	*run = (struct order_run){ .next = place, .seen = place };
	return run;
}

/* The run that passed a place, or is at it. */
static struct order_run *run_behind(struct order_window *w, uint64_t place)
{
	struct order_run *found = NULL;

	for (uint32_t i = 0; i < w->n_runs; i++) {
		struct order_run *run = &w->runs[i];

		if (run->next == place)
			return run;
		if (run->next > place && (!found || run->next < found->next))
			found = run;
	}
	return found;
}

/* The run that is nearly at a place. */
static struct order_run *run_before(struct order_window *w, uint64_t place)
{
	for (uint32_t i = 0; i < w->n_runs; i++)
		if (w->runs[i].next <= place && place - w->runs[i].next <= ORDER_NEAR)
			return &w->runs[i];
	return NULL;
}

static int64_t lead_of(const struct order_run *run)
{
	return (int64_t)run->next - (int64_t)run->seen;
}

/* Whose turn it is: an index, or ORDER_RUNS. */
static uint32_t next_run(const struct order_window *w)
{
	uint32_t found = ORDER_RUNS;

	for (uint32_t i = 0; i < w->n_runs; i++)
		if (found == ORDER_RUNS || lead_of(&w->runs[i]) < lead_of(&w->runs[found]))
			found = i;
	if (found < ORDER_RUNS && lead_of(&w->runs[found]) >= (int64_t)ORDER_REACH)
		return ORDER_RUNS;
	return found;
}

/* ---- what is asked for next ------------------------------------------------------------------ */

bool order_window_room(const struct order_window *w)
{
	return w->files < min(w->max_files, w->start_files + w->grown) &&
	       w->bytes < min(w->max_bytes, w->start_bytes + (uint64_t)w->grown * UNIT_BYTES) &&
	       next_run(w) < ORDER_RUNS;
}

/* A run that was replaced may have asked for more of the place than this one. */
static uint32_t done_of(const struct order_run *run, const struct order_entry *entry)
{
	return entry ? max(run->part, entry->asked) : run->part;
}

uint64_t order_window_next(const struct order_window *w, uint32_t *ret_done)
{
	uint32_t i = next_run(w);

	ensure(i < ORDER_RUNS);
	*ret_done = done_of(&w->runs[i], find_open(w, w->runs[i].next));
	return w->runs[i].next;
}

void order_window_ask(struct order_window *w, uint32_t blocks)
{
	struct order_run *run = &w->runs[next_run(w)];
	struct order_entry *entry = find_open(w, run->next);

	run->part = done_of(run, entry) + blocks;
	if (!entry)
		entry = open_entry(w, run->next, run->part - blocks);
	w->bytes += (uint64_t)(run->part - entry->asked) * BLOCK_BYTES;
	entry->asked = run->part;
}

void order_window_pass(struct order_window *w)
{
	pass(w, w->runs[next_run(w)].next);
}

void order_window_present(struct order_window *w, uint64_t place, uint32_t from, uint32_t upto)
{
	struct order_entry *entry = find_open(w, place);

	if (entry && entry->asked >= upto && entry->read == from)
		set_read(w, entry, upto);
}

bool order_window_covers(const struct order_window *w, uint64_t place)
{
	if (w->off || place >= w->count)
		return false;
	return w->trusted || is_passed(w, place) || find_open(w, place);
}

/* ---- what is read ---------------------------------------------------------------------------- */

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

/* Whether the nearest place that was read lately is just before this one, which leaves its trail. */
static enum order_follows follows(struct order_window *w, uint64_t place)
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
	return before > min(gap, behind) ? ORDER_FOLLOWS_NOT : ORDER_FOLLOWS;
}

/* What is read now was not asked for. */
static struct order_run *read_late(
	struct order_window *w, uint64_t place, enum order_follows followed)
{
	struct order_run *run = run_before(w, place);

	if (followed == ORDER_FOLLOWS)
		forget_oldest(w);
	if (!run && (w->trusted || followed == ORDER_FOLLOWS))
		run = begin_run(w, place);
	return run;
}

enum order_follows order_window_read(
	struct order_window *w, uint64_t place, uint32_t upto, uint32_t total)
{
	struct order_entry *entry;
	enum order_follows followed;
	struct order_run *run;

	if (place >= w->count)
		return ORDER_NOT_TOUCHED;
	followed = follows(w, place);
	w->last = place;
	if (w->off)
		return followed;
	entry = find_open(w, place);
	if (entry) {
		forget_before(w, entry);
		set_read(w, entry, upto);
	}
	run = entry || is_passed(w, place) ? run_behind(w, place) : read_late(w, place, followed);
	if (!run)
		return followed;
	run->seen = max(run->seen, place + 1);
	run->used = ++w->clock;
	if (run->next == place)
		run->part = max(run->part, upto);
	/* What is read before the order is trusted may be asked for all the same: it is there. */
	if (upto >= total && w->trusted && !is_passed(w, place))
		pass(w, place);
	return followed;
}

/* Nothing is asked for, and nothing of what was asked for is waited for. */
static void stop_runs(struct order_window *w)
{
	while (w->oldest < w->turn)
		forget_oldest(w);
	w->n_runs = 0;
	w->grown = 0;
}

bool order_window_judge(struct order_window *w, bool hit)
{
	unsigned int hits;

	w->reads++;
	w->hits += hit;
	w->recent[1] = w->recent[1] << 1 | w->recent[0] >> 63;
	w->recent[0] = w->recent[0] << 1 | hit;
	w->judged = min(w->judged + 1, ORDER_JUDGED);
	w->grown = min(w->grown + hit, ORDER_AHEAD);
	hits = (unsigned int)(__builtin_popcountll(w->recent[0]) +
			      __builtin_popcountll(w->recent[1]));
	w->trusted = hits >= ORDER_ENOUGH || (w->trusted && hits >= ORDER_FEW);
	if (w->judged < ORDER_JUDGED || (w->off ? hits < ORDER_ENOUGH : hits >= ORDER_FEW))
		return false;
	w->off = !w->off;
	if (w->off)
		stop_runs(w);
	else
		move_on(w, begin_run(w, min(w->last + 1, w->count)));
	return true;
}
