/* What watches the disks. See watch_internal.h. */
#include "tiers/watch_internal.h"
#include "base/clock.h"
#include "tiers/disk.h"
#include "tiers/tier_set_internal.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#define TICK_NS (250 * CLOCK_MS)
#define LOOK_NS (5 * CLOCK_SECOND)

/* ---- what is seen of a tier ------------------------------------------------------------------ */

const char *watch_state(struct watch *watch, const struct tier *tier, char why[WATCH_TEXT])
{
	enum health_state state = health_get(&tier->health);

	why[0] = '\0';
	if (state == HEALTH_OUT && atomic_load(&tier->away)) {
		pthread_mutex_lock(&watch->lock);
		memcpy(why, watch->probers[tier->number].why, WATCH_TEXT);
		pthread_mutex_unlock(&watch->lock);
		if (atomic_load(&tier->replaced))
			return "replaced";
	} else if (gate_is_stalled(&tier->gate)) {
		(void)snprintf(why, WATCH_TEXT, "a call to its disk does not return");
		return state == HEALTH_OUT ? health_name(state) : "stalled";
	} else if (atomic_load(&tier->index_failed)) {
		(void)snprintf(why, WATCH_TEXT, "its index cannot be written");
	} else if (atomic_load(&tier->unnamed)) {
		(void)snprintf(why, WATCH_TEXT, "its filesystem is full");
	} else if (state != HEALTH_OK) {
		(void)snprintf(why, WATCH_TEXT, "errors or stalls of its disk");
	}
	return health_name(state);
}

/* ---- looking at the directory ---------------------------------------------------------------- */

static int away(char why[WATCH_TEXT], int r, const char *what)
{
	(void)snprintf(why, WATCH_TEXT, "%s", what);
	return r;
}

/* Does its path still lead to the tier? */
static int look_at_path(const struct tier *tier, char why[WATCH_TEXT])
{
	_cleanup_disk_close_ int fd = disk_open(AT_FDCWD, tier->path, O_RDONLY | O_DIRECTORY, 0);
	struct identity identity;
	struct stat st;
	int r = fd < 0 ? fd : disk_fstat(fd, &st);

	if (r == -EMFILE || r == -ENFILE || r == -ENOMEM)
		return 0; /* says nothing of the disk */
	if (r < 0)
		return away(why, r, "its directory cannot be opened; mount its disk");
	r = identity_load(tier->path, &identity, NULL);
	if (st.st_dev != tier->dev || st.st_ino != tier->ino) {
		if (r == 0 && strcmp(identity.uuid, tier->identity.uuid) == 0)
			return away(why, -ESTALE,
				"its disk was removed, and another device is there now");
		return away(why, -ENODEV,
			"another directory is in its place: its disk was unmounted or exchanged; "
			"mount it again");
	}
	if (r == 0 && strcmp(identity.uuid, tier->identity.uuid) != 0)
		return away(why, -ENODEV, "another tier is in its place; mount its disk again");
	if (r == -ENOENT)
		return away(why, r,
			"its file " IDENTITY_NAME
			" not found: the directory was emptied; restart the worker");
	return 0; /* what cannot be read shows in the probe */
}

/* Its files may go while RocksDB has them open: nothing of what it writes then would be found. */
static bool index_is_there(const struct tier *tier)
{
	char path[PATH_MAX];
	struct stat st;

	return snprintf(path, sizeof(path), "%s/CURRENT", tier->index_path) >= (int)sizeof(path) ||
	       disk_stat(AT_FDCWD, path, &st) != -ENOENT;
}

static bool look(struct prober *p)
{
	struct watch *watch = &p->set->watch;
	struct tier *tier = p->tier;
	char why[WATCH_TEXT] = "";
	int r = look_at_path(tier, why);

	pthread_mutex_lock(&watch->lock);
	memcpy(p->why, why, sizeof(why));
	pthread_mutex_unlock(&watch->lock);
	if (r < 0) {
		atomic_store(&tier->replaced, r == -ESTALE);
		atomic_store(&tier->away, true);
		health_fail(&tier->health);
		return false;
	}
	if (!atomic_load(&tier->index_failed) && !index_is_there(tier)) {
		atomic_store(&tier->index_failed, true);
		health_fail(&tier->health);
	}
	atomic_store(&tier->away, false);
	return true;
}

