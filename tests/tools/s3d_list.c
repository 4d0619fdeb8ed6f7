/*
 * Standalone mode: ListObjectsV2 out of the sorted table, and what the plan of a request makes of a
 * page: its keys in disorder, twice, or others; answers that go on for ever; broken XML.
 */
#include "tests/tools/s3d_store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "base/cleanup.h"
#include "base/hash.h"

#define LIST_PAGE     1000u /* keys of one answer */
#define LIST_ROWS     (2 * LIST_PAGE + 1)
#define LIST_BYTES    (LIMIT_XML_BYTES * 2)
#define LIST_HUGE     (LIMIT_XML_BYTES + 4096)
#define LIST_KEY_TEXT (4 * LIMIT_KEY_BYTES)

struct list_query {
	char prefix[LIST_KEY_TEXT];
	char after[LIST_KEY_TEXT]; /* exclusive start */
	char delimiter[16];
	uint64_t max_keys;
	bool url;
	bool markers;  /* of the first version of LIST */
	bool versions; /* all that there are; keys are never cut between two pages */
};

/* A key, or a common prefix: the first `common` bytes of its first key. */
struct list_row {
	const struct s3d_entry *entry;
	size_t common;  /* 0: a key */
	bool other;     /* as it was before: older, another size and etag */
	bool malformed; /* Size or escape, as the plan says */
};

struct list_page {
	struct list_row rows[LIST_ROWS];
	size_t n;
	uint64_t keys;
	char next[LIST_KEY_TEXT]; /* where the next page goes on */
	bool truncated;
	struct s3d_entry stranger; /* the key that does not belong there */
	char stranger_key[LIST_KEY_TEXT + 32];
};

static bool list_query_parse(struct list_query *q, const char *query)
{
	char token[2 * LIST_KEY_TEXT + 1];
	char encoding[8];

	*q = (struct list_query){ 0 };
	(void)s3d_query_get(query, "prefix", q->prefix, sizeof(q->prefix)); /* all default to "" */
	q->versions = s3d_query_has(query, "versions");
	q->markers = !q->versions && s3d_query_number(query, "list-type", 1) != 2;
	(void)s3d_query_get(query,
		q->versions  ? "key-marker"
		: q->markers ? "marker"
			     : "start-after",
		q->after, sizeof(q->after));
	(void)s3d_query_get(query, "delimiter", q->delimiter, sizeof(q->delimiter));
	q->url = s3d_query_get(query, "encoding-type", encoding, sizeof(encoding)) &&
		 strcmp(encoding, "url") == 0;
	q->max_keys = min(s3d_query_number(query, "max-keys", LIST_PAGE), (uint64_t)LIST_PAGE);
	if (s3d_query_get(query, "continuation-token", token, sizeof(token))) {
		size_t len = strlen(token) / 2;

		if (len >= sizeof(q->after) || hash_unhex(token, q->after, len))
			return false;
		q->after[len] = 0;
	}
	return true;
}

/* The page's rows ------------------------------------------------------------------------- */

/* Length of the common prefix that stands for `key`, 0 when it is listed itself. */
static size_t list_common(const struct list_query *q, const char *key)
{
	const char *hit = *q->delimiter ? strstr(key + strlen(q->prefix), q->delimiter) : NULL;

	return hit ? (size_t)(hit - key) + strlen(q->delimiter) : 0;
}

static void page_fill(const struct s3d_store *s, const struct list_query *q, struct list_page *page)
{
	size_t prefix_len = strlen(q->prefix);
	size_t i = max(s3d_store_find(s, q->prefix, false),
		*q->after ? s3d_store_find(s, q->after, true) : (size_t)0);

	while (i < s->count) {
		const struct s3d_entry *entry = &s->entries[i];
		size_t common;

		if (strncmp(entry->key, q->prefix, prefix_len) != 0)
			break;
		common = list_common(q, entry->key);
		if (common && strncmp(entry->key, q->after, common) == 0 && !q->after[common]) {
			i++; /* told on the page before */
			continue;
		}
		if (page->keys == q->max_keys) {
			page->truncated = page->keys > 0;
			break;
		}
		page->keys++;
		page->rows[page->n++] = (struct list_row){ .entry = entry, .common = common };
		(void)snprintf(page->next, sizeof(page->next), "%s", entry->key);
		i++;
		if (common)
			page->next[common] = 0;
		while (common && i < s->count &&
			strncmp(s->entries[i].key, page->next, common) == 0)
			i++;
	}
}

