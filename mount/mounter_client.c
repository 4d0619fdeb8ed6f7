/* The daemon's side: asks the keeper, or does it itself. See mounter.h. */
#include "base/cleanup.h"
#include "base/clock.h"
#include "mount/mounter.h"
#include "mount/mounter_wire.h"

#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#define ANSWER_NS (60 * CLOCK_SECOND) /* mounting waits for our own answers */
#define HELLO_NS  (10 * CLOCK_SECOND)

/* Of this process: a daemon has one keeper. */
static struct {
	pthread_mutex_t lock; /* held over one request and its answer */
	int socket;           /* -1: none */
	bool apart;
	bool may_mount;
	bool may_beneath;
	const char *label; /* borrowed */
	uint32_t serial;
} keeper = { .lock = PTHREAD_MUTEX_INITIALIZER, .socket = -1 };

struct call {
	struct mounter_request request;
	const int *fds;
	int *ret_fd; /* NULL: the answer has none */
	uint64_t ns;
};

/* ---- one request ----------------------------------------------------------------------------- */

static void close_all(int *fds, uint32_t n)
{
	while (n > 0)
		(void)close(fds[--n]); /* nothing of ours */
}

/* The answer to it; another's, of a request that nobody waits for any more, is dropped. */
static int take_answer(const struct call *call, struct mounter_answer *answer, struct err *e)
{
	int fds[MOUNTER_FDS_MAX];
	uint32_t n = 0;
	int r = mounter_receive(keeper.socket, answer, sizeof(*answer), fds, &n);
	bool ours;

	if (r == -EAGAIN)
		return r;
	if (r < 0)
		return err_set(e, r == -ENODATA ? -ECONNRESET : -EPROTO,
			"invalid answer of the keeper of this mount: mount again");
	ours = answer->magic == MOUNTER_MAGIC && answer->serial == call->request.serial;
	if (answer->magic == MOUNTER_MAGIC && answer->serial == 0) {
		close_all(fds, n);
		return err_set(e, -ECONNRESET, "the keeper was restarted: try again");
	}
	if (!ours || n != answer->n_fds || n > 1 ||
		(answer->code == 0 && (n == 1) != (call->ret_fd != NULL))) {
		close_all(fds, n);
		return ours ? err_set(e, -EPROTO, "invalid answer of the keeper") : -EAGAIN;
	}
	answer->text[sizeof(answer->text) - 1] = '\0';
	if (n == 1 && answer->code == 0)
		*call->ret_fd = fds[0];
	else
		close_all(fds, n);
	return 0;
}

static int await_answer(const struct call *call, struct mounter_answer *answer, struct err *e)
{
	uint64_t deadline = clock_mono_ns() + call->ns;

	for (;;) {
		struct pollfd p = { .fd = keeper.socket, .events = POLLIN };
		uint64_t now = clock_mono_ns();
		int left = now < deadline ? (int)((deadline - now) / CLOCK_MS) + 1 : 0;
		int r = take_answer(call, answer, e);

		if (r != -EAGAIN)
			return r;
		if (left == 0)
			return err_set(e, -ETIMEDOUT,
				"the keeper of this mount does not answer: see cachectl status");
		(void)poll(&p, 1, left); /* EINTR: looks again */
	}
}

/* Of requests that we gave up. */
static void drop_old_answers(void)
{
	struct mounter_answer old;
	int fds[MOUNTER_FDS_MAX];
	uint32_t n;
	int r;

	do {
		n = 0;
		r = mounter_receive(keeper.socket, &old, sizeof(old), fds, &n);
		close_all(fds, r == 0 ? n : 0);
	} while (r == 0 || r == -EBADMSG);
}

