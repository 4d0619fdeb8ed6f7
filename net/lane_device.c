/* Devices of lanes: found by address, their memory registered, watched. See lane_verbs.h. */
#include "net/lane_verbs_internal.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/periodic.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define GIDS_MAX 1024

struct pool *verbs_pool;
struct lane_verbs_options verbs_options;

static struct periodic_work watch_work;
static struct list devices = LIST_INIT(devices); /* the jobs' */

/* Memory that was added. The list changes under the lock, and in jobs only. */
static struct {
	pthread_mutex_t lock;
	struct list all;
	unsigned int n;
} memories = { PTHREAD_MUTEX_INITIALIZER, LIST_INIT(memories.all), 0 };

/* ---- memory ---------------------------------------------------------------------------------- */

/* What is in the list is read by loops. */
static bool register_one(
	struct ibv_pd *pd, struct lane_memory *m, int access, void **handle, uint32_t *key)
{
	struct ibv_mr *mr = ibv_reg_mr(pd, m->base, m->bytes, access);

	if (!mr) {
		log_debug("rdma memory refused", "bytes=%zu error=%s", m->bytes,
			err_name(err_errno()));
		return false;
	}
	pthread_mutex_lock(&memories.lock);
	*key = access & IBV_ACCESS_REMOTE_WRITE ? mr->rkey : mr->lkey;
	*handle = mr;
	pthread_mutex_unlock(&memories.lock);
	return true;
}

/* False: some of it is not registered, as it should be. */
static bool memory_register(struct verbs_device *d, struct lane_memory *m)
{
	unsigned int i = d->index;
	bool well = true;

	if ((m->domains & LANE_LAND) && !m->land[i].handle)
		well &= register_one(d->land, m, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE,
			&m->land[i].handle, &m->land[i].key);
	if ((m->domains & LANE_SERVE) && !m->serve[i].handle)
		well &= register_one(d->serve, m, 0, &m->serve[i].handle, &m->serve[i].key);
	return well;
}

/* What was refused before may be had now. */
static bool memory_register_all(struct verbs_device *d)
{
	bool well = true;

	list_for_each (node, &memories.all)
		well &= memory_register(d, list_entry(node, struct lane_memory, link));
	return well;
}

static void memory_deregister(struct verbs_device *d, struct lane_memory *m)
{
	void **handles[] = { &m->land[d->index].handle, &m->serve[d->index].handle };

	for (size_t i = 0; i < ARRAY_SIZE(handles); i++) {
		if (*handles[i] && ibv_dereg_mr(*handles[i]) != 0)
			log_debug("rdma memory stays registered", "device=%s error=%s", d->name,
				err_name(err_errno()));
		*handles[i] = NULL;
	}
}

int verbs_memory_key(
	unsigned int device, unsigned int domain, const void *data, size_t bytes, uint32_t *ret_key)
{
	const char *from = data;
	int r = -EFAULT;

	pthread_mutex_lock(&memories.lock);
	list_for_each (node, &memories.all) {
		const struct lane_memory *m = list_entry(node, struct lane_memory, link);
		const char *base = m->base;

		if (from < base || bytes > m->bytes || (size_t)(from - base) > m->bytes - bytes)
			continue;
		if (domain == LANE_LAND && m->land[device].handle) {
			*ret_key = m->land[device].key;
			r = 0;
		} else if (domain == LANE_SERVE && m->serve[device].handle) {
			*ret_key = m->serve[device].key;
			r = 0;
		}
	}
	pthread_mutex_unlock(&memories.lock);
	return r;
}

/* A job whose caller waits for it. */
struct waited {
	struct pool_timer job;
	struct lane_memory *memory;
	bool add;
	int r;
	pthread_mutex_t lock;
	pthread_cond_t done;
	bool is_done;
};

static int memory_add(struct lane_memory *m)
{
	if (memories.n == LANE_MEMORIES_MAX)
		return -ENOSPC;
	list_for_each (node, &devices)
		(void)memory_register(
			list_entry(node, struct verbs_device, link), m); /* see lane_ops.add */
	pthread_mutex_lock(&memories.lock);
	memories.n++;
	list_push_back(&memories.all, &m->link);
	pthread_mutex_unlock(&memories.lock);
	return 0;
}

