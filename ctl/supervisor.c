/* The supervisor's loop and its answers. See supervisor.h. */
#include "ctl/supervisor.h"
#include "base/programs.h"
#include "ctl/terms.h"
#include "admin/admin.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/daemon.h"
#include "base/file.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/ready.h"
#include "base/mount_table.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/signalfd.h>

#define DESCRIPTORS  (8u * LIMIT_CHUNK_FDS) /* of each daemon: chunk files and connections */
#define CHILDREN_MAX (SUPERVISOR_MOUNTS + 2)
#define POLLS_MAX    (2 + 2 * CHILDREN_MAX)

/* ---- answers --------------------------------------------------------------------------------- */

static void wake(struct supervisor *s)
{
	uint64_t one = 1;

	if (write(s->wake_fd, &one, sizeof(one)) < 0)
		log_debug(
			"wake failed", "cause=%s", err_name(err_errno())); /* full: awake anyway */
}

static int get_status(
	void *arg, const struct admin_request *request, json_t **ret_json, struct err *e)
{
	struct supervisor *s = arg;

	(void)request;
	pthread_mutex_lock(&s->lock);
	*ret_json = supervisor_json_locked(s);
	pthread_mutex_unlock(&s->lock);
	return *ret_json ? 0 : err_set(e, -ENOMEM, "out of memory");
}

static int post_mounts(
	void *arg, const struct admin_request *request, json_t **ret_json, struct err *e)
{
	struct supervisor *s = arg;
	const struct terms terms = { .capacity = s->config->capacity,
		.memory = s->config->memory,
		.log_level = s->config->log_level };
	struct mount *mount = NULL;
	char notice[TERMS_NOTICE_MAX];
	int r;

	terms_notice(request->body, &terms, notice);
	pthread_mutex_lock(&s->lock);
	r = supervisor_add_locked(s, request->body, &mount, e);
	if (r == 0) {
		*ret_json = json_pack("{s:i, s:s, s:s}", "id", (int)mount->id, "socket",
			mount->socket, "notice", notice);
		if (!*ret_json)
			r = err_set(e, -EAGAIN, "out of memory"); /* asked again, with its token */
	}
	pthread_mutex_unlock(&s->lock);
	wake(s);
	return r;
}

static int get_mount(
	void *arg, const struct admin_request *request, json_t **ret_json, struct err *e)
{
	struct supervisor *s = arg;
	const char *text = request->query(request, "id");
	unsigned long id = text ? strtoul(text, NULL, 10) : 0;
	json_t *all;
	const json_t *one;
	json_t *found = NULL;
	uint64_t failures = admin_json_failures();
	size_t i;

	pthread_mutex_lock(&s->lock);
	all = supervisor_json_locked(s);
	json_array_foreach (json_object_get(all, "mounts"), i, one)
		if (json_integer_value(json_object_get(one, "id")) == (json_int_t)id)
			found = json_deep_copy(one);
	pthread_mutex_unlock(&s->lock);
	json_decref(all);
	*ret_json = found;
	if (!found && admin_json_failures() != failures)
		return err_set(e, -ENOMEM, "out of memory");
	return found ? 0 : err_set(e, -ENOENT, "no mount has that id");
}

/* The starter has read why it failed: nobody else will ask. Or he does not wait for it any
 * longer. */
static int post_mount_read(
	void *arg, const struct admin_request *request, json_t **ret_json, struct err *e)
{
	struct supervisor *s = arg;
	const char *text = request->query(request, "id");
	unsigned long id = text ? strtoul(text, NULL, 10) : 0;
	bool give_up = request->query(request, "give_up") != NULL;

	(void)e;
	pthread_mutex_lock(&s->lock);
	list_for_each (node, &s->mounts) {
		struct mount *mount = list_entry(node, struct mount, link);

		if (mount->id == id && mount->state == MOUNT_FAILED)
			mount->forget_ns = clock_mono_ns();
		else if (mount->id == id)
			mount->given_up |= give_up;
	}
	pthread_mutex_unlock(&s->lock);
	wake(s);
	*ret_json = NULL;
	return 0;
}

static int post_end(
	void *arg, const struct admin_request *request, json_t **ret_json, struct err *e)
{
	struct supervisor *s = arg;

	(void)request;
	(void)e;
	pthread_mutex_lock(&s->lock);
	s->ending = true;
	s->forced = true;
	pthread_mutex_unlock(&s->lock);
	wake(s);
	*ret_json = NULL;
	return 0;
}

static const struct admin_route routes[] = {
	{ "GET", "/v1/status", get_status },
	{ "POST", "/v1/mounts", post_mounts },
	{ "GET", "/v1/mount", get_mount },
	{ "POST", "/v1/mount", post_mount_read },
	{ "POST", "/v1/end", post_end },
	{ 0 },
};

