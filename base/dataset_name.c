/* Names of datasets. See dataset_name.h. */
#include "base/dataset_name.h"
#include "base/check.h"

#include <errno.h>
#include <string.h>

/* Words that commands and paths could take for something else. */
static const char *const reserved[] = { "all", "default", "none", "new", "list" };

int dataset_check_name(const char *name, struct err *e)
{
	size_t len = strlen(name);

	if (len == 0 || len > DATASET_NAME_BYTES ||
		strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789-") != len || name[0] == '-' ||
		name[len - 1] == '-')
		return err_set(e, -EINVAL,
			"invalid dataset name '%.80s': use 1 to %u of a-z, 0-9 and '-', starting "
			"and ending with a letter or digit",
			name, DATASET_NAME_BYTES);
	for (size_t i = 0; i < ARRAY_SIZE(reserved); i++)
		if (strcmp(name, reserved[i]) == 0)
			return err_set(e, -EINVAL,
				"'%s' is a reserved word: give the dataset another name", name);
	return 0;
}
