/* The sources of a mount. See sources.h. */
#include "fuse/daemon/sources.h"
#include "admin/admin.h"
#include "base/cleanup.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

int sources_one(struct sources *sources, const char *url, struct err *e)
{
	struct mount_source *s = &sources->all[0];

	s->path = strdup("/");
	s->subtree = strdup("");
	s->url = strdup(url);
	sources->n = 1;
	return s->path && s->subtree && s->url ? 0 : err_set(e, -ENOMEM, "out of memory");
}

static int parse_one(struct mount_source *s, const json_t *json, struct err *e)
{
	const char *path = json_string_value(json_object_get(json, "path"));
	const char *volume = json_string_value(json_object_get(json, "volume"));
	const char *subtree = json_string_value(json_object_get(json, "subtree"));
	const char *url = json_string_value(json_object_get(json, "url"));

	if (!path || path[0] != '/' || image_check_path(path + 1) < 0 || !volume ||
		strlen(volume) != (size_t)2 * VOLUME_ID_LEN ||
		hash_unhex(volume, s->id.bytes, VOLUME_ID_LEN) < 0 ||
		(subtree && *subtree && subtree[strlen(subtree) - 1] != '/'))
		return err_set(e, -EINVAL,
			"--sources names a source without path or volume; use the same version on "
			"both sides");
	s->path = strdup(path);
	s->subtree = strdup(subtree ? subtree : "");
	s->url = strdup(url ? url : "");
	return s->path && s->subtree && s->url ? 0 : err_set(e, -ENOMEM, "out of memory");
}

int sources_parse(struct sources *sources, const char *text, struct err *e)
{
	json_t *json = NULL;
	const json_t *one;
	size_t i;
	int r = admin_json_parse(text, strlen(text), 0, &json, NULL);

	if (r < 0 || json_array_size(json) == 0 || json_array_size(json) > LAYOUT_SOURCES_MAX) {
		json_decref(json);
		return err_set(e, -EINVAL,
			"--sources must have 1 to %u sources; use the same version on both sides",
			LAYOUT_SOURCES_MAX);
	}
	json_array_foreach (json, i, one) {
		if (r == 0)
			r = parse_one(&sources->all[sources->n++], one, e);
	}
	json_decref(json);
	return r;
}

void sources_release(struct sources *sources)
{
	for (uint32_t i = 0; i < sources->n; i++) {
		struct mount_source *s = &sources->all[i];

		if (!s->shares) {
			client_hold_end(s->hold);
			client_volume_close(s->volume);
		}
		free(s->path);
		free(s->subtree);
		free(s->url);
	}
	*sources = (struct sources){ 0 };
}

/* One before it of the same volume. */
static const struct mount_source *find_same(const struct sources *sources, uint32_t i)
{
	for (uint32_t k = 0; k < i; k++)
		if (volume_id_equal(&sources->all[k].id, &sources->all[i].id))
			return &sources->all[k];
	return NULL;
}

/* A source on its way. */
struct opening {
	struct client *client;
	struct mount_source *source;
	bool refresh;
	pthread_t thread;
	bool started;
	int r;
	struct buf notice;
	struct err e;
};

static void *open_one(void *arg)
{
	struct opening *o = arg;
	struct mount_source *s = o->source;

	o->r = client_open_volume(o->client, &s->id, o->refresh, &s->volume, &o->notice, &o->e);
	if (o->r < 0)
		(void)err_default(&o->e, o->r, "the source cannot be opened"); /* in o->e */
	return NULL;
}

/* Each may be listed, which takes its time: all at once. The first alone: it meets the master. */
static void open_all(struct opening *all, uint32_t n)
{
	for (uint32_t i = 0; i < n && (i == 0 || all[0].r == 0); i++) {
		all[i].started =
			i > 0 && pthread_create(&all[i].thread, NULL, open_one, &all[i]) == 0;
		if (!all[i].started)
			(void)open_one(&all[i]); /* all[i].r */
	}
	for (uint32_t i = 0; i < n; i++)
		if (all[i].started)
			(void)pthread_join(all[i].thread, NULL); /* it is there */
}

/* The first line that there is. */
static int take_results(
	struct opening *all, uint32_t n, bool several, struct buf *notice, struct err *e)
{
	int r = 0;

	for (uint32_t i = 0; i < n; i++) {
		const struct mount_source *s = all[i].source;

		if (r == 0 && all[i].r < 0) {
			r = err_set(e, all[i].r, "%s", all[i].e.text);
			if (several)
				r = err_prefix(e, "%s (%s)", s->path, s->url);
		}
		if (r == 0 && notice->len == 0 && all[i].notice.len > 0)
			r = buf_puts(notice, buf_str(&all[i].notice));
		buf_release(&all[i].notice);
	}
	return r;
}

static int open_of_dataset(struct sources *sources, struct client *client, bool refresh,
	struct buf *notice, struct err *e)
{
	struct opening *all = calloc(LAYOUT_SOURCES_MAX, sizeof(*all));
	uint32_t n = 0;
	int r;

	if (!all)
		return err_set(e, -ENOMEM, "out of memory");
	for (uint32_t i = 0; i < sources->n; i++) {
		struct mount_source *s = &sources->all[i];

		s->shares = find_same(sources, i) != NULL;
		if (!s->shares)
			all[n++] = (struct opening){ .client = client,
				.source = s,
				.refresh = refresh,
				.notice = BUF_INIT(ERR_TEXT_MAX - 1),
				.e = ERR_INIT };
	}
	open_all(all, n);
	r = take_results(all, n, sources->n > 1, notice, e);
	free(all);
	for (uint32_t i = 0; i < sources->n; i++) {
		const struct mount_source *same = find_same(sources, i);

		if (same)
			sources->all[i].volume = same->volume;
	}
	return r;
}

int sources_open(struct sources *sources, struct client *client, const struct ufs_config *config,
	bool refresh, struct buf *notice, struct err *e)
{
	int r;

	if (!config)
		return open_of_dataset(sources, client, refresh, notice, e);
	r = client_open_source(client, config, refresh, &sources->all[0].volume, notice, e);
	if (r == 0)
		sources->all[0].id = table_info(sources_table(sources, 0))->id.volume;
	return r;
}

struct table *sources_table(const struct sources *sources, uint32_t source)
{
	ensure(source < sources->n);
	return client_volume_table(sources->all[source].volume);
}

void sources_images(
	const struct sources *sources, struct image_source ret_images[LAYOUT_SOURCES_MAX])
{
	for (uint32_t i = 0; i < sources->n; i++)
		ret_images[i] = (struct image_source){
			.table = sources_table(sources, i),
			.path = sources->all[i].path + 1,
			.subtree = sources->all[i].subtree,
		};
}

int sources_resolve(const struct sources *sources, const char *path, uint32_t *ret_source,
	struct table_row *row)
{
	struct image_source images[LAYOUT_SOURCES_MAX];

	sources_images(sources, images);
	return image_resolve_sources(images, sources->n, path, ret_source, row);
}

bool sources_composed(const struct sources *sources)
{
	return sources->n > 1 || sources->all[0].path[1] || sources->all[0].subtree[0];
}
