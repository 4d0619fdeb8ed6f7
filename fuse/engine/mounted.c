/* The life of a mount. See mounted.h. */
#include "fuse/engine/mounted.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/crash_point.h"
#include "base/detach.h"
#include "base/log.h"
#include "client/client.h"
#include "fuse/engine/image_use.h"
#include "mount/kernel/kernel.h"
#include "fuse/engine/mounted_internal.h"
#include "mount/mounter.h"

#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define STACKED 2 /* mounts of ours at one point: while one takes the other's place */

struct session *mounted_session(struct mounted *m)
{
	return m->session;
}

const struct engine *mounted_engine(const struct mounted *m)
{
	return m->engine;
}

/* ---- the device ------------------------------------------------------------------------------ */

int mounted_take_device(struct mounted *m, int fd, dev_t dev, struct err *e)
{
	struct err why = ERR_INIT;
	int r = 0;

	if (dup3(fd, m->config.dev_fd, O_CLOEXEC) < 0)
		return err_set(e, err_errno(),
			"no descriptor for the connection: %m: raise the limit of open files "
			"(ulimit -n)");
	m->own_device = true;
	if (m->config.hand_fd >= 0)
		r = mounter_hand(m->config.dev_fd, dev, &why);
	return r < 0 ? err_set(e, r, "the connection cannot be handed over: %s",
			       why.text[0] ? why.text : err_str(r))
		     : 0;
}

int mounted_need_device(struct mounted *m, struct err *e)
{
	_cleanup_close_ int fd = -1;
	int r;

	if (kernel_is_fuse(m->config.dev_fd))
		return 0;
	r = kernel_open_fuse(&fd, e);
	return r < 0 ? r : mounted_take_device(m, fd, 0, e);
}

int mounted_connect_private(struct mounted *m, int *ret_root, struct err *e)
{
	dev_t dev = 0;
	int r = mounted_need_device(m, e);

	if (r == 0)
		r = mounter_mount_fuse(m->config.dev_fd, NULL, ret_root, &dev, e);
	if (r == 0)
		slots_mount(m->config.slots)->fuse_dev = dev;
	return r;
}

/* ---- the image of a daemon that reads it itself ---------------------------------------------- */

int mounted_image_sibling(const struct mounted *m, const char *name, char ret_path[PATH_MAX])
{
	const char *slash = strrchr(m->config.image, '/');
	int dir = slash ? (int)(slash - m->config.image) : 0;
	int n = snprintf(ret_path, PATH_MAX, "%.*s/%s", dir, m->config.image, name);

	return n < PATH_MAX ? 0 : -ENAMETOOLONG;
}

/* The directory of the image that was given, with the name that the slots say. */
int mounted_image_path(const struct mounted *m, char ret_path[PATH_MAX])
{
	return mounted_image_sibling(m, slots_mount(m->config.slots)->image, ret_path);
}

int mounted_image_open(struct mounted *m, int *ret_fd, struct err *e)
{
	struct slots_mount *facts = slots_mount(m->config.slots);
	char path[PATH_MAX];
	int r = 0;

	if (slots_phase(m->config.slots) == SLOTS_NEW)
		r = image_use_take(m->config.image, (dev_t)facts->fuse_dev, "", facts->image,
			sizeof(facts->image));
	if (r < 0)
		log_info("image not stored",
			"error=%s effect=\"a newer mount may remove it from a successor\"",
			err_name(r));
	r = mounted_image_path(m, path);
	if (r == 0)
		r = image_use_open(path, ret_fd);
	return r < 0 ? err_set(e, r, "the image %s cannot be opened: %s", path, err_str(r)) : 0;
}

void mounted_image_drop(const struct mounted *m)
{
	char path[PATH_MAX];

	/* Else there may be a successor. */
	if ((m->ended || slots_phase(m->config.slots) != SLOTS_MOUNTED) &&
		mounted_image_path(m, path) == 0)
		image_use_drop(path);
}

/* ---- another superblock ---------------------------------------------------------------------- */

/*
 * Another superblock at the mount point, of the same image with other devices.
 *
 * What is known of it is in the slots before each step, so that a successor finds one mount at the
 * point, or makes it one:
 *
 *	next set ──► attached beneath ──► the top detached ──► next becomes now, now becomes old
 *
 * The new superblock finds its files on the mount's own connection: a second mount of it, made for
 * a moment.
 */

