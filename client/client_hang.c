/* Answers that are descriptors. See client_hang.h. */
#include "client/client_hang.h"
#include "client/client_internal.h"
#include "client/client_local.h"
#include "proto/held.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define ANSWER_BYTES (CHUNK_BITMAP_BYTES + HELD_ENTRY_BYTES)

/* Freed by whoever of the two is the last. It counts as one of the volume's pending reads. */
struct reading {
	struct pool_job job;
	struct client_volume *volume;
	struct chunk_id id;
	int fd;
	uint64_t extent;
	struct view_peer *owner; /* whose answer it is */
	uint8_t answer[ANSWER_BYTES];
	uint64_t from;
	uint32_t length;
	uint8_t *data; /* aligned */
	pthread_mutex_t lock;
	pthread_cond_t ended;
	bool done; /* under the lock */
	bool left;
	int result;
};

static void reading_free(struct reading *r)
{
	struct client_volume *volume = r->volume;
	struct client *client = volume->client;

	if (r->fd >= 0)
		(void)close(r->fd); /* read only */
	pthread_cond_destroy(&r->ended);
	pthread_mutex_destroy(&r->lock);
	free(r->data);
	free(r);
	pthread_mutex_lock(&client->lock);
	volume->pending--;
	pthread_cond_broadcast(&client->idle);
	pthread_mutex_unlock(&client->lock);
}

static int install_and_read(struct reading *r)
{
	struct client_chunk *chunk;
	int fd = r->fd;
	int result;

	r->fd = -1;
	result = client_chunks_install(
		r->volume->client->chunks, &r->id, fd, r->extent, r->answer, &chunk);
	if (result < 0)
		return result;
	client_chunk_held(r->volume->client->chunks, chunk, r->owner,
		held_number(held_get(r->answer + CHUNK_BITMAP_BYTES, 0)));
	result = client_local_read(r->volume, r->from, r->length, r->data);
	client_chunk_unref(chunk);
	return result;
}

static void run_reading(struct pool_job *job)
{
	struct reading *r = container_of(job, struct reading, job);
	int result = install_and_read(r);
	bool left;

	pthread_mutex_lock(&r->lock);
	r->done = true;
	r->result = result;
	left = r->left;
	pthread_cond_signal(&r->ended);
	pthread_mutex_unlock(&r->lock);
	if (left) {
		client_local_hangs(r->volume, false);
		reading_free(r);
	}
}

static struct reading *reading_new(struct client_op *op, uint64_t from, uint32_t length)
{
	struct reading *r = calloc(1, sizeof(*r));
	pthread_condattr_t attr;

	if (!r)
		return NULL;
	r->data = aligned_alloc(BLOCK_BYTES, length);
	if (!r->data) {
		free(r);
		return NULL;
	}
	pthread_mutex_init(&r->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&r->ended, &attr);
	pthread_condattr_destroy(&attr);
	r->job.run = run_reading;
	r->volume = op->volume;
	r->id = client_volume_chunk(op->volume, client_plan_part(op)->offset);
	r->fd = op->fd;
	op->fd = -1;
	r->extent = op->call.reply.extent;
	r->owner = op->owner;
	memcpy(r->answer, op->payload, sizeof(r->answer));
	r->from = from;
	r->length = length;
	pthread_mutex_lock(&op->volume->client->lock);
	op->volume->pending++;
	pthread_mutex_unlock(&op->volume->client->lock);
	return r;
}

/* True when it ended in time; else it is left alone, and said to hang. */
static bool wait_or_leave(struct reading *r)
{
	uint64_t until = clock_mono_ns() + CLIENT_HANG_NS;
	struct timespec deadline = { .tv_sec = (time_t)(until / CLOCK_SECOND),
		.tv_nsec = (long)(until % CLOCK_SECOND) };
	bool done;

	pthread_mutex_lock(&r->lock);
	while (!r->done && clock_mono_ns() < until)
		(void)pthread_cond_timedwait(&r->ended, &r->lock, &deadline);
	done = r->done;
	if (!done) { /* before it can say that it has returned */
		r->left = true;
		client_local_hangs(r->volume, true);
	}
	pthread_mutex_unlock(&r->lock);
	return done;
}

int client_hang_read(struct client_op *op, uint64_t from, uint32_t length, void *out)
{
	struct client *client = client_op_client(op);
	struct reading *r;
	int result;

	if (atomic_load(&client->hanging) > 0)
		return -EAGAIN;
	r = reading_new(op, from, length);
	if (!r)
		return -ENOMEM;
	result = pool_submit(client->disk, &r->job);
	if (result == 0 && !wait_or_leave(r))
		return -EAGAIN;
	if (result == 0)
		result = r->result;
	if (result == 0)
		memcpy(out, r->data, length);
	reading_free(r);
	return result;
}
