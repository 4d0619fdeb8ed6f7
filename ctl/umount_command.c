/*
 * cachectl umount: asks the mount's keeper, and starts one where it died. What no keeper knows any more is dead: it is detached
 * here.
 */
#include "admin/admin.h"
#include "base/child.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/detach.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mount_table.h"
#include "base/option.h"
#include "ctl/command.h"
#include "ctl/fleet.h"
#include "ctl/kernel.h"
#include "ctl/mount_point.h"
#include "ctl/keeper_start.h"
#include "ctl/service.h"
#include "ctl/target.h"
#include "ctl/yaml_out.h"

#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/pidfd.h>
#include <unistd.h>

#define ASK_NS     (40 * CLOCK_SECOND) /* the keeper waits 10 s for the kernel, twice */
#define DOWN_NS    (10 * CLOCK_SECOND) /* a keeper that is being started again */
#define WAIT_NS    (50 * CLOCK_MS)     /* between questions whether it is still in use */
#define DETACH_NS  (10 * CLOCK_SECOND)
#define SERVICE_NS (2 * CLOCK_SECOND)
#define END_MS     10000 /* from a signal to SIGKILL */

struct umount_options {
	bool lazy;
	bool force;
	bool wait;
	bool all;
	const char *output;
};

static const struct option_spec specs[] = {
	OPTION_BOOL_ROW(struct umount_options, lazy, "lazy",
		"Unmount although it is busy: open files stay readable (default: no)"),
	OPTION_BOOL_ROW(struct umount_options, force, "force",
		"Unmount although it is busy: readers get EIO, also elsewhere (default: no)"),
	OPTION_BOOL_ROW(struct umount_options, wait, "wait",
		"Wait until nothing uses it elsewhere: a bind mount, another mount namespace, an "
		"open file (default: no)"),
	OPTION_BOOL_ROW(struct umount_options, all, "all",
		"Unmount all mounts of the service (root), or all of yours (default: no)"),
	OUTPUT_OPTION_ROW(struct umount_options, output, OUTPUT_CHOICES),
};

static const struct option_set set = {
	.program = "cachectl umount",
	.exits = { EXIT_MOUNTPOINT, EXIT_KERNEL, EXIT_BUSY },
	.arguments = "[NAME|URL|DIR]",
	.about = "Unmounts DIR, or the only mount of a dataset or a source on this host. When it "
		 "is busy, the exit\nstatus is 7, and the processes that use it are listed. Bind "
		 "mounts of it, other mount\nnamespaces and, with --lazy, open files stay readable "
		 "until they end.",
	.specs = specs,
	.n = ARRAY_SIZE(specs),
	.max_args = 1,
};

/* ---- without a daemon ------------------------------------------------------------------------ */

/* Readers get an error, and the daemon ends. False: it serves other mount points, too. */
static bool cut_readers(const struct fleet_mount *mount)
{
	if (mount->shared || !child_process_is(mount->pid, "/cachefuse", mount->started))
		return false;
	detach_cut_connection(mount->pid);
	return true;
}

/* No keeper knows it, nor could one serve it: it is dead, or another program's. */
static int detach_dead(const struct mount_entry *entry, const char *point,
	const struct fleet_mount *mount, bool lazy, bool force, struct err *e)
{
	struct mount_entry top;

	if (mount_table_find_cover(point, 0, &top) == 0)
		return detach_covered(point, &top, e);
	if (force && !(mount && cut_readers(mount)) && strncmp(entry->type, "fuse", 4) == 0)
		detach_abort(entry->dev_minor);
	return detach_mount(point, lazy || force, e);
}

/* ---- with a keeper --------------------------------------------------------------------------- */

static bool gone(const char *point)
{
	struct mount_entry entry;

	return mount_table_find(point, &entry) == -ENOENT;
}

/* A keeper serves. */
static bool is_kept(const char *run)
{
	return fleet_alive(run, "keeper.sock");
}

/* The keeper's answer. */
struct unmounted {
	bool in_use;
	bool ending;
	unsigned int server; /* id of the mount whose daemon serves it; 0: not known */
	pid_t keeper;
	char users[512];
};

static void read_answer(const json_t *answer, struct unmounted *ret)
{
	const char *users = json_string_value(json_object_get(answer, "users"));

	ret->in_use = json_is_true(json_object_get(answer, "in_use"));
	ret->ending = json_is_true(json_object_get(answer, "ending"));
	ret->server = (unsigned int)json_integer_value(json_object_get(answer, "server"));
	ret->keeper = (pid_t)json_integer_value(json_object_get(answer, "pid"));
	(void)snprintf(ret->users, sizeof(ret->users), "%s", users ? users : ""); /* cut */
}

