/* TLS with the certificate of a cluster. See tls_internal.h. */
#include "net/tls_internal.h"
#include "base/hash.h"
#include "base/little.h"
#include "base/log.h"
#include "proto/frame.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CIPHERS    "TLS_AES_128_GCM_SHA256:TLS_CHACHA20_POLY1305_SHA256"
#define EXPORTER   "EXPORTER-granary-client-proof"
#define RAW        "\016granary3-plain" /* 3: FRAME_VERSION */
#define RECORDS    "\014granary3-tls"
#define NAME_BYTES 24u
#define OUT_KEPT   65536u

_Static_assert(FRAME_VERSION == 3, "the names of what is spoken say so");

/* OpenSSL's macros cast const away, which clang warns of. */
static char signatures[] = "ed25519";
static char groups[] = "X25519";

static struct {
	pthread_once_t once;
	SSL_CTX *client;
	SSL_CTX *server;
	BIO_METHOD *wire;
} contexts = { .once = PTHREAD_ONCE_INIT };

/* ---- the buffers as a BIO of OpenSSL --------------------------------------------------------- */

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

/* ---- certificates ---------------------------------------------------------------------------- */

/* The key that the client named, or the first one, which the client then refuses. */
static const struct cluster_key *wanted_key(SSL *ssl, const struct keyring *ring)
{
	const char *name = SSL_get_servername(ssl, TLSEXT_NAMETYPE_host_name);
	uint32_t id = name ? (uint32_t)strtoul(name, NULL, 16) : 0;

	for (unsigned int i = 1; i < ring->n_cluster; i++)
		if (ring->cluster[i].id == id)
			return &ring->cluster[i];
	return &ring->cluster[0];
}

/* Called by OpenSSL on the server, before it sends its first message. */
static int show_certificate(SSL *ssl, void *arg)
{
	struct tls *tls = SSL_get_app_data(ssl);
	const struct certificate *c = &wanted_key(ssl, tls->channel.ring)->certificate;

	(void)arg;
	tls->pin = c->pin;
	return SSL_use_certificate(ssl, c->x509) == 1 && SSL_use_PrivateKey(ssl, c->key_pair) == 1;
}

/* Called by OpenSSL on the client instead of verifying a chain. TLS itself verifies that the server has the private key. */
static int is_pinned(X509_STORE_CTX *store, void *arg)
{
	SSL *ssl = X509_STORE_CTX_get_ex_data(store, SSL_get_ex_data_X509_STORE_CTX_idx());
	const struct tls *tls = SSL_get_app_data(ssl);
	X509 *shown = X509_STORE_CTX_get0_cert(store);
	uint8_t pin[PIN_BYTES];
	int r = shown ? certificate_pin(shown, pin) : -EKEYREVOKED;

	(void)arg;
	if (r == 0 && hash_equal(pin, tls->pin, PIN_BYTES))
		return 1;
	X509_STORE_CTX_set_error(
		store, r == -ENOMEM ? X509_V_ERR_OUT_OF_MEM : X509_V_ERR_CERT_REJECTED);
	return 0;
}

/* The modes of this process as ALPN encodes them, the preferred one first. */
static const unsigned char *modes(const struct tls *tls, unsigned int *ret_len)
{
	static const unsigned char both[] = RAW RECORDS;
	size_t skip = tls->channel.ring->encrypt_data ? sizeof(RAW) - 1 : 0;

	*ret_len = (unsigned int)(sizeof(both) - 1 - skip);
	return both + skip;
}

/* Called by OpenSSL on the server. */
static int select_mode(SSL *ssl, const unsigned char **out, unsigned char *out_len,
	const unsigned char *in, unsigned int in_len, void *arg)
{
	unsigned int len;
	const unsigned char *ours = modes(SSL_get_app_data(ssl), &len);
	unsigned char *chosen;

	(void)arg;
	if (SSL_select_next_proto(&chosen, out_len, ours, len, in, in_len) !=
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
		!SSL_CTX_set_ciphersuites(ctx, CIPHERS) ||
		!SSL_CTX_set1_sigalgs_list(ctx, signatures) ||
		!SSL_CTX_set1_groups_list(ctx, groups) || !SSL_CTX_set_num_tickets(ctx, 0)) {
		SSL_CTX_free(ctx);
		return NULL;
	}
	/* These return the previous value. There is no chain behind the certificate, so that OpenSSL need not search for one. */
	(void)SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_OFF);
	(void)SSL_CTX_set_options(ctx, SSL_OP_NO_TICKET);
	(void)SSL_CTX_set_mode(ctx, SSL_MODE_RELEASE_BUFFERS | SSL_MODE_NO_AUTO_CHAIN);
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
	SSL_CTX_set_verify(client, SSL_VERIFY_PEER, NULL);
	SSL_CTX_set_cert_verify_callback(client, is_pinned, NULL);
	SSL_CTX_set_cert_cb(server, show_certificate, NULL);
	SSL_CTX_set_alpn_select_cb(server, select_mode, NULL);
	contexts.client = client;
	contexts.server = server;
	contexts.wire = wire;
}

