/* Follows the states of a mount's extents. See seal.h. */
#include "fuse/engine/seal.h"
#include "base/check.h"
#include "base/cleanup.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/periodic.h"
#include "mount/kernel/kernel.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define SEAL_MAGIC     0x5EA15EA1u
#define LOOK_NS        CLOCK_SECOND        /* between two polls */
#define LOOK_SLOWLY_NS (5 * CLOCK_SECOND)  /* when the last one failed */
#define MOUNT_PATIENCE (10 * CLOCK_SECOND) /* of who waits for a mount */
#define SPARE_FDS      256u
#define PATIENCE       10u /* pauses after which one extent more is enough */
#define USEFUL         8u  /* part of the extents that is enough before */

struct seal {
	uint32_t magic;
	struct seal_config config;
	struct mounted *mounted;
	struct pool *pool; /* for `work` */
	struct periodic_work work;
	bool directio;             /* is safe here */
	bool unknown;              /* taken over: `then` is not known yet */
	uint64_t switched;         /* when, monotonic */
	struct client_seal *then;  /* of what is shown, when it was taken */
	struct client_seal *taken; /* of what is being taken */
	int *fds;                  /* of it; extents + 1, -1: none */
	pthread_mutex_t lock;      /* a leaf: what follows */
	struct client_seal *now;
	bool polled;
	char why[ERR_TEXT_MAX];
};

static void say(struct seal *seal, const char *why)
{
	pthread_mutex_lock(&seal->lock);
	(void)snprintf(seal->why, sizeof(seal->why), "%s", why); /* the same size */
	pthread_mutex_unlock(&seal->lock);
}

/* ---- when devices are worth a switch --------------------------------------------------------- */

static bool is_shown(const uint8_t *shown, uint32_t extent)
{
	return shown[extent / 8] & 1u << (extent % 8);
}

enum seal_choice seal_choose(const struct seal_view *view)
{
	uint32_t sealed = 0;
	uint32_t more = 0;

	for (uint32_t i = 0; i < view->n; i++) {
		bool shown = is_shown(view->shown, i);

		if (shown && !client_seal_holds(&view->then[i], &view->now[i]))
			return SEAL_DROP;
		if (view->now[i].status.state != SEAL_SEALED)
			continue;
		sealed++;
		more += !shown;
	}
	if (more == 0 || view->old >= SEAL_OLD_MAX || view->since_ns < view->pause_ns)
		return SEAL_STAY;
	if (sealed == view->n || more >= max(view->n / USEFUL, 1u) ||
		view->since_ns / PATIENCE >= view->pause_ns)
		return SEAL_GROW;
	return SEAL_STAY;
}

uint64_t seal_mark(uint32_t n, const uint8_t *shown, const struct client_seal *seals)
{
	uint64_t mark = 0;

	for (uint32_t i = 0; i < n; i++) {
		const uint64_t words[] = { i, seals[i].epoch, seals[i].status.findings };

		if (is_shown(shown, i))
			mark ^= hash_xxh3(words, sizeof(words), 0);
	}
	return mark;
}

/* ---- taking ---------------------------------------------------------------------------------- */

static void put_back(struct seal *seal)
{
	for (uint32_t i = 0; i < seal->config.extents; i++) {
		cleanup_close(&seal->fds[i]);
		seal->fds[i] = -1;
	}
}

/* Descriptors that may be open for the moment of a mount. */
static uint32_t room(void)
{
	struct rlimit limit = { 0 };

	if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur < 2 * SPARE_FDS)
		return 0;
	return (uint32_t)min((limit.rlim_cur - SPARE_FDS) / 2, (rlim_t)LIMIT_DEVICES);
}

/* Descriptors of all that is sealed, as far as there is room and time. */
static void take_all(struct seal *seal, uint64_t deadline, struct mounted_devices *ret)
{
	uint32_t most = room();
	uint32_t n = 0;
	struct err e = ERR_INIT;
	uint8_t bits[LIMIT_DEVICES / 8] = { 0 };

	for (uint32_t i = 0; i < seal->config.extents; i++) {
		int r;

		if (seal->now[i].status.state != SEAL_SEALED)
			continue;
		if (n >= most || clock_mono_ns() > deadline)
			break;
		r = seal->config.source.take(
			seal->config.source.arg, i, &seal->taken[i], &seal->fds[i], &e);
		if (r == 0) {
			bits[i / 8] |= (uint8_t)(1u << (i % 8));
			n++;
		} else if (r != -EAGAIN) {
			say(seal, e.text);
			if (r != -EBADMSG) /* nobody is there to ask for the others */
				break;
		}
	}
	*ret = (struct mounted_devices){
		.local = seal->fds,
		.n = n,
		.mark = seal_mark(seal->config.extents, bits, seal->taken),
		.directio = n > 0 && seal->directio,
	};
}

