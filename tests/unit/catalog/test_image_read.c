/*
 * The reader of images against the table that the image was built from, and against images that
 * were damaged: whatever the bytes are, each call ends with an answer or an errno.
 */
#include "tests/unit/catalog/fixture.h"
#include "catalog/catalog_internal.h"
#include "catalog/image_format.h"
#include "catalog/image_read.h"
#include "tests/fuzz/image_walk.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/stat.h>

static const struct image_options small_extents = {
	.uid = 1234, .gid = 4321, .umask = 022, .extent_bytes = CHUNK_BYTES
};
static struct image_view view;

static struct image *build(
	struct table *t, const struct image_options *o, const char *name, struct image_info *info)
{
	struct image *image = NULL;
	struct err e = ERR_INIT;
	int r = image_build(t, o, fixture_path(name), NULL, NULL, info, &e);

	assert_int_equal(r, 0);
	r = image_open(open(fixture_path(name), O_RDONLY | O_CLOEXEC), info->extent_bytes, NULL,
		&image, &e);
	if (r < 0)
		print_message("%s\n", e.text);
	assert_int_equal(r, 0);
	memset(&view, 0, sizeof(view));
	assert_int_equal(image_n_inodes(image), info->files + info->directories);
	return image;
}

static void get_root(struct image *image, struct image_inode *ret)
{
	assert_int_equal(image_inode(image, &view, image_root(image), ret), 0);
	assert_true(ret->directory);
}

/* Name by name from the root. */
static int find(struct image *image, const char *path, struct image_inode *ret)
{
	int r = 0;

	get_root(image, ret);
	while (r == 0 && *path) {
		size_t n = strcspn(path, "/");

		r = image_lookup(image, &view, ret, path, (uint32_t)n, ret);
		path += n + (path[n] == '/');
	}
	return r;
}

/* ---- against the table ----------------------------------------------------------------------- */

struct walk {
	struct image *image;
	struct table *table;
	const struct image_options *options;
	uint64_t files;
	uint64_t directories;
	char path[LIMIT_KEY_BYTES + 2];
};

static void compare_inode(
	const struct walk *w, const struct image_inode *inode, const struct table_row *row)
{
	assert_int_equal(inode->uid, w->options->uid);
	assert_int_equal(inode->gid, w->options->gid);
	if (inode->directory) {
		assert_true(row->flags & ROW_DIRECTORY);
		assert_int_equal(inode->mode, S_IFDIR | (0777 & ~w->options->umask));
		return;
	}
	assert_false(row->flags & ROW_DIRECTORY);
	assert_int_equal(inode->mode, S_IFREG | (0666 & ~w->options->umask));
	assert_int_equal(inode->nlink, 1);
	assert_int_equal(inode->size, row->size);
	assert_int_equal(inode->offset, row_has_bytes(row) ? row->offset : 0);
	assert_int_equal(
		inode->mtime * (int64_t)CLOCK_SECOND + (int64_t)inode->mtime_nsec, row->mtime_ns);
}

static void assert_inode_equal(const struct image_inode *a, const struct image_inode *b)
{
	assert_int_equal(a->nid, b->nid);
	assert_int_equal(a->mode, b->mode);
	assert_int_equal(a->size, b->size);
	assert_int_equal(a->nlink, b->nlink);
	assert_int_equal(a->offset, b->offset);
}

/* Lists a directory, looks each name up, compares it with its row, and goes down. */
static void walk(struct walk *w, const struct image_inode *dir, size_t path_len)
{
	static struct table_row row;
	struct image_entry entry;
	struct image_inode inode;
	char last[IMAGE_NAME_MAX + 1] = "";
	uint32_t subdirectories = 0;
	uint64_t cookie = 0;
	int r;

	w->directories++;
	while ((r = image_read_entry(w->image, &view, dir, cookie, &entry)) == 0) {
		struct image_inode found;

		assert_int_equal(image_inode(w->image, &view, entry.nid, &inode), 0);
		memcpy(w->path + path_len, entry.name, entry.name_len);
		w->path[path_len + entry.name_len] = '\0';
		assert_true(strcmp(last, w->path + path_len) < 0);
		memcpy(last, w->path + path_len, entry.name_len + 1u);
		assert_int_equal(
			image_lookup(w->image, &view, dir, last, entry.name_len, &found), 0);
		assert_inode_equal(&found, &inode);
		assert_int_equal(inode.directory, entry.directory);
		if (image_resolve(w->table, w->options, w->path, &row) != 0)
			fail_msg("%s is in the image, but not resolved", w->path);
		compare_inode(w, &inode, &row);
		assert_true(entry.next_cookie > cookie);
		cookie = entry.next_cookie;
		if (!inode.directory) {
			w->files++;
			continue;
		}
		subdirectories++;
		memcpy(w->path + path_len + entry.name_len, "/", 2);
		walk(w, &inode, path_len + entry.name_len + 1);
	}
	assert_int_equal(r, -ENOENT);
	assert_int_equal(dir->nlink, 2 + subdirectories);
	assert_int_equal(image_read_entry(w->image, &view, dir, cookie, &entry), -ENOENT);
	assert_int_equal(image_read_entry(w->image, &view, dir, cookie + 513, &entry), -EINVAL);
}

