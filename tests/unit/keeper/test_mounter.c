/*
 * A mount whose keeper is another process: what its daemon asks, and what nobody may ask. The
 * mounts need root and a kernel with file-backed EROFS; skipped without, and say so.
 */
#include "tests/unit/fuse/mount_tests.h"

#include <sys/mman.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/pidfd.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include "keeper/points/mounter_internal.h"
#include "mount/mounter_wire.h"

/* ---- messages -------------------------------------------------------------------------------- */

static int pair[2] = { -1, -1 };
static struct mounter_host *host;
static struct mounter_peer *peer;

static int keeper_only(void **state)
{
	const struct mounter_peer_config config = { .id = 1,
		.mountpoint = "/nowhere",
		.admin = "",
		.image_dir = "/nowhere/images",
		.fuse_fd = -1 };
	struct mounter_peer_config with = config;

	(void)state;
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	with.socket = pair[0];
	mnt.keeper.wake_fd = eventfd(0, EFD_CLOEXEC);
	assert_int_equal(mounter_host_new(mnt.keeper.wake_fd, &host), 0);
	assert_int_equal(mounter_peer_new(host, &with, &peer), 0);
	return 0;
}

static int keeper_only_end(void **state)
{
	(void)state;
	mounter_peer_free(peer);
	mounter_host_free(host);
	close(mnt.keeper.wake_fd);
	close(pair[0]);
	close(pair[1]);
	return 0;
}

/* The code of the answer; `text` gets its line. */
static int ask_raw(const struct mounter_request *request, const int *fds, uint32_t n_fds,
	char text[ERR_TEXT_MAX])
{
	struct mounter_answer answer;
	int got[MOUNTER_FDS_MAX];
	uint32_t n = 0;
	eventfd_t count;

	assert_int_equal(mounter_send(pair[1], request, sizeof(*request), fds, n_fds), 0);
	mounter_serve(peer);
	assert_int_equal(eventfd_read(mnt.keeper.wake_fd, &count), 0); /* waits for its end */
	assert_int_equal(mounter_receive(pair[1], &answer, sizeof(answer), got, &n), 0);
	assert_int_equal(answer.magic, MOUNTER_MAGIC);
	assert_int_equal(answer.serial, request->serial);
	assert_int_equal(n, 0);
	memcpy(text, answer.text, ERR_TEXT_MAX);
	return answer.code;
}

static struct mounter_request request_of(uint32_t op, uint32_t n_fds)
{
	struct mounter_request request = {
		.magic = MOUNTER_MAGIC, .op = op, .serial = 9, .n_fds = n_fds
	};

	return request;
}

static void no_requests(void **state)
{
	struct mounter_request request = request_of(MOUNTER_HELLO, 0);
	int fds[MOUNTER_FDS_MAX];
	char text[ERR_TEXT_MAX];
	eventfd_t count;

	(void)state;
	for (uint32_t i = 0; i < MOUNTER_FDS_MAX; i++)
		fds[i] = pair[1];
	assert_int_equal(ask_raw(&request, NULL, 0, text), 0);
	request.magic++;
	assert_int_equal(ask_raw(&request, NULL, 0, text), -EBADMSG);
	assert_non_null(strstr(text, "different versions"));
	request = request_of(MOUNTER_OPS, 0);
	assert_int_equal(ask_raw(&request, NULL, 0, text), -EBADMSG);
	request = request_of(MOUNTER_MOUNT_FUSE, 1); /* says one, has none */
	assert_int_equal(ask_raw(&request, NULL, 0, text), -EBADMSG);
	request = request_of(MOUNTER_MOUNT_FUSE, 0);
	assert_int_equal(ask_raw(&request, NULL, 0, text), -EBADMSG);
	request = request_of(MOUNTER_ATTACH, MOUNTER_FDS_MAX);
	assert_int_equal(ask_raw(&request, fds, MOUNTER_FDS_MAX, text), -EBADMSG);
	request = request_of(MOUNTER_HELLO, 0);
	memset(request.path, 'x', sizeof(request.path));
	assert_int_equal(ask_raw(&request, NULL, 0, text), -EBADMSG);
	request = request_of(MOUNTER_SHARE, 1); /* without a key */
	assert_int_equal(ask_raw(&request, fds, 1, text), -EBADMSG);
	/* Of another size: taken, and not answered. */
	assert_int_equal(send(pair[1], &request, 100, 0), 100);
	assert_int_equal(mounter_send(pair[1], &request, sizeof(request) - 1, fds, 3), 0);
	mounter_serve(peer);
	mounter_serve(peer);
	assert_int_equal(mounter_host_busy(host), 0);
	request = request_of(MOUNTER_HELLO, 0);
	assert_int_equal(ask_raw(&request, NULL, 0, text), 0);
	assert_int_equal(recv(pair[1], &count, sizeof(count), MSG_DONTWAIT), -1);
}

