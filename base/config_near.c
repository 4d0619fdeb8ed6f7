/* Which name was meant. See config.h. */
#include "base/config_internal.h"

#include <string.h>

/* Changes of a letter that make `b` of `a`. */
static unsigned int distance(const char *a, const char *b)
{
	unsigned int row[CONFIG_WORD_MAX + 1];
	size_t len = strlen(b);

	if (strlen(a) > CONFIG_WORD_MAX || len > CONFIG_WORD_MAX)
		return CONFIG_WORD_MAX;
	for (unsigned int j = 0; j <= len; j++)
		row[j] = j;
	for (unsigned int i = 1; a[i - 1]; i++) {
		unsigned int corner = row[0];

		row[0] = i;
		for (unsigned int j = 1; j <= len; j++) {
			unsigned int replaced = corner + (a[i - 1] != b[j - 1]);
			unsigned int added = min(row[j], row[j - 1]) + 1;

			corner = row[j];
			row[j] = min(replaced, added);
		}
	}
	return row[len];
}

const char *config_nearest(const char *word, const char *const *names, size_t n)
{
	const char *nearest = NULL;
	unsigned int least = (unsigned int)strlen(word) / 3 + 2;

	for (size_t i = 0; i < n; i++) {
		unsigned int d = distance(word, names[i]);

		if (d < least) {
			least = d;
			nearest = names[i];
		}
	}
	return nearest;
}
