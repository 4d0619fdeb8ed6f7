/*
 * The keeper without processes: how it shares out memory, and what it answers for a mount that has no
 * daemon. Its life with processes: tests/unit/keeper/test_keeper_daemons, tests/e2e/44-keeper.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/units.h"
#include "keeper/keeper.h"
#include "mount/kernel/kernel.h"
#include "keeper/points/mounter_internal.h"
#include "mount/request.h"
#include "mount/slots.h"

#define SLOTS 32

/* ---- memory ---------------------------------------------------------------------------------- */

static struct mount *add(struct keeper *k, enum mount_state state, uint64_t memory)
{
	struct mount *mount = calloc(1, sizeof(*mount));

	assert_non_null(mount);
	child_init(&mount->child, "mount");
	assert_int_equal(child_arg(&mount->child, "cachefuse"), 0);
	assert_int_equal(child_arg_number(&mount->child, "--memory", memory), 0);
	mount->state = state;
	mount->id = ++k->next_id;
	list_push_back(&k->mounts, &mount->link);
	return mount;
}

static void drop(struct mount *mount)
{
	mounter_peer_free(mount->peer);
	list_remove(&mount->link);
	child_release(&mount->child);
	free(mount);
}

/* Of a private cache: master, worker and mounts never have more together. */
static void a_private_cache_shares_its_memory(void **state)
{
	static const uint64_t given[] = { 128 * MiB, 192 * MiB, 1 * GiB, 64 * GiB };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(given); i++) {
		const struct keeper_config config = { .is_private = true,
			.private_memory = given[i],
			.memory = 1 * GiB,
			.cache = "/c",
			.run = "/r",
			.log_level = "info" };
		struct keeper k = { .config = &config, .alive_read_fd = -1 };
		uint64_t sum = keeper_daemons_rest(&config);
		struct err e = ERR_INIT;

		assert_true(sum >= given[i] / 4);
		keeper_daemons_init(&k);
		assert_int_equal(keeper_daemons_plan(&k, &e), 0);
		for (unsigned int d = 0; d < KEEPER_DAEMONS; d++)
			for (unsigned int a = 1; a < k.daemons[d].n_args; a++)
				if (strcmp(k.daemons[d].args[a - 1], "--memory") == 0)
					sum += strtoull(k.daemons[d].args[a], NULL, 10);
		assert_int_equal(sum, given[i]);
		keeper_daemons_release(&k);
	}
}

/* Its daemon is a process that has so many bytes of memory in use. */
static pid_t give_daemon(struct mount *mount, size_t bytes)
{
	int ready[2];
	char byte;
	pid_t pid;

	assert_int_equal(pipe(ready), 0);
	pid = fork();
	if (pid == 0) {
		void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

		if (p == MAP_FAILED || write(ready[1], "", 1) != 1)
			_exit(1);
		(void)pause();
		_exit(0);
	}
	assert_true(pid > 0);
	assert_int_equal(read(ready[0], &byte, 1), 1);
	close(ready[0]);
	close(ready[1]);
	assert_int_equal(child_adopt(&mount->child, pid, true), 0);
	return pid;
}

static void end_daemon(pid_t pid)
{
	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
}

static void drop_all_of(struct keeper *k)
{
	while (!list_empty(&k->mounts))
		drop(list_entry(k->mounts.next, struct mount, link));
}

/* Each gets a part of what is left, and never less than what it needs; those that use little are not in the way of others. */
static void maxima_shrink_as_mounts_come(void **state)
{
	const struct keeper_config config = { .memory = 384 * MiB };
	struct keeper k = { .config = &config };
	struct err e = ERR_INIT;
	uint64_t last = UINT64_MAX;
	uint64_t sum = 0;
	uint64_t bytes;

	(void)state;
	list_init(&k.mounts);
	for (unsigned int n = 0; n < 200; n++) {
		assert_int_equal(keeper_memory_mount(&k, &bytes, &e), 0);
		assert_in_range(bytes, 32 * MiB, last);
		if (n == 0)
			assert_int_equal(bytes, config.memory / 2);
		if (n < 6) {
			sum += bytes;
			assert_true(sum <= config.memory);
		}
		last = bytes;
		(void)add(&k, MOUNT_ACTIVE, bytes);
	}
	assert_int_equal(last, 32 * MiB);
	drop_all_of(&k);
	add(&k, MOUNT_GONE, 1 * GiB); /* counts no more */
	add(&k, MOUNT_FAILED, 1 * GiB);
	assert_int_equal(keeper_memory_mount(&k, &bytes, &e), 0);
	assert_int_equal(bytes, config.memory / 2);
	drop_all_of(&k);
}

