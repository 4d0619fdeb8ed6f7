/*
 * What happens to a tier's directory behind its worker's back. Threads: the driver's only.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include "base/check.h"

/* A bit flipped in some file of data, or one cut or removed, by `random`. A file that is gone
 * meanwhile is no matter. */
void damage_file(const char *tier, uint64_t random);

/* The worker does not run: the tier was last started under another boot. */
int damage_boot(const char *tier) __must_check;
/* The worker does not run: its index says nothing, or is gone. */
int damage_index(const char *tier, bool gone) __must_check;