/* A newer generation: said once, taken once, and why nothing came of it is told the next time. */
static void newer(void **state)
{
	const struct mounter_request request = request_of(MOUNTER_NEWER, 0);
	bool may = kernel_may_mount() && kernel_may_attach_beneath();
	char text[ERR_TEXT_MAX];

	(void)state;
	assert_false(mounter_peer_newer(peer));
	assert_int_equal(ask_raw(&request, NULL, 0, text), may ? 0 : -EOPNOTSUPP);
	assert_string_equal(text, "");
	assert_int_equal(mounter_peer_newer(peer), may);
	mounter_peer_answer_newer(peer, "no room");
	assert_false(mounter_peer_newer(peer));
	assert_int_equal(ask_raw(&request, NULL, 0, text), may ? 0 : -EOPNOTSUPP);
	assert_string_equal(text, may ? "no room" : "");
	mounter_peer_answer_newer(peer, NULL);
	(void)ask_raw(&request, NULL, 0, text);
	assert_string_equal(text, "");
}

/* A daemon that died over its request: what was begun is waited for, else nothing is begun. */
static void ended(void **state)
{
	struct mounter_job job = { .peer = peer, .request = request_of(MOUNTER_ATTACH, 0) };
	const struct mounter_intent intent = { .server = 1, .to = 7 };

	(void)state;
	assert_int_equal(mounter_begin(&job, &intent), 0);
	assert_false(mounter_peer_end(peer));
	mounter_begun_not(peer);
	assert_true(mounter_peer_end(peer));
	assert_int_equal(mounter_begin(&job, &intent), -ECONNRESET);
	assert_true(mounter_peer_end(peer));
}

/* What a daemon may not have done for it. */
static void not_its_own(void **state)
{
	struct mounter_request request = request_of(MOUNTER_ATTACH, 2);
	int fds[2] = { open("/", O_PATH | O_CLOEXEC), open("/tmp", O_PATH | O_CLOEXEC) };
	struct stat st;
	char text[ERR_TEXT_MAX];

	(void)state;
	assert_int_equal(stat("/", &st), 0);
	strcpy(request.key, "k");
	strcpy(request.path, "/tmp");
	request.point_dev = st.st_dev;
	assert_int_equal(ask_raw(&request, fds, 2, text), -EPERM); /* not its mount point */
	assert_non_null(strstr(text, "/nowhere"));
	strcpy(request.path, "/nowhere"); /* says so, but the descriptor is another's */
	assert_int_equal(ask_raw(&request, fds, 2, text), -EPERM);
	request = request_of(MOUNTER_SWITCH, 1);
	request.point_dev = st.st_dev;
	assert_int_equal(ask_raw(&request, fds, 1, text), -EPERM); /* a mount not made for it */
	for (uint32_t op = MOUNTER_SWITCH + 1; op < MOUNTER_HAND; op++) { /* it never unmounts */
		request = request_of(op, 0);
		if (op != MOUNTER_ANY_POINT)
			assert_int_equal(ask_raw(&request, NULL, 0, text), -EBADMSG);
	}
	request = request_of(MOUNTER_CONNECTION, 0);
	request.fuse_dev = st.st_dev;
	assert_int_equal(ask_raw(&request, NULL, 0, text), -EPERM);
	request.flags = MOUNTER_READ_AHEAD;
	assert_int_equal(ask_raw(&request, NULL, 0, text), -EPERM);
	request = request_of(MOUNTER_MOUNT_IMAGE, 0);
	strcpy(request.path, "/etc/passwd");
	assert_int_equal(ask_raw(&request, NULL, 0, text), -EPERM);
	strcpy(request.path, "/nowhere/images/../../etc/passwd");
	assert_int_equal(ask_raw(&request, NULL, 0, text), -EPERM);
	request = request_of(MOUNTER_PROBE, 0);
	strcpy(request.path, "/tmp");
	assert_int_equal(ask_raw(&request, NULL, 0, text), -EPERM);
	request = request_of(MOUNTER_HAND, 1);
	assert_int_equal(ask_raw(&request, fds, 1, text), -EINVAL);
	request = request_of(MOUNTER_LOCAL, 1); /* a directory is no device */
	assert_int_equal(ask_raw(&request, fds, 1, text), -EINVAL);
	request.index[0] = LIMIT_DEVICES;
	assert_int_equal(ask_raw(&request, fds, 1, text), -EINVAL);
	close(fds[0]);
	close(fds[1]);
}