/* Puts the key that the client trusts and its modes into its first message. */
static bool offer(struct tls *tls)
{
	unsigned int len;
	const unsigned char *ours = modes(tls, &len);
	char name[NAME_BYTES];
	uint32_t id;

	keyring_in_use(tls->channel.ring, &id, &tls->pin);
	(void)snprintf(name, sizeof(name), "%08x.granary", id); /* fits */
	return SSL_set_tlsext_host_name(tls->ssl, name) == 1 &&
	       SSL_set_alpn_protos(tls->ssl, ours, len) == 0;
}

int tls_new(bool server, struct tls **ret_tls)
{
	struct tls *tls = calloc(1, sizeof(*tls));
	BIO *bio = NULL;

	(void)pthread_once(&contexts.once, make_contexts); /* never fails */
	if (!tls || !contexts.wire)
		goto no_memory;
	tls->server = server;
	tls->channel.tls = true;
	tls->channel.ring = keyring_get();
	if (!tls->channel.ring || (server && tls->channel.ring->n_cluster == 0)) {
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
	if (!SSL_set_app_data(tls->ssl, tls) || (!server && !offer(tls)))
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
	keyring_unref(tls->channel.ring);
	free(tls->in);
	free(tls->out);
	free(tls);
}

/* ---- the handshake --------------------------------------------------------------------------- */

/* OpenSSL decodes the public key after is_pinned(). A key with the right pin decodes, unless memory is short. */
static bool is_of_pinned_key(unsigned long error)
{
	return ERR_GET_LIB(error) == ERR_LIB_SSL &&
	       ERR_GET_REASON(error) == SSL_R_UNABLE_TO_FIND_PUBLIC_KEY_PARAMETERS;
}

/* Empties OpenSSL's queue of errors. -ENOMEM and -EPROTO: OpenSSL failed in this process; -EPFNOSUPPORT and -EKEYREVOKED: it
 * refused the peer's bytes. */
static int queued_error(void)
{
	int r = -EKEYREVOKED;
	unsigned long error;

	while ((error = ERR_get_error()) != 0) {
		const char *reason = ERR_reason_error_string(error);

		log_debug("tls", "error=\"%s\"", reason ? reason : "");
		if (ERR_GET_REASON(error) == ERR_R_MALLOC_FAILURE)
			r = -ENOMEM;
		else if (r != -ENOMEM && (ERR_FATAL_ERROR(error) || is_of_pinned_key(error)))
			r = -EPROTO;
		else if (r == -EKEYREVOKED && ERR_GET_LIB(error) == ERR_LIB_SSL &&
			 ERR_GET_REASON(error) == SSL_R_TLSV1_ALERT_NO_APPLICATION_PROTOCOL)
			r = -EPFNOSUPPORT;
	}
	return r;
}

/* The errno of a call of OpenSSL that failed; 0: it needs more bytes. */
static int tls_error(struct tls *tls, int result)
{
	int why = SSL_get_error(tls->ssl, result);
	int r;

	if (why == SSL_ERROR_WANT_READ)
		return 0;
	if (why == SSL_ERROR_ZERO_RETURN)
		return -ECONNRESET;
	r = queued_error();
	if (why == SSL_ERROR_SYSCALL || /* wire_write() failed */
		SSL_get_verify_result(tls->ssl) == X509_V_ERR_OUT_OF_MEM)
		r = -ENOMEM;
	/* After an error OpenSSL does not know that the handshake was done. */
	return r != -ENOMEM && (tls->server || tls->done) ? -EPROTO : r;
}

static int handshake_done(struct tls *tls)
{
	const unsigned char *mode;
	unsigned int len;

	SSL_get0_alpn_selected(tls->ssl, &mode, &len);
	if (SSL_session_reused(tls->ssl) || len == 0)
		return -EPROTO; /* neither is offered */
	tls->raw = len == sizeof(RAW) - 2;
	if (tls->raw && tls->channel.ring->encrypt_data)
		return -EPROTO;
	if (SSL_export_keying_material(tls->ssl, tls->channel.binding, PROOF_BINDING_BYTES,
		    EXPORTER, sizeof(EXPORTER) - 1, tls->pin, PIN_BYTES, 1) != 1)
		return -ENOMEM;
	tls->done = true;
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
	return -ENOMEM; /* wire_write() fails for nothing else */
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

void tls_received(struct tls *tls, size_t n)
{
	tls->in_end += n;
}

void tls_trim(struct tls *tls)
{
	if (tls->in_begin < tls->in_end)
		return;
	free(tls->in);
	tls->in = NULL;
	tls->in_begin = tls->in_end = 0;
}

void tls_sent(struct tls *tls, size_t n)
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
