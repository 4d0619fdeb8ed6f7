#include "tests/unit/fuse/mount_fixture.h"

struct mount_fixture mnt = { .dev_fd = -1, .slots_fd = -1 };

static struct table *table;
static int hand[2] = { -1, -1 }; /* the keeper's, the daemon's */
static _Atomic bool gone;

/* ---- the daemon ------------------------------------------------------------------------------ */

static _Atomic bool refused;

static void on_refuse(int number)
{
	(void)number;
	atomic_store(&refused, true);
}

static void on_end(int number)
{
	(void)number;
	atomic_store(&gone, true);
}

static void on_gone(void *arg)
{
	(void)arg;
	atomic_store(&gone, true);
}

void mnt_local_path(uint32_t extent, char path[128])
{
	snprintf(path, 128, "%s/extent-%u", mnt.dir, extent);
}

/* What shared->local wants. */
static void devices_open(struct mounted_devices *devices, int fds[LOCAL_MAX])
{
	uint32_t local = atomic_load(&mnt.shared->local);
	char path[128];

	*devices = (struct mounted_devices){
		.local = fds, .mark = local, .directio = atomic_load(&mnt.shared->directio)
	};
	for (uint32_t i = 0; i < LOCAL_MAX; i++) {
		mnt_local_path(i, path);
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
	if (strcmp(name, mnt.shared->crash_at) == 0)
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
	int command = atomic_exchange(&mnt.shared->command, COMMAND_NONE);
	int r;

	if (command == COMMAND_NONE)
		return;
	if (command == COMMAND_LOOK)
		r = 0;
	else
		r = switch_devices(mounted, &e);
	memcpy(mnt.shared->line, e.text, sizeof(e.text));
	mounted_superblocks(mounted, &mnt.shared->supers);
	atomic_store(&mnt.shared->result, r);
}

_Noreturn void mnt_daemon_main(void)
{
	struct synthetic reader;
	struct slots *slots;
	struct mounted *mounted;
	struct mounted_devices devices;
	struct err e = ERR_INIT;
	int fds[LOCAL_MAX];
	int point_fd = -1;

	crash_point_hook = crash_there;
	(void)signal(SIGUSR2, on_refuse);
	(void)signal(SIGTERM, on_end);
	synthetic_start(&reader, mnt.control);
	if (slots_open(mnt.slots_fd, &slots, &e) < 0 || (mnt.kept && mounter_use(hand[1], &e) < 0))
		goto fail;
	if (slots_phase(slots) == SLOTS_NEW) {
		slots_mount(slots)->extent_bytes = mnt.image.info.extent_bytes;
		slots_mount(slots)->extents = mnt.image.info.extents;
		slots_mount(slots)->volume_offset = mnt.image.info.volume_offset;
		if (mountpoint_open(mnt.point, &point_fd, &e) < 0)
			goto fail;
	}
	devices_open(&devices, fds);
	if (mounted_new(&(struct mounted_config){ .engine = mnt.engine,
				.mountpoint = mnt.point,
				.source = "test",
				.point_fd = point_fd,
				.image = mnt.image_path,
				.prime_max = 100000,
				.dev_fd = mnt.dev_fd,
				.kept = true,
				.key = "test",
				.hand_fd = mnt.kept ? hand[1] : -1,
				.slots = slots,
				.reader = &reader.reader,
				.devices = &devices,
				.on_gone = on_gone },
		    &mounted, &e) < 0)
		goto fail;
	devices_close(fds);
	if (point_fd >= 0)
		close(point_fd);
	atomic_store(&mnt.shared->mounted, true);
	test_wait(!atomic_load(&mnt.shared->hesitates));
	mounted_settle(mounted);
	atomic_store(&mnt.shared->serving, true);
	while (!atomic_load(&gone)) {
		(void)test_wait_for(
			CLOCK_SECOND, atomic_load(&mnt.shared->command) != COMMAND_NONE ||
					      atomic_load(&gone) || atomic_load(&refused));
		if (atomic_exchange(&refused, false))
			session_refuse(mounted_session(mounted), true);
		obey(mounted);
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
	struct kept *kept = &mnt.shared->kept;
	json_t *row = json_object();
	const char *text;

	mounter_peer_look(peer, NULL);
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
	if (*passed || !mnt.user || !kernel_is_fuse(mnt.dev_fd))
		return;
	*passed = fd_pass_send(mnt.keeper.back[1], mnt.dev_fd) == 0;
}

static void drop_connection(void)
{
	int null;

	if (!atomic_load(&mnt.shared->kept.drop) || atomic_load(&mnt.shared->kept.dropped))
		return;
	null = open("/dev/null", O_RDWR | O_CLOEXEC);
	if (dup3(null, mnt.dev_fd, O_CLOEXEC) == mnt.dev_fd)
		atomic_store(&mnt.shared->kept.dropped, true);
	close(null);
}

static enum unmount_mode mode_of(int command)
{
	return command == COMMAND_FORCE  ? UNMOUNT_FORCE
	       : command == COMMAND_LAZY ? UNMOUNT_LAZY
					 : UNMOUNT_NORMAL;
}

/* As POST /v1/unmount does. */
static void unmount_kept(struct mounter_peer *peer)
{
	struct kept *kept = &mnt.shared->kept;
	int command = atomic_load(&kept->unmount);
	struct mounter_unmounted done;
	struct err e = ERR_INIT;
	int daemon;

	if (command == COMMAND_NONE)
		return;
	daemon = pidfd_open(kept->daemon, 0);
	mounter_peer_hold(peer);
	kept->result =
		mounter_peer_unmount(peer, mode_of(command), daemon, mnt.slots_fd, &done, &e);
	mounter_peer_drop(peer);
	close(daemon);
	memcpy(mnt.shared->line, e.text, sizeof(e.text));
	atomic_store(&kept->unmount, COMMAND_NONE);
}

/* Serves what the daemon asks, as the keeper's loop does: a process of its own, so that no process
 * with threads forks the daemons. */
_Noreturn static void keep(void)
{
	char images[128];
	const struct mounter_peer_config config = { .id = 1,
		.mountpoint = mnt.point,
		.admin = "",
		.image_dir = images,
		.socket = hand[0],
		.fuse_fd = mnt.dev_fd };
	struct mounter_host *host = NULL;
	struct mounter_peer *peer = NULL;
	bool passed = false;
	int mounts;

	snprintf(images, sizeof(images), "%s/images", mnt.dir);
	if (mounter_host_new(mnt.keeper.wake_fd, &host) < 0 ||
		mounter_peer_new(host, &config, &peer) < 0)
		_exit(1);
	mounts = open("/proc/self/mountinfo", O_RDONLY | O_CLOEXEC);
	while (!atomic_load(&mnt.shared->kept.end)) {
		struct pollfd polls[3] = {
			{ .fd = mnt.keeper.wake_fd, .events = POLLIN },
			{ .fd = mounter_peer_fd(peer), .events = POLLIN },
			{ .fd = mounts, .events = POLLPRI },
		};
		eventfd_t count;

		(void)poll(polls, 3, -1);
		(void)eventfd_read(mnt.keeper.wake_fd, &count);
		if (polls[1].revents & POLLIN && polls[1].fd == mounter_peer_fd(peer))
			mounter_serve(peer);
		pass_connection(&passed);
		drop_connection();
		unmount_kept(peer);
		publish(peer);
	}
	mounter_peer_free(peer);
	mounter_host_free(host);
	_exit(0);
}

static void keeper_start(void)
{
	mnt.keeper.wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, mnt.keeper.back), 0);
	memset(&mnt.shared->kept, 0, sizeof(mnt.shared->kept));
	mnt.keeper.pid = fork();
	if (mnt.keeper.pid == 0)
		keep();
	assert_true(mnt.keeper.pid > 0);
}

