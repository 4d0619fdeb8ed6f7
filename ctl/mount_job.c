/* What is asked for: checked, and written down. See mount_job.h. */
#include "ctl/mount_job.h"
#include "ctl/command.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/exit.h"
#include "base/hash.h"
#include "base/memory.h"
#include "base/units.h"
#include "ctl/fleet.h"
#include "ctl/kernel.h"
#include "ctl/mount_point.h"
#include "ctl/service.h"
#include "admin/cache_settings.h"
#include "ufs/ufs.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SERVICE_NS (2 * CLOCK_SECOND) /* for its keeper to be started again */
#define KEYS_NS    (5 * CLOCK_SECOND) /* for the bucket to say what it thinks of the keys */

/* ---- checks ---------------------------------------------------------------------------------- */

static int check_url(struct mount_job *job, struct err *e)
{
	_cleanup_(ufs_config_release) struct ufs_config config = { 0 };
	int r = job->sources ? 0 : ufs_config_parse(job->url, &config, e);

	if (r < 0 || job->sources)
		return r; /* a dataset's were checked when it was made */
	job->s3 = config.scheme != UFS_FILE;
	return origin_options_check(&job->options.origin, job->url, config.scheme, e);
}

/* A directory that is not there is the origin's to refuse. */
static int check_apart_from(const struct mount_job *job, const char *url, struct err *e)
{
	_cleanup_(ufs_config_release) struct ufs_config config = { 0 };
	struct err unknown = ERR_INIT;
	char whole[PATH_MAX];

	if (ufs_config_parse(url, &config, &unknown) < 0 || config.scheme != UFS_FILE ||
		!realpath(config.prefix, whole))
		return 0;
	if (cache_dir_path_below(job->cache_path, whole))
		return err_set(e, -EINVAL,
			"cache directory %s is inside the source %s: give another --cache",
			job->cache_path, whole);
	if (cache_dir_path_below(job->point, whole))
		return err_set(e, -EINVAL,
			"mount point %s is inside the source %s: give another directory",
			job->point, whole);
	return 0;
}

static int check_apart_from_all(const struct mount_job *job, struct err *e)
{
	json_t *sources = json_loads(job->sources, 0, NULL);
	const json_t *source;
	size_t i;
	int r = 0;

	json_array_foreach (sources, i, source) {
		const char *url = json_string_value(json_object_get(source, "url"));

		if (r == 0 && url)
			r = check_apart_from(job, url, e);
	}
	json_decref(sources);
	return r;
}

/* Nothing may lie in what it is made of. */
static int check_apart(const struct mount_job *job, struct err *e)
{
	char whole[PATH_MAX];

	if (cache_dir_path_below(job->cache_path, job->point))
		return err_set(e, -EINVAL,
			"cache directory %s is inside mount point %s: give another --cache",
			job->cache_path, job->point);
	if (realpath(job->cache_path, whole) && cache_dir_path_below(job->point, whole))
		return err_set(e, -EINVAL,
			"mount point %s is inside cache directory %s: give another "
			"directory",
			job->point, whole);
	return job->sources ? check_apart_from_all(job, e) : check_apart_from(job, job->url, e);
}

static int check_paths(struct mount_job *job, struct err *e)
{
	int r = 0;

	if (job->options.cache)
		(void)snprintf(job->cache_path, sizeof(job->cache_path), "%s", job->options.cache);
	else
		r = cache_dir_default(job->cache_path, e);
	return r < 0 ? r : check_apart(job, e);
}

/* More than there is would only be noticed when the machine is out of it. */
static int check_memory(const struct mount_job *job, struct err *e)
{
	char wants[16];
	char has[16];
	uint64_t there = memory_there();

	if (there == 0 || job->options.memory <= there)
		return 0;
	return err_set(e, -EINVAL, "--memory %s exceeds the memory of this host (%s): give less",
		units_size(job->options.memory, wants, sizeof(wants)),
		units_size(there, has, sizeof(has)));
}

/* What the service's administrator has said for all. */
static int check_service_options(const struct mount_job *job, struct err *e)
{
	const struct mount_options *o = &job->options;
	const char *option = o->cache_size   ? "--cache-size"
			     : o->memory     ? "--memory"
			     : o->log_level  ? "--log-level"
			     : o->dead_after ? "--dead-after"
					     : NULL;

	if (!option)
		return 0;
	return err_set(e, -EINVAL,
		"%s is a setting of the service of this host "
		"(/etc/granary/granary.yaml): leave it out, or give --cache DIR "
		"for a private cache",
		option);
}

/* All mounts of ordinary users show a dataset in the same way, from one image. */
static int check_user_options(const struct mount_options *o, struct err *e)
{
	const char *option = o->token              ? "--token"
			     : o->context          ? "--context"
			     : o->integrity        ? "--integrity"
			     : o->refresh          ? "--refresh"
			     : o->uid != geteuid() ? "--uid"
			     : o->gid != getegid() ? "--gid"
			     : o->umask != 022     ? "--umask"
			     : o->extent_size || o->prime_max || o->seal_pause
				     ? "an option for tests"
				     : NULL;

	if (!option)
		return 0;
	return err_set(e, -EINVAL,
		"%s cannot be given for a dataset of this host's service: leave it out, or give "
		"--cache DIR for a private cache",
		option);
}

