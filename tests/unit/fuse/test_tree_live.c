/* Generations of a tree one after the other, without a kernel: what differs, what stays, listings under
 * way, files that are open. */
#include "tests/unit/catalog/fixture.h"
#include "base/limits.h"
#include "fuse/tree/tree_live.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>

#define KEYS_MAX 2000u
#define NAMES    400u /* of the wide directory */

static const struct image_options options = { .umask = 022, .extent_bytes = CHUNK_BYTES };
static struct gone *gone;
static struct table *last;
static uint32_t images;

struct object {
	char key[64];
	uint64_t size;
	char tag[16];
};

static struct object objects[KEYS_MAX];
static uint32_t n_objects;

static void put(const char *key, uint64_t size, const char *tag)
{
	struct object *o = objects;

	while (o < objects + n_objects && strcmp(o->key, key) != 0)
		o++;
	assert_true(o < objects + KEYS_MAX);
	n_objects += o == objects + n_objects;
	snprintf(o->key, sizeof(o->key), "%s", key);
	o->size = size;
	snprintf(o->tag, sizeof(o->tag), "%s", tag);
}

static void take(const char *key)
{
	struct object *o = objects;

	while (strcmp(o->key, key) != 0)
		assert_true(++o < objects + n_objects);
	*o = objects[--n_objects];
}

/* The image of what there is now. */
static struct image *make(void)
{
	struct listing *l = listing_new(1 << 20);
	struct generation_stats stats;
	struct image_info info;
	struct image *image = NULL;
	struct table *table;
	struct err e = ERR_INIT;
	char name[32];
	int fd;

	for (uint32_t i = 0; i < n_objects; i++)
		fixture_add(l, objects[i].key, objects[i].size, objects[i].tag);
	snprintf(name, sizeof(name), "table%u", images);
	table = fixture_build(last, l, name, &stats);
	assert_non_null(table);
	if (last)
		table_unref(last);
	last = table;
	snprintf(name, sizeof(name), "image%u", images++);
	assert_int_equal(
		image_build(table, &options, fixture_path(name), NULL, NULL, &info, &e), 0);
	fd = open(fixture_path(name), O_RDONLY | O_CLOEXEC);
	assert_int_equal(image_open(fd, info.extent_bytes, &info.sources, &image, &e), 0);
	return image;
}

static void setup_objects(void)
{
	char key[32];

	n_objects = 0;
	put("a/same", 5000, "t");
	put("a/changes", 6000, "t");
	put("a/goes", 7000, "t");
	put("a/empty", 0, "t");
	put("gone/deep/one", 100, "t");
	put("gone/deep/two", 200, "t");
	put("file-then-dir", 300, "t");
	put("dir-then-file/x", 400, "t");
	for (uint32_t i = 0; i < NAMES; i++) {
		snprintf(key, sizeof(key), "wide/%04u", 2 * i);
		put(key, i + 1, "t");
	}
}

static void change_objects(void)
{
	put("a/changes", 6001, "u");
	take("a/goes");
	put("a/new", 10, "t");
	take("gone/deep/one");
	take("gone/deep/two");
	take("file-then-dir");
	put("file-then-dir/y", 1, "t");
	take("dir-then-file/x");
	put("dir-then-file", 2, "t");
}

static struct tree *tree;
static void *scratch;

static void show(void)
{
	const struct tree_image_config config = { .prime_max = 1000 };
	struct err e = ERR_INIT;

	assert_int_equal(gone_open(fixture_path("gone"), true, GONE_HALF, &gone), 0);
	assert_int_equal(tree_live_new(make(), 0, &config, gone, &tree, &e), 0);
	scratch = calloc(1, tree->scratch_bytes);
}

static void hide(void)
{
	tree_live_free(tree);
	free(scratch);
	gone_free(gone);
	table_unref(last);
	last = NULL;
}

static void next(void)
{
	struct tree_live_next *n = NULL;
	struct err e = ERR_INIT;

	assert_int_equal(tree_live_prepare(tree, make(), &n, &e), 0);
	tree_live_switch(tree, n);
}