static void what_is_used_is_not_promised_again(void **state)
{
	const struct keeper_config config = { .memory = 256 * MiB };
	struct keeper k = { .config = &config };
	struct err e = ERR_INIT;
	struct mount *large;
	struct mount *small;
	uint64_t bytes;
	pid_t pids[2];

	(void)state;
	list_init(&k.mounts);
	large = add(&k, MOUNT_ACTIVE, 128 * MiB);
	large->mountpoint = strdup("/large");
	small = add(&k, MOUNT_ACTIVE, 32 * MiB);
	small->mountpoint = strdup("/small");
	pids[0] = give_daemon(small, 16 * MiB);
	assert_int_equal(keeper_memory_mount(&k, &bytes, &e), 0);
	pids[1] = give_daemon(large, 240 * MiB);
	assert_int_equal(keeper_memory_mount(&k, &bytes, &e), -ENOSPC);
	assert_non_null(strstr(e.text, "2 mounts of this cache use 2"));
	assert_non_null(strstr(e.text, "of the 256MiB of memory"));
	assert_non_null(strstr(e.text, "/large: unmount one"));
	/* A newer generation comes all the same: that in whose place it comes goes. */
	assert_int_equal(keeper_memory_successor(&k, large, &bytes, &e), 0);
	assert_int_equal(bytes, 128 * MiB);
	end_daemon(pids[1]);
	assert_int_equal(keeper_memory_mount(&k, &bytes, &e), 0);
	end_daemon(pids[0]);
	free(large->mountpoint);
	free(small->mountpoint);
	drop_all_of(&k);
}

/* But older generations that open files keep may not take any amount. */
static void generations_with_open_files_are_bounded(void **state)
{
	const struct keeper_config config = { .memory = 48 * MiB };
	struct keeper k = { .config = &config };
	struct err e = ERR_INIT;
	struct mount *shown;
	uint64_t bytes;
	pid_t pid;

	(void)state;
	list_init(&k.mounts);
	shown = add(&k, MOUNT_ACTIVE, 48 * MiB);
	assert_int_equal(keeper_memory_successor(&k, shown, &bytes, &e), 0);
	pid = give_daemon(shown, 128 * MiB);
	assert_int_equal(keeper_memory_successor(&k, shown, &bytes, &e), -ENOSPC);
	assert_non_null(strstr(e.text, "open files: close these files"));
	end_daemon(pid);
	assert_int_equal(keeper_memory_successor(&k, shown, &bytes, &e), 0);
	drop_all_of(&k);
}

static struct mounter_host *host;

/* `point`: of its daemon; `serves`: mount points show it, its own when it is not detached there. */
static void put(struct mount *mount, const char *mountpoint, const char *point, unsigned int server,
	bool serves)
{
	const struct mounter_peer_config config = { .id = mount->id,
		.mountpoint = mountpoint,
		.admin = "",
		.image_dir = "",
		.socket = -1,
		.fuse_fd = -1 };
	json_t *saved = json_pack("{s:s, s:i}", "point", point, "server", (int)server);

	assert_non_null(saved);
	if (serves)
		assert_int_equal(json_object_set_new(saved, "superblock",
					 json_pack("{s:s, s:i, s:i}", "key", mountpoint,
						 "point_dev", (int)mount->id, "fuse_dev", 0)),
			0);
	mounter_peer_free(mount->peer);
	assert_int_equal(mounter_peer_new(host, &config, &mount->peer), 0);
	mounter_peer_load(mount->peer, saved);
	json_decref(saved);
}