/* ---- what follows from what ------------------------------------------------------------------ */

static void fail_mount(struct mount *mount, int status, const struct err *e)
{
	if (mount->state == MOUNT_ACTIVE && !mount->child.told)
		mount_clear_point(mount); /* it died without a word: nor did it clean up */
	mount_set_state_locked(mount, MOUNT_FAILED);
	mount->exit_status = status;
	mount->failure = *e;
	mount->forget_ns = clock_mono_ns() + SUPERVISOR_IDLE_NS;
	log_warn("mount failed", "mountpoint=\"%s\" status=%d text=\"%s\"", mount->mountpoint,
		status, e->text);
}

/* A daemon that all mounts need: started, or the reason why nobody can be mounted. True when it
 * serves. */
static bool need(struct supervisor *s, struct child *child)
{
	if (child->state == CHILD_STOPPED)
		child_start(child);
	if (child->state != CHILD_FAILED)
		return child->state == CHILD_SERVING;
	list_for_each (node, &s->mounts) {
		struct mount *mount = list_entry(node, struct mount, link);

		if (mount->state == MOUNT_WAITING)
			fail_mount(mount, child->exit_status, &child->failure);
	}
	child_end(child); /* may be tried again for the next one */
	return false;
}

static void advance_mount(struct supervisor *s, struct mount *mount, bool daemons_serve)
{
	struct child *c = &mount->child;
	struct mount_entry entry;

	if (mount->state == MOUNT_WAITING && mount->given_up)
		mount_set_state_locked(mount, MOUNT_GONE);
	if (mount->state == MOUNT_WAITING && daemons_serve) {
		mount_set_state_locked(mount, MOUNT_ACTIVE);
		child_start(c);
	}
	if (mount->state != MOUNT_ACTIVE)
		return;
	if (c->state == CHILD_SERVING && strcmp(c->args[c->n_args - 1], "--refresh") == 0)
		free(c->args[--c->n_args]); /* started again, it serves what it served */
	if (c->state == CHILD_WAITING && mount_table_find(mount->mountpoint, &entry) == -ENOENT)
		child_end(c); /* unmounted behind its back */
	if (s->forced || mount->given_up)
		child_end(c);
	if (c->state == CHILD_FAILED)
		fail_mount(mount, c->exit_status, &c->failure);
	if (c->state != CHILD_STOPPED)
		return;
	if (c->killed)
		mount_clear_point(mount);
	mount_set_state_locked(mount, MOUNT_GONE);
}

static bool wanted(const struct mount *mount)
{
	return mount->state == MOUNT_WAITING || mount->state == MOUNT_ACTIVE;
}

static void drop_mounts(struct supervisor *s)
{
	list_for_each_safe (node, &s->mounts) {
		struct mount *mount = list_entry(node, struct mount, link);
		bool forgotten = mount->state == MOUNT_FAILED &&
				 (s->forced || clock_mono_ns() >= mount->forget_ns);

		if (s->forced && mount->state == MOUNT_WAITING)
			forgotten = true;
		if (mount->state != MOUNT_GONE && !forgotten)
			continue;
		list_remove(node);
		s->n_mounts--;
		s->idle_since_ns = 0;        /* it had one: no waiting for the first */
		(void)unlink(mount->socket); /* the daemon removed it already, or was killed */
		log_info("mount gone", "mountpoint=\"%s\"", mount->mountpoint);
		mount_free(mount);
	}
}

