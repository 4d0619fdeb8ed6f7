/*
 * TLS 1.3 (RFC 8446) between two buffers: what came off the wire goes in, what is to go onto it comes out. stream_tls.c moves
 * both to and from the socket.
 *
 * The server shows the certificate of a cluster key, the client compares its pin (keys_internal.h), and says in the server name
 * of which key it wants one: "KEYID.granary". The client proves who it is in its greeting, by what both ends export here
 * (proof.c): until then it is nobody. No resumption, no early data, no pre-shared keys, no certificates of clients.
 *
 * ALPN says which version of frames is spoken, and whether payloads of data messages go in records or raw behind the record of
 * their header: raw, unless one of the two wants records.
 *
 * OpenSSL reads no byte behind a record's end, so that raw bytes may follow one. Embedded nowhere, one
 * connection's, its loop's.
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
	struct proof_channel channel; /* its binding: after the handshake */
	bool server;
	bool done;          /* the handshake */
	bool raw;           /* after the handshake: payloads of data messages go raw */
	const uint8_t *pin; /* of the certificate that is shown, or must be */
	uint8_t *in;        /* TLS_IN_BYTES, or NULL while empty */
	size_t in_begin;
	size_t in_end;
	uint8_t *out;
	size_t out_begin;
	size_t out_end;
	size_t out_cap;
	uint64_t out_at;  /* how many bytes of the connection were before out[0] */
	uint32_t records; /* written with the key in use */
};

/* Where of all bytes of the connection the next one to go is, and the end of those that wait. */
static inline uint64_t tls_out_pos(const struct tls *tls)
{
	return tls->out_at + tls->out_begin;
}

static inline uint64_t tls_out_tail(const struct tls *tls)
{
	return tls->out_at + tls->out_end;
}

/* -ENOKEY: nothing is loaded that this side may use. */
int tls_new(bool server, struct tls **ret_tls) __must_check;
void tls_free(struct tls *tls);

/* 1: done; 0: more must come in first; -EKEYREVOKED: the server did not show the right certificate; -EPFNOSUPPORT: nor did that one,
 * and an alert says that it speaks another version of frames; -EPROTO, -ENOMEM. Leaves bytes in `out`, also when it fails. */
int tls_handshake(struct tls *tls) __must_check;
/* Up to n bytes of what came in; 0: more must come in first; -ECONNRESET: the peer ended it; -EPROTO. */
ssize_t tls_read(struct tls *tls, void *data, size_t n) __must_check;
/* Bytes that tls_read() gives without more coming in? */
bool tls_pending(const struct tls *tls);
/* Bytes that came in behind the last record read. */
size_t tls_take_raw(struct tls *tls, void *data, size_t n);
/* All n bytes, as records of up to 16 KiB, into `out`. -ENOMEM, -EPROTO. */
int tls_write(struct tls *tls, const void *data, size_t n) __must_check;

/* Where to receive; NULL without memory. Then say how many came. */
uint8_t *tls_space(struct tls *tls, size_t *ret_size);
void tls_received(struct tls *tls, size_t n);
/* Gives memory back that is not in use. */
void tls_trim(struct tls *tls);
/* n bytes of `out` are on the wire. */
void tls_sent(struct tls *tls, size_t n);
