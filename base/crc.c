/*
 * CRCs eight bytes at a time by eight tables ("slicing by 8": Kounavis and Berry, IEEE Transactions on
 * Computers 57(11), 2008). A CRC of 32 bits is computed as one of 64 bits whose upper half is zero, so
 * that one routine serves all. See crc.h.
 */
#include "base/crc.h"
#include "base/check.h"
#include "base/little.h"

#include <pthread.h>
#include <stdbool.h>

/* Reflected: the lowest bit is the highest power. */
#define CRC_32_POLYNOMIAL     0xedb88320u
#define CRC_32C_POLYNOMIAL    0x82f63b78u
#define CRC_64NVME_POLYNOMIAL 0x9a6c9329ac4bc9b5u

/* [n][b]: what byte b contributes when n more bytes follow it. */
struct crc_table {
	uint64_t of[8][256];
};

static struct crc_table crc_32_table, crc_32c_table, crc_64nvme_table;

static void crc_fill(struct crc_table *t, uint64_t polynomial)
{
	for (unsigned int b = 0; b < 256; b++) {
		uint64_t crc = b;

		for (int bit = 0; bit < 8; bit++)
			crc = crc >> 1 ^ (crc & 1 ? polynomial : 0);
		t->of[0][b] = crc;
	}
	for (unsigned int b = 0; b < 256; b++)
		for (int n = 1; n < 8; n++)
			t->of[n][b] = t->of[0][t->of[n - 1][b] & 0xff] ^ t->of[n - 1][b] >> 8;
}

static void crc_fill_all(void)
{
	crc_fill(&crc_32_table, CRC_32_POLYNOMIAL);
	crc_fill(&crc_32c_table, CRC_32C_POLYNOMIAL);
	crc_fill(&crc_64nvme_table, CRC_64NVME_POLYNOMIAL);
}

static void crc_need_tables(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	ensure(pthread_once(&once, crc_fill_all) == 0);
}

static uint64_t crc_go_on(const struct crc_table *t, uint64_t crc, const uint8_t *p, size_t len)
{
	for (; len >= 8; p += 8, len -= 8) {
		crc ^= little_get64(p);
		crc = t->of[7][crc & 0xff] ^ t->of[6][crc >> 8 & 0xff] ^
		      t->of[5][crc >> 16 & 0xff] ^ t->of[4][crc >> 24 & 0xff] ^
		      t->of[3][crc >> 32 & 0xff] ^ t->of[2][crc >> 40 & 0xff] ^
		      t->of[1][crc >> 48 & 0xff] ^ t->of[0][crc >> 56];
	}
	for (; len; p++, len--)
		crc = t->of[0][(crc ^ *p) & 0xff] ^ crc >> 8;
	return crc;
}

uint32_t crc_32(const void *data, size_t len)
{
	crc_need_tables();
	return ~(uint32_t)crc_go_on(&crc_32_table, UINT32_MAX, data, len);
}

uint64_t crc_64nvme(const void *data, size_t len)
{
	crc_need_tables();
	return ~crc_go_on(&crc_64nvme_table, UINT64_MAX, data, len);
}

#ifdef __x86_64__
static bool crc_has_instruction(void)
{
	return __builtin_cpu_supports("sse4.2");
}

/* Whole words; the caller does the rest. */
__attribute__((target("sse4.2"))) static uint64_t crc_32c_words(
	uint64_t crc, const uint8_t *p, size_t len)
{
	for (; len >= 8; p += 8, len -= 8)
		crc = __builtin_ia32_crc32di(crc, little_get64(p));
	return crc;
}
#else
static bool crc_has_instruction(void)
{
	return false;
}

static uint64_t crc_32c_words(uint64_t crc, const uint8_t *p, size_t len)
{
	(void)p;
	(void)len;
	return crc;
}
#endif

uint32_t crc_32c(const void *data, size_t len)
{
	size_t words = crc_has_instruction() ? len & ~(size_t)7 : 0;
	const uint8_t *p = data;
	uint64_t crc = UINT32_MAX;

	crc_need_tables();
	if (words)
		crc = crc_32c_words(crc, p, words);
	return ~(uint32_t)crc_go_on(&crc_32c_table, crc, p + words, len - words);
}
