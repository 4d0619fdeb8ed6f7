/* What happens to a tier between two starts of its worker: damage, and another boot. */
#pragma once

#include "tests/unit/cacheworker/world.h"
#include "tiers/identity_internal.h"
#include <fcntl.h>
#include <ftw.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Flips a bit, at an offset, of at most n files of a tier; returns of how many. */
unsigned int damage_files(const char *tier, unsigned int n, off_t offset);

/* Likewise of n files of the world's tier, which has them. */
void damage(struct world *w, unsigned int n, off_t offset);

/* As after a power cycle: the tier was last started under another boot id. */
void damage_another_boot(struct world *w);
