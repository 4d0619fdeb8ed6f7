/* What the files of a session share: session.c (threads, and disks that hold them), session_ops.c (requests) and
 * session_answer.c (answers, and READs that wait). */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include "fuse/protocol/lowlevel.h"
#include "fuse/session/session.h"

#define SESSION_THREADS_MAX 16u
#define SESSION_MINOR_LEAST \
	31u /* of the FUSE protocol: max_pages, and the fields of INIT that are used */

/*
 * A READ that waits for the network, in the slot of the same number. Three parties touch it, each
 * until it gave its reference back; the last one frees the slot:
 *
 *	the reader	until on_done
 *	the answer	until the request was answered: by on_done, or by who gave up on it
 *	the submitter	until read() returned
 *
 * A range of one block more than a reader takes (1 MiB from an offset inside a block) is parked
 * twice: for its last block, which then waits in the slot behind the request, and for the rest.
 */
enum parked_part { PARKED_WHOLE, PARKED_LAST_BLOCK, PARKED_REST };

struct parked {
	struct client_read read;
	struct session *session;
	fuse_req_t req; /* until it is answered */
	uint32_t slot;
	enum parked_part part;
	bool goes_on;   /* LAST_BLOCK: REST has the slot now, and a reference is held on it */
	uint64_t place; /* of the read; its offset is the reader's */
	uint32_t skip;  /* the answer is `size` bytes from here on */
	uint32_t size;
	_Atomic uint32_t refs;
	_Atomic uint32_t flags; /* PARKED_* */
};

#define SESSION_NO_SLOT UINT32_MAX

struct worker {
	struct session *session;
	pthread_t thread;
	uint32_t slot;          /* of the request that the library has now; SESSION_NO_SLOT: none */
	uint32_t tries;         /* how often that may find no memory */
	bool again;             /* the library had none: it gets the request once more */
	char *buf;              /* BUF_BYTES, aligned for direct I/O */
	bool buf_used;          /* since its memory was given back; its own */
	void *scratch;          /* the tree's */
	pthread_mutex_t lock;   /* of the four below; a leaf */
	uint64_t reading_since; /* it reads from the disk since, monotonic ns; 0: it does not */
	uint32_t reading_slot;
	fuse_req_t reading_req;
	struct tree_range reading;
	uint64_t read_ns;   /* what its last read took; its own */
	bool taken;         /* it takes too long: the request is not its own any more */
	int wait_fd;        /* epoll */
	bool waits_for_dev; /* the device is among what it waits for */
};

/* What the last sweep saw in a slot. */
struct swept {
	uint64_t unique; /* of a READ that waited; 0: none */
	bool dies;       /* who waits for it was killed */
};

struct session {
	uint32_t magic;
	struct session_config config;
	struct lowlevel lowlevel;
	/* INIT's: */
	uint32_t kernel_minor; /* of the protocol that the kernel speaks */
	uint32_t wanted;       /* FUSE_CAP_* */
	bool agreed;           /* it was answered without an error */
	struct session_counters *counters;
	struct session_histograms histograms;
	struct parked *parked;     /* two per slot: WHOLE or REST, and LAST_BLOCK */
	_Atomic uint8_t *part;     /* per slot: enum parked_part of what it is HELD for */
	struct swept *swept;       /* per slot; the sweeper's */
	_Atomic uint64_t sweep_ns; /* when the next sweep is due; UINT64_MAX: a thread is at it */
	struct worker workers[SESSION_THREADS_MAX];
	char *buffers; /* of the first n_buffers threads, in a row; further ones have their own */
	unsigned int n_buffers;
	_Atomic unsigned int started;
	pthread_mutex_t
		left_lock; /* of the next, and who takes what was left; a leaf but for the slots' */
	struct worker *left_by;   /* who works on something that a predecessor left; NULL: nobody */
	pthread_cond_t left_done; /* left_by is NULL again */
	uint64_t turned; /* session_turns(): requests that were taken when it was called last */
	pthread_t watch; /* of disks that hang */
	bool watched;
	uint64_t stall_ns;
	int stop_fd; /* eventfd: readable once the threads are to end */
	_Atomic bool stopping;
	_Atomic bool refusing;
	_Atomic bool handing; /* a successor takes what waits */
	_Atomic bool gone;
	_Atomic uint32_t
		missing; /* part of the files that is not cached, of SESSION_CACHED_WHOLE */
	_Atomic uint64_t inherited; /* nodes that the kernel knew before this session */
	_Atomic uint32_t n_parked;  /* parked reads whose on_done has not run */
};

/* What the library calls, on a thread of the session or one that answers a READ. */
extern const struct fuse_lowlevel_ops session_ops;
/* The worker that this thread is; NULL: it is none. */
extern _Thread_local struct worker *session_worker;
/* Handles the request in a slot that the worker alone has (READING), which is not its any more. */
void session_handle(struct worker *w, uint32_t slot, uint32_t len);

/* struct lowlevel.send: a reply for the kernel. */
void session_send(struct lowlevel *l, struct iovec *iov, int n);
/* Answers a request that the library did not get: a negative errno. */
void session_answer_errno(struct session *s, uint64_t unique, int status);
/* The same, of one in a slot that this thread alone has (READING), and frees the slot. */
void session_refuse_slot(struct session *s, uint32_t slot, uint64_t unique, int status);

/* Waits for the bytes of a READ in its slot (READING), which is not the caller's any more. */
void session_park(struct session *s, uint32_t slot, fuse_req_t req, const struct tree_range *range);
/*
 * Answers a parked request with `status` at once and cancels its read. False: it is not parked (any
 * more). `ticket` says which request is meant, should the slot be given to another meanwhile.
 */
bool session_give_up(struct session *s, uint32_t slot, uint32_t ticket, int status);
void session_give_up_all(struct session *s);

#define SWEEP_MS 200 /* a reader that was killed is to be gone within a second */

/*
 * Gives up, when it is due, what killed readers still wait for. The kernel interrupts only some
 * waits (not that of O_DIRECT), only once, and by any signal.
 */
void session_sweep(struct session *s);