/* Builds the image of a table and compares all of it. */
static struct image *check(struct table *t, const struct image_options *o, const char *name)
{
	struct image_info info;
	struct walk w = { .table = t, .options = o, .image = build(t, o, name, &info) };
	struct image_inode root;

	get_root(w.image, &root);
	walk(&w, &root, 0);
	assert_int_equal(w.files, info.files);
	assert_int_equal(w.directories, info.directories);
	return w.image;
}

static struct listing *odd_listing(void)
{
	struct listing *l = listing_new(64 << 20);
	char name[LIMIT_KEY_BYTES + 1];

	fixture_add(l, "a", 10, "t"); /* also a directory, and "a-b" sorts between */
	fixture_add(l, "a-b", 11, "t");
	fixture_add(l, "a/b", 12, "t");
	fixture_add(l, "a/b/c", 13, "t");
	fixture_add(l, "a/b!/c", 14, "t");
	fixture_add(l, "a0", 15, "t");
	fixture_add(l, "!first", 16, "t"); /* before "." */
	fixture_add(l, ".-between", 16, "t");
	fixture_add(l, "...", 19, "t");
	fixture_add(l, "marked/x/", 0, "t");
	fixture_add(l, "empty", 0, "t");
	fixture_add(l, "sp ace/%41+?&#/\xc3\xa9\xff\x01", 20, "t");
	memset(name, 'n', sizeof(name));
	name[255] = '\0';
	for (int c = 'a'; c < 'z'; c++) { /* 255 bytes, several blocks */
		name[254] = (char)c;
		fixture_add(l, name, 21, "t");
	}
	for (size_t i = 0; i < LIMIT_KEY_BYTES; i++)
		name[i] = i % 2 ? '/' : 'z';
	name[LIMIT_KEY_BYTES] = '\0';
	name[LIMIT_KEY_BYTES - 1] = 'z';
	fixture_add(l, name, 22, "t");
	/* across extents of 16 and 32 MiB, with one index and many */
	fixture_add(l, "big/40", 40 << 20, "t");
	fixture_add(l, "big/17+1", (17 << 20) + 1, "t");
	fixture_add(l, "big/1+1", (1 << 20) + 1, "t");
	fixture_add(l, "big/1", 1 << 20, "t");
	fixture_add(l, "big/33-1", (33 << 20) - 1, "t");
	fixture_add(l, "big/900", 900ll << 20, "t"); /* indexes in more than a block */
	fixture_add(l, "block", 4096, "t");
	return l;
}

static void odd_names(void **state)
{
	static const uint64_t extents[] = { CHUNK_BYTES, 2 * CHUNK_BYTES, 16 * CHUNK_BYTES, 0 };
	struct table *t = fixture_build(NULL, odd_listing(), "odd.t", NULL);

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(extents); i++) {
		struct image_options o = small_extents;

		o.extent_bytes = extents[i];
		image_close(check(t, &o, "odd"));
	}
	table_unref(t);
}

static void subtree(void **state)
{
	struct image_options o = small_extents;
	struct table *t = fixture_build(NULL, odd_listing(), "subtree.t", NULL);
	struct image_inode inode;
	struct image *image;

	(void)state;
	o.subtree = "a/";
	image = check(t, &o, "subtree");
	assert_int_equal(find(image, "b/c", &inode), 0);
	assert_int_equal(inode.size, 13);
	assert_int_equal(find(image, "a", &inode), -ENOENT);
	image_close(image);
	table_unref(t);
}

