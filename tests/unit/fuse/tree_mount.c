#include "tests/unit/fuse/tree_mount.h"

#define EXTENT    (64ull << 20)
#define PRIME_MAX 1000000ull

struct tree_mount tm = { .dev_fd = -1, .mount_fd = -1 };

static int slots_fd = -1;
static uint64_t prime_max;

/* ---- the daemon ------------------------------------------------------------------------------ */

_Atomic bool tm_gone;

void tm_on_gone(void *arg)
{
	(void)arg;
	atomic_store(&tm_gone, true);
}

_Noreturn static void daemon_main(void)
{
	struct synthetic reader;
	struct slots *own;
	struct image *open_image;
	struct tree *tree;
	struct session *session;
	struct err e = ERR_INIT;

	close(tm.mount_fd); /* must not keep itself alive */
	synthetic_start(&reader, tm.control);
	if (slots_open(slots_fd, &own, &e) < 0 ||
		image_open(open(tm.image_path, O_RDONLY | O_CLOEXEC), tm.image.extent_bytes, NULL,
			&open_image, &e) < 0 ||
		tree_image_new(open_image, &(struct tree_image_config){ .prime_max = prime_max },
			&tree, &e) < 0 ||
		session_new(&(struct session_config){ .dev_fd = tm.dev_fd,
				    .slots = own,
				    .reader = &reader.reader,
				    .tree = tree,
				    .on_gone = tm_on_gone },
			&session, &e) < 0) {
		fprintf(stderr, "daemon: %s\n", e.text);
		_exit(1);
	}
	while (!test_wait_for(CLOCK_SECOND, atomic_load(&tm_gone)))
		;
	session_free(session);
	tree_image_free(tree);
	image_close(open_image);
	slots_free(own);
	synthetic_stop(&reader);
	_exit(0);
}

void tm_daemon_start(void)
{
	tm.daemon_pid = fork();
	if (tm.daemon_pid == 0)
		daemon_main();
	assert_true(tm.daemon_pid > 0);
}

void tm_daemon_kill(void)
{
	assert_int_equal(kill(tm.daemon_pid, SIGKILL), 0);
	assert_int_equal(waitpid(tm.daemon_pid, NULL, 0), tm.daemon_pid);
}

struct session_counters *tm_counters(void)
{
	return slots_counters(tm.slots);
}

uint64_t tm_requests(void)
{
	return counter_get(&tm_counters()->total);
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
	snprintf(path, sizeof(path), "%s/table", tm.dir);
	assert_int_equal(generation_build(&volume, NULL, l, path, NULL, NULL, &e), 0);
	listing_free(l);
	assert_int_equal(table_open(open(path, O_RDONLY | O_CLOEXEC), &table, &e), 0);
	snprintf(tm.image_path, sizeof(tm.image_path), "%s/image", tm.dir);
	assert_int_equal(image_build(table, &options, tm.image_path, NULL, NULL, &tm.image, &e), 0);
	table_unref(table);
}

int tm_setup_group(void **state)
{
	(void)state;
	snprintf(tm.dir, sizeof(tm.dir), "/var/tmp/granary-tree-XXXXXX");
	assert_non_null(mkdtemp(tm.dir));
	tm.control = synthetic_control_new();
	if (!kernel_may_mount())
		tm.why_not = "only root may mount";
	else if (access("/dev/fuse", R_OK | W_OK) != 0)
		tm.why_not = "no /dev/fuse";
	build();
	return 0;
}

int tm_teardown_group(void **state)
{
	char command[128];

	(void)state;
	snprintf(command, sizeof(command), "rm -rf %s", tm.dir);
	return system(command);
}

static int mount_it(void)
{
	struct err e = ERR_INIT;
	dev_t dev;
	int fd = -1;

	if (tm.why_not)
		return 0;
	synthetic_set(&tm.control->stall, 0, 0);
	synthetic_set(&tm.control->fail, 0, 0);
	synthetic_set(&tm.control->later, 0, 0);
	assert_int_equal(kernel_open_fuse(&tm.dev_fd, &e), 0);
	slots_fd = memfd_create("test-slots", MFD_CLOEXEC);
	if (kernel_mount_fuse(tm.dev_fd, "s3://test/tree", &fd, &dev, &e) < 0) {
		print_message("%s\n", e.text);
		return -1;
	}
	tm.mount_fd = fd;
	assert_int_equal(slots_open(slots_fd, &tm.slots, &e), 0);
	tm_daemon_start();
	test_wait(slots_phase(tm.slots) == SLOTS_CONNECTED);
	slots_set_phase(tm.slots, SLOTS_MOUNTED);
	snprintf(tm.root, sizeof(tm.root), "/proc/%d/fd/%d", (int)getpid(), tm.mount_fd);
	return 0;
}

int tm_setup(void **state)
{
	(void)state;
	prime_max = PRIME_MAX;
	return mount_it();
}

int tm_setup_little_priming(void **state)
{
	(void)state;
	prime_max = 300;
	return mount_it();
}

int tm_teardown(void **state)
{
	int status = -1;

	(void)state;
	if (tm.why_not)
		return 0;
	synthetic_set(&tm.control->stall, 0, 0);
	close(tm.mount_fd);
	tm.mount_fd = -1;
	slots_free(tm.slots);
	assert_int_equal(waitpid(tm.daemon_pid, &status, 0), tm.daemon_pid);
	close(tm.dev_fd);
	close(slots_fd);
	return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -1;
}

/* ---- readers --------------------------------------------------------------------------------- */

const char *tm_path(const char *path)
{
	static char full[8][600];
	static unsigned int next;
	char *p = full[next++ % 8];

	snprintf(p, sizeof(full[0]), "%s/%s", tm.root, path);
	return p;
}

void tm_die(const char *what)
{
	fprintf(stderr, "reader: %s: %m\n", what);
	_exit(1);
}

pid_t tm_start(int (*fn)(void *arg), void *arg)
{
	pid_t pid = fork();

	if (pid == 0)
		_exit(fn(arg));
	return pid;
}

void tm_run(int (*fn)(void *arg), void *arg)
{
	pid_t pid = tm_start(fn, arg);
	int status = -1;

	test_wait(waitpid(pid, &status, WNOHANG) == pid);
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

void tm_check(const struct stat *st, uint64_t offset, size_t len, const unsigned char *got)
{
	unsigned char *wanted = malloc(len + 1);

	want(st, offset, len, wanted);
	if (memcmp(got, wanted, len) != 0)
		tm_die("wrong bytes");
	free(wanted);
}
