/* Files that are measured, and those they are compared with. See bench.h. */
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/hash.h"
#include "ctl/bench.h"

#include <fcntl.h>
#include <fts.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#define SEED         1u
#define MEMORY_BYTES (64 * MiB)
#define TIER_FILES   64u
#define TIER_BYTES   (1 * GiB)

/* ---- sets ------------------------------------------------------------------------------------ */

void bench_set_release(struct bench_set *set)
{
	for (unsigned int i = 0; i < set->n; i++) {
		cleanup_close(&set->files[i].fd);
		free(set->files[i].path);
	}
	free(set->files);
	*set = (struct bench_set){ 0 };
}

int bench_set_add(struct bench_set *set, const char *path, uint64_t size)
{
	struct bench_file *grown = reallocarray(set->files, set->n + 1, sizeof(*grown));

	if (!grown)
		return -ENOMEM;
	set->files = grown;
	grown[set->n] = (struct bench_file){ .path = strdup(path), .size = size, .fd = -1 };
	if (!grown[set->n].path)
		return -ENOMEM;
	set->n++;
	set->bytes += size;
	return 0;
}

/* The same order each time: two runs read alike. */
static void shuffle(struct bench_set *set)
{
	for (unsigned int i = set->n; i > 1; i--) {
		unsigned int j = (unsigned int)(hash_xxh3(&i, sizeof(i), SEED) % i);
		struct bench_file file = set->files[i - 1];

		set->files[i - 1] = set->files[j];
		set->files[j] = file;
	}
}

/* ---- of a mount ------------------------------------------------------------------------------ */

struct collecting {
	struct bench_set *small;
	struct bench_set *large;
	uint64_t bytes_max; /* of each */
	bool cut;
};

static int take(struct collecting *c, const char *path, uint64_t size)
{
	bool is_large = size > BENCH_LARGE_FROM;
	struct bench_set *set = is_large ? c->large : c->small;
	uint64_t most = min(is_large ? BENCH_LARGE_BYTES : BENCH_SMALL_BYTES, c->bytes_max);
	unsigned int files = is_large ? BENCH_LARGE_FILES : BENCH_SMALL_FILES;

	if (set->n == files || set->bytes >= most) {
		c->cut = true;
		return 0;
	}
	return bench_set_add(set, path, min(size, most - set->bytes));
}

static bool full(const struct collecting *c)
{
	return c->cut && c->small->n == BENCH_SMALL_FILES && c->large->n == BENCH_LARGE_FILES;
}

int bench_collect(const char *dir, uint64_t bytes_max, uint64_t ns, struct bench_set *small,
	struct bench_set *large, bool *ret_cut)
{
	struct collecting c = { .small = small, .large = large, .bytes_max = bytes_max };
	char *roots[] = { (char *)(uintptr_t)dir, NULL };
	uint64_t end = clock_mono_ns() + ns;
	FTS *walk = fts_open(roots, FTS_PHYSICAL | FTS_NOCHDIR | FTS_XDEV, NULL);
	const FTSENT *entry;
	int r = walk ? 0 : err_errno();

	while (r == 0 && !full(&c) && (entry = fts_read(walk))) {
		if (entry->fts_info == FTS_F && entry->fts_statp->st_size > 0)
			r = take(&c, entry->fts_path, (uint64_t)entry->fts_statp->st_size);
		else if ((entry->fts_info == FTS_DNR || entry->fts_info == FTS_NS) &&
			 entry->fts_level == 0)
			r = -entry->fts_errno;
		if (clock_mono_ns() > end) {
			c.cut = true;
			break;
		}
	}
	if (walk)
		(void)fts_close(walk); /* nothing was written */
	shuffle(small);
	shuffle(large);
	*ret_cut = c.cut;
	return r;
}

void bench_drop(const struct bench_set *set)
{
	for (unsigned int i = 0; i < set->n; i++) {
		_cleanup_close_ int fd = open(set->files[i].path, O_RDONLY | O_CLOEXEC);

		if (fd >= 0)
			(void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED); /* what stays is told
									       by the counters */
	}
}

/* ---- of this machine ------------------------------------------------------------------------- */

static int fill(int fd)
{
	_cleanup_free_ char *bytes = malloc(BENCH_BLOCK);

	if (!bytes)
		return -ENOMEM;
	memset(bytes, 0x5a, BENCH_BLOCK); /* pages of zeros might be shared */
	for (uint64_t at = 0; at < MEMORY_BYTES; at += BENCH_BLOCK)
		if (pwrite(fd, bytes, BENCH_BLOCK, (off_t)at) != (ssize_t)BENCH_BLOCK)
			return err_errno();
	return 0;
}

