/* Images of a node: built once, checked, replaced. And the table of failed reads. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/file.h"
#include "fuse/daemon/failures.h"
#include "fuse/daemon/images.h"

static const struct volume_id volume = { { 9, 8, 7 } };
#define WHOLE(table) (&(struct image_source){ (table), "", NULL })

static const struct image_options plain = { .umask = 022, .extent_bytes = 16 << 20 };
static char dir[64];

static const char *in_dir(const char *name)
{
	static char paths[4][192];
	static unsigned int next;
	char *p = paths[next++ % 4];

	snprintf(p, sizeof(paths[0]), "%s/%s", dir, name);
	return p;
}

/* The generation of `files` files after `prev`, which may be NULL. */
static struct table *generation(struct table *prev, unsigned int files)
{
	struct listing *l = listing_new(16 << 20);
	struct table *t = NULL;
	struct err e = ERR_INIT;
	char key[32];

	for (unsigned int i = 0; i < files; i++) {
		int n = snprintf(key, sizeof(key), "dir/f%03u", i);

		assert_int_equal(
			listing_add(l, key, (uint32_t)n, 100000, 1700000000000000000, "t", 1), 0);
	}
	snprintf(key, sizeof(key), "table%u", files);
	assert_int_equal(generation_build(&volume, prev, l, in_dir(key), NULL, NULL, &e), 0);
	listing_free(l);
	assert_int_equal(table_open(open(in_dir(key), O_RDONLY | O_CLOEXEC), &t, &e), 0);
	return t;
}

static struct images_result get(struct table *t, const struct image_options *options)
{
	struct images_result result;
	struct err e = ERR_INIT;
	int r = images_get(in_dir("images"), WHOLE(t), 1, options, NULL, NULL, &result, &e);

	if (r < 0)
		print_message("%s\n", e.text);
	assert_int_equal(r, 0);
	return result;
}

static unsigned int images(void)
{
	DIR *d = opendir(in_dir("images"));
	const struct dirent *entry;
	unsigned int n = 0;

	while ((entry = readdir(d)) != NULL)
		n += strstr(entry->d_name, ".erofs") != NULL;
	closedir(d);
	return n;
}

static const char *image_path(const struct images_result *r)
{
	char name[96];

	snprintf(name, sizeof(name), "images/%s", r->name);
	return in_dir(name);
}

static const char *info_path(const struct images_result *r)
{
	char name[96];

	snprintf(name, sizeof(name), "images/%.*s.info", (int)(strlen(r->name) - 6), r->name);
	return in_dir(name);
}

