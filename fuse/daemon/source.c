/* What is mounted: the master's table of a source, and the generation that is held there. See
 * cachefuse.h. */
#include "base/cleanup.h"
#include "base/log.h"
#include "fuse/daemon/cachefuse.h"

#include <stdlib.h>
#include <string.h>

static int source_config(const struct cachefuse_options *o, struct ufs_config *ret, struct err *e)
{
	const char *const texts[] = { o->endpoint, o->region, o->profile, o->ca_file,
		o->credentials };
	char **const fields[] = { &ret->endpoint, &ret->region, &ret->profile, &ret->ca_file,
		&ret->credentials };
	int r = ufs_config_parse(o->source, ret, e);

	for (size_t i = 0; i < ARRAY_SIZE(texts) && r == 0; i++)
		if (texts[i]) {
			free(*fields[i]);
			*fields[i] = strdup(texts[i]);
			r = *fields[i] ? 0 : err_set(e, -ENOMEM, "out of memory");
		}
	ret->path_style = o->path_style;
	ret->anonymous = o->anonymous;
	ret->requester_pays = o->requester_pays;
	if (r == 0)
		r = ufs_versions_parse(o->versions, &ret->versions, e);
	return r;
}

static enum exit_status source_exit(int r)
{
	switch (-r) {
	case EINVAL:
		return EXIT_USAGE;
	case ENOMEM:
	case EBADMSG:
	case ESTALE:
	case EPROTONOSUPPORT:
		return EXIT_RUNTIME;
	case ENOSPC:
	case EROFS:
		return EXIT_CACHE;
	default:
		return EXIT_ORIGIN;
	}
}

static struct policy_change policy_change(const struct cachefuse_options *o)
{
	struct policy_change change = { 0 };

	if (o->quota != CACHEFUSE_UNSET) {
		change.to.quota = o->quota;
		change.parts |= POLICY_QUOTA;
	}
	if (o->priority != CACHEFUSE_UNSET) {
		change.to.priority = (int32_t)o->priority;
		change.parts |= POLICY_PRIORITY;
	}
	if (o->pin) {
		change.to.pin = strcmp(o->pin, "yes") == 0;
		change.parts |= POLICY_PIN;
	}
	if (o->evict && tier_evict_parse(o->evict, &change.to.evict) == 0)
		change.parts |= POLICY_EVICT;
	return change;
}

static int take_dataset(const char *text, struct client_dataset *ret, struct err *e)
{
	char uuid[2 * sizeof(ret->id) + 1];

	if (strlen(text) != 2 * sizeof(ret->id) + 1 + 2 * VOLUME_ID_LEN)
		return err_set(e, -EINVAL, "--dataset must be UUID.VOLUME");
	memcpy(uuid, text, sizeof(uuid) - 1);
	uuid[sizeof(uuid) - 1] = '\0';
	if (text[sizeof(uuid) - 1] != '.' || hash_unhex(uuid, ret->id, sizeof(ret->id)) < 0 ||
		hash_unhex(text + sizeof(uuid), ret->volume.bytes, VOLUME_ID_LEN) < 0)
		return err_set(e, -EINVAL, "--dataset must be UUID.VOLUME");
	return 0;
}

/* Which there are. *ret_config: of the one that is no dataset's among several. */
static int find_sources(const struct cachefuse *c, struct sources *sources,
	struct ufs_config *ret_config, struct err *e)
{
	if (c->options.sources)
		return sources_parse(sources, c->options.sources, e);
	return sources_one(sources, c->options.source, e) < 0
		       ? e->code
		       : source_config(&c->options, ret_config, e);
}

int source_open_next(struct cachefuse *c, struct sources *ret, struct err *e)
{
	_cleanup_(ufs_config_release) struct ufs_config source = { 0 };
	_cleanup_(buf_release) struct buf notice = BUF_INIT(ERR_TEXT_MAX - 1);
	int r = find_sources(c, ret, &source, e);

	client_open_shown(c->client); /* of a successor, too */
	if (r == 0)
		r = sources_open(
			ret, c->client, c->options.sources ? NULL : &source, false, &notice, e);
	if (r == 0 && notice.len > 0)
		log_warn("notice", "text=\"%s\"", buf_str(&notice));
	return r < 0 ? err_default(e, r, "the source cannot be opened") : 0;
}

enum exit_status source_open(struct cachefuse *c, struct err *e)
{
	/* A successor goes on with what is mounted, whatever it is; a mount that follows, and moves on
	 * for one source, keeps to what another was rolled back to. */
	struct client_dataset dataset = { .shown = !c->taken_over,
		.generation = c->taken_over ? 0 : c->options.generation };
	const struct cachefuse_options none = { .quota = CACHEFUSE_UNSET,
		.priority = CACHEFUSE_UNSET };
	bool first = !c->taken_over && (c->options.refresh || c->options.refresh_behind);
	const struct client_config config = {
		.master = c->options.master,
		.local_worker = c->options.worker,
		.budget = &c->share.answers,
		.chunks = c->share.chunks,
		.direct_bandwidth = c->options.direct_bandwidth,
		.seen_dir = c->options.image_dir,
		.policy = policy_change(first ? &c->options : &none),
		.dataset = c->options.dataset ? &dataset : NULL,
	};
	_cleanup_(ufs_config_release) struct ufs_config source = { 0 };
	_cleanup_(buf_release) struct buf notice = BUF_INIT(ERR_TEXT_MAX - 1);
	int r = find_sources(c, &c->sources, &source, e);