static void keeper_stop(void)
{
	int status = -1;

	atomic_store(&mnt.shared->kept.end, true);
	eventfd_write(mnt.keeper.wake_fd, 1);
	assert_int_equal(waitpid(mnt.keeper.pid, &status, 0), mnt.keeper.pid);
	assert_int_equal(status, 0);
	close(mnt.keeper.wake_fd);
	close(mnt.keeper.back[0]);
	close(mnt.keeper.back[1]);
}

void mnt_let_go(void)
{
	close(mnt.dev_fd);
	mnt.dev_fd = -1;
	if (!mnt.kept)
		return;
	atomic_store(&mnt.shared->kept.drop, true);
	eventfd_write(mnt.keeper.wake_fd, 1);
	test_wait(atomic_load(&mnt.shared->kept.dropped));
}

/* What the keeper got is ours too, for the next daemon. */
static void take_connection(void)
{
	int fd = -1;

	if (!mnt.kept || !mnt.user || kernel_is_fuse(mnt.dev_fd))
		return;
	assert_int_equal(fd_pass_receive(mnt.keeper.back[0], 0, &fd), 0);
	assert_int_equal(dup3(fd, mnt.dev_fd, O_CLOEXEC), mnt.dev_fd);
	close(fd);
}

void mnt_daemon_start(void)
{
	atomic_store(&mnt.shared->serving, false);
	atomic_store(&mnt.shared->mounted, false);
	atomic_store(&mnt.shared->command, COMMAND_NONE);
	mnt.daemon_pid = fork();
	if (mnt.daemon_pid == 0)
		mnt_daemon_main();
	if (atomic_load(&mnt.shared->hesitates)) {
		test_wait(atomic_load(&mnt.shared->mounted));
		return;
	}
	test_wait(atomic_load(&mnt.shared->serving) || waitpid(mnt.daemon_pid, NULL, WNOHANG) != 0);
	assert_true(mnt.shared->serving);
	take_connection();
}

