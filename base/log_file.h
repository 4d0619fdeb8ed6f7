/*
 * A file of lines that is bounded: past LIMIT_LOG_BYTES it becomes PATH.1 and a new one is begun
 * under the same descriptor. Several processes may append to it.
 *
 * Static storage does: { .fd = -1 } and the mutex's initializer. Threads: any.
 */
#pragma once

#include <pthread.h>
#include <stdint.h>

struct log_file {
	pthread_mutex_t lock;
	int fd;     /* borrowed; opened for appending */
	char *path; /* NULL: not bounded here */
	uint64_t bytes;
};

#define LOG_FILE_INIT                                       \
	{                                                   \
		.lock = PTHREAD_MUTEX_INITIALIZER, .fd = -1 \
	}

/* The lines go to `path` (copied; NULL: not known), which `fd` is open on. Without memory it is not
 * bounded. */
void log_file_set(struct log_file *file, int fd, const char *path);
/* `n` bytes were written to it. */
void log_file_count(struct log_file *file, uint64_t n);
