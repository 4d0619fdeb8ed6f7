/*
 * A real mount of a made-up volume: read, stalled, killed, taken over, unmounted. Needs root and a
 * kernel with file-backed EROFS; skipped without, and says so. The daemon is a process of its own;
 * the test holds its descriptors, as a supervisor does.
 */
#include "tests/unit/fuse/synthetic.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include "base/file.h"
#include "fuse/images.h"
#include "fuse/kernel.h"
#include "fuse/mountpoint.h"
#include "fuse/mounted.h"
#include "fuse/request.h"

#define FILES      150u
#define FILE_BYTES 70001u
#define BIG_BYTES  (40u << 20)
#define BIG        "big"
#define STALL      "stall"
#define EXTENT     (16ull << 20)

enum command {
	COMMAND_NONE,
	COMMAND_UNMOUNT,
	COMMAND_FORCE,
};

/* Shared by the test and its daemons. */
struct shared {
	_Atomic int command;
	_Atomic int result; /* 1: none yet */
	_Atomic bool serving;
	char line[ERR_TEXT_MAX];
};

static char dir[64];
static char point[96];
static char image_path[192];
static const char *why_not; /* the tests cannot run */
static struct table *table;
static struct images_result image;
static struct synthetic_control *control;
static struct shared *shared;
static int dev_fd = -1;
static int slots_fd = -1;
static pid_t daemon_pid;
static _Atomic bool gone;

/* ---- the daemon ------------------------------------------------------------------------------ */

static void on_gone(void *arg)
{
	(void)arg;
	atomic_store(&gone, true);
}

static void obey(struct mounted *native)
{
	struct err e = ERR_INIT;
	int command = atomic_exchange(&shared->command, COMMAND_NONE);
	int r;

	if (command == COMMAND_NONE)
		return;
	r = mounted_unmount(native, command == COMMAND_FORCE, &e);
	memcpy(shared->line, e.text, sizeof(e.text));
	if (r == 0)
		atomic_store(&gone, true);
	atomic_store(&shared->result, r);
}

_Noreturn static void daemon_main(void)
{
	struct synthetic reader;
	struct slots *slots;
	struct mounted *native;
	struct err e = ERR_INIT;
	int point_fd = -1;

	synthetic_start(&reader, control);
	if (slots_open(slots_fd, &slots, &e) < 0)
		goto fail;
	if (slots_phase(slots) == SLOTS_NEW) {
		slots_mount(slots)->extent_bytes = image.info.extent_bytes;
		slots_mount(slots)->extents = image.info.extents;
		if (mountpoint_open(point, &point_fd, &e) < 0)
			goto fail;
	}
	if (mounted_new(&(struct mounted_config){ .engine = &engine_native,
				.mountpoint = point,
				.source = "test",
				.point_fd = point_fd,
				.image = image_path,
				.dev_fd = dev_fd,
				.hand_fd = -1,
				.slots = slots,
				.reader = &reader.reader,
				.on_gone = on_gone },
		    &native, &e) < 0)
		goto fail;
	if (point_fd >= 0)
		close(point_fd);
	atomic_store(&shared->serving, true);
	while (!atomic_load(&gone)) {
		obey(native);
		clock_sleep_ns(CLOCK_MS);
	}
	mounted_free(native);
	slots_free(slots);
	synthetic_stop(&reader);
	_exit(0);
fail:
	fprintf(stderr, "daemon: %s\n", e.text);
	_exit(1);
}

static void daemon_start(void)
{
	atomic_store(&shared->serving, false);
	atomic_store(&shared->command, COMMAND_NONE);
	daemon_pid = fork();
	if (daemon_pid == 0)
		daemon_main();
	eventually(atomic_load(&shared->serving) || kill(daemon_pid, 0) != 0);
	assert_true(shared->serving);
}

/* True when the process ended within `ns`. */
static bool ends_within(pid_t pid, uint64_t ns, int *ret_status)
{
	uint64_t until = clock_mono_ns() + ns;

	while (waitpid(pid, ret_status, WNOHANG) != pid) {
		if (clock_mono_ns() > until)
			return false;
		clock_sleep_ns(CLOCK_MS);
	}
	return true;
}

