/* cachectl mount NAME DIR: what the master knows of the name. See mount_job.h. */
#include "base/cleanup.h"
#include "base/exit.h"
#include "ctl/dataset_command.h"
#include "ctl/fleet.h"
#include "ctl/master_wire.h"
#include "ctl/mount_job.h"
#include "ctl/service.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *policy_option(const struct mount_options *o)
{
	if (o->quota != MOUNT_UNSET)
		return "--quota";
	if (o->priority != MOUNT_UNSET)
		return "--priority";
	return o->pin ? "--pin" : o->evict ? "--evict" : NULL;
}

static int check_options(const struct mount_job *job, struct err *e)
{
	const char *source = origin_options_given(&job->options.origin);
	const char *policy = policy_option(&job->options);

	if (source)
		return err_set(e, -EINVAL, "dataset %s already has access settings: leave %s out",
			job->url, source);
	if (job->options.follow)
		return err_set(e, -EINVAL,
			"--follow is a setting of the dataset: run `cachectl dataset "
			"update %s --consistency follow --interval TIME`",
			job->url);
	if (policy)
		return err_set(e, -EINVAL,
			"%s is a setting of the dataset: run `cachectl dataset update %s "
			"%s ...`",
			policy, job->url, policy);
	return 0;
}

/* What a mount shows of each source, and where. NULL without memory, or when that is not said. */
static char *sources_text(const json_t *mounts)
{
	json_t *sources = json_array();
	const json_t *mount;
	char *text = NULL;
	size_t i;

	json_array_foreach (mounts, i, mount) {
		const char *subtree = json_string_value(json_object_get(mount, "subtree"));
		json_t *source = json_pack("{s:O?, s:O?, s:O?, s:s}", "path",
			json_object_get(mount, "path"), "volume", json_object_get(mount, "volume"),
			"url", json_object_get(mount, "url"), "subtree", subtree ? subtree : "");

		(void)json_array_append_new(sources, source); /* looked at below */
	}
	if (json_array_size(sources) == json_array_size(mounts))
		text = json_dumps(sources, JSON_COMPACT);
	json_decref(sources);
	return text;
}

/* One source at the root, and all of it. */
static bool is_plain(const json_t *mounts)
{
	const json_t *mount = json_array_get(mounts, 0);
	const char *path = json_string_value(json_object_get(mount, "path"));
	const char *subtree = json_string_value(json_object_get(mount, "subtree"));

	return json_array_size(mounts) == 1 && strcmp(path ? path : "/", "/") == 0 &&
	       !(subtree && *subtree);
}

void mount_job_release(struct mount_job *job)
{
	free(job->sources);
	job->sources = NULL;
	cleanup_close(&job->point_fd);
	job->point_fd = -1;
}

static int take(struct mount_job *job, const json_t *dataset, struct err *e)
{
	const json_t *mounts = json_object_get(dataset, "mounts");
	const json_t *mount = json_array_get(mounts, 0);
	const char *uuid = json_string_value(json_object_get(dataset, "uuid"));
	const char *volume = json_string_value(json_object_get(mount, "volume"));
	const char *url = dataset_url(dataset);
	const char *consistency = json_string_value(json_object_get(dataset, "consistency"));

	if (!uuid || !volume || !url ||
		snprintf(job->dataset, sizeof(job->dataset), "%s.%s", uuid, volume) >=
			(int)sizeof(job->dataset) ||
		snprintf(job->dataset_url, sizeof(job->dataset_url), "%s", url) >=
			(int)sizeof(job->dataset_url))
		return err_set(e, -EBADMSG,
			"invalid answer of the master about %s; use the same version on both sides",
			job->url);
	if (is_plain(mounts)) {
		job->url = job->dataset_url;
	} else {
		job->sources = sources_text(mounts); /* and the name stays what is mounted */
		if (!job->sources)
			return err_set(e, -ENOMEM, "out of memory");
	}
	job->follows = strcmp(consistency ? consistency : "", "follow") == 0;
	return 0;
}

/* The dataset of a private cache is mounted from that cache, whichever is the default one of this user. */
static void take_cache(struct mount_job *job, const struct master_where *where)
{
	char run[SOCKET_PATH_MAX];
	json_t *keeper;
	const char *cache;
	struct err ignored = ERR_INIT;

	if (job->options.cache || service_there() || master_find(where, run, &ignored) < 0 ||
		master_is_wire(run) || !strrchr(run, '/'))
		return;
	*strrchr(run, '/') = '\0';
	keeper = fleet_saved(run);
	cache = json_string_value(json_object_get(keeper, "cache"));
	if (cache && snprintf(job->named_cache, sizeof(job->named_cache), "%s", cache) <
			     (int)sizeof(job->named_cache))
		job->options.cache = job->named_cache;
	json_decref(keeper);
}

/* No master answered: none is running, or it cannot be asked. */
static int unresolved(const struct mount_job *job, const struct master_where *where,
	const struct err *why, struct err *e)
{
	char socket[SOCKET_PATH_MAX];
	struct err ignored = ERR_INIT;

	if (where->cache || master_find(where, socket, &ignored) < 0) { /* nor ever may be */
		(void)err_set(e, why->code,
			"'%s' is not a URL (s3://BUCKET/PREFIX, file:///DIRECTORY), and no master "
			"is available to look up a dataset of that name: %s",
			job->url, why->text);
		return EXIT_USAGE;
	}
	(void)err_set(e, why->code, "cannot look up dataset '%s': %s", job->url, why->text);
	return EXIT_RUNTIME;
}

int mount_job_resolve(struct mount_job *job, struct err *e)
{
	const struct master_where where = { .cache = job->options.cache };
	char path[DATASET_PATH_BYTES];
	struct err why = ERR_INIT;
	json_t *dataset = NULL;
	int r;

	if (dataset_path(job->url, "", path, &why) < 0)
		return EXIT_OK; /* a URL, or none */
	job->user = geteuid() != 0 && !job->options.cache && service_there();
	if (job->user) /* the service asks the master, with what it knows of this user */
		return check_options(job, e) < 0 ? EXIT_USAGE : EXIT_OK;
	master_wire_use_token(job->options.token);
	r = master_call(&where, NULL, path, NULL, MASTER_CALL_NS, &dataset, &why);
	if (r == -ECONNREFUSED || r == -ENOMEDIUM) /* a cache that the mount will create */
		return unresolved(job, &where, &why, e);
	if (r < 0) {
		*e = why;
		return r == -ENOENT ? EXIT_USAGE : EXIT_RUNTIME;
	}
	r = check_options(job, e);
	if (r == 0)
		r = take(job, dataset, e);
	take_cache(job, &where);
	job->rolled_back = json_is_true(json_object_get(dataset, "rolled_back"));
	if (r == 0 && job->rolled_back)
		(void)fprintf(stderr,
			"cachectl: the dataset was rolled back to generation %lld of %lld\n",
			(long long)json_integer_value(json_object_get(dataset, "generation")),
			(long long)json_integer_value(
				json_object_get(dataset, "newest_generation")));
	json_decref(dataset);
	return r == 0 ? EXIT_OK : EXIT_USAGE;
}
