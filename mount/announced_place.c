/* Where orders are announced. See announced_place.h. */
#include "mount/announced_place.h"
#include "base/cleanup.h"
#include "base/hash.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* The directory of a path, in place. */
static bool cut_last(char *path)
{
	char *slash = strrchr(path, '/');

	if (!slash || slash == path)
		return false;
	*slash = '\0';
	return true;
}

bool announced_find_place(const char *run_dir, const char *order_dir, const char *mountpoint,
	struct announced_place *ret_place)
{
	char base[PATH_MAX - sizeof("/order")];
	const char *given = order_dir ? order_dir : run_dir;

	if (!given || snprintf(base, sizeof(base), "%s", given) >= (int)sizeof(base))
		return false;
	if (!order_dir && (!cut_last(base) || !cut_last(base)))
		return false;
	(void)snprintf(ret_place->directory, sizeof(ret_place->directory), "%s%s", base,
		order_dir ? "" : "/order"); /* fits */
	(void)snprintf(ret_place->name, sizeof(ret_place->name), "m-%016" PRIx64,
		hash_xxh3(mountpoint, strlen(mountpoint), 0)); /* likewise */
	return true;
}

/* A socket to which nobody listens; where it cannot be told, it is not. */
static bool is_left(const char *path)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	_cleanup_close_ int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	if (fd < 0 || strlen(path) >= sizeof(address.sun_path))
		return false;
	memcpy(address.sun_path, path, strlen(path) + 1);
	return connect(fd, (struct sockaddr *)&address, sizeof(address)) != 0 &&
	       errno == ECONNREFUSED;
}

static void remove_links(const char *directory, const char *name)
{
	DIR *dir = opendir(directory);
	const struct dirent *entry;
	char target[32];

	while (dir && (entry = readdir(dir)) != NULL) { // NOLINT(concurrency-mt-unsafe): own DIR
		ssize_t n = readlinkat(dirfd(dir), entry->d_name, target, sizeof(target));

		if (n == (ssize_t)strlen(name) && memcmp(target, name, strlen(name)) == 0)
			(void)unlinkat(dirfd(dir), entry->d_name, 0); /* or it is gone */
	}
	if (dir)
		(void)closedir(dir); /* read only */
}

void announced_forget(const char *run_dir, const char *mountpoint)
{
	struct announced_place place;
	char path[PATH_MAX + sizeof(place.name) + 1];

	if (!announced_find_place(run_dir, NULL, mountpoint, &place))
		return;
	(void)snprintf(path, sizeof(path), "%s/%s", place.directory, place.name); /* fits */
	if (!is_left(path))
		return;
	(void)unlink(path); /* or it is gone */
	remove_links(place.directory, place.name);
}
