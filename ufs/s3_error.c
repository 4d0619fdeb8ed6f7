/* Failures of S3 requests, distinguished. See s3_error.h. */
#include "ufs/s3_error.h"
#include "ufs/s3_xml.h"
#include "base/clock.h"

#include <ctype.h>
#include <curl/curl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Everything known about the failure, for the functions below. */
struct failure {
	const struct s3_target *target;
	const struct s3_answer *answer;
	struct s3_error xml;
	char what[300]; /* "s3://bucket/key" */
};

static const char *key_id(const struct failure *f)
{
	return f->target->access_key ? f->target->access_key : "(none)";
}

static int overload(const struct failure *f, struct err *e)
{
	return err_set(e, -EAGAIN, "%s: %s is overloaded (%d %s); tried again later", f->what,
		f->target->url, f->answer->status, f->xml.code);
}

static int server_error(const struct failure *f, struct err *e)
{
	return err_set(e, -EIO, "%s: %s failed (%d %s, request %s); tried again later", f->what,
		f->target->url, f->answer->status, f->xml.code, f->answer->request_id);
}

static int wrong_region(const struct failure *f, struct err *e)
{
	const char *region = *f->xml.region ? f->xml.region : f->answer->region;
	const char *endpoint = f->xml.endpoint;

	if (*region && strcmp(region, f->target->region) != 0)
		return err_set(e, -EREMCHG,
			"%s: %s reports the bucket in region %s, not %s; use --region %s", f->what,
			f->target->url, region, f->target->region, region);
	return err_set(e, -EREMCHG,
		"%s: %s redirects to another host (%d %s)%s%s; credentials are not sent there: "
		"give the bucket's --endpoint and --region",
		f->what, f->target->url, f->answer->status, f->xml.code, *endpoint ? ", to " : "",
		endpoint);
}

static int no_key(const struct failure *f, struct err *e)
{
	return err_set(e, -EKEYREJECTED,
		"%s: %s does not know access key %s (%s), found in %s; check which profile is "
		"used; a temporary key needs its session token",
		f->what, f->target->url, key_id(f), f->xml.code, f->target->key_place);
}

static int bad_signature(const struct failure *f, struct err *e)
{
	return err_set(e, -EKEYREJECTED,
		"%s: the secret key does not belong to access key %s (SignatureDoesNotMatch from "
		"%s), found in %s; check AWS_SECRET_ACCESS_KEY or the profile",
		f->what, key_id(f), f->target->url, f->target->key_place);
}

static int expired(const struct failure *f, struct err *e)
{
	return err_set(e, -EKEYREJECTED,
		"%s: the session token of access key %s has expired or is not accepted (%s from "
		"%s), found in %s; get a new one and put it there",
		f->what, key_id(f), f->xml.code, f->target->url, f->target->key_place);
}

static int skewed(const struct failure *f, struct err *e)
{
	int64_t theirs = f->answer->date;
	int64_t now = (int64_t)(clock_wall_ns() / CLOCK_SECOND);
	char here[CLOCK_TEXT_MAX];
	char there[CLOCK_TEXT_MAX];

	if (*f->xml.server_time)
		(void)clock_parse(
			f->xml.server_time, &theirs); /* keeps the Date header's when unreadable */
	if (theirs < 0)
		return err_set(e, -EKEYREJECTED,
			"%s: this machine's clock (%s) is wrong according to %s (%s); set it by "
			"NTP",
			f->what, clock_text((uint64_t)now, here), f->target->url, f->xml.code);
	return err_set(e, -EKEYREJECTED,
		"%s: this machine's clock (%s) is %lld s %s that of %s (%s), which refuses that "
		"(%s); set it by NTP",
		f->what, clock_text((uint64_t)now, here), llabs((long long)(now - theirs)),
		now > theirs ? "ahead of" : "behind", f->target->url,
		clock_text((uint64_t)theirs, there), f->xml.code);
}

static int denied(const struct failure *f, struct err *e)
{
	const char *code = *f->xml.code ? f->xml.code : "403";

	if (f->answer->html)
		code = "403 with a page for people: a proxy on the way?";
	if (!f->target->access_key)
		return err_set(e, -EACCES,
			"%s: anonymous requests may not read this (%s from %s); leave out "
			"--anonymous and use a key, or make the bucket public for s3:ListBucket "
			"and s3:GetObject",
			f->what, code, f->target->url);
	return err_set(e, -EACCES,
		"%s: access key %s may not read this (%s from %s); the bucket's policy must allow "
		"s3:ListBucket and s3:GetObject",
		f->what, f->target->access_key, code, f->target->url);
}

static int proxy_key(const struct failure *f, struct err *e)
{
	return err_set(e, -EACCES,
		"%s: the proxy to %s requires a name and a password (407); write them into "
		"https_proxy or http_proxy as http://NAME:PASSWORD@HOST:PORT",
		f->what, f->target->url);
}

