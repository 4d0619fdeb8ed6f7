/*
 * Files and directories of Granary itself, which no source shows: configuration, keys, state and cached bytes. A source at
 * or below one of them is refused; in a source that contains one it is left out of the listing, as links are.
 *
 * Each daemon registers its own; /etc/granary and the tiers of all daemons of the host (directories with a file granary.tier)
 * need no registration. A directory is recognised by its path without symbolic links, and under other names (bind mounts) by
 * its inode. Neither finds hard links to a file.
 *
 * Paths are resolved each time a source is opened or listed: keys are files that are replaced.
 *
 * Threads: protected_add() in main() before the first origin; the rest any.
 */
#pragma once

#include <limits.h>
#include <stdbool.h>
#include <sys/stat.h>
#include "base/err.h"

#define PROTECTED_MAX 64u

struct protected_path {
	char *path; /* resolved; owned */
	dev_t dev;
	ino_t ino;
	bool directory;
};

/* What is there of them now. */
struct protected_paths {
	struct protected_path all[PROTECTED_MAX];
	unsigned int n;
};

/* Registers a file, or a directory with all that it contains. Borrowed; NULL, and what does not exist yet, is allowed. */
void protected_add(const char *path);

/* -ENOMEM. */
int protected_find(struct protected_paths *ret_paths) __must_check;
void protected_release(struct protected_paths *paths);

/* Refuses the directory that is open at `fd`, and the source `shown`, if it is at or below one of them: -EPERM with a line. */
int protected_check(int fd, const char *shown, struct err *e) __must_check;

/* Is it one of them? `path` has no symbolic links. */
bool protected_is(const struct protected_paths *paths, const char *path, const struct stat *st);
/* Is the open directory a tier? */
bool protected_is_tier(int fd);

/* Is `path` `dir`, or below it? Both are absolute and have no '/' at the end, "/" excepted. */
bool protected_is_below(const char *path, const char *dir);