static void page_disorder(struct list_page *page, uint64_t seed)
{
	for (size_t i = page->n; i > 1; i--) { /* Fisher and Yates */
		size_t at = hash_xxh3(&i, sizeof(i), seed) % i;
		struct list_row row = page->rows[i - 1];

		page->rows[i - 1] = page->rows[at];
		page->rows[at] = row;
	}
}

static void page_duplicate(struct list_page *page, bool other)
{
	size_t n = page->n;
	size_t twice = 0;

	for (size_t i = 0; i < n; i++)
		twice += i % 3 == 0 && !page->rows[i].common;
	page->n += twice;
	for (size_t i = n; i-- > 0;) {
		struct list_row row = page->rows[i];
		size_t to = i + twice;

		page->rows[to] = row;
		if (i % 3 != 0 || row.common)
			continue;
		page->rows[to].other = other;
		page->rows[to - 1] = row;
		twice--;
	}
}

/* A key where it does not belong, first or last of the page. */
static void page_add_stranger(
	struct list_page *page, const struct list_query *q, enum s3d_outside how)
{
	struct list_row row = { .entry = &page->stranger };
	bool first = how == S3D_OUTSIDE_BEFORE;

	if (first && !*q->after)
		return; /* nothing lies before the start */
	if (how == S3D_OUTSIDE_PREFIX)
		(void)snprintf(page->stranger_key, sizeof(page->stranger_key), "~not below %.1000s",
			q->prefix);
	else if (first) /* "" and "!" come before all names */
		(void)snprintf(page->stranger_key, sizeof(page->stranger_key), "%s!~~~", q->prefix);
	else
		(void)snprintf(page->stranger_key, sizeof(page->stranger_key), "%s~~~", page->next);
	page->stranger = (struct s3d_entry){ .key = page->stranger_key, .size = 7 };
	if (first)
		memmove(page->rows + 1, page->rows, page->n * sizeof(page->rows[0]));
	page->rows[first ? 0 : page->n] = row;
	page->n++;
}

static void page_spoil(
	struct list_page *page, const struct list_query *q, const struct s3d_page_plan *plan)
{
	if (plan->loop == S3D_LOOP_EMPTY) {
		page->n = 0;
		page->truncated = true;
		(void)snprintf(page->next, sizeof(page->next), "%s", q->after);
	} else if (plan->loop == S3D_LOOP_TOKEN) {
		page->truncated = true;
		(void)snprintf(page->next, sizeof(page->next), "%s", q->after);
	} else if (plan->loop) {
		page->truncated = true;
	}
	if (plan->duplicate)
		page_duplicate(page, plan->duplicate == S3D_DUPLICATE_OTHER);
	if (plan->outside)
		page_add_stranger(page, q, (enum s3d_outside)plan->outside);
	if (plan->disorder)
		page_disorder(page, plan->seed);
	if ((plan->xml == S3D_XML_SIZE || plan->xml == S3D_XML_ESCAPE) && page->n)
		page->rows[page->n / 2].malformed = true;
}

/* The document ---------------------------------------------------------------------------- */

/* A page is 1,000 rows, and a fast server of many clients: no formatting by printf here. */
static char *put(char *at, const char *s)
{
	return stpcpy(at, s);
}

static char *put_number(char *at, uint64_t n)
{
	char digits[24];
	size_t i = sizeof(digits);

	digits[--i] = 0;
	do
		digits[--i] = (char)('0' + n % 10);
	while (n /= 10);
	return put(at, digits + i);
}

/* A key as the answer shows it. */
static int put_key(struct buf *out, const char *key, size_t len, bool url)
{
	static const char hex[] = "0123456789ABCDEF";
	int r = buf_reserve(out, 6 * len + 1);
	char *at;

	if (r)
		return r;
	at = out->data + out->len;
	for (size_t i = 0; i < len; i++) {
		unsigned char c = (unsigned char)key[i];
		bool plain = (c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'z');

		if (plain ||
			(url ? strchr("-_.~/", c) != NULL : c >= ' ' && !strchr("<>&\"'", c))) {
			*at++ = (char)c;
		} else if (url) {
			*at++ = '%';
			*at++ = hex[c >> 4];
			*at++ = hex[c & 15];
		} else {
			at = put(at, "&#");
			at = put_number(at, c);
			at = put(at, ";");
		}
	}
	*at = 0;
	out->len = (size_t)(at - out->data);
	return 0;
}

