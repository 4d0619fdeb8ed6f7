/* What is listed again by itself. See follow.h. */
#include "master/follow.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/pool.h"

#include <inttypes.h>
#include <pthread.h>
#include <string.h>

#define LOOK_NS         (CLOCK_SECOND / 4)
#define FOLLOW_LISTINGS 4u /* at once */
#define FOLLOW_QUEUE    64u

struct follow {
	struct follow_config config;
	struct pool *pool;
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t wake;
	bool stop;
};

/* One listing. */
struct listing_job {
	struct pool_job pool;
	struct follow *follow;
	struct source_wait wait;
	struct ufs_config config;
	struct volume_id volume;
	uint64_t newest; /* serial before */
};

static uint64_t newest_serial(struct follow *follow, const struct volume_id *volume)
{
	struct source_view view;

	return source_set_view(follow->config.sources, volume, &view) < 0 ? 0 : view.newest.serial;
}

static void job_free(struct listing_job *job)
{
	ufs_config_release(&job->config);
	free(job);
}

static void listed(
	struct source_wait *wait, int status, struct source_answer *answer, const struct err *e)
{
	struct listing_job *job = container_of(wait, struct listing_job, wait);
	struct follow *follow = job->follow;

	(void)e; /* the flight has logged it */
	/* An origin that is away is answered with what there is. */
	if (status == 0 && !answer->listed)
		status = -EHOSTUNREACH;
	source_set_followed(follow->config.sources, &job->volume, status);
	if (status == 0 && newest_serial(follow, &job->volume) != job->newest)
		membership_news(follow->config.membership);
	job_free(job);
}

/* Its dataset may have been deleted since it was due. */
static bool is_wanted(struct source_wait *wait)
{
	const struct listing_job *job = container_of(wait, struct listing_job, wait);
	struct source_follow *follows = NULL;
	struct source_view view;
	uint32_t n = 0;
	bool wanted = dataset_set_follow(job->follow->config.datasets, &follows, &n) < 0;

	for (uint32_t i = 0; i < n; i++)
		wanted |= volume_id_equal(&follows[i].volume, &job->volume);
	free(follows);
	return wanted || (source_set_view(job->follow->config.sources, &job->volume, &view) == 0 &&
				 view.mounts > 0);
}

static void run_listing(struct pool_job *pool)
{
	struct listing_job *job = container_of(pool, struct listing_job, pool);

	source_open(job->follow->config.sources, &job->wait);
}

/* Those whose time has come. */
static void list_due(struct follow *follow)
{
	for (;;) {
		struct listing_job *job = calloc(1, sizeof(*job));
		int r = job ? source_set_follow_due(
				      follow->config.sources, &job->volume, &job->config)
			    : -ENOMEM;

		if (r < 0) {
			free(job);
			return; /* or the next time */
		}
		job->follow = follow;
		job->pool.run = run_listing;
		job->wait = (struct source_wait){ .config = &job->config,
			.as_known = true,
			.refresh = true,
			.is_wanted = is_wanted,
			.of_dataset = true,
			.on_done = listed };
		job->newest = newest_serial(follow, &job->volume);
		r = pool_submit(follow->pool, &job->pool);
		if (r == 0)
			continue;
		source_set_follow_later(follow->config.sources, &job->volume);
		job_free(job);
		return; /* no room: as soon as there is some */
	}
}

static void look(struct follow *follow)
{
	struct source_follow *follows = NULL;
	uint32_t n = 0;

	if (dataset_set_follow(follow->config.datasets, &follows, &n) < 0)
		return; /* as before */
	source_set_follow(follow->config.sources, follows, n);
	free(follows);
	list_due(follow);
}

static void *run(void *arg)
{
	struct follow *follow = arg;

	pthread_mutex_lock(&follow->lock);
	while (!follow->stop) {
		struct timespec until;
		uint64_t due;

		pthread_mutex_unlock(&follow->lock);
		look(follow);
		pthread_mutex_lock(&follow->lock);
		due = clock_mono_ns() + LOOK_NS;
		until = (struct timespec){ .tv_sec = (time_t)(due / CLOCK_SECOND),
			.tv_nsec = (long)(due % CLOCK_SECOND) };
		if (!follow->stop)
			(void)pthread_cond_timedwait(
				&follow->wake, &follow->lock, &until); /* time or stop */
	}
	pthread_mutex_unlock(&follow->lock);
	return NULL;
}

struct follow *follow_new(const struct follow_config *config)
{
	struct follow *follow = calloc(1, sizeof(*follow));
	pthread_condattr_t monotonic;

	if (!follow)
		return NULL;
	follow->config = *config;
	follow->pool = pool_new("master-follow", FOLLOW_LISTINGS, FOLLOW_QUEUE);
	if (!follow->pool) {
		free(follow);
		return NULL;
	}
	pthread_mutex_init(&follow->lock, NULL);
	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_cond_init(&follow->wake, &monotonic);
	pthread_condattr_destroy(&monotonic);
	if (pthread_create(&follow->thread, NULL, run, follow) == 0)
		return follow;
	pool_free(follow->pool);
	pthread_cond_destroy(&follow->wake);
	pthread_mutex_destroy(&follow->lock);
	free(follow);
	return NULL;
}

void follow_stop(struct follow *follow)
{
	if (!follow || !follow->pool)
		return;
	pthread_mutex_lock(&follow->lock);
	follow->stop = true;
	pthread_cond_signal(&follow->wake);
	pthread_mutex_unlock(&follow->lock);
	(void)pthread_join(follow->thread, NULL); /* ours */
	pool_free(TAKE(follow->pool));
}

void follow_free(struct follow *follow)
{
	if (!follow)
		return;
	follow_stop(follow);
	pthread_cond_destroy(&follow->wake);
	pthread_mutex_destroy(&follow->lock);
	free(follow);
}
