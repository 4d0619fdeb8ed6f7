/* The directory origin on a real tree. */
#include "ufs/protected.h"
#include "ufs/ufs.h"
#include "base/clock.h"

#include <fcntl.h>
#include <ftw.h>
#include <pthread.h>
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#define NOBODY 65534u

static char root[] = "/tmp/granary-file-XXXXXX";

/* A file that has just been changed: by the tests' clock, which may be ahead of the kernel's. */
static void make(const char *name, const void *data, size_t len)
{
	struct timespec times[2];
	char path[2048];
	int fd;

	(void)snprintf(path, sizeof(path), "%s/%s", root, name);
	fd = open(path, O_CREAT | O_WRONLY | O_TRUNC, 0644);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, data, len), len);
	(void)clock_gettime(CLOCK_REALTIME, &times[0]);
	times[1] = times[0];
	assert_int_equal(futimens(fd, times), 0);
	assert_int_equal(close(fd), 0);
}

static void make_dir(const char *name)
{
	char path[2048];

	(void)snprintf(path, sizeof(path), "%s/%s", root, name);
	assert_int_equal(mkdir(path, 0755), 0);
}

static struct ufs *open_origin(const char *dir)
{
	struct ufs_limits limits = UFS_LIMITS_DEFAULT;
	struct ufs_config config;
	struct ufs *ufs;
	char url[2048];

	(void)snprintf(url, sizeof(url), "file://%s", dir);
	assert_int_equal(ufs_config_parse(url, &config, NULL), 0);
	assert_int_equal(ufs_open(&config, &limits, &ufs, NULL), 0);
	ufs_config_release(&config);
	return ufs;
}

struct row {
	char key[LIMIT_KEY_BYTES + 1], tag[LIMIT_TAG_BYTES + 1];
	uint64_t size;
};

struct rows {
	struct row *rows;
	uint32_t n, max;
};

static int keep(void *arg, const struct ufs_object *objects, uint32_t n)
{
	struct rows *r = arg;

	for (uint32_t i = 0; i < n; i++) {
		struct row *row = &r->rows[r->n++];

		assert_true(r->n <= r->max);
		memcpy(row->key, objects[i].key, objects[i].key_len);
		memcpy(row->tag, objects[i].tag, objects[i].tag_len);
		row->size = objects[i].size;
	}
	return 0;
}

static int by_key(const void *a, const void *b)
{
	return strcmp(((const struct row *)a)->key, ((const struct row *)b)->key);
}

static struct rows list_all(struct ufs *ufs, uint32_t max)
{
	struct rows r = { .rows = calloc(max, sizeof(struct row)), .max = max };

	assert_int_equal(ufs_list(ufs, keep, &r, NULL), 0);
	qsort(r.rows, r.n, sizeof(r.rows[0]), by_key);
	return r;
}

struct wait {
	struct ufs_get get;
	pthread_mutex_t lock;
	pthread_cond_t news;
	bool done;
	int status;
	struct err e;
	struct row row;
	char *buf;
};

static void on_done(struct ufs_get *get, int status, const struct err *e)
{
	struct wait *w = get->arg;

	pthread_mutex_lock(&w->lock);
	w->done = true;
	w->status = status;
	if (e)
		w->e = *e;
	pthread_cond_signal(&w->news);
	pthread_mutex_unlock(&w->lock);
}

static struct wait *start(struct ufs *ufs, const struct row *row, uint64_t offset, uint64_t length)
{
	struct wait *w = calloc(1, sizeof(*w));

	w->row = *row;
	w->buf = malloc(length);
	pthread_mutex_init(&w->lock, NULL);
	pthread_cond_init(&w->news, NULL);
	w->get = (struct ufs_get){ .key = w->row.key,
		.key_len = (uint32_t)strlen(row->key),
		.tag = w->row.tag,
		.tag_len = (uint32_t)strlen(row->tag),
		.size = row->size,
		.offset = offset,
		.length = length,
		.buf = w->buf,
		.class = UFS_FILL,
		.on_done = on_done,
		.arg = w };
	assert_int_equal(ufs_get(ufs, &w->get), 0);
	return w;
}

