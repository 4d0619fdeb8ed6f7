/*
 * Hashes: XXH3 for integrity and placement, SHA-256 and HMAC for identity and signatures, hex for
 * people. Threads: any; a struct hash_sha256 is one thread's at a time.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/check.h"

#define SHA256_BYTES 32
#define SHA1_BYTES   20
#define MD5_BYTES    16

/* XXH3 64 bits, seeded (https://github.com/Cyan4973/xxHash). len 0 is allowed. */
uint64_t hash_xxh3(const void *data, size_t len, uint64_t seed);

void hash_sha256(const void *data, size_t len, uint8_t out[SHA256_BYTES]);
void hash_hmac_sha256(
	const void *key, size_t key_len, const void *data, size_t len, uint8_t out[SHA256_BYTES]);

/* For a protocol that asks for it; no guard against forgery by collision. */
void hash_hmac_sha1(
	const void *key, size_t key_len, const void *data, size_t len, uint8_t out[SHA1_BYTES]);

/* For protocols that compare with them: they find damage, no forgery. -ENOTSUP: OpenSSL's configuration forbids it. */
int hash_md5(const void *data, size_t len, uint8_t out[MD5_BYTES]) __must_check;
int hash_sha1(const void *data, size_t len, uint8_t out[SHA1_BYTES]) __must_check;

/* Base64 with its padding and a NUL: out has HASH_BASE64_SIZE(len) bytes. */
#define HASH_BASE64_SIZE(len) (((len) + 2) / 3 * 4 + 1)
void hash_base64(const void *data, size_t len, char *out);
/* The reverse; -EINVAL unless `s` is what hash_base64() makes of `len` bytes. len <= SHA256_BYTES. */
int hash_unbase64(const char *s, void *out, size_t len) __must_check;
/* A text in Base64 of any length, with blanks and newlines in it; *len: the room in `out`, which becomes what it has. -EINVAL,
 * -ENOBUFS. */
int hash_decode_base64(const char *s, void *out, size_t *len) __must_check;

/* SHA-256 over several parts. */
struct hash_sha256;
struct hash_sha256 *hash_sha256_new(void); /* NULL without memory */
void hash_sha256_update(struct hash_sha256 *h, const void *data, size_t len);
void hash_sha256_final(struct hash_sha256 *h, uint8_t out[SHA256_BYTES]); /* frees h */

/* Equal? Takes the same time wherever they differ. */
bool hash_equal(const void *a, const void *b, size_t len);

/* Lower-case hex with a NUL: out has 2 * len + 1 bytes. */
void hash_hex(const void *data, size_t len, char *out);
/* The reverse; -EINVAL unless `s` is exactly 2 * len hex digits. */
int hash_unhex(const char *s, void *out, size_t len) __must_check;

/* Cryptographically random bytes; aborts only when the kernel has none. */
void hash_random(void *out, size_t len);
