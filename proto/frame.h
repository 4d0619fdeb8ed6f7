/*
 * The frame every message between daemons starts with, and the operations.
 *
 * Little-endian, 80 bytes, then `payload` bytes. Control messages carry a protobuf message
 * (proto/granary.proto) as payload; data messages carry bytes. A reply repeats op and id, has
 * FRAME_REPLY set, and carries its outcome in `status`; a failed reply's payload is the line of
 * text for the operator, or empty.
 *
 *	 0  magic u32      4  version u8   5  op u8       6  flags u16
 *	 8  id u64        16  volume 16 bytes
 *	32  lineage u64   40  offset u64
 *	48  length u32    52  payload u32
 *	56  left u32 of a request, status i32 of a reply
 *	60  checksums u16                 62  class u8   63  lane u8
 *	64  generation u64                72  extent u64
 *
 * `left` is the time that the asker still waits, in milliseconds rounded down, counted by the receiver from the arrival of the
 * request (base/deadline.h); 0: no limit. A request with less than a millisecond left is not sent.
 * `lane` is the lane of the connection by which the bytes of the range move, 0: they follow this header. A
 * request names the lane that its destination is for, which is its payload (net/lane_word.h); its reply names it when the bytes were written
 * there, and has the checksums as payload, or is -ENOTCONN when the lane broke: nothing is known of the bytes.
 * `length` is the length of the range asked for or answered; `payload` the bytes that follow this
 * header. For FETCH replies with bytes: payload = range bytes, then `checksums` XXH3 values (u64),
 * one per piece touched (of the whole piece).
 * `extent`, with FRAME_LOCAL: 0 when the descriptor is that of the chunk's own file, else the bytes
 * of the extent whose file it is; where the chunk lies in it follows (locate/extent_format.h). The
 * payload is the presence bitmap of the chunk and the number of the hold (proto/held.h). In
 * FRAME_SEAL it is the size of the extents asked about. In a reply with status -EREMOTE ("ask X") it is
 * the number of the worker to ask instead: with FRAME_MOVED since it serves the chunk, with FRAME_LAST since this
 * one is full, and is to be asked with FRAME_LAST, without either since it took a copy a moment ago. With -ENODATA it is
 * the bytes of the chunk that are there; in a request with FRAME_PEER the asker's own number.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include "base/err.h"
#include "base/layout.h"
#include "base/limits.h"
#include "base/little.h"

#define FRAME_MAGIC   0x314e5247u /* "GRN1" */
#define FRAME_VERSION 3
#define FRAME_BYTES   80u

/* Pieces that 1 MiB can touch: one per block, and one more for a range that starts inside a
 * piece. */
#define FRAME_CHECKSUMS_MAX (LIMIT_PAYLOAD_BYTES / BLOCK_BYTES + 1)
/* What a request for data may carry, and a failed reply's line. */
#define FRAME_SMALL_BYTES 4096u
/* A slot table with the most workers. */
#define FRAME_SLOTS_BYTES (4u << 20)

enum frame_op {
	FRAME_HELLO = 1,       /* first message of each side: control */
	FRAME_OPEN_SOURCE = 2, /* mount -> master: OpenSource -> Generation + table fd */
	FRAME_GET_TABLE = 3, /* worker, mount -> master: volume, lineage, generation -> Generation +
				table fd */
	FRAME_GET_SLOTS = 4, /* SlotsAsk, or nothing -> SlotTable */
	FRAME_REFRESH = 5,   /* cachectl (through the mount) -> master: list the source again */
	FRAME_GET_RETENTION =
		6,         /* worker -> master: retained generations and policies -> Retention */
	FRAME_HOLD = 7,    /* mount -> master: Hold -> empty, or HoldNews when asked for */
	FRAME_PRELOAD = 8, /* worker -> master: PreloadReports -> PreloadJobs, once there is one */
	FRAME_JOIN = 9,    /* worker -> master: Join -> Joined */
	FRAME_BEAT = 10,   /* worker -> master, every Joined.beat_ms: Beat -> BeatAnswer */
	FRAME_TABLE =
		11, /* mount, worker -> master over TCP, where no descriptor goes along: volume,
			      lineage, generation, offset -> up to 1 MiB of the file of the object table
			      from there; `extent` is its size */
	FRAME_ADMIN = 12, /* cachectl -> master: AdminAsk -> AdminAnswer */
	FRAME_FETCH = 16, /* FILL of the design: the owner ends it, from tier, peers or origin */
	FRAME_FETCH_CACHED = 17, /* CACHED_ONLY: never causes another request; -ENODATA */
	FRAME_PREFETCH = 18,     /* fill the range, answer without bytes when accepted */
	FRAME_RECHECK = 19,      /* a reader found a piece damaged: verify, drop, repair */
	FRAME_HELD = 21, /* reader -> worker: descriptors closed and read through -> those to close
			    (proto/held.h) */
	FRAME_SEAL = 22, /* mount -> worker of its node: extents, held ones -> their states, or the
			    descriptor of one (proto/seal.h) */
	FRAME_MAP = 23,  /* reader -> worker of its node, `generation` the start of the map that it
			    has -> the start of the worker's, and its descriptor when another
			    (locate/chunk_map.h) */
	FRAME_FILE = 24, /* reader -> worker of its node: as FETCH with FRAME_LOCAL_OK of a chunk
			    that the map has; -ENODATA: it is there no more */
	/* 25 was the master's word to a worker, which SlotTable.news is now. */
	FRAME_ROOM = 26, /* worker -> worker: is there room for more of the volume? -> `extent` 1,
			    or 0 */
	/* Anybody: is somebody there? -> empty, by the loop of the connection, whatever else is waited for. */
	FRAME_PING = 27,
	/* A worker that is to end it -> one that may have it: as FETCH_CACHED, but never refused for the sake of
	 * others, and -EALREADY: it is on its way from the origin, ask again soon (`extent` not 0: another
	 * worker's origin). With -ENODATA comes which blocks of the chunk are there (as in FRAME_LOCAL), when there
	 * are some and no others on their way. */
	FRAME_SEEK = 28,
	/* A worker -> another one that owns a part of the object: the origin refused the object that covers `offset`,
	 * `extent` times since that generation was listed -> empty. */
	FRAME_REFUSED = 29,
	/* A client, of the lane of its connection (net/lane_word.h): a word -> a word, or empty, by the loop of the connection. */
	FRAME_LANE = 30,
	FRAME_CANCEL = 20, /* the request with this id is wanted no more; has no reply of its own */
};