static void many_names(void **state)
{
	struct listing *l = listing_new(64 << 20);
	struct image_inode inode;
	struct image *image;
	struct table *t;
	char key[64];

	(void)state;
	for (uint32_t i = 0; i < 20000; i++) {
		snprintf(key, sizeof(key), "flat/%u-%x", i, i * 2654435761u);
		fixture_add(l, key, i % 5000, "t");
	}
	t = fixture_build(NULL, l, "many.t", NULL);
	image = check(t, &small_extents, "many");
	assert_int_equal(find(image, "flat", &inode), 0);
	assert_true(inode.size > 100ull * BLOCK_BYTES);
	for (uint32_t i = 0; i < 20000; i++) {
		struct image_inode file;
		int n = snprintf(key, sizeof(key), "%u-%x.", i, i * 2654435761u);

		/* between its neighbours, and before the first name of a block */
		assert_int_equal(
			image_lookup(image, &view, &inode, key, (uint32_t)n, &file), -ENOENT);
		assert_int_equal(
			image_lookup(image, &view, &inode, key, (uint32_t)n - 2, &file), -ENOENT);
	}
	image_close(image);
	table_unref(t);
}

static void lookups(void **state)
{
	struct table *t = fixture_build(NULL, odd_listing(), "lookups.t", NULL);
	struct image_info info;
	struct image *image = build(t, &small_extents, "lookups", &info);
	struct image_inode root;
	struct image_inode inode;
	struct image_entry entry;

	(void)state;
	get_root(image, &root);
	assert_int_equal(find(image, "missing", &inode), -ENOENT);
	assert_int_equal(find(image, "a", &inode), 0);
	assert_true(inode.directory);
	assert_int_equal(find(image, "a0/x", &inode), -ENOTDIR);
	assert_int_equal(find(image, "a0", &inode), 0);
	assert_int_equal(image_read_entry(image, &view, &inode, 0, &entry), -ENOTDIR);
	assert_int_equal(image_lookup(image, &view, &root, "", 0, &inode), -ENOENT);
	assert_int_equal(image_lookup(image, &view, &root, ".", 1, &inode), 0);
	assert_int_equal(inode.nid, root.nid);
	assert_int_equal(find(image, "a/b", &inode), 0);
	assert_int_equal(image_lookup(image, &view, &inode, "..", 2, &inode), 0);
	assert_int_equal(image_lookup(image, &view, &inode, "..", 2, &inode), 0);
	assert_int_equal(inode.nid, root.nid);
	/* where no inode can be: the head, the end, numbers that overflow */
	assert_int_equal(image_inode(image, &view, 0, &inode), -ENOENT);
	assert_int_equal(image_inode(image, &view, image_root(image) + 4, &inode), -ENOENT);
	assert_int_equal(image_inode(image, &view, info.image_bytes / 32 - 1, &inode), -ENOENT);
	assert_int_equal(image_inode(image, &view, info.image_bytes / 32, &inode), -ENOENT);
	assert_int_equal(image_inode(image, &view, UINT64_MAX, &inode), -ENOENT);
	assert_int_equal(
		image_inode(image, &view, (1ull << 59) + image_root(image), &inode), -ENOENT);
	assert_int_equal(image_read_entry(image, &view, &root, 511, &entry), -EINVAL);
	assert_int_equal(image_read_entry(image, &view, &root, UINT64_MAX, &entry), -EINVAL);
	image_close(image);
	table_unref(t);
}

/* ---- damage ---------------------------------------------------------------------------------- */

/* An image in memory that tests write into. */
struct damaged {
	int fd;
	uint64_t bytes;
	uint8_t *sound;
};

static struct listing *small_listing(void)
{
	struct listing *l = listing_new(16 << 20);
	char key[300];

	fixture_add(l, "!before", 1, "t");
	fixture_add(l, "a", 1, "t");
	fixture_add(l, "a/b/c", 5000, "t");
	fixture_add(l, "empty", 0, "t");
	fixture_add(l, "big", 17 << 20, "t");
	fixture_add(l, "one", 3 << 20, "t");
	for (uint32_t i = 0; i < 20; i++) {
		snprintf(key, sizeof(key), "m/%0230u", i);
		fixture_add(l, key, i * 1000, "t");
	}
	return l;
}

static void damaged_init(struct damaged *d)
{
	struct table *t = fixture_build(NULL, small_listing(), "small.t", NULL);
	struct image_info info;
	int fd;

	assert_int_equal(
		image_build(t, &small_extents, fixture_path("small"), NULL, NULL, &info, NULL), 0);
	table_unref(t);
	d->bytes = info.image_bytes;
	d->sound = malloc(d->bytes);
	fd = open(fixture_path("small"), O_RDONLY | O_CLOEXEC);
	assert_int_equal(file_pread_exact(fd, d->sound, d->bytes, 0), 0);
	close(fd);
	d->fd = memfd_create("image", MFD_CLOEXEC);
	assert_int_equal(file_pwrite_exact(d->fd, d->sound, d->bytes, 0), 0);
}

