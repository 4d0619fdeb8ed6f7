/* Tiers that were here. See base/remembered.h. */
#include "base/remembered.h"
#include "base/cleanup.h"
#include "base/device.h"
#include "base/file.h"
#include "base/hash.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define RECORD_BYTES (PATH_MAX + 256u)

/*
 * The path with everything resolved that is there, and a descriptor of the nearest directory at or
 * above it that exists: what will be made lies on its device.
 */
static int resolve(const char *path, char ret_path[PATH_MAX], int *ret_fd)
{
	char above[PATH_MAX];
	char real[PATH_MAX];
	size_t cut = strlen(path);
	int fd;

	if (cut >= sizeof(above))
		return -ENAMETOOLONG;
	memcpy(above, path, cut + 1);
	while (!realpath(cut ? above : (path[0] == '/' ? "/" : "."), real)) {
		if (errno != ENOENT || cut == 0)
			return err_errno();
		while (cut > 0 && above[cut - 1] == '/')
			cut--;
		while (cut > 0 && above[cut - 1] != '/')
			cut--;
		above[cut] = '\0';
	}
	while (path[cut] == '/')
		cut++;
	if (snprintf(ret_path, PATH_MAX, "%s%s%s", strcmp(real, "/") == 0 ? "" : real,
		    path[cut] ? "/" : "", path + cut) >= PATH_MAX)
		return -ENAMETOOLONG;
	fd = open(real, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return err_errno();
	*ret_fd = fd;
	return 0;
}

static int record_path(const char *dir, const char *path, char out[PATH_MAX])
{
	uint64_t hash = hash_xxh3(path, strlen(path), 0);

	if (strchr(path, '\n'))
		return -EINVAL; /* a line holds it */
	return snprintf(out, PATH_MAX, "%s/%016" PRIx64, dir, hash) < PATH_MAX ? 0 : -ENAMETOOLONG;
}

/* The last line of a record of that very path: "device ...". */
static bool record_device(const char *text, const char *path, char out[DEVICE_TEXT])
{
	const char *device = strstr(text, "\ndevice ");
	size_t len = strlen(path);

	if (strncmp(text, "path ", 5) != 0 || strncmp(text + 5, path, len) != 0 ||
		text[5 + len] != '\n' || !device)
		return false;
	device += strlen("\ndevice ");
	len = strcspn(device, "\n");
	if (len >= DEVICE_TEXT)
		return false;
	memcpy(out, device, len);
	out[len] = '\0';
	return true;
}

int remembered_check(const char *dir, const char *path, struct err *e)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(RECORD_BYTES);
	_cleanup_close_ int fd = -1;
	char device[DEVICE_TEXT];
	char now[DEVICE_TEXT];
	char record[PATH_MAX];
	char real[PATH_MAX];

	if (resolve(path, real, &fd) < 0 || record_path(dir, real, record) < 0 ||
		file_read_all(record, &text) < 0 || !record_device(buf_str(&text), real, device) ||
		device_of(fd, now) < 0 || !device_differs(device, now))
		return 0;
	return err_set(e, -ENODEV,
		"%s: the cache that was here is on another device (%s, here is %s): mount its "
		"disk, or create a new, empty cache with: cacheworker tier init %s",
		real, device, now, real);
}

/* ---- remembering ----------------------------------------------------------------------------- */

/* Counts the records of a directory and finds the one written longest ago. */
static unsigned int count_records(const char *dir, char ret_oldest[NAME_MAX + 1])
{
	struct timespec least = { 0 };
	unsigned int n = 0;
	DIR *d = opendir(dir);
	const struct dirent *entry;

	/* The stream is this call's own. NOLINTNEXTLINE(concurrency-mt-unsafe) */
	while (d && (entry = readdir(d))) {
		struct stat st;

		if (entry->d_name[0] == '.' || fstatat(dirfd(d), entry->d_name, &st, 0) != 0)
			continue;
		if (n++ == 0 || st.st_mtim.tv_sec < least.tv_sec) {
			least = st.st_mtim;
			(void)snprintf(ret_oldest, NAME_MAX + 1, "%s", entry->d_name); /* fits */
		}
	}
	if (d)
		closedir(d);
	return n;
}

static void prune(const char *dir)
{
	char oldest[NAME_MAX + 1];
	char path[PATH_MAX];

	if (count_records(dir, oldest) > REMEMBERED_MAX &&
		snprintf(path, sizeof(path), "%s/%s", dir, oldest) < (int)sizeof(path))
		(void)unlink(path); /* or with the next one */
}

int remembered_note(const char *dir, const char *path, const char *uuid, const char *device)
{
	_cleanup_(buf_release) struct buf want = BUF_INIT(RECORD_BYTES);
	_cleanup_(buf_release) struct buf have = BUF_INIT(RECORD_BYTES);
	_cleanup_close_ int fd = -1;
	char record[PATH_MAX];
	char real[PATH_MAX];
	int r = resolve(path, real, &fd);

	if (r == 0)
		r = record_path(dir, real, record);
	if (r == 0)
		r = buf_printf(&want, "path %s\nuuid %s\ndevice %s\n", real, uuid, device);
	if (r < 0)
		return r;
	if (file_read_all(record, &have) == 0 && have.len == want.len &&
		memcmp(have.data, want.data, want.len) == 0)
		return 0;
	r = file_mkdirs(dir, 0700);
	if (r == 0)
		r = file_write_atomic(record, want.data, want.len, 0600);
	if (r == 0)
		prune(dir);
	return r;
}

/* ---- where ----------------------------------------------------------------------------------- */

static const char *join(char out[PATH_MAX], const char *base, const char *below)
{
	return base && base[0] == '/' && snprintf(out, PATH_MAX, "%s%s", base, below) < PATH_MAX
		       ? out
		       : NULL;
}

const char *remembered_dir(char out[PATH_MAX])
{
	const char *given = secure_getenv("GRANARY_STATE_DIR");
	const char *state = secure_getenv("XDG_STATE_HOME");

	if (given)
		return join(out, given, "/tiers");
	if (geteuid() == 0)
		return join(out, "/var/lib/granary", "/tiers");
	if (state)
		return join(out, state, "/granary/tiers");
	return join(out, secure_getenv("HOME"), "/.local/state/granary/tiers");
}
