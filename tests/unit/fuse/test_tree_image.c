/* An image as a tree, without a kernel: node ids, listings, places. */
#include "tests/unit/catalog/fixture.h"
#include "base/limits.h"
#include "fuse/tree/nodes.h"
#include "fuse/tree/tree_image.h"

#include <dirent.h>
#include <errno.h>
#include <sys/mman.h>
#include <sys/stat.h>

#define NODES_MAX 4096u

struct shown {
	struct image_info info;
	struct image *image;
	struct tree *tree;
	void *scratch;
};

static const struct image_options options = {
	.uid = 1234, .gid = 4321, .umask = 022, .extent_bytes = CHUNK_BYTES
};
static uint64_t page[LIMIT_PAYLOAD_BYTES / 8];

static void show_image(struct shown *s, uint64_t prime_max, unsigned int hash_bits)
{
	const struct tree_image_config config = { .prime_max = prime_max, .hash_bits = hash_bits };
	struct err e = ERR_INIT;
	int r = tree_image_new(s->image, &config, &s->tree, &e);

	if (r < 0)
		print_message("%s\n", e.text);
	assert_int_equal(r, 0);
	s->scratch = calloc(1, s->tree->scratch_bytes);
}

static void show(struct shown *s, struct table *table, const struct image_options *o,
	uint64_t prime_max, unsigned int hash_bits)
{
	struct err e = ERR_INIT;
	int fd;

	memset(s, 0, sizeof(*s));
	assert_int_equal(image_build(table, o, fixture_path("image"), NULL, NULL, &s->info, &e), 0);
	fd = open(fixture_path("image"), O_RDONLY | O_CLOEXEC);
	assert_int_equal(image_open(fd, s->info.extent_bytes, NULL, &s->image, &e), 0);
	show_image(s, prime_max, hash_bits);
}

static void hide(struct shown *s)
{
	tree_image_free(s->tree);
	image_close(s->image);
	free(s->scratch);
}

static int look(struct shown *s, uint64_t parent, const char *name, struct fuse_entry_param *ret)
{
	return s->tree->ops->lookup(s->tree, s->scratch, parent, name, ret);
}

static int attr(struct shown *s, uint64_t node, struct stat *ret)
{
	return s->tree->ops->getattr(s->tree, s->scratch, node, ret);
}

static int list(struct shown *s, uint32_t opcode, uint64_t node, uint64_t offset, size_t size,
	uint64_t prime, struct tree_entries *ret)
{
	const struct request req = { .opcode = opcode,
		.nodeid = node,
		.read = { .offset = offset, .size = (uint32_t)size } };

	*ret = (struct tree_entries){ .buf = page, .size = size, .prime = prime };
	return s->tree->ops->readdir(s->tree, s->scratch, &req, ret);
}

static int range(
	struct shown *s, uint64_t node, uint64_t offset, uint32_t size, struct tree_range *ret)
{
	const struct request req = {
		.opcode = FUSE_READ, .nodeid = node, .read = { .offset = offset, .size = size }
	};

	return s->tree->ops->range(s->tree, s->scratch, &req, ret);
}

/* By its path. */
static uint64_t node_at(struct shown *s, const char *path)
{
	uint64_t node = NODES_ROOT;

	while (*path) {
		struct fuse_entry_param out;
		char name[IMAGE_NAME_MAX + 1] = "";
		size_t n = strcspn(path, "/");

		memcpy(name, path, n);
		assert_int_equal(look(s, node, name, &out), 0);
		node = out.ino;
		if (!node)
			return 0;
		path += n + (path[n] == '/');
	}
	return node;
}

/* One entry of what list() gave; false at the end. */
struct listed {
	struct fuse_entry_out out;
	struct { /* of struct fuse_dirent, which ends with the name */
		uint64_t ino;
		uint64_t off;
		uint32_t namelen;
		uint32_t type;
	} head;
	char name[IMAGE_NAME_MAX + 1];
};

static bool next_listed(const struct tree_entries *e, bool plus, size_t *at, struct listed *ret)
{
	const unsigned char *from = (const unsigned char *)e->buf + *at;

	if (*at >= e->len)
		return false;
	memset(ret, 0, sizeof(*ret));
	if (plus) {
		memcpy(&ret->out, from, sizeof(ret->out));
		from += sizeof(ret->out);
	}
	memcpy(&ret->head, from, FUSE_NAME_OFFSET);
	assert_in_range(ret->head.namelen, 1, IMAGE_NAME_MAX);
	memcpy(ret->name, from + FUSE_NAME_OFFSET, ret->head.namelen);
	*at += (plus ? sizeof(ret->out) : 0) +
	       align_up(FUSE_NAME_OFFSET + ret->head.namelen, sizeof(uint64_t));
	assert_true(*at <= e->len);
	return true;
}

