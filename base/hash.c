/* Hashes over xxHash and OpenSSL. See hash.h. */
#include "base/hash.h"

#include <errno.h>
#include <string.h>
#include <sys/random.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <xxhash.h>

uint64_t hash_xxh3(const void *data, size_t len, uint64_t seed)
{
	return XXH3_64bits_withSeed(data, len, seed);
}

void hash_sha256(const void *data, size_t len, uint8_t out[SHA256_BYTES])
{
	ensure(EVP_Digest(data, len, out, NULL, EVP_sha256(), NULL) == 1);
}

void hash_hmac_sha256(
	const void *key, size_t key_len, const void *data, size_t len, uint8_t out[SHA256_BYTES])
{
	ensure(HMAC(EVP_sha256(), key, (int)key_len, data, len, out, NULL));
}

void hash_hmac_sha1(
	const void *key, size_t key_len, const void *data, size_t len, uint8_t out[SHA1_BYTES])
{
	ensure(HMAC(EVP_sha1(), key, (int)key_len, data, len, out, NULL));
}

static int hash_weak(const EVP_MD *md, const void *data, size_t len, uint8_t *out)
{
	return EVP_Digest(data, len, out, NULL, md, NULL) == 1 ? 0 : -ENOTSUP;
}

int hash_md5(const void *data, size_t len, uint8_t out[MD5_BYTES])
{
	return hash_weak(EVP_md5(), data, len, out);
}

int hash_sha1(const void *data, size_t len, uint8_t out[SHA1_BYTES])
{
	return hash_weak(EVP_sha1(), data, len, out);
}

void hash_base64(const void *data, size_t len, char *out)
{
	(void)EVP_EncodeBlock((unsigned char *)out, data, (int)len); /* returns what it wrote */
}

int hash_unbase64(const char *s, void *out, size_t len)
{
	char again[HASH_BASE64_SIZE(SHA256_BYTES)];
	uint8_t bytes[sizeof(again)] = { 0 }; /* three for each four characters */
	size_t n = HASH_BASE64_SIZE(len) - 1;

	ensure(len <= SHA256_BYTES);
	if (strlen(s) != n || EVP_DecodeBlock(bytes, (const unsigned char *)s, (int)n) < 0)
		return -EINVAL;
	hash_base64(bytes, len, again);
	if (memcmp(s, again, n) != 0) /* blanks, bits behind the end */
		return -EINVAL;
	memcpy(out, bytes, len);
	return 0;
}

/* Four characters as up to three bytes; how many, or -EINVAL. */
static int decode_four(const char four[4], uint8_t three[3])
{
	int pads = four[3] != '=' ? 0 : four[2] != '=' ? 1 : 2;

	if (four[0] == '=' || four[1] == '=' || (four[2] == '=' && pads < 2) ||
		EVP_DecodeBlock(three, (const unsigned char *)four, 4) < 0)
		return -EINVAL;
	return 3 - pads;
}

int hash_decode_base64(const char *s, void *out, size_t *len)
{
	uint8_t *bytes = out;
	size_t done = 0;
	size_t n = 0;
	char four[4];
	int got = 3;

	for (; *s; s++) {
		uint8_t three[3];

		if (strchr(" \t\r\n", *s))
			continue;
		four[n++] = *s;
		if (n < 4)
			continue;
		got = got == 3 ? decode_four(four, three) : -EINVAL; /* what is padded is the end */
		if (got < 0)
			return got;
		if ((size_t)got > *len - done)
			return -ENOBUFS;
		memcpy(bytes + done, three, (size_t)got);
		done += (size_t)got;
		n = 0;
	}
	if (n > 0)
		return -EINVAL;
	*len = done;
	return 0;
}

struct hash_sha256 *hash_sha256_new(void)
{
	EVP_MD_CTX *ctx = EVP_MD_CTX_new();

	if (ctx && EVP_DigestInit_ex(ctx, EVP_sha256(), NULL) != 1) {
		EVP_MD_CTX_free(ctx);
		return NULL;
	}
	return (struct hash_sha256 *)ctx;
}

void hash_sha256_update(struct hash_sha256 *h, const void *data, size_t len)
{
	ensure(EVP_DigestUpdate((EVP_MD_CTX *)h, data, len) == 1);
}

void hash_sha256_final(struct hash_sha256 *h, uint8_t out[SHA256_BYTES])
{
	ensure(EVP_DigestFinal_ex((EVP_MD_CTX *)h, out, NULL) == 1);
	EVP_MD_CTX_free((EVP_MD_CTX *)h);
}

void hash_hex(const void *data, size_t len, char *out)
{
	static const char digits[] = "0123456789abcdef";
	const uint8_t *p = data;

	for (size_t i = 0; i < len; i++) {
		out[2 * i] = digits[p[i] >> 4];
		out[2 * i + 1] = digits[p[i] & 15];
	}
	out[2 * len] = '\0';
}

static int nibble(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	if (c >= 'A' && c <= 'F')
		return c - 'A' + 10;
	return -1;
}

int hash_unhex(const char *s, void *out, size_t len)
{
	uint8_t *p = out;

	if (strlen(s) != 2 * len)
		return -EINVAL;
	for (size_t i = 0; i < 2 * len; i++)
		if (nibble(s[i]) < 0)
			return -EINVAL;
	for (size_t i = 0; i < len; i++)
		p[i] = (uint8_t)(nibble(s[2 * i]) * 16 + nibble(s[2 * i + 1]));
	return 0;
}

void hash_random(void *out, size_t len)
{
	uint8_t *p = out;

	while (len) {
		ssize_t n = getrandom(p, len, 0);

		ensure(n > 0 || errno == EINTR);
		if (n > 0) {
			p += n;
			len -= (size_t)n;
		}
	}
}

bool hash_equal(const void *a, const void *b, size_t len)
{
	return CRYPTO_memcmp(a, b, len) == 0;
}