/* May hang with the disk. */
static uint64_t look_and_probe(void *arg)
{
	struct prober *p = arg;
	struct tier *tier = p->tier;
	uint64_t now = clock_mono_ns();
	bool wanted = atomic_load(&tier->index_failed) || atomic_load(&tier->unnamed);
	bool probe = health_probe_due(&tier->health, now, wanted);
	struct gate_call call;

	if (!probe && now - atomic_load(&p->looked_ns) < LOOK_NS)
		return PERIODIC_IDLE;
	atomic_store(&p->looked_ns, now);
	if (gate_enter(&tier->gate, GATE_PROBE, &call) < 0)
		return PERIODIC_IDLE; /* not while it is stalled */
	if (look(p) && (probe || health_get(&tier->health) == HEALTH_OUT))
		recover_probe(p->set, tier);
	gate_leave(&tier->gate, &call);
	return PERIODIC_IDLE;
}

/* ---- the clock ------------------------------------------------------------------------------- */

/* Whether the prober is to check what it has to do. */
static bool wants_prober(const struct prober *p, uint64_t now)
{
	const struct tier *tier = p->tier;

	return now - atomic_load(&p->looked_ns) >= LOOK_NS ||
	       health_get(&tier->health) == HEALTH_OUT || atomic_load(&tier->index_failed) ||
	       atomic_load(&tier->unnamed);
}

static void tick(struct watch *watch, struct prober *p, uint64_t now)
{
	struct tier *tier = p->tier;
	char why[WATCH_TEXT];
	watch_state_fn fn;
	const char *state;
	void *fn_arg;

	if (gate_tick(&tier->gate, now) >= HEALTH_STALL_NS)
		health_stalls(&tier->health, now);
	if (gate_is_stalled(&tier->gate))
		set_wake_waiters(p->set);
	if (!atomic_load(&tier->index_failed) && !atomic_load(&tier->unnamed))
		health_tick(&tier->health, now);
	if (wants_prober(p, now))
		periodic_poke(&p->work);
	state = watch_state(watch, tier, why);
	if (state == p->reported)
		return;
	p->reported = state;
	pthread_mutex_lock(&watch->lock);
	fn = watch->on_state;
	fn_arg = watch->arg;
	watch->calling = true;
	pthread_mutex_unlock(&watch->lock);
	if (fn)
		fn(fn_arg, tier->path, state, why);
	pthread_mutex_lock(&watch->lock);
	watch->calling = false;
	pthread_cond_broadcast(&watch->called);
	pthread_mutex_unlock(&watch->lock);
}

/* Calls no disk. */
static uint64_t run_clock(void *arg)
{
	struct tier_set *set = arg;

	for (uint32_t i = 0; i < set->n_tiers; i++)
		tick(&set->watch, &set->watch.probers[i], clock_mono_ns());
	if (set->n_tiers)
		publish_tiers(set);
	return TICK_NS;
}

void watch_init(struct watch *watch)
{
	*watch = (struct watch){ .on_state = NULL };
	pthread_mutex_init(&watch->lock, NULL);
	pthread_cond_init(&watch->called, NULL);
}

void watch_start(struct watch *watch, struct tier_set *set)
{
	for (uint32_t i = 0; i < set->n_tiers; i++) {
		struct prober *p = &watch->probers[i];

		*p = (struct prober){ .set = set, .tier = set->tiers[i] };
		p->reported = health_name(HEALTH_OK);
		atomic_store(&p->looked_ns, clock_mono_ns());
		p->work = (struct periodic_work){
			.name = "tier-probe", .run = look_and_probe, .arg = p
		};
		periodic_start(set->pool, &p->work, LOOK_NS);
	}
	watch->clock = (struct periodic_work){ .name = "tier-watch", .run = run_clock, .arg = set };
	periodic_start(set->pool, &watch->clock, TICK_NS);
}

void watch_stop(struct watch *watch)
{
	periodic_stop(&watch->clock);
	for (uint32_t i = 0; i < WATCH_TIERS_MAX; i++)
		periodic_stop(&watch->probers[i].work);
}

void watch_release(struct watch *watch)
{
	pthread_cond_destroy(&watch->called);
	pthread_mutex_destroy(&watch->lock);
}

void tier_set_on_state(struct tier_set *set, watch_state_fn fn, void *arg)
{
	CHECK_MAGIC(set, SET_MAGIC);
	pthread_mutex_lock(&set->watch.lock);
	set->watch.arg = arg;
	set->watch.on_state = fn;
	while (set->watch.calling)
		pthread_cond_wait(&set->watch.called, &set->watch.lock);
	pthread_mutex_unlock(&set->watch.lock);
}
