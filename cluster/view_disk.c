/*
 * The table on disk, DIR/slots: what a process knows of the cluster before it has heard of the master.
 *
 *	 0  "GRNSLOTS"        8  version u32     12  0 u32
 *	16  length u64       24  SlotTable (proto/granary.proto), whole     then  XXH3 u64 of all before
 *
 * Little-endian. Damaged, or of another version: as if it were not there.
 */
#include "base/cleanup.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/clock.h"
#include "cluster/view_internal.h"

#include <endian.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VERSION      1u
#define HEAD_BYTES   24u
#define SUM_BYTES    8u
#define FILE_MAX     (4u << 20)
#define SAVE_DELAY   CLOCK_SECOND
#define MEMBER_TEXTS (CLUSTER_ADDRESSES)

static const uint8_t magic[8] = { 'G', 'R', 'N', 'S', 'L', 'O', 'T', 'S' };

/* ---- reading --------------------------------------------------------------------------------- */

static uint64_t load_le64(const uint8_t *in)
{
	uint64_t v;

	memcpy(&v, in, sizeof(v));
	return le64toh(v);
}

static uint32_t load_le32(const uint8_t *in)
{
	uint32_t v;

	memcpy(&v, in, sizeof(v));
	return le32toh(v);
}

static Granary__SlotTable *unpack(const uint8_t *data, size_t len)
{
	if (len < HEAD_BYTES + SUM_BYTES || memcmp(data, magic, sizeof(magic)) != 0 ||
		load_le32(data + 8) != VERSION ||
		load_le64(data + 16) != len - HEAD_BYTES - SUM_BYTES ||
		load_le64(data + len - SUM_BYTES) != hash_xxh3(data, len - SUM_BYTES, 0))
		return NULL;
	return granary__slot_table__unpack(NULL, len - HEAD_BYTES - SUM_BYTES, data + HEAD_BYTES);
}

static int path_of(const struct view *view, char path[PATH_MAX])
{
	return snprintf(path, PATH_MAX, "%s/slots", view->dir) < PATH_MAX ? 0 : -ENAMETOOLONG;
}

int view_disk_load(struct view *view, struct err *e)
{
	_cleanup_(buf_release) struct buf b = BUF_INIT(FILE_MAX);
	Granary__SlotTable *message;
	char path[PATH_MAX];
	bool changed;
	int r = path_of(view, path);

	if (r == 0)
		r = file_read_all(path, &b);
	if (r == -ENOENT)
		return 0;
	if (r == -ENOMEM)
		return err_set(e, r, "no memory for the slot table");
	message = r == 0 ? unpack((const uint8_t *)b.data, b.len) : NULL;
	r = message ? view_take(view, message, &changed, e) : -EBADMSG;
	if (message)
		granary__slot_table__free_unpacked(message, NULL);
	if (r == -ENOMEM)
		return r;
	if (r < 0)
		log_info("stored slot table not used",
			"file=\"%s\" cause=%s next=\"requested from the master\"", path,
			err_name(r));
	return 0;
}

/* ---- writing --------------------------------------------------------------------------------- */

/* A member as a message, with the memory that it points to. */
struct packed_member {
	Granary__Worker worker;
	struct member member;
	char *texts[MEMBER_TEXTS];
};

static void pack_member(struct packed_member *p, const struct member *m)
{
	Granary__Worker *w = &p->worker;

	p->member = *m;
	granary__worker__init(w);
	w->has_number = w->has_id = w->has_weight = w->has_domain = w->has_state = 1;
	w->number = m->number;
	w->id = m->id;
	w->weight = m->weight;
	w->domain = m->domain;
	w->state = m->state;
	for (uint32_t i = 0; i < m->n_addresses; i++)
		p->texts[i] = p->member.addresses[i];
	w->addresses = p->texts;
	w->n_addresses = m->n_addresses;
	w->name = p->member.name;
	w->domain_name = p->member.domain_name;
	w->has_host = m->has_host;
	w->host = (ProtobufCBinaryData){ CLUSTER_HOST_BYTES, p->member.host };
}

static void pack_slots_locked(const struct view *view, uint8_t *out)
{
	for (uint32_t i = 0; i < PLACEMENT_SLOTS; i++) {
		struct placement_slot s = view_slot_of(view, i);
		uint16_t v[4] = { htole16(s.owner), htole16(s.previous), htole16(s.replicas[0]),
			htole16(s.replicas[1]) };

		memcpy(out + (size_t)i * sizeof(v), v, sizeof(v));
	}
}

