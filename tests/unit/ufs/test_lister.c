/* Parallel listing against the sorted truth: any keys, any page size, any number of threads. */
#include "ufs/lister.h"
#include "ufs/lister_split.h"
#include "base/clock.h"
#include "tests/clock/test_clock.h"

#include <pthread.h>
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

/* ---- an origin of pages in memory ------------------------------------------------------------ */

struct fake {
	struct ufs base;
	char **keys; /* sorted, unique, NUL-terminated */
	uint32_t n;
	uint32_t page;
	uint64_t latency_ns;
	bool jitter; /* of a call's time, so that calls overtake each other */
	_Atomic uint32_t calls;
	_Atomic uint32_t in_flight, peak;
	uint32_t fail_at; /* from this call on, those for keys fail; 0: none */
	bool ignores_after;

	/* Misbehaviour: each at one call in so many, 1 at all; 0: never. */
	uint32_t disorder, twice, before, empty, shorter;
	bool no_token;  /* truncated, but nothing to go on by */
	uint32_t loops; /* tokens lead back by so many pages, from the twice as many-th on */
	bool stalls;    /* calls that go on behind a key wait until nobody wants them */
};

static int compare(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

static int append(struct ufs_object **rows, uint32_t *n, uint32_t *cap, const char *key, size_t len)
{
	if (*n == *cap) {
		*cap = *cap ? *cap * 2 : 16;
		*rows = realloc(*rows, *cap * sizeof(**rows));
		assert_non_null(*rows);
	}
	(*rows)[(*n)++] = (struct ufs_object){
		.key = key, .key_len = (uint32_t)len, .tag = "t", .tag_len = 1
	};
	return 0;
}

/* Position of the first key beyond `after`. */
static uint32_t seek(const struct fake *f, const char *after, uint32_t len)
{
	uint32_t low = 0, high = f->n;

	while (low < high) {
		uint32_t middle = (low + high) / 2;
		const char *key = f->keys[middle];
		size_t key_len = strlen(key);
		int c = memcmp(key, after, min(key_len, len));

		if (c == 0)
			c = key_len <= len ? -1 : 1;
		if (c <= 0)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static bool is_turn(uint32_t call, uint32_t every)
{
	return every && call % every == 0;
}

static void say_token(struct fake *f, struct ufs_page *page, uint32_t next)
{
	page->truncated = true;
	if (f->loops && next >= 2 * f->loops * f->page)
		next -= f->loops * f->page;
	if (!f->no_token)
		assert_int_equal(buf_printf(&page->token, "%u", next), 0);
}

static void fill(
	struct fake *f, const struct ufs_page_request *q, struct ufs_page *page, uint32_t most)
{
	uint32_t i = q->after && !f->ignores_after ? seek(f, q->after, q->after_len) : 0;

	if (q->token)
		i = (uint32_t)strtoul(q->token, NULL, 10);
	for (; i < f->n; i++) {
		const char *key = f->keys[i];
		const char *slash = NULL;

		if (q->upto && page->n_objects && !q->delimiter &&
			lister_key_cmp(
				f->keys[i - 1], strlen(f->keys[i - 1]), q->upto, q->upto_len) > 0) {
			page->truncated = true; /* as an origin may */
			return;
		}

		if (strncmp(key, q->dir ? q->dir : "", q->dir_len) != 0)
			continue;
		if (page->n_objects + page->n_prefixes == most) {
			say_token(f, page, i);
			return;
		}
		if (q->delimiter)
			slash = strchr(key + q->dir_len, '/');
		if (!slash) {
			(void)append(&page->objects, &page->n_objects, &page->objects_cap, key,
				strlen(key));
			continue;
		}
		(void)append(&page->prefixes, &page->n_prefixes, &page->prefixes_cap, key,
			(size_t)(slash - key) + 1);
		while (i + 1 < f->n && strncmp(f->keys[i + 1], key, (size_t)(slash - key) + 1) == 0)
			i++;
	}
}

static void swap_rows(struct ufs_object *a, struct ufs_object *b)
{
	struct ufs_object row = *a;

	*a = *b;
	*b = row;
}

/* What the origin's answers may look like instead. */
static void spoil(struct fake *f, uint32_t call, struct ufs_page *page)
{
	struct ufs_object *rows;
	uint32_t n = page->n_objects;

	if (is_turn(call, f->twice) && n) { /* one key again, not beside itself */
		rows = page->objects;
		(void)append(&page->objects, &page->n_objects, &page->objects_cap, rows[n / 3].key,
			rows[n / 3].key_len);
		page->disorder = n > 1;
	}
	if (is_turn(call, f->before) && n) {
		(void)append(&page->objects, &page->n_objects, &page->objects_cap, f->keys[0],
			strlen(f->keys[0]));
		swap_rows(&page->objects[0], &page->objects[page->n_objects - 1]);
		page->disorder = page->n_objects > 2;
	}
	n = page->n_objects;
	if (is_turn(call, f->disorder) && n > 1) {
		for (uint32_t i = 0; i < n; i++)
			swap_rows(&page->objects[i], &page->objects[(i * 7 + call) % n]);
		page->disorder = true;
	}
}

static int fake_page(
	struct ufs *ufs, const struct ufs_page_request *q, struct ufs_page *page, struct err *e)
{
	struct fake *f = container_of(ufs, struct fake, base);
	uint32_t now = atomic_fetch_add(&f->in_flight, 1) + 1;
	uint32_t call = atomic_fetch_add(&f->calls, 1) + 1;
	uint32_t peak = f->peak;

	while (now > peak && !atomic_compare_exchange_weak(&f->peak, &peak, now))
		;
	if (f->jitter && call % 3 != 0)
		test_advance(call * 7919 % 97 * 4000);
	if (f->latency_ns)
		test_advance(f->latency_ns);
	atomic_fetch_sub(&f->in_flight, 1);
	if (f->fail_at && call >= f->fail_at && !q->delimiter)
		return err_set(e, -EACCES, "refused");
	test_wait(!f->stalls || !q->after || ufs_list_is_over(ufs, q));
	if (ufs_list_is_over(ufs, q))
		return err_set(e, -ECANCELED, "given up");
	if (q->after)
		for (uint32_t i = 0; i < q->after_len; i++)
			if ((unsigned char)q->after[i] < 0x80 && i &&
				(unsigned char)q->after[i - 1] >= 0xc0)
				return err_set(
					e, -EPROTO, "not UTF-8"); /* a character cut in two */
	if (is_turn(call, f->empty) && !q->delimiter)
		say_token(f, page,
			q->token   ? (uint32_t)strtoul(q->token, NULL, 10)
			: q->after ? seek(f, q->after, q->after_len)
				   : 0);
	else
		fill(f, q, page, is_turn(call, f->shorter) ? 1 + f->page / 3 : f->page);
	if (!q->delimiter)
		spoil(f, call, page);
	return 0;
}

static const struct ufs_ops fake_ops = { .name = "fake", .list_page = fake_page };

static void fake_init(struct fake *f, uint32_t max_keys, uint32_t page)
{
	struct ufs_limits limits = UFS_LIMITS_DEFAULT;

	*f = (struct fake){ .page = page };
	assert_int_equal(ufs_base_init(&f->base, &fake_ops, NULL, &limits), 0);
	f->keys = calloc(max_keys, sizeof(*f->keys));
	assert_non_null(f->keys);
}

static void fake_add(struct fake *f, const char *key)
{
	f->keys[f->n] = strdup(key);
	assert_non_null(f->keys[f->n++]);
}

/* Sorts, and drops what is there twice. */
static void fake_sort(struct fake *f)
{
	uint32_t n = 0;

	qsort(f->keys, f->n, sizeof(*f->keys), compare);
	for (uint32_t i = 0; i < f->n; i++) {
		if (n && strcmp(f->keys[n - 1], f->keys[i]) == 0)
			free(f->keys[i]);
		else
			f->keys[n++] = f->keys[i];
	}
	f->n = n;
}

static void fake_release(struct fake *f)
{
	for (uint32_t i = 0; i < f->n; i++)
		free(f->keys[i]);
	free(f->keys);
	ufs_base_release(&f->base);
}

/* ---- a sink that keeps everything ------------------------------------------------------------ */

struct kept {
	char **keys;
	uint32_t n, max;
	_Atomic uint32_t inside;
	uint32_t stop_at;
};

static int keep(void *arg, const struct ufs_object *objects, uint32_t n)
{
	struct kept *k = arg;

	if (atomic_fetch_add(&k->inside, 1) != 0)
		return -EDEADLK; /* calls do not overlap */
	for (uint32_t i = 0; i < n; i++) {
		if (k->n == k->max) {
			atomic_fetch_sub(&k->inside, 1);
			return -E2BIG; /* some came twice */
		}
		k->keys[k->n++] = strndup(objects[i].key, objects[i].key_len);
	}
	atomic_fetch_sub(&k->inside, 1);
	return k->stop_at && k->n >= k->stop_at ? -ENOSPC : 0;
}

static void kept_release(struct kept *k)
{
	for (uint32_t i = 0; i < k->n; i++)
		free(k->keys[i]);
	free(k->keys);
}

static void drop_twins(struct kept *k)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < k->n; i++) {
		if (n && strcmp(k->keys[n - 1], k->keys[i]) == 0)
			free(k->keys[i]);
		else
			k->keys[n++] = k->keys[i];
	}
	k->n = n;
}

static void expect_listed(struct fake *f, unsigned int threads, bool twice)
{
	struct kept k = { .max = twice ? 50 * f->n + 1000 : f->n + 1 };
	struct err e = ERR_INIT;

	k.keys = calloc(k.max, sizeof(*k.keys));
	if (lister_run(&f->base, threads, keep, &k, &e) != 0)
		fail_msg("%s", e.text);
	qsort(k.keys, k.n, sizeof(*k.keys), compare);
	if (twice)
		drop_twins(&k);
	assert_int_equal(k.n, f->n);
	for (uint32_t i = 0; i < f->n; i++)
		assert_string_equal(k.keys[i], f->keys[i]);
	kept_release(&k);
}

static void expect_whole(struct fake *f, unsigned int threads)
{
	expect_listed(f, threads, false);
}

/* ---- tests ----------------------------------------------------------------------------------- */

static uint32_t next_random(uint64_t *seed)
{
	*seed = *seed * 6364136223846793005ull + 1442695040888963407ull;
	return (uint32_t)(*seed >> 33);
}

/* Keys of one of many shapes; odd bytes, UTF-8, deep and flat, prefixes of each other. */
static void random_key(uint64_t *seed, uint32_t shape, char *out, size_t size)
{
	static const char *const words[] = { "a", "b/", "/", "//", "train/", "val", "\xc3\xbc",
		"\xe6\x97\xa5", " ", "%", "~", "\x01", "\x7f", "0", "9", "Z", "img_", ".jpg", "-",
		"zzzz/" };
	size_t len = 0;

	switch (shape) {
	case 0:
		(void)snprintf(out, size, "img_%06u.jpg", next_random(seed) % 5000);
		return;
	case 1:
		(void)snprintf(out, size, "%08x", next_random(seed));
		return;
	case 2:
		(void)snprintf(out, size, "train/n%04u/n%04u_%u.JPEG", next_random(seed) % 30,
			next_random(seed) % 30, next_random(seed) % 1000);
		return;
	case 3:
		(void)snprintf(out, size, "%u", next_random(seed) % 3000);
		return;
	default:
		out[0] = '\0';
		for (uint32_t i = 1 + next_random(seed) % 6; i > 0; i--) {
			const char *word = words[next_random(seed) % ARRAY_SIZE(words)];

			len += (size_t)snprintf(out + len, size - len, "%s", word);
		}
	}
}

static void model(void **state)
{
	(void)state;
	for (uint64_t round = 0; round < 300; round++) {
		uint64_t seed = round * 77 + 1;
		uint32_t shape = (uint32_t)round % 6;
		uint32_t n = next_random(&seed) % (round % 5 == 0 ? 3000 : 400);
		struct fake f;

		fake_init(&f, n + 1, 1 + next_random(&seed) % 50);
		f.jitter = round % 4 != 0;
		for (uint32_t i = 0; i < n; i++) {
			char key[256];

			random_key(&seed, shape == 5 ? i % 5 : shape, key, sizeof(key));
			fake_add(&f, key);
		}
		fake_sort(&f);
		expect_whole(&f, 1 + next_random(&seed) % 16);
		fake_release(&f);
	}
}

/* The same against origins that misbehave now and then, or always: every key, none that is not
 * there. */
static void misbehaviour(void **state)
{
	(void)state;
	for (uint64_t round = 0; round < 300; round++) {
		uint64_t seed = round * 131 + 5;
		uint32_t n = next_random(&seed) % 600;
		uint32_t shape = (uint32_t)round % 6;
		uint32_t most = round % 3 == 0 ? 1 : 2 + next_random(&seed) % 6;
		struct fake f;

		fake_init(&f, n + 1, 2 + next_random(&seed) % 50);
		f.jitter = round % 2 != 0;
		for (uint32_t i = 0; i < n; i++) {
			char key[256];

			random_key(&seed, shape == 5 ? i % 5 : shape, key, sizeof(key));
			fake_add(&f, key);
		}
		fake_sort(&f);
		f.disorder = next_random(&seed) % 2 * most;
		f.twice = next_random(&seed) % 2 * most;
		f.before = next_random(&seed) % 2 * most;
		f.shorter = next_random(&seed) % 2 * most;
		f.empty = next_random(&seed) % 2 * (1 + most); /* not always: it would never end */
		f.ignores_after = round % 7 == 0;
		expect_listed(&f, 1 + next_random(&seed) % 16, true);
		fake_release(&f);
	}
}

static void one_page(void **state)
{
	struct fake f;

	(void)state;
	fake_init(&f, 10, 1000);
	expect_whole(&f, 64);
	assert_in_range(
		f.calls, 1, 2); /* nothing there: the page, and the directories at the top */
	fake_add(&f, "a");
	fake_add(&f, "b");
	expect_whole(&f, 64);
	assert_in_range(f.calls, 2, 4);
	expect_whole(&f, 1);
	assert_in_range(f.calls, 3, 5);
	fake_release(&f);
}

/* The marker of the prefix itself is left out, also when it is all of a page. */
static void marker(void **state)
{
	struct kept k = { .max = 10 };
	struct fake f;

	(void)state;
	fake_init(&f, 10, 1);
	fake_add(&f, "");
	fake_add(&f, "a");
	fake_add(&f, "b");
	k.keys = calloc(k.max, sizeof(*k.keys));
	assert_int_equal(lister_run(&f.base, 4, keep, &k, NULL), 0);
	assert_int_equal(k.n, 2);
	kept_release(&k);
	fake_release(&f);
}

/* Wide listings are wide: far fewer round trips than pages, whatever the keys look like. */
static void expect_fast(const char *fmt, uint32_t n, bool hashed, uint32_t classes, double speedup)
{
	uint64_t latency = 100 * CLOCK_MS; /* a machine that stands still for seconds may pass */
	struct fake f;
	uint64_t t;
	double serial;
	double took;

	fake_init(&f, n, 1000);
	for (uint32_t i = 0; i < n; i++) {
		char key[128];

		if (hashed)
			(void)snprintf(key, sizeof(key), "%08x%08x", i * 2654435761u, i);
		else if (classes)
			(void)snprintf(key, sizeof(key), "train/n%08u/n%08u_%u.JPEG",
				i % classes * 7919, i % classes * 7919, i);
		else
			(void)snprintf(key, sizeof(key), "%s%09u.jpg", fmt, i);
		fake_add(&f, key);
	}
	fake_sort(&f);
	f.latency_ns = latency;
	t = clock_mono_ns();
	expect_whole(&f, UFS_LIMITS_DEFAULT.list_requests);
	took = (double)(clock_mono_ns() - t);
	serial = (double)latency * (n / 1000.0);
	print_message("%s: %u keys, %u LISTs, peak %u, %.1fx\n",
		hashed    ? "hash"
		: classes ? "classes"
			  : fmt,
		n, f.calls, f.peak, serial / took);
	assert_true(f.peak >= 24);
	assert_true(f.calls < 3 * (n / 1000) + 200);
	assert_true(serial / took >= speedup);
	fake_release(&f);
}

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define SPEEDUP 0.2 /* the sanitizers' own time counts, and what else runs */
#else
#define SPEEDUP 2 /* with much other work on two cores; 13 to 22 alone */
#endif

static void fast(void **state)
{
	(void)state;
	expect_fast("img_", 100000, false, 0, SPEEDUP);
	expect_fast("", 100000, true, 0, SPEEDUP);
	expect_fast("", 100000, false, 1000, SPEEDUP);
	expect_fast("", 100000, false, 3, SPEEDUP);
}

/* More directories than one LIST tells, whose keys say nothing of each other's: few LISTs too many,
 * as all names are asked for. */
static void many_directories(void **state)
{
	enum { N = 200000, PAGE = 100, DIRECTORIES = 401 };
	struct fake f;

	(void)state;
	fake_init(&f, N, PAGE);
	f.latency_ns = CLOCK_MS;
	for (uint32_t i = 0; i < N; i++) {
		char key[64];

		(void)snprintf(key, sizeof(key), "d%05u/o%08u", i / (N / DIRECTORIES), i);
		fake_add(&f, key);
	}
	fake_sort(&f);
	expect_whole(&f, UFS_LIMITS_DEFAULT.list_requests);
	print_message("%u LISTs for %u pages\n", f.calls, N / PAGE);
	assert_true(f.calls < 2 * N / PAGE);
	fake_release(&f);
}

/* Directories of which a page has several, fewer than their digits would allow: each LIST is nearly full of keys that no other has. */
static void small_directories(void **state)
{
	enum { N = 25000, PAGE = 1000, DIRECTORIES = 250 };
	struct fake f;

	(void)state;
	fake_init(&f, N, PAGE);
	f.latency_ns = CLOCK_SECOND; /* long enough for each thread to start on a busy machine */
	for (uint32_t i = 0; i < N; i++) {
		char key[64];

		(void)snprintf(key, sizeof(key), "d%05u/o%08u", i / (N / DIRECTORIES), i);
		fake_add(&f, key);
	}
	fake_sort(&f);
	expect_whole(&f, UFS_LIMITS_DEFAULT.list_requests);
	print_message("%u LISTs for %u pages, peak %u\n", f.calls, N / PAGE, f.peak);
	assert_in_range(f.peak, 8, 2 * N / PAGE);
	assert_true(f.calls <= 2 * N / PAGE);
	fake_release(&f);
}

/* ---- memory: an origin of numbers, none of them kept ----------------------------------------- */

#define NUMBER_LEN 9u

struct numbers {
	struct ufs base;
	uint32_t n;
};

static int number_page(
	struct ufs *ufs, const struct ufs_page_request *q, struct ufs_page *page, struct err *e)
{
	struct numbers *numbers = container_of(ufs, struct numbers, base);
	uint32_t low = 0;
	uint32_t high = numbers->n;
	char key[16];

	(void)e;
	while (low < high && q->after) {
		uint32_t middle = (low + high) / 2;

		(void)snprintf(key, sizeof(key), "%09u", middle);
		if (lister_key_cmp(key, NUMBER_LEN, q->after, q->after_len) <= 0)
			low = middle + 1;
		else
			high = middle;
	}
	high = min(low + 1000, numbers->n);
	page->truncated = high < numbers->n;
	assert_int_equal(buf_reserve(&page->bytes, 1000 * NUMBER_LEN), 0);
	for (uint32_t i = low; i < high; i++) {
		char *at = page->bytes.data + (size_t)(i - low) * NUMBER_LEN;

		(void)snprintf(key, sizeof(key), "%09u", i);
		memcpy(at, key, NUMBER_LEN);
		(void)append(&page->objects, &page->n_objects, &page->objects_cap, at, NUMBER_LEN);
	}
	return 0;
}

static int count(void *arg, const struct ufs_object *objects, uint32_t n)
{
	(void)objects;
	*(uint64_t *)arg += n;
	return 0;
}

/* Peak memory in KiB of a process that lists so many keys. */
static long peak_of(uint32_t n)
{
	static const struct ufs_ops ops = { .name = "numbers", .list_page = number_page };
	struct rusage usage;
	int status;
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid == 0) {
		struct ufs_limits limits = UFS_LIMITS_DEFAULT;
		struct numbers numbers = { .n = n };
		uint64_t counted = 0;
		int r = ufs_base_init(&numbers.base, &ops, NULL, &limits);

		if (r == 0)
			r = lister_run(&numbers.base, 32, count, &counted, NULL);
		_exit(r == 0 && counted == n ? 0 : 1);
	}
	assert_int_equal(wait4(pid, &status, 0, &usage), pid);
	assert_int_equal(status, 0);
	return usage.ru_maxrss;
}

