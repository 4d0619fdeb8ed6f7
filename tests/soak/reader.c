/*
 * soak-reader: reads synthetic objects (tests/tools/s3d.h) below a mount in every way, for as long
 * as it is told, and compares every byte.
 *
 *	soak-reader --list FILE --threads 16 --open 1000 --reads 1000000 --seed 1 DIR
 *
 * FILE has a line `SIZE KEY` for each object; DIR shows the bucket below `--prefix`. Each thread
 * holds its share of open files; a read takes one of them (one in eight is closed first and another
 * file opened) and gets a part with pread(2), the whole file with read(2), or a part through a
 * mapping. `--cold` percent of the reads have the kernel forget the pages first, so that the
 * daemons are asked.
 *
 * Prints a JSON line every `--progress` seconds (or `--sample` milliseconds) and one at the end: reads, bytes, wrong, errors,
 * seconds, worst_ms; lately_ms is the longest read that ended since the line before. What is wrong is also said on standard error, the first WORDS_MAX times.
 * SIGTERM ends it as the time's end does. Exit 1 when a byte was wrong or a read failed.
 */
#include "base/clock.h"
#include "base/cleanup.h"
#include "base/option.h"
#include "base/units.h"
#include "tests/tools/s3d_noise.h"

#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define THREADS_MAX  256u
#define PART_MAX     (512u * 1024u) /* largest part of a file read at once; noise wraps above */
#define WORDS_MAX    50u
#define TICK_NS      (100 * CLOCK_MS)
#define PAGE         4096ull
#define CHANGES_OF_8 1u /* reads of 8 that open another file first */

struct options {
	const char *list;
	const char *prefix;
	uint64_t threads;
	uint64_t open;
	uint64_t reads;
	uint64_t seconds;
	uint64_t rate;
	uint64_t cold;
	uint64_t seed;
	uint64_t progress;
	uint64_t sample;
};

static const struct option_spec specs[] = {
	OPTION_ROW(struct options, list, "list", OPTION_STRING, .metavar = "FILE", .required = true,
		.help = "the objects, a line `SIZE KEY` each"),
	OPTION_STRING_ROW(
		struct options, prefix, "prefix", "TEXT", "what of the keys was mounted away"),
	OPTION_ROW(struct options, threads, "threads", OPTION_UINT, .min = 1, .max = THREADS_MAX,
		.help = "readers"),
	OPTION_ROW(struct options, open, "open", OPTION_UINT, .min = 1, .max = 100000,
		.help = "files held open, at least one by each reader"),
	OPTION_ROW(struct options, reads, "reads", OPTION_UINT,
		.help = "end after so many (0: no such end)"),
	OPTION_ROW(struct options, seconds, "seconds", OPTION_UINT,
		.help = "end after so long (0: no such end)"),
	OPTION_ROW(struct options, rate, "rate", OPTION_UINT,
		.help = "reads per second at most (0: as they come)"),
	OPTION_ROW(struct options, cold, "cold", OPTION_UINT, .max = 100,
		.help = "percent of the reads that the kernel's cache must not answer"),
	OPTION_ROW(struct options, seed, "seed", OPTION_UINT, .help = "of all choices"),
	OPTION_ROW(struct options, progress, "progress", OPTION_UINT,
		.help = "seconds between lines (0: only the last)"),
	OPTION_ROW(struct options, sample, "sample", OPTION_UINT, .max = 1000,
		.help = "milliseconds between lines, in place of --progress"),
};

static const struct option_set option_set = { .program = "soak-reader",
	.arguments = "DIR",
	.about = "Reads synthetic objects below a mount and compares every byte.",
	.specs = specs,
	.n = ARRAY_SIZE(specs),
	.min_args = 1,
	.max_args = 1 };

struct object {
	char *key;
	const char *name; /* below the mount; in the key */
	uint64_t size;
	uint64_t start; /* in the noise */
};

struct work {
	const struct options *options;
	const char *dir;
	char *noise;
	struct object *objects;
	size_t n;
	size_t room;
	uint64_t began_ns;
	_Atomic bool over;
	_Atomic uint64_t reads, bytes, wrong, errors, worst_ns, lately_ns, words;
};

struct held {
	int fd; /* -1: none */
	const struct object *object;
};

struct reader {
	struct work *work;
	uint64_t number;
	uint64_t random;
	uint64_t done;
	struct held *held;
	size_t n_held;
	char *buffer; /* PART_MAX */
	pthread_t thread;
};

