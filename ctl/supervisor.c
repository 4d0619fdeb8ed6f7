/* The supervisor's loop and its answers. See supervisor.h. */
#include "ctl/supervisor.h"
#include "admin/audit.h"
#include "base/bounds.h"
#include "base/capabilities.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/daemon.h"
#include "base/file.h"
#include "base/log.h"
#include "base/programs.h"
#include "base/ready.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>

#define CHILDREN_MAX 3u
#define POLLS_MAX    (3 + 2 * CHILDREN_MAX)

/* ---- what follows from what ------------------------------------------------------------------ */

/* Master and worker run before the first mount is requested. */
static bool is_early(const struct supervisor *s)
{
	return s->config->early && s->idle_since_ns && !s->ending;
}

/* A daemon that all mounts need: started, or the reason why nobody can be mounted. True when it
 * serves. */
static bool need(struct supervisor *s, struct child *child)
{
	if (child->state == CHILD_STOPPED)
		child_start(child);
	if (child->state != CHILD_FAILED)
		return child->state == CHILD_SERVING;
	mount_requests_fail_locked(s, child);
	if (is_early(s) && s->n_requests == 0) {
		log_error("daemon cannot start", "name=%s why=\"%s\"", child->name,
			child->failure.text); /* no request shows it */
		s->ending = true;
	}
	child_end(child); /* may be tried again for the next one */
	return false;
}

/* One that was started elsewhere, or by whom it left behind, is as good as ours. */
static void find_keeper(struct supervisor *s)
{
	if (s->keeper.state == CHILD_WAITING || s->keeper.state == CHILD_STOPPED)
		supervisor_adopt_keeper(s);
}

/* Mounts of a keeper that goes on without them. Without the lock meanwhile. */
static void ask_kept(struct supervisor *s)
{
	struct err e = ERR_INIT;
	json_t *kept = NULL;

	if (!s->stays || clock_mono_ns() - s->asked_ns < CLOCK_SECOND)
		return;
	pthread_mutex_unlock(&s->lock);
	if (keeper_call(s, NULL, "/v1/status", NULL, &kept, &e) < 0)
		kept = NULL;
	pthread_mutex_lock(&s->lock);
	s->asked_ns = clock_mono_ns();
	if (kept)
		s->kept = (unsigned int)json_array_size(json_object_get(kept, "mounts"));
	json_decref(kept);
}

/* There are mounts, or may be. */
static bool keeps(const struct supervisor *s)
{
	const struct child *c = &s->keeper;

	return s->stays ? s->kept > 0 && child_running(c)
			: s->given > 0 && (child_running(c) || c->state == CHILD_WAITING);
}

/* True while it starts or serves. */
static bool is_available(const struct child *child)
{
	return child->state == CHILD_STARTING || child->state == CHILD_SERVING;
}

/* All that mounts need, started at once. */
static void start_daemons(struct supervisor *s)
{
	bool wanted = mount_requests_count_locked(s, MOUNT_REQUEST_WAITING) > 0;
	bool serving = need(s, &s->master);

	if (s->master.state == CHILD_STOPPED) /* it cannot start: nothing is wanted any more */
		return;
	serving &= need(s, &s->worker);
	if (wanted && need(s, &s->keeper) && is_available(&s->master) && is_available(&s->worker))
		mount_requests_pass_locked(s);
	if (serving)
		mount_requests_leave_locked(s);
}

/* The time without a mount begins when master and worker can answer: a large tier takes longer to open than that time. */
static bool is_idle(struct supervisor *s)
{
	uint64_t limit_ns = s->config->idle_ns ? s->config->idle_ns : SUPERVISOR_IDLE_NS;
	uint64_t now = clock_mono_ns();

	if (is_early(s) &&
		(s->master.state == CHILD_STARTING || s->worker.state == CHILD_STARTING)) {
		s->idle_since_ns = now;
		return false;
	}
	return now - s->idle_since_ns >= limit_ns;
}

/* False when nothing is left to do. */
static bool advance(struct supervisor *s)
{
	bool open;

	mount_requests_drop_locked(s);
	find_keeper(s);
	ask_kept(s);
	if (s->left && !s->forced) {
		(void)need(s, &s->keeper); /* once: then it is ours to start again */
		s->given = 1;
	}
	s->left = false;
	if (s->keeper.state == CHILD_STOPPED) { /* with its last mount */
		s->given = 0;
		mount_requests_leave_locked(s);
	}
	open = s->n_requests > mount_requests_count_locked(s, MOUNT_REQUEST_FAILED);
	if ((open || keeps(s) || is_early(s)) && !s->forced)
		start_daemons(s);
	if (!s->stays && (s->forced || (!open && s->given == 0)))
		child_end(&s->keeper);
	if (s->n_requests > 0 || (keeps(s) && !(s->forced && s->stays)))
		return true;
	if (is_idle(s))
		s->ending = true;
	if (!s->ending)
		return true;
	child_end(&s->worker);
	if (!child_running(&s->worker))
		child_end(&s->master);
	return child_running(&s->worker) || child_running(&s->master) ||
	       (child_running(&s->keeper) && !s->stays);
}

