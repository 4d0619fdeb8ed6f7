/*
 * cachectl umount: asks the mount's own daemon, which knows the right order; when there is no
 * daemon to ask, cuts the FUSE connection and detaches the mount, so that it always comes off.
 */
#include "admin/admin.h"
#include "base/child.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/detach.h"
#include "base/mount_table.h"
#include "base/option.h"
#include "ctl/command.h"
#include "ctl/fleet.h"
#include "ctl/kernel.h"
#include "ctl/mount_point.h"
#include "ctl/revive.h"
#include "ctl/service.h"
#include "ctl/target.h"
#include "ctl/yaml_out.h"

#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/pidfd.h>
#include <unistd.h>

#define ASK_NS     (40 * CLOCK_SECOND) /* the daemon gives readers 10 s, then cuts them off */
#define DOWN_NS    (10 * CLOCK_SECOND) /* a daemon that is being started again */
#define DETACH_NS  (10 * CLOCK_SECOND)
#define SERVICE_NS (2 * CLOCK_SECOND)
#define END_MS     10000 /* from a signal to SIGKILL */

struct umount_options {
	bool force;
	bool all;
	const char *output;
};

static const struct option_spec specs[] = {
	OPTION_BOOL_ROW(struct umount_options, force, "force",
		"Unmount although it is busy: readers get EIO (default: no)"),
	OPTION_BOOL_ROW(struct umount_options, all, "all",
		"Unmount all mounts of the service (root), or all of yours (default: no)"),
	OUTPUT_OPTION_ROW(struct umount_options, output, OUTPUT_CHOICES),
};

static const struct option_set set = {
	.program = "cachectl umount",
	.exits = { EXIT_MOUNTPOINT, EXIT_KERNEL, EXIT_BUSY },
	.arguments = "[NAME|URL|DIR]",
	.about = "Unmounts DIR, or the only mount of a dataset or a source on this host. When it "
		 "is busy, the "
		 "exit\nstatus is 7, and the processes that use it are listed.",
	.specs = specs,
	.n = ARRAY_SIZE(specs),
	.max_args = 1,
};

/* ---- without a daemon ------------------------------------------------------------------------ */

/* Signals process `pid` if it runs `program`, a path or "/NAME", and waits for its end. */
static void end_process(pid_t pid, const char *program, int signal)
{
	_cleanup_close_ int fd = pid > 0 ? pidfd_open(pid, 0) : -1;
	struct pollfd p = { .fd = fd, .events = POLLIN };

	if (fd < 0 || !child_process_is(pid, program)) /* the number was used again */
		return;
	(void)pidfd_send_signal(fd, signal, NULL, 0); /* gone already: fine */
	if (poll(&p, 1, END_MS) == 0)
		(void)pidfd_send_signal(fd, SIGKILL, NULL, 0); /* gone already: fine */
}

/* A daemon that does not answer must not answer later either: its mount is gone then. */
static int cut_off(const struct mount_entry *entry, const char *point,
	const struct fleet_mount *mount, bool force, struct err *e)
{
	bool lazy = force || mount;

	if (mount && !mount->shared) { /* else others want it */
		detach_cut_connection(mount->pid);
		end_process(mount->pid, "/cachefuse", SIGKILL);
	}
	if (!mount && force && strncmp(entry->type, "fuse", 4) == 0)
		detach_abort(
			entry->dev_minor); /* whose daemon is not ours to ask: it ends by that */
	return detach_mount(point, lazy, e);
}

/* ---- with one -------------------------------------------------------------------------------- */

static bool gone(const char *point)
{
	struct mount_entry entry;

	return mount_table_find(point, &entry) == -ENOENT;
}

/* Somebody is there who starts a daemon again. */
static bool is_kept(const char *run)
{
	return fleet_alive(run, "supervisor.sock") || fleet_alive(run, "keeper.sock");
}

