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
				known(log.left_out), "max_per_second",
				(json_int_t)log.max_per_second));
	if (r < 0) {
		json_decref(json);
		return NULL;
	}
	return json;
}

/* ---- metrics --------------------------------------------------------------------------------- */

static int metric(struct buf *out, const char *name, const char *type, const char *help, uint64_t n)
{
	return buf_printf(out, "# HELP %s %s\n# TYPE %s %s\n%s %llu\n", name, help, name, type,
		name, (unsigned long long)known(n));
}

static int memory_metrics(struct buf *out)
{
	struct arena_use use;
	int r;

	arena_total(&use);
	r = metric(out, "granary_memory_max_bytes", "gauge", "Memory allowed; 0: no maximum",
		use.most);
	if (r == 0)
		r = metric(out, "granary_memory_refused_total", "counter",
			"Times that somebody waited or did without memory", use.refused);
	if (r == 0)
		r = buf_puts(out, "# HELP granary_memory_bytes Memory reserved, by user\n"
				  "# TYPE granary_memory_bytes gauge\n");
	for (unsigned int i = 0; i < ARENA_N_USERS && r == 0; i++) {
		arena_use((enum arena_user)i, &use);
		r = buf_printf(out, "granary_memory_bytes{user=\"%s\"} %llu\n", use.name,
			(unsigned long long)use.used);
	}
	return r;
}

int admin_bounds_metrics(struct buf *out)
{
	struct bound_use use;
	struct log_use log;
	int r = memory_metrics(out);

	bounds_descriptors(&use);
	if (r == 0)
		r = metric(out, "granary_descriptors", "gauge", "Open descriptors", use.used);
	if (r == 0)
		r = metric(out, "granary_descriptors_max", "gauge", "Descriptors allowed", use.max);
	bounds_threads(&use);
	if (r == 0)
		r = metric(out, "granary_threads", "gauge", "Threads", use.used);
	for (unsigned int i = 0; i < N_BOUNDS && r == 0; i++) {
		if (i == 0)
			r = buf_puts(out, "# HELP granary_bound What is in use of what is bounded\n"
					  "# TYPE granary_bound gauge\n");
		bound_use((enum bound)i, &use);
		if (r == 0)
			r = buf_printf(out, "granary_bound{of=\"%s\"} %llu\n", use.name,
				(unsigned long long)use.used);
	}
	log_use(&log);
	if (r == 0)
		r = metric(out, "granary_log_lines_left_out_total", "counter",
			"Lines of log not written: too many a second", log.left_out);
	return r;
}
