/*
 * Messages between daemons: transports behind one table of operations, a server, and a client with
 * deadlines.
 *
 * Addresses: "unix:/path" and "tcp:host:port" (with keys only). A
 * message is a frame (proto/frame.h), a payload, and on unix sockets at most one file descriptor.
 *
 * Threads: a server or a client lives on one loop (base/loop.h); its callbacks run there and must
 * not block. rpc_call(), rpc_cancel() and rpc_reply() may be called from any thread.
 */
#pragma once

#include <stdbool.h>
#include <sys/types.h>
#include "base/err.h"
#include "base/loop.h"
#include "proto/frame.h"
#include "proto/hello.h"

/* ---- payloads -------------------------------------------------------------------------------- */

#define NET_PARTS 4

/* Bytes to send without copying: parts in order, then release(arg) exactly once when they were sent
 * or given up. */
struct net_payload {
	struct {
		const void *data;
		size_t len;
	} parts[NET_PARTS];
	unsigned int n;
	void (*release)(void *arg); /* may be NULL; runs on the loop */
	void *arg;
	int fd; /* <= 0: none. Passed along (unix sockets) and closed afterwards (everywhere) */
	/* <= 0: none. The end to read from of a pipe that has the bytes of the first part, whose `data` is NULL:
	 * pages of a file, say, which go out without a copy. Only in answers to requests with pipe_ok; release()
	 * has it back, with what was not sent. */
	int pipe;
};
/* A zeroed payload is none too. */
#define NET_PAYLOAD_NONE ((struct net_payload){ .fd = -1 })

/* ---- server ---------------------------------------------------------------------------------- */

struct rpc_server;
struct rpc_conn;

/* One request being served. The handler owns it until rpc_reply(), which must be called exactly
 * once for each, also after its connection went away. */
struct rpc_request {
	struct list link; /* the handler's, e.g. to park it on what it waits for */
	struct frame frame;
	uint64_t
		deadline_ns; /* the asker waits until then (clock_mono_ns(), by its time left); 0: no limit */
	struct rpc_conn *conn;  /* referenced by the request */
	void *payload;          /* malloc'ed, freed with the request; NULL when empty */
	bool pipe_ok;           /* the bytes of its answer may be in a pipe (net_payload) */
	int fd;                 /* -1, or the request's descriptor, closed with it */
	_Atomic bool cancelled; /* the peer cancelled or went away: the answer is not needed */
	void *priv;             /* the handler's */
};

struct rpc_server_ops {
	/* Everything but FRAME_PING and FRAME_LANE, which the server answers. */
	void (*on_request)(struct rpc_request *request, void *arg);
	/* The request's peer cancelled it, or is gone: once at most, on the loop. Optional. The
	 * reply is still due, and may be given from inside on_cancel. `request` stays valid
	 * throughout on_cancel, even when another thread calls rpc_reply() meanwhile; on_cancel
	 * does not begin once rpc_reply() was entered. What hangs on request->priv is the
	 * handler's: it detaches it under its own lock before it replies. */
	void (*on_cancel)(struct rpc_request *request, void *arg);
	/* A connection is gone, after its requests were cancelled; once, on the loop. No request
	 * comes from it any more; those in flight still refer to it. Optional. */
	void (*on_close)(const struct rpc_conn *conn, void *arg);
	/* Who this master is, for its greeting; on the loop. Optional: it is none. */
	struct hello_master (*identify)(void *arg);
};

/* Listens (a stale unix socket file is replaced, a live one is -EADDRINUSE; mode 0600; a tcp
 * address is -ENOKEY with its line, without keys). Bounded by LIMIT_CONNS and LIMIT_CONN_REQUESTS. */
int rpc_server_new(struct loop *loop, const char *address, const struct rpc_server_ops *ops,
	void *arg, struct rpc_server **ret_server, struct err *e) __must_check;
/* Where it listens: as given, with the port filled in for "tcp:...:0". */
const char *rpc_server_address(const struct rpc_server *server);
/* Stops listening, closes connections, waits until every request was replied to. Not on the loop's
 * thread. */
void rpc_server_free(struct rpc_server *server);

/* Sends the reply and frees the request, from any thread. A cancelled request's reply goes out as
 * -ECANCELED without payload. status: 0 or negative errno. `reply` supplies flags, offset, length,
 * checksums, generation (the rest is filled in); NULL means all zero. Takes the payload over, also
 * when the peer is gone. */
void rpc_reply(struct rpc_request *request, int status, const struct frame *reply,
	struct net_payload payload);
/* A failed reply with its line of text. */
void rpc_reply_err(struct rpc_request *request, int status, const struct err *e);

/* ---- client ---------------------------------------------------------------------------------- */

struct rpc_client;

