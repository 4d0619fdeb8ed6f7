/*
 * Cyclic redundancy checks as object stores name them. All are reflected, begin with all ones and are inverted in the
 * end: CRC-32 (IEEE 802.3), CRC-32C (RFC 3720), CRC-64/NVME (NVM Express, 64b CRC). They find damage, not forgery.
 * Threads: any.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

uint32_t crc_32(const void *data, size_t len);
uint32_t crc_32c(
	const void *data, size_t len); /* by the processor's instruction where it has one */
uint64_t crc_64nvme(const void *data, size_t len);
