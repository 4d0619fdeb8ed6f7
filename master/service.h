/*
 * The master's requests (proto/frame.h): decodes them on the loop, works on a pool, replies from
 * there.
 *
 * Threads: service_ops run on the server's loop; the rest from main.
 */
#pragma once

#include "base/counter.h"
#include "base/histogram.h"
#include "base/pool.h"
#include "master/dataset.h"
#include "master/preload.h"
#include "master/membership.h"
#include "master/remote_admin.h"
#include "master/source.h"
#include "master/source_rules.h"
#include "master/table_pieces.h"
#include "net/net.h"

#define MASTER_COUNTERS(X)                                                                        \
	X(opens, "granary_master_opens_total", COUNTER, "requests", "Sources opened")             \
	X(tables, "granary_master_tables_total", COUNTER, "requests", "Tables requested by name") \
	X(holds, "granary_master_holds_total", COUNTER, "requests",                               \
		"Leases of mounts on their generations")                                          \
	X(terms, "granary_master_terms_total", COUNTER, "requests",                               \
		"Requests of workers for the retention settings")                                 \
	X(failures, "granary_master_failures_total", COUNTER, "requests",                         \
		"Requests answered with an error")                                                \
	X(listings, "granary_master_listings_total", COUNTER, "requests",                         \
		"Answers for which an origin was listed")

COUNTER_STRUCT(master_counters, MASTER_COUNTERS);
const struct counter_info *master_counter_table(uint32_t *ret_n);

#define MASTER_HISTOGRAMS(X)                                                       \
	X(open_time, "granary_master_request_seconds", "request", "open",          \
		"From a request about a source to its answer, a listing included") \
	X(table_time, "granary_master_request_seconds", "request", "table",        \
		"From a request about a source to its answer, a listing included")
HISTOGRAM_STRUCT(master_histograms, MASTER_HISTOGRAMS);

struct dashboard;
struct service_accounts;

struct service {
	struct source_set *sources;
	struct dataset_set *datasets;
	struct preloads *preloads;
	struct backups *backups;
	struct table_pieces *pieces;
	struct remote_admin *remote; /* NULL: without --admin */
	struct dashboard *dashboard; /* NULL: there is none (--admin) */
	struct membership *membership;
	struct hello_master self; /* for greetings */
	struct pool *pool;        /* waits for origins */
	struct pool *small;       /* what waits for none, and is never behind a listing */
	struct pool *joins;       /* what waits for the next slot table: reads are not behind it */
	struct pool *dirs; /* asks file systems, which may hang, which source a directory is */
	struct source_rules rules;         /* of callers that are not local */
	bool admin_may_mint;               /* tokens for data, with an administrator's token */
	struct service_accounts *accounts; /* of pods, whose tokens are exchanged; NULL: none are */
	_Atomic bool serving;              /* requests are taken: for /readyz */
	struct master_counters counters;
	struct master_histograms histograms;
};

/* Adds them, and values with labels, to /metrics (metrics.c). */
int service_add_metrics(struct service *service, struct admin_server *admin) __must_check;

/* Answers FRAME_HOLD with a HoldNews (hold_news.c); false: it does not ask for one, or there is no
 * memory. */
bool hold_news_answer(struct service *service, struct rpc_request *request,
	const struct source_hold *hold) __must_check;

/* For rpc_server_new(), with the struct service as arg. */
extern const struct rpc_server_ops service_ops;
