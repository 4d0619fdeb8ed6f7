/*
 * Flights: the single flight of a worker. A unit (an object of at most UNIT_BYTES, or at most
 * UNIT_BYTES of a larger one from a multiple of that, which end with the chunk) that is on its way is
 * in memory once; whoever needs bytes of it waits on it and is released as soon as they have landed.
 * What lies on the tier under another offset is copied from there (adopt.h), what other workers have is
 * pulled from them (pull.h), and the rest comes from the origin.
 *
 *	STARVED ─memory─► FETCHING ─all bytes─► WRITING ─written─► GONE
 *	   │  ▲              │  │ └─(bypass)─► KEPT ─pushed out─► GONE
 *	   │  └─(parked, and │  └─origin's error─► GONE; waiters get the error
 *	   │    no memory)───┘
 *	   └─closing─► GONE
 *
 * While the pull of units that no reader waits for pauses (pull_wait.c), they are parked: FETCHING without memory.
 *
 * Lifetime: reference-counted; the map, the origin's request, the write and each waiter hold one.
 * The bytes [0, landed) of `data` never change.
 *
 * Threads: any; done() runs on an origin's, on the disk pool's, or inside flight_want().
 */
#pragma once

#include "base/list.h"
#include "base/map.h"
#include "cacheworker/source.h"

#define FLIGHT_MAGIC 0x666c6774u

struct range;

enum flight_state {
	FLIGHT_STARVED,
	FLIGHT_FETCHING,
	FLIGHT_WRITING,
	FLIGHT_KEPT,
	FLIGHT_GONE,
};

/* Of a unit that came from the origin, monotonic; 0: not yet, or not known. */
struct flight_times {
	uint64_t sent_ns;   /* the request */
	uint64_t first_ns;  /* its first byte */
	uint64_t landed_ns; /* all bytes */
	bool joined;        /* no reader waited for it when it was sent */
};

struct flight {
	uint32_t magic;
	_Atomic uint32_t refs;
	struct map_node node;
	/* Starved or kept, or in `to_write` of the unit that leads the writes to its file. */
	struct list link;
	struct worker *worker;
	struct source *source;
	enum flight_state state;
	enum ufs_class class;
	bool bypass;  /* not admitted to a tier */
	bool counted; /* a fill's: fills.in_flight counts it */
	bool charged; /* its memory is taken from the budget */
	bool begun;   /* flights.begun counts it */
	bool parked;  /* its memory was given back: its pull pauses */
	/* It waits for another worker: it leaves memory to those that end here, which others wait for. */
	bool far;
	bool ends;  /* this worker ends it: owner, deputy, or by FRAME_LAST */
	bool asked; /* the origin has the request */
	bool anew;  /* it had, and ended it at once: the caller asks in another way */
	bool left;  /* it was requested to end it, for another way: which may be the same by then */
	bool demanded;             /* a reader waited for it */
	bool starved;              /* it began without memory; set before others see it */
	uint64_t asked_ns;         /* when the origin was asked */
	uint64_t until_ns;         /* the latest of its waiters'; 0: no limit. Under flights.lock */
	struct flight_times times; /* under flights.lock */
	uint32_t of_chunk;         /* its place in flights.of_chunks */
	uint64_t start;            /* volume offset of the unit */
	uint32_t length;           /* bytes */
	uint32_t cost;             /* bytes of memory: its data and this struct */
	uint64_t object_offset;    /* of the unit in its object; multiple of PIECE_BYTES */
	uint64_t object_seed;
	char *data;
	bool recycled; /* `data` is of worker.buffers; else of the heap */
	uint64_t landed;
	struct list waiters;
	struct ufs *ufs; /* that was asked */
	struct ufs_get get;
	struct range *
		range; /* that asks the origin for it with others, under flights.lock; NULL: `get` does */
	struct pool_job write;
	/* While it leads the writes to a file, under flights.lock: */
	struct map_node leads; /* in flights.leaders */
	struct list to_write;  /* units that are stored in it, by offset */
	uint64_t write_at;     /* where the last that were taken ended */
	struct pool_job adopt;
	struct pool_job *
		adopting; /* the queued job that searches the tier for it; NULL once the job runs; under flights.lock */
	bool adopted;    /* the bytes came from elsewhere on the tier */
	uint8_t bad;     /* times that another worker's bytes were damaged */
	bool pulled;     /* they came from another worker */
	void *pull;      /* in flight for it, under flights.lock */
	uint32_t summed; /* the first pieces whose checksums are in `sums`: all that have landed */
	uint64_t sums[UNIT_BYTES / PIECE_BYTES];
	char names[]; /* key, then tag */
};