/* ---- mounts that follow ---------------------------------------------------------------------- */

static struct mount *add_point(
	struct keeper *k, const char *mountpoint, const struct mount *server, bool owned)
{
	struct mount *mount = add(k, MOUNT_ACTIVE, 32 * MiB);

	mount->mountpoint = strdup(mountpoint);
	mount->source = strdup("s3://bucket/");
	mount->owned = owned;
	mount->fds = (struct mount_fds){ -1, -1, -1, -1, -1 };
	mount->point_fd = -1;
	assert_true(mount->mountpoint && mount->source);
	put(mount, mountpoint, server ? "shared" : "own", server ? server->id : mount->id, !server);
	return mount;
}

/* As when its daemon was refused. */
static void add_failure(struct keeper *k, const char *mountpoint)
{
	struct mount *mount = add(k, MOUNT_FAILED, 0);

	mount->mountpoint = strdup(mountpoint);
	mount->fds = (struct mount_fds){ -1, -1, -1, -1, -1 };
	mount->point_fd = -1;
	assert_non_null(mount->mountpoint);
	put(mount, mountpoint, "none", mount->id, false);
	(void)err_set(&mount->failure, -EPERM, "refused at %s", mountpoint);
}

static void drop_followers(struct keeper *k)
{
	while (!list_empty(&k->mounts)) {
		struct mount *mount = list_entry(k->mounts.next, struct mount, link);

		list_remove(&mount->link);
		mount_free(mount);
	}
	mounter_host_free(host);
}

/* A user whom the dataset does not allow any more comes first, and delays no other: root's mount moves on, then another user's. */
static void a_point_that_fails_keeps_no_other_back(void **state)
{
	char dir[] = "/tmp/keeper-XXXXXX";
	const struct keeper_config own = {
		.memory = 4 * GiB, .run = dir, .cache = dir, .user_mounts = 16
	};
	struct keeper k = { .config = &own, .alive_fd = -1 };
	const char *const points[] = { "/refused", "/root", "/other" };
	struct mount *server;
	char command[64];

	(void)state;
	if (!kernel_may_mount() || !kernel_may_attach_beneath())
		skip();
	assert_non_null(mkdtemp(dir));
	list_init(&k.mounts);
	assert_int_equal(mounter_host_new(-1, &host), 0);
	k.host = host;
	server = add_point(&k, points[0], NULL, true);
	(void)add_point(&k, points[2], server, true);
	(void)add_point(&k, points[1], server, false);
	add_failure(&k, points[0]);
	k.next_id++;
	for (int i = 1; i < 3; i++) {
		struct mount *next;

		server->peer->newer = true;
		keeper_follow_look(&k);
		assert_true(server->peer->newer); /* not answered: one is on its way */
		next = keeper_coming(&k, points[i]);
		assert_non_null(next);
		keeper_follow_look(&k); /* one at a time */
		assert_ptr_equal(list_entry(k.mounts.prev, struct mount, link), next);
		mount_set_state_locked(next, MOUNT_FAILED);
		(void)err_set(&next->failure, -EIO, "failed at %s", points[i]);
	}
	keeper_follow_look(&k);
	assert_false(server->peer->newer);
	assert_string_equal(server->peer->newer_why, "failed at /root");
	drop_followers(&k);
	(void)snprintf(command, sizeof(command), "rm -rf %s", dir);
	assert_int_equal(system(command), 0);
}