static volatile sig_atomic_t told_to_end;
/* A page of a mapping that cannot be had: back to the read, which counts it. */
static _Thread_local sigjmp_buf fault_return;
static _Thread_local volatile sig_atomic_t fault_expected;

static void on_term(int number)
{
	(void)number; /* SIGTERM only */
	told_to_end = 1;
}

static void on_bus(int number)
{
	if (fault_expected)
		siglongjmp(fault_return, 1);
	(void)signal(number, SIG_DFL); /* not ours: the access is made again and kills */
}

/* xorshift64* (Vigna 2016): repeatable. */
static uint64_t next_random(uint64_t *state)
{
	*state ^= *state >> 12;
	*state ^= *state << 25;
	*state ^= *state >> 27;
	return *state * 0x2545F4914F6CDD1Dull;
}

static uint64_t below(struct reader *r, uint64_t n)
{
	return next_random(&r->random) % n;
}

static void complain(struct reader *r, const struct object *object, const char *what,
	uint64_t offset, uint64_t length)
{
	char now[32];

	if (atomic_fetch_add(&r->work->words, 1) >= WORDS_MAX)
		return;
	clock_wall_text(now, sizeof(now));
	fprintf(stderr, "soak-reader: %s %s: %s at %" PRIu64 ", %" PRIu64 " bytes\n", now,
		object->key, what, offset, length);
}

static void failed(struct reader *r, const struct object *object, const char *call, int code,
	uint64_t offset, uint64_t length)
{
	char what[96];

	atomic_fetch_add(&r->work->errors, 1);
	(void)snprintf(what, sizeof(what), "%s: %s", call, err_str(code)); /* cut: still said */
	complain(r, object, what, offset, length);
}

/* True when the bytes are the object's at that offset; length <= PART_MAX. */
static bool same(struct reader *r, const struct object *object, uint64_t offset, const char *data,
	uint64_t length)
{
	const char *wanted = r->work->noise + (object->start + offset) % S3D_NOISE_BYTES;

	if (memcmp(data, wanted, length) == 0)
		return true;
	for (uint64_t i = 0; i < length; i++)
		if (data[i] != wanted[i]) {
			complain(r, object, "wrong byte", offset + i, length);
			break;
		}
	atomic_fetch_add(&r->work->wrong, 1);
	return false;
}

/* The read calls: bytes compared, 0 when the read was no good. */

static uint64_t read_part(struct reader *r, const struct held *h, uint64_t offset, uint64_t length)
{
	ssize_t n = pread(h->fd, r->buffer, length, (off_t)offset);

	if (n < 0)
		return failed(r, h->object, "pread", err_errno(), offset, length), 0;
	if ((uint64_t)n != length) {
		complain(r, h->object, "short read", offset, (uint64_t)n);
		atomic_fetch_add(&r->work->wrong, 1);
		return 0;
	}
	return same(r, h->object, offset, r->buffer, length) ? length : 0;
}

static uint64_t read_whole(struct reader *r, const struct held *h)
{
	uint64_t done = 0;

	while (done < h->object->size) {
		uint64_t length = min(h->object->size - done, (uint64_t)PART_MAX);

		if (read_part(r, h, done, length) == 0)
			return 0;
		done += length;
	}
	if (pread(h->fd, r->buffer, 1, (off_t)done) != 0) {
		complain(r, h->object, "bytes after the end", done, 1);
		atomic_fetch_add(&r->work->wrong, 1);
		return 0;
	}
	return done;
}

static uint64_t read_mapped(
	struct reader *r, const struct held *h, uint64_t offset, uint64_t length)
{
	uint64_t first = offset / PAGE * PAGE;
	char *map = mmap(NULL, offset + length - first, PROT_READ, MAP_SHARED, h->fd, (off_t)first);
	bool right = false;

	if (map == MAP_FAILED)
		return failed(r, h->object, "mmap", err_errno(), offset, length), 0;
	if (sigsetjmp(fault_return, 1) == 0) {
		fault_expected = 1;
		right = same(r, h->object, offset, map + (offset - first), length);
	} else {
		failed(r, h->object, "page of a mapping", -EIO, offset, length);
	}
	fault_expected = 0;
	(void)munmap(map, offset + length - first); /* ours */
	return right ? length : 0;
}

