/*
 * Images of several sources: the names of all at their paths, what a deeper one hides, and that
 * every file's bytes are found in the volume that it is of.
 */
#include "tests/unit/catalog/fixture.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "catalog/catalog_internal.h"
#include "catalog/image_read.h"

#include <errno.h>

static const struct image_options small_extents = {
	.uid = 1234, .gid = 4321, .umask = 022, .extent_bytes = CHUNK_BYTES
};
static struct image_view view;

struct skipped {
	uint32_t n;
	char text[1024];
};

static void on_skip(void *arg, const char *key, uint32_t key_len, const char *reason)
{
	struct skipped *s = arg;
	size_t len = strlen(s->text);

	s->n++;
	snprintf(s->text + len, sizeof(s->text) - len, "%.*s: %s\n", (int)key_len, key, reason);
}

static struct table *table_of(const char *name, uint8_t volume, struct listing *l)
{
	struct volume_id id = { { volume } };
	struct err e = ERR_INIT;
	const char *path = fixture_path(name);

	assert_int_equal(generation_build(&id, NULL, l, path, NULL, NULL, &e), 0);
	listing_free(l);
	return fixture_open(path);
}

/* `n` files of `bytes`, named PREFIX0, PREFIX1, ... */
static struct table *table_of_files(
	const char *name, uint8_t volume, const char *prefix, uint32_t n, uint64_t bytes)
{
	struct listing *l = listing_new(64 << 20);

	for (uint32_t i = 0; i < n; i++) {
		char key[128];

		snprintf(key, sizeof(key), "%s%u", prefix, i);
		fixture_add(l, key, bytes + i, "t");
	}
	return table_of(name, volume, l);
}

static struct image *build(const struct image_source *sources, uint32_t n, const char *name,
	struct skipped *s, struct image_info *info)
{
	struct image *image = NULL;
	struct err e = ERR_INIT;
	int r;

	memset(s, 0, sizeof(*s));
	r = image_build_sources(
		sources, n, &small_extents, fixture_path(name), on_skip, s, info, &e);
	if (r < 0)
		print_message("%s\n", e.text);
	assert_int_equal(r, 0);
	assert_int_equal(info->skipped, s->n);
	assert_int_equal(info->sources.n, n);
	r = image_open(open(fixture_path(name), O_RDONLY | O_CLOEXEC), info->extent_bytes,
		&info->sources, &image, &e);
	if (r < 0)
		print_message("%s\n", e.text);
	assert_int_equal(r, 0);
	assert_int_equal(image_n_inodes(image), info->files + info->directories);
	memset(&view, 0, sizeof(view));
	return image;
}

