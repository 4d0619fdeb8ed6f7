/* cachectl scrub: has the workers of this node read what they cache, now, or compare a sample of it
 * with the origin. */
#include "admin/admin.h"
#include "base/clock.h"
#include "base/option.h"
#include "base/units.h"
#include "ctl/command.h"
#include "ctl/fleet.h"
#include "ctl/service.h"
#include "ctl/target.h"
#include "ctl/yaml_out.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define POLL_NS     (100 * CLOCK_MS)
#define PROGRESS_NS CLOCK_SECOND
#define LISTED      64u /* findings that a worker keeps */

struct scrub_options {
	struct fleet_choice choice;
	uint64_t rate;
	bool wait;
	const char *revalidate;
	const char *output;
};

static const struct option_spec specs[] = {
	FLEET_CHOICE_ROWS(struct scrub_options, choice),
	OPTION_ROW(struct scrub_options, rate, "bandwidth", OPTION_RATE,
		.help = "Maximum read rate, such as 64MiB/s, or none (default: none)"),
	OPTION_ROW(struct scrub_options, rate, "rate", OPTION_RATE, .hidden = true,
		.help = "Same as --bandwidth, its earlier name"),
	OPTION_BOOL_ROW(struct scrub_options, wait, "wait",
		"Wait for the end, and print the result (default: return at once)"),
	OPTION_STRING_ROW(struct scrub_options, revalidate, "revalidate", "UNITS|PERCENT%",
		"Compare that many cached units with the origin instead of checksums (default: "
		"none)"),
	OUTPUT_OPTION_ROW(struct scrub_options, output, OUTPUT_CHOICES),
};

static const struct option_set set = {
	.program = "cachectl scrub",
	.exits = { EXIT_MOUNTPOINT, EXIT_CACHE, EXIT_BUSY },
	.arguments = "[NAME|URL|DIR]",
	.about = "Compares a cache, or the part of it that belongs to a mount, a dataset or a "
		 "source, with its\n"
		 "checksums.\nDamaged data is dropped and fetched again. The exit status is 1 when "
		 "some damage could not be repaired.",
	.specs = specs,
	.n = ARRAY_SIZE(specs),
	.max_args = 1,
};

/* What to scrub, and what came of it over all workers. */
struct scrubbing {
	const struct scrub_options *options;
	struct target *target; /* NULL: all */
	json_t *order;         /* for POST /v1/scrub, without "volume" */
	json_t *answers;       /* what each worker said, for programs; NULL: for people */
	unsigned int n;        /* workers that were asked */
	bool dirty;            /* something was found that is not repaired */
	bool incomplete;       /* `answers` are, for want of memory */
	struct err *e;
};

/* "12", "5%". */
static int parse_sample(const char *text, json_t *order, struct err *e)
{
	char *end;
	unsigned long n;
	bool percent;

	errno = 0;
	n = strtoul(text, &end, 10);
	percent = strcmp(end, "%") == 0;
	if (end == text || text[0] == '-' || errno != 0 || n == 0 || (*end && !percent) ||
		(percent && n > 100) || n > INT32_MAX)
		return err_set(e, -EINVAL,
			"--revalidate: '%s' is not a number of units or a percentage; "
			"write 100 or 5%%",
			text);
	if (json_object_set_new(order, percent ? "sample_ratio" : "sample",
		    percent ? json_real((double)n / 100) : json_integer((json_int_t)n)) != 0)
		return -ENOMEM;
	return json_object_set_new(order, "sample_only", json_true());
}

static uint64_t number(const json_t *json, const char *name)
{
	return (uint64_t)json_integer_value(json_object_get(json, name));
}

/* ---- result ---------------------------------------------------------------------------------- */

static bool is_dirty(const json_t *tally)
{
	bool repaired = number(tally, "places") == number(tally, "repaired_places") &&
			number(tally, "places") < LISTED;

	return (number(tally, "bad_pieces") > 0 && !repaired) ||
	       number(tally, "changed_units") > 0 || number(tally, "differing_units") > 0 ||
	       number(tally, "failed_units") > 0;
}

static void print_findings(const json_t *tally)
{
	const json_t *finding;
	size_t i;

	json_array_foreach (json_object_get(tally, "findings"), i, finding) {
		const char *kind = json_string_value(json_object_get(finding, "kind"));
		bool damaged = kind && strcmp(kind, "damaged") == 0;

		(void)printf("  %s: chunk %llu offset %llu: %s%s\n",
			json_string_value(json_object_get(finding, "key")),
			(unsigned long long)number(finding, "chunk"),
			(unsigned long long)number(finding, "offset"), kind ? kind : "?",
			!damaged ? ""
			: json_is_true(json_object_get(finding, "repaired"))
				? ", fetched again"
				: ", dropped; the next reader fetches it");
	}
}

