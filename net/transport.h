/*
 * A transport: how whole messages reach a peer. One table of operations, several implementations:
 * unix (descriptors are passed), tcp, fake (in-process, for tests).
 *
 *	conn.c ── send(message) ──►┌───────────┐◄── socket, memory
 *	       ◄─ on_message() ────│ transport │
 *	                           └───────────┘
 *
 * The unit is a message (header, payload, at most one descriptor), not a byte, so that a transport
 * is free in how it moves one:
 * a stream (unix, tcp) writes header and parts behind each other and reads the payload straight
 * into the buffer that on_header() gave it. Bytes can also move next to it (net/lane.h).
 *
 * Threads: everything on the transport's loop, except listen(). Upcalls never come from inside an
 * operation. Inside any upcall every operation is allowed.
 */
#pragma once

#include <stdbool.h>
#include <sys/socket.h>
#include "net/identity.h"
#include "net/net.h"

struct transport;
struct transport_listener;
struct proof_channel;

/* One message on its way out; embedded in what is being sent. The sender's memory until
 * on_sent(). */
struct transport_message {
	struct list link;                  /* the transport's */
	uint8_t header[FRAME_BYTES];       /* encoded; FRAME_FD set when payload->fd goes along */
	const struct net_payload *payload; /* borrowed; NULL: none */
	size_t bytes;                      /* header and payload */
	size_t sent; /* of them, handed to the wire; 0 = the peer cannot have seen any */
	/* The transport's: bytes that go as they are behind an encrypted header, how many went, and the end
	 * of the encrypted ones on the wire. */
	size_t raw;
	size_t raw_sent;
	uint64_t wire_end;
	/* Once for each message sent and not recalled: 0, or the status its connection ended
	 * with. */
	void (*on_sent)(struct transport_message *message, int status);
};

/* What a transport tells its user. */
struct transport_events {
	void (*on_open)(void *arg); /* a connect() succeeded; not for accepted ones */
	/* A frame's header arrived and passed frame_decode(). Returns 0 and a malloc'ed buffer of
	 * payload + 1 bytes (NULL when payload is 0), or a negative errno that ends the connection
	 * before anything was allocated. */
	int (*on_header)(void *arg, const struct frame *frame, void **ret_payload);
	/* The whole message; payload and fd (-1: none) are the user's. FRAME_FD set with fd -1:
	 * this process had no room for the descriptor. */
	void (*on_message)(void *arg, const struct frame *frame, void *payload, int fd);
	/* The last upcall, exactly once, after close() or a failure, and after on_sent() of every
	 * message. The transport frees itself behind it. status: why. */
	void (*on_closed)(void *arg, int status);
};

/* The head of every implementation's struct. */
struct transport {
	const struct transport_ops *ops;
	const struct transport_events *events; /* NULL until start() */
	void *arg;
	uint64_t bytes_in; /* since the start: progress, to detect a stall */
	uint64_t bytes_out;
	bool mid_frame; /* part of a message has come in */
	struct peer_identity
		peer; /* from on_open() or the first message on; before that it is of no principal */
	/* Of TLS: what a client's proof is bound to, valid as `peer` is. NULL: it is no TLS. */
	const struct proof_channel *channel;
};

struct transport_listener {
	const struct transport_ops *ops;
	/* A new connection: the user calls start() or close() on it, now. */
	void (*on_accept)(void *arg, struct transport *transport);
	/* After unlisten(): the last upcall; the listener frees itself behind it. */
	void (*on_closed)(void *arg);
	void *arg;
	char address[160]; /* whole, with the scheme */
};

struct transport_ops {
	const char *scheme; /* "unix" */
	bool passes_fd;

	/* Is `where` (the address behind "scheme:") one to connect to? 0, or -EINVAL, -ENOKEY,
	 * -ENAMETOOLONG with a line. */
	int (*check)(const char *where, struct err *e);
	/* May this process connect? As rpc_address_access(). Optional: it always may. */
	int (*access)(const char *where);
	/* Any thread but the loop's. `user` gives on_accept, on_closed and arg; they may be called
	 * before listen() returns. */
	int (*listen)(struct loop *loop, const char *where, const struct transport_listener *user,
		struct transport_listener **ret_listener, struct err *e);
	void (*unlisten)(struct transport_listener *listener);
	/* Starts to connect; on_open() or on_closed() follows. Fails at once when there is none
	 * (-ENOENT, -ECONNREFUSED). */
	int (*connect)(struct loop *loop, const char *where, const struct transport_events *events,
		void *arg, struct transport **ret_transport, struct err *e);
	/* Gives an accepted connection its user. */
	void (*start)(
		struct transport *transport, const struct transport_events *events, void *arg);
	/* Queues a message behind those sent before; order is kept. Never fails; after a failure
	 * on_sent() says so. The user bounds the queue. */
	void (*send)(struct transport *transport, struct transport_message *message);
	/* May a payload's first part be in a pipe (net_payload.pipe)? Of an answer with bytes of a volume, from its
	 * first message on. Optional: no, as bytes that are encrypted, or written by a device, are in memory. */
	bool (*takes_pipe)(struct transport *transport);
	/* Addresses of both ends, when bytes of volumes may move next to the connection, by a lane; -EOPNOTSUPP: they may
	 * not, as they are to be encrypted. Optional: no. */
	int (*addresses)(struct transport *transport, struct sockaddr_storage *ret_local,
		struct sockaddr_storage *ret_remote);
	/* Takes back a message of which nothing is on the wire: true, and no on_sent(). */
	bool (*recall)(struct transport *transport, struct transport_message *message);
	/* Stops messages, or lets them come again. The one being delivered is the last. */
	void (*pause)(struct transport *transport, bool paused);
	/* Soon bytes_in says what has come in of a message by now, however little. Optional: it always does. */
	void (*look)(struct transport *transport);
	/* From now on, soon after start() or connect(): a peer whose machine says nothing for `ms`,
	 * busy or not, is gone, and so is the connection. Optional: it would always be heard of. */
	void (*patience)(struct transport *transport, uint32_t ms);
	/* Ends the connection with `status` for those who wait; what is not sent is not.
	 * on_closed() follows. May be repeated. */
	void (*close)(struct transport *transport, int status);
};

extern const struct transport_ops transport_unix;
extern const struct transport_ops transport_tcp;
extern const struct transport_ops transport_fake;

/* The transport of an address "scheme:where" and where `where` begins; -EINVAL with its line. */
int transport_find(const char *address, const struct transport_ops **ret_ops,
	const char **ret_where, struct err *e) __must_check;

/* What debug programs put in the place of a transport; NULL in production. Set before the first
 * connection. */
extern const struct transport_ops *(*net_debug_wrap)(const struct transport_ops *ops);

/* Calls release() and closes the descriptor; the payload is NET_PAYLOAD_NONE afterwards. */
void net_payload_release(struct net_payload *payload);
/* Bytes of all parts. */
size_t net_payload_bytes(const struct net_payload *payload);
