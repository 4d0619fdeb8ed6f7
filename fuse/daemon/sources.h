/*
 * What a mount shows: one source, or several at their paths (struct image_source). Two of them may
 * be views of one volume, which is opened and held once.
 *
 * A source's number is that of its places (base/layout.h).
 *
 * Threads: one; the pure functions any, once it is open.
 */
#pragma once

#include "client/client.h"

struct mount_source {
	char *path;          /* "/", or "/a/b"; owned, as the next two */
	char *subtree;       /* "", or "a/b/": all that is shown of it */
	char *url;           /* for people */
	struct volume_id id; /* known before it is open where there are several */
	struct client_volume *volume;
	struct client_hold *hold;
	bool shares; /* volume and hold are those of a source before it */
};

struct sources {
	uint32_t n;
	struct mount_source all[LAYOUT_SOURCES_MAX];
};

/* The one at `url`. -ENOMEM. */
int sources_one(struct sources *sources, const char *url, struct err *e) __must_check;
/* [{"path", "volume", "url", "subtree"?}...], of a dataset. -EINVAL with a line. */
int sources_parse(struct sources *sources, const char *json, struct err *e) __must_check;
/* Ends what is held, closes what is open. */
void sources_release(struct sources *sources);

/*
 * Opens them all, as client_open_source() does, or nothing that sources_release() would not end.
 * `config`: of the one at a URL; NULL: all are the client's dataset's. The first notice is told.
 */
int sources_open(struct sources *sources, struct client *client, const struct ufs_config *config,
	bool refresh, struct buf *notice, struct err *e) __must_check;

struct table *sources_table(const struct sources *sources, uint32_t source);
/* What image_build_sources() wants; borrowed from `sources`. */
void sources_images(
	const struct sources *sources, struct image_source ret_images[LAYOUT_SOURCES_MAX]);
/* As image_resolve_sources(). */
int sources_resolve(const struct sources *sources, const char *path, uint32_t *ret_source,
	struct table_row *row) __must_check;
/* Several, or part of one: what is shown is not the whole of one table. */
bool sources_composed(const struct sources *sources);
