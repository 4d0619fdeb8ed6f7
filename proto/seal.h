/*
 * Sealed extents on the wire: FRAME_SEAL, mount -> worker of its node. Bytes <-> structs.
 *
 *	request	volume, lineage, generation; `extent`: bytes of an extent; `offset`: the first
 *		extent's number; `length`: how many, SEAL_PAGE at most; payload: SealAsk
 *	reply	payload: SealStates, one status for each, as runs of equal ones; after an ask with
 *		`take` (of one) that is sealed, the extent's descriptor comes along
 *
 * Pure functions; threads: any.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/check.h"
#include "base/clock.h"

#define SEAL_PAGE         4096u /* extents of one request */
#define SEAL_HELD_BYTES   (SEAL_PAGE / 8)
#define SEAL_ASK_BYTES    (SEAL_HELD_BYTES + 32) /* packed, at most */
#define SEAL_RUN_BYTES    24u                    /* the same, of a run of equal states */
#define SEAL_STATES_BYTES (SEAL_PAGE * SEAL_RUN_BYTES + 32)

/* What was said to be held stays so without another word, also of a connection that is gone: its
 * process may come back as another one. */
#define SEAL_HELD_NS (30 * CLOCK_SECOND)

/*
 *	UNKNOWN ─► ABSENT ─► INCOMPLETE ──all there, and quiet──► VERIFYING ──► SEALED
 *	             ▲           ▲                                    │           │
 *	             └───────────┴──a finding, bytes gone, another file───────────┘
 *
 * UNKNOWN: it was not checked yet. REFUSED: it cannot be sealed at present; `why`.
 */
enum seal_state {
	SEAL_UNKNOWN,
	SEAL_ABSENT,     /* nothing of it is here */
	SEAL_INCOMPLETE, /* `missing` bytes are not in the extent's file, or it waits: `why` */
	SEAL_VERIFYING,  /* `percent` of its bytes were verified */
	SEAL_SEALED,
	SEAL_REFUSED,
	SEAL_STATES
};

enum seal_why {
	SEAL_WHY_NONE,
	SEAL_WHY_FINDING,  /* a piece was damaged; it is repaired and verified again */
	SEAL_WHY_MOVING,   /* its chunks are on their way into the extent */
	SEAL_WHY_QUIET,    /* complete a moment ago */
	SEAL_WHY_NOT_HELD, /* this worker is not to hold all of the volume, or it does not fit */
	SEAL_WHY_SIZE,     /* the worker's extents have another size than the mount's */
	SEAL_WHY_TIER,     /* its disk does not serve */
	SEAL_WHY_TABLE,    /* the worker does not know that generation */
	SEAL_WHY_OFF,      /* this worker seals nothing */
	SEAL_WHY_MEMORY,   /* its tier is tmpfs, of which the kernel makes no devices */
	SEAL_WHYS
};

struct seal_status {
	enum seal_state state;
	enum seal_why why;
	uint8_t percent;   /* of SEAL_VERIFYING */
	uint32_t findings; /* how often it was found damaged since the worker's start */
	uint64_t missing;  /* bytes of objects; also of SEAL_REFUSED, as far as it is known */
};

struct seal_ask {
	bool take;
	uint64_t end;                  /* of what the mount shows; UINT64_MAX: not known */
	uint8_t held[SEAL_HELD_BYTES]; /* bits */
};

/* Packs an ask about n extents; returns the length. */
size_t seal_ask_pack(const struct seal_ask *ask, uint32_t n, uint8_t out[SEAL_ASK_BYTES]);
/* -EBADMSG: does not decode, or more bits than extents. */
int seal_ask_unpack(
	const void *data, size_t len, uint32_t n, struct seal_ask *ret_ask) __must_check;

/* Packs n <= SEAL_PAGE states; malloc'ed, or NULL. */
uint8_t *seal_states_pack(
	uint64_t epoch, const struct seal_status *states, uint32_t n, size_t *ret_len);
/* -EBADMSG: does not decode, is not of n states, or a number is none of ours. */
int seal_states_unpack(const void *data, size_t len, uint32_t n, uint64_t *ret_epoch,
	struct seal_status *ret_states) __must_check;

/* For people; of any value. */
const char *seal_state_name(enum seal_state state);
const char *seal_why_text(enum seal_why why); /* "" for none */
