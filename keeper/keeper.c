/* The keeper's loop. See keeper.h. */
#include "keeper/keeper.h"
#include "mount/announced_place.h"
#include "base/bounds.h"
#include "base/cleanup.h"
#include "base/daemon.h"
#include "base/detach.h"
#include "base/exit.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mount_table.h"
#include "base/programs.h"
#include "base/ready.h"
#include "mount/cachefuse_options.h"
#include "keeper/keeper_file.h"
#include "mount/kernel/kernel.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/pidfd.h>
#include <sys/signalfd.h>

#define POLL_BEATS 2u /* the third, before those of children */
#define POLLS_MAX  (POLL_BEATS + 1 + 2 * KEEPER_DAEMONS + 4 * KEEPER_MOUNTS)
#define LOOKS_MAX  100u /* a pass */

/* ---- what follows from what ------------------------------------------------------------------ */

static void fail_mount(struct mount *mount)
{
	const struct child *c = &mount->child;

	if (c->state == CHILD_FAILED && !c->told)
		mount_clear_point(mount); /* it died without a word: nor did it clean up */
	else
		mounter_peer_clear(mount->peer);
	mount_set_state_locked(mount, MOUNT_FAILED);
	if (!mount->failure.text[0]) { /* else master's or worker's */
		mount->exit_status = c->exit_status;
		mount->failure = c->failure;
	}
	mount->forget_ns = clock_mono_ns() + KEEPER_IDLE_NS;
	log_warn("mount failed", "mountpoint=\"%s\" status=%d text=\"%s\"", mount->mountpoint,
		mount->exit_status, mount->failure.text);
}

/* Once a second, with more than LOOKS_MAX mounts more seldom. */
static void look_at_point(struct keeper *k, struct mount *mount)
{
	uint64_t every = CLOCK_SECOND * (1 + k->n_mounts / LOOKS_MAX);
	uint64_t now = clock_mono_ns();

	if (k->looks == LOOKS_MAX || now - mount->looked_ns < every)
		return;
	if (k->looks++ == 0)
		(void)!mount_table_read(&k->table); /* else it is read for each */
	mounter_peer_look(mount->peer, &k->table);
	mount_follow_move(mount);
	mount->looked_ns = now;
}

/*
 * The kernel has let go of what its daemon serves, or will never ask for it: no mount, bind mount, other mount namespace or open file
 * has it. Until then a daemon that ends has a successor.
 */
static bool is_ended(const struct mount *mount)
{
	struct mount_entry entry;

	if (mounter_peer_connected(mount->peer))
		return false;
	return mounter_peer_gone(mount->peer) || /* else the keeper never had its connection */
	       (mounter_peer_points(mount->peer) == 0 &&
		       mount_table_find(mount->mountpoint, &entry) == -ENOENT);
}

/*
 * Its daemon died when what it serves was attached already, and before it said so: what the mount
 * point shows is this, or nothing. A successor takes it over. The successor of a daemon that reported why it cannot serve
 * could not serve either, so there is none, unless the mount replaced another one, which nothing else serves now.
 */
static bool is_committed(const struct mount *mount)
{
	return mounter_peer_point(mount->peer) == MOUNTER_OWN && !mount->given_up &&
	       kernel_may_mount() && (!mount->child.told || mount->point_taken);
}

static void commit(struct mount *mount)
{
	struct child *c = &mount->child;

	log_warn("daemon starts again", "mountpoint=\"%s\" why=\"%s\"", mount->mountpoint,
		c->failure.text);
	child_end(c);
	c->served = true;
	child_start(c);
}

/* One that was recovered before it had reported that it serves: its line went to the earlier keeper. */
static void look_recovered(struct mount *mount)
{
	struct child *c = &mount->child;
	struct mount_entry entry;

	if (c->state == CHILD_SERVING && !c->served &&
		(mounter_peer_point(mount->peer) == MOUNTER_OWN ||
			(!mount->point_taken && !kernel_may_mount() && /* by fusermount3 */
				mount_table_find(mount->mountpoint, &entry) == 0 &&
				mount_entry_ours(&entry))))
		child_set_served(c);
}

/* One that was recovered ended before it had served: the next one goes on where something is mounted, or starts from the beginning. */
static void follow_unserved(struct mount *mount)
{
	struct child *c = &mount->child;

	if (c->state != CHILD_WAITING || c->served || !kernel_may_mount())
		return;
	if (mounter_peer_point(mount->peer) != MOUNTER_NONE)
		c->served = true;
	else
		mount_renew(mount);
}

