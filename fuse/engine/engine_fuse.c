/*
 * The fuse engine: we show the names and bytes of the image. As root by the calls of fsopen(2), and
 * attached when all works; as an ordinary user by fusermount3, which attaches at once.
 */
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "catalog/image_read.h"
#include "mount/kernel/kernel.h"
#include "fuse/engine/mounted_internal.h"
#include "mount/mounter.h"
#include "fuse/tree/tree_image.h"

#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define LEARN_ENTRIES  4096u /* looked at for a file to open */
#define LEARN_DEPTH    64u
#define LEARN_DEADLINE (5 * CLOCK_SECOND)

/* Root mounts by itself; where it may not, and for all others, fusermount3 does. */
static int fuse_probe(const struct engine_query *query, struct err *e)
{
	int r;

	if (!mounter_may_mount())
		return fusermount_probe(query->allow_other, e);
	r = kernel_need_filesystem("fuse", e);
	if (r == 0 && access("/dev/fuse", R_OK | W_OK) != 0)
		r = err_set(e, -ENODEV,
			"/dev/fuse cannot be opened: %m: load the module fuse, and give a "
			"container the device");
	return r;
}

static int fuse_check_point(const struct engine_query *query, struct err *e)
{
	return mounter_may_mount() ? 0 : fusermount_check_point(query->mountpoint, e);
}

/* ---- connect --------------------------------------------------------------------------------- */

static int connect_by_fusermount(struct mounted *m, int *ret_root, struct err *e)
{
	const struct fusermount_options options = {
		.mountpoint = m->config.mountpoint,
		.source = m->config.source,
		.allow_other = m->config.allow_other,
	};
	struct slots_mount *facts = slots_mount(m->config.slots);
	_cleanup_close_ int fd = -1;
	_cleanup_close_ int root = -1;
	dev_t dev = 0;
	int r = fusermount_mount(&options, &fd, e);

	if (r < 0)
		return r;
	root = open(m->config.mountpoint, O_PATH | O_DIRECTORY | O_CLOEXEC);
	r = root < 0 ? err_errno() : kernel_dev(root, "", &dev);
	if (r < 0)
		return err_set(e, r, "%s cannot be used after it was mounted: %s",
			m->config.mountpoint, err_str(r));
	facts->fuse_dev = dev;
	facts->point_dev = dev;
	r = mounted_take_device(m, fd, dev, e);
	if (r == 0)
		*ret_root = TAKE_FD(root);
	return r;
}

static int connect_by_kernel(struct mounted *m, int *ret_root, struct err *e)
{
	dev_t dev = 0;
	int r = mounted_need_device(m, e);

	if (r == 0)
		r = mounter_mount_fuse(m->config.dev_fd, m->config.source, ret_root, &dev, e);
	if (r == 0)
		slots_mount(m->config.slots)->fuse_dev = dev;
	return r;
}

static int fuse_connect(struct mounted *m, int *ret_root, struct err *e)
{
	int r;

	if (!mounter_may_mount())
		return connect_by_fusermount(m, ret_root, e);
	r = connect_by_kernel(m, ret_root, e);
	if (r != -EPERM || fusermount_probe(m->config.allow_other, NULL) < 0)
		return r;
	log_info("mounting through fusermount3", "why=\"%s\"", e ? e->text : "EPERM");
	return connect_by_fusermount(m, ret_root, e);
}

/* ---- tree ------------------------------------------------------------------------------------ */

static int open_image(struct mounted *m, struct err *e)
{
	int fd = -1;
	int r = mounted_image_open(m, &fd, e);

	return r < 0 ? r
		     : image_open(fd, slots_mount(m->config.slots)->extent_bytes,
			       &slots_sources(m->config.slots)->layout, &m->image, e);
}

static int fuse_tree(struct mounted *m, struct tree **ret_tree, struct err *e)
{
	const struct tree_image_config config = { .prime_max = m->config.prime_max };
	int r = m->config.live ? 0 : open_image(m, e);

	if (m->config.live)
		r = mounted_live_tree(m, m->config.prime_max, ret_tree, e);
	slots_mount(m->config.slots)->prime_max = m->config.prime_max;
	return r < 0 || m->config.live ? r : tree_image_new(m->image, &config, ret_tree, e);
}

static void fuse_free_tree(struct mounted *m, struct tree *tree)
{
	if (m->config.live) {
		mounted_live_free(m, tree);
	} else {
		tree_image_free(tree);
		image_close(m->image);
	}
	m->image = NULL;
	mounted_image_drop(m);
}

/* ---- finish ---------------------------------------------------------------------------------- */

/* A search for any file, first names first; its state is a path. */
struct file_search {
	struct image_view view;
	struct image *image;
	uint32_t left; /* entries that may still be looked at */
	char path[PATH_MAX];
};

