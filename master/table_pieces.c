/* Table files in pieces. See table_pieces.h. */
#include "master/table_pieces.h"
#include "master/cuts.h"
#include "base/arena.h"
#include "base/cleanup.h"
#include "base/file.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PIECES_MAGIC 0x54504945u
#define ANSWER_BYTES LIMIT_PAYLOAD_BYTES

struct table_pieces {
	uint32_t magic;
	struct source_set *sources;
	struct pool *pool;
	pthread_mutex_t lock;
	struct list
		parked; /* under the lock: struct piece without a buffer, whose requests' priv they are */
	struct list moving; /* under the lock: those that have memory */
};

/* One request. Freed with its reply's buffer. */
struct piece {
	struct pool_job job;
	struct table_pieces *pieces;
	struct list link;            /* of those parked, or moving */
	struct rpc_request *request; /* until it is replied to */
	const struct rpc_conn *conn; /* its, to compare with */
	struct source_wait wait;
	struct frame reply;
	size_t length;
	int status;
	struct err e;
	void *buffer;
};

struct table_pieces *table_pieces_new(struct source_set *sources, struct pool *pool)
{
	struct table_pieces *pieces = calloc(1, sizeof(*pieces));

	if (!pieces)
		return NULL;
	pieces->magic = PIECES_MAGIC;
	pieces->sources = sources;
	pieces->pool = pool;
	pthread_mutex_init(&pieces->lock, NULL);
	list_init(&pieces->parked);
	list_init(&pieces->moving);
	return pieces;
}

void table_pieces_free(struct table_pieces *pieces)
{
	if (!pieces)
		return;
	CHECK_MAGIC(pieces, PIECES_MAGIC);
	ensure(list_empty(&pieces->parked) && list_empty(&pieces->moving));
	pthread_mutex_destroy(&pieces->lock);
	pieces->magic = 0;
	free(pieces);
}

static void pump(struct table_pieces *pieces);

static void piece_free(struct piece *piece)
{
	struct table_pieces *pieces = piece->pieces;

	pthread_mutex_lock(&pieces->lock);
	list_remove(&piece->link);
	pthread_mutex_unlock(&pieces->lock);
	free(piece->buffer);
	free(piece);
	arena_give(ARENA_REPLIES, ANSWER_BYTES);
}

/* The reply was taken, or given up. */
static void on_sent(void *arg)
{
	struct piece *piece = arg;
	struct table_pieces *pieces = piece->pieces;

	piece_free(piece);
	pump(pieces);
}

static void refuse(struct piece *piece)
{
	rpc_reply_err(piece->request, piece->status, &piece->e);
	piece_free(piece);
}

static void reply(struct piece *piece)
{
	struct net_payload payload = NET_PAYLOAD_NONE;

	payload.parts[0].data = piece->buffer;
	payload.parts[0].len = piece->length;
	payload.n = 1;
	payload.release = on_sent;
	payload.arg = piece;
	rpc_reply(piece->request, 0, &piece->reply, payload);
}

static int read_piece(struct piece *piece, int fd)
{
	uint64_t offset = piece->request->frame.offset;
	struct stat st;
	int r;

	if (fstat(fd, &st) != 0)
		return err_errno();
	if (offset >= (uint64_t)st.st_size)
		return err_set(&piece->e, -EINVAL,
			"byte %llu is beyond the end of the object table; use the same version on "
			"both sides",
			(unsigned long long)offset);
	piece->length = min((uint64_t)st.st_size - offset, (uint64_t)ANSWER_BYTES);
	piece->buffer = malloc(piece->length);
	if (!piece->buffer)
		return -ENOMEM;
	r = file_pread_exact(fd, piece->buffer, piece->length, offset);
	piece->reply.offset = offset;
	piece->reply.extent = (uint64_t)st.st_size;
	return r;
}

static void on_table(
	struct source_wait *wait, int status, struct source_answer *answer, const struct err *e)
{
	struct piece *piece = container_of(wait, struct piece, wait);
	struct cut cut;

