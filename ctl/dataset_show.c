/* Datasets for people. See dataset_command.h. */
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/policy.h"
#include "base/units.h"
#include "ctl/columns.h"
#include "ctl/command.h"
#include "ctl/dataset_command.h"

#include <string.h>
#include <time.h>

const char *dataset_url(const json_t *dataset)
{
	return json_string_value(
		json_object_get(json_array_get(json_object_get(dataset, "mounts"), 0), "url"));
}

/* A cell for a number of bytes that may not be known: NULL. */
static const char *size_cell(const json_t *json, const char *name, char *out, size_t size)
{
	const json_t *value = json_object_get(json, name);

	return json_is_integer(value) ? units_size((uint64_t)json_integer_value(value), out, size)
				      : NULL;
}

static const char *number_cell(const json_t *json, const char *name, char *out, size_t size)
{
	const json_t *value = json_object_get(json, name);

	if (!json_is_integer(value))
		return NULL;
	(void)snprintf(out, size, "%lld", (long long)json_integer_value(value)); /* fits */
	return out;
}

static const char *age_cell(const json_t *json, const char *name, char *out, size_t size)
{
	const json_t *value = json_object_get(json, name);
	int64_t now = (int64_t)(clock_wall_ns() / CLOCK_SECOND);

	return json_is_integer(value) ? units_age(now - json_integer_value(value), out, size)
				      : NULL;
}

/* "" unless it was set. */
static const char *quota_cell(const json_t *json, char *out, size_t size)
{
	const json_t *quota = json_object_get(json, "quota");

	if (!json_is_integer(quota))
		return "";
	return json_integer_value(quota) ? size_cell(json, "quota", out, size) : "none";
}

/* "lru, quota 48.0MiB, priority 2, pinned"; "default" */
static const char *policy_cell(const json_t *json, char *out, size_t size)
{
	const char *evict = json_string_value(json_object_get(json, "evict"));
	const json_t *priority = json_object_get(json, "priority");
	json_int_t requests = json_integer_value(json_object_get(json, "origin_requests"));
	bool bandwidth = json_integer_value(json_object_get(json, "origin_bandwidth")) > 0;
	char quota[16];
	char rate[16];
	char part[32] = "";
	char asked[32] = "";
	const char *copies = json_string_value(json_object_get(json, "copies"));
	char spread[COPIES_NAME_BYTES + 16] = "";

	if (copies && strcmp(copies, "auto") != 0)
		(void)snprintf(spread, sizeof(spread), ", copies %s", copies); /* cut: for people */
	if (json_is_integer(priority))
		(void)snprintf(part, sizeof(part), ", priority %lld",
			(long long)json_integer_value(priority)); /* fits */
	if (requests > 0)
		(void)snprintf(asked, sizeof(asked), ", %lld/s", (long long)requests); /* fits */
	(void)snprintf(out, size, "%s%s%s%s%s%s%s%s%s%s%s", evict ? evict : "never",
		json_is_integer(json_object_get(json, "quota")) ? ", quota " : "",
		quota_cell(json, quota, sizeof(quota)), part,
		json_is_true(json_object_get(json, "pin")) ? ", pinned" : "", bandwidth ? ", " : "",
		bandwidth ? size_cell(json, "origin_bandwidth", rate, sizeof(rate)) : "",
		bandwidth ? "/s" : "", asked, spread,
		json_is_true(json_object_get(json, "direct")) ? ", direct" : ""); /* fits */
	return out;
}

/* A ratio that may not be known: NULL. */
static const char *ratio_cell(const json_t *json, const char *name, char *out, size_t size)
{
	const json_t *value = json_object_get(json, name);

	return json_is_number(value) ? units_percent(json_number_value(value), 1, out, size) : NULL;
}

