/* cachectl explain PATH: which object a file is, where its data is cached, and its last error. */
#include "admin/admin.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/option.h"
#include "base/units.h"
#include "ctl/columns.h"
#include "ctl/command.h"
#include "ctl/fleet.h"
#include "ctl/mount_point.h"
#include "ctl/price.h"
#include "ctl/yaml_out.h"

#include <inttypes.h>
#include <string.h>

#define CHUNKS_SHOWN 4096u /* of one file: 64 GiB */

struct explain_options {
	struct price_options price;
	const char *output;
};

static const struct option_spec specs[] = {
	PRICE_OPTION_ROWS(struct explain_options, price),
	OUTPUT_OPTION_ROW(struct explain_options, output, OUTPUT_CHOICES),
};

static const struct option_set set = {
	.program = "cachectl explain",
	.exits = { EXIT_MOUNTPOINT },
	.arguments = "PATH",
	.about = "Shows the object behind a file below a mount, where it is cached, why the rest "
		 "is not, and what\n"
		 "reading the rest costs: GETs and bytes from the origin, and their price where "
		 "one is given.",
	.specs = specs,
	.n = ARRAY_SIZE(specs),
	.min_args = 1,
	.max_args = 1,
};

/* Percent-encodes everything but what a query may hold as it is. */
static int append_encoded(struct buf *out, const char *text)
{
	int r = 0;

	for (const char *p = text; *p && r == 0; p++) {
		unsigned char c = (unsigned char)*p;

		if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
			(c < 0x80 && strchr("-_.~/", c)))
			r = buf_append(out, p, 1);
		else
			r = buf_printf(out, "%%%02X", c);
	}
	return r;
}

static uint64_t number(const json_t *json, const char *name)
{
	return (uint64_t)json_integer_value(json_object_get(json, name));
}

/*
 * Others of the cluster have a chunk that another worker serves: what this node's worker has of it says nothing of that,
 * unless it has all.
 */
static void forget_elsewhere(json_t *chunk)
{
	if (!json_object_get(chunk, "owner") || json_is_true(json_object_get(chunk, "here")) ||
		number(chunk, "cached_bytes") >= number(chunk, "bytes"))
		return;
	(void)json_object_del(chunk, "cached"); /* is there, or not */
	(void)json_object_del(chunk, "cached_bytes");
	(void)json_object_del(chunk, "present_bytes");
}

static void forget_all_elsewhere(json_t *answer)
{
	json_t *chunk;
	size_t i;

	json_array_foreach (json_object_get(answer, "chunks"), i, chunk)
		forget_elsewhere(chunk);
}

/* Adds to each chunk of the mount's answer what the worker knows of it. */
static void merge_worker(const struct fleet_mount *mount, json_t *answer)
{
	const char *volume = json_string_value(json_object_get(answer, "volume"));
	const char *lineage = json_string_value(json_object_get(answer, "lineage"));
	json_t *chunk;
	size_t i;

	json_array_foreach (json_object_get(answer, "chunks"), i, chunk) {
		char path[256];
		char age[24];
		const char *failure;
		json_t *known = NULL;
		struct err e = ERR_INIT;

		if (!volume || !lineage || i >= CHUNKS_SHOWN)
			break;
		(void)snprintf(path, sizeof(path),
			"/v1/chunk?volume=%.40s&lineage=%.20s&chunk=%" JSON_INTEGER_FORMAT
			"&offset=%" JSON_INTEGER_FORMAT "&bytes=%" JSON_INTEGER_FORMAT,
			volume, lineage, json_integer_value(json_object_get(chunk, "chunk")),
			json_integer_value(json_object_get(chunk, "offset")),
			json_integer_value(json_object_get(chunk, "bytes"))); /* fits */
		if (fleet_call(mount->run, "worker.sock", path, &known, &e) < 0)
			break; /* the worker is away: the mount's part stands alone */
		(void)json_object_update(chunk, known); /* shown only */
		failure = json_string_value(json_object_get(known, "last_failure"));
		if (failure && !json_object_get(answer, "last_cause"))
			(void)json_object_set_new(answer, "last_cause",
				json_sprintf("%s (%s ago)", failure,
					units_age(json_integer_value(
							  json_object_get(known, "last_failure_s")),
						age, sizeof(age)))); /* shown only */
		json_decref(known);
	}
}