static int put_element(struct buf *out, const char *name, const char *key, size_t len, bool url)
{
	int r = buf_puts(out, "<");

	if (r == 0)
		r = buf_puts(out, name);
	if (r == 0)
		r = buf_puts(out, ">");
	if (r == 0)
		r = put_key(out, key, len, url);
	if (r == 0)
		r = buf_puts(out, "</");
	if (r == 0)
		r = buf_puts(out, name);
	return r ? r : buf_puts(out, ">");
}

static char *put_time(char *at, int64_t seconds)
{
	static int64_t last = -1; /* mostly the same */
	static char text[32];
	struct tm tm;
	time_t t = (time_t)seconds;

	if (seconds != last) {
		(void)gmtime_r(&t, &tm);
		(void)strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%S.000Z", &tm);
		last = seconds;
	}
	return put(at, text);
}

static int put_values(
	struct buf *out, const struct s3d_entry *entry, bool no_number, const char *end)
{
	char etag[STORE_ETAG];
	const char *quote; /* before it W/, where it is weak */
	char *at;
	int r = buf_reserve(out, 512);

	if (r)
		return r;
	s3d_entry_etag(entry, etag);
	etag[strlen(etag) - 1] = 0;
	quote = strchr(etag, '"');
	at = put(out->data + out->len, "<LastModified>");
	at = put_time(at, entry->seconds);
	at = put(at,
		quote == etag ? "</LastModified><ETag>&quot;" : "</LastModified><ETag>W/&quot;");
	at = put(at, quote + 1);
	at = put(at, "&quot;</ETag><Size>");
	at = put(at, no_number ? "many" : "");
	at = put_number(at, entry->size);
	at = put(at, "</Size><StorageClass>");
	at = put(at, entry->archived ? "GLACIER" : "STANDARD");
	at = put(at, "</StorageClass>");
	if (entry->restored)
		at = put(at, "<RestoreStatus><IsRestoreInProgress>false</IsRestoreInProgress>"
			     "<RestoreExpiryDate>2099-01-01T00:00:00.000Z</RestoreExpiryDate>"
			     "</RestoreStatus>");
	at = put(at, end);
	out->len = (size_t)(at - out->data);
	return 0;
}

/* The newest first, as they are listed. */
static int put_versions(struct buf *out, const struct s3d_entry *newest, bool url)
{
	struct s3d_entry entry = *newest;
	int r = 0;

	for (uint64_t older = 0; older <= newest->version && r == 0; older++) {
		r = buf_puts(out, "<Version>");
		if (r == 0)
			r = put_element(out, "Key", entry.key, strlen(entry.key), url);
		if (r == 0)
			r = buf_printf(out,
				"<VersionId>ver-%llu</VersionId><IsLatest>%s</IsLatest>",
				(unsigned long long)entry.version, older ? "false" : "true");
		if (r == 0)
			r = put_values(out, &entry, false, "</Version>");
		entry.version--;
		entry.seconds--;
	}
	return r;
}

static int put_row(struct buf *out, const struct list_row *row, const struct list_query *q, int xml)
{
	bool url = q->url;
	struct s3d_entry entry = *row->entry;
	int r;

	if (row->common) {
		r = buf_puts(out, "<CommonPrefixes>");
		if (r == 0)
			r = put_element(out, "Prefix", entry.key, row->common, url);
		return r ? r : buf_puts(out, "</CommonPrefixes>");
	}
	if (row->other) {
		entry.size++;
		entry.version++;
		entry.seconds--;
	}
	if (q->versions)
		return put_versions(out, &entry, url);
	r = buf_puts(out, "<Contents>");
	if (r == 0 && row->malformed && xml == S3D_XML_ESCAPE)
		r = buf_puts(out, "<Key>%zz%4</Key>");
	else if (r == 0)
		r = put_element(out, "Key", entry.key, strlen(entry.key), url);
	return r ? r
		 : put_values(out, &entry, row->malformed && xml == S3D_XML_SIZE, "</Contents>");
}

static const char *root_of(const struct list_query *q)
{
	return q->versions ? "ListVersionsResult" : "ListBucketResult";
}

