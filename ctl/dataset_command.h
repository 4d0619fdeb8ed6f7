/*
 * What the commands about datasets share: asking the master for them, and showing them.
 *
 * Threads: one.
 */
#pragma once

#include "ctl/master_call.h"

#define DATASET_NAME_BYTES 64u
#define DATASET_PATH_BYTES 512u
#define DATASET_CREATE_NS  (60 * CLOCK_SECOND) /* the origin is asked */

/* "/v1/datasets/NAME" and what follows. -EINVAL with a line: an invalid name. */
int dataset_path(const char *name, const char *rest, char out[DATASET_PATH_BYTES],
	struct err *e) __must_check;
/* One request about the dataset, as master_call(); an exit status. */
int dataset_call(const struct master_where *where, const char *method, const char *name,
	const char *rest, const json_t *body, json_t **ret_json, struct err *e) __must_check;

/* What was changed: `line` for people, or else `dataset`, the master's answer, which it releases. An exit
 * status. */
int dataset_answer(const char *format, json_t *dataset, const char *line) __must_check;

/* The URL of its source, or the first of them, for people. */
const char *dataset_url(const json_t *dataset);

#define DATASET_SOURCES_MAX 16

/* "GENERATION", or "PATH=GENERATION" of one of several sources. */
struct dataset_which {
	char path[1024]; /* "": the only source */
	uint64_t generation;
};
/* -EINVAL with a line. */
int dataset_parse_which(const char *text, struct dataset_which *ret, struct err *e) __must_check;
/* Adds "generation", or "generations" by path. -EINVAL with a line; failures of JSON are counted. */
int dataset_which_json(json_t *body, const struct dataset_which *which, unsigned int n,
	struct err *e) __must_check;

/* Rows of datasets, and one at length; exit statuses. */
int dataset_print_table(const json_t *datasets, bool wide);
int dataset_print_one(const json_t *dataset);
int dataset_print_generations(const json_t *answer);

/* cachectl dataset generations, diff, rollback. */
int dataset_generations(int argc, char **argv);
int dataset_diff(int argc, char **argv);
int dataset_rollback(int argc, char **argv);
