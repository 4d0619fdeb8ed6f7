/*
 * One flight of a source: list the origin if somebody wants that, lay out what was found after the
 * newest generation, store, publish, answer everybody.
 *
 *	askers contradicted the history ──► new lineage: laid out after nothing
 *	origin out of reach, generation there ──► that generation, with a notice
 *	nothing changed ──► that generation
 */
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/crash_point.h"
#include "base/daemon.h"
#include "base/file.h"
#include "base/log.h"
#include "base/utf8.h"
#include "master/events.h"
#include "master/source_internal.h"
#include "net/allowance.h"

#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <string.h>
#include <sys/statvfs.h>

DEFINE_CLEANUP(struct listing *, listing_free);
DEFINE_CLEANUP(struct ufs *, ufs_free);

struct flight {
	struct source *source;
	const struct ufs_config *config; /* how to reach the origin; NULL: it is not to be listed */
	bool is_news;                    /* that is how the source is reached from now on */
	struct table *prev;              /* newest table; NULL: there is none that can be used */
	bool lost;                       /* there was one, and it is gone or damaged */
	uint64_t requests_per_s;         /* of the origin at most; 0: no bound */
	bool contradicted; /* an asker has seen what this master's history does not have */
	uint64_t seen;     /* generation that he saw */
	bool listed;
	int64_t began_ms; /* the listing, since 1970 */
	struct generation_stats stats;
	char notice[ERR_TEXT_MAX];
	int status; /* of the listing; answers those who wanted it */
	struct err failure;
};

static void table_cleanup(struct table **table)
{
	if (*table)
		table_unref(*table);
}

struct sink {
	struct source *source;
	struct listing *listing;
};

static int take_objects(void *arg, const struct ufs_object *objects, uint32_t n)
{
	struct sink *sink = arg;

	if (atomic_load(&sink->source->set->stopping))
		return -ECANCELED;
	for (uint32_t i = 0; i < n; i++) {
		const struct ufs_object *o = &objects[i];
		int r = listing_add(sink->listing, o->key, o->key_len, o->size, o->mtime_ns, o->tag,
			o->tag_len);

		if (r < 0)
			return r;
	}
	atomic_fetch_add(&sink->source->listing_keys, n);
	return 0;
}

/* Tells people, by the name that they gave the source. */
static void note(
	const struct source *source, enum event_level level, const char *kind, const char *text)
{
	static const char *const schemes[] = {
		[UFS_S3] = "s3", [UFS_FILE] = "file", [UFS_OBS] = "obs"
	};
	const struct ufs_config *config = &source->record.config;
	char url[EVENT_ON_BYTES];

	(void)snprintf(url, sizeof(url), "%s://%s%s%s", schemes[config->scheme],
		config->bucket ? config->bucket : "", config->bucket ? "/" : "",
		config->prefix ? config->prefix : ""); /* cut */
	event_note(level, kind, url, "%s", text);
}

static void note_generation(const struct source *source, const struct record_generation *g)
{
	char text[EVENT_TEXT_BYTES];

	(void)snprintf(text, sizeof(text),
		"generation %" PRIu64 ": %" PRIu64 " files; %" PRIu64 " added, %" PRIu64
		" changed, %" PRIu64 " removed",
		g->id.generation, g->files, g->added, g->changed, g->removed); /* fits */
	note(source, EVENT_INFO, "generation", text);
}

/* What source_set_stop() and source_set_end_listing() end; NULL: nothing. -ECANCELED when they came before. */
static int set_lister(struct flight *flight, struct ufs *ufs)
{
	struct source *source = flight->source;
	bool ended;

	pthread_mutex_lock(&source->set->lock);
	source->lister = ufs;
	ended = atomic_load(&source->set->stopping) || source->ended;
	pthread_mutex_unlock(&source->set->lock);
	return ended ? -ECANCELED : 0;
}

/* How the objects of the newest table were listed. A table that cannot be read to its end may have
 * ids of versions: a listing that has them, or fails, does no harm. */
static enum ufs_before listed_before(void *arg)
{
	struct table *table = arg;
	_cleanup_(table_cursor_release) struct table_cursor cursor = { 0 };
	_cleanup_free_ struct table_row *row = malloc(sizeof(*row));
	enum ufs_before before = UFS_BEFORE_NOTHING;
	int r = row ? 0 : -ENOMEM;

