/* TLS over external PSKs. See tls_internal.h. */
#include "net/tls_internal.h"
#include "base/hash.h"
#include "base/little.h"
#include "base/log.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CIPHERS       "TLS_AES_128_GCM_SHA256:TLS_CHACHA20_POLY1305_SHA256"
#define RAW           "\015granary-plain"
#define RECORDS       "\013granary-tls"
#define IDENTITY_HEAD 2u
#define CLUSTER_BYTES (IDENTITY_HEAD + 4u + KEYS_NONCE_BYTES)
#define OUT_KEPT      65536u

static const uint8_t cluster_head[IDENTITY_HEAD] = { 'c', ':' };
static const uint8_t token_head[IDENTITY_HEAD] = { 't', ':' };

bool net_debug_self;

static struct {
	pthread_once_t once;
	SSL_CTX *client;
	SSL_CTX *server;
	BIO_METHOD *wire;
} contexts = { .once = PTHREAD_ONCE_INIT };

/* ---- the buffers as OpenSSL sees them -------------------------------------------------------- */

static int wire_read(BIO *bio, char *data, size_t n, size_t *ret_n)
{
	struct tls *tls = BIO_get_data(bio);
	size_t step = min(n, tls->in_end - tls->in_begin);

	BIO_clear_retry_flags(bio);
	*ret_n = step;
	if (step == 0) {
		BIO_set_retry_read(bio);
		return 0;
	}
	memcpy(data, tls->in + tls->in_begin, step);
	tls->in_begin += step;
	return 1;
}

static int wire_write(BIO *bio, const char *data, size_t n, size_t *ret_n)
{
	struct tls *tls = BIO_get_data(bio);

	BIO_clear_retry_flags(bio);
	if (tls->out_cap - tls->out_end < n && tls->out_begin > 0) {
		memmove(tls->out, tls->out + tls->out_begin, tls->out_end - tls->out_begin);
		tls->out_at += tls->out_begin;
		tls->out_end -= tls->out_begin;
		tls->out_begin = 0;
	}
	if (tls->out_cap - tls->out_end < n) {
		size_t cap = max(tls->out_cap * 2, tls->out_end + n + 4096);
		uint8_t *out = realloc(tls->out, cap);

		if (!out)
			return 0;
		tls->out = out;
		tls->out_cap = cap;
	}
	memcpy(tls->out + tls->out_end, data, n);
	tls->out_end += n;
	*ret_n = n;
	return 1;
}

static long wire_ctrl(BIO *bio, int command, long number, void *pointer)
{
	(void)bio;
	(void)number;
	(void)pointer;
	return command == BIO_CTRL_FLUSH;
}

/* ---- keys ------------------------------------------------------------------------------------ */

static SSL_SESSION *psk_session(SSL *ssl, const uint8_t key[KEY_BYTES])
{
	const unsigned char aes_128_gcm_sha256[] = { 0x13, 0x01 };
	const SSL_CIPHER *cipher = SSL_CIPHER_find(ssl, aes_128_gcm_sha256);
	SSL_SESSION *session = SSL_SESSION_new();

	if (session && cipher && SSL_SESSION_set1_master_key(session, key, KEY_BYTES) &&
		SSL_SESSION_set_cipher(session, cipher) &&
		SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION))
		return session;
	SSL_SESSION_free(session);
	return NULL;
}

/* The client's side: what it says it is. */
static int use_key(SSL *ssl, const EVP_MD *md, const unsigned char **ret_identity, size_t *ret_len,
	SSL_SESSION **ret_session)
{
	static _Thread_local uint8_t identity[IDENTITY_HEAD + TOKEN_CLAIMS_MAX];
	const struct tls *tls = SSL_get_app_data(ssl);
	const struct keyring *ring = tls->ring;
	const uint8_t *key;

	*ret_session = NULL;
	if (md && EVP_MD_get_type(md) != NID_sha256)
		return 1; /* after a retry, of another cipher: none is at hand */
	if (ring->n_cluster > 0) {
		memcpy(identity, cluster_head, IDENTITY_HEAD);
		little_put32(identity + IDENTITY_HEAD, ring->cluster[0].id);
		memcpy(identity + IDENTITY_HEAD + 4, keys_nonce(), KEYS_NONCE_BYTES);
		*ret_len = CLUSTER_BYTES;
		key = ring->cluster[0].psk;
	} else {
		memcpy(identity, token_head, IDENTITY_HEAD);
		memcpy(identity + IDENTITY_HEAD, ring->token.packed, ring->token.packed_len);
		*ret_len = IDENTITY_HEAD + ring->token.packed_len;
		key = ring->token.key;
	}
	*ret_identity = identity;
	*ret_session = psk_session(ssl, key);
	return *ret_session != NULL;
}

