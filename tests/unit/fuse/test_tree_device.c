/* The one file under a loop device: what of it is the image's, nobody's, the volume's. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "base/layout.h"
#include "base/limits.h"
#include "fuse/tree/tree.h"

#define BLOCK  ((uint64_t)BLOCK_BYTES)
#define IMAGE  (3 * BLOCK)
#define EDGE   (64 * BLOCK)
#define VOLUME (100 * BLOCK)

static struct tree *tree;
static unsigned char buf[LIMIT_PAYLOAD_BYTES];

static int setup(void **state)
{
	struct tree_device_config config = { .image_bytes = IMAGE,
		.volume_offset = EDGE,
		.volume_bytes = VOLUME,
		.image_fd = memfd_create("image", MFD_CLOEXEC) };
	struct err e = ERR_INIT;

	(void)state;
	memset(buf, 7, IMAGE);
	assert_int_equal(write(config.image_fd, buf, IMAGE), IMAGE);
	return tree_device_new(&config, &tree, &e);
}

static int teardown(void **state)
{
	(void)state;
	tree_device_free(tree);
	return 0;
}

static struct request read_of(uint64_t offset, uint32_t size)
{
	return (struct request){
		.opcode = FUSE_READ, .nodeid = 2, .read = { .offset = offset, .size = size }
	};
}

static int own(uint64_t offset, uint32_t size)
{
	struct request req = read_of(offset, size);

	memset(buf, 1, sizeof(buf));
	return tree->ops->own(tree, &req, buf);
}

static void names_and_sizes(void **state)
{
	struct fuse_entry_param entry;
	struct stat attr;
	struct fuse_file_info open = { 0 };

	(void)state;
	assert_int_equal(
		tree->ops->lookup(tree, NULL, REQUEST_ROOT_NODE, TREE_DEVICE_NAME, &entry), 0);
	assert_int_equal(entry.attr.st_size, EDGE + VOLUME);
	assert_int_equal(tree->ops->lookup(tree, NULL, REQUEST_ROOT_NODE, "0", &entry), -ENOENT);
	assert_int_equal(
		tree->ops->lookup(tree, NULL, entry.ino, TREE_DEVICE_NAME, &entry), -ENOTDIR);
	assert_int_equal(tree->ops->getattr(tree, NULL, entry.ino, &attr), 0);
	assert_int_equal(tree->ops->getattr(tree, NULL, entry.ino + 1, &attr), -ENOENT);
	assert_int_equal(tree->ops->open(tree, REQUEST_ROOT_NODE, &open), -EISDIR);
	assert_int_equal(tree->ops->open(tree, entry.ino, &open), 0);
	assert_true(open.direct_io && open.noflush);
}

static void image_and_nothing(void **state)
{
	(void)state;
	assert_int_equal(own(0, BLOCK), 0);
	assert_int_equal(buf[0], 7);
	assert_int_equal(own(IMAGE - BLOCK, 2 * BLOCK), 0); /* over the image's end */
	assert_int_equal(buf[BLOCK - 1], 7);
	assert_int_equal(buf[BLOCK], 0);
	assert_int_equal(buf[2 * BLOCK - 1], 0);
	assert_int_equal(own(EDGE - BLOCK, BLOCK), 0);
	assert_int_equal(buf[0], 0);
	assert_int_equal(own(EDGE - BLOCK, 2 * BLOCK), -EIO); /* over the volume's beginning */
	assert_int_equal(own(EDGE, BLOCK), -ENXIO);
}

static void volume(void **state)
{
	struct request req = read_of(EDGE + BLOCK, 2 * BLOCK);
	struct tree_range range = { 0 };

	(void)state;
	assert_int_equal(tree->ops->range(tree, NULL, &req, &range), 0);
	assert_int_equal(range.offset, BLOCK);
	assert_int_equal(range.length, 2 * BLOCK);
	assert_int_equal(range.size, 2 * BLOCK);
	req = read_of(EDGE + VOLUME - BLOCK, 2 * BLOCK);
	assert_int_equal(tree->ops->range(tree, NULL, &req, &range), -EIO); /* past the end */
	req = read_of(EDGE - BLOCK, BLOCK);
	assert_int_equal(tree->ops->range(tree, NULL, &req, &range), -EIO);
}

static void nonsense(void **state)
{
	(void)state;
	assert_int_equal(own(1, BLOCK), -EIO);
	assert_int_equal(own(0, 0), -EIO);
	assert_int_equal(own(0, BLOCK + 1), -EIO);
	assert_int_equal(own(0, 2 * LIMIT_PAYLOAD_BYTES), -EIO);
	assert_int_equal(own(UINT64_MAX - BLOCK + 1, BLOCK), -EIO);
	assert_int_equal(own(EDGE + VOLUME, BLOCK), -EIO);
}

/* A disk that gives no image any more is an error, never zeros. */
static void image_cut_short(void **state)
{
	struct tree_device_config config = { .image_bytes = IMAGE,
		.volume_offset = EDGE,
		.volume_bytes = VOLUME,
		.image_fd = memfd_create("cut", MFD_CLOEXEC) };
	struct request req = read_of(0, BLOCK);
	struct err e = ERR_INIT;
	struct tree *cut;

	(void)state;
	assert_int_equal(tree_device_new(&config, &cut, &e), 0);
	assert_int_equal(cut->ops->own(cut, &req, buf), -EIO);
	tree_device_free(cut);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(names_and_sizes, setup, teardown),
		cmocka_unit_test_setup_teardown(image_and_nothing, setup, teardown),
		cmocka_unit_test_setup_teardown(volume, setup, teardown),
		cmocka_unit_test_setup_teardown(nonsense, setup, teardown),
		cmocka_unit_test(image_cut_short),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
