/*
 * Who owns which slot after the workers changed, with the fewest moves.
 *
 * A worker's share is SLOTS x weight / sum of weights; its load must stay within 2 % of that: in
 * [low, high]. Slots whose owner went are free. So are what a worker has above `high`, and, when
 * that is not enough to lift everyone to `low`, slots of those above their share. Nothing else
 * moves.
 *
 * A free slot goes to the worker with the best weighted rendezvous score, -ln(u) / weight with u a
 * hash of worker and slot in (0, 1), among those that may take one:
 *
 *	below `low`	while there are not more free slots than are missing below `low`
 *	below share	a slot taken from a living owner: where it is missed, to a newcomer
 *	below `high`	a slot whose owner went
 *
 * So a lost worker costs its own slots and a newcomer gets slots from everyone and gives none to
 * others. Before the score goes who had the slot before: a worker that comes back gets what it had,
 * whose bytes it still has.
 */
#include "placement/placement.h"

#include <math.h>
#include <stdlib.h>
#include "base/cleanup.h"

#define BOUND    0.02 /* how far from its share a load may be */
#define NO_INDEX UINT16_MAX

struct candidate {
	uint64_t id;
	double weight;
	uint32_t share; /* of the slots, rounded down */
	uint32_t low;
	uint32_t high;
	uint32_t load;
	uint32_t wants; /* slots that it had before, of what it is missing below `low` */
	uint16_t number;
	uint16_t domain;
	bool down;
};

/* The scratch memory of one repair. */
struct repair {
	struct placement_table *table;
	uint32_t n; /* candidates: workers with a weight */
	uint32_t domains;
	uint32_t missing; /* sum of what loads are below `low` */
	uint32_t orphans; /* free slots whose owner went come first in `free` */
	uint32_t n_free;
	struct candidate candidates[PLACEMENT_MAX];
	uint16_t index[PLACEMENT_MAX];    /* worker number -> candidate */
	uint16_t owner[PLACEMENT_SLOTS];  /* candidate, or NO_INDEX */
	uint32_t free[PLACEMENT_SLOTS];   /* slots */
	uint16_t eligible[PLACEMENT_MAX]; /* candidates that may take a slot */
	uint32_t n_eligible;
	uint16_t fresh[PLACEMENT_MAX]; /* candidates that owned nothing */
	uint32_t n_fresh;
};

/* u in (0, 1): splitmix64's finaliser over worker and slot. */
static double unit_hash(uint64_t id, uint32_t slot)
{
	uint64_t x = id + (slot + 1) * 0x9E3779B97F4A7C15ull;

	x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
	x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
	x ^= x >> 31;
	return ((double)(x >> 12) + 0.5) * 0x1p-52;
}

/* Lower is better. Anything >= `limit` may be given for a score that is not below it: -ln(u) >=
 * 1 - u saves most logs. */
static double score(const struct candidate *c, uint32_t slot, double limit)
{
	double u = unit_hash(c->id, slot);
	double bound = (1 - u) / c->weight;

	return bound >= limit ? bound : -log(u) / c->weight;
}

/* ---- who there is ---------------------------------------------------------------------------- */

static int candidates_fill(struct repair *r, const struct placement_worker *workers, uint32_t n)
{
	bool seen[PLACEMENT_MAX] = { false };

	if (n > PLACEMENT_MAX)
		return -EINVAL;
	memset(r->index, 0xff, sizeof(r->index));
	for (uint32_t i = 0; i < n; i++) {
		struct candidate *c = &r->candidates[r->n];

		if (workers[i].number >= PLACEMENT_MAX || seen[workers[i].number])
			return -EINVAL;
		seen[workers[i].number] = true;
		if (workers[i].weight == 0)
			continue;
		c->id = workers[i].id;
		c->weight = workers[i].weight;
		c->number = workers[i].number;
		c->domain = workers[i].domain;
		c->down = workers[i].down;
		r->index[c->number] = (uint16_t)r->n++;
	}
	return r->n ? 0 : -EINVAL;
}

