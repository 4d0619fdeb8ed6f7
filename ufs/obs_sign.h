/*
 * OBS's own signature, in the Authorization header.
 * https://support.huaweicloud.com/intl/en-us/api-obs/obs_04_0010.html
 *
 * Threads: any.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include "base/buf.h"

#define OBS_DATE_SIZE 30 /* "Sat, 12 Oct 2015 08:12:38 GMT" */

struct obs_header {
	const char *name; /* lower-case, begins with "x-obs-" */
	const char *value;
};

struct obs_signed {
	const char *method;
	const char *md5;                  /* Content-MD5; NULL: without */
	const char *type;                 /* Content-Type; "" without */
	const char *date;                 /* as in the Date header; of no account with x-obs-date */
	const struct obs_header *headers; /* in order of their names, each once, no blanks around */
	size_t n_headers;
	const char *resource; /* "/BUCKET/KEY", encoded */
	const char *query;    /* encoded, by name in order; what is signed of it is chosen here */
};

/* Appends the text that is signed. */
int obs_string_to_sign(const struct obs_signed *request, struct buf *out) __must_check;

/* Appends "OBS ACCESS_KEY:SIGNATURE". */
int obs_sign(const char *access_key, const char *secret_key, const struct obs_signed *request,
	struct buf *out) __must_check;

void obs_date(uint64_t wall_ns, char out[OBS_DATE_SIZE]);