static const char *mode_of(const struct umount_options *options)
{
	return options->force ? "force" : options->lazy ? "lazy" : "normal";
}

/* One request. -ENODEV: no keeper answers, nor does one start. */
static int ask_run(const char *run, const char *point, const struct umount_options *options,
	struct unmounted *ret, struct err *e)
{
	bool service = service_is_run(run);
	uint64_t deadline = clock_mono_ns() + (service && options->force ? SERVICE_NS : DOWN_NS);
	char socket[SOCKET_PATH_MAX];
	json_t *body = json_pack("{s:s, s:s}", "mode", mode_of(options), "mountpoint", point);
	bool revived = service; /* its unit starts it */
	json_t *answer = NULL;
	int r = service_path(run, "keeper.sock", socket);

	if (r < 0 || !body) {
		json_decref(body);
		return err_set(e, -ENOMEM, "out of memory");
	}
	keeper_end_hung(run);
	for (;;) {
		r = admin_call(socket, "POST", "/v1/unmount", body, ASK_NS, &answer, e);
		if (r != -EAGAIN && !fleet_unreachable(r) && r != -ENOENT)
			break;
		if (r == -ENOENT && fleet_alive(run, "keeper.sock"))
			break; /* its answer; else there is no socket */
		if (!revived && !is_kept(run)) {
			int started = keeper_revive(run);

			revived = started != -EBUSY; /* another command starts it, or it ends */
			if (started == 0)
				continue;
		}
		if ((revived && !service && !is_kept(run)) || clock_mono_ns() > deadline) {
			r = r == -EAGAIN ? r : -ENODEV;
			break;
		}
		clock_sleep_ns(20 * CLOCK_MS);
	}
	json_decref(body);
	if (r == 0)
		read_answer(answer, ret);
	json_decref(answer);
	return r;
}

/* ---- of a run that is not known -------------------------------------------------------------- */

struct asking {
	const char *point;
	const struct umount_options *options;
	struct unmounted *done;
	struct fleet_mount *mount;
	struct err *e;
};

/* A mount that was moved is known to its keeper alone. */
static int ask_one(void *arg, const char *run)
{
	struct asking *a = arg;
	int r;

	if (!fleet_alive(run, "keeper.sock"))
		return 0;
	r = ask_run(run, a->point, a->options, a->done, a->e);
	if (r == -ENOENT || r == -ENODEV || r == -EPERM)
		return 0;                                                /* another's */
	(void)snprintf(a->mount->run, sizeof(a->mount->run), "%s", run); /* fits */
	return r == 0 ? -EEXIST : r;
}

static int ask_all(const char *point, const struct umount_options *options, struct unmounted *ret,
	struct fleet_mount *mount, struct err *e)
{
	struct err why = ERR_INIT;
	struct asking asking = { point, options, ret, mount, &why };
	int r = fleet_each_run(ask_one, &asking);

	if (r == -EEXIST)
		return 0;
	if (r < 0)
		*e = why;
	return r < 0 ? r : -ENODEV;
}

/* ---- afterwards ------------------------------------------------------------------------------ */

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

/* Until the daemon that serves it has ended: nothing has a mount or an open file of it any more. */
static void await_end(const char *run, unsigned int server)
{
	char path[48];
	struct err e = ERR_INIT;
	json_t *row = NULL;
	int r;

	(void)snprintf(path, sizeof(path), "/v1/mount?id=%u", server); /* fits */
	while ((r = fleet_call(run, "keeper.sock", path, &row, &e)) != -ENOENT &&
		(r == 0 || is_kept(run))) {
		json_decref(row);
		row = NULL;
		e = ERR_INIT;
		clock_sleep_ns(WAIT_NS);
	}
}

/* True once the process that a row of keeper.json names has ended: at once where it is not one of ours. `number` 0: it ends by itself. */
static bool await_process(const json_t *row, const char *name, const char *program, int number)
{
	pid_t pid = (pid_t)json_integer_value(json_object_get(row, name));
	uint64_t started = (uint64_t)json_integer_value(json_object_get(row, "started"));
	_cleanup_close_ int fd = pid > 0 ? pidfd_open(pid, 0) : -1;
	struct pollfd p = { .fd = fd, .events = POLLIN };

	if (fd < 0 || !child_process_is(pid, program, started))
		return true;
	if (number)
		(void)pidfd_send_signal(fd, number, NULL, 0); /* gone already: fine */
	return poll(&p, 1, END_MS) > 0;
}

