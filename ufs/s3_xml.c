/* XML answers of S3, by expat. See s3_xml.h. */
#include "ufs/s3_tag.h"
#include "ufs/s3_xml.h"
#include "base/clock.h"
#include "base/hash.h"

#include <expat.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define S3_XML_DEPTH 8
#define S3_XML_TEXT \
	(8u * 1024) /* of one element: a key of 1,024 bytes, every byte as %XX, and more */

enum element {
	EL_OTHER,
	EL_RESULT,
	EL_CONTENTS, /* an object, or a version of one */
	EL_PREFIXES,
	EL_RESTORE,
	EL_KEY, /* from here on text counts */
	EL_SIZE,
	EL_ETAG,
	EL_TIME,
	EL_PREFIX,
	EL_TRUNCATED,
	EL_TOKEN,
	EL_ENCODING,
	EL_LATEST,
	EL_VERSION,
	EL_CLASS,
	EL_RESTORED,
	EL_NEXT_MARKER,
	EL_NEXT_KEY,
	EL_NEXT_VERSION,
};

struct list_parser {
	XML_Parser xml;
	struct ufs_page *page;
	struct err *e;
	const char *prefix;
	size_t prefix_len;
	const char *upto; /* relative; NULL: to the end */
	size_t upto_len;
	bool enough;      /* a key beyond `upto` was there */
	size_t enough_at; /* in the document */
	int status;
	unsigned int depth;
	enum element stack[S3_XML_DEPTH];
	struct buf text;
	bool encoded; /* EncodingType url was seen */
	bool truncated_seen;
	/* The object being read: raw texts. */
	struct buf key;
	struct buf etag;
	uint64_t size;
	int64_t seconds;
	bool has_size;
	bool has_time;
	struct buf version;
	bool superseded; /* a newer version is there, or it was removed */
	bool archived;
	bool restored;
	/* Of a page of versions, where the next one begins. */
	struct buf next_key;
	struct buf next_version;
};

static void fail(struct list_parser *p, int code, const char *why)
{
	if (p->status == 0)
		p->status = err_set(p->e, code, "LIST answer: %s", why);
	(void)XML_StopParser(p->xml, XML_FALSE); /* fails only when stopped already */
}

static enum element element_of(const char *name, enum element parent, unsigned int depth)
{
	static const struct {
		const char *name;
		enum element parent;
		enum element element;
	} table[] = {
		{ "Contents", EL_RESULT, EL_CONTENTS },
		{ "CommonPrefixes", EL_RESULT, EL_PREFIXES },
		{ "IsTruncated", EL_RESULT, EL_TRUNCATED },
		{ "EncodingType", EL_RESULT, EL_ENCODING },
		{ "NextContinuationToken", EL_RESULT, EL_TOKEN },
		{ "Key", EL_CONTENTS, EL_KEY },
		{ "Size", EL_CONTENTS, EL_SIZE },
		{ "ETag", EL_CONTENTS, EL_ETAG },
		{ "LastModified", EL_CONTENTS, EL_TIME },
		{ "Prefix", EL_PREFIXES, EL_PREFIX },
		{ "Version", EL_RESULT, EL_CONTENTS },
		{ "IsLatest", EL_CONTENTS, EL_LATEST },
		{ "VersionId", EL_CONTENTS, EL_VERSION },
		{ "StorageClass", EL_CONTENTS, EL_CLASS },
		{ "RestoreStatus", EL_CONTENTS, EL_RESTORE },
		{ "RestoreExpiryDate", EL_RESTORE, EL_RESTORED },
		{ "NextMarker", EL_RESULT, EL_NEXT_MARKER },
		{ "NextKeyMarker", EL_RESULT, EL_NEXT_KEY },
		{ "NextVersionIdMarker", EL_RESULT, EL_NEXT_VERSION },
	};

