/* The bounds of daemons, as `cachectl status -o wide` shows them: what each has of memory,
 * descriptors and the like, and may have. */
#pragma once

#include <jansson.h>
#include "base/check.h"

/* One table for a daemon's answers to /v1/status (arrays; NULL entries end the list). -ENOMEM. */
int status_bounds_print(const json_t *const lists[]) __must_check;

/* Remarks about what is at its bound. */
void status_bounds_notes(const json_t *const lists[]);
