/* The command lines of master, worker and keeper. */
#include "ctl/supervisor.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define KEEPER_KILL_NS (40 * CLOCK_SECOND) /* it ends its mounts, whose daemons have 10 s */

static int plan_common(
	struct supervisor *s, struct child *child, const char *program, const char *log)
{
	int r = child_arg(child, "%s/%s", s->bin, program);

	if (r == 0)
		r = child_arg_text(child, "--log-level", s->config->log_level);
	if (r == 0)
		r = child_arg(child, "--audit-log");
	if (r == 0)
		r = child_arg(child, "%s/log/audit.log", s->cache.path);
	if (r == 0 && asprintf(&child->log_path, "%s/log/%s.log", s->cache.path, log) < 0) {
		child->log_path = NULL;
		r = -ENOMEM;
	}
	return r;
}

/* "--option unix:RUN/name" (prefix "unix:") or the bare path (prefix ""). */
static int plan_socket(struct supervisor *s, struct child *child, const char *option,
	const char *prefix, const char *name)
{
	char path[SOCKET_PATH_MAX];
	int r = child_arg(child, "%s", option);

	return r == 0 ? child_arg(child, "%s%s", prefix, cache_dir_socket(&s->cache, name, path))
		      : r;
}

static int plan_master(struct supervisor *s)
{
	struct child *c = &s->master;
	char state[PATH_MAX + 8];
	int r = plan_common(s, c, "cachemaster", "master");

	(void)snprintf(state, sizeof(state), "%s/master", s->cache.path); /* fits */
	if (r == 0)
		r = child_arg_text(c, "--state", state);
	if (r == 0)
		r = child_arg_size(c, "--memory", supervisor_memory_master(s->config));
	if (r == 0)
		r = plan_socket(s, c, "--listen", "unix:", "master.rpc");
	if (r == 0)
		r = plan_socket(s, c, "--admin", "", "master.sock");
	if (r == 0) /* a cache for oneself: `cachectl backup` is enough */
		r = child_arg_number(c, "--daily-backups", 0);
	return r;
}

static int plan_worker(struct supervisor *s)
{
	struct child *c = &s->worker;
	char tier[PATH_MAX + 8];
	int r = plan_common(s, c, "cacheworker", "worker");

	(void)snprintf(tier, sizeof(tier), "%s/tier", s->cache.path); /* fits */
	if (r == 0)
		r = child_arg_text(c, "--tier", tier);
	if (r == 0)
		r = child_arg(c, "--create");
	if (r == 0 && s->config->capacity)
		r = child_arg_size(c, "--capacity", s->config->capacity);
	if (r == 0)
		r = child_arg_size(c, "--memory", supervisor_memory_worker(s->config));
	if (r == 0)
		r = plan_socket(s, c, "--master", "unix:", "master.rpc");
	if (r == 0)
		r = plan_socket(s, c, "--listen", "unix:", "worker.rpc");
	if (r == 0)
		r = plan_socket(s, c, "--admin", "", "worker.sock");
	return r;
}

static int plan_keeper(struct supervisor *s)
{
	struct child *c = &s->keeper;
	int r = plan_common(s, c, "cachekeeper", "keeper");

	if (r == 0)
		r = child_arg_text(c, "--cache", s->cache.path);
	if (r == 0)
		r = child_arg_text(c, "--run", s->cache.run);
	if (r == 0)
		r = child_arg_size(c, "--memory", supervisor_memory_keeper(s->config));
	if (r == 0 && s->config->dead_after_ns)
		r = child_arg(c, "--dead-after");
	if (r == 0 && s->config->dead_after_ns)
		r = child_arg(c, "%" PRIu64 "ms", (uint64_t)(s->config->dead_after_ns / CLOCK_MS));
	return r;
}

/* A daemon that watches whether anybody needs it. */
static void watch_alive(struct supervisor *s, struct child *child)
{
	child->endless = true;
	child->alive_fd = s->alive[0];
	child_keep_fd(child, NULL, s->alive[0]);
}

int supervisor_plan(struct supervisor *s)
{
	int r = plan_master(s);

	if (r == 0)
		r = plan_worker(s);
	if (r == 0)
		r = plan_keeper(s);
	if (r < 0)
		return r;
	watch_alive(s, &s->master);
	watch_alive(s, &s->worker);
	/* At first a cache that cannot be used is refused; later its readers are more important. */
	s->worker.again = "--serve-without-tier";
	s->keeper.again = "--again";
	s->keeper.adoptable = true;
	s->keeper.kill_ns = KEEPER_KILL_NS;
	s->keeper.backoff.max_ns = CLOCK_SECOND;
	child_keep_fd(&s->keeper, "--alive-fd", s->alive[1]);
	return 0;
}
