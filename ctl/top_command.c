/*
 * cachectl top: what this node reads, again and again. On a terminal the screen is drawn anew until
 * 'q'; otherwise a table per interval, a JSON object a line, or a YAML
 * document each.
 */
#include "admin/admin.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/option.h"
#include "base/units.h"
#include "ctl/columns.h"
#include "ctl/command.h"
#include "ctl/service.h"
#include "ctl/top_sample.h"
#include "ctl/yaml_out.h"

#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <termios.h>
#include <unistd.h>

#define FIRST_NS    CLOCK_SECOND /* the first interval is no longer: somebody waits */
#define LINES_LEAST 8

struct top_options {
	uint64_t count;
	uint64_t interval;
	const char *output;
};

static const struct option_spec specs[] = {
	OPTION_ROW(struct top_options, count, "count", OPTION_UINT, .letter = 'n',
		.help = "Number of intervals; 0: until 'q' or a signal (default: 0)"),
	OPTION_ROW(struct top_options, interval, "delay", OPTION_DURATION, .letter = 'd',
		.min = CLOCK_SECOND / 10, .help = "Length of an interval (default: 2s)"),
	OUTPUT_OPTION_ROW(struct top_options, output, OUTPUT_CHOICES),
};

static const struct option_set set = {
	.program = "cachectl top",
	.arguments = "",
	.about = "Shows what the mounts of this host and the workers of its cluster read, interval "
		 "by interval: per\n"
		 "source the hit ratio and the origin of its bytes, per worker its tiers and the "
		 "causes of waits.\n"
		 "Reads that the kernel answers (page cache, sealed extents) are not counted.",
	.specs = specs,
	.n = ARRAY_SIZE(specs),
};

struct top {
	struct top_options options;
	bool terminal;
	bool keys; /* are read from standard input */
	struct termios saved;
	int signal_fd;
	struct top_sample *before;
	struct top_sample *delta;
	uint64_t took_ns; /* the interval */
};

/* ---- tables ---------------------------------------------------------------------------------- */

/* "1.2GiB/s"; "0" when nothing moved. */
static const char *rate(uint64_t bytes, uint64_t ns, char out[24])
{
	char text[16];

	if (bytes == 0)
		return "0";
	(void)snprintf(out, 24, "%s/s",
		units_size((uint64_t)((double)bytes * 1e9 / (double)ns), text, sizeof(text)));
	return out;
}

static const char *count_text(uint64_t n, char out[24])
{
	(void)snprintf(out, 24, "%llu", (unsigned long long)n); /* fits */
	return out;
}

static int add_source(struct columns *columns, const struct top_source *s, uint64_t ns)
{
	double ratio = top_hit_ratio(s);
	char hit[24] = "";
	char text[10][24];
	char cached[40];
	bool bounded = s->quota && !s->unbounded;

	if (ratio >= 0)
		(void)units_percent(ratio, 1, hit, sizeof(hit));
	(void)snprintf(cached, sizeof(cached), "%s/%s",
		units_size(s->cached, text[5], sizeof(text[5])),
		units_size(s->bytes, text[6], sizeof(text[6]))); /* fits */
	return columns_add(
		columns, (const char *const[]){ s->name[0] ? s->name : s->url, cached,
				 ratio < 0 ? NULL : hit, rate(s->node, ns, text[0]),
				 rate(s->worker, ns, text[1]), rate(s->origin, ns, text[2]),
				 count_text(s->slow, text[3]), count_text(s->waiting, text[4]),
				 bounded ? units_size(s->quota, text[7], sizeof(text[7])) : NULL,
				 units_size(s->evicted, text[8], sizeof(text[8])),
				 rate(s->evicting, ns, text[9]) });
}

