/* Which objects an operator means. See meant.h. */
#include "cacheworker/meant.h"
#include "base/check.h"
#include "base/cleanup.h"
#include "base/glob.h"

#include <stdlib.h>
#include <string.h>

static int copy_text(const char *from, char **ret, size_t *ret_len)
{
	size_t len = from ? strlen(from) : 0;
	char *copy;

	if (len == 0)
		return 0;
	if (len > LIMIT_KEY_BYTES)
		return -EINVAL;
	copy = strdup(from);
	if (!copy)
		return -ENOMEM;
	*ret = copy;
	*ret_len = len;
	return 0;
}

static int copy_path(struct meant *meant, const char *path)
{
	char *copy;

	if (strlen(path) > PRELOAD_PATH_BYTES || glob_check(path, NULL) < 0)
		return -EINVAL;
	copy = strdup(path);
	if (!copy)
		return -ENOMEM;
	meant->paths[meant->n_paths++] = copy;
	return 0;
}

int meant_init(struct meant *meant, char *const *paths, size_t n_paths, const char *subtree,
	const char *at)
{
	int r = n_paths > PRELOAD_PATHS_MAX ? -EINVAL : 0;

	*meant = (struct meant){ 0 };
	for (size_t i = 0; i < n_paths && r == 0; i++)
		r = copy_path(meant, paths[i]);
	if (r == 0)
		r = copy_text(subtree, &meant->subtree, &meant->subtree_len);
	if (r == 0)
		r = copy_text(at, &meant->at, &meant->at_len);
	if (r < 0)
		meant_release(meant);
	return r;
}

void meant_release(struct meant *meant)
{
	for (uint32_t i = 0; i < meant->n_paths; i++)
		free(meant->paths[i]);
	free(meant->subtree);
	free(meant->at);
	*meant = (struct meant){ 0 };
}

bool meant_is_all(const struct meant *meant)
{
	return meant->n_paths == 0 && meant->subtree_len == 0;
}

bool meant_matches(const struct meant *meant, const char *key, size_t key_len)
{
	char whole[2 * LIMIT_KEY_BYTES];
	const char *path = key + meant->subtree_len;
	size_t path_len = key_len - meant->subtree_len;

	if (key_len < meant->subtree_len)
		return false;
	if (meant->subtree_len && memcmp(key, meant->subtree, meant->subtree_len) != 0)
		return false;
	if (meant->n_paths == 0)
		return true;
	if (meant->at_len) {
		ensure(meant->at_len + path_len <= sizeof(whole));
		memcpy(whole, meant->at, meant->at_len);
		memcpy(whole + meant->at_len, path, path_len);
		path = whole;
		path_len += meant->at_len;
	}
	for (uint32_t i = 0; i < meant->n_paths; i++)
		if (glob_match(meant->paths[i], path, path_len))
			return true;
	return false;
}
