/* Which keys are paths. See image_internal.h. */
#include "catalog/image_internal.h"

const char *image_key_refuse(const char *rel, uint32_t len)
{
	const char *end = rel + len;

	if (len == 0)
		return NULL;
	if (end[-1] == '/')
		end--;
	for (;;) {
		const char *slash = memchr(rel, '/', (size_t)(end - rel));
		size_t n = (size_t)((slash ? slash : end) - rel);

		if (n == 0)
			return "an empty name in the path";
		if (n > LIMIT_NAME_BYTES)
			return "a name longer than 255 bytes";
		if ((n == 1 && rel[0] == '.') || (n == 2 && rel[0] == '.' && rel[1] == '.'))
			return "a name that is . or ..";
		if (!slash)
			return NULL;
		rel = slash + 1;
	}
}

int image_subtree(const char *text, const char **ret_subtree, uint32_t *ret_len)
{
	const char *subtree = text ? text : "";
	size_t len = strlen(subtree);

	if (len > LIMIT_KEY_BYTES || (len && subtree[len - 1] != '/'))
		return -EINVAL;
	*ret_subtree = subtree;
	*ret_len = (uint32_t)len;
	return 0;
}

int image_check_path(const char *path)
{
	size_t len = strlen(path);

	if (len == 0)
		return 0;
	return len > IMAGE_PATH_MAX || path[len - 1] == '/' || image_key_refuse(path, (uint32_t)len)
		       ? -EINVAL
		       : 0;
}

bool image_path_below(const char *path, size_t len, const char *at, size_t at_len)
{
	if (at_len == 0)
		return true;
	return len >= at_len && memcmp(path, at, at_len) == 0 &&
	       (len == at_len || path[at_len] == '/');
}