/* "3,5 (rolled back)": which generation of each source is shown. */
static const char *generations_cell(const json_t *d, char *out, size_t size)
{
	const json_t *mount;
	size_t len = 0;
	size_t i;

	json_array_foreach (json_object_get(d, "mounts"), i, mount) {
		const json_t *g = json_object_get(mount, "generation");
		int n;

		if (!json_is_integer(g) || len >= size)
			continue;
		n = snprintf(out + len, size - len, "%s%lld", len ? "," : "",
			(long long)json_integer_value(g));
		len += n > 0 ? (size_t)n : 0;
	}
	if (len == 0)
		return NULL;
	if (json_is_true(json_object_get(d, "rolled_back")) && len < size)
		(void)snprintf(out + len, size - len, " (rolled back)"); /* or as much as fits */
	return out;
}

/* Of what workers report; NULL: none has yet. */
static const char *as_of_cell(const json_t *json, char *out, size_t size)
{
	const json_t *value = json_object_get(json, "as_of_s");
	char age[24];

	if (!json_is_integer(value))
		return NULL;
	if (json_integer_value(value) == 0)
		return "now";
	(void)snprintf(out, size, "%s ago",
		units_age(json_integer_value(value), age, sizeof(age))); /* fits */
	return out;
}

/* ---- tables ---------------------------------------------------------------------------------- */

enum {
	NAME,
	TOTAL,
	CACHED,
	CAPACITY,
	RATIO,
	PHASE,
	AGE,
	AS_OF,
	NARROW,
	FILES = NARROW,
	HITS,
	MOUNTED,
	GENERATION,
	POLICY,
	SOURCE,
	WIDE
};

static const char *const titles[WIDE] = {
	[NAME] = "NAME",
	[TOTAL] = "SIZE",
	[CACHED] = "CACHED",
	[CAPACITY] = "CAPACITY",
	[RATIO] = "CACHED RATIO",
	[PHASE] = "STATUS",
	[AGE] = "AGE",
	[AS_OF] = "AS OF",
	[FILES] = "FILES",
	[HITS] = "HIT RATIO",
	[MOUNTED] = "MOUNTED",
	[GENERATION] = "GENERATION",
	[POLICY] = "POLICY",
	[SOURCE] = "SOURCE",
};

/* "s3://a/x", "s3://a/x (+2)" */
static const char *source_cell(const json_t *d, char *out, size_t size)
{
	const char *url = dataset_url(d);
	size_t n = json_array_size(json_object_get(d, "mounts"));

	if (n < 2 || !url)
		return url;
	(void)snprintf(out, size, "%.200s (+%zu)", url, n - 1); /* fits */
	return out;
}

static int add_row(struct columns *columns, const json_t *d)
{
	const char *cells[WIDE];
	char total[16];
	char cached[16];
	char capacity[16];
	char ratio[16];
	char age[24];
	char as_of[24];
	char files[24];
	char hits[24];
	char mounted[24];
	char source[256];
	char generation[128];
	char policy[160];

	cells[NAME] = json_string_value(json_object_get(d, "name"));
	cells[TOTAL] = size_cell(d, "total_bytes", total, sizeof(total));
	cells[CACHED] = size_cell(d, "cached_bytes", cached, sizeof(cached));
	cells[CAPACITY] = size_cell(d, "cache_capacity", capacity, sizeof(capacity));
	cells[RATIO] = ratio_cell(d, "cached_ratio", ratio, sizeof(ratio));
	cells[PHASE] = json_string_value(json_object_get(d, "phase"));
	cells[AGE] = age_cell(d, "created", age, sizeof(age));
	cells[AS_OF] = as_of_cell(d, as_of, sizeof(as_of));
	cells[FILES] = number_cell(d, "total_files", files, sizeof(files));
	cells[HITS] = ratio_cell(d, "hit_ratio", hits, sizeof(hits));
	cells[MOUNTED] = number_cell(d, "mounted", mounted, sizeof(mounted));
	cells[GENERATION] = generations_cell(d, generation, sizeof(generation));
	cells[POLICY] = policy_cell(d, policy, sizeof(policy));
	cells[SOURCE] = source_cell(d, source, sizeof(source));
	return columns_add(columns, cells);
}

