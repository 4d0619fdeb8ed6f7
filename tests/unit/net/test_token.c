/* Tokens by themselves: claims to bytes and back, their text, who may have what they say, the proof of who a client is; and
 * what is said of files of keys before they are used. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/file.h"
#include "base/hash.h"
#include "net/key_options.h"
#include "net/keys_internal.h"

#define KEY_TEXT                        \
	"granary-cluster-key 0000000a " \
	"0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a\n"
/* As an earlier version made it. */
#define OLD_KEY_TEXT \
	"granary-key 0000000a 0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a\n"
#define PATH_FOR_LINES "token.file"

struct fixture {
	char dir[64];
	char key[96];
	char token[96];
};

static int set_up(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	assert_non_null(f);
	*state = f;
	(void)snprintf(f->dir, sizeof(f->dir), "/tmp/granary-test-XXXXXX");
	assert_non_null(mkdtemp(f->dir));
	(void)snprintf(f->key, sizeof(f->key), "%s/key", f->dir);
	(void)snprintf(f->token, sizeof(f->token), "%s/token", f->dir);
	return 0;
}

static int tear_down(void **state)
{
	struct fixture *f = *state;
	const struct net_keys_config none = { 0 };
	struct err e = ERR_INIT;

	assert_int_equal(net_keys_load(&none, &e), 0);
	(void)unlink(f->key);
	(void)unlink(f->token);
	assert_int_equal(rmdir(f->dir), 0);
	free(f);
	return 0;
}

static void write_file(const char *path, const char *text)
{
	assert_int_equal(file_write_atomic(path, text, strlen(text), 0600), 0);
}

static uint64_t now_s(void)
{
	return clock_wall_ns() / CLOCK_SECOND;
}

static struct token_claims some_claims(uint32_t n_volumes)
{
	struct token_claims claims = {
		.n_volumes = n_volumes, .expires_s = now_s() + 3600, .key_id = 0x0a0b0c0d
	};

	for (size_t i = 0; i < sizeof(claims.dataset); i++)
		claims.dataset[i] = (uint8_t)(0xf0 + i);
	for (size_t i = 0; i < sizeof(claims.serial); i++)
		claims.serial[i] = (uint8_t)(0x20 + i);
	for (uint32_t i = 0; i < n_volumes; i++)
		memset(claims.volumes[i].bytes, (int)(1 + i), sizeof(claims.volumes[i].bytes));
	return claims;
}

/* The prefix of volume `i`, after which no other was given. */
static void add_prefix(struct token_claims *claims, uint32_t i, const char *prefix)
{
	size_t used = 0;

	for (uint32_t k = 0; k < i; k++)
		used += claims->prefix_bytes[k];
	claims->prefix_bytes[i] = (uint16_t)strlen(prefix);
	memcpy(claims->prefixes + used, prefix, strlen(prefix));
}

static struct cluster_key some_key(uint32_t id, uint8_t byte)
{
	struct cluster_key key = { .id = id };

	memset(key.proving, byte, sizeof(key.proving));
	memset(key.signing, byte + 1, sizeof(key.signing));
	return key;
}

/* ---- claims ---------------------------------------------------------------------------------- */

static void test_pack(void **state)
{
	(void)state;
	for (uint32_t n = 0; n <= TOKEN_VOLUMES_MAX; n++)
		for (int admin = 0; admin < 2; admin++) {
			struct token_claims claims = some_claims(n);
			uint8_t packed[TOKEN_CLAIMS_MAX];
			struct token_claims back;
			size_t len;

			claims.admin = admin;
			len = token_pack(&claims, packed);
			assert_int_equal(len, TOKEN_CLAIMS_HEAD + 18 * n);
			assert_int_equal(token_unpack(packed, len, &back), 0);
			assert_int_equal(back.n_volumes, n);
			assert_int_equal(back.admin, admin);
			assert_int_equal(back.key_id, claims.key_id);
			assert_int_equal(back.expires_s, claims.expires_s);
			assert_memory_equal(back.dataset, claims.dataset, sizeof(back.dataset));
			assert_memory_equal(back.serial, claims.serial, sizeof(back.serial));
			assert_memory_equal(back.volumes, claims.volumes, sizeof(back.volumes));
		}
}