static int ask_locked(struct call *call, struct mounter_answer *answer, struct err *e)
{
	struct err why = ERR_INIT;
	int r;

	drop_old_answers();
	call->request.magic = MOUNTER_MAGIC;
	(void)snprintf(call->request.label, sizeof(call->request.label), "%s",
		keeper.label ? keeper.label : ""); /* mounter_label() */
	call->request.serial = ++keeper.serial ? keeper.serial : ++keeper.serial;
	if (!call->ns)
		call->ns = ANSWER_NS;
	r = mounter_send(keeper.socket, &call->request, sizeof(call->request), call->fds,
		call->request.n_fds);
	if (r < 0)
		return err_set(e, r == -EPIPE ? -ECONNRESET : r,
			"the keeper of this mount is unavailable: %s", err_str(r));
	r = await_answer(call, answer, &why);
	if (r < 0)
		return err_set(e, r, "%s", why.text);
	if (answer->code < 0 && answer->text[0])
		return err_set(e, answer->code, "%s", answer->text);
	return min(answer->code, 0);
}

static int ask(struct call *call, struct mounter_answer *answer, struct err *e)
{
	int r;

	pthread_mutex_lock(&keeper.lock);
	r = ask_locked(call, answer, e);
	pthread_mutex_unlock(&keeper.lock);
	return r;
}

static int set_path(struct call *call, const char *path, struct err *e)
{
	if (strlen(path) >= sizeof(call->request.path))
		return err_set(e, -ENAMETOOLONG, "%s: the path is too long", path);
	memcpy(call->request.path, path, strlen(path) + 1);
	return 0;
}

/* ---- who does it ----------------------------------------------------------------------------- */

int mounter_use(int socket, struct err *e)
{
	struct call call = { .request.op = MOUNTER_HELLO, .ns = HELLO_NS };
	struct mounter_answer answer = { 0 };
	int r = 0;

	pthread_mutex_lock(&keeper.lock);
	keeper.socket = socket;
	if (socket >= 0)
		r = ask_locked(&call, &answer, e);
	keeper.apart = socket >= 0 && r == 0;
	keeper.may_mount = keeper.apart && answer.flags & MOUNTER_MAY_MOUNT;
	keeper.may_beneath = keeper.apart && answer.flags & MOUNTER_MAY_BENEATH;
	if (r < 0)
		keeper.socket = -1;
	pthread_mutex_unlock(&keeper.lock);
	return r;
}

/* Of a keeper that may: an ordinary user's only keeps what it is handed. */
bool mounter_is_apart(void)
{
	return keeper.apart && keeper.may_mount;
}

bool mounter_may_mount(void)
{
	return keeper.apart ? keeper.may_mount : kernel_may_mount();
}

bool mounter_may_attach_beneath(void)
{
	return keeper.apart ? keeper.may_beneath : kernel_may_attach_beneath();
}

void mounter_label(const char *context)
{
	pthread_mutex_lock(&keeper.lock);
	keeper.label = context;
	pthread_mutex_unlock(&keeper.lock);
	kernel_label(context);
}

/* ---- mounting -------------------------------------------------------------------------------- */

int mounter_probe(const char *dir, struct err *e)
{
	struct call call = { .request.op = MOUNTER_PROBE };
	struct mounter_answer answer = { 0 };
	int r;

	if (!mounter_is_apart())
		return dir ? kernel_probe(dir, e) : kernel_probe_loop(e);
	r = set_path(&call, dir ? dir : "", e);
	return r == 0 ? ask(&call, &answer, e) : r;
}

/* Only shown: cut where it is too long. NULL: none. */
static void set_source(struct call *call, const char *source)
{
	if (source)
		(void)snprintf(call->request.source, sizeof(call->request.source), "%s", source);
}

int mounter_mount_fuse(int dev_fd, const char *source, int *ret_fd, dev_t *ret_dev, struct err *e)
{
	struct call call = {
		.request = { .op = MOUNTER_MOUNT_FUSE, .n_fds = 1 },
		.fds = &dev_fd,
		.ret_fd = ret_fd,
	};
	struct mounter_answer answer = { 0 };
	int r;

	if (!mounter_is_apart())
		return kernel_mount_fuse(dev_fd, source, ret_fd, ret_dev, e);
	set_source(&call, source);
	r = ask(&call, &answer, e);
	if (r == 0)
		*ret_dev = (dev_t)answer.dev;
	return r;
}