int dataset_print_table(const json_t *datasets, bool wide)
{
	_cleanup_(columns_release) struct columns columns = { 0 };
	struct err e = ERR_INIT;
	const json_t *one;
	size_t i;
	int r = columns_init(&columns, titles, wide ? WIDE : NARROW,
		1u << TOTAL | 1u << CACHED | 1u << CAPACITY | 1u << RATIO | 1u << AGE |
			1u << FILES | 1u << HITS | 1u << MOUNTED);

	json_array_foreach (datasets, i, one)
		if (r == 0)
			r = add_row(&columns, one);
	if (r < 0) {
		(void)err_set(&e, r, "out of memory for the answer");
		return command_fail(EXIT_RUNTIME, &e);
	}
	if (i == 0)
		(void)printf("no datasets: create one with `cachectl dataset create NAME URL`\n");
	else
		columns_print(&columns, stdout);
	return EXIT_OK;
}

static const char *time_cell(const json_t *json, const char *name, char out[CLOCK_TEXT_MAX])
{
	const json_t *value = json_object_get(json, name);

	return json_is_integer(value) ? clock_text((uint64_t)json_integer_value(value), out) : NULL;
}

/* "kept, pinned, mounted 2" */
static const char *kept_cell(const json_t *g, bool shown, char *out, size_t size)
{
	long long mounts = json_integer_value(json_object_get(g, "mounts"));
	char mounted[40] = "";

	if (mounts > 0)
		(void)snprintf(mounted, sizeof(mounted), ", mounted %lld", mounts); /* fits */
	(void)snprintf(out, size, "%s%s%s%s",
		json_is_true(json_object_get(g, "kept")) ? "kept" : "dropped",
		json_is_true(json_object_get(g, "pinned")) ? ", pinned" : "",
		shown ? ", rolled back to" : "", mounted); /* fits */
	return out;
}

int dataset_print_generations(const json_t *answer)
{
	static const char *const names[] = { "GENERATION", "MADE", "FILES", "SIZE", "ADDED",
		"CHANGED", "REMOVED", "STATE", "SOURCE AT" };
	_cleanup_(columns_release) struct columns columns = { 0 };
	const json_t *shown = json_object_get(answer, "shown_of");
	bool several = json_object_size(shown) > 1;
	struct err e = ERR_INIT;
	const json_t *g;
	size_t i;
	int r = columns_init(&columns, names, ARRAY_SIZE(names) - !several, 0x7d); /* numbers */

	json_array_foreach (json_object_get(answer, "generations"), i, g) {
		char text[ARRAY_SIZE(names)][96];
		const char *cells[ARRAY_SIZE(names)];
		const char *mount = json_string_value(json_object_get(g, "mount"));
		json_int_t number = json_integer_value(json_object_get(g, "generation"));
		bool is = mount && json_integer_value(json_object_get(shown, mount)) == number;

		cells[0] = number_cell(g, "generation", text[0], sizeof(text[0]));
		cells[1] = time_cell(g, "built_at", text[1]);
		cells[2] = number_cell(g, "files", text[2], sizeof(text[2]));
		cells[3] = size_cell(g, "bytes", text[3], sizeof(text[3]));
		cells[4] = number_cell(g, "added", text[4], sizeof(text[4]));
		cells[5] = number_cell(g, "changed", text[5], sizeof(text[5]));
		cells[6] = number_cell(g, "removed", text[6], sizeof(text[6]));
		cells[7] = kept_cell(g, is, text[7], sizeof(text[7]));
		cells[8] = mount;
		if (r == 0)
			r = columns_add(&columns, cells);
	}
	if (r < 0) {
		(void)err_set(&e, r, "out of memory for the answer");
		return command_fail(EXIT_RUNTIME, &e);
	}
	if (i == 0)
		(void)printf("no generations: the source has not been listed yet\n");
	else
		columns_print(&columns, stdout);
	return EXIT_OK;
}

/* ---- one ------------------------------------------------------------------------------------- */

static void line(const char *title, const char *value)
{
	if (!value)
		return;
	(void)printf("%-20s ", title);
	columns_put(value, stdout);
	(void)printf("\n");
}

