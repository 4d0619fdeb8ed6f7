/* The worker put together and taken apart. See worker.h. */
#include "cacheworker/worker.h"
#include "cacheworker/copies.h"
#include "cacheworker/fetch.h"
#include "cacheworker/fill.h"
#include "cacheworker/flight.h"
#include "cacheworker/tier_call.h"
#include "cacheworker/handover.h"
#include "cacheworker/handout.h"
#include "cacheworker/holds.h"
#include "cacheworker/kept.h"
#include "cacheworker/preload.h"
#include "cacheworker/runs.h"
#include "cacheworker/scrub.h"
#include "cacheworker/seal.h"
#include "cacheworker/source.h"
#include "cacheworker/status.h"
#include "cacheworker/retention.h"
#include "cacheworker/tierless.h"
#include "base/arena.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/exit.h"
#include "base/log.h"
#include "base/daemon.h"
#include "base/units.h"

#include <string.h>
#include <unistd.h>

/* Each work has a thread when all others block, so a heartbeat never waits for a disk. */
#define WORKS           8u /* member, retention, eviction by path, copies, handover, preload x 2, tierless */
#define QUIET_WORKS     2u /* scrub, seal */
#define SERVE_THREADS   2u
#define SPARE_THREADS   1u /* go on when a tier holds as many as it may */
#define CONTROL_THREADS 2u
#define ADOPT_THREADS   2u
#define PEERS_THREADS   2u
#define REPLIES_LEAST   (4 * MiB)  /* four of the largest */
#define FIXED_BYTES     (8 * MiB)  /* tables of requests; buffers of the disk */
#define KEPT_BYTES      (24 * MiB) /* of buffers, for the next units */

/*
 * Units and replies end by themselves, each with a least of its own: a reply waits for units, and
 * units for no reader. Heads of chunks and tables stay, so theirs is kept free of units; beyond it
 * they have whatever is left: three eighths are never the units'.
 */
static uint64_t bytes_in_tiers; /* of kind ram: one worker in a process has an arena */

static void share_out(uint64_t all)
{
	uint64_t memory = all - min(all, bytes_in_tiers);

	arena_share(ARENA_UNITS, memory / 4, memory / 8 * 5);
	arena_share(ARENA_REPLIES, max(memory / 16, REPLIES_LEAST), memory / 8);
	arena_share(ARENA_CHUNKS, memory / 8, 0);
	arena_share(ARENA_TABLES, memory / 8, 0);
	arena_share(ARENA_CONNECTIONS, memory / 32, memory / 8);
	arena_share(ARENA_FILLS, 0, memory / 16);
}

void worker_memory_open(uint64_t memory, uint64_t in_tiers)
{
	bytes_in_tiers = in_tiers;
	daemon_keep_memory(memory - in_tiers);
	daemon_map_large();
	arena_open(memory, share_out);
	arena_must(ARENA_RAM_TIER, in_tiers);
	arena_must(ARENA_FIXED, FIXED_BYTES);
}

static void on_tier_state(void *arg, const char *path, const char *state, const char *why)
{
	struct worker *w = arg;

	if (strcmp(state, "replaced") == 0) {
		log_error("tier came back as another device",
			"path=\"%s\" next=\"the worker ends and is restarted\"", path);
		_exit(EXIT_RUNTIME); /* what is open on the old device may never close */
	}
	if (strcmp(state, "ok") == 0)
		log_info("tier in service", "path=\"%s\"", path);
	else
		log_warn("tier not in full service",
			"path=\"%s\" state=%s reason=\"%s\" next=\"checked regularly; readers get "
			"their bytes elsewhere\"",
			path, state, why);
	flights_leave_stalled(w);
}

static int open_no_tiers(struct worker *w, struct err *e)
{
	log_warn("serving without a tier",
		"cause=\"%s\" next=\"checked regularly; readers get their bytes from the origin\"",
		e->text);
	*e = ERR_INIT;
	tierless_start(w);
	return tier_set_open(NULL, 0, &w->tiers, e);
}

static int open_tiers(struct worker *w, struct err *e)
{
	int r;

	w->work = pool_new("work", WORKS, WORKS);
	w->quiet = pool_new("quiet", QUIET_WORKS, QUIET_WORKS);
	if (!w->work || !w->quiet)
		return err_set(e, -EAGAIN,
			"cannot start threads: raise the limit on processes (ulimit -u)");
	pool_set_idle_io(w->quiet);
	r = tier_set_open(w->config->tiers, w->config->n_tiers, &w->tiers, e);
	if (w->config->without_tier && tierless_may(r))
		r = open_no_tiers(w, e);
	if (r < 0)
		return r;
	tier_set_on_state(w->tiers, on_tier_state, w);
	tier_set_runs(w->tiers, runs_next, w);
	for (uint32_t i = 0; i < tier_set_count(w->tiers); i++) {
		struct tier_status status;

		tier_set_status(w->tiers, i, &status);
		if (status.swaps)
			log_warn("tier in memory may be swapped out",
				"path=\"%s\" next=\"mount it with the option noswap (Linux 6.4 "
				"or later)\"",
				status.path);
	}
	return 0;
}

