/*
 * What a keeper writes down before it touches a mount point, and what the next one makes of it: by
 * file systems of other kinds in a mount namespace of its own, where that may be had (CAP_SYS_ADMIN;
 * skipped without, and says so).
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "keeper/points/mounter_internal.h"

#define SERIAL 9

static char dir[64];
static char point[2][80];
static struct mounter_host *host;
static struct mounter_peer *peers[2];
static int near[2];
static int far[2];
static int wake_fd;
static bool may_mount;

static int save_result;
static unsigned int saves;
static json_t *first_saved;

static int note(void *arg)
{
	(void)arg;
	if (saves++ == 0)
		first_saved = mounter_peer_save(peers[0]);
	return save_result;
}

static int setup(void **state)
{
	(void)state;
	(void)strcpy(dir, "/tmp/granary-intent.XXXXXX");
	assert_non_null(mkdtemp(dir));
	wake_fd = eventfd(0, EFD_CLOEXEC);
	assert_int_equal(mounter_host_new(wake_fd, &host), 0);
	for (unsigned int i = 0; i < 2; i++) {
		int pair[2];
		struct mounter_peer_config config = { .id = 1 + i,
			.mountpoint = point[i],
			.admin = "",
			.image_dir = dir,
			.fuse_fd = -1 };

		(void)snprintf(point[i], sizeof(point[i]), "%s/%u", dir, i);
		assert_int_equal(mkdir(point[i], 0755), 0);
		assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
		near[i] = config.socket = pair[0];
		far[i] = pair[1];
		assert_int_equal(mounter_peer_new(host, &config, &peers[i]), 0);
	}
	saves = 0;
	save_result = 0;
	first_saved = NULL;
	mounter_host_keep(host, note, NULL);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	for (unsigned int i = 0; i < 2; i++) {
		while (umount2(point[i], MNT_DETACH) == 0)
			;
		mounter_peer_free(peers[i]);
		close(near[i]);
		close(far[i]);
		assert_int_equal(rmdir(point[i]), 0);
	}
	mounter_host_free(host);
	close(wake_fd);
	json_decref(first_saved);
	return rmdir(dir);
}

#define NEED_MOUNTS()                                                    \
	do {                                                             \
		if (!may_mount) {                                        \
			print_message("skipped: needs CAP_SYS_ADMIN\n"); \
			skip();                                          \
		}                                                        \
	} while (0)

static dev_t dev_of(const char *path)
{
	struct stat st;

	assert_int_equal(stat(path, &st), 0);
	return st.st_dev;
}

static dev_t make_mount(const char *path)
{
	assert_int_equal(mount("test", path, "tmpfs", 0, NULL), 0);
	return dev_of(path);
}

/* ---- before ---------------------------------------------------------------------------------- */

/* The code of the answer to an attach of what cannot be attached: the root itself. */
static int attach_root(char text[ERR_TEXT_MAX])
{
	struct mounter_request request = {
		.magic = MOUNTER_MAGIC, .op = MOUNTER_ATTACH, .serial = SERIAL, .n_fds = 2
	};
	int fds[2] = { open("/", O_PATH | O_CLOEXEC), open(point[0], O_PATH | O_CLOEXEC) };
	struct mounter_answer answer;
	int got[MOUNTER_FDS_MAX];
	uint32_t n = 0;
	eventfd_t count;

	assert_true(fds[0] >= 0 && fds[1] >= 0);
	peers[0]->made_dev = dev_of("/");
	request.point_dev = peers[0]->made_dev;
	(void)snprintf(request.path, sizeof(request.path), "%s", point[0]);
	(void)snprintf(request.key, sizeof(request.key), "key");
	assert_int_equal(mounter_send(far[0], &request, sizeof(request), fds, 2), 0);
	mounter_serve(peers[0]);
	assert_int_equal(eventfd_read(wake_fd, &count), 0); /* waits for its end */
	assert_int_equal(mounter_receive(far[0], &answer, sizeof(answer), got, &n), 0);
	memcpy(text, answer.text, ERR_TEXT_MAX);
	close(fds[0]);
	close(fds[1]);
	return answer.code;
}

