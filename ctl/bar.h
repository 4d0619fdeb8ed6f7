/*
 * How far something is that takes a while: a line that is written over on a terminal, else a line
 * every few seconds.
 *
 * A value of one thread: _init, _show again and again, _end.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct bar_progress {
	uint64_t bytes;
	uint64_t bytes_done;
	uint64_t files;
	uint64_t files_done;
	uint64_t files_failed;
	uint64_t rate;    /* bytes a second */
	int64_t eta_s;    /* -1: not to be said */
	const char *note; /* in the place of all that when there are no files; may be NULL */
};

struct bar {
	FILE *out;
	bool terminal;
	bool dirty;       /* an unfinished line stands there */
	uint64_t told_ns; /* the last plain line; 0: none */
};

void bar_init(struct bar *bar, FILE *out);
void bar_show(struct bar *bar, const struct bar_progress *progress);
/* Takes the unfinished line away: what follows begins one of its own. */
void bar_end(struct bar *bar);

/* The line, at most `columns` wide, with a bar when there is room; 0: without one. Never longer than
 * size - 1 bytes. Returns out. */
const char *bar_text(
	const struct bar_progress *progress, unsigned int columns, char *out, size_t size);
