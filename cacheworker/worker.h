/*
 * The worker: caches ranges of volumes in its tiers and answers readers. Glue between net
 * (requests), catalog (what lies where), ufs (origins), and tiers (disks).
 *
 *	request ─► fetch ──► all blocks in a tier ──────────────► descriptor + bitmap, or bytes
 *	             │
 *	             └─► flight per unit (joined, or started) ─► ufs_get ─► waiters as bytes land
 *	                                  ▲                                └─► chunk_write
 *	             fill (neighbours) ───┘
 *
 * Threads: requests arrive on the net loop and are handed to the serve pool at once (looking into
 * an object table may touch the disk); flights finish on origin threads; writes run on the disk
 * pool. Locks in order: fetch_lock, a fetch's own, then one of `flights.lock`, `sources.lock`,
 * `fills.lock`, which are leaves but for ufs_promote(), pool_submit(), and what flights.lock is held
 * over besides: `pulls.lock`, rpc_call() and rpc_cancel().
 */
#pragma once

#include <pthread.h>
#include "admin/listen.h"
#include "base/budget.h"
#include "base/buffers.h"
#include "base/counter.h"
#include "base/loop.h"
#include "base/map.h"
#include "base/periodic.h"
#include "base/pool.h"
#include "cacheworker/former.h"
#include "cacheworker/herds.h"
#include "cacheworker/member.h"
#include "cacheworker/metrics.h"
#include "cacheworker/pipes.h"
#include "cacheworker/pull.h"
#include "cacheworker/spill.h"
#include "cacheworker/troubles.h"
#include "net/fence.h"
#include "net/net.h"
#include "net/servers.h"
#include "tiers/tiers.h"
#include "ufs/ufs.h"

