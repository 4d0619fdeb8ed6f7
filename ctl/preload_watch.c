/* Waiting for preloads, with one bar for all that were begun together. See preload_command.h. */
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/units.h"
#include "ctl/bar.h"
#include "ctl/command.h"
#include "ctl/fleet.h"
#include "ctl/preload_command.h"
#include "ctl/yaml_out.h"

#include <inttypes.h>
#include <signal.h>

#define POLL_NS   (100 * CLOCK_MS)
#define SOON_NS   (20 * CLOCK_MS) /* where the awaited state is about to come */
#define SHORT_NS  CLOCK_SECOND    /* after its begin a preload may be a short one */
#define LAST_S    1 /* time left, by the master, from which the end is about to come */
#define SILENT_NS (60 * CLOCK_SECOND) /* of a master that is started again meanwhile */
#define SLICE_NS  (20 * CLOCK_MS)

static volatile sig_atomic_t interrupted;

static void on_interrupt(int signal)
{
	(void)signal;
	interrupted = 1;
}

/* The second one ends as ever. */
static void catch_interrupts(void)
{
	struct sigaction action = { .sa_handler = on_interrupt, .sa_flags = (int)SA_RESETHAND };

	(void)sigaction(SIGINT, &action, NULL);  /* cannot fail */
	(void)sigaction(SIGTERM, &action, NULL); /* likewise */
}

static void sleep_unless_interrupted(uint64_t ns)
{
	for (uint64_t slept = 0; slept < ns && !interrupted; slept += SLICE_NS)
		clock_sleep_ns(SLICE_NS);
}

/* ---- asking ---------------------------------------------------------------------------------- */

/* What the master says of each, referenced. */
struct answers {
	json_t *jobs[PRELOAD_SET_MAX];
	uint32_t n;
};

static void answers_release(struct answers *answers)
{
	for (uint32_t i = 0; i < answers->n; i++)
		json_decref(answers->jobs[i]);
	answers->n = 0;
}

/* All of them, or none. */
static int get(const struct master_where *where, const struct preload_set *set,
	struct answers *ret_answers, struct err *e)
{
	struct answers answers = { 0 };
	int r = 0;

	for (uint32_t i = 0; i < set->n && r == 0; i++) {
		char path[64];

		(void)snprintf(path, sizeof(path), "/v1/preloads/%" PRIu64, set->ids[i]); /* fits */
		r = master_call(where, NULL, path, NULL, MASTER_CALL_NS, &answers.jobs[i], e);
		if (r == 0)
			answers.n++;
	}
	if (r < 0)
		answers_release(&answers);
	else
		*ret_answers = answers;
	return r;
}

static bool all_are(const struct answers *answers, bool (*done)(const json_t *job))
{
	for (uint32_t i = 0; i < answers->n; i++)
		if (!done(answers->jobs[i]))
			return false;
	return true;
}

/* Of all together; the time left is that of the slowest, the note that of the first not at its end. */
static struct bar_progress progress_of(const struct answers *answers)
{
	struct bar_progress sum = preload_progress(answers->jobs[0]);
	bool noted = !preload_has_ended(answers->jobs[0]);

	for (uint32_t i = 1; i < answers->n; i++) {
		struct bar_progress one = preload_progress(answers->jobs[i]);
		bool ended = preload_has_ended(answers->jobs[i]);

		sum.bytes += one.bytes;
		sum.bytes_done += one.bytes_done;
		sum.files += one.files;
		sum.files_done += one.files_done;
		sum.files_failed += one.files_failed;
		sum.rate += one.rate;
		sum.eta_s = max(sum.eta_s, one.eta_s);
		if (!noted && !ended)
			sum.note = one.note;
		noted |= !ended;
	}
	return sum;
}

/* Until the next question. A command ends that much later than its preload: little next to a short preload, or near the end. */
static uint64_t pause_of(const struct bar_progress *progress, uint64_t began_ns)
{
	bool ends = progress->eta_s >= 0 && progress->eta_s <= LAST_S;

	return ends || clock_mono_ns() - began_ns < SHORT_NS ? SOON_NS : POLL_NS;
}

/* Asks until all are `done`; a master that is being started again is waited for. `bar`: of a wait for the end. */
static int poll(const struct master_where *where, const struct preload_set *set,
	bool (*done)(const json_t *job), struct bar *bar, struct answers *ret_answers,
	struct err *e)
{
	uint64_t began = clock_mono_ns();
	uint64_t answered = began;

	while (!interrupted) {
		struct answers answers;
		int r = get(where, set, &answers, e);
		struct bar_progress progress;
		uint64_t pause_ns = bar ? POLL_NS : SOON_NS;

		if (r == 0) {
			answered = clock_mono_ns();
			if (all_are(&answers, done)) {
				*ret_answers = answers;
				return 0;
			}
			progress = progress_of(&answers);
			if (bar) {
				bar_show(bar, &progress);
				pause_ns = pause_of(&progress, began);
			}
			answers_release(&answers);
		} else if (!fleet_unreachable(r) || clock_mono_ns() - answered > SILENT_NS) {
			return r;
		}
		sleep_unless_interrupted(pause_ns);
	}
	return -EINTR;
}

/* ---- the end --------------------------------------------------------------------------------- */