/* ---- a walk ---------------------------------------------------------------------------------- */

struct seen {
	uint64_t node[NODES_MAX];
	uint32_t n;
};

static void check_entry(struct shown *s, uint64_t dir, const struct listed *l)
{
	struct fuse_entry_param found;
	struct stat got;

	assert_int_equal(look(s, dir, l->name, &found), 0);
	assert_int_equal(found.ino, l->head.ino);
	assert_int_equal(found.attr.st_ino, l->head.ino);
	assert_int_equal(l->head.type, found.attr.st_mode >> 12);
	assert_int_equal(found.attr.st_uid, options.uid);
	assert_int_equal(found.attr.st_gid, options.gid);
	assert_int_equal(found.attr.st_blocks, (found.attr.st_size + 4095) / 4096 * 8);
	assert_int_equal(attr(s, found.ino, &got), 0);
	assert_memory_equal(&got, &found.attr, sizeof(got));
	if (!l->out.nodeid)
		return;
	assert_int_equal(l->out.nodeid, found.ino);
	assert_true(l->out.entry_valid > 86400 && l->out.attr_valid > 86400);
	assert_int_equal(l->out.attr.ino, found.attr.st_ino);
	assert_int_equal(l->out.attr.mode, found.attr.st_mode);
	assert_int_equal(l->out.attr.size, found.attr.st_size);
	assert_int_equal(l->out.attr.mtime, found.attr.st_mtim.tv_sec);
}

/* Through a directory and all below it, `size` bytes at a time; every id goes to `seen`. */
static void walk(struct shown *s, uint64_t dir, uint64_t parent, size_t size, struct seen *seen)
{
	uint64_t subdirectories[64];
	uint32_t n_sub = 0;
	struct tree_entries e;
	struct listed l;
	struct stat got;
	uint64_t offset = 0;
	uint32_t entries = 0;

	do {
		size_t at = 0;

		assert_int_equal(list(s, FUSE_READDIRPLUS, dir, offset, size, UINT64_MAX, &e), 0);
		while (next_listed(&e, true, &at, &l)) {
			offset = l.head.off;
			if (entries++ < 2) {
				assert_string_equal(l.name, entries == 1 ? "." : "..");
				assert_int_equal(l.head.ino, entries == 1 ? dir : parent);
				assert_int_equal(l.out.nodeid, 0);
				continue;
			}
			assert_int_equal(l.out.nodeid, l.head.ino);
			check_entry(s, dir, &l);
			assert_true(seen->n < NODES_MAX);
			seen->node[seen->n++] = l.head.ino;
			if (l.head.type == DT_DIR && n_sub < ARRAY_SIZE(subdirectories))
				subdirectories[n_sub++] = l.head.ino;
		}
	} while (e.len);
	assert_int_equal(attr(s, dir, &got), 0);
	assert_int_equal(got.st_nlink, 2 + n_sub);
	for (uint32_t i = 0; i < n_sub; i++)
		walk(s, subdirectories[i], dir, size, seen);
}

static int compare_ids(const void *a, const void *b)
{
	const uint64_t *x = a;
	const uint64_t *y = b;

	return *x < *y ? -1 : *x > *y;
}

static void walk_all(struct shown *s, size_t size, struct seen *seen)
{
	seen->n = 1;
	seen->node[0] = NODES_ROOT;
	walk(s, NODES_ROOT, NODES_ROOT, size, seen);
	assert_int_equal(seen->n, s->info.files + s->info.directories);
	qsort(seen->node, seen->n, sizeof(seen->node[0]), compare_ids);
	for (uint32_t i = 1; i < seen->n; i++)
		assert_true(seen->node[i - 1] < seen->node[i]);
}

