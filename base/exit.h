/*
 * Exit statuses of every program, and of the "ERROR status line" a daemon writes to its --ready-fd.
 *
 * EXIT_STATUSES(X): X(name, number, what it says), in the words of --help, of the manual pages and of
 * docs/operations.md.
 */
#pragma once

#define EXIT_STATUSES(X)                                                                           \
	X(EXIT_OK, 0, "success")                                                                   \
	X(EXIT_RUNTIME, 1, "error that none of the following describes")                           \
	X(EXIT_USAGE, 2,                                                                           \
		"invalid option, argument, unit or configuration file; dataset, generation, "      \
		"preload or worker not found")                                                     \
	X(EXIT_MOUNTPOINT, 3,                                                                      \
		"mount point: not found, not a directory, not empty, already mounted, or not a "   \
		"mount of Granary")                                                                \
	X(EXIT_ORIGIN, 4,                                                                          \
		"origin: credentials, endpoint, region or bucket refused or not found, or no "     \
		"object under the prefix")                                                         \
	X(EXIT_CACHE, 5,                                                                           \
		"cache directory or backup file: not found, damaged, not writable, too small, of " \
		"a newer format, or not of Granary")                                               \
	X(EXIT_KERNEL, 6,                                                                          \
		"kernel: engine not available, or no permission to mount, unmount or preload")     \
	X(EXIT_BUSY, 7,                                                                            \
		"busy: files are open, another process uses the cache, or --yes is needed to "     \
		"evict data")                                                                      \
	X(EXIT_LINT, 10, "job: the linter or the cluster found an error in its objects")           \
	X(EXIT_JOB_NOT_FOUND, 11, "job: not found, or the cluster has no operator for it")         \
	X(EXIT_JOB_CONFLICT, 12, "job: another object has its name, or it was changed meanwhile")  \
	X(EXIT_JOB_DENIED, 13,                                                                     \
		"job: the cluster does not accept the credentials, or does not allow it")          \
	X(EXIT_JOB_CLUSTER, 14, "job: the cluster cannot be reached, or failed")                   \
	X(EXIT_JOB_FAILED, 15, "job: it failed, or did not reach the state in time")               \
	X(EXIT_INTERRUPTED, 130, "interrupted: the preload goes on")

#define EXIT_STATUS_ENUM(name, number, text) name = (number),

enum exit_status {
	EXIT_STATUSES(EXIT_STATUS_ENUM)
	/* Between daemons and cachectl, which says it in words: what was asked for is so already. */
	EXIT_UNCHANGED = 8,
};
