/*
 * stress: random reads over a real worker and master under faults, kills, damage, restarts and
 * generation switches, every byte compared with a model.
 *
 *	stress --seconds 20 --seed 7 [--reads N] [--bin DIR]
 *
 * One thread, the driver, decides everything by its seed: what is read, and what goes wrong when.
 * Reader threads take what it queued and read it as a mount does, through client/. A read must give
 * the bytes that its generation names; -ESTALE is right only of an object that the bucket has in
 * another version by now. The first wrong byte or error ends the run with status 1 and its seed.
 */
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/option.h"
#include "base/units.h"
#include "tests/debug/faults.h"
#include "tests/debug/net_fault.h"
#include "tests/stress/damage.h"
#include "tests/stress/stress.h"

#include <ftw.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#define BATCH        24u
#define CHANGES      12u
#define CAPACITY     "64MiB"
#define MEMORY       (64 * MiB)
#define VERIFY_AGE   1 /* ns: bits flip at any time, so every read is to be verified */
#define FAULT_CHANCE 120u

struct options {
	uint64_t seconds;
	uint64_t reads;
	uint64_t seed;
	const char *bin;
	const char *dir;
};

static const struct option_spec specs[] = {
	OPTION_ROW(
		struct options, seconds, "seconds", OPTION_UINT, .min = 1, .help = "how long; 20"),
	OPTION_ROW(struct options, reads, "reads", OPTION_UINT,
		.help = "goes on until there were so many; 0"),
	OPTION_ROW(struct options, seed, "seed", OPTION_UINT, .help = "of every decision; 1"),
	OPTION_ROW(struct options, bin, "bin", OPTION_STRING, .metavar = "DIR", .required = true,
		.help = "where the debug programs are"),
	OPTION_STRING_ROW(struct options, dir, "dir", "DIR", "where to work; /var/tmp"),
};

static const struct option_set option_set = {
	.program = "stress",
	.arguments = "",
	.about = "Random reads under faults, compared with a model.",
	.specs = specs,
	.n = ARRAY_SIZE(specs),
};

static uint64_t roll(struct stress *s, uint64_t below)
{
	s->random = model_mix(s->random);
	return s->random % below;
}

/* ---- what the driver does ---------------------------------------------------------------------- */

static void queue_reads(struct stress *s)
{
	for (uint32_t i = 0; i < BATCH; i++) {
		struct task task = { .object = (uint32_t)roll(s, MODEL_OBJECTS),
			.back = roll(s, 8) == 0 ? (uint32_t)roll(s, GENERATIONS) : 0,
			.whole = roll(s, 16) == 0 };

		task.where = roll(s, UINT64_MAX);
		stress_queue(s, &task);
	}
}

static void close_generation(struct stress *s, struct generation *g)
{
	if (!g)
		return;
	pthread_mutex_lock(&s->lock);
	while (g->refs)
		pthread_cond_wait(&s->changed, &s->lock);
	pthread_mutex_unlock(&s->lock);
	client_hold_end(g->hold);
	client_volume_close(g->volume);
	free(g);
}

/* The bucket as it is now becomes the newest generation. */
static int open_generation(struct stress *s, struct err *e)
{
	struct generation *g = calloc(1, sizeof(*g));
	struct generation *oldest;
	int r;

	ensure(g);
	for (uint32_t i = 0; i < MODEL_OBJECTS; i++)
		g->version[i] = atomic_load(&s->model.origin_version[i]);
	r = client_open_source(s->client, &s->source, true, &g->volume, NULL, e);
	if (r < 0) {
		free(g);
		return r;
	}
	g->hold = client_hold_begin(s->client, &table_info(client_volume_table(g->volume))->id);
	pthread_mutex_lock(&s->lock);
	oldest = s->generations[GENERATIONS - 1];
	memmove(s->generations + 1, s->generations, (GENERATIONS - 1) * sizeof(s->generations[0]));
	s->generations[0] = g;
	pthread_mutex_unlock(&s->lock);
	close_generation(s, oldest);
	s->switches++;
	return 0;
}

static int change_bucket(struct stress *s, struct err *e)
{
	for (uint32_t i = 0; i < CHANGES; i++) {
		uint32_t object = (uint32_t)roll(s, MODEL_OBJECTS);
		uint32_t version = atomic_load(&s->model.origin_version[object]);
		uint32_t next = version && roll(s, 4) == 0 ? 0 : (uint32_t)s->switches + 2;
		int r = model_put(&s->model, object, next);

		if (r < 0)
			return err_set(e, r, "the bucket: %s", err_str(r));
	}
	return open_generation(s, e);
}

