/*
 * A process that takes a mount off its mount point once this process is gone without having
 * dismissed it: else "Transport endpoint is not connected" would stay there.
 *
 * Threads: any, one at a time.
 */
#pragma once

#include <sys/types.h>
#include "base/err.h"

struct guard {
	pid_t pid; /* 0: none */
	int fd;    /* a socket that closes with this process */
};

/* From now on what comes to lie on `mountpoint` goes with this process. */
int guard_start(struct guard *guard, const char *mountpoint, struct err *e) __must_check;
/* It ends without doing anything. Nothing happens where there is none. */
void guard_dismiss(struct guard *guard);