/* The keeper takes the descriptor from this process: no path is resolved again. */
static int open_point(struct mount_job *job, struct err *e)
{
	job->point_fd = open(job->point, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	return job->point_fd < 0
		       ? err_set(e, err_errno(),
				 "the mount point %s cannot be used: %m; give an empty directory",
				 job->point)
		       : 0;
}

/* Whose keeper mounts it. Returns an exit status. */
static int check_service(struct mount_job *job, struct err *e)
{
	uint64_t deadline = clock_mono_ns() + SERVICE_NS;
	json_t *status = NULL;
	const char *cache;
	char name[COMMAND_USER_BYTES];
	int r;

	(void)snprintf(job->cache.run, sizeof(job->cache.run), "%s", service_run(job->socket));
	while ((r = fleet_call(job->cache.run, "keeper.sock", "/v1/status", &status, e)) < 0) {
		if (r == -EACCES) {
			(void)err_set(e, r,
				"permission denied: the service of this host answers root and the "
				"group "
				"granary; ask an administrator for `usermod -aG granary %s`, or "
				"give "
				"--cache DIR for a private cache",
				command_user_name(geteuid(), name));
			return EXIT_KERNEL;
		}
		if (clock_mono_ns() > deadline) { /* not just started again */
			(void)err_set(e, -ECONNREFUSED,
				"the service of this host does not answer: systemctl start "
				"granary-keeper, or give --cache DIR for a private cache");
			return EXIT_RUNTIME;
		}
		clock_sleep_ns(20 * CLOCK_MS);
	}
	cache = json_string_value(json_object_get(status, "cache"));
	(void)snprintf(job->cache.path, sizeof(job->cache.path), "%s", cache ? cache : "/");
	(void)snprintf(job->cache_path, sizeof(job->cache_path), "%s", job->cache.path);
	json_decref(status);
	if (job->user)
		return open_point(job, e) < 0 ? EXIT_MOUNTPOINT : EXIT_OK;
	return check_apart(job, e) < 0 ? EXIT_USAGE : EXIT_OK;
}

static int check_private(struct mount_job *job, struct err *e)
{
	if (check_paths(job, e) < 0)
		return job->options.cache ? EXIT_USAGE : EXIT_CACHE;
	return cache_dir_open(job->cache_path, job->options.cache_size, &job->cache, e) < 0
		       ? EXIT_CACHE
		       : EXIT_OK;
}

/* The keeper has another working directory. */
static int check_token(struct mount_job *job, struct err *e)
{
	const char *path = job->options.token;

	if (!path)
		return 0;
	if (!job->service)
		return err_set(e, -EINVAL,
			"--token does not apply to a master on this host: leave it out");
	if (!realpath(path, job->token))
		return err_set(e, err_errno(),
			"cannot read --token %s: %m; give the file of a token", path);
	return 0;
}

/* In the order in which a person would want to hear of it. Returns an exit status. */
int mount_job_check(struct mount_job *job, const char *dir, struct err *e)
{
	int status;

	job->service = job->user || (geteuid() == 0 && !job->options.cache && service_there());
	if ((job->user ? check_user_options(&job->options, e) : check_url(job, e)) < 0 ||
		(job->service && check_service_options(job, e) < 0) || check_memory(job, e) < 0 ||
		origin_options_resolve(&job->options.origin, job->ca_file, e) < 0 ||
		check_token(job, e) < 0)
		return EXIT_USAGE;
	if (mount_point_path(dir, job->point, e) < 0 || mount_point_check(job->point, e) < 0)
		return EXIT_MOUNTPOINT;
	if (!job->user && kernel_check(job->options.engine ?: "auto", e) < 0)
		return EXIT_KERNEL;
	status = job->service ? check_service(job, e) : check_private(job, e);
	if (status != EXIT_OK)
		return status;
	if (!job->user && job->options.engine && strcmp(job->options.engine, "native") == 0 &&
		cache_dir_check_images(&job->cache, e) < 0)
		return EXIT_CACHE;
	return EXIT_OK;
}

/* ---- keys ------------------------------------------------------------------------------------ */

/* The source is reached with what the environment of its daemons says. */
static bool uses_environment(const struct mount_job *job)
{
	const struct origin_options *origin = &job->options.origin;

	return job->s3 && !job->dataset[0] && !origin->profile && !origin->anonymous &&
	       !origin->credentials && !job->options.existing_credentials;
}

bool mount_job_gives_keys(const struct mount_job *job)
{
	return uses_environment(job) && ufs_environment_has_keys(job->url);
}

int mount_job_check_keys(const struct mount_job *job, struct err *e)
{
	_cleanup_(ufs_config_release) struct ufs_config config = { 0 };
	struct ufs_limits limits = UFS_LIMITS_DEFAULT;
	struct err why = ERR_INIT;
	struct ufs *ufs = NULL;
	int r = origin_options_config(&job->options.origin, job->url, &config, &why);

	limits.request_timeout_ns = KEYS_NS;
	limits.deadline_ns = KEYS_NS;
	if (r == 0)
		r = ufs_open(&config, &limits, &ufs, &why);
	if (r == 0)
		r = ufs_probe(ufs, &why);
	ufs_free(ufs);
	if (r == 0 || r == -ENOENT) /* the keys are right; the mount says what is missing */
		return EXIT_OK;
	(void)err_set(e, r,
		"%.700s (with the credentials of this environment, which differ from those of the "
		"cache: use those of the cache with --use-existing-credentials)",
		why.text);
	return EXIT_ORIGIN;
}

/* ---- body ------------------------------------------------------------------------------------ */

static void set_text(json_t *body, const char *name, const char *text)
{
	if (text)
		(void)json_object_set_new(
			body, name, json_string(text)); /* mount_job_body() looks at failures */
}

static void set_integer(json_t *body, const char *name, uint64_t number)
{
	(void)json_object_set_new(body, name, json_integer((json_int_t)number)); /* as above */
}

static void set_number(json_t *body, const char *name, uint64_t number)
{
	if (number)
		set_integer(body, name, number);
}

/* What an ordinary user may say to the service. */
static json_t *user_body(const struct mount_job *job)
{
	uint64_t token;

	hash_random(&token, sizeof(token));
	return json_pack("{s:s, s:i, s:s*, s:I}", "dataset_name", job->url, "point_fd",
		job->point_fd, "engine", job->options.engine, "token",
		(json_int_t)(token >> 1)); /* JSON has signed numbers */
}

/* Endpoint and region of this environment are said: daemons that run already have that of another
 * mount. */
json_t *mount_job_body(const struct mount_job *job)
{
	const struct mount_options *o = &job->options;
	struct origin_options origin = o->origin;
	const struct cache_settings settings = { .capacity = o->cache_size,
		.memory = o->memory,
		.log_level = o->log_level,
		.credentials = uses_environment(job) };
	uint64_t failures = admin_json_failures();
	uint64_t token;
	char mask[8];
	char follow[32];
	json_t *body;

	if (job->user)
		return user_body(job);
	body = json_pack("{s:s, s:s, s:b, s:I, s:I}", "source", job->url, "mountpoint", job->point,
		"allow_other", (int)o->allow_other, "uid", (json_int_t)o->uid, "gid",
		(json_int_t)o->gid);

	if (!body)
		return NULL;
	(void)snprintf(mask, sizeof(mask), "%03" PRIo64, o->umask); /* fits */
	set_text(body, "umask", mask);
	set_text(body, "keys", origin.credentials);
	origin.credentials = NULL; /* the body's `credentials` are a digest */
	origin_options_json(body, &origin, job->s3 && !job->dataset[0] ? job->url : NULL);
	if (job->dataset[0])
		set_text(body, "dataset", job->dataset);
	set_text(body, "sources", job->sources);
	set_text(body, "engine", o->engine);
	set_text(body, "context", o->context);
	if (o->quota != MOUNT_UNSET)
		set_integer(body, "quota", o->quota);
	if (o->priority != MOUNT_UNSET)
		set_integer(body, "priority", o->priority);
	set_text(body, "pin", o->pin);
	set_text(body, "evict", o->evict);
	set_number(body, "extent_size", o->extent_size);
	set_number(body, "prime_max", o->prime_max);
	set_text(body, "integrity", o->integrity);
	set_number(body, "seal_pause", o->seal_pause);
	(void)snprintf(follow, sizeof(follow), "%" PRIu64 "s",
		(uint64_t)(o->follow / CLOCK_SECOND)); /* fits */
	set_text(body, "follow", o->follow ? follow : NULL);
	if (o->refresh && strcmp(o->refresh, "background") == 0)
		(void)json_object_set_new(body, "refresh_behind", json_true()); /* counted */
	set_text(body, "token_file", job->token[0] ? job->token : NULL);
	if (!mount_job_gives_keys(job)) /* what it has serves, whatever the daemons have */
		(void)json_object_set_new(body, "existing_credentials", json_true()); /* counted */
	if (job->follows)
		(void)json_object_set_new(body, "follow_dataset", json_true()); /* counted */
	if (job->follows && job->rolled_back)
		(void)json_object_set_new(body, "rolled_back", json_true()); /* likewise */
	hash_random(&token, sizeof(token));
	set_number(body, "token", token >> 1); /* JSON has signed numbers */
	if (cache_settings_add(body, &settings) < 0 || admin_json_failures() != failures) {
		json_decref(body);
		return NULL;
	}
	return body;
}
