/* What watches the disks. See watch_internal.h. */
#include "tiers/watch_internal.h"
#include "base/clock.h"
#include "tiers/disk.h"
#include "tiers/tier_set_internal.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

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

static void look_and_probe(struct prober *p)
{
	struct tier *tier = p->tier;
	uint64_t now = clock_mono_ns();
	bool wanted = atomic_load(&tier->index_failed) || atomic_load(&tier->unnamed);
	bool probe = health_probe_due(&tier->health, now, wanted);
	struct gate_call call;

	if (!probe && now - p->looked_ns < LOOK_NS)
		return;
	p->looked_ns = now;
	if (gate_enter(&tier->gate, GATE_PROBE, &call) < 0)
		return; /* not while it is stalled */
	if (look(p) && (probe || health_get(&tier->health) == HEALTH_OUT))
		recover_probe(p->set, tier);
	gate_leave(&tier->gate, &call);
}

/* ---- threads --------------------------------------------------------------------------------- */

/* Waits a tick, or until woken. False when closing. */
static bool wait_tick_locked(struct watch *watch)
{
	struct timespec until;

	(void)clock_gettime(CLOCK_MONOTONIC, &until); /* cannot fail */
	until.tv_nsec += (long)TICK_NS;
	if (until.tv_nsec >= (long)CLOCK_SECOND) {
		until.tv_sec++;
		until.tv_nsec -= (long)CLOCK_SECOND;
	}
	if (!watch->closing)
		(void)pthread_cond_timedwait(&watch->wake, &watch->lock, &until);
	return !watch->closing;
}

static void *prober_main(void *arg)
{
	struct prober *p = arg;
	struct watch *watch = &p->set->watch;

	pthread_setname_np(pthread_self(), "tier-probe");
	pthread_mutex_lock(&watch->lock);
	while (wait_tick_locked(watch)) {
		pthread_mutex_unlock(&watch->lock);
		look_and_probe(p);
		pthread_mutex_lock(&watch->lock);
	}
	pthread_mutex_unlock(&watch->lock);
	return NULL;
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
	state = watch_state(watch, tier, why);
	if (state == p->told)
		return;
	p->told = state;
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

static void *clock_main(void *arg)
{
	struct watch *watch = arg;

	pthread_setname_np(pthread_self(), "tier-watch");
	pthread_mutex_lock(&watch->lock);
	while (wait_tick_locked(watch)) {
		pthread_mutex_unlock(&watch->lock);
		for (uint32_t i = 0; i < watch->started; i++)
			tick(watch, &watch->probers[i], clock_mono_ns());
		if (watch->started)
			publish_tiers(watch->probers[0].set);
		pthread_mutex_lock(&watch->lock);
	}
	pthread_mutex_unlock(&watch->lock);
	return NULL;
}

void watch_init(struct watch *watch)
{
	pthread_condattr_t attr;

	*watch = (struct watch){ .closing = false };
	pthread_mutex_init(&watch->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&watch->wake, &attr);
	pthread_cond_init(&watch->called, NULL);
	pthread_condattr_destroy(&attr);
}

int watch_start(struct watch *watch, struct tier_set *set)
{
	for (uint32_t i = 0; i < set->n_tiers; i++) {
		struct prober *p = &watch->probers[i];

		*p = (struct prober){ .set = set, .tier = set->tiers[i] };
		p->told = health_name(HEALTH_OK);
		p->looked_ns = clock_mono_ns();
		if (pthread_create(&p->thread, NULL, prober_main, p) != 0)
			return -EAGAIN;
		watch->started++;
	}
	if (pthread_create(&watch->clock, NULL, clock_main, watch) != 0)
		return -EAGAIN;
	watch->clock_runs = true;
	return 0;
}

void watch_stop(struct watch *watch)
{
	pthread_mutex_lock(&watch->lock);
	watch->closing = true;
	pthread_cond_broadcast(&watch->wake);
	pthread_mutex_unlock(&watch->lock);
	if (watch->clock_runs)
		pthread_join(watch->clock, NULL);
	for (uint32_t i = 0; i < watch->started; i++)
		pthread_join(watch->probers[i].thread, NULL);
	watch->clock_runs = false;
	watch->started = 0;
}

void watch_release(struct watch *watch)
{
	pthread_cond_destroy(&watch->called);
	pthread_cond_destroy(&watch->wake);
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
