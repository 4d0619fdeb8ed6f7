/*
 * The native engine: real mounts. Needs root and a kernel with file-backed EROFS; skipped without,
 * and says so.
 */
#include "tests/unit/fuse/mount_tests.h"

#include "fuse/request.h"

struct half_mounted {
	int dev_fd;
	_Atomic uint64_t dev;
	_Atomic bool asked;
};

/* Answers INIT, and nothing else. */
static void *answer_init(void *arg)
{
	struct half_mounted *h = arg;
	static _Alignas(8) char request[SLOT_BYTES];

	for (;;) {
		ssize_t n = read(h->dev_fd, request, sizeof(request));
		struct fuse_out_header head = { .len = sizeof(head) +
						       sizeof(struct fuse_init_out) };
		struct fuse_init_out out;
		struct request req;

		if (n <= 0 || request_parse(request, (size_t)n, &req) < 0) {
			clock_sleep_ns(CLOCK_MS);
			continue;
		}
		if (req.opcode != FUSE_INIT) {
			atomic_store(&h->asked, true);
			continue;
		}
		head.unique = req.unique;
		assert_int_equal(request_answer_init(&req.init, 0, 64, &out), 0);
		(void)writev(h->dev_fd,
			(struct iovec[]){ { &head, sizeof(head) }, { &out, sizeof(out) } }, 2);
	}
	return NULL;
}

/*
 * The daemon dies while the kernel opens an extent and waits for it to answer: it must be gone at
 * once, though its descriptors live on elsewhere, or nobody would clear up behind it.
 */
static void killed_while_mounting(void **state)
{
	struct half_mounted *h;
	struct err e = ERR_INIT;
	bool ended;
	int status;
	pid_t pid;

	NEED_KERNEL();
	h = mmap(NULL, sizeof(*h), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_int_equal(kernel_open_fuse(&h->dev_fd, &e), 0);
	pid = fork();
	if (pid == 0) {
		pthread_t thread;
		struct kernel_image extents = { .path = image_path, .extents = image.info.extents };
		struct kernel_superblock super;
		dev_t dev;
		int fd;

		if (kernel_mount_fuse(h->dev_fd, NULL, &extents.fuse_mount_fd, &dev, &e) < 0)
			_exit(1);
		atomic_store(&h->dev, dev);
		pthread_create(&thread, NULL, answer_init, h);
		_exit(kernel_mount_image(&extents, &fd, &super, &e) < 0);
	}
	eventually(atomic_load(&h->asked));
	assert_int_equal(kill(pid, SIGKILL), 0);
	ended = ends_within(pid, 5 * CLOCK_SECOND, &status);
	if (!ended) /* or it stays for ever: it holds the connection that it waits for */
		assert_int_equal(kernel_abort((dev_t)atomic_load(&h->dev)), 0);
	assert_true(ended);
	close(h->dev_fd);
	munmap(h, sizeof(*h));
}

/* ---- the mount point ------------------------------------------------------------------------- */

static void mount_points(void **state)
{
	char path[128];
	struct err e = ERR_INIT;
	int fd = -1;

	(void)state;
	assert_int_equal(mountpoint_open(point, &fd, &e), 0);
	close(fd);
	snprintf(path, sizeof(path), "%s/missing", dir);
	assert_int_equal(mountpoint_open(path, &fd, &e), -ENOENT);
	assert_non_null(strstr(e.text, "does not exist"));
	snprintf(path, sizeof(path), "%s/table", dir);
	assert_int_equal(mountpoint_open(path, &fd, &e), -ENOTDIR);
	assert_int_equal(mountpoint_open(dir, &fd, &e), -ENOTEMPTY);
	assert_int_equal(mountpoint_open("/proc", &fd, &e), -EEXIST);
	assert_non_null(strstr(e.text, "mount point already"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		MOUNT_TESTS,
		cmocka_unit_test(killed_while_mounting),
		cmocka_unit_test(mount_points),
	};

	fixture_engine = &engine_native;
	fixture_magic = 0xE0F5E1E2;
	fixture_error = EIO;
	return cmocka_run_group_tests(tests, setup_group, teardown_group);
}
