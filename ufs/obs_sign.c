/* OBS's own signature. See obs_sign.h. */
#include "ufs/obs_sign.h"
#include "base/clock.h"
#include "base/hash.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define OBS_TEXT_MAX (64u * 1024)

/* Sub-resources: the parameters that are part of what is signed. */
static bool is_signed(const char *name, size_t len)
{
	static const char *const names[] = { "CDNNotifyConfiguration", "acl", "append", "attname",
		"backtosource", "cors", "customdomain", "delete", "deletebucket",
		"directcoldaccess", "encryption", "inventory", "length", "lifecycle", "location",
		"logging", "metadata", "mirrorBackToSource", "modify", "name", "notification",
		"object-lock", "obscompresspolicy", "orchestration", "partNumber", "policy",
		"position", "quota", "rename", "replication", "response-cache-control",
		"response-content-disposition", "response-content-encoding",
		"response-content-language", "response-content-type", "response-expires", "restore",
		"retention", "storageClass", "storageinfo", "storagePolicy", "tagging", "torrent",
		"truncate", "uploadId", "uploads", "versionId", "versioning", "versions", "website",
		"x-image-process", "x-image-save-bucket", "x-image-save-object",
		"x-obs-security-token" };

	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		if (strlen(names[i]) == len && memcmp(names[i], name, len) == 0)
			return true;
	return false;
}

/* The value as it was before it was encoded: it is signed so. */
static int put_decoded(struct buf *out, const char *text, size_t len)
{
	int r = 0;

	for (size_t i = 0; i < len && r == 0; i++) {
		char c = text[i];

		if (c == '%' && i + 2 < len && isxdigit((unsigned char)text[i + 1]) &&
			isxdigit((unsigned char)text[i + 2])) {
			char digits[3] = { text[i + 1], text[i + 2], '\0' };

			c = (char)strtoul(digits, NULL, 16);
			i += 2;
		}
		r = buf_append(out, &c, 1);
	}
	return r;
}

/* "?a&b=c" of the query; one without a value has no '=' either. */
static int put_query(struct buf *out, const char *query)
{
	const char *before = "?";
	int r = 0;

	while (*query && r == 0) {
		size_t len = strcspn(query, "&");
		size_t name = strcspn(query, "=&");

		if (is_signed(query, name)) {
			r = buf_puts(out, before);
			if (r == 0)
				r = buf_append(out, query, name);
			if (r == 0 && name + 1 < len)
				r = buf_puts(out, "=");
			if (r == 0 && name + 1 < len)
				r = put_decoded(out, query + name + 1, len - name - 1);
			before = "&";
		}
		query += len + (query[len] == '&');
	}
	return r;
}

int obs_string_to_sign(const struct obs_signed *request, struct buf *out)
{
	const char *date = request->date;
	int r;

	for (size_t i = 0; i < request->n_headers; i++)
		if (strcmp(request->headers[i].name, "x-obs-date") == 0)
			date = "";
	r = buf_printf(out, "%s\n%s\n%s\n%s\n", request->method, request->md5 ? request->md5 : "",
		request->type, date);
	for (size_t i = 0; i < request->n_headers && r == 0; i++)
		r = buf_printf(out, "%s:%s\n", request->headers[i].name, request->headers[i].value);
	if (r == 0)
		r = buf_puts(out, request->resource);
	return r < 0 ? r : put_query(out, request->query);
}

int obs_sign(const char *access_key, const char *secret_key, const struct obs_signed *request,
	struct buf *out)
{
	struct buf text = BUF_INIT(OBS_TEXT_MAX);
	char base64[HASH_BASE64_SIZE(SHA1_BYTES)];
	uint8_t mac[SHA1_BYTES];
	int r = obs_string_to_sign(request, &text);

	if (r == 0) {
		hash_hmac_sha1(secret_key, strlen(secret_key), text.data, text.len, mac);
		hash_base64(mac, sizeof(mac), base64);
		r = buf_printf(out, "OBS %s:%s", access_key, base64);
	}
	buf_release(&text);
	return r;
}

void obs_date(uint64_t wall_ns, char out[OBS_DATE_SIZE])
{
	static const char days[7][4] = { "Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat" };
	static const char months[12][4] = { "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug",
		"Sep", "Oct", "Nov", "Dec" };
	time_t seconds = (time_t)(wall_ns / CLOCK_SECOND);
	char form[OBS_DATE_SIZE];
	struct tm tm;

	gmtime_r(&seconds, &tm);
	/* Names in English, whatever the locale is. */
	(void)snprintf(form, sizeof(form), "%s, %%d %s %%Y %%H:%%M:%%S GMT", days[tm.tm_wday],
		months[tm.tm_mon]); /* fits */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
	if (strftime(out, OBS_DATE_SIZE, form, &tm) != OBS_DATE_SIZE - 1)
		out[0] = '\0'; /* a year of five digits: the server will say so */
#pragma GCC diagnostic pop
}
