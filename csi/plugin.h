/*
 * cachecsi: the CSI node plugin. It has no state: a volume is a mount of this host's keeper (keeper.h), at the target path, whose
 * `token` is a hash of what was requested. A plugin that was started again, or a second request, finds it there.
 *
 *	kubelet ──gRPC──► csi.sock		Identity and Node: csi_info.c, csi_publish.c, csi_stats.c
 *	        ──gRPC──► NAME-reg.sock		Registration: csi_info.c
 *	plugin  ──HTTP──► keeper.sock		keeper_call.h
 *
 * Threads: everything runs on one loop; a call that waits for the keeper is a struct, not a thread.
 */
#pragma once

#include "base/dataset_volume.h"
#include "base/loop.h"
#include "csi/grpc.h"
#include "csi/keeper_call.h"

#define PLUGIN_NAME     CSI_DRIVER
#define PLUGIN_TOPOLOGY "topology." PLUGIN_NAME "/node" /* key of the node in topologies */
#define PLUGIN_MESSAGES_BYTES \
	(16u << 20)          /* of requests that are not complete, of all connections */
#define PLUGIN_VOLUMES 1000u /* of a node */

struct plugin {
	struct loop *loop;
	struct keeper_calls keeper;
	struct budget messages;
	unsigned int n_calls;
	struct list waiting;  /* struct publish, struct unpublish: by target path */
	const char *name;     /* of the driver */
	const char *endpoint; /* path of csi.sock on the host */
	const char *node;
	void (*on_registered)(void *arg, bool is_registered); /* by kubelet, or refused by it */
	void *register_arg;
};

/* Of both sockets. Their handle() gets the struct plugin. */
extern const struct grpc_method plugin_methods[];
extern const struct grpc_method plugin_registration_methods[];

/* The status for an error of the keeper or of this process. */
enum grpc_status plugin_status(int r);
/* Fails the call with the line of `e`. */
void plugin_fail(struct grpc_call *call, const struct err *e);

/* ---- the methods ----------------------------------------------------------------------------- */

void csi_publish(void *arg, struct grpc_call *call, const void *message, size_t len);
void csi_unpublish(void *arg, struct grpc_call *call, const void *message, size_t len);
void csi_stats(void *arg, struct grpc_call *call, const void *message, size_t len);

/* Ends what csi_publish() and csi_unpublish() began for calls that are gone. Before the loop ends. */
void csi_publish_end(struct plugin *p);
