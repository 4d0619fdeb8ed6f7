/* Which volumes are kept whole, decided. See copies.h. */
#include "cacheworker/copies.h"
#include "cacheworker/promote.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "catalog/catalog.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define KNOWN_MAX    4096u /* volumes; as many sources as a master takes */
#define DECIDE_EVERY (2 * CLOCK_SECOND)
/* When more of a volume is dead, its chunks get files of their own: an extent gives nothing back
 * before its last chunk goes. */
#define FRAGMENTED_SHARE 3u

struct known {
	struct map_node node;
	struct list link; /* copies.all, the one that was heard of last at the end */
	struct volume_id volume;
	uint32_t policy; /* COPIES_AUTO, ... */
	bool asked;
	bool has_table;
	bool whole;
	bool applied;     /* the tiers know the layout */
	uint64_t version; /* of `policy` and `whole` */
	uint64_t at;      /* extent to be looked at next, of one that is kept whole */
	uint64_t lineage;
	struct tier_layout layout; /* `whole`: it has few holes */
	uint16_t keepers[COPIES_KEEPERS];
	uint32_t n_keepers;
};

struct copies {
	struct periodic_work work;
	pthread_mutex_t lock;
	_Atomic bool closing;
	uint64_t promoted_ns; /* when the rest of extents was looked for last; the work's */
	struct map map;
	struct list all;
	uint32_t n;
	/* One decision at a time, so that the tiers hear of the last one last; before `lock`. */
	pthread_mutex_t deciding;
};

bool copies_keep_whole(const struct copies_ask *ask)
{
	if (ask->alone)
		return true;
	if (ask->copies == COPIES_EVERYWHERE)
		return ask->need <= ask->room;
	if (ask->copies != COPIES_AUTO)
		return false;
	if (ask->kept)
		return ask->need <= ask->room / 100 * COPIES_KEEP;
	return ask->asked && ask->need <= ask->room / 100 * COPIES_TAKE;
}

/* ---- what is known --------------------------------------------------------------------------- */

static struct known *find_locked(struct copies *copies, const struct volume_id *volume)
{
	uint64_t hash = hash_xxh3(volume, sizeof(*volume), 0);

	for (struct map_node *n = map_first(&copies->map, hash); n; n = map_next_same(n)) {
		struct known *known = container_of(n, struct known, node);

		if (volume_id_equal(&known->volume, volume))
			return known;
	}
	return NULL;
}

/* The one longest not heard of makes room: what anybody names is no volume yet. NULL: without memory. */
static struct known *get_locked(struct copies *copies, const struct volume_id *volume)
{
	struct known *known = find_locked(copies, volume);

	if (known) {
		list_remove(&known->link);
		list_push_back(&copies->all, &known->link);
		return known;
	}
	if (copies->n == KNOWN_MAX) {
		known = list_entry(copies->all.next, struct known, link);
		list_remove(&known->link);
		map_remove(&copies->map, &known->node);
		*known = (struct known){ .volume = *volume };
	} else {
		known = calloc(1, sizeof(*known));
		if (!known)
			return NULL;
		known->volume = *volume;
		copies->n++;
	}
	map_insert(&copies->map, &known->node, hash_xxh3(volume, sizeof(*volume), 0));
	list_push_back(&copies->all, &known->link);
	return known;
}

static bool is_alone(const struct worker *w)
{
	return atomic_load(&w->others) == 0;
}

bool worker_keeps_whole(struct worker *w, const struct volume_id *volume)
{
	const struct known *known;
	bool whole;

	if (is_alone(w))
		return true;
	pthread_mutex_lock(&w->copies->lock);
	known = find_locked(w->copies, volume);
	whole = known && known->whole;
	pthread_mutex_unlock(&w->copies->lock);
	return whole;
}

uint32_t copies_policy(struct worker *w, const struct volume_id *volume)
{
	const struct known *known;
	uint32_t policy;

	pthread_mutex_lock(&w->copies->lock);
	known = find_locked(w->copies, volume);
	policy = known ? known->policy : COPIES_AUTO;
	pthread_mutex_unlock(&w->copies->lock);
	return policy;
}

uint64_t copies_version(struct worker *w, const struct volume_id *volume)
{
	const struct known *known;
	uint64_t version;

	pthread_mutex_lock(&w->copies->lock);
	known = find_locked(w->copies, volume);
	version = known ? known->version : 0;
	pthread_mutex_unlock(&w->copies->lock);
	return version;
}

uint32_t worker_copies(struct worker *w, const struct volume_id *volume)
{
	uint32_t policy = copies_policy(w, volume);

	return policy > COPIES_SHARED && policy <= COPIES_MAX ? policy : 1;
}

/* ---- decisions ------------------------------------------------------------------------------- */

