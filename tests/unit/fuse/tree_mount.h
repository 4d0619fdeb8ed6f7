/*
 * An image of odd names, many names and large files, mounted by a real kernel, and processes that
 * read it. Included by one test.
 *
 * The mount is attached nowhere; it is reached through its descriptor and ends with it. Its daemon
 * is another process: who waits for an answer must not be who gives it.
 */
#pragma once

#include "tests/unit/fuse/synthetic.h"
#include "catalog/catalog.h"
#include "fuse/kernel.h"
#include "fuse/session.h"
#include "fuse/tree_image.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>

#define EXTENT    (64ull << 20)
#define SMALL     500u
#define MANY      100000u
#define DEPTH     100u
#define BIG_BYTES ((30ull << 20) + 3)
#define PRIME_MAX 1000000ull

static char dir[64];
static char root[64]; /* path of the mount */
static const char *why_not;
static struct image_info image;
static char image_path[128];
static struct synthetic_control *control;
static int dev_fd = -1;
static int slots_fd = -1;
static int mount_fd = -1;
static struct slots *slots; /* the test's view of the daemon's */
static pid_t daemon_pid;
static uint64_t prime_max;

#define may_mount()                                     \
	do {                                            \
		if (why_not) {                          \
			print_message("%s\n", why_not); \
			skip();                         \
		}                                       \
	} while (0)

/* ---- the daemon ------------------------------------------------------------------------------ */

static _Atomic bool gone;

static void on_gone(void *arg)
{
	(void)arg;
	atomic_store(&gone, true);
}

_Noreturn static void daemon_main(void)
{
	struct synthetic reader;
	struct slots *own;
	struct image *open_image;
	struct tree *tree;
	struct session *session;
	struct err e = ERR_INIT;

	close(mount_fd); /* must not keep itself alive */
	synthetic_start(&reader, control);
	if (slots_open(slots_fd, &own, &e) < 0 ||
		image_open(open(image_path, O_RDONLY | O_CLOEXEC), image.extent_bytes, NULL,
			&open_image, &e) < 0 ||
		tree_image_new(open_image, &(struct tree_image_config){ .prime_max = prime_max },
			&tree, &e) < 0 ||
		session_new(&(struct session_config){ .dev_fd = dev_fd,
				    .slots = own,
				    .reader = &reader.reader,
				    .tree = tree,
				    .on_gone = on_gone },
			&session, &e) < 0) {
		fprintf(stderr, "daemon: %s\n", e.text);
		_exit(1);
	}
	while (!atomic_load(&gone))
		clock_sleep_ns(CLOCK_MS);
	session_free(session);
	tree_image_free(tree);
	image_close(open_image);
	slots_free(own);
	synthetic_stop(&reader);
	_exit(0);
}

static void daemon_start(void)
{
	daemon_pid = fork();
	if (daemon_pid == 0)
		daemon_main();
	assert_true(daemon_pid > 0);
}

static void daemon_kill(void)
{
	assert_int_equal(kill(daemon_pid, SIGKILL), 0);
	assert_int_equal(waitpid(daemon_pid, NULL, 0), daemon_pid);
}

static struct session_counters *counters(void)
{
	return slots_counters(slots);
}

static uint64_t requests(void)
{
	return counter_get(&counters()->total);
}

/* ---- set-up ---------------------------------------------------------------------------------- */

static void add(struct listing *l, const char *key, uint64_t size)
{
	assert_int_equal(listing_add(l, key, (uint32_t)strlen(key), size,
				 1700000000123456789 + (int64_t)size, "tag", 3),
		0);
}

static void build(void)
{
	static const char *const odd[] = { "odd/ ", "odd/  x ", "odd/new\nline", "odd/quote'\"",
		"odd/\xff\xfe", "odd/-rf", "odd/*", "odd/é", "odd/%41", "odd/a", "odd/a-b",
		"odd/a/b", "odd/empty", "odd/dir/" };
	const struct image_options options = {
		.uid = 7, .gid = 8, .umask = 022, .extent_bytes = EXTENT
	};
	const struct volume_id volume = { { 1, 2, 3 } };
	struct listing *l = listing_new(64 << 20);
	struct table *table;
	struct err e = ERR_INIT;
	char path[512];
	size_t len = 0;

	for (size_t i = 0; i < ARRAY_SIZE(odd); i++)
		add(l, odd[i], odd[i][strlen(odd[i]) - 1] == '/' || i == 12 ? 0 : 1000 * i + 1);
	for (uint32_t i = 0; i < SMALL; i++) {
		snprintf(path, sizeof(path), "small/d%u/f%03u", i % 10, i);
		add(l, path, i % 50 == 7 ? 0 : i * 97);
	}
	for (uint32_t i = 0; i < MANY; i++) {
		snprintf(path, sizeof(path), "many/entry-%06u", i);
		add(l, path, i % 3);
	}
	for (uint32_t i = 0; i < DEPTH; i++)
		len += (size_t)snprintf(
			path + len, sizeof(path) - len, "%s%c", i ? "/" : "", 'a' + (int)(i % 26));
	add(l, path, 12345);
	add(l, "big", BIG_BYTES);
	add(l, "stall", 8 << 20);
	snprintf(path, sizeof(path), "%s/table", dir);
	assert_int_equal(generation_build(&volume, NULL, l, path, NULL, NULL, &e), 0);
	listing_free(l);
	assert_int_equal(table_open(open(path, O_RDONLY | O_CLOEXEC), &table, &e), 0);
	snprintf(image_path, sizeof(image_path), "%s/image", dir);
	assert_int_equal(image_build(table, &options, image_path, NULL, NULL, &image, &e), 0);
	table_unref(table);
}