/* One call in flight. The caller keeps the struct, zeroed but for what it sets, until on_done,
 * called exactly once on the client's loop. The client does not touch the struct once on_done has
 * begun, so on_done may free it or call again with it. */
struct rpc_call {
	struct list link;   /* the client's */
	struct frame frame; /* op, class, flags, volume, ... of the request; id is filled in */
	struct net_payload payload; /* of the request */
	uint64_t deadline_ns;       /* clock_mono_ns(); 0: none. Waiting for a connection counts */
	uint64_t
		until_ns; /* what is asked for is wanted until then, by another call if not by this: the request says what
			    * is left; 0: as deadline_ns */
	bool resend; /* idempotent: sent again over a new connection until the deadline */
	bool hurry;  /* there are others to ask: ends with -ECONNREFUSED, -ECONNRESET, ... when the
		      * connection is lost, or was, instead of waiting for another; goes before resend */
	void (*on_done)(struct rpc_call *call, int status);
	void *arg;
	/* The answer. From on_done on it is the caller's: taken (TAKE, TAKE_FD), or freed by
	 * rpc_call_release(). On failure reply_payload may be the operator's line,
	 * NUL-terminated. */
	struct frame reply;
	void *reply_payload; /* malloc'ed with a NUL behind it */
	int reply_fd;
	/* the client's, under its lock */
	struct list cancel_link;
	void *priv;
	uint8_t state;
};

/* Frees an answer's payload and closes its descriptor, if they were not taken. May be called
 * twice. */
void rpc_call_release(struct rpc_call *call);

/* May this process connect to the address, as far as it can be known here: 0; -ENOENT: no socket is there; -EACCES: it may
 * not, or the daemon there would refuse it; -ENOKEY: the address needs a key or a token, and this process has none. Any
 * thread; no more than stat(2). */
int rpc_address_access(const char *address) __must_check;

/* Connects when first needed and again, with backoff, whenever the connection is lost. */
int rpc_client_new(struct loop *loop, const char *address, struct rpc_client **ret_client,
	struct err *e) __must_check;
struct fence;
/* From now on only masters that pass the fence (net/fence.h) are asked; calls to another end with
 * -ECONNREFUSED and its line. Before the first call. The fence is borrowed. */
void rpc_client_fence(struct rpc_client *client, struct fence *fence);
/* How long the peer's machine may say nothing, connecting included, before the connection counts as
 * lost; from the next connection on. Any thread. A process that is busy, or stopped, says enough. */
void rpc_client_patience(struct rpc_client *client, uint64_t ns);
/*
 * Of one that readers wait for: while calls wait for a connection, or were ended for want of one in the last 5 s, it
 * is tried again after `pause_ns` at most, of which half is chance, unless it was refused; on_connected (NULL: none) is called
 * on its loop each time that it has come about. Before the first call.
 */
void rpc_client_eager(
	struct rpc_client *client, uint64_t pause_ns, void (*on_connected)(void *arg), void *arg);
/* Ends every call with -ECANCELED, then closes. Not on the loop's thread. */
void rpc_client_free(struct rpc_client *client);

/* Never fails directly: on_done always follows, never from inside rpc_call. Takes the payload over:
 * its release() is called when the call has ended and no byte of it is needed any more, which may
 * be after on_done. on_done's status: the peer's, or -ETIMEDOUT, -ECANCELED, -ECONNRESET (lost
 * after it was sent, without `resend`), -EMSGSIZE (beyond the frame's limits), -EPROTONOSUPPORT
 * (the peer, which has proved itself, speaks another version), -ECONNREFUSED (it is not the master that was met, has
 * not proved itself, or refused our key or token, with its line), -EMFILE (no room for the answer's descriptor), -ENOMEM. */
void rpc_call(struct rpc_client *client, struct rpc_call *call);
/* Asks for the call's early end: on_done follows soon with -ECANCELED unless another end came
 * first; the peer receives a cancel, its late answer is dropped. Any thread. The caller keeps the struct alive
 * across the call, e.g. by a lock that its on_done takes too; when the call has just ended nothing
 * happens. */
void rpc_cancel(struct rpc_client *client, struct rpc_call *call);

/* Blocking convenience for set-up paths: sends and waits; status as on_done's. `e` gets the peer's
 * line. Not on a loop. The call's reply fields are the caller's to free. */
int rpc_call_wait(struct rpc_client *client, struct rpc_call *call, struct err *e) __must_check;

/* True while connected. Any thread. */
bool rpc_client_connected(const struct rpc_client *client);
/* Bytes that came by its connection; of another one they count from 0. On its loop. */
uint64_t rpc_client_received(const struct rpc_client *client);
/* No call of it is in flight. On its loop. */
bool rpc_client_idle(struct rpc_client *client);
/* Why the last connection ended, or did not come about: a line; "": nothing is known. Borrowed, on its loop. */
const char *rpc_client_trouble(const struct rpc_client *client);
