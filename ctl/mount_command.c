/*
 * cachectl mount: every check that needs nothing started, then a request to the keeper, that of the service, or of the private
 * cache, which is started where none runs; then it waits for the mount.
 */
#include "admin/admin.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/option.h"
#include "base/policy.h"
#include "base/units.h"
#include "ctl/command.h"
#include "ctl/fleet.h"
#include "ctl/keeper_start.h"
#include "ctl/master_call.h"
#include "ctl/master_wire.h"
#include "ctl/mount_job.h"
#include "ctl/mount_point.h"
#include "ctl/quota.h"
#include "ctl/yaml_out.h"
#include "ufs/ufs.h"

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>

#define JOIN_NS        (30 * CLOCK_SECOND) /* until the keeper takes the mount: another may be ending */
#define ALIVE_NS       (10 * CLOCK_SECOND) /* without any answer of the keeper, waiting ends */
#define REPORT_NS      (60 * CLOCK_SECOND) /* until a worker has said what it has */
#define POLL_NS        (15 * CLOCK_MS)     /* where changes of state are not seen */
#define CHANGE_MS      100                 /* where they are */
#define PROGRESS_NS    (300 * CLOCK_MS)    /* between two progress lines */
#define MEMORY_DEFAULT (1 * GiB)
#define JOINS          3 /* of a mount whose keepers were killed */

static const struct option_spec specs[] = {
	ORIGIN_OPTION_ROWS(struct mount_options, origin),
	OPTION_ROW(struct mount_options, engine, "engine", OPTION_CHOICE,
		.choices = "auto|native|loop|fuse",
		.help = "Engine that reads the image: the kernel (native, or loop: from a loop "
			"device, for applications that use O_DIRECT) or a daemon (fuse) "
			"(default: auto)"),
	OPTION_STRING_ROW(struct mount_options, context, "context", "LABEL",
		"SELinux label of all files (default: none)"),
	OPTION_BOOL_ROW(struct mount_options, allow_other, "allow-other",
		"Let other users read, as far as --umask allows; fuse engine (default: "
		"no)"),
	OPTION_ROW(struct mount_options, prime_max, "prime-max", OPTION_UINT, .max = UINT32_MAX,
		.hidden = true, .min = 1,
		.help = "Maximum number of names that are put into the kernel before their first "
			"use; fuse engine"),
	OPTION_ROW(struct mount_options, integrity, "integrity", OPTION_CHOICE,
		.choices = "sealed|strict",
		.help = "Let the kernel read complete, verified extents from local files "
			"(sealed), or check each read in a daemon (strict); native engine "
			"(default: sealed)"),
	OPTION_ROW(struct mount_options, seal_pause, "seal-pause", OPTION_UINT, .hidden = true,
		.min = 1, .max = UINT32_MAX, .metavar = "MS",
		.help = "Time between two changes to more sealed extents"),
	OPTION_STRING_ROW(struct mount_options, cache, "cache", "DIR",
		"Cache directory of a private cache (default: the service, or "
		"~/.cache/granary)"),
	OPTION_SIZE_ROW(struct mount_options, cache_size, "cache-size", 64 * MiB, 0,
		"Size of the cache " OPTION_CAPACITY_DEFAULT),
	OPTION_SIZE_ROW(struct mount_options, memory, "memory", 128 * MiB, 0,
		"Memory of all daemons together (default: 1GiB)"),
	OPTION_SIZE_ROW(struct mount_options, quota, "quota", 0, INT64_MAX,
		"Quota of this source on each worker, such as 200GiB, or none "
		"(default: unchanged)"),
	OPTION_BOOL_ROW(struct mount_options, yes, "yes",
		"Evict data for a smaller quota without asking (default: ask)"),
	OPTION_ROW(struct mount_options, priority, "priority", OPTION_UINT, .max = PRIORITY_MAX,
		.help = "Priority of this source: the lowest makes room first (default: "
			"unchanged, or 0)"),
	OPTION_ROW(struct mount_options, pin, "pin", OPTION_CHOICE, .choices = "yes|no",
		.help = "Do not evict this source for another (default: unchanged, or no)"),
	OPTION_ROW(struct mount_options, evict, "evict", OPTION_CHOICE,
		.choices = TIER_EVICT_CHOICES,
		.help = "What to do when the cache is full: bypass it (never), or evict the "
			"least recently used chunks (lru) (default: unchanged, or never)"),
	OPTION_ROW(struct mount_options, follow, "follow", OPTION_DURATION, .min = CLOCK_SECOND,
		.max = 86400 * CLOCK_SECOND,
		.help = "Interval at which the source is listed again and changes are shown "
			"(default: none)"),
	OPTION_ROW(struct mount_options, refresh, "refresh", OPTION_CHOICE,
		.choices = "wait|background",
		.help = "List the source first (wait), or mount its last known generation at "
			"once and list it in the background (default: wait)"),
	OPTION_BOOL_ROW(struct mount_options, existing_credentials, "use-existing-credentials",
		"Mount with the credentials that the running daemons have, and do not check those "
		"of this environment (default: check them when they differ)"),
	OPTION_STRING_ROW(struct mount_options, token, "token", "FILE",
		"Token of the dataset, for a master on another host (default: that of "
		"the keeper)"),
	OPTION_ROW(struct mount_options, uid, "uid", OPTION_UINT, .max = UINT32_MAX - 1,
		.help = "Owner of the files (default: the calling user)"),
	OPTION_ROW(struct mount_options, gid, "gid", OPTION_UINT, .max = UINT32_MAX - 1,
		.help = "Group of the files (default: that of the calling user)"),
	OPTION_ROW(struct mount_options, umask, "umask", OPTION_OCTAL, .max = 0777,
		.help = "Permissions that the files lack (default: 022)"),
	OPTION_ROW(struct mount_options, extent_size, "extent-size", OPTION_SIZE, .min = 16 * MiB,
		.hidden = true, .help = "Size of an extent, for tests"),
	OPTION_ROW(struct mount_options, dead_after, "dead-after", OPTION_DURATION,
		.min = CLOCK_SECOND / 10,
		.help = "Time without the daemon of a mount after which its readers get EIO "
			"(default: 30s)"),
	OPTION_ROW(struct mount_options, log_level, "log-level", OPTION_CHOICE,
		.choices = "error|warn|info|debug",
		.help = "Log level of the daemons (default: info)"),
	OUTPUT_OPTION_ROW(struct mount_options, output, OUTPUT_CHOICES),
};