/* The bytes that tokens were signed over for as long as there are some. */
static void test_golden(void **state)
{
	struct token_claims claims = some_claims(1);
	uint8_t packed[TOKEN_CLAIMS_MAX];
	static const uint8_t golden[] = { 3, 1, 1, 0, 0x0d, 0x0c, 0x0b, 0x0a, 0x88, 0x77, 0x66,
		0x55, 0x44, 0x33, 0x22, 0x11, 0xf0, 0xf1, 0xf2, 0xf3, 0xf4, 0xf5, 0xf6, 0xf7, 0xf8,
		0xf9, 0xfa, 0xfb, 0xfc, 0xfd, 0xfe, 0xff, 0x20, 0x21, 0x22, 0x23, 0x24, 0x25, 0x26,
		0x27, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 0, 'a', '/' };

	(void)state;
	claims.admin = true;
	claims.expires_s = 0x1122334455667788;
	add_prefix(&claims, 0, "a/");
	assert_int_equal(token_pack(&claims, packed), sizeof(golden));
	assert_memory_equal(packed, golden, sizeof(golden));
}

static void test_bad_claims(void **state)
{
	static const struct {
		size_t at;
		uint8_t value;
	} wrong[] = { { 1, 2 }, { 1, 255 }, { 2, 1 }, { 2, 3 }, { 2, 255 }, { 3, 1 },
		{ TOKEN_CLAIMS_HEAD + 16, 1 }, { TOKEN_CLAIMS_HEAD + 17, 255 } };
	const struct token_claims claims = some_claims(2);
	uint8_t packed[TOKEN_CLAIMS_MAX + 1] = { 0 };
	struct token_claims back = { .key_id = 77 };
	size_t len = token_pack(&claims, packed);

	(void)state;
	for (size_t cut = 0; cut <= sizeof(packed); cut++) /* the rest of `packed` is zeros */
		if (cut != len)
			assert_int_equal(token_unpack(packed, cut, &back), -EBADMSG);
	for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
		uint8_t was = packed[wrong[i].at];

		packed[wrong[i].at] = wrong[i].value;
		assert_int_equal(token_unpack(packed, len, &back), -EBADMSG);
		packed[wrong[i].at] = was;
	}
	for (uint8_t version = 0; version < 3; version++) {
		packed[0] = version;
		assert_int_equal(token_unpack(packed, len, &back), -EPROTONOSUPPORT);
	}
	packed[0] = 3;
	assert_int_equal(back.key_id, 77); /* written on success alone */
	assert_int_equal(token_unpack(packed, len, &back), 0);
}

/* A prefix for some of the volumes, up to the most bytes that there may be. */
static void test_prefixes(void **state)
{
	struct token_claims claims = some_claims(3);
	uint8_t packed[TOKEN_CLAIMS_MAX];
	struct token_claims back;
	size_t len;

	(void)state;
	add_prefix(&claims, 0, "train/");
	add_prefix(&claims, 2, "a/b/");
	len = token_pack(&claims, packed);
	assert_int_equal(token_unpack(packed, len, &back), 0);
	assert_memory_equal(back.prefix_bytes, claims.prefix_bytes, sizeof(back.prefix_bytes));
	assert_memory_equal(back.prefixes, "train/a/b/", 10);
	for (size_t cut = 1; cut < len; cut++)
		assert_int_equal(token_unpack(packed, cut, &back), -EBADMSG);
	claims.prefix_bytes[0] = TOKEN_PREFIX_BYTES - 4;
	assert_int_equal(token_unpack(packed, token_pack(&claims, packed), &back), 0);
	packed[TOKEN_CLAIMS_HEAD + 16 + TOKEN_CLAIM_BYTES] =
		1; /* a byte more than there is room for */
	assert_int_equal(token_unpack(packed, sizeof(packed), &back), -EBADMSG);
}

/* ---- who may --------------------------------------------------------------------------------- */

static void test_check(void **state)
{
	struct keyring ring = { .n_cluster = 2,
		.cluster = { some_key(0x0a0b0c0d, 1), some_key(0x0b, 2) } };
	struct token_claims claims = some_claims(1);
	uint8_t packed[TOKEN_CLAIMS_MAX];
	size_t len = token_pack(&claims, packed);
	uint8_t wanted[KEY_BYTES];
	uint8_t key[KEY_BYTES];
	struct token_claims back;

	(void)state;
	token_key(&ring.cluster[0], packed, len, wanted);
	assert_int_equal(token_check(&ring, packed, len, &back, key), 0);
	assert_memory_equal(key, wanted, KEY_BYTES);
	assert_int_equal(back.expires_s, claims.expires_s);

	/* The second key is as good; and gives another K_t. */
	claims.key_id = 0x0b;
	len = token_pack(&claims, packed);
	assert_int_equal(token_check(&ring, packed, len, &back, key), 0);
	assert_memory_not_equal(key, wanted, KEY_BYTES);
	ring.n_cluster = 1;
	assert_int_equal(token_check(&ring, packed, len, &back, key), -EKEYREJECTED);
	ring.n_cluster = 0;
	assert_int_equal(token_check(&ring, packed, len, &back, key), -EKEYREJECTED);
}