/* By its path; 0: not there. */
static uint64_t node_at(const char *path)
{
	uint64_t node = NODES_ROOT;

	while (*path && node) {
		struct fuse_entry_param out;
		char name[IMAGE_NAME_MAX + 1] = "";
		size_t n = strcspn(path, "/");

		memcpy(name, path, n);
		assert_int_equal(tree->ops->lookup(tree, scratch, node, name, &out), 0);
		node = out.ino;
		path += n + (path[n] == '/');
	}
	return node;
}

static int range(uint64_t node, uint64_t offset, uint32_t size, struct tree_range *ret)
{
	const struct request req = {
		.opcode = FUSE_READ, .nodeid = node, .read = { .offset = offset, .size = size }
	};

	return tree->ops->range(tree, scratch, &req, ret);
}

/* ---------------------------------------------------------------------------------------------- */

static void names_move_on(void **state)
{
	uint64_t a;
	uint64_t same;
	uint64_t changes;
	uint64_t empty;

	(void)state;
	setup_objects();
	show();
	a = node_at("a");
	same = node_at("a/same");
	changes = node_at("a/changes");
	empty = node_at("a/empty");
	change_objects();
	next();
	assert_int_equal(node_at("a"), a);
	assert_int_equal(node_at("a/same"), same);
	assert_int_equal(node_at("a/empty"), empty);
	assert_int_not_equal(node_at("a/changes"), changes);
	assert_int_not_equal(node_at("a/changes"), 0);
	assert_int_equal(node_at("a/goes"), 0);
	assert_int_not_equal(node_at("a/new"), 0);
	assert_int_equal(node_at("gone"), 0);
	assert_int_not_equal(node_at("file-then-dir/y"), 0);
	assert_true(node_at("dir-then-file") < NODES_NAMES);
	hide();
}

/* Whoever has one open reads on, over any number of generations. */
static void open_files_stay(void **state)
{
	struct stat attr;
	struct tree_range before;
	struct tree_range after;
	uint64_t file;
	uint64_t below;
	char tag[16];

	(void)state;
	setup_objects();
	show();
	file = node_at("a/changes");
	below = node_at("gone/deep/two");
	assert_int_equal(range(file, 4096, 4096, &before), 0);
	assert_int_equal(before.size, 6000 - 4096);
	change_objects();
	next();
	for (uint32_t i = 0; i < LIVE_OLD + 2; i++) {
		snprintf(tag, sizeof(tag), "v%u", i);
		put("a/changes", 9000 + i, tag);
		next();
		assert_int_equal(range(file, 4096, 4096, &after), 0);
		assert_memory_equal(&after, &before, sizeof(after));
		assert_int_equal(range(file, 8192, 4096, &after), 0);
		assert_int_equal(after.size, 0);
		assert_int_equal(tree->ops->getattr(tree, scratch, file, &attr), 0);
		assert_int_equal(attr.st_size, 6000);
		assert_int_equal(attr.st_ino, file);
		assert_int_equal(range(below, 0, 4096, &after), 0);
		assert_int_equal(after.size, 200);
	}
	assert_int_equal(range(NODES_FILES + 999999999, 0, 4096, &after), -ESTALE);
	hide();
}

/* ---- what the kernel is told ----------------------------------------------------------------- */

struct told {
	char text[4096];
	uint32_t same;
};

static int tell(void *arg, const struct live_change *c)
{
	static const char letters[] = { [LIVE_SAME] = '=',
		[LIVE_ATTR] = '~',
		[LIVE_OTHER] = '!',
		[LIVE_CAME] = '+',
		[LIVE_WENT] = '-',
		[LIVE_TOUCHED] = '/' };
	struct told *told = arg;
	size_t len = strlen(told->text);

	if (c->kind == LIVE_SAME) {
		told->same++;
		return 0;
	}
	if (c->kind == LIVE_ATTR && c->after->directory)
		return 0; /* their times are their objects' */
	snprintf(told->text + len, sizeof(told->text) - len, "%c%.*s ", letters[c->kind],
		(int)c->len, c->name);
	return 0;
}