static int poll_states(struct seal *seal, const uint8_t *held)
{
	size_t bytes = seal->config.extents * sizeof(*seal->now);
	struct client_seal *fresh = malloc(bytes + 1);
	struct err e = ERR_INIT;
	int r = -ENOMEM;

	if (fresh)
		r = seal->config.source.poll(
			seal->config.source.arg, seal->config.extents, held, fresh, &e);
	pthread_mutex_lock(&seal->lock);
	seal->polled = r == 0;
	if (fresh && r == 0)
		memcpy(seal->now, fresh, bytes);
	(void)snprintf(seal->why, sizeof(seal->why), "%s", e.text); /* the same size */
	pthread_mutex_unlock(&seal->lock);
	free(fresh);
	return r;
}

/* ---- a new mount ----------------------------------------------------------------------------- */

static void remember(struct seal *seal)
{
	memcpy(seal->then, seal->taken, seal->config.extents * sizeof(*seal->then));
	seal->switched = clock_mono_ns();
	seal->unknown = false;
}

void seal_devices(struct seal *seal, struct mounted_devices *ret_devices)
{
	uint64_t deadline = clock_mono_ns() + MOUNT_PATIENCE;

	CHECK_MAGIC(seal, SEAL_MAGIC);
	*ret_devices = (struct mounted_devices){ .local = seal->fds };
	if (poll_states(seal, NULL) == 0)
		take_all(seal, deadline, ret_devices);
	if (ret_devices->n > 0)
		log_info("sealed extents", "extents=%u sealed=%u", seal->config.extents,
			ret_devices->n);
	remember(seal);
}

void seal_devices_release(struct seal *seal)
{
	CHECK_MAGIC(seal, SEAL_MAGIC);
	put_back(seal);
}

/* ---- periodic work --------------------------------------------------------------------------- */

/* Of what a predecessor took: as good as what is said now, when nothing came in between. Otherwise it stays unknown until
 * the devices are changed. */
static bool adopt(struct seal *seal, const struct mounted_superblocks *shown)
{
	if (seal_mark(seal->config.extents, shown->bits, seal->now) != shown->mark)
		return false;
	memcpy(seal->then, seal->now, seal->config.extents * sizeof(*seal->then));
	seal->unknown = false;
	return true;
}

static void switch_devices(
	struct seal *seal, enum seal_choice choice, const struct mounted_superblocks *shown)
{
	struct mounted_devices devices;
	uint64_t began = clock_mono_ns();
	struct err e = ERR_INIT;
	int r;

	take_all(seal, UINT64_MAX, &devices);
	if (choice == SEAL_GROW && devices.n <= shown->local)
		r = -EAGAIN; /* not what it seemed */
	else
		r = mounted_switch(seal->mounted, &devices, &e);
	put_back(seal);
	if (r == 0) {
		log_info("devices changed", "extents=%u sealed=%u before=%u cause=%s ms=%" PRIu64,
			seal->config.extents, devices.n, shown->local,
			choice == SEAL_DROP ? "finding" : "sealed",
			(uint64_t)((clock_mono_ns() - began) / CLOCK_MS));
		remember(seal);
		if (seal->config.on_switch)
			seal->config.on_switch(seal->config.arg);
	} else if (r != -EAGAIN) {
		LOG_LIMITED(
			LOG_WARN, "devices not changed", "why=\"%s\" next=\"tried again\"", e.text);
		say(seal, e.text);
	}
}

/* The kernel may have pages of what was found damaged, and there is no other superblock to be had. */
static void tell_stuck(struct seal *seal)
{
	static const char why[] =
		"extents that the kernel reads directly were damaged or lost, and cannot be "
		"replaced before Linux 6.5: unmount and mount again";

	LOG_LIMITED(LOG_WARN, "devices not changed", "why=\"%s\"", why);
	say(seal, why);
}

