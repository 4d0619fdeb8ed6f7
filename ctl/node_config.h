/*
 * What this node's configuration file ($GRANARY_CONFIG, else /etc/granary/granary.yaml) says to cachectl:
 * where the master of its keeper is, and with which keys it is spoken to. Of keys the keeper's section
 * goes before what stands outside of sections, and the environment (GRANARY_CLUSTER_KEY, GRANARY_TOKEN)
 * before both. A file that is not there says nothing.
 */
#pragma once

#include <limits.h>
#include "base/err.h"
#include "base/key_options.h"
#include "base/unix_socket.h"

struct node_config {
	char file[PATH_MAX];          /* "": there is none */
	char master[SOCKET_PATH_MAX]; /* "": not said */
	char worker[SOCKET_PATH_MAX]; /* likewise, of the keeper's */
	char cluster_key[PATH_MAX];
	char token[PATH_MAX];
	char net_data[16];
	char warning
		[ERR_TEXT_MAX]; /* a key that is none, and may be meant to be one of these: its line; "" */
};

/* A warning is printed, once in a process. -EINVAL, -EACCES and the like with a line. */
int node_config_read(struct node_config *ret_config, struct err *e) __must_check;
/* For client_keys_open(); borrows from `config`. */
struct key_options node_config_keys(const struct node_config *config);