static void daemon_ended(void)
{
	int status = -1;

	assert_true(ends_within(daemon_pid, 30 * CLOCK_SECOND, &status));
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	daemon_pid = 0;
}

static void daemon_kill(void)
{
	int status;

	assert_int_equal(kill(daemon_pid, SIGKILL), 0);
	assert_true(ends_within(daemon_pid, 30 * CLOCK_SECOND, &status));
	daemon_pid = 0;
}

static int unmount(enum command command)
{
	uint64_t until = clock_mono_ns() + 40 * CLOCK_SECOND;

	atomic_store(&shared->result, 1);
	atomic_store(&shared->command, command);
	while (atomic_load(&shared->result) == 1 && clock_mono_ns() < until)
		clock_sleep_ns(CLOCK_MS);
	return atomic_load(&shared->result);
}

static uint64_t requests(void)
{
	struct slots *slots = NULL;
	struct err e = ERR_INIT;
	uint64_t n;

	assert_int_equal(slots_open(slots_fd, &slots, &e), 0);
	n = counter_get(&((struct session_counters *)slots_counters(slots))->total);
	slots_free(slots);
	return n;
}

static uint32_t held(void)
{
	struct slots *slots = NULL;
	struct err e = ERR_INIT;
	uint32_t n = 0;

	assert_int_equal(slots_open(slots_fd, &slots, &e), 0);
	for (uint32_t i = 0; i < slots_count(slots); i++)
		n += slot_len(slots, i) != 0;
	slots_free(slots);
	return n;
}

/* ---- readers --------------------------------------------------------------------------------- */

static const char *file_path(const char *name)
{
	static char path[200];

	snprintf(path, sizeof(path), "%s/%s", point, name);
	return path;
}

static uint64_t offset_of(const char *name)
{
	struct table_row *row = malloc(sizeof(*row));
	uint64_t offset;

	assert_int_equal(table_find_key(table, name, (uint32_t)strlen(name), row), 0);
	offset = row->offset;
	free(row);
	return offset;
}

static const char *small_name(uint32_t n)
{
	static char name[32];

	snprintf(name, sizeof(name), "d%u/f%03u", n % 7, n);
	return name;
}

/* Reads a whole file and compares; 0, a positive errno, or -1 for wrong bytes. */
static int read_file(const char *name, uint64_t offset, size_t size)
{
	unsigned char *buf = malloc(size + 8);
	unsigned char *want = malloc(size + 8);
	int fd = open(file_path(name), O_RDONLY | O_CLOEXEC);
	size_t at = 0;
	int r = fd < 0 ? errno : 0;

	while (r == 0 && at < size) {
		ssize_t n = read(fd, buf + at, size - at);

		if (n <= 0)
			r = n < 0 ? errno : -1;
		else
			at += (size_t)n;
	}
	if (r == 0) {
		synthetic_fill(offset, (uint32_t)align_up(size, 8), want);
		r = memcmp(buf, want, size) == 0 ? 0 : -1;
	}
	if (fd >= 0)
		close(fd);
	free(buf);
	free(want);
	return r;
}

static void check_all(void)
{
	for (uint32_t i = 0; i < FILES; i++)
		assert_int_equal(read_file(small_name(i), offset_of(small_name(i)), FILE_BYTES), 0);
	assert_int_equal(read_file(BIG, offset_of(BIG), BIG_BYTES), 0);
}

static void drop_pages(const char *name)
{
	int fd = open(file_path(name), O_RDONLY | O_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED), 0);
	close(fd);
}

/* A child that reads one page of the stalled file; its exit status: 0 or the errno. */
static pid_t reader_of_stall(uint32_t page)
{
	pid_t pid = fork();

	if (pid == 0) {
		int fd = open(file_path(STALL), O_RDONLY | O_CLOEXEC);
		char byte;

		(void)posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM);
		_exit(pread(fd, &byte, 1, (off_t)page * 4096) == 1 ? 0 : errno);
	}
	return pid;
}

