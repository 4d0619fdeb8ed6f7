/*
 * Standalone mode: one bucket, out of a directory (regular files; an empty directory is the marker
 * `dir/`) and of synthetic objects.
 *
 * LIST (s3d_list.c) answers from a sorted table read at start and on /rescan; GET and HEAD of a
 * file look at the file as it is now, so that a test changes an object between LIST and GET by
 * writing to the file. ETags have the form of an MD5 and change with the file's size, time and
 * inode. Synthetic objects are changed by POST /object.
 */
#include "tests/tools/s3d_store.h"

#include <fcntl.h>
#include <fts.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include "base/hash.h"
#include "base/units.h"

#define STORE_SLICE       (256 * KiB) /* bytes handed to the socket at once */
#define STORE_PACE_SLICE  (16 * KiB)  /* the same on a paced reply */
#define STORE_TOTAL_SLICE (64 * KiB)  /* the same where replies share a pace */
#define SYNTHETIC_TIME    1767225600  /* 2026-01-01T00:00:00Z */

/* One object as a reply needs it. */
struct object {
	uint64_t size;
	int64_t seconds;
	char etag[STORE_ETAG];
	bool archived;
	struct s3d_body body;
};

static enum s3d_etags etags; /* of all objects: a process has one store */

/* Has the form of a multipart upload's, so that it is not compared as an MD5. */
void s3d_entry_etag(const struct s3d_entry *entry, char out[STORE_ETAG])
{
	uint64_t rest[3] = { entry->size, (uint64_t)entry->seconds, entry->version };
	size_t len = strlen(entry->key);
	uint64_t sum = hash_xxh3(rest, sizeof(rest), 1);

	uint64_t etag[2] = { hash_xxh3(entry->key, len, sum), hash_xxh3(entry->key, len, sum + 1) };

	out += sprintf(out, "%s", etags == S3D_ETAGS_WEAK ? "W/\"" : "\"");
	hash_hex(etag, sizeof(etag), out);
	(void)strcpy(out + 32, etags == S3D_ETAGS_HEX ? "\"" : "-1\"");
}

/* The table ------------------------------------------------------------------------------- */

struct s3d_store *s3d_store_new(
	const char *bucket, const char *dir, bool versioned, enum s3d_etags kind)
{
	struct s3d_store *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	s->bucket = bucket;
	s->dir = dir;
	s->versioned = versioned;
	etags = kind;
	s->noise = s3d_noise_new(2 * STORE_SLICE);
	if (!s->noise) {
		s3d_store_free(s);
		return NULL;
	}
	return s;
}

void s3d_store_free(struct s3d_store *s)
{
	if (!s)
		return;
	for (size_t i = 0; i < s->count; i++)
		free(s->entries[i].key);
	free(s->entries);
	free(s->noise);
	free(s);
}

static int store_add(struct s3d_store *s, const struct s3d_entry *entry)
{
	if (s->count == s->room) {
		size_t room = s->room ? 2 * s->room : 1024;
		struct s3d_entry *entries = reallocarray(s->entries, room, sizeof(*entries));

		if (!entries)
			return -ENOMEM;
		s->entries = entries;
		s->room = room;
	}
	s->entries[s->count] = *entry;
	s->entries[s->count].key = strdup(entry->key);
	if (!s->entries[s->count].key)
		return -ENOMEM;
	s->count++;
	return 0;
}

/* How the keys of synthetic objects look. */
enum shape {
	SHAPE_DIRS,    /* d00003/o00000042 */
	SHAPE_FLAT,    /* img_000000042.jpg */
	SHAPE_HASH,    /* 9e3779b10000002a */
	SHAPE_CLASSES, /* train/n00000007/n00000007_42.JPEG */
	SHAPE_CJK,     /* four ideographs */
	SHAPES,
};

