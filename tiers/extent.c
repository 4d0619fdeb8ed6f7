/* Extents in memory: which there are, who lies in them, what a start finds. See extent_internal.h. */
#include "tiers/extent_internal.h"
#include "base/cleanup.h"
#include "base/hash.h"
#include "tiers/disk.h"
#include "tiers/tier_set_internal.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXTENTS_EXPECTED 1024u

/* ---- the maps -------------------------------------------------------------------------------- */

static uint64_t number_hash(const struct volume_id *volume, uint64_t lineage, uint64_t number)
{
	struct chunk_id key = { .volume = *volume, .lineage = lineage, .chunk = number };

	return hash_xxh3(&key, sizeof(key), 1);
}

static uint64_t file_hash(uint64_t file)
{
	return hash_xxh3(&file, sizeof(file), 2);
}

int extents_init(struct extents *extents)
{
	int r;

	pthread_mutex_init(&extents->lock, NULL);
	pthread_cond_init(&extents->settled, NULL);
	list_init(&extents->plans);
	r = map_init(&extents->by_number, EXTENTS_EXPECTED);
	return r < 0 ? r : map_init(&extents->by_file, EXTENTS_EXPECTED);
}

static void forget_extent(struct map_node *node, void *arg)
{
	struct extent *extent = container_of(node, struct extent, by_number);
	struct extents *extents = arg;

	map_remove(&extents->by_number, &extent->by_number);
	map_remove(&extents->by_file, &extent->by_file);
	ensure(atomic_load(&extent->refs) == 1);
	extent_unref(extent);
}

void extents_release(struct extents *extents)
{
	if (!extents->plans.next)
		return; /* never initialised */
	map_each(&extents->by_number, forget_extent, extents);
	extent_plans_free(extents);
	map_release(&extents->by_number);
	map_release(&extents->by_file);
	pthread_cond_destroy(&extents->settled);
	pthread_mutex_destroy(&extents->lock);
}

static struct extent *extent_new(
	struct tier_set *set, struct tier *tier, const struct extent_foot *foot)
{
	struct extent *extent = calloc(1, sizeof(*extent));

	if (!extent)
		return NULL;
	extent->magic = EXTENT_MAGIC;
	extent->refs = 1;
	extent->volume = foot->volume;
	extent->lineage = foot->lineage;
	extent->number = foot->number;
	extent->bytes = foot->extent_bytes;
	extent->file = foot->file_id;
	extent->set = set;
	extent->tier = tier;
	extent->space = volumes_join(&set->volumes, &foot->volume);
	if (!extent->space) {
		free(extent);
		return NULL;
	}
	descriptor_init(&extent->descriptor);
	return extent;
}

static void insert_locked(struct extents *extents, struct extent *extent)
{
	map_insert(&extents->by_number, &extent->by_number,
		number_hash(&extent->volume, extent->lineage, extent->number));
	map_insert(&extents->by_file, &extent->by_file, file_hash(extent->file));
}

struct extent *extent_ref(struct extent *extent)
{
	CHECK_MAGIC(extent, EXTENT_MAGIC);
	atomic_fetch_add_explicit(&extent->refs, 1, memory_order_relaxed);
	return extent;
}

bool extent_may_exceed(struct extent *extent)
{
	uint64_t file = 0;

	return atomic_compare_exchange_strong(&extent->tier->exceeding, &file, extent->file) ||
	       file == extent->file;
}

static void end_exceeding(struct extent *extent)
{
	uint64_t file = extent->file;

	/* Another extent's, or none's: it stays. */
	(void)atomic_compare_exchange_strong(&extent->tier->exceeding, &file, 0);
}

static void review(struct map_node *node, void *arg)
{
	struct extent *extent = container_of(node, struct extent, by_file);

	(void)arg;
	if (atomic_load(&extent->tier->exceeding) == extent->file &&
		!volumes_excess(extent->space, 0))
		end_exceeding(extent);
}

void extents_review_exceeding(struct tier_set *set)
{
	bool any = false;

	for (uint32_t i = 0; i < set->n_tiers; i++)
		any |= atomic_load(&set->tiers[i]->exceeding) != 0;
	if (!any)
		return;
	pthread_mutex_lock(&set->extents.lock);
	map_each(&set->extents.by_file, review, NULL);
	pthread_mutex_unlock(&set->extents.lock);
}

