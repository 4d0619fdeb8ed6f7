/*
 * bench-reader: reads files as a training process does and says how fast.
 *
 *	bench-reader --mode small --threads 4 --seed 1 DIR	every file in random order
 *	bench-reader --mode sequential FILE			one file in order, by 1 MiB
 *	bench-reader --mode random --count 20000 FILE		4 KiB at random places
 *	bench-reader --mode open DIR				open, fstat, close every file
 *	bench-reader --mode walk DIR				list and lstat all, as find -ls does
 *
 * Prints one JSON line: files, bytes, seconds, CPU seconds of its own, milliseconds of a single file
 * (median, 99th percentile and worst, mode small), errors, files with wrong bytes. The list of files is made before the clock
 * starts (which warms names; --list FILE takes it from a file made earlier instead).
 *
 * Mode small compares what it reads: with --synthetic PREFIX each byte with that of the object PREFIX + relative path
 * (tests/tools/s3d.h); with --sums FILE the checksum of each file with the one in FILE, which the first run writes.
 */
#include "base/buf.h"
#include "base/clock.h"
#include "base/cleanup.h"
#include "base/hash.h"
#include "base/option.h"
#include "base/units.h"
#include "bench/cpu.h"
#include "tests/tools/s3d_noise.h"

#include <dirent.h>
#include <fcntl.h>
#include <fts.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/stat.h>

#define READ_BYTES   MiB
#define RANDOM_BYTES 4096u
#define FILES_MAX    20000000u
#define DEPTH_MAX    64u /* descriptors of a walk */
#define SUM_DIGITS   16
#define WRONG_SHOWN  10u /* lines on standard error */

struct options {
	const char *mode;
	const char *list;
	const char *synthetic;
	const char *sums;
	uint64_t threads;
	uint64_t seed;
	uint64_t count;
};

static const struct option_spec specs[] = {
	OPTION_ROW(struct options, mode, "mode", OPTION_CHOICE,
		.choices = "small|sequential|random|open|walk", .help = "what to do"),
	OPTION_STRING_ROW(struct options, list, "list", "FILE",
		"relative paths to read, one a line, instead of a walk"),
	OPTION_STRING_ROW(struct options, synthetic, "synthetic", "PREFIX",
		"compare each file with the synthetic object of key PREFIX + relative path"),
	OPTION_STRING_ROW(struct options, sums, "sums", "FILE",
		"compare each file with its checksum in FILE; written if it does not exist"),
	OPTION_ROW(struct options, threads, "threads", OPTION_UINT, .min = 1, .max = 256,
		.help = "readers"),
	OPTION_ROW(struct options, seed, "seed", OPTION_UINT,
		.help = "of the random order; 0: sorted order"),
	OPTION_ROW(struct options, count, "count", OPTION_UINT,
		.help = "reads of --mode random; files of small (0: all)"),
};

static const struct option_set option_set = { .program = "bench-reader",
	.arguments = "PATH",
	.about = "Reads files as a training process does and says how fast.",
	.specs = specs,
	.n = ARRAY_SIZE(specs),
	.min_args = 1,
	.max_args = 1 };

struct file {
	char *path;
	uint64_t sum; /* of its bytes, with --sums: expected, or found by the first run */
};

struct work {
	const struct options *options;
	const char *root;
	const char *noise; /* with --synthetic */
	bool sums_known;
	struct file *files;
	size_t n;
	_Atomic size_t next;
	_Atomic uint64_t bytes;
	_Atomic uint64_t errors;
	_Atomic uint64_t wrong;
	uint64_t *took_ns; /* of each file */
};

/* xorshift64* (Vigna 2016): repeatable orders. */
static uint64_t next_random(uint64_t *state)
{
	*state ^= *state >> 12;
	*state ^= *state << 25;
	*state ^= *state >> 27;
	return *state * 0x2545F4914F6CDD1Dull;
}