/* 0, -EBUSY with its line, or -ENODEV: nobody to ask. */
static int ask_daemon(const struct fleet_mount *mount, bool force, struct err *e)
{
	uint64_t deadline = clock_mono_ns() + DOWN_NS;
	json_t *body =
		json_pack("{s:b, s:s}", "force", (int)force, "mountpoint", mount->mountpoint);
	int r;

	for (;;) {
		json_t *answer = NULL;

		r = admin_call(mount->socket, "POST", "/v1/unmount", body, ASK_NS, &answer, e);
		json_decref(answer);
		if (!fleet_unreachable(r))
			break;
		if (gone(mount->mountpoint)) { /* it ended before its answer was out */
			r = 0;
			break;
		}
		r = -ENODEV;
		if (!is_kept(mount->run) || clock_mono_ns() > deadline)
			break; /* nobody starts it again */
		clock_sleep_ns(50 * CLOCK_MS);
	}
	json_decref(body);
	return r == -ETIMEDOUT ? -ENODEV : r;
}

/* Starts a keeper where there is none. False: its daemons will not come to serve, as there is no
 * master, nor anybody who starts one. */
static bool revive(const char *run, struct err *e)
{
	if (is_kept(run))
		return true;
	if (revive_keeper(run) == 0)
		return fleet_alive(run, "master.sock");
	*e = ERR_INIT; /* nothing to adopt: its daemon is dead too, and is cut off */
	return true;
}

/* ---- afterwards ------------------------------------------------------------------------------ */

/* Neither supervisor nor keeper: whoever takes off the last mount ends what served it. */
static void end_orphans(const char *run)
{
	json_t *state = fleet_state(run);
	const json_t *mount;
	bool others = false;
	size_t i;

	json_array_foreach (json_object_get(state, "mounts"), i, mount) {
		const char *point = json_string_value(json_object_get(mount, "mountpoint"));

		others |= point && !gone(point);
	}
	if (state && !others) {
		end_process((pid_t)json_integer_value(json_object_get(state, "worker")),
			"/cacheworker", SIGTERM);
		end_process((pid_t)json_integer_value(json_object_get(state, "master")),
			"/cachemaster", SIGTERM);
		cache_dir_remove_run(run);
	}
	json_decref(state);
}

/* A service's keeper is its unit's to start, which takes a moment when it was killed. */
static int await_service(const char *run, struct err *e)
{
	uint64_t deadline = clock_mono_ns() + SERVICE_NS;

	while (!is_kept(run)) {
		if (clock_mono_ns() > deadline)
			return err_set(e, -ECONNREFUSED,
				"the keeper of this host's service does not run: systemctl start "
				"granary-keeper, or unmount with --force");
		clock_sleep_ns(20 * CLOCK_MS);
	}
	return 0;
}

/* An ordinary user's mount of the service: its keeper asks the daemon, or says whose it is. */
static int ask_keeper(const struct fleet_mount *mount, bool force, struct err *e)
{
	uint64_t deadline = clock_mono_ns() + DOWN_NS;
	char socket[SOCKET_PATH_MAX];
	json_t *body =
		json_pack("{s:b, s:s}", "force", (int)force, "mountpoint", mount->mountpoint);
	int r;

	if (service_path(mount->run, "keeper.sock", socket) < 0 || !body) {
		json_decref(body);
		return err_set(e, -ENOMEM, "out of memory");
	}
	while ((r = admin_call(socket, "POST", "/v1/unmount", body, ASK_NS, NULL, e)) == -EAGAIN ||
		fleet_unreachable(r)) {
		if (clock_mono_ns() > deadline)
			break;
		clock_sleep_ns(50 * CLOCK_MS);
	}
	json_decref(body);
	return r;
}

