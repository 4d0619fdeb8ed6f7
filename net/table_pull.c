/* A table file in pieces. See table_pull.h. */
#include "net/table_pull.h"
#include "base/clock.h"
#include "base/file.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct job;

struct piece {
	struct rpc_call call;
	struct job *job;
	uint64_t offset;
	int status;
	bool out;  /* asked for, and not yet written; the job's thread's */
	bool done; /* under the lock */
};

struct job {
	const struct table_pull *pull;
	int fd;
	uint64_t size; /* 0: not known yet */
	uint64_t next; /* first byte not asked for */
	uint32_t out;
	pthread_mutex_t lock;
	pthread_cond_t ended;
	struct piece pieces[TABLE_PULL_PIECES];
};

static void on_done(struct rpc_call *call, int status)
{
	struct piece *piece = container_of(call, struct piece, call);
	struct job *job = piece->job;

	pthread_mutex_lock(&job->lock);
	piece->status = status;
	piece->done = true;
	pthread_cond_signal(&job->ended); /* under the lock: the job may be gone after it */
	pthread_mutex_unlock(&job->lock);
}

static void ask(struct job *job, struct piece *piece)
{
	const struct table_pull *pull = job->pull;

	piece->offset = job->next;
	piece->done = false;
	piece->out = true;
	piece->job = job;
	piece->call = (struct rpc_call){
		.frame = { .op = FRAME_TABLE,
			.volume = pull->volume,
			.lineage = pull->lineage,
			.generation = pull->generation,
			.offset = job->next },
		.payload = NET_PAYLOAD_NONE,
		.deadline_ns = clock_mono_ns() + pull->patience_ns,
		.resend = true,
		.on_done = on_done,
		.reply_fd = -1,
	};
	job->next += LIMIT_PAYLOAD_BYTES;
	job->out++;
	if (pull->call)
		pull->call(pull->arg, &piece->call);
	else
		rpc_call(pull->peer, &piece->call);
}

/* Room first: a disk that is full is found out before the bytes have come. */
static int take_size(struct job *job, uint64_t size, struct err *e)
{
	int r = 0;

	if (size == 0 || size > TABLE_PULL_MAX)
		return err_set(e, -EBADMSG,
			"the peer offers an object table of %llu bytes, which is too large; use "
			"the same version on both sides",
			(unsigned long long)size);
	if (fallocate(job->fd, 0, 0, (off_t)size) != 0)
		r = err_errno();
	if (r == -EOPNOTSUPP)
		r = ftruncate(job->fd, (off_t)size) == 0 ? 0 : err_errno();
	if (r < 0)
		return err_set(e, r,
			"out of space for an object table of %llu bytes: %s: free some on the disk "
			"of the cache",
			(unsigned long long)size, err_str(r));
	job->size = size;
	return 0;
}

static int take(struct job *job, const struct piece *piece, struct err *e)
{
	const struct frame *reply = &piece->call.reply;
	int r = 0;

	if (piece->status < 0 && piece->call.reply_payload)
		return err_set(e, piece->status, "%s", (const char *)piece->call.reply_payload);
	if (piece->status < 0)
		return err_set(e, piece->status, "the object table was not received: %s",
			err_str(piece->status));
	if (job->size == 0)
		r = take_size(job, reply->extent, e);
	if (r < 0)
		return r;
	if (reply->extent != job->size || reply->offset != piece->offset ||
		piece->offset >= job->size ||
		reply->payload != min(job->size - piece->offset, (uint64_t)LIMIT_PAYLOAD_BYTES))
		return err_set(e, -EBADMSG,
			"unexpected piece of an object table; use the same version on both sides");
	r = file_pwrite_exact(job->fd, piece->call.reply_payload, reply->payload, piece->offset);
	return r < 0 ? err_set(e, r, "an object table cannot be written: %s", err_str(r)) : 0;
}

/* One that has ended; there is one out. */
static struct piece *wait_one(struct job *job)
{
	struct piece *found = NULL;

	pthread_mutex_lock(&job->lock);
	for (;;) {
		for (uint32_t i = 0; i < TABLE_PULL_PIECES && !found; i++)
			if (job->pieces[i].out && job->pieces[i].done)
				found = &job->pieces[i];
		if (found)
			break;
		pthread_cond_wait(&job->ended, &job->lock);
	}
	pthread_mutex_unlock(&job->lock);
	return found;
}

/* The first alone: it says how many there are. */
static void ask_more(struct job *job)
{
	uint32_t most = job->size ? TABLE_PULL_PIECES : 1;

	for (uint32_t i = 0; i < TABLE_PULL_PIECES && job->out < most; i++)
		if (!job->pieces[i].out && (job->size == 0 || job->next < job->size))
			ask(job, &job->pieces[i]);
}

int table_pull(const struct table_pull *pull, int fd, struct err *e)
{
	struct job *job = calloc(1, sizeof(*job));
	int r = 0;

	if (!job)
		return err_set(e, -ENOMEM, "no memory for an object table");
	job->pull = pull;
	job->fd = fd;
	pthread_mutex_init(&job->lock, NULL);
	pthread_cond_init(&job->ended, NULL);
	ask_more(job);
	while (job->out > 0) { /* also after a failure: the calls are the peer's until they end */
		struct piece *piece = wait_one(job);

		if (r == 0)
			r = take(job, piece, e);
		rpc_call_release(&piece->call);
		piece->out = false;
		job->out--;
		if (r == 0)
			ask_more(job);
	}
	pthread_cond_destroy(&job->ended);
	pthread_mutex_destroy(&job->lock);
	free(job);
	return r;
}

int table_pull_file(const char *dir, int *ret_fd, struct err *e)
{
	int fd = dir ? open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600) : -1;

	if (fd < 0)
		fd = memfd_create("granary-table", MFD_CLOEXEC);
	if (fd < 0)
		return err_set(e, err_errno(), "no file for an object table: %m");
	*ret_fd = fd;
	return 0;
}
