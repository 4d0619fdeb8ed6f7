/*
 * The kernel's side of a FUSE connection, which is a socket pair here, and the session on the other.
 */
#pragma once

#include "tests/unit/fuse/synthetic.h"
#include "tests/unit/fuse/unaligned_tree.h"
#include "base/limits.h"
#include "mount/request.h"
#include "fuse/session/session.h"

#define EXTENTS 3u
#define SLOTS   32u

#define ANSWER_BYTES (sizeof(struct fuse_out_header) + LIMIT_PAYLOAD_BYTES)

struct fake {
	int kernel; /* our end */
	int dev;    /* the session's */
	int memory;
	struct slots *slots;
	struct tree *tree;
	bool own_tree; /* not the extents */
	bool greets;   /* the test sends INIT first */
	struct synthetic reader;
	struct session *session;
	_Atomic uint32_t gone;
	_Atomic uint32_t failures;
	_Atomic int last_failure;
};

extern uint64_t stall_ns; /* of the next session; 0: as it is */
extern uint32_t asker;    /* process that waits for what is asked; 0: not known */
extern struct synthetic_control *control;
extern unsigned char answer_bytes[ANSWER_BYTES];

/* A session on a connection; it takes over what is in the slots. */
void serve(struct fake *f);
/* A new connection and slots, without a session. */
void connect_pair(struct fake *f);
/* A connection whose INIT was answered, and a session on it that shows extents ... */
void begin(struct fake *f);
/* ... or unaligned_tree. */
void begin_unaligned(struct fake *f);
void end(struct fake *f);
/* Sends a request. */
void ask(struct fake *f, uint64_t unique, uint32_t opcode, uint64_t node, const void *body,
	size_t len);
void ask_read(struct fake *f, uint64_t unique, uint64_t offset, uint32_t size);
/* The next answer within `ms`; 0: none. Its body is in answer_bytes after the header. */
uint64_t hear_for(struct fake *f, int ms, int *ret_error, size_t *ret_len);
/* The next answer is this one. */
void hear(struct fake *f, uint64_t unique, int error, size_t len);
/* answer_bytes has these of the volume. */
void check_bytes(uint64_t offset, uint32_t size);
/* No answer comes now. */
void hear_nothing(struct fake *f);
/* Requests that wait in their slots. */
uint32_t held(struct fake *f);
