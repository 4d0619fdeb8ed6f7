/*
 * Who may ask: AWS Signature Version 4 in the Authorization header, checked for itself, so that it
 * can witness against the client's own signing.
 * https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-header-based-auth.html
 *
 * Without keys nothing but the time of a signature is looked at. Answers are those of Amazon:
 *
 *	no signature			403 AccessDenied, unless anonymous requests are allowed
 *	unknown key, or its token missing	403 InvalidAccessKeyId
 *	another token			400 InvalidToken
 *	15 minutes and more off		403 RequestTimeTooSkewed
 *	signed for another region	400 AuthorizationHeaderMalformed with the region
 *	anything else			403 SignatureDoesNotMatch
 *
 * So is OBS's own signature ("Authorization: OBS ID:SIGNATURE"), with OBS's names of headers.
 * https://support.huaweicloud.com/intl/en-us/api-obs/obs_04_0010.html
 */
#include "tests/tools/s3d.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include "base/cleanup.h"
#include "base/hash.h"

#define SKEW_MAX    900 /* seconds */
#define AUTH_PARAMS 32u
#define AUTH_TEXT   (32u * 1024)
#define AUTH_SCOPE  160

struct signature {
	char id[128];
	char day[16];
	char region[64];
	char service[16];
	char names[1024]; /* of signed headers, "a;b;c" */
	char hex[80];
	char time[32];
};

int s3d_auth_add(struct s3d_auth *a, const char *spec, struct err *e)
{
	struct s3d_key key = { .id = "" };
	uint32_t i = 0;

	if (sscanf(spec, "%127[^:]:%127[^:]:%1023s", key.id, key.secret, key.token) < 2)
		return err_set(e, -EINVAL, "a key is ID:SECRET[:TOKEN]");
	while (i < a->n_keys && strcmp(a->keys[i].id, key.id) != 0)
		i++;
	if (i == S3D_KEYS)
		return err_set(e, -ENOSPC, "%u keys are the maximum", S3D_KEYS);
	a->keys[i] = key;
	a->n_keys = max(a->n_keys, i + 1);
	return 0;
}

bool s3d_auth_remove(struct s3d_auth *a, const char *id)
{
	for (uint32_t i = 0; i < a->n_keys; i++) {
		if (strcmp(a->keys[i].id, id) != 0)
			continue;
		a->keys[i] = a->keys[--a->n_keys];
		return true;
	}
	return false;
}

time_t s3d_auth_time(const struct s3d_auth *a)
{
	return time(NULL) + (time_t)a->clock_offset;
}

/* The canonical request ------------------------------------------------------------------- */

static int put_encoded(struct buf *out, const char *s, bool keep_slash)
{
	int r = 0;

	for (; *s && r == 0; s++) {
		unsigned char c = (unsigned char)*s;
		bool plain = (c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'z') ||
			     strchr("-_.~", c) || (c == '/' && keep_slash);

		r = plain ? buf_append(out, s, 1) : buf_printf(out, "%%%02X", c);
	}
	return r;
}