static const uint8_t *find_cluster(struct tls *tls, const uint8_t *identity, size_t len)
{
	uint32_t id;

	if (len != CLUSTER_BYTES || memcmp(identity, cluster_head, IDENTITY_HEAD) != 0)
		return NULL;
	if (!net_debug_self &&
		memcmp(identity + IDENTITY_HEAD + 4, keys_nonce(), KEYS_NONCE_BYTES) == 0)
		return NULL; /* our own words, sent back to us */
	id = little_get32(identity + IDENTITY_HEAD);
	for (unsigned int i = 0; i < tls->ring->n_cluster; i++)
		if (tls->ring->cluster[i].id == id) {
			tls->peer.kind = PEER_CLUSTER;
			return tls->ring->cluster[i].psk;
		}
	return NULL;
}

/* The server's side: whom it knows. Without a session the handshake fails, as there is no certificate;
 * with one it fails unless the client's proof (the binder) is right. */
static int find_key(SSL *ssl, const unsigned char *identity, size_t len, SSL_SESSION **ret_session)
{
	struct tls *tls = SSL_get_app_data(ssl);
	const uint8_t *key = find_cluster(tls, identity, len);
	uint8_t token[KEY_BYTES];

	*ret_session = NULL;
	if (!key && len > IDENTITY_HEAD && memcmp(identity, token_head, IDENTITY_HEAD) == 0 &&
		token_check(tls->ring, identity + IDENTITY_HEAD, len - IDENTITY_HEAD,
			&tls->peer.claims, token) == 0) {
		tls->peer.kind = PEER_TOKEN;
		key = token;
	}
	if (!key)
		return 1;
	*ret_session = psk_session(ssl, key);
	tls->found = *ret_session != NULL;
	explicit_bzero(token, sizeof(token));
	return tls->found;
}

static int select_mode(SSL *ssl, const unsigned char **out, unsigned char *out_len,
	const unsigned char *in, unsigned int in_len, void *arg)
{
	const struct tls *tls = SSL_get_app_data(ssl);
	static const unsigned char both[] = RAW RECORDS;
	const unsigned char *ours = tls->ring->encrypt_data ? both + sizeof(RAW) - 1 : both;
	size_t len = sizeof(both) - 1 - (size_t)(ours - both);
	unsigned char *chosen;

	(void)arg;
	if (SSL_select_next_proto(&chosen, out_len, ours, (unsigned int)len, in, in_len) !=
		OPENSSL_NPN_NEGOTIATED)
		return SSL_TLSEXT_ERR_ALERT_FATAL;
	*out = chosen;
	return SSL_TLSEXT_ERR_OK;
}

/* ---- contexts -------------------------------------------------------------------------------- */

static SSL_CTX *context_new(const SSL_METHOD *method)
{
	SSL_CTX *ctx = SSL_CTX_new(method);

	if (!ctx)
		return NULL;
	if (!SSL_CTX_set_min_proto_version(ctx, TLS1_3_VERSION) ||
		!SSL_CTX_set_max_proto_version(ctx, TLS1_3_VERSION) ||
		!SSL_CTX_set_ciphersuites(ctx, CIPHERS) || !SSL_CTX_set_num_tickets(ctx, 0)) {
		SSL_CTX_free(ctx);
		return NULL;
	}
	(void)SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_OFF); /* cannot fail */
	(void)SSL_CTX_set_options(ctx, SSL_OP_NO_TICKET);              /* likewise */
	(void)SSL_CTX_set_mode(ctx, SSL_MODE_RELEASE_BUFFERS);         /* likewise */
	return ctx;
}

static void make_contexts(void)
{
	BIO_METHOD *wire = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "granary wire");
	SSL_CTX *client = context_new(TLS_client_method());
	SSL_CTX *server = context_new(TLS_server_method());

	if (!wire || !client || !server)
		return;
	(void)BIO_meth_set_read_ex(wire, wire_read); /* setters of a struct */
	(void)BIO_meth_set_write_ex(wire, wire_write);
	(void)BIO_meth_set_ctrl(wire, wire_ctrl);
	/* Who comes with a certificate instead of the key is none of ours: there is no authority. */
	SSL_CTX_set_verify(client, SSL_VERIFY_PEER, NULL);
	SSL_CTX_set_psk_use_session_callback(client, use_key);
	SSL_CTX_set_psk_find_session_callback(server, find_key);
	SSL_CTX_set_alpn_select_cb(server, select_mode, NULL);
	contexts.client = client;
	contexts.server = server;
	contexts.wire = wire;
}

static bool offer_modes(struct tls *tls)
{
	const unsigned char both[] = RAW RECORDS;
	size_t skip = tls->ring->encrypt_data ? sizeof(RAW) - 1 : 0;

	return SSL_set_alpn_protos(
		       tls->ssl, both + skip, (unsigned int)(sizeof(both) - 1 - skip)) == 0;
}