/* The table and its members as they are now. */
static int copy_table(struct view *view, Granary__SlotTable *message, uint8_t *slots,
	struct packed_member **ret_members, Granary__Worker ***ret_workers)
{
	struct packed_member *members;
	Granary__Worker **workers;
	uint32_t n = 0;

	members = calloc(PLACEMENT_MAX, sizeof(*members));
	workers = calloc(PLACEMENT_MAX, sizeof(*workers));
	if (!members || !workers) {
		free(members);
		free(workers);
		return -ENOMEM;
	}
	pthread_mutex_lock(&view->lock);
	for (uint32_t i = 0; i < PLACEMENT_MAX; i++) {
		if (!view->members[i])
			continue;
		pack_member(&members[n], view->members[i]);
		workers[n] = &members[n].worker;
		n++;
	}
	pack_slots_locked(view, slots);
	message->epoch = view->epoch;
	message->sequence = view->sequence;
	message->slots_sequence = view->slots_sequence;
	view->unsaved = false;
	pthread_mutex_unlock(&view->lock);
	message->has_epoch = message->has_sequence = message->has_slots = 1;
	message->has_slots_sequence = 1;
	message->slots = (ProtobufCBinaryData){ PLACEMENT_SLOTS * 8ul, slots };
	message->workers = workers;
	message->n_workers = n;
	*ret_members = members;
	*ret_workers = workers;
	return 0;
}

static int write_message(const struct view *view, const Granary__SlotTable *message)
{
	uint64_t length = granary__slot_table__get_packed_size(message);
	size_t size = HEAD_BYTES + length + SUM_BYTES;
	_cleanup_free_ uint8_t *data = calloc(1, size);
	char path[PATH_MAX];
	uint64_t v = htole64(length);
	uint32_t version = htole32(VERSION);
	int r = path_of(view, path);

	if (!data)
		return -ENOMEM;
	if (r < 0)
		return r;
	memcpy(data, magic, sizeof(magic));
	memcpy(data + 8, &version, sizeof(version));
	memcpy(data + 16, &v, sizeof(v));
	granary__slot_table__pack(message, data + HEAD_BYTES);
	v = htole64(hash_xxh3(data, size - SUM_BYTES, 0));
	memcpy(data + size - SUM_BYTES, &v, sizeof(v));
	return file_write_atomic(path, data, size, 0600);
}

static void save(struct view *view)
{
	Granary__SlotTable message = GRANARY__SLOT_TABLE__INIT;
	_cleanup_free_ uint8_t *slots = malloc(PLACEMENT_SLOTS * 8ul);
	_cleanup_free_ struct packed_member *members = NULL;
	_cleanup_free_ Granary__Worker **workers = NULL;
	int r = slots ? copy_table(view, &message, slots, &members, &workers) : -ENOMEM;

	if (r == 0)
		r = write_message(view, &message);
	if (r < 0)
		LOG_LIMITED(LOG_WARN, "slot table not stored",
			"dir=\"%s\" error=%s next=\"a restart requests it from the master\"",
			view->dir, err_name(r));
}

static void run_save(struct pool_job *job)
{
	struct view *view = container_of(job, struct view, save_job);

	save(view);
	pthread_mutex_lock(&view->lock);
	view->saving = false;
	pthread_cond_broadcast(&view->changed);
	pthread_mutex_unlock(&view->lock);
}

static void on_save_timer(void *arg)
{
	struct view *view = arg;
	bool submit;
	bool later;

	view->save_timer = NULL;
	pthread_mutex_lock(&view->lock);
	submit = view->unsaved && !view->saving && !view->closing;
	later = view->saving && view->unsaved &&
		!view->closing; /* a slow disk has the last one yet */
	view->saving = view->saving || submit;
	pthread_mutex_unlock(&view->lock);
	if (later)
		view->save_timer = loop_timer_start(view->loop, SAVE_DELAY, on_save_timer, view);
	if (!submit)
		return;
	view->save_job.run = run_save;
	if (pool_submit(view->pool, &view->save_job) == 0)
		return;
	pthread_mutex_lock(&view->lock);
	view->saving = false;
	pthread_mutex_unlock(&view->lock);
}

void view_disk_dirty(struct view *view)
{
	if (!view->dir)
		return;
	pthread_mutex_lock(&view->lock);
	view->unsaved = true;
	pthread_mutex_unlock(&view->lock);
	if (!view->save_timer)
		view->save_timer = loop_timer_start(view->loop, SAVE_DELAY, on_save_timer, view);
}

void view_disk_stop(struct view *view)
{
	if (view->unsaved)
		save(view);
}