static int set_faults(struct stress *s, struct err *e)
{
	static const char *const lines[] = {
		"tier.eio=0.05@read,data tier.eio=0.02@write",
		"tier.flip=0.03@read,data tier.flip=0.02@write,data",
		"tier.flip=0.02@read,table tier.flip=0.01@write,table",
		"tier.enospc=0.3@write",
		"tier.erofs=1@write tier.erofs=1@make,data",
		"tier.short=0.3 tier.torn=0.05@write,data,table",
		"tier.delay=0.1/5",
		"tier.stall=1/4000#3@read,data",
		"tier.stall=1/4000#3@write,data",
		"ufs.eio=0.05 ufs.short=0.05",
		"ufs.delay=0.3/20 ufs.eio=0.01",
		"ufs.eio=0.05 tier.flip=0.02@read,data tier.eio=0.02@read,table",
		"net.cut=0.005@message net.refuse=0.1",
		"net.flip=0.05@message tier.enospc=0.5@write",
		"net.delay=0.05/20 net.stall=1/500#3@message",
		"",
		"",
	};

	(void)snprintf(s->fault_line, sizeof(s->fault_line), "seed=%" PRIu64 " %s",
		roll(s, 1u << 30), lines[roll(s, ARRAY_SIZE(lines))]);
	s->lines++;
	if (faults_set(faults_global(), s->fault_line, e) < 0) /* of the readers' connections */
		return e->code;
	return daemon_faults(&s->daemons.worker, s->fault_line, e);
}

/* A worker that starts again begins without faults, and goes on with those there were. */
static int restart_worker(struct stress *s, int signal, struct err *e)
{
	uint64_t damage = roll(s, 8);
	int r = 0;

	if (signal == SIGTERM) /* it may not end while its disk stalls */
		r = daemon_faults(&s->daemons.worker, "", e);
	if (r == 0)
		r = daemon_end(&s->daemons.worker, signal, e);
	if (r == 0 && damage < 3)
		r = damage_boot(s->daemons.tier);
	if (r == 0 && damage == 3)
		r = damage_index(s->daemons.tier, roll(s, 2) != 0);
	if (r == 0)
		r = daemon_start(&s->daemons, &s->daemons.worker, e);
	if (r == 0)
		r = daemon_faults(&s->daemons.worker, s->fault_line, e);
	s->kills += signal == SIGKILL;
	s->restarts++;
	return r < 0 ? err_default(e, r, "restarting the worker") : 0;
}

static int restart_master(struct stress *s, struct err *e)
{
	int r = daemon_end(&s->daemons.master, SIGKILL, e);

	s->kills++;
	s->restarts++;
	return r < 0 ? r : daemon_start(&s->daemons, &s->daemons.master, e);
}

static int act(struct stress *s, struct err *e)
{
	uint64_t x = roll(s, 1000);

	if (x < 1000 - FAULT_CHANCE) {
		queue_reads(s);
		return 0;
	}
	switch (x % 10) {
	case 0:
	case 1:
	case 2:
		return set_faults(s, e);
	case 3:
	case 4:
	case 5:
		s->damages++;
		damage_file(s->daemons.tier, roll(s, UINT64_MAX));
		return 0;
	case 6:
		return restart_worker(s, SIGKILL, e);
	case 7:
		return restart_worker(s, SIGTERM, e);
	case 8:
		return restart_master(s, e);
	default:
		return change_bucket(s, e);
	}
}

/* ---- the run ----------------------------------------------------------------------------------- */

static int start(struct stress *s, const char *bin, const char *dir, struct err *e)
{
	struct client_config config = {
		.budget = &s->budget,
		.verify_age_ns = VERIFY_AGE,
		.io_threads = 2,
		.policy = { .to = { .evict = roll(s, 2) ? TIER_EVICT_LRU : TIER_EVICT_NEVER },
			.parts = POLICY_EVICT },
	};
	int r = 0;

	daemons_init(&s->daemons, bin, dir, CAPACITY);
	(void)snprintf(s->model.dir, sizeof(s->model.dir), "%s/bucket/", dir);
	for (uint32_t i = 0; i < MODEL_OBJECTS && r == 0; i++)
		r = model_put(&s->model, i, 1);
	if (r < 0)
		return err_set(e, r, "%s: %s", s->model.dir, err_str(r));
	s->source = (struct ufs_config){ .scheme = UFS_FILE, .prefix = s->model.dir };
	config.master = s->daemons.master_address;
	config.local_worker = s->daemons.worker_address;
	budget_init(&s->budget, MEMORY);
	r = daemon_start(&s->daemons, &s->daemons.master, e);
	if (r == 0)
		r = daemon_start(&s->daemons, &s->daemons.worker, e);
	if (r == 0)
		r = client_new(&config, &s->client, e);
	return r == 0 ? open_generation(s, e) : r;
}

