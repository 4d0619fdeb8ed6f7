/*
 * Web identity: the token of a file for keys of a role, at the token service.
 * https://docs.aws.amazon.com/STS/latest/APIReference/API_AssumeRoleWithWebIdentity.html
 *
 * The file is read each time: who made the token (a kubelet) puts a new one there.
 */
#include "ufs/credentials_internal.h"
#include "base/clock.h"
#include "base/secret.h"
#include "ufs/http_once.h"
#include "ufs/s3_endpoint.h"
#include "ufs/s3_sign.h"

#include <expat.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STS_TRIES      3
#define STS_PAUSE_NS   (300 * CLOCK_MS)
#define STS_CONNECT_NS (3 * CLOCK_SECOND)
#define STS_TIMEOUT_NS (10 * CLOCK_SECOND)
#define STS_FORM_MAX   (256u * 1024)
#define STS_SESSION    "granary"

/* ---- the answer ------------------------------------------------------------------------------ */

#define STS_TEXT_MAX (16u * 1024)

/* Elements whose names are all that matters: none comes twice where it means something else. */
struct answer {
	XML_Parser xml;
	struct buf text;
	bool broken;
	struct credentials *c;
	char expiration[40];
	char code[64];
	char message[256];
};

static void XMLCALL on_start(void *arg, const XML_Char *name, const XML_Char **attributes)
{
	struct answer *a = arg;

	(void)name;
	(void)attributes;
	buf_clear(&a->text);
}

static void XMLCALL on_text(void *arg, const XML_Char *s, int len)
{
	struct answer *a = arg;

	a->broken = a->broken || buf_append(&a->text, s, (size_t)len) < 0;
}

static void copy(char *out, size_t size, const struct buf *text)
{
	(void)snprintf(out, size, "%s", buf_str(text)); /* cut: for people, or not a time then */
}

static void XMLCALL on_end(void *arg, const XML_Char *name)
{
	struct answer *a = arg;
	int r = 0;

	if (strcmp(name, "AccessKeyId") == 0)
		r = credentials_take(&a->c->access_key, buf_str(&a->text), a->text.len);
	else if (strcmp(name, "SecretAccessKey") == 0)
		r = credentials_take_secret(&a->c->secret_key, buf_str(&a->text), a->text.len);
	else if (strcmp(name, "SessionToken") == 0)
		r = credentials_take_secret(&a->c->session_token, buf_str(&a->text), a->text.len);
	else if (strcmp(name, "Expiration") == 0)
		copy(a->expiration, sizeof(a->expiration), &a->text);
	else if (strcmp(name, "Code") == 0)
		copy(a->code, sizeof(a->code), &a->text);
	else if (strcmp(name, "Message") == 0)
		copy(a->message, sizeof(a->message), &a->text);
	a->broken = a->broken || r < 0;
	buf_clear(&a->text);
}

/* No service sends one; it may hold entities that grow without end. */
static void XMLCALL on_doctype(void *arg, const XML_Char *name, const XML_Char *system_id,
	const XML_Char *public_id, int internal)
{
	struct answer *a = arg;

	(void)name;
	(void)system_id;
	(void)public_id;
	(void)internal;
	a->broken = true;
	(void)XML_StopParser(a->xml, XML_FALSE); /* cannot be stopped already */
}

static void parse(struct answer *a, const struct buf *body)
{
	a->text = BUF_INIT(STS_TEXT_MAX);
	a->xml = XML_ParserCreate(NULL);
	if (!a->xml) {
		a->broken = true;
		return;
	}
	XML_SetUserData(a->xml, a);
	XML_SetElementHandler(a->xml, on_start, on_end);
	XML_SetCharacterDataHandler(a->xml, on_text);
	XML_SetStartDoctypeDeclHandler(a->xml, on_doctype);
	if (XML_Parse(a->xml, buf_str(body), (int)body->len, XML_TRUE) != XML_STATUS_OK)
		a->broken = true;
	XML_ParserFree(a->xml);
	secret_release_buf(&a->text);
}

int credentials_take_sts(int status, const struct buf *body, const char *url, const char *role,
	struct credentials *c, struct err *e)
{
	struct answer a = { .c = c };

	parse(&a, body);
	if (status == 200 && !a.broken && c->access_key && c->secret_key && c->session_token &&
		clock_parse(a.expiration, &c->expires) == 0)
		return 0;
	c->expires = 0;
	credentials_forget_keys(c);
	if (status == 200)
		return err_set(e, -ENOKEY,
			"%s did not return keys; check that it is a token service (STS)", url);
	return err_set(e, -ENOKEY,
		"%s returned no keys for role %.200s (%d %s%s%s); check AWS_ROLE_ARN, the role's "
		"trust and that the token is new",
		url, role, status, a.code, *a.message ? ": " : "", a.message);
}

