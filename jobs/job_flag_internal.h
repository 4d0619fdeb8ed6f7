/* What jobs/job_flag.c and the table of flags in jobs/job_flag_table.c share. */
#pragma once

#include "jobs/job_flag.h"

struct job_flag;

/* A command line being taken. */
struct taking {
	const struct job_type *type;
	const struct job_flag_values *values;
	struct job_spec *spec;
	json_t *notes;
	bool files;
	struct err *e;
};

/* Adds one value of a flag ("true" of a switch) to the spec. */
typedef int (*job_flag_take_fn)(struct taking *a, const struct job_flag *flag, const char *value);

struct job_flag {
	const char *name;
	char letter;
	enum option_kind kind; /* OPTION_STRING, OPTION_BOOL or OPTION_LIST */
	unsigned int types;    /* a bit for each that takes it */
	const char *path;      /* field of the spec */
	job_flag_take_fn take; /* NULL: refused */
	const char *metavar;
	const char *help; /* of a refused one: what to write instead */
};

/* Rows of one name stand together, and differ in their types. Ends with a row without a name. */
extern const struct job_flag job_flags[];

/* What a flag was given: its text; NULL: not given. */
const char *job_flag_given(const struct taking *a, const char *name);

int job_flag_take_text(struct taking *a, const struct job_flag *flag, const char *value);
int job_flag_take_one(
	struct taking *a, const struct job_flag *flag, const char *value); /* sets 1 */
int job_flag_take_item(struct taking *a, const struct job_flag *flag, const char *value);
int job_flag_take_pair(struct taking *a, const struct job_flag *flag, const char *value);
int job_flag_take_queue(struct taking *a, const struct job_flag *flag, const char *value);
int job_flag_take_empty(struct taking *a, const struct job_flag *flag, const char *value);
int job_flag_take_data(struct taking *a, const struct job_flag *flag, const char *value);
int job_flag_take_data_dir(struct taking *a, const struct job_flag *flag, const char *value);
int job_flag_take_dataset(struct taking *a, const struct job_flag *flag, const char *value);
int job_flag_take_shm(struct taking *a, const struct job_flag *flag, const char *value);
int job_flag_take_toleration(struct taking *a, const struct job_flag *flag, const char *value);
int job_flag_take_workers(struct taking *a, const struct job_flag *flag, const char *value);
int job_flag_take_file(struct taking *a, const struct job_flag *flag, const char *value);
/* Taken together with others, at the end. */
int job_flag_take_later(struct taking *a, const struct job_flag *flag, const char *value);