/* The i-th key of `n`, in `dirs` directories or classes. */
static void shape_key(char *out, size_t size, enum shape shape, const char *prefix, uint64_t i,
	uint64_t n, uint64_t dirs)
{
	unsigned long long number = i;
	unsigned int class = (unsigned int)(i % dirs * 7919);
	char *end;

	switch (shape) {
	case SHAPE_DIRS:
		(void)snprintf(out, size, "%sd%05llu/o%08llu", prefix,
			number / ((n + dirs - 1) / dirs), number);
		return;
	case SHAPE_FLAT:
		(void)snprintf(out, size, "%simg_%09llu.jpg", prefix, number);
		return;
	case SHAPE_HASH:
		(void)snprintf(
			out, size, "%s%08x%08llx", prefix, (unsigned int)i * 2654435761u, number);
		return;
	case SHAPE_CLASSES:
		(void)snprintf(
			out, size, "%strain/n%08u/n%08u_%llu.JPEG", prefix, class, class, number);
		return;
	case SHAPE_CJK:
	case SHAPES:
		break;
	}
	(void)snprintf(out, size, "%s", prefix); /* digits of base 20, spread over U+4E00..9FBF */
	end = out + strlen(out);
	for (uint64_t place = 160000; place > 1 && end + 4 < out + size; place /= 20) {
		unsigned int c = 0x4e00 + (unsigned int)(i % place / (place / 20)) * 0x429;

		*end++ = (char)(0xe0 | c >> 12);
		*end++ = (char)(0x80 | (c >> 6 & 0x3f));
		*end++ = (char)(0x80 | (c & 0x3f));
	}
	*end = 0;
}

int s3d_store_add_synthetic(struct s3d_store *s, const char *spec, struct err *e)
{
	static const char *const shapes[SHAPES] = { "dirs", "flat", "hash", "classes", "cjk" };
	unsigned long long n, dirs;
	char size_text[32], prefix[256] = "", key[512];
	const char *numbers = strchr(spec, ':');
	enum shape shape = SHAPE_DIRS;
	uint64_t size;
	int r = 0;

	while (numbers && shape < SHAPES &&
		(strlen(shapes[shape]) != (size_t)(numbers - spec) ||
			strncmp(spec, shapes[shape], (size_t)(numbers - spec)) != 0))
		shape++;
	if (shape == SHAPES ||
		sscanf(numbers ? numbers + 1 : spec, "%llu,%31[^,],%llu,%255s", &n, size_text,
			&dirs, prefix) < 3 ||
		n == 0 || n > (shape == SHAPE_CJK ? 160000 : LIMIT_FILES) || dirs == 0 ||
		dirs > n || dirs > 100000)
		return err_set(e, -EINVAL,
			"--synthetic %s: it is [SHAPE:]N,SIZE,DIRS[,PREFIX], SHAPE one of dirs, "
			"flat, hash, classes, cjk",
			spec);
	if (size_text[strspn(size_text, "0123456789")] == '\0')
		size = strtoull(size_text, NULL, 10); /* objects may be of a few bytes */
	else
		r = units_parse_size(size_text, &size, e);
	for (uint64_t i = 0; i < n && r == 0; i++) {
		shape_key(key, sizeof(key), shape, prefix, i, n, dirs);
		r = store_add(s, &(struct s3d_entry){ .key = key,
					 .size = size,
					 .seconds = SYNTHETIC_TIME,
					 .synthetic = true });
	}
	return r ? err_default(e, r, "--synthetic") : 0;
}

static void entry_of_stat(struct s3d_entry *entry, const struct stat *st)
{
	entry->size = S_ISDIR(st->st_mode) ? 0 : (uint64_t)st->st_size;
	entry->seconds = st->st_mtim.tv_sec;
	entry->version = (uint64_t)st->st_mtim.tv_nsec ^ (uint64_t)st->st_ino << 30;
}

static int store_add_found(struct s3d_store *s, const FTSENT *found)
{
	char key[4 * LIMIT_KEY_BYTES];
	const char *relative = found->fts_path + strlen(s->dir);
	struct s3d_entry entry = { .key = key };

	relative += strspn(relative, "/");
	if (found->fts_info == FTS_F) {
		(void)snprintf(key, sizeof(key), "%s", relative);
	} else if (found->fts_info == FTS_DP && found->fts_number == 0 && *relative) {
		(void)snprintf(key, sizeof(key), "%s/", relative);
	} else {
		return 0;
	}
	entry_of_stat(&entry, found->fts_statp);
	return store_add(s, &entry);
}

static int entry_compare(const void *a, const void *b)
{
	return strcmp(((const struct s3d_entry *)a)->key, ((const struct s3d_entry *)b)->key);
}