void mnt_daemon_ended(void)
{
	int status = -1;

	test_wait(waitpid(mnt.daemon_pid, &status, WNOHANG) == mnt.daemon_pid);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	mnt.daemon_pid = 0;
}

void mnt_daemon_kill(void)
{
	int status;

	assert_int_equal(kill(mnt.daemon_pid, SIGKILL), 0);
	test_wait(waitpid(mnt.daemon_pid, &status, WNOHANG) == mnt.daemon_pid);
	mnt.daemon_pid = 0;
}

int mnt_unmount_by_hand(bool lazy)
{
	char command[160];

	if (!mnt.user)
		return umount2(mnt.point, lazy ? MNT_DETACH : 0) == 0 ? 0 : errno;
	snprintf(command, sizeof(command), "fusermount3 %s %s 2>/dev/null", lazy ? "-uz" : "-u",
		mnt.point);
	return system(command) == 0 ? 0 : EINVAL;
}

/* The test itself keeps the mount. */
static int unmount_alone(enum command command)
{
	struct detach_helper helper = { 0 };
	struct unmount u = { .path = mnt.point,
		.connection = mnt.dev_fd,
		.daemon = pidfd_open(mnt.daemon_pid, 0),
		.slots = mnt.slots_fd,
		.last = true,
		.mode = mode_of((int)command) };
	struct slots *slots = NULL;
	struct err e = ERR_INIT;
	int r;

	assert_int_equal(kernel_dev(AT_FDCWD, mnt.point, &u.dev), 0);
	assert_int_equal(slots_open(mnt.slots_fd, &slots, &e), 0);
	u.fuse_dev = (dev_t)slots_mount(slots)->fuse_dev;
	slots_free(slots);
	r = unmount_detach(&u, &helper, &e);
	if (r == 0)
		unmount_finish(&u, &helper);
	close(u.daemon);
	memcpy(mnt.shared->line, e.text, sizeof(e.text));
	return r;
}

static int unmount_by_keeper(enum command command)
{
	struct kept *kept = &mnt.shared->kept;

	kept->daemon = mnt.daemon_pid;
	atomic_store(&kept->unmount, (int)command);
	eventfd_write(mnt.keeper.wake_fd, 1);
	test_wait(atomic_load(&kept->unmount) == COMMAND_NONE);
	return kept->result;
}

static int unmount_now(enum command command)
{
	int r = mnt.kept ? unmount_by_keeper(command) : unmount_alone(command);

	/* An ordinary user's connection cannot be cut: the keeper ends its daemon. */
	if (r == 0 && command == COMMAND_FORCE)
		(void)kill(mnt.daemon_pid, SIGTERM);
	return r;
}

int mnt_do(enum command command)
{
	if (command == COMMAND_UNMOUNT || command == COMMAND_LAZY || command == COMMAND_FORCE)
		return unmount_now(command);
	atomic_store(&mnt.shared->result, 1);
	atomic_store(&mnt.shared->command, command);
	test_wait(atomic_load(&mnt.shared->result) != 1);
	return atomic_load(&mnt.shared->result);
}

uint64_t mnt_requests(void)
{
	struct slots *slots = NULL;
	struct err e = ERR_INIT;
	uint64_t n;

	assert_int_equal(slots_open(mnt.slots_fd, &slots, &e), 0);
	n = counter_get(&((struct session_counters *)slots_counters(slots))->total);
	slots_free(slots);
	return n;
}

uint32_t mnt_held(void)
{
	struct slots *slots = NULL;
	struct err e = ERR_INIT;
	uint32_t n = 0;

	assert_int_equal(slots_open(mnt.slots_fd, &slots, &e), 0);
	for (uint32_t i = 0; i < slots_count(slots); i++)
		n += slot_len(slots, i) != 0;
	slots_free(slots);
	return n;
}

/* ---- readers --------------------------------------------------------------------------------- */

const char *mnt_path(const char *name)
{
	static char path[200];

	snprintf(path, sizeof(path), "%s/%s", mnt.point, name);
	return path;
}

uint64_t mnt_offset_of(const char *name)
{
	struct table_row *row = malloc(sizeof(*row));
	uint64_t offset;

	assert_int_equal(table_find_key(table, name, (uint32_t)strlen(name), row), 0);
	offset = row->offset;
	free(row);
	return offset;
}

const char *mnt_small_name(uint32_t n)
{
	static char name[32];

	snprintf(name, sizeof(name), "d%u/f%03u", n % 7, n);
	return name;
}