static int unmount_of_user(const struct fleet_mount *mount, bool force, struct err *e)
{
	uint64_t deadline = clock_mono_ns() + DETACH_NS;
	int r = ask_keeper(mount, force, e);

	if (r == -EPERM)
		return EXIT_KERNEL;
	if (r < 0 && !(r == -ENOENT && gone(mount->mountpoint)))
		return r == -EBUSY ? EXIT_BUSY : EXIT_RUNTIME;
	while (!gone(mount->mountpoint) && clock_mono_ns() < deadline)
		clock_sleep_ns(5 * CLOCK_MS);
	fleet_settle(mount->run, mount->mountpoint);
	return EXIT_OK;
}

static int unmount(const char *point, const struct umount_options *options, struct err *e)
{
	struct fleet_mount mount;
	struct mount_entry entry = { 0 };
	uint64_t deadline;
	char as[64];
	bool known = fleet_find(point, false, &mount) == 0;
	bool mounted = mount_table_find(point, &entry) == 0;
	bool service;
	int r = -ENODEV;

	if (!known && !mounted && mount_table_find_above(point, &entry) == 0) {
		(void)err_set(e, -EINVAL,
			"%s is not a mount point, but a path below %s: run `cachectl "
			"umount %s`",
			point, entry.point, entry.point);
		return EXIT_MOUNTPOINT;
	}
	if (!known && (!mounted || !mount_entry_ours(&entry))) {
		(void)err_set(e, -EINVAL, "%s is not a mount of Granary: %s", point,
			mounted ? "use umount" : "see `cachectl status`");
		return EXIT_MOUNTPOINT;
	}
	if (!known && entry.user != geteuid() && !kernel_may_mount()) {
		(void)err_set(e, -EPERM, "%s is a mount of user %u: run %s umount %s", point,
			entry.user, command_as_user(entry.user, as, sizeof(as)), point);
		return EXIT_KERNEL;
	}
	service = known && service_is_run(mount.run);
	if (service && geteuid() != 0)
		return unmount_of_user(&mount, options->force, e);
	if (service && !options->force && await_service(mount.run, e) < 0)
		return EXIT_RUNTIME;
	if (known && (service || revive(mount.run, e)))
		r = ask_daemon(&mount, options->force, e);
	if (r == -EBUSY)
		return EXIT_BUSY;
	if (r < 0 && r != -ENODEV && !options->force)
		return EXIT_RUNTIME;
	if (r < 0 && mount_table_find_cover(point, 0, &entry) == 0)
		r = detach_covered(point, &entry, e);
	else if (r < 0)
		r = cut_off(&entry, point, known ? &mount : NULL, options->force, e);
	if (r < 0)
		return r == -EBUSY ? EXIT_BUSY : r == -EPERM ? EXIT_KERNEL : EXIT_RUNTIME;
	deadline = clock_mono_ns() + DETACH_NS;
	while (!gone(point) && clock_mono_ns() < deadline)
		clock_sleep_ns(5 * CLOCK_MS);
	if (known && is_kept(mount.run))
		fleet_settle(mount.run, point);
	if (known && !service && !is_kept(mount.run))
		end_orphans(mount.run);
	return EXIT_OK;
}

/* Nothing for people: what is there is said by cachectl status. Releases what it is given. */
static int answer(const char *format, json_t *off, json_t *failed)
{
	if (!output_is_table(format))
		return yaml_out_made(
			format, json_pack("{s:o, s:o}", "unmounted", off, "failed", failed));
	json_decref(off);
	json_decref(failed);
	return EXIT_OK;
}

/* A shell's directory and its descriptors are inherited: without this, this process would keep the
 * mount busy, and be named as who does. */
static void leave_mount(void)
{
	if (chdir("/") != 0)
		return;                               /* busy, then: which is said */
	(void)close_range(STDERR_FILENO + 1, ~0u, 0); /* none of them is ours */
}

/* ---- all of them ----------------------------------------------------------------------------- */

struct points {
	json_t *list;
	bool service; /* only its */
};

/* Of an ordinary user: what it mounted. */
static bool is_mine(const char *run, const json_t *mount)
{
	const json_t *owner = json_object_get(mount, "owner");

	return geteuid() == 0 || !service_is_run(run) ||
	       (owner && (uid_t)json_integer_value(owner) == geteuid());
}