/* False when nothing is left to do. */
static bool advance(struct supervisor *s)
{
	unsigned int n_wanted = 0;
	bool serve = false;

	list_for_each (node, &s->mounts)
		n_wanted += wanted(list_entry(node, struct mount, link));
	if (n_wanted > 0 && !s->forced)
		serve = need(s, &s->master) && need(s, &s->worker);
	list_for_each_safe (node, &s->mounts)
		advance_mount(s, list_entry(node, struct mount, link), serve);
	drop_mounts(s);
	if (s->n_mounts > 0)
		return true;
	if (clock_mono_ns() - s->idle_since_ns >= SUPERVISOR_IDLE_NS)
		s->ending = true;
	if (!s->ending)
		return true;
	child_end(&s->worker);
	if (!child_running(&s->worker))
		child_end(&s->master);
	return child_running(&s->worker) || child_running(&s->master);
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
	list_for_each (node, &s->mounts)
		out[n++] = &list_entry(node, struct mount, link)->child;
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

/* What a daemon handed over came before its READY, and is taken before that is read. */
static void take_hands(struct supervisor *s)
{
	list_for_each (node, &s->mounts)
		mount_take_hand(list_entry(node, struct mount, link));
}

/* Milliseconds until something is due; at most a second, after which unmounts from outside are
 * looked for. */
static int time_left(struct supervisor *s)
{
	struct child *all[CHILDREN_MAX];
	unsigned int n = children(s, all);
	uint64_t now = clock_mono_ns();
	uint64_t next = now + CLOCK_SECOND;

	for (unsigned int i = 0; i < n; i++)
		if (all[i]->wake_ns)
			next = min(next, all[i]->wake_ns);
	list_for_each (node, &s->mounts) {
		const struct mount *mount = list_entry(node, struct mount, link);

		if (mount->state == MOUNT_FAILED)
			next = min(next, mount->forget_ns);
	}
	return next <= now ? 0 : (int)((next - now) / CLOCK_MS) + 1;
}

static void on_signal(struct supervisor *s, int signal_fd)
{
	struct signalfd_siginfo info;

	if (read(signal_fd, &info, sizeof(info)) != sizeof(info))
		return;
	log_info("told to end", "signal=%u", info.ssi_signo);
	s->ending = true;
	s->forced = true;
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
	take_hands(s);
	for (unsigned int i = 2; i < n; i++) {
		if (!polls[i].revents)
			continue;
		if (watches[i].ready && watches[i].child->ready_fd == polls[i].fd)
			child_on_ready(watches[i].child);
		else if (!watches[i].ready && watches[i].child->pidfd == polls[i].fd)
			child_on_exit(watches[i].child);
	}
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

/* The daemons keep chunk files open by how many they may: the soft limit is for programs that use
 * select(2). */
static void raise_descriptors(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= DESCRIPTORS)
		return;
	limit.rlim_cur = min((rlim_t)DESCRIPTORS, limit.rlim_max);
	if (setrlimit(RLIMIT_NOFILE, &limit) != 0)
		log_warn("descriptors not raised",
			"cause=%s effect=\"fewer chunk files are kept open\"",
			err_name(err_errno()));
}

static int start(struct supervisor *s, struct err *e)
{
	char path[SOCKET_PATH_MAX];
	int r = cache_dir_open(s->config->cache, s->config->capacity, &s->cache, e);

	if (r == 0)
		r = cache_dir_lock(&s->cache, &s->lock_fd, e);
	if (r == 0)
		r = programs_dir(s->bin, e);
	if (r < 0)
		return r;
	r = cache_dir_make_run(&s->cache, e);
	if (r < 0)
		return r;
	s->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (s->wake_fd < 0 || pipe2(s->alive, O_CLOEXEC) != 0)
		return err_set(e, err_errno(),
			"no descriptors: %m: raise the limit of open files (ulimit -n)");
	r = supervisor_plan_daemons(s);
	if (r < 0)
		return err_set(
			e, r, "out of memory: free some, or raise the control group's limit");
	supervisor_adopt(s);
	return admin_server_new(
		cache_dir_socket(&s->cache, "supervisor.sock", path), routes, s, &s->admin, e);
}

static void stop(struct supervisor *s)
{
	struct list *node;

	if (s->admin)
		admin_server_free(s->admin);
	while ((node = list_pop_front(&s->mounts)))
		mount_free(list_entry(node, struct mount, link));
	if (s->done)
		cache_dir_remove_run(s->cache.run);
	child_release(&s->master);
	child_release(&s->worker);
	cleanup_close(&s->alive[0]);
	cleanup_close(&s->alive[1]);
	cleanup_close(&s->wake_fd);
	cleanup_close(&s->lock_fd);
	pthread_mutex_destroy(&s->lock);
}

static enum exit_status exit_of(int r)
{
	return r == -EBUSY ? EXIT_BUSY : EXIT_CACHE;
}

int supervisor_run(const struct supervisor_config *config, int ready_fd)
{
	struct supervisor s = {
		.config = config,
		.lock_fd = -1,
		.alive = { -1, -1 },
		.wake_fd = -1,
		.next_id = 1,
		.started_ns = clock_mono_ns(),
		.idle_since_ns = clock_mono_ns(),
	};
	struct err e = ERR_INIT;
	_cleanup_close_ int signal_fd = -1;
	sigset_t set;
	int r;

	daemon_signals_block(&set);
	sigaddset(&set, SIGHUP);
	pthread_sigmask(SIG_BLOCK, &set, NULL); /* before any thread starts */
	signal_fd = signalfd(-1, &set, SFD_CLOEXEC);
	pthread_mutex_init(&s.lock, NULL);
	list_init(&s.mounts);
	child_init(&s.master, "master");
	child_init(&s.worker, "worker");
	r = start(&s, &e);
	if (r < 0) {
		stop(&s);
		return ready_error(ready_fd, "cachectl", exit_of(r), &e);
	}
	raise_descriptors();
	log_info("supervising", "cache=\"%s\" run=%s", s.cache.path, s.cache.run);
	ready_ok(ready_fd, "{}");
	loop(&s, signal_fd);
	log_info("nothing left to supervise", "cache=\"%s\"", s.cache.path);
	stop(&s);
	return EXIT_OK;
}
