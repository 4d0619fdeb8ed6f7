/*
 * A parallel listing over pages: the key space is cut into ranges that are listed side by side, and
 * cut again wherever threads would idle. Where a cut falls decides speed only: ranges are (low,
 * high] in byte order and together the whole.
 */
#pragma once

#include "ufs/ufs_internal.h"

#define LISTER_THREADS_MAX 256u

/* ufs_list() by ufs_list_page(). `threads` pages in flight, 1..256. Complete, in no order, or an
 * error. */
int lister_run(struct ufs *ufs, unsigned int threads, ufs_list_sink sink, void *arg,
	struct err *e) __must_check;
