/* Remarks of `cachectl status`. See status_notes.h. */
#include "ctl/status_notes.h"
#include "base/units.h"
#include "base/watchdog.h"
#include "ctl/command.h"
#include "ctl/fleet.h"
#include "ctl/node_config.h"
#include "ctl/service.h"
#include "ctl/status_cluster.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define OTHERS_SHOWN 3u /* mounts of other users; they are no business of this one */

static void print_others(const struct status_found *found)
{
	const json_t *other;
	char as[64];
	const char *lost = NULL; /* the first */
	unsigned int n_lost = 0;
	unsigned int foreign = 0;
	size_t i;

	json_array_foreach (found->others, i, other) {
		const char *point = status_text(other, "mountpoint");
		unsigned int user = (unsigned int)status_number(other, "user");

		if (user == geteuid()) {
			lost = n_lost++ == 0 ? point : lost;
			continue;
		}
		if (++foreign <= OTHERS_SHOWN)
			(void)printf("note: %s is mounted by user %u: seen with %s status\n", point,
				user, command_as_user(user, as, sizeof(as)));
	}
	if (foreign > OTHERS_SHOWN)
		(void)printf("note: and %u mounts more of other users\n", foreign - OTHERS_SHOWN);
	/* They may be served: by daemons of another runtime directory. */
	if (n_lost > 0)
		(void)printf("note: mounts of another runtime directory: %u, such as %s: set "
			     "GRANARY_RUN_DIR to that of the mounts to see them\n",
			n_lost, lost);
}

/* Its node is another one, or, of a worker, there is none for this node's mounts. */
static bool is_elsewhere(const struct node_config *config, const char *daemon)
{
	if (strcmp(daemon, "master") == 0)
		return strncmp(config->master, "tcp:", 4) == 0;
	return strcmp(daemon, "worker") == 0 && strcmp(config->worker, "none") == 0;
}

static bool is_silent(const struct status_found *found, const char *run, const char *daemon)
{
	const json_t *row;
	size_t i;

	json_array_foreach (found->silent, i, row)
		if (strcmp(status_text(row, "run"), run) == 0 &&
			strcmp(status_text(row, "daemon"), daemon) == 0)
			return true;
	return false;
}

#define SILENT_SHOWN 8u

/* Daemons that are there and do not answer; those of mounts are in the table, too. */
static void print_silent(const struct status_found *found)
{
	size_t n = json_array_size(found->silent);
	const json_t *row;
	size_t i;

	if (n == 0)
		return;
	(void)printf("note: not responding:");
	json_array_foreach (found->silent, i, row) {
		json_int_t pid = json_integer_value(json_object_get(row, "pid"));

		if (i == SILENT_SHOWN)
			break;
		(void)printf("%s %s", i ? "," : "", status_text(row, "daemon"));
		if (pid)
			(void)printf(" (pid %" JSON_INTEGER_FORMAT ")", pid);
	}
	if (n > SILENT_SHOWN)
		(void)printf(", and %zu more", n - SILENT_SHOWN);
	(void)printf(
		": a daemon that hangs is started again after %llu s; if this stays, see its log\n",
		WATCHDOG_NS / CLOCK_SECOND);
}

/* This host's service, and what of it does not run, to whoever may know. */
static void print_service(const struct status_found *found)
{
	static const char *const daemons[] = { "master", "worker", "keeper" };
	static struct node_config config; /* paths: large */
	char run[SOCKET_PATH_MAX];
	struct err ignored = ERR_INIT;
	bool all = true;

	if (!service_there() || access(service_run(run), X_OK) != 0)
		return;
	(void)!node_config_read(&config, &ignored); /* a broken one is the daemons' to say */
	for (size_t i = 0; i < ARRAY_SIZE(daemons); i++) {
		char name[16];

		(void)snprintf(name, sizeof(name), "%s.sock", daemons[i]); /* fits */
		if (is_elsewhere(&config, daemons[i]) ||
			(fleet_alive(run, name) && !is_silent(found, run, daemons[i])))
			continue;
		all = false;
		(void)printf("note: the service's %s does not answer: systemctl status "
			     "granary-%s\n",
			daemons[i], daemons[i]);
	}
	if (all && is_elsewhere(&config, "master"))
		(void)printf("service: all that this node has runs\n");
	else if (all)
		(void)printf("service: master, worker and keeper run\n");
}

/* What an ordinary user mounts by itself shares nothing with the host's service. */
static void print_private(const struct status_found *found)
{
	const json_t *mount;
	size_t i;

	json_array_foreach (found->mounts, i, mount) {
		const char *run = status_text(mount, "run");
		char cache[PATH_MAX];

		if (geteuid() != 0 && run && !service_is_run(run))
			(void)printf("note: %s is private: its cache is %s\n",
				status_text(mount, "mountpoint"),
				fleet_cache_name(run, cache, sizeof(cache)));
	}
}

/* Mounts that nobody will serve again. */
static void print_dead(const struct status_found *found)
{
	const json_t *mount;
	size_t i;

	json_array_foreach (found->mounts, i, mount) {
		const char *run = status_text(mount, "run");
		const char *state = status_text(mount, "state");
		const char *point = status_text(mount, "mountpoint");

		if (state && strcmp(state, "unreachable") == 0 && run &&
			!fleet_alive(run, "keeper.sock"))
			(void)printf("note: no daemon serves %s any more: cachectl umount %s, then "
				     "mount it again\n",
				point, point);
	}
}

