/* What base/option.c, base/config.c and base/option_doc.c share. */
#pragma once

#include "base/option.h"

/* Sets one value from text; its line has neither the option's name nor where the text came from. A
 * text is borrowed. */
int option_set_value(
	const struct option_spec *spec, const char *text, void *values, struct err *e) __must_check;

/* Which options of a set were given. */
struct option_seen {
	uint64_t bits[OPTION_SPECS_MAX / 64];
};

static inline void option_seen_add(struct option_seen *seen, size_t i)
{
	seen->bits[i / 64] |= 1ull << i % 64;
}

static inline bool option_seen_has(const struct option_seen *seen, size_t i)
{
	return seen->bits[i / 64] >> i % 64 & 1;
}

/* As option_parse(), but says which options were given instead of missing those that
 * are required. */
int option_parse_words(const struct option_set *set, int argc, char **argv, void *values,
	int *ret_args, struct option_seen *ret_seen, struct err *e) __must_check;
/* `seen` NULL: what is required is given elsewhere. */
int option_check_complete(const struct option_set *set, const struct option_seen *seen,
	unsigned int args, struct err *e) __must_check;

/* What stands for a value: "SIZE", "DIR", "table|json"; "" for a bool. */
const char *option_metavar(const struct option_spec *spec);

/* "a size such as 512MiB, 20GiB or 2TB, at least 16MiB" */
void option_allowed(const struct option_spec *spec, char *out, size_t size);

/* A number as it may be given again, exactly: "8MiB", "30s", "022"; "" for one that was not given. */
void option_number_text(const struct option_spec *spec, uint64_t value, char *out, size_t size);

/* Answers what is asked of the table alone (option_look(), --help=man and the like), and exits. */
void option_answer(const struct option_set *set, int argc, char **argv);
_Noreturn void option_help_exit(const struct option_set *set);
_Noreturn void option_fail(const struct option_set *set, const struct err *e);

/* ---- option_value.c: a value in a struct of values ------------------------------------------- */

size_t option_value_bytes(const struct option_spec *spec);
/* Texts are equal when they read the same. */
bool option_same_value(const struct option_spec *spec, const void *a, const void *b);
/* As it may be given again, cut at `size`; "" for none. */
void option_value_text(const struct option_spec *spec, const void *values, char *out, size_t size);