#define WORKER_COUNTERS(X)                                                                       \
	X(fetches, "granary_worker_fetches_total", COUNTER, "requests",                          \
		"Ranges requested by readers")                                                   \
	X(hits, "granary_worker_hits_total", COUNTER, "requests", "Ranges answered from a tier") \
	X(hit_bytes, "granary_worker_hit_bytes_total", COUNTER, "bytes",                         \
		"Bytes answered from a tier")                                                    \
	X(lent_bytes, "granary_worker_lent_bytes_total", COUNTER, "bytes",                       \
		"Bytes answered out of the page cache without a copy")                           \
	X(at_once, "granary_worker_answered_at_once_total", COUNTER, "requests",                 \
		"Small ranges answered out of memory by the thread that took the request")       \
	X(waits, "granary_worker_waits_total", COUNTER, "requests",                              \
		"Ranges that waited for the origin")                                             \
	X(joined, "granary_worker_joined_total", COUNTER, "requests",                            \
		"Waits for a unit already in flight")                                            \
	X(units, "granary_worker_units_total", COUNTER, "units", "Units fetched for a reader")   \
	X(neighbours, "granary_worker_neighbours_total", COUNTER, "units",                       \
		"Units fetched as neighbours or ahead")                                          \
	X(bypass_bytes, "granary_worker_bypass_bytes_total", COUNTER, "bytes",                   \
		"Bytes fetched and not admitted")                                                \
	X(failed_units, "granary_worker_failed_units_total", COUNTER, "units",                   \
		"Units that could not be fetched")                                               \
	X(write_errors, "granary_worker_write_errors_total", COUNTER, "units",                   \
		"Units that could not be written")                                               \
	X(flights, "granary_worker_flights", GAUGE, "units",                                     \
		"Units in memory: in flight, being written, cached")                             \
	X(scrubbed_bytes, "granary_worker_scrubbed_bytes_total", COUNTER, "bytes",               \
		"Bytes read and checked by the scrub")                                           \
	X(scrub_bad, "granary_worker_scrub_bad_pieces_total", COUNTER, "pieces",                 \
		"Damaged pieces that the scrub found")                                           \
	X(revalidated, "granary_worker_revalidated_units_total", COUNTER, "units",               \
		"Cached units compared with the origin")                                         \
	X(sealed, "granary_worker_sealed_total", COUNTER, "extents", "Extents sealed")           \
	X(unsealed, "granary_worker_unsealed_total", COUNTER, "extents",                         \
		"Extents that are no longer sealed")                                             \
	X(seal_bytes, "granary_worker_seal_bytes_total", COUNTER, "bytes",                       \
		"Bytes read and checked before an extent was sealed")                            \
	X(stalled, "granary_worker_stalled_total", COUNTER, "calls",                             \
		"Calls to a tier that readers did not wait for any longer")                      \
	X(preload_units, "granary_worker_preload_units_total", COUNTER, "units",                 \
		"Units that a preload fetched or waited for")                                    \
	X(preload_bytes, "granary_worker_preload_bytes_total", COUNTER, "bytes",                 \
		"Bytes of these that are cached now")                                            \
	X(preload_failed, "granary_worker_preload_failed_total", COUNTER, "units",               \
		"Units that a preload could not fetch or store")                                 \
	X(preload_checked, "granary_worker_preload_checked_bytes_total", COUNTER, "bytes",       \
		"Bytes of an earlier boot that a preload read and compared")                     \
	X(adopted, "granary_worker_adopted_units_total", COUNTER, "units",                       \
		"Units or pieces copied from another place of a tier")                           \
	X(adopted_bytes, "granary_worker_adopted_bytes_total", COUNTER, "bytes",                 \
		"Bytes copied from another place of a tier, not fetched")                        \
	X(dropped_bytes, "granary_worker_dropped_bytes_total", COUNTER, "bytes",                 \
		"Bytes dropped that no retained generation names")                               \
	X(files, "granary_worker_files_total", COUNTER, "requests",                              \
		"Descriptors requested by readers with the map")                                 \
	X(maps, "granary_worker_maps_total", COUNTER, "requests",                                \
		"Readers that received the chunk map")                                           \
	X(map_entries, "granary_worker_map_chunks", GAUGE, "chunks",                             \
		"Chunks in the map for readers on this node")                                    \
	X(map_max, "granary_worker_map_chunks_max", GAUGE, "chunks",                             \
		"Chunks that the map has room for")                                              \
	X(map_refused, "granary_worker_map_refused_total", COUNTER, "chunks",                    \
		"Chunks that were not put into the map: full")                                   \
	X(peer_asked, "granary_worker_peer_asked_total", COUNTER, "requests",                    \
		"Requests to other workers")                                                     \
	X(peer_missed, "granary_worker_peer_missed_total", COUNTER, "requests",                  \
		"Requests to other workers that brought no bytes")                               \
	X(peer_units, "granary_worker_peer_units_total", COUNTER, "units",                       \
		"Units that came from other workers")                                            \
	X(peer_bytes, "granary_worker_peer_bytes_total", COUNTER, "bytes", "Bytes of these")     \
	X(peer_bad, "granary_worker_peer_bad_units_total", COUNTER, "units",                     \
		"Units from other workers that did not match their checksums")                   \
	X(handover_bytes, "granary_worker_handover_bytes_total", COUNTER, "bytes",               \
		"Bytes of slots that moved to other workers, offered to these")                  \
	X(handover_left, "granary_worker_handover_left_bytes", GAUGE, "bytes",                   \
		"Bytes of such that their new owners have not yet")                              \
	X(peer_waits, "granary_worker_peer_waits_total", COUNTER, "pauses",                      \
		"Pauses before a request to a silent worker is sent again")                      \
	X(redirected, "granary_worker_redirected_total", COUNTER, "requests",                    \
		"Requests sent on to another worker")                                            \
	X(herd_sent, "granary_worker_herd_sent_total", COUNTER, "requests",                      \
		"Requests for copies sent to another worker that has just taken one")            \
	X(herd_refused, "granary_worker_herd_refused_total", COUNTER, "requests",                \
		"Requests for copies, forwarded here, that were sent back, as this worker is "   \
		"busy")                                                                          \
	X(spilled, "granary_worker_spilled_total", COUNTER, "requests",                          \
		"Requests sent to another worker because this one is full")                      \
	X(starved, "granary_worker_starved_total", COUNTER, "units",                             \
		"Units that waited for memory")                                                  \
	X(written_units, "granary_worker_written_units_total", COUNTER, "units",                 \
		"Units written to a tier")                                                       \
	X(writes, "granary_worker_writes_total", COUNTER, "writes",                              \
		"Writes of units to a tier, one for units that follow one another")              \
	X(ranges, "granary_worker_ranges_total", COUNTER, "requests",                            \
		"GETs of several units of a large object")                                       \
	X(ranges_cut, "granary_worker_ranges_cut_total", COUNTER, "requests",                    \
		"GETs of several units that were cut short for a read far behind")

