/*
 * Tags, packed. An etag of MD5 form takes 17 bytes instead of 34, a multipart one 18 or 19:
 *
 *	head: bits 0-1 form, bit 2 in double quotes
 *	form 0 verbatim    head | length u8 | bytes
 *	form 1 md5         head | 16 bytes
 *	form 2 multipart   head | 16 bytes | parts varint      ("<32 hex>-<parts>")
 *
 * Only lower-case hex and a part count without leading zeros are packed, so that unpacking gives
 * back every byte.
 */
#include "catalog/catalog_internal.h"

#include <stdio.h>

enum tag_form {
	TAG_VERBATIM = 0,
	TAG_MD5 = 1,
	TAG_MULTIPART = 2,
};

#define TAG_FORM_MASK   3u
#define TAG_QUOTED      4u
#define TAG_MD5_BYTES   16u
#define TAG_PART_DIGITS 9u /* fits u32; S3 allows 10,000 */

static int hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static bool md5_pack(const char *s, uint8_t out[TAG_MD5_BYTES])
{
	for (unsigned int i = 0; i < TAG_MD5_BYTES; i++) {
		int high = hex_digit(s[2 * i]);
		int low = hex_digit(s[2 * i + 1]);

		if (high < 0 || low < 0)
			return false;
		out[i] = (uint8_t)(high << 4 | low);
	}
	return true;
}

/* "-12" to 12; false when it is not the text that printing 12 gives. */
static bool parts_parse(const char *s, uint32_t len, uint64_t *ret_parts)
{
	uint64_t parts = 0;

	if (len < 2 || len > 1 + TAG_PART_DIGITS || s[0] != '-' || (s[1] == '0' && len > 2))
		return false;
	for (uint32_t i = 1; i < len; i++) {
		if (s[i] < '0' || s[i] > '9')
			return false;
		parts = parts * 10 + (uint64_t)(s[i] - '0');
	}
	*ret_parts = parts;
	return true;
}

void tag_pack(const char *tag, uint32_t len, struct tag_packed *ret_packed)
{
	bool quoted = len >= 2 && tag[0] == '"' && tag[len - 1] == '"';
	const char *s = tag + quoted;
	uint32_t n = len - 2u * quoted;
	uint8_t *out = ret_packed->bytes;
	uint64_t parts;

	ensure(len <= LIMIT_TAG_BYTES);
	if (n >= 2 * TAG_MD5_BYTES && md5_pack(s, out + 1)) {
		bool multipart = parts_parse(s + 2 * TAG_MD5_BYTES, n - 2 * TAG_MD5_BYTES, &parts);

		if (multipart || n == 2 * TAG_MD5_BYTES) {
			out[0] = (uint8_t)((multipart ? TAG_MULTIPART : TAG_MD5) |
					   (quoted ? TAG_QUOTED : 0));
			ret_packed->len = 1 + TAG_MD5_BYTES;
			if (multipart)
				ret_packed->len +=
					(uint8_t)varint_put(out + ret_packed->len, parts);
			return;
		}
	}
	out[0] = TAG_VERBATIM;
	out[1] = (uint8_t)len;
	memcpy(out + 2, tag, len);
	ret_packed->len = (uint8_t)(2 + len);
}

static int verbatim_unpack(const uint8_t **p, const uint8_t *end, char *tag, uint8_t *ret_len)
{
	uint8_t len;

	if (*p == end)
		return -EBADMSG;
	len = *(*p)++;
	if (len > LIMIT_TAG_BYTES || len > end - *p)
		return -EBADMSG;
	memcpy(tag, *p, len);
	tag[len] = '\0';
	*p += len;
	*ret_len = len;
	return 0;
}

int tag_unpack(const uint8_t **p, const uint8_t *end, char *tag, uint8_t *ret_len)
{
	static const char digits[] = "0123456789abcdef";
	uint8_t head;
	uint64_t parts;
	char *out = tag;

	if (*p == end)
		return -EBADMSG;
	head = *(*p)++;
	if (head == TAG_VERBATIM)
		return verbatim_unpack(p, end, tag, ret_len);
	if (head & ~(TAG_FORM_MASK | TAG_QUOTED) || (head & TAG_FORM_MASK) == TAG_FORM_MASK ||
		(head & TAG_FORM_MASK) == TAG_VERBATIM || end - *p < (ptrdiff_t)TAG_MD5_BYTES)
		return -EBADMSG;
	if (head & TAG_QUOTED)
		*out++ = '"';
	for (unsigned int i = 0; i < TAG_MD5_BYTES; i++) {
		uint8_t byte = *(*p)++;

		*out++ = digits[byte >> 4];
		*out++ = digits[byte & 15];
	}
	if ((head & TAG_FORM_MASK) == TAG_MULTIPART) {
		if (varint_get(p, end, &parts) < 0 || parts > UINT32_MAX)
			return -EBADMSG;
		out += snprintf(out, 12, "-%u", (unsigned int)parts);
	}
	if (head & TAG_QUOTED)
		*out++ = '"';
	*out = '\0';
	*ret_len = (uint8_t)(out - tag);
	return 0;
}
