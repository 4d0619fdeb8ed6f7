/* What is read of FUSE requests without libfuse3, and what trees derive from them. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "mount/request.h"

#define EXTENT (64ull << 20)

/* Every prefix, in memory that ends where it does, so that the sanitizer sees a byte too many. */
static void headers(void **state)
{
	const struct {
		struct fuse_in_header head;
		struct fuse_interrupt_in in;
	} interrupt = {
		{ .len = sizeof(interrupt), .opcode = FUSE_INTERRUPT, .unique = 7, .pid = 3 },
		{ .unique = 99 }
	};

	(void)state;
	for (size_t len = 0; len <= sizeof(interrupt); len++) {
		bool whole = len >= sizeof(interrupt.head);
		void *exact = malloc(len ? len : 1);

		memcpy(exact, &interrupt, len);
		assert_int_equal(request_opcode(exact, len), whole ? FUSE_INTERRUPT : 0);
		assert_int_equal(request_unique(exact, len), whole ? 7 : 0);
		assert_int_equal(request_pid(exact, len), whole ? 3 : 0);
		assert_int_equal(request_unique_of_refused(exact, len), 0);
		free(exact);
	}
	assert_int_equal(request_interrupted(&interrupt), 99);
	assert_int_equal(request_unique_of_refused(
				 &(struct fuse_in_header){ .opcode = FUSE_READ, .unique = 8 },
				 sizeof(struct fuse_in_header)),
		8);
	assert_true(request_is_write(FUSE_WRITE) && request_is_write(FUSE_RENAME2));
	assert_false(request_is_write(FUSE_READ) || request_is_write(FUSE_IOCTL));
}

static void names(void **state)
{
	static const char *const bad[] = { "", "00", "01", "-1", "+1", "1a", " 1", "3",
		"99999999999999999999", "4294967296", "0x1", ".." };
	uint32_t n = 9;

	(void)state;
	assert_int_equal(request_extent_of_name("0", 3, &n), 0);
	assert_int_equal(n, 0);
	assert_int_equal(request_extent_of_name("2", 3, &n), 0);
	assert_int_equal(n, 2);
	assert_int_equal(request_extent_of_name("16383", 16384, &n), 0);
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		assert_int_equal(request_extent_of_name(bad[i], 3, &n), -ENOENT);
}

static int range(uint64_t node, uint64_t offset, uint32_t size, uint64_t *ret)
{
	const struct request req = {
		.opcode = FUSE_READ, .nodeid = node, .read = { offset, size }
	};

	return request_volume_range(&req, EXTENT, 3, ret);
}

static void ranges(void **state)
{
	uint64_t offset = 0;

	(void)state;
	assert_int_equal(range(REQUEST_EXTENT_NODE(0), 4096, 4096, &offset), 0);
	assert_int_equal(offset, 4096);
	assert_int_equal(range(REQUEST_EXTENT_NODE(2), 0, 1 << 20, &offset), 0);
	assert_int_equal(offset, 2 * EXTENT);
	assert_int_equal(range(REQUEST_EXTENT_NODE(1), EXTENT - 4096, 4096, &offset), 0);
	assert_int_equal(range(REQUEST_EXTENT_NODE(1), EXTENT - 4096, 8192, &offset), -EINVAL);
	assert_int_equal(range(REQUEST_EXTENT_NODE(1), EXTENT, 4096, &offset), -EINVAL);
	assert_int_equal(range(REQUEST_EXTENT_NODE(1), UINT64_MAX - 4095, 8192, &offset), -EINVAL);
	assert_int_equal(range(REQUEST_EXTENT_NODE(3), 0, 4096, &offset), -EINVAL);
	assert_int_equal(range(REQUEST_ROOT_NODE, 0, 4096, &offset), -EINVAL);
	assert_int_equal(range(0, 0, 4096, &offset), -EINVAL);
	assert_int_equal(range(UINT64_MAX, 0, 4096, &offset), -EINVAL);
	assert_int_equal(range(REQUEST_EXTENT_NODE(0), 1, 4096, &offset), -EINVAL);
	assert_int_equal(range(REQUEST_EXTENT_NODE(0), 0, 100, &offset), -EINVAL);
	assert_int_equal(range(REQUEST_EXTENT_NODE(0), 0, 0, &offset), -EINVAL);
	assert_int_equal(range(REQUEST_EXTENT_NODE(0), 0, (1 << 20) + 4096, &offset), -EINVAL);
}

static void attributes(void **state)
{
	struct stat attr;

	(void)state;
	assert_int_equal(request_attr(REQUEST_ROOT_NODE, EXTENT, 3, &attr), 0);
	assert_true(S_ISDIR(attr.st_mode));
	assert_int_equal(attr.st_mode & 077, 0);
	assert_int_equal(request_attr(REQUEST_EXTENT_NODE(2), EXTENT, 3, &attr), 0);
	assert_true(S_ISREG(attr.st_mode));
	assert_int_equal(attr.st_mode & 0377, 0);
	assert_int_equal(attr.st_size, EXTENT);
	assert_int_equal(request_attr(REQUEST_EXTENT_NODE(3), EXTENT, 3, &attr), -ENOENT);
	assert_int_equal(request_attr(0, EXTENT, 3, &attr), -ENOENT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(headers),
		cmocka_unit_test(names),
		cmocka_unit_test(ranges),
		cmocka_unit_test(attributes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