static int put_head(struct buf *out, const struct s3d_store *s, const struct list_query *q, int xml)
{
	int r = buf_printf(out, "<?xml version=\"1.0\" encoding=\"%s\"?>",
		xml == S3D_XML_CHARSET ? "EBCDIC-CP-XX" : "UTF-8");

	if (r == 0 && xml == S3D_XML_DOCTYPE)
		r = buf_puts(out, "<!DOCTYPE lol [<!ENTITY a \"lol\"><!ENTITY b \"&a;&a;&a;&a;\">"
				  "<!ENTITY c \"&b;&b;&b;&b;\">]>");
	if (r == 0)
		r = buf_printf(
			out, "<%s xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">", root_of(q));
	if (r == 0)
		r = put_element(out, "Name", s->bucket, strlen(s->bucket), false);
	if (r == 0)
		r = put_element(out, "Prefix", q->prefix, strlen(q->prefix), q->url);
	if (r == 0 && xml == S3D_XML_ENTITY)
		r = buf_puts(out, "<Owner>&nobody;</Owner>");
	if (r == 0 && xml == S3D_XML_BYTE)
		r = buf_puts(out, "<Owner>\xff\xfe</Owner>");
	if (r == 0 && q->url)
		r = buf_puts(out, "<EncodingType>url</EncodingType>");
	return r;
}

static int put_tail(
	struct buf *out, const struct list_query *q, const struct list_page *page, int xml)
{
	char token[2 * LIST_KEY_TEXT + 1];
	int r = 0;

	if (page->truncated && q->versions) {
		r = put_element(out, "NextKeyMarker", page->next, strlen(page->next), q->url);
		if (r == 0)
			r = buf_puts(out, "<NextVersionIdMarker>ver-0</NextVersionIdMarker>");
	} else if (page->truncated && q->markers && xml != S3D_XML_TOKEN) {
		r = put_element(out, "NextMarker", page->next, strlen(page->next), q->url);
	} else if (page->truncated && xml != S3D_XML_TOKEN) {
		hash_hex(page->next, strlen(page->next), token);
		r = buf_printf(out, "<NextContinuationToken>%s</NextContinuationToken>", token);
	}
	if (r == 0)
		r = buf_printf(out, "<KeyCount>%zu</KeyCount><MaxKeys>%llu</MaxKeys>", page->n,
			(unsigned long long)q->max_keys);
	if (r == 0 && xml != S3D_XML_TRUNCATED)
		r = buf_printf(
			out, "<IsTruncated>%s</IsTruncated>", page->truncated ? "true" : "false");
	while (r == 0 && xml == S3D_XML_HUGE && out->len < LIST_HUGE)
		r = buf_printf(out, "%4096s", "\n");
	if (r == 0)
		r = buf_printf(out, "</%s>", root_of(q));
	if (r == 0 && xml == S3D_XML_CUT)
		out->len = out->len * 2 / 3;
	return r;
}

void s3d_list_versioning(const struct s3d_store *s, struct s3d_conn *c)
{
	_cleanup_(buf_release) struct buf out = BUF_INIT(LIST_KEY_TEXT);
	int r = buf_printf(&out,
		"<VersioningConfiguration xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">%s"
		"</VersioningConfiguration>",
		s->versioned ? "<Status>Enabled</Status>" : "");

	if (r)
		s3d_conn_close(c);
	else
		s3d_reply_whole(c, 200, "application/xml", "", &out);
}

void s3d_list_serve(const struct s3d_store *s, struct s3d_conn *c)
{
	static struct list_page page; /* large, and one at a time */
	static struct list_query q;
	_cleanup_(buf_release) struct buf out = BUF_INIT(LIST_BYTES);
	const struct s3d_page_plan *plan = &c->plan.page;
	int r;

	if (!list_query_parse(&q, c->req.query)) {
		s3d_reply_error(c, 400, "InvalidArgument");
		return;
	}
	page.n = 0;
	page.keys = 0;
	page.truncated = false;
	page.next[0] = 0;
	if (plan->loop == S3D_LOOP_FIRST)
		q.after[0] = 0;
	page_fill(s, &q, &page);
	page_spoil(&page, &q, plan);
	r = put_head(&out, s, &q, plan->xml);
	for (size_t i = 0; i < page.n && r == 0; i++)
		r = put_row(&out, &page.rows[i], &q, plan->xml);
	if (r == 0)
		r = put_tail(&out, &q, &page, plan->xml);
	if (r)
		s3d_conn_close(c);
	else
		s3d_reply_whole(c, 200, "application/xml", "", &out);
}
