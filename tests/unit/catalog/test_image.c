/*
 * EROFS images: what fsck.erofs and the kernel make of them, against the bytes laid in the volume.
 *
 * As root on a kernel with file-backed EROFS the image is mounted over plain files as extents and
 * every file is read and compared; elsewhere these tests are skipped.
 */
#include "tests/unit/catalog/fixture.h"
#include "catalog/catalog_internal.h"

#include <dirent.h>
#include <errno.h>
#include <ftw.h>
#include <linux/mount.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

struct skipped {
	uint32_t n;
	char text[4096];
};

static void on_skip(void *arg, const char *key, uint32_t key_len, const char *reason)
{
	struct skipped *s = arg;
	size_t len = strlen(s->text);

	assert_int_equal(strlen(key), key_len);
	s->n++;
	if (len + key_len + strlen(reason) + 4 < sizeof(s->text))
		sprintf(s->text + len, "%s: %s\n", key, reason);
}

/* The byte at `offset` of an object. */
static uint8_t pattern(uint64_t seed, uint64_t offset)
{
	return (uint8_t)piece_seed(seed, offset / 8) + (uint8_t)(offset % 8);
}

static const char *extent_path(const char *name, uint32_t i)
{
	static char path[160];

	snprintf(path, sizeof(path), "%s/%s.ext%u", fixture_dir, name, i);
	return path;
}

