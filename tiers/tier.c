/* Opening a tier, and its index. See tier_internal.h. */
#include "tiers/kind_internal.h"
#include "tiers/tier_internal.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/crash_point.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/units.h"
#include "tiers/disk.h"

#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>

#define INDEX_LOOK_EVERY 64u /* writes between two looks at the size of index/ */

static int open_chk(struct tier *tier, struct err *e)
{
	int r = disk_mkdir(tier->dir_fd, "chk", 0700);

	CRASH_POINT("tier.made");
	if (r == 0)
		tier->chk_fd = disk_open(tier->dir_fd, "chk", O_RDONLY | O_DIRECTORY, 0);
	if (r == 0 && tier->chk_fd < 0)
		r = tier->chk_fd;
	return r < 0 ? tier_refuse_access(tier->path, r, e) : 0;
}

static int open_index(struct tier *tier, struct err *e)
{
	struct stat st;
	bool missing = disk_stat(AT_FDCWD, tier->index_path, &st) == -ENOENT;
	struct err why = ERR_INIT;
	int r = tier->unnamed ? -ENOSPC : index_rocksdb_open(tier->index_path, &tier->index, &why);

	if (r == -ENOSPC && !tier->created) {
		/* What is cached can be served without an index; a probe builds it when there is
		 * room. */
		atomic_store(&tier->index_failed, true);
		health_suspect(&tier->health);
		return 0;
	}
	if (r == -EBUSY || r == -ENOSPC || r == -ENOMEM)
		return err_set(e, r, "%s", why.text);
	if (r < 0)
		return tier_index_recreate(tier, e);
	if (missing && !tier->created)
		counter_add(&tier->counters->rebuilt, 1);
	return 0;
}

int tier_index_recreate(struct tier *tier, struct err *e)
{
	int r;

	pthread_rwlock_wrlock(&tier->index_lock);
	if (tier->index)
		tier->index->ops->close(tier->index);
	tier->index = NULL;
	r = index_dir_remove(tier->index_path);
	CRASH_POINT("index.removed");
	if (r < 0)
		(void)err_set(e, r,
			"%s: cannot be removed to build it again: %s; check its disk and its owner",
			tier->index_path, err_str(r));
	else
		r = index_rocksdb_open(tier->index_path, &tier->index, e);
	pthread_rwlock_unlock(&tier->index_lock);
	if (r == 0)
		counter_add(&tier->counters->rebuilt, 1);
	return r;
}

/* Free bytes of the filesystem, for a capacity that was not set and for refusing what is too
 * small. */
int tier_set_capacity(struct tier *tier, uint64_t capacity, struct err *e)
{
	char have[16];
	char need[16];
	struct statvfs fs;
	uint64_t available;
	int r = disk_statvfs(tier->dir_fd, &fs);

	if (r < 0)
		return tier_refuse_access(tier->path, r, e);
	available = (uint64_t)fs.f_bavail * fs.f_frsize;
	tier->capacity = capacity;
	if (capacity && capacity < TIER_CAPACITY_MIN)
		return err_set(e, -ENOSPC, "%s: a cache of %s is too small; give at least %s",
			tier->path, units_size(capacity, have, sizeof(have)),
			units_size(TIER_CAPACITY_MIN, need, sizeof(need)));
	if (tier->created && available < TIER_CAPACITY_MIN)
		return err_set(e, -ENOSPC,
			"%s: the filesystem has %s free, a cache needs at least %s; free some or "
			"give another directory",
			tier->path, units_size(available, have, sizeof(have)),
			units_size(TIER_CAPACITY_MIN, need, sizeof(need)));
	return 0;
}

int tier_make(
	const char *path, struct tier_counters *counters, struct tier **ret_tier, struct err *e)
{
	struct tier *tier = calloc(1, sizeof(*tier));

	if (!tier)
		return err_set(e, -ENOMEM, "%s: no memory", path);
	tier->magic = TIER_MAGIC;
	tier->dir_fd = -1;
	tier->chk_fd = -1;
	tier->move_fd = -1;
	tier->counters = counters;
	health_init(&tier->health);
	gate_init(&tier->gate);
	pthread_rwlock_init(&tier->index_lock, NULL);
	pthread_mutex_init(&tier->space_lock, NULL);
	tier->path = strdup(path);
	if (!tier->path || asprintf(&tier->index_path, "%s/index", path) < 0) {
		tier->index_path = NULL;
		tier_free(tier);
		return err_set(e, -ENOMEM, "%s: no memory", path);
	}
	*ret_tier = tier;
	return 0;
}

