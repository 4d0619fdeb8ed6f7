/*
 * A real mount of a made-up volume by a daemon that is a process of its own; the test holds its
 * descriptors, as a supervisor does. What both engines must do alike is tested here; the including
 * file says by which one: fixture_engine, fixture_magic, fixture_user.
 */
#pragma once

#include "tests/unit/fuse/synthetic.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include "base/crash_point.h"
#include "base/fd_pass.h"
#include "base/file.h"
#include "fuse/images.h"
#include "fuse/kernel.h"
#include "fuse/mountpoint.h"
#include "fuse/mounted.h"
#include "fuse/mounter.h"

#define FILES      150u
#define FILE_BYTES 70001u
#define BIG_BYTES  (40u << 20)
#define BIG        "big"
#define STALL      "stall"
#define EXTENT     (16ull << 20)

#define LOCAL_MAX 8u /* devices at most */

enum command {
	COMMAND_NONE,
	COMMAND_UNMOUNT,
	COMMAND_FORCE,
	COMMAND_SWITCH, /* to the devices of shared->local */
	COMMAND_LOOK,   /* shared->supers */
};

/* What the keeper says of its mount. */
struct kept {
	_Atomic int point; /* enum mounter_point; written last */
	unsigned int points;
	char text[16]; /* likewise, for people */
	_Atomic bool end;
	_Atomic bool drop; /* the connection */
	_Atomic bool dropped;
};

/* Shared by the test, its keeper and its daemons. */
struct shared {
	struct kept kept;
	_Atomic int command;
	_Atomic int result; /* 1: none yet */
	_Atomic bool serving;
	_Atomic bool hesitates; /* a daemon stops before it is settled */
	_Atomic bool mounted;   /* and got so far */
	_Atomic uint32_t local; /* bits: devices that are files, made by local_files() */
	_Atomic bool directio;
	struct mounted_superblocks supers; /* after the last command */
	char crash_at[32]; /* the crash point at which the daemon dies; "": at none */
	char line[ERR_TEXT_MAX];
};

static char dir[64];
static char point[96];
static char image_path[192];
static const char *why_not; /* the tests cannot run */
static const struct engine *fixture_engine;
static long fixture_magic; /* f_type of what the mount point shows */
static int fixture_error;  /* of a read of what the origin changed */
static bool fixture_user;  /* mounts through fusermount3 */
static struct table *table;
static struct images_result image;
static struct synthetic_control *control;
static struct shared *shared;
static int dev_fd = -1;
static int slots_fd = -1;
static int hand[2] = { -1, -1 }; /* the keeper's, the daemon's */
static bool fixture_kept;        /* the mount has a keeper */
static struct {
	pid_t pid;
	int wake_fd;
	int back[2]; /* for the connection: the test's, the keeper's */
} keeper;
static pid_t daemon_pid;
static _Atomic bool gone;

/* ---- the daemon ------------------------------------------------------------------------------ */

static void on_gone(void *arg)
{
	(void)arg;
	atomic_store(&gone, true);
}

static void local_path(uint32_t extent, char path[128])
{
	snprintf(path, 128, "%s/extent-%u", dir, extent);
}

/* What shared->local wants. */
static void devices_open(struct mounted_devices *devices, int fds[LOCAL_MAX])
{
	uint32_t local = atomic_load(&shared->local);
	char path[128];

	*devices = (struct mounted_devices){
		.local = fds, .mark = local, .directio = atomic_load(&shared->directio)
	};
	for (uint32_t i = 0; i < LOCAL_MAX; i++) {
		local_path(i, path);
		fds[i] = local & 1u << i ? open(path, O_RDONLY | O_CLOEXEC) : -1;
		devices->n += fds[i] >= 0;
	}
}

static void devices_close(int fds[LOCAL_MAX])
{
	for (uint32_t i = 0; i < LOCAL_MAX; i++)
		if (fds[i] >= 0)
			close(fds[i]);
}

static void crash_there(const char *name)
{
	if (strcmp(name, shared->crash_at) == 0)
		(void)raise(SIGKILL);
}

static int switch_devices(struct mounted *mounted, struct err *e)
{
	struct mounted_devices devices;
	int fds[LOCAL_MAX];
	int r;

	devices_open(&devices, fds);
	r = mounted_switch(mounted, &devices, e);
	devices_close(fds);
	return r;
}

static void obey(struct mounted *mounted)
{
	struct err e = ERR_INIT;
	int command = atomic_exchange(&shared->command, COMMAND_NONE);
	int r;

	if (command == COMMAND_NONE)
		return;
	if (command == COMMAND_LOOK)
		r = 0;
	else if (command == COMMAND_SWITCH)
		r = switch_devices(mounted, &e);
	else
		r = mounted_unmount(mounted, NULL, command == COMMAND_FORCE, NULL, &e);
	memcpy(shared->line, e.text, sizeof(e.text));
	mounted_superblocks(mounted, &shared->supers);
	if (r == 0 && (command == COMMAND_UNMOUNT || command == COMMAND_FORCE))
		atomic_store(&gone, true);
	atomic_store(&shared->result, r);
}