static void test_expired(void **state)
{
	const struct keyring ring = { .n_cluster = 1, .cluster = { some_key(0x0a0b0c0d, 1) } };
	static const uint64_t past[] = { 0, 1, 1000000000 };
	struct token_claims claims = some_claims(1);
	uint8_t packed[TOKEN_CLAIMS_MAX];
	uint8_t key[KEY_BYTES];
	struct token_claims back;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(past); i++) {
		claims.expires_s = past[i];
		assert_int_equal(
			token_check(&ring, packed, token_pack(&claims, packed), &back, key),
			-EKEYREJECTED);
	}
	claims.expires_s = UINT64_MAX;
	assert_int_equal(token_check(&ring, packed, token_pack(&claims, packed), &back, key), 0);
}

static bool has(const struct key_prefixes *part, const char *key)
{
	return key_prefixes_have(part, key, strlen(key));
}

/* What a token shows of a volume: all, what is below its prefixes, nothing. */
static void test_parts(void **state)
{
	struct peer_identity peer = { .kind = PEER_TOKEN, .claims = some_claims(4) };
	const struct volume_id *volumes = peer.claims.volumes;
	struct volume_id other = { 0 };
	struct key_prefixes part;

	(void)state;
	assert_false(peer_has_part(&peer));
	assert_false(peer_reads_part(&peer, &volumes[0], &part));
	peer.claims.volumes[2] = volumes[1];
	add_prefix(&peer.claims, 1, "x/");
	add_prefix(&peer.claims, 2, "a/");
	add_prefix(&peer.claims, 3, "y/z/");
	assert_true(peer_has_part(&peer));
	assert_false(peer_reads_part(&peer, &volumes[0], &part));
	assert_true(peer_reads_part(&peer, &volumes[1], &part));
	assert_true(has(&part, "x/1") && has(&part, "a/1") && !has(&part, "y/z/1"));
	assert_true(part.n == 2 && part.all[0].text[0] == 'a'); /* sorted */
	assert_true(peer_reads_part(&peer, &volumes[3], &part));
	assert_true(has(&part, "y/z/1") && !has(&part, "y/") && !has(&part, "x/1"));
	assert_true(peer_reads_part(&peer, &other, &part)); /* of what it does not name, nothing */
	assert_false(has(&part, "x/1") || has(&part, ""));
	peer.claims.prefix_bytes[2] = 0; /* all of it, in addition to a prefix */
	assert_false(peer_reads_part(&peer, &volumes[1], &part));
	for (enum peer_kind kind = PEER_NODE; kind < PEER_TOKEN; kind++) {
		peer.kind = kind;
		assert_false(peer_reads_part(&peer, &volumes[3], &part) || peer_has_part(&peer));
	}
}

/* Whatever of the claims is changed, the key is another: nobody gets more by writing it in. */
static void test_key_of_each_bit(void **state)
{
	const struct cluster_key cluster = some_key(1, 1);
	const struct token_claims claims = some_claims(2);
	uint8_t packed[TOKEN_CLAIMS_MAX];
	size_t len = token_pack(&claims, packed);
	uint8_t wanted[KEY_BYTES];
	uint8_t key[KEY_BYTES];

	(void)state;
	token_key(&cluster, packed, len, wanted);
	for (size_t bit = 0; bit < 8 * len; bit++) {
		packed[bit / 8] ^= (uint8_t)(1u << bit % 8);
		token_key(&cluster, packed, len, key);
		assert_memory_not_equal(key, wanted, KEY_BYTES);
		packed[bit / 8] ^= (uint8_t)(1u << bit % 8);
	}
	token_key(&cluster, packed, len, key);
	assert_memory_equal(key, wanted, KEY_BYTES);
}

