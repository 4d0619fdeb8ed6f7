/* Starting a keeper anew. See revive.h. */
#include "ctl/revive.h"
#include "base/cleanup.h"
#include "base/exit.h"
#include "base/programs.h"
#include "base/unix_socket.h"
#include "ctl/fleet.h"

#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#define READY_MS 10000

struct revived {
	char program[PATH_MAX + 16];
	char cache[PATH_MAX];
	char log[PATH_MAX + 32];
	char memory[32];
	char dead_after[32];
};

static bool plan(const char *run, struct revived *out)
{
	json_t *state = fleet_keeper_state(run);
	const char *cache = json_string_value(json_object_get(state, "cache"));
	char dir[PATH_MAX];
	struct err e = ERR_INIT;
	bool any = cache && json_array_size(json_object_get(state, "mounts")) > 0 &&
		   programs_dir(dir, &e) == 0;

	if (any) {
		(void)snprintf(
			out->program, sizeof(out->program), "%s/cachekeeper", dir); /* fits */
		(void)snprintf(out->cache, sizeof(out->cache), "%s", cache);
		(void)snprintf(out->log, sizeof(out->log), "%s/log/keeper.log", out->cache);
		(void)snprintf(out->memory, sizeof(out->memory), "%lld",
			(long long)json_integer_value(json_object_get(state, "memory")));
		(void)snprintf(out->dead_after, sizeof(out->dead_after), "%lldms",
			(long long)json_integer_value(json_object_get(state, "dead_after_ms")));
	}
	json_decref(state);
	return any;
}

_Noreturn static void exec_keeper(const struct revived *r, const char *run, int ready_fd)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	char ready[16];

	(void)setsid(); /* a child is no group leader: cannot fail */
	for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
		(void)dup2(null, fd);
	(void)fcntl(ready_fd, F_SETFD, 0);
	(void)snprintf(ready, sizeof(ready), "%d", ready_fd);
	(void)execl(r->program, r->program, "--cache", r->cache, "--run", run, "--memory",
		r->memory, "--dead-after", r->dead_after, "--log-file", r->log, "--again",
		"--ready-fd", ready, (char *)NULL);
	_exit(EXIT_RUNTIME);
}

int revive_keeper(const char *run)
{
	struct revived revived;
	struct pollfd p = { .events = POLLIN };
	char first = 0;
	int ends[2];
	pid_t pid;

	if (!plan(run, &revived))
		return -ENOENT;
	if (pipe2(ends, O_CLOEXEC) != 0)
		return err_errno();
	pid = fork();
	if (pid == 0)
		exec_keeper(&revived, run, ends[1]);
	(void)close(ends[1]); /* the keeper's */
	p.fd = ends[0];
	if (pid > 0 && (poll(&p, 1, READY_MS) != 1 || read(ends[0], &first, 1) != 1))
		first = 0;
	(void)close(ends[0]);           /* read only */
	return first == 'R' ? 0 : -EIO; /* "READY" */
}
