/*
 * Lanes by libibverbs. See lane_verbs.h.
 *
 * A lane's operations that take long are jobs of the device pool, one at a time: `busy` is set, the job runs, and `next` goes on with it on
 * the loop. A close() that comes meanwhile waits for that.
 */
#include "net/lane_verbs_internal.h"
#include "base/err.h"
#include "base/hash.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define LANE_MAGIC   0x4c414e45u
#define PORT_LANES   64u /* whose completions fit */
#define POLL_AT_ONCE 32
#define TIMEOUT_DEFAULT \
	12             /* with the retries below a peer that is gone is found after some 150 ms */
#define RETRIES     6  /* 7 is for ever, for some devices */
#define RNR_RETRIES 6  /* 7 is for ever */
#define RNR_TIMER   12 /* 0.64 ms */
#define HOPS        64

static _Atomic uint32_t last_number;

static struct verbs_lane *verbs_lane(struct lane *lane)
{
	struct verbs_lane *v = container_of(lane, struct verbs_lane, lane);

	CHECK_MAGIC(v, LANE_MAGIC);
	return v;
}

/* ---- jobs ------------------------------------------------------------------------------------ */

static void start_job(
	struct verbs_lane *v, void (*run)(struct pool_job *job), void (*next)(struct verbs_lane *v))
{
	ensure(!v->busy);
	v->busy = true;
	v->job.job.run = run;
	v->next = next;
	pool_timer_start(verbs_pool, &v->job, 0);
}

void verbs_end_job(struct verbs_lane *v, enum lane_cause cause)
{
	v->cause = cause;
	loop_post(v->loop, &v->task);
}

static unsigned int completions_of(const struct verbs_lane *v)
{
	return VERBS_RECEIVES(v->options.writes);
}

static struct verbs_port *port_new(struct verbs_device *d, struct loop *loop)
{
	struct verbs_port *port = calloc(1, sizeof(*port));
	int flags;

	if (!port)
		return NULL;
	list_init(&port->link);
	list_init(&port->lanes);
	port->device = d;
	port->loop = loop;
	/* Twice: completions of destroyed queue pairs stay until they are polled. */
	port->room = min(PORT_LANES * (LANE_WRITES_MAX + 1), (unsigned int)d->limits.max_cqe / 2);
	port->channel = ibv_create_comp_channel(d->context);
	if (port->channel)
		port->cq = ibv_create_cq(d->context, (int)port->room * 2, port, port->channel, 0);
	if (!port->cq || ibv_req_notify_cq(port->cq, 0) != 0) {
		if (port->cq)
			(void)ibv_destroy_cq(port->cq); /* it has nothing */
		if (port->channel)
			(void)ibv_destroy_comp_channel(port->channel);
		free(port);
		return NULL;
	}
	flags = fcntl(port->channel->fd, F_GETFL);
	(void)fcntl(port->channel->fd, F_SETFL, flags | O_NONBLOCK); /* of a descriptor of ours */
	list_push_back(&d->ports, &port->link);
	return port;
}

/* The port for the lane, with room for its completions. */
static enum lane_cause port_take(struct verbs_lane *v)
{
	struct verbs_port *port = NULL;

	list_for_each (node, &v->device->ports) {
		struct verbs_port *p = list_entry(node, struct verbs_port, link);

		if (p->loop == v->loop && p->refs > 0) /* else it is about to end */
			port = p;
	}
	if (!port)
		port = port_new(v->device, v->loop);
	if (!port)
		return LANE_LIMITS_CAUSE;
	v->port = port;
	port->refs++;
	port->used += completions_of(v);
	return port->used > port->room ? LANE_LIMITS_CAUSE : LANE_WELL;
}

static void run_end_port(struct pool_job *job)
{
	struct verbs_port *port = container_of(job, struct verbs_port, job.job);
	struct verbs_device *d = port->device;

	list_remove(&port->link);
	(void)ibv_destroy_cq(
		port->cq); /* all its events are acknowledged, and its queue pairs destroyed */
	(void)ibv_destroy_comp_channel(port->channel);
	free(port);
	verbs_device_done(d);
}

