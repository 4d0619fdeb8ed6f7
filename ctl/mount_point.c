/* Mount points. See mount_point.h. */
#include "ctl/mount_point.h"
#include "base/mount_table.h"
#include "base/utf8.h"
#include "ctl/fleet.h"

#include <dirent.h>
#include <string.h>
#include <sys/stat.h>

int mount_point_path(const char *dir, char out[PATH_MAX], struct err *e)
{
	char copy[PATH_MAX];
	char parent[PATH_MAX];
	char whole[PATH_MAX];
	struct mount_entry entry;
	struct stat st;
	char *slash;
	size_t len = strlen(dir);

	if (len == 0 || len >= sizeof(copy))
		return err_set(e, -ENAMETOOLONG,
			"the path of the mount point is empty or too long: give a directory");
	memcpy(copy, dir, len + 1);
	while (len > 1 && copy[len - 1] == '/')
		copy[--len] = '\0';
	slash = strrchr(copy, '/');
	if (strcmp(slash ? slash + 1 : copy, "..") == 0 ||
		strcmp(slash ? slash + 1 : copy, ".") == 0 || len == 1) {
		if (!realpath(copy, out))
			return err_set(e, err_errno(),
				"cannot use mount point %s: %m; give an empty directory", dir);
		return 0;
	}
	if (slash)
		*slash = '\0';
	if (!realpath(slash ? (slash == copy ? "/" : copy) : ".", parent))
		return err_set(e, err_errno(), "the mount point %s cannot be used: %s: %m%s", dir,
			slash ? copy : ".", errno == ENOENT ? ": create it first" : "");
	if (snprintf(whole, sizeof(whole), "%s/%s", strcmp(parent, "/") == 0 ? "" : parent,
		    slash ? slash + 1 : copy) >= (int)sizeof(whole))
		return err_set(e, -ENAMETOOLONG,
			"the path of the mount point is too long: give a shorter one");
	if (mount_table_find(whole, &entry) == -ENOENT && lstat(whole, &st) == 0 &&
		S_ISLNK(st.st_mode)) {
		if (!realpath(whole, out))
			return err_set(e, err_errno(),
				"the mount point %s is a broken link: %m; give a directory", dir);
		return 0;
	}
	memcpy(out, whole, sizeof(whole));
	return 0;
}

/* An image's path says nothing to who mounted a bucket. */
static int already_mounted(const char *point, const struct mount_entry *entry, struct err *e)
{
	struct fleet_mount mount;
	bool known = fleet_find(point, false, &mount) == 0 && mount.source[0];

	return err_set(e, -EBUSY, "%s is already mounted (%s%s%s): run `%s %s` first", point,
		known ? "" : entry->type, known ? "" : ", ", known ? mount.source : entry->source,
		mount_entry_ours(entry) ? "cachectl umount" : "umount", point);
}

int mount_point_check(const char *point, struct err *e)
{
	struct mount_entry entry;
	const struct dirent *name;
	struct stat st;
	unsigned int names = 0;
	DIR *dir;

	if (mount_table_find(point, &entry) == 0)
		return already_mounted(point, &entry, e);
	if (lstat(point, &st) != 0)
		return err_set(e, err_errno(),
			"the mount point %s does not exist: create it with mkdir %s", point, point);
	if (!utf8_is(point)) /* daemons write it down and tell it as JSON */
		return err_set(e, -EINVAL,
			"the mount point %s: its path is not UTF-8: give another one", point);
	if (!S_ISDIR(st.st_mode))
		return err_set(e, -ENOTDIR,
			"the mount point %s is not a directory: give a directory", point);
	dir = opendir(point);
	if (!dir)
		return err_set(e, err_errno(),
			"cannot read mount point %s: %m; give an empty directory of yours", point);
	while ((name = readdir(dir)))
		names += strcmp(name->d_name, ".") != 0 && strcmp(name->d_name, "..") != 0;
	(void)closedir(dir); /* read only */
	if (names)
		return err_set(e, -ENOTEMPTY,
			"the mount point %s is not empty: give an empty directory", point);
	return 0;
}

int mount_point_check_namespace(const char *socket, const char *point, struct err *e)
{
	pid_t pid = fleet_listener(socket);
	struct stat ours;
	struct stat its;
	char path[64];

	if (pid < 0)
		return 0;
	if (pid == 0) /* of another pid namespace: this one is a container's */
		return err_set(e, -EXDEV,
			"the mount point %s is in another mount namespace than the processes of "
			"this cache: mount on the host, and bind the directory into the "
			"container, or give another --cache",
			point);
	(void)snprintf(path, sizeof(path), "/proc/%d/ns/mnt", (int)pid); /* fits */
	if (stat(path, &its) != 0 || stat("/proc/self/ns/mnt", &ours) != 0 ||
		(its.st_ino == ours.st_ino && its.st_dev == ours.st_dev))
		return 0;
	return err_set(e, -EXDEV,
		"the mount point %s is in another mount namespace than the processes of this "
		"cache: run the command there with `nsenter --target %d --mount`, or give another "
		"--cache",
		point, (int)pid);
}