static void built_once(void **state)
{
	struct table *t = generation(NULL, 20);
	struct images_result first = get(t, &plain);
	struct images_result again = get(t, &plain);
	struct image_options other = plain;
	struct images_result others;
	struct stat st;

	(void)state;
	assert_false(first.reused);
	assert_int_equal(first.info.files, 20);
	assert_true(again.reused);
	assert_string_equal(again.name, first.name);
	assert_memory_equal(&again.info, &first.info, sizeof(first.info));
	assert_int_equal(stat(image_path(&first), &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
	assert_int_equal(st.st_size, first.info.image_bytes);
	other.uid = 1000;
	others = get(t, &other);
	assert_false(others.reused);
	assert_string_not_equal(others.name, first.name);
	assert_int_equal(images(), 2);
	table_unref(t);
}

#define BUILDERS 6

/* A mount that starts when `gate` closes. Its status: 0 built, 1 reused, others: failed. */
static pid_t mount_behind(int gate[2], struct table *t)
{
	struct images_result result;
	char byte;
	pid_t pid = fork();

	if (pid != 0)
		return pid;
	(void)close(gate[1]);
	if (read(gate[0], &byte, 1) != 0 ||
		images_get(in_dir("images"), WHOLE(t), 1, &plain, NULL, NULL, &result, NULL) < 0)
		_exit(2);
	_exit(result.reused);
}

/* Mounts of one source that start together: one builds, the others use what it built. */
static void built_once_by_many(void **state)
{
	struct table *t = generation(NULL, 20000);
	unsigned int built = 0;
	pid_t pids[BUILDERS];
	int gate[2];

	(void)state;
	assert_int_equal(pipe(gate), 0);
	for (unsigned int i = 0; i < BUILDERS; i++)
		pids[i] = mount_behind(gate, t);
	(void)close(gate[0]);
	(void)close(gate[1]);
	for (unsigned int i = 0; i < BUILDERS; i++) {
		int status;

		assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
		assert_true(WIFEXITED(status));
		assert_in_range(WEXITSTATUS(status), 0, 1);
		built += WEXITSTATUS(status) == 0;
	}
	assert_int_equal(built, 1);
	assert_true(get(t, &plain).reused);
	table_unref(t);
}

static void replaced_by_the_next_generation(void **state)
{
	struct table *one = generation(NULL, 21);
	struct table *two = generation(one, 22);
	struct images_result first = get(one, &plain);
	struct images_result second = get(two, &plain);

	(void)state;
	assert_false(second.reused);
	assert_int_equal(second.info.files, 22);
	assert_int_equal(access(image_path(&first), F_OK), -1);
	assert_int_equal(access(info_path(&first), F_OK), -1);
	assert_int_equal(access(image_path(&second), F_OK), 0);
	table_unref(one);
	table_unref(two);
}

static void bounded(void **state)
{
	struct table *t = generation(NULL, 23);
	struct image_options options = plain;
	struct images_result last = { 0 };

	(void)state;
	for (uint32_t uid = 1; uid <= 3 * IMAGES_KEEP; uid++) {
		options.uid = uid;
		last = get(t, &options);
		assert_true(images() <= IMAGES_KEEP);
	}
	assert_true(get(t, &options).reused);
	assert_int_equal(access(image_path(&last), F_OK), 0);
	table_unref(t);
}

static void rewrite(const char *path, const char *from, const char *to)
{
	struct buf b = BUF_INIT(4096);
	char *at;

	assert_int_equal(file_read_all(path, &b), 0);
	at = strstr(b.data, from);
	assert_non_null(at);
	while (*to)
		*at++ = *to++;
	assert_int_equal(file_write_atomic(path, b.data, b.len, 0600), 0);
	buf_release(&b);
}

static void flip_byte(const char *path, off_t at)
{
	int fd = open(path, O_RDWR | O_CLOEXEC);
	unsigned char byte;

	assert_int_equal(pread(fd, &byte, 1, at), 1);
	byte ^= 0x10;
	assert_int_equal(pwrite(fd, &byte, 1, at), 1);
	close(fd);
}

/* Whatever is wrong with what is there, the image that comes back is whole. */
static void damaged(void **state)
{
	struct table *t = generation(NULL, 24);
	struct images_result r = get(t, &plain);

	(void)state;
	rewrite(info_path(&r), "\"boot\": \"",
		"\"boot\": \"0x"); /* written before a power loss, and whole */
	assert_true(get(t, &plain).reused);
	rewrite(info_path(&r), "\"boot\": \"", "\"boot\": \"0x"); /* and not whole */
	flip_byte(image_path(&r), 5000);
	assert_false(get(t, &plain).reused);
	assert_true(get(t, &plain).reused);
	assert_int_equal(truncate(image_path(&r), 4096), 0);
	assert_false(get(t, &plain).reused);
	assert_int_equal(chmod(image_path(&r), 0666), 0); /* others could have written */
	assert_false(get(t, &plain).reused);
	rewrite(info_path(&r), "\"version\": 2", "\"version\": 9");
	assert_false(get(t, &plain).reused);
	assert_int_equal(truncate(info_path(&r), 20), 0);
	assert_false(get(t, &plain).reused);
	assert_int_equal(unlink(info_path(&r)), 0);
	assert_false(get(t, &plain).reused);
	assert_int_equal(unlink(image_path(&r)), 0);
	assert_false(get(t, &plain).reused);
	table_unref(t);
}

static void directory_of_others(void **state)
{
	struct table *t = generation(NULL, 25);
	struct images_result r;
	struct err e = ERR_INIT;

	(void)state;
	assert_int_equal(mkdir(in_dir("open"), 0777), 0);
	assert_int_equal(chmod(in_dir("open"), 0777), 0);
	assert_int_equal(
		images_get(in_dir("open"), WHOLE(t), 1, &plain, NULL, NULL, &r, &e), -EPERM);
	assert_non_null(strstr(e.text, "0700"));
	assert_true(
		images_get("/proc/nowhere/images", WHOLE(t), 1, &plain, NULL, NULL, &r, &e) < 0);
	table_unref(t);
}

static void failed_reads(void **state)
{
	struct table *t = generation(NULL, 26);
	struct failures *f = failures_new();
	struct table_row *row = malloc(sizeof(*row));
	json_t *list;

	(void)state;
	assert_int_equal(table_find_key(t, "dir/f003", 8, row), 0);
	assert_true(failures_note(f, row->offset, 4096, -ESTALE));
	assert_false(failures_note(f, row->offset, 4096, -ESTALE));
	assert_true(failures_note(f, row->offset, 4096, -EIO));
	assert_int_equal(failures_last(f, row->offset, row->size), -EIO);
	assert_int_equal(failures_last(f, row->offset + (1 << 20), 4096), 0);
	/* the next block may be another object's: both are kept */
	assert_true(failures_note(f, row->offset + 8192, 4096, -EIO));
	assert_int_equal(failures_last(f, row->offset, 4096), -EIO);
	list = failures_json(f, WHOLE(t), 1);
	assert_int_equal(json_array_size(list), 2);
	for (size_t i = 0; i < 2; i++) {
		const json_t *one = json_array_get(list, i);

		assert_string_equal(json_string_value(json_object_get(one, "key")), "dir/f003");
		if (strcmp(json_string_value(json_object_get(one, "error")), "ESTALE") == 0)
			assert_int_equal(json_integer_value(json_object_get(one, "count")), 2);
	}
	json_decref(list);
	for (uint64_t i = 0; i < 10 * FAILURES_MAX; i++) /* bounded: the newest stay */
		(void)failures_note(f, (100 + i) << 20, 4096, -EIO);
	assert_int_equal(failures_last(f, row->offset, row->size), 0);
	assert_int_equal(failures_last(f, (100ull + 10 * FAILURES_MAX - 1) << 20, 4096), -EIO);
	failures_log(f, WHOLE(t), 1);
	failures_free(f);
	free(row);
	table_unref(t);
}

/* Of two sources: one image for both and where they are shown; it is known again with its devices. */
static void several(void **state)
{
	struct table *a = generation(NULL, 27);
	struct table *b = generation(a, 28);
	struct image_source sources[] = { { a, "one", NULL }, { a, "two/x", NULL } };
	struct failures *f = failures_new();
	struct table_row *row = malloc(sizeof(*row));
	struct images_result first;
	struct images_result again;
	struct images_result other;
	json_t *list;

	(void)state;
	assert_int_equal(
		images_get(in_dir("two"), sources, 2, &plain, NULL, NULL, &first, NULL), 0);
	assert_int_equal(first.info.files, 54);
	assert_int_equal(first.info.sources.n, 2);
	assert_int_equal(
		images_get(in_dir("two"), sources, 2, &plain, NULL, NULL, &again, NULL), 0);
	assert_true(again.reused);
	assert_string_equal(again.name, first.name);
	assert_memory_equal(&again.info, &first.info, sizeof(first.info));
	/* elsewhere: another one beside it; a newer generation of one: instead of it */
	sources[1].path = "two/y";
	assert_int_equal(
		images_get(in_dir("two"), sources, 2, &plain, NULL, NULL, &other, NULL), 0);
	assert_false(other.reused);
	assert_true(strncmp(other.name, first.name, 32) != 0);
	sources[1] = (struct image_source){ b, "two/x", NULL };
	assert_int_equal(
		images_get(in_dir("two"), sources, 2, &plain, NULL, NULL, &other, NULL), 0);
	assert_false(other.reused);
	assert_true(strncmp(other.name, first.name, 32) == 0);
	assert_string_not_equal(other.name, first.name);
	assert_int_equal(other.info.files, 55);

	assert_int_equal(table_find_key(b, "dir/f027", 8, row), 0);
	assert_true(failures_note(f, place_of(1, row->offset), 4096, -EIO));
	assert_int_equal(failures_last(f, place_of(0, row->offset), 4096), 0);
	list = failures_json(f, sources, 2);
	assert_int_equal(json_array_size(list), 1);
	assert_string_equal(
		json_string_value(json_object_get(json_array_get(list, 0), "key")), "dir/f027");
	assert_string_equal(
		json_string_value(json_object_get(json_array_get(list, 0), "path")), "two/x");
	json_decref(list);
	failures_free(f);
	free(row);
	table_unref(a);
	table_unref(b);
}

static int setup(void **state)
{
	(void)state;
	snprintf(dir, sizeof(dir), "/var/tmp/granary-images-XXXXXX");
	return mkdtemp(dir) ? 0 : -1;
}

static int teardown(void **state)
{
	char command[128];

	(void)state;
	snprintf(command, sizeof(command), "rm -rf %s", dir);
	return system(command);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(built_once),
		cmocka_unit_test(built_once_by_many),
		cmocka_unit_test(replaced_by_the_next_generation),
		cmocka_unit_test(bounded),
		cmocka_unit_test(damaged),
		cmocka_unit_test(directory_of_others),
		cmocka_unit_test(failed_reads),
		cmocka_unit_test(several),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