/* True while what that mount point shows is ours. */
static bool is_attached(const struct mounted *m, const char *mountpoint)
{
	const struct slots_mount *facts = slots_mount(m->config.slots);
	dev_t dev = 0;

	return facts->point_dev != 0 && kernel_dev(AT_FDCWD, mountpoint, &dev) == 0 &&
	       (dev == (dev_t)facts->point_dev ||
		       dev == (dev_t)slots_switch(m->config.slots)->next.dev);
}

static void set_bits(
	uint8_t bits[LIMIT_DEVICES / 8], const struct mounted_devices *devices, uint32_t n)
{
	memset(bits, 0, LIMIT_DEVICES / 8);
	for (uint32_t i = 0; devices && i < n && i < LIMIT_DEVICES; i++)
		if (devices->local[i] >= 0)
			bits[i / 8] |= (uint8_t)(1u << (i % 8));
}

static void add_bits(uint8_t to[LIMIT_DEVICES / 8], const uint8_t from[LIMIT_DEVICES / 8])
{
	for (uint32_t i = 0; i < LIMIT_DEVICES / 8; i++)
		to[i] |= from[i];
}

void mounted_switch_begin(
	struct mounted *m, const struct slots_super *super, const struct mounted_devices *devices)
{
	struct slots_switch *s = slots_switch(m->config.slots);

	set_bits(s->local, devices, slots_mount(m->config.slots)->extents);
	s->now = *super;
	slots_mount(m->config.slots)->point_dev = super->dev;
}

/* Room for one more that is old; the first when there is none. */
static struct slots_super *old_place(struct slots_switch *s)
{
	struct slots_super *place = &s->old[0];

	for (uint32_t i = 0; i < SLOTS_OLD_MAX; i++) {
		if (s->old[i].dev == 0)
			return &s->old[i];
		if (s->old[i].number < place->number)
			place = &s->old[i];
	}
	return place;
}

/* What was written before is there when it is, for a successor too. */
static void set_next(struct slots_switch *s, uint64_t dev)
{
	__atomic_store_n(&s->next.dev, dev, __ATOMIC_SEQ_CST);
}

/* The mount point shows `next`. */
static void commit(struct mounted *m)
{
	struct slots_switch *s = slots_switch(m->config.slots);

	pthread_mutex_lock(&m->supers);
	*old_place(s) = s->now;
	add_bits(s->old_local, s->local);
	memcpy(s->local, s->next_local, sizeof(s->local));
	s->now = s->next;
	slots_mount(m->config.slots)->point_dev = s->next.dev;
	s->switches++;
	CRASH_POINT("switch.now");
	set_next(s, 0);
	pthread_mutex_unlock(&m->supers);
	CRASH_POINT("switch.done");
}

static void announce(
	struct mounted *m, const struct slots_super *super, const struct mounted_devices *devices)
{
	struct slots_switch *s = slots_switch(m->config.slots);
	struct slots_super next = *super;

	pthread_mutex_lock(&m->supers);
	set_bits(s->next_local, devices, slots_mount(m->config.slots)->extents);
	next.dev = 0;
	s->next = next;
	set_next(s, super->dev);
	pthread_mutex_unlock(&m->supers);
	CRASH_POINT("switch.known");
}

static void forget_next(struct mounted *m)
{
	pthread_mutex_lock(&m->supers);
	slots_switch(m->config.slots)->next.dev = 0;
	pthread_mutex_unlock(&m->supers);
}

/* Ends what was cut off, by a crash or since it took too long. `switching` is held, or no other
 * thread runs yet. */
static int end_switch(struct mounted *m, struct err *e)
{
	const struct slots_switch *s = slots_switch(m->config.slots);
	int r;

	if (s->next.dev == 0)
		return 0;
	if (s->next.dev == s->now.dev) { /* all but the last word */
		forget_next(m);
		return 0;
	}
	r = mounter_switch(-1, m->config.mountpoint, (dev_t)s->now.dev, (dev_t)s->next.dev, e);
	if (r == 0)
		commit(m);
	if (r != -ENOENT)
		return r;
	forget_next(m); /* a detached mount ends with the process that made it */
	return 0;
}

static int switch_locked(struct mounted *m, const struct mounted_devices *devices, struct err *e)
{
	const struct slots_switch *s = slots_switch(m->config.slots);
	_cleanup_close_ int root = -1;
	_cleanup_close_ int shown = -1;
	struct slots_super super = { 0 };
	dev_t dev = 0;
	int r = end_switch(m, e);

	if (r < 0)
		return r;
	if (!is_attached(m, m->config.mountpoint) && mounter_any_point() < 0)
		return err_set(e, -ENOENT, "%s shows another mount now", m->config.mountpoint);
	r = mounter_mount_fuse(m->config.dev_fd, NULL, &root, &dev, e);
	if (r == 0)
		r = m->engine->again(m, root, devices, &shown, &super, e);
	if (r < 0)
		return r;
	if (super.number == 0)
		return err_set(e, -EOPNOTSUPP, "this kernel does not report when a mount ends");
	announce(m, &super, devices);
	r = mounter_switch(shown, m->config.mountpoint, (dev_t)s->now.dev, (dev_t)super.dev, e);
	if (r == 0)
		commit(m);
	else if (r != -ETIMEDOUT && r != -ECONNRESET) /* else to be looked at */
		forget_next(m);
	return r;
}