enum frame_class {
	FRAME_DEMAND,
	FRAME_FILL,
	FRAME_AHEAD,
};

enum frame_flags {
	FRAME_REPLY = 1,
	FRAME_LOCAL = 2,    /* reply: a descriptor of the file that holds the chunk comes along,
			       payload = presence bitmap of the chunk; see `extent` */
	FRAME_LOCAL_OK = 4, /* request: the reader is on this node and takes FRAME_LOCAL answers */
	FRAME_MOVED =
		8, /* reply, bytes or not: by the answerer's table, which is newer or not, it is
			       not who serves this chunk; the asker does well to look for a newer one */
	FRAME_EXACT = 16, /* FETCH, PREFETCH: the reader says what else it will want, so nothing
			       but the range */
	/* FETCH: from a worker, which keeps the chunk as a local copy: it may be named to others that want it.
	 * FETCH_CACHED: from a worker that was sent here. PREFETCH: from one whose slot it was. */
	FRAME_PEER = 32,
	FRAME_LAST = 64, /* FETCH: its receiver ends it, though by his table it is another's:
			    he is the deputy of one that does not answer. Never forwarded, never
			    redirected */
	FRAME_FD = 128,  /* a descriptor comes with this frame's first byte; set and cleared by net/
			   alone */
			 /* 256 to 32768 have no meaning yet, and are ignored. */
};

struct frame {
	uint8_t version;
	uint8_t op;
	uint16_t flags;
	uint64_t id;
	struct volume_id volume;
	uint64_t lineage;
	uint64_t offset;
	uint32_t length;
	uint32_t payload;
	uint32_t left_ms; /* of a request; 0: no limit */
	int32_t status; /* of a reply: 0 or a code of proto/wire_error.c on the wire; a negative errno in memory */
	uint16_t checksums;
	uint8_t class;
	uint8_t lane; /* 0: none */
	uint64_t generation;
	uint64_t extent; /* bytes */
};

/* Its answers carry bytes of a volume, with their checksums. */
static inline bool frame_op_fetches(uint8_t op)
{
	return op == FRAME_FETCH || op == FRAME_FETCH_CACHED || op == FRAME_SEEK;
}

/* Of an encoded header. */
static inline uint16_t frame_flags(const uint8_t header[FRAME_BYTES])
{
	return little_get16(header + 6);
}

void frame_encode(const struct frame *frame, uint8_t out[FRAME_BYTES]);

/*
 * -EBADMSG: not a frame, or one that contradicts itself; -EPROTONOSUPPORT: other version;
 * -EMSGSIZE: payload or length beyond the limits for its op. What passes has offset + length
 * without overflow, checksums * 8 <= payload, a class of enum frame_class, and no lane unless its
 * op fetches. Unknown ops pass as control messages, so that they can be answered.
 */
int frame_decode(const uint8_t in[FRAME_BYTES], struct frame *ret_frame) __must_check;

/* The limits alone, for a frame about to be sent: 0 or -EMSGSIZE. */
int frame_check(const struct frame *frame) __must_check;

/* The wire's own error numbers <-> negative errno; unknown ones become -EIO. Never renumber. */
int32_t wire_error_from_errno(int code);
int wire_error_to_errno(int32_t wire);
