/*
 * A lane: bytes of answers by RDMA, next to the TLS connection that has everything else. One direction: the end that asks has memory
 * that is written into (its queue pair is in protection domain LAND, can be written to and can do nothing), the end that answers
 * writes (in SERVE, without rights for the other end). One table of operations, two implementations: verbs (libibverbs) and fake
 * (in this process, for tests).
 *
 *	asker				answerer
 *	open		─── OPEN: own end ───►
 *					open, with the asker's end; on_open
 *	connect		◄── OPENED: its end ──
 *	on_connected	─── then by TLS ─────►	write of 0 bytes with LANE_PROBE
 *	on_immediate(LANE_PROBE): the lane is proved
 *
 * What goes by TLS is the user's. Each answer is one write, which ends with its cookie (net/lane_table.h) as immediate.
 *
 * The fence is close() of the asker's lane, whose queue pair is destroyed: until on_closed() the other end may write into the
 * destinations, whatever else was said or failed. Only then they are reused, and their requests repeated.
 *
 * Threads: of a lane, the loop that it was opened on; upcalls never come from inside an operation. Of memory: any but a loop.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include "base/list.h"
#include "base/loop.h"

#define LANE_PROBE 0xffffffffu /* the cookie of no destination */
#define LANE_PARTS 4           /* of one write */
#define LANE_WRITES_MAX \
	256u /* in flight on one lane, and receives of the other end; one more is for the probe */
#define LANE_MEMORIES_MAX 32u
#define LANE_GID_BYTES    16u
#define LANE_DEVICES_MAX  4u

/* X(name, text): why a lane is not open. */
#define LANE_CAUSES(X)                                                      \
	X(DEVICE, "no RDMA device")                                         \
	X(ADDRESS, "no RDMA device has the address of the connection")      \
	X(LIMITS, "the limits of the RDMA device are reached")              \
	X(MEMORY, "memory cannot be registered")                            \
	X(REFUSED, "the queue pair was refused")                            \
	X(PROBE, "the first write did not arrive")                          \
	X(WRITE, "a write failed")                                          \
	X(ACCESS, "the other end refused a write")                          \
	X(RECEIVER, "the other end had no receive for a write")             \
	X(RECEIVE, "a receive failed")                                      \
	X(REMOVED, "the RDMA device was removed")                           \
	X(PORT, "the port of the RDMA device is down, or lost its address") \
	X(PROTOCOL, "the other end broke the protocol")                     \
	X(QUARANTINE, "too much memory waits for late writes")              \
	X(PEER, "the other end broke the lane")                             \
	X(CONNECTION, "the connection ended")

enum lane_cause {
	LANE_WELL,
#define LANE_CAUSE_ENUM(name, text) LANE_##name##_CAUSE,
	LANE_CAUSES(LANE_CAUSE_ENUM)
#undef LANE_CAUSE_ENUM
		LANE_N_CAUSES,
};

const char *lane_cause_name(enum lane_cause cause); /* "DEVICE" */
const char *lane_cause_text(enum lane_cause cause);

enum lane_side {
	LANE_ASKER,
	LANE_ANSWERER,
};

/* What each end must know of the other. */
struct lane_end {
	uint8_t gid[LANE_GID_BYTES];
	uint32_t qpn;
	uint32_t psn; /* by chance: 24 bits */
	uint8_t mtu;  /* enum ibv_mtu: 1 = 256 bytes to 5 = 4096 */
};

/* Can a queue pair be connected to it? What a peer sent may be anything. */
bool lane_end_valid(const struct lane_end *end);

struct lane;

struct lane_events {
	/* The queue pair is there, or is not (cause; close() is still due). `own` is borrowed. */
	void (*on_open)(void *arg, enum lane_cause cause, const struct lane_end *own);
	/* The asker's: writes can arrive. */
	void (*on_connected)(void *arg);
	/* The asker's: a write ended with this immediate, which is whatever the other end sent. */
	void (*on_immediate)(void *arg, uint32_t cookie);
	/* The answerer's, once for each write() that returned 0, before on_closed(): its memory is the user's again. */
	void (*on_written)(void *arg, void *context, bool well);
	/* Once at most: the lane can no longer be used; close() it. The asker's destinations are not safe yet. */
	void (*on_broken)(void *arg, enum lane_cause cause);
	/* The last upcall, after close(): the queue pair is destroyed, nothing is written any more. The lane is freed behind it. */
	void (*on_closed)(void *arg);
};

struct lane_options {
	enum lane_side side;
	struct sockaddr_storage local;  /* of the connection's socket: the device and its GID */
	struct sockaddr_storage remote; /* likewise: the only GID that the peer's end may have */
	struct lane_end peer;           /* at the answerer */
	unsigned int writes;            /* in flight at most, 1..LANE_WRITES_MAX */
	const struct lane_events *events;
	void *arg;
};

/* Bytes for one destination. The parts are in memory that was added for LANE_SERVE, and stay as they are until on_written(). */
struct lane_write {
	struct {
		const void *data;
		size_t bytes;
	} parts[LANE_PARTS];
	unsigned int n; /* 0: the immediate alone */
	uint64_t address;
	uint32_t key;
	uint32_t cookie;
	void *context;
};

/* The domains of memory. */
#define LANE_LAND  1u /* may be written into by other ends: it has destinations and nothing else */
#define LANE_SERVE 2u /* has bytes that are written to other ends */

/* Memory that lanes use: a slab, embedded in its owner. Mapped readable and writable, its pages there. */
struct lane_memory {
	struct list link; /* the implementation's, as all but the next three */
	void *base;
	size_t bytes;
	unsigned int domains;
	struct {
		void *handle;
		uint32_t key;
	} land[LANE_DEVICES_MAX], serve[LANE_DEVICES_MAX];
};

/* The head of every implementation's struct. */
struct lane {
	const struct lane_ops *ops;
	const struct lane_events *events;
	void *arg;
};

struct lane_ops {
	const char *name;
	/* on_open() follows. NULL: no memory. */
	struct lane *(*open)(struct loop *loop, const struct lane_options *options);
	/* The asker's, once, after on_open(); on_connected() or on_broken() follows. */
	void (*connect)(struct lane *lane, const struct lane_end *peer);
	/* The answerer's, after on_open(). 0; -EAGAIN: as many are in flight as may be; -EFAULT: a part is not in memory that was
	 * added; -ENOTCONN: the lane is broken. Of others than 0 nothing is written, and no on_written() follows. */
	int (*write)(struct lane *lane, const struct lane_write *write);
	/* The key of bytes in memory that was added for LANE_LAND, for the other end; -EFAULT: they are not. */
	int (*key)(struct lane *lane, const void *data, size_t bytes, uint32_t *ret_key);
	/* on_closed() follows. Once. */
	void (*close)(struct lane *lane);
	/* 0; -ENOSPC: LANE_MEMORIES_MAX are there. Memory that the device refuses is not an error here: lanes that are to use it
	 * are not opened. Blocks. */
	int (*add)(struct lane_memory *memory);
	/* Blocks until no device reads or writes it. */
	void (*remove)(struct lane_memory *memory);
};

extern const struct lane_ops lane_fake;
