/* The cache directory: ours or refused. See cache_dir.h. */
#include "ctl/cache_dir.h"
#include "admin/admin.h"
#include "base/cleanup.h"
#include "base/crash_point.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/utf8.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#define PROBE_NAME   ".probe." /* and a process */
#define CACHE_FORMAT 1

/* An absolute path. Not another user's, whose HOME `sudo -E` keeps: what root leaves there he could
 * not use. */
static bool own_base(const char *path)
{
	struct stat st;

	return path && path[0] == '/' && (geteuid() != 0 || stat(path, &st) != 0 || st.st_uid == 0);
}

int cache_dir_default(char out[PATH_MAX], struct err *e)
{
	const char *base = secure_getenv("XDG_CACHE_HOME");
	const char *home = secure_getenv("HOME");
	int n;

	if (own_base(base))
		n = snprintf(out, PATH_MAX, "%s/granary", base);
	else if (own_base(home))
		n = snprintf(out, PATH_MAX, "%s/.cache/granary", home);
	else if (geteuid() == 0)
		n = snprintf(out, PATH_MAX, "/root/.cache/granary");
	else
		return err_set(e, -ENOENT, "no cache directory: HOME is not set, give --cache DIR");
	if (n >= PATH_MAX)
		return err_set(e, -ENAMETOOLONG,
			"the cache directory's path is too long: give --cache DIR");
	return 0;
}

/* Is there, is this user's, and nobody else may write there; `own`: is or becomes a directory of
 * ours alone. */
static bool usable_base(const char *path, bool own)
{
	struct stat st;

	if (lstat(path, &st) != 0)
		return own && errno == ENOENT;
	return S_ISDIR(st.st_mode) && st.st_uid == geteuid() && (st.st_mode & 022) == 0 &&
	       access(path, R_OK | W_OK | X_OK) == 0;
}

/* Adds PARENT/granary when PARENT, of which the system takes care, is this user's. */
static void add_base(char out[CACHE_RUN_BASES][PATH_MAX], unsigned int *n, const char *parent)
{
	if (!parent || parent[0] != '/' || !usable_base(parent, false))
		return;
	if (snprintf(out[*n], PATH_MAX, "%s/granary", parent) < PATH_MAX &&
		(*n == 0 || strcmp(out[*n], out[*n - 1]) != 0))
		++*n;
}

void cache_dir_run_bases(char out[CACHE_RUN_BASES][PATH_MAX], unsigned int *ret_n)
{
	const char *given = secure_getenv("GRANARY_RUN_DIR");
	unsigned int n = 0;
	char path[64];

	if (given && given[0] == '/' && strlen(given) < PATH_MAX) {
		(void)snprintf(out[n++], PATH_MAX, "%s", given); /* fits */
	} else if (geteuid() == 0) {
		(void)snprintf(out[n++], PATH_MAX, "/run/granary"); /* fits */
	} else {
		add_base(out, &n, secure_getenv("XDG_RUNTIME_DIR"));
		(void)snprintf(path, sizeof(path), "/run/user/%u", geteuid()); /* fits */
		add_base(out, &n, path);
		(void)snprintf(path, sizeof(path), "/tmp/granary-%u", geteuid()); /* fits */
		if (usable_base(path, true))
			(void)snprintf(out[n++], PATH_MAX, "%s", path); /* fits */
	}
	*ret_n = n;
}

/* What does not exist of it comes back in *ret_rest. */
static bool find_existing(const char *path, char out[PATH_MAX], const char **ret_rest)
{
	char copy[PATH_MAX];

	*ret_rest = "";
	if (snprintf(copy, sizeof(copy), "%s", path) >= (int)sizeof(copy))
		return false;
	while (!realpath(copy[0] ? copy : (path[0] == '/' ? "/" : "."), out)) {
		char *slash = strrchr(copy, '/');

		if (!copy[0])
			return false;
		*(slash ? slash : copy) = '\0';
		*ret_rest = path + strlen(copy);
	}
	return true;
}