/* ---- loop ------------------------------------------------------------------------------------ */

struct watch {
	struct child *child;
	bool ready; /* its line, not its end */
};

static unsigned int children(struct supervisor *s, struct child *out[CHILDREN_MAX])
{
	unsigned int n = 0;

	out[n++] = &s->master;
	out[n++] = &s->worker;
	out[n++] = &s->keeper;
	return n;
}

static unsigned int collect(struct supervisor *s, int signal_fd, struct pollfd polls[POLLS_MAX],
	struct watch watches[POLLS_MAX])
{
	struct child *all[CHILDREN_MAX];
	unsigned int n_all = children(s, all);
	unsigned int n = 0;

	polls[n++] = (struct pollfd){ .fd = s->wake_fd, .events = POLLIN };
	polls[n++] = (struct pollfd){ .fd = signal_fd, .events = POLLIN };
	polls[n++] = (struct pollfd){ .fd = s->watchdog.fd, .events = POLLIN }; /* -1: none */
	for (unsigned int i = 0; i < n_all; i++) {
		if (all[i]->ready_fd >= 0) { /* before the end: a last line goes first */
			watches[n] = (struct watch){ all[i], true };
			polls[n++] = (struct pollfd){ .fd = all[i]->ready_fd, .events = POLLIN };
		}
		if (child_running(all[i])) {
			watches[n] = (struct watch){ all[i], false };
			polls[n++] = (struct pollfd){ .fd = all[i]->pidfd, .events = POLLIN };
		}
	}
	return n;
}

/* Milliseconds until something is due; at most a second. */
static int time_left(struct supervisor *s)
{
	struct child *all[CHILDREN_MAX];
	unsigned int n = children(s, all);
	uint64_t now = clock_mono_ns();
	uint64_t next = now + CLOCK_SECOND;

	for (unsigned int i = 0; i < n; i++) {
		if (all[i]->wake_ns)
			next = min(next, all[i]->wake_ns);
		if (child_beat_due(all[i]))
			next = min(next, child_beat_due(all[i]));
	}
	if (s->retry_ns)
		next = min(next, s->retry_ns);
	list_for_each (node, &s->requests) {
		const struct mount_request *request = list_entry(node, struct mount_request, link);

		if (request->state == MOUNT_REQUEST_FAILED)
			next = min(next, request->forget_ns);
	}
	return next <= now ? 0 : (int)((next - now) / CLOCK_MS) + 1;
}

static void on_signal(struct supervisor *s, int signal_fd)
{
	struct signalfd_siginfo info;

	if (read(signal_fd, &info, sizeof(info)) != sizeof(info))
		return;
	log_info("ended by a signal or request", "signal=%u", info.ssi_signo);
	s->ending = true;
	s->forced = true;
}

/* Daemons that hang are killed: their ends are seen by their pidfds. */
static void check_beats(struct supervisor *s)
{
	struct child *all[CHILDREN_MAX];
	unsigned int n = children(s, all);
	uint64_t now = clock_mono_ns();
	bool late;
	pid_t pid;

	while (watchdog_receive(&s->watchdog, &pid))
		for (unsigned int i = 0; i < n; i++)
			if (all[i]->pid == pid)
				child_beat(all[i], now);
	late = watchdog_was_late(&s->watchdog, now);
	for (unsigned int i = 0; i < n; i++)
		child_check_beat(all[i], now, late);
}

static void dispatch(struct supervisor *s, const struct pollfd *polls, const struct watch *watches,
	unsigned int n)
{
	struct child *all[CHILDREN_MAX];
	unsigned int n_all;
	uint64_t count;

	if (polls[0].revents && read(s->wake_fd, &count, sizeof(count)) < 0)
		log_debug("wake not read", "cause=%s", err_name(err_errno())); /* comes again */
	if (polls[1].revents)
		on_signal(s, polls[1].fd);
	for (unsigned int i = 3; i < n; i++) {
		if (!polls[i].revents)
			continue;
		if (watches[i].ready && watches[i].child->ready_fd == polls[i].fd)
			child_on_ready(watches[i].child);
		else if (!watches[i].ready && watches[i].child->pidfd == polls[i].fd)
			child_on_exit(watches[i].child);
	}
	check_beats(s);
	n_all = children(s, all);
	for (unsigned int i = 0; i < n_all; i++)
		if (all[i]->wake_ns && clock_mono_ns() >= all[i]->wake_ns)
			child_on_time(all[i]);
}

static void loop(struct supervisor *s, int signal_fd)
{
	struct pollfd polls[POLLS_MAX];
	struct watch watches[POLLS_MAX];

	pthread_mutex_lock(&s->lock);
	while (advance(s)) {
		int r = supervisor_save(s);
		int timeout = time_left(s);
		unsigned int n = collect(s, signal_fd, polls, watches);

		if (r < 0)
			LOG_LIMITED(LOG_WARN, "state not saved", "cause=%s", err_name(r));
		pthread_mutex_unlock(&s->lock);
		(void)poll(polls, n, timeout); /* EINTR: revents are looked at again */
		pthread_mutex_lock(&s->lock);
		dispatch(s, polls, watches, n);
	}
	s->ending = true;
	s->done = true;
	pthread_mutex_unlock(&s->lock);
}

