/* Mount tokens: claims and the key made of them. See identity.h and keys_internal.h. */
#include "net/keys_internal.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/little.h"

#include <stdio.h>
#include <string.h>

#define TOKEN_VERSION 3
#define TOKEN_ADMIN   1u
#define TOKEN_WORD    "granary-token"

/* ---- claims ---------------------------------------------------------------------------------- */

size_t token_pack(const struct token_claims *claims, uint8_t out[TOKEN_CLAIMS_MAX])
{
	uint8_t *at = out + TOKEN_CLAIMS_HEAD;
	uint32_t n = claims->n_volumes;
	size_t text = 0;

	ensure(n <= TOKEN_VOLUMES_MAX);
	out[0] = TOKEN_VERSION;
	out[1] = claims->admin ? TOKEN_ADMIN : 0;
	out[2] = (uint8_t)n;
	out[3] = 0;
	little_put32(out + 4, claims->key_id);
	little_put64(out + 8, claims->expires_s);
	memcpy(out + 16, claims->dataset, TOKEN_DATASET_BYTES);
	memcpy(out + 32, claims->serial, sizeof(claims->serial));
	for (uint32_t i = 0; i < n; i++) {
		memcpy(at, claims->volumes[i].bytes, 16);
		little_put16(at + 16, claims->prefix_bytes[i]);
		at += TOKEN_CLAIM_BYTES;
		text += claims->prefix_bytes[i];
	}
	ensure(text <= TOKEN_PREFIX_BYTES);
	memcpy(at, claims->prefixes, text);
	return (size_t)(at - out) + text;
}

int token_unpack(const void *data, size_t len, struct token_claims *ret_claims)
{
	struct token_claims claims = { 0 };
	const uint8_t *in = data;
	const uint8_t *at;
	size_t text = 0;

	if (len > 0 && in[0] != TOKEN_VERSION)
		return -EPROTONOSUPPORT;
	if (len < TOKEN_CLAIMS_HEAD || in[1] > TOKEN_ADMIN || in[3] != 0 ||
		in[2] > TOKEN_VOLUMES_MAX ||
		len < TOKEN_CLAIMS_HEAD + (size_t)TOKEN_CLAIM_BYTES * in[2])
		return -EBADMSG;
	claims.admin = in[1] & TOKEN_ADMIN;
	claims.n_volumes = in[2];
	claims.key_id = little_get32(in + 4);
	claims.expires_s = little_get64(in + 8);
	memcpy(claims.dataset, in + 16, TOKEN_DATASET_BYTES);
	memcpy(claims.serial, in + 32, sizeof(claims.serial));
	at = in + TOKEN_CLAIMS_HEAD;
	for (uint32_t i = 0; i < claims.n_volumes; i++, at += TOKEN_CLAIM_BYTES) {
		memcpy(claims.volumes[i].bytes, at, 16);
		claims.prefix_bytes[i] = little_get16(at + 16);
		text += claims.prefix_bytes[i];
	}
	if (text > TOKEN_PREFIX_BYTES || (size_t)(in + len - at) != text)
		return -EBADMSG;
	memcpy(claims.prefixes, at, text);
	*ret_claims = claims;
	return 0;
}

void token_key(
	const struct cluster_key *key, const void *packed, size_t len, uint8_t out[KEY_BYTES])
{
	hash_hmac_sha256(key->signing, KEY_BYTES, packed, len, out);
}

int token_check(const struct keyring *ring, const void *packed, size_t len,
	struct token_claims *ret_claims, uint8_t ret_key[KEY_BYTES])
{
	struct token_claims claims;

	if (token_unpack(packed, len, &claims) < 0 ||
		claims.expires_s <= clock_wall_ns() / CLOCK_SECOND)
		return -EKEYREJECTED;
	for (unsigned int i = 0; i < ring->n_cluster; i++)
		if (ring->cluster[i].id == claims.key_id) {
			token_key(&ring->cluster[i], packed, len, ret_key);
			*ret_claims = claims;
			return 0;
		}
	return -EKEYREJECTED;
}

int token_verify(const char *text, struct token_claims *ret_claims)
{
	_cleanup_(keyring_unref_p) struct keyring *ring = keyring_get();
	struct token token = { 0 };
	struct token_claims claims;
	uint8_t key[KEY_BYTES];
	int r = ring ? token_parse("", text, &token, NULL) : -EKEYREJECTED;

	if (r < 0)
		return -EKEYREJECTED;
	r = token_check(ring, token.packed, token.packed_len, &claims, key);
	if (r == 0 && !hash_equal(key, token.key, KEY_BYTES))
		r = -EKEYREJECTED;
	if (r == 0)
		*ret_claims = claims;
	explicit_bzero(key, sizeof(key));
	explicit_bzero(token.key, sizeof(token.key));
	return r;
}