static void store_drop_files(struct s3d_store *s)
{
	size_t kept = 0;

	for (size_t i = 0; i < s->count; i++) {
		if (s->entries[i].synthetic)
			s->entries[kept++] = s->entries[i];
		else
			free(s->entries[i].key);
	}
	s->count = kept;
}

int s3d_store_scan(struct s3d_store *s, struct err *e)
{
	char *paths[] = { (char *)(uintptr_t)s->dir, NULL };
	FTS *fts;
	FTSENT *found;
	int r = 0;

	store_drop_files(s);
	if (s->dir) {
		fts = fts_open(paths, FTS_PHYSICAL | FTS_NOCHDIR, NULL);
		if (!fts)
			return err_set(e, err_errno(), "cannot read %s", s->dir);
		while (r == 0 && (found = fts_read(fts)) != NULL) {
			if (found->fts_level > 0 && found->fts_info != FTS_DP)
				found->fts_parent->fts_number = 1; /* not empty */
			r = store_add_found(s, found);
		}
		(void)fts_close(fts);
	}
	if (s->count)
		qsort(s->entries, s->count, sizeof(*s->entries), entry_compare);
	return r ? err_default(e, r, "scan") : 0;
}

size_t s3d_store_find(const struct s3d_store *s, const char *key, bool past)
{
	size_t low = 0, high = s->count;

	while (low < high) {
		size_t middle = (low + high) / 2;
		int order = strcmp(s->entries[middle].key, key);

		if (order < 0 || (past && order == 0))
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/* Changes at run time --------------------------------------------------------------------- */

static bool change_concerns(const struct s3d_change *change, const char *key)
{
	return change->prefix ? strncmp(key, change->key, strlen(change->key)) == 0
			      : strcmp(key, change->key) == 0;
}

static void change_entry(struct s3d_entry *entry, const struct s3d_change *change)
{
	if (change->archive) {
		entry->archived = true;
		entry->restored = change->archive < 0;
		return;
	}
	entry->version = change->version == S3D_UNKNOWN ? entry->version + 1 : change->version;
	entry->seconds = SYNTHETIC_TIME + (int64_t)entry->version;
	if (change->size != S3D_UNKNOWN)
		entry->size = change->size;
}

int s3d_store_change(
	struct s3d_store *s, const struct s3d_change *change, uint32_t *ret_n, struct err *e)
{
	struct s3d_entry added = { .size = change->size, .synthetic = true };
	char key[LIMIT_KEY_BYTES + 1];
	size_t i = s3d_store_find(s, change->key, false);
	size_t kept = i;
	uint32_t n = 0;

	for (; i < s->count && change_concerns(change, s->entries[i].key); i++) {
		struct s3d_entry *entry = &s->entries[i];

		if (entry->synthetic && change->remove) {
			n++;
			free(entry->key);
			continue;
		}
		if (entry->synthetic) {
			n++;
			change_entry(entry, change);
		}
		s->entries[kept++] = *entry;
	}
	memmove(&s->entries[kept], &s->entries[i], (s->count - i) * sizeof(*s->entries));
	s->count -= i - kept;
	*ret_n = n;
	if (n || change->prefix || change->remove)
		return 0;
	if (change->size == S3D_UNKNOWN || !*change->key || strlen(change->key) >= sizeof(key))
		return err_set(
			e, -EINVAL, "%s: no such object; a new one needs size=N", change->key);
	(void)snprintf(key, sizeof(key), "%s", change->key);
	added.key = key;
	added.version = change->version == S3D_UNKNOWN ? 0 : change->version;
	added.seconds = SYNTHETIC_TIME + (int64_t)added.version;
	*ret_n = 1;
	if (store_add(s, &added) < 0)
		return err_set(e, -ENOMEM, "no memory");
	added = s->entries[s->count - 1];
	memmove(&s->entries[kept + 1], &s->entries[kept],
		(s->count - 1 - kept) * sizeof(*s->entries));
	s->entries[kept] = added;
	return 0;
}

/* GET and HEAD ---------------------------------------------------------------------------- */

static bool key_is_path(const char *key)
{
	for (const char *part = key; *part; part += strcspn(part, "/"), part += *part == '/') {
		size_t len = strcspn(part, "/");

		if (len == 0 || len > LIMIT_NAME_BYTES || (len == 1 && part[0] == '.') ||
			(len == 2 && part[0] == '.' && part[1] == '.'))
			return false;
	}
	return true;
}

static bool file_object(const struct s3d_store *s, char *key, struct object *o)
{
	char path[LIMIT_URL_BYTES + 4 * LIMIT_KEY_BYTES];
	struct s3d_entry entry = { .key = key };
	struct stat st;
	bool marker = key[strlen(key) - 1] == '/';

	if (!s->dir || !key_is_path(key))
		return false;
	(void)snprintf(path, sizeof(path), "%s/%s", s->dir, key);
	o->body.fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (o->body.fd < 0)
		return false;
	if (fstat(o->body.fd, &st) || !(marker ? S_ISDIR(st.st_mode) : S_ISREG(st.st_mode))) {
		s3d_store_body_release(&o->body);
		return false;
	}
	entry_of_stat(&entry, &st);
	o->size = entry.size;
	o->seconds = entry.seconds;
	s3d_entry_etag(&entry, o->etag);
	return true;
}

/* `newer`: as the next version of it will be; `version`: an older one, or S3D_UNKNOWN. */
static bool object_find(
	const struct s3d_store *s, char *key, bool newer, uint64_t version, struct object *o)
{
	size_t i = s3d_store_find(s, key, false);
	struct s3d_entry entry;

	*o = (struct object){ .body = { .fd = -1 } };
	if (i == s->count || strcmp(s->entries[i].key, key) != 0 || !s->entries[i].synthetic)
		return file_object(s, key, o);
	entry = s->entries[i];
	if (version != S3D_UNKNOWN) {
		if (version > entry.version)
			return false;
		entry.seconds -= (int64_t)(entry.version - version);
		entry.version = version;
	}
	entry.version += newer;
	entry.seconds += newer;
	o->archived = entry.archived && !entry.restored;
	o->size = entry.size;
	o->seconds = entry.seconds;
	o->body.start = s3d_noise_start(key, entry.version);
	s3d_entry_etag(&entry, o->etag);
	return true;
}

enum range {
	RANGE_WHOLE,
	RANGE_PART,
	RANGE_BAD,
};

/* RFC 9110 section 14; several ranges in one request are answered whole, as S3 does. */
static enum range range_parse(
	const char *text, uint64_t size, uint64_t *ret_first, uint64_t *ret_last)
{
	unsigned long long first, last;
	char rest;

	if (sscanf(text, "bytes=-%llu%c", &last, &rest) == 1) {
		if (last == 0 || size == 0)
			return RANGE_BAD;
		*ret_first = size - min((uint64_t)last, size);
		*ret_last = size - 1;
		return RANGE_PART;
	}
	if (sscanf(text, "bytes=%llu-%llu%c", &first, &last, &rest) != 2) {
		if (sscanf(text, "bytes=%llu%c%c", &first, &rest, &rest) != 2 || rest != '-')
			return RANGE_WHOLE;
		last = S3D_UNKNOWN;
	}
	if (first > last)
		return RANGE_WHOLE;
	if (first >= size)
		return RANGE_BAD;
	*ret_first = first;
	*ret_last = min((uint64_t)last, size - 1);
	return RANGE_PART;
}

void s3d_store_body_release(struct s3d_body *b)
{
	if (b->fd >= 0)
		(void)close(b->fd); /* read only */
	b->fd = -1;
}

static void store_more(struct s3d_conn *c)
{
	static char slice[STORE_SLICE];
	struct s3d_body *b = &c->body;
	size_t most = c->plan.bytes_per_second   ? STORE_PACE_SLICE
		      : c->plan.total_per_second ? STORE_TOTAL_SLICE
						 : STORE_SLICE;

	while (b->left) {
		size_t n = min((uint64_t)most, b->left);
		const char *data = slice;

		if (b->fd < 0) {
			data = c->server->store->noise + (b->start + b->offset) % S3D_NOISE_BYTES;
		} else {
			ssize_t got = pread(b->fd, slice, n, (off_t)b->offset);

			if (got <= 0) { /* the file shrank */
				s3d_conn_close(c);
				return;
			}
			n = (size_t)got;
		}
		b->offset += n;
		b->left -= n;
		if (!s3d_reply_body(c, data, n)) {
			if (c->state != S3D_CONN_BUSY || b->left)
				return;
		}
	}
	s3d_reply_end(c);
}

static void store_send_object(
	struct s3d_conn *c, struct object *o, enum range range, uint64_t first, uint64_t last)
{
	struct buf head = BUF_INIT(S3D_HEAD_BYTES);
	uint64_t len = o->size ? last - first + 1 : 0;
	int status = range == RANGE_PART ? 206 : 200;
	char modified[64];
	time_t t = (time_t)o->seconds;
	struct tm tm;
	int r;

	(void)gmtime_r(&t, &tm);
	(void)strftime(modified, sizeof(modified), "%a, %d %b %Y %H:%M:%S GMT", &tm);
	r = buf_printf(&head,
		"HTTP/1.1 %d %s\r\nServer: s3d\r\nAccept-Ranges: bytes\r\nContent-Type: "
		"application/octet-stream\r\nContent-Length: %llu\r\nLast-Modified: %s\r\nETag: "
		"%s\r\n",
		status, s3d_reason(status), (unsigned long long)len, modified, o->etag);
	if (r == 0 && status == 206)
		r = buf_printf(&head, "Content-Range: bytes %llu-%llu/%llu\r\n",
			(unsigned long long)first, (unsigned long long)last,
			(unsigned long long)o->size);
	if (r == 0)
		r = buf_puts(&head, "\r\n");
	if (r)
		s3d_conn_close(c);
	else
		s3d_reply_head(c, &head, status, len);
	if (c->state == S3D_CONN_BUSY) {
		c->body = o->body;
		o->body.fd = -1;
		c->body.offset = first;
		c->body.left = c->req.kind == S3D_HEAD ? 0 : len;
		c->more = store_more;
		store_more(c);
	}
	buf_release(&head);
}

static void store_serve_object(struct s3d_store *s, struct s3d_conn *c)
{
	struct s3d_change swap = { .key = c->req.key, .version = S3D_UNKNOWN, .size = S3D_UNKNOWN };
	uint64_t version = S3D_UNKNOWN;
	uint32_t swapped;
	char id[64] = "";
	struct object o;
	uint64_t first = 0, last;
	enum range range = RANGE_WHOLE;

	if (s->versioned && s3d_query_get(c->req.query, "versionId", id, sizeof(id)))
		version =
			strncmp(id, "ver-", 4) == 0 ? strtoull(id + 4, NULL, 10) : S3D_UNKNOWN - 1;
	if (!object_find(s, c->req.key, c->plan.newer, version, &o)) {
		s3d_reply_error(c, 404, *id ? "NoSuchVersion" : "NoSuchKey");
		return;
	}
	if (o.archived && c->req.kind == S3D_GET) {
		s3d_reply_error_with(
			c, 403, "InvalidObjectState", "", "<StorageClass>GLACIER</StorageClass>");
		return;
	}
	last = o.size - 1;
	if (*c->req.range && !c->plan.whole)
		range = range_parse(c->req.range, o.size, &first, &last);
	/* If-Match is the strong comparison: a weak one equals nothing. */
	if (*c->req.if_match && strcmp(c->req.if_match, "*") != 0 &&
		(etags == S3D_ETAGS_WEAK || strcmp(c->req.if_match, o.etag) != 0) &&
		!c->plan.match_ignored) {
		s3d_reply_error(c, 412, "PreconditionFailed");
	} else if (range == RANGE_BAD) {
		s3d_reply_error(c, 416, "InvalidRange");
	} else {
		if (c->plan.swap) /* a file is not there to be changed: nothing happens */
			(void)s3d_store_change(s, &swap, &swapped, NULL);
		store_send_object(c, &o, range, first, last);
	}
	s3d_store_body_release(&o.body);
}

void s3d_store_serve(struct s3d_store *s, struct s3d_conn *c)
{
	if (strcmp(c->req.bucket, s->bucket) != 0)
		s3d_reply_error(c, 404, "NoSuchBucket");
	else if (c->req.kind == S3D_LIST)
		s3d_list_serve(s, c);
	else if (c->req.kind == S3D_OTHER && s3d_query_has(c->req.query, "versioning"))
		s3d_list_versioning(s, c);
	else if (c->req.kind == S3D_HEAD && !*c->req.key)
		s3d_reply_whole(c, 200, "application/xml", "", &BUF_INIT(0));
	else if (c->req.kind == S3D_GET || c->req.kind == S3D_HEAD)
		store_serve_object(s, c);
	else
		s3d_reply_error(c, 501, "NotImplemented");
}
