/*
 * The log: one line per event on standard error (or a file descriptor), key=value text or JSON.
 *
 * Libraries log only at DEBUG. A daemon logs a failure once, where it is decided, with what happens
 * next. What a peer or an origin can cause again and again goes through LOG_LIMITED. Never a
 * secret.
 *
 * Threads: any. A line is written by one write(2), so lines of several processes do not mix.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include "base/check.h"
#include "base/rate.h"

enum log_level {
	LOG_ERROR,
	LOG_WARN,
	LOG_INFO,
	LOG_DEBUG,
};

enum log_format {
	LOG_TEXT,
	LOG_JSON,
};

/* Names the process ("worker") and opens the log on `fd` (borrowed, kept for the process's
 * life). */
void log_init(const char *process, int fd, enum log_level level, enum log_format format);

/* The lines go to `path`, which `fd` is open on: past LIMIT_LOG_BYTES it becomes PATH.1 and a new one
 * is begun under the same descriptor. `path` is copied; without memory it is not bounded. */
void log_bound_file(const char *path);

/* From now on; any thread. */
void log_set_level(enum log_level level);

/* "error", "warn", "info" or "debug"; -EINVAL otherwise. */
int log_level_parse(const char *s, enum log_level *ret_level) __must_check;

bool log_enabled(enum log_level level);

/*
 * Writes one event. `event` is a short fixed phrase ("origin slow"); fmt gives `key=value` pairs
 * separated by blanks. Values with blanks are quoted by the caller: key="a b".
 */
void log_write(enum log_level level, const char *event, const char *fmt, ...) __printf(3, 4);

#define log_error(event, ...) log_write(LOG_ERROR, event, __VA_ARGS__)
#define log_warn(event, ...)  log_write(LOG_WARN, event, __VA_ARGS__)
#define log_info(event, ...)  log_write(LOG_INFO, event, __VA_ARGS__)
#define log_debug(event, ...) \
	(log_enabled(LOG_DEBUG) ? log_write(LOG_DEBUG, event, __VA_ARGS__) : (void)0)

/*
 * At most LIMIT_LOG_LINES a second of one process, LIMIT_LOG_BURST at once; at level DEBUG twenty
 * times as many. The last quarter of a burst is for errors and warnings. What is left out is
 * counted, and the next line that passes says how many they were.
 */
struct log_use {
	uint64_t lines; /* written */
	uint64_t left_out;
	uint32_t max_per_second;
};
void log_use(struct log_use *ret_use);

/* State of one limited call site. */
struct log_limit {
	struct rate rate; /* of lines */
	uint32_t dropped;
};

/* True when the line may be written: `burst` at once, and as many a second. *ret_dropped is how many were left out
 * before it. */
bool log_limit_pass(struct log_limit *limit, uint32_t burst, uint32_t *ret_dropped);

/* At most 5 lines a second from this place; the next line that passes says how many were left
 * out. */
#define LOG_LIMITED(level, event, fmt, ...)                                                        \
	do {                                                                                       \
		static struct log_limit limit_here;                                                \
		uint32_t limit_dropped;                                                            \
		if (log_limit_pass(&limit_here, 5, &limit_dropped))                                \
			log_write(                                                                 \
				level, event, fmt " suppressed=%u", ##__VA_ARGS__, limit_dropped); \
	} while (0)