static void print_source(const json_t *mount, bool several)
{
	char text[96];

	if (several)
		line("At:", json_string_value(json_object_get(mount, "path")));
	line("Source:", json_string_value(json_object_get(mount, "url")));
	line("Part of a source:", json_string_value(json_object_get(mount, "subtree")));
	line("Endpoint:", json_string_value(json_object_get(mount, "endpoint")));
	line("Region:", json_string_value(json_object_get(mount, "region")));
	line("Credentials:", json_string_value(json_object_get(mount, "credentials")));
	line("Profile:", json_string_value(json_object_get(mount, "profile")));
	if (json_is_true(json_object_get(mount, "anonymous")))
		line("Credentials:", "none (anonymous)");
	line("Volume:", json_string_value(json_object_get(mount, "volume")));
	if (!several)
		return;
	line("  status:", json_string_value(json_object_get(mount, "phase")));
	line("  size:", size_cell(mount, "total_bytes", text, sizeof(text)));
	line("  files:", number_cell(mount, "total_files", text, sizeof(text)));
	line("  cached:", size_cell(mount, "cached_bytes", text, sizeof(text)));
	line("  generation:", number_cell(mount, "generation", text, sizeof(text)));
	line("  newest:", number_cell(mount, "newest_generation", text, sizeof(text)));
	line("  last error:", json_string_value(json_object_get(mount, "last_error")));
}

/* When the last listing began that found what is shown; of several sources the oldest. 0: not known. */
static double current_at(const json_t *d)
{
	double oldest = json_number_value(json_object_get(d, "current_at"));
	const json_t *mount;
	size_t i;

	json_array_foreach (json_object_get(d, "mounts"), i, mount) {
		double at = json_number_value(json_object_get(mount, "current_at"));

		if (at > 0 && (oldest <= 0 || at < oldest))
			oldest = at;
	}
	return oldest;
}

/* "follow, listed every 60s, last 12s ago". One that was rolled back stays at its generation. */
static void print_consistency(const json_t *d)
{
	json_int_t interval = json_integer_value(json_object_get(d, "interval_s"));
	double current = current_at(d);
	double now = (double)clock_wall_ns() / (double)CLOCK_SECOND;
	char text[128];
	char age[24];
	int n;

	if (!interval) {
		line("Consistency:", json_string_value(json_object_get(d, "consistency")));
		return;
	}
	if (json_is_true(json_object_get(d, "rolled_back"))) {
		line("Consistency:", "follow, paused by a rollback: rollback --newest resumes");
		return;
	}
	n = snprintf(text, sizeof(text), "follow, listed every %s",
		units_age(interval, age, sizeof(age)));
	if (current > 0)
		(void)snprintf(text + n, sizeof(text) - (size_t)n, ", last %s ago",
			units_age((int64_t)(now - current), age, sizeof(age))); /* fits */
	line("Consistency:", text);
}

static void print_times(const json_t *d)
{
	json_int_t idle = json_integer_value(json_object_get(d, "idle_s"));
	json_int_t ttl = json_integer_value(json_object_get(d, "ttl_s"));
	char text[64];
	char age[24];

	if (idle) {
		(void)snprintf(text, sizeof(text), "after %s without a mount%s",
			units_age(idle, age, sizeof(age)),
			json_is_true(json_object_get(d, "idle")) ? " (now)" : ""); /* fits */
		line("Makes room first:", text);
	}
	if (ttl) {
		(void)snprintf(text, sizeof(text), "after %s without a mount",
			units_age(ttl, age, sizeof(age))); /* fits */
		line("Dropped:", text);
	}
	line("Last mounted:", time_cell(d, "mounted_at", text) ?: "never");
	line("Created:", time_cell(d, "created", text));
}