/* For master or worker, which start again. */
static bool is_waiting(const struct keeper *k, const struct mount *mount)
{
	return !mount->started && !k->ending && !mount->given_up;
}

static void advance_mount(struct keeper *k, struct mount *mount)
{
	struct child *c = &mount->child;

	if (mount->state != MOUNT_ACTIVE)
		return;
	look_at_point(k, mount);
	look_recovered(mount);
	mount->ready |= mount_serves(mount) && keeper_daemons_serve(k);
	if (!child_running(c) && mount->started && mount_is_shared(mount)) {
		child_end(c);       /* it was to end, however it did */
		mount->handing = 0; /* it has no daemon any more */
		if (mount->given_up && detach_mount(mount->mountpoint, true, NULL) < 0)
			log_warn("mount without an owner stays", "mountpoint=\"%s\"",
				mount->mountpoint);
		return;
	}
	if (!mount->started && !k->forced && !mount->given_up && keeper_daemons_available(k)) {
		mount->started = true;
		child_start(c);
	}
	if (c->state == CHILD_SERVING && strcmp(c->args[c->n_args - 1], "--refresh") == 0)
		free(c->args[--c->n_args]); /* started again, it serves what it served */
	follow_unserved(mount);
	if (c->served && (c->state == CHILD_WAITING || c->state == CHILD_STARTING) &&
		is_ended(mount))
		child_end(c); /* a start may wait for requests that never come */
	if (c->state == CHILD_SERVING || mount_is_shared(mount))
		mount_close_point(k, mount);
	mount_follow_hand_over(mount);
	if (k->forced || mount->given_up) {
		mounter_peer_clear(mount->peer);
		child_end(c);
	}
	mount_look_dead(k, mount);
	if (c->state == CHILD_FAILED && !mounter_peer_end(mount->peer))
		return; /* it may be attached in a moment */
	if (c->state == CHILD_FAILED && is_committed(mount) && !k->forced)
		commit(mount);
	if (c->state == CHILD_FAILED)
		fail_mount(mount);
	if (c->state != CHILD_STOPPED || is_waiting(k, mount))
		return;
	if (!k->forced && !mount->given_up && mount->started &&
		mounter_peer_connected(mount->peer)) {
		child_start_later(c); /* another process sent it a signal to end */
		return;
	}
	if (c->killed)
		mount_clear_point(mount);
	if (mount->failure.text[0])
		fail_mount(mount);
	else
		mount_set_state_locked(mount, MOUNT_GONE);
}

/*
 * What its daemon wrote down of its dataset (source_named.c), and its directory. Ordinary users can mount and unmount without end:
 * the logs of their mounts go, too, or they would use up the disk's inodes. That of a daemon that served and failed stays.
 */
static void forget_files(const struct mount *mount)
{
	char path[KEEPER_TOKEN_PATH_MAX + sizeof(CACHEFUSE_DATASET_FILE)];
	const struct child *c = &mount->child;

	(void)snprintf(path, sizeof(path), "%s/" CACHEFUSE_DATASET_FILE, mount->run); /* fits */
	(void)unlink(path);                          /* most have none */
	(void)unlink(mount_token_path(mount, path)); /* likewise */
	(void)rmdir(mount->run);                     /* or something is left there */
	if (mount->owned && !(mount->state == MOUNT_FAILED && c->served))
		child_remove_log(c);
}

static void drop_mounts(struct keeper *k)
{
	list_for_each_safe (node, &k->mounts) {
		struct mount *mount = list_entry(node, struct mount, link);
		bool forgotten = mount->state == MOUNT_FAILED &&
				 (k->forced || clock_mono_ns() >= mount->forget_ns);

		if (mount->state != MOUNT_GONE && !forgotten)
			continue;
		/* A disk may hang: others go on. */
		if (!mounter_peer_idle(mount->peer) || !mount_unstore(mount)) {
			mount->forget_ns = clock_mono_ns() + CLOCK_SECOND;
			continue;
		}
		list_remove(node);
		k->n_mounts--;
		k->idle_since_ns = 0;        /* it had one: no waiting for the first */
		(void)unlink(mount->socket); /* the daemon removed it already, or was killed */
		announced_forget(mount->run, mount->mountpoint); /* the same */
		forget_files(mount);
		log_info("mount gone", "mountpoint=\"%s\"", mount->mountpoint);
		mounter_peer_clear(mount->peer);
		mount_free(mount);
	}
}

