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
 *	in doubt, by versions before		by versions: when they are refused, the listing fails
 *	in doubt, without before		without
 *	in doubt, nothing listed before		without where it was refused; else the listing fails
 */
#include "ufs/s3_internal.h"
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
};

/* Whether it was refused, and would be again: as by a service that knows no versions, or a policy
 * that does not let them be seen. */
static bool is_refusal(int status)
{
	return status == -EACCES || status == -EPROTO || status == -ENOENT || status == -ENXIO;
}

/* Whether it ends the listing, whatever was asked for. */
static bool ends(int status)
{
	return status == -ECANCELED || status == -ENOMEM || status == -EKEYREJECTED;
}

static enum said read_answer(const struct buf *body)
{
	const char *text = buf_str(body);

	if (!memmem(text, body->len, "<VersioningConfiguration", 24))
		return SAID_NOTHING;
	if (memmem(text, body->len, "<Status>Enabled<", 16) ||
		memmem(text, body->len, "<Status>Suspended<", 18))
		return SAID_KEPT;
	return SAID_NONE;
}

/* GetBucketVersioning. An answer that is none is a refusal: -EPROTO. */
static int ask_once(struct s3 *s3, const struct ufs_page_request *request, enum said *ret_said,
	struct ufs_page *page, struct err *e)
{
	_cleanup_(buf_release) struct buf query = BUF_INIT(64);
	_cleanup_(buf_release) struct buf body = BUF_INIT(0);
	struct s3_param param = { "versioning", "", 0 };
	int r = s3_encode_query(&query, &param, 1);

	if (r == 0)
		r = s3_list_ask(s3, request, buf_str(&query), &body, page, e);
	if (r < 0)
		return r;
	*ret_said = read_answer(&body);
	if (*ret_said == SAID_NOTHING)
		return err_set(e, -EPROTO, "%s: its answer says nothing of versions", s3->name);
	return 0;
}

/* The same, again while it is in doubt. */
static int ask(struct s3 *s3, const struct ufs_page_request *request, enum said *ret_said,
	struct ufs_page *page, struct err *e)
{
	for (unsigned int i = 1;; i++) {
		int r = ask_once(s3, request, ret_said, page, e);

		if (r == 0 || ends(r) || i == S3_VERSIONS_TRIES)
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
		LOG_LIMITED(LOG_WARN, "bucket does not say whether it keeps versions",
			"bucket=%s reason=\"%s\" next=\"listed with them, as before\"",
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
	enum ufs_before before;
	int r = ask(s3, request, &said, page, e);

	if (r < 0 && ends(r))
		return r;
	if (r == 0 && said == SAID_NONE)
		return 0;
	before = ufs_list_before(&s3->base);
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
		"%s: listed with the versions of its objects before, which is refused now: allow "
		"s3:ListBucketVersions again, or choose --versions off, after which everything is "
		"fetched anew",
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
