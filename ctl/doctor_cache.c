/* doctor: the cache directory, or where it would be made. */
#include "base/cleanup.h"
#include "base/device.h"
#include "base/file.h"
#include "base/layout.h"
#include "base/mount_table.h"
#include "base/remembered.h"
#include "base/units.h"
#include "ctl/cache_dir.h"
#include "ctl/doctor.h"
#include "ctl/service.h"

#include <fcntl.h>
#include <limits.h>
#include <linux/fs.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>

#define SPACE_LITTLE (2 * GiB)

static bool listed(const char *type, const char *const *types)
{
	for (; *types; types++)
		if (strcmp(type, *types) == 0)
			return true;
	return false;
}

static void check_type(struct doctor *d, const char *at)
{
	static const char *const memory[] = { "tmpfs", "ramfs", NULL };
	static const char *const remote[] = { "nfs", "nfs4", "cifs", "smb3", "9p", "virtiofs",
		"ceph", "lustre", "gpfs", "beegfs", NULL };
	struct mount_entry fs;

	if (mount_table_filesystem(at, &fs) < 0)
		return;
	if (listed(fs.type, memory) && strcmp(d->options->engine, "native") == 0)
		doctor_fail(d, EXIT_CACHE, "cache",
			"filesystem: %s, from which the kernel cannot mount images: give a --cache "
			"on a disk, or use --engine fuse",
			fs.type);
	else if (listed(fs.type, memory))
		doctor_warn(d, "cache",
			"filesystem: %s: the cache takes memory, is lost at a reboot, and the "
			"kernel needs a loop device to mount its images: give a --cache on a disk",
			fs.type);
	else if (listed(fs.type, remote) || strncmp(fs.type, "fuse", 4) == 0)
		doctor_warn(d, "cache",
			"filesystem: %s: cached bytes cross the network or another daemon again: "
			"give a --cache on a local disk",
			fs.type);
	else if (strcmp(fs.type, "overlay") == 0)
		doctor_warn(d, "cache",
			"filesystem: overlay: the cache is lost with its container: give a --cache "
			"on a volume");
	else
		doctor_ok(d, "cache", "filesystem: %s on %s", fs.type, fs.source);
}

/* A hypervisor's disk says that it turns, whatever lies below. */
static bool virtual_disk(dev_t dev)
{
	char path[64];
	char target[PATH_MAX];
	const char *name;
	ssize_t n;

	(void)snprintf(
		path, sizeof(path), "/sys/dev/block/%u:%u", major(dev), minor(dev)); /* fits */
	n = readlink(path, target, sizeof(target) - 1);
	target[n > 0 ? n : 0] = '\0';
	name = strrchr(target, '/');
	return name && (strncmp(name, "/vd", 3) == 0 || strncmp(name, "/xvd", 4) == 0);
}

static void check_disk(struct doctor *d, const char *at)
{
	static const char *const places[] = { "queue", "../queue" }; /* a disk, a partition */
	struct stat st;

	if (stat(at, &st) != 0)
		return;
	for (size_t i = 0; i < ARRAY_SIZE(places); i++) {
		char path[96];
		uint64_t turns;

		(void)snprintf(path, sizeof(path), "/sys/dev/block/%u:%u/%s/rotational",
			major(st.st_dev), minor(st.st_dev), places[i]); /* fits */
		if (doctor_read_number(path, &turns) < 0)
			continue;
		if (turns && !virtual_disk(st.st_dev))
			doctor_warn(d, "cache",
				"disk: rotational, so random reads are slow: give a --cache on an "
				"SSD");
		return;
	}
}

static void check_inodes(struct doctor *d, const struct statvfs *fs, uint64_t capacity)
{
	uint64_t chunks = capacity / CHUNK_BYTES + 1;

	if (fs->f_files == 0)
		doctor_ok(d, "cache", "inodes: not counted by this filesystem");
	else if (fs->f_favail < chunks)
		doctor_warn(d, "cache",
			"inodes: %llu are free for %llu chunk files: chunks without an inode are "
			"read from the origin each time: use a filesystem with more inodes",
			(unsigned long long)fs->f_favail, (unsigned long long)chunks);
	else
		doctor_ok(d, "cache", "inodes: %llu are free, up to %llu are needed",
			(unsigned long long)fs->f_favail, (unsigned long long)chunks);
}

/* `fresh`: there is no tier yet. */
static void check_space(struct doctor *d, const char *at, bool fresh)
{
	uint64_t wants = d->options->cache_size;
	uint64_t total;
	uint64_t room;
	struct statvfs fs;
	char r[16];
	char w[16];

	if (statvfs(at, &fs) != 0) {
		doctor_fail(d, EXIT_CACHE, "cache", "%s: %m: give another --cache", at);
		return;
	}
	total = (uint64_t)fs.f_blocks * fs.f_frsize;
	room = (uint64_t)fs.f_bavail * fs.f_frsize;
	(void)units_size(room, r, sizeof(r));
	(void)units_size(max(wants, CACHE_MIN_BYTES), w, sizeof(w));
	if (total < CACHE_MIN_BYTES || total < wants)
		doctor_fail(d, EXIT_CACHE, "cache",
			"space: the filesystem of %s is smaller than %s: give a smaller "
			"--cache-size, or another --cache",
			at, w);
	else if (fresh && room < CACHE_MIN_FREE)
		doctor_fail(d, EXIT_CACHE, "cache",
			"space: %s are free, a new cache needs at least %s: free some, or give "
			"another --cache",
			r, units_size(CACHE_MIN_FREE, w, sizeof(w)));
	else if (wants > room || (wants == 0 && room < SPACE_LITTLE))
		doctor_warn(d, "cache",
			"space: %s are free: chunks that do not fit are read from the origin each "
			"time: free some, or give another --cache",
			r);
	else
		doctor_ok(d, "cache", "space: %s are free", r);
	check_inodes(d, &fs, wants ? wants : room / 10 * 9);
}

