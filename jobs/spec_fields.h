/*
 * The fields of a job spec, declared once: reading and checking, the published JSON schema and the help of `cachectl job` come from
 * this table.
 *
 * A spec is a tree of JSON. Each value arrives as text, from YAML, --set or a flag, and its field says what it is: `yes`, `0123` and
 * `1e3` stay these characters in a field of text.
 */
#pragma once

#include <stddef.h>

enum spec_kind {
	SPEC_TEXT,     /* with `of`: or an object of these fields */
	SPEC_CHOICE,   /* one of `choices` */
	SPEC_COUNT,    /* a whole number, at least `min` */
	SPEC_BOOL,     /* true or false */
	SPEC_QUANTITY, /* as of Kubernetes: 500m, 16Gi */
	SPEC_SECONDS,  /* 90, 30s, 1h30m, 7d; stored in seconds */
	SPEC_FRACTION, /* 0 to 1 */
	SPEC_OBJECT,   /* the fields `of` */
	SPEC_LIST,     /* of[0], any number of times */
	SPEC_MAP,      /* any key to of[0] */
};

#define SPEC_ITEMS_MAX 256u

struct spec_field {
	const char *name;
	enum spec_kind kind;
	const struct spec_field *of; /* ends with a row without a name; of a list or map one row */
	const char *choices;         /* "a|b" */
	const char *also;            /* another name that is accepted */
	const char *brief;           /* of an object: the field that a single value sets */
	long long min;
	unsigned int most; /* items of a list or map; 0: SPEC_ITEMS_MAX */
	const char *help;  /* a noun phrase */
};

/* The object of all fields. */
extern const struct spec_field spec_root;

/* What a person calls a kind: "text", "list". */
const char *spec_kind_name(enum spec_kind kind);

/* A row of the fields `of` by its name or its other name; NULL: none. */
const struct spec_field *spec_field_find(const struct spec_field *of, const char *name);
