/* Backups by the day, and on demand. See backups.h. */
#include "master/backups.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/periodic.h"
#include "master/service.h"

#include <dirent.h>
#include <inttypes.h>
#include <limits.h>
#include <pthread.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#define LOOK_NS      (600 * CLOCK_SECOND) /* whether a new day has begun */
#define FIRST_NS     (60 * CLOCK_SECOND)  /* after the start, which has other things to do */
#define DAILY_PREFIX "daily-"
#define SUFFIX       ".granary"
#define LIST_MAX     (BACKUPS_KEEP_MAX + 8u)

struct backups {
	struct backups_config config;
	char dir[PATH_MAX - 64];
	pthread_mutex_t asked; /* one that somebody asked for at a time */
	struct pool *pool;     /* for `daily` */
	struct periodic_work daily;
};

/* ---- daily ----------------------------------------------------------------------------------- */

static int by_name(const void *a, const void *b)
{
	return strcmp(*(char *const *)b, *(char *const *)a);
}

static bool is_backup(const char *name, const char *prefix)
{
	size_t len = strlen(name);

	return strncmp(name, prefix, strlen(prefix)) == 0 && len > strlen(SUFFIX) &&
	       strcmp(name + len - strlen(SUFFIX), SUFFIX) == 0;
}

/* Names that begin with `prefix`, the last first; each to be freed. */
static unsigned int list_names(const struct backups *b, const char *prefix, char *names[LIST_MAX])
{
	DIR *dir = opendir(b->dir);
	const struct dirent *entry;
	unsigned int n = 0;

	while (dir && n < LIST_MAX &&
		(entry = readdir(dir)) != NULL) { // NOLINT(concurrency-mt-unsafe): own DIR
		if (!is_backup(entry->d_name, prefix))
			continue;
		names[n] = strdup(entry->d_name);
		n += names[n] != NULL;
	}
	if (dir)
		(void)closedir(dir); /* read only */
	qsort(names, n, sizeof(names[0]), by_name);
	return n;
}

static void remove_old(const struct backups *b)
{
	char *names[LIST_MAX];
	unsigned int n = list_names(b, DAILY_PREFIX, names);

	for (unsigned int i = 0; i < n; i++) {
		char path[PATH_MAX];

		(void)snprintf(path, sizeof(path), "%s/%.60s", b->dir, names[i]); /* fits */
		if (i >= b->config.keep && unlink(path) != 0)
			log_warn("old backup not removed", "file=\"%s\" cause=%s", path,
				err_name(err_errno()));
		free(names[i]);
	}
}

/* Today's, unless it is there. */
static void make_daily(const struct backups *b)
{
	time_t now = (time_t)(clock_wall_ns() / CLOCK_SECOND);
	struct backup_stats stats;
	struct err e = ERR_INIT;
	char path[PATH_MAX];
	char day[16];
	struct tm tm;

	(void)gmtime_r(&now, &tm); /* of this century */
	(void)strftime(day, sizeof(day), "%Y%m%d", &tm);
	(void)snprintf(path, sizeof(path), "%s/" DAILY_PREFIX "%s" SUFFIX, b->dir, day); /* fits */
	if (access(path, F_OK) == 0)
		return;
	if (backup_write(b->config.store, b->config.tables, path, &stats, &e) < 0) {
		log_error("no backup today", "cause=\"%s\" next=\"tried again in 10 minutes\"",
			e.text);
		return;
	}
	log_info("backup written",
		"file=\"%s\" bytes=%" PRIu64 " records=%" PRIu64 " tables=%" PRIu64, path,
		stats.bytes, stats.records, stats.tables);
	remove_old(b);
}

static uint64_t run(void *arg)
{
	make_daily(arg);
	return LOOK_NS;
}

/* ---- life ------------------------------------------------------------------------------------ */

int backups_new(const struct backups_config *config, struct backups **ret_backups, struct err *e)
{
	struct backups *b = calloc(1, sizeof(*b));

	if (!b)
		return err_set(e, -ENOMEM, "out of memory");
	b->config = *config;
	pthread_mutex_init(&b->asked, NULL);
	if (snprintf(b->dir, sizeof(b->dir), "%s/backups", config->state) >= (int)sizeof(b->dir)) {
		backups_free(b);
		return err_set(e, -ENAMETOOLONG, "%s: the path is too long", config->state);
	}
	if (file_mkdirs(b->dir, 0700) < 0)
		log_warn(
			"no backups", "dir=\"%s\" why=\"the directory cannot be created\"", b->dir);
	b->pool = pool_new("backup", 1, 1);
	if (!b->pool) {
		backups_free(b);
		return err_set(e, -EAGAIN, "no thread for backups: raise ulimit -u");
	}
	b->daily = (struct periodic_work){ .name = "backup", .run = run, .arg = b };
	if (config->keep > 0)
		periodic_start(b->pool, &b->daily, FIRST_NS);
	*ret_backups = b;
	return 0;
}

void backups_free(struct backups *b)
{
	if (!b)
		return;
	periodic_stop(&b->daily);
	pool_free(b->pool);
	pthread_mutex_destroy(&b->asked);
	free(b);
}

/* ---- HTTP ------------------------------------------------------------------------------------ */

int backups_api_create(
	void *arg, const struct admin_request *request, json_t **ret_json, struct err *e)
{
	struct backups *b = ((struct service *)arg)->backups;
	struct backup_stats stats;
	char path[PATH_MAX];
	int r;

	(void)request;
	(void)snprintf(path, sizeof(path), "%s/asked" SUFFIX, b->dir); /* fits */
	pthread_mutex_lock(&b->asked);
	r = backup_write(b->config.store, b->config.tables, path, &stats, e);
	pthread_mutex_unlock(&b->asked);
	if (r < 0)
		return r;
	*ret_json = json_pack("{s:s, s:I, s:I, s:I, s:o, s:s, s:I}", "file", path, "bytes",
		(json_int_t)stats.bytes, "records", (json_int_t)stats.records, "tables",
		(json_int_t)stats.tables, "time", backup_time_json(&stats), "cluster",
		stats.cluster.uuid, "epoch", (json_int_t)stats.cluster.epoch);
	return *ret_json ? 0 : err_set(e, -ENOMEM, "out of memory");
}

static json_t *entry_json(const struct backups *b, const char *name)
{
	char path[PATH_MAX];
	struct stat st;

	(void)snprintf(path, sizeof(path), "%s/%.60s", b->dir, name); /* fits */
	if (stat(path, &st) != 0)
		return NULL; /* removed meanwhile */
	return json_pack("{s:s, s:I, s:I}", "file", path, "bytes", (json_int_t)st.st_size, "time",
		(json_int_t)st.st_mtim.tv_sec);
}

int backups_api_list(
	void *arg, const struct admin_request *request, json_t **ret_json, struct err *e)
{
	const struct backups *b = ((struct service *)arg)->backups;
	char *names[LIST_MAX];
	unsigned int n = list_names(b, "", names);
	json_t *list = json_array();

	(void)request;
	for (unsigned int i = 0; i < n; i++) {
		json_t *one = entry_json(b, names[i]);

		if (one)
			(void)json_array_append_new(list, one); /* for display only */
		free(names[i]);
	}
	*ret_json = json_pack("{s:o}", "backups", list);
	return *ret_json ? 0 : err_set(e, -ENOMEM, "out of memory");
}