/* Waits until the first `need` bytes of a unit are there; embedded in the waiting request. */
struct flight_wait {
	struct list link;
	struct flight
		*flight; /* referenced while waiting and afterwards, until the owner drops it */
	uint32_t need;
	uint64_t until_ns; /* the waiter's reader waits until then (base/deadline.h); 0: no limit */
	/* Of a preload, which no reader waits for: done() is called when the unit is in a tier, or will not be
	 * (-ENOSPC, -EIO, ...: fetched, and not kept). It gives way to readers and takes no memory
	 * that is not there. */
	bool stored;
	bool ends; /* the flight must end here: its asker waits as one that has asked the owner */
	bool notified; /* done() is due or was called */
	bool first;    /* no reader waited for the unit before: set before done() is called */
	bool yielded; /* a preload's place among those under way went to others, as its pull paused */
	void (*done)(struct flight_wait *wait, int status, const struct err *e);
};

/* The unit of `row` that covers volume offset `at`: its start, length and offset in the object. */
void flight_unit_of(const struct table_row *row, uint64_t at, uint64_t *ret_start,
	uint32_t *ret_length, uint64_t *ret_object_offset);

/* Is something of the chunk on its way, or kept? Yes may be wrong. Never blocks. */
bool flights_of_chunk(struct worker *w, const struct chunk_id *id);
/* Will the unit that begins there be in a tier as soon as the origin has answered? Never blocks. *ret_awaited: not this worker's origin,
 * but that of another one, which it is pulled from then. */
bool flight_is_coming(struct source *source, uint64_t start, bool *ret_awaited);

/* Is the unit in a tier? Never blocks. */
bool flight_unit_held(const struct source *source, uint64_t start, uint32_t length);

/*
 * Joins the flight of that unit or starts one. With a `wait`, its done() is called exactly once,
 * perhaps before this returns, with wait->flight set and referenced when status is 0. Without one it is a neighbour: nothing
 * happens when the unit is already on its way (-EALREADY), and there is -EAGAIN when there is no
 * memory for it now; with a `stored` wait, too. -EEXIST, but with `bypass`: it is in a tier by now, as
 * its flight ended since the caller looked; -ENOMEM; -ECANCELED while closing: done() will not be called.
 */
int flight_want(struct source *source, const struct table_row *row, uint64_t at,
	enum ufs_class class, bool bypass, struct flight_wait *wait) __must_check;

/* The same; but what is begun by it is only put into `batch` (NULL: started), which has room and of which
 * all is of one source and chunk and in the order of units. */
struct flight_batch;
int flight_want_in(struct flight_batch *batch, struct source *source, const struct table_row *row,
	uint64_t at, enum ufs_class class, bool bypass, struct flight_wait *wait) __must_check;
/* From its first byte to its last, what is between them included. */
uint64_t flight_batch_bytes(const struct flight_batch *batch);
/* Nothing is to be added before it is started: it has as much as one request asks for. */
bool flight_batch_full(const struct flight_batch *batch);
/* Is there memory to begin a batch with units of that object, of `bytes` together? What comes free unit by unit would else
 * be asked for unit by unit. */
bool flight_may_start_range(
	struct source *source, const struct table_row *row, uint64_t bytes, enum ufs_class class);
/* Starts what is in it; it is empty afterwards. */
void flight_batch_start(struct flight_batch *batch);

/* Takes a waiting request off its flight: true when it was still waiting (done() will not be
 * called; the reference on wait->flight stays the owner's). A unit that still starves is given up
 * with its last waiter. */
bool flight_wait_cancel(struct worker *w, struct flight_wait *wait);

void flight_unref(struct flight *flight);

/* The source is reached in another way: what was asked in the one before is asked for in that. */
void flights_take_way(struct source *source);

/* A reader waits for the unit that begins there: its flight, if it has one, is as urgent as that. */
void flights_raise(struct source *source, uint64_t start);

/* After memory was given back to worker.memory by others than flights: whoever starves may be able to
 * go on, and nothing else notifies it. */
void flight_memory_freed(struct worker *w);

/* A tier is no longer in service: units that wait to be written to it are kept, and their waiters get -EIO. Never blocks on I/O. */
void flights_leave_stalled(struct worker *w);

int flights_init(struct worker *w) __must_check;
/* From now on every unit ends with -ECANCELED. */
void flights_close(struct worker *w);
void flights_release(struct worker *w);