/* fsck.erofs reads the whole image; nothing is checked when it is not there. */
static void fsck_image(const char *name, const struct image_info *info)
{
	char command[16384];
	const char *extent = fixture_path("extent");
	int fd = open(extent, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	int n = snprintf(command, sizeof(command), "fsck.erofs");
	int status;

	assert_int_equal(ftruncate(fd, (off_t)info->extent_bytes), 0);
	close(fd);
	for (uint32_t i = 0; i < info->extents; i++)
		n += snprintf(command + n, sizeof(command) - (size_t)n, " --device=%s", extent);
	snprintf(command + n, sizeof(command) - (size_t)n, " %s >/dev/null 2>&1",
		fixture_path(name));
	status = system(command);
	if (WIFEXITED(status) && WEXITSTATUS(status) == 127)
		print_message("no fsck.erofs here\n");
	else
		assert_int_equal(status, 0);
}

static int find(struct image *image, const char *path, struct image_inode *ret)
{
	int r = image_inode(image, &view, image_root(image), ret);

	while (r == 0 && *path) {
		size_t n = strcspn(path, "/");

		r = image_lookup(image, &view, ret, path, (uint32_t)n, ret);
		path += n + (path[n] == '/');
	}
	return r;
}

/* A path is of that source's row with that key, in the image and for image_resolve_sources(). */
static void expect_file(struct image *image, const struct image_source *sources, uint32_t n,
	const char *path, uint32_t source, const char *key)
{
	static struct table_row row;
	static struct table_row resolved;
	struct image_inode inode;
	uint32_t whose = 99;

	assert_int_equal(
		table_find_key(sources[source].table, key, (uint32_t)strlen(key), &row), 0);
	if (find(image, path, &inode) != 0)
		fail_msg("%s is not in the image", path);
	assert_false(inode.directory);
	assert_int_equal(inode.size, row.size);
	if (row.size)
		assert_int_equal(inode.offset, place_of(source, row.offset));
	assert_int_equal(image_resolve_sources(sources, n, path, &whose, &resolved), 0);
	assert_int_equal(whose, source);
	assert_string_equal(resolved.key, key);
}

static void expect_directory(struct image *image, const struct image_source *sources, uint32_t n,
	const char *path, uint32_t source)
{
	static struct table_row row;
	struct image_inode inode;
	uint32_t whose = 99;

	if (find(image, path, &inode) != 0)
		fail_msg("%s is not in the image", path);
	assert_true(inode.directory);
	assert_int_equal(image_resolve_sources(sources, n, path, &whose, &row), 0);
	assert_int_equal(whose, source);
	assert_true(row.flags & ROW_DIRECTORY);
}

static void expect_none(
	struct image *image, const struct image_source *sources, uint32_t n, const char *path)
{
	static struct table_row row;
	struct image_inode inode;
	uint32_t whose;

	assert_true(find(image, path, &inode) < 0);
	assert_true(image_resolve_sources(sources, n, path, &whose, &row) < 0);
}

/* The entries of a directory, comma-separated. */
static const char *list(struct image *image, const char *path)
{
	static char text[4096];
	struct image_inode dir;
	struct image_entry entry;
	uint64_t cookie = 0;
	size_t n = 0;

	text[0] = '\0';
	assert_int_equal(find(image, path, &dir), 0);
	while (image_read_entry(image, &view, &dir, cookie, &entry) == 0) {
		n += (size_t)snprintf(text + n, sizeof(text) - n, "%s%.*s", n ? "," : "",
			(int)entry.name_len, entry.name);
		cookie = entry.next_cookie;
	}
	return text;
}

/* ---------------------------------------------------------------------------------------------- */

static void two_beside(void **state)
{
	struct table *images = table_of_files("a.t", 1, "train/", 300, 120000);
	struct table *labels = table_of_files("b.t", 2, "l", 20, 5000);
	const struct image_source sources[] = { { images, "imgs", NULL },
		{ labels, "lab/els", "" } };
	struct skipped s;
	struct image_info info;
	struct image *image = build(sources, 2, "two", &s, &info);

	(void)state;
	fsck_image("two", &info);
	assert_int_equal(s.n, 0);
	assert_int_equal(info.files, 320);
	assert_int_equal(info.directories, 5); /* root, imgs, imgs/train, lab, lab/els */
	assert_string_equal(list(image, ""), "imgs,lab");
	assert_string_equal(list(image, "lab"), "els");
	/* 300 x 30 blocks or so are some chunks */
	assert_true(info.sources.first[1] > 1);
	assert_int_equal(info.extents, info.sources.first[1] + 2);
	for (uint32_t i = 0; i < 300; i += 7) {
		char path[64];

		snprintf(path, sizeof(path), "imgs/train/%u", i);
		expect_file(image, sources, 2, path, 0, path + 5);
	}
	for (uint32_t i = 0; i < 20; i++) {
		char path[64];

		snprintf(path, sizeof(path), "lab/els/l%u", i);
		expect_file(image, sources, 2, path, 1, path + 8);
	}
	expect_directory(image, sources, 2, "imgs", 0);
	expect_directory(image, sources, 2, "imgs/train", 0);
	expect_directory(image, sources, 2, "lab", 1);
	expect_directory(image, sources, 2, "lab/els", 1);
	expect_none(image, sources, 2, "train");
	expect_none(image, sources, 2, "l1");
	expect_none(image, sources, 2, "imgs/l1");
	expect_none(image, sources, 2, "lab/els/train");
	image_close(image);
	table_unref(images);
	table_unref(labels);
}

static void deeper_hides(void **state)
{
	struct listing *l = listing_new(1 << 20);
	struct table *whole;
	struct table *sub = table_of_files("d.t", 2, "x", 3, 10);
	struct table *deep = table_of_files("e.t", 3, "y", 2, 10);
	const struct image_source sources[] = { { sub, "sub", NULL }, { NULL, "", NULL },
		{ deep, "sub/in/it", NULL } };
	struct image_source all[3];
	struct skipped s;
	struct image_info info;
	struct image *image;

	(void)state;
	fixture_add(l, "a", 10, "t");
	fixture_add(l, "sub", 20, "t"); /* hidden, as the next three */
	fixture_add(l, "sub/", 0, "t");
	fixture_add(l, "sub/gone", 20, "t");
	fixture_add(l, "sub/x1", 777, "t");
	fixture_add(l, "sub-not", 10, "t");
	fixture_add(l, "sub0", 10, "t");
	fixture_add(l, "z/1", 10, "t");
	whole = table_of("c.t", 1, l);
	memcpy(all, sources, sizeof(all));
	all[1].table = whole;
	image = build(all, 3, "nested", &s, &info);
	fsck_image("nested", &info);
	assert_int_equal(s.n, 0);
	assert_string_equal(list(image, ""), "a,sub,sub-not,sub0,z");
	assert_string_equal(list(image, "sub"), "in,x0,x1,x2");
	assert_string_equal(list(image, "sub/in/it"), "y0,y1");
	expect_file(image, all, 3, "a", 1, "a");
	expect_file(image, all, 3, "sub-not", 1, "sub-not");
	expect_file(image, all, 3, "sub0", 1, "sub0");
	expect_file(image, all, 3, "z/1", 1, "z/1");
	expect_file(image, all, 3, "sub/x1", 0, "x1");
	expect_file(image, all, 3, "sub/in/it/y1", 2, "y1");
	expect_directory(image, all, 3, "sub", 0);
	expect_directory(image, all, 3, "sub/in", 2);
	expect_none(image, all, 3, "sub/gone");
	image_close(image);
	table_unref(whole);
	table_unref(sub);
	table_unref(deep);
}

/* Of the same volume twice, a view of it, one without objects, and a file in the way. */
static void views(void **state)
{
	struct listing *l = listing_new(1 << 20);
	struct table *t;
	struct table *none = table_of("none.t", 9, listing_new(1 << 20));
	struct image_source sources[4];
	struct skipped s;
	struct image_info info;
	struct image *image;
	static struct table_row row;
	uint32_t whose = 99;
	struct err e = ERR_INIT;

	(void)state;
	fixture_add(l, "a/b/1", 10, "t");
	fixture_add(l, "a/b/c/2", 5000, "t");
	fixture_add(l, "a/d", 10, "t");
	fixture_add(l, "e", 10, "t");
	t = table_of("v.t", 1, l);
	sources[0] = (struct image_source){ t, "", "" };
	sources[1] = (struct image_source){ t, "view", "a/b/" };
	sources[2] = (struct image_source){ none, "empty", NULL };
	sources[3] = (struct image_source){ t, "e/view", "a/" };
	image = build(sources, 4, "views", &s, &info);
	fsck_image("views", &info);
	assert_int_equal(s.n, 1);
	assert_string_equal(s.text, "e: a directory has the same name\n");
	assert_string_equal(list(image, ""), "a,e,empty,view");
	assert_string_equal(list(image, "view"), "1,c");
	assert_string_equal(list(image, "e/view"), "b,d");
	assert_string_equal(list(image, "empty"), "");
	expect_file(image, sources, 4, "a/b/c/2", 0, "a/b/c/2");
	expect_file(image, sources, 4, "view/c/2", 1, "a/b/c/2");
	expect_file(image, sources, 4, "e/view/b/c/2", 3, "a/b/c/2");
	expect_directory(image, sources, 4, "empty", 2);
	expect_directory(image, sources, 4, "e", 3);
	assert_int_equal(image_resolve_sources(sources, 4, "e/view/d/x", &whose, &row), -ENOTDIR);
	image_close(image);
	/* What one of them shows is gone: it is said which. */
	for (unsigned int i = 0; i < 2; i++) {
		sources[1].subtree = i ? "a/gone/" : "a/b/";
		sources[3].subtree = i ? "a/" : "zzz/";
		assert_int_equal(image_build_sources(sources, 4, &small_extents,
					 fixture_path("views"), NULL, NULL, &info, &e),
			-ENOENT);
		assert_non_null(strstr(e.text, i ? "shown at /view has no directory a/gone/:"
						 : "shown at /e/view has no directory zzz/:"));
		e = (struct err)ERR_INIT;
	}
	table_unref(t);
	table_unref(none);
}

/* The rule of a single source is the same one. */
static void one_is_as_before(void **state)
{
	struct table *t = table_of_files("one.t", 1, "d/f", 50, 70000);
	const struct image_source source = { t, "", NULL };
	struct skipped s;
	struct image_info info;
	struct image_info other;
	_cleanup_(buf_release) struct buf a = BUF_INIT(1 << 20);
	_cleanup_(buf_release) struct buf b = BUF_INIT(1 << 20);
	struct image *image = build(&source, 1, "one", &s, &info);

	(void)state;
	assert_int_equal(
		image_build(t, &small_extents, fixture_path("same"), NULL, NULL, &other, NULL), 0);
	assert_int_equal(file_read_all(fixture_path("one"), &a), 0);
	assert_int_equal(file_read_all(fixture_path("same"), &b), 0);
	assert_int_equal(a.len, b.len);
	assert_memory_equal(a.data, b.data, a.len);
	expect_file(image, &source, 1, "d/f7", 0, "d/f7");
	image_close(image);
	table_unref(t);
}

static void one_device(void **state)
{
	struct table *a = table_of_files("p.t", 1, "f", 10, 1 << 20);
	struct table *b = table_of_files("q.t", 2, "g", 10, 1 << 20);
	const struct image_source sources[] = { { a, "a", NULL }, { b, "b", NULL } };
	struct image_options o = small_extents;
	struct image_info info;

	(void)state;
	o.one_device = true;
	assert_int_equal(
		image_build_sources(sources, 2, &o, fixture_path("dev"), NULL, NULL, &info, NULL),
		0);
	fsck_image("dev", &(struct image_info){ .extent_bytes = CHUNK_BYTES });
	assert_int_equal(info.sources.n, 2);
	/* the second begins past the first's end */
	assert_true(info.sources.first[1] * info.extent_bytes > table_info(a)->end);
	table_unref(a);
	table_unref(b);
}

static void refused(void **state)
{
	struct table *t = table_of_files("r.t", 1, "f", 2, 10);
	static const char *const bad[] = { "/a", "a/", "a//b", "..", "a/./b" };
	struct image_source sources[LAYOUT_SOURCES_MAX + 1];
	struct image_info info;
	struct err e = ERR_INIT;
	static char longer[IMAGE_PATH_MAX + 2];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		sources[0] = (struct image_source){ t, bad[i], NULL };
		assert_int_equal(image_check_path(bad[i]), -EINVAL);
		assert_int_equal(image_build_sources(sources, 1, &small_extents,
					 fixture_path("bad"), NULL, NULL, &info, &e),
			-EINVAL);
	}
	memset(longer, 'x', sizeof(longer) - 1);
	for (size_t i = 100; i < sizeof(longer) - 1; i += 100)
		longer[i] = '/';
	assert_int_equal(image_check_path(longer), -EINVAL);
	longer[IMAGE_PATH_MAX] = '\0';
	assert_int_equal(image_check_path(longer), 0);
	sources[0] = sources[1] = (struct image_source){ t, "same", NULL };
	assert_int_equal(image_build_sources(sources, 2, &small_extents, fixture_path("bad"), NULL,
				 NULL, &info, &e),
		-EINVAL);
	sources[1] = (struct image_source){ t, "other", "none/" };
	assert_int_equal(image_build_sources(sources, 2, &small_extents, fixture_path("bad"), NULL,
				 NULL, &info, &e),
		-ENOENT);
	assert_non_null(strstr(e.text, "no directory none/"));
	assert_int_equal(image_build_sources(sources, LAYOUT_SOURCES_MAX + 1, &small_extents,
				 fixture_path("bad"), NULL, NULL, &info, &e),
		-EINVAL);
	table_unref(t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(two_beside),
		cmocka_unit_test(deeper_hides),
		cmocka_unit_test(views),
		cmocka_unit_test(one_is_as_before),
		cmocka_unit_test(one_device),
		cmocka_unit_test(refused),
	};

	return cmocka_run_group_tests(tests, fixture_setup, fixture_teardown);
}
