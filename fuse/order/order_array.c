/* Arrays in memory or in unnamed files. See order_array.h. */
#include "fuse/order/order_array.h"
#include "base/arena.h"
#include "base/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

/* A file without a name. Not every file system has O_TMPFILE. */
static int open_unnamed(const char *directory)
{
	int fd = open(directory, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	char path[PATH_MAX];

	if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR))
		return fd < 0 ? -errno : fd;
	if (snprintf(path, sizeof(path), "%s/.order.XXXXXX", directory) >= (int)sizeof(path))
		return -ENAMETOOLONG;
	fd = mkostemp(path, O_CLOEXEC);
	if (fd < 0)
		return -errno;
	(void)unlink(path); /* it was just made */
	return fd;
}

static int map_file(const char *directory, uint64_t bytes, void **ret_data)
{
	_cleanup_close_ int fd = open_unnamed(directory);
	void *data;
	int r;

	if (fd < 0)
		return fd;
	r = posix_fallocate(fd, 0, (off_t)bytes);
	if (r != 0)
		return -r;
	data = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (data == MAP_FAILED)
		return -errno;
	*ret_data = data;
	return 0;
}

int order_array_new(
	struct order_space *space, uint64_t n, uint64_t size, struct order_array *ret_array)
{
	struct order_array array = { .space = space, .bytes = max(n, (uint64_t)1) * size };
	int r;

	if (array.bytes <= space->memory - space->memory_used)
		array.data = arena_calloc(ARENA_ORDERS, 1, array.bytes);
	if (array.data) {
		space->memory_used += array.bytes;
		*ret_array = array;
		return 0;
	}
	if (!space->directory)
		return -ENOMEM;
	if (array.bytes > space->disk - space->disk_used)
		return -EDQUOT;
	r = map_file(space->directory, array.bytes, &array.data);
	if (r < 0)
		return r;
	array.in_file = true;
	space->disk_used += array.bytes;
	*ret_array = array;
	return 0;
}

void order_array_release(struct order_array *array)
{
	if (!array->space)
		return;
	if (array->in_file) {
		(void)munmap(array->data, array->bytes); /* it is mapped */
		array->space->disk_used -= array->bytes;
	} else {
		arena_free(ARENA_ORDERS, array->data, array->bytes);
		array->space->memory_used -= array->bytes;
	}
	*array = (struct order_array){ 0 };
}
