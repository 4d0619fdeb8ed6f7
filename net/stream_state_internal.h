/*
 * What stream.c and stream_tls.c share: a stream's state. See stream.c.
 */
#pragma once

#include "net/stream_internal.h"
#include "net/tls_internal.h"

#include <sys/uio.h>
#include <uv.h>

#define STREAM_MAGIC   0x5354524du
#define RX_BYTES       16384u
#define SEND_PARTS     64
#define WAKE_BYTES     (256u << 10)
#define READS_PER_TURN 16 /* then others have their turn */
#define FDS_MAX        2  /* one of a frame whose header is split, one of the frame behind it */
#define FD_LOST        (-2)

enum stream_state {
	STREAM_CONNECTING,
	STREAM_ACCEPTED,
	STREAM_HANDSHAKING,
	STREAM_OPEN,
	STREAM_FAILED,
	STREAM_CLOSED,
};

struct stream {
	struct transport transport;
	uint32_t magic;
	enum stream_state state;
	int status; /* why it failed */
	int fd;
	uv_poll_t poll;
	struct loop *loop;
	struct loop_task
		turn; /* before the loop waits again: writes what is queued, ends what failed */
	bool turning; /* it is posted */
	unsigned int handles; /* poll, and a turn that is posted */
	int watching;         /* events that poll watches */
	bool connects;        /* we came to it, not it to us */
	bool paused;
	bool blocked; /* the socket is full */
	int wake;     /* bytes that must be there before poll says so (SO_RCVLOWAT) */
	bool look;    /* at what is there, however little */

	struct list out;

	struct frame frame; /* when have_header */
	uint8_t *payload;   /* its payload */
	size_t payload_got;
	int frame_fd;
	bool have_header;
	int fds[FDS_MAX]; /* arrived, not yet claimed by a frame */
	unsigned int n_fds;
	size_t rx_begin;
	size_t rx_end;

	/* With TLS. */
	struct tls *tls;    /* NULL: without */
	struct list *stage; /* of `out`: the first message that is not wholly encrypted */
	size_t staged;      /* bytes of it that are */
	size_t raw;         /* of `frame`: bytes that come as they are, first in the payload */
	size_t raw_got;
	size_t records_got; /* and of those that come in records */

	uint8_t rx[]; /* RX_BYTES; with TLS, a header */
};

/* Ends it with `status`. */
void stream_fail(struct stream *s, int status);
/* Bytes of the message's pipe go, all but `skip` that went; as sendmsg(2). */
ssize_t stream_send_pipe(struct stream *s, const struct transport_message *m, size_t skip);
/* Takes the header in rx, which is whole. 1, or a negative errno. */
int stream_take_header(struct stream *s) __must_check;
/* The message is whole. */
void stream_deliver(struct stream *s);

/* ---- stream_tls.c ---------------------------------------------------------------------------- */

/* The handshake goes on with what came in: 1: done, 0, or a negative errno. */
int stream_tls_greet(struct stream *s) __must_check;
/* Is there something to write? */
bool stream_tls_has_out(const struct stream *s);
/* Writes some of the queue, encrypting it: as sendmsg(2). */
ssize_t stream_tls_send(struct stream *s);
/* n bytes went: messages that are gone move to `gone`. */
void stream_tls_sent(struct stream *s, size_t n, struct list *gone);
/* The message is taken back, before its link is removed. */
void stream_tls_recall(struct stream *s, struct transport_message *message);
/* One read: 1 when there may be more, 0 when the socket is drained, or a negative errno. */
int stream_tls_read(struct stream *s) __must_check;
/* Bytes that come as they are, next, and are missing. */
size_t stream_tls_raw_left(const struct stream *s);
/* What came in and was not looked at yet? */
bool stream_tls_has_in(const struct stream *s);
/* Goes through what came in, as long as it is wanted. 0 or a negative errno. */
int stream_tls_parse(struct stream *s) __must_check;