/* The peer's GID is that of the other end of the connection: no peer makes us write to a third host. */
static enum lane_cause check_peer(const struct verbs_lane *v)
{
	union ibv_gid gid;

	if (!verbs_gid(&v->options.remote, &gid) ||
		memcmp(gid.raw, v->peer.gid, sizeof(gid.raw)) != 0)
		return LANE_ADDRESS_CAUSE;
	return lane_end_valid(&v->peer) ? LANE_WELL : LANE_PROTOCOL_CAUSE;
}

static int modify_init(struct verbs_lane *v)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT,
		.port_num = v->port_number,
		.qp_access_flags = v->options.side == LANE_ASKER ? IBV_ACCESS_REMOTE_WRITE : 0 };

	return ibv_modify_qp(
		v->qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
}

static int modify_rtr(struct verbs_lane *v)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTR,
		.path_mtu = (enum ibv_mtu)min(v->own.mtu, v->peer.mtu),
		.dest_qp_num = v->peer.qpn,
		.rq_psn = v->peer.psn,
		.min_rnr_timer = RNR_TIMER };
	struct ibv_ah_attr *to = &attr.ah_attr;

	to->is_global = 1;
	to->port_num = v->port_number;
	to->grh.sgid_index = v->gid_index;
	to->grh.hop_limit = HOPS;
	to->grh.traffic_class = (uint8_t)verbs_options.traffic_class;
	memcpy(to->grh.dgid.raw, v->peer.gid, sizeof(v->peer.gid));
	return ibv_modify_qp(v->qp, &attr,
		IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
}

static int modify_rts(struct verbs_lane *v)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTS,
		.sq_psn = v->own.psn,
		.timeout =
			(uint8_t)(verbs_options.timeout ? verbs_options.timeout : TIMEOUT_DEFAULT),
		.retry_cnt = RETRIES,
		.rnr_retry = RNR_RETRIES };

	return ibv_modify_qp(v->qp, &attr,
		IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
}

static int post_receive(struct verbs_lane *v)
{
	struct ibv_recv_wr wr = { .wr_id = (uint64_t)v->number << 32 };
	struct ibv_recv_wr *bad;

	return ibv_post_recv(v->qp, &wr, &bad);
}

/* The asker's can be written to, and that is all; the answerer's can write. */
static enum lane_cause qp_open(struct verbs_lane *v)
{
	bool asks = v->options.side == LANE_ASKER;
	unsigned int n = completions_of(v);
	struct ibv_qp_init_attr attr = { .qp_context = v,
		.send_cq = v->port->cq,
		.recv_cq = v->port->cq,
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = asks ? 0 : n,
			.max_recv_wr = asks ? n : 0,
			.max_send_sge = asks ? 0 : LANE_PARTS,
			.max_recv_sge = 0 } };

	if (n > (unsigned int)v->device->limits.max_qp_wr ||
		v->device->limits.max_sge < (int)LANE_PARTS)
		return LANE_LIMITS_CAUSE;
	v->qp = ibv_create_qp(asks ? v->device->land : v->device->serve, &attr);
	if (!v->qp)
		return errno == ENOMEM ? LANE_LIMITS_CAUSE : LANE_REFUSED_CAUSE;
	v->own.qpn = v->qp->qp_num;
	hash_random(&v->own.psn, sizeof(v->own.psn));
	v->own.psn &= 0xffffff;
	if (modify_init(v) != 0)
		return LANE_REFUSED_CAUSE;
	if (!asks)
		return modify_rtr(v) != 0 || modify_rts(v) != 0 ? LANE_REFUSED_CAUSE : LANE_WELL;
	for (unsigned int i = 0; i < n; i++)
		if (post_receive(v) != 0)
			return LANE_LIMITS_CAUSE;
	return LANE_WELL;
}

static void run_open(struct pool_job *job)
{
	struct verbs_lane *v = container_of(job, struct verbs_lane, job.job);
	enum lane_cause cause = verbs_device_find(
		&v->options.local, &v->device, &v->port_number, &v->gid_index, &v->own);

	if (cause == LANE_WELL) {
		list_push_back(&v->device->lanes, &v->device_link);
		cause = port_take(v);
	}
	if (cause == LANE_WELL)
		cause = qp_open(v);
	verbs_end_job(v, cause);
}