bool mounted_may_switch(const struct mounted *m)
{
	return m->engine->again && slots_switch(m->config.slots)->now.number != 0 &&
	       mounter_may_attach_beneath();
}

int mounted_switch(struct mounted *m, const struct mounted_devices *devices, struct err *e)
{
	int r;

	CHECK_MAGIC(m, MOUNTED_MAGIC);
	if (!mounted_may_switch(m))
		return err_set(e, -EOPNOTSUPP,
			"devices of a mount can be changed from Linux 6.5 on, with the native "
			"engine: mount again");
	mounter_label(m->config.context); /* of this thread, which may be another one */
	if (pthread_mutex_trylock(&m->switching) != 0)
		return err_set(e, -EBUSY, "%s is being switched", m->config.mountpoint);
	r = switch_locked(m, devices, e);
	pthread_mutex_unlock(&m->switching);
	return r;
}

dev_t mounted_point_dev(struct mounted *m)
{
	dev_t dev;

	CHECK_MAGIC(m, MOUNTED_MAGIC);
	pthread_mutex_lock(&m->supers);
	dev = (dev_t)slots_mount(m->config.slots)->point_dev;
	pthread_mutex_unlock(&m->supers);
	return dev;
}

bool mounted_shows(struct mounted *m, dev_t dev)
{
	bool shows;

	CHECK_MAGIC(m, MOUNTED_MAGIC);
	pthread_mutex_lock(&m->supers);
	shows = dev != 0 && ((dev_t)slots_mount(m->config.slots)->point_dev == dev ||
				    (dev_t)slots_switch(m->config.slots)->next.dev == dev);
	pthread_mutex_unlock(&m->supers);
	return shows;
}

/* Those that ended are forgotten. */
static uint32_t old_locked(struct slots_switch *s)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < SLOTS_OLD_MAX; i++) {
		if (s->old[i].dev != 0 && !kernel_superblock_lives(s->old[i].number))
			s->old[i].dev = 0;
		n += s->old[i].dev != 0;
	}
	if (n == 0)
		memset(s->old_local, 0, sizeof(s->old_local));
	return n;
}

void mounted_superblocks(struct mounted *m, struct mounted_superblocks *ret)
{
	struct slots_switch *s = slots_switch(m->config.slots);

	CHECK_MAGIC(m, MOUNTED_MAGIC);
	pthread_mutex_lock(&m->supers);
	ret->old = old_locked(s);
	ret->local = s->now.local;
	ret->switches = s->switches;
	ret->mark = s->now.mark;
	memcpy(ret->bits, s->local, sizeof(ret->bits));
	memcpy(ret->held, s->local, sizeof(ret->held));
	add_bits(ret->held, s->old_local);
	if (s->next.dev != 0)
		add_bits(ret->held, s->next_local);
	pthread_mutex_unlock(&m->supers);
}

/* ---- the guard ------------------------------------------------------------------------------- */

/*
 * A process that takes a mount off its mount point once this process is gone without having
 * dismissed it: else "Transport endpoint is not connected" would stay there.
 */
struct watch {
	const char *mountpoint;
	dev_t before;                         /* what lay there at the start */
	const struct detach_program *command; /* NULL: none */
};

/* True when the other end closed; false when it said that it does not need us. */
static bool await_end(int fd)
{
	char byte;
	ssize_t n;

	do {
		n = read(fd, &byte, 1);
	} while (n < 0 && errno == EINTR);
	return n == 0;
}

