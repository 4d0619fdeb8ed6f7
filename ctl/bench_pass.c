/* Threads that do one thing again and again. See bench.h. */
#include "base/cleanup.h"
#include "base/clock.h"
#include "ctl/bench.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define SAMPLES    4096u /* of a thread; later ones take the place of the first */
#define ALIGNMENT  4096u
#define LOOK_BYTES (4 * MiB)             /* of one file are read, whatever the time */
#define SCATTER    0x9e3779b97f4a7c15ull /* odd: a step that meets all blocks of a power of two */

struct running {
	const struct bench_pass *pass;
	uint64_t end;
	uint64_t blocks; /* of BENCH_BLOCKS: in all files */
	_Atomic uint64_t next;
	_Atomic unsigned int failed; /* first file, in order, that was not all read */
	pthread_mutex_t lock;
	struct bench_result *result;
};

struct worker {
	struct running *running;
	pthread_t thread;
	bool runs;
	char *buf; /* BENCH_BLOCK, aligned */
	uint64_t *samples;
	uint64_t n_samples; /* ever */
	uint64_t bytes;
	uint64_t operations;
};

double bench_rate(uint64_t count, uint64_t ns)
{
	return ns ? (double)count * (double)CLOCK_SECOND / (double)ns : 0;
}

/* ---- one operation --------------------------------------------------------------------------- */

static int do_stat(const char *path)
{
	struct stat st;

	return stat(path, &st) == 0 ? 1 : err_errno();
}

/* 1: all of it, 0: the time was over before. */
static int do_read(struct worker *w, const struct bench_file *file, bool read_it)
{
	_cleanup_close_ int fd = open(file->path, O_RDONLY | O_CLOEXEC);
	uint64_t at = 0;

	if (fd < 0)
		return err_errno();
	while (read_it && at < file->size) {
		ssize_t n = read(fd, w->buf, min(file->size - at, BENCH_BLOCK));

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return err_errno();
		if (n == 0)
			return -ENODATA;
		at += (uint64_t)n;
		w->bytes += (uint64_t)n;
		if (at < file->size && at % LOOK_BYTES == 0 && clock_mono_ns() >= w->running->end)
			return 0;
	}
	return 1;
}

/* Of `fd`, or of the file opened for it. */
static int read_block(struct worker *w, const struct bench_file *file, uint64_t block)
{
	const struct bench_pass *pass = w->running->pass;
	_cleanup_close_ int own =
		pass->op == BENCH_PARTS ? open(file->path, O_RDONLY | O_CLOEXEC) : -1;
	int fd = pass->op == BENCH_PARTS ? own : file->fd;
	ssize_t n;

	if (fd < 0)
		return err_errno();
	n = pread(fd, w->buf, pass->block, (off_t)(file->from + block * pass->block));
	if (n < 0)
		return err_errno();
	w->bytes += (uint64_t)n;
	return 1;
}

static int do_block(struct worker *w, uint64_t index)
{
	const struct bench_pass *pass = w->running->pass;
	const struct bench_set *set = pass->set;
	uint64_t block = index % w->running->blocks;

	for (unsigned int i = 0; i < set->n; i++) {
		uint64_t in_file = set->files[i].size / pass->block;

		if (block < in_file)
			return read_block(w, &set->files[i], block);
		block -= in_file;
	}
	return -EINVAL;
}

static int do_one(struct worker *w, uint64_t index)
{
	const struct bench_pass *pass = w->running->pass;
	const struct bench_file *file = &pass->set->files[index % pass->set->n];

	switch (pass->op) {
	case BENCH_STAT:
		return do_stat(file->path);
	case BENCH_OPEN:
		return do_read(w, file, false);
	case BENCH_READ:
		return do_read(w, file, true);
	case BENCH_BLOCKS:
		return do_block(w, index);
	case BENCH_SCATTER:
	case BENCH_PARTS:
		return do_block(w, index * SCATTER >> 8);
	}
	return -EINVAL;
}

/* ---- threads --------------------------------------------------------------------------------- */