static int no_bucket(const struct failure *f, struct err *e)
{
	return err_set(e, -ENXIO,
		"%s: no such bucket at %s (%d%s%s); check its name and the endpoint", f->what,
		f->target->url, f->answer->status, *f->xml.code ? " " : "", f->xml.code);
}

static int archived(const struct failure *f, struct err *e)
{
	return err_set(e, -EPERM,
		"%s: the object is archived%s%s and cannot be read: restore it in the object "
		"store first, or keep it out of the source",
		f->what, *f->xml.storage_class ? " in class " : "", f->xml.storage_class);
}

static int no_object(const struct failure *f, struct err *e)
{
	return err_set(e, -ENOENT, "%s: object not found", f->what);
}

static int changed(const struct failure *f, struct err *e)
{
	return err_set(e, -ESTALE, "%s: the object was changed at the origin (%d)", f->what,
		f->answer->status);
}

static int not_understood(const struct failure *f, struct err *e)
{
	return err_set(e, -EPROTO,
		"%s: %s answers %d%s%s%s%s%s; check that the endpoint is an S3 service", f->what,
		f->target->url, f->answer->status, *f->xml.code ? " " : "", f->xml.code,
		*f->xml.message ? ": " : "", f->xml.message,
		f->answer->html ? " with a page for people" : "");
}

/* What a code or a status means. */
struct meaning {
	int (*explain)(const struct failure *f, struct err *e);
	enum ufs_cause cause;
};

/* The code of the answer's body decides, */
static struct meaning by_code(const char *code)
{
	static const struct {
		const char *code;
		struct meaning meaning;
	} table[] = {
		{ "InvalidAccessKeyId", { no_key, UFS_CAUSE_KEY } },
		{ "SignatureDoesNotMatch", { bad_signature, UFS_CAUSE_KEY } },
		{ "RequestTimeTooSkewed", { skewed, UFS_CAUSE_CLOCK } },
		{ "ExpiredToken", { expired, UFS_CAUSE_EXPIRED } },
		{ "InvalidToken", { expired, UFS_CAUSE_EXPIRED } },
		{ "RequestExpired", { expired, UFS_CAUSE_EXPIRED } },
		{ "TokenRefreshRequired", { expired, UFS_CAUSE_EXPIRED } },
		{ "AccessDenied", { denied, UFS_CAUSE_FORBIDDEN } },
		{ "AllAccessDisabled", { denied, UFS_CAUSE_FORBIDDEN } },
		{ "AccountProblem", { denied, UFS_CAUSE_FORBIDDEN } },
		{ "NoSuchBucket", { no_bucket, UFS_CAUSE_NOT_FOUND } },
		{ "InvalidBucketName", { no_bucket, UFS_CAUSE_NOT_FOUND } },
		{ "InvalidObjectState", { archived, UFS_CAUSE_ARCHIVED } },
		{ "NoSuchKey", { no_object, UFS_CAUSE_NOT_FOUND } },
		{ "NoSuchVersion", { no_object, UFS_CAUSE_NOT_FOUND } },
		{ "PermanentRedirect", { wrong_region, UFS_CAUSE_REDIRECT } },
		{ "TemporaryRedirect", { wrong_region, UFS_CAUSE_REDIRECT } },
		{ "Redirect", { wrong_region, UFS_CAUSE_REDIRECT } },
		{ "IllegalLocationConstraintException", { wrong_region, UFS_CAUSE_REDIRECT } },
		{ "SlowDown", { overload, UFS_CAUSE_SLOW_DOWN } },
		{ "ServiceUnavailable", { overload, UFS_CAUSE_SLOW_DOWN } },
		{ "RequestTimeout", { server_error, UFS_CAUSE_STALL } },
		{ "InternalError", { server_error, UFS_CAUSE_SERVER_ERROR } },
	};

	for (size_t i = 0; i < ARRAY_SIZE(table); i++)
		if (strcmp(code, table[i].code) == 0)
			return table[i].meaning;
	return (struct meaning){ 0 };
}

/* else the status. */
static struct meaning by_status(int status, bool is_list, bool html)
{
	if (status == 412 || status == 416)
		return (struct meaning){ changed, UFS_CAUSE_WRONG_ETAG };
	if (status == 429 || status == 503)
		return (struct meaning){ overload, UFS_CAUSE_SLOW_DOWN };
	/* 501 is not transient: the service does not support the request. */
	if ((status >= 500 && status != 501) || status == 408)
		return (struct meaning){ server_error, UFS_CAUSE_SERVER_ERROR };
	if (status == 301 || status == 302 || status == 307 || status == 308)
		return (struct meaning){ wrong_region, UFS_CAUSE_REDIRECT };
	/* A gateway's page says nothing about an object. */
	if (status == 404 && html)
		return (struct meaning){ not_understood, UFS_CAUSE_NOT_S3 };
	if (status == 404)
		return (struct meaning){ is_list ? no_bucket : no_object, UFS_CAUSE_NOT_FOUND };
	if (status == 401 || status == 403)
		return (struct meaning){ denied, UFS_CAUSE_FORBIDDEN };
	if (status == 407)
		return (struct meaning){ proxy_key, UFS_CAUSE_PROXY };
	return (struct meaning){ not_understood, UFS_CAUSE_NOT_S3 };
}

