/*
 * Taking a directory as a tier: made or refused, locked, its device and the present boot compared
 * with what its identity says, and looked at again while it is in use
 * (docs/decisions/tier-identity.md).
 */
#include "base/cleanup.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/units.h"
#include "tiers/disk.h"
#include "base/remembered.h"
#include "tiers/tier_internal.h"

#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>

#define PROBE_NAME "probe"

/* Ends the listing at a name that is not a tier's, which it keeps. */
static int find_foreign(void *arg, int dir, const char *name)
{
	char *ret_name = arg;

	(void)dir;
	if (strcmp(name, "lost+found") == 0 || strcmp(name, IDENTITY_NAME ".new") == 0)
		return 0;
	(void)snprintf(ret_name, NAME_MAX + 1, "%s", name);
	return 1;
}

/* 1: the directory is missing or holds nothing of anybody's; 0: it holds something; or an error. */
static int directory_is_free(const char *path, char ret_name[NAME_MAX + 1])
{
	_cleanup_disk_close_ int dir = disk_open(AT_FDCWD, path, O_RDONLY | O_DIRECTORY, 0);
	int r;

	if (dir < 0)
		return dir == -ENOENT ? 1 : dir;
	r = disk_list(dir, find_foreign, ret_name);
	return r < 0 ? r : r == 0;
}

int tier_refuse_access(const char *path, int r, struct err *e)
{
	return err_set(e, r,
		"%s: cannot be used as a cache: %s; give a directory that this user may write",
		path, err_str(r));
}

/* May there be a new tier? Nothing is written. */
static int check_free(const struct tier_config *config, struct err *e)
{
	char name[NAME_MAX + 1];
	int r = directory_is_free(config->path, name);

	if (r < 0)
		return tier_refuse_access(config->path, r, e);
	if (r == 0)
		return err_set(e, -ENOTEMPTY,
			"%s: contains other files (\"%s\"); give an empty directory", config->path,
			name);
	if (!config->create)
		return err_set(e, -ENOENT,
			"%s: is not a Granary cache; mount its disk, or create a new cache with: "
			"cacheworker tier init %s",
			config->path, config->path);
	return config->remembered ? remembered_check(config->remembered, config->path, e) : 0;
}

/* The identity is written first, so that a crash in the middle leaves a tier and no foreign
 * files. */
static int create(struct tier *tier, const struct tier_config *config, struct err *e)
{
	int r = check_free(config, e);

	if (r < 0)
		return r;
	r = file_mkdirs(config->path, 0700);
	if (r == 0) {
		identity_init(&tier->identity);
		r = identity_store(config->path, &tier->identity);
	}
	if (r < 0)
		return tier_refuse_access(config->path, r, e);
	tier->created = true;
	return 0;
}

static int lock_directory(struct tier *tier, struct err *e)
{
	struct stat st = { 0 };
	int r;

	tier->dir_fd = disk_open(AT_FDCWD, tier->path, O_RDONLY | O_DIRECTORY, 0);
	if (tier->dir_fd < 0)
		return tier_refuse_access(tier->path, tier->dir_fd, e);
	r = disk_lock(tier->dir_fd, LOCK_EX | LOCK_NB);
	if (r == -EWOULDBLOCK)
		return err_set(e, -EBUSY,
			"%s: another Granary uses this cache; stop it or give another directory",
			tier->path);
	if (r == 0)
		r = disk_fstat(tier->dir_fd, &st);
	if (r < 0)
		return tier_refuse_access(tier->path, r, e);
	tier->dev = st.st_dev;
	tier->ino = st.st_ino;
	return 0;
}

/* Its files were made for another disk: exchanged, or copied from one. */
static int check_device(struct tier *tier, struct err *e)
{
	struct identity *identity = &tier->identity;
	char device[DEVICE_TEXT];
	int r = device_of(tier->dir_fd, device);

	if (r < 0)
		return tier_refuse_access(tier->path, r, e);
	if (device_differs(identity->device, device))
		return err_set(e, -EXDEV,
			"%s: this cache was created on device %s and is now on %s: its disk was "
			"exchanged, or it was copied; mount the right one, or accept this one, "
			"with every byte checked, by: cacheworker tier init --adopt %s",
			tier->path, identity->device, device, tier->path);
	memcpy(identity->device, device, sizeof(device));
	return 0;
}

int tier_claim(struct tier *tier, const struct tier_config *config, struct err *e)
{
	int r = identity_load(config->path, &tier->identity, e);

	if (r == -ENOENT)
		r = create(tier, config, e);
	if (r == 0)
		r = lock_directory(tier, e);
	if (r < 0)
		return r;
	/* Whoever had the lock may have written it just before. */
	r = identity_load(config->path, &tier->identity, e);
	if (r == -ENOENT)
		return tier_refuse_access(config->path, r, e);
	return r < 0 ? r : check_device(tier, e);
}

void tier_unclaim(struct tier *tier)
{
	if (tier->created) /* what remains is refused or found empty next time */
		(void)disk_unlink(tier->dir_fd, IDENTITY_NAME, 0);
}

static void remember(const struct tier *tier, const struct tier_config *config)
{
	int r = config->remembered ? remembered_note(config->remembered, tier->path,
					     tier->identity.uuid, tier->identity.device)
				   : 0;

	if (r < 0)
		log_debug("tier not remembered", "path=\"%s\" in=\"%s\" cause=%s", tier->path,
			config->remembered, err_name(r));
}