/* A worker that is down keeps its slots. The others share the rest by their weights; when all are down, all of it. */
static void shares_fill(struct repair *r)
{
	double slots = PLACEMENT_SLOTS;
	double sum = 0;
	bool up = false;

	for (uint32_t i = 0; i < r->n; i++)
		up |= !r->candidates[i].down;
	for (uint32_t i = 0; i < r->n; i++) {
		struct candidate *c = &r->candidates[i];

		c->down &= up;
		if (c->down)
			slots -= c->load;
		else
			sum += c->weight;
	}
	for (uint32_t i = 0; i < r->n; i++) {
		struct candidate *c = &r->candidates[i];
		double share = c->down ? c->load : slots * (c->weight / sum);

		c->share = (uint32_t)share;
		c->low = c->down ? c->load : (uint32_t)(share * (1 - BOUND));
		c->high = c->down ? c->load
				  : max((uint32_t)(share * (1 + BOUND)), (uint32_t)ceil(share));
	}
}

static void domains_count(struct repair *r)
{
	uint8_t seen[UINT16_MAX / 8 + 1] = { 0 };

	for (uint32_t i = 0; i < r->n; i++) {
		uint16_t d = r->candidates[i].domain;

		r->domains += !(seen[d / 8] >> d % 8 & 1);
		seen[d / 8] |= (uint8_t)(1u << d % 8);
	}
}

/* ---- which slots move ------------------------------------------------------------------------ */

static void slot_free(struct repair *r, uint32_t slot)
{
	if (r->owner[slot] != NO_INDEX)
		r->candidates[r->owner[slot]].load--;
	r->owner[slot] = NO_INDEX;
	r->free[r->n_free++] = slot;
}

/* Takes over who owns what; what none here owns is free. */
static void slots_adopt(struct repair *r)
{
	for (uint32_t s = 0; s < PLACEMENT_SLOTS; s++) {
		uint16_t number = r->table->slots[s].owner;

		r->owner[s] = number < PLACEMENT_MAX ? r->index[number] : NO_INDEX;
		if (r->owner[s] != NO_INDEX)
			r->candidates[r->owner[s]].load++;
	}
	for (uint32_t s = 0; s < PLACEMENT_SLOTS; s++) {
		if (r->owner[s] == NO_INDEX)
			slot_free(r, s);
	}
	r->orphans = r->n_free;
}

/* The candidate that had the slot before its owner; NO_INDEX: it is none. */
static uint16_t had_before(const struct repair *r, uint32_t slot)
{
	uint16_t number = r->table->slots[slot].previous;

	return number < PLACEMENT_MAX ? r->index[number] : NO_INDEX;
}

enum shed_above {
	ABOVE_HIGH,
	ABOVE_SHARE,
	ABOVE_LOW,
};

static uint32_t shed_limit(const struct candidate *c, enum shed_above above)
{
	switch (above) {
	case ABOVE_HIGH:
		return c->high;
	case ABOVE_SHARE:
		return c->share + 1;
	case ABOVE_LOW:
		break;
	}
	return c->low;
}

/* Frees slots of workers above a limit, until `enough` are free. Slots are visited as an odd
 * step mixes them, so that no stretch of a volume loses all its owners. */
static void slots_shed(struct repair *r, enum shed_above above, uint32_t enough)
{
	for (uint32_t i = 0; i < PLACEMENT_SLOTS && r->n_free < enough; i++) {
		uint32_t s = i * 25717u % PLACEMENT_SLOTS;
		const struct candidate *c;

		if (r->owner[s] == NO_INDEX)
			continue;
		c = &r->candidates[r->owner[s]];
		if (c->load > shed_limit(c, above))
			slot_free(r, s);
	}
}

/* As slots_shed(), but only slots of which somebody who is below `low` was the owner before. */
static void slots_give_back(struct repair *r, enum shed_above above, uint32_t enough)
{
	for (uint32_t i = 0; i < PLACEMENT_SLOTS && r->n_free < enough; i++) {
		uint32_t s = i * 25717u % PLACEMENT_SLOTS;
		uint16_t before = had_before(r, s);
		const struct candidate *c;

		if (r->owner[s] == NO_INDEX || before == NO_INDEX || !r->candidates[before].wants)
			continue;
		c = &r->candidates[r->owner[s]];
		if (c->load <= shed_limit(c, above))
			continue;
		slot_free(r, s);
		r->candidates[before].wants--;
	}
}

/* ---- where they go --------------------------------------------------------------------------- */

enum take_below {
	BELOW_LOW,
	BELOW_SHARE,
	BELOW_HIGH,
};

static uint32_t take_limit(const struct candidate *c, enum take_below below)
{
	switch (below) {
	case BELOW_LOW:
		return c->low;
	case BELOW_SHARE:
		return c->share;
	case BELOW_HIGH:
		break;
	}
	return c->high;
}

