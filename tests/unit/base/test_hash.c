/* Hashes against published vectors: FIPS 180-4, RFC 1321, 4231 and 4648, xxHash's own sanity check. */
#include "base/hash.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <string.h>

static void assert_hex(const uint8_t *bytes, const char *want)
{
	char hex[2 * SHA256_BYTES + 1];

	hash_hex(bytes, SHA256_BYTES, hex);
	assert_string_equal(hex, want);
}

static void sha256_of_fips_180(void **state)
{
	static char million[1000000];
	uint8_t out[SHA256_BYTES];
	struct hash_sha256 *h;

	(void)state;
	hash_sha256("", 0, out);
	assert_hex(out, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
	hash_sha256("abc", 3, out);
	assert_hex(out, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
	memset(million, 'a', sizeof(million));
	hash_sha256(million, sizeof(million), out);
	assert_hex(out, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");

	h = hash_sha256_new();
	assert_non_null(h);
	for (size_t at = 0, n = 1; at < sizeof(million); at += n, n = n * 3 + 1) {
		n = min(n, sizeof(million) - at);
		hash_sha256_update(h, million + at, n);
	}
	hash_sha256_final(h, out);
	assert_hex(out, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

struct hmac {
	const char *key; /* NULL: key_byte, key_len times */
	uint8_t key_byte;
	size_t key_len;
	const char *data; /* NULL: data_byte, 50 times */
	uint8_t data_byte;
	const char *want;
};

static void hmac_of_rfc_4231(void **state)
{
	static const struct hmac cases[] = {
		{ NULL, 0x0b, 20, "Hi There", 0,
			"b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7" },
		{ "Jefe", 0, 4, "what do ya want for nothing?", 0,
			"5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843" },
		{ NULL, 0xaa, 20, NULL, 0xdd,
			"773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe" },
		{ "\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\x0f\x10\x11\x12\x13"
		  "\x14\x15\x16\x17\x18\x19",
			0, 25, NULL, 0xcd,
			"82558a389a443c0ea4cc819899f2083a85f0faa3e578f8077a2e3ff46729665b" },
		{ NULL, 0xaa, 131, "Test Using Larger Than Block-Size Key - Hash Key First", 0,
			"60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54" },
		{ NULL, 0xaa, 131,
			"This is a test using a larger than block-size key and a larger than "
			"block-size data. The key needs to be hashed before being used by the HMAC "
			"algorithm.",
			0, "9b09ffa71b942fcb27635fbcd5b0e944bfdc63644f0713938a7f51535c3a35e2" },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		const struct hmac *c = &cases[i];
		uint8_t out[SHA256_BYTES];
		char key[131];
		char data[50];

		memset(key, c->key_byte, sizeof(key));
		memset(data, c->data_byte, sizeof(data));
		hash_hmac_sha256(c->key ? c->key : key, c->key_len, c->data ? c->data : data,
			c->data ? strlen(c->data) : sizeof(data), out);
		assert_hex(out, c->want);
	}
}

/* tests/sanity_test_vectors.h of xxHash: its generated input, both of its seeds. */
static void xxh3_of_xxhash(void **state)
{
	static const struct {
		size_t len;
		uint64_t seed;
		uint64_t want;
	} cases[] = {
		{ 0, 0, 0x2d06800538d394c2 },
		{ 0, 0x9e3779b185ebca8d, 0xa8a6b918b2f0364a },
		{ 1, 0, 0xc44bdff4074eecdb },
		{ 1, 0x9e3779b185ebca8d, 0x032be332dd766ef8 },
		{ 6, 0, 0x27b56a84cd2d7325 },
		{ 6, 0x9e3779b185ebca8d, 0x84589c116ab59ab9 },
		{ 12, 0, 0xa713daf0dfbb77e7 },
		{ 12, 0x9e3779b185ebca8d, 0xe7303e1b2336de0e },
		{ 24, 0, 0xa3fe70bf9d3510eb },
		{ 24, 0x9e3779b185ebca8d, 0x850e80fc35bdd690 },
		{ 48, 0, 0x397da259ecba1f11 },
		{ 48, 0x9e3779b185ebca8d, 0xadc2cbaa44acc616 },
		{ 80, 0, 0xbcdefbbb2c47c90a },
		{ 80, 0x9e3779b185ebca8d, 0xc6dd0cb699532e73 },
		{ 195, 0, 0xcd94217ee362ec3a },
		{ 195, 0x9e3779b185ebca8d, 0xba68003d370cb3d9 },
		{ 2048, 0, 0xdd59e2c3a5f038e0 },
		{ 2048, 0x9e3779b185ebca8d, 0x66f81670669ababc },
	};
	uint64_t generator = 2654435761u;
	uint8_t input[2048];

	(void)state;
	for (size_t i = 0; i < sizeof(input); i++) {
		input[i] = (uint8_t)(generator >> 56);
		generator *= 0x9e3779b185ebca8dull;
	}
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
		if (hash_xxh3(input, cases[i].len, cases[i].seed) != cases[i].want)
			fail_msg("length %zu, seed %llx", cases[i].len,
				(unsigned long long)cases[i].seed);
	assert_true(hash_xxh3(NULL, 0, 0) == cases[0].want);
}

static void hex_goes_both_ways(void **state)
{
	static const uint8_t bytes[] = { 0x00, 0x0f, 0xa5, 0xff };
	uint8_t back[4] = { 7, 7, 7, 7 };
	char hex[9];

	(void)state;
	hash_hex(bytes, sizeof(bytes), hex);
	assert_string_equal(hex, "000fa5ff");
	assert_int_equal(hash_unhex("000fA5Ff", back, sizeof(back)), 0);
	assert_memory_equal(back, bytes, sizeof(bytes));
	hash_hex(bytes, 0, hex);
	assert_string_equal(hex, "");
	assert_int_equal(hash_unhex("", back, 0), 0);
}

static void what_is_no_hex_changes_nothing(void **state)
{
	static const char *const bad[] = { "", "000fa5f", "000fa5ff0", "000fa5fg", "g00fa5ff",
		"000fa5f/", "000fa5f:", "000fa5f@", "000fa5f`", " 00fa5ff", "0x0fa5ff" };
	uint8_t out[4] = { 7, 7, 7, 7 };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		assert_int_equal(hash_unhex(bad[i], out, sizeof(out)), -EINVAL);
		assert_memory_equal(out, "\7\7\7\7", 4);
	}
}

static void md5_of_rfc_1321_and_sha1_of_fips_180(void **state)
{
	uint8_t out[SHA1_BYTES];
	char hex[2 * SHA1_BYTES + 1];

	(void)state;
	assert_int_equal(hash_md5("message digest", 14, out), 0);
	hash_hex(out, MD5_BYTES, hex);
	assert_string_equal(hex, "f96b697d7cb7938d525a2f31aaf161d0");
	assert_int_equal(hash_sha1("abc", 3, out), 0);
	hash_hex(out, SHA1_BYTES, hex);
	assert_string_equal(hex, "a9993e364706816aba3e25717850c26c9cd0d89d");
}

/* Of RFC 4648, 10. */
static void base64_goes_both_ways(void **state)
{
	static const char *const want[] = { "", "Zg==", "Zm8=", "Zm9v",
		"Zm9vYg==", "Zm9vYmE=", "Zm9vYmFy" };
	uint8_t bytes[SHA256_BYTES];
	uint8_t back[SHA256_BYTES];
	char text[HASH_BASE64_SIZE(SHA256_BYTES)];

	(void)state;
	for (size_t n = 0; n < ARRAY_SIZE(want); n++) {
		hash_base64("foobar", n, text);
		assert_string_equal(text, want[n]);
		assert_int_equal(hash_unbase64(text, back, n), 0);
		assert_memory_equal(back, "foobar", n);
	}
	for (size_t n = 1; n <= sizeof(bytes); n++) {
		hash_random(bytes, n);
		hash_base64(bytes, n, text);
		assert_int_equal(hash_unbase64(text, back, n), 0);
		assert_memory_equal(back, bytes, n);
	}
}

static void what_is_no_base64_changes_nothing(void **state)
{
	/* Of four bytes: "Zm9vYg==". */
	static const char *const bad[] = { "", "Zm9v", "Zm9vYg=", "Zm9vYg",
		"Zm9vYg===", "Zm9vYmE=", "Zm9vYmFy",
		"Zm9vYh==", "Zm9vY===", "Zm9v====", "Z===Yg==", " m9vYg==", "Zm9vYg= ", "Zm9vY-==",
		"Zm9vY_==", "Zm9\xffYg==", "Zm9\nYg==", "Zm9vYg==Zm9vYg==", "========" };
	uint8_t out[4] = { 7, 7, 7, 7 };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		assert_int_equal(hash_unbase64(bad[i], out, sizeof(out)), -EINVAL);
		assert_memory_equal(out, "\7\7\7\7", 4);
	}
}

static void base64_of_any_length_is_decoded(void **state)
{
	static const char *const bad[] = { "Zg=", "Zg", "Z",
		"=Zg=", "Z=g=", "Zg==Zg==", "Zm9v=Zg=", "Zm-v" };
	char out[8] = "";
	size_t len = 7;

	(void)state;
	assert_int_equal(hash_decode_base64("Zm9v\r\n YmF y\tZg==\n", out, &len), 0);
	assert_int_equal(len, 7);
	assert_string_equal(out, "foobarf");
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		assert_int_equal(hash_decode_base64(bad[i], out, &len), -EINVAL);
	len = 2;
	assert_int_equal(hash_decode_base64("Zm9v", out, &len), -ENOBUFS);
	assert_int_equal(hash_decode_base64("", out, &len), 0);
	assert_int_equal(len, 0);
}

static void random_bytes_differ(void **state)
{
	uint8_t a[32] = { 0 };
	uint8_t b[32] = { 0 };

	(void)state;
	hash_random(a, sizeof(a));
	hash_random(b, sizeof(b) - 1);
	assert_memory_not_equal(a, b, sizeof(a) - 1);
	assert_int_equal(b[31], 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sha256_of_fips_180),
		cmocka_unit_test(hmac_of_rfc_4231),
		cmocka_unit_test(xxh3_of_xxhash),
		cmocka_unit_test(hex_goes_both_ways),
		cmocka_unit_test(what_is_no_hex_changes_nothing),
		cmocka_unit_test(md5_of_rfc_1321_and_sha1_of_fips_180),
		cmocka_unit_test(base64_goes_both_ways),
		cmocka_unit_test(what_is_no_base64_changes_nothing),
		cmocka_unit_test(base64_of_any_length_is_decoded),
		cmocka_unit_test(random_bytes_differ),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