/* The time without a mount begins when master and worker can answer: a large tier takes longer to open than that time. */
static bool is_idle(struct keeper *k)
{
	uint64_t limit_ns = k->config->idle_ns ? k->config->idle_ns : KEEPER_IDLE_NS;
	uint64_t now = clock_mono_ns();

	if (k->config->stay)
		return false;
	if (k->idle_since_ns && keeper_daemons_starting(k))
		k->idle_since_ns = now;
	return now - k->idle_since_ns >= limit_ns;
}

/* False when nothing is left to do. */
static bool advance(struct keeper *k)
{
	k->looks = 0;
	buf_clear(&k->table);
	keeper_daemons_advance(k);
	list_for_each_safe (node, &k->mounts)
		advance_mount(k, list_entry(node, struct mount, link));
	keeper_follow_look(k);
	drop_mounts(k);
	if (k->n_mounts > 0)
		return true;
	if (is_idle(k))
		k->ending = true;
	return !k->ending || keeper_daemons_end(k);
}

/* ---- loop ------------------------------------------------------------------------------------ */

enum watched { WATCH_READY, WATCH_END, WATCH_DEVICE, WATCH_ASKED };

struct watch {
	enum watched what;
	struct child *child; /* READY, END */
	struct mount *mount; /* DEVICE, ASKED */
};

struct watches {
	struct pollfd polls[POLLS_MAX];
	struct watch of[POLLS_MAX];
	unsigned int n;
};

static void watch(struct watches *w, int fd, struct watch of)
{
	if (fd < 0)
		return;
	w->of[w->n] = of;
	w->polls[w->n++] = (struct pollfd){ .fd = fd, .events = POLLIN };
}

static void watch_child(struct watches *w, struct child *child)
{
	watch(w, child->ready_fd,
		(struct watch){ .child = child, .what = WATCH_READY }); /* a last line goes first */
	watch(w, child->pidfd, (struct watch){ .child = child, .what = WATCH_END });
}

/*
 * While this process waits to leave, those that serve are answered by its successor; one that
 * starts, or ends, is waited for.
 */
static bool may_ask(const struct keeper *k, const struct mount *mount)
{
	return mount->state == MOUNT_ACTIVE &&
	       (!k->leave_ns || mount->child.state != CHILD_SERVING);
}

static void collect(struct keeper *k, int signal_fd, struct watches *w)
{
	w->n = 0;
	watch(w, k->wake_fd, (struct watch){ 0 });
	watch(w, signal_fd, (struct watch){ 0 });
	w->polls[w->n++] = (struct pollfd){ .fd = k->watchdog.fd, .events = POLLIN }; /* -1: none */
	for (unsigned int i = 0; i < KEEPER_DAEMONS; i++)
		watch_child(w, &k->daemons[i]);
	list_for_each (node, &k->mounts) {
		struct mount *mount = list_entry(node, struct mount, link);

		watch_child(w, &mount->child);
		if (mount->dead && !mount->lost)
			watch(w, mount->fds.fuse,
				(struct watch){ .mount = mount, .what = WATCH_DEVICE });
		if (may_ask(k, mount))
			watch(w, mounter_peer_fd(mount->peer),
				(struct watch){ .mount = mount, .what = WATCH_ASKED });
	}
}

static uint64_t child_due(const struct child *child)
{
	uint64_t beat = child_beat_due(child);

	return min(child->wake_ns ? child->wake_ns : UINT64_MAX, beat ? beat : UINT64_MAX);
}

/* Milliseconds until something is due; at most a second, after which unmounts from outside are
 * looked for. */
static int time_left(struct keeper *k)
{
	uint64_t now = clock_mono_ns();
	uint64_t next = now + CLOCK_SECOND;

	for (unsigned int i = 0; i < KEEPER_DAEMONS; i++)
		next = min(next, child_due(&k->daemons[i]));
	list_for_each (node, &k->mounts) {
		const struct mount *mount = list_entry(node, struct mount, link);
		uint64_t dead = mount_dead_due(k, mount);

		next = min(next, child_due(&mount->child));
		if (mount->state == MOUNT_FAILED)
			next = min(next, mount->forget_ns);
		if (dead)
			next = min(next, dead);
		if (mount->handing)
			next = min(next, mount->handing);
	}
	return next <= now ? 0 : (int)((next - now) / CLOCK_MS) + 1;
}

