/*
 * Listing a directory tree by several threads. See file_internal.h.
 *
 * Directories to visit are a stack, so that the walk goes deep first and the stack stays short.
 * Regular files become objects, directories without any object get a marker "dir/"; links,
 * special files and what is Granary's own (protected.h) are left out and counted.
 *
 * What this process may not read is counted, too: a file is listed, and its reads fail; a directory is listed as an
 * empty one. A name whose attributes cannot be read is left out. What the listing before had is never lost by that: the
 * listing fails, as a network file system also refuses when a ticket has expired.
 */
#include "ufs/file_internal.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/utf8.h"
#include "ufs/protected.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define WALK_BATCH 512u

struct dir {
	struct list link;
	size_t len;
	char path[]; /* "" the root, else ends with '/' */
};

struct walk {
	struct ufs_file *origin;
	ufs_list_sink sink;
	void *arg;
	pthread_mutex_t lock;
	pthread_mutex_t sink_lock; /* never held together with `lock` */
	pthread_cond_t news;
	struct list dirs;
	unsigned int busy; /* threads that may still add directories */
	struct protected_paths protected;
	char root[PATH_MAX]; /* its path without links, no '/' at the end, "" for "/" */
	uint64_t skipped;
	uint64_t unreadable;
	char first[LIMIT_KEY_BYTES + 2]; /* of these, in byte order */
	int status;
	struct err err;
};

/* Objects of one thread on their way to the sink. The bytes are reserved once, so that pointers
 * into them stay. */
struct batch {
	struct buf bytes;
	uint32_t n;
	struct ufs_object objects[WALK_BATCH];
};

struct walk_job {
	struct pool_job job;
	struct walk *walk;
};

static int push_locked(struct walk *w, const char *path, size_t len)
{
	struct dir *dir = malloc(sizeof(*dir) + len + 1);

	if (!dir)
		return -ENOMEM;
	dir->len = len;
	memcpy(dir->path, path, len);
	dir->path[len] = '\0';
	list_push_front(&w->dirs, &dir->link);
	pthread_cond_signal(&w->news);
	return 0;
}

static int flush(struct walk *w, struct batch *b)
{
	int r = 0;

	if (b->n) {
		pthread_mutex_lock(&w->sink_lock);
		r = w->sink(w->arg, b->objects, b->n);
		pthread_mutex_unlock(&w->sink_lock);
	}
	b->n = 0;
	buf_clear(&b->bytes);
	return min(r, 0);
}

static int add(struct walk *w, struct batch *b, const char *key, size_t len, const struct stat *st)
{
	struct ufs_object *o = &b->objects[b->n];
	char tag[LIMIT_TAG_BYTES];
	uint32_t tag_len = ufs_file_tag(st, tag, sizeof(tag));
	size_t at = b->bytes.len;

	ensure(buf_append(&b->bytes, key, len) == 0); /* room for a full batch is there */
	ensure(buf_append(&b->bytes, tag, tag_len) == 0);
	*o = (struct ufs_object){
		.key = b->bytes.data + at,
		.key_len = (uint32_t)len,
		.size = S_ISREG(st->st_mode) ? (uint64_t)st->st_size : 0,
		.mtime_ns =
			(int64_t)st->st_mtim.tv_sec * (int64_t)CLOCK_SECOND + st->st_mtim.tv_nsec,
		.tag = b->bytes.data + at + len,
		.tag_len = tag_len,
	};
	return ++b->n == WALK_BATCH ? flush(w, b) : 0;
}

static void skip(struct walk *w, const char *path, const char *why)
{
	pthread_mutex_lock(&w->lock);
	w->skipped++;
	pthread_mutex_unlock(&w->lock);
	log_debug("listing left out", "path=\"%s%s\" why=\"%s\"", w->origin->dir, path, why);
}

static void note_unreadable(struct walk *w, const char *path)
{
	pthread_mutex_lock(&w->lock);
	if (w->unreadable++ == 0 || strcmp(path, w->first) < 0)
		(void)snprintf(w->first, sizeof(w->first), "%s", path); /* fits */
	pthread_mutex_unlock(&w->lock);
}

/* A directory that may not be read, or a name whose attributes may not. -EIO, which is transient like an origin that is
 * not reachable: the listing before had it. */
static int pass_over(struct walk *w, const char *path)
{
	size_t len = strlen(path);

	note_unreadable(w, path);
	if (!ufs_list_had(&w->origin->base, path, len - (path[len - 1] == '/')))
		return 0;
	pthread_mutex_lock(&w->lock);
	if (w->status == 0)
		w->status = err_set(&w->err, -EIO,
			"%s%s: permission denied to user %u, though it was listed before: restore "
			"the permission, or move it out of the source",
			w->origin->dir, path, geteuid());
	pthread_mutex_unlock(&w->lock);
	return -EIO;
}

static bool is_denial(int r)
{
	return r == -EACCES || r == -EPERM;
}

/* Asks the kernel, which knows of lists of access and of capabilities, where not everybody may read. */
static bool may_read(int fd, const char *name, const struct stat *st)
{
	return (st->st_mode & 0444) == 0444 || faccessat(fd, name, R_OK, AT_EACCESS) == 0 ||
	       !is_denial(err_errno());
}