static void memory_remove(struct lane_memory *m)
{
	pthread_mutex_lock(&memories.lock);
	memories.n--;
	list_remove(&m->link);
	pthread_mutex_unlock(&memories.lock);
	list_for_each (node, &devices)
		memory_deregister(list_entry(node, struct verbs_device, link), m);
}

static void run_waited(struct pool_job *job)
{
	struct waited *w = container_of(job, struct waited, job.job);
	int r = 0;

	if (w->add)
		r = memory_add(w->memory);
	else
		memory_remove(w->memory);
	pthread_mutex_lock(&w->lock);
	w->r = r;
	w->is_done = true;
	pthread_cond_signal(&w->done);
	pthread_mutex_unlock(&w->lock);
}

static int memory_job(struct lane_memory *memory, bool add)
{
	struct waited w = { .job.job.run = run_waited,
		.memory = memory,
		.add = add,
		.lock = PTHREAD_MUTEX_INITIALIZER,
		.done = PTHREAD_COND_INITIALIZER };

	pool_timer_start(verbs_pool, &w.job, 0);
	pthread_mutex_lock(&w.lock);
	while (!w.is_done)
		pthread_cond_wait(&w.done, &w.lock);
	pthread_mutex_unlock(&w.lock);
	pthread_mutex_destroy(&w.lock);
	pthread_cond_destroy(&w.done);
	return w.r;
}

int verbs_memory_add(struct lane_memory *memory)
{
	list_init(&memory->link);
	return memory_job(memory, true);
}

void verbs_memory_remove(struct lane_memory *memory)
{
	(void)memory_job(memory, false); /* never fails */
}

/* ---- devices --------------------------------------------------------------------------------- */

static void device_free(struct verbs_device *d)
{
	list_for_each (node, &memories.all)
		memory_deregister(d, list_entry(node, struct lane_memory, link));
	/* Of what fails here nothing can be repaired: the kernel frees all with the context. */
	if (d->land)
		(void)ibv_dealloc_pd(d->land);
	if (d->serve)
		(void)ibv_dealloc_pd(d->serve);
	if (d->context)
		(void)ibv_close_device(d->context);
	list_remove(&d->link);
	free(d);
}

static unsigned int index_unused(void)
{
	unsigned int used = 0;

	list_for_each (node, &devices)
		used |= 1u << list_entry(node, struct verbs_device, link)->index;
	for (unsigned int i = 0; i < LANE_DEVICES_MAX; i++)
		if (!(used & 1u << i))
			return i;
	return LANE_DEVICES_MAX;
}

static bool device_known(const char *name)
{
	list_for_each (node, &devices)
		if (strcmp(list_entry(node, struct verbs_device, link)->name, name) == 0)
			return true;
	return false;
}

static bool device_selected(const char *name)
{
	const char *at = verbs_options.devices;
	size_t len = strlen(name);

	while (at && *at) {
		size_t n = strcspn(at, ",");

		if (n == len && memcmp(at, name, n) == 0)
			return true;
		at += n + (at[n] == ',');
	}
	return !verbs_options.devices;
}

bool verbs_gid(const struct sockaddr_storage *address, union ibv_gid *ret_gid)
{
	const struct sockaddr_in6 *six = (const struct sockaddr_in6 *)address;
	const struct sockaddr_in *four = (const struct sockaddr_in *)address;

	memset(ret_gid, 0, sizeof(*ret_gid));
	if (address->ss_family == AF_INET6) {
		memcpy(ret_gid->raw, &six->sin6_addr, sizeof(ret_gid->raw));
		return true;
	}
	ret_gid->raw[10] = ret_gid->raw[11] = 0xff;
	memcpy(ret_gid->raw + 12, &four->sin_addr, 4);
	return address->ss_family == AF_INET;
}

/* The entry of the device's table with the address. */
static bool device_gid(
	struct ibv_context *context, const union ibv_gid *gid, struct ibv_gid_entry *ret_entry)
{
	struct ibv_gid_entry *entries = calloc(GIDS_MAX, sizeof(*entries));
	ssize_t n = entries ? ibv_query_gid_table(context, entries, GIDS_MAX, 0) : 0;
	bool found = false;

	for (ssize_t i = 0; i < n; i++) {
		const struct ibv_gid_entry *e = &entries[i];

		/* Both ends must choose the same: of several none but RoCE v2 is chosen, unless it is named. */
		if (e->gid_index > UINT8_MAX ||
			(e->gid_type != IBV_GID_TYPE_ROCE_V2 && verbs_options.gid_index < 0) ||
			memcmp(e->gid.raw, gid->raw, sizeof(gid->raw)) != 0)
			continue;
		if (verbs_options.gid_index >= 0 &&
			e->gid_index != (uint32_t)verbs_options.gid_index)
			continue;
		*ret_entry = *e;
		found = true;
	}
	free(entries);
	return found;
}

