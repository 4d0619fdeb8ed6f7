/*
 * Whether a listing has the ids of versions. See s3_internal.h and docs/decisions/object-versions.md.
 *
 * It decides the tags of all objects, and with them whether anything that is cached is still of use.
 * So only an answer about versions counts as one; for what may be said by mistake, or of something
 * else (a policy, a proxy, an overload), the bucket is asked again, and then the listing is made as
 * the one before was.
 *
 *	the bucket keeps versions		by versions, if they may be listed
 *	it keeps none				without
 *	the service does not support versions	without; in doubt, if versions were listed before
 *	in doubt, by versions before		by versions: when they are refused, the listing fails
 *	in doubt, without before		without
 *	in doubt, nothing listed before		without where it was refused; else the listing fails
 */
#include "ufs/s3_internal.h"
#include "ufs/s3_xml.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"

#include <string.h>

#define S3_VERSIONS_TRIES 3u
#define S3_VERSIONS_PAUSE (100 * CLOCK_MS)

enum said {
	SAID_NOTHING, /* of versions */
	SAID_KEPT,
	SAID_NONE,
	SAID_UNSUPPORTED,
};

/* Whether it was refused, and would be again: as by a service that does not support versions, or a
 * policy that does not let them be seen. */
static bool is_refusal(int status)
{
	return status == -EACCES || status == -EPROTO || status == -ENOENT || status == -ENXIO ||
	       status == -EOPNOTSUPP;
}

/* Whether it ends the listing, whatever was asked for. */
static bool ends(int status)
{
	return status == -ECANCELED || status == -ENOMEM || status == -EKEYREJECTED;
}

static bool has(const struct buf *body, const char *text)
{
	return memmem(buf_str(body), body->len, text, strlen(text)) != NULL;
}

/* Codes of 4xx answers of services without GetBucketVersioning. AccessDenied is none of them: a policy may hide
 * versions; nor is NoSuchKey or the like: a server may be behind. */
static bool is_unsupported(const char *code)
{
	static const char *const codes[] = { "NotImplemented", "MethodNotAllowed", "InvalidRequest",
		"InvalidArgument", "UnsupportedOperation", "NotSupported" };

	for (size_t i = 0; i < ARRAY_SIZE(codes); i++)
		if (strcmp(code, codes[i]) == 0)
			return true;
	return false;
}

/* The only place that interprets answers to GetBucketVersioning. */
static enum said read_answer(int status, const struct buf *body)
{
	struct s3_error error;

	if (status == 501 || status == 405)
		return SAID_UNSUPPORTED;
	if (status >= 400 && status < 500) {
		s3_xml_error(buf_str(body), body->len, &error);
		return is_unsupported(error.code) ? SAID_UNSUPPORTED : SAID_NOTHING;
	}
	if (status != 200)
		return SAID_NOTHING;
	if (has(body, "<VersioningConfiguration"))
		return has(body, "<Status>Enabled<") || has(body, "<Status>Suspended<") ? SAID_KEPT
											: SAID_NONE;
	/* The service ignores "?versioning": a list of objects. */
	return has(body, "<ListBucketResult") ? SAID_UNSUPPORTED : SAID_NOTHING;
}

/* GetBucketVersioning. -EOPNOTSUPP: the service does not support it; -EPROTO: the answer has no state of versions. Both are
 * refusals. */
static int ask_once(struct s3 *s3, const struct ufs_page_request *request, enum said *ret_said,
	struct ufs_page *page, struct err *e)
{
	_cleanup_(buf_release) struct buf query = BUF_INIT(64);
	_cleanup_(buf_release) struct buf body = BUF_INIT(0);
	struct s3_param param = { "versioning", "", 0 };
	int answer = 0;
	int r = s3_encode_query(&query, &param, 1);

	if (r == 0)
		r = s3_list_ask(s3, request, buf_str(&query), &body, &answer, page, e);
	*ret_said = read_answer(answer, &body);
	if (*ret_said == SAID_UNSUPPORTED)
		return err_set(e, -EOPNOTSUPP,
			"%s: the service does not support versions of objects (%d to "
			"GetBucketVersioning)",
			s3->name, answer);
	if (r == 0 && *ret_said == SAID_NOTHING)
		return err_set(e, -EPROTO,
			"%s: its answer does not contain the state of versioning", s3->name);
	return r;
}