static void run_connect(struct pool_job *job)
{
	struct verbs_lane *v = container_of(job, struct verbs_lane, job.job);
	enum lane_cause cause = check_peer(v);

	if (cause == LANE_WELL && modify_rtr(v) != 0)
		cause = LANE_REFUSED_CAUSE;
	verbs_end_job(v, cause);
}

/*
 * The fence. Of a device that the kernel has taken away, destroying succeeds by what lane_verbs_start() put into the environment, so
 * that the queues are unmapped, but the kernel may not have done it: a command that must work says so.
 */
static bool qp_destroy(struct verbs_lane *v)
{
	struct ibv_device_attr attr;

	return !v->qp ||
	       (ibv_destroy_qp(v->qp) == 0 && ibv_query_device(v->device->context, &attr) == 0);
}

static void run_close(struct pool_job *job)
{
	struct verbs_lane *v = container_of(job, struct verbs_lane, job.job);
	struct verbs_device *d = v->device;

	v->unfenced = !qp_destroy(v);
	v->qp = NULL;
	if (v->port) {
		v->port->used -= completions_of(v);
		if (--v->port->refs == 0)
			v->last_of = v->port;
	}
	if (!v->unfenced)
		list_remove(&v->device_link);
	verbs_end_job(v, LANE_WELL);
	if (d)
		verbs_device_done(d);
}

/* The kernel took the device away: the fence is then the end of its context. */
static void run_fence(struct pool_job *job)
{
	verbs_device_unfenced(container_of(job, struct verbs_lane, job.job));
}

/* ---- upcalls --------------------------------------------------------------------------------- */

static void lane_break(struct verbs_lane *v, enum lane_cause cause)
{
	if (v->broken || v->closing)
		return;
	v->broken = true;
	v->lane.events->on_broken(v->lane.arg, cause);
}

void verbs_lane_lose(struct verbs_lane *v, enum lane_cause cause)
{
	int none = LANE_WELL;

	if (atomic_compare_exchange_strong(&v->lost, &none, (int)cause))
		loop_post(v->loop, &v->lost_task);
}

static void on_lost(struct loop_task *task)
{
	struct verbs_lane *v = container_of(task, struct verbs_lane, lost_task);

	CHECK_MAGIC(v, LANE_MAGIC);
	if (v->opened)
		lane_break(v, (enum lane_cause)atomic_load(&v->lost));
	/* else after_open() says it */
}

static struct verbs_lane *lane_find(struct verbs_port *port, uint32_t number)
{
	list_for_each (node, &port->lanes) {
		struct verbs_lane *v = list_entry(node, struct verbs_lane, port_link);

		if (v->number == number)
			return v;
	}
	return NULL;
}

static enum lane_cause cause_of(const struct ibv_wc *wc)
{
	switch ((int)wc->status) {
	case IBV_WC_REM_ACCESS_ERR:
	case IBV_WC_REM_INV_REQ_ERR:
	case IBV_WC_REM_OP_ERR:
		return LANE_ACCESS_CAUSE;
	case IBV_WC_RNR_RETRY_EXC_ERR:
		return LANE_RECEIVER_CAUSE;
	default:
		return LANE_WRITE_CAUSE;
	}
}

static void on_completion(struct verbs_lane *v, const struct ibv_wc *wc)
{
	bool well = wc->status == IBV_WC_SUCCESS;
	uint16_t at = (uint16_t)wc->wr_id;

	if (v->options.side == LANE_ASKER) {
		if (!well || wc->opcode != IBV_WC_RECV_RDMA_WITH_IMM) {
			lane_break(v, well ? LANE_PROTOCOL_CAUSE : LANE_RECEIVE_CAUSE);
			return;
		}
		if (v->closing || v->broken)
			return;
		if (post_receive(v) != 0)
			lane_break(v, LANE_RECEIVE_CAUSE);
		else
			v->lane.events->on_immediate(v->lane.arg, ntohl(wc->imm_data));
		return;
	}
	v->unused[v->n_unused++] = at;
	v->lane.events->on_written(v->lane.arg, v->contexts[at], well);
	if (!well)
		lane_break(v, cause_of(wc));
}