/* Ten times the keys take no more memory: pages in flight, names of directories, some ranges. */
static void bounded_memory(void **state)
{
	long small = peak_of(100000);
	long large = peak_of(1000000);

	(void)state;
	print_message("100,000 keys %ld KiB, 1,000,000 keys %ld KiB\n", small, large);
#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__) /* they keep what is freed */
	assert_true(large < small + 8 * 1024);
#endif
}

static void failures(void **state)
{
	(void)state;
	for (uint32_t at = 1; at < 40; at += 3) {
		struct kept k = { .max = 5000 };
		struct err e = ERR_INIT;
		struct fake f;

		fake_init(&f, 3000, 50);
		for (uint32_t i = 0; i < 3000; i++) {
			char key[32];

			(void)snprintf(key, sizeof(key), "%06u", i);
			fake_add(&f, key);
		}
		f.fail_at = at;
		k.keys = calloc(k.max, sizeof(*k.keys));
		assert_int_equal(lister_run(&f.base, 8, keep, &k, &e), -EACCES);
		assert_string_equal(e.text, "refused");
		kept_release(&k);
		fake_release(&f);
	}
}

static void sink_stops(void **state)
{
	struct kept k = { .max = 5000, .stop_at = 500 };
	struct err e = ERR_INIT;
	struct fake f;

	(void)state;
	fake_init(&f, 3000, 50);
	for (uint32_t i = 0; i < 3000; i++) {
		char key[32];

		(void)snprintf(key, sizeof(key), "%06u", i);
		fake_add(&f, key);
	}
	k.keys = calloc(k.max, sizeof(*k.keys));
	assert_int_equal(lister_run(&f.base, 8, keep, &k, &e), -ENOSPC);
	kept_release(&k);
	fake_release(&f);
}