static void differences(void **state)
{
	static struct told told;

	(void)state;
	setup_objects();
	show();
	assert_int_equal(tree_live_changes(tree, tell, &told), -ENOENT);
	change_objects();
	next();
	assert_int_equal(tree_live_changes(tree, tell, &told), 0);
	assert_string_equal(told.text,
		"!dir-then-file !file-then-dir -gone / !changes -goes +new / "
		"-x / -deep / -one -two / ");
	assert_in_range(told.same, NAMES + 2, NAMES + 4);
	/* The same once more: a successor does not know how far it came. */
	memset(&told, 0, sizeof(told));
	assert_int_equal(tree_live_changes(tree, tell, &told), 0);
	assert_string_equal(told.text,
		"!dir-then-file !file-then-dir -gone / !changes -goes +new / "
		"-x / -deep / -one -two / ");
	hide();
}

/* ---- what the kernel knows ------------------------------------------------------------------- */

static void known_is_carried(void **state)
{
	static const char *const paths[] = { "a", "a/same", "a/changes", "a/goes", "gone" };
	uint64_t nodes[ARRAY_SIZE(paths)];

	(void)state;
	setup_objects();
	show();
	for (size_t i = 0; i < ARRAY_SIZE(paths); i++) {
		nodes[i] = node_at(paths[i]);
		assert_int_equal(tree->ops->give(tree, nodes[i]), 1);
	}
	change_objects();
	next();
	for (size_t i = 0; i < 2; i++)
		assert_int_equal(tree->ops->give(tree, nodes[i]), 0);
	for (size_t i = 0; i < ARRAY_SIZE(paths); i++)
		assert_int_equal(tree->ops->forget(tree, nodes[i], 1), 1);
	for (size_t i = 0; i < ARRAY_SIZE(paths); i++)
		assert_int_equal(tree->ops->forget(tree, nodes[i], 1), 0);
	hide();
}

/* What the kernel comes to know, or forgets, while the next generation is made ready. */
static void known_meanwhile(void **state)
{
	struct tree_live_next *n = NULL;
	struct err e = ERR_INIT;
	uint64_t first;
	uint64_t second;

	(void)state;
	setup_objects();
	show();
	first = node_at("a/same");
	second = node_at("a");
	assert_int_equal(tree->ops->give(tree, first), 1);
	put("a/new", 10, "t");
	assert_int_equal(tree_live_prepare(tree, make(), &n, &e), 0);
	assert_int_equal(tree->ops->forget(tree, first, 1), 1);
	assert_int_equal(tree->ops->give(tree, second), 1);
	tree_live_switch(tree, n);
	assert_int_equal(tree->ops->forget(tree, second, 1), 1);
	assert_int_equal(tree->ops->give(tree, first), 1);
	/* Of one that is not shown after all nothing is left. */
	put("a/newer", 10, "t");
	assert_int_equal(tree_live_prepare(tree, make(), &n, &e), 0);
	tree_live_drop(n);
	assert_int_equal(tree->ops->forget(tree, first, 1), 1);
	hide();
}

/* ---- listings -------------------------------------------------------------------------------- */

static uint64_t page[512];

/* A few names from `*offset` on, added to seen[]; false at the end. */
static bool list_some(uint64_t node, uint64_t *offset, uint8_t seen[2 * NAMES + 2])
{
	struct tree_entries e = { .buf = page, .size = 600 };
	const struct request req = {
		.opcode = FUSE_READDIR, .nodeid = node, .read = { .offset = *offset, .size = 600 }
	};

	assert_int_equal(tree->ops->readdir(tree, scratch, &req, &e), 0);
	for (size_t at = 0; at < e.len;) {
		const unsigned char *entry = (const unsigned char *)page + at;
		uint32_t len;
		char name[IMAGE_NAME_MAX + 1] = "";

		memcpy(offset, entry + offsetof(struct fuse_dirent, off), sizeof(*offset));
		memcpy(&len, entry + offsetof(struct fuse_dirent, namelen), sizeof(len));
		memcpy(name, entry + FUSE_NAME_OFFSET, len);
		if (name[0] != '.')
			seen[strtoul(name, NULL, 10)]++;
		at += align_up(FUSE_NAME_OFFSET + len, sizeof(uint64_t));
	}
	return e.len != 0;
}

