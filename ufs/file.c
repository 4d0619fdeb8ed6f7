/*
 * The directory origin: reads files by a small pool of threads. See ufs.h.
 *
 * A file's version is its tag (device, inode, size, times). It is compared before a byte is read
 * and again after each slice, before the slice is shown to anybody. A file changed less than two
 * seconds ago may change once more within the same tick of a coarse clock; its read waits until it
 * is that old. Paths are resolved by openat2 beneath the root without links.
 */
#include "ufs/file_internal.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/file.h"
#include "ufs/protected.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define FILE_SLICE_BYTES (1u << 20)
#define FILE_YOUNG_NS    (2 * CLOCK_SECOND)
#define FILE_POLL_NS     (20 * CLOCK_MS)

static struct ufs_file *file_of(struct ufs *ufs)
{
	return container_of(ufs, struct ufs_file, base);
}

int ufs_file_openat(const struct ufs_file *origin, const char *path, int flags)
{
	int more = flags & O_PATH ? 0 : O_NOCTTY | O_NONBLOCK; /* nothing is opened by O_PATH */
	struct open_how how = {
		.flags = (uint64_t)(flags | more | O_CLOEXEC | O_NOFOLLOW),
		.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS,
	};
	long fd;

	do
		fd = syscall(SYS_openat2, origin->root, path, &how, sizeof(how));
	while (fd < 0 &&
		(errno == EINTR || errno == EAGAIN)); /* EAGAIN: a rename raced with ".." */
	return fd < 0 ? err_errno() : (int)fd;
}

static int64_t to_ns(struct timespec ts)
{
	return (int64_t)ts.tv_sec * (int64_t)CLOCK_SECOND + ts.tv_nsec;
}

uint32_t ufs_file_tag(const struct stat *st, char *out, size_t size)
{
	int n = snprintf(out, size, "f:%llu:%llu:%llu:%lld:%lld", (unsigned long long)st->st_dev,
		(unsigned long long)st->st_ino, (unsigned long long)st->st_size,
		(long long)to_ns(st->st_mtim), (long long)to_ns(st->st_ctim));

	ensure(n > 0 && (size_t)n < size); /* five numbers of 20 digits */
	return (uint32_t)n;
}

/* ---- reading --------------------------------------------------------------------------------- */

static bool is_closing(struct ufs_file *origin)
{
	bool closing;

	pthread_mutex_lock(&origin->lock);
	closing = origin->closing;
	pthread_mutex_unlock(&origin->lock);
	return closing;
}

static int stale(const struct ufs_file *origin, const char *key, struct err *e)
{
	return err_set(
		e, -ESTALE, "%s%s: the file was changed since it was listed", origin->dir, key);
}

/* Why a file is not read. What this host's file system refuses it refuses again: -EPERM is final, and so is a
 * link or another thing in the path. */
static int file_error(
	const struct ufs_file *origin, struct ufs_get *get, const char *key, int r, struct err *e)
{
	if (r == -ELOOP || r == -EXDEV || r == -ENOTDIR) {
		get->final = true;
		return stale(origin, key, e);
	}
	if (r != -EACCES && r != -EPERM)
		return err_set(e, r, "%s%s: %s", origin->dir, key, err_str(r));
	return err_set(e, -EPERM,
		"%s%s: permission denied to user %u (%s): chmod the file and the directories "
		"above it and mount again, or run the daemons as another user",
		origin->dir, key, geteuid(), err_name(r));
}

static int check_version(const struct ufs_file *origin, struct ufs_get *get, const char *key,
	int fd, struct stat *st, struct err *e)
{
	char tag[LIMIT_TAG_BYTES];
	uint32_t len;

	if (fstat(fd, st) != 0)
		return file_error(origin, get, key, err_errno(), e);
	len = ufs_file_tag(st, tag, sizeof(tag));
	if (!S_ISREG(st->st_mode) || (uint64_t)st->st_size != get->size || len != get->tag_len ||
		memcmp(tag, get->tag, len) != 0)
		return stale(origin, key, e);
	return 0;
}

/* At most two seconds; -ECANCELED when closing, 0 when the file is old enough. */
static int wait_until_old(struct ufs_file *origin, const struct stat *st, struct err *e)
{
	int64_t changed = max(to_ns(st->st_mtim), to_ns(st->st_ctim));
	uint64_t end = clock_mono_ns() + FILE_YOUNG_NS;

	while ((int64_t)clock_wall_ns() < changed + (int64_t)FILE_YOUNG_NS &&
		clock_mono_ns() < end) {
		if (is_closing(origin))
			return err_set(e, -ECANCELED, "the origin is being closed");
		clock_sleep_ns(FILE_POLL_NS);
	}
	return 0;
}

static int read_slices(
	struct ufs_file *origin, struct ufs_get *get, const char *key, int fd, struct err *e)
{
	struct stat st;
	int r = 0;