static int open_threads(struct worker *w, struct err *e)
{
	unsigned int calls = tier_set_count(w->tiers) * TIER_CALLS;

	w->loop = loop_new("net");
	w->serve = pool_new("serve", SERVE_THREADS, LIMIT_POOL_QUEUE);
	/* These read, and make chunks, which is a writing call. */
	w->look = pool_new("look", 2 * calls + SPARE_THREADS, LIMIT_POOL_QUEUE);
	w->disk = pool_new("disk", calls + SPARE_THREADS, LIMIT_POOL_QUEUE);
	w->control = pool_new("control", CONTROL_THREADS, LIMIT_POOL_QUEUE);
	w->adopt = pool_new("adopt", ADOPT_THREADS, LIMIT_POOL_QUEUE);
	w->peers = pool_new("peers", PEERS_THREADS, LIMIT_POOL_QUEUE);
	if (!w->loop || !w->serve || !w->look || !w->disk || !w->control || !w->adopt || !w->peers)
		return err_set(e, -EAGAIN,
			"cannot start threads: raise the limit on processes (ulimit -u)");
	return 0;
}

/* Another table, or news of the master's: on the loop. */
static void on_table(void *arg)
{
	struct worker *w = arg;
	uint32_t known;
	uint32_t up;

	if (atomic_load(&w->closing) || !atomic_load(&w->viewed))
		return;
	view_count(w->view, &up, &known);
	atomic_store(&w->others, known > 0 ? known - 1 : 0);
	copies_wake(w);
	handover_wake(w);
	former_note_table(w);
	pulls_leave(w);
	retention_wake(w);
}

static void on_hang(void *arg)
{
	struct worker *w = arg;

	if (!atomic_load(&w->closing) && atomic_load(&w->viewed))
		pulls_leave(w);
}

static int open_view(struct worker *w, struct err *e)
{
	char dir[PATH_MAX];
	struct view_config config = {
		.dir = kept_dir(w, dir) == 0 ? dir : NULL,
		.self = w->member.id,
		.on_news = on_table,
		.on_table = on_table,
		.on_hang = on_hang,
		.arg = w,
	};
	int r = rpc_client_new(w->loop, w->config->master, &w->view_master, e);

	if (r < 0)
		return r;
	rpc_client_fence(w->view_master, &w->fence);
	cluster_host(config.host);
	config.master = w->view_master;
	r = view_open(w->loop, &config, 0, &w->view, e);
	if (r < 0)
		return r;
	view_set_hangs(w->view, VIEW_HANGS * max(w->config->peer_patience, 1u));
	atomic_store(&w->viewed, true);
	loop_call(w->loop, on_table, w); /* what the disk said */
	return r;
}

static int open_net(struct worker *w, struct err *e)
{
	int r = kept_fence_load(w, e);

	if (r == 0)
		r = member_init(w, e);
	if (r == 0 && former_open(w) < 0)
		r = err_set(e, -ENOMEM, "no memory for the previous owners of slots");
	if (r == 0)
		r = rpc_client_new(w->loop, w->config->master, &w->master, e);
	if (r == 0)
		rpc_client_fence(w->master, &w->fence);
	if (r == 0)
		r = open_view(w, e);
	if (r == 0)
		r = admin_server_new(w->config->admin, status_routes, w, &w->admin, e);
	if (r == 0 && status_add_counters(w) < 0)
		r = err_set(e, -ENOMEM, "no memory for the counters");
	if (r == 0)
		r = admin_server_listen(w->admin, &w->config->admin_listen, NULL, e);
	if (r == 0)
		r = rpc_servers_open(&w->servers, w->loop, w->config->listen, w->config->n_listen,
			&fetch_server_ops, w, e);
	if (r == 0 && member_keep_addresses(w) < 0)
		r = err_set(e, -ENOMEM, "no memory for the worker's addresses");
	if (r == 0) {
		retention_start(w);
		member_start(w);
	}
	return r;
}

static void keep_rates(struct worker *w, const struct worker_config *config)
{
	atomic_store(&w->rates.scrub, config->scrub_rate);
	atomic_store(&w->rates.scrub_max_age, config->scrub_max_age);
	atomic_store(&w->rates.seal, config->seal_rate);
}