static void damaged_release(struct damaged *d)
{
	close(d->fd);
	free(d->sound);
}

static int damaged_open(const struct damaged *d, struct image **ret_image)
{
	return image_open(dup(d->fd), CHUNK_BYTES, NULL, ret_image, NULL);
}

static void damage(const struct damaged *d, uint64_t offset, const void *bytes, size_t n)
{
	assert_int_equal(file_pwrite_exact(d->fd, bytes, n, offset), 0);
}

static void repair(const struct damaged *d, uint64_t offset, size_t n)
{
	assert_int_equal(file_pwrite_exact(d->fd, d->sound + offset, n, offset), 0);
}

/* Every byte in use, and some that are not, each in several ways: an answer or -EBADMSG, no crash,
 * no loop. */
static void damaged_bytes(void **state)
{
	static const uint8_t patterns[] = { 0x00, 0x01, 0x2f, 0x7f, 0x80, 0xff };
	uint64_t found = 0;
	struct damaged d;

	(void)state;
	damaged_init(&d);
	for (uint64_t at = 0; at < d.bytes; at++) {
		if (d.sound[at] == 0 && at % 61 != 0 && (at % 8 || at > 2048))
			continue;
		for (size_t i = 0; i < ARRAY_SIZE(patterns); i++) {
			uint8_t byte = d.sound[at] ^ patterns[i];
			struct image *image;
			int r;

			damage(&d, at, i % 2 ? &byte : &patterns[i], 1);
			r = damaged_open(&d, &image);
			if (r == 0) {
				found += image_walk(image, CHUNK_BYTES, d.bytes) > 0;
				image_close(image);
			} else {
				assert_true(r == -EBADMSG || r == -EPROTONOSUPPORT);
				found++;
			}
		}
		repair(&d, at, 1);
	}
	assert_true(found > 1000);
	damaged_release(&d);
}

/* Whole fields and blocks. */
static void damaged_regions(void **state)
{
	uint8_t bytes[2 * BLOCK_BYTES];
	struct damaged d;
	uint64_t seed = 5;

	(void)state;
	damaged_init(&d);
	for (uint32_t round = 0; round < 3000; round++) {
		size_t n = 1ull << fixture_random(&seed) % 14;
		uint64_t at = fixture_random(&seed) % d.bytes;
		uint64_t kind = fixture_random(&seed) % 4;
		uint64_t from = fixture_random(&seed) % d.bytes;
		struct image *image;

		if (round % 2) /* most of the image is room for inodes */
			at %= 3 * BLOCK_BYTES;
		n = min(n, d.bytes - max(at, from));
		for (size_t i = 0; i < n; i++)
			bytes[i] = kind == 0   ? 0
				   : kind == 1 ? 0xff
				   : kind == 2 ? (uint8_t)fixture_random(&seed)
					       : d.sound[from + i];
		damage(&d, at, bytes, n);
		if (damaged_open(&d, &image) == 0) {
			(void)image_walk(image, CHUNK_BYTES, d.bytes);
			image_close(image);
		}
		if (round % 3 == 0)
			repair(&d, 0, d.bytes);
	}
	damaged_release(&d);
}

/* The offset of an inode in the image. */
static uint64_t inode_at(const struct damaged *d, const char *path)
{
	struct image_inode inode;
	struct image *image;

	memset(&view, 0, sizeof(view));
	assert_int_equal(damaged_open(d, &image), 0);
	assert_int_equal(find(image, path, &inode), 0);
	image_close(image);
	return inode.nid << EROFS_NID_BITS;
}

/* One changed field of the inode `path`; what finding it says then. */
static void expect_field(const struct damaged *d, const char *path, size_t field, const void *bytes,
	size_t n, int expected)
{
	uint64_t at = inode_at(d, path) + field;
	struct image_inode inode;
	struct image *image;
	int r;

	damage(d, at, bytes, n);
	memset(&view, 0, sizeof(view));
	assert_int_equal(damaged_open(d, &image), 0);
	r = find(image, path, &inode);
	if (r != expected)
		fail_msg("%s with another field at %zu: %d, not %d", path, field, r, expected);
	image_close(image);
	repair(d, at, n);
}