/* Devices that were sent by a daemon which died before its image: no other one gets them. */
static void devices_of_another_image(void **state)
{
	char images[] = "/tmp/granary-mounter-XXXXXX";
	struct mounter_peer_config with = { .id = 2, .mountpoint = "/nowhere", .admin = "" };
	struct mounter_request local = request_of(MOUNTER_LOCAL, 2);
	struct mounter_request mount = request_of(MOUNTER_MOUNT_IMAGE, 0);
	int fds[2] = { memfd_create("a", MFD_CLOEXEC), memfd_create("b", MFD_CLOEXEC) };
	char text[ERR_TEXT_MAX];
	int fd;

	(void)state;
	assert_non_null(mkdtemp(images));
	mounter_peer_free(peer);
	with.image_dir = images;
	with.socket = pair[0];
	with.fuse_fd = -1;
	assert_int_equal(mounter_peer_new(host, &with, &peer), 0);
	assert_true(snprintf(mount.path, sizeof(mount.path), "%s/image", images) > 0);
	fd = open(mount.path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600); /* empty: no kernel takes it */
	assert_true(fd >= 0);
	mount.number = 4;
	local.index[1] = 1;
	local.flags = MOUNTER_FIRST;
	assert_int_equal(ask_raw(&local, fds, 2, text), 0);
	mount.local = 1; /* its own, which the keeper has not seen */
	assert_int_equal(ask_raw(&mount, NULL, 0, text), -ECONNRESET);
	assert_non_null(strstr(text, "2 of 1 devices"));
	assert_int_equal(ask_raw(&local, fds, 2, text), 0);
	local.n_fds = 1; /* of the next one, which starts again */
	assert_int_equal(ask_raw(&local, fds, 1, text), 0);
	mount.local = 2;
	assert_int_equal(ask_raw(&mount, NULL, 0, text), -ECONNRESET);
	assert_non_null(strstr(text, "1 of 2 devices"));
	assert_int_equal(ask_raw(&local, fds, 1, text), 0);
	mount.local = 1;
	assert_int_not_equal(ask_raw(&mount, NULL, 0, text), 0);
	assert_null(strstr(text, "devices were received"));
	unlink(mount.path);
	rmdir(images);
	close(fd);
	close(fds[0]);
	close(fds[1]);
}

