/*
 * What one token may use of this process at a time, in all hands: connections, requests in flight, leases, listings
 * of origins and bytes. So the holder of one token keeps no other caller out, and runs up no bill.
 *
 * A token is known by its serial, which its signature covers. An allowance lives while somebody has a reference, and after
 * that until another token needs its place: the one that was used least recently goes first. There are ALLOWANCES_MAX.
 * Peers without a token have none, which is NULL here, and no bounds.
 *
 * Threads: any. Counts are atomic; finding an allowance, and its rates, take one short lock, a leaf.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include "base/check.h"
#include "net/identity.h"

#define ALLOWANCES_MAX 4096u

enum allowance_kind {
	ALLOWANCE_CONNECTIONS,
	ALLOWANCE_REQUESTS,
	ALLOWANCE_LEASES,
	ALLOWANCE_KINDS,
};

struct allowance;

/* That of the peer's token, with a reference; NULL with 0: it has no token. -EMFILE: ALLOWANCES_MAX are in use. -ENOMEM. */
int allowance_get(const struct peer_identity *peer, struct allowance **ret_allowance) __must_check;
struct allowance *allowance_ref(struct allowance *a);
void allowance_unref(struct allowance *a);

/* That of the connection's peer, borrowed from it. */
struct rpc_conn;
struct allowance *rpc_conn_allowance(const struct rpc_conn *conn);

/* One more; false: it has `most` already. */
bool allowance_take(struct allowance *a, enum allowance_kind kind, uint32_t most) __must_check;
/* One more in any case: the owner compares allowance_used() before it takes the next. */
void allowance_add(struct allowance *a, enum allowance_kind kind);
void allowance_give(struct allowance *a, enum allowance_kind kind);
uint32_t allowance_used(const struct allowance *a, enum allowance_kind kind);

/* A listing of an origin for its sake: 0, and it is counted; else the ns after which it may be asked for again. */
uint64_t allowance_list(struct allowance *a);

/* Bytes a second of each token, from now on; 0, as at the start: no bound. */
void allowance_set_bandwidth(uint64_t bytes_per_s);
/* So many bytes that it asks for: 0, and they are counted; else the ns after which it may ask again. */
uint64_t allowance_bytes(struct allowance *a, uint64_t bytes);

/* -EAGAIN with the one line that every refusal has. */
int allowance_refuse(uint64_t wait_ns, struct err *e);