/* Odd names, empty files, directories that sort otherwise than their keys, files of many sizes. */
static struct table *odd_table(const char *name, struct table *prev, uint32_t more)
{
	static const char *const keys[] = { "a", "a-b", "a/b", "a/c/d/e/f", "a0", "B", " ", "  x ",
		"new\nline", "quote'\"", "\xff\xfe", "-rf", "*", "é", "%41", "dir/", "dir2/x/" };
	struct listing *l = listing_new(1 << 20);
	struct generation_stats stats;
	char key[300];

	for (size_t i = 0; i < ARRAY_SIZE(keys); i++)
		fixture_add(l, keys[i], keys[i][strlen(keys[i]) - 1] == '/' ? 0 : 100 * i, "t");
	for (uint32_t i = 0; i < 600 + more; i++) {
		snprintf(key, sizeof(key), "d%u/e%u/f%u", i % 7, i % 5, i);
		fixture_add(l, key, i % 11 == 0 ? 0 : i * 37, "t");
	}
	memset(key, 'n', 255);
	key[255] = '\0';
	fixture_add(l, key, 5, "t");
	memcpy(key + 100, "/", 1);
	fixture_add(l, key, 6, "t");
	return fixture_build(prev, l, name, &stats);
}

/* ---------------------------------------------------------------------------------------------- */

static void all_is_found(void **state)
{
	static struct seen once;
	static struct seen again;
	static const size_t sizes[] = { 4096, 600, LIMIT_PAYLOAD_BYTES };
	struct table *t = odd_table("odd", NULL, 0);
	struct shown s;
	struct statvfs st;

	(void)state;
	show(&s, t, &options, 0, 0);
	walk_all(&s, sizes[0], &once);
	for (size_t i = 1; i < ARRAY_SIZE(sizes); i++) {
		walk_all(&s, sizes[i], &again);
		assert_memory_equal(once.node, again.node, once.n * sizeof(once.node[0]));
	}
	s.tree->ops->statfs(s.tree, &st);
	assert_int_equal(st.f_files, once.n);
	assert_true(st.f_blocks > 0);
	assert_int_equal(st.f_bfree, 0);
	assert_int_equal(st.f_namemax, 255);
	hide(&s);
	table_unref(t);
}

/* The place of each file is its row's, whatever the order in which the walk met it. */
static void places(void **state)
{
	struct table *t = odd_table("odd", NULL, 0);
	static struct table_row row;
	struct table_cursor cursor = { 0 };
	struct shown s;
	uint32_t files = 0;

	(void)state;
	show(&s, t, &options, 0, 0);
	while (table_next(t, &cursor, &row) == 0) {
		char path[LIMIT_KEY_BYTES + 1] = "";
		struct table_row resolved;
		struct tree_range r;
		uint64_t node;

		memcpy(path, row.key, row.key_len);
		if (image_resolve(t, NULL, path, &resolved) != 0 || row.size == 0 ||
			resolved.offset != row.offset)
			continue; /* left out, or a directory */
		node = node_at(&s, path);
		assert_int_equal(node, NODES_FILES + row.offset / BLOCK_BYTES);
		assert_int_equal(range(&s, node, 0, LIMIT_PAYLOAD_BYTES, &r), 0);
		assert_int_equal(r.offset, row.offset);
		assert_int_equal(r.size, row.size);
		assert_int_equal(r.length, align_up(row.size, BLOCK_BYTES));
		files++;
	}
	assert_true(files > 500);
	table_cursor_release(&cursor);
	hide(&s);
	table_unref(t);
}

/* The same ids from another daemon, and in the next generation. */
static void ids_last(void **state)
{
	static const char *const paths[] = { "a/c", "a/c/d/e", "d0", "d6/e4", "dir", "dir2/x",
		"d0/e0/f0", "d1/e2/f22", "d4/e2/f32" };
	struct table *t = odd_table("odd", NULL, 0);
	struct table *next = odd_table("odd2", t, 400);
	uint64_t ids[ARRAY_SIZE(paths)];
	struct shown s;

	(void)state;
	assert_non_null(next);
	show(&s, t, &options, 0, 0);
	for (size_t i = 0; i < ARRAY_SIZE(paths); i++) {
		ids[i] = node_at(&s, paths[i]);
		assert_int_not_equal(ids[i], 0);
	}
	assert_true(ids[0] >= NODES_NAMES && ids[6] >= NODES_NAMES);
	assert_true(ids[8] < NODES_NAMES);
	hide(&s);
	for (int restart = 0; restart < 2; restart++) {
		show(&s, restart ? next : t, &options, 0, 0);
		for (size_t i = 0; i < ARRAY_SIZE(paths); i++)
			assert_int_equal(node_at(&s, paths[i]), ids[i]);
		hide(&s);
	}
	table_unref(next);
	table_unref(t);
}

