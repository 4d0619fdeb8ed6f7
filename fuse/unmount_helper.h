/*
 * A process that unmounts: with a READ that nobody answers it would wait in the kernel for ever,
 * deaf to signals. By umount2(), or by fusermount3 for who may not.
 *
 * Threads: any, one at a time per helper.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include "base/err.h"

struct unmount_helper {
	pid_t pid; /* 0: none */
	int said;  /* a pipe: what fusermount3 says; nothing from umount2() */
};

/* `mount_id`: the only mount that may be unmounted, -ESTALE when another one is there; 0: any. fusermount3 does not compare it. */
int unmount_helper_start(const char *mountpoint, bool lazy, int mount_id,
	struct unmount_helper *ret_helper) __must_check;
/*
 * Its result: 0, or a negative errno, with words in `e` when there are some. -EINPROGRESS: it still
 * runs; after anything else it is none any more.
 */
int unmount_helper_look(struct unmount_helper *helper, struct err *e) __must_check;
/* It goes on by itself, should it run. */
void unmount_helper_leave(struct unmount_helper *helper);

/* What names one mount of a file system: st_dev of what it shows, and its own number, 0 when not
 * known. */
struct unmount_target {
	dev_t dev;
	uint64_t mount_id;
};
/* Before it is unmounted. Asks no daemon. */
void unmount_target(const char *mountpoint, struct unmount_target *ret_target);
/* -EBUSY, with a line that names who uses it. */
int unmount_busy(const char *mountpoint, const struct unmount_target *target, struct err *e);