	while (r == 0 && (r = table_next(table, &cursor, row)) == 0) {
		if (row->tag_len == 0 || (row->flags & ROW_DEAD))
			continue;
		if (ufs_tag_has_version(row->tag, row->tag_len))
			return UFS_BEFORE_VERSIONS;
		before = UFS_BEFORE_PLAIN;
	}
	return r == -ENOENT ? before : UFS_BEFORE_VERSIONS;
}

/* Has the newest table an object of this name, or one below it? Not the marker of a directory: an empty one is not
 * missed. */
static bool was_listed(void *arg, const char *name, uint32_t len)
{
	struct table *table = arg;
	_cleanup_(table_cursor_release) struct table_cursor cursor = { 0 };
	_cleanup_free_ struct table_row *row = malloc(sizeof(*row));
	char below[LIMIT_KEY_BYTES + 2];
	int r = row ? table_find_key(table, name, len, row) : -ENOMEM;

	if (r != -ENOENT || len > LIMIT_KEY_BYTES)
		return r != -ENOENT;
	memcpy(below, name, len);
	below[len++] = '/';
	r = table_lower_bound(table, below, len, &cursor.ordinal);
	while (r == 0 && (r = table_next(table, &cursor, row)) == 0) {
		if (row->key_len < len || memcmp(row->key, below, len) != 0)
			return false;
		if (row->key_len > len && !(row->flags & ROW_DEAD))
			return true;
	}
	return r != -ENOENT;
}

static int given_up_error(const struct source *source, struct err *e)
{
	return err_set(e, -ECANCELED, "the listing of %s was canceled: nothing uses it any more",
		source->record.text);
}

/* What a listing of a directory left out, and what it has that cannot be read: without it a tree of links, or of
 * another user, seems empty or broken. */
static void notice_listed(
	struct flight *flight, const struct ufs_config *config, const struct ufs *ufs)
{
	uint64_t left_out = counter_get(&ufs_counters(ufs)->left_out);
	uint64_t unreadable = counter_get(&ufs_counters(ufs)->unreadable);
	_cleanup_(buf_release) struct buf text = BUF_INIT(sizeof(flight->notice) - 1);
	int r = 0;

	if (left_out)
		r = buf_printf(&text,
			"links and special files left out of %.300s: %" PRIu64
			": only regular files and directories are shown",
			config->prefix, left_out);
	if (r == 0 && unreadable)
		r = buf_printf(&text,
			"%suser %u cannot read %" PRIu64
			" files or directories of %.300s, first %s: chmod them and mount again, or "
			"run the daemons as another user",
			text.len ? "; " : "", geteuid(), unreadable, config->prefix,
			ufs_first_unreadable(ufs));
	if (r == 0 && text.len) /* without memory: the log of the listing has it */
		memcpy(flight->notice, buf_str(&text), text.len + 1);
}

/* Opens the origin. The path of a directory in a record of an older master may have links: it is opened only if they lead
 * to this source, and by its path without them. */
static int open_origin(const struct flight *flight, const struct ufs_config *config,
	struct ufs **ret_ufs, struct err *e)
{
	_cleanup_(ufs_config_release) struct ufs_config real = { 0 };
	_cleanup_(buf_release) struct buf text = BUF_INIT(2 * LIMIT_URL_BYTES);
	struct ufs_limits limits = flight->source->set->config.limits;
	int r = ufs_config_copy(config, &real);

	if (r < 0)
		return r;
	if (flight->requests_per_s)
		limits.requests_per_s = flight->requests_per_s;
	r = ufs_config_resolve(&real);
	if (r < 0)
		return err_set(e, r, "directory %s: %s; the source must exist", config->prefix,
			err_str(r));
	if (!config->resolved && real.resolved) {
		r = ufs_config_source(&real, &text, e);
		if (r == 0 && strcmp(buf_str(&text), flight->source->record.text) != 0)
			r = err_set(e, -ELOOP,
				"directory %s: a symbolic link in its path was changed; restore it",
				config->prefix);
	}
	return r < 0 ? r : ufs_open(&real, &limits, ret_ufs, e);
}

