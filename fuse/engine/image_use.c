/* Images in use. See image_use.h. */
#include "fuse/engine/image_use.h"
#include "base/cleanup.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <time.h>

#define PREFIX        "mounted."
#define STALE_SECONDS 86400

static bool is_use(const char *name)
{
	return strncmp(name, PREFIX, strlen(PREFIX)) == 0;
}

/* A daemon between its death and its successor's start holds it neither: hence the day. */
static void remove_stale(int dir, const char *name)
{
	_cleanup_close_ int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	struct stat st;

	if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0 && fstat(fd, &st) == 0 &&
		st.st_ctime < time(NULL) - STALE_SECONDS)
		(void)unlinkat(dir, name, 0); /* or the next time */
}

static void clean(int dir)
{
	int own = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *d = own >= 0 ? fdopendir(own) : NULL;
	const struct dirent *entry;

	if (!d)
		cleanup_close(&own);
	while (d && (entry = readdir(d)) != NULL)
		if (is_use(entry->d_name))
			remove_stale(dir, entry->d_name);
	if (d)
		(void)closedir(d); /* read only */
}

/* The directory of `path`, and *ret_name the rest. */
static int open_dir(const char *path, const char **ret_name)
{
	const char *slash = strrchr(path, '/');
	char dir[PATH_MAX];
	int fd;

	if (!slash ||
		snprintf(dir, sizeof(dir), "%.*s/", (int)(slash - path), path) >= (int)sizeof(dir))
		return -ENAMETOOLONG;
	*ret_name = slash + 1;
	fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return fd < 0 ? err_errno() : fd;
}

int image_use_take(const char *path, dev_t dev, const char *suffix, char *ret_name, size_t size)
{
	const char *image = NULL;
	_cleanup_close_ int dir = open_dir(path, &image);
	char name[64];

	if (dir < 0)
		return dir;
	if (snprintf(name, sizeof(name), PREFIX "%u-%u%s", major(dev), minor(dev), suffix) >=
		(int)size)
		return -ENAMETOOLONG;
	clean(dir);
	/* Of a mount that is no more, since numbers are given to one at a time. */
	if (unlinkat(dir, name, 0) != 0 && errno != ENOENT)
		return err_errno();
	if (linkat(dir, image, dir, name, 0) != 0)
		return err_errno();
	memcpy(ret_name, name, strlen(name) + 1);
	return 0;
}

int image_use_open(const char *path, int *ret_fd)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);

	if (fd < 0)
		return err_errno();
	(void)flock(fd, LOCK_SH | LOCK_NB); /* says that it is in use; without, a day's grace */
	*ret_fd = fd;
	return 0;
}

void image_use_drop(const char *path)
{
	const char *name = NULL;
	_cleanup_close_ int dir = open_dir(path, &name);

	if (dir >= 0 && is_use(name))
		(void)unlinkat(dir, name, 0); /* the next mount tries again */
}