/* Ends: no request or answer comes while the loop is here, so no more than what is in flight completes. */
static void port_poll(struct verbs_port *port)
{
	struct ibv_wc wc[POLL_AT_ONCE];
	int n;

	while ((n = ibv_poll_cq(port->cq, POLL_AT_ONCE, wc)) > 0)
		for (int i = 0; i < n; i++) {
			struct verbs_lane *v = lane_find(port, (uint32_t)(wc[i].wr_id >> 32));

			if (v)
				on_completion(v, &wc[i]);
		}
}

/* Armed first, then polled until it is empty: what comes in between makes an event. */
static void on_event(void *arg, short events)
{
	struct verbs_port *port = arg;
	struct ibv_cq *cq;
	unsigned int n = 0;
	void *context;

	(void)events;
	while (ibv_get_cq_event(port->channel, &cq, &context) == 0)
		n++;
	if (n > 0)
		ibv_ack_cq_events(port->cq, n);
	(void)ibv_req_notify_cq(
		port->cq, 0); /* fails for no reason that would not fail the lanes, too */
	port_poll(port);
}

static void finish(struct verbs_lane *v);
static void finish_end(struct verbs_lane *v);

/* After each job: a close() that came meanwhile goes first. */
static void on_task(struct loop_task *task)
{
	struct verbs_lane *v = container_of(task, struct verbs_lane, task);

	CHECK_MAGIC(v, LANE_MAGIC);
	v->busy = false;
	if (v->closing && v->next != finish && v->next != finish_end)
		start_job(v, run_close, finish);
	else
		v->next(v);
}

static void after_open(struct verbs_lane *v)
{
	enum lane_cause cause = v->cause;
	struct verbs_port *port = v->port;

	if (cause == LANE_WELL)
		cause = (enum lane_cause)atomic_load(&v->lost);
	if (port) {
		if (!port->watch)
			port->watch = loop_watch_start(
				v->loop, port->channel->fd, POLLIN, on_event, port);
		if (!port->watch)
			cause = LANE_LIMITS_CAUSE;
		list_push_back(&port->lanes, &v->port_link);
	}
	v->opened = true;
	v->broken = cause != LANE_WELL;
	v->lane.events->on_open(v->lane.arg, cause, &v->own);
}

static void after_connect(struct verbs_lane *v)
{
	if (v->cause != LANE_WELL)
		lane_break(v, v->cause);
	else if (!v->broken)
		v->lane.events->on_connected(v->lane.arg);
}

static void lane_free(struct verbs_lane *v)
{
	v->magic = 0;
	free(v->contexts);
	free(v->unused);
	free(v);
}

/* The completions of what was written before it was destroyed are taken first; what has none was not written, or was. */
static void flush(struct verbs_lane *v)
{
	bool unused[LANE_WRITES_MAX + 1] = { false };

	if (v->options.side != LANE_ANSWERER)
		return;
	for (unsigned int i = 0; i < v->n_unused; i++)
		unused[v->unused[i]] = true;
	for (unsigned int i = 0; i < completions_of(v); i++)
		if (!unused[i])
			v->lane.events->on_written(v->lane.arg, v->contexts[i], false);
}

static void finish_end(struct verbs_lane *v)
{
	flush(v);
	v->lane.events->on_closed(v->lane.arg);
	lane_free(v);
}

static void finish(struct verbs_lane *v)
{
	struct verbs_port *port = v->port;

	if (port) {
		port_poll(port);
		list_remove(&v->port_link);
	}
	if (v->last_of) {
		port = v->last_of;
		loop_watch_stop(port->watch);
		port->watch = NULL;
		port->job.job.run = run_end_port;
		pool_timer_start(verbs_pool, &port->job, 0);
	}
	if (v->unfenced)
		start_job(v, run_fence, finish_end);
	else
		finish_end(v);
}

/* ---- operations ------------------------------------------------------------------------------ */