static int list_objects(struct flight *flight, const struct ufs_config *config,
	struct listing *listing, struct err *e)
{
	struct source *source = flight->source;
	_cleanup_(ufs_free_p) struct ufs *ufs = NULL;
	struct sink sink = { source, listing };
	int r = open_origin(flight, config, &ufs, e);

	if (r == 0)
		r = set_lister(flight, ufs);
	if (r == 0)
		r = ufs_probe(ufs, e);
	if (r == 0 && flight->prev)
		ufs_list_after(
			ufs, &(struct ufs_listed){ listed_before, was_listed, flight->prev });
	if (r == 0)
		r = ufs_list(ufs, take_objects, &sink, e);
	(void)set_lister(flight, NULL); /* it ends below */
	if (r == 0)
		notice_listed(flight, config, ufs);
	if (r < 0 && listing_spill_failed(listing, e))
		return r;
	if (r == -ECANCELED)
		return given_up_error(source, e);
	if (r == -E2BIG)
		return err_set(e, r,
			"%s has more objects than a source may have (%u): mount a prefix of it",
			source->record.text, LIMIT_FILES);
	return r < 0 ? err_default(e, r, source->record.text) : 0;
}

/* The store and the table that is made of the listing need room, too. */
static uint64_t listing_disk(const struct source_set *set)
{
	struct statvfs fs;

	if (set->config.listing_disk || statvfs(set->config.tables, &fs) != 0)
		return set->config.listing_disk ? set->config.listing_disk : LISTING_DISK_MOST;
	return min((uint64_t)fs.f_bavail * fs.f_frsize / 2, LISTING_DISK_MOST);
}

/* An empty listing: what does not fit its memory goes to where the tables are. */
static int listing_begin(const struct source *source, struct listing **ret_listing)
{
	_cleanup_(listing_free_p) struct listing *listing =
		listing_new(source->set->config.listing_bytes);
	int r = listing ? listing_spill_to(
				  listing, source->set->config.tables, listing_disk(source->set))
			: -ENOMEM;

	if (r == 0)
		*ret_listing = TAKE(listing);
	return r;
}

/* After a listing that worked: the way the origin was reached is the source's way from now on. */
static void adopt_config(struct source *source, const struct ufs_config *config)
{
	bool no_local = config->no_local && source->record.config.no_local;
	struct ufs_config copy;
	int r;

	if ((source_same_way(config, &source->record.config) &&
		    no_local == source->record.config.no_local) ||
		ufs_config_copy(config, &copy) < 0)
		return;
	copy.no_local = no_local; /* an endpoint that a local caller named stays allowed */
	pthread_mutex_lock(&source->set->lock);
	ufs_config_release(&source->record.config);
	source->record.config = copy;
	pthread_mutex_unlock(&source->set->lock);
	r = generations_store_source(source);
	if (r < 0)
		log_warn("access settings not stored", "source=\"%s\" cause=%s",
			source->record.text, err_name(r));
}

/* What they want may be another thing by now; what is set from here on is the later word. */
static void ask_policies(struct source *source, const struct list *waiters)
{
	uint64_t sets;

	pthread_mutex_lock(&source->set->lock);
	sets = source->policy_sets;
	pthread_mutex_unlock(&source->set->lock);
	list_for_each (at, waiters) {
		struct source_wait *wait = list_entry(at, struct source_wait, link);

		if (!wait->policy_now)
			continue;
		wait->policy_sets = sets;
		wait->policy_now(wait);
	}
}

/* What those who were served want of the source's policy; the last one wins. */
static void adopt_policy(struct source *source, const struct list *waiters)
{
	bool changed = false;
	int r;

	ask_policies(source, waiters);
	pthread_mutex_lock(&source->set->lock);
	list_for_each (at, waiters) {
		const struct source_wait *wait = list_entry(at, struct source_wait, link);

		/* A listing takes minutes: what was set meanwhile is the later word. */
		if (wait->policy_sets == source->policy_sets)
			changed |= policy_apply(&source->record.policy, &wait->policy);
	}
	pthread_mutex_unlock(&source->set->lock);
	if (!changed)
		return;
	r = generations_store_source(source);
	if (r < 0)
		log_warn("policy not stored",
			"source=\"%s\" cause=%s next=\"lost when the master ends\"",
			source->record.text, err_name(r));
}

