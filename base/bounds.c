/* Counts with a maximum. See bounds.h. */
#include "base/bounds.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/file.h"
#include "base/limits.h"
#include "base/log.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define STATUS_BYTES       65536u
#define DESCRIPTORS_USEFUL (8u * LIMIT_CHUNK_FDS) /* chunk files and connections of a daemon */

static struct {
	_Atomic uint64_t used;
	_Atomic uint64_t peak;
	_Atomic uint64_t max;
} bounds[N_BOUNDS];

static _Atomic bool mostly_connections;

static const char *const names[N_BOUNDS] = {
#define BOUND_NAME(bound, name, help) [BOUND_##bound] = (name),
	BOUNDS(BOUND_NAME)
#undef BOUND_NAME
};

void bound_raise_max(enum bound bound, uint64_t by)
{
	atomic_fetch_add(&bounds[bound].max, by);
}

static void note_peak(enum bound bound, uint64_t used)
{
	uint64_t peak = atomic_load(&bounds[bound].peak);

	while (peak < used && !atomic_compare_exchange_weak(&bounds[bound].peak, &peak, used))
		;
}

void bound_add(enum bound bound, uint64_t n)
{
	note_peak(bound, atomic_fetch_add(&bounds[bound].used, n) + n);
}

bool bound_take(enum bound bound, uint64_t n, uint64_t max)
{
	uint64_t used = atomic_load(&bounds[bound].used);

	do {
		if (n > max || used > max - n)
			return false;
	} while (!atomic_compare_exchange_weak(&bounds[bound].used, &used, used + n));
	note_peak(bound, used + n);
	return true;
}

void bound_sub(enum bound bound, uint64_t n)
{
	ensure(atomic_fetch_sub(&bounds[bound].used, n) >= n);
}

uint64_t bound_used(enum bound bound)
{
	return atomic_load(&bounds[bound].used);
}

void bound_use(enum bound bound, struct bound_use *ret_use)
{
	*ret_use = (struct bound_use){ names[bound], atomic_load(&bounds[bound].used),
		atomic_load(&bounds[bound].peak), atomic_load(&bounds[bound].max) };
}

/* ---- what the kernel counts ------------------------------------------------------------------ */

static uint64_t descriptors_max(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
		return UINT32_MAX;
	return limit.rlim_cur;
}

uint32_t bounds_descriptor_share(uint32_t least, uint32_t most)
{
	return (uint32_t)max(min(descriptors_max() / 4, (uint64_t)most), (uint64_t)least);
}

uint32_t bounds_connection_share(uint32_t least, uint32_t most)
{
	uint64_t share = descriptors_max() / 4 * (atomic_load(&mostly_connections) ? 3 : 1);

	return (uint32_t)max(min(share, (uint64_t)most), (uint64_t)least);
}

int bounds_check_descriptors(struct err *e)
{
	uint64_t there = descriptors_max();

	if (there >= LIMIT_DESCRIPTORS_LEAST)
		return 0;
	return err_set(e, -EMFILE,
		"%llu open files are too few: at least %u are needed: raise the limit (ulimit -n)",
		(unsigned long long)there, LIMIT_DESCRIPTORS_LEAST);
}

static void raise_to(rlim_t useful, const char *effect)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= useful)
		return;
	limit.rlim_cur = min(useful, limit.rlim_max);
	if (setrlimit(RLIMIT_NOFILE, &limit) != 0)
		log_warn("descriptors not raised", "cause=%s effect=\"%s\"", err_name(err_errno()),
			effect);
}

void bounds_raise_descriptors(void)
{
	raise_to(DESCRIPTORS_USEFUL, "fewer chunk files stay open");
}

void bounds_mostly_connections(void)
{
	atomic_store(&mostly_connections, true);
	raise_to((rlim_t)LIMIT_CONNS / 3 * 4 + 4, "fewer workers and mounts can connect");
}

void bounds_descriptors(struct bound_use *ret_use)
{
	DIR *dir = opendir("/proc/self/fd");
	uint64_t n = 0;

	*ret_use = (struct bound_use){ .name = "descriptors", .max = descriptors_max() };
	if (!dir)
		return;
	while (readdir(dir)) // NOLINT(concurrency-mt-unsafe): a stream of our own
		n++;
	(void)closedir(dir);               /* only read */
	ret_use->used = n > 3 ? n - 3 : 0; /* without ".", ".." and its own */
}

void bounds_maps(struct bound_use *ret_use)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(64);
	_cleanup_close_ int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
	char part[4096];
	ssize_t n;

	*ret_use = (struct bound_use){ .name = "maps" };
	if (file_read_all("/proc/sys/vm/max_map_count", &text) == 0)
		ret_use->max = strtoull(buf_str(&text), NULL, 10);
	while (fd >= 0 && (n = read(fd, part, sizeof(part))) > 0)
		for (ssize_t i = 0; i < n; i++)
			ret_use->used += part[i] == '\n';
}

void bounds_threads(struct bound_use *ret_use)
{
	static const char title[] = "\nThreads:";
	_cleanup_(buf_release) struct buf text = BUF_INIT(STATUS_BYTES);
	const char *line = NULL;

	*ret_use = (struct bound_use){ .name = "all_threads" };
	if (file_read_all("/proc/self/status", &text) == 0)
		line = strstr(buf_str(&text), title);
	if (line)
		ret_use->used = strtoull(line + strlen(title), NULL, 10);
}
