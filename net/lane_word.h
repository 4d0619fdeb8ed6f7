/*
 * What the ends of a lane say to each other by TLS. A client asks, in FRAME_LANE; the server answers with the same structure in an OPEN's
 * reply, and with nothing else in the others'.
 *
 * Little-endian, 32 bytes:
 *
 *	 0  word u8    1  lane u8    2  mtu u8    3  cause u8
 *	 4  queue pair u32           8  packet number u32         12  writes u32
 *	16  GID, 16 bytes
 *
 * A request for bytes that names a lane has its destination as payload, 24 bytes:
 *
 *	 0  address u64    8  key u32    12  bytes u32    16  cookie u32    20  zero u32
 */
#pragma once

#include "net/lane_asker.h"

#define LANE_WORD_BYTES        32u
#define LANE_DESTINATION_BYTES 24u

enum lane_word_kind {
	LANE_WORD_OPEN =
		1,       /* here is our end; writes: how many destinations there will be at most */
	LANE_WORD_PROVE, /* our end is connected: write to it */
	LANE_WORD_CLOSE, /* the lane ends; cause: 0, it is not needed */
};

struct lane_word {
	uint8_t kind;
	uint8_t lane;
	uint8_t cause;
	uint32_t writes;
	struct lane_end end;
};

void lane_word_pack(const struct lane_word *word, uint8_t out[LANE_WORD_BYTES]);
/* -EBADMSG: of another length, of another kind, or with an end that cannot be one in an OPEN. */
int lane_word_unpack(const uint8_t *in, size_t len, struct lane_word *ret_word) __must_check;

void lane_destination_pack(const struct lane_destination *d, uint8_t out[LANE_DESTINATION_BYTES]);
/* -EBADMSG: of another length, or of more bytes than an answer has. Not `lane`. */
int lane_destination_unpack(
	const uint8_t *in, size_t len, struct lane_destination *ret_d) __must_check;