/* ---- set-up ---------------------------------------------------------------------------------- */

static void add(struct listing *l, const char *key, uint64_t size)
{
	assert_int_equal(
		listing_add(l, key, (uint32_t)strlen(key), size, 1700000000000000000, "tag", 3), 0);
}

static void build(void)
{
	const struct image_options options = { .umask = 022, .extent_bytes = EXTENT };
	const struct volume_id volume = { { 1, 2, 3 } };
	struct listing *l = listing_new(64 << 20);
	struct err e = ERR_INIT;
	char path[128];

	for (uint32_t i = 0; i < FILES; i++)
		add(l, small_name(i), FILE_BYTES);
	add(l, BIG, BIG_BYTES);
	add(l, STALL, 2 << 20);
	snprintf(path, sizeof(path), "%s/table", dir);
	assert_int_equal(generation_build(&volume, NULL, l, path, NULL, NULL, &e), 0);
	listing_free(l);
	assert_int_equal(table_open(open(path, O_RDONLY | O_CLOEXEC), &table, &e), 0);
	snprintf(path, sizeof(path), "%s/images", dir);
	assert_int_equal(images_get(path, table, &options, NULL, NULL, &image, &e), 0);
	snprintf(image_path, sizeof(image_path), "%s/%s", path, image.name);
}

