/*
 * What the files of the calling side share; does not leave the folder. client.c has the connection, that it comes back, and
 * the inbox of other threads; exchange.c the calls. Threads: the client's loop, but for what says otherwise.
 */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <uv.h>
#include "base/backoff.h"
#include "base/map.h"
#include "net/conn_internal.h"
#include "net/fence.h"
#include "net/lane_word.h"
#include "net/wheel.h"

#define CLIENT_MAGIC 0x434c4e54u

/* rpc_call.state */
enum call_state {
	CALL_ACTIVE = 1,
	CALL_ENDED,
};

enum exchange_state {
	EXCHANGE_WAITING,
	EXCHANGE_SENT,
	EXCHANGE_ABANDONED,
};

struct exchange {
	struct rpc_client *client;
	struct rpc_call *call; /* NULL once ended */
	enum exchange_state state;
	struct list link;     /* of client->waiting, sent; unlinked when abandoned or ended */
	struct map_node node; /* in client->by_id while SENT or ABANDONED */
	struct wheel_entry deadline;
	uint64_t until_ns; /* as in rpc_call; 0: no limit */
	struct frame frame;
	bool resend;
	bool hurry;
	bool no_lane;        /* its lane broke: the bytes come by TCP */
	bool message_queued; /* the connection holds `message` */
	bool cancel_queued;
	struct conn_message message;
	struct conn_message cancel;
	struct lane_landing *
		landing; /* where its bytes are written, from when it is sent; NULL: they come by TCP */
	uint8_t destination[LANE_DESTINATION_BYTES];
};

struct rpc_client {
	uint32_t magic;
	struct loop *loop;
	const struct transport_ops *transport;
	const char *where; /* inside address */
	char *address;
	struct fence *fence; /* borrowed, or NULL */

	pthread_mutex_t lock;
	pthread_cond_t idle;
	struct list starts;  /* under lock: calls not seen by the loop */
	struct list cancels; /* under lock */
	bool woken;          /* under lock: `wake` is posted */
	bool gone;           /* under lock: closed, nothing of the loop's is left */
	struct loop_task wake;

	/* The loop's. */
	struct conn conn;
	bool has_conn; /* from connect to on_closed */
	bool fenced;   /* it is being closed, as the fence does not let it pass */
	bool wanted;   /* somebody called once */
	bool closing;
	struct lane_calls *lane; /* of the connection; NULL: none */
	struct list waiting;
	struct list sent;
	struct map by_id; /* SENT and ABANDONED */
	uint64_t next_id;
	struct backoff backoff; /* between connects that fail */
	uint64_t missed_ns;     /* when a call last ended for want of a connection */
	bool refused;           /* the last attempt was: another one soon does not help */
	struct err last;        /* why there is no connection */
	struct wheel wheel;
	uv_timer_t deadlines;
	uv_timer_t reconnect;
	uv_timer_t watch;
	unsigned int handles;

	_Atomic bool connected;
	_Atomic uint64_t patience_ns; /* 0: none */

	/* rpc_client_eager(). */
	uint64_t eager_ns; /* 0: it is not */
	void (*on_connected)(void *arg);
	void *connected_arg;
};

/* Sends what waits, as far as there is room. */
void client_pump(struct rpc_client *client);
/* Lets rpc_client_free() go on when nothing of the client is left. */
void client_check_gone(struct rpc_client *client);

/* With this id, NULL: none. */
struct exchange *exchange_find(struct rpc_client *client, uint64_t id);
/* NULL without memory, and the payload is still the caller's. */
struct exchange *exchange_new(
	struct rpc_client *client, struct rpc_call *call, const struct frame *frame);
/* WAITING -> SENT, or ended, as what is left is less than a millisecond away; there is a connection. */
void exchange_send(struct exchange *x);
/* Its late reply is not waited for: an id is forgotten with the connection, or with its reply. */
void exchange_forget_id(struct exchange *x);
/* The call has ended: on_done, after which the call is not touched. exchange_settle() follows. */
void exchange_end(struct exchange *x, int status);
/* The same of a call that has no exchange. */
void exchange_call_end(struct rpc_client *client, struct rpc_call *call, int status);
/* Ends a call before its reply, by deadline or cancel, and settles. */
void exchange_abort(struct exchange *x, int status);
/* Frees an exchange that neither the caller nor the connection has a use for. */
void exchange_settle(struct exchange *x);
/* Gives the call a line of text to end with. */
void exchange_set_text(struct rpc_call *call, const char *text);

/* ---- lane_calls.c ---------------------------------------------------------------------------- */

/* The connection is ready; it has ended, and no exchange has a landing; a second has passed. */
void lane_calls_start(struct rpc_client *client);
void lane_calls_end(struct rpc_client *client);
void lane_calls_watch(struct rpc_client *client);
/* All zero without a lane. */
void lane_calls_look(const struct rpc_client *client, struct lane_asker_state *ret_state);
/* It is about to be sent: gives it a destination, if it can have one. */
void lane_calls_attach(struct exchange *x);
/* The call ends before its reply; `unsent`: its request was taken back. */
void lane_calls_detach(struct exchange *x, bool unsent);
/* The connection has ended. */
void lane_calls_lost(struct exchange *x);
/* A reply's header that may name a lane: 0 or -EPROTO. */
int lane_calls_check(const struct exchange *x, const struct frame *frame) __must_check;
/* The reply, whose id is forgotten. True: it was taken, and the call ends when its bytes are there, or is sent again; x may be
 * gone. False: go on, it came by TCP. */
bool lane_calls_reply(struct exchange *x, const struct frame *frame, void *payload);
/* Waits to be sent once more, by TCP. */
void lane_calls_repeat(struct exchange *x);