	if (depth == 0)
		return strcmp(name, "ListBucketResult") == 0 ||
				       strcmp(name, "ListVersionsResult") == 0
			       ? EL_RESULT
			       : EL_OTHER;
	for (size_t i = 0; i < ARRAY_SIZE(table); i++)
		if (table[i].parent == parent && strcmp(table[i].name, name) == 0)
			return table[i].element;
	return EL_OTHER;
}

static void XMLCALL on_start(void *arg, const XML_Char *name, const XML_Char **attributes)
{
	struct list_parser *p = arg;
	enum element parent = p->depth ? p->stack[p->depth - 1] : EL_OTHER;
	enum element element = element_of(name, parent, p->depth);

	(void)attributes;
	if (p->depth == S3_XML_DEPTH) {
		fail(p, -EPROTO, "nested too deeply");
		return;
	}
	if (p->depth == 0 && element != EL_RESULT) {
		fail(p, -EPROTO, "not a ListBucketResult");
		return;
	}
	p->stack[p->depth++] = element;
	buf_clear(&p->text);
	if (element == EL_CONTENTS || element == EL_PREFIXES) {
		buf_clear(&p->key);
		buf_clear(&p->etag);
		buf_clear(&p->version);
		p->has_size = false;
		p->has_time = false;
		p->superseded = false;
		p->archived = false;
		p->restored = false;
	}
}

static void XMLCALL on_text(void *arg, const XML_Char *s, int len)
{
	struct list_parser *p = arg;

	if (p->depth && p->stack[p->depth - 1] >= EL_KEY &&
		buf_append(&p->text, s, (size_t)len) < 0)
		fail(p, -EPROTO, "an element is too long");
}

/* encoding-type=url as servers do it: %XX, and '+' for a blank. In place; -EPROTO on a broken
 * escape. */
static int url_decode(struct buf *b)
{
	size_t out = 0;

	for (size_t i = 0; i < b->len; i++) {
		char c = b->data[i];

		if (c == '+') {
			c = ' ';
		} else if (c == '%') {
			char digits[3] = { 0 };

			if (i + 2 >= b->len)
				return -EPROTO;
			memcpy(digits, b->data + i + 1, 2);
			if (hash_unhex(digits, &c, 1) < 0)
				return -EPROTO;
			i += 2;
		}
		b->data[out++] = c;
	}
	b->len = out;
	if (b->data)
		b->data[out] = '\0';
	return 0;
}

/* Makes room for one more in an array that doubles. */
static struct ufs_object *next_row(struct ufs_object **rows, uint32_t n, uint32_t *cap)
{
	if (n == *cap) {
		uint32_t more = *cap ? *cap * 2 : 1024;
		struct ufs_object *grown = realloc(*rows, more * sizeof(**rows));

		if (!grown)
			return NULL;
		*rows = grown;
		*cap = more;
	}
	return &(*rows)[n];
}

/* Keeps the relative key's bytes; the offset stands in for the pointer until the document ends. */
static int keep(struct list_parser *p, const char *s, size_t len, const char **ret_at)
{
	size_t at = p->page->bytes.len;
	int r = buf_append(&p->page->bytes, s, len);

	if (r == 0)
		*ret_at = (const char *)(uintptr_t)at;
	return r;
}

/* With the version before it, where there is one (s3_tag.h). */
static int keep_tag_text(
	struct list_parser *p, const char *etag, size_t len, struct ufs_object *object)
{
	bool versioned = s3_tag_takes(buf_str(&p->version), p->version.len);
	bool escaped = !versioned && len > 2 && memcmp(etag, "v:", 2) == 0;
	char text[LIMIT_TAG_BYTES + 8];
	int n;

	if (versioned || escaped) {
		n = snprintf(text, sizeof(text), "v:%s:%.*s", versioned ? buf_str(&p->version) : "",
			(int)len, etag);
		if (n > 0 && (unsigned int)n <= LIMIT_TAG_BYTES) {
			etag = text;
			len = (size_t)n;
		} else if (escaped) {
			return -EPROTO;
		} /* an id too long to be kept: read without it */
	}
	object->tag_len = (uint32_t)len;
	return keep(p, etag, len, &object->tag);
}