static const struct option_set set = {
	.program = "cachectl mount",
	.exits = { EXIT_MOUNTPOINT, EXIT_ORIGIN, EXIT_CACHE, EXIT_KERNEL, EXIT_BUSY },
	.arguments = "NAME|URL DIR",
	.about = "Mounts a dataset, or the source s3://BUCKET/PREFIX, obs://BUCKET/PREFIX or "
		 "file:///DIRECTORY, at\n"
		 "DIR through the cache, and returns when it serves. Credentials come from the "
		 "environment or the\n"
		 "shared credentials file. A mount is admitted by the memory that the others use "
		 "at that time: mounts\n"
		 "that are read later may together use more than --memory.",
	.specs = specs,
	.n = ARRAY_SIZE(specs),
	.min_args = 2,
	.max_args = 2,
};

/* ---- the mount ------------------------------------------------------------------------------- */

static const char *keeper_socket(const struct mount_job *job, char out[SOCKET_PATH_MAX])
{
	return cache_dir_socket(&job->cache, "keeper.sock", out);
}

/* The keeper of a private cache. Returns an exit status; EXIT_BUSY: another one is starting or ending. */
static int start_keeper(const struct mount_job *job, struct err *e)
{
	const struct mount_options *o = &job->options;
	const struct keeper_settings settings = { .capacity = o->cache_size,
		.memory = o->memory ? o->memory : MEMORY_DEFAULT,
		.dead_after_ns = o->dead_after,
		.log_level = o->log_level ? o->log_level : "info" };

	return keeper_start(&job->cache, &settings, NULL, false, e);
}

