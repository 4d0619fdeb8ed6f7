/*
 * A transport over a connected stream socket: what unix and tcp have in common. They differ in how
 * a socket comes about.
 */
#pragma once

#include "net/transport.h"

/* Wraps a socket, which is the stream's from now on, also on failure. Reading starts at start() or,
 * for one that is still `connecting`, when it is connected. */
int stream_new(const struct transport_ops *ops, struct loop *loop, int fd, bool connecting,
	struct transport **ret_transport) __must_check;

/* The operations of transport_ops. */
void stream_start(struct transport *transport, const struct transport_events *events, void *arg);
void stream_send(struct transport *transport, struct transport_message *message);
bool stream_takes_pipe(struct transport *transport);
/* tcp only */
int stream_addresses(struct transport *transport, struct sockaddr_storage *ret_local,
	struct sockaddr_storage *ret_remote);
bool stream_recall(struct transport *transport, struct transport_message *message);
void stream_pause(struct transport *transport, bool paused);
void stream_look(struct transport *transport); /* tcp only */
void stream_close(struct transport *transport, int status);
void stream_patience(struct transport *transport, uint32_t ms); /* tcp only */

/*
 * Accepts from a listening socket, which becomes the listener's, also on failure. `admit` (may be
 * NULL) decides on each new socket. `address` is what rpc_server_address() says; `unlink_path` (may
 * be NULL) is removed at the end.
 */
int listener_new(const struct transport_ops *ops, struct loop *loop, int fd,
	const struct transport_listener *user, bool (*admit)(int fd), const char *address,
	const char *unlink_path, struct transport_listener **ret_listener) __must_check;
void listener_unlisten(struct transport_listener *listener);