static int print_sources(const struct top *top, FILE *out)
{
	static const char *const titles[] = { "SOURCE", "CACHED", "HIT RATIO", "NODE", "WORKER",
		"ORIGIN", "SLOW", "WAITING", "QUOTA", "EVICTED", "EVICTING" };
	_cleanup_(columns_release) struct columns columns = { 0 };
	int r = columns_init(&columns, titles, ARRAY_SIZE(titles), 0x7fe);

	for (unsigned int i = 0; i < top->delta->n_sources && r == 0; i++)
		r = add_source(&columns, &top->delta->sources[i], top->took_ns);
	if (r == 0 && top->delta->n_sources)
		columns_print(&columns, out);
	else if (r == 0)
		(void)fprintf(out, "nothing is mounted%s\n", geteuid() == 0 ? "" : " by you");
	return r;
}

static const char *worker_name(const struct top_worker *w)
{
	return service_is_run(w->run) ? "service" : w->run;
}

static int add_worker(struct columns *columns, const struct top_worker *w, uint64_t ns)
{
	char text[3][24];
	char room[40];
	char stalls[96] = "";
	char a[16];
	char b[16];
	size_t n = 0;

	(void)snprintf(room, sizeof(room), "%s/%s", units_size(w->used, a, sizeof(a)),
		units_size(w->capacity, b, sizeof(b))); /* fits */
	for (unsigned int s = 0; s < TOP_STALLS; s++)
		if (w->stalls[s] && n < sizeof(stalls))
			n += (size_t)snprintf(stalls + n, sizeof(stalls) - n, "%s%s %llu",
				n ? ", " : "", top_stall_names[s],
				(unsigned long long)w->stalls[s]);
	return columns_add(
		columns, (const char *const[]){ worker_name(w), room, rate(w->tier, ns, text[0]),
				 w->far ? NULL : rate(w->origin, ns, text[1]),
				 count_text(w->in_flight, text[2]), n ? stalls : NULL });
}

static int print_workers(const struct top *top, FILE *out)
{
	static const char *const titles[] = { "WORKER", "USED", "TIER", "ORIGIN", "IN FLIGHT",
		"STALLS" };
	_cleanup_(columns_release) struct columns columns = { 0 };
	int r = columns_init(&columns, titles, ARRAY_SIZE(titles), 0x1e);

	for (unsigned int i = 0; i < top->delta->n_workers && r == 0; i++)
		r = add_worker(&columns, &top->delta->workers[i], top->took_ns);
	if (r == 0 && top->delta->n_workers) {
		(void)fputc('\n', out);
		columns_print(&columns, out);
	}
	return r;
}

