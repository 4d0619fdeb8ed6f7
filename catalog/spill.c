/* Sorted runs of a listing on disk, and their merge. See spill.h. */
#include "catalog/spill.h"
#include "base/cleanup.h"
#include "base/file.h"

#include <assert.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define SPILL_MAGIC 0x5350494cu /* "SPIL" */
#define RUNS_MAX    (SPILL_FAN * SPILL_LEVELS)
#define OBJECT_MAX  (sizeof(struct listing_object) + LIMIT_KEY_BYTES + TAG_PACKED_MAX)

static_assert(RUNS_MAX * (SPILL_BLOCK_BYTES + OBJECT_MAX) < 8u << 20, "the memory of a merge");

/*
 *	0        8      12     16
 *	| xxh3   | used | zero | objects: object_head, the rest of the key, the packed tag | zero |
 *	                       |<- xxh3, seeded with the block's offset in the file ------>|
 */
struct block {
	uint64_t hash;
	uint32_t used; /* of bytes */
	uint32_t zero;
	uint8_t bytes[SPILL_BLOCK_BYTES - 16];
};
static_assert(sizeof(struct block) == SPILL_BLOCK_BYTES, "a block of a run");

struct object_head {
	uint64_t size;
	int64_t mtime_ns;
	uint16_t shared; /* bytes of the key before; 0 for the first of a block */
	uint16_t rest;
	uint16_t tag_len;
	uint16_t zero;
};
static_assert(sizeof(struct object_head) == 24, "an object's head in a run");

struct run {
	int fd;
	uint32_t level;
	uint64_t bytes;
};

/* One object with room for the longest. */
struct object_room {
	_Alignas(struct listing_object) uint8_t bytes[OBJECT_MAX];
};

static struct listing_object *object_in(struct object_room *room)
{
	return (struct listing_object *)(void *)room->bytes;
}

struct writer {
	struct run run;
	uint64_t room; /* bytes that it may still write */
	char prev_key[LIMIT_KEY_BYTES];
	uint32_t prev_len;
	struct block block;
};

struct reader {
	const struct run *run;
	uint64_t next_block; /* offset in the file */
	uint32_t at;         /* in block.bytes */
	struct object_room now;
	struct block block;
};

/* Readers of neighbouring runs as a heap: the smallest key is at the top, of equal ones the
 * earliest run's. */
struct merge {
	struct reader *readers;
	uint32_t heap[RUNS_MAX];
	uint32_t n;
	struct object_room out;
};

struct spill {
	uint32_t magic;
	char *directory;
	uint64_t max_bytes;
	uint32_t n;
	struct run runs[RUNS_MAX]; /* in their order of arrival; levels never rise */
	struct merge merge;
};

struct spill *spill_new(const char *directory, uint64_t max_bytes)
{
	struct spill *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	s->magic = SPILL_MAGIC;
	s->max_bytes = max_bytes;
	s->directory = strdup(directory);
	if (!s->directory) {
		spill_free(s);
		return NULL;
	}
	return s;
}

static void runs_close(struct run *runs, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		(void)close(runs[i].fd); /* has no name: thrown away */
}

static void merge_release(struct merge *m)
{
	free(m->readers);
	m->readers = NULL;
	m->n = 0;
}

void spill_free(struct spill *s)
{
	if (!s)
		return;
	CHECK_MAGIC(s, SPILL_MAGIC);
	merge_release(&s->merge);
	runs_close(s->runs, s->n);
	free(s->directory);
	s->magic = 0;
	free(s);
}

const char *spill_directory(const struct spill *s)
{
	CHECK_MAGIC(s, SPILL_MAGIC);
	return s->directory;
}

/* ---- writing --------------------------------------------------------------------------------- */

static uint64_t room_left(const struct spill *s)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < s->n; i++)
		bytes += s->runs[i].bytes;
	return s->max_bytes - min(bytes, s->max_bytes);
}

static int writer_open(struct writer *w, const struct spill *s, uint32_t level)
{
	char path[PATH_MAX];

	if (snprintf(path, sizeof(path), "%s/spill.XXXXXX", s->directory) >= (int)sizeof(path))
		return -ENAMETOOLONG;
	w->run = (struct run){ .level = level };
	w->room = room_left(s);
	w->block.used = 0;
	w->run.fd = mkostemp(path, O_CLOEXEC);
	if (w->run.fd < 0)
		return err_errno();
	if (unlink(path) != 0) { /* what cannot lose its name must not stay */
		int r = err_errno();

		(void)close(w->run.fd);
		return r;
	}
	return 0;
}

