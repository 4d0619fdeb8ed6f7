/* cachectl status: what is mounted, from where, how much of it is cached, and how its daemons
 * are. */
#include "admin/admin.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mount_table.h"
#include "base/option.h"
#include "base/units.h"
#include "ctl/columns.h"
#include "ctl/command.h"
#include "ctl/fleet.h"
#include "ctl/keeper_start.h"
#include "ctl/service.h"
#include "ctl/status_bounds.h"
#include "ctl/status_cluster.h"
#include "ctl/status_gather.h"
#include "ctl/status_notes.h"
#include "ctl/target.h"
#include "ctl/yaml_out.h"

#include <string.h>
#include <unistd.h>

struct status_options {
	const char *cache;
	const char *output;
	uint64_t timeout_ns;
};

#define TIMEOUT_NS CLOCK_SECOND

static const struct option_spec specs[] = {
	OPTION_STRING_ROW(struct status_options, cache, "cache", "DIR",
		"Cache directory whose mounts and daemons are shown (default: all of this user, "
		"and the "
		"service)"),
	OPTION_ROW(struct status_options, timeout_ns, "timeout", OPTION_DURATION, .min = CLOCK_MS,
		.help = "Time in which daemons must answer, all together; others are listed as not "
			"responding (default: 1s)"),
	OUTPUT_OPTION_ROW(struct status_options, output, OUTPUT_CHOICES),
};

static const struct option_set set = {
	.program = "cachectl status",
	.exits = { EXIT_MOUNTPOINT, EXIT_CACHE },
	.arguments = "[NAME|URL|DIR]",
	.about = "Shows the mounts of this host and their daemons: all, or those of a dataset or a "
		 "source, or the "
		 "one at DIR.",
	.specs = specs,
	.n = ARRAY_SIZE(specs),
	.max_args = 1,
};

/* ---- gathering ------------------------------------------------------------------------------- */

/* A daemon that did not answer in time. `pid` is borrowed; NULL: not known. */
static void add_silent(
	const struct status_found *found, const char *run, const char *daemon, const json_t *pid)
{
	json_t *row = json_pack("{s:s, s:s}", "run", run, "daemon", daemon);

	if (json_integer_value(pid) > 0)
		(void)json_object_set(row, "pid", (json_t *)(uintptr_t)pid); /* a reference more */
	(void)json_array_append_new(found->silent, row);                     /* status */
}

/* A daemon's status with its runtime directory, a new reference, or NULL when it did not answer. */
static json_t *answer_of(const struct status_found *found, const char *run, const char *daemon)
{
	char name[32];
	json_t *json;
	int code;

	(void)snprintf(name, sizeof(name), "%s.sock", daemon); /* fits */
	json = json_incref(status_gather_daemon(found->gather, run, name, &code));
	if (code == -ETIMEDOUT)
		add_silent(found, run, daemon, NULL);
	if (json)
		(void)json_object_set_new(json, "run", json_string(run)); /* status */
	return json;
}

static bool is_mounted(const json_t *mount)
{
	const char *point = json_string_value(json_object_get(mount, "mountpoint"));
	struct mount_entry entry;

	return !point || mount_table_find(point, &entry) != -ENOENT;
}

/* What the table says of a mount whose daemon did not answer, or that no keeper knows. */
static const char *state_without(const json_t *known, int code, bool is_kept)
{
	const char *state = json_string_value(json_object_get(known, "state"));

	/* The keeper alone knows of "starting" and the like. */
	if (is_kept && (code == 0 || !state || strcmp(state, "serving") != 0))
		return NULL;
	if (code == 0)
		return "serving, no keeper";
	if (code == -ETIMEDOUT)
		return "not responding";
	return is_mounted(known) ? "unreachable" : "not mounted";
}

/* The mount's own answer, over what the keeper knows of it. Mounts that share a daemon have copies of its answer. */
static void add_mount(
	struct status_found *found, const char *run, const json_t *known, bool is_kept)
{
	static const char *const kept[] = { "name", "pid", "state", "restarts", "last_failure",
		"upgrades", "refused", "source", "mountpoint", "socket", "point", "server",
		"owner" };
	const char *socket = json_string_value(json_object_get(known, "socket"));
	const char *name = json_string_value(json_object_get(known, "name"));
	int code = -ENOENT;
	const json_t *answer = socket ? status_gather_answer(found->gather, socket, &code) : NULL;
	const char *state = state_without(known, code, is_kept);
	json_t *json = answer ? json_copy((json_t *)(uintptr_t)answer) : json_object();

