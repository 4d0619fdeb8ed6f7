/* The lines of fuse.conf(5). See mount_conf.h. */
#include "base/mount_conf.h"

#include <stdlib.h>
#include <string.h>

#define BLANKS " \t\r"

/* What follows a key on its line. */
static bool take_rest(const char *rest, const char *end, uint64_t *ret_number)
{
	char *number_end;
	uint64_t number;

	rest += strspn(rest, BLANKS);
	if (!ret_number)
		return rest == end;
	if (*rest != '=')
		return false;
	number = strtoull(rest + 1, &number_end, 10);
	if (number_end == rest + 1 || number_end + strspn(number_end, BLANKS) != end)
		return false;
	*ret_number = number;
	return true;
}

bool mount_conf_find(const char *text, const char *key, uint64_t *ret_number)
{
	size_t len = strlen(key);
	const char *newline;

	for (const char *line = text; (newline = strchr(line, '\n')); line = newline + 1) {
		const char *end = line + strcspn(line, "#\n");

		line += strspn(line, BLANKS);
		if (strncmp(line, key, len) == 0 && take_rest(line + len, end, ret_number))
			return true;
	}
	return false;
}