/* With hashes of a few bits paths meet all the time: each has an id of its own, and keeps it. */
static void hashes_meet(void **state)
{
	static struct seen once;
	static struct seen again;
	struct table *t = odd_table("odd", NULL, 0);
	struct tree *tree = NULL;
	struct err e = ERR_INIT;
	struct shown s;

	(void)state;
	for (unsigned int bits = 7; bits <= 9; bits++) {
		show(&s, t, &options, 0, bits);
		walk_all(&s, 4096, &once);
		hide(&s);
		show(&s, t, &options, 0, bits);
		walk_all(&s, 4096, &again);
		assert_memory_equal(once.node, again.node, once.n * sizeof(once.node[0]));
		assert_int_equal(tree_image_new(s.image,
					 &(struct tree_image_config){ .hash_bits = 4 }, &tree, &e),
			-E2BIG);
		hide(&s);
	}
	table_unref(t);
}

/* More than 16 TiB: ids of more than 32 bits. */
static void huge_volume(void **state)
{
	const struct image_options huge = { .umask = 022, .extent_bytes = 1ull << 43 };
	struct listing *l = listing_new(1 << 20);
	struct generation_stats stats;
	struct stat got;
	struct tree_range r;
	struct table *t;
	struct shown s;
	char key[32];

	(void)state;
	for (uint32_t i = 0; i < 100; i++) { /* directories come in another order than keys */
		snprintf(key, sizeof(key), i % 2 ? "b%02u" : "a/x%02u", i);
		fixture_add(l, key, 1ull << 40, "t");
		snprintf(key, sizeof(key), "a-%02u", i);
		fixture_add(l, key, 4096, "t");
	}
	t = fixture_build(NULL, l, "huge", &stats);
	show(&s, t, &huge, 0, 0);
	for (uint32_t i = 0; i < 100; i++) {
		static struct table_row row;
		uint64_t node;

		snprintf(key, sizeof(key), i % 2 ? "b%02u" : "a/x%02u", i);
		assert_int_equal(table_find_key(t, key, (uint32_t)strlen(key), &row), 0);
		node = node_at(&s, key);
		assert_int_equal(node, NODES_FILES + row.offset / BLOCK_BYTES);
		assert_int_equal(attr(&s, node, &got), 0);
		assert_int_equal(got.st_size, 1ull << 40);
		assert_int_equal(attr(&s, node + 1, &got), -ESTALE);
		assert_int_equal(range(&s, node, (1ull << 40) - 1, 4096, &r), 0);
		assert_int_equal(r.offset, row.offset + (1ull << 40) - BLOCK_BYTES);
		assert_int_equal(r.skip, BLOCK_BYTES - 1);
		assert_int_equal(r.size, 1);
	}
	hide(&s);
	table_unref(t);
}