/* The same, repeated while it is in doubt. *ret_before is written unless the bucket keeps no versions, or the listing
 * ends. A service whose versions were listed before supports them, whatever it answers now. */
static int ask(struct s3 *s3, const struct ufs_page_request *request, enum said *ret_said,
	enum ufs_before *ret_before, struct ufs_page *page, struct err *e)
{
	bool known = false;

	for (unsigned int i = 1;; i++) {
		int r = ask_once(s3, request, ret_said, page, e);
		bool enough = r == 0 || i == S3_VERSIONS_TRIES;

		if (ends(r) || (r == 0 && *ret_said == SAID_NONE))
			return r;
		if (!known && (enough || r == -EOPNOTSUPP)) {
			*ret_before = ufs_list_before(&s3->base);
			known = true;
		}
		if (enough || (r == -EOPNOTSUPP && *ret_before != UFS_BEFORE_VERSIONS))
			return r;
		ufs_list_sleep(&s3->base, request, S3_VERSIONS_PAUSE * i);
	}
}

/* Whether versions may be listed: one key of them. A refusal that fails the listing is asked for again
 * by who retries that. */
static int try_list(struct s3 *s3, const struct ufs_page_request *request, enum ufs_before before,
	struct ufs_page *page, struct err *e)
{
	for (unsigned int i = 1;; i++) {
		int r = s3_list_once(s3, request, 1, true, page, e);

		if (!is_refusal(r) || before == UFS_BEFORE_VERSIONS || i == S3_VERSIONS_TRIES)
			return r;
		ufs_list_sleep(&s3->base, request, S3_VERSIONS_PAUSE * i);
	}
}

/* No answer counted. 0: without versions; 1: with them, if they may be listed; or why it is not known. */
static int guess(struct s3 *s3, enum ufs_before before, int why, const struct err *e)
{
	switch (before) {
	case UFS_BEFORE_PLAIN: /* as it is each time, where a policy does not let it be seen */
		return 0;
	case UFS_BEFORE_NOTHING:
		return is_refusal(why) ? 0 : why;
	case UFS_BEFORE_VERSIONS:
		LOG_LIMITED(LOG_WARN, "versioning of the bucket unknown",
			"bucket=%s reason=\"%s\" next=\"listed with versions, as before\"",
			s3->config.bucket, e->text);
		return 1;
	}
	return why;
}

/* 1: by versions, 0: without. */
static int find(
	struct s3 *s3, const struct ufs_page_request *request, struct ufs_page *page, struct err *e)
{
	enum said said = SAID_NOTHING;
	enum ufs_before before = UFS_BEFORE_NOTHING;
	int r = ask(s3, request, &said, &before, page, e);

	if (ends(r) || (r == 0 && said == SAID_NONE))
		return r;
	if (r < 0)
		r = guess(s3, before, r, e);
	else
		r = 1;
	if (r <= 0)
		return r;
	r = try_list(s3, request, before, page, e);
	if (r == 0)
		return 1;
	if (!is_refusal(r))
		return r;
	if (before != UFS_BEFORE_VERSIONS)
		return 0;
	return err_prefix(e,
		"%s: listed with versions before, which is refused now: allow "
		"s3:ListBucketVersions again, or choose --versions off, which fetches everything "
		"again",
		s3->name);
}

int s3_versions_begin(
	struct s3 *s3, const struct ufs_page_request *request, struct ufs_page *page, struct err *e)
{
	struct err why = ERR_INIT;
	int r = s3->config.versions == UFS_VERSIONS_ON;

	if (s3->config.versions == UFS_VERSIONS_AUTO)
		r = find(s3, request, page, &why);
	if (r < 0) {
		if (e)
			*e = why;
		return r;
	}
	atomic_store(&s3->by_version, r > 0);
	return 0;
}
