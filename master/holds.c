/*
 * Who shows which generation, and which of them may therefore still be read. See source.h.
 *
 * A mount says every few seconds what it shows; what it said counts for config.hold_ns. Ten thousand mounts say so
 * two thousand times a second, so taking it down looks at no other mount. A restart forgets the mounts, but not that a
 * generation was held: a mark in the store counts as a hold for the first config.hold_ns. Until config.grace_ns after
 * the start nothing is given up at all, as a store restored from an older copy has not all the marks.
 */
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "master/source_internal.h"
#include "net/allowance.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

bool holds_in_grace(const struct source_set *set)
{
	return clock_mono_ns() - set->started < set->config.grace_ns;
}

static bool is_over(const struct hold *hold, uint64_t now)
{
	return hold->until <= now;
}

/* ---- who shows what -------------------------------------------------------------------------- */

static uint64_t mount_hash(const struct source *source, const struct source_hold *wanted)
{
	const uint64_t seeds[] = { (uintptr_t)source, wanted->lineage, wanted->generation };

	return hash_xxh3(wanted->mount, HOLD_MOUNT_BYTES, hash_xxh3(seeds, sizeof(seeds), 0));
}

static struct hold *find_locked(const struct source *source, const struct source_hold *wanted)
{
	uint64_t hash = mount_hash(source, wanted);

	for (struct map_node *node = map_first(&source->set->holds, hash); node;
		node = map_next_same(node)) {
		struct hold *h = container_of(node, struct hold, by_mount);

		if (h->source == source && h->shown->lineage == wanted->lineage &&
			h->shown->generation == wanted->generation &&
			memcmp(h->mount, wanted->mount, HOLD_MOUNT_BYTES) == 0)
			return h;
	}
	return NULL;
}

static struct shown *find_shown_locked(
	const struct source *source, uint64_t lineage, uint64_t generation)
{
	list_for_each (node, &source->shown) {
		struct shown *shown = list_entry(node, struct shown, link);

		if (shown->lineage == lineage && shown->generation == generation)
			return shown;
	}
	return NULL;
}

static void drop_locked(struct source *source, struct hold *hold)
{
	struct shown *shown = hold->shown;

	if (hold->follow_s || hold->since_ms)
		source->held_ns = 0;
	if (--shown->n == 0) {
		list_remove(&shown->link);
		source->n_shown--;
		free(shown);
	}
	list_remove(&hold->link);
	map_remove(&source->set->holds, &hold->by_mount);
	allowance_give(hold->allowance, ALLOWANCE_LEASES);
	allowance_unref(hold->allowance);
	free(hold);
	source->n_holds--;
}

/* They lie in the order in which they end, as all last equally long. */
static void expire_locked(struct source *source, uint64_t now)
{
	while (!list_empty(&source->holds)) {
		struct hold *first = list_entry(source->holds.next, struct hold, link);

		if (!is_over(first, now))
			return;
		drop_locked(source, first);
	}
}

void holds_release(struct source *source)
{
	expire_locked(source, UINT64_MAX);
}

static void set_follow_locked(
	struct source *source, struct hold *hold, const struct source_hold *said)
{
	if (hold->follow_s != said->follow_s || hold->since_ms != said->since_ms)
		source->held_ns = 0;
	hold->follow_s = said->follow_s;
	hold->since_ms = said->since_ms;
}

static struct shown *make_shown_locked(struct source *source, const struct source_hold *wanted)
{
	struct shown *shown = find_shown_locked(source, wanted->lineage, wanted->generation);

	if (shown)
		return shown;
	shown = source->n_shown < SHOWN_MAX ? calloc(1, sizeof(*shown)) : NULL;
	if (!shown)
		return NULL;
	source->n_shown++;
	shown->lineage = wanted->lineage;
	shown->generation = wanted->generation;
	list_push_back(&source->shown, &shown->link);
	return shown;
}

static struct record_generation *known_locked(
	struct source *source, uint64_t lineage, uint64_t generation)
{
	for (uint32_t i = source->n; i-- > 0;) {
		struct record_generation *g = &source->generations[i];

		if (g->id.lineage == lineage && g->id.generation == generation)
			return g;
	}
	return NULL;
}

/* Of a token's there may be so many. Generations that are made up take half of what tells generations apart, so that they
 * keep no mount out that shows a real one. */