_Noreturn static void daemon_main(void)
{
	struct synthetic reader;
	struct slots *slots;
	struct mounted *mounted;
	struct mounted_devices devices;
	struct err e = ERR_INIT;
	int fds[LOCAL_MAX];
	int point_fd = -1;

	crash_point_hook = crash_there;
	synthetic_start(&reader, control);
	if (slots_open(slots_fd, &slots, &e) < 0 || (fixture_kept && mounter_use(hand[1], &e) < 0))
		goto fail;
	if (slots_phase(slots) == SLOTS_NEW) {
		slots_mount(slots)->extent_bytes = image.info.extent_bytes;
		slots_mount(slots)->extents = image.info.extents;
		slots_mount(slots)->volume_offset = image.info.volume_offset;
		if (mountpoint_open(point, &point_fd, &e) < 0)
			goto fail;
	}
	devices_open(&devices, fds);
	if (mounted_new(&(struct mounted_config){ .engine = fixture_engine,
				.mountpoint = point,
				.source = "test",
				.point_fd = point_fd,
				.image = image_path,
				.prime_max = 100000,
				.dev_fd = dev_fd,
				.kept = true,
				.key = "test",
				.hand_fd = fixture_kept ? hand[1] : -1,
				.slots = slots,
				.reader = &reader.reader,
				.devices = &devices,
				.on_gone = on_gone },
		    &mounted, &e) < 0)
		goto fail;
	devices_close(fds);
	if (point_fd >= 0)
		close(point_fd);
	atomic_store(&shared->mounted, true);
	while (atomic_load(&shared->hesitates))
		clock_sleep_ns(CLOCK_MS);
	mounted_settle(mounted);
	atomic_store(&shared->serving, true);
	while (!atomic_load(&gone)) {
		obey(mounted);
		clock_sleep_ns(CLOCK_MS);
	}
	mounted_free(mounted);
	slots_free(slots);
	synthetic_stop(&reader);
	_exit(0);
fail:
	fprintf(stderr, "daemon: %s\n", e.text);
	_exit(1);
}

/* ---- who keeps the mount --------------------------------------------------------------------- */

/* What the test sees of it. */
static void publish(struct mounter_peer *peer)
{
	struct kept *kept = &shared->kept;
	json_t *row = json_object();
	const char *text;

	mounter_peer_look(peer);
	if (mounter_peer_json(peer, row) == 0) {
		text = json_string_value(json_object_get(row, "point"));
		(void)snprintf(kept->text, sizeof(kept->text), "%s", text);
	}
	json_decref(row);
	kept->points = mounter_peer_points(peer);
	atomic_store(&kept->point, (int)mounter_peer_point(peer));
}

/* A connection that fusermount3 made is everybody's who keeps the mount. */
static void pass_connection(bool *passed)
{
	if (*passed || !fixture_user || !kernel_is_fuse(dev_fd))
		return;
	*passed = fd_pass_send(keeper.back[1], dev_fd) == 0;
}

static void drop_connection(void)
{
	int null;

	if (!atomic_load(&shared->kept.drop) || atomic_load(&shared->kept.dropped))
		return;
	null = open("/dev/null", O_RDWR | O_CLOEXEC);
	if (dup3(null, dev_fd, O_CLOEXEC) == dev_fd)
		atomic_store(&shared->kept.dropped, true);
	close(null);
}

/* Serves what the daemon asks, as the keeper's loop does: a process of its own, so that no process
 * with threads forks the daemons. */
_Noreturn static void keep(void)
{
	char images[128];
	const struct mounter_peer_config config = { .id = 1,
		.mountpoint = point,
		.admin = "",
		.image_dir = images,
		.socket = hand[0],
		.fuse_fd = dev_fd };
	struct mounter_host *host = NULL;
	struct mounter_peer *peer = NULL;
	bool passed = false;

	snprintf(images, sizeof(images), "%s/images", dir);
	if (mounter_host_new(keeper.wake_fd, &host) < 0 ||
		mounter_peer_new(host, &config, &peer) < 0)
		_exit(1);
	while (!atomic_load(&shared->kept.end)) {
		struct pollfd polls[2] = {
			{ .fd = keeper.wake_fd, .events = POLLIN },
			{ .fd = mounter_peer_fd(peer), .events = POLLIN },
		};
		eventfd_t count;

		(void)poll(polls, 2, 10);
		(void)eventfd_read(keeper.wake_fd, &count);
		if (polls[1].revents & POLLIN && polls[1].fd == mounter_peer_fd(peer))
			mounter_serve(peer);
		pass_connection(&passed);
		drop_connection();
		publish(peer);
	}
	mounter_peer_free(peer);
	mounter_host_free(host);
	_exit(0);
}