	for (size_t i = 0; i < ARRAY_SIZE(kept); i++) {
		json_t *value = json_object_get(known, kept[i]);

		if (value && !(answer && strcmp(kept[i], "source") == 0))
			(void)json_object_set(json, kept[i], value); /* status */
	}
	if (state)
		(void)json_object_set_new(json, "state", json_string(state)); /* status */
	(void)json_object_set_new(json, "run", json_string(run));             /* status */
	(void)json_array_append_new(found->mounts, json);                     /* status */
	if (code == -ETIMEDOUT)
		add_silent(found, run, name ? name : "mount", json_object_get(known, "pid"));
}

static bool matches(const struct status_found *found, const json_t *mount)
{
	const char *socket = json_string_value(json_object_get(mount, "socket"));

	return !found->target ||
	       target_is_answer(found->target, mount,
		       socket ? status_gather_answer(found->gather, socket, NULL) : NULL);
}

static bool concerns(const struct status_found *found, const json_t *mounts)
{
	const json_t *mount;
	size_t i;

	if (!found->target)
		return true;
	json_array_foreach (mounts, i, mount)
		if (matches(found, mount))
			return true;
	return false;
}

static void add(json_t *list, json_t *json)
{
	if (json)
		(void)json_array_append_new(list, json); /* status */
}

static int visit(void *arg, const char *run)
{
	struct status_found *found = arg;
	bool asked = !found->run || strcmp(found->run, run) == 0;
	json_t *keeper = asked ? answer_of(found, run, "keeper") : NULL;
	json_t *state = asked && !keeper ? fleet_saved(run)
					 : NULL; /* being started again, hangs, or gone */
	const json_t *mounts = json_object_get(keeper ? keeper : state, "mounts");
	const json_t *mount;
	size_t i;

	if ((keeper || state) && concerns(found, mounts)) {
		json_array_foreach (mounts, i, mount) {
			const char *point = json_string_value(json_object_get(mount, "mountpoint"));

			if (point && !fleet_detached(mount) && matches(found, mount))
				add_mount(found, run, mount, keeper != NULL);
		}
		add(found->workers, answer_of(found, run, "worker"));
		add(found->masters, answer_of(found, run, "master"));
		add(found->keepers, json_incref(keeper));
	}
	json_decref(keeper);
	json_decref(state);
	return 0;
}

/* A keeper that was killed has a successor then. Before threads start. */
static int revive_keeper(void *arg, const char *run)
{
	const struct status_found *found = arg;

	if ((!found->run || strcmp(found->run, run) == 0) && keeper_revive(run) < 0)
		log_debug("no keeper", "run=%s", run); /* its mounts are listed all the same */
	return 0;
}

static int ask_run(void *arg, const char *run)
{
	const struct status_found *found = arg;
	bool asked = !found->run || strcmp(found->run, run) == 0;

	return asked ? status_gather_run(found->gather, run) : 0;
}

static int add_other(void *arg, const struct mount_entry *entry)
{
	struct status_found *found = arg;
	const json_t *mount;
	size_t i;

	if (found->target || found->run)
		return 0;
	json_array_foreach (found->mounts, i, mount) {
		const char *point = json_string_value(json_object_get(mount, "mountpoint"));

		if (point && strcmp(point, entry->point) == 0)
			return 0;
	}
	add(found->others, json_pack("{s:s, s:s, s:s, s:i}", "mountpoint", entry->point, "type",
				   entry->type, "source", entry->source, "user", (int)entry->user));
	return 0;
}

/* All daemons at once, then the rows of what they answered. */
static int gather_all(struct status_found *found, struct status_gather *gather)
{
	int r;

	found->gather = gather;
	r = fleet_each_run(revive_keeper, found);
	if (r == 0)
		r = fleet_each_run(ask_run, found);
	if (r == 0 && !found->run)
		r = status_gather_cluster(gather);
	if (r < 0)
		return r;
	status_gather_wait(gather);
	found->cluster = json_incref(status_gather_of_cluster(gather));
	r = fleet_each_run(visit, found);
	return r == 0 ? mount_table_each_ours(add_other, found) : r;
}

