/*
 * Generations: a listing laid out after the generation before it, and the guard that refuses one
 * that gives an offset anew.
 *
 * Both walk tables key by key. A key has at most one live row and VERSIONS_MAX dead ones, the
 * newest; older tombstones are dropped, which gives nothing away: a volume's end never goes back,
 * so their offsets are not given again.
 */
#include "catalog/catalog_internal.h"
#include "base/cleanup.h"
#include "catalog/clean.h"

#include <stdlib.h>

/* All rows of one key: the live one first, if there is one, then the dead ones by offset. */
struct version {
	uint64_t offset;
	uint64_t size;
	int64_t mtime_ns;
	uint64_t died;
	uint32_t flags;
	struct tag_packed tag;
};

#define GROUP_VERSIONS (VERSIONS_MAX + 2) /* one more than is written: the live one dies */
struct group {
	struct table *table; /* NULL: has no rows */
	struct table_cursor cursor;
	struct table_row ahead; /* the first row of the next key */
	bool has_ahead;
	uint32_t key_len; /* 0: at the end */
	char key[LIMIT_KEY_BYTES + 1];
	uint32_t count;
	struct version versions[GROUP_VERSIONS];
};

static void group_release(struct group *g)
{
	table_cursor_release(&g->cursor);
	free(g);
}

static void group_free_p(struct group **g)
{
	if (*g)
		group_release(*g);
}

static bool version_has_bytes(const struct version *v)
{
	return v->size > 0 && !(v->flags & ROW_DIRECTORY);
}

static int group_read_ahead(struct group *g)
{
	int r = g->table ? table_next(g->table, &g->cursor, &g->ahead) : -ENOENT;

	g->has_ahead = r == 0;
	return r == -ENOENT ? 0 : r;
}

/* Reads the next key's rows; key_len 0 at the end. */
static int group_next(struct group *g)
{
	int r = 0;

	g->count = 0;
	g->key_len = g->has_ahead ? g->ahead.key_len : 0;
	memcpy(g->key, g->ahead.key, g->key_len);
	g->key[g->key_len] = '\0';
	while (r == 0 && g->has_ahead &&
		key_compare(g->key, g->key_len, g->ahead.key, g->ahead.key_len) == 0) {
		struct version *v = &g->versions[g->count];

		if (g->count == VERSIONS_MAX + 1)
			return -EBADMSG;
		v->offset = g->ahead.offset;
		v->size = g->ahead.size;
		v->mtime_ns = g->ahead.mtime_ns;
		v->died = g->ahead.died;
		v->flags = g->ahead.flags;
		tag_pack(g->ahead.tag, g->ahead.tag_len, &v->tag);
		g->count++;
		r = group_read_ahead(g);
	}
	return r;
}

/* A walk over `table`, at its first key. */
static int group_new(struct table *table, struct group **ret_group)
{
	struct group *g = calloc(1, sizeof(*g));
	int r;

	if (!g)
		return -ENOMEM;
	g->table = table;
	r = group_read_ahead(g);
	if (r == 0)
		r = group_next(g);
	if (r < 0) {
		group_release(g);
		return r;
	}
	*ret_group = g;
	return 0;
}

/* ---- building -------------------------------------------------------------------------------- */

struct build {
	struct table_writer *writer;
	struct group *prev;
	const struct listing_object *object;        /* of the current key, or NULL */
	uint64_t generation;                        /* that is built */
	const struct generation_retained *retained; /* whose tombstones stay; NULL: all */
	uint32_t n_retained;
	struct clean clean;
	uint64_t end;
	bool differs;
	struct generation_stats stats;
	struct err *e;
	struct table_row row; /* under construction */
};

static int write_version(
	struct build *b, const char *key, uint32_t key_len, const struct version *v)
{
	struct table_row *row = &b->row;
	const uint8_t *tag = v->tag.bytes;

	row->offset = v->offset;
	row->size = v->size;
	row->mtime_ns = v->mtime_ns;
	row->died = v->died;
	row->flags = v->flags;
	row->key_len = (uint16_t)key_len;
	memcpy(row->key, key, key_len);
	row->key[key_len] = '\0';
	ensure(tag_unpack(&tag, tag + v->tag.len, row->tag, &row->tag_len) == 0);
	return table_writer_add(b->writer, row, b->e);
}

