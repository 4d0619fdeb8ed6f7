/*
 * Another superblock at the mount point, of the same image with other devices. See mounted.h.
 *
 * What is known of it is in the slots before each step, so that a successor finds one mount at the
 * point, or makes it one:
 *
 *	next set ──► attached beneath ──► the top detached ──► next becomes now, now becomes old
 *
 * The new superblock finds its files on the mount's own connection: a second mount of it, made for
 * a moment.
 */
#include "base/cleanup.h"
#include "base/crash_point.h"
#include "base/log.h"
#include "fuse/kernel.h"
#include "fuse/mounted_internal.h"
#include "fuse/mounter.h"

#include <string.h>

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

int mounted_switch_end(struct mounted *m, struct err *e)
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
	int r = mounted_switch_end(m, e);

	if (r < 0)
		return r;
	if (!mounted_is_attached(m, m->config.mountpoint) && mounter_any_point() < 0)
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