/* Users' generations with open files leave root its places. */
static void a_refresh_of_a_user_leaves_root_its_places(void **state)
{
	const struct keeper_config own = { .memory = 4 * GiB, .user_mounts = 16 };
	struct keeper k = { .config = &own, .alive_fd = -1 };
	struct mount *next = NULL;
	char text[64];
	struct err e = ERR_INIT;

	(void)state;
	if (!kernel_may_mount() || !kernel_may_attach_beneath())
		skip();
	list_init(&k.mounts);
	assert_int_equal(mounter_host_new(-1, &host), 0);
	k.host = host;
	for (unsigned int i = 0; i < KEEPER_MOUNTS - KEEPER_RESERVED; i++)
		(void)add_point(&k, i == 0 ? "/shown" : "/other", NULL, true);
	assert_int_equal(keeper_refresh_locked(&k, "/shown", 0, false, &next, &e), -ENOSPC);
	assert_true(snprintf(text, sizeof(text), "users of this host have %u mounts",
			    KEEPER_MOUNTS - KEEPER_RESERVED) > 0);
	assert_non_null(strstr(e.text, text));
	assert_null(next);
	drop_followers(&k);
}

/* That of a private cache does not leave a mount without a daemon: no other process has its connection. */
static void a_keeper_stays_for_a_mount_that_is_down(void **state)
{
	const struct keeper_config own = { .memory = 4 * GiB, .is_private = true };
	struct keeper k = { .config = &own, .alive_fd = -1, .ending = true, .leave_ns = 1 };
	struct mount *down;

	(void)state;
	list_init(&k.mounts);
	assert_int_equal(mounter_host_new(-1, &host), 0);
	k.host = host;
	down = add_point(&k, "/shown", NULL, false);
	down->started = true;
	down->child.served = true;
	down->child.state = CHILD_WAITING;
	assert_false(keeper_may_leave(&k, true)); /* its time is over */
	assert_false(k.ending);
	assert_int_equal(k.leave_ns, 0);
	down->child.state = CHILD_SERVING;
	keeper_leave_locked(&k);
	assert_true(keeper_may_leave(&k, true));
	assert_false(
		keeper_may_leave(&k, false)); /* nor one that the next keeper would not know of */
	assert_true(k.ending);
	k.leave_ns = 1;
	assert_false(keeper_may_leave(&k, false));
	assert_false(k.ending); /* mounts are made again */
	down->child.state = CHILD_STOPPED;
	drop_followers(&k);
}

/* ---- without a daemon ------------------------------------------------------------------------ */

static struct keeper_config config = { .dead_after_ns = CLOCK_SECOND };
static struct keeper keeper = { .config = &config };
static struct mount mount;
static int kernel;

static struct fuse_in_header header(uint64_t unique, uint32_t opcode)
{
	return (struct fuse_in_header){ .len = sizeof(struct fuse_in_header),
		.opcode = opcode,
		.unique = unique,
		.nodeid = 1 };
}

static void ask(uint64_t unique, uint32_t opcode)
{
	const struct fuse_in_header head = header(unique, opcode);

	assert_int_equal(write(kernel, &head, sizeof(head)), sizeof(head));
}

/* The unique of the next answer, which must be EIO; 0: there is none. */
static uint64_t hear(void)
{
	struct pollfd p = { .fd = kernel, .events = POLLIN };
	struct fuse_out_header head;

	if (poll(&p, 1, 0) != 1)
		return 0;
	assert_int_equal(read(kernel, &head, sizeof(head)), sizeof(head));
	assert_int_equal(head.len, sizeof(head));
	assert_int_equal(head.error, -EIO);
	return head.unique;
}

/* A mount whose daemon has died with requests in these slots. */
static int setup(void **state)
{
	struct slots *slots = NULL;
	struct err e = ERR_INIT;
	int pair[2];

	(void)state;
	memset(&mount, 0, sizeof(mount));
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	kernel = pair[0];
	child_init(&mount.child, "mount");
	mount.child.served = true;
	mount.child.state = CHILD_WAITING;
	mount.mountpoint = strdup("/nowhere");
	mount.fds.fuse = pair[1];
	mount.fds.slots = memfd_create("test-slots", MFD_CLOEXEC);
	assert_int_equal(
		ftruncate(mount.fds.slots, SLOTS_HEAD_BYTES + (off_t)SLOTS * SLOT_BYTES), 0);
	assert_int_equal(slots_open(mount.fds.slots, &slots, &e), 0);
	slots_set_phase(slots, SLOTS_MOUNTED);
	for (uint64_t unique = 2; unique <= 8; unique += 2) {
		const struct fuse_in_header head =
			header(unique, unique == 8 ? FUSE_FORGET : FUSE_READ);
		uint32_t slot = 0;

		assert_int_equal(slots_take(slots, &slot), 0);
		memcpy(slot_data(slots, slot), &head, sizeof(head));
	}
	slots_free(slots);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	child_release(&mount.child);
	free(mount.mountpoint);
	close(mount.fds.fuse);
	close(mount.fds.slots);
	close(kernel);
	return 0;
}

