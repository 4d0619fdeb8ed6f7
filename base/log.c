/* One line per event, written by one write(2). See log.h. */
#include "base/log.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/log_file.h"
#include "base/utf8.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define LINE_MAX_BYTES 4096
#define DEBUG_TIMES    20u /* who asks for DEBUG wants to see it */
#define LOG_BURST_S    ((double)LIMIT_LOG_BURST / LIMIT_LOG_LINES)

static struct {
	const char *process;
	int fd;
	_Atomic int level; /* enum log_level */
	enum log_format format;
} the_log = { .process = "granary", .fd = STDERR_FILENO, .level = LOG_INFO, .format = LOG_TEXT };

static const char *const level_names[] = { "error", "warn", "info", "debug" };

static struct log_file the_file = LOG_FILE_INIT;

static pthread_mutex_t limit_lock = PTHREAD_MUTEX_INITIALIZER;
/* All lines. Under limit_lock. */
static struct {
	struct rate rate;
	uint64_t lines;
	uint64_t left_out;
	uint64_t untold; /* left out since a line said how many */
} all = { .rate = RATE_INIT(LIMIT_LOG_LINES, LOG_BURST_S) };

void log_set_level(enum log_level level)
{
	atomic_store_explicit(&the_log.level, (int)level, memory_order_relaxed);
}

static uint32_t times(void)
{
	return log_enabled(LOG_DEBUG) ? DEBUG_TIMES : 1;
}

void log_init(const char *process, int fd, enum log_level level, enum log_format format)
{
	the_log.process = process;
	the_log.fd = fd;
	log_set_level(level);
	the_log.format = format;
	pthread_mutex_lock(&limit_lock);
	all.rate = RATE_INIT(LIMIT_LOG_LINES * times(), LOG_BURST_S);
	pthread_mutex_unlock(&limit_lock);
	log_file_set(&the_file, fd, NULL);
}

/* True: the line may be written, after one about *ret_left_out others. */
static bool limit_pass(enum log_level level, uint64_t *ret_left_out)
{
	double keep = level <= LOG_WARN ? 0 : LIMIT_LOG_BURST * times() / 4.0;
	uint64_t now = clock_mono_ns();
	bool pass;

	pthread_mutex_lock(&limit_lock);
	rate_set(&all.rate, now, LIMIT_LOG_LINES * times());
	pass = rate_left(&all.rate, now) >= keep + 2; /* it, and the line about those left out */
	if (pass) {
		unsigned int lines = all.untold ? 2 : 1;

		*ret_left_out = all.untold;
		rate_take(&all.rate, lines);
		all.lines += lines;
		all.untold = 0;
	} else {
		all.left_out++;
		all.untold++;
	}
	pthread_mutex_unlock(&limit_lock);
	return pass;
}

void log_use(struct log_use *ret_use)
{
	pthread_mutex_lock(&limit_lock);
	*ret_use = (struct log_use){ all.lines, all.left_out, LIMIT_LOG_LINES * times() };
	pthread_mutex_unlock(&limit_lock);
}

int log_level_parse(const char *s, enum log_level *ret_level)
{
	for (unsigned int i = 0; i < ARRAY_SIZE(level_names); i++)
		if (strcmp(s, level_names[i]) == 0) {
			*ret_level = (enum log_level)i;
			return 0;
		}
	return -EINVAL;
}

bool log_enabled(enum log_level level)
{
	return (int)level <= atomic_load_explicit(&the_log.level, memory_order_relaxed);
}

bool log_limit_pass(struct log_limit *limit, uint32_t burst, uint32_t *ret_dropped)
{
	bool pass;

	pthread_mutex_lock(&limit_lock);
	if (limit->rate.per_s <= 0)
		limit->rate = RATE_INIT(burst, 1);
	pass = rate_left(&limit->rate, clock_mono_ns()) >= 1;
	if (pass) {
		rate_take(&limit->rate, 1);
		*ret_dropped = limit->dropped;
		limit->dropped = 0;
	} else {
		limit->dropped++;
	}
	pthread_mutex_unlock(&limit_lock);
	return pass;
}

static size_t json_escape(char *out, size_t size, const char *s)
{
	size_t n = 0;

	while (*s && n + 7 < size) {
		unsigned char c = (unsigned char)*s;
		size_t bytes = utf8_bytes(s);

		if (bytes == 0) {
			n += (size_t)snprintf(out + n, size - n, "\\ufffd");
			bytes = 1;
		} else if (bytes > 1) {
			memcpy(out + n, s, bytes);
			n += bytes;
		} else if (c == '"' || c == '\\') {
			out[n++] = '\\';
			out[n++] = (char)c;
		} else if (c < 0x20) {
			n += (size_t)snprintf(out + n, size - n, "\\u%04x", c);
		} else {
			out[n++] = (char)c;
		}
		s += bytes;
	}
	out[n] = '\0';
	return n;
}

static int format_line(
	char *line, size_t size, enum log_level level, const char *event, const char *fields)
{
	char stamp[40];
	char escaped[LINE_MAX_BYTES / 2];

	clock_wall_text(stamp, sizeof(stamp));
	if (the_log.format == LOG_TEXT)
		return snprintf(line, size, "%s %-5s %s[%d] %s: %s\n", stamp, level_names[level],
			the_log.process, (int)getpid(), event, fields);
	(void)json_escape(escaped, sizeof(escaped), fields); /* length not needed */
	return snprintf(line, size,
		"{\"time\":\"%s\",\"level\":\"%s\",\"process\":\"%s\",\"pid\":%d,\"event\":\"%s\","
		"\"fields\":\"%s\"}\n",
		stamp, level_names[level], the_log.process, (int)getpid(), event, escaped);
}

void log_bound_file(const char *path)
{
	log_file_set(&the_file, the_log.fd, path);
}

static void write_line(enum log_level level, const char *event, const char *fields)
{
	char line[LINE_MAX_BYTES];
	int n = format_line(line, sizeof(line), level, event, fields);

	if (n > (int)sizeof(line) - 1) {
		n = (int)sizeof(line) - 1;
		line[n - 1] = '\n';
	}
	if (n > 0 && write(the_log.fd, line, (size_t)n) < 0)
		errno = 0; /* nowhere to report a log that cannot be written */
	log_file_count(&the_file, (uint64_t)max(n, 0));
}

void log_write(enum log_level level, const char *event, const char *fmt, ...)
{
	char fields[LINE_MAX_BYTES / 2];
	uint64_t left_out = 0;
	int saved = errno;
	va_list ap;

	if (!log_enabled(level) || !limit_pass(level, &left_out))
		return;
	if (left_out) {
		(void)snprintf(fields, sizeof(fields), "lines=%llu max_per_second=%u",
			(unsigned long long)left_out, LIMIT_LOG_LINES * times()); /* fits */
		write_line(LOG_WARN, "lines left out", fields);
		errno = saved; /* of a %m in fmt */
	}
	va_start(ap, fmt);
	(void)vsnprintf(fields, sizeof(fields), fmt, ap); /* cut at the maximum */
	va_end(ap);
	for (char *c = fields; *c; c++)
		if (*c == '\n' || *c == '\r')
			*c = ' ';
		else if (the_log.format == LOG_TEXT && ((unsigned char)*c < 0x20 || *c == 0x7f))
			*c = '?'; /* would command the reader's terminal; JSON escapes it */
	write_line(level, event, fields);
	errno = saved;
}
