/* Tokens of pods: what is taken, and that everything else is refused. The keys are made here, and tokens signed with them. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <openssl/bn.h>
#include <openssl/core_names.h>
#include <openssl/ecdsa.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rsa.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "master/jwt.h"

#define NOW  1000000000ull
#define HEAD "{\"alg\":\"RS256\",\"kid\":\"rsa-1\"}"
#define ROOM (64u << 10)
#define BOUND                                                                                 \
	"\"kubernetes.io\":{\"namespace\":\"team\",\"serviceaccount\":{\"name\":\"trainer\"," \
	"\"uid\":\"u\"},\"pod\":{\"name\":\"p-0\",\"uid\":\"pod-1\"}}"
#define TIMES "\"iat\":999999000,\"nbf\":999999000,\"exp\":1000000600"
#define SUB   "\"sub\":\"system:serviceaccount:team:trainer\""
#define GOOD  "{\"iss\":\"https://issuer\",\"aud\":[\"granary\"]," TIMES "," SUB "," BOUND "}"

static EVP_PKEY *rsa;
static EVP_PKEY *ec;
static struct jwt_keys *keys;
static char set[ROOM]; /* the key set */

static size_t encode(const void *data, size_t len, char *out)
{
	static const char digits[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
	const uint8_t *in = data;
	uint32_t bits = 0;
	unsigned int have = 0;
	size_t n = 0;

	for (size_t i = 0; i < len; i++) {
		bits = bits << 8 | in[i];
		for (have += 8; have >= 6; have -= 6)
			out[n++] = digits[bits >> (have - 6) & 63];
	}
	if (have)
		out[n++] = digits[bits << (6 - have) & 63];
	out[n] = '\0';
	return n;
}

static void number(EVP_PKEY *key, const char *name, char *out)
{
	BIGNUM *n = NULL;
	uint8_t bytes[512];

	assert_int_equal(EVP_PKEY_get_bn_param(key, name, &n), 1);
	assert_true(BN_num_bytes(n) <= (int)sizeof(bytes));
	(void)encode(bytes, (size_t)BN_bn2bin(n, bytes), out);
	BN_free(n);
}

static void coordinate(EVP_PKEY *key, const char *name, char *out)
{
	BIGNUM *n = NULL;
	uint8_t bytes[32];

	assert_int_equal(EVP_PKEY_get_bn_param(key, name, &n), 1);
	assert_int_equal(BN_bn2binpad(n, bytes, sizeof(bytes)), sizeof(bytes));
	(void)encode(bytes, sizeof(bytes), out);
	BN_free(n);
}

static int setup(void **state)
{
	char n[1024], e[64], x[64], y[64];
	struct err why = ERR_INIT;

	(void)state;
	rsa = EVP_RSA_gen(2048);
	ec = EVP_EC_gen("P-256");
	assert_true(rsa && ec);
	number(rsa, OSSL_PKEY_PARAM_RSA_N, n);
	number(rsa, OSSL_PKEY_PARAM_RSA_E, e);
	coordinate(ec, OSSL_PKEY_PARAM_EC_PUB_X, x);
	coordinate(ec, OSSL_PKEY_PARAM_EC_PUB_Y, y);
	snprintf(set, sizeof(set),
		"{\"keys\":[{\"kty\":\"OKP\",\"kid\":\"other\"},{\"kty\":\"RSA\",\"use\":\"sig\","
		"\"kid\":\"rsa-1\",\"n\":\"%s\",\"e\":\"%s\"},{\"kty\":\"EC\",\"kid\":\"ec-1\","
		"\"crv\":\"P-256\",\"x\":\"%s\",\"y\":\"%s\"}]}",
		n, e, x, y);
	if (jwt_keys_parse(set, strlen(set), &keys, &why) < 0)
		fail_msg("%s", why.text);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	jwt_keys_free(keys);
	EVP_PKEY_free(rsa);
	EVP_PKEY_free(ec);
	return 0;
}

/* ---- making tokens --------------------------------------------------------------------------- */

/* The two numbers of ES256, of DER. */
static size_t to_numbers(const uint8_t *der, size_t len, uint8_t out[64])
{
	ECDSA_SIG *sig = d2i_ECDSA_SIG(NULL, &der, (long)len);

	assert_non_null(sig);
	assert_int_equal(BN_bn2binpad(ECDSA_SIG_get0_r(sig), out, 32), 32);
	assert_int_equal(BN_bn2binpad(ECDSA_SIG_get0_s(sig), out + 32, 32), 32);
	ECDSA_SIG_free(sig);
	return 64;
}

static size_t sign(EVP_PKEY *key, const char *text, size_t len, uint8_t out[512])
{
	EVP_MD_CTX *context = EVP_MD_CTX_new();
	uint8_t bytes[512];
	size_t n = sizeof(bytes);

	assert_int_equal(EVP_DigestSignInit(context, NULL, EVP_sha256(), NULL, key), 1);
	assert_int_equal(EVP_DigestSign(context, bytes, &n, (const uint8_t *)text, len), 1);
	EVP_MD_CTX_free(context);
	if (key == ec)
		return to_numbers(bytes, n, out);
	memcpy(out, bytes, n);
	return n;
}

/* With an empty key: without a signature. */
static char *make(EVP_PKEY *key, const char *head, const char *claims)
{
	static char text[ROOM];
	uint8_t signature[512];
	size_t n = encode(head, strlen(head), text);

	text[n++] = '.';
	n += encode(claims, strlen(claims), text + n);
	if (key) {
		size_t len = sign(key, text, n, signature);

		text[n++] = '.';
		n += encode(signature, len, text + n);
	}
	return text;
}

static const struct jwt_rules rules = {
	.issuer = "https://issuer", .audience = "granary", .now_s = NOW
};

static void refused_as(const char *text, size_t len, int code, const char *line)
{
	struct jwt_pod pod;
	struct err e = ERR_INIT;

	assert_int_equal(jwt_verify(keys, &rules, text, len, &pod, &e), code);
	if (!strstr(e.text, line))
		fail_msg("'%s' is not in '%s'", line, e.text);
}

static void refused(const char *text, const char *line)
{
	refused_as(text, strlen(text), -EKEYREJECTED, line);
}

/* ---- cases ----------------------------------------------------------------------------------- */

static void tokens_of_both_kinds_are_taken(void **state)
{
	static const char *const heads[] = { HEAD, "{\"alg\":\"ES256\",\"kid\":\"ec-1\"}" };
	EVP_PKEY *const signers[] = { rsa, ec };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(heads); i++) {
		const char *text = make(signers[i], heads[i], GOOD);
		struct jwt_pod pod = { 0 };
		struct err e = ERR_INIT;

		if (jwt_verify(keys, &rules, text, strlen(text), &pod, &e) < 0)
			fail_msg("%s", e.text);
		assert_string_equal(pod.name_space, "team");
		assert_string_equal(pod.account, "trainer");
		assert_string_equal(pod.pod, "p-0");
		assert_string_equal(pod.pod_id, "pod-1");
		assert_int_equal(pod.expires_s, NOW + 600);
	}
}