/* Daemons that were started with the file read it again, too; others would end. */
static void pass_hangup(struct keeper *k)
{
	list_for_each (node, &k->mounts) {
		const struct child *c = &list_entry(node, struct mount, link)->child;
		bool reads = false;

		for (unsigned int i = 0; i < c->n_args; i++)
			reads |= strcmp(c->args[i], "--config") == 0;
		if (reads && c->state == CHILD_SERVING && c->pidfd >= 0)
			(void)pidfd_send_signal(
				c->pidfd, SIGHUP, NULL, 0); /* gone: seen by its pidfd */
	}
}

static void on_change(void *arg)
{
	const struct keeper *k = arg;

	daemon_log_level(k->config->log_level);
}

static void reload(struct keeper *k)
{
	struct err e = ERR_INIT;

	if (!daemon_reload(k->config->file, on_change, k))
		return;
	if (keeper_file_take(k->config, &e) < 0)
		log_error("configuration of mounts not reloaded",
			"why=\"%s\" next=\"nothing changes\"", e.text);
	else
		pass_hangup(k);
}

static void on_signal(struct keeper *k, int signal_fd)
{
	struct signalfd_siginfo info;

	if (read(signal_fd, &info, sizeof(info)) != sizeof(info))
		return;
	if (info.ssi_signo == SIGHUP && k->config->file && config_file(k->config->file)) {
		reload(k);
		return;
	}
	log_info("ended by a signal or request", "signal=%u", info.ssi_signo);
	if (k->config->leave_mounts) {
		keeper_leave_locked(k);
		return;
	}
	k->ending = true;
	k->forced = true;
	k->leave_ns = 0; /* none is left to a successor */
}

static void on_event(const struct pollfd *p, const struct watch *w)
{
	struct mount *mount = w->mount;

	switch (w->what) {
	case WATCH_READY:
		if (w->child->ready_fd == p->fd)
			child_on_ready(w->child);
		break;
	case WATCH_END:
		if (w->child->pidfd == p->fd)
			child_on_exit(w->child);
		break;
	case WATCH_DEVICE:
		if (mount->dead && mount->fds.fuse == p->fd)
			mount_refuse(mount);
		break;
	case WATCH_ASKED:
		if (mounter_peer_fd(mount->peer) == p->fd)
			mounter_serve(mount->peer);
		break;
	}
}

static void take_beat(struct child *child, pid_t pid, uint64_t now)
{
	if (child->pid == pid)
		child_beat(child, now);
}

static void receive_beats(struct keeper *k)
{
	uint64_t now = clock_mono_ns();
	pid_t pid;

	while (watchdog_receive(&k->watchdog, &pid)) {
		for (unsigned int i = 0; i < KEEPER_DAEMONS; i++)
			take_beat(&k->daemons[i], pid, now);
		list_for_each (node, &k->mounts)
			take_beat(&list_entry(node, struct mount, link)->child, pid, now);
	}
}

/* What is due. A daemon that hangs is killed: its end is seen by its pidfd. */
static void look_at_time(struct child *child, uint64_t now, bool late)
{
	child_check_beat(child, now, late);
	if (child->wake_ns && now >= child->wake_ns)
		child_on_time(child);
}

static void dispatch(struct keeper *k, const struct watches *w)
{
	uint64_t count;
	uint64_t now;
	bool late;

	if (w->polls[0].revents && read(k->wake_fd, &count, sizeof(count)) < 0)
		log_debug("wake not read", "cause=%s", err_name(err_errno())); /* comes again */
	if (w->polls[1].revents)
		on_signal(k, w->polls[1].fd);
	for (unsigned int i = POLL_BEATS + 1; i < w->n; i++)
		if (w->polls[i].revents)
			on_event(&w->polls[i], &w->of[i]);
	receive_beats(k);
	now = clock_mono_ns();
	late = watchdog_was_late(&k->watchdog, now);
	for (unsigned int i = 0; i < KEEPER_DAEMONS; i++)
		look_at_time(&k->daemons[i], now, late);
	list_for_each (node, &k->mounts)
		look_at_time(&list_entry(node, struct mount, link)->child, now, late);
}

/* Beats come from each daemon each second: they are no reason to go through all mounts. Returns with the lock. */
static void wait_for_events(struct keeper *k, struct watches *w, int timeout_ms)
{
	uint64_t until = clock_mono_ns() + (uint64_t)timeout_ms * CLOCK_MS;

	for (;;) {
		uint64_t now = clock_mono_ns();
		int ms = now < until ? (int)((until - now) / CLOCK_MS) + 1 : 0;
		int n = poll(w->polls, w->n, ms); /* EINTR: revents are looked at again */

		pthread_mutex_lock(&k->lock);
		if (n != 1 || !w->polls[POLL_BEATS].revents || ms == 0)
			return;
		receive_beats(k);
		pthread_mutex_unlock(&k->lock);
	}
}

