/*
 * TLS 1.3 (RFC 8446) between two buffers: `in` has the bytes received, `out` those to send. stream_tls.c moves both from and to
 * the socket.
 *
 * The client names a cluster key in the server name, "KEYID.granary"; the server shows the certificate of that key, and the
 * client compares its pin (keys_internal.h). Clients have no certificate: a client proves its identity in its greeting, over
 * keying material that both ends export here (proof.c), and has no rights before that. There is no resumption, no early data
 * and no pre-shared key.
 *
 * ALPN agrees on the version of frames, and on whether payloads of data messages are sent in records or raw behind the record of
 * their header: raw, unless one of the two ends requires records. Raw bytes may follow a record because OpenSSL reads no byte
 * behind a record's end.
 *
 * Lifetime: one connection. Threads: its loop's only.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>
#include "net/keys_internal.h"

#define TLS_IN_BYTES 32768u
/* With one key: RFC 8446, 5.5 gives AES-GCM half as many again. */
#define TLS_RECORDS_MAX (1u << 24)

struct ssl_st;

struct tls {
	struct ssl_st *ssl;
	struct proof_channel channel; /* `binding` is set when the handshake is done */
	bool server;
	bool done; /* the handshake is */
	bool raw;  /* payloads of data messages are sent raw; set when the handshake is done */
	const uint8_t *pin; /* of the certificate that the server shows, or must show */
	uint8_t *in;        /* TLS_IN_BYTES, or NULL while empty */
	size_t in_begin;
	size_t in_end;
	uint8_t *out;
	size_t out_begin;
	size_t out_end;
	size_t out_cap;
	uint64_t out_at;  /* bytes of the connection before out[0] */
	uint32_t records; /* written with the key in use */
};

/* Offsets in all bytes that the connection sends: of the next one to send, and of the end of `out`. */
static inline uint64_t tls_out_pos(const struct tls *tls)
{
	return tls->out_at + tls->out_begin;
}

static inline uint64_t tls_out_tail(const struct tls *tls)
{
	return tls->out_at + tls->out_end;
}

/* -ENOKEY: no key is loaded that this end may use. */
int tls_new(bool server, struct tls **ret_tls) __must_check;
void tls_free(struct tls *tls);

/* 1: done; 0: needs more bytes; -EKEYREVOKED: the server did not show the right certificate; -EPFNOSUPPORT: likewise, but it
 * sent the alert that it speaks another version of frames; -EPROTO, -ENOMEM. Leaves bytes in `out`, also when it fails. */
int tls_handshake(struct tls *tls) __must_check;
/* Decrypts up to n bytes; 0: needs more bytes; -ECONNRESET: the peer closed the connection; -EPROTO. */
ssize_t tls_read(struct tls *tls, void *data, size_t n) __must_check;
/* Does tls_read() have bytes without more being received? */
bool tls_pending(const struct tls *tls);
/* Takes raw bytes, behind the last record read; how many. */
size_t tls_take_raw(struct tls *tls, void *data, size_t n);
/* Encrypts all n bytes into `out`, in records of up to 16 KiB. -ENOMEM. */
int tls_write(struct tls *tls, const void *data, size_t n) __must_check;

/* Where to receive bytes; NULL without memory. tls_received() follows with their number. */
uint8_t *tls_space(struct tls *tls, size_t *ret_size);
void tls_received(struct tls *tls, size_t n);
/* Frees `in` when it is empty. */
void tls_trim(struct tls *tls);
/* Removes n bytes from the begin of `out`. */
void tls_sent(struct tls *tls, size_t n);
