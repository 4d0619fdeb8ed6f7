/* One page of a listing as a value. See ufs_internal.h. */
#include "ufs/ufs_internal.h"

#include <stdlib.h>

void ufs_page_init(struct ufs_page *page)
{
	*page = (struct ufs_page){ .bytes = BUF_INIT(LIMIT_XML_BYTES),
		.token = BUF_INIT(UFS_TOKEN_BYTES) };
}

void ufs_page_clear(struct ufs_page *page)
{
	buf_clear(&page->bytes);
	page->n_objects = 0;
	page->n_prefixes = 0;
	page->truncated = false;
	page->disorder = false;
	buf_clear(&page->token);
	page->retry_after_ns = 0;
}

void ufs_page_release(struct ufs_page *page)
{
	buf_release(&page->bytes);
	buf_release(&page->token);
	free(page->objects);
	free(page->prefixes);
	ufs_page_init(page);
}
