/*
 * What the stress test knows of its bucket: which objects there are in which version, and every
 * byte of them. The bucket is a directory of files.
 *
 * Threads: origin_version is read by all; the rest is the driver's.
 */
#pragma once

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include "base/err.h"

#define MODEL_OBJECTS  200u
#define MODEL_KEY      16u
#define MODEL_SIZE_MAX (6u << 20)

struct model {
	char dir[256]; /* ends with '/' */
	uint64_t seed;
	/* Of each object, as the bucket has it or is about to; 0: it is not there. */
	_Atomic uint32_t origin_version[MODEL_OBJECTS];
};

/* splitmix64's finaliser: the only randomness of the test. */
uint64_t model_mix(uint64_t x);

void model_key(uint32_t object, char out[MODEL_KEY]);
uint64_t model_size(const struct model *m, uint32_t object, uint32_t version);
/* Bytes [from, from + len) of an object; what lies behind its end is zero. */
void model_bytes(const struct model *m, uint32_t object, uint32_t version, uint64_t from,
	size_t len, uint8_t *out);

/* Puts the object into the bucket in another version, or takes it away with 0. */
int model_put(struct model *m, uint32_t object, uint32_t version) __must_check;
