/*
 * The one JSON object of metadata services: members that are strings, perhaps others, which are
 * skipped. Input is a peer's: bounded by its buffer, no recursion.
 */
#include "ufs/credentials_internal.h"
#include "base/clock.h"
#include "base/secret.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define JSON_DEPTH 16u

struct reader {
	const char *at;
	const char *end;
};

static void skip_blanks(struct reader *r)
{
	while (r->at < r->end && isspace((unsigned char)*r->at))
		r->at++;
}

static bool take_char(struct reader *r, char c)
{
	skip_blanks(r);
	if (r->at == r->end || *r->at != c)
		return false;
	r->at++;
	return true;
}

/* One byte of a string, decoded; -1 when it is none. Beyond ASCII only as it stands there. */
static int string_byte(struct reader *r)
{
	static const char from[] = "\"\\/bfnrt";
	static const char to[] = "\"\\/\b\f\n\r\t";
	unsigned char c = (unsigned char)*r->at++;
	char digits[5] = { 0 };
	const char *known;
	char *end;
	long code;

	if (c < ' ')
		return -1;
	if (c != '\\')
		return c;
	if (r->at == r->end)
		return -1;
	c = (unsigned char)*r->at++;
	known = strchr(from, c);
	if (known && c)
		return (unsigned char)to[known - from];
	if (c != 'u' || r->end - r->at < 4)
		return -1;
	memcpy(digits, r->at, 4);
	code = strtol(digits, &end, 16);
	r->at += 4;
	return *end || code < 1 || code > 0x7f ? -1 : (int)code;
}

static bool take_string(struct reader *r, struct buf *out)
{
	buf_clear(out);
	if (!take_char(r, '"'))
		return false;
	while (r->at < r->end && *r->at != '"') {
		int byte = string_byte(r);
		char c = (char)byte;

		if (byte < 0 || buf_append(out, &c, 1) < 0)
			return false;
	}
	return take_char(r, '"');
}

/* Any value, whatever is in it. */
static bool skip_value(struct reader *r, struct buf *scratch)
{
	unsigned int depth = 0;

	do {
		skip_blanks(r);
		if (r->at == r->end)
			return false;
		if (*r->at == '"') {
			if (!take_string(r, scratch))
				return false;
			continue;
		}
		if (*r->at == '{' || *r->at == '[')
			depth++;
		if ((*r->at == '}' || *r->at == ']') && depth)
			depth--;
		else if (depth == 0 && (*r->at == '}' || *r->at == ']'))
			return false;
		r->at++;
		while (depth == 0 && r->at < r->end && !strchr(",}] \t\r\n", *r->at))
			r->at++;
	} while (depth && depth <= JSON_DEPTH);
	return depth == 0;
}

struct fields {
	struct credentials *c;
	char expiration[40];
	char code[64];
};

static int take_field(struct fields *f, const char *name, const struct buf *value)
{
	if (strcmp(name, "AccessKeyId") == 0)
		return credentials_take(&f->c->access_key, buf_str(value), value->len);
	if (strcmp(name, "SecretAccessKey") == 0)
		return credentials_take_secret(&f->c->secret_key, buf_str(value), value->len);
	if (strcmp(name, "Token") == 0)
		return credentials_take_secret(&f->c->session_token, buf_str(value), value->len);
	if (strcmp(name, "Expiration") == 0)
		(void)snprintf(f->expiration, sizeof(f->expiration), "%s", buf_str(value)); /* cut:
			not a time then */
	if (strcmp(name, "Code") == 0)
		(void)snprintf(f->code, sizeof(f->code), "%s", buf_str(value)); /* cut: shown */
	return 0;
}

static int read_fields(struct fields *f, const struct buf *json)
{
	struct reader r = { buf_str(json), buf_str(json) + json->len };
	struct buf name = BUF_INIT(1024);
	struct buf value = BUF_INIT(CREDENTIALS_TOKEN_MAX);
	bool good = take_char(&r, '{');

	for (bool first = true; good && !take_char(&r, '}'); first = false) {
		good = (first || take_char(&r, ',')) && take_string(&r, &name) &&
		       take_char(&r, ':');
		skip_blanks(&r);
		if (good && r.at < r.end && *r.at == '"')
			good = take_string(&r, &value) &&
			       take_field(f, buf_str(&name), &value) == 0;
		else
			good = good && skip_value(&r, &value);
	}
	buf_release(&name);
	secret_release_buf(&value);
	return good ? 0 : -EBADMSG;
}

int credentials_take_json(
	const struct buf *json, const char *service, struct credentials *c, struct err *e)
{
	struct fields f = { .c = c };
	int r = read_fields(&f, json);

	if (r == 0 && c->access_key && c->secret_key && c->session_token &&
		clock_parse(f.expiration, &c->expires) == 0 &&
		(!*f.code || strcmp(f.code, "Success") == 0))
		return 0;
	c->expires = 0;
	credentials_forget_keys(c);
	return err_set(
		e, -ENOKEY, "%s did not return keys%s%s", service, *f.code ? ": " : "", f.code);
}