static void tell_tiers(struct worker *w, const struct known *known, bool whole)
{
	struct tier_layout layout = known->layout;
	int r;

	layout.whole = layout.whole && whole;
	r = tier_set_layout(w->tiers, &known->volume, known->lineage, &layout);
	if (r < 0)
		LOG_LIMITED(LOG_WARN, "volume not laid out in extents",
			"reason=\"%s\" next=\"each of its chunks gets its own file\"", err_str(r));
}

/* Under `deciding`; `asked`: whatever is noted. */
static void decide(struct worker *w, const struct volume_id *volume, bool asked)
{
	struct copies *copies = w->copies;
	struct known copy;
	struct known *known;
	struct copies_ask ask;
	bool in_extents = false;
	bool whole;

	pthread_mutex_lock(&copies->lock);
	known = find_locked(copies, volume);
	if (known)
		copy = *known;
	pthread_mutex_unlock(&copies->lock);
	if (!known || !copy.has_table)
		return;
	ask = (struct copies_ask){
		.copies = copy.policy,
		.alone = is_alone(w),
		.asked = asked || copy.asked,
		.need = tier_layout_need(&copy.layout),
		.room = tier_volume_room(w->tiers, volume, copy.lineage, &in_extents),
	};
	ask.kept = copy.applied ? copy.whole : in_extents; /* before a restart, it was */
	whole = copies_keep_whole(&ask);
	if (!copy.applied || whole != copy.whole)
		tell_tiers(w, &copy, whole);
	if (whole != ask.kept && !ask.alone)
		log_info(whole ? "volume to be replicated as a whole"
			       : "volume no longer replicated as a whole",
			"need=%llu room=%llu", (unsigned long long)ask.need,
			(unsigned long long)ask.room);
	pthread_mutex_lock(&copies->lock);
	known = find_locked(copies, volume);
	if (known) {
		known->version += known->whole != whole;
		known->whole = whole;
		known->applied = known->lineage == copy.lineage;
	}
	pthread_mutex_unlock(&copies->lock);
}

void copies_note_table(struct worker *w, const struct table *table)
{
	const struct table_info *info = table_info(table);
	struct copies *copies = w->copies;
	uint64_t used = min(info->live_bytes + info->live_files * BLOCK_BYTES, info->end);
	struct known *known;

	pthread_mutex_lock(&copies->deciding);
	pthread_mutex_lock(&copies->lock);
	known = get_locked(copies, &info->id.volume);
	if (known) {
		known->has_table = true;
		known->applied = false;
		known->lineage = info->id.lineage;
		known->layout = (struct tier_layout){
			.end = info->end,
			.used = used,
			.whole = info->end - used <= info->end / FRAGMENTED_SHARE,
		};
	}
	pthread_mutex_unlock(&copies->lock);
	if (known) /* without memory its chunks get files of their own */
		decide(w, &info->id.volume, false);
	pthread_mutex_unlock(&copies->deciding);
}

/* Those known now, to be freed; NULL without memory. */
static struct volume_id *list_known(struct copies *copies, uint32_t *ret_n)
{
	struct volume_id *all;
	uint32_t n = 0;

	pthread_mutex_lock(&copies->lock);
	all = calloc(copies->n + 1, sizeof(*all));
	list_for_each (node, &copies->all)
		if (all)
			all[n++] = list_entry(node, struct known, link)->volume;
	pthread_mutex_unlock(&copies->lock);
	*ret_n = n;
	return all;
}

static void decide_all(struct worker *w)
{
	uint32_t n;
	_cleanup_free_ struct volume_id *all = list_known(w->copies, &n);

	for (uint32_t i = 0; all && i < n; i++) {
		pthread_mutex_lock(&w->copies->deciding);
		decide(w, &all[i], false);
		pthread_mutex_unlock(&w->copies->deciding);
	}
}

/* ---- what is heard --------------------------------------------------------------------------- */

void copies_wake(struct worker *w)
{
	periodic_poke(&w->copies->work);
}

/* Is that known, and decided? With `note` it is known from now on. */
static bool is_asked(struct copies *copies, const struct volume_id *volume, bool note)
{
	struct known *known;
	bool asked;

	pthread_mutex_lock(&copies->lock);
	known = note ? get_locked(copies, volume) : find_locked(copies, volume);
	asked = known && known->asked;
	if (known && note)
		known->asked = true;
	pthread_mutex_unlock(&copies->lock);
	return asked;
}

void copies_note_reader(struct worker *w, const struct volume_id *volume)
{
	struct copies *copies = w->copies;

	if (is_asked(copies, volume, false))
		return;
	/* It is not seen that it is asked for before it is decided. */
	pthread_mutex_lock(&copies->deciding);
	if (!is_asked(copies, volume, false))
		decide(w, volume, true);
	(void)is_asked(copies, volume, true); /* without memory it is noted the next time */
	pthread_mutex_unlock(&copies->deciding);
}

