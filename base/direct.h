/*
 * Memory that O_DIRECT reads into and writes from. In pages of 4 KiB each MiB is 256 places for the
 * disk to put bytes, and two requests; in a huge page it is one (docs/decisions/direct-buffers.md).
 *
 * Threads: any.
 */
#pragma once

#include <stddef.h>

#define DIRECT_PAGE_BYTES (2u << 20)

/*
 * At least `bytes`, aligned to a huge page. All but the rest of less than a huge page are in huge pages if the kernel has free ones:
 * a whole one is the caller's memory once a byte of it is touched. To be freed with free(). NULL: out of memory.
 */
void *direct_buffer_new(size_t bytes);