/* "etag" without quotes, W/"etag" (one too long for that like a strong one), or "lm:SECONDS". */
static int keep_tag(struct list_parser *p, struct ufs_object *object)
{
	const char *s = buf_str(&p->etag);
	size_t len = p->etag.len;
	bool weak = len >= 2 && s[0] == 'W' && s[1] == '/';
	char text[LIMIT_TAG_BYTES + 8];

	if (weak) {
		s += 2;
		len -= 2;
	}
	if (len >= 2 && s[0] == '"' && s[len - 1] == '"') {
		s++;
		len -= 2;
	}
	if (len > LIMIT_TAG_BYTES)
		return -EPROTO;
	if (len == 0) {
		len = (size_t)snprintf(text, sizeof(text), "lm:%lld", (long long)p->seconds);
		s = text;
	} else if (weak && len + 4 <= LIMIT_TAG_BYTES) {
		len = (size_t)snprintf(text, sizeof(text), "W/\"%.*s\"", (int)len, s);
		s = text;
	}
	return keep_tag_text(p, s, len, object);
}

/* Adds a row with its key, checked: within the prefix and beyond the row before it. */
static int add_key(struct list_parser *p, struct ufs_object **rows, uint32_t n, uint32_t *cap,
	struct ufs_object **ret_row)
{
	struct ufs_object *row;
	size_t len;
	int r = p->encoded ? url_decode(&p->key) : 0;

	if (r < 0)
		return r;
	if (p->key.len > LIMIT_KEY_BYTES)
		return -EPROTO;
	if (p->key.len < p->prefix_len || memcmp(buf_str(&p->key), p->prefix, p->prefix_len) != 0) {
		fail(p, -EPROTO, "a key outside the requested prefix");
		return -EPROTO;
	}
	row = next_row(rows, n, cap);
	if (!row)
		return -ENOMEM;
	*row = (struct ufs_object){ 0 };
	len = p->key.len - p->prefix_len;
	row->key_len = (uint32_t)len;
	*ret_row = row;
	return keep(p, buf_str(&p->key) + p->prefix_len, len, &row->key);
}

static int bytes_order(const char *a, size_t a_len, const char *b, size_t b_len)
{
	int c = memcmp(a, b, min(a_len, b_len));

	if (c == 0)
		return a_len < b_len ? -1 : a_len > b_len;
	return c;
}

/* The rest of the document is not needed once a key beyond `upto` is there. */
static void stop_beyond(struct list_parser *p)
{
	if (!p->upto || bytes_order(buf_str(&p->key) + p->prefix_len, p->key.len - p->prefix_len,
				p->upto, p->upto_len) <= 0)
		return;
	p->enough = true;
	p->enough_at = (size_t)max(XML_GetCurrentByteIndex(p->xml), (XML_Index)0);
	p->page->truncated = true;
	p->truncated_seen = true;
	(void)XML_StopParser(p->xml, XML_FALSE); /* fails only when stopped already */
}

static void end_contents(struct list_parser *p)
{
	struct ufs_page *page = p->page;
	struct ufs_object *row = NULL;
	int r;

	if (!p->key.len || !p->has_size || (!p->etag.len && !p->has_time)) {
		fail(p, -EPROTO, "an object without Key, Size or ETag");
		return;
	}
	if (p->superseded)
		return;
	r = add_key(p, &page->objects, page->n_objects, &page->objects_cap, &row);
	if (r == 0) {
		row->size = p->size;
		row->mtime_ns = p->has_time ? p->seconds * (int64_t)CLOCK_SECOND : 0;
		row->archived = p->archived && !p->restored;
		r = keep_tag(p, row);
	}
	if (r < 0)
		fail(p, r == -ENOBUFS ? -EPROTO : r, "a key or an etag that cannot be");
	else
		page->n_objects++;
	if (r == 0)
		stop_beyond(p);
}