static void eligible_fill(struct repair *r, enum take_below below)
{
	r->n_eligible = 0;
	for (uint32_t i = 0; i < r->n; i++) {
		if (r->candidates[i].load < take_limit(&r->candidates[i], below))
			r->eligible[r->n_eligible++] = (uint16_t)i;
	}
}

/* Gives one slot to who had it before, or else to the best of the eligible, who leaves them when that fills
 * him. */
static void slot_give(struct repair *r, uint32_t slot, enum take_below below)
{
	uint16_t before = had_before(r, slot);
	double best = INFINITY;
	uint32_t at = 0;
	struct candidate *c;

	for (uint32_t i = 0; i < r->n_eligible && best > 0; i++) {
		if (r->eligible[i] == before) {
			best = 0;
			at = i;
		}
	}
	for (uint32_t i = 0; i < r->n_eligible && best > 0; i++) {
		double s = score(&r->candidates[r->eligible[i]], slot, best);

		if (s < best) {
			best = s;
			at = i;
		}
	}
	c = &r->candidates[r->eligible[at]];
	r->owner[slot] = r->eligible[at];
	r->missing -= c->load < c->low;
	c->load++;
	if (c->load >= take_limit(c, below))
		r->eligible[at] = r->eligible[--r->n_eligible];
}

static void slots_give(struct repair *r)
{
	enum take_below below = BELOW_HIGH;

	r->n_eligible = 0;
	for (uint32_t i = 0; i < r->n_free; i++) {
		enum take_below now = r->n_free - i <= r->missing ? BELOW_LOW
				      : i < r->orphans            ? BELOW_HIGH
								  : BELOW_SHARE;

		if (now != below || r->n_eligible == 0) {
			below = now;
			eligible_fill(r, below);
		}
		if (r->n_eligible == 0) {
			below = BELOW_HIGH; /* whose sum is above the number of slots */
			eligible_fill(r, below);
		}
		slot_give(r, r->free[i], below);
	}
}

/* ---- replicas -------------------------------------------------------------------------------- */

/* The best few of a slot, best first. */
struct ranking {
	uint32_t n;
	uint32_t max;
	uint16_t who[2];
	double score[2];
};

static double ranking_limit(const struct ranking *k)
{
	return k->n < k->max ? INFINITY : k->max ? k->score[k->max - 1] : -INFINITY;
}

static void ranking_insert(struct ranking *k, uint32_t at, uint16_t who, double s)
{
	if (at == 0 && k->max == 2) {
		k->who[1] = k->who[0];
		k->score[1] = k->score[0];
		k->n = k->n ? 2 : 0;
	}
	k->who[at] = who;
	k->score[at] = s;
	k->n = max(k->n, at + 1);
}

/* Enters a candidate; with `apart` two of one domain never stand together. */
static void ranking_offer(
	const struct repair *r, struct ranking *k, uint16_t who, double s, bool apart)
{
	uint16_t domain = r->candidates[who].domain;

	if (s >= ranking_limit(k))
		return;
	if (k->n && apart && r->candidates[k->who[0]].domain == domain) {
		if (s < k->score[0]) {
			k->who[0] = who;
			k->score[0] = s;
		}
		return;
	}
	if (k->n == 0 || s < k->score[0])
		ranking_insert(k, 0, who, s);
	else if (k->max == 2)
		ranking_insert(k, 1, who, s);
}

/* What is sought for one slot. */
struct rankings {
	uint32_t slot;
	uint16_t owner;
	struct ranking apart; /* of other domains */
	struct ranking any;
};

static void rankings_offer(const struct repair *r, struct rankings *k, uint16_t who)
{
	bool other = r->candidates[who].domain != r->candidates[k->owner].domain;
	double limit = max(other ? ranking_limit(&k->apart) : -INFINITY, ranking_limit(&k->any));
	double s;

	if (who == k->owner || limit < 0)
		return;
	s = score(&r->candidates[who], k->slot, limit);
	if (s >= limit)
		return;
	if (other)
		ranking_offer(r, &k->apart, who, s, true);
	ranking_offer(r, &k->any, who, s, false);
}

/* Those there are were the best of all that are not fresh: as long as all of them are there, apart as far as can
 * be, and the owner is the same, only the fresh ones can be better. */
