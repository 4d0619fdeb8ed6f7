/*
 * Exit statuses of every program, and of the "ERROR status line" a daemon writes to its --ready-fd.
 *
 * EXIT_STATUSES(X): X(name, number, what it says), in the words of --help, of the manual pages and of
 * docs/operations.md.
 */
#pragma once

#define EXIT_STATUSES(X)                                                                           \
	X(EXIT_OK, 0, "done")                                                                      \
	X(EXIT_RUNTIME, 1, "an error while running that fits none of the below")                   \
	X(EXIT_USAGE, 2,                                                                           \
		"option, argument, unit or configuration file not understood; no such dataset, "   \
		"generation, preload or worker")                                                   \
	X(EXIT_MOUNTPOINT, 3,                                                                      \
		"mount point: missing, not a directory, not empty, already mounted, not a mount "  \
		"of ours")                                                                         \
	X(EXIT_ORIGIN, 4,                                                                          \
		"origin: credentials, endpoint, region, bucket, or nothing under the prefix")      \
	X(EXIT_CACHE, 5, "cache directory: foreign, unwritable, too small, of a newer format")     \
	X(EXIT_KERNEL, 6,                                                                          \
		"kernel: no engine can be had, or not the one asked for; not allowed to mount or " \
		"unmount")                                                                         \
	X(EXIT_BUSY, 7,                                                                            \
		"busy: files are open on the mount, another process holds the cache, or the "      \
		"change evicts data and was not confirmed with --yes")                             \
	X(EXIT_INTERRUPTED, 130, "cachectl preload was interrupted: the preload goes on")

#define EXIT_STATUS_ENUM(name, number, text) name = (number),

enum exit_status {
	EXIT_STATUSES(EXIT_STATUS_ENUM)
	/* Between daemons and cachectl, which says it in words: what was asked for is so already. */
	EXIT_UNCHANGED = 8,
};
