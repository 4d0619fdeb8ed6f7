/* Mounts and mount points. See mount_table.h. */
#include "ctl/mount_table.h"
#include "base/cleanup.h"
#include "ctl/fleet.h"

#include <dirent.h>
#include <string.h>
#include <sys/stat.h>

/* "\040" and the like back to bytes. */
static void unescape(const char *in, size_t len, char *out, size_t size)
{
	size_t n = 0;

	for (size_t i = 0; i < len && n + 1 < size; i++) {
		if (in[i] == '\\' && i + 3 < len) {
			out[n++] = (char)((in[i + 1] - '0') << 6 | (in[i + 2] - '0') << 3 |
					  (in[i + 3] - '0'));
			i += 3;
		} else {
			out[n++] = in[i];
		}
	}
	out[n] = '\0';
}

/* The word at *p into out; *p moves behind it. */
static bool take_word(const char **p, char *out, size_t size)
{
	size_t len = strcspn(*p, " \n");

	if (len == 0)
		return false;
	if (out)
		unescape(*p, len, out, size);
	*p += len;
	*p += **p == ' ';
	return true;
}

/* 36 35 98:0 /root /point options [optional fields] - type source super-options */
int mount_table_parse(const char *line, struct mount_entry *ret_entry)
{
	struct mount_entry e;
	char dev[32];
	char *end;
	const char *p = line;

	if (!take_word(&p, NULL, 0) || !take_word(&p, NULL, 0) ||
		!take_word(&p, dev, sizeof(dev)) || !take_word(&p, NULL, 0) ||
		!take_word(&p, e.point, sizeof(e.point)))
		return -EPROTO;
	e.dev_major = (unsigned int)strtoul(dev, &end, 10);
	if (end == dev || *end != ':')
		return -EPROTO;
	e.dev_minor = (unsigned int)strtoul(end + 1, NULL, 10);
	p = strstr(p, " - ");
	if (!p)
		return -EPROTO;
	p += 3;
	if (!take_word(&p, e.type, sizeof(e.type)) || !take_word(&p, e.source, sizeof(e.source)))
		return -EPROTO;
	e.user = 0;
	p = strstr(p, "user_id=");
	if (p && (p[-1] == ',' || p[-1] == ' '))
		e.user = (unsigned int)strtoul(p + 8, NULL, 10);
	*ret_entry = e;
	return 0;
}

typedef int (*entry_fn)(void *arg, const struct mount_entry *entry);

static int each(bool only_ours, entry_fn fn, void *arg)
{
	_cleanup_fclose_ FILE *f = fopen("/proc/self/mountinfo", "re");
	_cleanup_free_ char *line = NULL;
	struct mount_entry entry;
	size_t size = 0;
	int r = 0;

	if (!f)
		return err_errno();
	while (r == 0 && getline(&line, &size, f) > 0)
		if (mount_table_parse(line, &entry) == 0 &&
			(!only_ours || mount_entry_ours(&entry)))
			r = fn(arg, &entry);
	return r;
}

int mount_table_each_ours(entry_fn fn, void *arg)
{
	return each(true, fn, arg);
}

struct search {
	const char *path;
	struct mount_entry *nearest;
	size_t best; /* length of its point; 0: none yet */
};

static int look(void *arg, const struct mount_entry *entry)
{
	struct search *search = arg;
	size_t len = strlen(entry->point);
	bool root = len == 1;

	if (strncmp(search->path, entry->point, len) != 0 || len < search->best ||
		(!root && search->path[len] && search->path[len] != '/'))
		return 0;
	*search->nearest = *entry;
	search->best = len;
	return 0;
}

static int find_above(bool only_ours, const char *path, struct mount_entry *ret_entry)
{
	struct mount_entry entry;
	struct search search = { .path = path, .nearest = &entry };
	int r = each(only_ours, look, &search);

	if (r < 0)
		return r;
	if (search.best == 0)
		return -ENOENT;
	*ret_entry = entry;
	return 0;
}

int mount_table_find_above(const char *path, struct mount_entry *ret_entry)
{
	return find_above(true, path, ret_entry);
}

int mount_table_filesystem(const char *path, struct mount_entry *ret_entry)
{
	return find_above(false, path, ret_entry);
}

int mount_table_find(const char *point, struct mount_entry *ret_entry)
{
	_cleanup_fclose_ FILE *f = fopen("/proc/self/mountinfo", "re");
	_cleanup_free_ char *line = NULL;
	struct mount_entry entry;
	size_t size = 0;
	int r = -ENOENT;

	if (!f)
		return err_errno();
	while (getline(&line, &size, f) > 0) {
		if (mount_table_parse(line, &entry) < 0 || strcmp(entry.point, point) != 0)
			continue;
		*ret_entry = entry; /* a later line lies on top */
		r = 0;
	}
	return r;
}

bool mount_entry_ours(const struct mount_entry *entry)
{
	if (strcmp(entry->type, "fuse.granary") == 0)
		return true;
	return strcmp(entry->type, "erofs") == 0 &&
	       (strstr(entry->source, "/images/") || strcmp(entry->source, "granary") == 0);
}

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
			"the mount point's path is empty or too long: name a directory");
	memcpy(copy, dir, len + 1);
	while (len > 1 && copy[len - 1] == '/')
		copy[--len] = '\0';
	slash = strrchr(copy, '/');
	if (strcmp(slash ? slash + 1 : copy, "..") == 0 ||
		strcmp(slash ? slash + 1 : copy, ".") == 0 || len == 1) {
		if (!realpath(copy, out))
			return err_set(e, err_errno(),
				"the mount point %s cannot be used: %m: name an empty directory",
				dir);
		return 0;
	}
	if (slash)
		*slash = '\0';
	if (!realpath(slash ? (slash == copy ? "/" : copy) : ".", parent))
		return err_set(e, err_errno(), "the mount point %s cannot be used: %s: %m%s", dir,
			slash ? copy : ".", errno == ENOENT ? ": create it first" : "");
	if (snprintf(whole, sizeof(whole), "%s/%s", strcmp(parent, "/") == 0 ? "" : parent,
		    slash ? slash + 1 : copy) >= (int)sizeof(whole))
		return err_set(
			e, -ENAMETOOLONG, "the mount point's path is too long: name a shorter one");
	if (mount_table_find(whole, &entry) == -ENOENT && lstat(whole, &st) == 0 &&
		S_ISLNK(st.st_mode)) {
		if (!realpath(whole, out))
			return err_set(e, err_errno(),
				"the mount point %s is a link to nowhere: %m: name a directory",
				dir);
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

	return err_set(e, -EBUSY, "%s is already mounted (%s%s%s): %s %s first", point,
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
	if (!S_ISDIR(st.st_mode))
		return err_set(
			e, -ENOTDIR, "the mount point %s is not a directory: name one", point);
	dir = opendir(point);
	if (!dir)
		return err_set(e, err_errno(),
			"the mount point %s cannot be read: %m: name an empty directory of yours",
			point);
	while ((name = readdir(dir)))
		names += strcmp(name->d_name, ".") != 0 && strcmp(name->d_name, "..") != 0;
	(void)closedir(dir); /* read only */
	if (names)
		return err_set(e, -ENOTEMPTY,
			"the mount point %s is not empty: give an empty directory", point);
	return 0;
}
