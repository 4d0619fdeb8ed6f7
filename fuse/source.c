/* What is mounted: the master's table of a source, and the generation that is held there. See
 * cachefuse.h. */
#include "base/cleanup.h"
#include "base/log.h"
#include "fuse/cachefuse.h"

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
		return err_set(e, -EINVAL, "--dataset wants UUID.VOLUME");
	memcpy(uuid, text, sizeof(uuid) - 1);
	uuid[sizeof(uuid) - 1] = '\0';
	if (text[sizeof(uuid) - 1] != '.' || hash_unhex(uuid, ret->id, sizeof(ret->id)) < 0 ||
		hash_unhex(text + sizeof(uuid), ret->volume.bytes, VOLUME_ID_LEN) < 0)
		return err_set(e, -EINVAL, "--dataset wants UUID.VOLUME");
	return 0;
}

enum exit_status source_open(struct cachefuse *c, struct err *e)
{
	struct client_dataset dataset;
	const struct client_config config = {
		.master = c->options.master,
		.local_worker = c->options.worker,
		.budget = &c->share.answers,
		.chunks = c->share.chunks,
		.seen_dir = c->options.image_dir,
		.policy = policy_change(&c->options),
		.dataset = c->options.dataset ? &dataset : NULL,
	};
	_cleanup_(ufs_config_release) struct ufs_config source = { 0 };
	_cleanup_(buf_release) struct buf notice = BUF_INIT(ERR_TEXT_MAX - 1);
	int r = source_config(&c->options, &source, e);

	if (r == 0 && c->options.dataset)
		r = take_dataset(c->options.dataset, &dataset, e);
	if (r < 0)
		return r == -ENOMEM ? EXIT_RUNTIME : EXIT_USAGE;
	r = client_new(&config, &c->client, e);
	if (r < 0) {
		(void)err_default(e, r, "the master cannot be reached");
		return EXIT_RUNTIME;
	}
	/* A successor serves the generation that is mounted: no look at the origin. */
	r = client_open_source(
		c->client, &source, c->options.refresh && !c->taken_over, &c->volume, &notice, e);
	if (r < 0) {
		(void)err_default(e, r, "the source cannot be opened");
		return source_exit(r);
	}
	(void)snprintf(c->notice, sizeof(c->notice), "%s", buf_str(&notice)); /* bounded alike */
	if (c->notice[0])
		log_warn("notice", "text=\"%s\"", c->notice);
	reader_client_init(&c->reader, c->volume);
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
	const struct generation_id *id = &table_info(client_volume_table(c->volume))->id;
	const struct slots_mount *m = slots_mount(c->slots);

	if (volume_id_equal(&id->volume, &m->volume) && id->lineage == m->lineage &&
		id->generation >= m->generation) {
		/* It may have forgotten objects that ours names: of each key it keeps so many. */
		if (id->generation > m->generation)
			client_volume_named_only(c->volume);
		return EXIT_OK;
	}
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
	const struct slots_mount *m = slots_mount(c->slots);
	struct generation_id id = table_info(client_volume_table(c->volume))->id;

	if (c->taken_over) {
		id.lineage = m->lineage;
		id.generation = m->generation;
	}
	c->hold = client_hold_begin(c->client, &id);
	if (c->hold)
		return EXIT_OK;
	(void)err_set(e, -ENOMEM, "out of memory");
	return EXIT_RUNTIME;
}