static int setup_group(void **state)
{
	static struct err e;

	(void)state;
	snprintf(dir, sizeof(dir), "/var/tmp/granary-native-XXXXXX");
	assert_non_null(mkdtemp(dir));
	snprintf(point, sizeof(point), "%s/mnt", dir);
	assert_int_equal(mkdir(point, 0755), 0);
	control = synthetic_control_new();
	shared = mmap(
		NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_true(shared != MAP_FAILED);
	if (kernel_probe(dir, &e) < 0)
		why_not = e.text;
	build();
	return 0;
}

static int teardown_group(void **state)
{
	char command[128];

	(void)state;
	table_unref(table);
	snprintf(command, sizeof(command), "rm -rf %s", dir);
	return system(command);
}

/* Mounted by a daemon that serves. */
static int setup(void **state)
{
	struct err e = ERR_INIT;

	(void)state;
	if (why_not)
		return 0;
	synthetic_set(&control->stall, 0, 0);
	synthetic_set(&control->fail, 0, 0);
	synthetic_set(&control->later, 0, 0);
	assert_int_equal(kernel_open_fuse(&dev_fd, &e), 0);
	slots_fd = memfd_create("test-slots", MFD_CLOEXEC);
	assert_int_equal(ftruncate(slots_fd, SLOTS_HEAD_BYTES + 512 * SLOT_BYTES), 0);
	daemon_start();
	return 0;
}

static int teardown(void **state)
{
	int status;

	(void)state;
	if (why_not)
		return 0;
	if (daemon_pid > 0) { /* the test failed */
		(void)kill(daemon_pid, SIGKILL);
		(void)waitpid(daemon_pid, &status, 0);
		daemon_pid = 0;
	}
	close(dev_fd); /* the last one: what is left ends with EIO */
	close(slots_fd);
	while (umount2(point, MNT_DETACH) == 0)
		;
	return 0;
}

#define NEED_KERNEL()                                   \
	do {                                            \
		(void)state;                            \
		if (why_not) {                          \
			print_message("%s\n", why_not); \
			skip();                         \
		}                                       \
	} while (0)

/* ---- tests ----------------------------------------------------------------------------------- */

static void serves(void **state)
{
	struct statfs fs;
	struct stat st;
	uint64_t before;

	NEED_KERNEL();
	check_all();
	before = requests();
	check_all();
	assert_int_equal(requests(), before); /* warm: the kernel alone */
	assert_int_equal(stat(file_path(BIG), &st), 0);
	assert_int_equal(st.st_size, BIG_BYTES);
	assert_int_equal(st.st_mode, S_IFREG | 0644);
	assert_int_equal(statfs(point, &fs), 0);
	assert_int_equal(fs.f_type, 0xE0F5E1E2);
	assert_true(fs.f_flags & MS_RDONLY);
	assert_true(fs.f_flags & MS_NOSUID);
	assert_true(fs.f_flags & MS_NODEV);
	assert_int_equal(open(file_path("new"), O_CREAT | O_WRONLY, 0600), -1);
	assert_int_equal(errno, EROFS);
	assert_int_equal(unmount(COMMAND_UNMOUNT), 0);
	daemon_ended();
	assert_int_equal(stat(file_path(BIG), &st), -1);
}

static void errors_are_errors(void **state)
{
	uint64_t offset;

	NEED_KERNEL();
	offset = offset_of(BIG);
	synthetic_set(&control->fail, offset + (8 << 20), offset + (9 << 20));
	assert_int_equal(read_file(BIG, offset, BIG_BYTES), EIO);
	synthetic_set(&control->fail, 0, 0);
	assert_int_equal(read_file(BIG, offset, BIG_BYTES), 0); /* EIO does not stick */
	assert_int_equal(unmount(COMMAND_UNMOUNT), 0);
	daemon_ended();
}

/*
 * Readers of a range that stalls hold up nobody, die at once, and what they asked for does not hold
 * up the unmount.
 */
static void stalled_readers(void **state)
{
	enum { READERS = 100 };
	pid_t readers[READERS];
	uint64_t offset;

	NEED_KERNEL();
	offset = offset_of(STALL);
	synthetic_set(&control->stall, offset, offset + (2 << 20));
	for (uint32_t i = 0; i < READERS; i++)
		readers[i] = reader_of_stall(i * 4);
	eventually(held() >= READERS);
	check_all();
	for (uint32_t i = 0; i < READERS; i++) {
		int status;

		assert_int_equal(kill(readers[i], SIGKILL), 0);
		assert_true(ends_within(readers[i], CLOCK_SECOND, &status));
		assert_true(WIFSIGNALED(status));
	}
	assert_true(held() >= READERS); /* still asked for */
	assert_int_equal(unmount(COMMAND_UNMOUNT), 0);
	daemon_ended();
}

static void busy(void **state)
{
	char pid[32];
	void *map;
	int fd;

	NEED_KERNEL();
	fd = open(file_path(BIG), O_RDONLY | O_CLOEXEC);
	assert_int_equal(unmount(COMMAND_UNMOUNT), -EBUSY);
	snprintf(pid, sizeof(pid), "pid %d ", (int)getpid());
	assert_non_null(strstr(shared->line, pid));
	assert_int_equal(unmount(COMMAND_UNMOUNT), -EBUSY); /* asking twice is not unmounting */
	check_all();
	map = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, fd, 0);
	assert_true(map != MAP_FAILED);
	close(fd);
	assert_int_equal(unmount(COMMAND_UNMOUNT), -EBUSY); /* a mapping is use too */
	assert_non_null(strstr(shared->line, pid));
	assert_int_equal(munmap(map, 4096), 0);
	assert_int_equal(unmount(COMMAND_UNMOUNT), 0);
	daemon_ended();
}

static void force(void **state)
{
	uint64_t offset;
	pid_t reader;
	int status;
	int fd;
	char byte;

	NEED_KERNEL();
	offset = offset_of(STALL);
	synthetic_set(&control->stall, offset, offset + (2 << 20));
	fd = open(file_path(BIG), O_RDONLY | O_CLOEXEC);
	reader = reader_of_stall(3);
	eventually(held() >= 1);
	assert_int_equal(unmount(COMMAND_FORCE), 0);
	assert_true(ends_within(reader, CLOCK_SECOND, &status));
	assert_int_equal(WEXITSTATUS(status), EIO);
	daemon_ended();
	assert_int_equal(pread(fd, &byte, 1, 30 << 20), -1); /* never read: an error, not zeros */
	assert_int_equal(errno, EIO);
	close(fd);
	assert_int_equal(umount2(point, MNT_DETACH), -1);
	assert_int_equal(errno, EINVAL); /* nothing is mounted */
}