static bool find_file(struct file_search *s, const struct image_inode *dir, size_t len, int depth)
{
	struct image_entry entry;
	struct image_inode inode;

	for (uint64_t cookie = 0; s->left > 0; cookie = entry.next_cookie) {
		s->left--;
		if (image_read_entry(s->image, &s->view, dir, cookie, &entry) < 0 ||
			len + entry.name_len + 2 > sizeof(s->path))
			return false;
		memcpy(s->path + len, entry.name, entry.name_len);
		s->path[len + entry.name_len] = '\0';
		if (!entry.directory)
			return true;
		s->path[len + entry.name_len] = '/';
		if (depth < (int)LEARN_DEPTH &&
			image_inode(s->image, &s->view, entry.nid, &inode) == 0 &&
			find_file(s, &inode, len + entry.name_len + 1, depth + 1))
			return true;
	}
	return false;
}

static int open_once(int root, const char *path, int flags)
{
	int fd = openat(root, path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | flags);

	if (fd < 0)
		return errno;
	(void)close(fd); /* read only */
	return 0;
}

/* Only system calls: other threads' locks were copied as they were. */
_Noreturn static void learn_main(int root, const char *file)
{
	int status;

	(void)dup2(root, 0);
	(void)close_range(1, UINT_MAX, 0); /* must not keep the connection alive */
	status = open_once(0, ".", O_DIRECTORY);
	if (status == 0 && file)
		status = open_once(0, file, 0);
	_exit(status & 0xff);
}

/*
 * Makes the kernel learn that it need not ask us about opening: it sends one OPEN and one OPENDIR
 * of a connection, and none any more once they were answered ENOSYS.
 *
 * Opens and closes the directory `root` and, unless NULL, `file` below it, in a process of its own:
 * who waits for an answer of this process must not be this process. 0, -ETIMEDOUT, or what open(2)
 * said.
 */
static int learn_to_open(int root, const char *file)
{
	uint64_t deadline = clock_mono_ns() + LEARN_DEADLINE;
	bool late = false;
	int status = 0;
	pid_t pid = fork();

	if (pid < 0)
		return err_errno();
	if (pid == 0)
		learn_main(root, file);
	for (;;) {
		pid_t got = waitpid(pid, &status, WNOHANG);

		if (got == pid)
			break;
		if (got < 0 && errno != EINTR)
			return err_errno();
		if (!late && clock_mono_ns() > deadline) {
			late = true;
			(void)kill(pid, SIGKILL);
		}
		/* What the kernel handed over already is waited for, killed or not. */
		if (late && clock_mono_ns() > deadline + LEARN_DEADLINE)
			return -ETIMEDOUT;
		clock_sleep_ns(CLOCK_MS / 4);
	}
	if (late)
		return -ETIMEDOUT;
	return WIFEXITED(status) ? -WEXITSTATUS(status) : -EIO;
}

/* Without it the kernel asks at the first open of somebody: only slower. */
static void learn(struct mounted *m, int root)
{
	struct file_search *s = calloc(1, sizeof(*s));
	struct image_inode top;
	bool found = false;
	int r = -ENOMEM;

	if (s) {
		s->image = m->image;
		s->left = LEARN_ENTRIES;
		found = image_inode(m->image, &s->view, image_root(m->image), &top) == 0 &&
			find_file(s, &top, 0, 0);
		r = learn_to_open(root, found ? s->path : NULL);
	}
	if (r < 0)
		log_warn("no first open", "error=%s effect=\"the kernel asks at the next one\"",
			err_name(r));
	free(s);
}

static void set_read_ahead(const struct mounted *m)
{
	int r = mounter_fuse_read_ahead((dev_t)slots_mount(m->config.slots)->fuse_dev);

	if (r < 0 && geteuid() == 0) /* an ordinary user has to do with the kernel's */
		log_warn("read-ahead not set", "error=%s effect=\"large reads are slower\"",
			err_name(r));
}

static int fuse_finish(struct mounted *m, int root, int *ret_shown, struct err *e)
{
	struct slots_mount *facts = slots_mount(m->config.slots);

	learn(m, root);
	set_read_ahead(m);
	if (facts->point_dev != 0) {
		*ret_shown = -1;
		return 0;
	}
	facts->point_dev = facts->fuse_dev;
	*ret_shown = fcntl(root, F_DUPFD_CLOEXEC, 0);
	return *ret_shown < 0 ? err_set(e, err_errno(), "no descriptor for the mount: %m") : 0;
}

const struct engine engine_fuse = {
	.name = "fuse",
	.option = "fuse",
	.number = 2,
	.auto_why = "FUSE",
	.probe = fuse_probe,
	.check_point = fuse_check_point,
	.connect = fuse_connect,
	.tree = fuse_tree,
	.finish = fuse_finish,
	.free_tree = fuse_free_tree,
};
