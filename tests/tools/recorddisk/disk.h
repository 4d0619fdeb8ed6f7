/*
 * A disk that records, for a loop device: a FUSE mount (root only) with two files.
 *
 *	disk	its bytes are those of an image; every write and every fsync, which is what a loop
 *		device makes of a flush, is recorded (record.h) before it is answered
 *	control	takes a line: `mark TEXT`	an event of the record
 *			      `stall` / `go`	requests to the disk wait / are answered again
 *			      `error` / `heal`	requests to the disk fail with EIO / work again
 *
 * Requests are served one after the other in one thread, so that the record has one order: a write
 * that was answered before a flush was sent stands before it.
 */
#pragma once

#include "base/err.h"

struct disk;

/* Mounts at `dir`, which must exist, and creates the record; NULL: nothing is recorded. Errors with
 * their line. */
int disk_open(const char *image, const char *record, const char *dir, struct disk **ret_disk,
	struct err *e) __must_check;
/* Serves until the mount is gone, or an error. */
int disk_serve(struct disk *disk) __must_check;
void disk_free(struct disk *disk); /* NULL is allowed */