static int text_compare(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Parameters decoded, encoded again and sorted. */
static int put_query(struct buf *out, const char *query)
{
	char *params[AUTH_PARAMS];
	size_t n = 0;
	int r = 0;

	while (*query && r == 0) {
		static char text[LIMIT_URL_BYTES];
		_cleanup_(buf_release) struct buf param = BUF_INIT(AUTH_TEXT);
		size_t len = strcspn(query, "&");
		size_t name_len = min(strcspn(query, "="), len);

		if (n == AUTH_PARAMS || !s3d_url_decode(query, name_len, false, text, sizeof(text)))
			r = -EINVAL;
		if (r == 0)
			r = put_encoded(&param, text, false);
		if (r == 0)
			r = buf_puts(&param, "=");
		name_len = min(name_len + 1, len);
		if (r == 0 && !s3d_url_decode(
				      query + name_len, len - name_len, false, text, sizeof(text)))
			r = -EINVAL;
		if (r == 0)
			r = put_encoded(&param, text, false);
		if (r == 0 && (params[n++] = strdup(buf_str(&param))) == NULL)
			r = -ENOMEM;
		query += len + (query[len] == '&');
	}
	qsort(params, n, sizeof(*params), text_compare);
	for (size_t i = 0; i < n; i++) {
		if (r == 0 && params[i])
			r = buf_printf(out, "%s%s", i ? "&" : "", params[i]);
		free(params[i]);
	}
	return r;
}

/* "name:value\n" of each signed header, blanks in a row as one. */
static int put_headers(struct buf *out, const struct buf *head, const char *names)
{
	int r = 0;

	while (*names && r == 0) {
		char name[128] = "";
		static char value[LIMIT_URL_BYTES];
		size_t len = strcspn(names, ";");

		if (len >= sizeof(name))
			return -EINVAL;
		memcpy(name, names, len);
		if (!s3d_header_get(head, name, value, sizeof(value)))
			return -EINVAL;
		r = buf_printf(out, "%s:", name);
		for (const char *p = value; *p && r == 0; p++)
			if (*p != ' ' || p[1] != ' ')
				r = buf_append(out, p, 1);
		if (r == 0)
			r = buf_puts(out, "\n");
		names += len + (names[len] == ';');
	}
	return r;
}

static int put_request(struct buf *out, const struct s3d_request *q, const struct signature *s)
{
	static char path[LIMIT_URL_BYTES];
	char payload[80];
	int r;

	if (!s3d_url_decode(q->path, strlen(q->path), false, path, sizeof(path)) ||
		!s3d_header_get(&q->head, "x-amz-content-sha256", payload, sizeof(payload)))
		return -EINVAL;
	r = buf_printf(out, "%s\n", q->method);
	if (r == 0)
		r = put_encoded(out, path, true);
	if (r == 0)
		r = buf_puts(out, "\n");
	if (r == 0)
		r = put_query(out, q->query);
	if (r == 0)
		r = buf_puts(out, "\n");
	if (r == 0)
		r = put_headers(out, &q->head, s->names);
	return r ? r : buf_printf(out, "\n%s\n%s", s->names, payload);
}

/* Signatures ------------------------------------------------------------------------------ */

static bool signature_parse(const struct s3d_request *q, struct signature *s)
{
	char text[2048];

	*s = (struct signature){ .id = "" };
	return s3d_header_get(&q->head, "Authorization", text, sizeof(text)) &&
	       sscanf(text,
		       "AWS4-HMAC-SHA256 "
		       "Credential=%127[^/]/%15[^/]/%63[^/]/%15[^/]/aws4_request,%*[ ]"
		       "SignedHeaders=%1023[^,],%*[ ]Signature=%79[0-9a-f]",
		       s->id, s->day, s->region, s->service, s->names, s->hex) == 6 &&
	       s3d_header_get(&q->head, "x-amz-date", s->time, sizeof(s->time)) &&
	       strlen(s->time) == 16 && strncmp(s->time, s->day, 8) == 0;
}

static bool name_is_signed(const char *names, const char *name, size_t len)
{
	while (*names) {
		size_t n = strcspn(names, ";");

		if (n == len && strncasecmp(names, name, len) == 0)
			return true;
		names += n + (names[n] == ';');
	}
	return false;
}

/* Host and every x-amz-* that is sent must be signed. */
static bool signs_enough(const struct s3d_request *q, const struct signature *s)
{
	const char *line = strstr(q->head.data, "\r\n");

	while (line && line[2] && line[2] != '\r') {
		size_t len = strcspn(line + 2, ":");

		if (strncasecmp(line + 2, "x-amz-", 6) == 0 &&
			!name_is_signed(s->names, line + 2, len))
			return false;
		line = strstr(line + 2, "\r\n");
	}
	return name_is_signed(s->names, "host", 4);
}

static int signature_make(const struct s3d_key *key, const struct signature *s,
	const struct s3d_request *q, char hex[2 * SHA256_BYTES + 1])
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(AUTH_TEXT);
	char scope[AUTH_SCOPE];
	char secret[sizeof(key->secret) + 4];
	char request[2 * SHA256_BYTES + 1];
	uint8_t sum[SHA256_BYTES];
	const char *const parts[] = { s->day, s->region, s->service, "aws4_request" };
	int r = put_request(&text, q, s);

	if (r)
		return r;
	hash_sha256(text.data, text.len, sum);
	hash_hex(sum, sizeof(sum), request);
	(void)snprintf(scope, sizeof(scope), "%s/%s/%s/aws4_request", s->day, s->region,
		s->service); /* fits */
	buf_clear(&text);
	r = buf_printf(&text, "AWS4-HMAC-SHA256\n%s\n%s\n%s", s->time, scope, request);
	if (r)
		return r;
	(void)snprintf(secret, sizeof(secret), "AWS4%s", key->secret);
	hash_hmac_sha256(secret, strlen(secret), parts[0], strlen(parts[0]), sum);
	for (size_t i = 1; i < ARRAY_SIZE(parts); i++) {
		uint8_t next[SHA256_BYTES];

		hash_hmac_sha256(sum, sizeof(sum), parts[i], strlen(parts[i]), next);
		memcpy(sum, next, sizeof(sum));
	}
	{
		uint8_t last[SHA256_BYTES];

		hash_hmac_sha256(sum, sizeof(sum), text.data, text.len, last);
		hash_hex(last, sizeof(last), hex);
	}
	return 0;
}