	while (get->got < get->length && r == 0) {
		size_t n = min((uint64_t)FILE_SLICE_BYTES, get->length - get->got);

		if (is_closing(origin))
			return err_set(e, -ECANCELED, "the origin is being closed");
		r = file_pread_exact(fd, (char *)get->buf + get->got, n, get->offset + get->got);
		if (r == -ENODATA)
			return stale(origin, key, e); /* it was truncated */
		if (r < 0)
			return file_error(origin, get, key, r, e);
		r = check_version(origin, get, key, fd, &st, e);
		if (r < 0)
			return r;
		get->got += n;
		if (get->on_progress && get->got < get->length)
			get->on_progress(get, get->got);
	}
	return r;
}

static int serve(struct ufs_file *origin, struct ufs_get *get, struct err *e)
{
	char key[LIMIT_KEY_BYTES + 1];
	struct stat st;
	_cleanup_close_ int fd = -1;
	int r;

	if (get->key_len > LIMIT_KEY_BYTES)
		return err_set(e, -ENAMETOOLONG, "%s: a key has at most %u bytes", origin->dir,
			LIMIT_KEY_BYTES);
	memcpy(key, get->key, get->key_len);
	key[get->key_len] = '\0';
	fd = ufs_file_openat(origin, key, O_RDONLY);
	if (fd < 0)
		return file_error(origin, get, key, fd, e);
	r = check_version(origin, get, key, fd, &st, e);
	if (r == 0)
		r = wait_until_old(origin, &st, e);
	if (r == 0)
		r = check_version(origin, get, key, fd, &st, e);
	if (r == 0)
		r = read_slices(origin, get, key, fd, e);
	return r;
}

/* ---- the queue ------------------------------------------------------------------------------- */

static struct ufs_get *next_get_locked(struct ufs_file *origin, bool *ret_low)
{
	unsigned int low = max(1u, origin->n_runners * 3 / 4);

	for (int class = UFS_DEMAND; class < UFS_CLASSES; class ++) {
		struct list *node;

		if (class != UFS_DEMAND && origin->running_low >= low)
			return NULL;
		node = list_pop_front(&origin->queues[class]);
		if (node) {
			*ret_low = class != UFS_DEMAND;
			return list_entry(node, struct ufs_get, link);
		}
	}
	return NULL;
}

static enum ufs_cause file_cause(int status)
{
	switch (status) {
	case 0:
		return UFS_CAUSE_NONE;
	case -ESTALE:
		return UFS_CAUSE_WRONG_ETAG;
	case -ENOENT:
		return UFS_CAUSE_NOT_FOUND;
	case -EACCES:
	case -EPERM:
		return UFS_CAUSE_FORBIDDEN;
	default:
		return UFS_CAUSE_OTHER;
	}
}

static void end(struct ufs_file *origin, struct ufs_get *get, int status, const struct err *e)
{
	get->cause = file_cause(status);
	ufs_count_end(&origin->base, status, get->cause, get->got);
	get->on_done(get, status, status < 0 ? e : NULL);
}

static void run(struct pool_job *job)
{
	struct file_runner *runner = container_of(job, struct file_runner, job);
	struct ufs_file *origin = runner->origin;
	struct ufs_counters *counters = origin->base.counters;
	struct ufs_get *get;
	bool low = false;

	pthread_mutex_lock(&origin->lock);
	while ((get = next_get_locked(origin, &low)) != NULL) {
		struct err e = ERR_INIT;
		int r;

		origin->running_low += low;
		pthread_mutex_unlock(&origin->lock);
		counter_sub(&counters->queued, 1);
		counter_add(&counters->in_flight, 1);
		counter_add(&counters->gets, 1);
		get->sent_ns = get->first_ns = clock_mono_ns();
		r = serve(origin, get, &e);
		counter_sub(&counters->in_flight, 1);
		end(origin, get, r, &e);
		pthread_mutex_lock(&origin->lock);
		origin->running_low -= low;
	}
	runner->busy = false;
	pthread_mutex_unlock(&origin->lock);
}

static void start_runner_locked(struct ufs_file *origin)
{
	for (unsigned int i = 0; i < origin->n_runners; i++) {
		struct file_runner *runner = &origin->runners[i];

		if (runner->busy)
			continue;
		/* The pool has as many threads and places as there are runners. */
		runner->busy = pool_submit(origin->pool, &runner->job) == 0;
		return;
	}
}

static int file_get(struct ufs *ufs, struct ufs_get *get)
{
	struct ufs_file *origin = file_of(ufs);
	int r = 0;

	list_init(&get->link);
	pthread_mutex_lock(&origin->lock);
	if (origin->closing) {
		r = -ECANCELED;
	} else {
		list_push_back(&origin->queues[get->class], &get->link);
		counter_add(&ufs->counters->queued, 1);
		start_runner_locked(origin);
	}
	pthread_mutex_unlock(&origin->lock);
	return r;
}

static void file_promote(struct ufs *ufs, struct ufs_get *get, enum ufs_class class)
{
	struct ufs_file *origin = file_of(ufs);

	pthread_mutex_lock(&origin->lock);
	if (get->link.next && !list_empty(&get->link) && class < get->class) {
		list_remove(&get->link);
		get->class = class;
		list_push_back(&origin->queues[class], &get->link);
		start_runner_locked(origin);
	}
	pthread_mutex_unlock(&origin->lock);
}