/* ---- table ----------------------------------------------------------------------------------- */

static const json_t *worker_of(const struct status_found *found, const json_t *mount)
{
	const char *run = json_string_value(json_object_get(mount, "run"));
	const json_t *worker;
	size_t i;

	json_array_foreach (found->workers, i, worker)
		if (run && strcmp(json_string_value(json_object_get(worker, "run")), run) == 0)
			return worker;
	return NULL;
}

static bool is_same(const json_t *a, const json_t *b, const char *name)
{
	const char *of_a = status_text(a, name);
	const char *of_b = status_text(b, name);

	return of_a && of_b && strcmp(of_a, of_b) == 0;
}

/* The entry in `sources`, of a worker or a master, of the volume in `shown`: of its lineage, or else of any. NULL: none. */
static const json_t *entry_of(const json_t *sources, const json_t *shown)
{
	const json_t *source;
	const json_t *found = NULL;
	size_t i;

	json_array_foreach (sources, i, source) {
		if (!is_same(source, shown, "volume"))
			continue;
		if (is_same(source, shown, "lineage"))
			return source;
		found = found ?: source;
	}
	return found;
}

/* What the master of the mount knows of its sources: that of its runtime directory, or the cluster's. */
static const json_t *known_sources(
	const struct status_found *found, const json_t *cluster, const json_t *mount)
{
	const char *run = status_text(mount, "run");
	const json_t *master;
	size_t i;

	if (cluster)
		return json_object_get(cluster, "sources");
	json_array_foreach (found->masters, i, master)
		if (run && strcmp(status_text(master, "run"), run) == 0)
			return json_object_get(master, "sources");
	return NULL;
}

static bool shows(const json_t *mount, const char *volume)
{
	const json_t *one;
	size_t i;

	json_array_foreach (json_object_get(mount, "sources"), i, one) {
		const char *its = status_text(one, "volume");

		if (its && strcmp(its, volume) == 0)
			return true;
	}
	return strcmp(status_text(mount, "volume") ?: "", volume) == 0;
}

/* Cached bytes, and for how long they have been known as such. */
struct cached {
	uint64_t bytes;
	uint64_t age_s;
	bool known;
};

/* As the master computes it for a dataset: a part of a source has its share of what is cached of the source. */
static struct cached cached_by_sources(const json_t *sources, const json_t *mount)
{
	struct cached cached = { 0 };
	uint64_t size = status_number(mount, "bytes");
	const json_t *all = json_object_get(mount, "sources");
	size_t n = json_array_size(all);
	uint64_t of = 0;

	for (size_t i = 0; i < max(n, (size_t)1); i++) {
		const json_t *source = entry_of(sources, n ? json_array_get(all, i) : mount);

		cached.known |= json_object_get(source, "cached_bytes") != NULL;
		cached.bytes += status_number(source, "cached_bytes");
		cached.age_s = max(cached.age_s, status_number(source, "as_of_s"));
		of += status_number(source, "bytes");
	}
	if (size < of) /* of older generations, too */
		cached.bytes =
			(uint64_t)((double)size * (double)min(cached.bytes, of) / (double)of);
	return cached;
}

/*
 * Of what the mount shows. In a cluster the master knows what all workers have, and `dataset list` and `dataset show` say the same;
 * on a single host the worker itself knows it now.
 */
static struct cached cached_of(const struct status_found *found, const json_t *cluster,
	const json_t *worker, const json_t *mount)
{
	const json_t *dataset = status_cluster_dataset(cluster, mount);
	struct cached cached = { 0 };

	if (dataset)
		cached = (struct cached){ status_number(dataset, "cached_bytes"),
			status_number(dataset, "as_of_s"), true };
	else if (cluster)
		cached = cached_by_sources(known_sources(found, cluster, mount), mount);
	if (!cached.known)
		cached = cached_by_sources(json_object_get(worker, "sources"), mount);
	cached.bytes = min(cached.bytes, status_number(mount, "bytes")); /* whole blocks */
	return cached;
}