static void written_before_and_after(void **state)
{
	char text[ERR_TEXT_MAX];
	const json_t *intent;
	json_t *after;
	int r;

	(void)state;
	r = attach_root(text);
	assert_true(r < 0 && r != -ENOSPC);
	assert_int_equal(saves, 2);
	intent = json_object_get(first_saved, "intent");
	assert_int_equal(json_integer_value(json_object_get(intent, "op")), MOUNTER_ATTACH);
	assert_int_equal(json_integer_value(json_object_get(intent, "serial")), SERIAL);
	assert_int_equal(json_integer_value(json_object_get(intent, "from")), 0);
	assert_int_equal(json_integer_value(json_object_get(intent, "to")), dev_of("/"));
	assert_non_null(json_object_get(first_saved, "superblock"));
	after = mounter_peer_save(peers[0]);
	assert_null(json_object_get(after, "intent"));
	assert_null(json_object_get(after, "superblock"));
	json_decref(after);
}

static void not_done_unless_written(void **state)
{
	char text[ERR_TEXT_MAX];

	(void)state;
	save_result = -ENOSPC;
	assert_int_equal(attach_root(text), -ENOSPC);
	assert_non_null(strstr(text, "cannot be stored"));
	assert_int_equal(peers[0]->intent.op, 0);
	assert_null(superblock_of_server(&host->superblocks, 1));
}

/* ---- after ----------------------------------------------------------------------------------- */

/* As an earlier keeper wrote it. */
static void load(struct mounter_peer *peer, const char *name, dev_t shown, dev_t from, dev_t to,
	enum mounter_op op, unsigned int server)
{
	json_t *saved = json_pack("{s:s, s:i}", "point", name, "server", (int)peer->config.id);

	if (shown)
		json_object_set_new(saved, "superblock",
			json_pack("{s:s, s:I, s:I}", "key", "key", "point_dev", (json_int_t)shown,
				"fuse_dev", (json_int_t)0));
	if (op)
		json_object_set_new(saved, "intent",
			json_pack("{s:i, s:i, s:i, s:I, s:I}", "op", (int)op, "serial", SERIAL,
				"server", (int)server, "from", (json_int_t)from, "to",
				(json_int_t)to));
	mounter_peer_load(peer, saved);
	json_decref(saved);
}

/* What the daemon hears: the answer it waits for, or that there is another keeper. */
static void expect_answer(int socket, uint32_t serial, int code)
{
	struct mounter_answer answer;
	int fds[MOUNTER_FDS_MAX];
	uint32_t n = 0;

	assert_int_equal(mounter_receive(socket, &answer, sizeof(answer), fds, &n), 0);
	assert_int_equal(answer.serial, serial);
	assert_int_equal(answer.code, code);
	assert_int_equal(mounter_receive(socket, &answer, sizeof(answer), fds, &n), -EAGAIN);
}

static void an_attach_that_was_done(void **state)
{
	dev_t dev;

	(void)state;
	NEED_MOUNTS();
	dev = make_mount(point[0]);
	load(peers[0], "none", dev, 0, dev, MOUNTER_ATTACH, 1);
	mounter_host_renew(host);
	assert_int_equal(mounter_peer_point(peers[0]), MOUNTER_OWN);
	assert_int_equal(mounter_peer_points(peers[0]), 1);
	assert_int_equal(peers[0]->intent.op, 0);
	expect_answer(far[0], SERIAL, 0);
	expect_answer(far[1], 0, -ECONNRESET); /* who had begun nothing */
}

static void an_attach_that_was_not(void **state)
{
	(void)state;
	load(peers[0], "none", 12345, 0, 12345, MOUNTER_ATTACH, 1);
	mounter_host_renew(host);
	assert_int_equal(mounter_peer_point(peers[0]), MOUNTER_NONE);
	assert_null(superblock_of_server(&host->superblocks, 1));
	expect_answer(far[0], 0, -ECONNRESET);
}

/* Both are attached, the new one beneath: without a connection it is not shown. */
static void a_replacement_that_nobody_serves(void **state)
{
	dev_t old;
	dev_t new;

	(void)state;
	NEED_MOUNTS();
	new = make_mount(point[0]);
	old = make_mount(point[0]);
	load(peers[1], "own", old, 0, 0, MOUNTER_HELLO, 0);
	load(peers[0], "none", new, old, new, MOUNTER_ATTACH, 1);
	mounter_host_renew(host);
	assert_int_equal(dev_of(point[0]), old);
	assert_int_equal(mounter_peer_point(peers[0]), MOUNTER_NONE);
	expect_answer(far[0], 0, -ECONNRESET);
}

