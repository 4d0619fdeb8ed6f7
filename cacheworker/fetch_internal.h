/* The parts of a fetch, from arrival to reply; see fetch.c. */
#pragma once

#include "cacheworker/fetch.h"
#include "cacheworker/flight.h"

/* Bytes of one unit inside the range asked for. */
struct span {
	struct flight_wait wait; /* flight set: the bytes come from it; else from the tier */
	bool copied;             /* they are in fetch->out already */
	struct fetch *fetch;
	uint64_t at;            /* volume offset of the first byte wanted */
	uint32_t length;        /* bytes of the object wanted */
	uint64_t object_offset; /* of `at` in its object */
	uint64_t object_size;
	uint64_t object_seed;
	uint32_t first_sum; /* place of its first piece among the answer's checksums */
};

struct gathered;
struct duty;

struct fetch {
	uint32_t magic;
	struct worker *worker;
	struct rpc_request *request;
	struct source_wait source_wait;
	struct source *source;
	struct pool_job job;
	struct span *spans;
	uint32_t n_spans;
	uint32_t n_sums;      /* pieces that the spans touch */
	struct gathered *out; /* the range and the checksums behind it, when it is gathered */
	unsigned int attempts;
	/* Another worker's request for a copy, which is being answered, or waits and goes on with `herd_resume`: */
	struct herd_ticket *ticket;
	struct herds_wait herd_wait;
	void (*herd_resume)(struct pool_job *job);
	bool part;            /* the asker sees only a part of the volume: peer_reads_part() */
	bool ends;            /* what is not here ends here: the flights' wait.ends */
	bool moved;           /* by the table others serve the chunk: FRAME_MOVED */
	bool passed_by;       /* the tier cannot be read: all comes from the origin */
	bool waited;          /* for the origin */
	_Atomic bool starved; /* what it waited for had no memory */
	uint64_t began_ns;
	uint64_t planned_ns; /* its source was known; 0: not yet */
	uint64_t wanted_ns;  /* what is absent was asked for */
	/* Under `lock`: flights still awaited, plus one while they are being joined; whoever brings
	 * it to 0 goes on. */
	pthread_mutex_t lock;
	unsigned int awaited;
	bool waiting; /* every flight is joined; spans stay as they are until awaited is 0 */
	bool cancelled;
	int status;
	struct err err;
};

/* Memory that a reply is gathered in, out of a budget of its own. */
struct gathered {
	struct worker *worker;
	struct source *source;
	uint64_t bytes;  /* taken from the budget */
	uint64_t offset; /* of the range in the volume */
	uint32_t length;
	bool read;                  /* a reader waits for it: it counts in hits and misses */
	struct herd_ticket *ticket; /* given back once it is sent */
	char *data;                 /* NULL: the range is in the pipe */
	struct pipe_ends pipe;
	uint64_t sums[];
};

/* fetch.c: spans, and the end of a fetch. */
/* The chunk that a request's range begins in. */
static inline struct chunk_id fetch_chunk_of(const struct frame *frame)
{
	return (struct chunk_id){ .volume = frame->volume,
		.lineage = frame->lineage,
		.chunk = frame->offset >> CHUNK_BITS };
}

/* It causes nothing, and waits for nothing. */
static inline bool fetch_is_cached_only(const struct frame *frame)
{
	return frame->op == FRAME_FETCH_CACHED || frame->op == FRAME_SEEK;
}

/* Zeroed; NULL without memory. */
struct span *fetch_spans_new(uint32_t n);
void fetch_spans_free(struct span *spans);
/* As if none had been planned. */
void fetch_drop_spans(struct fetch *fetch);
/* It ends now, with an answer that `h` (NULL: none) has the times of. */
void fetch_note_end(struct fetch *fetch, struct histogram *h);
/* Unlinks the fetch from its request, which is still to be replied to, and frees it. */
struct rpc_request *fetch_end(struct fetch *fetch);
void fetch_fail(struct fetch *fetch, int status, const struct err *e);
/* The same without a line, and with a number: the worker to ask (-EREMOTE), how much of the chunk is
 * here (-ENODATA), or whether another worker fetches the range (-EALREADY: not 0). */
void fetch_refuse(struct fetch *fetch, int status, uint16_t flags, uint64_t number);
/* Goes on in the serve pool, or fails. */
void fetch_submit(struct fetch *fetch, void (*run)(struct pool_job *job));

/* fetch_plan.c: what of the range is there, and who is waited for. */
void fetch_run_plan(struct pool_job *job);
/* All of it is here. */
void fetch_note_hit(struct fetch *fetch);
/* Takes a cancelled fetch off its flights. True when nothing is awaited any more. */
bool fetch_leave_flights_locked(struct fetch *fetch);

/* A reader wants it, or is about to: also of what a mount brings ahead of one (FETCH_CACHED), but not a worker that
 * takes what it will have to answer for. */
static inline bool fetch_is_read(const struct fetch *fetch)
{
	const struct frame *asked = &fetch->request->frame;

	return asked->op == FRAME_FETCH ||
	       (asked->op == FRAME_FETCH_CACHED && asked->class == FRAME_DEMAND &&
		       !(asked->flags & FRAME_PEER));
}

/* A reader waits for these bytes now, here or at the worker that asks for it. Those of a preload, of readahead and of copies
 * count neither as hits nor as misses. */
static inline bool fetch_counts(const struct fetch *fetch)
{
	return fetch->request->frame.class == FRAME_DEMAND;
}

/* fetch_reply.c: answers. */
/* Referenced, or NULL. */
struct chunk *fetch_find_chunk(struct fetch *fetch, uint64_t at);
/* A descriptor and the chunk's presence bits; when it fails, the fetch goes on. */
int fetch_reply_local(struct fetch *fetch, struct chunk *chunk);
/* One unit in memory: its bytes go out as they lie there. */
void fetch_reply_flight(struct fetch *fetch);
/* The memory that the range is gathered in: of class DEMAND when nothing is waited for with it, else of
 * FILL. -EAGAIN when the budget is used up. */
int fetch_make_out(struct fetch *fetch, enum budget_class class);
/* The same without its memory, for which `length` bytes are taken: 0 for a range that will be in a pipe. */
int fetch_make_head(struct fetch *fetch, enum budget_class class, uint32_t length);
void fetch_gathered_free(void *arg);
/* The checksums of spans that begin and end with pieces, as the piece table of the range's blocks says; the bytes
 * count as given. False: some do not, and nothing counts. */
bool fetch_take_sums(
	struct gathered *to, const struct span *spans, uint32_t n, const struct chunk_sum *table);
void fetch_copy_flight(struct gathered *to, const struct span *span);
/* Gathers a range that lies in several units, or in a tier for a reader elsewhere. */
void fetch_run_compose(struct pool_job *job);

/* fetch->out is whole, and goes. */
void fetch_reply_out(struct fetch *fetch);

/* fetch_now.c: all of a small range that lies in memory, without another thread. False: not that way; all is as
 * before. Never blocks. */
bool fetch_answer_now(struct fetch *fetch);

/* fetch_zero_copy.c: the range out of the page cache. False: not that way; all is as before. */
bool fetch_zero_copy(struct fetch *fetch);