static int setup_group(void **state)
{
	(void)state;
	snprintf(dir, sizeof(dir), "/var/tmp/granary-tree-XXXXXX");
	assert_non_null(mkdtemp(dir));
	control = synthetic_control_new();
	if (!kernel_may_mount())
		why_not = "only root may mount";
	else if (access("/dev/fuse", R_OK | W_OK) != 0)
		why_not = "no /dev/fuse";
	build();
	return 0;
}

static int teardown_group(void **state)
{
	char command[128];

	(void)state;
	snprintf(command, sizeof(command), "rm -rf %s", dir);
	return system(command);
}

static int mount_it(void)
{
	struct err e = ERR_INIT;
	dev_t dev;
	int fd = -1;

	if (why_not)
		return 0;
	synthetic_set(&control->stall, 0, 0);
	synthetic_set(&control->fail, 0, 0);
	synthetic_set(&control->later, 0, 0);
	assert_int_equal(kernel_open_fuse(&dev_fd, &e), 0);
	slots_fd = memfd_create("test-slots", MFD_CLOEXEC);
	if (kernel_mount_fuse(dev_fd, "s3://test/tree", &fd, &dev, &e) < 0) {
		print_message("%s\n", e.text);
		return -1;
	}
	mount_fd = fd;
	assert_int_equal(slots_open(slots_fd, &slots, &e), 0);
	daemon_start();
	eventually(slots_phase(slots) == SLOTS_CONNECTED);
	slots_set_phase(slots, SLOTS_MOUNTED);
	snprintf(root, sizeof(root), "/proc/%d/fd/%d", (int)getpid(), mount_fd);
	return 0;
}

static int setup(void **state)
{
	(void)state;
	prime_max = PRIME_MAX;
	return mount_it();
}

static int setup_little_priming(void **state)
{
	(void)state;
	prime_max = 300;
	return mount_it();
}

static int teardown(void **state)
{
	int status = -1;

	(void)state;
	if (why_not)
		return 0;
	synthetic_set(&control->stall, 0, 0);
	close(mount_fd);
	mount_fd = -1;
	slots_free(slots);
	assert_int_equal(waitpid(daemon_pid, &status, 0), daemon_pid);
	close(dev_fd);
	close(slots_fd);
	return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -1;
}

/* ---- readers --------------------------------------------------------------------------------- */

static const char *at(const char *path)
{
	static char full[8][600];
	static unsigned int next;
	char *p = full[next++ % 8];

	snprintf(p, sizeof(full[0]), "%s/%s", root, path);
	return p;
}

static void die(const char *what)
{
	fprintf(stderr, "reader: %s: %m\n", what);
	_exit(1);
}

/* Runs `fn` in a process of its own; true when it returned 0 within `ns`. */
static pid_t start(int (*fn)(void *arg), void *arg)
{
	pid_t pid = fork();

	if (pid == 0)
		_exit(fn(arg));
	return pid;
}

static bool ended(pid_t pid, uint64_t ns, int *ret_status)
{
	uint64_t until = clock_mono_ns() + ns;

	while (waitpid(pid, ret_status, WNOHANG) != pid) {
		if (clock_mono_ns() > until) {
			(void)kill(pid, SIGKILL);
			(void)waitpid(pid, NULL, 0);
			return false;
		}
		clock_sleep_ns(CLOCK_MS);
	}
	return true;
}

static void run(int (*fn)(void *arg), void *arg)
{
	int status = -1;

	assert_true(ended(start(fn, arg), 120 * CLOCK_SECOND, &status));
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}

/* The bytes [offset, offset + len) of a file, from its place: its inode number says which. */
static void want(const struct stat *st, uint64_t offset, size_t len, unsigned char *buf)
{
	uint64_t at_byte = ((uint64_t)st->st_ino - CHUNK_BLOCKS) * BLOCK_BYTES + offset;
	uint64_t from = at_byte / 8 * 8;
	uint32_t n = (uint32_t)((at_byte + len + 7) / 8 * 8 - from);
	unsigned char *words = malloc(n);

	synthetic_fill(from, n, words);
	memcpy(buf, words + (at_byte - from), len);
	free(words);
}

static void check(const struct stat *st, uint64_t offset, size_t len, const unsigned char *got)
{
	unsigned char *wanted = malloc(len + 1);

	want(st, offset, len, wanted);
	if (memcmp(got, wanted, len) != 0)
		die("wrong bytes");
	free(wanted);
}