void worker_set_rates(struct worker *w, const struct worker_config *config)
{
	keep_rates(w, config);
	seals_start(w); /* it runs already, unless the rate was 0 so far */
}

int worker_open(struct worker *w, const struct worker_config *config, struct err *e)
{
	int r;

	*w = (struct worker){ .config = config,
		.started_ns = clock_mono_ns(),
		.tier_call_ns = TIER_CALL_NS,
		.promote_ns = PROMOTE_NS };
	keep_rates(w, config);
	budget_init_user(&w->memory, config->memory - config->memory / 4, ARENA_UNITS);
	budget_init_user(&w->gathered, config->memory / 4, ARENA_REPLIES);
	pthread_mutex_init(&w->fetch_lock, NULL);
	pthread_mutex_init(&w->sources.lock, NULL);
	list_init(&w->sources.all);
	pipes_init(&w->pipes);
	buffers_init(&w->buffers, min(config->memory / 16, KEPT_BYTES));
	retention_init(w);
	troubles_init(&w->troubles);
	fence_init(&w->fence);
	r = flights_init(w);
	if (holds_init(w) < 0)
		r = -ENOMEM;
	if (pulls_init(w) < 0 || herds_init(w) < 0 || spill_init(w) < 0)
		r = -ENOMEM;
	if (fills_init(w) < 0 || r < 0) /* both, for worker_close() */
		return err_set(e, -ENOMEM, "no memory for the tables of requests");
	r = open_tiers(w, e);
	if (r == 0)
		handout_open(w);
	if (r == 0 && (copies_open(w) < 0 || handover_open(w) < 0))
		r = err_set(e, -ENOMEM, "no memory for the table of volumes");
	if (r == 0)
		r = open_threads(w, e);
	if (r == 0 && scrub_open(w) < 0)
		r = err_set(e, -ENOMEM, "no memory for the scrub");
	if (r == 0 && seals_open(w) < 0)
		r = err_set(e, -ENOMEM, "no memory for sealing");
	if (r == 0 && preloads_open(w) < 0)
		r = err_set(e, -ENOMEM, "no memory for preloads");
	if (r == 0)
		r = open_net(w, e);
	if (r < 0)
		return r;
	scrub_start(w);
	seals_start(w);
	preloads_start(w);
	copies_start(w);
	handover_start(w);
	return 0;
}

/*
 * Order: nothing new is started; readers' requests end (their connections close, which cancels what
 * is parked); so do questions to the master; the threads that could start a unit end; the origins
 * end theirs; what has landed is written; the tiers close.
 */
void worker_close(struct worker *w)
{
	atomic_store(&w->closing, true);
	tierless_stop(w);
	scrub_stop(w);
	seals_stop(w);
	preloads_stop(w);
	copies_stop(w);
	handover_stop(w);
	fills_close(w);
	flights_close(w);
	rpc_servers_close(&w->servers);
	admin_server_free(TAKE(w->admin));
	retention_stop(w);
	member_stop(w);
	sources_close(w);
	rpc_client_free(TAKE(w->master));
	scrub_close(w); /* what it asked the master has ended */
	seals_close(w);
	preloads_join(w);
	retention_close(w);
	member_close(w);
	handover_join(w);
	pool_free(TAKE(w->control));
	pool_free(TAKE(w->serve));
	pool_free(TAKE(w->adopt)); /* what it has becomes a pull's, or the origins' */
	pulls_close(w);
	pool_free(TAKE(w->peers));
	herds_close(w);
	sources_close_origins(w);
	if (w->tiers)
		tier_set_on_state(w->tiers, NULL, NULL); /* it ends units, too */
	pool_free(TAKE(w->look));
	pool_free(w->disk); /* its jobs may submit themselves again */
	w->disk = NULL;
	view_close(TAKE(w->view));
	rpc_client_free(TAKE(w->view_master));
	former_close(w);
	loop_free(TAKE(w->loop));
	pool_free(TAKE(w->work)); /* nothing pokes a work any more */
	pool_free(TAKE(w->quiet));
	kept_fence_save(w);
	preloads_close(w);
	flights_release(w);
	buffers_release(&w->buffers);
	pulls_release(w);
	herds_release(w);
	spill_release(w);
	fills_release(w);
	holds_release(w);
	pipes_release(&w->pipes);
	handout_close(w);
	handover_close(w);
	copies_close(w);
	tier_set_free(TAKE(w->tiers));
	sources_free(w);
	retention_release(w);
	troubles_release(&w->troubles);
	fence_release(&w->fence);
	pthread_mutex_destroy(&w->sources.lock);
	pthread_mutex_destroy(&w->fetch_lock);
}