static void print_result(const struct scrubbing *sc, const char *run, const json_t *tally)
{
	char name[PATH_MAX];
	char bytes[16];

	(void)printf("%s: ", fleet_cache_name(run, name, sizeof(name)));
	if (!sc->options->revalidate)
		(void)printf(
			"%s read (pieces: %llu, chunks: %llu), damaged pieces: %llu, findings: "
			"%llu, fetched again: %llu\n",
			units_size(number(tally, "bytes"), bytes, sizeof(bytes)),
			(unsigned long long)number(tally, "pieces"),
			(unsigned long long)number(tally, "chunks"),
			(unsigned long long)number(tally, "bad_pieces"),
			(unsigned long long)number(tally, "places"),
			(unsigned long long)number(tally, "repaired_places"));
	else
		(void)printf("units compared with the origin: %llu, damaged pieces: %llu, units "
			     "changed at the origin: %llu, different: %llu, not comparable: %llu\n",
			(unsigned long long)number(tally, "sampled_units"),
			(unsigned long long)number(tally, "bad_pieces"),
			(unsigned long long)number(tally, "changed_units"),
			(unsigned long long)number(tally, "differing_units"),
			(unsigned long long)number(tally, "failed_units"));
	if (number(tally, "unknown_chunks") > 0)
		(void)printf("%llu chunks belong to sources unknown to the master: not checked\n",
			(unsigned long long)number(tally, "unknown_chunks"));
	print_findings(tally);
}

/* NULL: it has only begun. */
static void keep(struct scrubbing *sc, const char *run, uint64_t order, const json_t *tally)
{
	json_t *answer = json_pack(
		"{s:s, s:I, s:b}", "run", run, "order", (json_int_t)order, "done", tally != NULL);

	if (tally)
		(void)json_object_set_new(
			answer, "result", json_deep_copy(tally)); /* looked at in the end */
	if (json_array_append_new(sc->answers, answer) < 0)
		sc->incomplete = true;
}

static void print_progress(const json_t *tally)
{
	char bytes[16];

	if (isatty(STDERR_FILENO))
		(void)fprintf(stderr, "\r%llu chunks, %s, %llu damaged ",
			(unsigned long long)number(tally, "chunks"),
			units_size(number(tally, "bytes"), bytes, sizeof(bytes)),
			(unsigned long long)number(tally, "bad_pieces"));
}

/* Until the order with that number has ended; another one after it is no longer ours. */
static int wait_for_end(struct scrubbing *sc, const char *run, uint64_t order)
{
	uint64_t told = clock_mono_ns();

	for (;;) {
		json_t *json = NULL;
		const json_t *tally;
		int r = fleet_call(run, "worker.sock", "/v1/scrub", &json, sc->e);

		if (r < 0)
			return r;
		tally = json_object_get(json, "ordered");
		if (number(json, "order") != order) {
			json_decref(json);
			return err_set(sc->e, -ECANCELED,
				"the scrub ended with its worker, or another one began: run it "
				"again");
		}
		if (json_is_true(json_object_get(json, "order_done"))) {
			if (isatty(STDERR_FILENO))
				(void)fprintf(stderr, "\r\033[K");
			if (sc->answers)
				keep(sc, run, order, tally);
			else
				print_result(sc, run, tally);
			sc->dirty |= is_dirty(tally);
			json_decref(json);
			return 0;
		}
		if (clock_mono_ns() - told >= PROGRESS_NS) {
			print_progress(tally);
			told = clock_mono_ns();
		}
		json_decref(json);
		clock_sleep_ns(POLL_NS);
	}
}

/* ---- workers --------------------------------------------------------------------------------- */

/* The volume of the mount in that runtime directory that is meant; NULL: none. A new string. */
static char *find_volume(struct scrubbing *sc, const char *run)
{
	json_t *state = fleet_state(run);
	const json_t *mount;
	char *found = NULL;
	size_t i;

	json_array_foreach (json_object_get(state, "mounts"), i, mount) {
		const char *socket = json_string_value(json_object_get(mount, "socket"));
		struct err e = ERR_INIT;
		json_t *json = NULL;

		if (found || !socket || !target_is(sc->target, mount))
			continue;
		if (admin_call(socket, NULL, "/v1/status", NULL, fleet_timeout(), &json, &e) == 0) {
			const char *volume = json_string_value(json_object_get(json, "volume"));

			found = volume ? strdup(volume) : NULL;
		}
		json_decref(json);
	}
	json_decref(state);
	return found;
}