static void note_failure(struct running *r, uint64_t index, int error)
{
	const struct bench_set *set = r->pass->set;
	unsigned int file = (unsigned int)(index % set->n);

	pthread_mutex_lock(&r->lock);
	atomic_store(&r->failed, min(atomic_load(&r->failed), file));
	if (error < 0 && r->result->errors++ == 0) {
		r->result->error = error;
		(void)snprintf(
			r->result->failed, PATH_MAX, "%s", set->files[file].path); /* as it was */
	}
	pthread_mutex_unlock(&r->lock);
}

static void *work(void *arg)
{
	struct worker *w = arg;
	struct running *r = w->running;
	uint64_t now = clock_mono_ns();

	do { /* once in any case: a busy machine measures little, not nothing */
		uint64_t index = atomic_fetch_add(&r->next, 1);
		uint64_t began = now;
		int done;

		if (r->pass->once && index >= r->pass->set->n)
			break;
		done = do_one(w, index);
		now = clock_mono_ns();
		if (done <= 0) {
			note_failure(r, index, done);
			continue;
		}
		w->samples[w->n_samples++ % SAMPLES] = now - began;
		w->operations++;
	} while (now < r->end);
	return NULL;
}

static int by_size(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a;
	uint64_t y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

/* At least one. */
static void sum(struct worker *workers, unsigned int n, struct bench_result *result)
{
	uint64_t *all = reallocarray(NULL, (size_t)n * SAMPLES, sizeof(*all));
	uint64_t count = 0;

	for (unsigned int i = 0; i < n; i++) {
		uint64_t mine = min(workers[i].n_samples, (uint64_t)SAMPLES);

		result->operations += workers[i].operations;
		result->bytes += workers[i].bytes;
		if (all && mine > 0)
			memcpy(all + count, workers[i].samples, mine * sizeof(*all));
		count += mine;
	}
	if (all && count > 0) {
		qsort(all, count, sizeof(*all), by_size);
		result->p50_ns = all[count / 2];
		result->p99_ns = all[min(count - 1, count * 99 / 100)];
	}
	free(all);
}

static int start(struct worker *w, struct running *running)
{
	w->running = running;
	w->buf = aligned_alloc(ALIGNMENT, BENCH_BLOCK);
	w->samples = calloc(SAMPLES, sizeof(*w->samples));
	if (!w->buf || !w->samples)
		return -ENOMEM;
	w->runs = pthread_create(&w->thread, NULL, work, w) == 0;
	return w->runs ? 0 : -EAGAIN;
}

static uint64_t blocks_of(const struct bench_pass *pass)
{
	uint64_t n = 0;

	for (unsigned int i = 0; pass->block && i < pass->set->n; i++)
		n += pass->set->files[i].size / pass->block;
	return n;
}

int bench_run(const struct bench_pass *pass, struct bench_result *ret)
{
	struct bench_result result = { 0 };
	uint64_t began = clock_mono_ns();
	struct running running = { .pass = pass,
		.end = began + pass->ns,
		.blocks = blocks_of(pass),
		.failed = pass->set->n,
		.result = &result,
		.lock = PTHREAD_MUTEX_INITIALIZER };
	struct worker *workers = calloc(pass->threads, sizeof(*workers));
	int r = workers ? 0 : -ENOMEM;

	ensure(pass->set->n > 0 && pass->threads > 0 && pass->threads <= BENCH_THREADS_MAX);
	for (unsigned int i = 0; r == 0 && i < pass->threads; i++)
		r = start(&workers[i], &running);
	for (unsigned int i = 0; workers && i < pass->threads; i++)
		if (workers[i].runs)
			pthread_join(workers[i].thread, NULL);
	result.ns = clock_mono_ns() - began;
	result.complete = (unsigned int)min(
		(uint64_t)atomic_load(&running.failed), (uint64_t)atomic_load(&running.next));
	if (workers)
		sum(workers, pass->threads, &result);
	for (unsigned int i = 0; workers && i < pass->threads; i++) {
		free(workers[i].buf);
		free(workers[i].samples);
	}
	free(workers);
	if (r == 0)
		*ret = result;
	return r;
}