/* Daemons that run have other credentials than this environment: right ones may go on with those. */
static int agree_keys(const struct mount_job *job, json_t *body, struct err *e)
{
	int status;

	if (json_object_get(body, "existing_credentials")) /* asked in vain */
		return EXIT_RUNTIME;
	status = mount_job_check_keys(job, e);
	if (status == EXIT_OK &&
		json_object_set_new(body, "existing_credentials", json_true()) < 0) {
		(void)err_set(e, -ENOMEM, "out of memory");
		return EXIT_RUNTIME;
	}
	return status;
}

/* What the keeper says of a user's mount point. */
static bool is_about_point(int r)
{
	return r == -EACCES || r == -ESTALE || r == -EXDEV || r == -ENOTDIR || r == -EOPNOTSUPP;
}

/* Gives the request to the keeper, and starts that of a private cache if there is none. Returns an exit status. */
static int join(struct mount_job *job, json_t *body, struct err *e)
{
	char socket[SOCKET_PATH_MAX];
	uint64_t deadline = clock_mono_ns() + JOIN_NS;
	const char *notice;
	json_t *answer = NULL;

	keeper_end_hung(job->cache.run);
	if (mount_point_check_namespace(keeper_socket(job, socket), job->point, e) < 0)
		return EXIT_MOUNTPOINT;
	for (;;) {
		int r = admin_call(socket, "POST", "/v1/mounts", body, JOIN_NS, &answer, e);
		bool again = r == -EAGAIN || r == -ENOMEM; /* it may have it: the token tells */
		int status;

		if (r == 0)
			break;
		if (job->user && r == -EPERM)
			return EXIT_KERNEL;
		if (r == -EEXIST || (job->user && is_about_point(r)))
			return EXIT_MOUNTPOINT;
		if (r == -EKEYREJECTED) {
			status = agree_keys(job, body, e);
			if (status != EXIT_OK)
				return status;
			continue;
		}
		if (!again && !fleet_unreachable(r))
			return EXIT_RUNTIME;
		if (clock_mono_ns() > deadline)
			return r == -ENOMEM ? EXIT_RUNTIME : EXIT_BUSY;
		status = again || job->service ? EXIT_BUSY : start_keeper(job, e);
		if (status == EXIT_BUSY)
			clock_sleep_ns(50 * CLOCK_MS); /* it is starting or ending: ask again */
		else if (status != EXIT_OK)
			return status;
	}
	job->id = (unsigned int)json_integer_value(json_object_get(answer, "id"));
	(void)snprintf(job->socket, sizeof(job->socket), "%s",
		json_string_value(json_object_get(answer, "socket")));
	notice = json_string_value(json_object_get(answer, "notice"));
	if (notice && *notice)
		(void)fprintf(stderr, "cachectl: %s\n", notice);
	json_decref(answer);
	return EXIT_OK;
}

static void progress_line(struct mount_job *job, const char *text)
{
	(void)fprintf(stderr, "\r\033[K%s", text);
	(void)fflush(stderr); /* a progress line: nothing lost */
	job->dirty = true;
}

static void show_progress(struct mount_job *job, const char *state)
{
	char text[64];
	json_t *status = NULL;
	const json_t *source;
	long long keys = -1;
	struct err e = ERR_INIT;
	size_t i;

	if (!job->progress)
		return;
	if (fleet_call(job->cache.run, "master.sock", "/v1/status", &status, &e) == 0)
		json_array_foreach (json_object_get(status, "sources"), i, source)
			if (json_is_true(json_object_get(source, "listing")))
				keys = json_integer_value(json_object_get(source, "listed_keys"));
	json_decref(status);
	(void)snprintf(text, sizeof(text), "listing: %lld objects", keys); /* fits */
	progress_line(job, keys >= 0 ? text : state);
}

static void end_progress(struct mount_job *job)
{
	if (job->dirty)
		(void)fprintf(stderr, "\r\033[K");
	job->dirty = false;
}

static volatile sig_atomic_t interrupted; /* the signal's number */

static void on_interrupt(int number)
{
	interrupted = number;
}

/* From here on something may be running that nobody would end. */
static void catch_interrupts(void)
{
	const struct sigaction action = { .sa_handler = on_interrupt, .sa_flags = SA_RESTART };

	(void)sigaction(SIGINT, &action, NULL); /* cannot fail with these arguments */
	(void)sigaction(SIGTERM, &action, NULL);
	(void)sigaction(SIGHUP, &action, NULL);
}