/*
 * Of the bytes that readers of the mount's sources asked daemons for, on all nodes, the share that was cached: as the master has
 * it, so that `dataset show` says the same. NULL: no read reached a daemon, or the master did not answer. *age_s: how old it is.
 */
static const char *hit_ratio(
	const json_t *sources, const json_t *mount, uint64_t *age_s, char *out, size_t size)
{
	const json_t *source;
	uint64_t hit = 0;
	uint64_t miss = 0;
	uint64_t its_age_s = 0;
	size_t i;

	json_array_foreach (sources, i, source) {
		const char *volume = status_text(source, "volume");

		if (!volume || !shows(mount, volume))
			continue;
		hit += status_number(source, "hit_bytes");
		miss += status_number(source, "miss_bytes");
		its_age_s = max(its_age_s, status_number(source, "as_of_s"));
	}
	if (hit + miss)
		*age_s = max(*age_s, its_age_s);
	return hit + miss ? units_percent((double)hit, (double)(hit + miss), out, size) : NULL;
}

/* "serving (restarts: 2)" */
static void state_text(const json_t *mount, char *out, size_t size)
{
	const char *state = status_text(mount, "state");
	uint64_t restarts = status_number(mount, "restarts");

	if (restarts)
		(void)snprintf(out, size, "%s (restarts: %llu)", state ? state : "?",
			(unsigned long long)restarts);
	else
		(void)snprintf(out, size, "%s", state ? state : "?");
}

/* What the narrow table shows comes first. */
enum {
	MOUNT,
	SOURCE,
	FILES,
	SIZE,
	CACHED,
	HIT,
	ENGINE,
	STATE,
	NARROW,
	CAPACITY = NARROW,
	EXTENTS,
	MODE,
	POLICY,
	OWNER,
	WHY,
	WIDE
};

static const char *const titles[WIDE] = {
	[MOUNT] = "MOUNT",
	[SOURCE] = "SOURCE",
	[FILES] = "FILES",
	[SIZE] = "SIZE",
	[CACHED] = "CACHED",
	[HIT] = "HIT RATIO",
	[ENGINE] = "ENGINE",
	[STATE] = "STATUS",
	[CAPACITY] = "CAPACITY",
	[EXTENTS] = "EXTENTS",
	[MODE] = "MODE",
	[POLICY] = "POLICY",
	[OWNER] = "OWNER",
	[WHY] = "WHY THIS ENGINE",
};

/* "lru, quota 48.0MiB, priority 2, pinned"; NULL: nothing is known of the source. */
static const char *policy_text(const json_t *space, char *out, size_t size)
{
	uint64_t quota = status_number(space, "quota");
	uint64_t priority = status_number(space, "priority");
	char most[16];
	char how[32] = "";

	if (!space)
		return NULL;
	if (priority)
		(void)snprintf(how, sizeof(how), ", priority %llu", (unsigned long long)priority);
	(void)snprintf(out, size, "%s%s%s%s%s", status_text(space, "evict"),
		quota ? ", quota " : "", quota ? units_size(quota, most, sizeof(most)) : "", how,
		json_is_true(json_object_get(space, "pin")) ? ", pinned" : "");
	return out;
}

/* "3/5/16": sealed, complete, all of the mount's volume; else how many the worker's tiers have. */
static const char *extents_text(const json_t *worker, const json_t *source, char *out, size_t size)
{
	const json_t *extents = json_object_get(source, "extents");
	const json_t *tier;
	uint64_t all = 0;
	size_t i;

	json_array_foreach (json_object_get(worker, "tiers"), i, tier)
		all += status_number(tier, "extents");
	if (json_is_object(extents))
		(void)snprintf(out, size, "%llu/%llu/%llu",
			(unsigned long long)status_number(extents, "sealed"),
			(unsigned long long)status_number(extents, "complete"),
			(unsigned long long)status_number(extents, "all")); /* fits */
	else
		(void)snprintf(out, size, "%llu", (unsigned long long)all); /* fits */
	return out;
}