/* The keeper of a private cache died and none can be started: what served its last mount ends here. */
static void end_orphans(const char *run)
{
	json_t *state = fleet_state(run);
	const json_t *daemons = json_object_get(state, "daemons");
	const json_t *row;
	bool used = !json_is_true(json_object_get(state, "private"));
	size_t i;

	json_array_foreach (json_object_get(state, "mounts"), i, row) {
		const char *point = json_string_value(json_object_get(row, "mountpoint"));

		used = used || (point && !gone(point)) ||
		       !await_process(row, "daemon", "/cachefuse", 0);
	}
	for (i = json_array_size(daemons); !used && i > 0; i--) { /* the master last */
		char program[64];

		row = json_array_get(daemons, i - 1);
		(void)snprintf(program, sizeof(program), "/cache%s",
			json_string_value(json_object_get(row, "name"))); /* fits, or is none */
		if (!await_process(row, "pid", program, SIGTERM))
			(void)await_process(row, "pid", program, SIGKILL);
	}
	if (!used)
		file_remove_tree(run);
	json_decref(state);
}

/* Nothing that it needed runs on when this returns. */
static void settle(const struct fleet_mount *mount, const char *point, const struct unmounted *done,
	bool service)
{
	_cleanup_close_ int keeper =
		done->ending && done->keeper > 0 ? pidfd_open(done->keeper, 0) : -1;
	struct pollfd p = { .fd = keeper, .events = POLLIN };
	uint64_t deadline = clock_mono_ns() + DETACH_NS;

	while (!gone(point) && clock_mono_ns() < deadline)
		clock_sleep_ns(5 * CLOCK_MS);
	if (done->in_use || !mount->run[0])
		return; /* for which it runs on */
	if (keeper >= 0 && child_process_is(done->keeper, "/cachekeeper", 0))
		(void)poll(&p, 1, END_MS);
	/* A keeper that was killed meanwhile has a successor, which ends what served the last mount. */
	for (;;) {
		int r = is_kept(mount->run) ? 0 : service ? -EBUSY : keeper_revive(mount->run);

		if (r == -ENOENT)
			end_orphans(mount->run);
		if (r < 0)
			return; /* BUSY: another starts it */
		fleet_settle(mount->run, point);
		if (is_kept(mount->run))
			return; /* for other mounts */
	}
}

/* A keeper of another mount namespace has no mount of this one. */
static int check_gone(
	const char *point, const struct mount_entry *before, pid_t keeper, struct err *e)
{
	struct mount_entry now;

	if (!mount_entry_ours(before) || mount_table_find(point, &now) < 0 || now.id != before->id)
		return 0;
	return err_set(e, -EXDEV,
		"%s is still mounted: its keeper (pid %d) is in another mount namespace, where it "
		"is unmounted: run umount %s",
		point, (int)keeper, point);
}

/* Refuses what is no mount of Granary, or another user's. An exit status. */
static int check(
	const char *point, bool known, const struct mount_entry *entry, bool mounted, struct err *e)
{
	struct mount_entry above;
	char as[64];

	if (!known && !mounted && mount_table_find_above(point, &above) == 0) {
		(void)err_set(e, -EINVAL,
			"%s is not a mount point, but a path below %s: run `cachectl "
			"umount %s`",
			point, above.point, above.point);
		return EXIT_MOUNTPOINT;
	}
	if (!known && (!mounted || !mount_entry_ours(entry))) {
		(void)err_set(e, -EINVAL, "%s is not a mount of Granary: %s", point,
			mounted ? "use umount" : "see `cachectl status`");
		return EXIT_MOUNTPOINT;
	}
	if (!known && entry->user != geteuid() && !kernel_may_mount()) {
		(void)err_set(e, -EPERM, "%s is a mount of user %u: run %s umount %s", point,
			entry->user, command_as_user(entry->user, as, sizeof(as)), point);
		return EXIT_KERNEL;
	}
	return EXIT_OK;
}

static int exit_of(int r)
{
	return r == 0        ? EXIT_OK
	       : r == -EBUSY ? EXIT_BUSY
	       : r == -EPERM ? EXIT_KERNEL
			     : EXIT_RUNTIME;
}

/* May what no keeper answers for be detached here? An ordinary user's of the service is not the user's to detach. */
static bool may_detach(int r, bool service, bool mounted, const struct umount_options *options)
{
	if (r == 0 || r == -EBUSY || r == -EPERM || !mounted || (service && geteuid() != 0))
		return false;
	return r == -ENODEV || r == -ENOENT || options->force;
}