static void unmounted_by_hand(void **state)
{
	NEED_KERNEL();
	check_all();
	assert_int_equal(umount2(point, 0), 0);
	daemon_ended();
}

/*
 * Reads everything again and again, from the daemon each time, until told; status 0 unless a read
 * failed.
 */
static pid_t reader_of_all(uint32_t seed, const _Atomic bool *stop)
{
	pid_t pid = fork();

	if (pid == 0) {
		for (uint32_t i = seed; !atomic_load(stop); i += 13) {
			const char *name = small_name(i % FILES);
			uint64_t offset = offset_of(name);
			int r = read_file(name, offset, FILE_BYTES);

			if (r != 0) {
				fprintf(stderr, "%s: %d\n", name, r);
				_exit(1);
			}
			drop_pages(name);
		}
		_exit(0);
	}
	return pid;
}

/*
 * The daemon is killed under its readers, again and again; half of the volume is answered later, so
 * that requests are parked when it dies. No error, no wrong byte.
 */
static void takeover(void **state)
{
	enum { READERS = 4, KILLS = 8 };
	_Atomic bool *stop;
	pid_t readers[READERS];
	struct slots *slots = NULL;
	struct session_counters *counters;
	struct err e = ERR_INIT;
	int status;

	NEED_KERNEL();
	stop = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	synthetic_set(&control->later, offset_of(small_name(FILES / 2)), UINT64_MAX / 2);
	for (uint32_t i = 0; i < READERS; i++)
		readers[i] = reader_of_all(i * 31, stop);
	for (uint32_t i = 0; i < KILLS; i++) {
		uint64_t before = requests();

		eventually(requests() > before + 50);
		if (i % 2) /* let them pile up */
			synthetic_set(&control->stall, 0, UINT64_MAX / 2);
		clock_sleep_ns(20 * CLOCK_MS);
		daemon_kill();
		synthetic_set(&control->stall, 0, 0);
		daemon_start();
	}
	atomic_store(stop, true);
	for (uint32_t i = 0; i < READERS; i++) {
		assert_true(ends_within(readers[i], 5 * CLOCK_SECOND, &status));
		assert_int_equal(status, 0);
	}
	assert_int_equal(slots_open(slots_fd, &slots, &e), 0);
	counters = slots_counters(slots);
	assert_int_equal(counter_get(&counters->crashes), KILLS);
	assert_true(counter_get(&counters->taken_over) > 0);
	assert_int_equal(counter_get(&counters->failed), 0);
	slots_free(slots);
	check_all();
	assert_int_equal(unmount(COMMAND_UNMOUNT), 0);
	daemon_ended();
}

/* Somebody unmounts while no daemon lives; the successor finds out and ends. */
static void unmounted_while_dead(void **state)
{
	NEED_KERNEL();
	daemon_kill();
	assert_int_equal(umount2(point, MNT_DETACH), 0);
	daemon_start();
	daemon_ended();
}

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
		dev_t dev;
		int fuse;
		int fd;

		if (kernel_mount_fuse(h->dev_fd, NULL, &fuse, &dev, &e) < 0)
			_exit(1);
		atomic_store(&h->dev, dev);
		pthread_create(&thread, NULL, answer_init, h);
		_exit(kernel_mount_image(image_path, fuse, image.info.extents, &fd, &dev, &e) < 0);
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
		cmocka_unit_test_setup_teardown(serves, setup, teardown),
		cmocka_unit_test_setup_teardown(errors_are_errors, setup, teardown),
		cmocka_unit_test_setup_teardown(stalled_readers, setup, teardown),
		cmocka_unit_test_setup_teardown(busy, setup, teardown),
		cmocka_unit_test_setup_teardown(force, setup, teardown),
		cmocka_unit_test_setup_teardown(unmounted_by_hand, setup, teardown),
		cmocka_unit_test_setup_teardown(takeover, setup, teardown),
		cmocka_unit_test_setup_teardown(unmounted_while_dead, setup, teardown),
		cmocka_unit_test(killed_while_mounting),
		cmocka_unit_test(mount_points),
	};

	return cmocka_run_group_tests(tests, setup_group, teardown_group);
}
