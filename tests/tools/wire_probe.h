/* The parts of wire-probe. */
#pragma once

#include <stdint.h>
#include "base/layout.h"

struct probe_volume {
	struct volume_id id;
	uint64_t lineage;
};

/* Misbehaves for some seconds towards a daemon's address, with the keys that are loaded and without; an exit status. */
int wire_fuzz(
	const char *address, uint64_t seconds, uint64_t seed, const struct probe_volume *volume);