static void keeper_start(void)
{
	keeper.wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, keeper.back), 0);
	memset(&shared->kept, 0, sizeof(shared->kept));
	keeper.pid = fork();
	if (keeper.pid == 0)
		keep();
	assert_true(keeper.pid > 0);
}

static void keeper_stop(void)
{
	int status = -1;

	atomic_store(&shared->kept.end, true);
	eventfd_write(keeper.wake_fd, 1);
	assert_int_equal(waitpid(keeper.pid, &status, 0), keeper.pid);
	assert_int_equal(status, 0);
	close(keeper.wake_fd);
	close(keeper.back[0]);
	close(keeper.back[1]);
}

/* Nobody keeps the connection any more. */
static void let_go(void)
{
	close(dev_fd);
	dev_fd = -1;
	if (!fixture_kept)
		return;
	atomic_store(&shared->kept.drop, true);
	eventually(atomic_load(&shared->kept.dropped));
}

/* What the keeper got is ours too, for the next daemon. */
static void take_connection(void)
{
	int fd = -1;

	if (!fixture_kept || !fixture_user || kernel_is_fuse(dev_fd))
		return;
	assert_int_equal(fd_pass_receive(keeper.back[0], 0, &fd), 0);
	assert_int_equal(dup3(fd, dev_fd, O_CLOEXEC), dev_fd);
	close(fd);
}

static void daemon_start(void)
{
	atomic_store(&shared->serving, false);
	atomic_store(&shared->mounted, false);
	atomic_store(&shared->command, COMMAND_NONE);
	daemon_pid = fork();
	if (daemon_pid == 0)
		daemon_main();
	if (atomic_load(&shared->hesitates)) {
		eventually(atomic_load(&shared->mounted));
		return;
	}
	eventually(atomic_load(&shared->serving) || waitpid(daemon_pid, NULL, WNOHANG) != 0);
	assert_true(shared->serving);
	take_connection();
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

	assert_true(ends_within(daemon_pid, PATIENCE, &status));
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	daemon_pid = 0;
}

static void daemon_kill(void)
{
	int status;

	assert_int_equal(kill(daemon_pid, SIGKILL), 0);
	assert_true(ends_within(daemon_pid, PATIENCE, &status));
	daemon_pid = 0;
}

/* As a person does it, without the daemon's knowledge. */
static int unmount_by_hand(bool lazy)
{
	char command[160];

	if (!fixture_user)
		return umount2(point, lazy ? MNT_DETACH : 0) == 0 ? 0 : errno;
	snprintf(command, sizeof(command), "fusermount3 %s %s 2>/dev/null", lazy ? "-uz" : "-u",
		point);
	return system(command) == 0 ? 0 : EINVAL;
}

static int daemon_do(enum command command)
{
	uint64_t until = clock_mono_ns() + PATIENCE;

	atomic_store(&shared->result, 1);
	atomic_store(&shared->command, command);
	while (atomic_load(&shared->result) == 1 && clock_mono_ns() < until)
		clock_sleep_ns(CLOCK_MS);
	return atomic_load(&shared->result);
}

static int unmount(enum command command)
{
	return daemon_do(command);
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
	const struct image_options options = {
		.umask = 022, .extent_bytes = EXTENT, .one_device = fixture_engine->one_device
	};
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
	assert_int_equal(images_get(path, &(struct image_source){ table, "", NULL }, 1, &options,
				 NULL, NULL, &image, &e),
		0);
	snprintf(image_path, sizeof(image_path), "%s/%s", path, image.name);
}

static int setup_group(void **state)
{
	static struct err e;

	(void)state;
	snprintf(dir, sizeof(dir), "/var/tmp/granary-mount-XXXXXX");
	assert_non_null(mkdtemp(dir));
	snprintf(point, sizeof(point), "%s/mnt", dir);
	assert_int_equal(mkdir(point, 0755), 0);
	control = synthetic_control_new();
	shared = mmap(
		NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_true(shared != MAP_FAILED);
	if (fixture_engine->probe(
		    &(struct engine_wish){
			    .engine = "auto", .image_dir = dir, .mountpoint = point },
		    &e) < 0)
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
	atomic_store(&shared->local, 0);
	if (fixture_user)
		dev_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	else
		assert_int_equal(kernel_open_fuse(&dev_fd, &e), 0);
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, hand), 0);
	slots_fd = memfd_create("test-slots", MFD_CLOEXEC);
	assert_int_equal(ftruncate(slots_fd, SLOTS_HEAD_BYTES + 512 * SLOT_BYTES), 0);
	if (fixture_kept)
		keeper_start();
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
	if (fixture_kept)
		keeper_stop();
	if (dev_fd >= 0)
		close(dev_fd); /* the last one: what is left ends with EIO */
	close(slots_fd);
	close(hand[0]);
	close(hand[1]);
	while (unmount_by_hand(true) == 0)
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