void extent_unref(struct extent *extent)
{
	if (!extent)
		return;
	CHECK_MAGIC(extent, EXTENT_MAGIC);
	if (atomic_fetch_sub_explicit(&extent->refs, 1, memory_order_acq_rel) != 1)
		return;
	descriptor_close(&extent->set->descriptors, &extent->descriptor);
	tier_settle(extent->tier, atomic_load(&extent->orphaned), 0);
	volumes_settle(extent->space, atomic_load(&extent->orphaned), 0);
	chunk_held_sub(extent->set, extent->tier, extent->space, atomic_load(&extent->held));
	end_exceeding(extent); /* its bytes are free */
	volumes_leave(&extent->set->volumes, extent->space);
	ensure(atomic_load(&extent->holders) == 0);
	free(extent->marks);
	extent->magic = 0;
	free(extent);
}

struct extent *extent_find_locked(
	struct extents *extents, const struct volume_id *volume, uint64_t lineage, uint64_t number)
{
	struct map_node *node =
		map_first(&extents->by_number, number_hash(volume, lineage, number));

	for (; node; node = map_next_same(node)) {
		struct extent *extent = container_of(node, struct extent, by_number);

		if (extent->number == number && extent->lineage == lineage && !extent->aside &&
			volume_id_equal(&extent->volume, volume))
			return extent;
	}
	return NULL;
}

/* ---- charges --------------------------------------------------------------------------------- */

uint64_t extent_charge(struct extent *extent, uint64_t allocated)
{
	uint64_t charged = atomic_load(&extent->charged);

	/* Blocks are never given back while the file lives. */
	do {
		if (allocated <= charged)
			return 0;
	} while (!atomic_compare_exchange_weak(&extent->charged, &charged, allocated));
	return allocated - charged;
}

uint64_t extent_take_charge(struct extent *extent, uint64_t bytes)
{
	uint64_t orphaned = atomic_load(&extent->orphaned);
	uint64_t taken;

	do {
		taken = min(bytes, orphaned);
	} while (!atomic_compare_exchange_weak(&extent->orphaned, &orphaned, orphaned - taken));
	return taken;
}

void extent_give_charge(struct extent *extent, uint64_t bytes, bool held)
{
	atomic_fetch_add(&extent->orphaned, bytes);
	if (held)
		atomic_fetch_add(&extent->held, bytes);
}

/* Of the file itself, when it was made or found. */
void extent_charge_file(struct extent *extent, uint64_t allocated)
{
	uint64_t grown = extent_charge(extent, allocated);

	tier_settle(extent->tier, 0, grown);
	volumes_settle(extent->space, 0, grown);
	extent_give_charge(extent, grown, false);
}

/* ---- chunks come and go ---------------------------------------------------------------------- */

/* An extent of that number in state MAKING, in the maps. */
static struct extent *begin_locked(struct extents *extents, struct tier_set *set, struct tier *tier,
	const struct chunk_id *id, uint64_t bytes)
{
	const struct extent_foot foot = {
		.volume = id->volume,
		.lineage = id->lineage,
		.number = id->chunk / (bytes / CHUNK_BYTES),
		.file_id = tier_new_file_id(tier),
		.extent_bytes = bytes,
	};
	struct extent *extent = extent_new(set, tier, &foot);

	if (extent) {
		extent->chunks = 1; /* the one it is made for */
		insert_locked(extents, extent);
	}
	return extent;
}

/* Takes an extent out of the maps, and the maps' reference away. */
static void end(struct extent *extent)
{
	struct extents *extents = &extent->set->extents;

	pthread_mutex_lock(&extents->lock);
	extent->state = EXTENT_GONE;
	map_remove(&extents->by_number, &extent->by_number);
	map_remove(&extents->by_file, &extent->by_file);
	pthread_cond_broadcast(&extents->settled);
	pthread_mutex_unlock(&extents->lock);
	extent_unref(extent);
}

static struct extent *finish_making(struct extent *extent)
{
	struct extents *extents = &extent->set->extents;
	struct gate_call call;
	int r = gate_enter(&extent->tier->gate, GATE_WRITE, &call);

