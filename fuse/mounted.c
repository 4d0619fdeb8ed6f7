/* The life of a mount. See mounted.h. */
#include "fuse/mounted.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/crash_point.h"
#include "base/log.h"
#include "client/client.h"
#include "fuse/kernel.h"
#include "fuse/mounted_internal.h"
#include "fuse/mounter.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

struct session *mounted_session(struct mounted *m)
{
	return m->session;
}

const struct engine *mounted_engine(const struct mounted *m)
{
	return m->engine;
}

bool mounted_is_attached(const struct mounted *m, const char *mountpoint)
{
	const struct slots_mount *facts = slots_mount(m->config.slots);
	dev_t dev = 0;

	return facts->point_dev != 0 && kernel_dev(AT_FDCWD, mountpoint, &dev) == 0 &&
	       (dev == (dev_t)facts->point_dev ||
		       dev == (dev_t)slots_switch(m->config.slots)->next.dev);
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
	if ((r == -ECONNRESET || r == -ETIMEDOUT) && mounted_is_attached(m, m->config.mountpoint)) {
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

	m->engine = engine_of_number(slots_mount(m->config.slots)->engine);
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
	if (r == 0 && mounted_switch_end(m, &why) < 0)
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
	if (!mounted_is_attached(m, m->config.mountpoint))
		guard_dismiss(&m->guard);
	session_free(m->session);
	if (m->engine)
		m->engine->free_tree(m, m->tree);
	pthread_mutex_destroy(&m->supers);
	pthread_mutex_destroy(&m->switching);
	m->magic = 0;
	free(m);
}