/* The decision ---------------------------------------------------------------------------- */

static bool refuse(struct s3d_conn *c, int status, const char *code, const char *xml)
{
	s3d_reply_error_with(c, status, code, "", xml);
	return false;
}

static bool check_time(struct s3d_conn *c)
{
	time_t now = s3d_auth_time(&c->server->auth);
	char text[32], xml[256], server[32];
	struct tm tm = { 0 };
	int64_t off;

	if (!s3d_header_get(&c->req.head, "x-amz-date", text, sizeof(text)))
		return true;
	if (!strptime(text, "%Y%m%dT%H%M%SZ", &tm))
		return refuse(c, 403, "AccessDenied", "");
	off = (int64_t)(timegm(&tm) - now);
	if (off > -SKEW_MAX && off < SKEW_MAX)
		return true;
	(void)gmtime_r(&now, &tm);
	(void)strftime(server, sizeof(server), "%Y-%m-%dT%H:%M:%SZ", &tm);
	(void)snprintf(xml, sizeof(xml),
		"<RequestTime>%s</RequestTime><ServerTime>%s</ServerTime>"
		"<MaxAllowedSkewMilliseconds>%u</MaxAllowedSkewMilliseconds>",
		text, server, SKEW_MAX * 1000);
	return refuse(c, 403, "RequestTimeTooSkewed", xml);
}

static bool check_key(struct s3d_conn *c, const struct signature *s, const struct s3d_key *key)
{
	char token[1024] = "";
	char hex[2 * SHA256_BYTES + 1];
	char xml[384];

	(void)s3d_header_get(&c->req.head, "X-Amz-Security-Token", token, sizeof(token));
	if (*key->token && !*token)
		return refuse(c, 403, "InvalidAccessKeyId", "");
	if (strcmp(key->token, token) != 0)
		return refuse(c, 400, "InvalidToken", "");
	if (strcmp(s->service, "s3") == 0 && signs_enough(&c->req, s) &&
		signature_make(key, s, &c->req, hex) == 0 && strcmp(hex, s->hex) == 0)
		return true;
	(void)snprintf(xml, sizeof(xml),
		"<AWSAccessKeyId>%s</AWSAccessKeyId><SignatureProvided>%s</SignatureProvided>",
		s->id, s->hex);
	return refuse(c, 403, "SignatureDoesNotMatch", xml);
}

/* OBS's own signature ---------------------------------------------------------------------- */

