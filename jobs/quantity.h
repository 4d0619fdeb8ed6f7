/*
 * Quantities of Kubernetes: `500m`, `1.5`, `16Gi`, `2e3`. Exact: a value is a number of 10^-9. At most 2^63 - 1, as there.
 *
 * Threads: any.
 */
#pragma once

#include <stdbool.h>
#include "base/err.h"

#define QUANTITY_BYTES 48u

#define QUANTITY_ONE 1000000000 /* of `nano` */

struct quantity {
	__int128 nano;
	bool binary; /* was written with Ki, Mi, ... */
};

/* -EINVAL: not a quantity, or negative, or too large. */
int quantity_parse(const char *text, struct quantity *ret) __must_check;

/* a + b * times, or the most. */
struct quantity quantity_add(struct quantity a, struct quantity b, unsigned int times);

/* As Kubernetes would write it; in thousandths rounded up. Returns out, of QUANTITY_BYTES. */
const char *quantity_text(struct quantity q, char *out);

/* The same check with its line, of a value called nothing: "'x' is not a quantity: write ...". */
int quantity_check(const char *text, struct err *e) __must_check;