/* In portions: so many descriptors fit no message. */
static int send_local(const struct kernel_image *image, uint32_t *ret_n, struct err *e)
{
	uint32_t at = 0;
	int r = 0;

	while (r == 0 && image->local && at < image->extents) {
		struct call call = { .request.op = MOUNTER_LOCAL };
		struct mounter_answer answer;
		int fds[MOUNTER_FDS_MAX];
		uint32_t n = 0;

		for (; at < image->extents && n < MOUNTER_FDS_MAX; at++) {
			if (image->local[at] < 0)
				continue;
			call.request.index[n] = at;
			fds[n++] = image->local[at];
		}
		call.request.n_fds = n;
		call.fds = fds;
		call.request.flags = *ret_n == 0 ? MOUNTER_FIRST : 0;
		if (n)
			r = ask_locked(&call, &answer, e);
		*ret_n += n;
	}
	return r;
}

int mounter_mount_image(const struct kernel_image *image, int *ret_fd,
	struct kernel_superblock *ret_super, struct err *e)
{
	struct call call = {
		.request = { .op = MOUNTER_MOUNT_IMAGE,
			.number = image->extents,
			.flags = image->directio ? MOUNTER_DIRECTIO : 0,
			.n_fds = image->fuse_mount_fd >= 0 },
		.fds = &image->fuse_mount_fd,
		.ret_fd = ret_fd,
	};
	struct mounter_answer answer = { 0 };
	int r;

	if (!mounter_is_apart())
		return kernel_mount_image(image, ret_fd, ret_super, e);
	r = set_path(&call, image->path, e);
	if (r < 0)
		return r;
	set_source(&call, image->source);
	pthread_mutex_lock(&keeper.lock); /* the devices and their image belong together */
	r = send_local(image, &call.request.local, e);
	if (r == 0)
		r = ask_locked(&call, &answer, e);
	pthread_mutex_unlock(&keeper.lock);
	if (r == 0)
		*ret_super = (struct kernel_superblock){
			.dev = (dev_t)answer.dev,
			.number = answer.number,
		};
	return r;
}

int mounter_mount_loop(int fuse_mount_fd, const char *name, const char *source, int *ret_fd,
	struct kernel_superblock *ret_super, struct err *e)
{
	struct call call = {
		.request = { .op = MOUNTER_MOUNT_LOOP, .n_fds = 1 },
		.fds = &fuse_mount_fd,
		.ret_fd = ret_fd,
	};
	struct mounter_answer answer = { 0 };
	int r;

	if (!mounter_is_apart())
		return kernel_mount_loop(fuse_mount_fd, name, source, ret_fd, ret_super, e);
	r = set_path(&call, name, e);
	set_source(&call, source);
	if (r == 0)
		r = ask(&call, &answer, e);
	if (r == 0)
		*ret_super = (struct kernel_superblock){
			.dev = (dev_t)answer.dev,
			.number = answer.number,
		};
	return r;
}

int mounter_hand(int dev_fd, dev_t dev, struct err *e)
{
	struct call call = {
		.request = { .op = MOUNTER_HAND, .n_fds = 1, .fuse_dev = dev },
		.fds = &dev_fd,
	};
	struct mounter_answer answer = { 0 };

	return keeper.apart ? ask(&call, &answer, e) : 0;
}

int mounter_newer(char ret_why[ERR_TEXT_MAX], struct err *e)
{
	struct call call = { .request.op = MOUNTER_NEWER, .ns = HELLO_NS };
	struct mounter_answer answer = { 0 };
	int r = mounter_is_apart() ? ask(&call, &answer, e) : -EOPNOTSUPP;

	if (r == 0)
		memcpy(ret_why, answer.text, ERR_TEXT_MAX); /* it ends */
	return r;
}