/*
 * What it costs to read all of it now: an object up to 1 MiB comes as a whole, each MiB of a larger one
 * of which something is missing, one GET each. Without the worker nothing is known of it.
 */
static void add_cost(const struct price *price, json_t *answer)
{
	uint64_t size = number(answer, "size");
	uint64_t missing = 0;
	uint64_t gets = 0;
	const json_t *chunk;
	json_t *cost;
	size_t i;

	json_array_foreach (json_object_get(answer, "chunks"), i, chunk) {
		uint64_t bytes = number(chunk, "bytes");
		uint64_t cached = number(chunk, "cached_bytes");

		if (!json_object_get(chunk, "cached_bytes"))
			return;
		missing += bytes - min(cached, bytes);
		gets += (bytes - min(cached, bytes) + MiB - 1) / MiB;
	}
	if (i == 0 || json_is_true(json_object_get(answer, "chunks_cut")))
		return;
	if (size <= MiB && missing > 0) {
		missing = size;
		gets = 1;
	}
	cost = json_pack(
		"{s:I, s:I}", "gets", (json_int_t)gets, "origin_bytes", (json_int_t)missing);
	if (price->said)
		(void)json_object_set_new(cost, "price",
			json_real(price_of(price, (double)missing, (double)gets))); /* shown only */
	(void)json_object_set_new(answer, "cost", cost);                            /* likewise */
}

/* Why some of it is not cached: it is being fetched, its last fetch failed, or it was not read. */
static void add_reason(json_t *answer)
{
	const json_t *cost = json_object_get(answer, "cost");
	const char *reason = NULL;

	if (!cost || number(cost, "origin_bytes") == 0)
		return;
	if (json_object_get(answer, "waits"))
		reason = "it is in flight";
	else if (json_object_get(answer, "last_cause"))
		reason = "its last fetch failed";
	else if (json_is_true(json_object_get(answer, "dead")))
		reason = "the generation does not name it any more";
	else if (number(cost, "origin_bytes") < number(answer, "size"))
		reason = "the rest was not read yet, or was evicted";
	else
		reason = "it was not read yet, did not fit, or was evicted";
	(void)json_object_set_new(answer, "not_cached", json_string(reason)); /* shown only */
}

/* What a read of it waits for just now. */
static void add_waiting(const struct fleet_mount *mount, json_t *answer)
{
	_cleanup_(buf_release) struct buf query = BUF_INIT(4 * PATH_MAX);
	const char *volume = json_string_value(json_object_get(answer, "volume"));
	const char *lineage = json_string_value(json_object_get(answer, "lineage"));
	const char *key = json_string_value(json_object_get(answer, "key"));
	const char *cause;
	const char *reason;
	char age[24];
	json_int_t failed;
	json_t *wait = NULL;
	struct err e = ERR_INIT;

	if (!volume || !lineage || !key ||
		buf_printf(&query, "/v1/waiting?volume=%s&lineage=%s&key=", volume, lineage) < 0 ||
		append_encoded(&query, key) < 0 ||
		fleet_call(mount->run, "worker.sock", buf_str(&query), &wait, &e) < 0)
		return; /* the worker is away: the mount's part stands alone */
	cause = json_string_value(json_object_get(wait, "cause"));
	reason = json_string_value(json_object_get(wait, "reason"));
	failed = json_integer_value(json_object_get(wait, "failed_attempts"));
	if (cause && failed == 0) /* under way, or silence: nothing has gone wrong yet */
		(void)json_object_set_new(answer, "waits",
			json_sprintf("for the origin's answer, for %s",
				units_age(json_integer_value(json_object_get(wait, "waited_s")),
					age, sizeof(age)))); /* shown only */
	else if (cause)
		(void)json_object_set_new(answer, "waits",
			json_sprintf("for the origin, for %s, failed attempts %" JSON_INTEGER_FORMAT
				     ": %s%s%s",
				units_age(json_integer_value(json_object_get(wait, "waited_s")),
					age, sizeof(age)),
				failed, cause, reason && *reason ? ": " : "",
				reason ? reason : "")); /* shown only */
	json_decref(wait);
}

