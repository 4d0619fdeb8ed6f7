/* Several sources in one mount: what the trees of all engines say where bytes are, and which sources
 * there are. */
#include "tests/unit/catalog/fixture.h"
#include "base/limits.h"
#include "fuse/daemon/cachefuse.h"
#include "fuse/tree/nodes.h"
#include "fuse/daemon/sources.h"
#include "fuse/tree/tree.h"
#include "fuse/tree/tree_image.h"

#include <errno.h>
#include <sys/mman.h>

#define EXTENT (1ull << 30)

/* Of three: two extents, none, and the rest. */
static const struct layout_sources three = { .n = 3, .first = { 0, 2, 2 } };

static int range_of(
	struct tree *tree, uint64_t node, uint64_t offset, uint32_t size, struct tree_range *ret)
{
	const struct request req = {
		.opcode = FUSE_READ, .nodeid = node, .read = { .offset = offset, .size = size }
	};
	void *scratch = calloc(1, tree->scratch_bytes + 1);
	int r = tree->ops->range(tree, scratch, &req, ret);

	free(scratch);
	return r;
}

static void extents(void **state)
{
	struct tree *tree;
	struct tree_range range;

	(void)state;
	assert_int_equal(tree_extents_new(EXTENT, 5, &three, &tree, NULL), 0);
	assert_int_equal(range_of(tree, REQUEST_EXTENT_NODE(1), 8192, 4096, &range), 0);
	assert_int_equal(range.offset, place_of(0, EXTENT + 8192));
	assert_int_equal(range_of(tree, REQUEST_EXTENT_NODE(2), 0, 4096, &range), 0);
	assert_int_equal(range.offset, place_of(2, 0));
	assert_int_equal(range_of(tree, REQUEST_EXTENT_NODE(3), 4096, 1 << 20, &range), 0);
	assert_int_equal(range.offset, place_of(2, EXTENT + 4096));
	assert_int_equal(range.length, 1 << 20);
	assert_int_equal(range_of(tree, REQUEST_EXTENT_NODE(5), 0, 4096, &range), -EINVAL);
	tree_extents_free(tree);
}

static void device(void **state)
{
	struct tree_device_config config = { .image_bytes = 0,
		.image_fd = memfd_create("image", MFD_CLOEXEC),
		.volume_offset = CHUNK_BYTES,
		.volume_bytes = 5 * EXTENT,
		.extent_bytes = EXTENT,
		.sources = three };
	struct tree *tree;
	struct tree_range range;
	struct fuse_entry_param entry;

	(void)state;
	assert_int_equal(tree_device_new(&config, &tree, NULL), 0);
	assert_int_equal(
		tree->ops->lookup(tree, NULL, REQUEST_ROOT_NODE, TREE_DEVICE_NAME, &entry), 0);
	assert_int_equal(range_of(tree, entry.ino, CHUNK_BYTES + EXTENT, 4096, &range), 0);
	assert_int_equal(range.offset, place_of(0, EXTENT));
	assert_int_equal(
		range_of(tree, entry.ino, CHUNK_BYTES + 2 * EXTENT + 4096, 4096, &range), 0);
	assert_int_equal(range.offset, place_of(2, 4096));
	assert_int_equal(
		range_of(tree, entry.ino, CHUNK_BYTES + 3 * EXTENT - 4096, 8192, &range), 0);
	assert_int_equal(range.offset, place_of(2, EXTENT - 4096));
	/* from one volume into the next */
	assert_int_equal(
		range_of(tree, entry.ino, CHUNK_BYTES + 2 * EXTENT - 4096, 8192, &range), -EIO);
	tree_device_free(tree);
}

static struct table *table_of(uint8_t volume, const char *name, const char *prefix, uint32_t n)
{
	struct listing *l = listing_new(16 << 20);
	struct volume_id id = { { volume } };
	const char *path = fixture_path(name);

	for (uint32_t i = 0; i < n; i++) {
		char key[64];

		snprintf(key, sizeof(key), "%s%u", prefix, i);
		fixture_add(l, key, 5000 + i, "t");
	}
	assert_int_equal(generation_build(&id, NULL, l, path, NULL, NULL, NULL), 0);
	listing_free(l);
	return fixture_open(path);
}

static uint64_t look(struct tree *tree, void *scratch, uint64_t parent, const char *name)
{
	struct fuse_entry_param out;

	assert_int_equal(tree->ops->lookup(tree, scratch, parent, name, &out), 0);
	return out.ino;
}