bool cache_dir_existing(const char *path, char out[PATH_MAX])
{
	const char *rest;

	return find_existing(path, out, &rest);
}

bool cache_dir_path_below(const char *path, const char *dir)
{
	char whole[PATH_MAX];
	const char *rest;
	size_t len;
	size_t dir_len = strcmp(dir, "/") == 0 ? 0 : strlen(dir);

	if (!find_existing(path, whole, &rest))
		return false;
	len = strcmp(whole, "/") == 0 ? 0 : strlen(whole);
	(void)snprintf(whole + len, sizeof(whole) - len, "%s%s", *rest && *rest != '/' ? "/" : "",
		rest); /* cut only where it is far below already */
	return strncmp(whole, dir, dir_len) == 0 && (whole[dir_len] == '/' || !whole[dir_len]);
}

const char *cache_dir_socket(
	const struct cache_dir *cache, const char *name, char out[SOCKET_PATH_MAX])
{
	int n = snprintf(out, SOCKET_PATH_MAX, "%s/%s", cache->run, name);

	ensure(n < SOCKET_PATH_MAX);
	return out;
}

/* True when the directory has no entry at all. lost+found of a fresh filesystem does not count, nor
 * does what a crash left of check_writable(), or an identity that it kept from getting its name:
 * nothing is made before that has it. */
static int is_empty(const char *path, bool *ret_empty)
{
	DIR *dir = opendir(path);
	const struct dirent *entry;

	if (!dir)
		return err_errno();
	*ret_empty = true;
	while ((entry = readdir(dir)))
		if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0 &&
			strcmp(entry->d_name, "lost+found") != 0 &&
			strncmp(entry->d_name, PROBE_NAME, strlen(PROBE_NAME)) != 0 &&
			strcmp(entry->d_name, "granary.cache.new") != 0)
			*ret_empty = false;
	(void)closedir(dir); /* read only */
	return 0;
}

static int create_identity(const char *path, struct err *e)
{
	char identity[PATH_MAX + 16];
	uint8_t uuid[16];
	char hex[33];
	char text[128];
	int n;
	int r;

	hash_random(uuid, sizeof(uuid));
	hash_hex(uuid, sizeof(uuid), hex);
	n = snprintf(text, sizeof(text), "{\"format\": %d, \"uuid\": \"%s\"}\n", CACHE_FORMAT, hex);
	(void)snprintf(identity, sizeof(identity), "%s/granary.cache", path); /* fits */
	r = file_write_atomic(identity, text, (size_t)n, 0600);
	CRASH_POINT("cache.identified");
	if (r < 0)
		return err_set(e, r,
			"%s cannot be written: %s: give another directory with --cache", path,
			err_str(r));
	return 0;
}

int cache_dir_identify(const char *path, bool *ret_new, struct err *e)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(4096);
	char identity[PATH_MAX + 16];
	json_int_t format;
	json_t *json;
	bool empty = false;
	int r;

	(void)snprintf(identity, sizeof(identity), "%s/granary.cache", path); /* fits */
	r = file_read_all(identity, &text);
	*ret_new = r == -ENOENT;
	if (r == -ENOENT) {
		r = is_empty(path, &empty);
		if (r == 0 && !empty)
			return err_set(e, -ENOTEMPTY,
				"%s is not a Granary cache and not empty: give an empty or new "
				"directory with --cache",
				path);
	}
	if (r < 0)
		return err_set(e, r, "%s cannot be read: %s: give another directory with --cache",
			path, err_str(r));
	if (*ret_new)
		return 0;
	json = json_loadb(buf_str(&text), text.len, 0, NULL);
	format = json_integer_value(json_object_get(json, "format"));
	json_decref(json);
	if (format > CACHE_FORMAT)
		return err_set(e, -EPROTONOSUPPORT,
			"%s was created by a newer version (format %lld, this one supports %d): "
			"use that version or another --cache",
			path, (long long)format, CACHE_FORMAT);
	if (format != CACHE_FORMAT)
		return err_set(e, -ENOTEMPTY,
			"%s is damaged, so %s cannot be used as a cache: give another --cache",
			identity, path);
	return 0;
}