/* "sealed", "partly sealed 3/16", "on demand 0/16", "strict"; NULL: nothing is ever sealed. */
static const char *mode_text(const json_t *mount, char *out, size_t size)
{
	const json_t *sealed = json_object_get(mount, "sealed");
	const char *integrity = status_text(mount, "integrity");

	if (!json_is_object(sealed))
		return integrity && strcmp(integrity, "strict") == 0 ? integrity : NULL;
	if (status_number(sealed, "local") == status_number(sealed, "extents"))
		return status_text(sealed, "mode");
	(void)snprintf(out, size, "%s %llu/%llu", status_text(sealed, "mode"),
		(unsigned long long)status_number(sealed, "local"),
		(unsigned long long)status_number(sealed, "extents"));
	return out;
}

/* Each tier of a worker: what it lies on, how full it is, what readers still hold. */
static void print_room(const json_t *worker)
{
	const json_t *tier;
	size_t i;

	json_array_foreach (json_object_get(worker, "tiers"), i, tier) {
		uint64_t held = status_number(tier, "held");
		char used[16];
		char most[16];
		char kept[16];

		(void)printf("tier: %s: %s, %s of %s, %s%s%s\n", status_text(tier, "path"),
			status_text(tier, "kind"),
			units_size(status_number(tier, "used"), used, sizeof(used)),
			units_size(status_number(tier, "capacity"), most, sizeof(most)),
			status_text(tier, "state"), held ? ", evicted but still open: " : "",
			held ? units_size(held, kept, sizeof(kept)) : "");
	}
}

/* Who mounted it: a user of the service, or whose private mount it is. */
static const char *owner_text(const json_t *mount, char out[COMMAND_USER_BYTES])
{
	const json_t *owner = json_object_get(mount, "owner");
	uid_t uid = owner ? (uid_t)json_integer_value(owner) : geteuid();

	if (!owner && service_is_run(status_text(mount, "run") ?: ""))
		uid = 0;
	return command_user_name(uid, out);
}

/* Of the oldest figures in a column, in seconds. */
struct ages {
	uint64_t cached;
	uint64_t hit;
};

static int add_row(struct columns *columns, const struct status_found *found, const json_t *mount,
	struct ages *ages)
{
	const json_t *worker = worker_of(found, mount);
	const json_t *source = entry_of(json_object_get(worker, "sources"), mount);
	const json_t *cluster = status_cluster_of(found->cluster, status_text(mount, "run"));
	const json_t *tier;
	const char *cells[WIDE];
	uint64_t capacity = 0;
	bool answers = json_object_get(mount, "files") != NULL;
	struct cached there = { 0 };
	char files[24];
	char extents[32];
	char size[16];
	char cached[16];
	char room[16];
	char hit[16];
	char state[96];
	char policy[96];
	char mode[64];
	char owner[COMMAND_USER_BYTES];
	size_t i;

	json_array_foreach (json_object_get(worker, "tiers"), i, tier)
		capacity += status_number(tier, "capacity");
	(void)snprintf(files, sizeof(files), "%llu",
		(unsigned long long)status_number(mount, "files")); /* fits */
	state_text(mount, state, sizeof(state));
	cells[MOUNT] = status_text(mount, "mountpoint");
	cells[SOURCE] = status_text(mount, "source");
	cells[FILES] = answers ? files : NULL;
	cells[SIZE] =
		!answers ? NULL : units_size(status_number(mount, "bytes"), size, sizeof(size));
	if (answers)
		there = cached_of(found, cluster, worker, mount);
	ages->cached = max(ages->cached, there.age_s);
	cells[CACHED] = there.known ? units_size(there.bytes, cached, sizeof(cached)) : NULL;
	cells[HIT] = hit_ratio(
		known_sources(found, cluster, mount), mount, &ages->hit, hit, sizeof(hit));
	cells[ENGINE] = status_text(mount, "engine");
	cells[STATE] = state;
	cells[CAPACITY] = worker ? units_size(capacity, room, sizeof(room)) : NULL;
	cells[EXTENTS] = worker ? extents_text(worker, source, extents, sizeof(extents)) : NULL;
	cells[MODE] = mode_text(mount, mode, sizeof(mode));
	cells[POLICY] = policy_text(json_object_get(source, "space"), policy, sizeof(policy));
	cells[OWNER] = owner_text(mount, owner);
	cells[WHY] = status_text(mount, "engine_why");
	return columns_add(columns, cells);
}