/* Who has what of a connection's keys, for proofs. */
static struct proof_channel some_channel(struct keyring *ring, uint8_t byte)
{
	struct proof_channel channel = { .ring = ring, .tls = true };

	memset(channel.binding, byte, sizeof(channel.binding));
	return channel;
}

/* Is the client's proof on its connection what the server expects on its own? */
static bool shows(
	const struct proof_channel *client, const struct proof_channel *server, enum peer_kind kind)
{
	uint8_t identity[IDENTITY_MAX];
	size_t len = identity_own(client->ring, identity);
	uint8_t expected[HELLO_PROOF_BYTES];
	uint8_t proof[HELLO_PROOF_BYTES];
	struct peer_identity peer = { 0 };

	proof_own(client, proof);
	if (proof_expected(server, identity, len, &peer, expected) < 0)
		return false;
	assert_int_equal(peer.kind, kind);
	return memcmp(expected, proof, sizeof(proof)) == 0;
}

static struct keyring ring_of_token(const struct cluster_key *key, uint32_t n_volumes)
{
	struct token_claims claims = some_claims(n_volumes);
	struct keyring ring = { .has_token = true };

	claims.key_id = key->id;
	ring.token.claims = claims;
	ring.token.packed_len = token_pack(&claims, ring.token.packed);
	token_key(key, ring.token.packed, ring.token.packed_len, ring.token.key);
	return ring;
}

/* One of another connection, of another kind of socket, of another key or of other claims does not fit. */
static void test_proof(void **state)
{
	struct keyring ring = { .n_cluster = 1, .cluster = { some_key(0x0a, 1) } };
	struct keyring other = { .n_cluster = 1, .cluster = { some_key(0x0a, 7) } };
	struct keyring unknown = { .n_cluster = 1, .cluster = { some_key(0x0b, 1) } };
	struct keyring token = ring_of_token(&ring.cluster[0], 1);
	struct proof_channel server = some_channel(&ring, 1);
	struct proof_channel client = server;

	(void)state;
	net_debug_self = true;
	assert_true(shows(&client, &server, PEER_CLUSTER));
	client.ring = &token;
	assert_true(shows(&client, &server, PEER_TOKEN));
	token.token.key[0] ^= 1;
	assert_false(shows(&client, &server, PEER_TOKEN));
	token.token.key[0] ^= 1;
	token.token.packed[TOKEN_CLAIMS_HEAD] ^= 1; /* another volume, with the key of this one */
	assert_false(shows(&client, &server, PEER_TOKEN));
	client.ring = &other;
	assert_false(shows(&client, &server, PEER_CLUSTER));
	client.ring = &unknown;
	assert_false(shows(&client, &server, PEER_CLUSTER));
	client = some_channel(&ring, 1);
	client.tls = false;
	assert_false(shows(&client, &server, PEER_CLUSTER));
	for (size_t bit = 0; bit < 8 * PROOF_BINDING_BYTES; bit++) {
		client = server;
		client.binding[bit / 8] ^= (uint8_t)(1u << bit % 8);
		assert_false(shows(&client, &server, PEER_CLUSTER));
	}
	net_debug_self = false;
	assert_false(shows(&server, &server, PEER_CLUSTER)); /* this process, sent back to it */
}

/* Cut anywhere, or with more behind it, it is nobody's. */
static void test_bad_identity(void **state)
{
	struct keyring ring = { .n_cluster = 1, .cluster = { some_key(0x0a, 1) } };
	struct keyring token = ring_of_token(&ring.cluster[0], 2);
	const struct proof_channel channel = some_channel(&ring, 1);
	struct keyring *rings[] = { &ring, &token };

	(void)state;
	net_debug_self = true;
	for (size_t i = 0; i < ARRAY_SIZE(rings); i++) {
		uint8_t identity[IDENTITY_MAX + 1] = { 0 };
		size_t len = identity_own(rings[i], identity);
		struct peer_identity peer = { 0 };
		uint8_t proof[HELLO_PROOF_BYTES];

		for (size_t n = 0; n <= sizeof(identity); n++)
			assert_int_equal(proof_expected(&channel, identity, n, &peer, proof),
				n == len ? 0 : -EKEYREJECTED);
		identity[0] = 'x';
		assert_int_equal(
			proof_expected(&channel, identity, len, &peer, proof), -EKEYREJECTED);
	}
	net_debug_self = false;
}