static int check_filesystem(const char *path, uint64_t capacity, struct err *e)
{
	char has[16];
	char wants[16];
	struct statfs fs;
	uint64_t total;

	if (statfs(path, &fs) != 0)
		return err_set(e, err_errno(),
			"the filesystem of %s does not answer: %m: give another --cache", path);
	total = (uint64_t)fs.f_blocks * (uint64_t)fs.f_bsize;
	(void)units_size(total, has, sizeof(has));
	(void)units_size(max(capacity, CACHE_MIN_BYTES), wants, sizeof(wants));
	if (total < CACHE_MIN_BYTES || total < capacity)
		return err_set(e, -ENOSPC,
			"%s is too small: its filesystem has %s, %s are needed: give a smaller "
			"--cache-size or another --cache",
			path, has, wants);
	return 0;
}

int cache_dir_check_images(const struct cache_dir *cache, struct err *e)
{
	struct statfs fs;

	if (statfs(cache->path, &fs) != 0)
		return err_set(e, err_errno(),
			"the cache directory %s cannot be used: %m: give another --cache",
			cache->path);
	if (fs.f_type == TMPFS_MAGIC)
		return err_set(e, -EOPNOTSUPP,
			"%s is on tmpfs, from which the kernel cannot mount images: give a --cache "
			"on a disk, or use --engine fuse",
			cache->path);
	return 0;
}

static int make_parts(const char *path, struct err *e)
{
	static const char *const parts[] = { "master", "images", "log" };
	char part[PATH_MAX];

	for (size_t i = 0; i < ARRAY_SIZE(parts); i++) {
		int r = -ENAMETOOLONG;

		if (snprintf(part, sizeof(part), "%s/%s", path, parts[i]) < (int)sizeof(part))
			r = file_mkdirs(part, 0700);
		if (r < 0)
			return err_set(e, r,
				"cannot create %s/%s: %s; give another directory with --cache",
				path, parts[i], err_str(r));
	}
	return 0;
}

/* A directory on a read-only filesystem passes access() for root; a file does not get written
 * there. */
static int check_writable(const char *path, struct err *e)
{
	char probe[PATH_MAX];
	int fd;

	if (snprintf(probe, sizeof(probe), "%s/" PROBE_NAME "%d", path, (int)getpid()) >=
		(int)sizeof(probe))
		return err_set(e, -ENAMETOOLONG,
			"%s: the path is too long for a cache directory: give a shorter --cache",
			path);
	fd = open(probe, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0)
		return err_set(e, err_errno(),
			"%s is not writable: %m: give another directory with --cache", path);
	(void)close(fd);     /* nothing was written */
	(void)unlink(probe); /* ours, just made */
	return 0;
}

static bool run_at(struct cache_dir *cache, const char *base)
{
	return snprintf(cache->run, sizeof(cache->run), "%s/%s", base, cache->id) <
	       (int)sizeof(cache->run);
}

/* The base where it runs already, else the best one. */
static int find_run(struct cache_dir *cache, struct err *e)
{
	uint8_t hash[SHA256_BYTES];
	char hex[2 * SHA256_BYTES + 1];
	char bases[CACHE_RUN_BASES][PATH_MAX];
	unsigned int n;

	hash_sha256(cache->path, strlen(cache->path), hash);
	hash_hex(hash, sizeof(hash), hex);
	memcpy(cache->id, hex, CACHE_ID_LEN);
	cache->id[CACHE_ID_LEN] = '\0';
	cache_dir_run_bases(bases, &n);
	for (unsigned int i = 0; i < n; i++)
		if (run_at(cache, bases[i]) && access(cache->run, F_OK) == 0)
			return 0;
	for (unsigned int i = 0; i < n; i++)
		if (run_at(cache, bases[i]))
			return 0;
	if (n > 0)
		return err_set(e, -ENAMETOOLONG,
			"%s is too long a path for sockets: set GRANARY_RUN_DIR to a shorter one",
			bases[0]);
	return err_set(e, -ENOENT,
		"no directory for sockets: neither $XDG_RUNTIME_DIR nor /run/user/%u nor "
		"/tmp/granary-%u is private to this user: set XDG_RUNTIME_DIR to a private "
		"directory of yours",
		geteuid(), geteuid());
}