static int collect(void *arg, const char *run)
{
	struct points *points = arg;
	json_t *state = NULL;
	const json_t *mount;
	size_t i;

	if (points->service && !service_is_run(run))
		return 0;
	state = fleet_state(run);
	json_array_foreach (json_object_get(state, "mounts"), i, mount) {
		json_t *point = json_object_get(mount, "mountpoint");

		if (point && !fleet_detached(mount) && is_mine(run, mount) &&
			json_array_append(points->list, point) != 0) {
			json_decref(state);
			return -ENOMEM;
		}
	}
	json_decref(state);
	return 0;
}

/* Each as if it were named; the first failure's status, after a line for each. */
static int unmount_all(const struct umount_options *options)
{
	struct points points = { .list = json_array(),
		.service = geteuid() == 0 && service_there() };
	uint64_t failures = admin_json_failures();
	json_t *off = json_array();
	json_t *failed = json_array();
	struct err e = ERR_INIT;
	json_t *point;
	int status = EXIT_OK;
	int said;
	int r = points.list ? fleet_each_run(collect, &points) : -ENOMEM;
	size_t i;

	if (r < 0) {
		(void)err_set(&e, r, "the mounts cannot be listed: %s", err_str(r));
		status = command_fail(EXIT_RUNTIME, &e);
	}
	json_array_foreach (points.list, i, point) {
		struct err why = ERR_INIT;
		int one = unmount(json_string_value(point), options, &why);

		if (one != EXIT_OK)
			(void)command_fail(one, &why); /* returns it */
		status = status == EXIT_OK ? one : status;
		if (one == EXIT_OK)
			(void)json_array_append(off, point); /* counted */
		else
			(void)json_array_append_new(failed,
				json_pack("{s:O, s:i, s:o}", "mountpoint", point, "exit", one,
					"error", admin_json_string(why.text))); /* counted */
	}
	json_decref(points.list);
	if (admin_json_failures() != failures) {
		json_decref(off);
		off = NULL; /* which is said */
	}
	said = answer(options->output, off, failed);
	return status == EXIT_OK ? said : status;
}

/* The mount point that `word` means: also one that only the kernel knows. An exit status. */
static int find_point(const char *word, char out[PATH_MAX], struct err *e)
{
	const struct master_where nowhere = { 0 };
	enum target_kind kind = target_kind(word);
	struct mount_entry entry;
	struct fleet_mount mount;
	struct err no_path = ERR_INIT;
	int status;
	int r = kind == TARGET_URL ? -EINVAL : mount_point_path(word, out, &no_path);

	if (r == 0 && (kind == TARGET_DIR || mount_table_find(out, &entry) == 0 ||
			      fleet_find(out, false, &mount) == 0))
		return EXIT_OK;
	if (kind == TARGET_DIR) {
		*e = no_path;
		return EXIT_MOUNTPOINT;
	}
	status = target_mount(&nowhere, word, &mount, e);
	if (status == EXIT_OK)
		memcpy(out, mount.mountpoint, sizeof(mount.mountpoint));
	return status;
}

int command_umount(int argc, char **argv)
{
	struct umount_options options = { .output = "table" };
	char point[PATH_MAX];
	struct err e = ERR_INIT;
	int args = option_parse_or_exit(&set, argc, argv, &options);
	int status;

	if ((args == 1) == options.all) {
		(void)err_set(
			&e, -EINVAL, "an argument is missing: give NAME, URL or DIR, or --all");
		return command_fail(EXIT_USAGE, &e);
	}
	if (options.all) {
		leave_mount();
		return unmount_all(&options);
	}
	status = find_point(argv[1], point, &e);
	if (status != EXIT_OK)
		return command_fail(status, &e);
	leave_mount();
	status = unmount(point, &options, &e);
	return status == EXIT_OK ? answer(options.output,
					   json_pack("[o]", admin_json_string(point)), json_array())
				 : command_fail(status, &e);
}