/* The bytes that are proved, with a key of threes: what both ends must agree on, for as long as this handshake is spoken. */
static void test_golden_proof(void **state)
{
	struct keyring ring = { .n_cluster = 1, .cluster = { some_key(0x0a, 3) } };
	struct keyring token = ring_of_token(&ring.cluster[0], 0);
	const struct proof_channel channel = some_channel(&token, 0x11);
	uint8_t text[25 + 1 + PROOF_BINDING_BYTES + 2 + TOKEN_CLAIMS_HEAD];
	uint8_t wanted[HELLO_PROOF_BYTES];
	uint8_t proof[HELLO_PROOF_BYTES];
	uint8_t *at = text;

	(void)state;
	at = mempcpy(at, "granary 2 client's proof", 25);
	*at++ = 1;
	memset(at, 0x11, PROOF_BINDING_BYTES);
	at = mempcpy(at + PROOF_BINDING_BYTES, "t:", 2);
	at = mempcpy(at, token.token.packed, TOKEN_CLAIMS_HEAD);
	assert_ptr_equal(at, text + sizeof(text));
	hash_hmac_sha256(token.token.key, KEY_BYTES, text, sizeof(text), wanted);
	proof_own(&channel, proof);
	assert_memory_equal(proof, wanted, sizeof(proof));
}

/* What a key is turned into: all hosts must do it alike, and the pin is in files. */
static void test_golden_pin(void **state)
{
	static const uint8_t seed[KEY_BYTES] = { 1, 2, 3 };
	struct certificate a;
	struct certificate b;
	char pin[2 * PIN_BYTES + 1];

	(void)state;
	assert_int_equal(certificate_init(&a, seed), 0);
	assert_int_equal(certificate_init(&b, seed), 0);
	assert_memory_equal(a.pin, b.pin, PIN_BYTES);
	hash_hex(a.pin, PIN_BYTES, pin);
	assert_string_equal(
		pin, "aac8e062e7a3975288ef48068dde6df0f29c5f90801bbbe5bf99e6d22cc32fc1");
	certificate_release(&a);
	certificate_release(&b);
}

/* ---- text ------------------------------------------------------------------------------------ */

static void make(
	const struct fixture *f, const struct token_claims *claims, char text[TOKEN_TEXT_MAX])
{
	const struct net_keys_config config = { .cluster_key = f->key };
	struct token_claims of_first = *claims;
	struct err e = ERR_INIT;

	of_first.key_id = 0;
	write_file(f->key, KEY_TEXT);
	assert_int_equal(net_keys_load(&config, &e), 0);
	assert_int_equal(token_make(&of_first, text, &e), 0);
}

/* Of the key that is in use. */
static const uint8_t *pin_of(const struct fixture *f)
{
	static struct key_shown keys[KEYS_MAX];
	struct err e = ERR_INIT;

	assert_int_equal(keys_read(f->key, keys, &e), 1);
	return keys[0].pin;
}

/* A token that is shown whole: each changed byte of it, and each other key, is refused. */
static void test_verify(void **state)
{
	struct fixture *f = *state;
	const struct net_keys_config none = { 0 };
	struct token_claims claims = some_claims(0);
	struct token_claims shown = { 0 };
	char text[TOKEN_TEXT_MAX];
	char bad[TOKEN_TEXT_MAX];
	struct err e = ERR_INIT;

	claims.admin = true;
	make(f, &claims, text);
	assert_int_equal(token_verify(text, &shown), 0);
	assert_true(shown.admin);
	assert_memory_equal(shown.serial, claims.serial, sizeof(claims.serial));
	/* The pin, behind the last space, is for clients. */
	for (size_t i = 0; i < (size_t)(strrchr(text, ' ') - text); i++) {
		memcpy(bad, text, sizeof(bad));
		bad[i] = bad[i] == 'A' ? 'B' : 'A';
		assert_int_equal(token_verify(bad, &shown), -EKEYREJECTED);
	}
	assert_int_equal(token_verify("", &shown), -EKEYREJECTED);
	write_file(f->key, "granary-cluster-key 0000000b "
			   "0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b\n");
	assert_int_equal(net_keys_reload(&e), 0);
	assert_int_equal(token_verify(text, &shown), -EKEYREJECTED);
	claims.expires_s = now_s() - 1;
	make(f, &claims, text);
	assert_int_equal(token_verify(text, &shown), -EKEYREJECTED);
	assert_int_equal(net_keys_load(&none, &e), 0);
	assert_int_equal(token_verify(text, &shown), -EKEYREJECTED);
}