static int unmount(
	const char *point, const struct umount_options *options, bool *ret_in_use, struct err *e)
{
	struct fleet_mount mount = { 0 };
	struct mount_entry entry = { 0 };
	struct unmounted done = { 0 };
	bool known = fleet_find(point, false, &mount) == 0;
	bool mounted = mount_table_find(point, &entry) == 0;
	bool service = known && service_is_run(mount.run);
	int r = check(point, known, &entry, mounted, e);

	if (r != EXIT_OK)
		return r;
	if (service && geteuid() == 0 && !options->force && await_service(mount.run, e) < 0)
		return EXIT_RUNTIME;
	r = known ? ask_run(mount.run, point, options, &done, e)
		  : ask_all(point, options, &done, &mount, e);
	if ((r == -ENOENT || r == -ENODEV) && known && gone(point)) {
		r = 0; /* by another command, by its end, or by a keeper that died before it refused the readers */
		if (options->force)
			(void)cut_readers(&mount);
	} else if (may_detach(r, service, mounted, options)) {
		r = detach_dead(&entry, point, known ? &mount : NULL, known && r == -ENODEV,
			options->force, e);
	}
	if (r < 0)
		return exit_of(err_default(e, r, "the mount cannot be unmounted"));
	if (done.in_use && options->wait)
		await_end(mount.run, done.server);
	done.in_use &= !options->wait;
	*ret_in_use = done.in_use;
	settle(&mount, point, &done, service);
	if (mounted && check_gone(point, &entry, done.keeper, e) < 0)
		return EXIT_RUNTIME;
	if (done.in_use && output_is_table(options->output))
		(void)printf("%s is unmounted, but still in use elsewhere%s%s: it is served until "
			     "that ends (--wait waits for it)\n",
			point, done.users[0] ? ", by " : "", done.users);
	return EXIT_OK;
}

/* Prints nothing as a table. Releases its arguments. */
static int answer(const char *format, json_t *off, json_t *in_use, json_t *failed)
{
	if (!output_is_table(format))
		return yaml_out_made(format, json_pack("{s:o, s:o, s:o}", "unmounted", off,
						     "in_use", in_use, "failed", failed));
	json_decref(off);
	json_decref(in_use);
	json_decref(failed);
	return EXIT_OK;
}

/* A shell's directory and its descriptors are inherited: without this, this process would keep the
 * mount busy, and the refusal would name it. */
static void leave_mount(void)
{
	if (chdir("/") != 0)
		return;                               /* busy, then, with a line */
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
	json_t *used = json_array();
	json_t *failed = json_array();
	struct err e = ERR_INIT;
	json_t *point;
	int status = EXIT_OK;
	int printed;
	int r = points.list ? fleet_each_run(collect, &points) : -ENOMEM;
	size_t i;

	if (r < 0) {
		(void)err_set(&e, r, "the mounts cannot be listed: %s", err_str(r));
		status = command_fail(EXIT_RUNTIME, &e);
	}
	json_array_foreach (points.list, i, point) {
		struct err why = ERR_INIT;
		bool in_use = false;
		int one = unmount(json_string_value(point), options, &in_use, &why);

		if (one != EXIT_OK)
			(void)command_fail(one, &why); /* returns it */
		status = status == EXIT_OK ? one : status;
		if (one == EXIT_OK)
			(void)json_array_append(off, point); /* counted */
		if (in_use)
			(void)json_array_append(used, point); /* likewise */
		if (one != EXIT_OK)
			(void)json_array_append_new(failed,
				json_pack("{s:O, s:i, s:o}", "mountpoint", point, "exit", one,
					"error", admin_json_string(why.text))); /* counted */
	}
	json_decref(points.list);
	if (admin_json_failures() != failures) {
		json_decref(off);
		off = NULL; /* answer() fails with a line */
	}
	printed = answer(options->output, off, used, failed);
	return status == EXIT_OK ? printed : status;
}

/* The mount point that `word` selects: also one that only the kernel knows. An exit status. */
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
	bool in_use = false;
	int args = option_parse_or_exit(&set, argc, argv, &options);
	int status;

	if (options.lazy && options.force) {
		(void)err_set(
			&e, -EINVAL, "--lazy and --force exclude each other: give one of them");
		return command_fail(EXIT_USAGE, &e);
	}
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
	status = unmount(point, &options, &in_use, &e);
	if (status != EXIT_OK)
		return command_fail(status, &e);
	return answer(options.output, json_pack("[o]", admin_json_string(point)),
		in_use ? json_pack("[o]", admin_json_string(point)) : json_array(), json_array());
}