/* What was started ends in its own time, which may be that of an origin's answer; who does not want
 * to wait for it need not. */
static int give_up(struct mount_job *job, struct err *e)
{
	const struct sigaction plain = { .sa_handler = SIG_DFL };
	char socket[SOCKET_PATH_MAX];
	char path[64];
	json_t *answer = NULL;

	(void)keeper_socket(job, socket);
	(void)snprintf(path, sizeof(path), "/v1/mount?id=%u&give_up=1", job->id); /* fits */
	if (admin_call(socket, "POST", path, NULL, ALIVE_NS, &answer, e) < 0)
		log_debug("mount not given up", "why=\"%s\"", e->text); /* then it is gone anyway */
	json_decref(answer);
	(void)sigaction(SIGINT, &plain, NULL); /* cannot fail with these arguments */
	(void)sigaction(SIGTERM, &plain, NULL);
	(void)sigaction(SIGHUP, &plain, NULL);
	if (job->progress)
		progress_line(job, "ending what was started (Ctrl-C again: do not wait)");
	*e = ERR_INIT;
	return err_set(e, -EINTR, "interrupted by signal %d: %s is not mounted", (int)interrupted,
		job->point);
}

static void note_socket(struct mount_job *job, const json_t *mount)
{
	const char *socket = json_string_value(json_object_get(mount, "socket"));

	if (socket)
		(void)snprintf(job->socket, sizeof(job->socket), "%s", socket); /* one of ours */
}

/* The keeper writes a file there with each change of state. -1: it cannot be watched. */
static int watch_run(const char *run)
{
	_cleanup_close_ int fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);

	return fd >= 0 && inotify_add_watch(fd, run, IN_MOVED_TO) >= 0 ? TAKE_FD(fd) : -1;
}

/* Until something may have changed since the last call, or a signal came. */
static void wait_change(int watch)
{
	char events[4096];

	if (watch < 0) {
		clock_sleep_ns(POLL_NS);
		return;
	}
	(void)poll(&(struct pollfd){ .fd = watch, .events = POLLIN }, 1,
		CHANGE_MS); /* EINTR: a signal */
	while (read(watch, events, sizeof(events)) > 0)
		;
}

/* Until the mount serves or is known not to. Returns an exit status; *ret_lost: the keeper is gone, or does not know the mount. */
static int wait_mount(struct mount_job *job, bool *ret_lost, struct err *e)
{
	char socket[SOCKET_PATH_MAX];
	char path[64];
	uint64_t heard = clock_mono_ns();
	uint64_t shown = heard;
	_cleanup_close_ int watch = watch_run(job->cache.run);

	(void)keeper_socket(job, socket);
	(void)snprintf(path, sizeof(path), "/v1/mount?id=%u", job->id); /* fits */
	for (;;) {
		json_t *json = NULL;
		const char *state;
		int status = -1;
		int r = admin_call(socket, NULL, path, NULL, ALIVE_NS, &json, e);

		*ret_lost = r == -ENOENT || (!job->service && fleet_unreachable(r));
		if (r == 0)
			heard = clock_mono_ns();
		else if (*ret_lost || clock_mono_ns() - heard > ALIVE_NS)
			return EXIT_RUNTIME;
		state = json_string_value(json_object_get(json, "state"));
		if (state && strcmp(state, "serving") == 0) {
			status = EXIT_OK;
			note_socket(job, json); /* another mount's, where it shares that */
		} else if (state && strcmp(state, "failed") == 0) {
			status = (int)json_integer_value(json_object_get(json, "exit"));
			(void)err_set(
				e, -EIO, "%s", json_string_value(json_object_get(json, "text")));
		} else if (state && clock_mono_ns() - shown > PROGRESS_NS) {
			show_progress(job, state);
			shown = clock_mono_ns();
		}
		json_decref(json);
		if (status > EXIT_OK)
			(void)!admin_call(socket, "POST", path, NULL, ALIVE_NS, NULL,
				NULL); /* told: it may forget */
		if (status >= 0)
			return status;
		if (interrupted) {
			(void)give_up(job, e); /* the reason */
			return EXIT_RUNTIME;
		}
		wait_change(watch);
	}
}