/*
 * Counts boots, since a chunk of an earlier one is not trusted, and starts, of which file ids are
 * made. A directory that came to another filesystem is a new boot, too. Without room for it the
 * tier is read only: nothing is written under a number that may be given again.
 */
int tier_begin_start(struct tier *tier, const struct tier_config *config, struct err *e)
{
	char boot_id[IDENTITY_UUID + 1];
	struct identity *identity = &tier->identity;
	struct statvfs fs;
	int r = identity_boot_id(boot_id);

	if (r < 0)
		return err_set(
			e, r, "the kernel's boot id cannot be read: %s; mount /proc", err_str(r));
	r = disk_statvfs(tier->dir_fd, &fs);
	if (r < 0)
		return tier_refuse_access(tier->path, r, e);
	if (strcmp(identity->boot_id, boot_id) != 0 || identity->filesystem != fs.f_fsid)
		identity->boot++;
	identity->filesystem = fs.f_fsid;
	memcpy(identity->boot_id, boot_id, sizeof(identity->boot_id));
	identity->starts++;
	atomic_store(&tier->next_file, identity_first_file(identity));
	r = identity_store(tier->path, identity);
	tier->unnamed = r == -ENOSPC || r == -EDQUOT;
	if (r < 0 && !tier->unnamed)
		return tier_refuse_access(tier->path, r, e);
	remember(tier, config);
	return 0;
}

int tier_probe(struct tier *tier)
{
	_cleanup_free_ uint8_t *out = aligned_alloc(BLOCK_BYTES, BLOCK_BYTES);
	_cleanup_free_ uint8_t *in = aligned_alloc(BLOCK_BYTES, BLOCK_BYTES);
	_cleanup_disk_close_ int fd = -1;
	int flags = O_RDWR | O_CREAT;
	int unlinked;
	int r;

	if (!out || !in)
		return -ENOMEM;
	hash_random(out, BLOCK_BYTES);
	fd = disk_open(tier->dir_fd, PROBE_NAME, flags | O_DIRECT, 0600);
	if (fd == -EINVAL)
		fd = disk_open(tier->dir_fd, PROBE_NAME, flags, 0600);
	if (fd < 0)
		return fd;
	r = disk_pwrite(fd, out, BLOCK_BYTES, 0);
	if (r == 0)
		r = disk_pread(fd, in, BLOCK_BYTES, 0);
	if (r == 0 && memcmp(in, out, BLOCK_BYTES) != 0)
		r = -EIO;
	unlinked = disk_unlink(tier->dir_fd, PROBE_NAME, 0);
	return r < 0 ? r : unlinked;
}

/* ---- cacheworker tier init ------------------------------------------------------------------- */

static int adopt_claimed(struct tier *tier, struct err *e)
{
	struct identity old;
	int r = identity_load(tier->path, &old, e);

	if (r == -ENOENT)
		return err_set(e, r, "%s: no cache found; leave out --adopt", tier->path);
	if (r == 0)
		r = lock_directory(tier, e);
	if (r < 0)
		return r;
	identity_init(&tier->identity); /* another uuid: the other one may still be in use */
	tier->identity.capacity = old.capacity;
	tier->identity.boot = old.boot;
	tier->identity.starts = old.starts;
	r = device_of(tier->dir_fd, tier->identity.device);
	return r < 0 ? tier_refuse_access(tier->path, r, e) : 0;
}

static int init_claimed(struct tier *tier, const struct tier_config *config, struct err *e)
{
	struct tier_config anew = { .path = config->path, .create = true };
	struct identity there;
	int r = identity_load(tier->path, &there, NULL);

	if (r == 0)
		return err_set(e, -EEXIST, "%s: already a cache (uuid %s); give another directory",
			tier->path, there.uuid);
	return tier_claim(tier, &anew, e);
}

/* Of what is free now nothing is said: others may go, and the worker looks at it all the time. */
static int check_fits(const struct tier *tier, uint64_t capacity, struct err *e)
{
	struct statvfs fs;
	char wanted[16];
	char there[16];
	char room[16];
	uint64_t size;
	int r = disk_statvfs(tier->dir_fd, &fs);

	if (r < 0)
		return tier_refuse_access(tier->path, r, e);
	size = (uint64_t)fs.f_blocks * fs.f_frsize; /* some do not say */
	if (size == 0 || capacity <= size)
		return 0;
	return err_set(e, -EFBIG,
		"%s: a capacity of %s is more than the filesystem has: %s, of which %s are free; "
		"give less, or none for the default",
		tier->path, units_size(capacity, wanted, sizeof(wanted)),
		units_size(size, there, sizeof(there)),
		units_size((uint64_t)fs.f_bavail * fs.f_frsize, room, sizeof(room)));
}

int tier_init(const struct tier_config *config, bool adopt, struct err *e)
{
	_cleanup_(tier_free_p) struct tier *tier = NULL;
	int r = tier_make(config->path, NULL, &tier, e);

	if (r < 0)
		return r;
	r = adopt ? adopt_claimed(tier, e) : init_claimed(tier, config, e);
	if (r < 0)
		return r;
	if (config->capacity)
		tier->identity.capacity = config->capacity;
	r = check_fits(tier, config->capacity, e);
	if (r == 0)
		r = tier_set_capacity(tier, tier->identity.capacity, e);
	if (r == 0) {
		r = identity_store(tier->path, &tier->identity);
		if (r < 0)
			(void)tier_refuse_access(tier->path, r, e); /* returns r */
	}
	if (r < 0)
		tier_unclaim(tier);
	else
		remember(tier, config);
	return r;
}