static void ranges(void **state)
{
	struct table *t;
	struct listing *l = listing_new(1 << 20);
	struct generation_stats stats;
	struct tree_range r;
	struct stat got;
	uint64_t big;
	uint64_t base;
	struct shown s;

	(void)state;
	fixture_add(l, "first", 10, "t");
	fixture_add(l, "big", (5 << 20) + 3, "t");
	fixture_add(l, "empty", 0, "t");
	fixture_add(l, "dir/file", 1, "t");
	t = fixture_build(NULL, l, "ranges", &stats);
	show(&s, t, &options, 0, 0);
	big = node_at(&s, "big");
	base = (big - NODES_FILES) * BLOCK_BYTES;
	for (int again = 0; again < 2; again++) { /* also from what the thread remembers */
		assert_int_equal(range(&s, big, 4097, 1 << 20, &r), 0);
		assert_int_equal(r.offset, base + 4096);
		assert_int_equal(r.skip, 1);
		assert_int_equal(r.size, 1 << 20);
		assert_int_equal(r.length, (1 << 20) + 4096);
		assert_int_equal(range(&s, big, 5 << 20, 4096, &r), 0);
		assert_int_equal(r.size, 3);
		assert_int_equal(r.length, 4096);
		assert_int_equal(range(&s, big, (5 << 20) + 3, 4096, &r), 0);
		assert_int_equal(r.size, 0);
		assert_int_equal(range(&s, big, UINT64_MAX, 4096, &r), 0);
		assert_int_equal(r.size, 0);
		assert_int_equal(range(&s, big, 17, 0, &r), 0);
		assert_int_equal(r.size, 0);
		assert_int_equal(range(&s, node_at(&s, "empty"), 0, 4096, &r), 0);
		assert_int_equal(r.size, 0);
	}
	assert_int_equal(range(&s, big, 0, (1 << 20) + 1, &r), -EINVAL);
	assert_int_equal(range(&s, node_at(&s, "dir"), 0, 4096, &r), -EISDIR);
	assert_int_equal(range(&s, NODES_ROOT, 0, 4096, &r), -EISDIR);
	for (uint64_t node = 2; node <= 5000; node++) /* a file's second block is no file's id */
		if (node != node_at(&s, "big") && node != node_at(&s, "first") &&
			node != node_at(&s, "dir/file")) {
			assert_int_equal(range(&s, node, 0, 4096, &r), -ESTALE);
			assert_int_equal(attr(&s, node, &got), -ESTALE);
		}
	assert_int_equal(range(&s, 0, 0, 4096, &r), -ESTALE);
	assert_int_equal(range(&s, UINT64_MAX, 0, 4096, &r), -ESTALE);
	assert_int_equal(attr(&s, NODES_NAMES, &got), -ESTALE);
	hide(&s);
	table_unref(t);
}

static void lookups(void **state)
{
	struct table *t = odd_table("odd", NULL, 0);
	struct fuse_entry_param out = { 0 };
	struct fuse_file_info opened = { 0 };
	struct shown s;
	char name[400];

	(void)state;
	show(&s, t, &options, 0, 0);
	assert_int_equal(look(&s, NODES_ROOT, "absent", &out), 0);
	assert_int_equal(out.ino, 0);
	assert_true(out.entry_timeout > 86400); /* that it is not there is good for ever */
	assert_int_equal(look(&s, NODES_ROOT, "a", &out), 0);
	assert_int_not_equal(out.ino, 0);
	assert_int_equal(out.generation, 0);
	assert_true(out.entry_timeout > 86400 && out.attr_timeout > 86400);
	assert_int_equal(look(&s, NODES_ROOT, ".", &out), -EINVAL);
	assert_int_equal(look(&s, NODES_ROOT, "..", &out), -EINVAL);
	assert_int_equal(look(&s, node_at(&s, "B"), "x", &out), -ENOTDIR);
	assert_int_equal(look(&s, 4, "x", &out), -ESTALE);
	memset(name, 'n', sizeof(name));
	name[256] = '\0';
	assert_int_equal(look(&s, NODES_ROOT, name, &out), -ENAMETOOLONG);
	name[255] = '\0';
	assert_int_equal(look(&s, NODES_ROOT, name, &out), 0);
	assert_int_not_equal(out.ino, 0);
	assert_int_equal(s.tree->ops->open(s.tree, out.ino, &opened), -ENOSYS);
	assert_int_equal(s.tree->ops->opendir(s.tree, NODES_ROOT, &opened), -ENOSYS);
	assert_int_equal(s.tree->write_status, -EROFS);
	hide(&s);
	table_unref(t);
}

/* Every offset leads to the rest of the listing, in any order, and in another daemon. */
static void offsets(void **state)
{
	static struct listed all[1100];
	struct listing *l = listing_new(1 << 20);
	struct generation_stats stats;
	struct tree_entries e;
	struct table *t;
	struct shown s;
	struct shown other;
	uint64_t random = 88172645463325252ull;
	uint64_t offset = 0;
	uint32_t n = 0;
	char key[64];

	(void)state;
	for (uint32_t i = 0; i < 1000; i++) {
		snprintf(key, sizeof(key), "d/%.*s%u", (int)(i % 40),
			"----------------------------------------", i);
		fixture_add(l, key, i, "t");
	}
	t = fixture_build(NULL, l, "offsets", &stats);
	show(&s, t, &options, 0, 0);
	show(&other, t, &options, 0, 0);
	do {
		size_t at = 0;

		assert_int_equal(list(&s, FUSE_READDIR, node_at(&s, "d"), offset, 4096, 0, &e), 0);
		while (next_listed(&e, false, &at, &all[n]))
			offset = all[n++].head.off;
	} while (e.len);
	assert_int_equal(n, 1002);
	for (int i = 0; i < 3000; i++) {
		struct shown *who = i % 2 ? &s : &other;
		uint32_t from = (uint32_t)(fixture_random(&random) % n);
		bool plus = i % 3 == 0;
		struct listed got;
		size_t at = 0;

		assert_int_equal(list(who, plus ? FUSE_READDIRPLUS : FUSE_READDIR,
					 node_at(who, "d"), from ? all[from - 1].head.off : 0,
					 600 + fixture_random(&random) % 4096, 0, &e),
			0);
		assert_true(e.len > 0);
		while (next_listed(&e, plus, &at, &got)) {
			assert_string_equal(got.name, all[from].name);
			assert_memory_equal(&got.head, &all[from].head, FUSE_NAME_OFFSET);
			from++;
		}
	}
	hide(&s);
	hide(&other);
	table_unref(t);
}