static bool hold_another(struct reader *r, struct held *h)
{
	_cleanup_free_ char *path = NULL;
	struct stat st;

	if (h->fd >= 0)
		(void)close(h->fd); /* read only */
	h->object = &r->work->objects[below(r, r->work->n)];
	h->fd = asprintf(&path, "%s/%s", r->work->dir, h->object->name) < 0
			? -1
			: open(path, O_RDONLY | O_CLOEXEC);
	if (h->fd < 0 || fstat(h->fd, &st) != 0) {
		failed(r, h->object, "open", err_errno(), 0, 0);
		return false;
	}
	if ((uint64_t)st.st_size == h->object->size)
		return true;
	complain(r, h->object, "wrong size", 0, (uint64_t)st.st_size);
	atomic_fetch_add(&r->work->wrong, 1);
	return false;
}

static uint64_t part_length(struct reader *r, uint64_t most)
{
	static const uint32_t longest[] = { 1, 4096, 4096, 65536, 65536, PART_MAX };

	return min(1 + below(r, longest[below(r, ARRAY_SIZE(longest))]), most);
}

static void read_one(struct reader *r)
{
	struct held *h = &r->held[below(r, r->n_held)];
	uint64_t kind = below(r, 10);
	uint64_t offset, length, bytes;

	if ((h->fd < 0 || below(r, 8) < CHANGES_OF_8) && !hold_another(r, h))
		return;
	if (h->object->size == 0)
		kind = 0;
	offset = kind == 0 ? 0 : below(r, h->object->size);
	length = kind == 0 ? h->object->size : part_length(r, h->object->size - offset);
	if (kind == 0 && h->object->size > MiB) /* parts of it, else they are most of the bytes */
		kind = 1, length = min(length, (uint64_t)PART_MAX);
	if (below(r, 100) < r->work->options->cold)
		(void)posix_fadvise(h->fd, (off_t)offset, (off_t)length, POSIX_FADV_DONTNEED);
	bytes = kind == 0   ? read_whole(r, h)
		: kind == 1 ? read_mapped(r, h, offset, length)
			    : read_part(r, h, offset, length);
	if (bytes == 0 && length > 0)
		return;
	atomic_fetch_add(&r->work->bytes, bytes);
	atomic_fetch_add(&r->work->reads, 1);
}

/* Waits for this reader's next turn under --rate. */
static void pace(struct reader *r)
{
	const struct options *o = r->work->options;
	uint64_t turn = r->work->began_ns +
			(r->done * o->threads + r->number) * CLOCK_SECOND / max(o->rate, 1ul);
	uint64_t now;

	r->done++;
	while (o->rate && !r->work->over && (now = clock_mono_ns()) < turn)
		clock_sleep_ns(min(turn - now, TICK_NS));
}

static void note_longest(_Atomic uint64_t *longest, uint64_t took)
{
	uint64_t so_far = *longest;

	while (took > so_far && !atomic_compare_exchange_weak(longest, &so_far, took))
		;
}

static void *run(void *arg)
{
	struct reader *r = arg;

	while (!r->work->over) {
		uint64_t began, took;

		pace(r);
		began = clock_mono_ns();
		read_one(r);
		took = clock_mono_ns() - began;
		note_longest(&r->work->worst_ns, took);
		note_longest(&r->work->lately_ns, took);
	}
	return NULL;
}

static void print_state(struct work *w)
{
	printf("{\"reads\": %" PRIu64 ", \"bytes\": %" PRIu64 ", \"wrong\": %" PRIu64
	       ", \"errors\": %" PRIu64 ", \"seconds\": %.2f, \"worst_ms\": %.0f"
	       ", \"lately_ms\": %.0f}\n",
		w->reads, w->bytes, w->wrong, w->errors,
		(double)(clock_mono_ns() - w->began_ns) / 1e9, (double)w->worst_ns / 1e6,
		(double)atomic_exchange(&w->lately_ns, 0) / 1e6);
	(void)fflush(stdout); /* a failing one shows at the end */
}

/* Until the number of reads, the time or SIGTERM ends it. */
static void watch(struct work *w)
{
	const struct options *o = w->options;
	uint64_t step = o->sample ? o->sample * CLOCK_MS : o->progress * CLOCK_SECOND;
	uint64_t next = step;

	for (;;) {
		uint64_t passed = clock_mono_ns() - w->began_ns;
		uint64_t seconds = passed / CLOCK_SECOND;

		if (told_to_end || (o->seconds && seconds >= o->seconds) ||
			(o->reads && w->reads >= o->reads))
			break;
		if (step && passed >= next) {
			print_state(w);
			next = passed - passed % step + step;
		}
		clock_sleep_ns(o->sample ? min(step, TICK_NS) : TICK_NS);
	}
	w->over = true;
}

