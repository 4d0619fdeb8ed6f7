/*
 * What a process may have and has: the part "bounds" of every /v1/status, and the end of every
 * /metrics (base/arena.h, base/bounds.h, base/log.h).
 */
#include "admin/admin_internal.h"
#include "base/arena.h"
#include "base/bounds.h"
#include "base/log.h"

#include <string.h>
#include <unistd.h>

/* Nothing has a maximum of UINT64_MAX for people: 0 says that none is set. */
static json_int_t known(uint64_t n)
{
	return n >= INT64_MAX ? 0 : (json_int_t)n;
}

static int add(json_t *to, const char *name, json_t *value)
{
	return json_object_set_new(to, name, value);
}

static json_t *memory_json(void)
{
	struct arena_use use;
	json_t *users = json_object();
	int r = users ? 0 : -1;

	for (unsigned int i = 0; i < ARENA_N_USERS && r == 0; i++) {
		arena_use((enum arena_user)i, &use);
		if (use.peak || use.least || use.refused)
			r = add(users, use.name,
				json_pack("{s:I, s:I, s:I, s:I, s:I}", "used", known(use.used),
					"peak", known(use.peak), "least", known(use.least), "max",
					known(use.most), "refused", known(use.refused)));
	}
	if (r < 0) {
		json_decref(users);
		return NULL;
	}
	arena_total(&use);
	return json_pack("{s:I, s:I, s:I, s:I, s:o}", "used", known(use.used), "peak",
		known(use.peak), "max", known(use.most), "refused", known(use.refused), "users",
		users);
}

static json_t *use_json(const struct bound_use *use)
{
	return json_pack("{s:I, s:I, s:I}", "used", known(use->used), "peak",
		known(max(use->peak, use->used)), "max", known(use->max));
}

json_t *admin_bounds_json(void)
{
	json_t *json = json_object();
	struct bound_use use;
	struct log_use log;
	int r = json ? add(json, "memory", memory_json()) : -1;

	bounds_descriptors(&use);
	if (r == 0)
		r = add(json, use.name, use_json(&use));
	bounds_maps(&use);
	if (r == 0)
		r = add(json, use.name, use_json(&use));
	bounds_threads(&use);
	if (r == 0)
		r = add(json, use.name, use_json(&use));
	for (unsigned int i = 0; i < N_BOUNDS && r == 0; i++) {
		bound_use((enum bound)i, &use);
		r = add(json, use.name, use_json(&use));
	}
	log_use(&log);
	if (r == 0)
		r = add(json, "log",
			json_pack("{s:I, s:I, s:I}", "lines", known(log.lines), "left_out",
				known(log.left_out), "max_per_s", (json_int_t)log.max_per_second));
	if (r < 0) {
		json_decref(json);
		return NULL;
	}
	return json;
}

/* ---- metrics --------------------------------------------------------------------------------- */

static void memory_metrics(struct metrics *m)
{
	static const struct metric_family most = { "granary_memory_max_bytes", GAUGE, "bytes",
		"Memory allowed; 0: no maximum" };
	static const struct metric_family refused = { "granary_memory_refused_total", COUNTER,
		"times", "Times that a request waited for memory or was refused it" };
	static const struct metric_family users = { "granary_memory_bytes", GAUGE, "bytes",
		"Memory reserved, by user" };
	struct arena_use use;

	arena_total(&use);
	metrics_one(m, &most, (uint64_t)known(use.most));
	metrics_one(m, &refused, use.refused);
	metrics_family(m, &users);
	for (unsigned int i = 0; i < ARENA_N_USERS; i++) {
		arena_use((enum arena_user)i, &use);
		metrics_value(m, &users, METRIC_LABELS({ "user", use.name }), use.used);
	}
}

void admin_bounds_metrics(struct metrics *m)
{
	static const struct metric_family descriptors = { "granary_descriptors", GAUGE,
		"descriptors", "Open descriptors" };
	static const struct metric_family descriptors_max = { "granary_descriptors_max", GAUGE,
		"descriptors", "Descriptors allowed; 0: no maximum" };
	static const struct metric_family threads = { "granary_threads", GAUGE, "threads",
		"Threads" };
	static const struct metric_family bounded = { "granary_bound", GAUGE, "of each",
		"What is in use of what is bounded" };
	static const struct metric_family left_out = { "granary_log_lines_left_out_total", COUNTER,
		"lines", "Lines of log not written: too many a second" };
	struct bound_use use;
	struct log_use log;

	memory_metrics(m);
	bounds_descriptors(&use);
	metrics_one(m, &descriptors, use.used);
	metrics_one(m, &descriptors_max, (uint64_t)known(use.max));
	bounds_threads(&use);
	metrics_one(m, &threads, use.used);
	metrics_family(m, &bounded);
	for (unsigned int i = 0; i < N_BOUNDS; i++) {
		bound_use((enum bound)i, &use);
		metrics_value(m, &bounded, METRIC_LABELS({ "of", use.name }), use.used);
	}
	log_use(&log);
	metrics_one(m, &left_out, log.left_out);
}