static int add_file(struct work *w, const char *path, uint64_t sum)
{
	if (w->n % 4096 == 0) {
		struct file *more = realloc(w->files, (w->n + 4096) * sizeof(*more));

		if (!more)
			return -ENOMEM;
		w->files = more;
	}
	if (w->n == FILES_MAX)
		return -E2BIG;
	w->files[w->n] = (struct file){ .path = strdup(path), .sum = sum };
	return w->files[w->n++].path ? 0 : -ENOMEM;
}

static int list_walk(struct work *w, char *root)
{
	char *roots[] = { root, NULL };
	FTS *fts = fts_open(roots, FTS_PHYSICAL | FTS_NOCHDIR | FTS_NOSTAT, NULL);
	FTSENT *entry;
	int r = 0;

	if (!fts)
		return err_errno();
	while (r == 0 && (entry = fts_read(fts)) != NULL)
		if (entry->fts_info == FTS_NSOK || entry->fts_info == FTS_F)
			r = add_file(w, entry->fts_path, 0);
	(void)fts_close(fts); /* read only */
	return r;
}

/* Lines `PATH`, or `SUM PATH` with 16 hex digits. */
static int list_file(struct work *w, const char *list, bool sums)
{
	_cleanup_fclose_ FILE *f = fopen(list, "re");
	_cleanup_free_ char *line = NULL;
	size_t size = 0;
	ssize_t n;
	int r = 0;

	if (!f)
		return err_errno();
	while (r == 0 && (n = getline(&line, &size, f)) > 0) {
		_cleanup_free_ char *path = NULL;
		const char *name = line;
		uint64_t sum = 0;

		if (line[n - 1] == '\n')
			line[n - 1] = '\0';
		if (sums) {
			if (n < SUM_DIGITS + 1)
				return -EINVAL;
			line[SUM_DIGITS] = '\0';
			r = hash_unhex(line, &sum, sizeof(sum));
			if (r < 0)
				return r;
		}
		name += sums ? SUM_DIGITS + 1 : 0;
		r = asprintf(&path, "%s/%s", w->root, name) < 0 ? -ENOMEM : add_file(w, path, sum);
	}
	return r;
}

static const char *relative(const struct work *w, const struct file *file)
{
	const char *name = file->path + strlen(w->root);

	return name + strspn(name, "/");
}

static int write_sums(const struct work *w)
{
	_cleanup_fclose_ FILE *f = fopen(w->options->sums, "we");

	if (!f)
		return err_errno();
	for (size_t i = 0; i < w->n; i++) {
		char sum[SUM_DIGITS + 1];

		hash_hex(&w->files[i].sum, sizeof(w->files[i].sum), sum);
		fprintf(f, "%s %s\n", sum, relative(w, &w->files[i]));
	}
	return fflush(f) == 0 ? 0 : err_errno();
}

static int compare_paths(const void *a, const void *b)
{
	return strcmp(((const struct file *)a)->path, ((const struct file *)b)->path);
}

static void shuffle(struct work *w)
{
	uint64_t state = w->options->seed;

	if (w->n == 0)
		return;
	qsort(w->files, w->n, sizeof(*w->files), compare_paths);
	for (size_t i = w->n; state && i > 1; i--) {
		size_t j = next_random(&state) % i;
		struct file swap = w->files[i - 1];

		w->files[i - 1] = w->files[j];
		w->files[j] = swap;
	}
}

/* What was read of a file, against what is expected. */
struct comparison {
	uint64_t start; /* of the synthetic object, in the noise */
	uint64_t done;
	uint64_t sum;
	bool wrong;
};

static void compare_begin(struct comparison *c, const struct work *w, const struct file *file)
{
	char key[4096];

	*c = (struct comparison){ 0 };
	if (!w->noise)
		return;
	/* One that is cut is of another object, whose bytes differ. */
	(void)snprintf(key, sizeof(key), "%s%s", w->options->synthetic, relative(w, file));
	c->start = s3d_noise_start(key, 0);
}