/* Whoever waited for a keeper that died learns of it; who asked nobody yet is served. */
static void remembered(void **state)
{
	struct mounter_request request = request_of(MOUNTER_HELLO, 0);
	json_t *saved = mounter_peer_save(peer);
	struct mounter_answer answer;
	int fds[MOUNTER_FDS_MAX];
	uint32_t n = 0;

	(void)state;
	assert_non_null(saved);
	json_object_set_new(saved, "point", json_string("own"));
	json_object_set_new(saved, "superblock",
		json_pack("{s:s, s:i, s:i}", "key", "k", "point_dev", 7, "fuse_dev", 8));
	mounter_peer_load(peer, saved);
	mounter_host_renew(host);
	assert_int_equal(mounter_peer_point(peer), MOUNTER_OWN);
	assert_int_equal(mounter_peer_points(peer), 1);
	assert_int_equal(mounter_receive(pair[1], &answer, sizeof(answer), fds, &n), 0);
	assert_int_equal(answer.serial, 0);
	json_decref(saved);
	saved = mounter_peer_save(peer);
	assert_string_equal(json_string_value(json_object_get(saved, "point")), "own");
	json_decref(saved);
	mounter_peer_look(peer, NULL); /* nothing is mounted there */
	assert_int_equal(mounter_peer_point(peer), MOUNTER_DETACHED);
	assert_int_equal(mounter_peer_points(peer), 0);
	assert_int_equal(mounter_send(pair[1], &request, sizeof(request), NULL, 0), 0);
	saved = mounter_peer_save(peer);
	mounter_peer_load(peer, saved);
	mounter_host_renew(host);
	json_decref(saved);
	assert_int_equal(mounter_receive(pair[1], &answer, sizeof(answer), fds, &n), -EAGAIN);
}

/* What lies at the mount point was switched since its successor's daemon looked there. */
static void replaced_after_a_switch(void **state)
{
	struct mounter_request request = request_of(MOUNTER_ATTACH, 2);
	int fds[2] = { open("/", O_PATH | O_CLOEXEC), open("/", O_PATH | O_CLOEXEC) };
	json_t *saved = json_pack("{s:s, s:i, s:{s:s, s:i, s:i}}", "point", "own", "server", 1,
		"superblock", "key", "k", "point_dev", 7, "fuse_dev", 8);
	char text[ERR_TEXT_MAX];

	(void)state;
	mounter_peer_load(peer, saved);
	json_decref(saved);
	strcpy(request.key, "l");
	strcpy(request.path, "/nowhere");
	assert_int_equal(ask_raw(&request, fds, 2, text), -EPERM);
	assert_non_null(strstr(text, "may not mount"));
	request.flags = MOUNTER_REPLACE;
	assert_int_equal(ask_raw(&request, fds, 2, text), -EPERM);
	assert_non_null(
		strstr(text, "created for this daemon")); /* what it attaches is looked at */
	strcpy(request.path, "/tmp");
	assert_int_equal(ask_raw(&request, fds, 2, text), -EPERM);
	assert_non_null(strstr(text, "may not mount"));
	close(fds[0]);
	close(fds[1]);
}

/* tmpfs at `top`, and another, seen at `other`, beneath it. False: not possible here. */
static bool mount_beneath(const char *top, const char *other)
{
	struct err e = ERR_INIT;
	bool made;
	int clone;
	int fd;

	if (!kernel_may_attach_beneath() || mount("other", other, "tmpfs", 0, NULL) != 0)
		return false;
	assert_int_equal(mount("top", top, "tmpfs", 0, NULL), 0);
	clone = (int)syscall(SYS_open_tree, AT_FDCWD, other, 1 | O_CLOEXEC); /* OPEN_TREE_CLONE */
	fd = open(top, O_PATH | O_CLOEXEC);
	assert_true(clone >= 0 && fd >= 0);
	made = kernel_attach_beneath(clone, fd, &e) == 0;
	close(clone);
	close(fd);
	return made;
}

