/* Tables without a descriptor. See far_table.h. */
#include "cacheworker/far_table.h"
#include "cacheworker/kept.h"
#include "base/clock.h"
#include "base/log.h"
#include "net/table_pull.h"
#include "proto/granary.pb-c.h"

#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

/* A thousand workers may wait for one master. */
#define PIECE_PATIENCE (300 * CLOCK_SECOND)

/* Instead of rpc_call(): once the sources are closed no call begins (cacheworker/master_call.h). */
static void call_master(void *arg, struct rpc_call *call)
{
	struct worker *w = arg;
	bool closing;

	pthread_mutex_lock(&w->sources.lock);
	closing = w->sources.closing;
	if (!closing)
		rpc_call(w->master, call);
	pthread_mutex_unlock(&w->sources.lock);
	if (closing)
		call->on_done(call, -ECANCELED);
}

static int take_id(const Granary__Generation *message, struct generation_id *ret_id, struct err *e)
{
	struct generation_id id = { .lineage = message->lineage,
		.generation = message->generation };

	if (message->volume.len != VOLUME_ID_LEN || message->hash.len != SHA256_BYTES)
		return err_set(e, -EBADMSG,
			"the master's answer names no object table; use the same version on both "
			"sides");
	memcpy(id.volume.bytes, message->volume.data, VOLUME_ID_LEN);
	memcpy(id.hash, message->hash.data, SHA256_BYTES);
	*ret_id = id;
	return 0;
}

static bool same_id(const struct table *table, const struct generation_id *id)
{
	const struct generation_id *its = &table_info(table)->id;

	return its->generation == id->generation && its->lineage == id->lineage &&
	       volume_id_equal(&its->volume, &id->volume) &&
	       memcmp(its->hash, id->hash, SHA256_BYTES) == 0;
}

/* Writing does not wait for the disk, so it is checked as a whole. */
static int take_kept(struct worker *w, const struct generation_id *id)
{
	struct table *table = NULL;
	int fd = -ENOENT;

	if (kept_table_open(w, &id->volume, id->lineage, &table) < 0)
		return -ENOENT;
	if (same_id(table, id) && table_verify(table) == 0)
		fd = table_dup(table);
	table_unref(table);
	return fd;
}

/* The hash in the answer and that in the file's head, which covers the rest. */
static int check(const struct generation_id *id, int fd, struct err *e)
{
	struct table *table = NULL;
	int own = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	bool same;
	int r;

	if (own < 0)
		return err_set(e, err_errno(), "no descriptor for an object table: %m");
	r = table_open(own, &table, e);
	if (r < 0)
		return r;
	same = same_id(table, id);
	table_unref(table);
	return same ? 0
		    : err_set(e, -EBADMSG,
			      "the master sent another object table than it announced: restart the "
			      "master");
}

static int pull(struct worker *w, const struct generation_id *id, int *ret_fd, struct err *e)
{
	const struct table_pull ask = { .volume = id->volume,
		.lineage = id->lineage,
		.generation = id->generation,
		.patience_ns = PIECE_PATIENCE,
		.call = call_master,
		.arg = w };
	uint64_t began = clock_mono_ns();
	int fd = -1;
	int r = table_pull_file(w->config->tier, &fd, e);

	if (r < 0)
		return r;
	r = table_pull(&ask, fd, e);
	if (r == 0)
		r = check(id, fd, e);
	if (r < 0) {
		(void)close(fd); /* of no use */
		return r;
	}
	log_info("object table pulled", "generation=%" PRIu64 " ms=%llu", id->generation,
		(unsigned long long)((clock_mono_ns() - began) / CLOCK_MS));
	*ret_fd = fd;
	return 0;
}

int far_table(
	struct worker *w, const struct Granary__Generation *message, int *ret_fd, struct err *e)
{
	struct generation_id id = { 0 };
	int r = take_id(message, &id, e);
	int fd;

	if (r < 0)
		return r;
	fd = take_kept(w, &id);
	if (fd < 0)
		return pull(w, &id, ret_fd, e);
	*ret_fd = fd;
	return 0;
}