/* Lists the origin; the listing is the caller's. */
static int list_origin(
	struct flight *flight, const struct ufs_config *config, struct listing **ret_listing)
{
	struct source *source = flight->source;
	_cleanup_(listing_free_p) struct listing *listing = NULL;
	uint64_t start = clock_mono_ns();
	int r = listing_begin(source, &listing);

	if (r < 0)
		return err_set(
			&flight->failure, r, "out of memory listing %s", source->record.text);
	atomic_store(&source->listing_keys, 0);
	atomic_store(&source->listing, true);
	flight->began_ms = (int64_t)(clock_wall_ns() / CLOCK_MS);
	r = list_objects(flight, config, listing, &flight->failure);
	atomic_store(&source->listing, false);
	if (r < 0) {
		log_warn("listing failed", "source=\"%s\" cause=%s text=\"%s\"",
			source->record.text, err_name(r), flight->failure.text);
		return r;
	}
	log_info("listed", "source=\"%s\" objects=%" PRIu64 " seconds=%.3f", source->record.text,
		listing_count(listing), (double)(clock_mono_ns() - start) / 1e9);
	if (flight->is_news)
		adopt_config(source, config);
	flight->listed = true;
	*ret_listing = TAKE(listing);
	return 0;
}

/* The origin may answer again without anybody changing anything. */
static bool transient(int code)
{
	return code == -ECONNREFUSED || code == -ETIMEDOUT || code == -EHOSTUNREACH ||
	       code == -ENETUNREACH || code == -ECONNRESET || code == -EAGAIN || code == -EIO;
}

/* Says nothing of what was to be opened. */
static bool scarce(int code)
{
	return code == -ENOMEM || code == -EMFILE || code == -ENFILE;
}

static int open_newest(const struct source *source, struct table **ret_table)
{
	const struct record_generation *newest = generations_newest(source);
	struct table *table = NULL;
	struct err e = ERR_INIT;
	int fd = -1;
	int r;

	if (!newest)
		return -ENOENT;
	r = generations_open_table(source, &newest->id, &fd);
	if (r == 0)
		r = table_open(fd, &table, &e);
	if (r == 0 && memcmp(table_info(table)->id.hash, newest->id.hash, SHA256_BYTES) != 0) {
		table_unref(table);
		r = -EBADMSG;
	}
	if (r < 0) {
		log_error("newest object table unusable",
			"source=\"%s\" generation=%" PRIu64 " cause=%s text=\"%s\"",
			source->record.text, newest->id.generation, err_name(r), e.text);
		return r;
	}
	*ret_table = table;
	return 0;
}

/* The live objects of a table as a listing: what the origin held when it was made. */
static int listing_of_table(
	struct source *source, struct table *table, struct listing **ret_listing)
{
	_cleanup_(listing_free_p) struct listing *listing = NULL;
	_cleanup_(table_cursor_release) struct table_cursor cursor = { 0 };
	_cleanup_free_ struct table_row *row = malloc(sizeof(*row));
	int r = listing_begin(source, &listing);

	if (!row)
		r = -ENOMEM;
	while (r == 0 && (r = table_next(table, &cursor, row)) == 0) {
		if (row->flags & ROW_DEAD)
			continue;
		r = listing_add(listing, row->key, row->key_len, row->size, row->mtime_ns, row->tag,
			row->tag_len);
		if (r < 0)
			return r;
	}
	if (r != -ENOENT)
		return r;
	*ret_listing = TAKE(listing);
	return 0;
}

/* Whose tombstones the next generation keeps; 0: everybody's. */
static uint32_t retained_of(const struct source *source, struct table *prev,
	struct generation_retained retained[GENERATIONS_RETAINED])
{
	uint32_t which[GENERATIONS_RETAINED];
	uint32_t n = 0;
	uint32_t all;