/* Only system calls: other threads' locks were copied as they were. */
_Noreturn static void guard_main(int fd, const struct watch *watch)
{
	static char *const envp[] = { NULL };
	dev_t dev = 0;

	/* A signal to all of our processes is about them: we come into our own afterwards. */
	(void)setsid();
	for (int i = 1; i < NSIG; i++)
		(void)signal(i, i == SIGCHLD ? SIG_DFL : SIG_IGN);
	(void)dup2(fd, STDIN_FILENO);
	(void)close_range(1, UINT_MAX, 0); /* the connection above all must end without us */
	(void)open("/dev/null", O_WRONLY);
	(void)open("/dev/null", O_WRONLY);
	if (chdir("/") != 0 || !await_end(STDIN_FILENO))
		_exit(0);
	for (int i = 0; i < STACKED; i++) {
		if (kernel_dev(AT_FDCWD, watch->mountpoint, &dev) < 0 || dev == watch->before)
			_exit(0);
		if (umount2(watch->mountpoint, MNT_DETACH | UMOUNT_NOFOLLOW) != 0)
			break;
	}
	if (watch->command)
		(void)execve(watch->command->path, watch->command->argv, envp);
	_exit(0);
}

/* From now on what comes to lie on `mountpoint` goes with this process. */
static int guard_start(struct guard *guard, const char *mountpoint, struct err *e)
{
	struct detach_program command;
	struct watch watch = { .mountpoint = mountpoint };
	int ends[2];
	pid_t pid;
	int r = kernel_dev(AT_FDCWD, mountpoint, &watch.before);

	if (r < 0)
		return err_set(
			e, r, "the mount point %s cannot be used: %s", mountpoint, err_str(r));
	if (detach_program(mountpoint, true, &command) == 0)
		watch.command = &command;
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
		return err_set(e, err_errno(), "no descriptors: %m");
	pid = fork();
	if (pid == 0)
		guard_main(ends[0], &watch);
	(void)close(ends[0]); /* the guard's */
	if (pid < 0) {
		r = err_set(e, err_errno(), "the mount's watchdog cannot be started: %m");
		(void)close(ends[1]); /* nobody reads */
		return r;
	}
	guard->pid = pid;
	guard->fd = ends[1];
	return 0;
}

/* It ends without doing anything. Nothing happens where there is none. */
static void guard_dismiss(struct guard *guard)
{
	if (guard->pid <= 0)
		return;
	if (send(guard->fd, "x", 1, MSG_NOSIGNAL) != 1)
		log_debug("guard gone", "cause=%s", err_name(err_errno())); /* nothing to dismiss */
	(void)close(guard->fd);
	while (waitpid(guard->pid, NULL, 0) < 0 && errno == EINTR)
		;
	guard->pid = 0;
}

/* ---- start ----------------------------------------------------------------------------------- */

static int start_session(struct mounted *m, struct err *e)
{
	struct session_config config = {
		.dev_fd = m->config.dev_fd,
		.slots = m->config.slots,
		.reader = m->config.reader,
		.threads = m->config.threads,
		.on_failure = m->config.on_failure,
		.on_gone = m->config.on_gone,
		.arg = m->config.arg,
	};
	int r = m->engine->tree(m, &m->tree, e);

	if (r < 0)
		return r;
	config.tree = m->tree;
	return session_new(&config, &m->session, e);
}

/* How long a READ may wait for its origin is ours to say, not the kernel's. */
static void warn_of_timeout(void)
{
	uint32_t seconds = kernel_request_timeout();

	if (seconds && seconds < CLIENT_READ_DEADLINE / CLOCK_SECOND)
		log_warn("the kernel ends slow mounts",
			"seconds=%u effect=\"a stalled origin ends the mount\" next=\"write 0 to "
			"/proc/sys/fs/fuse/default_request_timeout and max_request_timeout\"",
			seconds);
}

/* For an ordinary user the kernel has a limit of its own. */
static void note_background(const struct mounted *m)
{
	struct slots_mount *facts = slots_mount(m->config.slots);
	uint32_t slots = slots_count(m->config.slots);

	facts->max_background = min(mounter_background((dev_t)facts->fuse_dev, slots), slots);
	/* A few slots are for what is not a READ. */
	if (facts->max_background && facts->max_background < slots / 2)
		log_warn("few reads at once",
			"max_background=%u slots=%u effect=\"a stalled origin may hold up other "
			"reads\" next=\"raise /sys/module/fuse/parameters/max_user_bgreq\"",
			facts->max_background, slots);
}

static int attach(const struct mounted *m, int shown, struct err *e)
{
	const struct slots_mount *facts = slots_mount(m->config.slots);
	int r = mounter_attach(
		&(struct mounter_attach){
			.mount_fd = shown,
			.point_fd = m->config.point_fd,
			.mountpoint = m->config.mountpoint,
			.key = m->config.key ? m->config.key : "",
			.point_dev = (dev_t)facts->point_dev,
			.fuse_dev = (dev_t)facts->fuse_dev,
			.replace = m->config.replace,
		},
		e);

	/* An answer may be lost, with the keeper; what the mount point shows counts. */
	if ((r == -ECONNRESET || r == -ETIMEDOUT) && is_attached(m, m->config.mountpoint)) {
		log_warn("attached, but not confirmed", "mountpoint=\"%s\"", m->config.mountpoint);
		r = 0;
	}
	return r;
}