/* The last of sixteen: its ids are the highest there are. */
static void names(void **state)
{
	static char paths[LAYOUT_SOURCES_MAX][8];
	static struct table_row row;
	struct image_source sources[LAYOUT_SOURCES_MAX];
	const struct image_options options = { .umask = 022, .extent_bytes = CHUNK_BYTES };
	const struct tree_image_config config = { .prime_max = 100 };
	struct table *t = table_of(1, "t", "f", 9);
	struct image_info info;
	struct image *image;
	struct tree *tree;
	struct tree_range range;
	void *scratch;
	struct err e = ERR_INIT;

	(void)state;
	for (uint32_t i = 0; i < LAYOUT_SOURCES_MAX; i++) {
		snprintf(paths[i], sizeof(paths[i]), "s%u", i);
		sources[i] = (struct image_source){ t, paths[i], NULL };
	}
	assert_int_equal(image_build_sources(sources, LAYOUT_SOURCES_MAX, &options,
				 fixture_path("i"), NULL, NULL, &info, &e),
		0);
	assert_int_equal(image_open(open(fixture_path("i"), O_RDONLY | O_CLOEXEC),
				 info.extent_bytes, &info.sources, &image, &e),
		0);
	assert_int_equal(tree_image_new(image, &config, &tree, &e), 0);
	scratch = calloc(1, tree->scratch_bytes);
	assert_int_equal(table_find_key(t, "f7", 2, &row), 0);
	for (uint32_t i = 0; i < LAYOUT_SOURCES_MAX; i++) {
		uint64_t dir = look(tree, scratch, NODES_ROOT, paths[i]);
		uint64_t node = look(tree, scratch, dir, "f7");
		struct stat attr;

		assert_int_equal(node, NODES_FILES + place_of(i, row.offset) / BLOCK_BYTES);
		assert_int_equal(tree->ops->getattr(tree, scratch, node, &attr), 0);
		assert_int_equal(attr.st_size, row.size);
		assert_int_equal(range_of(tree, node, 4096, 4096, &range), 0);
		assert_int_equal(range.offset, place_of(i, row.offset + 4096));
		assert_int_equal(range.size, row.size - 4096);
	}
	assert_int_equal(
		tree->ops->getattr(tree, scratch,
			NODES_FILES + place_of(LAYOUT_SOURCES_MAX, row.offset) / BLOCK_BYTES,
			&(struct stat){ 0 }),
		-ESTALE);
	free(scratch);
	tree_image_free(tree);
	image_close(image);
	table_unref(t);
}

#define HEX "000102030405060708090a0b0c0d0e0f"

static void which(void **state)
{
	static const char *const bad[] = { "", "{}", "[]", "[{}]", "[{\"path\":\"/a\"}]",
		"[{\"path\":\"a\",\"volume\":\"" HEX "\"}]",
		"[{\"path\":\"/a/..\",\"volume\":\"" HEX "\"}]",
		"[{\"path\":\"/a\",\"volume\":\"00\"}]",
		"[{\"path\":\"/a\",\"volume\":\"" HEX "\",\"subtree\":\"x\"}]" };
	struct sources sources = { 0 };
	struct err e = ERR_INIT;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		assert_int_equal(sources_parse(&sources, bad[i], &e), -EINVAL);
		assert_true(e.text[0]);
		sources_release(&sources);
	}
	assert_int_equal(sources_parse(&sources,
				 "[{\"path\":\"/a/b\",\"volume\":\"" HEX "\",\"url\":\"s3://x/\"},"
				 "{\"path\":\"/\",\"volume\":\"" HEX "\",\"subtree\":\"c/\"}]",
				 &e),
		0);
	assert_int_equal(sources.n, 2);
	assert_string_equal(sources.all[0].path, "/a/b");
	assert_string_equal(sources.all[0].url, "s3://x/");
	assert_int_equal(sources.all[0].id.bytes[15], 15);
	assert_string_equal(sources.all[1].subtree, "c/");
	assert_true(sources_composed(&sources));
	sources_release(&sources);
	assert_int_equal(sources_one(&sources, "s3://x/", &e), 0);
	assert_false(sources_composed(&sources));
	sources_release(&sources);
	assert_int_equal(sources.n, 0);
}

/* The sources of a dataset below a directory, which is their root. */
static void of_a_directory(void **state)
{
	static const struct {
		const char *directory;
		const char *sources; /* "PATH:SUBTREE " of each */
	} rows[] = {
		{ "/", "/:root/ /a/text: /a/text/more: " },
		{ "/b/c", "/:root/b/c/ " },
		{ "/a", "/:root/a/ /text: /text/more: " },
		{ "/a/text", "/: /more: " },
		{ "/a/text/x", "/:x/ " },
		{ "/a/texts", "/:root/a/texts/ " },
		{ "/a/text/more/y", "/:y/ " },
	};
	json_t *mounts = json_pack("[{s:s, s:s}, {s:s}, {s:s}]", "path", "/", "subtree", "root/",
		"path", "/a/text", "path", "/a/text/more");
	const json_t *one;
	size_t k;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		json_t *sources = source_named_sources(mounts, rows[i].directory);
		char text[256] = "";

		json_array_foreach (sources, k, one) {
			size_t len = strlen(text);

			(void)snprintf(text + len, sizeof(text) - len, "%s:%s ",
				json_string_value(json_object_get(one, "path")),
				json_string_value(json_object_get(one, "subtree")));
		}
		assert_string_equal(text, rows[i].sources);
		json_decref(sources);
	}
	(void)json_array_remove(mounts, 0);
	{
		json_t *sources = source_named_sources(mounts, "/b");

		assert_int_equal(json_array_size(sources), 0);
		json_decref(sources);
	}
	json_decref(mounts);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(extents),
		cmocka_unit_test(device),
		cmocka_unit_test(names),
		cmocka_unit_test(which),
		cmocka_unit_test(of_a_directory),
	};

	return cmocka_run_group_tests(tests, fixture_setup, fixture_teardown);
}