	if (r == 0) {
		r = extent_make_file(extent);
		gate_leave(&extent->tier->gate, &call);
	}
	if (r < 0) {
		end(extent);
		return NULL;
	}
	pthread_mutex_lock(&extents->lock);
	extent->state = EXTENT_LIVE;
	pthread_cond_broadcast(&extents->settled);
	pthread_mutex_unlock(&extents->lock);
	return extent;
}

struct extent *extents_join(struct tier_set *set, const struct chunk_id *id, struct tier *tier)
{
	struct extents *extents = &set->extents;
	struct extent *extent = NULL;
	bool made = false;
	uint64_t bytes;

	pthread_mutex_lock(&extents->lock);
	bytes = extent_plan_bytes_locked(extents, &id->volume, id->lineage);
	while (bytes) {
		extent = extent_find_locked(
			extents, &id->volume, id->lineage, id->chunk / (bytes / CHUNK_BYTES));
		if (!extent || extent->state == EXTENT_LIVE)
			break;
		if (!tier_in_service(extent->tier)) { /* no call waits for that disk */
			pthread_mutex_unlock(&extents->lock);
			return NULL;
		}
		pthread_cond_wait(&extents->settled, &extents->lock);
	}
	if (extent && (extent->lost || extent->bytes != bytes))
		extent = NULL;
	else if (extent)
		extent->chunks++;
	else if (bytes)
		made = (extent = begin_locked(extents, set, tier, id, bytes)) != NULL;
	pthread_mutex_unlock(&extents->lock);
	if (made)
		extent = finish_making(extent);
	if (bytes && !extent)
		extent_plan_stir(set, &id->volume, id->lineage); /* it is moved in later */
	return extent;
}

static void bury_locked(struct extent *extent, uint64_t bytes)
{
	extent->buried += bytes; /* modulo 2^64, as all of these: may be less */
	atomic_fetch_add(&extent->tier->buried, bytes);
	atomic_fetch_add(&extent->space->buried, bytes);
}

void extent_leave(struct extent *extent, bool was_complete, uint64_t dead)
{
	struct extents *extents = &extent->set->extents;
	bool last;

	CHECK_MAGIC(extent, EXTENT_MAGIC);
	pthread_mutex_lock(&extents->lock);
	ensure(extent->chunks > 0);
	extent->complete -= was_complete;
	extent->dead += dead;
	extent_plan_stir_locked(extents, &extent->volume, extent->lineage);
	last = --extent->chunks == 0;
	bury_locked(extent, last ? -extent->buried : dead);
	if (last)
		extent->state = EXTENT_UNLINKING;
	pthread_mutex_unlock(&extents->lock);
	if (!last)
		return;
	extent_unlink(extent);
	end(extent);
}

void extent_note_complete(struct extent *extent, bool complete)
{
	struct extents *extents = &extent->set->extents;
	bool all;

	pthread_mutex_lock(&extents->lock);
	if (complete)
		extent->complete++;
	else
		extent->complete--;
	all = extent->complete == extent->bytes / CHUNK_BYTES;
	pthread_mutex_unlock(&extents->lock);
	/* A failure only leaves the mode as it was. */
	if (all || !complete)
		(void)chunk_file_set_complete(&extent->descriptor.fds, all);
}

/* ---- what a start finds ---------------------------------------------------------------------- */

struct scan {
	struct tier_set *set;
	struct tier *tier;
	const char *dir; /* within the tier */
};

/* Opens a file of ext/VOLUME.LINEAGE; its extent, and that its name is right. */
static int look_at(struct scan *scan, const char *path)
{
	_cleanup_(chunk_fds_close) struct chunk_fds fds = CHUNK_FDS_NONE;
	struct extents *extents = &scan->set->extents;
	char want[EXTENT_PATH_BYTES];
	struct extent_foot foot = { 0 };
	struct extent *extent;
	uint64_t allocated = 0;
	int r = chunk_fds_open(scan->tier->dir_fd, path, 0, &fds);

	if (r == 0)
		r = extent_read_foot(fds.buffered, &foot, &allocated);
	if (r < 0)
		return r;
	extent = extent_new(scan->set, scan->tier, &foot);
	if (!extent)
		return -ENOMEM;
	extent_path(extent, false, want);
	if (strcmp(path, want) != 0) {
		extent_path(extent, true, want);
		extent->aside = true;
	}
	if (strcmp(path, want) != 0) {
		extent_unref(extent);
		return -EBADMSG;
	}
	extent->state = EXTENT_LIVE;
	extent_charge_file(extent, allocated);
	insert_locked(extents, extent);
	return 0;
}