static void end_prefixes(struct list_parser *p)
{
	struct ufs_page *page = p->page;
	struct ufs_object *row = NULL;
	int r;

	if (!p->key.len)
		return;
	r = add_key(p, &page->prefixes, page->n_prefixes, &page->prefixes_cap, &row);
	if (r < 0)
		fail(p, r == -ENOBUFS ? -EPROTO : r, "a common prefix that cannot be");
	else
		page->n_prefixes++;
}

static void take_size(struct list_parser *p)
{
	const char *s = buf_str(&p->text);
	size_t n = strspn(s, "0123456789");

	if (n == 0 || n > 18 || s[n] != '\0') {
		fail(p, -EPROTO, "a Size that is not a number");
		return;
	}
	p->size = strtoull(s, NULL, 10);
	p->has_size = true;
}

static void take_time(struct list_parser *p)
{
	if (clock_parse(buf_str(&p->text), &p->seconds) < 0 || p->seconds < 0 ||
		p->seconds > INT64_MAX / (int64_t)CLOCK_SECOND)
		fail(p, -EPROTO, "a LastModified that is not a time");
	else
		p->has_time = true;
}

/* Taken for the end of a listing it would lose what follows: nothing is guessed. */
static void take_truncated(struct list_parser *p)
{
	const char *s = buf_str(&p->text);

	p->page->truncated = strcasecmp(s, "true") == 0 || strcmp(s, "1") == 0;
	if (!p->page->truncated && strcasecmp(s, "false") != 0 && strcmp(s, "0") != 0)
		fail(p, -EPROTO, "an IsTruncated that is neither true nor false");
	p->truncated_seen = true;
}

/* Classes whose objects cannot be read before they were restored: Amazon's, and OBS's. */
static bool is_archive(const char *class)
{
	static const char *const names[] = { "GLACIER", "DEEP_ARCHIVE", "COLD", "ARCHIVE" };

	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		if (strcasecmp(class, names[i]) == 0)
			return true;
	return false;
}

static void move_text(struct list_parser *p, struct buf *to)
{
	struct buf empty = *to;

	*to = p->text;
	p->text = empty;
	buf_clear(&p->text);
}

/* "VERSION\nKEY": an id has no line's end in it. */
static void put_versions_token(struct list_parser *p)
{
	struct buf *token = &p->page->token;
	int r;

	if (!p->next_key.len)
		return;
	buf_clear(token);
	r = p->encoded ? url_decode(&p->next_key) : 0;
	if (r == 0)
		r = buf_printf(token, "%s\n", buf_str(&p->next_version));
	if (r == 0)
		r = buf_append(token, p->next_key.data, p->next_key.len);
	if (r < 0)
		fail(p, -EPROTO, "a NextKeyMarker that cannot be");
}

static void XMLCALL on_end(void *arg, const XML_Char *name)
{
	struct list_parser *p = arg;
	enum element element;

	(void)name;
	if (p->status < 0 || p->enough)
		return; /* expat still ends an empty element in whose start it was stopped */
	element = p->stack[--p->depth];
	switch (element) {
	case EL_KEY:
	case EL_PREFIX:
		move_text(p, &p->key);
		break;
	case EL_ETAG:
		move_text(p, &p->etag);
		break;
	case EL_SIZE:
		take_size(p);
		break;
	case EL_TIME:
		take_time(p);
		break;
	case EL_TRUNCATED:
		take_truncated(p);
		break;
	case EL_TOKEN:
		buf_clear(&p->page->token);
		if (buf_append(&p->page->token, p->text.data, p->text.len) < 0)
			fail(p, -EPROTO, "a NextContinuationToken that is too long");
		break;
	case EL_NEXT_MARKER:
		if ((p->encoded && url_decode(&p->text) < 0) ||
			buf_append(&p->page->token, p->text.data, p->text.len) < 0)
			fail(p, -EPROTO, "a NextMarker that cannot be");
		break;
	case EL_NEXT_KEY:
		move_text(p, &p->next_key);
		break;
	case EL_NEXT_VERSION:
		move_text(p, &p->next_version);
		break;
	case EL_LATEST:
		p->superseded = strcmp(buf_str(&p->text), "false") == 0;
		break;
	case EL_VERSION:
		move_text(p, &p->version);
		break;
	case EL_CLASS:
		p->archived = is_archive(buf_str(&p->text));
		break;
	case EL_RESTORED:
		p->restored = p->text.len > 0;
		break;
	case EL_ENCODING:
		p->encoded = strcmp(buf_str(&p->text), "url") == 0;
		break;
	case EL_CONTENTS:
		end_contents(p);
		break;
	case EL_PREFIXES:
		end_prefixes(p);
		break;
	case EL_RESULT:
		put_versions_token(p);
		break;
	case EL_RESTORE:
	case EL_OTHER:
		break;
	}
	buf_clear(&p->text);
}

