/* The daemons of the stress test. See daemons.h. */
#include "tests/stress/daemons.h"
#include "admin/admin.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/ready.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#define READY_FD    3
#define START_NS    (120 * CLOCK_SECOND)
#define FAULTS_NS   (30 * CLOCK_SECOND)
#define READY_BYTES 4096

void daemons_init(struct daemons *d, const char *bin, const char *dir, const char *capacity)
{
	*d = (struct daemons){ 0 };
	(void)snprintf(d->bin, sizeof(d->bin), "%s", bin);
	(void)snprintf(d->dir, sizeof(d->dir), "%s", dir);
	(void)snprintf(d->master_address, sizeof(d->master_address), "unix:%s/m.rpc", dir);
	(void)snprintf(d->worker_address, sizeof(d->worker_address), "unix:%s/w.rpc", dir);
	(void)snprintf(d->tier, sizeof(d->tier), "%s/tier", dir);
	(void)snprintf(d->state, sizeof(d->state), "%s/state", dir);
	(void)snprintf(d->master.log, sizeof(d->master.log), "%s/master.log", dir);
	(void)snprintf(d->worker.log, sizeof(d->worker.log), "%s/worker.log", dir);
	(void)snprintf(d->master.admin, sizeof(d->master.admin), "%s/m.sock", dir);
	(void)snprintf(d->worker.admin, sizeof(d->worker.admin), "%s/w.sock", dir);
	d->master.name = "cachemaster";
	memcpy(d->master.argv,
		(const char *const[]){ "cachemaster", "--state", d->state, "--listen",
			d->master_address, "--admin", d->master.admin, "--log-file", d->master.log,
			"--ready-fd", "3", NULL },
		12 * sizeof(char *));
	d->worker.name = "cacheworker";
	memcpy(d->worker.argv,
		(const char *const[]){ "cacheworker", "--tier", d->tier, "--create", "--capacity",
			capacity, "--master", d->master_address, "--listen", d->worker_address,
			"--admin", d->worker.admin, "--log-file", d->worker.log, "--memory",
			"128MiB", "--ready-fd", "3", NULL },
		19 * sizeof(char *));
}

/* In the child: only what is safe after a fork of a process with threads. */
static _Noreturn void exec_daemon(const char *path, const struct daemon *daemon, int ready)
{
	char *argv[ARRAY_SIZE(daemon->argv)];

	for (size_t i = 0; i < ARRAY_SIZE(argv); i++) /* execv() does not write to them */
		argv[i] = (char *)(uintptr_t)daemon->argv[i];
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (ready == READY_FD)
		(void)fcntl(ready, F_SETFD, 0);
	else
		(void)dup2(ready, READY_FD);
	(void)execv(path, argv);
	_exit(127);
}

/* The line that says whether it serves. */
static int read_ready(int fd, char line[READY_BYTES])
{
	uint64_t deadline = clock_mono_ns() + START_NS;
	size_t len = 0;

	while (len < READY_BYTES - 1) {
		struct pollfd p = { .fd = fd, .events = POLLIN };
		ssize_t n;

		if (clock_mono_ns() > deadline)
			return -ETIMEDOUT;
		if (poll(&p, 1, 100) <= 0)
			continue;
		n = read(fd, line + len, READY_BYTES - 1 - len);
		if (n < 0)
			return err_errno();
		if (n == 0)
			break;
		len += (size_t)n;
	}
	line[len] = '\0';
	line[strcspn(line, "\n")] = '\0';
	return len ? 0 : -ENODATA;
}

int daemon_start(struct daemons *d, struct daemon *daemon, struct err *e)
{
	_cleanup_close_ int ready = -1;
	char line[READY_BYTES];
	char path[512];
	const char *json;
	int ends[2];
	int status;
	int r;

	ensure(daemon->pid == 0);
	(void)snprintf(path, sizeof(path), "%s/%s", d->bin, daemon->name);
	if (pipe2(ends, O_CLOEXEC) != 0)
		return err_set(e, err_errno(), "pipe: %m");
	ready = ends[0];
	daemon->pid = fork();
	if (daemon->pid == 0)
		exec_daemon(path, daemon, ends[1]);
	(void)close(ends[1]); /* the daemon's */
	r = daemon->pid < 0 ? err_errno() : read_ready(ready, line);
	if (r < 0)
		return err_set(e, r, "%s did not start: %s; see %s", path, err_str(r), daemon->log);
	r = ready_parse(line, &json, &status, e);
	if (r == 0 && !json)
		r = -EPROTO;
	return r < 0 ? err_prefix(e, "%s does not serve", daemon->name) : 0;
}

int daemon_end(struct daemon *daemon, int signal, struct err *e)
{
	int status = 0;

	if (daemon->pid == 0)
		return 0;
	(void)kill(daemon->pid, signal); /* ours, not yet waited for */
	while (waitpid(daemon->pid, &status, 0) < 0 && errno == EINTR)
		;
	daemon->pid = 0;
	if (signal == SIGTERM && status != 0)
		return err_set(e, -EPROTO, "%s ended with status %x; see %s", daemon->name,
			(unsigned int)status, daemon->log);
	return 0;
}

int daemon_faults(const struct daemon *daemon, const char *line, struct err *e)
{
	json_t *answer = NULL;
	json_t *body;
	int r;

	if (daemon->pid == 0)
		return 0;
	body = json_pack("{s:s}", "faults", line);
	r = admin_call(daemon->admin, "PUT", "/v1/debug/faults", body, FAULTS_NS, &answer, e);
	json_decref(body);
	json_decref(answer);
	return r;
}