static void listings_that_cannot_be(void **state)
{
	struct table *t = odd_table("odd", NULL, 0);
	struct tree_entries e;
	struct shown s;

	(void)state;
	show(&s, t, &options, 0, 0);
	assert_int_equal(list(&s, FUSE_READDIR, NODES_ROOT, 0, 16, 0, &e), -EINVAL);
	assert_int_equal(list(&s, FUSE_READDIR, NODES_ROOT, 0, 0, 0, &e), -EINVAL);
	assert_int_equal(list(&s, FUSE_READDIR, NODES_ROOT, 2, 24, 0, &e), -EINVAL);
	assert_int_equal(list(&s, FUSE_READDIR, NODES_ROOT, UINT64_MAX, 4096, 0, &e), -EINVAL);
	assert_int_equal(list(&s, FUSE_READDIR, NODES_ROOT, 510, 4096, 0, &e), -EINVAL);
	assert_int_equal(list(&s, FUSE_READDIR, node_at(&s, "B"), 0, 4096, 0, &e), -ENOTDIR);
	assert_int_equal(list(&s, FUSE_READDIR, node_at(&s, "d0/e0/f0"), 0, 4096, 0, &e), -ENOTDIR);
	assert_int_equal(list(&s, FUSE_READDIR, 4, 0, 4096, 0, &e), -ESTALE);
	hide(&s);
	table_unref(t);
}

/* Past the limit entries are listed, but come without an id. */
static void priming(void **state)
{
	struct table *t = odd_table("odd", NULL, 0);
	struct tree_entries e;
	struct listed l;
	struct shown s;
	size_t at = 0;
	uint32_t given = 0;
	uint32_t n = 0;

	(void)state;
	show(&s, t, &options, 77, 0);
	assert_int_equal(s.tree->prime_max, 77);
	assert_int_equal(list(&s, FUSE_READDIRPLUS, NODES_ROOT, 0, 65536, 5, &e), 0);
	assert_int_equal(e.given, 5);
	while (next_listed(&e, true, &at, &l)) {
		n++;
		given += l.out.nodeid != 0;
		assert_int_not_equal(l.head.ino, 0);
	}
	assert_true(n > 20);
	assert_int_equal(given, 5);
	assert_int_equal(list(&s, FUSE_READDIR, NODES_ROOT, 0, 65536, 5, &e), 0);
	assert_int_equal(e.given, 0);
	/* What the kernel knows already costs nothing; what it forgot does. */
	assert_int_equal(list(&s, FUSE_READDIRPLUS, NODES_ROOT, 0, 65536, 0, &e), 0);
	assert_int_equal(e.given, 0);
	at = 0;
	given = 0;
	while (next_listed(&e, true, &at, &l)) {
		if (!l.out.nodeid)
			continue;
		given++;
		assert_int_equal(s.tree->ops->give(s.tree, l.out.nodeid), 0);
		assert_int_equal(s.tree->ops->forget(s.tree, l.out.nodeid, 7), 1);
		assert_int_equal(s.tree->ops->forget(s.tree, l.out.nodeid, 7), 0);
	}
	assert_int_equal(given, 5);
	assert_int_equal(list(&s, FUSE_READDIRPLUS, NODES_ROOT, 0, 65536, UINT64_MAX, &e), 0);
	assert_int_equal(e.given, n - 2);
	assert_int_equal(s.tree->ops->give(s.tree, 4), 0); /* nobody's */
	assert_int_equal(s.tree->ops->forget(s.tree, 4, 1), 0);
	hide(&s);
	table_unref(t);
}