/* The version that `now` is again: the live one, or the one with the highest offset. */
static struct version *version_find(struct group *g, const struct version *now)
{
	for (uint32_t k = g->count; k-- > 0;) {
		struct version *v = &g->versions[k == g->count - 1 ? 0 : k + 1];

		if (v->size == now->size && !((v->flags ^ now->flags) & ROW_DIRECTORY) &&
			tag_packed_equal(&v->tag, &now->tag))
			return v;
	}
	return NULL;
}

/* The listed object as a version without an offset, and which of the previous ones it is; NULL: of
 * none. */
static struct version *object_match(struct build *b, struct group *g, struct version *now)
{
	const struct listing_object *o = b->object;

	*now = (struct version){ .size = o->size, .mtime_ns = o->mtime_ns };
	now->flags = o->bytes[o->key_len - 1] == '/' ? ROW_DIRECTORY : 0;
	now->tag.len = o->tag_len;
	memcpy(now->tag.bytes, o->bytes + o->key_len, o->tag_len);
	return g ? version_find(g, now) : NULL;
}

static bool was_live(const struct group *g)
{
	return g && !(g->versions[0].flags & ROW_DEAD);
}

/* Before anything is written: does the key differ, and what stays where it is? */
static int key_plan(struct build *b, struct group *g)
{
	struct version *matched;
	struct version now;

	if (!b->object) {
		b->differs |= was_live(g);
		return 0;
	}
	matched = object_match(b, g, &now);
	if (matched && was_live(g) && matched == &g->versions[0]) {
		b->stats.kept++;
		b->differs |= matched->mtime_ns != now.mtime_ns;
	} else {
		b->differs = true;
	}
	if (matched && version_has_bytes(matched))
		clean_live(&b->clean, matched->offset, matched->size);
	return 0;
}

/* A place at the end. */
static int place_new(struct build *b, struct version *v)
{
	const struct listing_object *o = b->object;

	if (v->size > VOLUME_MAX_BYTES ||
		layout_place(b->end, v->size) > VOLUME_MAX_BYTES - v->size)
		return err_set(b->e, -EFBIG,
			"%.*s: the volume would be larger than %llu TiB: split the source",
			o->key_len, o->bytes, VOLUME_MAX_BYTES >> 40);
	v->offset = layout_place(b->end, v->size);
	b->end = layout_after(v->offset, v->size);
	return 0;
}

/* Gives the listed object its row: an old offset if the key ever had this tag, else, or when its
 * chunk is cleaned, a new one at the end. */
static int live_write(struct build *b, struct group *g, struct version **ret_matched)
{
	const struct listing_object *o = b->object;
	struct version now;
	struct version *matched = object_match(b, g, &now);
	bool same = was_live(g) && matched == &g->versions[0];
	bool moves = matched && version_has_bytes(matched) &&
		     clean_take(&b->clean, matched->offset, matched->size);

	if (!was_live(g))
		b->stats.added++;
	else if (!same)
		b->stats.changed++;
	if (matched && !moves) {
		now.offset = matched->offset;
		*ret_matched = matched;
	} else if (version_has_bytes(&now)) {
		int r = place_new(b, &now);

		if (r < 0)
			return r;
		b->stats.cleaned += same;
	}
	return write_version(b, o->bytes, o->key_len, &now);
}

bool generation_names(
	const struct generation_retained *retained, uint32_t n, const struct table_row *row)
{
	for (uint32_t i = 0; i < n; i++)
		if (row->offset < retained[i].end && (!(row->flags & ROW_DEAD) || row->died == 0 ||
							     row->died > retained[i].generation))
			return true;
	return false;
}

static bool version_retained(const struct build *b, const struct version *v)
{
	const struct table_row row = { .offset = v->offset, .died = v->died, .flags = v->flags };

	return !b->retained || generation_names(b->retained, b->n_retained, &row);
}

/* Writes the tombstones of a key: all versions but `live`, by offset. */
static int dead_write(struct build *b, struct group *g, const struct version *live)
{
	struct version *dead[GROUP_VERSIONS];
	uint32_t n = 0;

	for (uint32_t i = 0; i < g->count; i++) {
		struct version *v = &g->versions[i];
		uint32_t at = n;

		if (v == live || !version_has_bytes(v))
			continue;
		if (!(v->flags & ROW_DEAD)) {
			v->flags |= ROW_DEAD;
			v->died = b->generation;
		}
		if (!version_retained(b, v)) {
			b->stats.forgotten++;
			continue;
		}
		while (at > 0 && dead[at - 1]->offset > v->offset) {
			dead[at] = dead[at - 1];
			at--;
		}
		dead[at] = v;
		n++;
	}
	for (uint32_t i = n > VERSIONS_MAX ? n - VERSIONS_MAX : 0; i < n; i++) {
		int r = write_version(b, g->key, g->key_len, dead[i]);

		if (r < 0)
			return r;
	}
	return 0;
}

