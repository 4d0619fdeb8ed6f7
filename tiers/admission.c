/* Room in a tier: capacity, reservations, and the filesystem's watermark. See tier_internal.h. */
#include "tiers/tier_internal.h"
#include "base/clock.h"
#include "tiers/disk.h"

#define SPACE_AGE_NS       CLOCK_SECOND
#define WATERMARK_BYTES    (64ull << 20)
#define WATERMARK_PERCENT  1u
#define WATERMARK_SMALL_FS 16u /* on a small filesystem: one sixteenth of it */
#define INODES_MIN         64u
#define INODES_LOW         128u /* once short, until so many are free */
#define LOW_MARK_SHARE     2u   /* once pressed, until this part of the watermark more is free */

/* What is to stay free on a filesystem of that size, for its own sake and for its other users. */
static uint64_t watermark(uint64_t size)
{
	return max(size / 100 * WATERMARK_PERCENT, min(WATERMARK_BYTES, size / WATERMARK_SMALL_FS));
}

void tier_refresh_space(struct tier *tier, bool now)
{
	uint64_t time = clock_mono_ns();
	struct statvfs fs;
	int64_t space;
	int64_t low;
	bool due;

	pthread_mutex_lock(&tier->space_lock);
	due = now || tier->space_checked == 0 || time - tier->space_checked > SPACE_AGE_NS;
	if (due)
		tier->space_checked = time;
	pthread_mutex_unlock(&tier->space_lock);
	if (!due || disk_statvfs(tier->dir_fd, &fs) < 0)
		return; /* the last look holds; a disk that is gone shows in its reads */
	space = (int64_t)((uint64_t)fs.f_bavail * fs.f_frsize);
	space -= (int64_t)watermark((uint64_t)fs.f_blocks * fs.f_frsize);
	low = (int64_t)watermark((uint64_t)fs.f_blocks * fs.f_frsize) / LOW_MARK_SHARE;
	if (space < 0 || space >= low)
		atomic_store(&tier->pressed, space < 0);
	atomic_store(&tier->space, atomic_load(&tier->pressed) ? space - low : space);
	/* Filesystems without a fixed number of inodes (btrfs) report none. */
	if (fs.f_files == 0 || fs.f_favail >= INODES_LOW)
		atomic_store(&tier->inodes_short, false);
	else if (fs.f_favail < INODES_MIN)
		atomic_store(&tier->inodes_short, true);
}

uint64_t tier_missing(const struct tier *tier)
{
	int64_t space = atomic_load(&tier->space);

	return atomic_load(&tier->pressed) && space < 0 ? (uint64_t)-space : 0;
}

uint64_t tier_soon(const struct tier *tier)
{
	uint64_t held = atomic_load(&tier->held);

	return held - min(atomic_load(&tier->buried), held);
}

uint64_t tier_room(const struct tier *tier)
{
	uint64_t used = atomic_load(&tier->used);
	int64_t space = atomic_load(&tier->space);
	uint64_t room = used < tier->capacity ? tier->capacity - used : 0;

	return min(room, space > 0 ? (uint64_t)space : 0);
}

static bool has_space(struct tier *tier, uint64_t need)
{
	tier_refresh_space(tier, false);
	return atomic_load(&tier->space) >= (int64_t)need;
}

int tier_reserve(struct tier *tier, uint64_t bytes, uint64_t at_least)
{
	uint64_t need = bytes + at_least;
	uint64_t used;

	if (!has_space(tier, need))
		return -ENOSPC;
	used = atomic_load(&tier->used);
	do {
		if (used > tier->capacity || need > tier->capacity - used)
			return -ENOSPC;
	} while (!atomic_compare_exchange_weak(&tier->used, &used, used + bytes));
	counter_add(&tier->counters->used, bytes);
	atomic_fetch_sub(&tier->space, (int64_t)bytes);
	return 0;
}

int tier_reserve_past_capacity(struct tier *tier, uint64_t bytes, uint64_t at_least)
{
	if (!has_space(tier, bytes + at_least))
		return -ENOSPC;
	tier_settle(tier, 0, bytes);
	return 0;
}

void tier_settle(struct tier *tier, uint64_t reserved, uint64_t charged)
{
	atomic_fetch_add(&tier->used, charged - reserved); /* modulo 2^64: mostly less */
	counter_add(&tier->counters->used, charged - reserved);
	atomic_fetch_add(&tier->space, (int64_t)reserved - (int64_t)charged);
}