/* The service's daemons have an environment of their own. Returns an exit status. */
static int check_service_keys(const struct mount_job *job, struct err *e)
{
	int status;

	if (!job->service || !mount_job_gives_keys(job))
		return EXIT_OK;
	status = mount_job_check_keys(job, e);
	if (status == EXIT_OK)
		(void)fprintf(stderr,
			"cachectl: ignored the credentials of this environment: the service has "
			"its own; give others with --credentials or --profile-name\n");
	return status;
}

/* For programs: what the mount's daemon, which may serve others too, says of itself. The mount is there,
 * whoever reads that. */
static void print_status(const struct mount_job *job, const json_t *status)
{
	json_t *json = status ? json_copy((json_t *)(uintptr_t)status) /* only read */
			      : json_pack("{s:s}", "source", job->url);

	if (json && json_object_set_new(json, "mountpoint", json_string(job->point)) < 0) {
		json_decref(json);
		json = NULL;
	}
	(void)!yaml_out_answer(job->options.output, json); /* has said what was in the way */
	json_decref(json);
}

/* ", private: cache of alice in /home/alice/.cache/granary" */
static const char *private_text(const struct mount_job *job, char *out, size_t size)
{
	char name[COMMAND_USER_BYTES];

	out[0] = '\0';
	if (!job->service && geteuid() != 0)
		(void)snprintf(out, size, ", private: cache of %s in %s",
			command_user_name(geteuid(), name), job->cache.path); /* fits */
	return out;
}

static void print_success(struct mount_job *job)
{
	json_t *status = NULL;
	unsigned long long skipped;
	struct err e = ERR_INIT;
	char whose[PATH_MAX + 2 * COMMAND_USER_BYTES];
	char size[16];
	int r = admin_call(job->socket, NULL, "/v1/status", NULL, fleet_timeout(), &status, &e);
	const char *engine = json_string_value(json_object_get(status, "engine"));
	const char *why = json_string_value(json_object_get(status, "engine_why"));
	const char *notice = json_string_value(json_object_get(status, "notice"));

	if (notice && *notice)
		(void)fprintf(stderr, "cachectl: %s\n", notice);
	if (!output_is_table(job->options.output))
		print_status(job, status);
	else if (r < 0)
		(void)printf("%s mounted at %s\n", job->url, job->point);
	else
		(void)printf("%s mounted at %s: %lld files, %s, %s engine%s%s%s%s\n", job->url,
			job->point, (long long)json_integer_value(json_object_get(status, "files")),
			units_size((uint64_t)json_integer_value(json_object_get(status, "bytes")),
				size, sizeof(size)),
			engine ? engine : "?", why && *why ? " (" : "", why && *why ? why : "",
			why && *why ? ")" : "", private_text(job, whose, sizeof(whose)));
	skipped = (unsigned long long)json_integer_value(json_object_get(status, "skipped"));
	if (skipped)
		(void)fprintf(stderr,
			"cachectl: objects left out because their keys are not valid file names: "
			"%llu: grep 'key left out' %s/log/mount-*.log\n",
			skipped, job->cache.path);
	json_decref(status);
}

/* ---- a smaller quota ------------------------------------------------------------------------- */

/* True if the cache directory has a tier. */
static bool was_used(const struct mount_job *job)
{
	char marker[PATH_MAX + 32];

	(void)snprintf(marker, sizeof(marker), "%s/tier/granary.tier", job->cache.path); /* fits */
	return access(marker, F_OK) == 0;
}

/* The source as the master names it. False: it cannot be named, and the mount will give the reason. */
static bool name_source(const struct mount_job *job, struct buf *out)
{
	_cleanup_(ufs_config_release) struct ufs_config config = { 0 };
	struct err ignored = ERR_INIT;

	return origin_options_config(&job->options.origin, job->url, &config, &ignored) == 0 &&
	       ufs_config_source(&config, out, &ignored) == 0;
}

static int ask_master(const struct mount_job *job, json_t **ret_status, struct err *e)
{
	static const char path[] = "/v1/status?workers=1";
	const struct master_where where = { 0 };

	return job->service ? master_call(&where, NULL, path, NULL, MASTER_CALL_NS, ret_status, e)
			    : fleet_call(job->cache.run, "master.sock", path, ret_status, e);
}

