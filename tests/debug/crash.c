/* Dying at named places. See crash.h. */
#include "tests/debug/crash.h"
#include "base/check.h"
#include "base/cleanup.h"
#include "base/crash_point.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define POINTS_MAX 256
#define LINE_BYTES 256

/* The linker's, of the section that CRASH_POINT fills; none when no point is in the program. */
extern const char *const __start_crash_points[] __attribute__((weak));
extern const char *const __stop_crash_points[] __attribute__((weak));

static struct {
	pthread_mutex_t lock;
	const char *dir; /* opened at each point: a process may close what it has inherited */
	const char *names[POINTS_MAX]; /* reached by this process */
	unsigned int n;
	char armed[LINE_BYTES]; /* when last looked */
	unsigned int hits;      /* of what is armed */
} state = { .lock = PTHREAD_MUTEX_INITIALIZER };

static int by_name(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

void crash_points_print(void)
{
	size_t n = (size_t)(__stop_crash_points - __start_crash_points);
	const char **names = calloc(n + 1, sizeof(*names));

	if (!names)
		return;
	for (size_t i = 0; i < n; i++)
		names[i] = __start_crash_points[i];
	qsort(names, n, sizeof(*names), by_name);
	for (size_t i = 0; i < n; i++)
		if (i == 0 || strcmp(names[i], names[i - 1]) != 0)
			(void)puts(names[i]);
	free(names);
}

static void note_reached_locked(int dir, const char *name)
{
	_cleanup_close_ int fd = -1;
	char line[LINE_BYTES];
	int len;

	for (unsigned int i = 0; i < state.n; i++)
		if (strcmp(state.names[i], name) == 0)
			return;
	ensure(state.n < POINTS_MAX);
	state.names[state.n++] = name;
	fd = openat(dir, "reached", O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	len = snprintf(line, sizeof(line), "%s %s\n", program_invocation_short_name, name);
	if (fd < 0 || write(fd, line, (size_t)len) != len)
		(void)fprintf(stderr, "crash point %s: DIR/reached: %m\n", name);
}

static bool is_due_locked(int dir, const char *name)
{
	_cleanup_close_ int fd = openat(dir, "arm", O_RDONLY | O_CLOEXEC);
	char line[LINE_BYTES] = "";
	char program[64];
	char point[128];
	unsigned int count;

	if (fd < 0 || read(fd, line, sizeof(line) - 1) <= 0)
		return false;
	if (strcmp(line, state.armed) != 0) {
		memcpy(state.armed, line, sizeof(line));
		state.hits = 0;
	}
	if (sscanf(line, "%63s %127s %u", program, point, &count) != 3)
		return false;
	return strcmp(program, program_invocation_short_name) == 0 && strcmp(point, name) == 0 &&
	       ++state.hits >= count;
}

static void on_point(const char *name)
{
	int kept = errno; /* a point may stand between a call and the look at its error */
	int dir = open(state.dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	pthread_mutex_lock(&state.lock);
	note_reached_locked(dir, name);
	/* Only one process fires what was armed once. */
	if (is_due_locked(dir, name) && renameat(dir, "arm", dir, "fired") == 0)
		(void)kill(getpid(), SIGKILL);
	pthread_mutex_unlock(&state.lock);
	if (dir >= 0)
		(void)close(dir);
	errno = kept;
}

void crash_points_install(void)
{
	const char *dir = getenv("GRANARY_CRASH_DIR");

	if (!dir)
		return;
	state.dir = strdup(dir);
	if (state.dir && access(state.dir, X_OK) == 0)
		crash_point_hook = on_point;
	else
		(void)fprintf(stderr, "GRANARY_CRASH_DIR=%s: %m\n", dir);
}
