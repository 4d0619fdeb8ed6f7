/*
 * Either end of a connection between two daemons or clients: the greetings, in which a client proves its identity, the bound on
 * queued bytes, and the watch for peers that stall. server.c and client.c build on it.
 *
 *	CONN_OPENING   connecting
 *	CONN_GREETING  open; a client's greeting is queued, as is a server's on a unix socket. Waits for the peer's greeting, and for
 *		       a client's second one when the first has a token on a unix socket. Over TLS the server's greeting follows
 *		       the client's proof
 *	CONN_READY     greeted: messages are exchanged
 *	CONN_CLOSED    on_closed() was called
 *
 * Embedded in its owner, who frees it in or after on_closed(). Threads: the loop's only.
 */
#pragma once

#include "net/transport.h"
#include "proto/hello.h"

#define CONN_GREETING_NS (10 * 1000000000ull) /* a peer must greet within */
#define CONN_STALL_NS    (30 * 1000000000ull) /* a message begun must move on within, either way */
/* Who asked for so many bytes and takes none of them is let go sooner: others could have the memory. */
#define CONN_DETACH_NS    (5 * 1000000000ull)
#define CONN_DETACH_BYTES LIMIT_PAYLOAD_BYTES
/* Between two looks: more of it is a process that was stopped, or a loop that was held up, and not the peer's. */
#define CONN_WATCH_NS (2 * 1000000000ull)

enum conn_state {
	CONN_OPENING,
	CONN_GREETING,
	CONN_READY,
	CONN_CLOSED,
};

struct conn;
struct keyring;

struct conn_ops {
	void (*on_ready)(struct conn *conn);
	/* As transport_events, after the greeting; never for FRAME_HELLO. */
	int (*on_header)(struct conn *conn, const struct frame *frame);
	void (*on_message)(struct conn *conn, const struct frame *frame, void *payload, int fd);
	/* The queue of messages got shorter: conn_congested() may be false again. */
	void (*on_drained)(struct conn *conn);
	void (*on_closed)(struct conn *conn, int status);
};

/* A message of its own memory, until `done`. Set `payload` and `done`, then conn_send(). */
struct conn_message {
	struct transport_message transport;
	struct net_payload payload; /* never released by the connection */
	struct conn *conn;
	void (*done)(struct conn_message *message, int status); /* as transport_message.on_sent */
};

struct conn_peer {
	char process[HELLO_PROCESS_MAX];
	uint32_t pid;
	struct hello_master master;
};

struct conn {
	uint32_t magic;
	enum conn_state state;
	struct transport *transport;
	const struct conn_ops *ops;
	struct conn_peer peer;         /* from its greeting, not proved */
	struct peer_identity identity; /* of the peer, after its greeting */
	struct hello_master self;      /* for our greeting */
	size_t out_bytes;              /* queued, not yet wholly on the wire */
	bool congested;                /* beyond LIMIT_CONN_OUT_BYTES, until half of it */
	bool paused;
	uint64_t began_ns;    /* connecting or accepted */
	uint64_t moved_in_ns; /* conn_watch() last saw bytes move */
	uint64_t moved_out_ns;
	uint64_t watched_ns; /* conn_watch() looked */
	uint64_t seen_in;
	uint64_t seen_out;
	/* The client's proof of its identity (proof.c). */
	uint8_t nonce[HELLO_NONCE_BYTES];
	uint8_t proof[HELLO_PROOF_BYTES]; /* at the server: what the client must send */
	enum peer_kind claimed;           /* the client's kind if it does */
	bool connects;                    /* this end is the client */
	bool proof_follows;               /* on a unix socket: in the client's second greeting */
	struct keyring
		*ring; /* at the client, between its greetings: its token is in the first one */
};

/* Connects; on failure conn is as before. */
int conn_connect(struct conn *conn, struct loop *loop, const struct transport_ops *transport,
	const char *where, const struct conn_ops *ops, struct err *e) __must_check;
/* Takes an accepted connection. `self` is copied. */
void conn_accept(struct conn *conn, struct transport *transport, const struct conn_ops *ops,
	const struct hello_master *self);

/* Queues a frame (id, op, ... set; payload and descriptor are the message's). done() follows, never
 * from inside. After the connection closed: not allowed. */
void conn_send(struct conn *conn, struct conn_message *message, const struct frame *frame);
/* Takes back a message of which nothing was sent: true, and no done(). */
bool conn_recall(struct conn *conn, struct conn_message *message);
void conn_pause(struct conn *conn, bool paused);
void conn_close(struct conn *conn, int status);
/* Closes the connection when its peer stalls; to be called about once a second: of the time since the last look
 * CONN_WATCH_NS count at most. */
void conn_watch(struct conn *conn, uint64_t now_ns);