/* Which part of a dataset, when there are several. */
static void print_part(const json_t *job, bool several)
{
	if (several)
		(void)printf("/%s: ", preload_text(job, "at"));
}

static void print_end(const json_t *job, bool several)
{
	char bytes[16];
	char all[16];
	char fetched[16];

	(void)units_size(preload_number(job, "bytes_done"), bytes, sizeof(bytes));
	(void)units_size(preload_number(job, "bytes"), all, sizeof(all));
	(void)units_size(preload_number(job, "bytes_fetched"), fetched, sizeof(fetched));
	if (preload_is(job, "complete")) {
		print_part(job, several);
		(void)printf("complete: %" PRIu64
			     " files, %s, cached and checked; %s fetched now\n",
			preload_number(job, "files_done"), bytes, fetched);
		return;
	}
	if (preload_number(job, "files")) {
		print_part(job, several);
		(void)printf("%s: %" PRIu64 " of %" PRIu64 " files, %s of %s cached; %s fetched\n",
			preload_text(job, "state"), preload_number(job, "files_done"),
			preload_number(job, "files"), bytes, all, fetched);
	}
	preload_print_failures(job);
}

/* Nothing of this source is meant: the others are. */
static bool is_beside(const json_t *job, const struct answers *answers)
{
	return answers->n > 1 && preload_number(job, "files") == 0 && preload_is(job, "complete") &&
	       json_array_size(json_object_get(job, "paths"));
}

/* {"preloads": [...]} */
static int print_answers(const struct answers *answers, const char *format)
{
	json_t *all = json_array();

	for (uint32_t i = 0; i < answers->n; i++)
		if (json_array_append(all, answers->jobs[i]) < 0) {
			json_decref(all);
			return yaml_out_made(format, NULL);
		}
	return yaml_out_made(format, json_pack("{s:o}", "preloads", all));
}

/* The result of each, and the exit status that goes with them. */
static int end(const struct answers *answers, const char *format, struct err *e)
{
	bool table = output_is_table(format);
	const json_t *bad = NULL;
	uint64_t files = 0;

	for (uint32_t i = 0; i < answers->n; i++) {
		const json_t *job = answers->jobs[i];

		files += preload_number(job, "files");
		if (table && !is_beside(job, answers))
			print_end(job, answers->n > 1);
		if (!bad && !is_beside(job, answers) && !preload_is(job, "complete"))
			bad = job;
	}
	if (!table && print_answers(answers, format) != EXIT_OK)
		return EXIT_RUNTIME;
	(void)fflush(stdout); /* before the line about it */
	if (bad)
		(void)err_set(e, -EIO, "preload %" PRIu64 " %s: %s", preload_number(bad, "id"),
			preload_text(bad, "state"), preload_text(bad, "reason"));
	else if (files == 0 && json_array_size(json_object_get(answers->jobs[0], "paths")))
		(void)err_set(e, -ENOENT,
			"no object matches these patterns: see `cachectl preload --help`");
	else
		return EXIT_OK;
	return command_fail(EXIT_RUNTIME, e);
}

static int interrupt(const struct preload_set *set, struct err *e)
{
	uint64_t id = set->ids[0];

	*e = ERR_INIT;
	if (set->n > 1)
		(void)err_set(e, -EINTR,
			"interrupted: preloads %" PRIu64 " to %" PRIu64
			" continue: see `cachectl preload list`, or end one with `cachectl preload "
			"cancel ID`",
			id, set->ids[set->n - 1]);
	else
		(void)err_set(e, -EINTR,
			"interrupted: preload %" PRIu64
			" continues: see `cachectl preload watch %" PRIu64
			"`, or end it with `cachectl preload cancel %" PRIu64 "`",
			id, id, id);
	return command_fail(EXIT_INTERRUPTED, e);
}

int preload_watch(const struct master_where *where, const struct preload_set *set,
	const char *format, struct err *e)
{
	_cleanup_(answers_release) struct answers answers = { 0 };
	struct bar bar;
	int r;

	bar_init(&bar, stderr);
	catch_interrupts();
	r = poll(where, set, preload_has_ended, &bar, &answers, e);
	bar_end(&bar);
	if (r == -EINTR)
		return interrupt(set, e);
	return r < 0 ? command_fail(EXIT_RUNTIME, e) : end(&answers, format, e);
}

static bool is_open(const json_t *job)
{
	return !preload_is(job, "listing");
}

int preload_wait_open(const struct master_where *where, const struct preload_set *set,
	const char *format, struct err *e)
{
	_cleanup_(answers_release) struct answers answers = { 0 };
	int r;

	catch_interrupts();
	r = poll(where, set, is_open, NULL, &answers, e);
	if (r == -EINTR)
		return interrupt(set, e);
	if (r < 0)
		return command_fail(EXIT_RUNTIME, e);
	for (uint32_t i = 0; i < answers.n; i++)
		if (preload_is(answers.jobs[i], "failed"))
			return end(&answers, format, e);
	if (!output_is_table(format))
		return print_answers(&answers, format);
	for (uint32_t i = 0; i < set->n; i++)
		(void)printf("preload %" PRIu64 " started: see `cachectl preload watch %" PRIu64
			     "`\n",
			set->ids[i], set->ids[i]);
	return EXIT_OK;
}
