/*
 * Listing a service that sorts by the parts of paths, as gateways over file systems do: "d1/x" comes
 * before "d1-b", though '-' is less than '/'. Nothing may be left out.
 */
#include "ufs/lister.h"
#include "ufs/lister_split.h"
#include "base/clock.h"
#include "tests/clock/test_clock.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define KEYS_MAX  40000u
#define KEY_BYTES 24u

struct key {
	char text[KEY_BYTES];
	bool listed;
};

struct fake {
	struct ufs base;
	struct key *keys; /* in the service's order */
	uint32_t n;
	uint32_t page;
};

static int place(char c)
{
	return c == '/' ? 1 : (unsigned char)c;
}

static int by_parts(const void *a, const void *b)
{
	const char *x = a;
	const char *y = b;

	while (*x && *x == *y) {
		x++;
		y++;
	}
	return place(*x) - place(*y);
}

static bool add_row(struct ufs_object **rows, uint32_t *n, const char *key, size_t len)
{
	struct ufs_object *last = *n ? &(*rows)[*n - 1] : NULL;
	bool ordered = !last || lister_key_cmp(last->key, last->key_len, key, len) < 0;

	*rows = *rows ? *rows : calloc(KEYS_MAX, sizeof(**rows));
	(*rows)[(*n)++] = (struct ufs_object){
		.key = key, .key_len = (uint32_t)len, .tag = "t", .tag_len = 1
	};
	return ordered;
}

static bool takes_dir(const struct ufs_object *dir, const char *key)
{
	return strncmp(key, dir->key, dir->key_len) == 0;
}

static int fake_page(
	struct ufs *ufs, const struct ufs_page_request *q, struct ufs_page *page, struct err *e)
{
	struct fake *f = container_of(ufs, struct fake, base);
	char after[LIMIT_KEY_BYTES + 1] = "";

	test_advance(200000);
	if (ufs_list_is_over(ufs, q))
		return err_set(e, -ECANCELED, "given up");
	if (q->after)
		memcpy(after, q->after, q->after_len);
	for (uint32_t i = q->token ? (uint32_t)strtoul(q->token, NULL, 10) : 0; i < f->n; i++) {
		const char *key = f->keys[i].text;
		const char *slash = NULL;
		bool ordered = true;

		if (strncmp(key, q->dir ? q->dir : "", q->dir_len) != 0 ||
			(q->after && by_parts(key, after) <= 0))
			continue;
		if (q->delimiter)
			slash = strchr(key + q->dir_len, '/');
		if (slash && page->n_prefixes &&
			takes_dir(&page->prefixes[page->n_prefixes - 1], key))
			continue;
		if (page->n_objects + page->n_prefixes == f->page) {
			page->truncated = true;
			return buf_printf(&page->token, "%u", i);
		}
		if (slash)
			ordered = add_row(
				&page->prefixes, &page->n_prefixes, key, (size_t)(slash - key) + 1);
		else
			ordered = add_row(&page->objects, &page->n_objects, key, strlen(key));
		page->disorder |= !ordered;
	}
	return 0;
}

static void fake_free(struct ufs *ufs)
{
	(void)ufs;
}

static const struct ufs_ops fake_ops = {
	.name = "fake",
	.list_page = fake_page,
	.free = fake_free,
};

static int sink(void *arg, const struct ufs_object *objects, uint32_t n)
{
	struct fake *f = arg;

	for (uint32_t i = 0; i < n; i++) {
		char text[KEY_BYTES] = "";
		struct key *key;

		memcpy(text, objects[i].key, objects[i].key_len);
		key = bsearch(text, f->keys, f->n, sizeof(*f->keys), by_parts);
		if (!key)
			return -EINVAL; /* nobody has such a key */
		key->listed = true;
	}
	return 0;
}

static void add_key(struct fake *f, int dir, const char *between, int file)
{
	assert_true(f->n < KEYS_MAX);
	(void)snprintf(
		f->keys[f->n++].text, KEY_BYTES, "d%03d%s%04d", dir, between, file); /* fits */
}

/* Directories with files, one of them larger, and next to that one another whose name goes on. */
static void make_keys(struct fake *f)
{
	int dirs = 20 + rand() % 200, files = 1 + rand() % 40;
	int large = rand() % dirs, large_files = 1 + rand() % 1500;
	int beside = rand() % 3 ? files : 1;

	for (int d = 0; d < dirs; d++)
		for (int i = 0; i < (d == large ? large_files : files); i++)
			add_key(f, d, "/", i);
	for (int i = 0; i < beside; i++)
		add_key(f, large, beside == 1 ? "-b." : "-b/", i);
	qsort(f->keys, f->n, sizeof(*f->keys), by_parts);
}

static void nothing_is_left_out(void **state)
{
	static const unsigned int threads[] = { 4, 8, 16, 32, 96 };
	static const uint32_t pages[] = { 20, 50, 100, 1000 };
	struct ufs_limits limits = UFS_LIMITS_DEFAULT;

	(void)state;
	srand(1);
	for (int run = 0; run < 150; run++) {
		struct fake f = { .page = pages[rand() % 4] };
		struct err e = ERR_INIT;

		f.keys = calloc(KEYS_MAX, sizeof(*f.keys));
		make_keys(&f);
		assert_int_equal(ufs_base_init(&f.base, &fake_ops, NULL, &limits), 0);
		if (lister_run(&f.base, threads[rand() % 5], sink, &f, &e) != 0)
			fail_msg("run %d: %s", run, e.text);
		for (uint32_t i = 0; i < f.n; i++)
			if (!f.keys[i].listed)
				fail_msg("run %d: '%s' was left out", run, f.keys[i].text);
		ufs_base_release(&f.base);
		free(f.keys);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nothing_is_left_out),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