/* As if killed, but answers are out: daemons have duplicates of all that is held here. */
_Noreturn static void leave(struct keeper *k)
{
	log_info(
		"mounts are left", "mounts=%u next=\"the next keeper recovers them\"", k->n_mounts);
	pthread_mutex_unlock(&k->lock); /* handlers want it */
	keeper_clients_close(k);
	admin_server_free(k->admin);
	_exit(EXIT_OK);
}

static void loop(struct keeper *k, int signal_fd)
{
	struct watches w;

	pthread_mutex_lock(&k->lock);
	while (advance(k)) {
		int timeout;
		int r;

		keeper_store_look(k);
		r = keeper_save(k);
		timeout = time_left(k);
		collect(k, signal_fd, &w);
		if (r < 0)
			LOG_LIMITED(LOG_WARN, "state not saved", "cause=%s", err_name(r));
		if (keeper_may_leave(k, r == 0))
			leave(k);
		pthread_mutex_unlock(&k->lock);
		wait_for_events(k, &w, timeout);
		dispatch(k, &w);
		watchdog_beat(0); /* the loop comes round every second */
	}
	k->ending = true;
	k->done = true;
	pthread_mutex_unlock(&k->lock);
}

/* ---- start and end --------------------------------------------------------------------------- */

/* One keeper per cache directory. A lock of the open file: a daemon that was started while it was held does not have it. */
static int take_lock(struct keeper *k, struct err *e)
{
	struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
	char path[PATH_MAX + 8];

	(void)snprintf(path, sizeof(path), "%s/lock", k->config->cache); /* fits */
	k->lock_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (k->lock_fd < 0)
		return err_set(
			e, err_errno(), "%s cannot be opened: %m: give another --cache", path);
	if (fcntl(k->lock_fd, F_OFD_SETLK, &lock) != 0)
		return err_set(e, -EBUSY,
			"the cache %s is in use by another keeper, which does not answer here: "
			"unmount its mounts first, or give another --cache",
			k->config->cache);
	return 0;
}

static int make_directory(const char *path, struct err *e)
{
	int r = file_mkdirs(path, 0700);

	return r < 0 ? err_set(e, r, "%s cannot be created: %s", path, err_str(r)) : 0;
}

/* Of a private cache it is removed at the end, with all that is in it: that may only be what a keeper and its daemons leave. */
static int check_run(const struct keeper_config *config, struct err *e)
{
	static const char *const ours[] = { "keeper.", "master.", "worker.", "notify.", "mount-" };
	DIR *dir = config->is_private ? opendir(config->run) : NULL;
	const struct dirent *entry;
	int r = 0;

	while (dir && r == 0 &&
		(entry = readdir(dir))) { // NOLINT(concurrency-mt-unsafe): not shared
		bool known = strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0;

		for (size_t i = 0; i < ARRAY_SIZE(ours); i++)
			known |= strncmp(entry->d_name, ours[i], strlen(ours[i])) == 0;
		if (!known)
			r = err_set(e, -ENOTEMPTY,
				"%s contains '%s', which does not belong to a keeper: give a --run "
				"of "
				"its own, which is removed at the end",
				config->run, entry->d_name);
	}
	if (dir)
		(void)closedir(dir); /* read only */
	return r;
}

static int find_program(struct keeper *k, struct err *e)
{
	char dir[PATH_MAX];
	int r = k->config->cachefuse ? 0 : programs_dir(dir, e);
	int n;

	if (r < 0)
		return r;
	n = snprintf(k->cachefuse, sizeof(k->cachefuse), "%s%s",
		k->config->cachefuse ? k->config->cachefuse : dir,
		k->config->cachefuse ? "" : "/cachefuse");
	return n < (int)sizeof(k->cachefuse)
		       ? 0
		       : err_set(e, -ENAMETOOLONG, "the path of cachefuse is too long");
}

/* Without it mounts are kept all the same. */
static void watch_daemons(struct keeper *k)
{
	struct err e = ERR_INIT;
	char path[SOCKET_PATH_MAX];

	if (watchdog_open(&k->watchdog, keeper_path(k, "notify.sock", path), &e) < 0)
		log_error("daemons are not watched",
			"why=\"%s\" effect=\"one that hangs is not replaced\"", e.text);
}