/* S3 never sends a document type; one that does may hold entities that grow without end. */
static void XMLCALL on_doctype(void *arg, const XML_Char *name, const XML_Char *system_id,
	const XML_Char *public_id, int internal)
{
	(void)name;
	(void)system_id;
	(void)public_id;
	(void)internal;
	fail(arg, -EPROTO, "holds a document type");
}

static int key_order(const struct ufs_object *a, const struct ufs_object *b)
{
	return bytes_order(a->key, a->key_len, b->key, b->key_len);
}

/* Offsets to pointers, now that the bytes stay. Of equal neighbours the newest stays. Returns
 * whether the rows are in order. */
static bool finish_rows(const struct buf *bytes, struct ufs_object *rows, uint32_t *n)
{
	const char *base = buf_str(bytes);
	bool ordered = true;
	uint32_t kept = 0;

	for (uint32_t i = 0; i < *n; i++) {
		struct ufs_object row = rows[i];
		int order;

		row.key = base + (uintptr_t)row.key;
		row.tag = base + (uintptr_t)row.tag;
		order = kept ? key_order(&rows[kept - 1], &row) : -1;
		ordered = ordered && order <= 0;
		if (order != 0)
			rows[kept++] = row;
		else if (row.mtime_ns >= rows[kept - 1].mtime_ns)
			rows[kept - 1] = row;
	}
	*n = kept;
	return ordered;
}

static int parse_list(struct list_parser *p, const char *xml, size_t len)
{
	p->xml = XML_ParserCreate(NULL);
	if (!p->xml)
		return err_set(p->e, -ENOMEM, "LIST answer: no memory");
	XML_SetUserData(p->xml, p);
	XML_SetElementHandler(p->xml, on_start, on_end);
	XML_SetCharacterDataHandler(p->xml, on_text);
	XML_SetStartDoctypeDeclHandler(p->xml, on_doctype);
	if (XML_Parse(p->xml, xml, (int)len, XML_TRUE) != XML_STATUS_OK && p->status == 0 &&
		!p->enough)
		p->status = err_set(p->e, -EPROTO, "LIST answer: %s in line %lu",
			XML_ErrorString(XML_GetErrorCode(p->xml)),
			(unsigned long)XML_GetCurrentLineNumber(p->xml));
	XML_ParserFree(p->xml);
	return p->status;
}

/* The next byte of a key as it stands in the document, decoded; -1 at its end, -2 when it takes a
 * parser to tell. */
static int raw_key_byte(const struct list_parser *p, const char **key, const char *end)
{
	const char *at = *key;
	char digits[3] = { 0 };
	char byte;

	if (at == end || *at == '<')
		return -1;
	*key = at + 1;
	if (*at == '&')
		return -2;
	if (p->encoded && *at == '+')
		return ' ';
	if (!p->encoded || *at != '%')
		return (unsigned char)*at;
	if (end - at < 3)
		return -2;
	memcpy(digits, at + 1, 2);
	*key = at + 3;
	return hash_unhex(digits, &byte, 1) < 0 ? -2 : (unsigned char)byte;
}