COUNTER_STRUCT(worker_counters, WORKER_COUNTERS);
const struct counter_info *worker_counter_table(uint32_t *ret_n);

struct worker_config {
	const char *tier; /* directory of the one next to which the worker keeps what it knows */
	const struct tier_config *tiers; /* borrowed */
	uint32_t n_tiers;
	uint64_t scrub_rate;       /* bytes a second; 0: only by order */
	uint64_t scrub_max_age;    /* ns from one pass to the next; 0: none */
	uint64_t seal_rate;        /* bytes a second; 0: nothing is sealed */
	uint64_t memory;           /* bytes; see worker_memory_open() */
	const char *master;        /* address */
	const char *const *listen; /* addresses */
	unsigned int n_listen;
	const char *admin; /* socket path */
	struct admin_listen admin_listen;
	unsigned int origin_requests; /* GETs in flight per source */
	bool without_tier;            /* serve without tiers that cannot be opened (tierless.h) */
	uint32_t peer_patience;       /* pulls wait for others so many times as long; 0: once */
	struct member_config member;
};

#define FLIGHT_CLASSES 3u    /* enum ufs_class, enum budget_class */
#define FLIGHT_CHUNKS  4096u /* counts of units by chunk; chunks of one hash share one */

/* Units on their way or kept for a moment (flight.c). */
struct flights {
	pthread_mutex_t lock;
	struct map units;
	struct map leaders;                /* units that lead the writes to a file, by its id */
	uint16_t of_chunks[FLIGHT_CHUNKS]; /* how many are of a chunk, or of others with its hash */
	struct list starved[FLIGHT_CLASSES]; /* flights waiting for memory, by class */
	struct list far[FLIGHT_CLASSES];     /* likewise, those that are `far` */
	unsigned int starting; /* taken off these lists, not yet given to their origin */
	pthread_cond_t started;
	struct list kept;    /* bypassed units, oldest first */
	uint64_t kept_bytes; /* what they cost */
	uint64_t kept_max;
	uint32_t parked;  /* units whose pull pauses, without memory */
	uint64_t writing; /* bytes of units that are WRITING */
	uint64_t begun;   /* what units cost that are FETCHING, with memory, or WRITING */
	uint64_t window;  /* with as many of them, none begins that no reader waits for */
	bool limited;     /* it was the limit since a unit was last written */
	bool closing;
	_Atomic bool freed; /* freed_job is queued: some was given back */
	struct pool_job freed_job;
};

/* Neighbours still to be fetched (fill.c). */
struct fills {
	pthread_mutex_t lock;
	struct list ahead;  /* fills of class UFS_PREFETCH */
	struct list active; /* the others, which come after them */
	struct map chunks;  /* one fill per chunk and class, and one per range of an order */
	unsigned int in_flight;
	unsigned int max_in_flight;
	bool pumping;        /* the pump job is queued or running */
	bool again;          /* something changed while it ran */
	_Atomic bool hungry; /* it found no memory: to be notified when some is free */
	bool closing;
	struct pool_job pump;
};

/* Sources that readers asked about (source.c). */
struct sources {
	pthread_mutex_t lock;
	struct list all;
	bool closing;
};

/* What may still be read (retention.c). */
struct done;
struct report;
struct evict_job;
struct retention {
	struct periodic_work work;
	pthread_mutex_t lock;
	pthread_cond_t reported; /* reported_ns changed, or closing */
	bool woken;
	bool asks_now;        /* woken, and without the pause */
	uint64_t due_ns;      /* of the next round; the work's */
	uint64_t reported_ns; /* under the lock: when the master's last report was made */
	_Atomic bool closing;
	_Atomic uint64_t heard_ns; /* when the last round began that was answered whole; 0: none */
	uint64_t run;              /* random, of this start */
	uint64_t units;            /* the work's: fetched so far */
	uint64_t
		fetched_ns; /* likewise: when the last one was seen; 0: memory was given back since */
	struct done *done; /* likewise */
	uint32_t n_done;
	struct report *reports; /* likewise */
	uint32_t n_reports;
	struct evict_job *evict_job; /* likewise (evict_job.c); NULL: none is under way */
	bool evict_failed;           /* the last one; of which volume: */
	struct volume_id evict_failed_volume;
};