static void compare_block(struct comparison *c, const struct work *w, const char *data, size_t n)
{
	if (w->noise && memcmp(data, w->noise + (c->start + c->done) % S3D_NOISE_BYTES, n) != 0)
		c->wrong = true;
	if (w->options->sums)
		c->sum = hash_xxh3(data, n, c->sum);
	c->done += n;
}

static void compare_end(struct comparison *c, struct work *w, struct file *file)
{
	if (w->sums_known && c->sum != file->sum)
		c->wrong = true;
	file->sum = c->sum;
	if (c->wrong && atomic_fetch_add(&w->wrong, 1) < WRONG_SHOWN)
		fprintf(stderr, "bench-reader: wrong bytes: %s\n", file->path);
}

static void read_file(struct work *w, size_t i, char *buffer)
{
	uint64_t started = clock_mono_ns();
	struct file *file = &w->files[i];
	int fd = open(file->path, O_RDONLY | O_CLOEXEC);
	struct comparison c;
	ssize_t n = -1;

	compare_begin(&c, w, file);
	while (fd >= 0 && (n = read(fd, buffer, READ_BYTES)) > 0)
		compare_block(&c, w, buffer, (size_t)n);
	atomic_fetch_add(&w->bytes, c.done);
	if (n < 0)
		atomic_fetch_add(&w->errors, 1);
	else
		compare_end(&c, w, file);
	if (fd >= 0)
		(void)close(fd); /* read only */
	w->took_ns[i] = clock_mono_ns() - started;
}

static int compare_ns(const void *a, const void *b)
{
	const uint64_t *x = a;
	const uint64_t *y = b;

	return (*x > *y) - (*x < *y);
}

/* Milliseconds within which so many percent of the files were read; took_ns is sorted. */
static double took_ms(const struct work *w, size_t percent)
{
	size_t rank = (w->n * percent + 99) / 100;

	return w->took_ns && rank ? (double)w->took_ns[rank - 1] / 1e6 : 0;
}

static void open_file(struct work *w, const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct stat st;

	if (fd < 0 || fstat(fd, &st) != 0)
		atomic_fetch_add(&w->errors, 1);
	if (fd >= 0)
		(void)close(fd); /* read only */
}