	if (status < 0 && e)
		piece->e = *e;
	piece->status = status < 0 ? status
				   : source_answer_cut(piece->pieces->sources, piece->conn, answer,
					     &cut, &piece->e);
	if (piece->status == 0)
		piece->status = read_piece(piece, answer->fd);
	piece->reply.generation = piece->request->frame.generation;
}

static void run(struct pool_job *job)
{
	struct piece *piece = container_of(job, struct piece, job);
	struct table_pieces *pieces = piece->pieces;
	const struct frame *frame = &piece->request->frame;

	piece->wait = (struct source_wait){
		.lineage = frame->lineage, .generation = frame->generation, .on_done = on_table
	};
	if (frame->lineage == 0 || frame->generation == 0 ||
		!source_table_at_once(pieces->sources, &frame->volume, &piece->wait))
		piece->status =
			err_set(&piece->e, -ESTALE, "that object table was removed: mount again");
	if (piece->status == 0) {
		reply(piece);
		return;
	}
	(void)err_default(&piece->e, piece->status, "an object table cannot be read");
	refuse(piece);
	pump(pieces);
}

/* Has its connection room? */
static bool may_move_locked(const struct table_pieces *pieces, const struct rpc_conn *conn)
{
	uint32_t n = 0;

	list_for_each (node, &pieces->moving)
		n += list_entry(node, struct piece, link)->conn == conn;
	return n < TABLE_PIECES_CONN;
}

/* The next that gets memory. When no other has any it is given without asking: it would wait for
 * ever. */
static struct piece *take_locked(struct table_pieces *pieces)
{
	struct piece *piece = NULL;

	list_for_each (node, &pieces->parked) {
		piece = list_entry(node, struct piece, link);
		if (may_move_locked(pieces, piece->conn))
			break;
		piece = NULL;
	}
	if (!piece)
		return NULL;
	if (!arena_take(ARENA_REPLIES, BUDGET_DEMAND, ANSWER_BYTES)) {
		if (!list_empty(&pieces->moving))
			return NULL;
		arena_must(ARENA_REPLIES, ANSWER_BYTES);
	}
	list_remove(&piece->link);
	list_push_back(&pieces->moving, &piece->link);
	piece->request->priv = NULL;
	return piece;
}

static void pump(struct table_pieces *pieces)
{
	for (;;) {
		struct piece *piece;
		int r;

		pthread_mutex_lock(&pieces->lock);
		piece = take_locked(pieces);
		pthread_mutex_unlock(&pieces->lock);
		if (!piece)
			return;
		r = pool_submit(pieces->pool, &piece->job);
		if (r == 0)
			continue;
		piece->status =
			err_set(&piece->e, r, "the master accepts no request now: try again");
		refuse(piece);
	}
}

void table_pieces_answer(struct table_pieces *pieces, struct rpc_request *request)
{
	struct piece *piece = calloc(1, sizeof(*piece));
	struct err e = ERR_INIT;

	CHECK_MAGIC(pieces, PIECES_MAGIC);
	if (!piece) {
		(void)err_set(&e, -ENOMEM, "out of memory");
		rpc_reply_err(request, -ENOMEM, &e);
		return;
	}
	piece->pieces = pieces;
	piece->request = request;
	piece->conn = request->conn;
	piece->job.run = run;
	pthread_mutex_lock(&pieces->lock);
	request->priv = piece;
	list_push_back(&pieces->parked, &piece->link);
	pthread_mutex_unlock(&pieces->lock);
	pump(pieces);
}

void table_pieces_cancelled(struct table_pieces *pieces, struct rpc_request *request)
{
	struct piece *piece;

	CHECK_MAGIC(pieces, PIECES_MAGIC);
	pthread_mutex_lock(&pieces->lock);
	piece = request->priv;
	if (piece)
		list_remove(&piece->link);
	pthread_mutex_unlock(&pieces->lock);
	if (!piece)
		return; /* it ends by itself */
	rpc_reply_err(request, -ECANCELED, NULL);
	free(piece);
}
