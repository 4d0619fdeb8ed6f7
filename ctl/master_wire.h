/*
 * A master that is asked over the cluster's wire: on another node, with the keys of this one. In the place
 * of a socket's path its address is "wire:tcp:HOST:PORT".
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <string.h>
#include "base/err.h"
#include "base/unix_socket.h"

#define MASTER_WIRE "wire:"
static inline bool master_is_wire(const char *address)
{
	return strncmp(address, MASTER_WIRE, sizeof(MASTER_WIRE) - 1) == 0;
}

/* The master that the keeper of this node has, when it is on another one. False: it says none. */
bool master_wire_of_node(char out[SOCKET_PATH_MAX]);

/* `given` is "tcp:HOST:PORT" or "unix:/master.rpc". -EINVAL with a line. */
int master_wire_take(const char *given, char out[SOCKET_PATH_MAX], struct err *e) __must_check;

/* This token's file from now on, and nothing else, instead of the node's keys; borrowed. */
void master_wire_use_token(const char *file);

/* As master_call(). One thread's. */
int master_wire_call(const char *address, const char *method, const char *path, const json_t *body,
	uint64_t timeout_ns, json_t **ret_json, struct err *e) __must_check;
