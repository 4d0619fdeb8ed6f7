/*
 * The server's side of a gRPC connection, for calls with one message each way (https://grpc.io, PROTOCOL-HTTP2): bytes in, bytes out,
 * no descriptor and no clock, over nghttp2.
 *
 *	grpc_conn_feed()	bytes of the peer ──► the method's handle()
 *	grpc_call_reply()	its answer, at once or later
 *	grpc_conn_output()	bytes for the peer
 *
 * A call ends once: by grpc_call_reply() or grpc_call_fail(), or by itself when the peer resets it, its time is over or the connection
 * ends. Then it calls what grpc_call_on_end() gave it, and must not be used after that.
 *
 * What peers may make this process keep is bounded: GRPC_CALLS_MAX calls of all connections, GRPC_MESSAGE_MAX bytes of a message,
 * the budget for messages of all connections, ten seconds for a request to be complete, and nghttp2's own limits.
 *
 * Threads: one for all connections of a struct grpc_service.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/budget.h"
#include "base/buf.h"

#define GRPC_CALLS_MAX   1000u
#define GRPC_MESSAGE_MAX (4u << 20)
#define GRPC_HEADERS_MAX 16384u /* bytes of the headers of a call */
#define GRPC_TEXT_MAX    1024u  /* of the reason of a failure */

/* As on the wire. */
enum grpc_status {
	GRPC_OK = 0,
	GRPC_INVALID_ARGUMENT = 3,
	GRPC_DEADLINE_EXCEEDED = 4,
	GRPC_NOT_FOUND = 5,
	GRPC_ALREADY_EXISTS = 6,
	GRPC_PERMISSION_DENIED = 7,
	GRPC_RESOURCE_EXHAUSTED = 8,
	GRPC_FAILED_PRECONDITION = 9,
	GRPC_ABORTED = 10,
	GRPC_UNIMPLEMENTED = 12,
	GRPC_INTERNAL = 13,
	GRPC_UNAVAILABLE = 14,
};

struct grpc_call;
struct grpc_conn;

struct grpc_method {
	const char *path; /* "/csi.v1.Node/NodeGetInfo" */
	/* Answers, or keeps `call` and answers later. `message` is borrowed for the time of the call. */
	void (*handle)(void *arg, struct grpc_call *call, const void *message, size_t len);
};

struct grpc_service {
	const struct grpc_method *methods; /* ends with { 0 } */
	void *arg;                         /* of handle() */
	struct budget *messages;           /* bytes of requests that are not complete */
	unsigned int *n_calls;             /* of all connections */
};

/*
 * `service` is borrowed. wake(arg): there is output, or another deadline, that the caller of no function below knows of. -ENOMEM.
 */
int grpc_conn_new(const struct grpc_service *service, void (*wake)(void *arg), void *arg,
	struct grpc_conn **ret_conn) __must_check;
void grpc_conn_free(struct grpc_conn *conn); /* ends its calls; NULL is allowed */

/* Takes bytes of the peer at time `now` (clock_mono_ns()). -EPROTO or -ENOMEM: the connection is to be closed. */
int grpc_conn_feed(struct grpc_conn *conn, const void *data, size_t len, uint64_t now) __must_check;
/* The next bytes for the peer, borrowed until the next call of this; 0: none now. -ENOMEM, -EPROTO: to be closed. */
int grpc_conn_output(
	struct grpc_conn *conn, const uint8_t **ret_data, size_t *ret_len) __must_check;
/* Nothing is to be read or written any more. */
bool grpc_conn_done(const struct grpc_conn *conn);
/* Calls that are not answered yet. */
unsigned int grpc_conn_calls(const struct grpc_conn *conn);
/* When the next call runs out of time; UINT64_MAX: none does. */
uint64_t grpc_conn_due(const struct grpc_conn *conn);
/* Ends the calls whose time is over. There may be output afterwards. */
void grpc_conn_expire(struct grpc_conn *conn, uint64_t now);
/* The peer is asked to send no further calls here. */
void grpc_conn_shut(struct grpc_conn *conn);

/* ---- a call ---------------------------------------------------------------------------------- */

/* Answers with a message of `len` bytes, which are copied. */
void grpc_call_reply(struct grpc_call *call, const void *message, size_t len);
void grpc_call_fail(struct grpc_call *call, enum grpc_status status, const char *fmt, ...)
	__printf(3, 4);
/* Calls fn(arg) when the call ends without an answer; NULL: nothing any more. */
void grpc_call_on_end(struct grpc_call *call, void (*fn)(void *arg), void *arg);
