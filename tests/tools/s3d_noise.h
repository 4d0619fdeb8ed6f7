/* The bytes of synthetic objects: the formula that stands in s3d.h. Threads: any. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define S3D_NOISE_BYTES 1048583u /* length of the table */

/* The table and `extra` bytes of its beginning once more, so that no slice up to that length wraps;
 * for free(). NULL without memory. extra <= S3D_NOISE_BYTES. */
char *s3d_noise_new(size_t extra);

/* Where in the table the object's first byte stands. */
uint64_t s3d_noise_start(const char *key, uint64_t version);
