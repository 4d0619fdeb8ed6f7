/*
 * Serves one FUSE connection: reads requests into slots, answers them, from a few threads.
 *
 *	kernel ──read(2)──► slot ──┬─► this node has it: answered by this thread, one writev(2)
 *				   └─► else: parked in its slot, answered when the bytes come
 *
 * What there is to be seen is a tree's (tree.h), the bytes are a reader's (reader.h).
 *
 * A READ is answered whole or with an errno, never short: a short answer would shrink the file
 * under every other reader. Threads never wait for the network, so a range that nobody can read is
 * in nobody's way; they wait for the disk.
 *
 * A session starts on a new connection, or on one that a predecessor left together with its slots
 * (slots.h): then it first answers what is in them.
 */
#pragma once

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>
#include "base/counter.h"
#include "base/histogram.h"
#include "base/err.h"
#include "fuse/session/reader.h"
#include "mount/slots.h"
#include "fuse/tree/tree.h"

#define SESSION_COUNTERS(X)                                                                  \
	X(total, "granary_fuse_requests_total", COUNTER, "requests",                         \
		"Requests of the kernel for which a process may wait: all but FORGETs")      \
	X(lookup, "granary_fuse_lookups_total", COUNTER, "requests", "LOOKUPs")              \
	X(open, "granary_fuse_opens_total", COUNTER, "requests", "OPENs")                    \
	X(read, "granary_fuse_reads_total", COUNTER, "requests", "READs")                    \
	X(read_bytes, "granary_fuse_read_bytes_total", COUNTER, "bytes",                     \
		"Bytes requested by READs")                                                  \
	X(interrupt, "granary_fuse_interrupts_total", COUNTER, "requests", "INTERRUPTs")     \
	X(other, "granary_fuse_other_requests_total", COUNTER, "requests", "Other requests") \
	X(failed, "granary_fuse_failed_reads_total", COUNTER, "requests",                    \
		"READs answered with an error")                                              \
	X(taken_over, "granary_fuse_requests_taken_over_total", COUNTER, "requests",         \
		"Requests recovered from a daemon that died")                                \
	X(crashes, "granary_fuse_crashes_total", COUNTER, "daemons",                         \
		"Daemons of this mount that died")                                           \
	X(readdir, "granary_fuse_readdirs_total", COUNTER, "requests",                       \
		"READDIRs and READDIRPLUSes")                                                \
	X(known, "granary_fuse_known_nodes", GAUGE, "nodes",                                 \
		"Files and directories that the kernel knows")                               \
	X(forget, "granary_fuse_forgets_total", COUNTER, "requests",                         \
		"FORGETs: the kernel needed memory; no process waits for them")              \
	X(stalled, "granary_fuse_stalled_total", COUNTER, "requests",                        \
		"READs that a disk did not answer in time, sent to the worker")

#define SESSION_HISTOGRAMS(X)                                 \
	X(node, "granary_fuse_node_read_seconds", NULL, NULL, \
		"READs that this node's disks had the bytes of")
HISTOGRAM_STRUCT(session_histograms, SESSION_HISTOGRAMS);
const struct histogram_info *session_histogram_table(uint32_t *ret_n);

/* In the slots' memory: counts of the whole mount, over crashes. */
COUNTER_STRUCT(session_counters, SESSION_COUNTERS);
static_assert(
	sizeof(struct session_counters) <= SLOTS_COUNTERS * sizeof(uint64_t), "fits the slots");
const struct counter_info *session_counter_table(uint32_t *ret_n);

struct session;

struct session_config {
	int dev_fd;            /* the connection; borrowed, made non-blocking */
	struct slots *slots;   /* borrowed */
	struct reader *reader; /* borrowed */
	struct tree *tree;     /* borrowed */
	unsigned int threads;  /* 0: 6 */
	uint64_t stall_ns;     /* that a disk may take for a READ; 0: 5 s */
	/* A READ failed, in words of errno; any thread, must not block. May be NULL. */
	void (*on_failure)(void *arg, uint64_t offset, uint32_t length, int status);
	/*
	 * The connection is gone: everything was unmounted, or aborted. Once, on a thread of the
	 * session.
	 */
	void (*on_gone)(void *arg);
	void *arg;
};

/* Starts the threads. */
int session_new(const struct session_config *config, struct session **ret_session,
	struct err *e) __must_check;
/*
 * Stops the threads; what is still parked is answered EIO, cancelled and waited for. NULL is
 * allowed.
 */
void session_free(struct session *session);

/*
 * From now on (until false) READs are answered EIO at once, those parked too: the way to an unmount
 * that cannot hang.
 */
void session_refuse(struct session *session, bool refuse);

/*
 * Takes no more requests from the kernel; what waits stays in its slot for a successor, or is
 * answered, should its bytes come before this process ends: nothing else may follow.
 */
void session_hand_over(struct session *session);

/*
 * Do the threads take requests? To be called about every second, by one thread. False: the kernel has a request for them, they have taken
 * none since the last call, and neither disks nor readers that wait for bytes keep them from it.
 */
bool session_turns(struct session *session);

/* True once the connection is gone. */
bool session_gone(const struct session *session);

#define SESSION_CACHED_WHOLE 65536u
/* The part of the files that is cached, of SESSION_CACHED_WHOLE: what df(1) shows as used. All, before it is known. Any thread. */
void session_set_cached(struct session *session, uint32_t part);
const struct session_histograms *session_histograms(const struct session *session);
const struct session_counters *session_counters(const struct session *session);