/* Writes the bytes of every live row into the extents' files. */
static void extents_write(struct table *t, const struct image_info *info, const char *name)
{
	struct table_cursor cursor = { 0 };
	static struct table_row row;
	static uint8_t bytes[65536];
	int fds[64];

	assert_true(info->extents <= ARRAY_SIZE(fds));
	for (uint32_t i = 0; i < info->extents; i++) {
		fds[i] = open(extent_path(name, i), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
		assert_true(fds[i] >= 0);
		assert_int_equal(ftruncate(fds[i], (off_t)info->extent_bytes), 0);
	}
	while (table_next(t, &cursor, &row) == 0) {
		uint64_t seed = piece_object_seed(row.key, row.key_len, row.tag, row.tag_len);

		if (row.flags & ROW_DEAD || !row_has_bytes(&row))
			continue;
		for (uint64_t at = 0; at < row.size;) {
			uint64_t v = row.offset + at;
			uint64_t n =
				min(row.size - at, info->extent_bytes - v % info->extent_bytes);

			n = min(n, (uint64_t)sizeof(bytes));
			for (uint64_t i = 0; i < n; i++)
				bytes[i] = pattern(seed, at + i);
			assert_int_equal(file_pwrite_exact(fds[v / info->extent_bytes], bytes, n,
						 v % info->extent_bytes),
				0);
			at += n;
		}
	}
	table_cursor_release(&cursor);
	for (uint32_t i = 0; i < info->extents; i++)
		close(fds[i]);
}

static int setting(int fs, unsigned int command, const char *key, const char *value)
{
	return (int)syscall(SYS_fsconfig, fs, command, key, value, 0);
}

/* Mounts the image at a directory of the fixture; skips the test where that cannot be. */
static const char *mount_image(const char *name, uint32_t extents)
{
	const char *dir = fixture_path("mnt");
	int fs;
	int mnt;

	(void)mkdir(dir, 0700);
	fs = geteuid() == 0 ? (int)syscall(SYS_fsopen, "erofs", FSOPEN_CLOEXEC) : -1;
	if (fs < 0) {
		print_message("skipped: needs root and a kernel with EROFS\n");
		skip();
	}
	assert_int_equal(setting(fs, FSCONFIG_SET_STRING, "source", fixture_path(name)), 0);
	assert_int_equal(setting(fs, FSCONFIG_SET_FLAG, "ro", NULL), 0);
	for (uint32_t i = 0; i < extents; i++)
		assert_int_equal(
			setting(fs, FSCONFIG_SET_STRING, "device", extent_path(name, i)), 0);
	if (setting(fs, FSCONFIG_CMD_CREATE, NULL, NULL) != 0) {
		char text[512] = "";

		(void)!read(fs, text, sizeof(text) - 1);
		if (errno == ENOTBLK) {
			print_message("skipped: this kernel has no file-backed EROFS\n");
			skip();
		}
		fail_msg("the kernel refused the image: %s", text);
	}
	mnt = (int)syscall(SYS_fsmount, fs, FSMOUNT_CLOEXEC, 0);
	assert_true(mnt >= 0);
	assert_int_equal(
		syscall(SYS_move_mount, mnt, "", AT_FDCWD, dir, MOVE_MOUNT_F_EMPTY_PATH), 0);
	close(mnt);
	close(fs);
	return dir;
}

static void unmount_image(const char *dir)
{
	assert_int_equal(umount2(dir, 0), 0);
}

/* `n` extents that are all one sparse file, with a word at its end. */
static void extents_share(const char *name, const struct image_info *info)
{
	int fd = open(extent_path(name, 0), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	char target[32];

	snprintf(target, sizeof(target), "%s.ext0", name);
	assert_int_equal(ftruncate(fd, (off_t)info->extent_bytes), 0);
	assert_int_equal(file_pwrite_exact(fd, "extent", 6, info->extent_bytes - 6), 0);
	close(fd);
	for (uint32_t i = 1; i < info->extents; i++)
		assert_int_equal(symlink(target, extent_path(name, i)), 0);
}

/* Runs fsck.erofs, which reads all bytes with `extract`; nothing is checked when it is not
 * there. */
static void fsck_image(const char *name, uint32_t extents, bool extract)
{
	char command[16384];
	int n = snprintf(command, sizeof(command), "fsck.erofs%s", extract ? " --extract" : "");
	int status;

	for (uint32_t i = 0; i < extents; i++)
		n += snprintf(command + n, sizeof(command) - (size_t)n, " --device=%s",
			extent_path(name, i));
	snprintf(command + n, sizeof(command) - (size_t)n, " %s >%s 2>&1", fixture_path(name),
		fixture_path("fsck.log"));
	status = system(command);
	if (WIFEXITED(status) && WEXITSTATUS(status) == 127) {
		print_message("no fsck.erofs here\n");
		return;
	}
	if (status != 0) {
		snprintf(command, sizeof(command), "tail -5 %s", fixture_path("fsck.log"));
		(void)!system(command);
		fail_msg("fsck.erofs refuses the image");
	}
}

/* One mounted file against its row. */
static void compare_file(const char *path, const struct table_row *row)
{
	uint64_t seed = piece_object_seed(row->key, row->key_len, row->tag, row->tag_len);
	static uint8_t bytes[1 << 20];
	struct stat st;
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		fail_msg("%s: %s", path, strerror(errno));
	assert_int_equal(fstat(fd, &st), 0);
	assert_true(S_ISREG(st.st_mode));
	assert_int_equal(st.st_mode & 07777, 0644);
	assert_int_equal(st.st_size, row->size);
	assert_int_equal(st.st_nlink, 1);
	assert_int_equal(st.st_uid, 1234);
	assert_int_equal(st.st_gid, 4321);
	assert_int_equal(st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec, row->mtime_ns);
	for (uint64_t at = 0; at < row->size;) {
		ssize_t n = pread(fd, bytes, sizeof(bytes), (off_t)at);

		assert_true(n > 0);
		for (ssize_t i = 0; i < n; i++)
			if (bytes[i] != pattern(seed, at + (uint64_t)i))
				fail_msg("%s: wrong byte at %lu", path, at + (uint64_t)i);
		at += (uint64_t)n;
	}
	assert_int_equal(pread(fd, bytes, 1, (off_t)row->size), 0);
	close(fd);
}

struct walk {
	uint64_t files;
	uint64_t directories;
};
static struct walk walk_sums;
static struct table *walk_table;
static const char *walk_root;
static const struct image_options *walk_options;

/* Every name of the mount: image_resolve finds its row, and the bytes are the row's. */
static int walk_visit(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	const char *rel = path + strlen(walk_root) + (ftw->level > 0);
	static struct table_row row;

	if (image_resolve(walk_table, walk_options, rel, &row) != 0)
		fail_msg("%s is mounted but not resolved", rel);
	if (type == FTW_D) {
		struct dirent *d;
		DIR *dir = opendir(path);
		uint32_t subdirectories = 0;
		char last[300] = "";

		walk_sums.directories++;
		assert_true(row.flags & ROW_DIRECTORY);
		assert_true(st->st_ino != 0);
		while ((d = readdir(dir))) {
			assert_true(strcmp(last, d->d_name) < 0);
			snprintf(last, sizeof(last), "%s", d->d_name);
			subdirectories += d->d_type == DT_DIR && strcmp(d->d_name, ".") &&
					  strcmp(d->d_name, "..");
		}
		closedir(dir);
		assert_int_equal(st->st_nlink, 2 + subdirectories);
		return 0;
	}
	assert_int_equal(type, FTW_F);
	walk_sums.files++;
	assert_false(row.flags & ROW_DIRECTORY);
	compare_file(path, &row);
	return 0;
}

static void compare_tree(struct table *t, const struct image_options *options, const char *dir,
	const struct image_info *info)
{
	walk_sums = (struct walk){ 0 };
	walk_table = t;
	walk_root = dir;
	walk_options = options;
	assert_int_equal(nftw(dir, walk_visit, 32, FTW_PHYS), 0);
	assert_int_equal(walk_sums.files, info->files);
	assert_int_equal(walk_sums.directories, info->directories);
}

static const struct image_options small_extents = {
	.uid = 1234, .gid = 4321, .umask = 022, .extent_bytes = CHUNK_BYTES
};

static void build_image(struct table *t, const struct image_options *o, const char *name,
	struct skipped *s, struct image_info *info)
{
	struct err e = ERR_INIT;
	int r;

	memset(s, 0, sizeof(*s));
	r = image_build(t, o, fixture_path(name), on_skip, s, info, &e);
	if (r < 0)
		print_message("%s\n", e.text);
	assert_int_equal(r, 0);
	assert_int_equal(info->skipped, s->n);
}

/* Builds, checks, mounts and compares one table with one extent size. */
static void check_image(
	struct table *t, const struct image_options *o, const char *name, struct skipped *s)
{
	struct image_info info;
	const char *dir;

	build_image(t, o, name, s, &info);
	extents_write(t, &info, name);
	fsck_image(name, info.extents, true);
	dir = mount_image(name, info.extents);
	compare_tree(t, o, dir, &info);
	unmount_image(dir);
	for (uint32_t i = 0; i < info.extents; i++)
		unlink(extent_path(name, i));
}

static struct listing *varied_listing(void)
{
	struct listing *l = listing_new(64 << 20);
	uint64_t seed = 11;

	for (uint32_t i = 0; i < 2000; i++) {
		char key[128];

		snprintf(key, sizeof(key), "d%u/e%u/file %u.bin", i % 7, i % 13, i);
		fixture_add(l, key, fixture_random(&seed) % (i % 50 ? 40000 : 1000000), "t");
	}
	/* across extents of 16 and 32 MiB, with one index and many */
	fixture_add(l, "big/40", 40 << 20, "t");
	fixture_add(l, "big/17+1", (17 << 20) + 1, "t");
	fixture_add(l, "big/1+1", (1 << 20) + 1, "t");
	fixture_add(l, "big/1", 1 << 20, "t");
	fixture_add(l, "big/33-1", (33 << 20) - 1, "t");
	fixture_add(l, "empty", 0, "t");
	fixture_add(l, "one", 1, "t");
	fixture_add(l, "block", 4096, "t");
	return l;
}

static void mounted(void **state)
{
	static const uint64_t extents[] = { CHUNK_BYTES, 2 * CHUNK_BYTES, 16 * CHUNK_BYTES };
	struct table *t = fixture_build(NULL, varied_listing(), "varied.t", NULL);
	struct skipped s;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(extents); i++) {
		struct image_options o = small_extents;

		o.extent_bytes = extents[i];
		check_image(t, &o, "varied", &s);
		assert_int_equal(s.n, 0);
	}
	table_unref(t);
}

/* ---- one device ------------------------------------------------------------------------------ */

/* The volume's bytes behind the image in its file, which so becomes the whole device. */
static void volume_append(struct table *t, const struct image_info *info, const char *name)
{
	struct image_info whole = *info;
	const uint64_t end = table_info(t)->end;
	int fd = open(fixture_path(name), O_RDWR | O_CLOEXEC);
	int from;

	/* All in one extent, copied to its place. */
	whole.extents = 1;
	whole.extent_bytes = end;
	extents_write(t, &whole, name);
	from = open(extent_path(name, 0), O_RDONLY | O_CLOEXEC);
	assert_true(fd >= 0 && from >= 0);
	assert_int_equal(ftruncate(fd, (off_t)(info->volume_offset + end)), 0);
	for (uint64_t at = 0; at < end;) {
		static uint8_t bytes[65536];
		ssize_t n = pread(from, bytes, sizeof(bytes), (off_t)at);

		assert_true(n > 0);
		assert_int_equal(
			file_pwrite_exact(fd, bytes, (size_t)n, info->volume_offset + at), 0);
		at += (uint64_t)n;
	}
	close(fd);
	close(from);
	unlink(extent_path(name, 0));
}

static void check_one_device(
	struct table *t, const char *name, uint64_t least_offset, uint64_t most_offset)
{
	static const struct image_options o = { .uid = 1234,
		.gid = 4321,
		.umask = 022,
		.extent_bytes = CHUNK_BYTES,
		.one_device = true };
	struct image_info info;
	struct skipped s;
	const char *dir;

	build_image(t, &o, name, &s, &info);
	assert_true(info.volume_offset >= info.image_bytes);
	assert_int_equal(info.volume_offset % CHUNK_BYTES, 0);
	assert_in_range(info.volume_offset, least_offset, most_offset);
	volume_append(t, &info, name);
	fsck_image(name, 0, true);
	dir = mount_image(name, 0);
	compare_tree(t, &o, dir, &info);
	unmount_image(dir);
	unlink(fixture_path(name));
}

static void one_device(void **state)
{
	struct table *t = fixture_build(NULL, varied_listing(), "one-device.t", NULL);

	(void)state;
	check_one_device(t, "one-device", CHUNK_BYTES, 1 << 30);
	table_unref(t);
}

/* Directories make an image longer than its files let expect: a second attempt. */
static void one_device_of_directories(void **state)
{
	struct listing *l = listing_new(64 << 20);
	struct table *t;

	(void)state;
	for (uint32_t i = 0; i < 20000; i++) {
		char key[64];

		snprintf(key, sizeof(key), "%u/a", i);
		fixture_add(l, key, i % 100 == 0, "t");
	}
	t = fixture_build(NULL, l, "directories.t", NULL);
	check_one_device(t, "directories", 20000 * 4096ull, 20000 * 4096ull + (32 << 20));
	table_unref(t);
}

static void too_large_for_one_device(void **state)
{
	struct listing *l = listing_new(64 << 20);
	struct image_options o = { .one_device = true };
	struct image_info info;
	struct err e = ERR_INIT;
	struct table *t;

	(void)state;
	fixture_add(l, "a", 16ull << 40, "t");
	t = fixture_build(NULL, l, "large.t", NULL);
	assert_int_equal(image_build(t, &o, fixture_path("large"), NULL, NULL, &info, &e), -EFBIG);
	assert_non_null(strstr(e.text, "16 TiB"));
	assert_int_equal(access(fixture_path("large"), F_OK), -1);
	table_unref(t);
	/* What fits, with a file that one index cannot name. */
	l = listing_new(64 << 20);
	fixture_add(l, "a", 15ull << 40, "t");
	t = fixture_build(NULL, l, "fits.t", NULL);
	assert_int_equal(image_build(t, &o, fixture_path("fits"), NULL, NULL, &info, &e), 0);
	fsck_image("fits", 0, false);
	table_unref(t);
}

/* ---- names ----------------------------------------------------------------------------------- */

static void expect(struct table *t, const struct image_options *o, const char *path, int r,
	uint32_t flags, uint64_t size)
{
	static struct table_row row;

	if (image_resolve(t, o, path, &row) != r)
		fail_msg("resolve %s: %d, not %d", path, image_resolve(t, o, path, &row), r);
	if (r == 0) {
		assert_int_equal(row.flags, flags);
		assert_int_equal(row.size, size);
	}
}

static void odd_keys(void **state)
{
	struct listing *l = listing_new(64 << 20);
	struct table *t;
	struct skipped s;
	char name[LIMIT_KEY_BYTES + 1];
	char deep[LIMIT_KEY_BYTES + 1];

	(void)state;
	fixture_add(l, "a", 10, "t"); /* also a directory, and "a-b" sorts between */
	fixture_add(l, "a-b", 11, "t");
	fixture_add(l, "a/b", 12, "t");
	fixture_add(l, "a/b/c", 13, "t");
	fixture_add(l, "a/b!/c", 14, "t");
	fixture_add(l, "a0", 15, "t");
	fixture_add(l, "!first", 16, "t"); /* before "." */
	fixture_add(l, "marked/", 0, "t");
	fixture_add(l, "marked/x/", 5, "t"); /* a marker with bytes */
	fixture_add(l, "file", 17, "t");
	fixture_add(l, "file/", 0, "t");
	fixture_add(l, "/lead", 1, "t");
	fixture_add(l, "/", 1, "t");
	fixture_add(l, "x//y", 1, "t");
	fixture_add(l, "x/y//", 1, "t");
	fixture_add(l, "x/./y", 1, "t");
	fixture_add(l, "x/../y", 1, "t");
	fixture_add(l, "..", 1, "t");
	fixture_add(l, ".hidden", 18, "t");
	fixture_add(l, "...", 19, "t");
	fixture_add(l, "sp ace/%41+?&#/\xc3\xa9\xff\x01", 20, "t");
	memset(name, 'n', sizeof(name));
	name[255] = '\0';
	fixture_add(l, name, 21, "t");
	name[255] = 'n';
	name[256] = '\0';
	fixture_add(l, name, 1, "t");
	for (size_t i = 0; i < LIMIT_KEY_BYTES; i++)
		deep[i] = i % 2 ? '/' : 'z';
	deep[LIMIT_KEY_BYTES] = '\0';
	deep[LIMIT_KEY_BYTES - 1] = 'z';
	fixture_add(l, deep, 22, "t");
	t = fixture_build(NULL, l, "odd.t", NULL);
	check_image(t, &small_extents, "odd", &s);
	assert_int_equal(s.n, 11);
	assert_non_null(strstr(s.text, "a: a directory has the same name\n"));
	assert_non_null(strstr(s.text, "a/b: a directory has the same name\n"));
	assert_non_null(strstr(s.text, "file: a directory has the same name\n"));
	assert_non_null(strstr(s.text, "/lead: an empty name in the path\n"));
	expect(t, NULL, "", 0, ROW_DIRECTORY, 0);
	expect(t, NULL, "a", 0, ROW_DIRECTORY, 0);
	expect(t, NULL, "a/b", 0, ROW_DIRECTORY, 0);
	expect(t, NULL, "a/b/c", 0, 0, 13);
	expect(t, NULL, "a/b/c/d", -ENOTDIR, 0, 0);
	expect(t, NULL, "a0/d/e", -ENOTDIR, 0, 0);
	expect(t, NULL, "a/none", -ENOENT, 0, 0);
	expect(t, NULL, "none/none", -ENOENT, 0, 0);
	expect(t, NULL, "x", -ENOENT, 0, 0);
	expect(t, NULL, "lead", -ENOENT, 0, 0);
	expect(t, NULL, "/lead", -ENOENT, 0, 0);
	expect(t, NULL, "marked/x", 0, ROW_DIRECTORY, 0);
	expect(t, NULL, "marked/", -ENOENT, 0, 0);
	expect(t, NULL, "file", 0, ROW_DIRECTORY, 0);
	table_unref(t);
}

static void empty_image(void **state)
{
	struct table *t = fixture_build(NULL, listing_new(1 << 20), "none.t", NULL);
	struct image_info info;
	struct skipped s;

	(void)state;
	check_image(t, &small_extents, "none", &s);
	build_image(t, &small_extents, "none", &s, &info);
	assert_int_equal(
		info.extents, 1); /* who serves extents knows by it that the image is mounted */
	table_unref(t);
}

static void subtree(void **state)
{
	struct image_options o = small_extents;
	struct table *t = fixture_build(NULL, varied_listing(), "sub.t", NULL);
	struct image_info info;
	struct err e = ERR_INIT;
	struct skipped s;

	(void)state;
	o.subtree = "d3/";
	check_image(t, &o, "sub", &s);
	expect(t, &o, "", 0, ROW_DIRECTORY, 0);
	expect(t, &o, "e3", 0, ROW_DIRECTORY, 0);
	expect(t, &o, "d3", -ENOENT, 0, 0);
	o.subtree = "d99/";
	assert_int_equal(image_build(t, &o, fixture_path("sub"), NULL, NULL, &info, &e), -ENOENT);
	o.subtree = "d3";
	assert_int_equal(image_build(t, &o, fixture_path("sub"), NULL, NULL, &info, &e), -EINVAL);
	o.subtree = NULL;
	o.extent_bytes = CHUNK_BYTES + 4096;
	assert_int_equal(image_build(t, &o, fixture_path("sub"), NULL, NULL, &info, &e), -EINVAL);
	table_unref(t);
}

/* Tombstones are not in the image; changed files have their new bytes. */
static void later_generation(void **state)
{
	struct listing *l = listing_new(1 << 20);
	struct table *first;
	struct table *second;
	struct skipped s;

	(void)state;
	fixture_add(l, "a", 5000, "1");
	fixture_add(l, "d/b", 5000, "1");
	fixture_add(l, "d/c", 5000, "1");
	first = fixture_build(NULL, l, "gen1", NULL);
	l = listing_new(1 << 20);
	fixture_add(l, "a", 5000, "2");
	fixture_add(l, "e", 7000, "1");
	second = fixture_build(first, l, "gen2", NULL);
	check_image(second, &small_extents, "gen", &s);
	expect(second, NULL, "d", -ENOENT, 0, 0);
	expect(second, NULL, "d/b", -ENOENT, 0, 0);
	table_unref(first);
	table_unref(second);
}

/* One directory of 100,000 entries: many blocks, found by the kernel's bisection. */
static void wide_directory(void **state)
{
	struct listing *l = listing_new(64 << 20);
	struct image_info info;
	struct skipped s;
	struct table *t;
	const char *dir;
	char path[256];
	struct stat st;
	uint32_t seen = 0;
	DIR *d;

	(void)state;
	for (uint32_t i = 0; i < 100000; i++) {
		snprintf(path, sizeof(path),
			i % 3   ? "wide/%u"
			: i % 2 ? "wide/%u/x"
				: "wide/%u-",
			i);
		fixture_add(l, path, 0, "t");
	}
	t = fixture_build(NULL, l, "wide.t", NULL);
	build_image(t, &small_extents, "wide", &s, &info);
	extents_share("wide", &info);
	fsck_image("wide", info.extents, true);
	dir = mount_image("wide", info.extents);
	for (uint32_t i = 0; i < 100000; i++) {
		snprintf(path, sizeof(path),
			i % 3   ? "%s/wide/%u"
			: i % 2 ? "%s/wide/%u/x"
				: "%s/wide/%u-",
			dir, i);
		assert_int_equal(stat(path, &st), 0);
	}
	snprintf(path, sizeof(path), "%s/wide", dir);
	for (d = opendir(path); readdir(d);)
		seen++;
	closedir(d);
	assert_int_equal(seen, 100002);
	unmount_image(dir);
	table_unref(t);
}

/* The kernel takes a device table of the largest size, and a file of TiBs whose indexes take
 * many blocks. */
static void many_extents(void **state)
{
	struct listing *l = listing_new(1 << 20);
	struct image_options o = small_extents;
	struct image_info info;
	struct skipped s;
	struct table *t;
	const char *dir;
	char path[256];
	char word[16];
	int fd;

	(void)state;
	fixture_add(l, "huge", 5ull << 40, "t");
	fixture_add(l, "small", 100, "t");
	t = fixture_build(NULL, l, "huge.t", NULL);
	o.extent_bytes = 0;
	build_image(t, &o, "huge", &s, &info);
	assert_int_equal(info.extent_bytes, EXTENT_MIN);
	assert_int_equal(info.extents, 5 * 1024 + 1 + 1); /* and the one behind them */
	extents_share("huge", &info);
	dir = mount_image("huge", info.extents);
	snprintf(path, sizeof(path), "%s/huge", dir);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	for (uint64_t i = 1; i <= 5 * 1024; i += 1 + i / 8) {
		assert_int_equal(
			pread(fd, word, 10, (off_t)(i * EXTENT_MIN - 6)), 10 - 4 * (i == 5 * 1024));
		assert_memory_equal(word, "extent\0\0\0", 10 - 4 * (i == 5 * 1024));
	}
	close(fd);
	unmount_image(dir);
	o.extent_bytes = CHUNK_BYTES;
	assert_int_equal(
		image_build(t, &o, fixture_path("huge"), NULL, NULL, &info, NULL), -EINVAL);
	table_unref(t);
}

static void one_million(void **state)
{
	struct listing *l = listing_new(1ull << 30);
	struct image_options o = { .umask = 022 };
	struct image_info info;
	struct skipped s;
	struct rusage usage;
	struct table *t;
	uint64_t t0;
	uint64_t seconds;

	(void)state;
	for (uint32_t i = 0; i < 1000000; i++) {
		char key[64];

		snprintf(key, sizeof(key), "train/n%08u/n%08u_%07u.JPEG", i / 1300 * 17,
			i / 1300 * 17, i);
		fixture_add(l, key, 110000, "\"d41d8cd98f00b204e9800998ecf8427e\"");
	}
	t = fixture_build(NULL, l, "million.t", NULL);
	t0 = clock_mono_ns();
	build_image(t, &o, "million", &s, &info);
	seconds = clock_mono_ns() - t0;
	getrusage(RUSAGE_SELF, &usage);
	print_message("1 M files: image in %.2f s, %.1f bytes a file, %ld MiB of memory with the "
		      "listing's\n",
		(double)seconds / 1e9, (double)info.image_bytes / 1e6, usage.ru_maxrss / 1024);
	assert_int_equal(info.files, 1000000);
	assert_true(info.image_bytes < 140000000);
	extents_share("million", &info);
	fsck_image("million", info.extents, false);
	table_unref(t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(mounted),
		cmocka_unit_test(one_device),
		cmocka_unit_test(one_device_of_directories),
		cmocka_unit_test(too_large_for_one_device),
		cmocka_unit_test(odd_keys),
		cmocka_unit_test(empty_image),
		cmocka_unit_test(subtree),
		cmocka_unit_test(later_generation),
		cmocka_unit_test(wide_directory),
		cmocka_unit_test(many_extents),
		cmocka_unit_test(one_million),
	};

	return cmocka_run_group_tests(tests, fixture_setup, fixture_teardown);
}