static void print_left_out(const json_t *left_out)
{
	json_int_t n = json_integer_value(json_object_get(left_out, "count"));
	const json_t *one;
	size_t i;

	if (n == 0)
		return;
	(void)printf("%-20s %lld keys that are not valid file names:\n", "Left out:", (long long)n);
	json_array_foreach (json_object_get(left_out, "keys"), i, one) {
		const char *key = json_string_value(json_object_get(one, "key"));
		const char *hex = json_string_value(json_object_get(one, "key_hex"));
		const char *mount = json_string_value(json_object_get(one, "mount"));

		(void)printf("  %s", key ? "" : "(not UTF-8) ");
		if (mount && mount[1]) {
			columns_put(mount + 1, stdout);
			(void)printf("/");
		}
		columns_put(key ? key : hex, stdout);
		(void)printf(": %s\n", json_string_value(json_object_get(one, "reason")));
	}
	if ((json_int_t)i < n)
		(void)printf("  ...\n");
}

/* Where its bytes are, when they are on several workers. */
static void print_workers(const json_t *mount)
{
	const json_t *workers = json_object_get(mount, "workers");
	const json_t *worker;
	size_t i;

	if (json_array_size(workers) < 2)
		return;
	json_array_foreach (workers, i, worker) {
		const char *name = json_string_value(json_object_get(worker, "name"));
		char owned[16];
		char copies[16];
		char text[160];

		(void)snprintf(text, sizeof(text), "%s %s, copies %s%s",
			name ? name : json_string_value(json_object_get(worker, "id")),
			size_cell(worker, "cached_bytes", owned, sizeof(owned)),
			size_cell(worker, "copy_bytes", copies, sizeof(copies)),
			json_is_true(json_object_get(worker, "whole")) ? ", full replica" : "");
		line(i ? "" : "On:", text); /* cut: for people */
	}
}

static void print_allow(const json_t *d)
{
	const json_t *one;
	size_t i;

	(void)printf("%-20s ", "Allow:");
	json_array_foreach (json_object_get(d, "allow"), i, one) {
		(void)printf("%s", i ? ", " : "");
		columns_put(json_string_value(one), stdout);
	}
	(void)printf("%s\n", i ? "" : "root and administrators only");
}

int dataset_print_one(const json_t *d)
{
	const json_t *mount;
	char text[160];
	size_t i;

	line("Name:", json_string_value(json_object_get(d, "name")));
	line("UUID:", json_string_value(json_object_get(d, "uuid")));
	line("Status:", json_string_value(json_object_get(d, "phase")));
	json_array_foreach (json_object_get(d, "mounts"), i, mount)
		print_source(mount, json_array_size(json_object_get(d, "mounts")) > 1);
	print_allow(d);
	line("Cache scope:", json_string_value(json_object_get(d, "cache_scope")));
	line("Policy:", policy_cell(d, text, sizeof(text)));
	line("Size:", size_cell(d, "total_bytes", text, sizeof(text)));
	line("Files:", number_cell(d, "total_files", text, sizeof(text)));
	line("Cached:", size_cell(d, "cached_bytes", text, sizeof(text)));
	line("As of:", as_of_cell(d, text, sizeof(text)));
	if (json_integer_value(json_object_get(d, "copy_bytes")) > 0)
		line("Copies:", size_cell(d, "copy_bytes", text, sizeof(text)));
	json_array_foreach (json_object_get(d, "mounts"), i, mount)
		print_workers(mount);
	line("Cached ratio:", ratio_cell(d, "cached_ratio", text, sizeof(text)));
	line("Hit ratio:", ratio_cell(d, "hit_ratio", text, sizeof(text)));
	line("Capacity:", size_cell(d, "cache_capacity", text, sizeof(text)));
	line("From the origin:", size_cell(d, "origin_bytes", text, sizeof(text)));
	line("Mounted:", number_cell(d, "mounted", text, sizeof(text)));
	line("Generation:", generations_cell(d, text, sizeof(text)));
	line("Newest generation:", number_cell(d, "newest_generation", text, sizeof(text)));
	print_consistency(d);
	print_times(d);
	line("Last error:", json_string_value(json_object_get(d, "last_error")));
	print_left_out(json_object_get(d, "left_out"));
	return EXIT_OK;
}