static int writer_flush(struct writer *w)
{
	struct block *b = &w->block;
	int r;

	if (b->used == 0)
		return 0;
	if (w->room < sizeof(*b))
		return -EOVERFLOW;
	w->room -= sizeof(*b);
	memset(b->bytes + b->used, 0, sizeof(b->bytes) - b->used);
	b->zero = 0;
	b->hash = hash_xxh3(b->bytes, sizeof(b->bytes), w->run.bytes);
	r = file_pwrite_exact(w->run.fd, b, sizeof(*b), w->run.bytes);
	w->run.bytes += sizeof(*b);
	b->used = 0;
	return r;
}

static int writer_put(struct writer *w, const struct listing_object *o)
{
	struct block *b = &w->block;
	struct object_head head = {
		.size = o->size, .mtime_ns = o->mtime_ns, .tag_len = o->tag_len
	};
	uint32_t shared = 0;

	if (sizeof(head) + o->key_len + o->tag_len > sizeof(b->bytes) - b->used) {
		int r = writer_flush(w);

		if (r < 0)
			return r;
	}
	if (b->used > 0)
		while (shared < min((uint32_t)o->key_len, w->prev_len) &&
			o->bytes[shared] == w->prev_key[shared])
			shared++;
	head.shared = (uint16_t)shared;
	head.rest = (uint16_t)(o->key_len - shared);
	memcpy(b->bytes + b->used, &head, sizeof(head));
	b->used += (uint32_t)sizeof(head);
	memcpy(b->bytes + b->used, o->bytes + shared, (size_t)head.rest + o->tag_len);
	b->used += (uint32_t)head.rest + o->tag_len;
	memcpy(w->prev_key + shared, o->bytes + shared, head.rest);
	w->prev_len = o->key_len;
	return 0;
}

/* ---- reading --------------------------------------------------------------------------------- */

static int reader_fill(struct reader *d)
{
	struct block *b = &d->block;
	int r;

	if (d->next_block == d->run->bytes)
		return -ENOENT;
	r = file_pread_exact(d->run->fd, b, sizeof(*b), d->next_block);
	if (r < 0)
		return r == -ENODATA ? -EBADMSG : r;
	if (b->used == 0 || b->used > sizeof(b->bytes) ||
		hash_xxh3(b->bytes, sizeof(b->bytes), d->next_block) != b->hash)
		return -EBADMSG;
	d->next_block += sizeof(*b);
	d->at = 0;
	object_in(&d->now)->key_len = 0;
	return 0;
}

/* The run's next object into d->now; -ENOENT at its end. */
static int reader_next(struct reader *d)
{
	struct listing_object *o = object_in(&d->now);
	struct object_head head;
	uint32_t key_len;

	if (d->at == d->block.used) {
		int r = reader_fill(d);

		if (r < 0)
			return r;
	}
	if (d->block.used - d->at < sizeof(head))
		return -EBADMSG;
	memcpy(&head, d->block.bytes + d->at, sizeof(head));
	d->at += (uint32_t)sizeof(head);
	key_len = (uint32_t)head.shared + head.rest;
	if (head.shared > o->key_len || key_len == 0 || key_len > LIMIT_KEY_BYTES ||
		head.tag_len > TAG_PACKED_MAX ||
		(uint32_t)head.rest + head.tag_len > d->block.used - d->at)
		return -EBADMSG;
	o->size = head.size;
	o->mtime_ns = head.mtime_ns;
	o->key_len = (uint16_t)key_len;
	o->tag_len = (uint8_t)head.tag_len;
	memcpy(o->bytes + head.shared, d->block.bytes + d->at, (size_t)head.rest + head.tag_len);
	d->at += (uint32_t)head.rest + head.tag_len;
	return 0;
}

/* ---- merging --------------------------------------------------------------------------------- */

static int object_key_compare(const struct listing_object *a, const struct listing_object *b)
{
	return key_compare(a->bytes, a->key_len, b->bytes, b->key_len);
}

static bool reader_before(const struct merge *m, uint32_t a, uint32_t b)
{
	int c = object_key_compare(object_in(&m->readers[a].now), object_in(&m->readers[b].now));

	return c < 0 || (c == 0 && a < b);
}