/* One key: in the listing (b->object), in the previous generation (g), or in both. */
static int key_write(struct build *b, struct group *g)
{
	struct version *live = NULL;
	int r;

	if (b->object) {
		r = live_write(b, g, &live);
		if (r < 0)
			return r;
	} else if (was_live(g)) {
		b->stats.removed++;
	}
	return g ? dead_write(b, g, live) : 0;
}

/* The listing's next object; NULL at its end. */
static int object_next(struct listing *listing, const struct listing_object **ret_object)
{
	int r = listing_next(listing, ret_object);

	if (r == -ENOENT)
		*ret_object = NULL;
	return r == -ENOENT ? 0 : r;
}

/* Merges listing and previous generation by key: each(key's object, or NULL; its rows, or NULL). */
static int merge(
	struct build *b, struct listing *listing, int (*each)(struct build *b, struct group *g))
{
	const struct listing_object *o;
	int r = object_next(listing, &o);

	while (r == 0 && (o || b->prev->key_len)) {
		struct group *g = b->prev->key_len ? b->prev : NULL;
		int c = !o ? 1 : !g ? -1 : key_compare(o->bytes, o->key_len, g->key, g->key_len);

		b->object = c <= 0 ? o : NULL;
		r = each(b, c >= 0 ? g : NULL);
		if (r == 0 && c >= 0)
			r = group_next(b->prev);
		if (r == 0 && c <= 0)
			r = object_next(listing, &o);
	}
	return r;
}

static void id_next(struct generation_id *id, const struct volume_id *volume, struct table *prev)
{
	memset(id, 0, sizeof(*id));
	id->volume = *volume;
	id->generation = 1;
	if (prev) {
		const struct generation_id *p = &table_info(prev)->id;

		id->lineage = p->lineage;
		id->generation = p->generation + 1;
		memcpy(id->prev_hash, p->hash, sizeof(id->prev_hash));
	}
	while (id->lineage == 0)
		hash_random(&id->lineage, sizeof(id->lineage));
}

/* What differs, and what moves. -EALREADY when nothing does. */
static int plan(struct build *b, struct table *prev, struct listing *listing)
{
	_cleanup_(group_free_p) struct group *group = NULL;
	int r = prev ? group_new(prev, &group) : 0;

	if (!prev || r < 0)
		return r;
	b->prev = group;
	r = clean_init(&b->clean, table_info(prev)->end);
	if (r == 0)
		r = merge(b, listing, key_plan);
	b->prev = NULL;
	if (r < 0)
		return r;
	clean_choose(&b->clean);
	return b->differs ? listing_rewind(listing) : -EALREADY;
}

static int write_rows(struct build *b, struct table *prev, struct listing *listing)
{
	_cleanup_(group_free_p) struct group *group = NULL;
	int r = group_new(prev, &group);

	if (r < 0)
		return r;
	b->prev = group;
	b->end = prev ? table_info(prev)->end : 0;
	r = merge(b, listing, key_write);
	b->prev = NULL;
	return r;
}

DEFINE_CLEANUP(struct table_writer *, table_writer_free);

static int build_table(struct build *b, struct table *prev, struct listing *listing,
	const char *path, struct generation_id *id)
{
	_cleanup_(table_writer_free_p) struct table_writer *writer = table_writer_new();
	int r = writer ? listing_sort(listing) : -ENOMEM;

	if (r == 0)
		r = plan(b, prev, listing);
	if (r == 0)
		r = table_writer_open(writer, path, b->e);
	b->writer = writer;
	if (r == 0)
		r = write_rows(b, prev, listing);
	if (r < 0 && r != -EALREADY && listing_spill_failed(listing, b->e))
		return r;
	return r < 0 ? r : table_writer_finish(writer, id, b->end, b->e);
}

int generation_build_retained(const struct volume_id *volume, struct table *prev,
	const struct generation_retained *retained, uint32_t n, struct listing *listing,
	const char *path, struct generation_id *ret_id, struct generation_stats *ret_stats,
	struct err *e)
{
	struct build b = { .e = e, .retained = retained, .n_retained = n };
	struct generation_id id;
	int r;