/* Descriptors in readers' hands (holds.c). */
struct holds {
	pthread_mutex_t lock;
	struct map conns;
	uint32_t n;
	uint64_t number; /* of the next */
};

/* What may change while the worker runs. */
struct worker_rates {
	_Atomic uint64_t scrub;         /* worker_config.scrub_rate, */
	_Atomic uint64_t scrub_max_age; /* scrub_max_age, */
	_Atomic uint64_t seal;          /* seal_rate */
};

#define PROMOTE_NS 10000000000ull /* between two looks at what is missing (promote.h) */

struct worker {
	const struct worker_config *config;
	struct worker_rates rates;
	struct tier_set *tiers;
	struct budget memory;   /* units: three quarters of --memory at most */
	struct budget gathered; /* replies made of several units: a quarter at most */
	struct buffers buffers; /* of both */
	struct loop *loop;      /* net */
	struct pool *work;  /* runs every periodic work, on a thread of its own when others block */
	struct pool *quiet; /* likewise, those that read in the idle I/O class */
	struct pool *serve; /* looks into tables, answers */
	struct pool *look;  /* calls to tiers that a reader waits for (tier_call.h) */
	struct pool *disk;  /* writes */
	struct pool *control; /* asks the master */
	struct pool *adopt;   /* copies units from elsewhere on the tier */
	struct pool *peers;   /* looks at what other workers answer */
	struct rpc_client *master;
	struct rpc_client *view_master; /* the view's own: it is asked until all else has ended */
	struct fence fence;             /* of masters */
	struct view *view;              /* of the cluster; NULL before it is open */
	_Atomic bool viewed;            /* it is open; the loop may see its tables before */
	struct member member;
	struct former former;
	struct pulls pulls;
	struct herds herds;
	struct spill spill;
	_Atomic bool closing;
	struct rpc_servers servers;
	struct admin_server *admin;
	pthread_mutex_t
		fetch_lock; /* request->priv of every request; taken before any other lock */
	struct flights flights;
	struct fills fills;
	struct sources sources;
	struct holds holds;
	struct pipes pipes;
	_Atomic uint32_t answers; /* that are gathered, or wait to be sent (struct gathered) */
	struct retention retention;
	struct troubles troubles;
	struct scrub *scrub;
	struct seals *seals;
	struct preloads *preloads;
	struct copies *copies;
	struct handover *handover;
	_Atomic uint32_t others;       /* workers of the cluster that are not out, but this one */
	_Atomic uint64_t classified;   /* how often chunks changed their class */
	struct periodic_work tierless; /* waits for tiers that could not be opened (tierless.c) */
	_Atomic uint64_t tier_call_ns; /* TIER_CALL_NS; tests have less time */
	_Atomic uint64_t promote_ns;   /* PROMOTE_NS; likewise */
	struct worker_counters counters;
	struct worker_histograms histograms;
	struct worker_stalls stalls;
	struct worker_waits waits;
	struct ufs_counters origins; /* sums over the sources, brought up to date when asked for */
	uint64_t started_ns;
};

/*
 * Opens the process' arena of `memory` bytes, of which tiers in memory have `in_tiers`, and shares
 * the rest out; before worker_open(). Afterwards arena_start_done() says whether what was found
 * fits.
 */
void worker_memory_open(uint64_t memory, uint64_t in_tiers);

/* Opens tiers, listens, serves. `config` is borrowed until worker_close(). */
int worker_open(struct worker *w, const struct worker_config *config, struct err *e) __must_check;
/* The three rates of `config` from now on, of a worker that is open. By who opened it. */
void worker_set_rates(struct worker *w, const struct worker_config *config);
/* Stops listening, ends every request, closes the tiers. Also after a failed worker_open(). */
void worker_close(struct worker *w);