/* Nothing of figures that are less than a second old. */
static void print_ages(const struct ages *ages)
{
	const char *both = ages->cached && ages->hit ? " and " : "";
	char age[24];

	if (ages->cached || ages->hit)
		(void)printf("%s%s%s as of %s ago\n", ages->cached ? titles[CACHED] : "", both,
			ages->hit ? titles[HIT] : "",
			units_age((int64_t)max(ages->cached, ages->hit), age, sizeof(age)));
}

static int print_table(const struct status_found *found, bool wide)
{
	const json_t *const daemons[] = { found->keepers, found->masters, found->workers,
		found->mounts, NULL };
	_cleanup_(columns_release) struct columns columns = { 0 };
	const json_t *one;
	struct ages ages = { 0 };
	size_t i;
	int r = columns_init(&columns, titles, wide ? WIDE : NARROW,
		1u << FILES | 1u << SIZE | 1u << CACHED | 1u << HIT | 1u << CAPACITY |
			1u << EXTENTS);

	json_array_foreach (found->mounts, i, one)
		if (r == 0)
			r = add_row(&columns, found, one, &ages);
	if (r < 0)
		return r;
	if (i > 0)
		columns_print(&columns, stdout);
	else
		(void)printf("nothing is mounted%s\n", geteuid() == 0 ? "" : " by you");
	print_ages(&ages);
	status_notes_print(found);
	json_array_foreach (found->workers, i, one) {
		if (wide)
			print_room(one);
		status_notes_origin(one);
	}
	status_bounds_notes(daemons);
	return wide && i > 0 ? status_bounds_print(daemons) : 0;
}

/* For programs: JSON or YAML. */
static int print_as(const char *format, const struct status_found *found)
{
	json_t *all = json_pack("{s:O, s:O, s:O, s:O, s:O, s:O?, s:O?}", "mounts", found->mounts,
		"other_mounts", found->others, "workers", found->workers, "masters", found->masters,
		"keepers", found->keepers, "not_responding", found->silent, "cluster",
		found->cluster);
	int r = all ? yaml_out_as(format, all, stdout) : -ENOMEM;

	json_decref(all);
	return r;
}

int command_status(int argc, char **argv)
{
	struct status_options options = { .output = "table", .timeout_ns = TIMEOUT_NS };
	struct status_found found = {
		.mounts = json_array(),
		.workers = json_array(),
		.masters = json_array(),
		.keepers = json_array(),
		.others = json_array(),
		.silent = json_array(),
	};
	struct status_gather *gather = status_gather_new();
	struct target *target = NULL;
	struct cache_dir cache;
	struct err e = ERR_INIT;
	int args = option_parse_or_exit(&set, argc, argv, &options);
	int status = EXIT_OK;
	int r;

	fleet_set_deadline(clock_mono_ns() + options.timeout_ns);
	if (options.cache && cache_dir_find(options.cache, &cache, &e) < 0)
		status = command_exit(e.code);
	else if (args == 1)
		status = target_new(
			&(struct master_where){ .cache = options.cache }, argv[1], &target, &e);
	if (status != EXIT_OK)
		return command_fail(status, &e);
	found.target = target;
	found.run = options.cache ? cache.run : NULL;
	r = gather ? gather_all(&found, gather) : -ENOMEM;
	if (r < 0) {
		(void)err_set(&e, r,
			"cannot read the runtime directory: %s; run as the user of the "
			"mounts",
			err_str(r));
		status = EXIT_RUNTIME;
	} else if (target && json_array_size(found.mounts) == 0) {
		status = target_not_found(target, &e);
	} else if (strcmp(options.output, "json") == 0 || strcmp(options.output, "yaml") == 0) {
		if (print_as(options.output, &found) < 0) {
			(void)err_set(&e, -EIO,
				"the output cannot be written: check that standard output is open");
			status = EXIT_RUNTIME;
		}
	} else if (print_table(&found, strcmp(options.output, "wide") == 0) < 0) {
		(void)err_set(&e, -ENOMEM, "out of memory for the answer");
		status = EXIT_RUNTIME;
	}
	json_decref(found.mounts);
	json_decref(found.workers);
	json_decref(found.masters);
	json_decref(found.keepers);
	json_decref(found.others);
	json_decref(found.silent);
	json_decref(found.cluster);
	status_gather_free(gather);
	target_free(target);
	return status == EXIT_OK ? EXIT_OK : command_fail(status, &e);
}