static int print_tables(const struct top *top, FILE *out)
{
	char stamp[CLOCK_TEXT_MAX];
	char took[24];
	int r;

	(void)fprintf(out, "%s  interval %s%s\n", clock_text(clock_wall_ns() / CLOCK_SECOND, stamp),
		units_duration(top->took_ns, took, sizeof(took)),
		top->delta->more ? "  (more sources or workers than are shown)" : "");
	r = print_sources(top, out);
	return r == 0 ? print_workers(top, out) : r;
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static json_int_t per_second(const struct top *top, uint64_t n)
{
	return (json_int_t)((double)n * 1e9 / (double)top->took_ns);
}

static json_t *source_json(const struct top *top, const struct top_source *s)
{
	double ratio = top_hit_ratio(s);

	return json_pack("{s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:o, s:{s:I, s:I, s:I, s:I}, s:I, "
			 "s:o, s:I}",
		"volume", s->volume, "dataset", s->name, "source", s->url, "bytes",
		(json_int_t)s->bytes, "cached_bytes", (json_int_t)s->cached, "mounts",
		(json_int_t)s->mounts, "waiting", (json_int_t)s->waiting, "hit_ratio",
		ratio < 0 ? json_null() : json_real(units_ratio(ratio, 1)), "bytes_per_s", "node",
		per_second(top, s->node), "worker", per_second(top, s->worker), "origin",
		per_second(top, s->origin), "evicted", per_second(top, s->evicting), "slow_reads",
		(json_int_t)s->slow, "quota",
		s->quota && !s->unbounded ? json_integer((json_int_t)s->quota) : json_null(),
		"evicted_bytes", (json_int_t)s->evicted);
}

static json_t *worker_json(const struct top *top, const struct top_worker *w)
{
	json_t *stalls = json_object();

	for (unsigned int s = 0; stalls && s < TOP_STALLS; s++)
		(void)json_object_set_new(stalls, top_stall_names[s],
			json_integer((json_int_t)w->stalls[s])); /* told only */
	return json_pack("{s:s, s:s, s:I, s:I, s:I, s:{s:I, s:o}, s:o}", "name", worker_name(w),
		"run", w->run, "used", (json_int_t)w->used, "capacity", (json_int_t)w->capacity,
		"in_flight", (json_int_t)w->in_flight, "bytes_per_s", "tier",
		per_second(top, w->tier), "origin",
		w->far ? json_null() : json_integer(per_second(top, w->origin)), "stalls", stalls);
}

static int print_json(const struct top *top, FILE *out)
{
	json_t *sources = json_array();
	json_t *workers = json_array();
	bool yaml = strcmp(top->options.output, "yaml") == 0;
	_cleanup_free_ char *text = NULL;
	json_t *json;
	int r = 0;

	for (unsigned int i = 0; i < top->delta->n_sources; i++)
		r |= json_array_append_new(sources, source_json(top, &top->delta->sources[i]));
	for (unsigned int i = 0; i < top->delta->n_workers; i++)
		r |= json_array_append_new(workers, worker_json(top, &top->delta->workers[i]));
	json = json_pack("{s:o, s:f, s:o, s:o}", "time", admin_json_time((int64_t)clock_wall_ns()),
		"interval_s", (double)top->took_ns / 1e9, "sources", sources, "workers", workers);
	text = !yaml && json ? admin_json_text(json, JSON_COMPACT) : NULL;
	if (!json || r != 0 || !(yaml || text))
		r = -ENOMEM;
	else if (yaml)
		r = fputs("---\n", out) == EOF ? -ENOMEM : yaml_out(json, out);
	else
		r = fprintf(out, "%s\n", text) < 0 ? -ENOMEM : 0;
	json_decref(json);
	return r;
}

/* ---- terminal -------------------------------------------------------------------------------- */

static void terminal_begin(struct top *top)
{
	struct termios raw;

	(void)printf("\033[?1049h\033[?25l"); /* a screen of its own, without a cursor */
	top->keys = isatty(STDIN_FILENO) && tcgetattr(STDIN_FILENO, &top->saved) == 0;
	if (!top->keys)
		return;
	raw = top->saved;
	raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
	(void)tcsetattr(STDIN_FILENO, TCSANOW, &raw); /* else 'q' needs a newline */
}

static void terminal_end(struct top *top)
{
	if (!top->terminal)
		return;
	(void)printf("\033[?25h\033[?1049l");
	(void)fflush(stdout);
	if (top->keys)
		(void)tcsetattr(STDIN_FILENO, TCSANOW, &top->saved); /* nothing else to do */
}

/* Bytes of the first `columns` characters of a line. */
static int line_bytes(const char *line, size_t len, unsigned int columns)
{
	size_t n = 0;

	for (; n < len; n++)
		if (((unsigned char)line[n] & 0xc0) != 0x80 && columns-- == 0)
			break;
	return (int)n;
}

/* As much of the text as the screen has room for. */
static void draw(const char *text)
{
	struct winsize size = { .ws_row = 24, .ws_col = 80 };
	unsigned int rows;

	(void)ioctl(STDOUT_FILENO, TIOCGWINSZ, &size); /* else the usual */
	rows = max((unsigned int)size.ws_row, (unsigned int)LINES_LEAST) - 1;
	(void)printf("\033[H");
	for (; *text && rows > 0; rows--) {
		size_t len = strcspn(text, "\n");

		(void)printf("%.*s\033[K\r\n", line_bytes(text, len, max(size.ws_col, 20)), text);
		text += len + (text[len] == '\n');
	}
	(void)printf("\033[Jq: quit");
	(void)fflush(stdout);
}

/* Until then, or 'q' or a signal: true. */
static bool wait_until(struct top *top, uint64_t deadline_ns)
{
	struct pollfd wait[] = { { .fd = top->signal_fd, .events = POLLIN },
		{ .fd = top->keys ? STDIN_FILENO : -1, .events = POLLIN } };

	for (;;) {
		uint64_t now = clock_mono_ns();
		char key = 0;
		ssize_t n;

		if (now >= deadline_ns)
			return false;
		if (poll(wait, ARRAY_SIZE(wait), (int)((deadline_ns - now) / CLOCK_MS) + 1) <= 0)
			continue;
		if (wait[0].revents)
			return true;
		n = read(STDIN_FILENO, &key, 1);
		if (n == 1 && (key == 'q' || key == 'Q'))
			return true;
		if (n <= 0)
			wait[1].fd = -1; /* no keys any more */
	}
}

/* ---- life ------------------------------------------------------------------------------------ */

static int show(struct top *top)
{
	bool table = output_is_table(top->options.output);
	_cleanup_free_ char *text = NULL;
	size_t len = 0;
	FILE *out = open_memstream(&text, &len);
	int r;

	if (!out)
		return -ENOMEM;
	r = table ? print_tables(top, out) : print_json(top, out);
	if (fclose(out) != 0 || r < 0)
		return -ENOMEM;
	if (top->terminal)
		draw(text);
	else if (fputs(text, stdout) == EOF || (table && putchar('\n') == EOF) ||
		 fflush(stdout) != 0)
		return -EPIPE; /* nobody reads it any more */
	return 0;
}

static int run(struct top *top)
{
	uint64_t shown = 0;
	uint64_t next = clock_mono_ns() + min(top->options.interval, FIRST_NS);
	int r = top_sample_new(&top->before);

	while (r == 0 && !wait_until(top, next)) {
		struct top_sample *now;

		next += top->options.interval;
		r = top_sample_new(&now);
		if (r < 0)
			break;
		top->took_ns = max(now->at_ns - top->before->at_ns, 1ull);
		top_sample_since(now, top->before, top->delta);
		free(top->before);
		top->before = now;
		r = show(top);
		if (r == 0 && ++shown == top->options.count)
			break;
		next = max(next, clock_mono_ns()); /* slow daemons: no hurry afterwards */
	}
	return r;
}

static int open_signals(struct top *top)
{
	sigset_t signals;

	sigemptyset(&signals);
	sigaddset(&signals, SIGINT);
	sigaddset(&signals, SIGTERM);
	sigaddset(&signals, SIGHUP);
	(void)sigprocmask(SIG_BLOCK, &signals, NULL); /* cannot fail */
	(void)signal(SIGPIPE, SIG_IGN);
	top->signal_fd = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
	return top->signal_fd < 0 ? err_errno() : 0;
}

int command_top(int argc, char **argv)
{
	struct top top = { .options = { .interval = 2 * CLOCK_SECOND, .output = "table" } };
	struct err e = ERR_INIT;
	int r;

	(void)option_parse_or_exit(&set, argc, argv, &top.options); /* takes no arguments */
	top.terminal = isatty(STDOUT_FILENO) && output_is_table(top.options.output);
	top.delta = calloc(1, sizeof(*top.delta));
	r = top.delta ? open_signals(&top) : -ENOMEM;
	if (r == 0 && top.terminal)
		terminal_begin(&top);
	if (r == 0) {
		r = run(&top);
		terminal_end(&top);
		cleanup_close(&top.signal_fd);
	}
	free(top.before);
	free(top.delta);
	if (r == 0 || r == -EPIPE)
		return EXIT_OK;
	(void)err_set(&e, r,
		"cannot read the runtime directories: %s; run as the user of the "
		"mounts",
		err_str(r));
	return command_fail(EXIT_RUNTIME, &e);
}