/* As much of a tier's first file, read through the page cache. */
static int remember(const struct bench_file *of, struct bench_set *set)
{
	_cleanup_close_ int fd = open(of->path, O_RDONLY | O_CLOEXEC);
	_cleanup_free_ char *bytes = malloc(BENCH_BLOCK);
	uint64_t size = min(of->size, MEMORY_BYTES);
	int r = fd < 0 ? err_errno() : bytes ? 0 : -ENOMEM;

	for (uint64_t at = 0; r == 0 && at < size; at += BENCH_BLOCK)
		r = file_pread_exact(fd, bytes, BENCH_BLOCK, of->from + at);
	if (r == 0)
		r = bench_set_add(set, of->path, size);
	if (r < 0)
		return r;
	set->files[0].from = of->from;
	set->files[0].fd = TAKE_FD(fd);
	return 0;
}

int bench_memory_open(const struct bench_set *tier, struct bench_set *set)
{
	char path[64];
	int fd;
	int r;

	if (tier->n > 0 && remember(&tier->files[0], set) == 0)
		return 0;
	fd = memfd_create("granary-bench", MFD_CLOEXEC);
	r = fd < 0 ? err_errno() : fill(fd);
	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd); /* fits */
	if (r == 0)
		r = bench_set_add(set, path, MEMORY_BYTES);
	if (r == 0)
		set->files[0].fd = TAKE_FD(fd);
	cleanup_close(&fd);
	return r;
}

int bench_local_open(struct bench_set *set)
{
	char path[PATH_MAX];
	ssize_t len = readlink("/proc/self/exe", path, sizeof(path) - 1);

	if (len < 0)
		return err_errno();
	path[len] = '\0';
	return bench_set_add(set, path, 1);
}

/* What is written of the file, from the first byte that is on to the next hole, in whole blocks: what was
 * never written is read faster than any disk can. */
static uint64_t written(int fd, uint64_t *ret_from)
{
	off_t data = lseek(fd, 0, SEEK_DATA);
	off_t hole = data < 0 ? -1 : lseek(fd, data, SEEK_HOLE);
	uint64_t from;

	if (hole < 0)
		return 0; /* nothing */
	from = ((uint64_t)data + BENCH_BLOCK - 1) & ~(BENCH_BLOCK - 1);
	*ret_from = from;
	return (uint64_t)hole > from ? ((uint64_t)hole - from) & ~(BENCH_BLOCK - 1) : 0;
}

static int add_open(struct bench_set *set, const char *path, bool *direct)
{
	_cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC | O_DIRECT);
	uint64_t from = 0;
	uint64_t size;
	int r;

	if (fd < 0 && errno == EINVAL) { /* a tier in memory */
		*direct = false;
		fd = open(path, O_RDONLY | O_CLOEXEC);
	}
	if (fd < 0)
		return err_errno();
	size = min(written(fd, &from), TIER_BYTES - set->bytes);
	if (size == 0)
		return 0;
	r = bench_set_add(set, path, size);
	if (r < 0)
		return r;
	set->files[set->n - 1].from = from;
	set->files[set->n - 1].fd = TAKE_FD(fd);
	return 0;
}

int bench_tier_open(const char *tier, struct bench_set *set, bool *ret_direct, struct err *e)
{
	char *roots[] = { (char *)(uintptr_t)tier, NULL };
	FTS *walk = fts_open(roots, FTS_PHYSICAL | FTS_NOCHDIR | FTS_XDEV, NULL);
	const FTSENT *entry;
	int r = walk ? 0 : err_errno();

	*ret_direct = true;
	while (r == 0 && set->n < TIER_FILES && set->bytes < TIER_BYTES &&
		(entry = fts_read(walk))) {
		if (entry->fts_info == FTS_DNR)
			r = -entry->fts_errno;
		else if (entry->fts_info == FTS_F &&
			 entry->fts_statp->st_size >= (off_t)BENCH_BLOCK)
			r = add_open(set, entry->fts_path, ret_direct);
	}
	if (walk)
		(void)fts_close(walk); /* read only */
	if (r == -EACCES || r == -EPERM)
		return err_set(e, r, "%s belongs to the worker's user: run as root", tier);
	if (r < 0)
		return err_set(e, r, "%s: %s", tier, err_str(r));
	return set->n > 0 ? 0
			  : err_set(e, -ENODATA, "%s has no complete file of %u KiB or more yet",
				    tier, (unsigned int)(BENCH_BLOCK / KiB));
}
