/*
 * What an option table says of itself, for manuals: `PROGRAM --help=man|keys|markdown|json`.
 *
 *	man		a page for man(1): of a command in section 1, of a daemon in section 8
 *	markdown	the table of a daemon's configuration keys in docs/configuration.md
 *	keys		the keys of a daemon, for granary.yaml(5)
 *	json		everything, hidden options too, for tools
 *
 * Threads: any.
 */
#pragma once

#include <stdbool.h>
#include <stdio.h>
#include "base/option.h"

enum option_doc_form {
	OPTION_DOC_MAN,
	OPTION_DOC_KEYS,
	OPTION_DOC_MARKDOWN,
	OPTION_DOC_JSON,
};

/* The form that `word` ("--help=man") asks for; -EINVAL: none. */
int option_doc_asked(const char *word, enum option_doc_form *ret_form) __must_check;

void option_doc(const struct option_set *set, enum option_doc_form form, FILE *out);

/* May it stand in a configuration file? Not what belongs to one start only: descriptors, the file
 * itself, and what is hidden. */
bool option_is_key(const struct option_spec *spec);

/* Name of the environment variable that holds an option of a daemon: "GRANARY_WORKER_SCRUB_RATE". */
void option_environment_name(
	const struct option_set *set, const struct option_spec *spec, char *out, size_t size);