	if (!prev || holds_in_grace(source->set))
		return 0;
	pthread_mutex_lock(&source->set->lock);
	all = holds_retained_locked(source, which);
	for (uint32_t i = 0; i < all; i++) {
		const struct record_generation *g = &source->generations[which[i]];

		if (g->id.lineage != table_info(prev)->id.lineage)
			continue;
		retained[n].generation = g->id.generation;
		retained[n++].end = g->end ? g->end : UINT64_MAX;
	}
	pthread_mutex_unlock(&source->set->lock);
	return n;
}

/* Lays out `listing` after `prev` and puts the table under its name. -EALREADY: nothing changed. */
static int lay_out(
	struct flight *flight, struct table *prev, struct listing *listing, struct err *e)
{
	struct source *source = flight->source;
	struct record_generation g = { .serial = source->next_serial, .kept = true };
	_cleanup_(buf_release) struct buf temporary = BUF_INIT(PATH_MAX);
	_cleanup_(buf_release) struct buf path = BUF_INIT(PATH_MAX);
	_cleanup_(table_cleanup) struct table *table = NULL;
	struct generation_retained retained[GENERATIONS_RETAINED];
	uint32_t n;
	int fd;
	int r = buf_printf(&temporary, "%s/new.%" PRIu64 ".%p", source->set->config.tables,
		g.serial, (void *)source);

