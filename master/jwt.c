/* Tokens of pods. See jwt.h. */
#include "master/jwt.h"
#include "base/cleanup.h"

#include <jansson.h>
#include <openssl/bn.h>
#include <openssl/core_names.h>
#include <openssl/ecdsa.h>
#include <openssl/evp.h>
#include <openssl/param_build.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define KEYS_MAX     32u
#define KEY_ID_BYTES 256u
#define NUMBER_BYTES 1024u /* of a modulus: 8192 bits */
#define RSA_BITS_MIN 2048
#define ES256_BYTES  64u
#define SKEW_S       60           /* between the clocks of the API server and the master */
#define SECONDS_MAX  253402300799 /* the end of the year 9999 */

enum algorithm { RS256, ES256 };

struct key {
	char id[KEY_ID_BYTES];
	enum algorithm algorithm;
	EVP_PKEY *public;
};

struct jwt_keys {
	unsigned int n;
	struct key all[KEYS_MAX];
};

static int refuse(struct err *e, const char *why)
{
	return err_set(e, -EKEYREJECTED, "the service-account token %s", why);
}

/* ---- base64url, RFC 4648 section 5 ----------------------------------------------------------- */

static int digit_of(char c)
{
	if (c >= 'A' && c <= 'Z')
		return c - 'A';
	if (c >= 'a' && c <= 'z')
		return c - 'a' + 26;
	if (c >= '0' && c <= '9')
		return c - '0' + 52;
	return c == '-' ? 62 : c == '_' ? 63 : -1;
}

