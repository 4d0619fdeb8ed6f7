/*
 * The XML documents of S3 that are read: a page of objects, or of versions of objects, and an error. Input is a
 * peer's: anything may be in it. Document types (entity bombs) are refused, depth and lengths are
 * bounded.
 */
#pragma once

#include "ufs/ufs_internal.h"

/*
 * Appends nothing on failure: the page is cleared before. Keys are relative: `prefix` is cut off,
 * and a key or a common prefix that does not begin with it is -EPROTO. The object that is named
 * exactly as the prefix (its marker) has an empty relative key. -EPROTO: not the document expected.
 * Of versions those count that are the newest of their keys, and were not removed.
 */
int s3_xml_list(const char *xml, size_t len, const char *prefix, struct ufs_page *page,
	struct err *e) __must_check;
/* The same, but reads no further than the first key beyond `upto` (relative; NULL: to the end); the
 * page is truncated then, and of what follows in the document only is checked that no key but those
 * beyond `upto` is in it: else all of it is read. */
int s3_xml_list_upto(const char *xml, size_t len, const char *prefix, const char *upto,
	size_t upto_len, struct ufs_page *page, struct err *e) __must_check;

struct s3_error {
	char code[64];
	char message[256];
	char region[64];
	char endpoint[256];
	char request_time[40];
	char server_time[40];
	char storage_class[32];
};
/* Whatever can be found; fields are empty when the document is not an error or is broken. */
void s3_xml_error(const char *xml, size_t len, struct s3_error *ret_error);