/* [the source]; [] when the master does not know it; NULL when no worker has reported yet what it has of it. */
static json_t *find_source(const json_t *status, const char *name)
{
	json_t *found = json_array();
	json_t *source;
	size_t i;

	json_array_foreach (json_object_get(status, "sources"), i, source) {
		const char *text = json_string_value(json_object_get(source, "source"));

		if (!text || strcmp(text, name) != 0)
			continue;
		if (json_object_get(source, "cached_bytes") &&
			json_array_append(found, source) == 0)
			break;
		json_decref(found);
		return NULL;
	}
	return found;
}

/*
 * The bytes of a source in use that its quota counts, from the worker of a private cache: the master's figure may be ten seconds old.
 * They are those of the volume: a source that was listed again is two entries with one quota. A private worker has no copies.
 */
static void refresh_source(const struct mount_job *job, const json_t *sources)
{
	json_t *source = json_array_get(sources, 0);
	struct err ignored = ERR_INIT;
	json_t *answer = NULL;
	const json_t *one;
	size_t i;

	if (job->service || !source ||
		fleet_call(job->cache.run, "worker.sock", "/v1/status", &answer, &ignored) < 0)
		return;
	json_array_foreach (json_object_get(answer, "sources"), i, one) {
		json_t *charged = json_object_get(json_object_get(one, "space"), "charged");

		if (charged && json_equal(json_object_get(one, "volume"),
				       json_object_get(source, "volume")))
			(void)json_object_set_new(source, "workers",
				json_pack("[{s:O}]", "cached_bytes",
					charged)); /* without memory the figures are older */
	}
	json_decref(answer);
}

/* A mount that starts them again might evict without a question. */
static int daemons_ended(const struct mount_job *job, struct err *e)
{
	(void)err_set(e, -EIO,
		"the daemons ended before they reported what is cached: see "
		"%s/log/keeper.log, or give --yes",
		job->cache.path);
	return EXIT_RUNTIME;
}

/* Master or worker cannot start: nothing is mounted then, and the keeper ends. Returns an exit status. */
static int ask_daemons(const struct mount_job *job, struct err *e)
{
	char socket[SOCKET_PATH_MAX];
	struct err ignored = ERR_INIT;
	json_t *answer = NULL;
	const json_t *daemon;
	int status = EXIT_OK;
	size_t i;

	(void)keeper_socket(job, socket);
	if (admin_call(socket, NULL, "/v1/status", NULL, ALIVE_NS, &answer, &ignored) < 0)
		return EXIT_OK; /* asked again */
	json_array_foreach (json_object_get(answer, "daemons"), i, daemon) {
		const char *state = json_string_value(json_object_get(daemon, "state"));
		const char *why = json_string_value(json_object_get(daemon, "last_failure"));

		if (!state || strcmp(state, "failed") != 0)
			continue;
		status = (int)json_integer_value(json_object_get(daemon, "exit"));
		(void)err_set(e, -EIO, "%s", why ? why : "a daemon cannot start");
		break;
	}
	json_decref(answer);
	if (status != EXIT_OK &&
		admin_call(socket, "POST", "/v1/end", NULL, ALIVE_NS, NULL, &ignored) < 0)
		log_debug("keeper not ended", "why=\"%s\"", ignored.text); /* then by itself */
	if (status != EXIT_OK)
		fleet_settle(job->cache.run, job->point); /* nothing is left running */
	return status;
}

/* The token of a dataset does not list sources. Returns an exit status. */
static int cannot_ask(int r, struct err *e)
{
	if (r == -EPERM)
		err_prefix(e, "cannot determine what the quota evicts, give --yes to evict it");
	return command_exit(r);
}

/*
 * As find_source(). Starts the daemons of a private cache that does not run, which end by themselves when no mount comes. Returns an
 * exit status.
 */
