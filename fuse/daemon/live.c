/* See live.h. */
#include "fuse/daemon/live.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "mount/mounter.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* Generations before the one shown whose bytes the master is asked to keep: one reader_set each,
 * and one for the next. */
#define LIVE_KEPT (READER_SETS - 2)

struct kept {
	struct sources sources;
	uint32_t set;
	bool closed; /* its volumes are; only held */
};

struct live {
	struct kept kept[LIVE_KEPT]; /* the oldest first; under cachefuse.showing */
	uint32_t n;
	_Atomic bool stop;
};

static uint64_t number_of(const struct slots_live *live)
{
	return __atomic_load_n(&live->number, __ATOMIC_SEQ_CST);
}

/* What was written before is there when it is, for a successor too. */
static void set_number(struct slots_live *live, uint64_t number)
{
	__atomic_store_n(&live->number, number, __ATOMIC_SEQ_CST);
}

/* What the slots say of the mount, as the switch has it. */
static void apply(struct slots *slots)
{
	const struct slots_shown *shown = &slots_live(slots)->shown;
	struct slots_mount *m = slots_mount(slots);

	m->files = shown->files;
	m->directories = shown->directories;
	m->skipped = shown->skipped;
	m->bytes = shown->bytes;
	m->image_bytes = shown->image_bytes;
	m->extent_bytes = shown->extent_bytes;
	m->extents = shown->extents;
	memcpy(m->image, shown->image, sizeof(m->image));
	*slots_sources(slots) = shown->sources;
	m->lineage = shown->sources.all[0].lineage;
	m->generation = shown->sources.all[0].generation;
	memcpy(m->hash, shown->sources.all[0].hash, sizeof(m->hash));
}

void live_adopt(struct slots *slots)
{
	const struct slots_live *live = slots_live(slots);

	if (number_of(live) != live->done)
		apply(slots);
}

int live_open(struct cachefuse *c)
{
	if (!mounted_is_live(c->mounted))
		return 0;
	c->live = calloc(1, sizeof(*c->live));
	return c->live ? 0 : -ENOMEM;
}

static void close_volumes(struct sources *sources)
{
	for (uint32_t i = 0; i < sources->n; i++) {
		if (!sources->all[i].shares)
			client_volume_close(sources->all[i].volume);
		sources->all[i].volume = NULL;
	}
}

void live_close(struct cachefuse *c)
{
	if (!c->live)
		return;
	for (uint32_t i = 0; i < c->live->n; i++)
		sources_release(&c->live->kept[i].sources);
	free(c->live);
	c->live = NULL;
}

void live_stop(struct cachefuse *c)
{
	if (c->live)
		atomic_store(&c->live->stop, true);
}

static bool is_stopped(void *arg)
{
	const struct cachefuse *c = arg;

	return atomic_load(&c->live->stop);
}

void live_renew(struct cachefuse *c)
{
	pthread_rwlock_rdlock(&c->showing);
	for (uint32_t i = 0; c->live && i < c->live->n; i++) {
		struct sources *sources = &c->live->kept[i].sources;

		for (uint32_t k = 0; k < sources->n; k++)
			if (sources->all[k].hold)
				client_hold_renew(sources->all[k].hold);
	}
	pthread_rwlock_unlock(&c->showing);
}

/* ---- generations before ---------------------------------------------------------------------- */

static bool may_close(const struct cachefuse *c, const struct kept *kept)
{
	bool idle = reader_client_left(&c->reader, kept->set);

	for (uint32_t i = 0; i < kept->sources.n && idle; i++)
		idle = client_volume_idle(kept->sources.all[i].volume);
	return idle;
}

/* Tables and reads of what is not read any more; it stays held. */
static void close_left(struct cachefuse *c)
{
	for (uint32_t i = 0; i < c->live->n; i++) {
		struct kept *kept = &c->live->kept[i];

		if (kept->closed || !may_close(c, kept))
			continue;
		close_volumes(&kept->sources);
		reader_client_closed(&c->reader, kept->set);
		kept->closed = true;
	}
}

