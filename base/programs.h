/* Where the daemons' programs lie, and running one for its answer. Threads: any that may block. */
#pragma once

#include <limits.h>
#include <stdint.h>
#include "base/buf.h"
#include "base/err.h"

/* GRANARY_BIN_DIR, or the directory of this program. */
int programs_dir(char out[PATH_MAX], struct err *e) __must_check;

/* Path of `name` as $PATH has it, or in one of the usual places; NULL: not there. */
const char *programs_find(const char *name, char out[PATH_MAX]);

/* The program that mounts and unmounts FUSE file systems for ordinary users; NULL: not there. */
const char *programs_fusermount(char out[PATH_MAX]);

/*
 * Runs argv[0] (a path) and appends what it prints, bounded by out->max; standard error goes
 * nowhere. *ret_status: its exit status. -ETIMEDOUT after `timeout_ns`, and it is killed; -EIO when
 * a signal ended it. programs_run_in(): with that environment in place of this process's.
 */
int programs_run(
	char *const argv[], uint64_t timeout_ns, struct buf *out, int *ret_status) __must_check;
int programs_run_in(char *const env[], char *const argv[], uint64_t timeout_ns, struct buf *out,
	int *ret_status) __must_check;