/* How long until the next look. */
static uint64_t look(void *arg)
{
	struct seal *seal = arg;
	struct seal_view view = {
		.n = seal->config.extents,
		.then = seal->then,
		.now = seal->now,
		.pause_ns = seal->config.pause_ns,
	};
	struct mounted_superblocks shown;
	enum seal_choice choice;

	mounted_superblocks(seal->mounted, &shown);
	if (poll_states(seal, shown.held) < 0)
		return LOOK_SLOWLY_NS;
	view.shown = shown.bits;
	view.old = shown.old;
	view.since_ns = clock_mono_ns() - seal->switched;
	if (seal->unknown && !adopt(seal, &shown))
		choice = SEAL_DROP;
	else
		choice = seal_choose(&view);
	if (choice != SEAL_STAY && mounted_may_switch(seal->mounted))
		switch_devices(seal, choice, &shown);
	else if (choice == SEAL_DROP)
		tell_stuck(seal);
	return LOOK_NS;
}

int seal_start(struct seal *seal, struct mounted *mounted, struct err *e)
{
	CHECK_MAGIC(seal, SEAL_MAGIC);
	seal->mounted = mounted;
	seal->pool = pool_new("fuse-seal", 1, 1);
	if (!seal->pool)
		return err_set(e, -EAGAIN, "no thread: %s", err_str(-EAGAIN));
	seal->work = (struct periodic_work){ .name = "seal", .run = look, .arg = seal };
	periodic_start(seal->pool, &seal->work, 0);
	return 0;
}

/* ---- life ------------------------------------------------------------------------------------ */

struct seal *seal_new(const struct seal_config *config)
{
	struct seal *seal = calloc(1, sizeof(*seal));
	size_t n = config->extents + 1;

	if (!seal)
		return NULL;
	seal->magic = SEAL_MAGIC;
	seal->config = *config;
	seal->directio = kernel_directio_is_safe();
	seal->unknown = true;
	seal->switched = clock_mono_ns();
	seal->then = calloc(n, sizeof(*seal->then));
	seal->taken = calloc(n, sizeof(*seal->taken));
	seal->now = calloc(n, sizeof(*seal->now));
	seal->fds = calloc(n, sizeof(*seal->fds));
	pthread_mutex_init(&seal->lock, NULL);
	for (size_t i = 0; seal->fds && i < n; i++)
		seal->fds[i] = -1;
	if (!seal->then || !seal->taken || !seal->now || !seal->fds) {
		seal_free(seal);
		return NULL;
	}
	return seal;
}

void seal_free(struct seal *seal)
{
	if (!seal)
		return;
	CHECK_MAGIC(seal, SEAL_MAGIC);
	periodic_stop(&seal->work);
	pool_free(seal->pool);
	if (seal->fds)
		put_back(seal);
	pthread_mutex_destroy(&seal->lock);
	free(seal->then);
	free(seal->taken);
	free(seal->now);
	free(seal->fds);
	seal->magic = 0;
	free(seal);
}

/* ---- what is to be said ---------------------------------------------------------------------- */

void seal_report(struct seal *seal, struct seal_report *ret)
{
	CHECK_MAGIC(seal, SEAL_MAGIC);
	*ret = (struct seal_report){
		.extents = seal->config.extents,
		.may_switch = mounted_may_switch(seal->mounted),
	};
	mounted_superblocks(seal->mounted, &ret->shown);
	pthread_mutex_lock(&seal->lock);
	ret->polled = seal->polled;
	memcpy(ret->why, seal->why, sizeof(ret->why));
	for (uint32_t i = 0; i < seal->config.extents; i++) {
		ret->sealed += seal->now[i].status.state == SEAL_SEALED;
		ret->verifying += seal->now[i].status.state == SEAL_VERIFYING;
	}
	pthread_mutex_unlock(&seal->lock);
}

void seal_extent(
	struct seal *seal, uint32_t extent, struct seal_status *ret_status, bool *ret_local)
{
	struct mounted_superblocks shown;

	CHECK_MAGIC(seal, SEAL_MAGIC);
	mounted_superblocks(seal->mounted, &shown);
	pthread_mutex_lock(&seal->lock);
	*ret_status = extent < seal->config.extents ? seal->now[extent].status
						    : (struct seal_status){ 0 };
	pthread_mutex_unlock(&seal->lock);
	*ret_local = extent < seal->config.extents && shown.bits[extent / 8] & 1u << (extent % 8);
}
