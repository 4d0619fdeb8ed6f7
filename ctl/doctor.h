/*
 * What `cachectl doctor` looks at, one file per area. Nothing is started, mounted for long, created
 * to stay, or changed.
 *
 * Each function adds findings, one line each: what is there; or what is missing, what that costs,
 * and how to have it.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <jansson.h>
#include "base/check.h"
#include "base/exit.h"
#include "ctl/origin_options.h"

#define DOCTOR_FINDINGS_MAX 192u /* a dataset has sixteen sources */

enum finding_level {
	FINDING_OK,
	FINDING_WARN, /* works, but for what the line says */
	FINDING_FAIL, /* a mount would be refused, or fail soon */
};

struct finding {
	enum finding_level level;
	const char *area; /* static: "kernel", "origin" */
	char *text;       /* owned */
};

struct doctor_options {
	const char *master;
	struct origin_options origin;
	const char *engine; /* "auto", "native", "fuse" */
	bool allow_other;
	const char *cache; /* NULL: the default */
	uint64_t cache_size;
	uint64_t memory;
	const char *output;
};

struct doctor {
	const struct doctor_options *options;
	const char *url;                    /* NULL: no origin is looked at */
	const struct origin_options *reach; /* of it; NULL: those of `options` */
	struct finding findings[DOCTOR_FINDINGS_MAX];
	unsigned int n;
	int status; /* of the first failure; EXIT_OK without one */
};

/* `status` counts for FINDING_FAIL only. */
void doctor_add(struct doctor *d, enum finding_level level, int status, const char *area,
	const char *fmt, ...) __printf(5, 6);
#define doctor_ok(d, area, ...)           doctor_add(d, FINDING_OK, EXIT_OK, area, __VA_ARGS__)
#define doctor_warn(d, area, ...)         doctor_add(d, FINDING_WARN, EXIT_OK, area, __VA_ARGS__)
#define doctor_fail(d, status, area, ...) doctor_add(d, FINDING_FAIL, status, area, __VA_ARGS__)

void doctor_kernel(struct doctor *d);  /* version, EROFS, FUSE, fusermount3, which engine */
void doctor_limits(struct doctor *d);  /* descriptors, memory, place for sockets */
void doctor_cache(struct doctor *d);   /* the cache directory and its filesystem */
void doctor_cluster(struct doctor *d); /* a master on another node, its workers, keys, clocks */
void doctor_origin(struct doctor *d);  /* name, connection, clock, keys, rights */
/* What the master says of a dataset, and the origin of each of its sources, as this process reaches it. */
void doctor_dataset(struct doctor *d, const char *name);
/* The same of what is mounted at or above `dir`; of a mount without a dataset its source, with the settings of the mount. */
void doctor_mount(struct doctor *d, const char *dir);

/* For tests and for the files above: the first number that a small file holds; -ENOENT, -EINVAL. */
int doctor_read_number(const char *path, uint64_t *ret_number) __must_check;

/* "[https://]user:secret@host:port/..." without what is secret: "https://host:port". */
void doctor_redact_proxy(const char *proxy, char *out, size_t size);

json_t *doctor_json(const struct doctor *d); /* NULL without memory */
void doctor_print(const struct doctor *d, FILE *out);
void doctor_release(struct doctor *d);
