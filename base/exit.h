/* Exit statuses of every program, and of the "ERROR status line" a daemon writes to its
 * --ready-fd. */
#pragma once

enum exit_status {
	EXIT_OK = 0,
	EXIT_RUNTIME = 1, /* an error while running that fits none of the below */
	EXIT_USAGE = 2,   /* option, argument or unit not understood */
	EXIT_MOUNTPOINT =
		3, /* missing, not a directory, not empty, already mounted, not a mount of ours */
	EXIT_ORIGIN = 4, /* credentials, endpoint, region, bucket, or nothing under the prefix */
	EXIT_CACHE = 5,  /* cache directory: foreign, unwritable, too small, of a newer format */
	EXIT_KERNEL = 6, /* no EROFS, no FUSE, or not allowed to mount */
	EXIT_BUSY = 7,   /* in use: the mount has open files, or another process holds the cache */
	EXIT_UNCHANGED = 8, /* what was asked for is so already: nothing was done */
};