int mnt_read_file(const char *name, uint64_t offset, size_t size)
{
	unsigned char *buf = malloc(size + 8);
	unsigned char *want = malloc(size + 8);
	int fd = open(mnt_path(name), O_RDONLY | O_CLOEXEC);
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

void mnt_check_all(void)
{
	for (uint32_t i = 0; i < FILES; i++)
		assert_int_equal(mnt_read_file(mnt_small_name(i), mnt_offset_of(mnt_small_name(i)),
					 FILE_BYTES),
			0);
	assert_int_equal(mnt_read_file(BIG, mnt_offset_of(BIG), BIG_BYTES), 0);
}

void mnt_drop_pages(const char *name)
{
	int fd = open(mnt_path(name), O_RDONLY | O_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED), 0);
	close(fd);
}

pid_t mnt_reader_of_stall(uint32_t page)
{
	pid_t pid = fork();

	if (pid == 0) {
		int fd = open(mnt_path(STALL), O_RDONLY | O_CLOEXEC);
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
		.umask = 022, .extent_bytes = EXTENT, .one_device = mnt.engine->one_device
	};
	const struct volume_id volume = { { 1, 2, 3 } };
	struct listing *l = listing_new(64 << 20);
	struct err e = ERR_INIT;
	char path[128];

	for (uint32_t i = 0; i < FILES; i++)
		add(l, mnt_small_name(i), FILE_BYTES);
	add(l, BIG, BIG_BYTES);
	add(l, STALL, 2 << 20);
	snprintf(path, sizeof(path), "%s/table", mnt.dir);
	assert_int_equal(generation_build(&volume, NULL, l, path, NULL, NULL, &e), 0);
	listing_free(l);
	assert_int_equal(table_open(open(path, O_RDONLY | O_CLOEXEC), &table, &e), 0);
	snprintf(path, sizeof(path), "%s/images", mnt.dir);
	assert_int_equal(images_get(path, &(struct image_source){ table, "", NULL }, 1, &options,
				 NULL, NULL, &mnt.image, &e),
		0);
	snprintf(mnt.image_path, sizeof(mnt.image_path), "%s/%s", path, mnt.image.name);
}

int mnt_setup_group(void **state)
{
	static struct err e;

	(void)state;
	snprintf(mnt.dir, sizeof(mnt.dir), "/var/tmp/granary-mount-XXXXXX");
	assert_non_null(mkdtemp(mnt.dir));
	snprintf(mnt.point, sizeof(mnt.point), "%s/mnt", mnt.dir);
	assert_int_equal(mkdir(mnt.point, 0755), 0);
	mnt.control = synthetic_control_new();
	mnt.shared = mmap(NULL, sizeof(*mnt.shared), PROT_READ | PROT_WRITE,
		MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_true(mnt.shared != MAP_FAILED);
	if (mnt.engine->probe(
		    &(struct engine_query){
			    .engine = "auto", .image_dir = mnt.dir, .mountpoint = mnt.point },
		    &e) < 0)
		mnt.why_not = e.text;
	build();
	return 0;
}

int mnt_teardown_group(void **state)
{
	char command[128];

	(void)state;
	table_unref(table);
	snprintf(command, sizeof(command), "rm -rf %s", mnt.dir);
	return system(command);
}

int mnt_setup(void **state)
{
	struct err e = ERR_INIT;

	(void)state;
	if (mnt.why_not)
		return 0;
	synthetic_set(&mnt.control->stall, 0, 0);
	synthetic_set(&mnt.control->fail, 0, 0);
	synthetic_set(&mnt.control->later, 0, 0);
	atomic_store(&mnt.shared->local, 0);
	if (mnt.user)
		mnt.dev_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	else
		assert_int_equal(kernel_open_fuse(&mnt.dev_fd, &e), 0);
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, hand), 0);
	mnt.slots_fd = memfd_create("test-slots", MFD_CLOEXEC);
	assert_int_equal(ftruncate(mnt.slots_fd, SLOTS_HEAD_BYTES + 512 * SLOT_BYTES), 0);
	if (mnt.kept)
		keeper_start();
	mnt_daemon_start();
	return 0;
}

int mnt_teardown(void **state)
{
	int status;

	(void)state;
	if (mnt.why_not)
		return 0;
	if (mnt.daemon_pid > 0) { /* the test failed */
		(void)kill(mnt.daemon_pid, SIGKILL);
		(void)waitpid(mnt.daemon_pid, &status, 0);
		mnt.daemon_pid = 0;
	}
	if (mnt.kept)
		keeper_stop();
	if (mnt.dev_fd >= 0)
		close(mnt.dev_fd); /* the last one: what is left ends with EIO */
	close(mnt.slots_fd);
	close(hand[0]);
	close(hand[1]);
	while (mnt_unmount_by_hand(true) == 0)
		;
	return 0;
}