/* One that is made with another token ends with the same cluster key. */
static void test_key_of_choice(void **state)
{
	struct fixture *f = *state;
	const struct net_keys_config config = { .cluster_key = f->key };
	struct token_claims claims = some_claims(1);
	char text[TOKEN_TEXT_MAX];
	struct token token;
	struct err e = ERR_INIT;

	write_file(f->key,
		KEY_TEXT "granary-cluster-key 0000000b "
			 "0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b\n");
	assert_int_equal(net_keys_load(&config, &e), 0);
	for (uint32_t id = 0x0a; id <= 0x0b; id++) {
		claims.key_id = id;
		assert_int_equal(token_make(&claims, text, &e), 0);
		assert_int_equal(token_parse(PATH_FOR_LINES, text, &token, &e), 0);
		assert_int_equal(token.claims.key_id, id);
	}
	claims.key_id = 0x0c;
	assert_int_equal(token_make(&claims, text, &e), -ENOKEY);
	assert_non_null(strstr(e.text, "0000000c is no longer in use"));
}

static void test_text(void **state)
{
	struct fixture *f = *state;

	for (uint32_t n = 0; n <= TOKEN_VOLUMES_MAX; n++) {
		const struct token_claims claims = some_claims(n);
		struct keyring *ring;
		char text[TOKEN_TEXT_MAX];
		uint8_t key[KEY_BYTES];
		struct token_claims back;
		struct token token;
		struct err e = ERR_INIT;

		make(f, &claims, text);
		assert_int_equal(token_parse(PATH_FOR_LINES, text, &token, &e), 0);
		assert_int_equal(token.claims.n_volumes, n);
		assert_int_equal(token.claims.key_id, 0x0a); /* of the key that signed it */
		ring = keyring_get();
		assert_int_equal(token_check(ring, token.packed, token.packed_len, &back, key), 0);
		keyring_unref(ring);
		assert_memory_equal(
			key, token.key, KEY_BYTES); /* the file's is what a server computes */
		assert_memory_equal(token.pin, pin_of(f), PIN_BYTES);
	}
}

static void refuse(const char *text)
{
	struct token token = { .packed_len = 77 };
	struct err e = ERR_INIT;

	assert_int_equal(token_parse(PATH_FOR_LINES, text, &token, &e), -EINVAL);
	assert_non_null(strstr(e.text, PATH_FOR_LINES));
	assert_non_null(strstr(e.text, "cachectl token create"));
	assert_int_equal(token.packed_len, 77);
}

/* One that an earlier release made: told apart from what is no token. */
static void test_old_text(void **state)
{
	struct token token;
	struct err e = ERR_INIT;

	(void)state;
	assert_int_equal(token_parse(PATH_FOR_LINES,
				 "granary-token AQABAA0MCwqIZ2Zm "
				 "ERERERERERERERERERERERERERERERERERERERERERE",
				 &token, &e),
		-EINVAL);
	assert_non_null(strstr(e.text, "another version"));
	assert_non_null(strstr(e.text, "cachectl token create"));
	/* Without a pin. */
	e = ERR_INIT;
	assert_int_equal(
		token_parse(PATH_FOR_LINES,
			"granary-token AgAAAAoAAADIAQAAAAAAAPDx8vP09fb3-Pn6-_z9_v8gISIjJCUmJw "
			"ERERERERERERERERERERERERERERERERERERERERERE",
			&token, &e),
		-EINVAL);
	assert_non_null(strstr(e.text, "another version"));
}

/* Of a good text each prefix, each digit that is none, each that is too much. */
static void test_bad_text(void **state)
{
	struct fixture *f = *state;
	const struct token_claims claims = some_claims(1);
	char text[TOKEN_TEXT_MAX];
	char other[2 * TOKEN_TEXT_MAX + 4];
	struct token token;
	struct err e = ERR_INIT;
	size_t n;

	make(f, &claims, text);
	n = strlen(text);
	for (size_t i = 0; i < n; i++) {
		memcpy(other, text, n + 1);
		other[i] = '\0';
		refuse(other);
		other[i] = '=';
		refuse(other);
		other[i] = '\x80';
		refuse(other);
	}
	(void)snprintf(other, sizeof(other), "%sA", text); /* bits beyond the key */
	refuse(other);
	(void)snprintf(other, sizeof(other), "%s x", text);
	refuse(other);
	(void)snprintf(other, sizeof(other), "%s\n%s\n", text, text);
	refuse(other);
	memset(other, 'A', sizeof(other) - 1); /* longer than any token */
	other[sizeof(other) - 1] = '\0';
	memcpy(other, "granary-token ", 14);
	refuse(other);
	refuse("");
	(void)snprintf(other, sizeof(other), "%s \r\n\n", text); /* as editors leave it */
	assert_int_equal(token_parse(PATH_FOR_LINES, other, &token, &e), 0);
}