/* As if it had none for so long. */
static void be_dead_since(uint64_t ns)
{
	mount.dead_since = clock_mono_ns() - ns;
	mount_look_dead(&keeper, &mount);
}

static void what_waits_is_refused_late(void **state)
{
	uint64_t heard = 0;

	(void)state;
	mount_look_dead(&keeper, &mount);
	assert_true(mount.dead_since > 0 && mount_dead_due(&keeper, &mount) > 0);
	assert_false(mount.dead);
	be_dead_since(CLOCK_SECOND / 2);
	assert_int_equal(hear(), 0);
	be_dead_since(CLOCK_SECOND);
	assert_true(mount.dead);
	for (int i = 0; i < 3; i++)
		heard |= 1ull << hear();
	assert_int_equal(heard, 1ull << 2 | 1ull << 4 | 1ull << 6);
	assert_int_equal(hear(), 0); /* nobody waits for an answer to a FORGET */
	mount_look_dead(&keeper, &mount);
	assert_int_equal(hear(), 0); /* once */
	assert_int_equal(mount.refused, 3);
}

static void what_comes_is_refused(void **state)
{
	(void)state;
	be_dead_since(CLOCK_SECOND);
	while (hear())
		;
	ask(100, FUSE_LOOKUP);
	ask(102, FUSE_FORGET);
	ask(104, FUSE_READ);
	ask(107, FUSE_INTERRUPT);
	mount_refuse(&mount);
	assert_int_equal(hear(), 100);
	assert_int_equal(hear(), 104);
	assert_int_equal(hear(), 0);
	assert_false(mount.lost);
	mount.child.state = CHILD_SERVING;
	mount_look_dead(&keeper, &mount);
	assert_false(mount.dead);
	assert_int_equal(mount_dead_due(&keeper, &mount), 0);
}

/* A keeper was killed between the read and the answer. */
static void what_a_keeper_died_over_is_refused(void **state)
{
	const struct fuse_in_header head = header(200, FUSE_READ);

	(void)state;
	assert_int_equal(
		pwrite(mount.fds.slots, &head, sizeof(head), SLOTS_SPARE_BYTE), sizeof(head));
	mount_refuse_spare(&mount);
	assert_int_equal(hear(), 200);
	mount_refuse_spare(&mount);
	assert_int_equal(hear(), 0);
}

static void a_lost_connection_is_left(void **state)
{
	(void)state;
	be_dead_since(CLOCK_SECOND);
	close(kernel);
	kernel = -1;
	mount_refuse(&mount);
	assert_true(mount.lost);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_private_cache_shares_its_memory),
		cmocka_unit_test(maxima_shrink_as_mounts_come),
		cmocka_unit_test(what_is_used_is_not_promised_again),
		cmocka_unit_test(generations_with_open_files_are_bounded),
		cmocka_unit_test(a_point_that_fails_keeps_no_other_back),
		cmocka_unit_test(a_refresh_of_a_user_leaves_root_its_places),
		cmocka_unit_test(a_keeper_stays_for_a_mount_that_is_down),
		cmocka_unit_test_setup_teardown(what_waits_is_refused_late, setup, teardown),
		cmocka_unit_test_setup_teardown(what_comes_is_refused, setup, teardown),
		cmocka_unit_test_setup_teardown(
			what_a_keeper_died_over_is_refused, setup, teardown),
		cmocka_unit_test_setup_teardown(a_lost_connection_is_left, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