static void walk(struct work *w, int at, const char *name, unsigned int depth)
{
	int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	const struct dirent *entry;
	struct stat st;

	if (!dir || depth == DEPTH_MAX) {
		atomic_fetch_add(&w->errors, 1);
		if (dir)
			(void)closedir(dir); /* read only */
		else if (fd >= 0)
			(void)close(fd); /* as above */
		return;
	}
	while ((entry = readdir(dir)) != NULL) {
		if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
			continue;
		w->n++;
		if (fstatat(dirfd(dir), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0)
			atomic_fetch_add(&w->errors, 1);
		else if (S_ISDIR(st.st_mode))
			walk(w, dirfd(dir), entry->d_name, depth + 1);
	}
	(void)closedir(dir); /* read only */
}

static void *run_files(void *arg)
{
	struct work *w = arg;
	bool only_open = strcmp(w->options->mode, "open") == 0;
	_cleanup_free_ char *buffer = malloc(READ_BYTES);
	size_t i;

	while (buffer && (i = atomic_fetch_add(&w->next, 1)) < w->n)
		if (only_open)
			open_file(w, w->files[i].path);
		else
			read_file(w, i, buffer);
	return NULL;
}

static void *run_random(void *arg)
{
	struct work *w = arg;
	uint64_t state = w->options->seed ? w->options->seed : 1;
	_cleanup_close_ int fd = w->n ? open(w->files[0].path, O_RDONLY | O_CLOEXEC) : -1;
	char buffer[RANDOM_BYTES];
	struct stat st;
	size_t i;

	if (fd < 0 || fstat(fd, &st) != 0 || st.st_size < RANDOM_BYTES) {
		atomic_fetch_add(&w->errors, 1);
		return NULL;
	}
	while ((i = atomic_fetch_add(&w->next, 1)) < w->options->count) {
		off_t at = (off_t)(next_random(&state) % ((uint64_t)st.st_size / RANDOM_BYTES) *
				   RANDOM_BYTES);

		state += i; /* threads with one seed read different places */
		if (pread(fd, buffer, sizeof(buffer), at) != (ssize_t)sizeof(buffer))
			atomic_fetch_add(&w->errors, 1);
		else
			atomic_fetch_add(&w->bytes, sizeof(buffer));
	}
	return NULL;
}

static void run_threads(struct work *w, void *(*fn)(void *arg))
{
	pthread_t threads[256];
	size_t started = 0;

	while (started < w->options->threads && pthread_create(&threads[started], NULL, fn, w) == 0)
		started++;
	if (started == 0)
		(void)fn(w); /* no thread to be had: this one reads */
	for (size_t i = 0; i < started; i++)
		pthread_join(threads[i], NULL);
}

static int prepare_comparison(struct work *w)
{
	if (strcmp(w->options->mode, "small") != 0)
		return w->options->synthetic || w->options->sums ? -EINVAL : 0;
	if (w->options->sums)
		w->sums_known = access(w->options->sums, F_OK) == 0;
	if (w->options->synthetic && !(w->noise = s3d_noise_new(READ_BYTES)))
		return -ENOMEM;
	return 0;
}

static int prepare(struct work *w, char *path)
{
	bool one = strcmp(w->options->mode, "sequential") == 0 ||
		   strcmp(w->options->mode, "random") == 0;
	int r = prepare_comparison(w);

	if (r < 0)
		return r;
	r = one                ? add_file(w, path, 0)
	    : w->sums_known    ? list_file(w, w->options->sums, true)
	    : w->options->list ? list_file(w, w->options->list, false)
			       : list_walk(w, path);
	if (r < 0)
		return r;
	shuffle(w);
	if (!one && w->options->count)
		w->n = min(w->n, (size_t)w->options->count);
	w->took_ns = calloc(w->n + 1, sizeof(*w->took_ns));
	return w->took_ns ? 0 : -ENOMEM;
}

int main(int argc, char **argv)
{
	struct options options = { .mode = "small", .threads = 1, .seed = 1 };
	struct work w = { .options = &options };
	bool walks;
	uint64_t started;
	double seconds;
	double cpu;
	int r = 0;

	(void)option_parse_or_exit(&option_set, argc, argv, &options); /* exactly one argument */
	w.root = argv[1];
	walks = strcmp(options.mode, "walk") == 0;
	if (!walks)
		r = prepare(&w, argv[1]);
	cpu = cpu_seconds();
	started = clock_mono_ns();
	if (walks)
		walk(&w, AT_FDCWD, argv[1], 0);
	else if (r == 0)
		run_threads(&w, strcmp(options.mode, "random") == 0 ? run_random : run_files);
	seconds = (double)(clock_mono_ns() - started) / 1e9;
	cpu = cpu_seconds() - cpu;
	if (r == 0 && options.sums && !w.sums_known)
		r = write_sums(&w);
	if (r < 0) {
		fprintf(stderr, "bench-reader: %s: %s\n", argv[1], err_str(r));
		return EXIT_FAILURE;
	}
	if (w.took_ns)
		qsort(w.took_ns, w.n, sizeof(*w.took_ns), compare_ns);
	printf("{\"files\": %zu, \"bytes\": %llu, \"seconds\": %.6f, \"cpu\": %.6f, "
	       "\"p50_ms\": %.3f, \"p99_ms\": %.3f, \"worst_ms\": %.3f, \"errors\": %llu, "
	       "\"wrong\": %llu}\n",
		w.n, (unsigned long long)w.bytes, seconds, cpu, took_ms(&w, 50), took_ms(&w, 99),
		took_ms(&w, 100), (unsigned long long)w.errors, (unsigned long long)w.wrong);
	return w.errors || w.wrong ? EXIT_FAILURE : EXIT_SUCCESS;
}