/* ---- the request ----------------------------------------------------------------------------- */

static int put_url(const char *region, struct buf *url)
{
	const char *endpoint = credentials_variable("AWS_ENDPOINT_URL_STS");
	struct s3_endpoint of_region;

	endpoint = endpoint ? endpoint : credentials_variable("AWS_ENDPOINT_URL");
	if (endpoint)
		return buf_puts(url, endpoint);
	if (!region || s3_endpoint_of_region(region, &of_region, NULL) < 0)
		return buf_puts(url, "https://sts.amazonaws.com");
	return buf_printf(url, "https://sts.%s.amazonaws.com%s", region,
		strncmp(region, "cn-", 3) == 0 ? ".cn" : "");
}

static int put_form(
	struct buf *form, const char *role, const char *session, const struct buf *token)
{
	struct s3_param params[] = {
		{ "Action", "AssumeRoleWithWebIdentity", 25 },
		{ "Version", "2011-06-15", 10 },
		{ "RoleArn", role, strlen(role) },
		{ "RoleSessionName", session, strlen(session) },
		{ "WebIdentityToken", buf_str(token), token->len },
	};

	return s3_encode_query(form, params, ARRAY_SIZE(params));
}

/* What passes by itself is asked again, a few times. */
static int ask(const struct http_once *request, int *ret_status, struct buf *body, struct err *e)
{
	for (unsigned int tries = 1;; tries++) {
		int status = 0;
		int r = http_once(request, &status, body, e);
		bool passes = r == -EIO || r == -ETIMEDOUT || (r == 0 && status >= 500);

		if (!passes || tries == STS_TRIES) {
			*ret_status = status;
			return r;
		}
		buf_clear(body);
		clock_sleep_ns(STS_PAUSE_NS);
	}
}

int credentials_assume(const struct credentials_query *query, const char *token_file,
	const char *role_arn, const char *session, struct credentials *c, struct err *e)
{
	static const char *const headers[] = { "Content-Type: application/x-www-form-urlencoded",
		"Accept: application/xml" };
	struct buf token = BUF_INIT(CREDENTIALS_TOKEN_MAX);
	struct buf form = BUF_INIT(STS_FORM_MAX);
	struct buf body = BUF_INIT(CREDENTIALS_TOKEN_MAX);
	struct buf url = BUF_INIT(1024);
	struct http_once request = { .method = "POST",
		.headers = headers,
		.n_headers = ARRAY_SIZE(headers),
		.ca_file = query->ca_file,
		.connect_ns = STS_CONNECT_NS,
		.timeout_ns = STS_TIMEOUT_NS,
		.given_up = query->given_up };
	int status = 0;
	int r = credentials_read_line(token_file, "web identity token", &token, e);

	if (r == 0)
		r = put_url(c->region, &url);
	if (r == 0)
		r = put_form(&form, role_arn, session ? session : STS_SESSION, &token);
	request.url = buf_str(&url);
	request.body = buf_str(&form);
	if (r == 0) {
		r = ask(&request, &status, &body, e);
		if (r < 0 && r != -ECANCELED && r != -ENOMEM && e)
			r = e->code = -ENOKEY;
	}
	if (r == 0)
		r = credentials_take_sts(status, &body, request.url, role_arn, c, e);
	if (r == 0)
		r = credentials_place(c, "web identity %s as %s", token_file, role_arn);
	secret_release_buf(&token);
	secret_release_buf(&form);
	secret_release_buf(&body);
	buf_release(&url);
	return r < 0 ? err_default(e, r, "web identity") : 0;
}

static int find(const struct credentials_query *query, struct credentials *c, struct err *e)
{
	const char *file = credentials_variable("AWS_WEB_IDENTITY_TOKEN_FILE");
	const char *role = credentials_variable("AWS_ROLE_ARN");

	if (!file || !role)
		return err_set(e, -ENOENT,
			"%s is not set: it takes AWS_WEB_IDENTITY_TOKEN_FILE and AWS_ROLE_ARN",
			file ? "AWS_ROLE_ARN" : "AWS_WEB_IDENTITY_TOKEN_FILE");
	return credentials_assume(
		query, file, role, credentials_variable("AWS_ROLE_SESSION_NAME"), c, e);
}

const struct credentials_provider credentials_web_identity = { "web-identity", find };