static bool is_protected(const struct walk *w, const char *key, const struct stat *st)
{
	char path[PATH_MAX + LIMIT_KEY_BYTES + 2];

	(void)snprintf(path, sizeof(path), "%s/%s", w->root, key); /* fits */
	return protected_is(&w->protected, path, st);
}

/* One entry of a directory: 1 when it counts as content, 0 when left out, negative on failure. */
static int visit_entry(
	struct walk *w, struct batch *b, int fd, const struct dir *dir, const char *name)
{
	char path[LIMIT_KEY_BYTES + 2];
	size_t len = dir->len + strlen(name);
	struct stat st;
	int r;

	if (len + 1 > LIMIT_KEY_BYTES) {
		skip(w, dir->path, "path too long");
		return 0;
	}
	memcpy(path, dir->path, dir->len);
	memcpy(path + dir->len, name, len - dir->len + 1);
	if (fstatat(fd, name, &st, AT_SYMLINK_NOFOLLOW) != 0) {
		r = err_errno();
		if (is_denial(r))
			return pass_over(w, path);
		return r == -ENOENT ? 0 : r; /* removed meanwhile */
	}
	if (is_protected(w, path, &st)) {
		skip(w, path, "part of Granary");
		return 0;
	}
	if (S_ISREG(st.st_mode)) {
		if (!may_read(fd, name, &st))
			note_unreadable(w, path);
		r = add(w, b, path, len, &st);
		return r < 0 ? r : 1;
	}
	if (!S_ISDIR(st.st_mode)) {
		skip(w, path, S_ISLNK(st.st_mode) ? "symbolic link" : "special file");
		return 0;
	}
	path[len++] = '/';
	pthread_mutex_lock(&w->lock);
	r = push_locked(w, path, len);
	pthread_mutex_unlock(&w->lock);
	return r < 0 ? r : 1;
}

static bool is_dot(const char *name)
{
	return name[0] == '.' && (name[1] == '\0' || (name[1] == '.' && name[2] == '\0'));
}

static bool failed(struct walk *w)
{
	bool failed;

	pthread_mutex_lock(&w->lock);
	failed = w->status < 0;
	pthread_mutex_unlock(&w->lock);
	return failed;
}

static int read_entries(struct walk *w, struct batch *b, const struct dir *dir, DIR *stream)
{
	uint64_t content = 0;
	struct dirent *entry;
	struct stat st;
	int r;

	for (;;) {
		errno = 0;
		entry = readdir(stream); /* a stream of one thread */
		if (!entry)
			break;
		if (is_dot(entry->d_name))
			continue;
		r = visit_entry(w, b, dirfd(stream), dir, entry->d_name);
		if (r < 0)
			return r;
		content += (uint64_t)r;
		if (content % 1024 == 0 && failed(w))
			return 0;
		if (content % 1024 == 0 && ufs_list_is_over(&w->origin->base, NULL))
			return -ECANCELED;
	}
	if (errno)
		return err_errno();
	if (content || dir->len == 0)
		return 0;
	return fstat(dirfd(stream), &st) == 0 ? add(w, b, dir->path, dir->len, &st) : err_errno();
}

/* Removed or replaced since its name was read: it is no longer there to list. */
static bool is_gone(int r)
{
	return r == -ENOENT || r == -ENOTDIR || r == -ELOOP;
}

/* A directory that may not be read: listed as an empty one. */
static int visit_closed(struct walk *w, struct batch *b, const struct dir *dir)
{
	struct stat st;
	int fd;
	int r = pass_over(w, dir->path);

	if (r < 0)
		return r;
	fd = ufs_file_openat(w->origin, dir->path, O_PATH | O_DIRECTORY);
	if (fd < 0) /* nor may the one above it any more, or it was removed */
		return is_denial(fd) || is_gone(fd) ? 0 : fd;
	if (fstat(fd, &st) != 0)
		r = err_errno();
	(void)close(fd); /* nothing was written through it */
	return r < 0 ? r : add(w, b, dir->path, dir->len, &st);
}

static int visit(struct walk *w, struct batch *b, const struct dir *dir)
{
	int fd = ufs_file_openat(w->origin, dir->len ? dir->path : ".", O_RDONLY | O_DIRECTORY);
	DIR *stream;
	int r;

	if (dir->len && is_denial(fd))
		return visit_closed(w, b, dir);
	if (fd < 0)
		return dir->len && is_gone(fd) ? 0 : fd;
	if (protected_is_tier(fd)) {
		skip(w, dir->path, "tier");
		(void)close(fd); /* read only */
		return 0;
	}
	stream = fdopendir(fd);
	if (!stream) {
		r = err_errno();
		(void)close(fd); /* read only */
		return r;
	}
	r = read_entries(w, b, dir, stream);
	(void)closedir(stream); /* read only */
	return r;
}

static void fail_locked(struct walk *w, int r, const struct dir *dir)
{
	if (w->status == 0)
		w->status = err_set(&w->err, r, "directory %s%s: %s", w->origin->dir,
			dir ? dir->path : "", err_str(r));
	pthread_cond_broadcast(&w->news);
}