static int wait_source(struct mount_job *job, const char *name, json_t **ret_sources, struct err *e)
{
	uint64_t begun = clock_mono_ns();
	bool started = false;

	for (;;) {
		struct err why = ERR_INIT;
		json_t *answer = NULL;
		int r = ask_master(job, &answer, &why);
		int status = r < 0 && job->service ? cannot_ask(r, &why) : EXIT_OK;

		if (r == 0)
			*ret_sources = find_source(answer, name);
		json_decref(answer);
		if (*ret_sources)
			return EXIT_OK;
		if (!job->service && !fleet_alive(job->cache.run, "keeper.sock")) {
			status = started ? daemons_ended(job, &why) : start_keeper(job, &why);
			started = status == EXIT_OK;
		} else if (!job->service) {
			status = ask_daemons(job, &why);
		}
		if (job->progress && !job->dirty && clock_mono_ns() - begun > PROGRESS_NS)
			progress_line(job, "waiting for what is cached");
		if (status == EXIT_OK && clock_mono_ns() - begun > REPORT_NS) {
			(void)err_set(&why, -ETIMEDOUT,
				"cannot determine what the quota evicts: no worker has reported "
				"what is cached; try again, or give --yes to evict it");
			status = EXIT_RUNTIME;
		}
		if (status != EXIT_OK && status != EXIT_BUSY) {
			*e = why;
			return status;
		}
		clock_sleep_ns(POLL_NS); /* BUSY: another keeper is starting or ending */
	}
}

/* A mount with a smaller quota evicts what its source has beyond that. Returns an exit status. */
static int confirm_quota(struct mount_job *job, struct err *e)
{
	const struct mount_options *o = &job->options;
	_cleanup_(buf_release) struct buf name = BUF_INIT(2 * LIMIT_URL_BYTES);
	json_t *sources = NULL;
	int status;

	if (o->yes || o->quota == MOUNT_UNSET || o->quota == 0 ||
		(!job->service && !was_used(job)) || !name_source(job, &name))
		return EXIT_OK;
	if (job->token[0])
		master_wire_use_token(job->token);
	status = wait_source(job, buf_str(&name), &sources, e);
	end_progress(job);
	refresh_source(job, sources);
	if (status == EXIT_OK)
		status = quota_confirm(sources, o->quota, job->url, "mounted", e);
	json_decref(sources);
	return status;
}

/* A keeper that is killed meanwhile has a successor, which knows the mount by its token, or makes it. Returns an exit status. */
static int request_mount(struct mount_job *job, json_t *body, struct err *e)
{
	bool lost = false;
	int status;

	for (unsigned int n = 0;; n++) {
		status = join(job, body, e);
		if (status == EXIT_OK)
			status = wait_mount(job, &lost, e);
		if (!lost || interrupted || n + 1 == JOINS)
			return status;
		lost = false;
		*e = ERR_INIT;
	}
}

static int mount_it(struct mount_job *job, const char *dir)
{
	struct err e = ERR_INIT;
	json_t *body;
	int status = mount_job_resolve(job, &e);

	if (status == EXIT_OK)
		status = mount_job_check(job, dir, &e);
	if (status == EXIT_OK)
		status = check_service_keys(job, &e);
	if (status == EXIT_OK)
		status = confirm_quota(job, &e);
	if (status != EXIT_OK)
		return command_fail(status, &e);
	body = mount_job_body(job);
	catch_interrupts();
	if (!body)
		(void)err_set(&e, -ENOMEM, "out of memory");
	status = body ? request_mount(job, body, &e) : EXIT_RUNTIME;
	json_decref(body);
	if (status != EXIT_OK) {
		(void)err_default(&e, -EIO, "the mount did not come to serve");
		fleet_settle(job->cache.run, job->point); /* nothing of it is left running */
	}
	end_progress(job);
	if (status != EXIT_OK)
		return command_fail(status, &e);
	print_success(job);
	return EXIT_OK;
}

int command_mount(int argc, char **argv)
{
	struct mount_job job = {
		.options = { .uid = geteuid(),
			.gid = getegid(),
			.umask = 022,
			.quota = MOUNT_UNSET,
			.priority = MOUNT_UNSET,
			.output = "table" },
		.point_fd = -1,
		.progress = isatty(STDERR_FILENO),
	};
	int status;

	(void)option_parse_or_exit(&set, argc, argv, &job.options); /* exactly two arguments */
	job.url = argv[1];
	status = mount_it(&job, argv[2]);
	mount_job_release(&job);
	return status;
}
