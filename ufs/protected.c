/* What no source shows. See protected.h. */
#include "ufs/protected.h"
#include "base/cleanup.h"
#include "base/layout.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CONFIG_DIR "/etc/granary"

static const char *registered[PROTECTED_MAX] = { CONFIG_DIR };
static unsigned int n_registered = 1;

void protected_add(const char *path)
{
	if (!path)
		return;
	ensure(n_registered < PROTECTED_MAX); /* options have fewer values */
	registered[n_registered++] = path;
}

bool protected_is_below(const char *path, const char *dir)
{
	size_t n = strcmp(dir, "/") == 0 ? 0 : strlen(dir);

	return strncmp(path, dir, n) == 0 && (path[n] == '\0' || path[n] == '/');
}

int protected_find(struct protected_paths *ret_paths)
{
	struct protected_paths paths = { .n = 0 };

	for (unsigned int i = 0; i < n_registered; i++) {
		struct protected_path *p = &paths.all[paths.n];
		struct stat st;

		p->path = realpath(registered[i], NULL);
		if (!p->path && errno == ENOMEM) {
			protected_release(&paths);
			return -ENOMEM;
		}
		if (!p->path || stat(p->path, &st) != 0) {
			free(TAKE(p->path)); /* is not there, or not for this process */
			continue;
		}
		p->dev = st.st_dev;
		p->ino = st.st_ino;
		p->directory = S_ISDIR(st.st_mode);
		paths.n++;
	}
	*ret_paths = paths;
	return 0;
}

void protected_release(struct protected_paths *paths)
{
	for (unsigned int i = 0; i < paths->n; i++)
		free(TAKE(paths->all[i].path));
	paths->n = 0;
}

bool protected_is(const struct protected_paths *paths, const char *path, const struct stat *st)
{
	for (unsigned int i = 0; i < paths->n; i++) {
		const struct protected_path *p = &paths->all[i];

		if (strcmp(p->path, path) == 0 || (p->dev == st->st_dev && p->ino == st->st_ino))
			return true;
	}
	return false;
}

bool protected_is_tier(int fd)
{
	return faccessat(fd, LAYOUT_TIER_FILE, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

static int refuse(const char *shown, const char *above, struct err *e)
{
	return err_set(e, -EPERM,
		"directory %s: permission denied: %s contains configuration, keys, state or cached "
		"data of Granary; give another directory",
		shown, above);
}

/* The directory and those above it, from the innermost. */
static int check_path(
	const struct protected_paths *paths, char *path, const char *shown, struct err *e)
{
	for (;;) {
		_cleanup_close_ int fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
		char *slash = strrchr(path, '/');
		struct stat st;

		if (fd >= 0 && fstat(fd, &st) == 0 &&
			(protected_is_tier(fd) || protected_is(paths, path, &st)))
			return refuse(shown, path, e);
		if (!slash || strcmp(path, "/") == 0)
			return 0;
		slash[slash == path] = '\0';
	}
}

int protected_check(int fd, const char *shown, struct err *e)
{
	struct protected_paths paths;
	char link[64];
	char path[PATH_MAX];
	ssize_t n;
	int r;

	(void)snprintf(link, sizeof(link), "/proc/self/fd/%d", fd); /* fits */
	n = readlink(link, path, sizeof(path) - 1);
	if (n <= 0 || path[0] != '/') {
		r = n < 0 ? err_errno() : -ENOENT;
		return err_set(
			e, r, "directory %s: its path cannot be found: %s", shown, err_str(r));
	}
	path[n] = '\0';
	r = protected_find(&paths);
	if (r < 0)
		return err_set(e, r, "out of memory");
	r = check_path(&paths, path, shown, e);
	protected_release(&paths);
	return r;
}