static void print_notices(const struct status_found *found)
{
	const json_t *master;
	const json_t *source;
	size_t i;
	size_t k;

	json_array_foreach (found->masters, i, master)
		json_array_foreach (json_object_get(master, "sources"), k, source) {
			const char *notice = json_string_value(json_object_get(source, "notice"));

			if (notice)
				(void)printf("note: %s\n", notice);
		}
}

static void print_daemons(const struct status_found *found)
{
	const json_t *keeper;
	const json_t *daemon;
	size_t i;
	size_t k;

	json_array_foreach (found->keepers, i, keeper)
		json_array_foreach (json_object_get(keeper, "daemons"), k, daemon) {
			const char *failure =
				json_string_value(json_object_get(daemon, "last_failure"));

			if (status_number(daemon, "restarts") > 0)
				(void)printf("note: restarts of %s: %llu%s%s\n",
					json_string_value(json_object_get(daemon, "name")),
					(unsigned long long)status_number(daemon, "restarts"),
					failure ? ", last because " : "", failure ? failure : "");
		}
}

/* Tiers that are not in full service, and what the scrub does or has found. */
static void print_tiers(const struct status_found *found)
{
	const json_t *worker;
	const json_t *tier;
	size_t i;
	size_t k;

	json_array_foreach (found->workers, i, worker) {
		const json_t *scrub = json_object_get(worker, "scrub");
		const char *doing = status_text(scrub, "state");
		const char *which = doing && strcmp(doing, "ordered") == 0 ? "ordered" : "pass";
		const json_t *tally = json_object_get(scrub, which);

		json_array_foreach (json_object_get(worker, "tiers"), k, tier) {
			const char *state = status_text(tier, "state");
			const char *reason = status_text(tier, "reason");

			if (state && strcmp(state, "ok") != 0)
				(void)printf("note: tier %s is %s: %s\n", status_text(tier, "path"),
					state, reason && *reason ? reason : "no reason known");
			else if (reason && *reason)
				(void)printf(
					"note: tier %s: %s\n", status_text(tier, "path"), reason);
		}
		if (doing && strcmp(doing, "idle") != 0)
			(void)printf("note: scrub (%s): %llu chunks, %llu pieces read, %llu "
				     "damaged\n",
				doing, (unsigned long long)status_number(tally, "chunks"),
				(unsigned long long)status_number(tally, "pieces"),
				(unsigned long long)status_number(tally, "bad_pieces"));
	}
}

/* Mounts that follow their source: how old is what they show? */
static void print_follow(const struct status_found *found)
{
	const json_t *mount;
	size_t i;

	json_array_foreach (found->mounts, i, mount) {
		const json_t *follow = json_object_get(mount, "follow");
		const json_t *lag = json_object_get(follow, "lag_s");
		bool listing = json_is_true(json_object_get(follow, "listing"));
		const char *why = status_text(follow, "why");
		uint64_t shown = status_number(follow, "generation");
		uint64_t newest = status_number(follow, "newest");
		char age[24];

		if (!json_is_object(follow))
			continue;
		(void)printf("note: %s %s%s: generation %llu", status_text(mount, "mountpoint"),
			listing ? "is mounted with its last known generation while its source is "
				  "listed"
				: "follows its source",
			listing || json_is_true(json_object_get(follow, "follows")) || !lag
				? ""
				: ", but not now",
			(unsigned long long)shown);
		if (newest != shown)
			(void)printf(" is shown of %llu", (unsigned long long)newest);
		if (json_is_number(lag))
			(void)printf(", as it was %s ago",
				units_age((int64_t)json_number_value(lag), age, sizeof(age)));
		(void)printf("%s%s\n", why && *why ? ": " : "", why && *why ? why : "");
	}
}

/* Jobs that do not read in the order that they announced. */
static void print_orders(const struct status_found *found)
{
	const json_t *mount;
	const json_t *job;
	size_t i;
	size_t k;

	json_array_foreach (found->mounts, i, mount)
		json_array_foreach (
			json_object_get(json_object_get(mount, "order"), "jobs"), k, job)
			if (json_is_true(json_object_get(job, "suspended")))
				(void)printf("note: %s: the announced order of process %llu is "
					     "suspended: %llu of %llu reads followed it\n",
					status_text(mount, "mountpoint"),
					(unsigned long long)status_number(job, "pid"),
					(unsigned long long)status_number(job, "hits"),
					(unsigned long long)status_number(job, "reads"));
}

void status_notes_print(const struct status_found *found)
{
	print_service(found);
	print_silent(found);
	status_cluster_print(found->cluster);
	print_private(found);
	print_dead(found);
	print_others(found);
	print_notices(found);
	print_daemons(found);
	print_tiers(found);
	print_follow(found);
	print_orders(found);
}

void status_notes_origin(const json_t *worker)
{
	const json_t *source;
	const json_t *value;
	const char *name;
	size_t i;

	json_array_foreach (json_object_get(worker, "sources"), i, source) {
		const char *gap = "note: failed attempts at the origin: ";

		json_object_foreach (json_object_get(source, "origin"), name, value) {
			if (strncmp(name, "cause_", 6) != 0 || json_integer_value(value) == 0)
				continue;
			(void)printf("%s%s %" JSON_INTEGER_FORMAT, gap, name + 6,
				json_integer_value(value));
			gap = ", ";
		}
		if (*gap == ',')
			(void)printf(": causes are explained in docs/operations.md\n");
	}
}