static int order_one(struct scrubbing *sc, const char *run, const char *volume)
{
	char socket[SOCKET_PATH_MAX];
	char name[PATH_MAX];
	json_t *order = json_deep_copy(sc->order);
	json_t *answer = NULL;
	uint64_t id;
	int r = service_path(run, "worker.sock", socket);

	ensure(r == 0); /* it was called before */
	if (volume)
		(void)json_object_set_new(order, "volume", json_string(volume)); /* looked at */
	r = order ? admin_call(socket, "POST", "/v1/scrub", order, fleet_timeout(), &answer, sc->e)
		  : err_set(sc->e, -ENOMEM, "out of memory");
	json_decref(order);
	if (r < 0)
		return r;
	id = number(answer, "order");
	json_decref(answer);
	sc->n++;
	if (sc->options->wait)
		return wait_for_end(sc, run, id);
	if (sc->answers)
		keep(sc, run, id, NULL);
	else
		(void)printf("%s: scrub started; see cachectl status -o json\n",
			fleet_cache_name(run, name, sizeof(name)));
	return 0;
}

/* Whether the cache has something to scrub. */
static bool has(void *arg, const char *run)
{
	struct scrubbing *sc = arg;
	char *volume;

	if (!sc->target)
		return fleet_alive(run, "worker.sock");
	volume = find_volume(sc, run);
	free(volume);
	return volume != NULL;
}

static int scrub_run(void *arg, const char *run)
{
	struct scrubbing *sc = arg;
	char *volume = sc->target ? find_volume(sc, run) : NULL;
	int r;

	r = order_one(sc, run, volume);
	free(volume);
	return r;
}

static int scrub(struct scrubbing *sc)
{
	const struct scrub_options *options = sc->options;
	unsigned int n = 0;
	int r;

	(void)json_object_set_new(sc->order, "rate", json_integer((json_int_t)options->rate));
	r = options->revalidate ? parse_sample(options->revalidate, sc->order, sc->e) : 0;
	if (r < 0)
		return command_fail(EXIT_USAGE, sc->e);
	r = fleet_each_chosen(&options->choice, has, scrub_run, sc, &n, sc->e);
	if (r < 0) {
		(void)err_default(sc->e, r, "the workers of this node");
		return command_fail(command_exit(r), sc->e);
	}
	if (sc->n == 0 && sc->target)
		return command_fail(target_not_found(sc->target, sc->e), sc->e);
	if (sc->n == 0) {
		(void)err_set(
			sc->e, -ENOENT, "no worker is running on this host: mount something first");
		return command_fail(EXIT_RUNTIME, sc->e);
	}
	return sc->dirty ? EXIT_RUNTIME : EXIT_OK;
}

/* {"workers": [...]}; what was found counts before whether it could be written. */
static int answer(struct scrubbing *sc, int status)
{
	json_t *json = sc->incomplete ? NULL
				      : json_pack("{s:O, s:b}", "workers", sc->answers, "damaged",
						(int)sc->dirty);
	int written = yaml_out_answer(sc->options->output, json);

	json_decref(json);
	return status == EXIT_OK ? written : status;
}

int command_scrub(int argc, char **argv)
{
	struct scrub_options options = { .output = "table" };
	struct err e = ERR_INIT;
	struct scrubbing sc = { .options = &options, .order = json_object(), .e = &e };
	int n = option_parse_or_exit(&set, argc, argv, &options);
	int status = EXIT_OK;

	if (n == 1)
		status = target_new(&(struct master_where){ .cache = options.choice.cache },
			argv[1], &sc.target, &e);
	if (status != EXIT_OK)
		return command_fail(status, &e);
	if (!output_is_table(options.output))
		sc.answers = json_array();
	if (!sc.order || (!sc.answers && !output_is_table(options.output))) {
		json_decref(sc.order);
		(void)err_set(&e, -ENOMEM, "out of memory");
		return command_fail(EXIT_RUNTIME, &e);
	}
	status = scrub(&sc);
	if (sc.answers && json_array_size(sc.answers) > 0)
		status = answer(&sc, status);
	json_decref(sc.order);
	json_decref(sc.answers);
	target_free(sc.target);
	return status;
}