/* ---- text ------------------------------------------------------------------------------------ */

static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/* Base64url without padding (RFC 4648, 5), with a NUL; returns its length. */
static size_t text_put(const uint8_t *data, size_t len, char *out)
{
	uint32_t bits = 0;
	unsigned int have = 0;
	size_t n = 0;

	for (size_t i = 0; i < len; i++) {
		bits = bits << 8 | data[i];
		for (have += 8; have >= 6; have -= 6)
			out[n++] = digits[bits >> (have - 6) & 63];
	}
	if (have)
		out[n++] = digits[bits << (6 - have) & 63];
	out[n] = '\0';
	return n;
}

/* Reads `len` digits; the number of bytes, or -EINVAL. */
static ssize_t text_get(const char *text, size_t len, uint8_t *out, size_t size)
{
	uint32_t bits = 0;
	unsigned int have = 0;
	size_t n = 0;

	for (size_t i = 0; i < len; i++) {
		const char *digit = text[i] ? strchr(digits, text[i]) : NULL;

		if (!digit)
			return -EINVAL;
		bits = bits << 6 | (uint32_t)(digit - digits);
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

int token_parse(const char *path, const char *text, struct token *ret_token, struct err *e)
{
	struct token token = { 0 };
	size_t word = strcspn(text, " \t\r\n");
	const char *claims = text + word + strspn(text + word, " \t");
	size_t n = strcspn(claims, " \t\r\n");
	const char *key = claims + n + strspn(claims + n, " \t");
	size_t key_len = strcspn(key, " \t\r\n");
	const char *pin = key + key_len + strspn(key + key_len, " \t");
	size_t pin_len = strcspn(pin, " \t\r\n");
	ssize_t got = text_get(claims, n, token.packed, sizeof(token.packed));
	int r = got < 0 ? -EBADMSG : token_unpack(token.packed, (size_t)got, &token.claims);

	if (r == -EPROTONOSUPPORT && strncmp(text, TOKEN_WORD " ", sizeof(TOKEN_WORD)) == 0)
		return err_set(e, -EINVAL,
			"%s contains a token of another version: create a new one with `cachectl "
			"token create DATASET --out FILE`",
			path);
	if (word != strlen(TOKEN_WORD) || strncmp(text, TOKEN_WORD, word) != 0 || r < 0 ||
		text_get(key, key_len, token.key, KEY_BYTES) != (ssize_t)KEY_BYTES ||
		text_get(pin, pin_len, token.pin, PIN_BYTES) != (ssize_t)PIN_BYTES ||
		pin[pin_len + strspn(pin + pin_len, " \t\r\n")] != '\0') {
		explicit_bzero(token.key, sizeof(token.key));
		return err_set(e, -EINVAL,
			"%s contains no token: create one with `cachectl token create DATASET "
			"--out FILE`",
			path);
	}
	token.packed_len = (size_t)got;
	*ret_token = token;
	explicit_bzero(token.key, sizeof(token.key));
	return 0;
}

int token_make(const struct token_claims *claims, char out[TOKEN_TEXT_MAX], struct err *e)
{
	_cleanup_(keyring_unref_p) struct keyring *ring = keyring_get();
	const struct cluster_key *signing = NULL;
	struct token_claims signed_claims = *claims;
	uint8_t packed[TOKEN_CLAIMS_MAX];
	uint8_t key[KEY_BYTES];
	size_t len;
	size_t at;

	_Static_assert(
		TOKEN_TEXT_MAX >
			sizeof(TOKEN_WORD) + (TOKEN_CLAIMS_MAX + KEY_BYTES + PIN_BYTES) * 4 / 3 + 8,
		"fits");
	if (!ring || ring->n_cluster == 0)
		return err_set(e, -ENOKEY,
			"the daemon has no cluster key to sign a token: create one with "
			"`cachectl key create`, and name its file as cluster-key in the "
			"configuration");
	for (unsigned int i = 0; i < ring->n_cluster && !signing; i++)
		if (claims->key_id == 0 || ring->cluster[i].id == claims->key_id)
			signing = &ring->cluster[i];
	if (!signing)
		return err_set(e, -ENOKEY,
			"cluster key %08x is no longer in use: create the token with a present key",
			claims->key_id);
	signed_claims.key_id = signing->id;
	len = token_pack(&signed_claims, packed);
	token_key(signing, packed, len, key);
	at = (size_t)snprintf(out, TOKEN_TEXT_MAX, "%s ", TOKEN_WORD);
	at += text_put(packed, len, out + at);
	out[at++] = ' ';
	at += text_put(key, KEY_BYTES, out + at);
	out[at++] = ' ';
	(void)text_put(signing->certificate.pin, PIN_BYTES, out + at);
	explicit_bzero(key, sizeof(key));
	return 0;
}