static bool token_has_room_locked(struct source *source, const struct source_hold *wanted)
{
	const struct record_generation *known =
		known_locked(source, wanted->lineage, wanted->generation);

	return (source->n_shown < SHOWN_MAX / 2 || (known && known->kept) ||
		       find_shown_locked(source, wanted->lineage, wanted->generation)) &&
	       allowance_take(wanted->allowance, ALLOWANCE_LEASES, LIMIT_TOKEN_LEASES);
}

/* Without room for another hold, every generation counts as held for a while; not for a token's sake. False: refused. */
static bool add_locked(struct source *source, const struct source_hold *wanted, uint64_t until)
{
	bool room = source->n_holds < HOLDS_MAX && source->set->holds.count < HOLDS_ALL;
	struct hold *hold;
	struct shown *shown;

	if (wanted->allowance && (!room || !token_has_room_locked(source, wanted)))
		return false;
	hold = room ? calloc(1, sizeof(*hold)) : NULL;
	shown = hold ? make_shown_locked(source, wanted) : NULL;
	if (!shown) {
		allowance_give(wanted->allowance, ALLOWANCE_LEASES);
		free(hold);
		source->crowded_until = until;
		return true;
	}
	hold->allowance = allowance_ref(wanted->allowance);
	shown->n++;
	hold->source = source;
	hold->shown = shown;
	hold->until = until;
	hold->local_bytes = wanted->local_bytes;
	set_follow_locked(source, hold, wanted);
	memcpy(hold->mount, wanted->mount, HOLD_MOUNT_BYTES);
	list_push_back(&source->holds, &hold->link);
	map_insert(&source->set->holds, &hold->by_mount, mount_hash(source, wanted));
	source->n_holds++;
	return true;
}

static void renew_locked(struct source *source, struct hold *hold, uint64_t until)
{
	hold->until = until;
	list_remove(&hold->link);
	list_push_back(&source->holds, &hold->link);
}

/* Those of `shown` that are over, and were not dropped yet; NULL: of all. */
static uint32_t over_locked(const struct source *source, const struct shown *shown)
{
	uint64_t now = clock_mono_ns();
	uint32_t n = 0;

	list_for_each (node, &source->holds) {
		const struct hold *hold = list_entry(node, struct hold, link);

		if (!is_over(hold, now))
			break;
		n += !shown || hold->shown == shown;
	}
	return n;
}

uint32_t holds_count_locked(const struct source *source, uint64_t lineage, uint64_t generation)
{
	const struct shown *shown = find_shown_locked(source, lineage, generation);
	uint32_t crowd = source->crowded_until > clock_mono_ns();

	return crowd + (shown ? shown->n - over_locked(source, shown) : 0);
}

uint32_t holds_mounts_locked(const struct source *source)
{
	uint32_t crowd = source->crowded_until > clock_mono_ns();

	return crowd + source->n_holds - over_locked(source, NULL);
}

uint32_t holds_follow_locked(struct source *source, int64_t *ret_since_ms)
{
	uint64_t now = clock_mono_ns();

	*ret_since_ms = source->held_since_ms;
	if (source->held_ns && now - source->held_ns < CLOCK_SECOND)
		return source->held_follow_s;
	source->held_ns = now;
	source->held_follow_s = 0;
	source->held_since_ms = 0;
	list_for_each (node, &source->holds) {
		const struct hold *hold = list_entry(node, struct hold, link);
		uint32_t s = hold->follow_s;

		if (s && !is_over(hold, now) &&
			(!source->held_follow_s || s < source->held_follow_s))
			source->held_follow_s = s;
		if (!is_over(hold, now))
			source->held_since_ms = max(source->held_since_ms, hold->since_ms);
	}
	*ret_since_ms = source->held_since_ms;
	return source->held_follow_s;
}

/* ---- what is kept ---------------------------------------------------------------------------- */

bool holds_pinned(const struct source *source, const struct generation_id *id)
{
	for (uint32_t i = 0; i < source->n_pins; i++)
		if (source->pins[i].lineage == id->lineage &&
			source->pins[i].generation == id->generation)
			return true;
	return false;
}

static uint32_t count_held_locked(const struct source *source)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < source->n; i++) {
		const struct generation_id *id = &source->generations[i].id;

		n += source->generations[i].kept && !holds_pinned(source, id) &&
		     holds_count_locked(source, id->lineage, id->generation) > 0;
	}
	return n;
}

/*
 * The last two of the newest lineage and the held ones, and those that are pinned, newest first. In the
 * grace of a start others too, as long as there is room in addition to those that are known to be held.
 */