/* Without padding, and in the only form that its bytes have. The number of bytes, or -EINVAL. */
static ssize_t decode(const char *text, size_t len, uint8_t *out, size_t size)
{
	uint32_t bits = 0;
	unsigned int have = 0;
	size_t n = 0;

	for (size_t i = 0; i < len; i++) {
		int digit = digit_of(text[i]);

		if (digit < 0)
			return -EINVAL;
		bits = bits << 6 | (uint32_t)digit;
		have += 6;
		if (have < 8)
			continue;
		have -= 8;
		if (n == size)
			return -EINVAL;
		out[n++] = (uint8_t)(bits >> have);
	}
	return have >= 6 || bits & ((1u << have) - 1) ? -EINVAL : (ssize_t)n;
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static const char *text_of(const json_t *json, const char *name)
{
	return json_string_value(json_object_get(json, name));
}

/* An object, each of whose members is there once. NULL: it is none. */
static json_t *parse(const char *text, size_t len)
{
	json_t *json = json_loadb(text, len, JSON_REJECT_DUPLICATES, NULL);

	if (json_is_object(json))
		return json;
	json_decref(json);
	return NULL;
}

/* ---- keys ------------------------------------------------------------------------------------ */

/* A number of a key; NULL: it is missing, or too large. */
static BIGNUM *number_of(const json_t *json, const char *name)
{
	uint8_t bytes[NUMBER_BYTES];
	const char *text = text_of(json, name);
	ssize_t n = text ? decode(text, strlen(text), bytes, sizeof(bytes)) : -EINVAL;

	return n > 0 ? BN_bin2bn(bytes, (int)n, NULL) : NULL;
}

static EVP_PKEY *make_key(const char *type, OSSL_PARAM_BLD *builder)
{
	EVP_PKEY_CTX *context = EVP_PKEY_CTX_new_from_name(NULL, type, NULL);
	OSSL_PARAM *params = OSSL_PARAM_BLD_to_param(builder);
	EVP_PKEY *key = NULL;

	if (!context || !params || EVP_PKEY_fromdata_init(context) != 1 ||
		EVP_PKEY_fromdata(context, &key, EVP_PKEY_PUBLIC_KEY, params) != 1)
		key = NULL;
	OSSL_PARAM_free(params);
	EVP_PKEY_CTX_free(context);
	return key;
}

static EVP_PKEY *make_rsa(const json_t *json)
{
	OSSL_PARAM_BLD *builder = OSSL_PARAM_BLD_new();
	BIGNUM *n = number_of(json, "n");
	BIGNUM *exponent = number_of(json, "e");
	EVP_PKEY *key = NULL;

	if (builder && n && exponent && BN_num_bits(n) >= RSA_BITS_MIN &&
		BN_num_bits(exponent) <= 32 && BN_is_odd(exponent) && !BN_is_one(exponent) &&
		OSSL_PARAM_BLD_push_BN(builder, OSSL_PKEY_PARAM_RSA_N, n) == 1 &&
		OSSL_PARAM_BLD_push_BN(builder, OSSL_PKEY_PARAM_RSA_E, exponent) == 1)
		key = make_key("RSA", builder);
	BN_free(n);
	BN_free(exponent);
	OSSL_PARAM_BLD_free(builder);
	return key;
}

/* A point of P-256; OpenSSL checks that it is on the curve. */
static EVP_PKEY *make_ec(const json_t *json)
{
	OSSL_PARAM_BLD *builder = OSSL_PARAM_BLD_new();
	const char *curve = text_of(json, "crv");
	const char *x = text_of(json, "x");
	const char *y = text_of(json, "y");
	uint8_t point[1 + ES256_BYTES] = { POINT_CONVERSION_UNCOMPRESSED };
	EVP_PKEY *key = NULL;

	if (builder && curve && strcmp(curve, "P-256") == 0 && x && y &&
		decode(x, strlen(x), point + 1, 32) == 32 &&
		decode(y, strlen(y), point + 33, 32) == 32 &&
		OSSL_PARAM_BLD_push_utf8_string(
			builder, OSSL_PKEY_PARAM_GROUP_NAME, "prime256v1", 0) == 1 &&
		OSSL_PARAM_BLD_push_octet_string(
			builder, OSSL_PKEY_PARAM_PUB_KEY, point, sizeof(point)) == 1)
		key = make_key("EC", builder);
	OSSL_PARAM_BLD_free(builder);
	return key;
}

static const struct key *find_key(const struct jwt_keys *keys, const char *id)
{
	for (unsigned int i = 0; i < keys->n; i++)
		if (strcmp(keys->all[i].id, id) == 0)
			return &keys->all[i];
	return NULL;
}

/* Nothing is added for a key of another kind or use. */
static int add_key(struct jwt_keys *keys, const json_t *json, struct err *e)
{
	const char *type = text_of(json, "kty");
	const char *use = text_of(json, "use");
	const char *id = text_of(json, "kid");
	bool is_rsa = type && strcmp(type, "RSA") == 0;
	struct key *key = &keys->all[keys->n];

	if ((!is_rsa && !(type && strcmp(type, "EC") == 0)) || (use && strcmp(use, "sig") != 0) ||
		!id || !*id || strlen(id) >= KEY_ID_BYTES)
		return 0;
	if (find_key(keys, id))
		return err_set(e, -EINVAL, "two keys have the id '%s'", id);
	if (keys->n == KEYS_MAX)
		return err_set(e, -EINVAL, "more than %u keys", KEYS_MAX);
	key->algorithm = is_rsa ? RS256 : ES256;
	key->public = is_rsa ? make_rsa(json) : make_ec(json);
	if (!key->public)
		return 0;
	(void)snprintf(key->id, sizeof(key->id), "%s", id); /* fits */
	keys->n++;
	return 0;
}

static int add_keys(struct jwt_keys *keys, const char *text, size_t len, struct err *e)
{
	json_t *json = len <= JWT_KEYS_BYTES_MAX ? parse(text, len) : NULL;
	const json_t *list = json_object_get(json, "keys");
	const json_t *one;
	size_t i;
	int r = 0;

	if (!json_is_array(list))
		r = err_set(e, -EINVAL, "not a JSON Web Key Set of at most %u bytes",
			JWT_KEYS_BYTES_MAX);
	json_array_foreach (list, i, one)
		if (r == 0)
			r = add_key(keys, one, e);
	json_decref(json);
	if (r == 0 && keys->n == 0)
		r = err_set(e, -EINVAL,
			"no key of type RSA (2048 bits or more) or EC (P-256) with a 'kid'");
	return r;
}

int jwt_keys_parse(const char *text, size_t len, struct jwt_keys **ret_keys, struct err *e)
{
	struct jwt_keys *keys = calloc(1, sizeof(*keys));
	int r;

	if (!keys)
		return err_set(e, -ENOMEM, "out of memory");
	r = add_keys(keys, text, len, e);
	if (r < 0)
		jwt_keys_free(keys);
	else
		*ret_keys = keys;
	return r;
}

void jwt_keys_free(struct jwt_keys *keys)
{
	for (unsigned int i = 0; keys && i < keys->n; i++)
		EVP_PKEY_free(keys->all[i].public);
	free(keys);
}

/* ---- signatures ------------------------------------------------------------------------------ */

/* ES256 has the two numbers one after the other; OpenSSL wants them as DER. The length, or -1. */
static int to_der(const uint8_t *signature, size_t len, uint8_t **ret_der)
{
	ECDSA_SIG *numbers = len == ES256_BYTES ? ECDSA_SIG_new() : NULL;
	BIGNUM *r = numbers ? BN_bin2bn(signature, ES256_BYTES / 2, NULL) : NULL;
	BIGNUM *s = numbers ? BN_bin2bn(signature + ES256_BYTES / 2, ES256_BYTES / 2, NULL) : NULL;
	int n = -1;

	if (r && s && ECDSA_SIG_set0(numbers, r, s) == 1) {
		r = s = NULL;
		n = i2d_ECDSA_SIG(numbers, ret_der);
	}
	BN_free(r);
	BN_free(s);
	ECDSA_SIG_free(numbers);
	return n;
}

static bool is_signed(const struct key *key, const char *text, size_t len, const uint8_t *signature,
	size_t signature_len)
{
	EVP_MD_CTX *context = EVP_MD_CTX_new();
	uint8_t *der = NULL;
	int n = key->algorithm == ES256 ? to_der(signature, signature_len, &der) : 0;
	const uint8_t *data = der ? der : signature;
	size_t size = der ? (size_t)max(n, 0) : signature_len;
	bool valid = context && n >= 0 &&
		     EVP_DigestVerifyInit(context, NULL, EVP_sha256(), NULL, key->public) == 1 &&
		     EVP_DigestVerify(context, data, size, (const uint8_t *)text, len) == 1;

	OPENSSL_free(der);
	EVP_MD_CTX_free(context);
	return valid;
}

/* ---- the head -------------------------------------------------------------------------------- */

/* The key that the head names, which must be of the algorithm that it names. */
static int find_signer(const struct jwt_keys *keys, const char *json, size_t len,
	const struct key **ret_key, struct err *e)
{
	json_t *head = parse(json, len);
	const char *algorithm = text_of(head, "alg");
	const char *id = text_of(head, "kid");
	bool is_rsa = algorithm && strcmp(algorithm, "RS256") == 0;
	const struct key *key = NULL;
	int r = 0;

	if (!head || json_object_get(head, "crit"))
		r = refuse(e, "has an invalid head");
	else if (!is_rsa && !(algorithm && strcmp(algorithm, "ES256") == 0))
		r = refuse(e, "has an algorithm other than RS256 and ES256");
	else if (!id || strlen(id) >= KEY_ID_BYTES)
		r = refuse(e, "names no key");
	else if (!(key = find_key(keys, id)))
		r = err_set(e, -ENOKEY,
			"the service-account token is signed with the unknown key '%s'", id);
	else if (key->algorithm != (is_rsa ? RS256 : ES256))
		r = refuse(e, "has an algorithm that is not that of its key");
	json_decref(head);
	*ret_key = key;
	return r;
}

/* ---- the claims ------------------------------------------------------------------------------ */

/* One text, or a list that has it. */
static bool has_audience(const json_t *audience, const char *wanted)
{
	const json_t *one;
	size_t i;

	if (json_is_string(audience))
		return strcmp(json_string_value(audience), wanted) == 0;
	json_array_foreach (audience, i, one)
		if (json_is_string(one) && strcmp(json_string_value(one), wanted) == 0)
			return true;
	return false;
}

/* Seconds since 1970, as an integer; -1: otherwise. */
static int64_t seconds_of(const json_t *claims, const char *name)
{
	const json_t *value = json_object_get(claims, name);
	json_int_t s = json_is_integer(value) ? json_integer_value(value) : -1;

	return s > 0 && s <= SECONDS_MAX ? s : -1;
}

/* Is it valid now? Without `nbf` it is from the beginning. */
static int check_times(const json_t *claims, uint64_t now_s, uint64_t *ret_expires_s, struct err *e)
{
	int64_t expires = seconds_of(claims, "exp");
	int64_t begins = json_object_get(claims, "nbf") ? seconds_of(claims, "nbf") : 0;

	if (expires < 0 || begins < 0)
		return refuse(e, "has invalid times");
	if ((uint64_t)expires <= now_s)
		return refuse(e, "has expired");
	if ((uint64_t)begins > now_s + SKEW_S)
		return refuse(e, "is not valid yet");
	*ret_expires_s = (uint64_t)expires;
	return 0;
}

static int take(const json_t *object, const char *name, char *out, size_t size)
{
	const char *text = text_of(object, name);

	return text && *text && snprintf(out, size, "%s", text) < (int)size ? 0 : -EINVAL;
}

/* The pod that it is bound to, and its service account, which is its subject, too. */
static int take_pod(const json_t *claims, struct jwt_pod *ret, struct err *e)
{
	const json_t *bound = json_object_get(claims, "kubernetes.io");
	const json_t *account = json_object_get(bound, "serviceaccount");
	const json_t *pod = json_object_get(bound, "pod");
	const char *subject = text_of(claims, "sub");
	char wanted[2 * JWT_NAME_BYTES + 32];

	if (take(bound, "namespace", ret->name_space, sizeof(ret->name_space)) < 0 ||
		take(account, "name", ret->account, sizeof(ret->account)) < 0 ||
		take(pod, "name", ret->pod, sizeof(ret->pod)) < 0 ||
		take(pod, "uid", ret->pod_id, sizeof(ret->pod_id)) < 0)
		return refuse(e, "is not bound to a pod");
	(void)snprintf(wanted, sizeof(wanted), "system:serviceaccount:%s:%s", ret->name_space,
		ret->account); /* fits */
	return subject && strcmp(subject, wanted) == 0
		       ? 0
		       : refuse(e, "has a subject other than its service account");
}

int jwt_take_claims(const char *json, size_t len, const struct jwt_rules *rules,
	struct jwt_pod *ret_pod, struct err *e)
{
	json_t *claims = parse(json, len);
	const char *issuer = text_of(claims, "iss");
	struct jwt_pod pod = { 0 };
	int r = claims ? 0 : refuse(e, "has invalid claims");

	if (r == 0 && !(issuer && strcmp(issuer, rules->issuer) == 0))
		r = refuse(e, "is of another issuer");
	if (r == 0 && !has_audience(json_object_get(claims, "aud"), rules->audience))
		r = refuse(e, "is for another audience");
	if (r == 0)
		r = check_times(claims, rules->now_s, &pod.expires_s, e);
	if (r == 0)
		r = take_pod(claims, &pod, e);
	json_decref(claims);
	if (r == 0)
		*ret_pod = pod;
	return r;
}

/* ---- the whole ------------------------------------------------------------------------------- */

/* The three parts of a token, decoded into one buffer. */
struct parts {
	uint8_t *data; /* owned */
	const uint8_t *at[3];
	size_t len[3];
	size_t signed_len; /* of the text */
};

static int split(const char *text, size_t len, struct parts *ret)
{
	size_t used = 0;
	size_t from = 0;

	ret->data = malloc(len + 1);
	if (!ret->data)
		return -ENOMEM;
	for (unsigned int i = 0; i < ARRAY_SIZE(ret->at); i++) {
		const char *dot = memchr(text + from, '.', len - from);
		size_t n = dot ? (size_t)(dot - text) - from : len - from;
		ssize_t got = decode(text + from, n, ret->data + used, len - used);

		if (got <= 0 || (dot != NULL) != (i < 2))
			return -EINVAL;
		ret->at[i] = ret->data + used;
		ret->len[i] = (size_t)got;
		used += (size_t)got;
		ret->signed_len = i == 1 ? from + n : ret->signed_len;
		from += n + 1;
	}
	return 0;
}

int jwt_verify(const struct jwt_keys *keys, const struct jwt_rules *rules, const char *text,
	size_t len, struct jwt_pod *ret_pod, struct err *e)
{
	struct parts parts = { 0 };
	const struct key *key = NULL;
	int r = len <= JWT_BYTES_MAX ? split(text, len, &parts) : -EINVAL;

	if (r == -ENOMEM)
		r = err_set(e, r, "out of memory");
	else if (r < 0)
		r = refuse(e, "is not a token");
	if (r == 0)
		r = find_signer(keys, (const char *)parts.at[0], parts.len[0], &key, e);
	if (r == 0 && !is_signed(key, text, parts.signed_len, parts.at[2], parts.len[2]))
		r = refuse(e, "has an invalid signature");
	if (r == 0)
		r = jwt_take_claims((const char *)parts.at[1], parts.len[1], rules, ret_pod, e);
	free(parts.data);
	return r;
}