static int finish(struct wait *w, char **ret_buf)
{
	int status;

	pthread_mutex_lock(&w->lock);
	while (!w->done)
		pthread_cond_wait(&w->news, &w->lock);
	pthread_mutex_unlock(&w->lock);
	status = w->status;
	if (ret_buf && status == 0)
		*ret_buf = w->buf;
	else
		free(w->buf);
	free(w);
	return status;
}

static int get(
	struct ufs *ufs, const struct row *row, uint64_t offset, uint64_t length, char **ret_buf)
{
	return finish(start(ufs, row, offset, length), ret_buf);
}

static int remove_one(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
	(void)st;
	(void)flag;
	(void)ftw;
	return remove(path);
}

static int setup(void **state)
{
	(void)state;
	memcpy(root, "/tmp/granary-file-XXXXXX", sizeof(root));
	return mkdtemp(root) ? 0 : -1;
}

static int teardown(void **state)
{
	(void)state;
	return nftw(root, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static void tree(void **state)
{
	static const char *const want[] = { ".hidden", "a b%?", "d/", "dir/deep/x", "dir/y",
		"empty", "links/", "new\nline" };
	char path[2048];
	struct ufs *ufs;
	struct rows r;

	(void)state;
	make("a b%?", "1", 1);
	make("empty", "", 0);
	make("new\nline", "x", 1);
	make(".hidden", "x", 1);
	make_dir("d");
	make_dir("dir");
	make_dir("dir/deep");
	make("dir/deep/x", "12", 2);
	make("dir/y", "123", 3);
	make_dir("links");
	(void)snprintf(path, sizeof(path), "%s/links/up", root);
	assert_int_equal(symlink("..", path), 0);
	(void)snprintf(path, sizeof(path), "%s/links/file", root);
	assert_int_equal(symlink("/etc/passwd", path), 0);
	(void)snprintf(path, sizeof(path), "%s/links/fifo", root);
	assert_int_equal(mkfifo(path, 0600), 0);
	ufs = open_origin(root);
	assert_int_equal(ufs_probe(ufs, NULL), 0);
	r = list_all(ufs, 100);
	assert_int_equal(r.n, ARRAY_SIZE(want));
	assert_int_equal(counter_get(&ufs_counters(ufs)->left_out), 3);
	for (size_t i = 0; i < ARRAY_SIZE(want); i++) {
		assert_string_equal(r.rows[i].key, want[i]);
		assert_int_equal(strncmp(r.rows[i].tag, "f:", 2), 0);
	}
	assert_int_equal(r.rows[3].size, 2);
	assert_int_equal(r.rows[2].size, 0);
	free(r.rows);
	ufs_free(ufs);
}

/* Configuration, keys, state and cached bytes of Granary are in no source. */
static void not_its_own(void **state)
{
	static const char *const want[] = { "data/x", "plain" };
	static char key[2048];
	static char config[2048];
	static char state_dir[2048];
	struct ufs_limits limits = UFS_LIMITS_DEFAULT;
	struct ufs_config source;
	struct ufs *ufs;
	struct err e = ERR_INIT;
	struct rows r;
	char url[2200];

	(void)state;
	make_dir("data");
	make("data/x", "1", 1);
	make("plain", "1", 1);
	make_dir("keys");
	make("keys/real", "k", 1);
	make("config", "c", 1);
	make_dir("state");
	make_dir("state/deep");
	make("state/deep/x", "s", 1);
	make_dir("tier");
	make("tier/granary.tier", "t", 1);
	make_dir("tier/chunks");
	make("tier/chunks/x", "t", 1);
	(void)snprintf(url, sizeof(url), "%s/keys/real", root);
	(void)snprintf(key, sizeof(key), "%s/key", root);
	assert_int_equal(symlink(url, key), 0);
	(void)snprintf(config, sizeof(config), "%s/config", root);
	(void)snprintf(state_dir, sizeof(state_dir), "%s/state", root);
	protected_add(key);
	protected_add(config);
	protected_add(state_dir);
	protected_add(NULL);
	ufs = open_origin(root);
	r = list_all(ufs, 100);
	/* "keys/" holds nothing else. */
	assert_int_equal(r.n, 3);
	assert_string_equal(r.rows[0].key, want[0]);
	assert_string_equal(r.rows[1].key, "keys/");
	assert_string_equal(r.rows[2].key, want[1]);
	assert_int_equal(counter_get(&ufs_counters(ufs)->left_out), 5); /* the link, too */
	free(r.rows);
	/* A key that is replaced, as `mv` does, is as little in it. */
	make("keys/new", "k2", 2);
	(void)snprintf(url, sizeof(url), "%s/keys/new", root);
	(void)snprintf(config, sizeof(config), "%s/config", root);
	assert_int_equal(rename(url, config), 0);
	r = list_all(ufs, 100);
	assert_int_equal(r.n, 3);
	free(r.rows);
	ufs_free(ufs);
	/* Nor is a source what lies below, whatever it is called. */
	for (size_t i = 0; i < 5; i++) {
		static const char *const inside[] = { "state", "state/deep", "tier", "tier/chunks",
			"link" };
		char path[2200];

		(void)snprintf(path, sizeof(path), "%s/link", root);
		if (i == 0)
			assert_int_equal(symlink("state/deep", path), 0);
		(void)snprintf(url, sizeof(url), "file://%s/%s", root, inside[i]);
		assert_int_equal(ufs_config_parse(url, &source, NULL), 0);
		assert_int_equal(ufs_open(&source, &limits, &ufs, &e), -EPERM);
		assert_non_null(strstr(e.text, "of Granary; give another directory"));
		ufs_config_release(&source);
	}
}

static void wide(void **state)
{
	struct ufs *ufs;
	struct rows r;
	char name[64];
	char fill[100] = { 0 };

	(void)state;
	for (int d = 0; d < 30; d++) {
		(void)snprintf(name, sizeof(name), "d%02d", d);
		make_dir(name);
		for (int i = 0; i < 100; i++) {
			(void)snprintf(name, sizeof(name), "d%02d/f%03d", d, i);
			make(name, fill, (size_t)i);
		}
	}
	ufs = open_origin(root);
	r = list_all(ufs, 4000);
	assert_int_equal(r.n, 3000);
	for (uint32_t i = 0; i < r.n; i++) {
		(void)snprintf(name, sizeof(name), "d%02u/f%03u", i / 100, i % 100);
		assert_string_equal(r.rows[i].key, name);
		assert_int_equal(r.rows[i].size, i % 100);
	}
	free(r.rows);
	ufs_free(ufs);
}

/* Ranges are right, over slices too; a young file is waited for; a file that changed in any way
 * is refused. */
static void reads(void **state)
{
	size_t size = 3 * 1024 * 1024 + 17;
	char *data = malloc(size);
	char *buf;
	struct ufs *ufs;
	struct rows r;
	uint64_t t = clock_mono_ns();

	(void)state;
	for (size_t i = 0; i < size; i++)
		data[i] = (char)(i * 31 + i / 4096);
	make("big", data, size);
	make("small", "hello", 5);
	ufs = open_origin(root);
	r = list_all(ufs, 10);
	assert_int_equal(get(ufs, &r.rows[0], 0, size, &buf), 0);
	assert_memory_equal(buf, data, size);
	free(buf);
	assert_true(clock_mono_ns() - t >= 3 * CLOCK_SECOND / 2); /* it was written just before */
	assert_int_equal(get(ufs, &r.rows[0], 1024 * 1024 - 3, 1024 * 1024 + 5, &buf), 0);
	assert_memory_equal(buf, data + 1024 * 1024 - 3, 1024 * 1024 + 5);
	free(buf);
	assert_int_equal(get(ufs, &r.rows[1], 1, 3, &buf), 0);
	assert_memory_equal(buf, "ell", 3);
	free(buf);
	assert_true(counter_get(&ufs_counters(ufs)->bytes) == size + 1024 * 1024 + 5 + 3);

	make("small", "HELLO", 5); /* same size */
	assert_int_equal(get(ufs, &r.rows[1], 0, 5, NULL), -ESTALE);
	make("big", data, 10);
	assert_int_equal(get(ufs, &r.rows[0], 0, size, NULL), -ESTALE);
	assert_true(counter_get(&ufs_counters(ufs)->stale) ==
		    2); /* no reader waits for them: believed at once */
	free(r.rows);
	free(data);
	ufs_free(ufs);
}

static void stays_inside(void **state)
{
	char path[2048];
	struct ufs *ufs;
	struct row row = { .size = 3, .tag = "f:1:2:3:4:5" };

	(void)state;
	make_dir("in");
	make("in/file", "abc", 3);
	make("outside", "abc", 3);
	(void)snprintf(path, sizeof(path), "%s/in/link", root);
	assert_int_equal(symlink("file", path), 0);
	(void)snprintf(path, sizeof(path), "%s/in", root);
	ufs = open_origin(path);
	(void)snprintf(row.key, sizeof(row.key), "../outside");
	assert_int_equal(get(ufs, &row, 0, 3, NULL), -ESTALE);
	(void)snprintf(row.key, sizeof(row.key), "link");
	assert_int_equal(get(ufs, &row, 0, 3, NULL), -ESTALE);
	(void)snprintf(row.key, sizeof(row.key), "/etc/passwd");
	assert_true(get(ufs, &row, 0, 3, NULL) < 0);
	(void)snprintf(row.key, sizeof(row.key), "nothing");
	assert_int_equal(get(ufs, &row, 0, 3, NULL), -ENOENT);
	ufs_free(ufs);
}

/* As somebody who may read only what others may; root reads everything. */
static void be_ordinary(bool ordinary)
{
	if (getuid() == 0)
		assert_int_equal(seteuid(ordinary ? NOBODY : 0), 0);
}

static void change_mode(const char *name, mode_t mode)
{
	char path[2048];

	(void)snprintf(path, sizeof(path), "%s/%s", root, name);
	assert_int_equal(chmod(path, mode), 0);
}

/* What may not be read is listed, counted, named, and refused at once. */
static void denied(void **state)
{
	struct err e = ERR_INIT;
	char path[2048];
	struct wait *w;
	struct ufs *ufs;
	struct rows r;

	(void)state;
	change_mode("", 0755);
	make("open", "12", 2);
	make("mine", "1", 1);
	make("secret\n\xff", "123", 3);
	make("shut", "123", 3);
	make_dir("closed");
	make("closed/x", "1", 1);
	make_dir("names-only");
	make("names-only/a", "1", 1);
	make("names-only/b", "1", 1);
	(void)snprintf(path, sizeof(path), "%s/mine", root);
	if (getuid() == 0)
		assert_int_equal(chown(path, NOBODY, (gid_t)-1), 0);
	change_mode("mine", 0400);
	change_mode("secret\n\xff", 0);
	change_mode("shut", 0);
	change_mode("closed", 0);
	change_mode("names-only", 0744 & ~(getuid() == 0 ? 0u : 0100u));
	be_ordinary(true);
	ufs = open_origin(root);
	r = list_all(ufs, 100);
	assert_int_equal(r.n, 6);
	assert_string_equal(r.rows[0].key, "closed/");
	assert_string_equal(r.rows[1].key, "mine");
	assert_string_equal(r.rows[2].key, "names-only/");
	assert_string_equal(r.rows[5].key, "shut");
	assert_int_equal(counter_get(&ufs_counters(ufs)->unreadable), 5);
	assert_string_equal(ufs_first_unreadable(ufs), "closed/");
	assert_int_equal(get(ufs, &r.rows[1], 0, 1, NULL), 0);
	for (uint32_t i = 4; i < 6; i++) {
		w = start(ufs, &r.rows[i], 0, 3);
		pthread_mutex_lock(&w->lock);
		while (!w->done)
			pthread_cond_wait(&w->news, &w->lock);
		e = w->e;
		pthread_mutex_unlock(&w->lock);
		assert_int_equal(finish(w, NULL), -EPERM);
		assert_non_null(
			strstr(e.text, i == 5 ? "/shut: permission denied to user" : "secret?"));
		assert_non_null(strstr(e.text, "chmod"));
	}
	assert_int_equal(counter_get(&ufs_counters(ufs)->gets), 3);
	assert_int_equal(counter_get(&ufs_counters(ufs)->retries), 0);
	assert_int_equal(counter_get(&ufs_counters(ufs)->cause_forbidden), 2);
	be_ordinary(false);
	/* Once it may be read, it is. */
	change_mode("closed", 0755);
	change_mode("names-only", 0755);
	free(r.rows);
	be_ordinary(true);
	r = list_all(ufs, 100);
	assert_int_equal(r.n, 7);
	assert_int_equal(counter_get(&ufs_counters(ufs)->unreadable), 2);
	assert_string_equal(ufs_first_unreadable(ufs), "secret??"); /* no line's end, and UTF-8 */
	free(r.rows);
	ufs_free(ufs);
	be_ordinary(false);
}

/* A link in a file's place, or in a directory's above it, is no file again by waiting. */
static void became_a_link(void **state)
{
	char path[2048];
	struct ufs *ufs;
	struct rows r;

	(void)state;
	make("file", "abc", 3);
	make_dir("dir");
	make("dir/file", "abc", 3);
	ufs = open_origin(root);
	r = list_all(ufs, 10);
	(void)snprintf(path, sizeof(path), "%s/file", root);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(symlink("file", path), 0); /* to itself */
	(void)snprintf(path, sizeof(path), "%s/dir/file", root);
	assert_int_equal(unlink(path), 0);
	(void)snprintf(path, sizeof(path), "%s/dir", root);
	assert_int_equal(rmdir(path), 0);
	assert_int_equal(symlink("dir", path), 0);
	for (uint32_t i = 0; i < r.n; i++)
		assert_int_equal(get(ufs, &r.rows[i], 0, 3, NULL), -ESTALE);
	assert_int_equal(counter_get(&ufs_counters(ufs)->gets), 2);
	assert_int_equal(counter_get(&ufs_counters(ufs)->retries), 0);
	free(r.rows);
	r = list_all(ufs, 10);
	assert_int_equal(r.n, 0);
	assert_int_equal(counter_get(&ufs_counters(ufs)->left_out), 2);
	ufs_free(ufs);
	free(r.rows);
}

static void bad_roots(void **state)
{
	struct ufs_limits limits = UFS_LIMITS_DEFAULT;
	struct ufs_config config;
	struct ufs *ufs;
	struct err e = ERR_INIT;
	char url[2048];

	(void)state;
	ufs = open_origin(root);
	assert_int_equal(ufs_probe(ufs, &e), -ENOENT); /* empty */
	assert_non_null(strstr(e.text, root));
	make("file", "x", 1);
	e = ERR_INIT;
	assert_int_equal(ufs_probe(ufs, &e), 0);
	assert_int_equal(e.code, 0); /* that one file is enough is no error */
	ufs_free(ufs);
	(void)snprintf(url, sizeof(url), "file://%s/file", root);
	assert_int_equal(ufs_config_parse(url, &config, NULL), 0);
	assert_int_equal(ufs_open(&config, &limits, &ufs, &e), -ENOTDIR);
	ufs_config_release(&config);
	(void)snprintf(url, sizeof(url), "file://%s/nothing", root);
	assert_int_equal(ufs_config_parse(url, &config, NULL), 0);
	assert_int_equal(ufs_open(&config, &limits, &ufs, &e), -ENOENT);
	assert_non_null(strstr(e.text, "nothing"));
	ufs_config_release(&config);
}

/* Closing ends what waits for its file to be old. */
static void closing(void **state)
{
	struct wait *w[40];
	struct ufs *ufs;
	struct rows r;

	(void)state;
	make("young", "x", 1);
	ufs = open_origin(root);
	r = list_all(ufs, 10);
	for (size_t i = 0; i < ARRAY_SIZE(w); i++)
		w[i] = start(ufs, &r.rows[0], 0, 1);
	ufs_free(ufs);
	for (size_t i = 0; i < ARRAY_SIZE(w); i++)
		assert_int_equal(finish(w[i], NULL), -ECANCELED);
	free(r.rows);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(tree, setup, teardown),
		cmocka_unit_test_setup_teardown(not_its_own, setup, teardown),
		cmocka_unit_test_setup_teardown(wide, setup, teardown),
		cmocka_unit_test_setup_teardown(reads, setup, teardown),
		cmocka_unit_test_setup_teardown(stays_inside, setup, teardown),
		cmocka_unit_test_setup_teardown(denied, setup, teardown),
		cmocka_unit_test_setup_teardown(became_a_link, setup, teardown),
		cmocka_unit_test_setup_teardown(bad_roots, setup, teardown),
		cmocka_unit_test_setup_teardown(closing, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