/* Lets the reader at `at` sink to its place. */
static void heap_sink(struct merge *m, uint32_t at)
{
	uint32_t moving = m->heap[at];

	for (;;) {
		uint32_t child = 2 * at + 1;

		if (child >= m->n)
			break;
		if (child + 1 < m->n && reader_before(m, m->heap[child + 1], m->heap[child]))
			child++;
		if (!reader_before(m, m->heap[child], moving))
			break;
		m->heap[at] = m->heap[child];
		at = child;
	}
	m->heap[at] = moving;
}

static int merge_open(struct merge *m, const struct run *runs, uint32_t n)
{
	merge_release(m);
	m->readers = calloc(n, sizeof(*m->readers));
	if (!m->readers)
		return -ENOMEM;
	for (uint32_t i = 0; i < n; i++) {
		int r;

		m->readers[i].run = &runs[i];
		r = reader_next(&m->readers[i]); /* no run is empty */
		if (r < 0)
			return r == -ENOENT ? -EBADMSG : r;
		m->heap[m->n++] = i;
	}
	for (uint32_t i = m->n / 2; i-- > 0;)
		heap_sink(m, i);
	return 0;
}

/* Moves the reader at the top on. */
static int merge_advance(struct merge *m)
{
	int r = reader_next(&m->readers[m->heap[0]]);

	if (r == -ENOENT) {
		m->heap[0] = m->heap[--m->n];
		r = 0;
	}
	if (r == 0 && m->n > 0)
		heap_sink(m, 0);
	return r;
}

static void object_copy(struct object_room *to, const struct listing_object *o)
{
	memcpy(to->bytes, o, sizeof(*o) + o->key_len + o->tag_len);
}

/* The next key's object into m->out; -ENOENT at the end. */
static int merge_next(struct merge *m)
{
	struct listing_object *out = object_in(&m->out);
	int r;

	if (m->n == 0)
		return -ENOENT;
	object_copy(&m->out, object_in(&m->readers[m->heap[0]].now));
	r = merge_advance(m);
	while (r == 0 && m->n > 0) {
		const struct listing_object *o = object_in(&m->readers[m->heap[0]].now);

		if (object_key_compare(o, out) != 0)
			break;
		if (o->mtime_ns >= out->mtime_ns)
			object_copy(&m->out, o);
		r = merge_advance(m);
	}
	return r;
}

/* Puts what `w` wrote in the place of the last `n` runs. */
static void run_push(struct spill *s, uint32_t n, const struct run *run)
{
	runs_close(s->runs + s->n - n, n);
	s->n -= n;
	ensure(s->n < RUNS_MAX && run->level < SPILL_LEVELS);
	s->runs[s->n++] = *run;
}

/* Makes one run of the last SPILL_FAN. */
static int compact(struct spill *s, struct writer *w)
{
	const struct run *first = &s->runs[s->n - SPILL_FAN];
	int r = writer_open(w, s, first->level + 1);

	if (r < 0)
		return r;
	r = merge_open(&s->merge, first, SPILL_FAN);
	while (r == 0 && (r = merge_next(&s->merge)) == 0)
		r = writer_put(w, object_in(&s->merge.out));
	if (r == -ENOENT)
		r = writer_flush(w);
	merge_release(&s->merge);
	if (r < 0) {
		(void)close(w->run.fd); /* has no name: thrown away */
		return r;
	}
	run_push(s, SPILL_FAN, &w->run);
	return 0;
}

int spill_add(struct spill *s, struct listing_object *const *objects, uint64_t n)
{
	_cleanup_free_ struct writer *w = malloc(sizeof(*w));
	int r;

	CHECK_MAGIC(s, SPILL_MAGIC);
	ensure(n > 0);
	if (!w)
		return -ENOMEM;
	r = writer_open(w, s, 0);
	if (r < 0)
		return r;
	for (uint64_t i = 0; r == 0 && i < n; i++)
		r = writer_put(w, objects[i]);
	if (r == 0)
		r = writer_flush(w);
	if (r < 0) {
		(void)close(w->run.fd); /* has no name: thrown away */
		return r;
	}
	run_push(s, 0, &w->run);
	while (r == 0 && s->n >= SPILL_FAN &&
		s->runs[s->n - SPILL_FAN].level == s->runs[s->n - 1].level)
		r = compact(s, w);
	return r;
}

int spill_rewind(struct spill *s)
{
	CHECK_MAGIC(s, SPILL_MAGIC);
	return merge_open(&s->merge, s->runs, s->n);
}

int spill_next(struct spill *s, const struct listing_object **ret_object)
{
	int r = merge_next(&s->merge);

	if (r == 0)
		*ret_object = object_in(&s->merge.out);
	return r;
}