	if (r < 0)
		return err_set(e, r, "%s: the path is too long: give a shorter --cache",
			source->set->config.tables);
	n = retained_of(source, prev, retained);
	r = generation_build_retained(&source->record.volume, prev, n ? retained : NULL, n, listing,
		buf_str(&temporary), &g.id, &flight->stats, e);
	if (r < 0)
		return r;
	r = generations_path(source, &g.id, &path);
	CRASH_POINT("generation.built");
	if (r == 0 && rename(buf_str(&temporary), buf_str(&path)) != 0)
		r = err_errno();
	CRASH_POINT("generation.named");
	if (r < 0) {
		(void)unlink(buf_str(&temporary)); /* swept at the next start otherwise */
		return err_set(e, r, "%s cannot be written: %s: check the disk of the cache",
			buf_str(&path), err_str(r));
	}
	fd = open(buf_str(&path), O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return err_set(e, err_errno(),
			"%s cannot be read back: %m: check the disk of the cache", buf_str(&path));
	r = table_open(fd, &table, e);
	if (r < 0)
		return r;
	g.rows = table_info(table)->rows;
	g.files = table_info(table)->live_files;
	g.bytes = table_info(table)->live_bytes;
	g.table_bytes = table_info(table)->table_bytes;
	g.end = table_info(table)->end;
	g.built_at = table_info(table)->built_at;
	g.added = flight->stats.added;
	g.changed = flight->stats.changed;
	g.removed = flight->stats.removed;
	r = file_sync_dir(source->set->config.tables);
	if (r < 0)
		return err_set(e, r, "%s cannot be written: %s: check the disk of the cache",
			source->set->config.tables, err_str(r));
	log_info("generation made",
		"source=\"%s\" lineage=%016" PRIx64 " generation=%" PRIu64 " files=%" PRIu64
		" bytes=%" PRIu64 " kept=%" PRIu64 " added=%" PRIu64 " changed=%" PRIu64
		" removed=%" PRIu64 " cleaned=%" PRIu64 " forgotten=%" PRIu64,
		source->record.text, g.id.lineage, g.id.generation, g.files, g.bytes,
		flight->stats.kept, flight->stats.added, flight->stats.changed,
		flight->stats.removed, flight->stats.cleaned, flight->stats.forgotten);
	CRASH_POINT("generation.synced");
	r = generations_add(source, &g, e);
	if (r == 0)
		note_generation(source, &g);
	CRASH_POINT("generation.added");
	return r;
}

/* A new lineage follows nothing; bytes cached under the old one keep their meaning. */
static void notice_lineage(struct flight *flight)
{
	if (flight->contradicted)
		(void)snprintf(flight->notice, sizeof(flight->notice),
			"the master's state is older than what was seen of %s (generation %" PRIu64
			", seen %" PRIu64
			"): a new lineage was started, cached bytes may be fetched again",
			flight->source->record.text,
			flight->prev ? table_info(flight->prev)->id.generation : 0, flight->seen);
	else
		(void)snprintf(flight->notice, sizeof(flight->notice),
			"the newest table of %s was lost: a new lineage was started, cached bytes "
			"may be fetched again",
			flight->source->record.text);
	log_warn("new lineage", "text=\"%s\"", flight->notice);
	note(flight->source, EVENT_WARN, "lineage", flight->notice);
}

static void count_lineage(struct source *source)
{
	pthread_mutex_lock(&source->set->lock);
	rate_take(&source->lineages, 1);
	pthread_mutex_unlock(&source->set->lock);
}

/* The origin did not answer the listing: whether the newest generation will do instead. */
static bool do_without(struct flight *flight)
{
	const struct record_generation *newest = generations_newest(flight->source);

	if (!transient(flight->status) || !newest || flight->lost)
		return false;
	(void)snprintf(flight->notice, sizeof(flight->notice),
		"the origin is not reachable (%.800s): serving generation %" PRIu64
		" from the cache",
		flight->failure.text, newest->id.generation);
	flight->status = 0;
	return true;
}

/* Makes what the flight is to make. Outcome in flight->status and failure. */
static void make_generation(struct flight *flight)
{
	struct source *source = flight->source;
	_cleanup_(listing_free_p) struct listing *listing = NULL;
	bool fresh = flight->contradicted || flight->lost;

	if (flight->config) {
		flight->status = list_origin(flight, flight->config, &listing);
		if (flight->status < 0 && !do_without(flight))
			return;
	}
	if (!listing && flight->contradicted)
		flight->status =
			flight->prev ? listing_of_table(source, flight->prev, &listing) : -ESTALE;
	if (listing)
		flight->status =
			lay_out(flight, fresh ? NULL : flight->prev, listing, &flight->failure);
	if (flight->status == -EALREADY)
		flight->status = 0;
	else if (flight->status < 0)
		(void)err_default(&flight->failure, flight->status, source->record.text);
	else if (listing && fresh)
		notice_lineage(flight);
	if (flight->status == 0 && flight->contradicted)
		count_lineage(source);
}

static void report(struct flight *flight)
{
	struct source *source = flight->source;
	bool asked =
		flight->config && flight->failure.code != -ECANCELED; /* the origin, to the end */
	int before;

	pthread_mutex_lock(&source->set->lock);
	before = source->failure.code;
	if (asked) {
		source->failure = flight->failure;
		if (flight->listed)
			source->listed_at = (int64_t)(clock_wall_ns() / CLOCK_SECOND);
		if (flight->listed && flight->status == 0 && source->n)
			source->generations[source->n - 1].current_ms = flight->began_ms;
	}
	/* It has cut texts and names of files. */
	utf8_make_line(flight->notice);
	if (flight->notice[0] || flight->listed) /* an answer ends "is not reachable" */
		memcpy(source->notice, flight->notice, sizeof(source->notice));
	pthread_mutex_unlock(&source->set->lock);
	if (asked && flight->failure.code != before)
		note(source, flight->failure.code ? EVENT_ERROR : EVENT_INFO, "origin",
			flight->failure.code ? flight->failure.text : "it answers again");
}

static void answer(struct flight *flight, struct source_wait *wait)
{
	struct source *source = flight->source;
	const struct record_generation *g =
		generations_find(source, wait->lineage, wait->generation);
	struct source_answer answer = {
		.config = &source->record.config,
		.stats = flight->stats,
		.listed = flight->listed,
		.notice = flight->notice[0] ? flight->notice : NULL,
		.fd = -1,
	};
	struct err e = ERR_INIT;
	char notice[256];
	int r;

	if (wait->unwanted) {
		wait->on_done(wait, given_up_error(source, &e), NULL, &e);
		return;
	}
	if (flight->status < 0 && (wait->refresh || wait->contradicts || !g)) {
		wait->on_done(wait, flight->status, NULL, &flight->failure);
		return;
	}
	if (!g && wait->held_back_ns > 0) {
		wait->on_done(wait, allowance_refuse(wait->held_back_ns, &e), NULL, &e);
		return;
	}
	if (!g || (wait->contradicts && wait->generation != 0)) {
		r = err_set(&e, -ESTALE,
			"%s: generation %" PRIu64 " is of an older lineage: mount again",
			source->record.text, wait->generation);
		wait->on_done(wait, r, NULL, &e);
		return;
	}
	if (wait->held_back_ns > 0 && !flight->listed) {
		(void)snprintf(notice, sizeof(notice),
			"not listed, as this token has had its listings: generation %" PRIu64
			" is shown, try again in %llu s for a newer one",
			g->id.generation,
			(unsigned long long)(wait->held_back_ns / CLOCK_SECOND + 1));
		answer.notice = notice;
		answer.own_notice = true;
	}
	answer.newest = generations_newest_sealed(source);
	pthread_mutex_lock(&source->set->lock);
	answer.generation = *g; /* a mount that comes or goes changes its mark */
	answer.policy = source->record.policy;
	pthread_mutex_unlock(&source->set->lock);
	r = generations_open_table(source, &g->id, &answer.fd);
	if (r < 0) {
		(void)err_set(&e, r,
			"the table of %s cannot be opened: %s: mount again to list it again",
			source->record.text, err_str(r));
		wait->on_done(wait, r, NULL, &e);
		return;
	}
	wait->on_done(wait, 0, &answer, NULL);
	if (answer.fd >= 0)
		(void)close(answer.fd); /* read only */
}

/* A lineage is for ever, and costs every worker a table: many in a row are not believed, whoever asks for them. */
static bool may_begin_lineage(struct source *source)
{
	bool may;

	pthread_mutex_lock(&source->set->lock);
	may = rate_left(&source->lineages, clock_mono_ns()) >= 1;
	pthread_mutex_unlock(&source->set->lock);
	if (!may)
		LOG_LIMITED(LOG_WARN, "conflicting state rejected",
			"source=\"%s\" why=\"%u new lineages recently\" next=\"one is accepted "
			"every %u s\"",
			source->record.text, LINEAGES_AT_ONCE, LINEAGE_EVERY_S);
	return may;
}

/* The bound on requests that the source has, or that those who wait want it to have. */
static uint64_t requests_bound(const struct source *source, const struct list *waiters)
{
	struct tier_policy policy;

	pthread_mutex_lock(&source->set->lock);
	policy = source->record.policy;
	pthread_mutex_unlock(&source->set->lock);
	list_for_each (at, waiters)
		(void)policy_apply(&policy,
			&list_entry(at, struct source_wait, link)->policy); /* either way */
	return policy.origin_requests;
}

/* One listing serves all of a flight: a token is charged for one that would not be else. */
static bool wants_listing(const struct flight *flight, struct source_wait *wait)
{
	if (!wait->config || (!wait->refresh && flight->prev))
		return false;
	wait->held_back_ns = flight->config ? 0 : allowance_list(wait->allowance);
	return wait->held_back_ns == 0;
}

void flight_run(struct source *source, struct list *waiters)
{
	struct flight flight = { .source = source,
		.requests_per_s = requests_bound(source, waiters) };
	struct list *node;
	bool unsealed;
	int r = source->n > 0 ? open_newest(source, &flight.prev) : 0;

	flight.lost = r < 0 && !scarce(r);
	list_for_each (at, waiters) {
		struct source_wait *wait = list_entry(at, struct source_wait, link);

		wait->unwanted = wait->is_wanted && !wait->is_wanted(wait);
		if (wait->unwanted)
			continue;
		if (wants_listing(&flight, wait)) {
			flight.config = wait->config;
			flight.is_news |= !wait->as_known;
		}
		wait->contradicts = generations_contradict(source, &wait->seen, &unsealed) &&
				    may_begin_lineage(source);
		if (unsealed)
			generations_refuse_unsealed(source, &wait->seen);
		if (wait->contradicts) {
			flight.contradicted = true;
			flight.seen = wait->seen.generation;
		}
	}
	if (scarce(r)) /* the next one may have more luck; a new lineage is for ever */
		flight.status =
			err_set(&flight.failure, r, "the newest table of %s cannot be opened: %s",
				source->record.text, err_str(r));
	else
		make_generation(&flight);
	if (flight.status == 0)
		adopt_policy(source, waiters);
	report(&flight);
	table_cleanup(&flight.prev);
	while ((node = list_pop_front(waiters)))
		answer(&flight, list_entry(node, struct source_wait, link));
	if (flight.config) /* a listing frees much, also one that failed */
		daemon_give_back();
}