/* Of a thread that is about to mount something, or just has. */
static int save(void *arg)
{
	struct keeper *k = arg;
	int r;

	pthread_mutex_lock(&k->lock);
	r = keeper_save(k);
	pthread_mutex_unlock(&k->lock);
	return r;
}

static int start(struct keeper *k, struct err *e)
{
	char path[SOCKET_PATH_MAX];
	int r;

	if (strlen(k->config->run) + sizeof("/mount-4294967295.sock") > sizeof(path))
		return err_set(e, -ENAMETOOLONG, "%s is too long for sockets: give a shorter --run",
			k->config->run);
	r = find_program(k, e);
	if (r < 0)
		return r;
	r = make_directory(k->config->cache, e);
	if (r == 0) /* before the runtime directory, which an earlier keeper may be removing */
		r = take_lock(k, e);
	if (r == 0)
		r = make_directory(k->config->run, e);
	if (r == 0)
		r = check_run(k->config, e);
	if (r < 0)
		return r;
	k->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (k->wake_fd < 0)
		return err_set(e, err_errno(),
			"no descriptors: %m: raise the limit of open files (ulimit -n)");
	r = mounter_host_new(k->wake_fd, &k->host);
	if (r < 0)
		return err_set(e, r, "out of memory");
	mounter_host_keep(k->host, save, k);
	watch_daemons(k);
	r = keeper_daemons_plan(k, e);
	if (r == 0)
		r = keeper_recover(k, e);
	if (r < 0)
		return r;
	keeper_store_release(k);
	if (k->n_mounts == 0 && k->config->again)
		k->idle_since_ns = 0; /* there is nothing that it was started for */
	r = keeper_clients_open(k, e);
	return r < 0 ? r : keeper_answer(k, e);
}

static void stop(struct keeper *k)
{
	char path[SOCKET_PATH_MAX];
	struct list *node;

	if (k->done && !k->config->is_private) /* else it goes with the directory */
		(void)unlink(keeper_path(k, "keeper.json", path)); /* nothing to recover */
	keeper_clients_close(k);
	if (k->admin)
		admin_server_free(k->admin);
	while ((node = list_pop_front(&k->mounts)))
		mount_free(list_entry(node, struct mount, link));
	mounter_host_free(k->host);
	watchdog_close(&k->watchdog, k->done);
	keeper_daemons_release(k);
	cleanup_close(&k->alive_fd);
	cleanup_close(&k->wake_fd);
	if (k->done && k->config->is_private) /* a command that waits for our end looks for it */
		file_remove_tree(k->config->run);
	cleanup_close(&k->lock_fd); /* last: the next keeper may begin */
	buf_release(&k->table);
	pthread_mutex_destroy(&k->lock);
}

static enum exit_status exit_of(const struct keeper_config *config, int r)
{
	if (r == -EBUSY)
		return EXIT_BUSY;
	return config->is_private ? EXIT_CACHE : EXIT_RUNTIME;
}

int keeper_run(const struct keeper_config *config, int ready_fd)
{
	struct keeper k = {
		.config = config,
		.lock_fd = -1,
		.alive_fd = -1,
		.alive_read_fd = -1,
		.wake_fd = -1,
		.watchdog = { .fd = -1 },
		.table = BUF_INIT(MOUNT_TABLE_MAX),
		.next_id = 1,
		.started_ns = clock_mono_ns(),
		.idle_since_ns = clock_mono_ns(),
	};
	struct err e = ERR_INIT;
	_cleanup_close_ int signal_fd = -1;
	int r;

	bounds_raise_descriptors(); /* the limit may be that of a command's shell; recovery takes some for each mount */
	keeper_store_open(&k);
	r = daemon_signals_open(&signal_fd); /* before any thread starts */
	pthread_mutex_init(&k.lock, NULL);
	list_init(&k.mounts);
	keeper_daemons_init(&k);
	if (r < 0)
		(void)err_set(&e, r, "cannot receive signals: %s: raise ulimit -n", err_str(r));
	else
		r = start(&k, &e);
	if (r < 0) {
		stop(&k);
		return ready_error(ready_fd, "cachekeeper", exit_of(config, r), &e);
	}
	log_info("keeping", "cache=\"%s\" run=%s", config->cache, config->run);
	ready_ok(ready_fd, "{}");
	loop(&k, signal_fd);
	log_info("nothing left to keep", "cache=\"%s\"", config->cache);
	stop(&k);
	return EXIT_OK;
}
