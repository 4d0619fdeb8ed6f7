/*
 * Writes YAML in block style: maps, lists and scalars, one after the other as they stand in the
 * text, into a buffer.
 *
 *	yaml_writer_init(&w, &out);
 *	yaml_writer_map(&w);
 *	yaml_writer_key(&w, "name");
 *	yaml_writer_text(&w, "a", 1);
 *	yaml_writer_end(&w);
 *	r = yaml_writer_finish(&w);
 *
 * What another reader could take for a number, a truth, nothing, or a part of YAML is quoted, by the
 * rules of 1.1 and of 1.2. What does not fit (`out` past its maximum, no memory, deeper than
 * YAML_WRITER_DEPTH) makes yaml_writer_finish() say so; the calls before need no check. A wrong
 * order of calls is a bug.
 *
 * Lifetime: the caller's memory, `out` borrowed until the end. Threads: one.
 */
#pragma once

#include <stdbool.h>
#include "base/buf.h"

#define YAML_WRITER_DEPTH 32u

struct yaml_writer_level {
	bool list;
	bool bare;   /* its first item goes on on the line that is begun */
	bool broken; /* a line must be begun before its first item */
	bool valued; /* of a map: a key waits for its value */
	unsigned int n;
};

struct yaml_writer {
	struct buf *out;
	struct yaml_writer_level levels[YAML_WRITER_DEPTH];
	unsigned int depth;
	bool done; /* the one value at the top is whole */
	int error;
};

void yaml_writer_init(struct yaml_writer *w, struct buf *out);

void yaml_writer_map(struct yaml_writer *w);
void yaml_writer_list(struct yaml_writer *w);
void yaml_writer_end(struct yaml_writer *w); /* of the innermost of the two */
void yaml_writer_key(struct yaml_writer *w, const char *key);

void yaml_writer_text(struct yaml_writer *w, const char *text, size_t len);
void yaml_writer_integer(struct yaml_writer *w, long long value);
void yaml_writer_real(struct yaml_writer *w, double value);
void yaml_writer_bool(struct yaml_writer *w, bool value);
void yaml_writer_null(struct yaml_writer *w);

/* 0, -ENOBUFS, -ENOMEM, or -E2BIG: too deep. */
int yaml_writer_finish(struct yaml_writer *w) __must_check;
