/* How far something is. See bar.h. */
#include "ctl/bar.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/units.h"

#include <inttypes.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define PLAIN_NS      (5 * CLOCK_SECOND)
#define LINE_BYTES    512u
#define COLUMNS       80u
#define BAR_LEAST     10u
#define BAR_MOST      40u
#define PER_MILLE_ALL 1000u

/* By bytes, or by files where there are no bytes. All only when nothing is left. */
static unsigned int per_mille(const struct bar_progress *p)
{
	uint64_t all = p->bytes ? p->bytes : p->files;
	uint64_t done = p->bytes ? p->bytes_done : p->files_done;

	if (all == 0 || done >= all)
		return all ? PER_MILLE_ALL : 0;
	return (unsigned int)((double)done * PER_MILLE_ALL / (double)all);
}

static void add_bar(unsigned int share, unsigned int columns, char *out, size_t size)
{
	unsigned int width = columns > 2 + BAR_LEAST ? min(columns - 2, BAR_MOST) : 0;
	unsigned int full = width * share / PER_MILLE_ALL;
	size_t at = strlen(out);

	if (!width || at + width + 3 > size)
		return;
	out[at++] = '[';
	for (unsigned int i = 0; i < width; i++)
		out[at++] = i < full ? '=' : i == full ? '>' : ' ';
	out[at++] = ']';
	out[at++] = ' ';
	out[at] = '\0';
}

const char *bar_text(const struct bar_progress *p, unsigned int columns, char *out, size_t size)
{
	unsigned int share = per_mille(p);
	char text[LINE_BYTES];
	char done[16];
	char all[16];
	char rate[16];
	char eta[24];
	char part[16];
	int n;

	out[0] = '\0';
	if (p->files == 0) {
		(void)snprintf(out, size, "%s", p->note ? p->note : "waiting"); /* cut */
	} else {
		n = snprintf(text, sizeof(text), "%s %s of %s, %" PRIu64 " of %" PRIu64 " files",
			units_percent(share, PER_MILLE_ALL, part, sizeof(part)),
			units_size(p->bytes_done, done, sizeof(done)),
			units_size(p->bytes, all, sizeof(all)), p->files_done, p->files);
		if (p->files_failed)
			n += snprintf(text + n, sizeof(text) - (size_t)n, ", %" PRIu64 " failed",
				p->files_failed);
		if (p->rate)
			n += snprintf(text + n, sizeof(text) - (size_t)n, ", %s/s",
				units_size(p->rate, rate, sizeof(rate)));
		if (p->eta_s >= 0 && share < PER_MILLE_ALL)
			n += snprintf(text + n, sizeof(text) - (size_t)n, ", %s left",
				units_age(p->eta_s, eta, sizeof(eta))); /* all fits */
		if (columns > (unsigned int)n + 1)
			add_bar(share, columns - (unsigned int)n - 1, out, size);
		(void)snprintf(out + strlen(out), size - strlen(out), "%s", text); /* cut */
	}
	if (columns && strlen(out) > columns)
		out[columns] = '\0';
	return out;
}

void bar_init(struct bar *bar, FILE *out)
{
	*bar = (struct bar){ .out = out, .terminal = isatty(fileno(out)) == 1 };
}

static unsigned int columns_of(const struct bar *bar)
{
	struct winsize size;

	if (ioctl(fileno(bar->out), TIOCGWINSZ, &size) != 0 || size.ws_col < 2)
		return COLUMNS - 1;
	return min(size.ws_col, LINE_BYTES) - 1u; /* the last one would begin the next line */
}

void bar_show(struct bar *bar, const struct bar_progress *progress)
{
	char line[LINE_BYTES];
	uint64_t now = clock_mono_ns();

	if (bar->terminal) {
		(void)fprintf(bar->out, "\r%s\033[K",
			bar_text(progress, columns_of(bar), line, sizeof(line)));
		(void)fflush(bar->out); /* shown only */
		bar->dirty = true;
	} else if (now - bar->told_ns >= PLAIN_NS) {
		(void)fprintf(bar->out, "%s\n", bar_text(progress, 0, line, sizeof(line)));
		bar->told_ns = now;
	}
}

void bar_end(struct bar *bar)
{
	if (bar->dirty)
		(void)fprintf(bar->out, "\r\033[K");
	(void)fflush(bar->out); /* shown only */
	bar->dirty = false;
}