/* ---- start and end --------------------------------------------------------------------------- */

/* Without it daemons are supervised all the same. */
static void watch_daemons(struct supervisor *s)
{
	struct err e = ERR_INIT;
	char path[SOCKET_PATH_MAX];

	if (watchdog_open(&s->watchdog, cache_dir_socket(&s->cache, "supervisor-notify.sock", path),
		    &e) < 0)
		log_error("daemons are not watched",
			"why=\"%s\" effect=\"one that hangs is not replaced\"", e.text);
	s->master.notify = s->watchdog.path;
	s->worker.notify = s->watchdog.path;
	s->keeper.notify = s->watchdog.path;
}

static int start(struct supervisor *s, struct err *e)
{
	char path[SOCKET_PATH_MAX];
	char log[PATH_MAX + 16];
	int r = cache_dir_open(s->config->cache, s->config->capacity, &s->cache, e);

	if (r == 0)
		r = cache_dir_lock(&s->cache, &s->lock_fd, e);
	if (r == 0)
		r = programs_dir(s->bin, e);
	if (r < 0)
		return r;
	cache_dir_forget_master(&s->cache);
	r = cache_dir_make_run(&s->cache, e);
	if (r < 0)
		return r;
	s->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (s->wake_fd < 0 || pipe2(s->alive, O_CLOEXEC) != 0)
		return err_set(e, err_errno(),
			"no descriptors: %m: raise the limit of open files (ulimit -n)");
	watch_daemons(s);
	r = supervisor_plan(s);
	if (r < 0)
		return err_set(
			e, r, "out of memory: free some, or raise the control group's limit");
	(void)snprintf(log, sizeof(log), "%s/log/audit.log", s->cache.path); /* fits */
	r = audit_open(log, "supervisor", e);
	if (r < 0)
		return r;
	supervisor_adopt(s);
	return admin_server_new(cache_dir_socket(&s->cache, "supervisor.sock", path),
		supervisor_routes(), s, &s->admin, e);
}

static void stop(struct supervisor *s)
{
	bool kept = child_running(&s->keeper);

	if (s->admin)
		admin_server_free(s->admin);
	mount_requests_free(s);
	child_release(&s->master);
	child_release(&s->worker);
	child_release(&s->keeper);
	cleanup_close(&s->alive[0]);
	cleanup_close(&s->alive[1]);
	cleanup_close(&s->wake_fd);
	watchdog_close(&s->watchdog, s->done && !kept);
	if (s->done && !kept) /* last: who waits for our end looks for it */
		cache_dir_remove_run(s->cache.run);
	cleanup_close(&s->lock_fd);
	pthread_mutex_destroy(&s->lock);
}

static enum exit_status exit_of(int r)
{
	return r == -EBUSY ? EXIT_BUSY : EXIT_CACHE;
}

/*
 * Only the keeper administers the machine, which gets its rights back when it is started: not
 * where starting a program gives no rights.
 */
static int drop_rights(struct err *e)
{
	int r = 0;

	if (geteuid() == 0 && prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 0)
		r = capabilities_rest(
			CAPABILITIES_FILES | CAPABILITY(CAP_SYS_PTRACE) | CAPABILITY(CAP_SETPCAP));
	return r < 0 ? err_set(e, r, "cannot drop privileges: %s", err_str(r)) : 0;
}

int supervisor_run(const struct supervisor_config *config, int ready_fd)
{
	struct supervisor s = {
		.config = config,
		.lock_fd = -1,
		.alive = { -1, -1 },
		.wake_fd = -1,
		.watchdog = { .fd = -1 },
		.next_id = 1,
		.started_ns = clock_mono_ns(),
		.idle_since_ns = clock_mono_ns(),
	};
	struct err e = ERR_INIT;
	_cleanup_close_ int signal_fd = -1;
	int r = daemon_signals_open(&signal_fd); /* before any thread starts */

	pthread_mutex_init(&s.lock, NULL);
	list_init(&s.requests);
	child_init(&s.master, "master");
	child_init(&s.worker, "worker");
	s.master.capabilities = CAPABILITIES_FILES;
	s.worker.capabilities = CAPABILITIES_FILES;
	child_init(&s.keeper, "keeper");
	if (r < 0)
		(void)err_set(&e, r, "cannot receive signals: %s: raise ulimit -n", err_str(r));
	else
		r = drop_rights(&e);
	if (r == 0)
		r = start(&s, &e);
	if (r < 0) {
		stop(&s);
		return ready_error(ready_fd, "cachectl", exit_of(r), &e);
	}
	bounds_raise_descriptors();
	log_info("supervising", "cache=\"%s\" run=%s", s.cache.path, s.cache.run);
	ready_ok(ready_fd, "{}");
	loop(&s, signal_fd);
	log_info("nothing left to supervise", "cache=\"%s\"", s.cache.path);
	stop(&s);
	return EXIT_OK;
}