/* A switch that was not completed attached a mount beneath, which has a later line: what is shown is unmounted all the same. */
static void beneath_is_no_cover(void **state)
{
	char top[] = "/tmp/granary-mounter-XXXXXX";
	char other[] = "/tmp/granary-mounter-XXXXXX";
	struct mounter_peer_config with = { .id = 1,
		.mountpoint = top,
		.admin = "",
		.image_dir = "/nowhere/images",
		.owned = true,
		.point_fd = -1,
		.fuse_fd = -1 };
	struct mounter_unmounted done;
	struct err e = ERR_INIT;
	struct stat shown;
	struct stat now;
	json_t *saved;

	(void)state;
	assert_non_null(mkdtemp(top));
	assert_non_null(mkdtemp(other));
	if (mount_beneath(top, other)) {
		assert_int_equal(stat(top, &shown), 0);
		mounter_peer_free(peer);
		with.socket = pair[0];
		assert_int_equal(mounter_peer_new(host, &with, &peer), 0);
		saved = json_pack("{s:s, s:{s:s, s:I, s:i}}", "point", "own", "superblock", "key",
			"k", "point_dev", (json_int_t)shown.st_dev, "fuse_dev", 8);
		mounter_peer_load(peer, saved);
		json_decref(saved);
		assert_int_equal(mounter_peer_unmount(peer, UNMOUNT_NORMAL, -1, -1, &done, &e), 0);
		assert_int_equal(mounter_peer_point(peer), MOUNTER_DETACHED);
		assert_int_equal(stat(top, &now), 0);
		assert_int_not_equal(now.st_dev, shown.st_dev);
	} else {
		print_message("nothing can be attached beneath a mount here: not tested\n");
	}
	(void)umount2(top, MNT_DETACH);
	(void)umount2(top, MNT_DETACH);
	(void)umount2(other, MNT_DETACH);
	assert_int_equal(rmdir(top), 0);
	assert_int_equal(rmdir(other), 0);
}

static bool refuses(void)
{
	sigset_t pending;

	assert_int_equal(sigpending(&pending), 0);
	return sigismember(&pending, SIGUSR2) == 1;
}

/* The daemon, which is this process, refuses nothing before its mount is off. */
static void force_that_fails(void **state)
{
	char point[] = "/tmp/granary-mounter-XXXXXX";
	struct unmount u = { .path = point,
		.mode = UNMOUNT_FORCE,
		.last = true,
		.connection = -1,
		.slots = -1,
		.daemon = pidfd_open(getpid(), 0) };
	struct detach_helper helper = { 0 };
	struct mount_entry entry;
	struct err e = ERR_INIT;
	sigset_t refuse;

	(void)state;
	sigemptyset(&refuse);
	sigaddset(&refuse, SIGUSR2);
	assert_int_equal(sigprocmask(SIG_BLOCK, &refuse, NULL), 0);
	assert_non_null(mkdtemp(point));
	if (mount("forced", point, "tmpfs", 0, NULL) != 0) {
		print_message("nothing can be mounted here: not tested\n");
		assert_int_equal(rmdir(point), 0);
		skip();
	}
	assert_int_equal(mount_table_find("/", &entry), 0); /* attached, and not there */
	u.dev = makedev(entry.dev_major, entry.dev_minor);
	u.mount_id = entry.id;
	assert_int_equal(unmount_detach(&u, &helper, &e), -ESTALE);
	assert_false(refuses());
	assert_int_equal(mount_table_find(point, &entry), 0);
	u.dev = makedev(entry.dev_major, entry.dev_minor);
	u.mount_id = entry.id;
	assert_int_equal(unmount_detach(&u, &helper, &e), 0);
	unmount_finish(&u, &helper);
	assert_true(refuses());
	close(u.daemon);
	assert_int_equal(rmdir(point), 0);
}

/* A mount point whose switch was not completed: its mount is beneath the old one. */
static void beneath_is_unmounted(void **state)
{
	char top[] = "/tmp/granary-mounter-XXXXXX";
	char other[] = "/tmp/granary-mounter-XXXXXX";
	struct unmount u = { .path = top, .connection = -1, .slots = -1, .daemon = -1 };
	struct detach_helper helper = { 0 };
	struct mount_entry entry;
	struct err e = ERR_INIT;
	struct stat beneath;

	(void)state;
	assert_non_null(mkdtemp(top));
	assert_non_null(mkdtemp(other));
	if (mount_beneath(top, other)) {
		assert_int_equal(stat(other, &beneath), 0);
		u.dev = beneath.st_dev;
		assert_int_equal(unmount_detach(&u, &helper, &e), 0);
		unmount_finish(&u, &helper);
		assert_int_equal(mount_table_find(top, &entry), -ENOENT);
	} else {
		print_message("nothing can be attached beneath a mount here: not tested\n");
	}
	(void)umount2(top, MNT_DETACH);
	(void)umount2(top, MNT_DETACH);
	(void)umount2(other, MNT_DETACH);
	assert_int_equal(rmdir(top), 0);
	assert_int_equal(rmdir(other), 0);
}