static int scan_name(void *arg, int dir, const char *name)
{
	struct scan *scan = arg;
	char path[EXTENT_DIR_BYTES + 256 + 1];
	int r;

	(void)dir;
	if (snprintf(path, sizeof(path), "%s/%s", scan->dir, name) >= (int)sizeof(path))
		return 0; /* not ours */
	r = look_at(scan, path);
	/* Without a foot it is not known what it is; what fails otherwise stays for later. */
	if (r == -EBADMSG || r == -ENODATA)
		(void)disk_unlink(scan->tier->dir_fd, path, 0);
	return r == -ENOMEM || r == -EMFILE || r == -ENFILE ? r : 0;
}

static int scan_volume(void *arg, int dir, const char *name)
{
	const int flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW;
	struct scan *scan = arg;
	char path[sizeof(EXT_DIR) + 256 + 1];
	_cleanup_disk_close_ int fd = disk_open(dir, name, flags, 0);

	if (fd < 0)
		return 0; /* no directory of ours */
	(void)snprintf(path, sizeof(path), EXT_DIR "/%s", name);
	scan->dir = path;
	return disk_list(fd, scan_name, scan);
}

int extents_scan(struct tier_set *set, struct tier *tier)
{
	const int flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW;
	_cleanup_disk_close_ int fd = disk_open(tier->dir_fd, EXT_DIR, flags, 0);
	struct scan scan = { .set = set, .tier = tier };

	if (fd < 0)
		return fd == -ENOENT ? 0 : fd;
	return disk_list(fd, scan_volume, &scan);
}

struct extent *extents_join_file(
	struct tier_set *set, const struct tier *tier, uint64_t file, const struct chunk_id *id)
{
	struct map_node *node = map_first(&set->extents.by_file, file_hash(file));

	for (; node; node = map_next_same(node)) {
		struct extent *extent = container_of(node, struct extent, by_file);

		if (extent->file != file || extent->tier != tier ||
			extent->lineage != id->lineage ||
			!volume_id_equal(&extent->volume, &id->volume) ||
			extent->number != id->chunk / (extent->bytes / CHUNK_BYTES))
			continue;
		pthread_mutex_lock(&set->extents.lock);
		extent->chunks++;
		pthread_mutex_unlock(&set->extents.lock);
		return extent;
	}
	return NULL;
}

void extent_leave_found(struct extent *extent)
{
	pthread_mutex_lock(&extent->set->extents.lock);
	ensure(extent->chunks > 0);
	extent->chunks--;
	pthread_mutex_unlock(&extent->set->extents.lock);
}

struct walk {
	const struct tier *tier;
	int (*fn)(void *arg, struct extent *extent);
	void *arg;
	int r;
	uint32_t n;
};

static void walk_one(struct map_node *node, void *arg)
{
	struct extent *extent = container_of(node, struct extent, by_number);
	struct walk *walk = arg;

	if (walk->tier && extent->tier != walk->tier)
		return;
	walk->n += extent->state == EXTENT_LIVE;
	if (walk->fn && walk->r == 0)
		walk->r = walk->fn(walk->arg, extent);
}

int extents_each(struct tier_set *set, const struct tier *tier,
	int (*fn)(void *arg, struct extent *extent), void *arg)
{
	struct walk walk = { .tier = tier, .fn = fn, .arg = arg };

	map_each(&set->extents.by_number, walk_one, &walk);
	return walk.r;
}

static int sweep_one(void *arg, struct extent *extent)
{
	(void)arg;
	extent->dead = atomic_load(&extent->orphaned);
	if (extent->chunks == 0 && extent->scanned) {
		extent_unlink(extent);
		end(extent);
	}
	return 0;
}

void extents_sweep(struct tier_set *set, const struct tier *tier)
{
	ensure(extents_each(set, tier, sweep_one, NULL) == 0);
}

uint32_t extents_count(struct tier_set *set, const struct tier *tier)
{
	struct walk walk = { .tier = tier };

	pthread_mutex_lock(&set->extents.lock);
	map_each(&set->extents.by_number, walk_one, &walk);
	pthread_mutex_unlock(&set->extents.lock);
	return walk.n;
}
