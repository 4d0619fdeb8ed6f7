/*
 * How the version of an object stands in its tag: "v:VERSION:ETAG" where the bucket keeps versions,
 * else the etag as it is. An etag that itself begins with "v:" has an empty version before it.
 *
 * Of a strong etag the text between its quotes is there; a weak one is there as in HTTP, W/"TEXT". A strong
 * one has no quotes in it, so that the two cannot be taken for each other. Tables of before have no weak ones:
 * theirs are like strong ones.
 *
 * Values; nothing is owned.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

struct s3_tag {
	const char *version;  /* not NUL-terminated */
	uint32_t version_len; /* 0: by no version */
	const char *etag;     /* without quotes and W/; or "lm:SECONDS" */
	uint32_t etag_len;
	bool weak; /* as listed: never sent as a condition, for which only strong ones count */
};

static inline struct s3_tag s3_tag_of(const char *tag, uint32_t len)
{
	struct s3_tag t = { .etag = tag, .etag_len = len };
	const char *colon = NULL;

	if (len > 2 && tag[0] == 'v' && tag[1] == ':')
		colon = memchr(tag + 2, ':', len - 2);
	if (colon) {
		t.version = tag + 2;
		t.version_len = (uint32_t)(colon - tag) - 2;
		t.etag = colon + 1;
		t.etag_len = len - (uint32_t)(colon - tag) - 1;
	}
	t.weak = t.etag_len > 4 && memcmp(t.etag, "W/\"", 3) == 0 && t.etag[t.etag_len - 1] == '"';
	if (t.weak) {
		t.etag += 3;
		t.etag_len -= 4;
	}
	return t;
}

/* Whether an id can stand in a tag and in a URL as it is. "null" is what objects have that were
 * written before the bucket kept versions: they are read without. */
static inline bool s3_tag_takes(const char *version, size_t len)
{
	static const char allowed[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~";

	if (len == 0 || (len == 4 && memcmp(version, "null", 4) == 0))
		return false;
	for (size_t i = 0; i < len; i++)
		if (!version[i] || !strchr(allowed, version[i]))
			return false;
	return true;
}
