/*
 * Command lines written for Arena (`arena submit TYPE [FLAG...] [--] COMMAND...`) as job specs, from one table of flags
 * (job_flag_table.c). A flag sets fields of the spec, or is refused with what to write instead; none is ignored.
 *
 *	n = job_flag_options(type, specs, offsetof(struct mine, flags));	options for option_parse()
 *	r = job_flag_take(type, &mine.flags, command, n_command, &spec, notes, &e);
 *
 * Threads: any; no globals.
 */
#pragma once

#include "base/option.h"
#include "jobs/job_type.h"
#include "jobs/spec.h"

#define JOB_FLAGS_MAX 192u

union job_flag_value {
	const char *text;
	bool on;
	struct option_list list;
};

/* One for each name, in the order of job_flag_options(). Zeroed before parsing. */
struct job_flag_values {
	union job_flag_value of[JOB_FLAGS_MAX];
};

/* The options of all types, those that `type` (NULL: any) does not take hidden; `offset`: of a struct job_flag_values in the caller's
 * values. Returns their number. */
unsigned int job_flag_options(
	const struct job_type *type, struct option_spec out[JOB_FLAGS_MAX], size_t offset);

/*
 * Fills `spec`, an initialized one, from what was parsed and the words of the command. `notes`, an array, gets a text for each
 * thing that the flags do unexpectedly. `files`: whether --config-file may read this host. job_spec_finish() is the caller's. -EINVAL
 * with its line; -ENOMEM.
 */
int job_flag_take(const struct job_type *type, const struct job_flag_values *values, bool files,
	char *const *command, int n_command, struct job_spec *spec, json_t *notes,
	struct err *e) __must_check;

/* ---- the table, for documents ---------------------------------------------------------------- */

enum job_flag_fate {
	JOB_FLAG_HONOURED,  /* sets the field of the spec */
	JOB_FLAG_CONVERTED, /* sets other fields, or another value */
	JOB_FLAG_REFUSED,   /* with what to write instead */
	JOB_FLAG_OTHER,     /* of other types */
};

/* The i-th row: name, field of the spec (or what to write instead), fate for `type`. False: no more. */
bool job_flag_at(unsigned int i, const struct job_type *type, const char **ret_name,
	const char **ret_text, enum job_flag_fate *ret_fate);