/* Visits directories until none is left and none can be added. */
static void walk_dirs(struct walk *w, struct batch *b)
{
	struct list *node;
	int r = 0;

	pthread_mutex_lock(&w->lock);
	while (w->status == 0) {
		node = list_pop_front(&w->dirs);
		if (!node) {
			if (w->busy == 0)
				break;
			pthread_cond_wait(&w->news, &w->lock);
			continue;
		}
		w->busy++;
		pthread_mutex_unlock(&w->lock);
		r = ufs_list_is_over(&w->origin->base, NULL)
			    ? -ECANCELED
			    : visit(w, b, list_entry(node, struct dir, link));
		pthread_mutex_lock(&w->lock);
		if (r < 0)
			fail_locked(w, r, list_entry(node, struct dir, link));
		free(list_entry(node, struct dir, link));
		if (--w->busy == 0 && list_empty(&w->dirs))
			pthread_cond_broadcast(&w->news);
	}
	pthread_mutex_unlock(&w->lock);
}

static void walk_thread(struct pool_job *job)
{
	struct walk *w = container_of(job, struct walk_job, job)->walk;
	struct batch *b = calloc(1, sizeof(*b));
	int r = -ENOMEM;

	if (b) {
		b->bytes = BUF_INIT(WALK_BATCH * (LIMIT_KEY_BYTES + LIMIT_TAG_BYTES));
		r = buf_reserve(&b->bytes, b->bytes.max);
	}
	if (r == 0) {
		walk_dirs(w, b);
		r = failed(w) ? 0 : flush(w, b);
	}
	if (r < 0) {
		pthread_mutex_lock(&w->lock);
		fail_locked(w, r, NULL);
		pthread_mutex_unlock(&w->lock);
	}
	if (b)
		buf_release(&b->bytes);
	free(b);
}

static int run_threads(struct walk *w, unsigned int n)
{
	struct walk_job jobs[FILE_THREADS_MAX];
	struct pool *pool = pool_new("ufs-walk", n, n);
	int r = pool ? 0 : -ENOMEM;
	unsigned int i;

	for (i = 0; i < n && r == 0; i++) {
		jobs[i] = (struct walk_job){ .walk = w, .job.run = walk_thread };
		r = pool_submit(pool, &jobs[i].job);
	}
	pool_free(pool);     /* waits for all */
	if (r < 0 && i <= 1) /* else the threads that there are do it all */
		return r;
	return w->status;
}

static int find_protected(struct walk *w)
{
	char link[64];
	ssize_t n;

	(void)snprintf(link, sizeof(link), "/proc/self/fd/%d", w->origin->root); /* fits */
	n = readlink(link, w->root, sizeof(w->root) - 1);
	if (n < 0)
		return err_errno();
	w->root[n == 1 ? 0 : n] = '\0'; /* 1: "/" */
	return protected_find(&w->protected);
}

static void report_unreadable(struct walk *w, bool whole)
{
	struct ufs *ufs = &w->origin->base;

	counter_set(&ufs->counters->unreadable, w->unreadable);
	(void)snprintf(ufs->first_unreadable, sizeof(ufs->first_unreadable), "%.120s",
		w->first); /* cut: for the eye */
	utf8_make_line(ufs->first_unreadable);
	if (whole && w->unreadable)
		LOG_LIMITED(LOG_WARN, "unreadable files",
			"directory=\"%s\" entries=%llu first=\"%s\" user=%u "
			"next=\"their reads fail until that user may read them and they are "
			"listed again\"",
			w->origin->dir, (unsigned long long)w->unreadable, ufs->first_unreadable,
			geteuid());
}

int ufs_file_list(struct ufs *ufs, ufs_list_sink sink, void *arg, struct err *e)
{
	struct ufs_file *origin = container_of(ufs, struct ufs_file, base);
	struct walk w = { .origin = origin, .sink = sink, .arg = arg };
	int r;

	pthread_mutex_init(&w.lock, NULL);
	pthread_mutex_init(&w.sink_lock, NULL);
	pthread_cond_init(&w.news, NULL);
	list_init(&w.dirs);
	counter_add(&ufs->counters->lists, 1);
	r = find_protected(&w);
	if (r == 0)
		r = push_locked(&w, "", 0);
	if (r == 0)
		r = run_threads(&w, min(ufs->limits.list_requests, FILE_THREADS_MAX));
	list_for_each_safe (node, &w.dirs)
		free(list_entry(node, struct dir, link));
	protected_release(&w.protected);
	counter_set(&ufs->counters->left_out, w.skipped);
	report_unreadable(&w, r == 0);
	if (w.skipped)
		log_debug("listing", "directory=\"%s\" left_out=%llu", origin->dir,
			(unsigned long long)w.skipped);
	if (w.status < 0 && e)
		*e = w.err;
	pthread_cond_destroy(&w.news);
	pthread_mutex_destroy(&w.sink_lock);
	pthread_mutex_destroy(&w.lock);
	return r < 0 ? err_default(e, r, "listing") : 0;
}