static void copy_text(char *out, size_t size, const char *from)
{
	(void)snprintf(out, size, "%s", from); /* both are of one size */
}

int s3_error_status(const struct s3_target *target, const char *key, uint32_t key_len,
	const struct s3_answer *answer, const char *body, size_t body_len,
	struct s3_failure *ret_failure, struct err *e)
{
	struct failure f = { .target = target, .answer = answer };
	struct meaning meaning = { 0 };

	s3_xml_error(body, body_len, &f.xml);
	(void)snprintf(f.what, sizeof(f.what), "%s://%s%s%.*s", target->scheme, target->bucket,
		key ? "/" : "", (int)min(key_len, 200u), key ? key : ""); /* cut: for the eye */
	/* A gateway's 5xx with a body of its own is the gateway's failure, whatever the code
	 * says. */
	if (strcmp(f.xml.code, "AuthorizationHeaderMalformed") == 0 && *f.xml.region)
		meaning = (struct meaning){ wrong_region, UFS_CAUSE_REDIRECT };
	else if (answer->status < 500)
		meaning = by_code(f.xml.code);
	if (!meaning.explain)
		meaning = by_status(answer->status, key == NULL, answer->html);
	*ret_failure = (struct s3_failure){ .cause = meaning.cause };
	copy_text(ret_failure->region, sizeof(ret_failure->region),
		*f.xml.region ? f.xml.region : answer->region);
	copy_text(ret_failure->endpoint, sizeof(ret_failure->endpoint), f.xml.endpoint);
	return meaning.explain(&f, e);
}

/* ---- transfers ------------------------------------------------------------------------------- */

/* "Failed to connect to HOST port ...": whether HOST is not the one of the URL, but a proxy. */
static bool at_proxy(const char *url, const char *text)
{
	const char *host = strstr(url, "://");
	const char *to = strstr(text, "connect to ");
	size_t n;

	if (!host || !to)
		return false;
	host += 3;
	host += *host == '[';
	to += strlen("connect to ");
	n = strcspn(to, " ");
	return strncasecmp(host, to, n) != 0 || isalnum((unsigned char)host[n]) || host[n] == '-' ||
	       host[n] == '.';
}

static int no_connection(const struct s3_target *target, const struct s3_transfer *transfer,
	enum ufs_cause *ret_cause, struct err *e)
{
	const char *text = transfer->text;
	bool late = transfer->curl_code == CURLE_OPERATION_TIMEDOUT || strstr(text, "timed out") ||
		    strstr(text, "Timeout");

	if (strncmp(text, "Resolving", 9) == 0) {
		*ret_cause = UFS_CAUSE_DNS;
		return err_set(e, -ETIMEDOUT,
			"%s: the name server does not answer (%s); check the endpoint and the "
			"resolver",
			target->url, text);
	}
	if (at_proxy(target->url, text)) {
		*ret_cause = UFS_CAUSE_PROXY;
		return err_set(e, late ? -ETIMEDOUT : -ECONNREFUSED,
			"%s: no connection to the proxy (%s); check https_proxy, http_proxy and "
			"no_proxy",
			target->url, text);
	}
	*ret_cause = UFS_CAUSE_CONNECT;
	if (late)
		return err_set(e, -ETIMEDOUT,
			"%s: no connection in time (%s); check the endpoint and the network",
			target->url, text);
	return err_set(e, -ECONNREFUSED,
		"%s: no connection (%s); check that the service is running there", target->url,
		text);
}

/* A failure of the name, not of the service: the name may resolve to another address later. */
static int local_refused(const struct s3_target *target, const struct s3_transfer *transfer,
	enum ufs_cause *ret_cause, struct err *e)
{
	*ret_cause = UFS_CAUSE_DNS;
	return err_set(e, -EHOSTUNREACH,
		"endpoint %s refused: it resolves to %s, a loopback or link-local address; set "
		"local-endpoints on the master and update the endpoint, or update it as root on "
		"the master's host",
		target->url, transfer->refused);
}