#define EXPECT_FIELD(d, path, field, type, value, expected)                                        \
	expect_field(d, path, offsetof(struct erofs_inode, field), &(type){ value }, sizeof(type), \
		expected)
#define INDEX(i, field)                                                  \
	(sizeof(struct erofs_inode) + (i) * sizeof(struct erofs_chunk) + \
		offsetof(struct erofs_chunk, field))

static void damaged_inodes(void **state)
{
	const struct erofs_chunk *chunks;
	struct damaged d;
	uint16_t device;
	uint32_t block;

	(void)state;
	damaged_init(&d);
	EXPECT_FIELD(&d, "one", mode, uint16_t, S_IFREG | 04755, -EBADMSG);
	EXPECT_FIELD(&d, "one", mode, uint16_t, S_IFLNK | 0777, -EBADMSG);
	EXPECT_FIELD(&d, "one", mode, uint16_t, S_IFDIR | 0755, -EBADMSG);
	EXPECT_FIELD(&d, "one", mode, uint16_t, S_IFREG | 0600, 0);
	EXPECT_FIELD(&d, "one", format, uint16_t, EROFS_LAYOUT_PLAIN, -EBADMSG);
	EXPECT_FIELD(&d, "empty", format, uint16_t, EROFS_LAYOUT_CHUNKED, -EBADMSG);
	EXPECT_FIELD(&d, "empty", size, uint64_t, 1, -EBADMSG);
	EXPECT_FIELD(&d, "one", size, uint64_t, 0, -EBADMSG);
	EXPECT_FIELD(&d, "one", size, uint64_t, 17 << 20, -EBADMSG); /* past its extent */
	EXPECT_FIELD(&d, "one", size, uint64_t, UINT64_MAX, -EBADMSG);
	EXPECT_FIELD(&d, "one", u, uint32_t, 10, -EBADMSG);   /* no indexes */
	EXPECT_FIELD(&d, "one", u, uint32_t, 0x60, -EBADMSG); /* a bit that nobody knows */
	EXPECT_FIELD(&d, "one", u, uint32_t, 0x20, -EBADMSG); /* more indexes than were written */
	EXPECT_FIELD(&d, "one", xattr_count, uint16_t, 1, -EBADMSG);
	EXPECT_FIELD(&d, "one", mtime_nsec, uint32_t, 1000000000, -EBADMSG);
	EXPECT_FIELD(&d, "one", nlink, uint32_t, 0, -EBADMSG);
	EXPECT_FIELD(&d, "a", size, uint64_t, UINT64_MAX, -EBADMSG);
	EXPECT_FIELD(&d, "a", size, uint64_t, 0, -EBADMSG);
	EXPECT_FIELD(&d, "a", u, uint32_t, 0, -EBADMSG);
	EXPECT_FIELD(&d, "a", u, uint32_t, UINT32_MAX, -EBADMSG);
	/* the second index of many: not where the first leads to */
	chunks = (const void *)(d.sound + inode_at(&d, "big") + sizeof(struct erofs_inode));
	device = chunks[1].device;
	block = chunks[1].block;
	expect_field(&d, "big", INDEX(1, device), &(uint16_t){ device + 1 }, 2, -EBADMSG);
	expect_field(&d, "big", INDEX(1, device), &(uint16_t){ 0 }, 2, -EBADMSG);
	expect_field(&d, "big", INDEX(1, device), &(uint16_t){ UINT16_MAX }, 2, -EBADMSG);
	expect_field(&d, "big", INDEX(1, block), &(uint32_t){ block + 1 }, 4, -EBADMSG);
	expect_field(&d, "big", INDEX(1, block), &(uint32_t){ UINT32_MAX }, 4, -EBADMSG);
	expect_field(&d, "big", INDEX(1, advise), &(uint16_t){ 1 }, 2, -EBADMSG);
	expect_field(&d, "big", INDEX(1, block), &block, 4, 0);
	damaged_release(&d);
}

static void expect_open(const struct damaged *d, uint64_t extent_bytes, int expected)
{
	struct image *image = NULL;
	struct err e = ERR_INIT;
	int fd = dup(d->fd);
	int r = image_open(fd, extent_bytes, NULL, &image, &e);

	assert_int_equal(r, expected);
	if (r == 0)
		image_close(image);
	else
		assert_true(e.code == r && *e.text);
	assert_int_equal(fcntl(fd, F_GETFD), -1); /* closed in either case */
}

