/* A listing in an order of the service's own: one page after the other, by its tokens. See
 * lister_internal.h. */
#include "ufs/lister_internal.h"
#include "base/log.h"

#include <string.h>

#define LISTER_STRANGE 4u    /* times that a token is asked for before it is believed */
#define LISTER_EMPTY   1000u /* pages without a key in a row */

/* A loop of tokens is found by comparing each with one that is kept, which is replaced after 1, 2,
 * 4, ... pages (Brent 1980). */
struct tokens {
	struct buf now;
	struct buf kept;
	uint64_t steps, limit;
};

static bool is_text(const struct buf *a, const struct buf *b)
{
	return a->len == b->len && memcmp(buf_str(a), buf_str(b), a->len) == 0;
}

/* Whether the page says how to go on, and not to where the listing was. */
static int tokens_check(const struct tokens *t, const struct ufs_page *page, struct err *e)
{
	if (page->token.len == 0)
		return err_set(e, -EPROTO,
			"LIST answer: truncated, but without NextContinuationToken; check that the "
			"endpoint is an S3 service, without a proxy");
	if (is_text(&t->now, &page->token) || is_text(&t->kept, &page->token))
		return err_set(e, -EPROTO,
			"LIST answer: NextContinuationToken repeats, so that the listing would "
			"never end; check that the endpoint is an S3 service, without a proxy");
	return 0;
}

static int tokens_next(struct tokens *t, const struct ufs_page *page)
{
	int r;

	buf_clear(&t->now);
	r = buf_append(&t->now, page->token.data, page->token.len);
	if (r == 0 && ++t->steps > t->limit) {
		t->steps = 0;
		t->limit *= 2;
		buf_clear(&t->kept);
		r = buf_append(&t->kept, page->token.data, page->token.len);
	}
	return r;
}

/* One page, passed on; a token that cannot be is asked for again. */
static int list_next(struct lister *l, struct ufs_page *page, struct tokens *t, struct err *e)
{
	struct ufs_page_request request = { .token = t->now.len ? t->now.data : NULL };
	int r = 0;

	for (unsigned int i = 0; i < LISTER_STRANGE; i++) {
		r = ufs_list_page(l->ufs, &request, page, e);
		if (r < 0)
			return r;
		r = lister_pass_on(l, page->objects, page->n_objects);
		if (r < 0)
			return err_set(e, r, "listing: stopped by its receiver: %s", err_str(r));
		r = page->truncated ? tokens_check(t, page, e) : 0;
		if (r == 0)
			break;
	}
	return r;
}

static int list_by_tokens(struct lister *l, struct ufs_page *page, struct tokens *t, struct err *e)
{
	uint32_t empty = 0;

	for (;;) {
		int r = list_next(l, page, t, e);

		if (r < 0 || !page->truncated)
			return r;
		empty = page->n_objects ? 0 : empty + 1;
		if (empty == LISTER_EMPTY)
			return err_set(e, -EPROTO,
				"LIST answer: %u pages without a key, and more to come; check that "
				"the endpoint is an S3 service, without a proxy",
				LISTER_EMPTY);
		r = tokens_next(t, page);
		if (r < 0)
			return err_set(e, r, "listing: %s", err_str(r));
	}
}

int lister_tokens_list(struct lister *l)
{
	struct tokens tokens = {
		.now = BUF_INIT(UFS_TOKEN_BYTES), .kept = BUF_INIT(UFS_TOKEN_BYTES), .limit = 1
	};
	struct ufs_page page;

	log_info("listing one page after the other", "why=\"answers are not in byte order\"");
	l->err = ERR_INIT;
	ufs_page_init(&page);
	l->status = list_by_tokens(l, &page, &tokens, &l->err);
	ufs_page_release(&page);
	buf_release(&tokens.now);
	buf_release(&tokens.kept);
	return l->status;
}
