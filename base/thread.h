/* Threads that nothing waits for. */
#pragma once

#include "base/check.h"

/* Starts main(arg) on a detached thread with a small stack, on which no signal is handled. A negative errno. */
int thread_start_detached(void *(*main)(void *arg), void *arg) __must_check;