	if (r == 0 && c->options.dataset)
		r = take_dataset(c->options.dataset, &dataset, e);
	else if (r == 0 && c->options.sources)
		r = err_set(e, -EINVAL, "--sources needs --dataset");
	if (r < 0)
		return r == -ENOMEM ? EXIT_RUNTIME : EXIT_USAGE;
	r = client_new(&config, &c->client, e);
	if (r < 0) {
		(void)err_default(e, r, "the master cannot be reached");
		return EXIT_RUNTIME;
	}
	/* A successor serves the generation that is mounted: no look at the origin. */
	r = sources_open(&c->sources, c->client, c->options.sources ? NULL : &source,
		c->options.refresh && !c->taken_over, &notice, e);
	if (r < 0) {
		(void)err_default(e, r, "the source cannot be opened");
		return source_exit(r);
	}
	(void)snprintf(c->notice, sizeof(c->notice), "%s", buf_str(&notice)); /* bounded alike */
	if (c->notice[0])
		log_warn("notice", "text=\"%s\"", c->notice);
	reader_client_init(&c->reader, c->sources.all[0].volume);
	for (uint32_t i = 1; i < c->sources.n; i++)
		reader_client_add(&c->reader, c->sources.all[i].volume);
	if (announced_open(c) == 0)
		return EXIT_OK;
	(void)err_set(e, -ENOMEM, "out of memory or descriptors");
	return EXIT_RUNTIME;
}

/*
 * Offsets of a later generation of the same lineage mean the same objects; of another lineage they
 * do not.
 */
enum exit_status source_check_successor(struct cachefuse *c, struct err *e)
{
	const struct slots_sources *shown = slots_sources(c->slots);
	bool same = shown->layout.n == c->sources.n;

	for (uint32_t i = 0; same && i < c->sources.n; i++) {
		const struct generation_id *id = &table_info(sources_table(&c->sources, i))->id;
		const struct slots_source *s = &shown->all[i];

		same = volume_id_equal(&id->volume, &s->volume) && id->lineage == s->lineage &&
		       id->generation >= s->generation;
		/* It may have forgotten objects that ours names: of each key it keeps so many. */
		if (same && id->generation > s->generation)
			client_volume_named_only(c->sources.all[i].volume);
	}
	if (same)
		return EXIT_OK;
	(void)err_set(e, -ESTALE,
		"%s was mounted from another lineage or a later generation than the master has "
		"now: unmount with --force and mount again",
		c->mountpoint);
	return EXIT_RUNTIME;
}

/* The master keeps what is mounted, or is about to be; of a mount taken over, what its predecessor
 * mounted. */
enum exit_status source_hold(struct cachefuse *c, struct err *e)
{
	const struct slots_sources *shown = slots_sources(c->slots);

	for (uint32_t i = 0; i < c->sources.n; i++) {
		struct mount_source *s = &c->sources.all[i];
		struct generation_id id = table_info(sources_table(&c->sources, i))->id;

		if (s->shares)
			continue;
		if (c->taken_over && i < shown->layout.n) {
			id.lineage = shown->all[i].lineage;
			id.generation = shown->all[i].generation;
		}
		s->hold = client_hold_begin(c->client, &id);
		if (!s->hold) {
			(void)err_set(e, -ENOMEM, "out of memory");
			return EXIT_RUNTIME;
		}
	}
	return EXIT_OK;
}

void source_request(const struct cachefuse *c, struct client_hold *hold)
{
	client_hold_follow(hold, (uint32_t)(c->options.follow / CLOCK_SECOND), c->listing_since_ms);
}

void source_hold_renew(struct cachefuse *c)
{
	pthread_rwlock_rdlock(&c->showing);
	for (uint32_t i = 0; i < c->sources.n; i++)
		if (c->sources.all[i].hold)
			client_hold_renew(c->sources.all[i].hold);
	pthread_rwlock_unlock(&c->showing);
}

void source_note_cached(struct cachefuse *c)
{
	double cached = 0;
	double of = 0;
	bool known = true;

	pthread_rwlock_rdlock(&c->showing);
	for (uint32_t i = 0; i < c->sources.n; i++) {
		const struct mount_source *s = &c->sources.all[i];
		uint64_t bytes = s->hold ? client_hold_cached(s->hold) : 0;
		uint64_t live = s->hold ? table_info(sources_table(&c->sources, i))->live_bytes : 0;

		known &= bytes != UINT64_MAX;
		cached += (double)min(bytes, live); /* blocks are counted, and older generations */
		of += (double)live;
	}
	pthread_rwlock_unlock(&c->showing);
	if (known && of > 0)
		session_set_cached(mounted_session(c->mounted),
			(uint32_t)(SESSION_CACHED_WHOLE * (cached / of)));
}

void source_note_shown(struct cachefuse *c, const struct images_result *image)
{
	struct slots_mount *m = slots_mount(c->slots);
	struct slots_sources *shown = slots_sources(c->slots);

	for (uint32_t i = 0; i < c->sources.n; i++) {
		const struct generation_id *id = &table_info(sources_table(&c->sources, i))->id;

		shown->all[i] = (struct slots_source){
			.volume = id->volume, .lineage = id->lineage, .generation = id->generation
		};
		memcpy(shown->all[i].hash, id->hash, sizeof(id->hash));
	}
	shown->layout = image->info.sources;
	m->volume = shown->all[0].volume;
	m->lineage = shown->all[0].lineage;
	m->generation = shown->all[0].generation;
	memcpy(m->hash, shown->all[0].hash, sizeof(m->hash));
	m->bytes = sources_composed(&c->sources)
			   ? image->info.bytes
			   : table_info(sources_table(&c->sources, 0))->live_bytes;
}
