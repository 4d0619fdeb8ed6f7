/* OBS's own signature. See obs_sign.h. */
#include "ufs/obs_sign.h"
#include "base/clock.h"
#include "base/hash.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define OBS_TEXT_MAX (64u * 1024)

/* Of all parameters that are part of what is signed, those that requests of ours have. */
static bool is_signed(const char *name, size_t len)
{
	static const char *const names[] = { "versionId", "versioning", "versions" };

	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		if (strlen(names[i]) == len && memcmp(names[i], name, len) == 0)
			return true;
	return false;
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
				r = buf_append(out, query, name + 1 < len ? len : name);
			before = "&";
		}
		query += len + (query[len] == '&');
	}
	return r;
}

int obs_string_to_sign(const struct obs_signed *request, struct buf *out)
{
	int r = buf_printf(out, "%s\n\n%s\n%s\n", request->method, request->type, request->date);

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