/* Keeps the context, or closes it. */
static struct verbs_device *device_new(struct ibv_context *context)
{
	struct verbs_device *d = calloc(1, sizeof(*d));
	int flags;

	if (!d) {
		(void)ibv_close_device(context);
		return NULL;
	}
	list_init(&d->link);
	list_init(&d->ports);
	list_init(&d->lanes);
	list_init(&d->unfenced);
	d->context = context;
	d->index = index_unused();
	(void)snprintf(d->name, sizeof(d->name), "%s", ibv_get_device_name(context->device));
	(void)snprintf(
		d->node, sizeof(d->node), "/dev/infiniband/%.32s", context->device->dev_name);
	d->land = ibv_alloc_pd(d->context);
	d->serve = ibv_alloc_pd(d->context);
	if (!d->land || !d->serve || ibv_query_device(d->context, &d->limits) != 0) {
		log_debug("rdma device refused", "device=%s error=%s", d->name,
			err_name(err_errno()));
		device_free(d);
		return NULL;
	}
	flags = fcntl(d->context->async_fd, F_GETFL);
	(void)fcntl(
		d->context->async_fd, F_SETFL, flags | O_NONBLOCK); /* of a descriptor of ours */
	list_push_back(&devices, &d->link);
	log_debug("rdma device open", "device=%s", d->name);
	periodic_poke(&watch_work);
	return d;
}

/* Opens the device that has the address, and no other one. *ret_any: there are devices. */
static struct verbs_device *devices_scan(
	const union ibv_gid *gid, struct ibv_gid_entry *ret_entry, bool *ret_any)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct verbs_device *found = NULL;

	*ret_any = list && list[0];
	for (unsigned int i = 0; list && list[i] && !found; i++) {
		const char *name = ibv_get_device_name(list[i]);
		struct ibv_context *context;

		if (!device_selected(name) || device_known(name) ||
			index_unused() == LANE_DEVICES_MAX)
			continue;
		context = ibv_open_device(list[i]);
		if (context && device_gid(context, gid, ret_entry))
			found = device_new(context);
		else if (context)
			(void)ibv_close_device(context);
	}
	if (list)
		ibv_free_device_list(list);
	return found;
}

static struct verbs_device *device_of(const union ibv_gid *gid, struct ibv_gid_entry *ret_entry)
{
	list_for_each (node, &devices) {
		struct verbs_device *d = list_entry(node, struct verbs_device, link);

		if (!d->gone && device_gid(d->context, gid, ret_entry))
			return d;
	}
	return NULL;
}

enum lane_cause verbs_device_find(const struct sockaddr_storage *local,
	struct verbs_device **ret_device, uint8_t *ret_port, uint8_t *ret_gid_index,
	struct lane_end *own)
{
	struct ibv_gid_entry entry;
	struct ibv_port_attr port;
	struct verbs_device *d;
	union ibv_gid gid;
	bool any = true;

	if (!verbs_gid(local, &gid))
		return LANE_ADDRESS_CAUSE;
	d = device_of(&gid, &entry);
	if (!d)
		d = devices_scan(&gid, &entry, &any);
	if (!d)
		return any ? LANE_ADDRESS_CAUSE : LANE_DEVICE_CAUSE;
	if (!memory_register_all(d))
		return LANE_MEMORY_CAUSE;
	if (ibv_query_port(d->context, (uint8_t)entry.port_num, &port) != 0 ||
		port.state != IBV_PORT_ACTIVE)
		return LANE_PORT_CAUSE;
	memcpy(own->gid, gid.raw, sizeof(own->gid));
	own->mtu = (uint8_t)port.active_mtu;
	*ret_port = (uint8_t)entry.port_num;
	*ret_gid_index = (uint8_t)entry.gid_index;
	*ret_device = d;
	return LANE_WELL;
}

