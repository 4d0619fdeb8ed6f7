/*
 * The answering end of a connection's lane: what the client's words ask for, and the writes of replies. There is one lane at most that is
 * written to; earlier ones may still be ending.
 *
 * Threads: the loop's only. on_written() never comes from inside lane_replies_write().
 */
#pragma once

#include "net/lane_word.h"
#include "net/net.h"
#include "net/transport.h"

struct lane_replies;

struct lane_replies_events {
	/* The answer to an OPEN: 0 and our end, or -EOPNOTSUPP, -ECANCELED. Also from inside lane_replies_word(). */
	void (*on_opened)(void *arg, void *context, int status, const struct lane_word *word);
	/* Once for each write; not well: nothing is known about its bytes, and the lane is of no more use. */
	void (*on_written)(void *arg, void *context, bool well);
	/* After lane_replies_end(): the last upcall. */
	void (*on_gone)(void *arg);
};

/* NULL: no memory. */
struct lane_replies *lane_replies_new(struct loop *loop, struct transport *transport,
	const struct lane_replies_events *events, void *arg);
/* A word of the client's. For an OPEN on_opened() follows, with `context`; the others are done at once. */
void lane_replies_word(struct lane_replies *lr, const struct lane_word *word, void *context);
/* Writes the first `bytes` of the payload, which may be released afterwards. -ENOTCONN: the lane is another one, or of no use;
 * -EAGAIN: too much is in flight. */
int lane_replies_write(struct lane_replies *lr, const struct lane_destination *d,
	const struct net_payload *payload, size_t bytes, void *context) __must_check;
/* The connection has ended. Writes end, then on_gone(); perhaps from inside. */
void lane_replies_end(struct lane_replies *lr);