static struct lane *verbs_open(struct loop *loop, const struct lane_options *options)
{
	struct verbs_lane *v = calloc(1, sizeof(*v));
	unsigned int n = VERBS_RECEIVES(options->writes);

	ensure(options->writes > 0 && options->writes <= LANE_WRITES_MAX && verbs_pool);
	if (!v)
		return NULL;
	v->magic = LANE_MAGIC;
	if (options->side == LANE_ANSWERER) {
		v->contexts = calloc(n, sizeof(*v->contexts));
		v->unused = calloc(n, sizeof(*v->unused));
		if (!v->contexts || !v->unused) {
			lane_free(v);
			return NULL;
		}
		for (unsigned int i = 0; i < n; i++)
			v->unused[v->n_unused++] = (uint16_t)i;
	}
	v->lane =
		(struct lane){ .ops = &lane_verbs, .events = options->events, .arg = options->arg };
	v->number = ++last_number;
	v->loop = loop;
	v->options = *options;
	v->peer = options->peer;
	v->task.run = on_task;
	v->lost_task.run = on_lost;
	list_init(&v->device_link);
	list_init(&v->port_link);
	start_job(v, run_open, after_open);
	return &v->lane;
}

static void verbs_connect(struct lane *lane, const struct lane_end *peer)
{
	struct verbs_lane *v = verbs_lane(lane);

	ensure(v->options.side == LANE_ASKER && v->opened && !v->closing);
	v->peer = *peer;
	if (!v->broken)
		start_job(v, run_connect, after_connect);
}

static int verbs_write(struct lane *lane, const struct lane_write *write)
{
	struct verbs_lane *v = verbs_lane(lane);
	struct ibv_sge parts[LANE_PARTS];
	struct ibv_send_wr wr = { .sg_list = parts,
		.opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
		.send_flags = IBV_SEND_SIGNALED,
		.imm_data = htonl(write->cookie),
		.wr.rdma = { .remote_addr = write->address, .rkey = write->key } };
	struct ibv_send_wr *bad;

	ensure(write->n <= LANE_PARTS && v->options.side == LANE_ANSWERER && !v->closing);
	if (!v->opened || v->broken)
		return -ENOTCONN;
	if (v->n_unused <= (write->cookie == LANE_PROBE ? 0u : 1u)) /* one is for the probe */
		return -EAGAIN;
	for (unsigned int i = 0; i < write->n; i++) {
		struct ibv_sge *part = &parts[wr.num_sge];

		if (write->parts[i].bytes == 0)
			continue;
		if (verbs_memory_key(v->device->index, LANE_SERVE, write->parts[i].data,
			    write->parts[i].bytes, &part->lkey) < 0)
			return -EFAULT;
		part->addr = (uintptr_t)write->parts[i].data;
		part->length = (uint32_t)write->parts[i].bytes;
		wr.num_sge++;
	}
	wr.wr_id = (uint64_t)v->number << 32 | v->unused[v->n_unused - 1];
	if (ibv_post_send(v->qp, &wr, &bad) != 0) {
		verbs_lane_lose(v, LANE_WRITE_CAUSE);
		return -ENOTCONN;
	}
	v->contexts[v->unused[--v->n_unused]] = write->context;
	return 0;
}

static int verbs_key(struct lane *lane, const void *data, size_t bytes, uint32_t *ret_key)
{
	struct verbs_lane *v = verbs_lane(lane);

	return v->opened && v->device
		       ? verbs_memory_key(v->device->index, LANE_LAND, data, bytes, ret_key)
		       : -EFAULT;
}

static void verbs_close(struct lane *lane)
{
	struct verbs_lane *v = verbs_lane(lane);

	ensure(!v->closing);
	v->closing = true;
	if (!v->busy)
		start_job(v, run_close, finish);
}

const struct lane_ops lane_verbs = {
	.name = "verbs",
	.open = verbs_open,
	.connect = verbs_connect,
	.write = verbs_write,
	.key = verbs_key,
	.close = verbs_close,
	.add = verbs_memory_add,
	.remove = verbs_memory_remove,
};