static void test_make_needs_a_key(void **state)
{
	const struct token_claims claims = some_claims(1);
	char text[TOKEN_TEXT_MAX];
	struct err e = ERR_INIT;

	(void)state;
	assert_int_equal(token_make(&claims, text, &e), -ENOKEY);
	assert_non_null(strstr(e.text, "cachectl key create"));
}

/* ---- before they are used -------------------------------------------------------------------- */

static void look(
	const struct fixture *f, bool token, int wanted, const char *about, const char *says)
{
	const struct key_options options = {
		.cluster_key = f->key, .token = token ? f->token : "none", .net_data = "plain"
	};
	const char *option = NULL;
	struct err e = ERR_INIT;

	assert_int_equal(net_keys_look(&options, &option, &e), wanted);
	assert_false(net_keys_any()); /* nothing came into use */
	if (wanted == 0)
		return;
	assert_string_equal(option, about);
	if (!strstr(e.text, says))
		fail_msg("'%s' is not in: %s", says, e.text);
	assert_null(strchr(e.text, '\n'));
}

static void test_look(void **state)
{
	struct fixture *f = *state;
	const struct token_claims claims = some_claims(1);
	const struct net_keys_config none = { 0 };
	char text[TOKEN_TEXT_MAX];
	struct err e = ERR_INIT;

	make(f, &claims, text);
	assert_int_equal(net_keys_load(&none, &e), 0);
	write_file(f->token, text);
	look(f, true, 0, "", "");
	assert_int_equal(chmod(f->token, 0640), 0);
	look(f, true, -EACCES, "token", "chmod 600");
	write_file(f->token, "granary-token not/base64 =\n");
	look(f, true, -EINVAL, "token", "contains no token");
	assert_int_equal(unlink(f->token), 0);
	look(f, true, -ENOENT, "token", "cannot read the token");
	look(f, false, 0, "", ""); /* "none" is no file */
	assert_int_equal(chmod(f->key, 0604), 0);
	look(f, true, -EACCES, "cluster-key", "chmod 600");
	write_file(f->key, "granary-cluster-key 0000000a 0a0a\n");
	look(f, true, -EINVAL, "cluster-key", "an invalid line");
	write_file(f->key, OLD_KEY_TEXT);
	look(f, true, -EINVAL, "cluster-key", "create a new one with `cachectl key create");
	write_file(f->key, "# none\n");
	look(f, true, -EINVAL, "cluster-key", "contains no key");
	assert_int_equal(unlink(f->key), 0);
	look(f, true, -ENOENT, "cluster-key", "cannot read the cluster key");
}

/* Of whom nothing is known, who comes by mistake, or whose handshake has not ended. */
static void test_nobody(void **state)
{
	const struct peer_identity nobody = { 0 };
	const struct volume_id volume = { 0 };

	(void)state;
	assert_false(peer_is_trusted(&nobody));
	assert_false(peer_may_read(&nobody, &volume));
	assert_false(peer_may_open(&nobody, nobody.claims.dataset));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_pack),
		cmocka_unit_test(test_golden),
		cmocka_unit_test(test_bad_claims),
		cmocka_unit_test(test_prefixes),
		cmocka_unit_test(test_check),
		cmocka_unit_test(test_parts),
		cmocka_unit_test(test_expired),
		cmocka_unit_test(test_key_of_each_bit),
		cmocka_unit_test(test_proof),
		cmocka_unit_test(test_bad_identity),
		cmocka_unit_test(test_golden_proof),
		cmocka_unit_test(test_golden_pin),
		cmocka_unit_test_setup_teardown(test_text, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_bad_text, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_verify, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_key_of_choice, set_up, tear_down),
		cmocka_unit_test(test_old_text),
		cmocka_unit_test(test_make_needs_a_key),
		cmocka_unit_test(test_nobody),
		cmocka_unit_test_setup_teardown(test_look, set_up, tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