static void print_scalar(const char *name, const json_t *value)
{
	if (json_is_string(value) && json_string_length(value) == 0)
		return; /* a directory has no tag */
	if (json_is_string(value)) {
		(void)printf("%-12s ", name);
		columns_put(json_string_value(value), stdout);
		(void)printf("\n");
	} else if (json_is_integer(value)) {
		(void)printf("%-12s %" JSON_INTEGER_FORMAT "\n", name, json_integer_value(value));
	}
}

static void print_time(const json_t *mtime)
{
	double seconds = json_number_value(mtime);
	char text[CLOCK_TEXT_MAX];

	if (seconds >= 1)
		(void)printf("%-12s %s\n", "modified", clock_text((uint64_t)seconds, text));
}

/* `name`: of one who serves them; NULL: nobody is known, so this node's worker does, and is away. */
static void print_unknown(size_t unknown, size_t all, const char *name, bool several)
{
	if (!name) {
		(void)printf("%-12s not known: no worker answers on this host\n", "cached");
		return;
	}
	(void)printf(
		"%-12s not known on this host, of %zu of %zu chunks: ", "cached", unknown, all);
	columns_put(name, stdout);
	(void)printf("%s: see `cachectl dataset show` for how much each worker has\n",
		several ? " and other workers serve them" : " serves them");
}

/* True when it was said that this node cannot tell. */
static bool say_unknown(const json_t *chunks)
{
	const char *name = NULL;
	const json_t *chunk;
	bool several = false;
	size_t unknown = 0;
	size_t i;

	json_array_foreach (chunks, i, chunk) {
		const char *its = json_string_value(json_object_get(chunk, "serves"));

		if (json_object_get(chunk, "cached_bytes"))
			continue;
		unknown++;
		if (!its)
			its = json_string_value(json_object_get(chunk, "owner"));
		several |= name && its && strcmp(name, its) != 0;
		name = name ? name : its;
	}
	if (unknown)
		print_unknown(unknown, i, name, several);
	return unknown > 0;
}

/* What a person asks first. */
static void print_cached(const json_t *answer)
{
	const json_t *chunks = json_object_get(answer, "chunks");
	const json_t *chunk;
	uint64_t all = 0;
	uint64_t there = 0;
	char has[16];
	char of[16];
	size_t i;

	if (say_unknown(chunks))
		return;
	json_array_foreach (chunks, i, chunk) {
		there += number(chunk, "cached_bytes");
		all += (uint64_t)json_integer_value(json_object_get(chunk, "bytes"));
	}
	if (all == 0)
		return;
	if (there == 0 || there == all)
		(void)printf("%-12s %s\n", "cached", there ? "yes" : "no");
	else
		(void)printf("%-12s %s of %s\n", "cached", units_size(there, has, sizeof(has)),
			units_size(all, of, sizeof(of)));
}

static void print_cost(const json_t *cost)
{
	const json_t *price = json_object_get(cost, "price");
	uint64_t gets = number(cost, "gets");
	char bytes[16];

	if (!cost || gets == 0)
		return;
	(void)printf("%-12s %llu GET%s, %s from the origin", "cost", (unsigned long long)gets,
		gets == 1 ? "" : "s",
		units_size(number(cost, "origin_bytes"), bytes, sizeof(bytes)));
	if (price)
		(void)printf(": %.3g", json_real_value(price));
	(void)printf("\n");
}

