/* Failures of S3 requests, told apart. See s3_error.h. */
#include "ufs/s3_error.h"
#include "ufs/s3_xml.h"
#include "base/clock.h"

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

static int overload(const struct failure *f, struct err *e)
{
	return err_set(e, -EAGAIN, "%s: %s is overloaded (%d %s); asked again later", f->what,
		f->target->url, f->answer->status, f->xml.code);
}

static int server_error(const struct failure *f, struct err *e)
{
	return err_set(e, -EIO, "%s: %s failed (%d %s, request %s)", f->what, f->target->url,
		f->answer->status, f->xml.code, f->answer->request_id);
}

static int wrong_region(const struct failure *f, struct err *e)
{
	const char *region = *f->xml.region ? f->xml.region : f->answer->region;

	if (*region)
		return err_set(e, -EREMCHG,
			"%s: the bucket is in region %s, not %s; use --region %s", f->what, region,
			f->target->region, region);
	return err_set(e, -EREMCHG,
		"%s: the bucket is not at %s (region %s)%s%s; name its region and endpoint",
		f->what, f->target->url, f->target->region, *f->xml.endpoint ? " but at " : "",
		f->xml.endpoint);
}

static int no_key(const struct failure *f, struct err *e)
{
	return err_set(e, -EKEYREJECTED,
		"%s: %s does not know the access key %s (%s); check which profile is used", f->what,
		f->target->url, f->target->access_key, f->xml.code);
}

static int bad_signature(const struct failure *f, struct err *e)
{
	return err_set(e, -EKEYREJECTED,
		"%s: the secret key does not belong to access key %s (SignatureDoesNotMatch from "
		"%s); check "
		"AWS_SECRET_ACCESS_KEY or the profile",
		f->what, f->target->access_key, f->target->url);
}

static int expired(const struct failure *f, struct err *e)
{
	return err_set(e, -EKEYREJECTED,
		"%s: the session token of access key %s is refused (%s); get a new one", f->what,
		f->target->access_key, f->xml.code);
}

static int skewed(const struct failure *f, struct err *e)
{
	int64_t theirs = f->answer->date;
	int64_t now = (int64_t)(clock_wall_ns() / CLOCK_SECOND);

	if (*f->xml.server_time)
		(void)clock_parse(
			f->xml.server_time, &theirs); /* keeps the Date header's when unreadable */
	if (theirs < 0)
		return err_set(e, -EKEYREJECTED,
			"%s: this machine's clock is wrong (RequestTimeTooSkewed); set it",
			f->what);
	return err_set(e, -EKEYREJECTED,
		"%s: this machine's clock is %lld s %s that of %s (RequestTimeTooSkewed); set it",
		f->what, llabs((long long)(now - theirs)), now > theirs ? "ahead of" : "behind",
		f->target->url);
}

static int denied(const struct failure *f, struct err *e)
{
	return err_set(e, -EACCES,
		"%s: access key %s may not read this (%s from %s); the bucket's policy must allow "
		"s3:ListBucket and s3:GetObject",
		f->what, f->target->access_key, *f->xml.code ? f->xml.code : "403", f->target->url);
}

static int no_bucket(const struct failure *f, struct err *e)
{
	return err_set(e, -ENXIO, "%s: no such bucket at %s; check its name and the endpoint",
		f->what, f->target->url);
}

static int no_object(const struct failure *f, struct err *e)
{
	return err_set(e, -ENOENT, "%s: no such object (any more)", f->what);
}

static int changed(const struct failure *f, struct err *e)
{
	return err_set(e, -ESTALE, "%s: the object was changed at the origin (%d)", f->what,
		f->answer->status);
}

static int not_understood(const struct failure *f, struct err *e)
{
	return err_set(e, -EPROTO, "%s: %s answers %d %s%s%s; is it an S3 service?", f->what,
		f->target->url, f->answer->status, f->xml.code, *f->xml.message ? ": " : "",
		f->xml.message);
}

typedef int (*explain_fn)(const struct failure *f, struct err *e);