static int mount_new_one(struct mounted *m, struct err *e)
{
	struct slots_mount *facts = slots_mount(m->config.slots);
	_cleanup_close_ int root = -1;
	_cleanup_close_ int shown = -1;
	int r;

	facts->engine = m->engine->number;
	/* With a keeper, which clears up, we could not. */
	r = mounter_is_apart() ? 0 : guard_start(&m->guard, m->config.mountpoint, e);
	if (r == 0)
		r = m->engine->connect(m, &root, e);
	if (r == 0)
		r = start_session(m, e);
	if (r == 0)
		r = m->engine->finish(m, root, &shown, e);
	if (r < 0)
		return r;
	warn_of_timeout();
	note_background(m);
	facts->mounted_at = clock_wall_ns() / CLOCK_SECOND;
	/*
	 * Before the fact: a crash between the two takes the mount with it, and a successor sees
	 * its connection gone.
	 */
	slots_set_phase(m->config.slots, SLOTS_MOUNTED);
	if (shown >= 0)
		r = attach(m, shown, e);
	CRASH_POINT("mount.attached");
	return r < 0 ? err_prefix(e, "%s", m->config.mountpoint) : 0;
}

static int take_over(struct mounted *m, struct err *e)
{
	struct err why = ERR_INIT;
	int r;

	if (!m->engine)
		return err_set(e, -EPROTONOSUPPORT,
			"%s was mounted by another version of cachefuse: unmount with --force and "
			"mount again",
			m->config.mountpoint);
	log_info("taking a mount over", "mountpoint=\"%s\" engine=%s", m->config.mountpoint,
		m->engine->name);
	if (!kernel_is_fuse(m->config.dev_fd))
		return err_set(e, -ENODEV,
			"the connection of %s died with its daemon: mount it again",
			m->config.mountpoint);
	r = start_session(m, e);
	if (r == 0 && end_switch(m, &why) < 0)
		log_warn("switch not ended", "mountpoint=\"%s\" why=\"%s\" next=\"tried again\"",
			m->config.mountpoint, why.text);
	return r;
}

int mounted_new(const struct mounted_config *config, struct mounted **ret_mounted, struct err *e)
{
	struct mounted *m = calloc(1, sizeof(*m));
	int r;

	if (!m)
		return err_set(e, -ENOMEM, "out of memory");
	m->magic = MOUNTED_MAGIC;
	m->config = *config;
	m->engine = config->engine;
	m->image_fd = -1;
	mounter_label(config->context);
	pthread_mutex_init(&m->switching, NULL);
	pthread_mutex_init(&m->supers, NULL);
	switch (slots_phase(config->slots)) {
	case SLOTS_NEW:
		r = mount_new_one(m, e);
		m->ended = r < 0; /* also where it failed as the last step: there is no successor */
		break;
	case SLOTS_MOUNTED:
		r = take_over(m, e);
		break;
	case SLOTS_CONNECTED:
	default:
		r = err_set(e, -ENODEV,
			"the daemon of %s died before the mount was complete: mount it again",
			config->mountpoint);
	}
	if (r < 0) {
		mounted_free(m);
		return r;
	}
	*ret_mounted = m;
	return 0;
}

void mounted_settle(struct mounted *m)
{
	CHECK_MAGIC(m, MOUNTED_MAGIC);
	if (m->config.hand_fd >= 0 || (m->config.kept && !m->own_device))
		guard_dismiss(&m->guard);
}

int mounted_hand_over(struct mounted *m)
{
	CHECK_MAGIC(m, MOUNTED_MAGIC);
	if (session_gone(m->session))
		return -ENODEV;
	if (pthread_mutex_trylock(&m->switching) != 0)
		return -EBUSY;
	session_hand_over(m->session);
	return 0; /* locked for good: no switch may begin */
}

void mounted_free(struct mounted *m)
{
	if (!m)
		return;
	CHECK_MAGIC(m, MOUNTED_MAGIC);
	m->ended |= m->session && session_gone(m->session);
	/* What is attached still goes with this process. */
	if (!is_attached(m, m->config.mountpoint))
		guard_dismiss(&m->guard);
	session_free(m->session);
	if (m->engine)
		m->engine->free_tree(m, m->tree);
	pthread_mutex_destroy(&m->supers);
	pthread_mutex_destroy(&m->switching);
	m->magic = 0;
	free(m);
}