/* Room for one more. -EBUSY: reads of the oldest are under way. */
static int make_room(struct cachefuse *c)
{
	struct live *live = c->live;
	struct sources oldest;

	if (live->n < LIVE_KEPT)
		return 0;
	if (!live->kept[0].closed)
		return -EBUSY;
	pthread_rwlock_wrlock(&c->showing);
	oldest = live->kept[0].sources;
	live->n--;
	memmove(&live->kept[0], &live->kept[1], live->n * sizeof(live->kept[0]));
	pthread_rwlock_unlock(&c->showing);
	sources_release(&oldest);
	return 0;
}

bool live_pending(struct cachefuse *c)
{
	const struct slots_live *live = slots_live(c->slots);

	if (!c->live)
		return false;
	close_left(c);
	return number_of(live) != live->done;
}

/* ---- the next one ---------------------------------------------------------------------------- */

/* The kernel is told what differs. */
static int tell(struct cachefuse *c, struct err *e)
{
	struct slots_live *live = slots_live(c->slots);
	int r = mounted_live_tell(c->mounted, is_stopped, c, e);

	if (r < 0)
		return r;
	__atomic_store_n(
		&live->done, live->number, __ATOMIC_SEQ_CST); /* no successor opens it now */
	mounted_live_told(c->mounted, live->before_image);
	return 0;
}

/* Places of a later generation of the same lineage mean the same objects. */
static int check_next(const struct cachefuse *c, const struct sources *next, struct err *e)
{
	const struct slots_sources *shown = slots_sources(c->slots);
	bool newer = false;

	for (uint32_t i = 0; i < next->n; i++) {
		const struct generation_id *id = &table_info(sources_table(next, i))->id;
		const struct slots_source *now = &shown->all[i];

		if (!volume_id_equal(&id->volume, &now->volume) || id->lineage != now->lineage)
			return err_set(e, -EXDEV,
				"the source was listed again as another one: unmount and mount "
				"again");
		if (id->generation < now->generation)
			return err_set(e, -EAGAIN, "no newer generation exists");
		newer |= id->generation > now->generation;
	}
	return newer ? 0 : err_set(e, -EAGAIN, "no newer generation exists");
}

static int hold_next(struct cachefuse *c, struct sources *next, struct err *e)
{
	for (uint32_t i = 0; i < next->n; i++) {
		struct mount_source *s = &next->all[i];

		client_volume_named_only(s->volume); /* open files are of generations before */
		if (s->shares)
			continue;
		s->hold = client_hold_begin(c->client, &table_info(sources_table(next, i))->id);
		if (!s->hold)
			return err_set(e, -ENOMEM, "out of memory");
		source_request(c, s->hold);
	}
	return 0;
}

static void fill_shown(const struct cachefuse *c, const struct sources *next,
	const struct images_result *image, struct slots_shown *ret)
{
	*ret = (struct slots_shown){
		.files = image->info.files,
		.directories = image->info.directories,
		.skipped = image->info.skipped,
		.bytes = sources_composed(next) ? image->info.bytes
						: table_info(sources_table(next, 0))->live_bytes,
		.image_bytes = image->info.image_bytes,
		.extent_bytes = image->info.extent_bytes,
		.extents = image->info.extents,
	};
	ret->sources = *slots_sources(c->slots);
	ret->sources.layout = image->info.sources;
	for (uint32_t i = 0; i < next->n; i++) {
		const struct generation_id *id = &table_info(sources_table(next, i))->id;

		ret->sources.all[i].lineage = id->lineage;
		ret->sources.all[i].generation = id->generation;
		memcpy(ret->sources.all[i].hash, id->hash, sizeof(id->hash));
	}
}

