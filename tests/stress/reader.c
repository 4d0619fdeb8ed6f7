/* The readers of the stress test. See stress.h. */
#include "tests/stress/stress.h"
#include "base/cleanup.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void stress_fail(struct stress *s, const char *what, const struct err *e)
{
	if (atomic_exchange(&s->failed, true))
		return;
	(void)fprintf(stderr, "stress: FAILED, seed base %" PRIu64 ": %s%s%s\n", s->model.seed,
		what, e ? ": " : "", e ? e->text : "");
}

void stress_queue(struct stress *s, const struct task *task)
{
	pthread_mutex_lock(&s->lock);
	while (s->queued == QUEUE && !atomic_load(&s->failed))
		pthread_cond_wait(&s->changed, &s->lock);
	if (s->queued < QUEUE)
		s->queue[(s->first + s->queued++) % QUEUE] = *task;
	pthread_cond_broadcast(&s->changed);
	pthread_mutex_unlock(&s->lock);
}

void stress_wait_idle(struct stress *s)
{
	pthread_mutex_lock(&s->lock);
	while (s->queued || s->busy)
		pthread_cond_wait(&s->changed, &s->lock);
	pthread_mutex_unlock(&s->lock);
}

/* A client_read() that is waited for. */
struct waited {
	struct client_read read;
	pthread_mutex_t lock;
	pthread_cond_t ended;
	bool done;
	int status;
	uint8_t *out;
};

static void on_done(struct client_read *read, int status, const void *data)
{
	struct waited *w = read->arg;

	if (status == 0)
		memcpy(w->out, data, read->length);
	pthread_mutex_lock(&w->lock);
	w->status = status;
	w->done = true;
	pthread_cond_signal(&w->ended);
	pthread_mutex_unlock(&w->lock);
}

static int read_range(struct stress *s, struct client_volume *volume, uint64_t offset,
	uint32_t length, uint8_t *out)
{
	struct waited w = { .read = { .offset = offset, .length = length, .on_done = on_done },
		.out = out };
	int r;

	client_note_read(volume, offset, length);
	r = client_read_local(volume, offset, length, out);
	if (r != -EAGAIN) {
		atomic_fetch_add(&s->local, r == 0);
		return r;
	}
	w.read.arg = &w;
	pthread_mutex_init(&w.lock, NULL);
	pthread_cond_init(&w.ended, NULL);
	client_read(volume, &w.read);
	pthread_mutex_lock(&w.lock);
	while (!w.done)
		pthread_cond_wait(&w.ended, &w.lock);
	pthread_mutex_unlock(&w.lock);
	pthread_cond_destroy(&w.ended);
	pthread_mutex_destroy(&w.lock);
	return w.status;
}

struct reader {
	struct stress *s;
	uint8_t *got;
	uint8_t *want;
};

/* One range of at most 1 MiB of an object: its bytes, and zeros behind its end. */
static bool check_range(struct reader *r, const struct generation *g, uint32_t object,
	const struct table_row *row, uint64_t from, uint32_t length)
{
	struct stress *s = r->s;
	uint32_t version = g->version[object];
	char what[160];
	int status;

	memset(r->got, 0xdb, length);
	status = read_range(s, g->volume, row->offset + from, length, r->got);
	atomic_fetch_add(&s->reads, 1);
	if (status == -ESTALE && atomic_load(&s->model.origin_version[object]) != version) {
		atomic_fetch_add(&s->stale, 1);
		return false;
	}
	if (status == 0) {
		atomic_fetch_add(&s->bytes, length);
		model_bytes(&s->model, object, version, from, length, r->want);
		if (memcmp(r->got, r->want, length) == 0)
			return true;
	}
	(void)snprintf(what, sizeof(what),
		"object %u version %u of %" PRIu64 " bytes, %u bytes from %" PRIu64 ": %s", object,
		version, row->size, length, from, status ? err_name(status) : "WRONG BYTES");
	stress_fail(s, what, NULL);
	return false;
}

static void run_task(struct reader *r, const struct generation *g, const struct task *task)
{
	_cleanup_free_ struct table_row *row = malloc(sizeof(*row));
	uint64_t blocks;
	uint64_t from;
	uint64_t end;
	char key[MODEL_KEY];
	int found;

	ensure(row);
	model_key(task->object, key);
	found = table_find_key(client_volume_table(g->volume), key, (uint32_t)strlen(key), row);
	if ((found == 0) != (g->version[task->object] != 0)) {
		stress_fail(r->s, "an object is there or not against the model", NULL);
		return;
	}
	if (found < 0)
		return;
	if (row->size != model_size(&r->s->model, task->object, g->version[task->object])) {
		stress_fail(r->s, "an object has another size than the model", NULL);
		return;
	}
	blocks = (row->size + BLOCK_BYTES - 1) / BLOCK_BYTES;
	from = task->whole ? 0 : task->where % blocks * BLOCK_BYTES;
	end = blocks * BLOCK_BYTES;
	if (!task->whole)
		end = min(end, from + (1 + (task->where >> 32) % 40) * BLOCK_BYTES);
	while (from < end && !atomic_load(&r->s->failed)) {
		uint32_t length = (uint32_t)min(end - from, (uint64_t)UNIT_BYTES);

		if (!check_range(r, g, task->object, row, from, length))
			return;
		from += length;
	}
}

static struct generation *take_task(struct stress *s, struct task *ret_task)
{
	struct generation *g = NULL;

	pthread_mutex_lock(&s->lock);
	while (s->queued == 0 && !s->ending)
		pthread_cond_wait(&s->changed, &s->lock);
	if (s->queued) {
		*ret_task = s->queue[s->first];
		s->first = (s->first + 1) % QUEUE;
		s->queued--;
		s->busy++;
		g = s->generations[ret_task->back] ? s->generations[ret_task->back]
						   : s->generations[0];
		g->refs++;
		pthread_cond_broadcast(&s->changed);
	}
	pthread_mutex_unlock(&s->lock);
	return g;
}

void *stress_reader(void *arg)
{
	struct stress *s = arg;
	struct reader r = {
		.s = s, .got = aligned_alloc(BLOCK_BYTES, UNIT_BYTES), .want = malloc(UNIT_BYTES)
	};
	struct generation *g;
	struct task task;

	ensure(r.got && r.want);
	while ((g = take_task(s, &task)) != NULL) {
		if (!atomic_load(&s->failed))
			run_task(&r, g, &task);
		pthread_mutex_lock(&s->lock);
		g->refs--;
		s->busy--;
		pthread_cond_broadcast(&s->changed);
		pthread_mutex_unlock(&s->lock);
	}
	free(r.got);
	free(r.want);
	return NULL;
}
