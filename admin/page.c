/* Files that a daemon has in itself, for browsers. See admin.h and admin_internal.h. */
#include "admin/page_internal.h"

#include <string.h>

/* What a page may do: load what this server has, and ask it. Nothing inline, nothing of others, and no text becomes
 * markup: a name that somebody gave to a file stays a name. */
#define PAGE_POLICY                                                                         \
	"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "         \
	"connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; " \
	"require-trusted-types-for 'script'; trusted-types 'none'"
#define ANSWER_POLICY "default-src 'none'; frame-ancestors 'none'"

const struct admin_page *admin_page_find(const struct admin_page *pages, const char *path)
{
	for (; pages && pages->path; pages++)
		if (strcmp(pages->path, path) == 0)
			return pages;
	return NULL;
}

void admin_page_headers(struct MHD_Response *response, bool page)
{
	static const char *const headers[][2] = {
		{ "X-Content-Type-Options", "nosniff" },
		{ "Cross-Origin-Resource-Policy", "same-origin" },
		{ "Referrer-Policy", "no-referrer" },
		{ "X-Frame-Options", "DENY" },
		{ "Cache-Control", "no-store" },
	};

	/* Without memory for one the answer is still the answer. */
	for (size_t i = 0; i < ARRAY_SIZE(headers); i++)
		(void)MHD_add_response_header(response, headers[i][0], headers[i][1]);
	(void)MHD_add_response_header(
		response, "Content-Security-Policy", page ? PAGE_POLICY : ANSWER_POLICY);
}

enum MHD_Result admin_page_respond(struct MHD_Connection *connection, const struct admin_page *page)
{
	struct MHD_Response *response = MHD_create_response_from_buffer(
		page->len, (void *)(uintptr_t)page->data, MHD_RESPMEM_PERSISTENT);
	enum MHD_Result r;

	if (!response)
		return MHD_NO;
	admin_page_headers(response, true);
	(void)MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, page->type);
	r = MHD_queue_response(connection, MHD_HTTP_OK, response);
	MHD_destroy_response(response);
	return r;
}

/* What browsers say of a request that another site's page makes: it is not to be led here, not even to ask. A link that
 * somebody follows is no such. */
bool admin_page_is_foreign(const char *site, const char *mode)
{
	if (!site || strcmp(site, "same-origin") == 0 || strcmp(site, "none") == 0)
		return false;
	return !mode || strcmp(mode, "navigate") != 0;
}