void copies_note_policy(struct worker *w, const struct volume_id *volume, uint32_t policy)
{
	struct copies *copies = w->copies;
	struct known *known;

	pthread_mutex_lock(&copies->lock);
	known = find_locked(copies, volume);
	if (!known && policy != COPIES_AUTO)
		known = get_locked(copies, volume);
	if (known && known->policy != policy) {
		known->policy = policy;
		known->version++;
		periodic_poke(&copies->work);
	}
	pthread_mutex_unlock(&copies->lock);
}

void copies_note_keepers(
	struct worker *w, const struct volume_id *volume, const uint32_t *numbers, size_t n)
{
	struct copies *copies = w->copies;
	struct known *known;

	pthread_mutex_lock(&copies->lock);
	known = n ? get_locked(copies, volume) : find_locked(copies, volume);
	if (known) {
		known->n_keepers = 0;
		for (size_t i = 0; i < n && known->n_keepers < COPIES_KEEPERS; i++)
			if (numbers[i] < PLACEMENT_MAX)
				known->keepers[known->n_keepers++] = (uint16_t)numbers[i];
	}
	pthread_mutex_unlock(&copies->lock);
}

uint32_t copies_keepers(
	struct worker *w, const struct volume_id *volume, uint16_t out[COPIES_KEEPERS])
{
	const struct known *known;
	uint32_t n;

	pthread_mutex_lock(&w->copies->lock);
	known = find_locked(w->copies, volume);
	n = known ? known->n_keepers : 0;
	if (n > 0)
		memcpy(out, known->keepers, n * sizeof(*out));
	pthread_mutex_unlock(&w->copies->lock);
	return n;
}

void copies_take_policy(struct worker *w, const struct volume_id *volume, uint32_t policy)
{
	copies_note_policy(w, volume, policy);
	pthread_mutex_lock(&w->copies->deciding);
	decide(w, volume, false);
	pthread_mutex_unlock(&w->copies->deciding);
}

/* ---- the work -------------------------------------------------------------------------------- */

/* One extent of a volume that is kept whole while others are, too. */
static void promote(struct worker *w, const struct volume_id *volume)
{
	struct copies *copies = w->copies;
	uint64_t lineage = 0;
	struct known *known;
	uint64_t at = 0;

	pthread_mutex_lock(&copies->lock);
	known = find_locked(copies, volume);
	if (known && known->whole && known->has_table) {
		lineage = known->lineage;
		at = known->at;
	}
	pthread_mutex_unlock(&copies->lock);
	if (!lineage)
		return;
	(void)promote_step(w, volume, lineage, &at, &copies->closing); /* the next look sees */
	pthread_mutex_lock(&copies->lock);
	known = find_locked(copies, volume);
	if (known)
		known->at = at;
	pthread_mutex_unlock(&copies->lock);
}

static void promote_all(struct worker *w)
{
	uint64_t now = clock_mono_ns();
	uint32_t n;
	_cleanup_free_ struct volume_id *all = NULL;

	if (is_alone(w) || now - w->copies->promoted_ns < atomic_load(&w->promote_ns))
		return;
	w->copies->promoted_ns = now;
	all = list_known(w->copies, &n);
	for (uint32_t i = 0; i < n && all && !atomic_load(&w->copies->closing); i++)
		promote(w, &all[i]);
}

static uint64_t run(void *arg)
{
	struct worker *w = arg;

	decide_all(w);
	promote_all(w);
	return DECIDE_EVERY;
}

int copies_open(struct worker *w)
{
	struct copies *copies = calloc(1, sizeof(*copies));

	if (!copies)
		return -ENOMEM;
	list_init(&copies->all);
	pthread_mutex_init(&copies->lock, NULL);
	pthread_mutex_init(&copies->deciding, NULL);
	copies->work = (struct periodic_work){ .name = "copies", .run = run, .arg = w };
	w->copies = copies;
	return map_init(&copies->map, KNOWN_MAX);
}

void copies_start(struct worker *w)
{
	periodic_start(w->work, &w->copies->work, 0);
}

void copies_stop(struct worker *w)
{
	struct copies *copies = w->copies;

	if (!copies)
		return;
	atomic_store(&copies->closing, true);
	periodic_stop(&copies->work);
}

void copies_close(struct worker *w)
{
	struct copies *copies = w->copies;
	struct list *node;

	if (!copies)
		return;
	while ((node = list_pop_front(&copies->all)) != NULL)
		free(list_entry(node, struct known, link));
	map_release(&copies->map);
	pthread_mutex_destroy(&copies->deciding);
	pthread_mutex_destroy(&copies->lock);
	free(copies);
	w->copies = NULL;
}
