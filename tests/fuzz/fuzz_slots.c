/*
 * Fuzzer of what a master says of the slots that changed: no input may crash, what is found sound must be what is
 * done, and what was done is told again by a difference of its own.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include "base/check.h"
#include "placement/placement_delta.h"

#define BYTES (PLACEMENT_SLOTS * sizeof(struct placement_slot))

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct placement_slot before[PLACEMENT_SLOTS];
	static struct placement_slot after[PLACEMENT_SLOTS];
	struct buf again = BUF_INIT(2 * BYTES);
	int sound = placement_delta_walk(data, size, NULL, NULL);
	int r;

	for (uint32_t s = 0; s < PLACEMENT_SLOTS; s++)
		before[s] = (struct placement_slot){ (uint16_t)(s % 5), PLACEMENT_NONE,
			{ (uint16_t)(s % 3), (uint16_t)(s % 7) } };
	memcpy(after, before, BYTES);
	r = placement_delta_apply(after, data, size);
	ensure(r == sound);
	r = placement_delta_encode(before, after, &again);
	ensure(r == 0);
	r = placement_delta_apply(before, buf_str(&again), again.len);
	ensure(r == 0 && memcmp(before, after, BYTES) == 0);
	buf_release(&again);
	return 0;
}
