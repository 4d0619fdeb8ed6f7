/* What is listed again by itself. See follow.h. */
#include "master/follow.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/periodic.h"

#include <inttypes.h>
#include <string.h>

#define LOOK_NS         (CLOCK_SECOND / 4)
#define FOLLOW_LISTINGS 4u /* at once */
#define FOLLOW_QUEUE    64u

struct follow {
	struct follow_config config;
	struct pool *pool; /* one thread more than listings, which are its background jobs */
	struct periodic_work work;
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
		job->pool = (struct pool_job){ .run = run_listing, .background = true };
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

static uint64_t run(void *arg)
{
	look(arg);
	return LOOK_NS;
}

struct follow *follow_new(const struct follow_config *config)
{
	struct follow *follow = calloc(1, sizeof(*follow));

	if (!follow)
		return NULL;
	follow->config = *config;
	follow->pool = pool_new("master-follow", FOLLOW_LISTINGS + 1, FOLLOW_QUEUE);
	if (!follow->pool) {
		free(follow);
		return NULL;
	}
	follow->work = (struct periodic_work){ .name = "follow", .run = run, .arg = follow };
	periodic_start(follow->pool, &follow->work, 0);
	return follow;
}

void follow_stop(struct follow *follow)
{
	if (!follow)
		return;
	periodic_stop(&follow->work);
	pool_free(TAKE(follow->pool));
}

void follow_free(struct follow *follow)
{
	follow_stop(follow);
	free(follow);
}
