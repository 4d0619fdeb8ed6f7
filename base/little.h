/* Numbers in little-endian bytes, at any alignment: headers on the wire and on disk. */
#pragma once

#include <endian.h>
#include <stdint.h>
#include <string.h>

static inline void little_put16(uint8_t *out, uint16_t v)
{
	v = htole16(v);
	memcpy(out, &v, sizeof(v));
}

static inline void little_put32(uint8_t *out, uint32_t v)
{
	v = htole32(v);
	memcpy(out, &v, sizeof(v));
}

static inline void little_put64(uint8_t *out, uint64_t v)
{
	v = htole64(v);
	memcpy(out, &v, sizeof(v));
}

static inline uint16_t little_get16(const uint8_t *in)
{
	uint16_t v;

	memcpy(&v, in, sizeof(v));
	return le16toh(v);
}

static inline uint32_t little_get32(const uint8_t *in)
{
	uint32_t v;

	memcpy(&v, in, sizeof(v));
	return le32toh(v);
}

static inline uint64_t little_get64(const uint8_t *in)
{
	uint64_t v;

	memcpy(&v, in, sizeof(v));
	return le64toh(v);
}