/* With files that have no name: they are gone when they are closed, whatever happens. */
static void check_features(struct doctor *d, const char *at)
{
	_cleanup_close_ int plain = open(at, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	_cleanup_close_ int direct = open(at, O_TMPFILE | O_RDWR | O_DIRECT | O_CLOEXEC, 0600);
	_cleanup_close_ int clone = open(at, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);

	if (plain < 0 || clone < 0) {
		doctor_ok(d, "cache", "O_DIRECT, reflink: not known (%m)");
		return;
	}
	if (direct >= 0)
		doctor_ok(d, "cache", "O_DIRECT: yes: cached bytes are in memory once");
	else
		doctor_warn(d, "cache",
			"O_DIRECT: not supported: data is cached twice in memory, by the mount and "
			"by the cache's filesystem: give a --cache on ext4, XFS or btrfs");
	doctor_ok(d, "cache", "reflink: %s: nothing in this version needs it",
		ioctl(clone, FICLONE, plain) == 0 ? "yes" : "no");
}

static void check_identity(struct doctor *d, const char *path, const char *at, bool there)
{
	struct err e = ERR_INIT;
	bool fresh = true;

	if (there && cache_dir_identify(at, &fresh, &e) < 0)
		doctor_fail(d, EXIT_CACHE, "cache", "%s", e.text);
	else if (access(at, W_OK | X_OK) != 0)
		doctor_fail(d, EXIT_CACHE, "cache",
			"%s is not writable: %m: give another directory with --cache", at);
	else
		doctor_ok(d, "cache", "directory: %s: %s", path,
			!there  ? "will be created"
			: fresh ? "empty, will be used"
				: "a cache of this version");
}

/* A tier is not made where there is next to no room; one that is there is used. */
static bool has_tier(const char *path)
{
	char marker[PATH_MAX];

	return snprintf(marker, sizeof(marker), "%s/tier/granary.tier", path) <
		       (int)sizeof(marker) &&
	       access(marker, F_OK) == 0;
}

/* The line "device ..." of a tier's identity; false: it has none, or cannot be read. */
static bool tier_device(const char *tier, char out[DEVICE_TEXT])
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(4096);
	char marker[PATH_MAX];
	const char *line;
	size_t len;

	if (snprintf(marker, sizeof(marker), "%s/granary.tier", tier) >= (int)sizeof(marker) ||
		file_read_all(marker, &text) < 0)
		return false;
	line = strstr(buf_str(&text), "\ndevice ");
	if (!line)
		return false;
	line += strlen("\ndevice ");
	len = strcspn(line, "\n");
	if (len >= DEVICE_TEXT)
		return false;
	(void)snprintf(out, DEVICE_TEXT, "%.*s", (int)len, line);
	return true;
}

/* Is its disk the one that it was made on, and there at all? */
static void check_device(struct doctor *d, const char *path)
{
	char remembered[PATH_MAX];
	char was[DEVICE_TEXT];
	char is[DEVICE_TEXT];
	char tier[PATH_MAX];
	struct err e = ERR_INIT;
	_cleanup_close_ int fd = -1;

	if (snprintf(tier, sizeof(tier), "%s/tier", path) >= (int)sizeof(tier))
		return; /* refused before */
	if (!has_tier(path)) {
		if (remembered_dir(remembered) && remembered_check(remembered, tier, &e) < 0)
			doctor_fail(d, EXIT_CACHE, "cache", "disk: %s", e.text);
		return;
	}
	fd = open(tier, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (!tier_device(tier, was) || fd < 0 || device_of(fd, is) < 0)
		return; /* the worker says why */
	if (device_differs(was, is))
		doctor_fail(d, EXIT_CACHE, "cache",
			"disk: the cache was created on device %s and is now on %s: mount the "
			"right disk, or accept this one with: cacheworker tier init --adopt %s",
			was, is, tier);
	else
		doctor_ok(d, "cache", "disk: the one on which the cache was created (%s)", is);
}

void doctor_cache(struct doctor *d)
{
	char path[PATH_MAX];
	char at[PATH_MAX];
	struct err e = ERR_INIT;
	struct stat st;
	bool there;

	if (d->options->cache)
		(void)snprintf(path, sizeof(path), "%s", d->options->cache); /* cut: not there */
	else if (geteuid() == 0 && service_there()) {
		doctor_ok(d, "cache",
			"directory: the service's, which a mount without --cache uses: cachectl "
			"status -o wide shows its tiers");
		return;
	} else if (cache_dir_default(path, &e) < 0) {
		doctor_fail(d, EXIT_CACHE, "cache", "%s", e.text);
		return;
	}
	there = stat(path, &st) == 0;
	if (!cache_dir_existing(path, at) || stat(at, &st) != 0 || !S_ISDIR(st.st_mode)) {
		doctor_fail(d, EXIT_CACHE, "cache",
			"%s is not a directory, and cannot be created: give another --cache", path);
		return;
	}
	check_identity(d, path, at, there);
	check_device(d, path);
	check_type(d, at);
	check_disk(d, at);
	check_space(d, at, !has_tier(path));
	if (access(at, W_OK | X_OK) == 0)
		check_features(d, at);
}