/* The code of the answer's body decides, */
static explain_fn by_code(const char *code)
{
	static const struct {
		const char *code;
		explain_fn explain;
	} table[] = {
		{ "InvalidAccessKeyId", no_key },
		{ "SignatureDoesNotMatch", bad_signature },
		{ "RequestTimeTooSkewed", skewed },
		{ "ExpiredToken", expired },
		{ "InvalidToken", expired },
		{ "TokenRefreshRequired", expired },
		{ "AccessDenied", denied },
		{ "AllAccessDisabled", denied },
		{ "AccountProblem", denied },
		{ "NoSuchBucket", no_bucket },
		{ "InvalidBucketName", no_bucket },
		{ "NoSuchKey", no_object },
		{ "NoSuchVersion", no_object },
		{ "PermanentRedirect", wrong_region },
		{ "TemporaryRedirect", wrong_region },
		{ "IllegalLocationConstraintException", wrong_region },
		{ "SlowDown", overload },
		{ "ServiceUnavailable", overload },
		{ "RequestTimeout", server_error },
		{ "InternalError", server_error },
	};

	for (size_t i = 0; i < ARRAY_SIZE(table); i++)
		if (strcmp(code, table[i].code) == 0)
			return table[i].explain;
	return NULL;
}

/* else the status. */
static explain_fn by_status(int status, bool is_list)
{
	if (status == 412 || status == 416)
		return changed;
	if (status == 429 || status == 503)
		return overload;
	if (status >= 500 || status == 408)
		return server_error;
	if (status == 301 || status == 302 || status == 307 || status == 308)
		return wrong_region;
	if (status == 404)
		return is_list ? no_bucket : no_object;
	if (status == 401 || status == 403)
		return denied;
	return not_understood;
}

int s3_error_status(const struct s3_target *target, const char *key, uint32_t key_len,
	const struct s3_answer *answer, const char *body, size_t body_len, struct err *e)
{
	struct failure f = { .target = target, .answer = answer };
	explain_fn explain;

	s3_xml_error(body, body_len, &f.xml);
	(void)snprintf(f.what, sizeof(f.what), "s3://%s%s%.*s", target->bucket, key ? "/" : "",
		(int)min(key_len, 200u), key ? key : ""); /* cut: for the eye */
	if (strcmp(f.xml.code, "AuthorizationHeaderMalformed") == 0 && *f.xml.region)
		return wrong_region(&f, e);
	/* A gateway's 5xx with a body of its own is the gateway's failure, whatever the code
	 * says. */
	explain = answer->status >= 500 ? NULL : by_code(f.xml.code);
	if (!explain)
		explain = by_status(answer->status, key == NULL);
	return explain(&f, e);
}

int s3_error_transfer(
	const struct s3_target *target, int curl_code, const char *text, struct err *e)
{
	switch (curl_code) {
	case CURLE_COULDNT_RESOLVE_HOST:
	case CURLE_COULDNT_RESOLVE_PROXY:
		return err_set(e, -EHOSTUNREACH,
			"%s: the host name is not known (%s); check the endpoint", target->url,
			text);
	case CURLE_COULDNT_CONNECT:
		if (strstr(text, "timed out") || strstr(text, "Timeout"))
			return err_set(e, -ETIMEDOUT,
				"%s: no connection (%s); check the endpoint and the network",
				target->url, text);
		return err_set(e, -ECONNREFUSED,
			"%s: no connection (%s); is the service running there?", target->url, text);
	case CURLE_OPERATION_TIMEDOUT:
		return err_set(e, -ETIMEDOUT,
			"%s: no connection in time (%s); check the endpoint and the network",
			target->url, text);
	case CURLE_PEER_FAILED_VERIFICATION:
	case CURLE_SSL_CACERT_BADFILE:
	case CURLE_SSL_ISSUER_ERROR:
	case CURLE_SSL_INVALIDCERTSTATUS:
	case CURLE_SSL_CERTPROBLEM:
		return err_set(e, -EPROTO,
			"%s: its certificate is not accepted (%s); name the authority's file "
			"with --ca-file",
			target->url, text);
	case CURLE_SSL_CONNECT_ERROR:
		if (strstr(text, "wrong version number") || strstr(text, "unknown protocol"))
			return err_set(e, -EPROTO,
				"%s: does not speak TLS there (%s); is it http:// ?", target->url,
				text);
		return err_set(e, -EIO, "%s: TLS failed (%s)", target->url, text);
	case CURLE_PARTIAL_FILE:
		return err_set(e, -EIO, "%s: the answer ended early (%s)", target->url, text);
	case CURLE_OUT_OF_MEMORY:
		return err_set(e, -ENOMEM, "%s: no memory", target->url);
	case CURLE_UNSUPPORTED_PROTOCOL:
	case CURLE_WEIRD_SERVER_REPLY:
		return err_set(e, -EPROTO, "%s: does not speak HTTP there (%s)", target->url, text);
	default:
		return err_set(e, -EIO, "%s: the connection failed (%s)", target->url, text);
	}
}
