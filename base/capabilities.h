/*
 * What a process of root may beyond an ordinary user's. Each daemon keeps what it needs, for itself
 * and for whatever it starts.
 *
 * Threads: the rights are a thread's own: call it before others start.
 */
#pragma once

#include <linux/capability.h>
#include <stdint.h>
#include "base/err.h"

/* A bit of the masks below; `number` of linux/capability.h. */
#define CAPABILITY(number) (1ull << (number))

/* What a daemon of root needs that reads and writes the files of others, and listens: nothing by
 * which a machine is administered. */
#define CAPABILITIES_FILES                                                                        \
	(CAPABILITY(CAP_CHOWN) | CAPABILITY(CAP_DAC_OVERRIDE) | CAPABILITY(CAP_DAC_READ_SEARCH) | \
		CAPABILITY(CAP_FOWNER) | CAPABILITY(CAP_FSETID) | CAPABILITY(CAP_IPC_LOCK) |      \
		CAPABILITY(CAP_KILL) | CAPABILITY(CAP_NET_BIND_SERVICE) |                         \
		CAPABILITY(CAP_SYS_NICE) | CAPABILITY(CAP_SYS_RESOURCE))

/*
 * Gives up every capability that is not in `mask`, for good: out of the bounding set too, so that
 * no program that this process starts has them. Nothing to do is no error.
 */
int capabilities_keep(uint64_t mask) __must_check;
/* The same, but what this process starts may have them again: for who starts the keeper. */
int capabilities_rest(uint64_t mask) __must_check;
/* Those that this thread has now. */
uint64_t capabilities_effective(void);