static bool replicas_stand(const struct repair *r, uint32_t slot, uint32_t replicas)
{
	const struct placement_slot *entry = &r->table->slots[slot];
	uint16_t domains[3] = { r->candidates[r->owner[slot]].domain };
	uint32_t distinct = 1;

	if (entry->owner != r->candidates[r->owner[slot]].number)
		return false;
	for (uint32_t i = 0; i < replicas; i++) {
		uint16_t number = entry->replicas[i];
		uint16_t who = number < PLACEMENT_MAX ? r->index[number] : NO_INDEX;

		if (who == NO_INDEX || who == r->owner[slot])
			return false;
		domains[i + 1] = r->candidates[who].domain;
		distinct += domains[i + 1] != domains[0] && (i == 0 || domains[2] != domains[1]);
	}
	return distinct == min(replicas + 1, r->domains);
}

/* The two best others in other domains than the owner's and each other's; then, where there are
 * too few domains, any. */
static void slot_replicas(const struct repair *r, uint32_t slot, uint32_t replicas, uint16_t ret[2])
{
	const struct placement_slot *entry = &r->table->slots[slot];
	struct rankings k = { .slot = slot,
		.owner = r->owner[slot],
		.apart = { .max = min(replicas, r->domains - 1) } };
	uint32_t n = 0;

	k.any.max = k.apart.max == replicas ? 0 : min(replicas, r->n - 1);
	if (replicas_stand(r, slot, replicas)) {
		for (uint32_t i = 0; i < replicas; i++)
			rankings_offer(r, &k, r->index[entry->replicas[i]]);
		for (uint32_t i = 0; i < r->n_fresh; i++)
			rankings_offer(r, &k, r->fresh[i]);
	} else {
		for (uint32_t i = 0; i < r->n; i++)
			rankings_offer(r, &k, (uint16_t)i);
	}
	for (uint32_t i = 0; i < k.apart.n; i++)
		ret[n++] = r->candidates[k.apart.who[i]].number;
	for (uint32_t i = 0; i < k.any.n && n < replicas; i++) {
		if (k.apart.n == 0 || k.any.who[i] != k.apart.who[0])
			ret[n++] = r->candidates[k.any.who[i]].number;
	}
	while (n < 2)
		ret[n++] = PLACEMENT_NONE;
}

/* ---- the whole ------------------------------------------------------------------------------- */

/* Writes the outcome into the table. Returns how many slots have another owner. */
static int table_update(struct repair *r, uint32_t replicas)
{
	bool changed = false;
	int moved = 0;

	for (uint32_t s = 0; s < PLACEMENT_SLOTS; s++) {
		struct placement_slot *slot = &r->table->slots[s];
		struct placement_slot next = *slot;

		next.owner = r->candidates[r->owner[s]].number;
		if (next.owner != slot->owner) {
			next.previous = slot->owner;
			moved++;
		}
		slot_replicas(r, s, replicas, next.replicas);
		changed |= memcmp(&next, slot, sizeof(next)) != 0;
		*slot = next;
	}
	r->table->sequence += changed;
	return moved;
}

int placement_repair(struct placement_table *table, const struct placement_worker *workers,
	uint32_t n, uint32_t replicas)
{
	_cleanup_free_ struct repair *r = NULL;
	int rc;

	if (replicas > ARRAY_SIZE(table->slots[0].replicas))
		return -EINVAL;
	r = calloc(1, sizeof(*r));
	if (!r)
		return -ENOMEM;
	r->table = table;
	rc = candidates_fill(r, workers, n);
	if (rc < 0)
		return rc;
	domains_count(r);
	slots_adopt(r);
	shares_fill(r);
	for (uint32_t i = 0; i < r->n; i++) {
		struct candidate *c = &r->candidates[i];

		if (c->load == 0)
			r->fresh[r->n_fresh++] = (uint16_t)i;

		c->wants = c->low > c->load ? c->low - c->load : 0;
		r->missing += c->wants;
	}
	slots_give_back(r, ABOVE_HIGH, PLACEMENT_SLOTS);
	slots_shed(r, ABOVE_HIGH, PLACEMENT_SLOTS);
	slots_give_back(r, ABOVE_LOW, r->missing);
	slots_shed(r, ABOVE_SHARE, r->missing);
	slots_shed(r, ABOVE_LOW, r->missing);
	slots_give(r);
	return table_update(r, replicas);
}