void verbs_device_done(struct verbs_device *d)
{
	struct list unfenced = LIST_INIT(unfenced);
	struct list *node;

	if (!d->gone || !list_empty(&d->lanes) || !list_empty(&d->ports))
		return;
	log_debug("rdma device released", "device=%s", d->name);
	list_splice_back(&unfenced, &d->unfenced);
	device_free(d); /* returns when the kernel has destroyed all that was left */
	while ((node = list_pop_front(&unfenced)) != NULL)
		verbs_end_job(list_entry(node, struct verbs_lane, device_link), LANE_WELL);
}

/* ---- what becomes of a device ---------------------------------------------------------------- */

static void device_lose(struct verbs_device *d, unsigned int port, enum lane_cause cause)
{
	list_for_each (node, &d->lanes) {
		struct verbs_lane *v = list_entry(node, struct verbs_lane, device_link);

		if (port == 0 || v->port_number == port)
			verbs_lane_lose(v, cause);
	}
}

static void device_gone(struct verbs_device *d)
{
	if (d->gone)
		return;
	log_debug("rdma device removed", "device=%s", d->name);
	d->gone = true;
	device_lose(d, 0, LANE_REMOVED_CAUSE);
}

void verbs_device_unfenced(struct verbs_lane *v)
{
	struct verbs_device *d = v->device;

	list_remove(&v->device_link);
	list_push_back(&d->unfenced, &v->device_link);
	device_gone(d);
	verbs_device_done(d);
}

/* Of lanes whose address is no longer the port's. */
static void device_check_gids(struct verbs_device *d)
{
	list_for_each (node, &d->lanes) {
		struct verbs_lane *v = list_entry(node, struct verbs_lane, device_link);
		union ibv_gid gid;

		if (ibv_query_gid(d->context, v->port_number, v->gid_index, &gid) != 0 ||
			memcmp(gid.raw, v->own.gid, sizeof(v->own.gid)) != 0)
			verbs_lane_lose(v, LANE_PORT_CAUSE);
	}
}

static void device_event(struct verbs_device *d, const struct ibv_async_event *event)
{
	log_debug("rdma device event", "device=%s event=\"%s\"", d->name,
		ibv_event_type_str(event->event_type));
	switch ((int)event->event_type) { /* most need nothing */
	case IBV_EVENT_DEVICE_FATAL:
		device_gone(d);
		break;
	case IBV_EVENT_PORT_ERR:
		device_lose(d, (unsigned int)event->element.port_num, LANE_PORT_CAUSE);
		break;
	case IBV_EVENT_GID_CHANGE:
		device_check_gids(d);
		break;
	case IBV_EVENT_CQ_ERR:
		device_lose(d, 0, LANE_LIMITS_CAUSE);
		break;
	case IBV_EVENT_QP_FATAL:
		verbs_lane_lose(event->element.qp->qp_context, LANE_WRITE_CAUSE);
		break;
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
		verbs_lane_lose(event->element.qp->qp_context, LANE_ACCESS_CAUSE);
		break;
	}
}

static uint64_t devices_watch(void *arg)
{
	(void)arg;
	list_for_each_safe (node, &devices) {
		struct verbs_device *d = list_entry(node, struct verbs_device, link);
		struct ibv_async_event event;

		while (ibv_get_async_event(d->context, &event) == 0) {
			device_event(d, &event);
			ibv_ack_async_event(&event);
		}
		if (access(d->node, F_OK) != 0 && errno == ENOENT)
			device_gone(d);
		verbs_device_done(d);
	}
	return list_empty(&devices) ? PERIODIC_IDLE : CLOCK_SECOND;
}

int lane_verbs_start(const struct lane_verbs_options *options)
{
	verbs_options = *options;
	/* Without it a removed card is never released. */
	// NOLINTNEXTLINE(concurrency-mt-unsafe): before other threads
	(void)setenv("RDMAV_ALLOW_DISASSOC_DESTROY", "1", 0);
	verbs_pool = pool_new("rdma", 1, LIMIT_POOL_QUEUE);
	if (!verbs_pool)
		return -ENOMEM;
	watch_work = (struct periodic_work){ .name = "rdma", .run = devices_watch };
	periodic_start(verbs_pool, &watch_work, PERIODIC_IDLE);
	return 0;
}

void lane_verbs_stop(void)
{
	periodic_stop(&watch_work);
	pool_free(verbs_pool);
	verbs_pool = NULL;
	list_for_each_safe (node, &devices) {
		struct verbs_device *d = list_entry(node, struct verbs_device, link);

		ensure(list_empty(&d->ports));
		device_free(d);
	}
}