/* Names that are there all the time come once, whatever else comes and goes before and behind. */
static void listings_go_on(void **state)
{
	uint8_t seen[2 * NAMES + 2] = { 0 };
	bool went[2 * NAMES + 2] = { false };
	uint64_t offset = 0;
	uint32_t round = 0;
	uint64_t node;
	char key[32];

	(void)state;
	setup_objects();
	show();
	node = node_at("wide");
	while (list_some(node, &offset, seen)) {
		uint32_t goes = (round * 97) % NAMES;

		snprintf(key, sizeof(key), "wide/%04u", 2 * goes);
		if (!went[2 * goes]) {
			take(key);
			went[2 * goes] = true;
		}
		snprintf(key, sizeof(key), "wide/%04u", 2 * ((round * 31) % NAMES) + 1);
		put(key, round + 1, "t");
		next();
		round++;
	}
	assert_true(round > 10);
	for (uint32_t i = 0; i < NAMES; i++) {
		if (!went[2 * i])
			assert_int_equal(seen[2 * i], 1);
		assert_true(seen[2 * i] <= 1);
		assert_true(seen[2 * i + 1] <= 1);
	}
	hide();
}

/* One that is older than what is kept is an error, not another listing. */
static void too_old(void **state)
{
	uint8_t seen[2 * NAMES + 2] = { 0 };
	uint64_t offset = 0;
	char tag[16];
	struct tree_entries e = { .buf = page, .size = 600 };
	struct request req = { .opcode = FUSE_READDIR };

	(void)state;
	setup_objects();
	show();
	req.nodeid = node_at("wide");
	assert_true(list_some(req.nodeid, &offset, seen));
	for (uint32_t i = 0; i <= LIVE_OLD; i++) {
		snprintf(tag, sizeof(tag), "v%u", i);
		put("a/changes", 9000 + i, tag);
		next();
	}
	req.read.offset = offset;
	req.read.size = 600;
	assert_int_equal(tree->ops->readdir(tree, scratch, &req, &e), -ESTALE);
	hide();
}

/* ---- threads --------------------------------------------------------------------------------- */

static _Atomic bool stop;

static void *look(void *arg)
{
	void *own = calloc(1, tree->scratch_bytes);
	uint64_t *errors = arg;

	while (!atomic_load(&stop)) {
		struct fuse_entry_param dir = { 0 };
		struct fuse_entry_param out = { 0 };
		int r = tree->ops->lookup(tree, own, NODES_ROOT, "a", &dir);

		if (r == 0)
			r = tree->ops->lookup(tree, own, dir.ino, "changes", &out);
		*errors += r != 0 || out.ino == 0 || out.attr.st_size < 6000;
		(void)tree->ops->give(tree, out.ino);
	}
	free(own);
	return NULL;
}

static void under_readers(void **state)
{
	pthread_t threads[3];
	uint64_t errors[3] = { 0 };
	char tag[16];

	(void)state;
	setup_objects();
	show();
	atomic_store(&stop, false);
	for (uint32_t i = 0; i < 3; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, look, &errors[i]), 0);
	for (uint32_t i = 0; i < 20; i++) {
		snprintf(tag, sizeof(tag), "v%u", i);
		put("a/changes", 9000 + i, tag);
		next();
	}
	atomic_store(&stop, true);
	for (uint32_t i = 0; i < 3; i++) {
		pthread_join(threads[i], NULL);
		assert_int_equal(errors[i], 0);
	}
	hide();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(names_move_on),
		cmocka_unit_test(open_files_stay),
		cmocka_unit_test(differences),
		cmocka_unit_test(known_is_carried),
		cmocka_unit_test(known_meanwhile),
		cmocka_unit_test(listings_go_on),
		cmocka_unit_test(too_old),
		cmocka_unit_test(under_readers),
	};

	return cmocka_run_group_tests(tests, fixture_setup, fixture_teardown);
}