/* It is shown already, and nothing is beneath: that is better than an empty directory. */
static void a_replacement_that_is_shown(void **state)
{
	dev_t new;

	(void)state;
	NEED_MOUNTS();
	new = make_mount(point[0]);
	load(peers[0], "none", new, 4321, new, MOUNTER_ATTACH, 1);
	mounter_host_renew(host);
	assert_int_equal(dev_of(point[0]), new);
	assert_int_equal(mounter_peer_point(peers[0]), MOUNTER_OWN);
	expect_answer(far[0], SERIAL, 0);
}

static void a_share_that_was_done(void **state)
{
	dev_t dev;

	(void)state;
	NEED_MOUNTS();
	dev = make_mount(point[0]);
	assert_int_equal(mount(point[0], point[1], NULL, MS_BIND, NULL), 0);
	load(peers[0], "own", dev, 0, 0, MOUNTER_HELLO, 0);
	load(peers[1], "none", 0, 0, dev, MOUNTER_SHARE, 1);
	mounter_host_renew(host);
	assert_int_equal(mounter_peer_point(peers[1]), MOUNTER_SHARED);
	assert_int_equal(mounter_peer_server(peers[1]), 1);
	assert_int_equal(mounter_peer_points(peers[0]), 2);
	expect_answer(far[1], SERIAL, 0);
}

static void a_share_that_was_not(void **state)
{
	dev_t dev;

	(void)state;
	NEED_MOUNTS();
	dev = make_mount(point[0]);
	load(peers[0], "own", dev, 0, 0, MOUNTER_HELLO, 0);
	load(peers[1], "none", 0, 0, dev, MOUNTER_SHARE, 1);
	mounter_host_renew(host);
	assert_int_equal(mounter_peer_point(peers[1]), MOUNTER_NONE);
	assert_int_equal(mounter_peer_points(peers[0]), 1);
	expect_answer(far[1], 0, -ECONNRESET);
}

/* The mount point shows the new superblock: what is known of the old one would be forgotten. */
static void a_switch_that_was_done(void **state)
{
	dev_t new;

	(void)state;
	NEED_MOUNTS();
	new = make_mount(point[0]);
	load(peers[0], "own", 4321, 4321, new, MOUNTER_SWITCH, 1);
	mounter_host_renew(host);
	assert_int_equal(superblock_of_server(&host->superblocks, 1)->point_dev, new);
	mounter_peer_look(peers[0], NULL);
	assert_int_equal(mounter_peer_point(peers[0]), MOUNTER_OWN);
	expect_answer(far[0], SERIAL, 0);
}

static void a_switch_that_was_not(void **state)
{
	dev_t old;

	(void)state;
	NEED_MOUNTS();
	old = make_mount(point[0]);
	load(peers[0], "own", old, old, 4321, MOUNTER_SWITCH, 1);
	mounter_host_renew(host);
	assert_int_equal(superblock_of_server(&host->superblocks, 1)->point_dev, old);
	mounter_peer_look(peers[0], NULL);
	assert_int_equal(mounter_peer_point(peers[0]), MOUNTER_OWN);
	expect_answer(far[0], 0, -ECONNRESET);
}

/* What is at its mount point after it was detached is another's, which may have the same st_dev. */
static void what_is_another_s_stays(void **state)
{
	struct mounter_unmounted done;
	struct err e = ERR_INIT;
	dev_t dev;

	(void)state;
	NEED_MOUNTS();
	dev = make_mount(point[0]);
	load(peers[0], "detached", 0, 0, 0, MOUNTER_HELLO, 0);
	assert_int_equal(mounter_peer_unmount(peers[0], UNMOUNT_LAZY, -1, -1, &done, &e), -ENOENT);
	assert_int_equal(dev_of(point[0]), dev);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(written_before_and_after),
		TEST(not_done_unless_written),
		TEST(an_attach_that_was_done),
		TEST(an_attach_that_was_not),
		TEST(a_replacement_that_nobody_serves),
		TEST(a_replacement_that_is_shown),
		TEST(a_share_that_was_done),
		TEST(a_share_that_was_not),
		TEST(a_switch_that_was_done),
		TEST(a_switch_that_was_not),
		TEST(what_is_another_s_stays),
	};

	may_mount =
		unshare(CLONE_NEWNS) == 0 && mount(NULL, "/", NULL, MS_PRIVATE | MS_REC, NULL) == 0;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