/* A directory above the mount point has another name: the mount is known there, and unmounted there. */
static void moved(void **state)
{
	char dir[] = "/tmp/granary-mounter-XXXXXX";
	char to[sizeof(dir) + 2];
	char at[sizeof(dir) + 8];
	char point[sizeof(dir) + 8];
	struct mounter_peer_config with = { .id = 1,
		.mountpoint = point,
		.admin = "",
		.image_dir = "/nowhere/images",
		.point_fd = -1,
		.fuse_fd = -1 };
	struct mounter_unmounted done;
	struct err e = ERR_INIT;
	struct stat shown;
	json_t *saved;

	(void)state;
	assert_non_null(mkdtemp(dir));
	snprintf(to, sizeof(to), "%s.m", dir);
	snprintf(point, sizeof(point), "%s/mnt", dir);
	snprintf(at, sizeof(at), "%s/mnt", to);
	assert_int_equal(mkdir(point, 0755), 0);
	if (mount("moved", point, "tmpfs", 0, NULL) != 0) {
		print_message("nothing can be mounted here: not tested\n");
		assert_int_equal(rmdir(point), 0);
		assert_int_equal(rmdir(dir), 0);
		skip();
	}
	assert_int_equal(stat(point, &shown), 0);
	mounter_peer_free(peer);
	with.socket = pair[0];
	assert_int_equal(mounter_peer_new(host, &with, &peer), 0);
	saved = json_pack("{s:s, s:{s:s, s:I, s:i}}", "point", "own", "superblock", "key", "k",
		"point_dev", (json_int_t)shown.st_dev, "fuse_dev", 8);
	mounter_peer_load(peer, saved);
	json_decref(saved);
	mounter_peer_look(peer, NULL); /* learns which mount it is */
	assert_string_equal(mounter_peer_mountpoint(peer), point);
	assert_int_equal(rename(dir, to), 0);
	mounter_peer_look(peer, NULL);
	assert_int_equal(mounter_peer_point(peer), MOUNTER_OWN);
	assert_string_equal(mounter_peer_mountpoint(peer), at);
	assert_int_equal(mounter_peer_points(peer), 1);
	assert_int_equal(mounter_peer_unmount(peer, UNMOUNT_NORMAL, -1, -1, &done, &e), 0);
	assert_int_equal(mounter_peer_point(peer), MOUNTER_DETACHED);
	assert_int_equal(rmdir(at), 0);
	assert_int_equal(rmdir(to), 0);
}

static int share_by(struct mounter_peer *by, int socket)
{
	struct mounter_request request = request_of(MOUNTER_SHARE, 1);
	struct mounter_peer *first = peer;
	int end = pair[1];
	int fd = open("/tmp", O_PATH | O_CLOEXEC);
	char text[ERR_TEXT_MAX];
	int r;

	strcpy(request.path, "/tmp");
	strcpy(request.key, "k");
	peer = by;
	pair[1] = socket;
	r = ask_raw(&request, &fd, 1, text);
	peer = first;
	pair[1] = end;
	close(fd);
	return r;
}

/* Of daemons that start at once for the same superblock one makes it; the others wait for it, or for the end of that daemon. */
static void made_once(void **state)
{
	struct mounter_peer_config with = {
		.mountpoint = "/tmp", .admin = "", .image_dir = "/nowhere", .fuse_fd = -1
	};
	struct mounter_peer *peers[2];
	int pairs[2][2];

	(void)state;
	for (unsigned int i = 0; i < 2; i++) {
		assert_int_equal(
			socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pairs[i]), 0);
		with.id = 2 + i;
		with.socket = pairs[i][0];
		assert_int_equal(mounter_peer_new(host, &with, &peers[i]), 0);
	}
	assert_int_equal(share_by(peers[0], pairs[0][1]), -ENOENT);
	assert_int_equal(share_by(peers[1], pairs[1][1]), -EINPROGRESS);
	assert_int_equal(share_by(peers[0], pairs[0][1]), -ENOENT);
	assert_true(mounter_peer_end(peers[0]));
	assert_int_equal(share_by(peers[1], pairs[1][1]), -ENOENT);
	for (unsigned int i = 0; i < 2; i++) {
		mounter_peer_free(peers[i]);
		close(pairs[i][0]);
		close(pairs[i][1]);
	}
}