#define EXPECT_SUPER(d, field, type, value, expected)                                         \
	do {                                                                                  \
		uint64_t super_at = EROFS_SUPER_OFFSET + offsetof(struct erofs_super, field); \
		damage(d, super_at, &(type){ value }, sizeof(type));                          \
		expect_open(d, CHUNK_BYTES, expected);                                        \
		repair(d, super_at, sizeof(type));                                            \
	} while (0)

static void damaged_heads(void **state)
{
	struct erofs_super super;
	uint64_t device_at;
	struct damaged d;

	(void)state;
	damaged_init(&d);
	expect_open(&d, CHUNK_BYTES, 0);
	expect_open(&d, CHUNK_BYTES + 1, -EINVAL);
	expect_open(&d, 0, -EINVAL);
	EXPECT_SUPER(&d, magic, uint32_t, 1, -EBADMSG);
	EXPECT_SUPER(&d, feature_incompat, uint32_t, 0xd, -EPROTONOSUPPORT);
	EXPECT_SUPER(&d, feature_incompat, uint32_t, 0x4, -EPROTONOSUPPORT);
	EXPECT_SUPER(&d, feature_compat, uint32_t, 1, -EPROTONOSUPPORT);
	EXPECT_SUPER(&d, block_bits, uint8_t, 9, -EPROTONOSUPPORT);
	EXPECT_SUPER(&d, root_nid, uint16_t, 0, -EBADMSG);
	EXPECT_SUPER(&d, root_nid, uint16_t, UINT16_MAX, -EBADMSG);
	EXPECT_SUPER(&d, inodes, uint64_t, UINT64_MAX, -EBADMSG);
	EXPECT_SUPER(&d, inodes, uint64_t, 0, -EBADMSG);
	EXPECT_SUPER(&d, blocks, uint32_t, UINT32_MAX, -EBADMSG);
	EXPECT_SUPER(&d, blocks, uint32_t, 0, -EBADMSG);
	EXPECT_SUPER(&d, extra_devices, uint16_t, 0, -EBADMSG);
	EXPECT_SUPER(&d, extra_devices, uint16_t, UINT16_MAX, -EBADMSG);
	EXPECT_SUPER(&d, device_slot, uint16_t, UINT16_MAX, -EBADMSG);
	EXPECT_SUPER(&d, device_slot, uint16_t, 0, -EBADMSG);
	assert_int_equal(
		pread(d.fd, &super, sizeof(super), EROFS_SUPER_OFFSET), (int)sizeof(super));
	device_at = (uint64_t)super.device_slot * EROFS_SLOT_BYTES +
		    offsetof(struct erofs_device, blocks);
	damage(&d, device_at, &(uint32_t){ CHUNK_BYTES / BLOCK_BYTES + 1 }, sizeof(uint32_t));
	expect_open(&d, CHUNK_BYTES, -EBADMSG); /* a device that is longer than an extent */
	repair(&d, device_at, sizeof(uint32_t));
	/* cut at every length, also between blocks */
	for (uint64_t bytes = 0; bytes < d.bytes; bytes += BLOCK_BYTES / 4) {
		assert_int_equal(ftruncate(d.fd, (off_t)bytes), 0);
		expect_open(&d, CHUNK_BYTES, -EBADMSG);
		repair(&d, 0, d.bytes);
	}
	expect_open(&d, CHUNK_BYTES, 0);
	damaged_release(&d);
}

/* The file shrinks under an open reader. */
static void damaged_late(void **state)
{
	struct image_inode inode;
	struct image *image;
	struct damaged d;

	(void)state;
	damaged_init(&d);
	assert_int_equal(damaged_open(&d, &image), 0);
	memset(&view, 0, sizeof(view));
	assert_int_equal(find(image, "one", &inode), 0);
	assert_int_equal(ftruncate(d.fd, BLOCK_BYTES + 100), 0);
	memset(&view, 0, sizeof(view));
	assert_int_equal(find(image, "one", &inode), -EBADMSG);
	image_close(image);
	damaged_release(&d);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(odd_names),
		cmocka_unit_test(subtree),
		cmocka_unit_test(many_names),
		cmocka_unit_test(lookups),
		cmocka_unit_test(damaged_bytes),
		cmocka_unit_test(damaged_regions),
		cmocka_unit_test(damaged_inodes),
		cmocka_unit_test(damaged_heads),
		cmocka_unit_test(damaged_late),
	};

	return cmocka_run_group_tests(tests, fixture_setup, fixture_teardown);
}
