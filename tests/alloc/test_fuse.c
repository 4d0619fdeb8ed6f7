/* Slots, both trees and a session started, with every allocation failing once. */
#include <stdlib.h>
#include <string.h>

#include "tests/unit/fuse/synthetic.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include "catalog/image_read.h"
#include "fuse/session/session.h"
#include "mount/slots.h"
#include "fuse/tree/tree.h"
#include "fuse/tree/tree_image.h"
#include "tests/alloc/alloc_fail.h"

static char dir[64];
static struct synthetic_control *control;

static int setup(void **state)
{
	(void)state;
	control = synthetic_control_new();
	snprintf(dir, sizeof(dir), "/tmp/granary-alloc-XXXXXX");
	return mkdtemp(dir) ? 0 : -1;
}

static int teardown(void **state)
{
	char command[128];

	(void)state;
	snprintf(command, sizeof(command), "rm -r %s", dir);
	return system(command);
}

/* An image of 500 files, and the path that it lies at. */
static const char *make_image(struct image_info *info)
{
	static char image_path[128];
	static const struct volume_id volume = { { 9 } };
	const struct image_options options = { .umask = 022 };
	struct listing *l = listing_new(16 << 20);
	struct table *table;
	char path[128];

	for (uint32_t i = 0; i < 500; i++) {
		char key[32];
		int n = snprintf(key, sizeof(key), "d%u/f%u", i % 9, i);

		assert_int_equal(listing_add(l, key, (uint32_t)n, i, 0, "t", 1), 0);
	}
	snprintf(path, sizeof(path), "%s/table", dir);
	snprintf(image_path, sizeof(image_path), "%s/image", dir);
	assert_int_equal(generation_build(&volume, NULL, l, path, NULL, NULL, NULL), 0);
	listing_free(l);
	assert_int_equal(table_open(open(path, O_RDONLY | O_CLOEXEC), &table, NULL), 0);
	assert_int_equal(image_build(table, &options, image_path, NULL, NULL, info, NULL), 0);
	table_unref(table);
	return image_path;
}

/* A session on a socket pair instead of /dev/fuse. */
static int session_life(struct tree *tree)
{
	struct session *session = NULL;
	struct slots *slots = NULL;
	struct synthetic reader;
	struct err e = ERR_INIT;
	int memory = memfd_create("slots", MFD_CLOEXEC);
	int fds[2];
	int r;

	assert_true(memory >= 0 && ftruncate(memory, SLOTS_HEAD_BYTES + 32 * SLOT_BYTES) == 0);
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds), 0);
	synthetic_start(&reader, control);
	r = slots_open(memory, &slots, &e);
	if (r == 0) {
		const struct session_config config = { .dev_fd = fds[0],
			.slots = slots,
			.reader = &reader.reader,
			.tree = tree,
			.threads = 3 };

		r = session_new(&config, &session, &e);
	}
	assert_true(r == 0 || e.text[0]);
	session_free(session);
	synthetic_stop(&reader);
	slots_free(slots);
	(void)close(fds[0]);
	(void)close(fds[1]);
	(void)close(memory);
	return r;
}

static int extents_life(void *arg)
{
	struct tree *tree = NULL;
	struct err e = ERR_INIT;
	int r = tree_extents_new(1ull << 30, 5, &(struct layout_sources){ 0 }, &tree, &e);

	(void)arg;
	assert_true(r == 0 || e.text[0]);
	if (r == 0)
		r = session_life(tree);
	tree_extents_free(tree);
	return r;
}

struct image_arg {
	const char *path;
	uint64_t extent_bytes;
};

static int image_life(void *arg)
{
	const struct tree_image_config config = { .prime_max = 100 };
	const struct image_arg *a = arg;
	struct image *image = NULL;
	struct tree *tree = NULL;
	struct err e = ERR_INIT;
	int r = image_open(open(a->path, O_RDONLY | O_CLOEXEC), a->extent_bytes, NULL, &image, &e);

	if (r == 0)
		r = tree_image_new(image, &config, &tree, &e);
	assert_true(r == 0 || e.text[0]);
	if (r == 0)
		r = session_life(tree);
	tree_image_free(tree);
	image_close(image);
	return r;
}

static void test_extents(void **state)
{
	(void)state;
	assert_true(alloc_sweep(extents_life, NULL, 1) > 3);
}

static void test_image(void **state)
{
	struct image_info info;
	struct image_arg arg = { .path = make_image(&info) };

	(void)state;
	arg.extent_bytes = info.extent_bytes;
	assert_true(alloc_sweep(image_life, &arg, 1) > 6);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_extents),
		cmocka_unit_test(test_image),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