/* Whether such a key is beyond `upto`; false also when that is not sure. */
static bool raw_key_beyond(const struct list_parser *p, const char *key, const char *end)
{
	size_t n = p->prefix_len + p->upto_len;

	for (size_t i = 0; i < n; i++) {
		char wanted = i < p->prefix_len ? p->prefix[i] : p->upto[i - p->prefix_len];
		int byte = raw_key_byte(p, &key, end);

		if (byte != (unsigned char)wanted)
			return byte > (unsigned char)wanted;
	}
	return raw_key_byte(p, &key, end) != -1;
}

/* Whether all keys behind the one at which the parser stopped are beyond `upto` too, as they are
 * when the page is in order. Cheap: the bytes are searched, not parsed. */
static bool rest_is_beyond(const struct list_parser *p, const char *xml, size_t len)
{
	const char *end = xml + len;
	const char *at = xml + min(p->enough_at, len);

	while ((at = memmem(at, (size_t)(end - at), "<Key>", 5)) != NULL) {
		at += 5;
		if (!raw_key_beyond(p, at, end))
			return false;
	}
	return true;
}

/* EncodingType may stand behind the keys (not with Amazon); it must be known before the first of
 * them. */
static bool encoding_comes_late(const char *xml, size_t len)
{
	const char *encoding = memmem(xml, len, "<EncodingType>url<", 18);
	const char *contents = memmem(xml, len, "<Contents>", 10);
	const char *version = memmem(xml, len, "<Version>", 9);
	const char *prefixes = memmem(xml, len, "<CommonPrefixes>", 16);

	return encoding && ((contents && contents < encoding) || (version && version < encoding) ||
				   (prefixes && prefixes < encoding));
}

static void parser_release(struct list_parser *p)
{
	buf_release(&p->text);
	buf_release(&p->key);
	buf_release(&p->etag);
	buf_release(&p->version);
	buf_release(&p->next_key);
	buf_release(&p->next_version);
}

int s3_xml_list(
	const char *xml, size_t len, const char *prefix, struct ufs_page *page, struct err *e)
{
	return s3_xml_list_upto(xml, len, prefix, NULL, 0, page, e);
}

int s3_xml_list_upto(const char *xml, size_t len, const char *prefix, const char *upto,
	size_t upto_len, struct ufs_page *page, struct err *e)
{
	struct list_parser p = {
		.page = page,
		.e = e,
		.prefix = prefix,
		.prefix_len = strlen(prefix),
		.upto = upto,
		.upto_len = upto_len,
		.text = BUF_INIT(S3_XML_TEXT),
		.key = BUF_INIT(S3_XML_TEXT),
		.etag = BUF_INIT(S3_XML_TEXT),
		.version = BUF_INIT(S3_XML_TEXT),
		.next_key = BUF_INIT(S3_XML_TEXT),
		.next_version = BUF_INIT(S3_XML_TEXT),
	};
	int r;

	ufs_page_clear(page);
	if (len > LIMIT_XML_BYTES)
		return err_set(e, -EPROTO, "LIST answer: longer than %u bytes", LIMIT_XML_BYTES);
	p.encoded = encoding_comes_late(xml, len);
	r = parse_list(&p, xml, len);
	if (r == 0 && p.enough && !rest_is_beyond(&p, xml, len)) {
		parser_release(&p);
		return s3_xml_list_upto(xml, len, prefix, NULL, 0, page, e);
	}
	if (r == 0 && !p.truncated_seen)
		r = err_set(e, -EPROTO, "LIST answer: IsTruncated not found");
	if (r == 0) {
		page->disorder = !finish_rows(&page->bytes, page->objects, &page->n_objects);
		if (!finish_rows(&page->bytes, page->prefixes, &page->n_prefixes))
			page->disorder = true;
	}
	parser_release(&p);
	if (r < 0)
		ufs_page_clear(page);
	return r;
}