static int proxy_refused(const struct s3_target *target, const struct s3_transfer *transfer,
	enum ufs_cause *ret_cause, struct err *e)
{
	*ret_cause = UFS_CAUSE_PROXY;
	if (transfer->proxy_status == 407)
		return err_set(e, -EACCES,
			"%s: the proxy requires a name and a password (407); write them into "
			"https_proxy as http://NAME:PASSWORD@HOST:PORT",
			target->url);
	return err_set(e, -ECONNREFUSED,
		"%s: the proxy refuses the connection (%d); allow it there, or name the host in "
		"no_proxy",
		target->url, transfer->proxy_status);
}

static int bad_certificate(const struct s3_target *target, const char *text, struct err *e)
{
	const char *advice = target->advice ? target->advice
					    : "name the file of the authority that signed it with "
					      "--ca-file";

	if (strstr(text, "expired"))
		advice = "it has expired, unless this machine's clock is wrong: renew it at the "
			 "server";
	else if (strstr(text, "not yet valid"))
		advice = "it begins later than now: check this machine's clock";
	else if (strstr(text, "subject name"))
		advice = "it is for another host: use the endpoint's name that is in it";
	return err_set(e, -EPROTO, "%s: its certificate is not accepted (%s); %s", target->url,
		text, advice);
}

static int tls_failed(const struct s3_target *target, const struct s3_transfer *transfer,
	enum ufs_cause *ret_cause, struct err *e)
{
	const char *text = transfer->text;

	*ret_cause = UFS_CAUSE_TLS;
	if (transfer->curl_code == CURLE_SSL_CACERT_BADFILE)
		return err_set(e, -EPROTO,
			"%s: the file of certificate authorities cannot be used (%s); give "
			"--ca-file (or AWS_CA_BUNDLE) one with certificates in PEM form",
			target->url, text);
	if (transfer->curl_code != CURLE_SSL_CONNECT_ERROR)
		return bad_certificate(target, text, e);
	if (strstr(text, "wrong version number") || strstr(text, "unknown protocol"))
		return err_set(e, -EPROTO,
			"%s: no TLS at this address (%s); check the endpoint, or use http://",
			target->url, text);
	if (strstr(text, "protocol version") || strstr(text, "unsupported protocol"))
		return err_set(e, -EPROTO,
			"%s: supports only TLS older than 1.2 (%s); upgrade the server",
			target->url, text);
	return err_set(e, -EIO, "%s: TLS failed (%s); tried again later", target->url, text);
}

int s3_error_transfer(const struct s3_target *target, const struct s3_transfer *transfer,
	enum ufs_cause *ret_cause, struct err *e)
{
	const char *text = transfer->text;

	if (transfer->proxy_status && transfer->proxy_status / 100 != 2)
		return proxy_refused(target, transfer, ret_cause, e);
	switch (transfer->curl_code) {
	case CURLE_COULDNT_RESOLVE_PROXY:
		*ret_cause = UFS_CAUSE_PROXY;
		return err_set(e, -EHOSTUNREACH,
			"%s: host name of the proxy not found (%s); check https_proxy and "
			"http_proxy",
			target->url, text);
	case CURLE_COULDNT_RESOLVE_HOST:
		*ret_cause = UFS_CAUSE_DNS;
		return err_set(e, -EHOSTUNREACH, "%s: host name not found (%s); check the endpoint",
			target->url, text);
	case CURLE_COULDNT_CONNECT:
	case CURLE_OPERATION_TIMEDOUT:
		if (transfer->refused && *transfer->refused)
			return local_refused(target, transfer, ret_cause, e);
		return no_connection(target, transfer, ret_cause, e);
	case CURLE_PEER_FAILED_VERIFICATION:
	case CURLE_SSL_CACERT_BADFILE:
	case CURLE_SSL_ISSUER_ERROR:
	case CURLE_SSL_INVALIDCERTSTATUS:
	case CURLE_SSL_CERTPROBLEM:
	case CURLE_SSL_CONNECT_ERROR:
		return tls_failed(target, transfer, ret_cause, e);
	case CURLE_PARTIAL_FILE:
		*ret_cause = UFS_CAUSE_SHORT_BODY;
		return err_set(e, -EIO, "%s: the answer ended early (%s)", target->url, text);
	case CURLE_OUT_OF_MEMORY:
		*ret_cause = UFS_CAUSE_OTHER;
		return err_set(e, -ENOMEM, "%s: no memory", target->url);
	case CURLE_UNSUPPORTED_PROTOCOL:
	case CURLE_WEIRD_SERVER_REPLY:
		*ret_cause = UFS_CAUSE_NOT_S3;
		return err_set(e, -EPROTO,
			"%s: no HTTP at this address (%s); check the endpoint, or use https://",
			target->url, text);
	default:
		*ret_cause = UFS_CAUSE_RESET;
		return err_set(e, -EIO, "%s: the connection was lost (%s)", target->url, text);
	}
}