/* Slots, bytes, names, in this order: each knows what those before show. */
static void switch_to(struct cachefuse *c, struct sources *next, const struct slots_shown *shown,
	struct tree_live_next *tree)
{
	const struct slots_mount *m = slots_mount(c->slots);
	struct slots_live *live = slots_live(c->slots);
	struct client_volume *volumes[LAYOUT_SOURCES_MAX];
	struct kept *kept;

	for (uint32_t i = 0; i < next->n; i++)
		volumes[i] = next->all[i].volume;
	pthread_rwlock_wrlock(&c->showing);
	live->before_extent_bytes = m->extent_bytes;
	live->before_layout = slots_sources(c->slots)->layout;
	memcpy(live->before_image, m->image, sizeof(m->image));
	live->shown = *shown;
	set_number(live, live->number + 1);
	apply(c->slots);
	kept = &c->live->kept[c->live->n++];
	*kept = (struct kept){ .sources = c->sources };
	ensure(reader_client_switch(&c->reader, volumes, next->n, &kept->set) == 0);
	c->sources = *next;
	pthread_rwlock_unlock(&c->showing);
	mounted_live_switch(c->mounted, tree);
	order_changed(c->order);
}

static void log_skipped(void *arg, const char *key, uint32_t key_len, const char *reason)
{
	(void)arg; /* said when the source was first listed, and counted */
	log_debug("key left out", "key=\"%.*s\" reason=\"%s\"", (int)key_len, key, reason);
}

static int make_next(
	struct cachefuse *c, struct sources *next, struct slots_shown *shown, struct err *e)
{
	struct image_source sources[LAYOUT_SOURCES_MAX];
	struct tree_live_next *tree = NULL;
	struct images_result image;
	char path[PATH_MAX];
	int r;

	sources_images(next, sources);
	r = images_get(c->options.image_dir, sources, next->n, &c->image_options, log_skipped, NULL,
		&image, e);
	if (r < 0)
		return r;
	if (snprintf(path, sizeof(path), "%s/%s", c->options.image_dir, image.name) >=
		(int)sizeof(path))
		return err_set(e, -ENAMETOOLONG, "%s: the path is too long: give a shorter --cache",
			c->options.image_dir);
	r = hold_next(c, next, e);
	if (r < 0)
		return r;
	fill_shown(c, next, &image, shown);
	r = mounted_live_prepare(c->mounted, path, image.info.extent_bytes, &image.info.sources,
		shown->image, &tree, e);
	if (r == 0)
		switch_to(c, next, shown, tree);
	return r;
}

static int open_next(struct cachefuse *c, struct err *e)
{
	struct sources next = { 0 };
	struct slots_shown *shown = malloc(sizeof(*shown));
	int r;

	if (!shown)
		return err_set(e, -ENOMEM, "out of memory");
	r = source_open_next(c, &next, e);
	if (r == 0)
		r = check_next(c, &next, e);
	if (r == 0)
		r = make_next(c, &next, shown, e);
	if (r < 0)
		sources_release(&next);
	free(shown);
	return r;
}

int live_move(struct cachefuse *c, char why[ERR_TEXT_MAX], struct err *e)
{
	uint64_t begin = clock_mono_ns();
	int r = live_pending(c) ? tell(c, e) : 0;

	if (r < 0)
		return r;
	if (make_room(c) < 0)
		return err_set(e, -EBUSY,
			"reads of an older generation wait for their origin: tried again");
	r = open_next(c, e);
	if (r == -EXDEV && mounter_is_apart() && mounter_may_attach_beneath()) {
		*e = (struct err)ERR_INIT;
		return mounter_newer(why, e);
	}
	if (r < 0)
		return r == -EAGAIN ? 0 : r; /* the next word of the master says more */
	log_info("newer generation shown",
		"mountpoint=\"%s\" generation=%" PRIu64 " files=%" PRIu64 " ms=%" PRIu64,
		c->mountpoint, slots_mount(c->slots)->generation, slots_mount(c->slots)->files,
		(uint64_t)((clock_mono_ns() - begin) / CLOCK_MS));
	return tell(c, e);
}
