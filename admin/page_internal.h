/* What the HTTP server answers browsers with (page.c). Pure but for what is queued. */
#pragma once

#include <microhttpd.h>
#include "admin/admin_internal.h"

/* The page at that path; NULL: none. `pages` may be NULL. */
const struct admin_page *admin_page_find(const struct admin_page *pages, const char *path);

/* Headers that keep a browser from taking an answer for anything else than it is. `page`: it may
 * load what belongs to it. */
void admin_page_headers(struct MHD_Response *response, bool page);

enum MHD_Result admin_page_respond(
	struct MHD_Connection *connection, const struct admin_page *page) __must_check;

/* Sec-Fetch-Site and Sec-Fetch-Mode, NULL: not sent. True: the request is another site's. */
bool admin_page_is_foreign(const char *site, const char *mode) __must_check;