uint32_t holds_retained_locked(const struct source *source, uint32_t out[GENERATIONS_RETAINED])
{
	const struct record_generation *newest = generations_newest(source);
	bool grace = holds_in_grace(source->set);
	uint32_t held = count_held_locked(source); /* still to come */
	uint32_t last = 0;
	uint32_t others = 0;
	uint32_t n = 0;

	for (uint32_t i = source->n; i-- > 0;) {
		const struct generation_id *id = &source->generations[i].id;

		if (!source->generations[i].kept)
			continue;
		if (!holds_pinned(source, id)) {
			bool shown = holds_count_locked(source, id->lineage, id->generation) > 0;

			held -= shown;
			if (others == GENERATIONS_KEPT)
				continue;
			if (id->lineage == newest->id.lineage && last < 2)
				last++;
			else if (!shown && (!grace || others + held >= GENERATIONS_KEPT))
				continue;
			others++;
		}
		out[n++] = i;
	}
	return n;
}

/* A mount that is heard of for the first time may have begun before this run of the master did. */
static void count_locked(struct source *source, struct hold *there, const struct source_hold *said)
{
	uint64_t before = there ? there->local_bytes : 0;

	if (said->local_bytes > before)
		source->local_bytes += said->local_bytes - before;
	if (there)
		there->local_bytes = said->local_bytes;
}

/* Writes or removes the mark that a generation is held. */
static void store_mark(struct source *source, uint64_t serial, bool held)
{
	struct store *store = source->set->config.store;
	char key[RECORD_KEY_BYTES];
	int r;

	record_held_key(&source->record.volume, serial, key);
	r = store->ops->write(
		store, &(struct store_change){ key, held ? "1" : NULL, held ? 1 : 0 }, 1);
	if (r < 0)
		log_warn("lease of a generation not stored",
			"cause=%s next=\"lost at a restart of the master, until its mount reports "
			"again\"",
			err_name(r));
}

int source_set_hold(struct source_set *set, const struct source_hold *hold, struct err *e)
{
	struct source *source;
	struct record_generation *g;
	struct hold *there;
	uint64_t serial = 0;
	bool kept = false;
	bool noted = true;
	bool held;
	bool mark;
	bool late;
	uint64_t now;

	pthread_mutex_lock(&set->lock);
	now = clock_mono_ns(); /* under the lock: holds lie in the order in which they end */
	source = source_find_locked(set, &hold->volume);
	if (!source) {
		pthread_mutex_unlock(&set->lock);
		return err_set(e, -ENXIO, "this master does not know the volume: mount it again");
	}
	expire_locked(source, now);
	late = source_use_locked(source);
	there = find_locked(source, hold);
	if (there || !hold->allowance)
		count_locked(source, there, hold);
	if (there && hold->end) {
		drop_locked(source, there);
	} else if (there) {
		renew_locked(source, there, now + set->config.hold_ns);
		set_follow_locked(source, there, hold);
	} else if (!hold->end) {
		noted = add_locked(source, hold, now + set->config.hold_ns);
		if (noted && hold->allowance)
			count_locked(source, NULL, hold);
	}
	g = known_locked(source, hold->lineage, hold->generation);
	held = holds_count_locked(source, hold->lineage, hold->generation) > 0;
	mark = g && g->held != held;
	if (g) {
		g->held = held;
		serial = g->serial;
		kept = g->kept;
	}
	pthread_mutex_unlock(&set->lock);
	if (mark)
		store_mark(source, serial, held);
	if (late)
		source_store_use(source);
	if (!noted)
		return allowance_refuse(set->config.hold_ns, e);
	if (!kept && !hold->end)
		return err_set(e, -ESTALE,
			"generation %" PRIu64
			" was removed: data of it that is not cached may be lost: mount again",
			hold->generation);
	return 0;
}

void holds_forget_mark(struct source *source, uint32_t i)
{
	bool held;

	pthread_mutex_lock(&source->set->lock);
	held = source->generations[i].held;
	source->generations[i].held = false;
	pthread_mutex_unlock(&source->set->lock);
	if (held)
		store_mark(source, source->generations[i].serial, false);
}

void holds_load_mark(struct source *source, uint64_t serial)
{
	for (uint32_t i = 0; i < source->n; i++) {
		struct record_generation *g = &source->generations[i];
		struct source_hold hold = { .lineage = g->id.lineage,
			.generation = g->id.generation };

		if (g->serial != serial)
			continue;
		g->held = true;
		memcpy(hold.mount, &serial, sizeof(serial)); /* of no mount */
		(void)add_locked(source, &hold,              /* no token's: not refused */
			clock_mono_ns() + source->set->config.hold_ns);
	}
}