int tier_open(const struct tier_config *config, struct tier_counters *counters,
	struct tier **ret_tier, struct err *e)
{
	_cleanup_(tier_free_p) struct tier *tier = NULL;
	int r = tier_make(config->path, counters, &tier, e);

	if (r < 0)
		return r;
	ensure(tier);
	r = tier_claim(tier, config, e);
	if (r < 0)
		return r;
	r = tier_set_capacity(
		tier, config->capacity ? config->capacity : tier->identity.capacity, e);
	tier->kind = config->kind ? config->kind : kind_of_directory(tier->dir_fd);
	if (r == 0 && config->kind == TIER_RAM)
		r = kind_check_ram(tier, &tier->swaps, e);
	if (r < 0) {
		tier_unclaim(tier);
		return r;
	}
	r = tier_probe(tier);
	if (r < 0 && r != -ENOSPC) /* a full disk can still be read */
		return tier_refuse_access(tier->path, r, e);
	r = tier_begin_start(tier, config, e);
	if (r == 0)
		r = open_chk(tier, e);
	if (r == 0)
		r = open_index(tier, e);
	if (r < 0)
		return r;
	tier_index_charge(tier);
	*ret_tier = TAKE(tier);
	return 0;
}

void tier_free(struct tier *tier)
{
	if (!tier)
		return;
	CHECK_MAGIC(tier, TIER_MAGIC);
	if (tier->index)
		tier->index->ops->close(tier->index);
	disk_close(tier->chk_fd);
	disk_close(tier->move_fd);
	disk_close(tier->dir_fd); /* and unlocks */
	pthread_mutex_destroy(&tier->space_lock);
	pthread_rwlock_destroy(&tier->index_lock);
	health_release(&tier->health);
	gate_release(&tier->gate);
	free(tier->index_path);
	free(tier->path);
	tier->magic = 0;
	free(tier);
}

uint64_t tier_new_file_id(struct tier *tier)
{
	return atomic_fetch_add(&tier->next_file, 1);
}

int tier_io(struct tier *tier, int code, uint64_t began)
{
	uint64_t now = clock_mono_ns();

	health_took(&tier->health, now, now - began);
	if (health_counts(code)) {
		counter_add(&tier->counters->io_errors, 1);
		(void)health_error(&tier->health, now); /* read again by whoever asks */
	}
	return code;
}

/* What a failed index says can no longer be relied on, so nothing more is admitted. */
static int index_result(struct tier *tier, int r)
{
	if (r < 0) {
		counter_add(&tier->counters->io_errors, 1);
		atomic_store(&tier->index_failed, true);
		health_fail(&tier->health);
	}
	if (atomic_fetch_add(&tier->index_writes, 1) % INDEX_LOOK_EVERY == INDEX_LOOK_EVERY - 1)
		tier_index_charge(tier);
	return r;
}

/* Calls one of the index's operations; a tier without an index is known to be without. */
static int index_call(struct tier *tier, const struct index_row *put, const struct chunk_id *remove)
{
	int r = -EIO;
	bool there;

	pthread_rwlock_rdlock(&tier->index_lock);
	there = tier->index != NULL;
	if (there)
		r = put ? tier->index->ops->put(tier->index, put)
			: tier->index->ops->remove(tier->index, remove);
	pthread_rwlock_unlock(&tier->index_lock);
	return there ? index_result(tier, r) : r;
}

int tier_index_put(struct tier *tier, const struct index_row *row)
{
	return index_call(tier, row, NULL);
}

int tier_index_remove(struct tier *tier, const struct chunk_id *id)
{
	return index_call(tier, NULL, id);
}

void tier_index_charge(struct tier *tier)
{
	uint64_t bytes = index_dir_bytes(tier->index_path);
	uint64_t before = atomic_exchange(&tier->index_bytes, bytes);

	atomic_fetch_add(&tier->used, bytes - before); /* modulo 2^64: may be less */
	counter_add(&tier->counters->used, bytes - before);
}