int tls_new(bool server, struct tls **ret_tls)
{
	struct tls *tls = calloc(1, sizeof(*tls));
	BIO *bio = NULL;

	(void)pthread_once(&contexts.once, make_contexts); /* never fails */
	if (!tls || !contexts.wire)
		goto no_memory;
	tls->server = server;
	tls->ring = keyring_get();
	if (!tls->ring || (server && tls->ring->n_cluster == 0)) {
		tls_free(tls);
		return -ENOKEY;
	}
	tls->ssl = SSL_new(server ? contexts.server : contexts.client);
	bio = BIO_new(contexts.wire);
	if (!tls->ssl || !bio)
		goto no_memory;
	BIO_set_data(bio, tls);
	BIO_set_init(bio, 1);
	SSL_set_bio(tls->ssl, bio, bio); /* the bio is the connection's now */
	bio = NULL;
	if (!SSL_set_app_data(tls->ssl, tls) || (!server && !offer_modes(tls)))
		goto no_memory;
	if (server)
		SSL_set_accept_state(tls->ssl);
	else
		SSL_set_connect_state(tls->ssl);
	*ret_tls = tls;
	return 0;
no_memory:
	BIO_free(bio);
	tls_free(tls);
	return -ENOMEM;
}

void tls_free(struct tls *tls)
{
	if (!tls)
		return;
	SSL_free(tls->ssl);
	keyring_unref(tls->ring);
	free(tls->in);
	free(tls->out);
	free(tls);
}

/* ---- the handshake --------------------------------------------------------------------------- */

/* What a failing call of OpenSSL means. */
static int tls_error(struct tls *tls, int result)
{
	int why = SSL_get_error(tls->ssl, result);
	unsigned long error = ERR_peek_last_error();

	if (why == SSL_ERROR_WANT_READ)
		return 0;
	if (why == SSL_ERROR_ZERO_RETURN)
		return -ECONNRESET;
	log_debug("tls", "error=\"%s\"",
		ERR_reason_error_string(error) ? ERR_reason_error_string(error) : "");
	if (ERR_GET_REASON(error) == ERR_R_MALLOC_FAILURE)
		return -ENOMEM;
	return SSL_is_init_finished(tls->ssl) ? -EPROTO : -EKEYREJECTED;
}

static int handshake_done(struct tls *tls)
{
	const unsigned char *mode;
	unsigned int len;

	SSL_get0_alpn_selected(tls->ssl, &mode, &len);
	if (!SSL_session_reused(tls->ssl) || (tls->server && !tls->found) || len == 0)
		return -EKEYREJECTED; /* not by a key of ours */
	tls->raw = len == sizeof(RAW) - 2;
	if (tls->raw && tls->ring->encrypt_data)
		return -EPROTO;
	if (!tls->server)
		tls->peer.kind = PEER_CLUSTER; /* nobody else can have answered */
	return 1;
}

int tls_handshake(struct tls *tls)
{
	int r;

	ERR_clear_error();
	r = SSL_do_handshake(tls->ssl);
	return r == 1 ? handshake_done(tls) : tls_error(tls, r);
}

/* ---- bytes ----------------------------------------------------------------------------------- */

ssize_t tls_read(struct tls *tls, void *data, size_t n)
{
	size_t got;

	ERR_clear_error();
	return SSL_read_ex(tls->ssl, data, n, &got) ? (ssize_t)got : tls_error(tls, 0);
}

bool tls_pending(const struct tls *tls)
{
	return SSL_pending(tls->ssl) > 0;
}

size_t tls_take_raw(struct tls *tls, void *data, size_t n)
{
	size_t step = min(n, tls->in_end - tls->in_begin);

	if (step)
		memcpy(data, tls->in + tls->in_begin, step);
	tls->in_begin += step;
	return step;
}

int tls_write(struct tls *tls, const void *data, size_t n)
{
	size_t put;

	if (n == 0)
		return 0;
	ERR_clear_error();
	tls->records += (uint32_t)((n - 1) / SSL3_RT_MAX_PLAIN_LENGTH) + 1;
	if (tls->records >= TLS_RECORDS_MAX &&
		SSL_key_update(tls->ssl, SSL_KEY_UPDATE_NOT_REQUESTED))
		tls->records = 0;
	if (SSL_write_ex(tls->ssl, data, n, &put) && put == n)
		return 0;
	return -ENOMEM; /* the buffer takes all, or there is no memory for it */
}

uint8_t *tls_space(struct tls *tls, size_t *ret_size)
{
	if (!tls->in)
		tls->in = malloc(TLS_IN_BYTES);
	if (!tls->in)
		return NULL;
	if (tls->in_begin > 0) {
		memmove(tls->in, tls->in + tls->in_begin, tls->in_end - tls->in_begin);
		tls->in_end -= tls->in_begin;
		tls->in_begin = 0;
	}
	*ret_size = TLS_IN_BYTES - tls->in_end;
	return tls->in + tls->in_end;
}

void tls_came(struct tls *tls, size_t n)
{
	tls->in_end += n;
}

void tls_rest(struct tls *tls)
{
	if (tls->in_begin < tls->in_end)
		return;
	free(tls->in);
	tls->in = NULL;
	tls->in_begin = tls->in_end = 0;
}

void tls_went(struct tls *tls, size_t n)
{
	tls->out_begin += n;
	if (tls->out_begin < tls->out_end)
		return;
	tls->out_at += tls->out_end;
	tls->out_begin = tls->out_end = 0;
	if (tls->out_cap > OUT_KEPT) {
		free(tls->out);
		tls->out = NULL;
		tls->out_cap = 0;
	}
}