/* In the end, without faults: every object of every generation that is open. */
static void read_all(struct stress *s)
{
	for (uint32_t back = 0; back < GENERATIONS; back++)
		for (uint32_t i = 0; i < MODEL_OBJECTS; i++)
			stress_queue(s, &(struct task){ .object = i, .back = back, .whole = true });
	stress_wait_idle(s);
}

static int drive(struct stress *s, const struct options *options, struct err *e)
{
	uint64_t end = clock_mono_ns() + options->seconds * CLOCK_SECOND;
	uint64_t renewed = 0;
	int r = 0;

	while (r == 0 && !atomic_load(&s->failed) &&
		(clock_mono_ns() < end || atomic_load(&s->reads) < options->reads)) {
		r = act(s, e);
		if (clock_mono_ns() - renewed < CLIENT_HOLD_EVERY)
			continue;
		renewed = clock_mono_ns();
		for (uint32_t i = 0; i < GENERATIONS && s->generations[i]; i++)
			if (s->generations[i]->hold)
				client_hold_renew(s->generations[i]->hold);
	}
	if (r == 0)
		r = faults_set(faults_global(), "", e);
	if (r == 0)
		r = daemon_faults(&s->daemons.worker, "", e);
	if (r == 0)
		read_all(s);
	return r;
}

static int stop(struct stress *s, struct err *e)
{
	int worker;
	int master;

	for (uint32_t i = 0; i < GENERATIONS; i++)
		close_generation(s, s->generations[i]);
	client_free(s->client);
	worker = daemon_end(&s->daemons.worker, SIGTERM, e);
	master = daemon_end(&s->daemons.master, SIGTERM, e);
	return worker < 0 ? worker : master;
}

static void run_readers(struct stress *s, const struct options *options, struct err *e, int *ret_r)
{
	pthread_t readers[READERS];

	for (uint32_t i = 0; i < READERS; i++)
		ensure(pthread_create(&readers[i], NULL, stress_reader, s) == 0);
	*ret_r = drive(s, options, e);
	pthread_mutex_lock(&s->lock);
	s->ending = true;
	pthread_cond_broadcast(&s->changed);
	pthread_mutex_unlock(&s->lock);
	for (uint32_t i = 0; i < READERS; i++)
		pthread_join(readers[i], NULL);
}

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st;
	(void)type;
	(void)ftw;
	return remove(path);
}

static void report(const struct stress *s, const struct options *options, uint64_t began)
{
	(void)printf("stress: seed=%" PRIu64 " seconds=%" PRIu64 " reads=%" PRIu64 " bytes=%" PRIu64
		     " local=%" PRIu64 " stale=%" PRIu64 " generations=%" PRIu64 " kills=%" PRIu64
		     " restarts=%" PRIu64 " damages=%" PRIu64 " fault_lines=%" PRIu64
		     " wrong=0 errors=0\n",
		options->seed, (uint64_t)((clock_mono_ns() - began) / CLOCK_SECOND), s->reads,
		s->bytes, s->local, s->stale, s->switches, s->kills, s->restarts, s->damages,
		s->lines);
}

int main(int argc, char **argv)
{
	static struct stress s = { .lock = PTHREAD_MUTEX_INITIALIZER,
		.changed = PTHREAD_COND_INITIALIZER };
	struct options options = { .seconds = 20, .seed = 1, .dir = "/var/tmp" };
	uint64_t began = clock_mono_ns();
	struct err e = ERR_INIT;
	char dir[160];
	int ended;
	int r;

	(void)option_parse_or_exit(&option_set, argc, argv, &options); /* takes no arguments */
	(void)signal(SIGPIPE, SIG_IGN);
	net_fault_install();
	s.random = s.model.seed = model_mix(options.seed);
	if (snprintf(dir, sizeof(dir), "%.100s/granary-stress-XXXXXX", options.dir) < 0 ||
		!mkdtemp(dir)) {
		perror(options.dir);
		return 1;
	}
	r = start(&s, options.bin, dir, &e);
	if (r == 0)
		run_readers(&s, &options, &e, &r);
	if (r < 0)
		stress_fail(&s, "the driver", &e);
	ended = stop(&s, &e);
	if (ended < 0)
		stress_fail(&s, "the end", &e);
	if (atomic_load(&s.failed)) {
		(void)fprintf(stderr, "stress: --seed %" PRIu64 "; what there was: %s\n",
			options.seed, dir);
		return 1;
	}
	report(&s, &options, began);
	(void)nftw(dir, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
	return 0;
}