/* "?a&b=c" of the parameters that are signed, in order. */
static int put_obs_query(struct buf *out, const char *query)
{
	static const char *const names[] = { "versionId", "versioning", "versions" };
	const char *before = "?";
	int r = 0;

	for (size_t i = 0; i < ARRAY_SIZE(names) && r == 0; i++) {
		char value[256];

		if (!s3d_query_get(query, names[i], value, sizeof(value)))
			continue;
		r = buf_printf(out, "%s%s%s%s", before, names[i], *value ? "=" : "", value);
		before = "&";
	}
	return r;
}

static int obs_make(const struct s3d_key *key, const struct s3d_request *q, const char *domain,
	char out[HASH_BASE64_SIZE(SHA1_BYTES)])
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(AUTH_TEXT);
	size_t host = strcspn(q->host, ":");
	bool path_style = host <= strlen(domain) + 1 ||
			  strncasecmp(q->host + host - strlen(domain), domain, strlen(domain)) != 0;
	char date[64] = "";
	char token[1024];
	uint8_t mac[SHA1_BYTES];
	int r;

	(void)s3d_header_get(&q->head, "Date", date, sizeof(date)); /* "" makes another one */
	r = buf_printf(&text, "%s\n\n\n%s\n", q->method, date);
	if (r == 0 && s3d_header_get(&q->head, "x-obs-security-token", token, sizeof(token)))
		r = buf_printf(&text, "x-obs-security-token:%s\n", token);
	if (r == 0 && !path_style)
		r = buf_printf(&text, "/%s", q->bucket);
	if (r == 0)
		r = buf_puts(&text, q->path);
	if (r == 0)
		r = put_obs_query(&text, q->query);
	if (r)
		return r;
	hash_hmac_sha1(key->secret, strlen(key->secret), text.data, text.len, mac);
	hash_base64(mac, sizeof(mac), out);
	return 0;
}

static bool check_obs(struct s3d_conn *c, const char *id, const char *signature)
{
	const struct s3d_auth *a = &c->server->auth;
	char made[HASH_BASE64_SIZE(SHA1_BYTES)];
	const struct s3d_key *key = NULL;
	char token[1024] = "";

	for (uint32_t i = 0; i < a->n_keys; i++)
		if (strcmp(a->keys[i].id, id) == 0)
			key = &a->keys[i];
	if (!key)
		return refuse(c, 403, "InvalidAccessKeyId", "");
	(void)s3d_header_get(&c->req.head, "x-obs-security-token", token, sizeof(token));
	if (strcmp(key->token, token) != 0)
		return refuse(c, 403, "InvalidAccessKeyId", "");
	if (obs_make(key, &c->req, c->server->domain, made) == 0 && strcmp(made, signature) == 0)
		return true;
	return refuse(c, 403, "SignatureDoesNotMatch", "");
}

bool s3d_auth_check(struct s3d_conn *c)
{
	const struct s3d_auth *a = &c->server->auth;
	struct signature s;
	char text[512];
	char id[128], signature[80], payer[32];
	char xml[256];

	if (!check_time(c))
		return false;
	if (*a->region && *c->req.region && strcmp(a->region, c->req.region) != 0) {
		(void)snprintf(xml, sizeof(xml), "<Region>%s</Region>", a->region);
		return refuse(c, 400, "AuthorizationHeaderMalformed", xml);
	}
	if (a->n_keys == 0)
		return true;
	if (!s3d_header_get(&c->req.head, "Authorization", text, sizeof(text)))
		return a->anonymous || refuse(c, 403, "AccessDenied", "");
	if (sscanf(text, "OBS %127[^:]:%79s", id, signature) == 2)
		return check_obs(c, id, signature);
	if (a->requester_pays &&
		(!s3d_header_get(&c->req.head, "x-amz-request-payer", payer, sizeof(payer)) ||
			strcmp(payer, "requester") != 0))
		return refuse(c, 403, "AccessDenied", "");
	if (!signature_parse(&c->req, &s))
		return refuse(c, 400, "AuthorizationHeaderMalformed", "");
	for (uint32_t i = 0; i < a->n_keys; i++)
		if (strcmp(a->keys[i].id, s.id) == 0)
			return check_key(c, &s, &a->keys[i]);
	return refuse(c, 403, "InvalidAccessKeyId", "");
}