/* What hangs holds up nobody who looks. */
static void not_idle(void **state)
{
	struct mounter_request request = request_of(MOUNTER_SWITCH, 0);
	eventfd_t count;

	(void)state;
	assert_true(mounter_peer_idle(peer));
	pthread_mutex_lock(&host->moving); /* another one's switch takes its time */
	assert_int_equal(mounter_send(pair[1], &request, sizeof(request), NULL, 0), 0);
	mounter_serve(peer);
	assert_false(mounter_peer_idle(peer));
	assert_int_equal(mounter_host_busy(host), 1);
	pthread_mutex_unlock(&host->moving);
	assert_int_equal(eventfd_read(mnt.keeper.wake_fd, &count), 0); /* waits for its end */
	assert_true(mounter_peer_idle(peer));
}

/* ---- mounts ---------------------------------------------------------------------------------- */

static void known(void **state)
{
	NEED_KERNEL();
	(void)state;
	mnt_check_all();
	test_wait(atomic_load(&mnt.shared->kept.point) == MOUNTER_OWN);
	assert_int_equal(mnt.shared->kept.points, 1);
	assert_string_equal(mnt.shared->kept.text, "own");
	assert_int_equal(mnt_do(COMMAND_UNMOUNT), 0);
	mnt_daemon_ended();
	test_wait(atomic_load(&mnt.shared->kept.point) == MOUNTER_DETACHED);
	assert_int_equal(mnt.shared->kept.points, 0);
}

int main(void)
{
	const struct CMUnitTest messages[] = {
		cmocka_unit_test_setup_teardown(no_requests, keeper_only, keeper_only_end),
		cmocka_unit_test_setup_teardown(newer, keeper_only, keeper_only_end),
		cmocka_unit_test_setup_teardown(ended, keeper_only, keeper_only_end),
		cmocka_unit_test_setup_teardown(not_its_own, keeper_only, keeper_only_end),
		cmocka_unit_test_setup_teardown(
			devices_of_another_image, keeper_only, keeper_only_end),
		cmocka_unit_test_setup_teardown(remembered, keeper_only, keeper_only_end),
		cmocka_unit_test_setup_teardown(beneath_is_no_cover, keeper_only, keeper_only_end),
		cmocka_unit_test(force_that_fails),
		cmocka_unit_test(beneath_is_unmounted),
		cmocka_unit_test_setup_teardown(moved, keeper_only, keeper_only_end),
		cmocka_unit_test_setup_teardown(made_once, keeper_only, keeper_only_end),
		cmocka_unit_test_setup_teardown(not_idle, keeper_only, keeper_only_end),
		cmocka_unit_test_setup_teardown(
			replaced_after_a_switch, keeper_only, keeper_only_end),
	};
	const struct CMUnitTest mounts[] = {
		MOUNT_TEST(known),
		MOUNT_TEST(mnt_serves),
		MOUNT_TEST(mnt_errors_are_errors),
		MOUNT_TEST(mnt_stalled_readers),
		MOUNT_TEST(mnt_busy),
		MOUNT_TEST(mnt_force),
		MOUNT_TEST(mnt_busy_for_a_moment),
		MOUNT_TEST(mnt_in_use_elsewhere),
		MOUNT_TEST(mnt_lazy),
		MOUNT_TEST(mnt_unmounted_by_hand),
		MOUNT_TEST(mnt_takeover),
		MOUNT_TEST(mnt_unmounted_while_dead),
	};
	int failed = cmocka_run_group_tests(messages, NULL, NULL);

	mnt.engine = &engine_native;
	mnt.magic = 0xE0F5E1E2;
	mnt.error = EIO;
	mnt.kept = true;
	return failed + cmocka_run_group_tests(mounts, mnt_setup_group, mnt_teardown_group);
}
