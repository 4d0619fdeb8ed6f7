/*
 * Devices of lanes by verbs: what lane_device.c and lane_verbs.c share. Functions run as jobs of the device pool unless their comment
 * says otherwise.
 */
#pragma once

#include <infiniband/verbs.h>
#include "base/pool.h"
#include "net/lane_verbs.h"

#define VERBS_RECEIVES(writes) ((writes) + 1) /* one more for the probe */

struct verbs_device {
	struct list link;
	unsigned int index; /* of lane_memory.land and .serve */
	char name[IBV_SYSFS_NAME_MAX];
	char node[64]; /* /dev/infiniband/uverbs0 */
	struct ibv_context *context;
	struct ibv_pd *land;
	struct ibv_pd *serve;
	struct ibv_device_attr limits;
	struct list ports;
	struct list lanes;
	struct list
		unfenced; /* lanes whose queue pairs could not be destroyed: closing the device does it */
	bool gone;
};

/* The completions of one loop's lanes on one device. It ends with its last lane. */
struct verbs_port {
	struct list link;
	struct verbs_device *device;
	struct loop *loop;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	unsigned int room; /* completions that fit */
	unsigned int used;
	unsigned int refs;
	struct pool_timer job; /* as a timer, since starting one never fails */
	/* The loop's. */
	struct loop_watch *watch;
	struct list lanes;
};

struct verbs_lane {
	struct lane lane;
	uint32_t magic;
	uint32_t
		number; /* in the upper half of wr_id: completions of destroyed queue pairs still come */
	struct loop *loop;
	struct lane_options options;
	struct lane_end own;
	struct lane_end peer;

	/* The job's, and the loop's while there is none. */
	struct pool_timer job;
	struct loop_task task;
	void (*next)(struct verbs_lane *v); /* on the loop, after the job */
	enum lane_cause cause;              /* of the job */
	bool busy;

	/* The device pool's. */
	struct list device_link;
	struct verbs_device *device;
	struct verbs_port *port;
	struct verbs_port *last_of; /* this lane was the last of the port, which is to end */
	struct ibv_qp *qp;
	bool unfenced; /* it could not be destroyed */
	uint8_t port_number;
	uint8_t gid_index;
	_Atomic int
		lost; /* enum lane_cause, from the device: told to the loop by lost_task, which is posted once */
	struct loop_task lost_task;

	/* The loop's. */
	struct list port_link;
	bool opened;
	bool broken;
	bool closing;
	void **contexts; /* of writes in flight */
	uint16_t *unused;
	unsigned int n_unused;
};

extern struct pool *verbs_pool;
extern struct lane_verbs_options verbs_options;

/* Finds or opens the device that has the address, and the GID. LANE_WELL, or why there is none. */
bool verbs_gid(const struct sockaddr_storage *address, union ibv_gid *ret_gid);
enum lane_cause verbs_device_find(const struct sockaddr_storage *local,
	struct verbs_device **ret_device, uint8_t *ret_port, uint8_t *ret_gid_index,
	struct lane_end *own);
/* Frees a device that is gone, when it has neither ports nor lanes. */
void verbs_device_done(struct verbs_device *device);
/* The lane's queue pair could not be destroyed, since the kernel took the device away: the fence is the end of the whole context, which
 * waits for the last lane and port of the device. verbs_end_job() follows. */
void verbs_device_unfenced(struct verbs_lane *v);
/* Its lanes learn the cause. */
void verbs_end_job(struct verbs_lane *v, enum lane_cause cause);
void verbs_lane_lose(struct verbs_lane *v, enum lane_cause cause);

/* A loop's, as short as a list of 32. The key of bytes in memory of a domain; -EFAULT. */
int verbs_memory_key(unsigned int device, unsigned int domain, const void *data, size_t bytes,
	uint32_t *ret_key) __must_check;
int verbs_memory_add(struct lane_memory *memory) __must_check; /* as lane_ops.add */
void verbs_memory_remove(struct lane_memory *memory);          /* as lane_ops.remove */