static void claims_are_checked(void **state)
{
#define WITH(aud, times, sub, bound) \
	"{\"iss\":\"https://issuer\",\"aud\":" aud "," times "," sub "," bound "}"
	static const struct {
		const char *claims;
		const char *line;
	} rows[] = {
		{ "{\"aud\":\"granary\"," TIMES "," SUB "," BOUND "}", "another issuer" },
		{ "{\"iss\":\"https://issuer/\",\"aud\":\"granary\"," TIMES "," SUB "," BOUND "}",
			"another issuer" },
		{ WITH("\"granary2\"", TIMES, SUB, BOUND), "another audience" },
		{ WITH("[\"api\",[\"granary\"]]", TIMES, SUB, BOUND), "another audience" },
		{ WITH("[]", TIMES, SUB, BOUND), "another audience" },
		{ WITH("\"granary\"", "\"exp\":1000000000", SUB, BOUND), "has expired" },
		{ WITH("\"granary\"", "\"iat\":1", SUB, BOUND), "invalid times" },
		{ WITH("\"granary\"", "\"exp\":-1", SUB, BOUND), "invalid times" },
		{ WITH("\"granary\"", "\"exp\":1e18", SUB, BOUND), "invalid times" },
		{ WITH("\"granary\"", "\"exp\":\"2000000000\"", SUB, BOUND), "invalid times" },
		{ WITH("\"granary\"", "\"exp\":9223372036854775807", SUB, BOUND), "invalid times" },
		{ WITH("\"granary\"", "\"exp\":18446744073709551616", SUB, BOUND),
			"invalid claims" },
		{ WITH("\"granary\"", "\"exp\":1000000600,\"nbf\":1000000300", SUB, BOUND),
			"not valid yet" },
		{ WITH("\"granary\"", "\"exp\":1000000600,\"nbf\":null", SUB, BOUND),
			"invalid times" },
		{ WITH("\"granary\"", TIMES ",\"exp\":1000000700", SUB, BOUND), "invalid claims" },
		{ WITH("\"granary\"", TIMES, "\"sub\":\"system:serviceaccount:team:root\"", BOUND),
			"subject" },
		{ WITH("\"granary\"", TIMES, SUB, "\"kubernetes.io\":{}"), "not bound to a pod" },
		{ WITH("\"granary\"", TIMES, SUB,
			  "\"kubernetes.io\":{\"namespace\":\"team\",\"serviceaccount\":{\"name\":"
			  "\"trainer\"}}"),
			"not bound to a pod" },
		{ WITH("\"granary\"", TIMES, SUB,
			  "\"kubernetes.io\":{\"namespace\":\"te\\u0000am\",\"serviceaccount\":{"
			  "\"name\":\"trainer\"},\"pod\":{\"name\":\"p\",\"uid\":\"u\"}}"),
			"invalid claims" },
		{ "[]", "invalid claims" },
		{ GOOD "x", "invalid claims" },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		refused(make(rsa, HEAD, rows[i].claims), rows[i].line);
}

static void only_its_own_algorithm_signs(void **state)
{
	static const struct {
		const char *head;
		const char *line;
	} rows[] = {
		{ "{\"alg\":\"none\",\"kid\":\"rsa-1\"}", "other than RS256 and ES256" },
		{ "{\"alg\":\"HS256\",\"kid\":\"rsa-1\"}", "other than RS256 and ES256" },
		{ "{\"alg\":\"RS512\",\"kid\":\"rsa-1\"}", "other than RS256 and ES256" },
		{ "{\"alg\":\"rs256\",\"kid\":\"rsa-1\"}", "other than RS256 and ES256" },
		{ "{\"alg\":\"ES256\",\"kid\":\"rsa-1\"}", "not that of its key" },
		{ "{\"alg\":\"RS256\",\"kid\":\"ec-1\"}", "not that of its key" },
		{ "{\"alg\":\"RS256\"}", "names no key" },
		{ "{\"kid\":\"rsa-1\"}", "other than" },
		{ "{\"alg\":\"RS256\",\"alg\":\"none\",\"kid\":\"rsa-1\"}", "invalid head" },
		{ "{\"alg\":\"RS256\",\"kid\":\"rsa-1\",\"crit\":[\"exp\"]}", "invalid head" },
		{ "[\"RS256\"]", "invalid head" },
	};
	const char *text;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		refused(make(rsa, rows[i].head, GOOD), rows[i].line);
	text = make(rsa, "{\"alg\":\"RS256\",\"kid\":\"rsa-2\"}", GOOD);
	refused_as(text, strlen(text), -ENOKEY, "unknown key 'rsa-2'");
	refused(make(ec, HEAD, GOOD), "invalid signature");
	refused(make(rsa, "{\"alg\":\"ES256\",\"kid\":\"ec-1\"}", GOOD), "invalid signature");
}

/* HS256 with the public key as its secret, which anybody has. */
static void a_public_key_is_no_secret(void **state)
{
	char *text = make(NULL, "{\"alg\":\"HS256\",\"kid\":\"rsa-1\"}", GOOD);
	size_t n = strlen(text);
	uint8_t mac[32];
	unsigned int len = sizeof(mac);

	(void)state;
	assert_non_null(
		HMAC(EVP_sha256(), set, (int)strlen(set), (const uint8_t *)text, n, mac, &len));
	text[n++] = '.';
	(void)encode(mac, sizeof(mac), text + n);
	refused(text, "other than RS256 and ES256");
}

static void every_byte_is_signed(void **state)
{
	char *text = make(rsa, HEAD, GOOD);
	size_t len = strlen(text);
	struct jwt_pod pod;

	(void)state;
	for (size_t i = 0; i < len; i++) {
		char before = text[i];

		text[i] = before == 'A' ? 'B' : 'A';
		assert_true(jwt_verify(keys, &rules, text, len, &pod, NULL) < 0);
		text[i] = before;
	}
	for (size_t i = 0; i < len; i++)
		assert_true(jwt_verify(keys, &rules, text, i, &pod, NULL) < 0);
}

static void what_is_no_token_is_refused(void **state)
{
	static const char *const rows[] = { "", ".", "..", "a.b", "a.b.c.d", "e30.e30.", ".e30.e30",
		"e30=.e30.e30", "e30.e3 .e30", "e31.e30.e30", "e30.e30.e30" };
	char *large = malloc(1 << 20);
	char *good = strdup(make(rsa, HEAD, GOOD));
	size_t len = strlen(good);

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		refused(rows[i], i == ARRAY_SIZE(rows) - 1 ? "other than" : "is not a token");
	assert_non_null(large);
	memset(large, 'A', 1 << 20);
	refused_as(large, 1 << 20, -EKEYREJECTED, "is not a token");
	memcpy(large, good, len);
	refused_as(large, len + 1, -EKEYREJECTED, "");
	large[len] = '\n';
	refused_as(large, len + 1, -EKEYREJECTED, "is not a token");
	free(good);
	free(large);
}

#define SMALL_RSA "{\"keys\":[{\"kty\":\"RSA\",\"kid\":\"k\",\"n\":\"AQAB\",\"e\":\"AQAB\"}]}"
#define NO_POINT \
	"{\"keys\":[{\"kty\":\"EC\",\"kid\":\"k\",\"crv\":\"P-256\",\"x\":\"AA\",\"y\":\"A\"}]}"

static void key_sets_are_checked(void **state)
{
	static const char *const bad[] = { "", "[]", "{}", "{\"keys\":{}}", "{\"keys\":[]}",
		SMALL_RSA, "{\"keys\":[{\"kty\":\"oct\",\"kid\":\"k\",\"k\":\"AQAB\"}]}", NO_POINT,
		"{\"keys\":[1]}" };
	struct jwt_keys *got = NULL;
	struct err e = ERR_INIT;
	char *twice = malloc(2 * ROOM);
	char *at;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		assert_int_equal(jwt_keys_parse(bad[i], strlen(bad[i]), &got, NULL), -EINVAL);
	assert_non_null(twice);
	at = strstr(set, "{\"kty\":\"RSA\"");
	snprintf(twice, 2 * (size_t)ROOM, "{\"keys\":[%.*s,%s", (int)(strstr(at, "},") + 1 - at),
		at, at);
	assert_int_equal(jwt_keys_parse(twice, strlen(twice), &got, &e), -EINVAL);
	assert_non_null(strstr(e.text, "two keys"));
	assert_null(got);
	free(twice);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(tokens_of_both_kinds_are_taken),
		cmocka_unit_test(claims_are_checked),
		cmocka_unit_test(only_its_own_algorithm_signs),
		cmocka_unit_test(a_public_key_is_no_secret),
		cmocka_unit_test(every_byte_is_signed),
		cmocka_unit_test(what_is_no_token_is_refused),
		cmocka_unit_test(key_sets_are_checked),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