static void fake_numbers(struct fake *f, uint32_t n, uint32_t page)
{
	fake_init(f, n, page);
	for (uint32_t i = 0; i < n; i++) {
		char key[32];

		(void)snprintf(key, sizeof(key), "%06u", i);
		fake_add(f, key);
	}
}

static void expect_refused(struct fake *f, const char *text)
{
	struct kept k = { .max = 100 * f->n };
	struct err e = ERR_INIT;

	k.keys = calloc(k.max, sizeof(*k.keys));
	assert_int_equal(lister_run(&f->base, 4, keep, &k, &e), -EPROTO);
	if (!strstr(e.text, text))
		fail_msg("%s", e.text);
	kept_release(&k);
	fake_release(f);
}

/* A server that does not know start-after is listed by its tokens; what would never end is
 * refused. */
static void no_progress(void **state)
{
	struct fake f;

	(void)state;
	fake_numbers(&f, 100, 10);
	f.ignores_after = true;
	expect_listed(&f, 4, true);
	fake_release(&f);

	fake_numbers(&f, 100, 10);
	f.ignores_after = true;
	f.no_token = true;
	expect_refused(&f, "without NextContinuationToken");

	fake_numbers(&f, 100, 10);
	f.empty = 1;
	expect_refused(&f, "NextContinuationToken repeats");

	for (uint32_t loops = 1; loops < 5; loops++) {
		fake_numbers(&f, 100, 10);
		f.disorder = 1;
		f.loops = loops;
		expect_refused(&f, "NextContinuationToken repeats");
	}
}