static int add_object(struct work *w, const char *key, uint64_t size)
{
	if (w->n == w->room) {
		size_t room = w->room ? 2 * w->room : 1024;
		struct object *more = reallocarray(w->objects, room, sizeof(*more));

		if (!more)
			return -ENOMEM;
		w->objects = more;
		w->room = room;
	}
	w->objects[w->n] = (struct object){
		.key = strdup(key), .size = size, .start = s3d_noise_start(key, 0)
	};
	if (!w->objects[w->n].key)
		return -ENOMEM;
	w->objects[w->n].name = w->objects[w->n].key + strlen(w->options->prefix);
	w->n++;
	return 0;
}

static int load(struct work *w)
{
	_cleanup_fclose_ FILE *f = fopen(w->options->list, "re");
	_cleanup_free_ char *line = NULL;
	size_t prefix = strlen(w->options->prefix);
	size_t size = 0;
	ssize_t n;
	int r = 0;

	if (!f)
		return err_errno();
	while (r == 0 && (n = getline(&line, &size, f)) > 0) {
		char *key;
		uint64_t bytes = strtoull(line, &key, 10);

		if (line[n - 1] == '\n')
			line[n - 1] = '\0';
		r = *key == ' ' && strncmp(key + 1, w->options->prefix, prefix) == 0
			    ? add_object(w, key + 1, bytes)
			    : -EINVAL;
	}
	return r == 0 && w->n == 0 ? -ENODATA : r;
}

static int reader_init(struct reader *r, struct work *w, uint64_t number)
{
	const struct options *o = w->options;

	*r = (struct reader){ .work = w, .number = number, .random = (o->seed << 16) + number + 1 };
	r->n_held = max(o->open / o->threads, (uint64_t)1);
	r->held = calloc(r->n_held, sizeof(*r->held));
	r->buffer = malloc(PART_MAX);
	for (size_t i = 0; r->held && i < r->n_held; i++)
		r->held[i].fd = -1;
	if (!r->held || !r->buffer)
		return -ENOMEM;
	for (int i = 0; i < 8; i++)
		(void)next_random(&r->random); /* seeds that are alike differ from here on */
	return -pthread_create(&r->thread, NULL, run, r);
}

static void reader_release(struct reader *r)
{
	for (size_t i = 0; r->held && i < r->n_held; i++)
		if (r->held[i].fd >= 0)
			(void)close(r->held[i].fd); /* read only */
	free(r->held);
	free(r->buffer);
}

static int run_all(struct work *w)
{
	static struct reader readers[THREADS_MAX];
	uint64_t started = 0;
	int r = 0;

	w->began_ns = clock_mono_ns();
	while (started < w->options->threads && r == 0)
		r = reader_init(&readers[started], w, started), started += r == 0;
	if (r == 0)
		watch(w);
	else
		reader_release(&readers[started]);
	w->over = true;
	for (uint64_t i = 0; i < started; i++) {
		pthread_join(readers[i].thread, NULL);
		reader_release(&readers[i]);
	}
	return r;
}

int main(int argc, char **argv)
{
	struct options options = { .prefix = "", .threads = 16, .open = 64, .cold = 30, .seed = 1 };
	struct work w = { .options = &options };
	struct sigaction bus = { .sa_handler = on_bus, .sa_flags = SA_NODEFER };
	int r;

	(void)option_parse_or_exit(&option_set, argc, argv, &options); /* exactly one argument */
	w.dir = argv[1];
	w.noise = s3d_noise_new(PART_MAX);
	(void)sigaction(SIGBUS, &bus, NULL); /* known signals */
	(void)signal(SIGTERM, on_term);
	r = w.noise ? load(&w) : -ENOMEM;
	if (r < 0) {
		fprintf(stderr, "soak-reader: %s: %s: give a list with lines `SIZE KEY`\n",
			options.list, err_str(r));
		return EXIT_FAILURE;
	}
	r = run_all(&w);
	if (r < 0)
		fprintf(stderr, "soak-reader: not started: %s: give fewer --threads\n", err_str(r));
	print_state(&w);
	for (size_t i = 0; i < w.n; i++)
		free(w.objects[i].key);
	free(w.objects);
	free(w.noise);
	return r < 0 || w.wrong || w.errors ? EXIT_FAILURE : EXIT_SUCCESS;
}