/* ---- open, probe, free ----------------------------------------------------------------------- */

struct probe {
	bool any;
};

static int probe_sink(void *arg, const struct ufs_object *objects, uint32_t n)
{
	struct probe *probe = arg;

	(void)objects;
	probe->any = n > 0;
	return -ECANCELED; /* one is enough */
}

static int file_probe(struct ufs *ufs, struct err *e)
{
	struct probe probe = { false };
	struct err why = ERR_INIT;
	int r = ufs_file_list(ufs, probe_sink, &probe, &why);

	if (probe.any)
		return 0;
	if (r < 0 && e)
		*e = why;
	if (r < 0)
		return r;
	if (*ufs->first_unreadable)
		return err_set(e, -ENOENT,
			"directory %s: user %u can read nothing in it (first: %s): chmod it, or "
			"run the daemons as another user",
			file_of(ufs)->dir, geteuid(), ufs->first_unreadable);
	if (counter_get(&ufs->counters->left_out) > 0)
		return err_set(e, -ENOENT,
			"directory %s: contains only links, special files and files of Granary, "
			"which are left out; give the directory of the files",
			file_of(ufs)->dir);
	return err_set(e, -ENOENT, "directory %s: empty; give another one", file_of(ufs)->dir);
}

static void cancel_queued(struct ufs_file *origin)
{
	struct list gets = LIST_INIT(gets);
	struct err e = ERR_INIT;
	struct list *node;

	pthread_mutex_lock(&origin->lock);
	origin->closing = true;
	for (int class = 0; class < UFS_CLASSES; class ++)
		list_splice_back(&gets, &origin->queues[class]);
	pthread_mutex_unlock(&origin->lock);
	(void)err_set(&e, -ECANCELED, "the origin is being closed");
	while ((node = list_pop_front(&gets)) != NULL) {
		counter_sub(&origin->base.counters->queued, 1);
		end(origin, list_entry(node, struct ufs_get, link), -ECANCELED, &e);
	}
}

static void file_free(struct ufs *ufs)
{
	struct ufs_file *origin = file_of(ufs);

	if (origin->pool) {
		cancel_queued(origin);
		pool_free(origin->pool);
	}
	if (origin->root >= 0)
		(void)close(origin->root); /* nothing was written through it */
	free(origin->dir);
	pthread_mutex_destroy(&origin->lock);
	ufs_base_release(ufs);
	free(origin);
}

static const struct ufs_ops file_ops = {
	.name = "file",
	.get = file_get,
	.promote = file_promote,
	.list = ufs_file_list,
	.probe = file_probe,
	.free = file_free,
};

static int open_root(struct ufs_file *origin, bool resolved, struct err *e)
{
	struct open_how how = { .flags = O_PATH | O_DIRECTORY | O_CLOEXEC,
		.resolve = resolved ? RESOLVE_NO_SYMLINKS : 0 };
	int r;

	origin->root = (int)syscall(SYS_openat2, AT_FDCWD, origin->dir, &how, sizeof(how));
	if (origin->root >= 0)
		return protected_check(origin->root, origin->dir, e);
	r = err_errno();
	if (resolved && r == -ELOOP)
		return err_set(e, r,
			"directory %s: a part of its path was replaced by a symbolic link; put the "
			"directory back",
			origin->dir);
	return err_set(e, r, "directory %s: %s; the source must be a directory that can be read",
		origin->dir, err_str(r));
}

static int open_all(struct ufs_file *origin, const struct ufs_config *config, struct err *e)
{
	int r;

	origin->dir = strdup(config->prefix);
	if (!origin->dir)
		return -ENOMEM;
	r = open_root(origin, config->resolved, e);
	if (r < 0)
		return r;
	origin->n_runners = min(origin->base.limits.max_requests, FILE_THREADS_MAX);
	for (unsigned int i = 0; i < origin->n_runners; i++) {
		origin->runners[i].job.run = run;
		origin->runners[i].origin = origin;
	}
	origin->pool = pool_new("ufs-file", origin->n_runners, origin->n_runners);
	return origin->pool ? 0 : -ENOMEM;
}

int ufs_file_open(const struct ufs_config *config, const struct ufs_limits *limits,
	struct ufs **ret_ufs, struct err *e)
{
	struct ufs_file *origin = calloc(1, sizeof(*origin));
	int r;

	if (!origin)
		return err_set(e, -ENOMEM, "file: no memory");
	pthread_mutex_init(&origin->lock, NULL);
	origin->root = -1;
	for (int class = 0; class < UFS_CLASSES; class ++)
		list_init(&origin->queues[class]);
	r = ufs_base_init(&origin->base, &file_ops, NULL, limits);
	if (r == 0)
		r = open_all(origin, config, e);
	if (r < 0) {
		file_free(&origin->base);
		return err_default(e, r, "file");
	}
	*ret_ufs = &origin->base;
	return 0;
}
