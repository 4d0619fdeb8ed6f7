/* The parts of the scrub; see scrub.h. */
#pragma once

#include "base/clock.h"
#include "cacheworker/scrub.h"
#include "cacheworker/source.h"

#define SCRUB_BATCH    256u /* chunks listed at a time */
#define SCRUB_FINDINGS 64u  /* kept for people, and until they are repaired */
#define SCRUB_NAME     160

enum scrub_finding_kind {
	SCRUB_DAMAGED, /* did not match its checksum, or could not be read: dropped */
	SCRUB_CHANGED, /* the origin has another version of the object, or none */
	SCRUB_DIFFERS, /* the origin has other bytes under the same tag: the chunk was dropped */
};

struct scrub_finding {
	enum scrub_finding_kind kind;
	struct chunk_id id;
	uint32_t offset; /* in the chunk */
	uint32_t length;
	bool repaired; /* is there again */
	char key[SCRUB_NAME];
};

/* What one pass did; under scrub.lock. */
struct scrub_tally {
	uint64_t chunks;
	uint64_t pieces;
	uint64_t bytes;
	uint64_t bad;     /* pieces dropped */
	uint64_t unread;  /* runs that could not be read, nor were found damaged */
	uint64_t unknown; /* chunks that no table names: not readable either */
	uint64_t sampled; /* units compared with the origin */
	uint64_t changed; /* at the origin */
	uint64_t differ;
	uint64_t failed; /* could not be compared */
	uint32_t n_findings;
	struct scrub_finding findings[SCRUB_FINDINGS];
};

/* What POST /v1/scrub asks for. */
struct scrub_order {
	uint64_t id;
	bool one_volume;
	struct volume_id volume;
	uint64_t rate;       /* bytes a second; 0: no bound */
	uint64_t sample;     /* units to compare with the origin */
	double sample_ratio; /* likewise, of all units: 0 to 1; else 0 */
	bool sample_only;    /* nothing else */
};

struct scrub {
	struct worker *worker;
	pthread_mutex_t lock;
	pthread_cond_t wake;
	struct periodic_work work;
	bool begun; /* its own: what an earlier boot left was verified */
	bool closing;
	const char *state;         /* for people */
	struct scrub_order wanted; /* id 0: nothing */
	struct scrub_order order;  /* the last; its tally: */
	struct scrub_tally ordered;
	bool order_done;
	uint64_t orders;
	struct scrub_tally pass; /* of the background */
	/* The thread's own, but written under the lock: */
	uint64_t pass_started; /* wall seconds; survives the worker */
	bool in_pass;
	struct chunk_id cursor; /* the chunk done last; in_pass */
	bool has_cursor;
	bool held_done; /* the pass is through with what kernels have as devices */
	uint64_t saved_ns;
	uint32_t tags;     /* given out: of the chunks that a pass or an order is through with */
	uint32_t pass_tag; /* of the pass; 0: it goes on from before a start */
	uint64_t rate;     /* of what runs now, */
	const _Atomic uint64_t *live; /* unless it may change meanwhile: one of worker.rates */
	uint64_t fetches_seen;
	void *unit; /* UNIT_BYTES; while something runs */
	/* The source looked up last, and whether the master knew it. */
	struct chunk_id looked;
	struct source *source;
};

/* Sleeps unless closing; false when closing. */
bool scrub_sleep(struct scrub *s, uint64_t ns);
bool scrub_closing(struct scrub *s);
/* After `bytes` were read: keeps to the rate, and yields to readers. False when closing. */
bool scrub_pace(struct scrub *s, uint64_t bytes);
/* The source of a chunk, with a table; NULL: it is not known. */
struct source *scrub_source(struct scrub *s, const struct chunk_id *id);
/* The same with a table of that generation at least, asked for when it is not there. */
struct source *scrub_source_of(struct scrub *s, const struct chunk_id *id, uint64_t generation);
/* Has the origin asked for what was dropped, in one chunk; without success the next reader does. */
void scrub_refetch(struct source *source, uint64_t at, uint32_t length);
void scrub_add_finding(
	struct scrub *s, struct scrub_tally *tally, const struct scrub_finding *finding);

/* scrub_verify.c: reads the chunk's pieces; false when closing. */
bool scrub_verify_chunk(struct scrub *s, struct scrub_tally *tally, const struct chunk_id *id);
/* scrub_sample.c: compares a sample of what the order covers with the origin. */
void scrub_sample(struct scrub *s, struct scrub_tally *tally, const struct scrub_order *order);

/* scrub_state.c: where the pass is, next to the tier. */
void scrub_load_state(struct scrub *s);
void scrub_save_state(struct scrub *s);