/* ---- damage ---------------------------------------------------------------------------------- */

/* Whatever the image has become while it is served, each call ends. */
static void poke(struct shown *s, const struct seen *seen)
{
	struct fuse_entry_param out;
	struct stat got;
	struct tree_entries e;
	struct tree_range r;

	memset(s->scratch, 0, s->tree->scratch_bytes);
	for (uint32_t i = 0; i < seen->n; i += 3) {
		uint64_t node = seen->node[i];
		uint64_t offset = 0;

		(void)attr(s, node, &got);
		(void)range(s, node, 0, 4096, &r);
		(void)look(s, node, "f37", &out);
		for (int k = 0; k < 8 && list(s, FUSE_READDIRPLUS, node, offset, 4096, 9, &e) == 0;
			k++) {
			struct listed l;
			size_t at = 0;

			while (next_listed(&e, true, &at, &l))
				offset = l.head.off;
		}
	}
}

static void damaged(void **state)
{
	static struct seen seen;
	struct table *t = odd_table("odd", NULL, 0);
	uint64_t random = 4101842887655102017ull;
	struct tree *tree;
	struct err e = ERR_INIT;
	struct shown s;
	uint8_t *image;
	uint8_t *sound;
	size_t size;
	uint32_t refused = 0;

	(void)state;
	show(&s, t, &options, 0, 0);
	walk_all(&s, 4096, &seen);
	size = s.info.image_bytes;
	{
		int fd = open(fixture_path("image"), O_RDWR | O_CLOEXEC);

		image = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		assert_true(image != MAP_FAILED);
		close(fd);
	}
	sound = malloc(size);
	memcpy(sound, image, size);
	for (int i = 0; i < 400; i++) {
		for (int k = 0; k <= i % 8; k++) {
			uint64_t at = 1152 + fixture_random(&random) % (size - 1152);

			image[at] = (uint8_t)fixture_random(&random);
		}
		tree = NULL;
		if (tree_image_new(s.image, &(struct tree_image_config){ 0 }, &tree, &e) < 0)
			refused++;
		tree_image_free(tree);
		poke(&s, &seen);
		memcpy(image, sound, size);
	}
	assert_true(refused > 50);
	munmap(image, size);
	free(sound);
	hide(&s);
	table_unref(t);
}

/* A directory that is in itself: the walk ends, with an error. */
static void circle(void **state)
{
	struct listing *l = listing_new(1 << 20);
	struct generation_stats stats;
	struct tree *tree = NULL;
	struct image_view view = { 0 };
	struct image_inode root;
	struct image_inode dir;
	struct image_entry entry;
	struct err e = ERR_INIT;
	struct table *t;
	struct shown s;
	int fd;

	(void)state;
	fixture_add(l, "a/file", 10, "t");
	t = fixture_build(NULL, l, "circle", &stats);
	show(&s, t, &options, 0, 0);
	assert_int_equal(image_inode(s.image, &view, image_root(s.image), &root), 0);
	assert_int_equal(image_read_entry(s.image, &view, &root, 0, &entry), 0);
	assert_int_equal(image_inode(s.image, &view, entry.nid, &dir), 0);
	fd = open(fixture_path("image"), O_RDWR | O_CLOEXEC);
	/* The first block of the inode of "a" becomes the root's: "a" holds "a" holds "a". */
	assert_int_equal(file_pwrite_exact(fd, &(uint32_t){ (uint32_t)(root.offset / BLOCK_BYTES) },
				 4, dir.nid * 32 + 16),
		0);
	close(fd);
	assert_int_equal(
		tree_image_new(s.image, &(struct tree_image_config){ 0 }, &tree, &e), -EBADMSG);
	hide(&s);
	table_unref(t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(all_is_found),
		cmocka_unit_test(places),
		cmocka_unit_test(ids_last),
		cmocka_unit_test(hashes_meet),
		cmocka_unit_test(huge_volume),
		cmocka_unit_test(ranges),
		cmocka_unit_test(lookups),
		cmocka_unit_test(offsets),
		cmocka_unit_test(listings_that_cannot_be),
		cmocka_unit_test(priming),
		cmocka_unit_test(damaged),
		cmocka_unit_test(circle),
	};

	return cmocka_run_group_tests(tests, fixture_setup, fixture_teardown);
}
