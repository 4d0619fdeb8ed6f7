/*
 * The greeting that each side of a connection sends first, bytes <-> struct. No memory is kept.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/check.h"

#define HELLO_PROCESS_MAX   32
#define HELLO_CLUSTER_BYTES 16
#define HELLO_NONCE_BYTES   16
#define HELLO_PROOF_BYTES   32
#define HELLO_IDENTITY_MAX  1408

/* Packed size is bounded by this. */
#define HELLO_BYTES_MAX 1600u

/* Which cluster a master is of, and which of its runs: a later one has a higher epoch. */
struct hello_master {
	uint8_t cluster[HELLO_CLUSTER_BYTES];
	uint64_t epoch; /* 0: it is no master, or one from before there was this */
};

struct hello {
	char process[HELLO_PROCESS_MAX]; /* "cacheworker"; printable, cut to fit */
	uint32_t version;                /* of the frames spoken: FRAME_VERSION */
	uint32_t pid;
	struct hello_master master;
	bool has_nonce;
	bool has_proof;
	bool refused; /* the peer's identity; nothing else follows */
	uint8_t nonce[HELLO_NONCE_BYTES];
	uint8_t proof[HELLO_PROOF_BYTES];
	uint16_t identity_len; /* 0: none */
	uint8_t identity[HELLO_IDENTITY_MAX];
};

/* Packs into `out`; returns the length. */
size_t hello_pack(const struct hello *hello, uint8_t out[HELLO_BYTES_MAX]);

/* -EBADMSG when it does not decode (or memory is short). Characters that do not print become
 * '?'. */
int hello_unpack(const void *data, size_t len, struct hello *ret_hello) __must_check;