struct canceller {
	struct fake *fake;
	pthread_t thread;
};

static void *cancel_soon(void *arg)
{
	struct canceller *c = arg;

	test_wait(c->fake->in_flight > 0 || c->fake->calls >= 5);
	test_advance(20 * CLOCK_MS);
	ufs_list_cancel(&c->fake->base);
	return NULL;
}

/* LISTs that do not come end with the listing: given up by somebody, or by the sink. */
static void given_up(void **state)
{
	struct kept k = { .max = 5000 };
	struct canceller c;
	struct err e = ERR_INIT;
	struct fake f;
	uint64_t began = clock_mono_ns();

	(void)state;
	k.keys = calloc(k.max, sizeof(*k.keys));
	fake_numbers(&f, 3000, 50);
	f.stalls = true;
	c.fake = &f;
	assert_int_equal(pthread_create(&c.thread, NULL, cancel_soon, &c), 0);
	assert_int_equal(lister_run(&f.base, 8, keep, &k, &e), -ECANCELED);
	assert_int_equal(pthread_join(c.thread, NULL), 0);
	assert_int_equal(ufs_list(&f.base, keep, &k, &e), -ECANCELED); /* and from now on */
	fake_release(&f);
	assert_true(clock_mono_ns() - began < 20 * CLOCK_SECOND); /* for ever otherwise */
	kept_release(&k);
}

/* One refused page ends the others, which would never come. */
static void failure_ends_all(void **state)
{
	struct kept k = { .max = 5000 };
	struct err e = ERR_INIT;
	struct fake f;

	(void)state;
	k.keys = calloc(k.max, sizeof(*k.keys));
	fake_numbers(&f, 3000, 50);
	f.stalls = true;
	f.fail_at = 4;
	assert_int_equal(lister_run(&f.base, 8, keep, &k, &e), -EACCES);
	assert_string_equal(e.text, "refused");
	fake_release(&f);
	kept_release(&k);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(
			bounded_memory), /* first: a child begins with what its parent has */
		cmocka_unit_test(model),
		cmocka_unit_test(misbehaviour),
		cmocka_unit_test(one_page),
		cmocka_unit_test(marker),
		cmocka_unit_test(fast),
		cmocka_unit_test(many_directories),
		cmocka_unit_test(small_directories),
		cmocka_unit_test(failures),
		cmocka_unit_test(sink_stops),
		cmocka_unit_test(no_progress),
		cmocka_unit_test(given_up),
		cmocka_unit_test(failure_ends_all),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
