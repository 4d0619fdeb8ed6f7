/* Programs. See programs.h. */
#include "base/programs.h"
#include "base/cleanup.h"
#include "base/clock.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#define USUAL "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin:/run/wrappers/bin"

int programs_dir(char out[PATH_MAX], struct err *e)
{
	const char *given = secure_getenv("GRANARY_BIN_DIR");
	char self[PATH_MAX];
	char *slash;
	ssize_t n;

	if (given) {
		if (snprintf(out, PATH_MAX, "%s", given) >= PATH_MAX)
			return err_set(e, -ENAMETOOLONG,
				"GRANARY_BIN_DIR is too long: %zu bytes, at most %d", strlen(given),
				PATH_MAX - 1);
		return 0;
	}
	n = readlink("/proc/self/exe", self, sizeof(self) - 1);
	if (n < 0)
		return err_set(e, err_errno(),
			"the directory of the programs cannot be found: %m: set GRANARY_BIN_DIR");
	self[n] = '\0';
	slash = strrchr(self, '/');
	if (slash)
		*slash = '\0';
	memcpy(out, self, (size_t)n + 1);
	return 0;
}

static const char *find_in(const char *path, const char *name, char out[PATH_MAX])
{
	for (;;) {
		size_t len = strcspn(path, ":");

		if (len > 0 &&
			snprintf(out, PATH_MAX, "%.*s/%s", (int)len, path, name) < PATH_MAX &&
			access(out, X_OK) == 0)
			return out;
		if (!path[len])
			return NULL;
		path += len + 1;
	}
}

const char *programs_find(const char *name, char out[PATH_MAX])
{
	const char *path = secure_getenv("PATH");
	const char *found = path ? find_in(path, name, out) : NULL;

	return found ? found : find_in(USUAL, name, out);
}

const char *programs_fusermount(char out[PATH_MAX])
{
	const char *found = programs_find("fusermount3", out);

	return found ? found : programs_find("fusermount", out); /* libfuse 2's speaks the same */
}

static int spawn(char *const env[], char *const argv[], int out_fd, pid_t *ret_pid)
{
	posix_spawn_file_actions_t actions;
	int r = posix_spawn_file_actions_init(&actions);

	if (r != 0)
		return -r;
	r = posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
	if (r == 0)
		r = posix_spawn_file_actions_adddup2(&actions, out_fd, STDOUT_FILENO);
	if (r == 0)
		r = posix_spawn_file_actions_addopen(
			&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
	if (r == 0)
		r = posix_spawn(ret_pid, argv[0], &actions, NULL, argv, env);
	posix_spawn_file_actions_destroy(&actions);
	return -r;
}

/* Until its end of the pipe is closed. */
static int read_all(int fd, uint64_t timeout_ns, struct buf *out)
{
	uint64_t deadline = clock_mono_ns() + timeout_ns;

	for (;;) {
		struct pollfd p = { .fd = fd, .events = POLLIN };
		uint64_t now = clock_mono_ns();
		char part[4096];
		ssize_t n;
		int r;

		if (now >= deadline)
			return -ETIMEDOUT;
		if (poll(&p, 1, (int)((deadline - now) / CLOCK_MS) + 1) <= 0)
			continue;
		n = read(fd, part, sizeof(part));
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? err_errno() : 0;
		r = buf_append(out, part, (size_t)n);
		if (r < 0)
			return r;
	}
}

int programs_run_in(char *const env[], char *const argv[], uint64_t timeout_ns, struct buf *out,
	int *ret_status)
{
	int status = 0;
	int ends[2];
	pid_t pid = 0;
	int r;

	if (pipe2(ends, O_CLOEXEC) != 0)
		return err_errno();
	r = spawn(env, argv, ends[1], &pid);
	(void)close(ends[1]); /* the program's */
	if (r == 0) {
		r = read_all(ends[0], timeout_ns, out);
		if (r < 0)
			(void)kill(pid, SIGKILL); /* ours, not yet waited for */
		if (waitpid(pid, &status, 0) != pid || (r == 0 && !WIFEXITED(status)))
			r = r < 0 ? r : -EIO;
	}
	(void)close(ends[0]); /* read only */
	if (r == 0)
		*ret_status = WEXITSTATUS(status);
	return r;
}

int programs_run(char *const argv[], uint64_t timeout_ns, struct buf *out, int *ret_status)
{
	return programs_run_in(environ, argv, timeout_ns, out, ret_status);
}