	if (prev && !volume_id_equal(volume, &table_info(prev)->id.volume))
		return err_set(e, -EINVAL, "the previous generation is of another source");
	id_next(&id, volume, prev);
	b.generation = id.generation;
	r = build_table(&b, prev, listing, path, &id);
	clean_release(&b.clean);
	if ((r == 0 || r == -EALREADY) && ret_stats)
		*ret_stats = b.stats;
	if (r == -EALREADY)
		return r;
	if (r < 0)
		return err_default(e, r, "cannot build a generation");
	if (ret_id)
		*ret_id = id;
	return 0;
}

int generation_build(const struct volume_id *volume, struct table *prev, struct listing *listing,
	const char *path, struct generation_id *ret_id, struct generation_stats *ret_stats,
	struct err *e)
{
	return generation_build_retained(
		volume, prev, NULL, 0, listing, path, ret_id, ret_stats, e);
}

/* ---- the guard ------------------------------------------------------------------------------- */

static int ids_check(const struct table_info *old, const struct table_info *next, struct err *e)
{
	if (!volume_id_equal(&old->id.volume, &next->id.volume))
		return err_set(e, -ESTALE,
			"refused a generation of another source: unmount, and mount again");
	if (old->id.lineage != next->id.lineage)
		return err_set(e, -ESTALE,
			"refused generation %llu: lineage %016llx, not %016llx: unmount, and mount "
			"again",
			(unsigned long long)next->id.generation,
			(unsigned long long)next->id.lineage, (unsigned long long)old->id.lineage);
	/* A cut table ends with its last row, which may be forgotten. */
	if (next->id.generation <= old->id.generation ||
		(next->end < old->end && !next->part && !old->part))
		return err_set(e, -ESTALE,
			"refused generation %llu: generation %llu was seen already: unmount, and "
			"mount again for a new lineage",
			(unsigned long long)next->id.generation,
			(unsigned long long)old->id.generation);
	if (next->id.generation == old->id.generation + 1 &&
		memcmp(next->id.prev_hash, old->id.hash, sizeof(old->id.hash)) != 0)
		return err_set(e, -ESTALE,
			"refused generation %llu: it does not follow the generation %llu seen: "
			"unmount, and mount again for a new lineage",
			(unsigned long long)next->id.generation,
			(unsigned long long)old->id.generation);
	return 0;
}

static bool version_in(const struct group *g, const struct version *v)
{
	for (uint32_t i = 0; i < g->count; i++) {
		const struct version *w = &g->versions[i];

		if (w->offset == v->offset && w->size == v->size &&
			!((w->flags ^ v->flags) & ROW_DIRECTORY) &&
			tag_packed_equal(&w->tag, &v->tag))
			return true;
	}
	return false;
}

/* Everything below `old_end` was given by `old` or before: a row of `next` there must be one that
 * `old` has. */
static int key_check(
	const struct group *old, const struct group *next, uint64_t old_end, struct err *e)
{
	bool same =
		old->key_len && key_compare(old->key, old->key_len, next->key, next->key_len) == 0;

	for (uint32_t i = 0; i < next->count; i++) {
		const struct version *v = &next->versions[i];

		if (version_has_bytes(v) && v->offset < old_end && !(same && version_in(old, v)))
			return err_set(e, -ESTALE,
				"refused generation %llu: it assigns offset %llu again, to %s: "
				"unmount, and mount again for a new lineage",
				(unsigned long long)table_info(next->table)->id.generation,
				(unsigned long long)v->offset, next->key);
	}
	return 0;
}

int generation_check_successor(struct table *old, struct table *next, struct err *e)
{
	_cleanup_(group_free_p) struct group *a = NULL;
	_cleanup_(group_free_p) struct group *b = NULL;
	int r = ids_check(table_info(old), table_info(next), e);

	if (r < 0)
		return r;
	if (table_info(old)->part != table_info(next)->part)
		return table_check(next); /* of different parts: rows are not to be compared */
	r = table_check(next);            /* no two rows of its own share bytes */
	if (r == 0)
		r = group_new(old, &a);
	if (r == 0)
		r = group_new(next, &b);
	while (r == 0 && b->key_len) {
		while (r == 0 && a->key_len &&
			key_compare(a->key, a->key_len, b->key, b->key_len) < 0)
			r = group_next(a);
		if (r == 0)
			r = key_check(a, b, table_info(old)->end, e);
		if (r == 0)
			r = group_next(b);
	}
	return r < 0 ? err_default(e, r, "cannot check a generation") : 0;
}