/* A cell of what the worker answered; without an answer there is none. */
static const char *size_cell(const json_t *json, const char *name, char *out, size_t size)
{
	return json_object_get(json, name) ? units_size(number(json, name), out, size) : NULL;
}

static int add_chunk(struct columns *columns, const json_t *chunk)
{
	const char *serves = json_string_value(json_object_get(chunk, "serves"));
	const char *owner = json_string_value(json_object_get(chunk, "owner"));
	char at[24];
	char slot[24];
	char bytes[16];
	char cached[16];

	(void)snprintf(at, sizeof(at), "%" PRIu64, number(chunk, "chunk"));    /* fits */
	(void)snprintf(slot, sizeof(slot), "%" PRIu64, number(chunk, "slot")); /* likewise */
	return columns_add(columns,
		(const char *const[]){ at, size_cell(chunk, "bytes", bytes, sizeof(bytes)),
			size_cell(chunk, "cached_bytes", cached, sizeof(cached)),
			json_object_get(chunk, "slot") ? slot : NULL, owner, serves ?: owner,
			json_string_value(json_object_get(chunk, "extent")) });
}

static void print_chunks(const json_t *chunks)
{
	static const char *const titles[] = { "CHUNK", "SIZE", "CACHED", "SLOT", "OWNER",
		"SERVED BY", "EXTENT" };
	struct columns columns;
	const json_t *chunk;
	size_t i;
	int r = columns_init(&columns, titles, ARRAY_SIZE(titles), 0xfu);

	json_array_foreach (chunks, i, chunk)
		if (r == 0 && i + 1 < COLUMNS_ROWS_MAX)
			r = add_chunk(&columns, chunk);
	if (i > 0 && r == 0) {
		(void)putchar('\n');
		columns_print(&columns, stdout);
	}
	columns_release(&columns);
}

/* "native (auto: this kernel mounts EROFS from files)" */
static void print_engine(const json_t *answer)
{
	const char *engine = json_string_value(json_object_get(answer, "engine"));
	const char *why = json_string_value(json_object_get(answer, "engine_why"));

	if (engine)
		(void)printf("%-12s %s (%s)\n", "engine", engine, why ?: "");
}

/* Volume, lineage, offset and the like are in JSON. */
static void print_answer(const json_t *answer)
{
	static const struct {
		const char *member;
		const char *name;
	} shown[] = { { "mountpoint", "mount point" }, { "source", "source" }, { "key", "key" },
		{ "tag", "version" }, { "left_out", "left out" }, { "generation", "generation" },
		{ "reads", "reads" }, { "waits", "waits" }, { "last_failure", "last error" },
		{ "last_cause", "cause" } };
	char size[16];

	for (size_t i = 0; i < ARRAY_SIZE(shown); i++)
		print_scalar(shown[i].name, json_object_get(answer, shown[i].member));
	if (json_is_true(json_object_get(answer, "directory")))
		(void)printf("%-12s directory\n", "type");
	else if (size_cell(answer, "size", size, sizeof(size)))
		(void)printf("%-12s %s\n", "size", size);
	if (json_is_true(json_object_get(answer, "dead")))
		(void)printf("%-12s yes\n", "removed");
	print_time(json_object_get(answer, "mtime"));
	print_engine(answer);
	print_cached(answer);
	print_scalar("not cached", json_object_get(answer, "not_cached"));
	print_cost(json_object_get(answer, "cost"));
	print_chunks(json_object_get(answer, "chunks"));
}