/* ---- mount points ---------------------------------------------------------------------------- */

static int attach_call(const struct mounter_attach *attach, struct call *call, struct err *e)
{
	if (strlen(attach->key) >= sizeof(call->request.key))
		return err_set(e, -EINVAL, "the superblock's key is too long: %s", attach->key);
	memcpy(call->request.key, attach->key, strlen(attach->key) + 1);
	call->request.point_dev = attach->point_dev;
	call->request.fuse_dev = attach->fuse_dev;
	call->request.flags = attach->replace ? MOUNTER_REPLACE : 0;
	return set_path(call, attach->mountpoint, e);
}

static int attach_alone(const struct mounter_attach *attach, struct err *e)
{
	int r = attach->replace ? kernel_attach_beneath(attach->mount_fd, attach->point_fd, e)
				: kernel_attach(attach->mount_fd, attach->point_fd, e);

	if (r < 0 || !attach->replace)
		return r;
	r = kernel_detach(attach->point_fd);
	return r < 0 ? err_set(e, r, "%s cannot be unmounted: %s", attach->mountpoint, err_str(r))
		     : 0;
}

int mounter_attach(const struct mounter_attach *attach, struct err *e)
{
	int fds[2] = { attach->mount_fd, attach->point_fd };
	struct call call = { .request = { .op = MOUNTER_ATTACH, .n_fds = 2 }, .fds = fds };
	struct mounter_answer answer = { 0 };
	int r;

	if (!mounter_is_apart())
		return attach_alone(attach, e);
	r = attach_call(attach, &call, e);
	return r == 0 ? ask(&call, &answer, e) : r;
}

int mounter_share(const struct mounter_attach *attach, struct err *e)
{
	struct call call = {
		.request = { .op = MOUNTER_SHARE, .n_fds = 1 },
		.fds = &attach->point_fd,
	};
	struct mounter_answer answer = { 0 };
	int r;

	if (!mounter_is_apart())
		return -ENOENT;
	r = attach_call(attach, &call, e);
	return r == 0 ? ask(&call, &answer, e) : r;
}

int mounter_switch(int mount_fd, const char *mountpoint, dev_t from, dev_t to, struct err *e)
{
	struct call call = {
		.request = { .op = MOUNTER_SWITCH,
			.n_fds = mount_fd >= 0,
			.point_dev = to,
			.fuse_dev = from },
		.fds = &mount_fd,
	};
	struct mounter_answer answer = { 0 };
	int r;

	if (!mounter_is_apart())
		return mount_fd < 0 ? kernel_switch_end(mountpoint, from, to, e)
				    : kernel_switch(mount_fd, mountpoint, from, to, e);
	r = set_path(&call, mountpoint, e);
	return r == 0 ? ask(&call, &answer, e) : r;
}

int mounter_any_point(void)
{
	struct call call = { .request.op = MOUNTER_ANY_POINT };
	struct mounter_answer answer = { 0 };

	return mounter_is_apart() ? ask(&call, &answer, NULL) : -ENOENT;
}

/* ---- connections ----------------------------------------------------------------------------- */

uint32_t mounter_background(dev_t fuse_dev, uint32_t wanted)
{
	struct call call = {
		.request = { .op = MOUNTER_CONNECTION, .fuse_dev = fuse_dev, .number = wanted },
	};
	struct mounter_answer answer = { 0 };

	if (!mounter_is_apart())
		return kernel_background(fuse_dev);
	return ask(&call, &answer, NULL) == 0 ? answer.number : 0;
}

int mounter_fuse_read_ahead(dev_t fuse_dev)
{
	struct call call = {
		.request = { .op = MOUNTER_CONNECTION,
			.fuse_dev = fuse_dev,
			.flags = MOUNTER_READ_AHEAD },
	};
	struct mounter_answer answer = { 0 };

	return mounter_is_apart() ? ask(&call, &answer, NULL) : kernel_fuse_read_ahead(fuse_dev);
}
