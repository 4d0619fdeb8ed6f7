/*
 * Who shows which generation, and which of them may therefore still be read. See source.h.
 *
 * A mount says every few seconds what it shows; what it said counts for config.hold_ns. A restart
 * forgets the mounts, but not that a generation was held: a mark in the store counts as a hold for
 * the first config.hold_ns. Until config.grace_ns after the start nothing is given up at all, as a
 * store restored from an older copy has not all the marks.
 */
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "master/source_internal.h"

#include <inttypes.h>
#include <string.h>

bool holds_in_grace(const struct source_set *set)
{
	return clock_mono_ns() - set->started < set->config.grace_ns;
}

static void expire_locked(struct source *source, uint64_t now)
{
	uint32_t kept = 0;

	for (uint32_t i = 0; i < source->n_holds; i++)
		if (source->holds[i].until > now)
			source->holds[kept++] = source->holds[i];
	source->n_holds = kept;
}

static struct hold *find_locked(struct source *source, const struct source_hold *wanted)
{
	for (uint32_t i = 0; i < source->n_holds; i++) {
		struct hold *h = &source->holds[i];

		if (h->lineage == wanted->lineage && h->generation == wanted->generation &&
			memcmp(h->mount, wanted->mount, HOLD_MOUNT_BYTES) == 0)
			return h;
	}
	return NULL;
}

/* Without room for another hold, every generation counts as held for a while. */
static void add_locked(struct source *source, const struct source_hold *wanted, uint64_t until)
{
	struct hold *grown;

	if (source->n_holds == source->cap_holds && source->cap_holds < HOLDS_MAX) {
		uint32_t cap = min(2 * source->cap_holds + 4, HOLDS_MAX);

		grown = reallocarray(source->holds, cap, sizeof(*grown));
		if (grown) {
			source->holds = grown;
			source->cap_holds = cap;
		}
	}
	if (source->n_holds == source->cap_holds) {
		source->crowded_until = until;
		return;
	}
	source->holds[source->n_holds] = (struct hold){
		.lineage = wanted->lineage,
		.generation = wanted->generation,
		.until = until,
		.local_bytes = wanted->local_bytes,
		.follow_s = wanted->follow_s,
	};
	memcpy(source->holds[source->n_holds++].mount, wanted->mount, HOLD_MOUNT_BYTES);
}

uint32_t holds_count_locked(const struct source *source, uint64_t lineage, uint64_t generation)
{
	uint64_t now = clock_mono_ns();
	uint32_t n = source->crowded_until > now;

	for (uint32_t i = 0; i < source->n_holds; i++)
		n += source->holds[i].until > now && source->holds[i].lineage == lineage &&
		     source->holds[i].generation == generation;
	return n;
}

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
 * grace of a start others too, as long as there is room beside those that are known to be held.
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
		log_warn("hold of a generation not stored",
			"cause=%s next=\"a restart of the master counts without it\"", err_name(r));
}

int source_set_hold(struct source_set *set, const struct source_hold *hold, struct err *e)
{
	uint64_t now = clock_mono_ns();
	struct source *source;
	struct record_generation *g;
	struct hold *there;
	uint64_t serial = 0;
	bool kept = false;
	bool held;
	bool mark;
	bool late;

	pthread_mutex_lock(&set->lock);
	source = source_find_locked(set, &hold->volume);
	if (!source) {
		pthread_mutex_unlock(&set->lock);
		return err_set(e, -ENXIO, "this master does not know the volume: mount it again");
	}
	expire_locked(source, now);
	late = source_use_locked(source);
	there = find_locked(source, hold);
	count_locked(source, there, hold);
	if (there) {
		there->until = hold->end ? 0 : now + set->config.hold_ns;
		there->follow_s = hold->follow_s;
	} else if (!hold->end) {
		add_locked(source, hold, now + set->config.hold_ns);
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
	if (!kept && !hold->end)
		return err_set(e, -ESTALE,
			"generation %" PRIu64 " is not kept any more: what is not cached of it may "
			"be gone: mount again",
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
		memcpy(hold.mount, &serial, sizeof(serial)); /* nobody's */
		add_locked(source, &hold, clock_mono_ns() + source->set->config.hold_ns);
	}
}