static int ask(
	const struct fleet_mount *mount, const char *rest, json_t **ret_answer, struct err *e)
{
	_cleanup_(buf_release) struct buf query = BUF_INIT(4 * PATH_MAX);
	int r = buf_puts(&query, "/v1/explain?path=");

	if (r == 0)
		r = append_encoded(&query, rest);
	return r < 0 ? r
		     : admin_call(mount->socket, NULL, buf_str(&query), NULL, fleet_timeout(),
			       ret_answer, e);
}

/* `path` made absolute, and else as it was typed. */
static int written_path(const char *path, char out[PATH_MAX])
{
	char cwd[PATH_MAX] = "";

	if (path[0] != '/' && !getcwd(cwd, sizeof(cwd)))
		return -errno;
	return snprintf(out, PATH_MAX, "%s%s%s", cwd, path[0] == '/' ? "" : "/", path) >= PATH_MAX
		       ? -ENAMETOOLONG
		       : 0;
}

/* What follows the mount point in `path` as it was typed, "a//b" and all; NULL when it is not below it. */
static const char *as_written(const struct fleet_mount *mount, const char *path, char out[PATH_MAX])
{
	size_t len = strlen(mount->mountpoint);

	if (written_path(path, out) < 0 || strncmp(out, mount->mountpoint, len) != 0 ||
		out[len] != '/')
		return NULL;
	return out + len + 1;
}

static int explain(const char *path, const struct price *price, json_t **ret_answer, struct err *e)
{
	char whole[PATH_MAX];
	char written[PATH_MAX];
	struct fleet_mount mount;
	const char *rest;
	struct err no_path = ERR_INIT;
	bool gone;
	int r = mount_point_path(path, whole, &no_path);

	if (r < 0 && written_path(path, whole) < 0) { /* of keys that no file can have */
		(void)err_set(e, -ENAMETOOLONG, "%.200s...: the path is too long", path);
		return EXIT_MOUNTPOINT;
	}
	if (fleet_find(whole, true, &mount) < 0) {
		(void)command_not_found(whole, e); /* sets the line */
		return EXIT_MOUNTPOINT;
	}
	rest = whole + strlen(mount.mountpoint);
	r = ask(&mount, *rest == '/' ? rest + 1 : rest, ret_answer, e);
	if (r == -ENOENT && (rest = as_written(&mount, path, written)))
		r = ask(&mount, rest, ret_answer, e); /* a key that no file can have */
	gone = fleet_unreachable(r) && !fleet_alive(mount.run, strrchr(mount.socket, '/') + 1);
	if (gone && fleet_alive(mount.run, "keeper.sock"))
		(void)err_set(e, r, "the daemon of %s is restarting: try again in a second",
			mount.mountpoint);
	else if (gone)
		(void)err_set(e, r,
			"the daemon of %s does not run: cachectl umount %s, then mount it again",
			mount.mountpoint, mount.mountpoint);
	if (r < 0) {
		(void)err_default(e, r, whole);
		return EXIT_RUNTIME;
	}
	(void)json_object_set_new(
		*ret_answer, "mountpoint", json_string(mount.mountpoint)); /* shown only */
	merge_worker(&mount, *ret_answer);
	forget_all_elsewhere(*ret_answer);
	add_waiting(&mount, *ret_answer);
	add_cost(price, *ret_answer);
	add_reason(*ret_answer);
	return EXIT_OK;
}

int command_explain(int argc, char **argv)
{
	struct explain_options options = { .output = "table" };
	struct price price;
	struct err e = ERR_INIT;
	json_t *answer = NULL;
	int status;

	(void)option_parse_or_exit(&set, argc, argv, &options); /* exactly one argument */
	if (price_parse(&options.price, &price, &e) < 0)
		return command_fail(EXIT_USAGE, &e);
	status = explain(argv[1], &price, &answer, &e);
	if (status != EXIT_OK)
		return command_fail(status, &e);
	if (output_is_table(options.output))
		print_answer(answer);
	else
		status = yaml_out_answer(options.output, answer);
	json_decref(answer);
	return status;
}