int cache_dir_make_run(const struct cache_dir *cache, struct err *e)
{
	char base[SOCKET_PATH_MAX];
	struct stat st;
	int r = file_mkdirs(cache->run, 0700);

	if (r < 0)
		return err_set(e, r,
			"cannot create the directory for sockets %s: %s; set "
			"GRANARY_RUN_DIR to a directory of yours",
			cache->run, err_str(r));
	(void)snprintf(base, sizeof(base), "%s", cache->run); /* longer than it */
	*strrchr(base, '/') = '\0';
	/* In /tmp somebody else may have been faster. */
	if (!usable_base(base, true) || lstat(cache->run, &st) != 0 || st.st_uid != geteuid())
		return err_set(e, -EPERM,
			"the directory for sockets %s belongs to another user, or other users can "
			"access it: set GRANARY_RUN_DIR to a private directory of yours",
			base);
	return 0;
}

static int check_all(struct cache_dir *cache, uint64_t capacity, struct err *e)
{
	bool fresh = false;
	int r = cache_dir_identify(cache->path, &fresh, e);

	if (r == 0)
		r = check_filesystem(cache->path, capacity, e);
	if (r == 0)
		r = check_writable(cache->path, e);
	if (r == 0 && fresh)
		r = create_identity(cache->path, e);
	if (r == 0)
		r = make_parts(cache->path, e);
	return r == 0 ? find_run(cache, e) : r;
}

/* The daemons write it down and tell it as JSON. */
static int check_text(const char *path, struct err *e)
{
	if (utf8_is(path))
		return 0;
	return err_set(e, -EINVAL,
		"the cache directory %s: its path is not UTF-8: give another one with --cache",
		path);
}

int cache_dir_open(const char *path, uint64_t capacity, struct cache_dir *ret_cache, struct err *e)
{
	struct cache_dir cache = { 0 };
	struct stat st;
	bool made = stat(path, &st) != 0;
	int r = check_text(path, e);

	if (r < 0)
		return r;
	r = file_mkdirs(path, 0700);
	if (r < 0)
		return err_set(e, r,
			"cannot create cache directory %s: %s; give another one with "
			"--cache",
			path, err_str(r));
	if (!realpath(path, cache.path) || stat(cache.path, &st) != 0)
		return err_set(e, err_errno(),
			"the cache directory %s cannot be used: %m: give another --cache", path);
	if (!S_ISDIR(st.st_mode))
		return err_set(e, -ENOTDIR,
			"the cache directory %s is not a directory: give another --cache", path);
	r = check_text(cache.path, e);
	if (r == 0)
		r = check_all(&cache, capacity, e);
	if (r < 0 && made)
		(void)rmdir(cache.path); /* leaves nothing behind, unless something is in it */
	if (r == 0)
		*ret_cache = cache;
	return r;
}

int cache_dir_find(const char *path, struct cache_dir *ret_cache, struct err *e)
{
	struct cache_dir cache = { 0 };
	int r;

	if (!realpath(path, cache.path))
		return err_set(e, -ENOMEDIUM,
			"cannot use cache directory %s: %m; give the --cache of a mount", path);
	r = find_run(&cache, e);
	if (r == 0)
		*ret_cache = cache;
	return r;
}
