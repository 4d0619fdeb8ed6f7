/* Sets of key prefixes. See key_prefixes.h. */
#include "base/key_prefixes.h"
#include "base/check.h"
#include "base/hash.h"

#include <stdlib.h>
#include <string.h>

static bool begins(const char *key, size_t len, const struct key_prefix *prefix)
{
	return len >= prefix->len && memcmp(key, prefix->text, prefix->len) == 0;
}

bool key_prefixes_have(const struct key_prefixes *prefixes, const char *key, size_t len)
{
	for (uint32_t i = 0; i < prefixes->n; i++)
		if (begins(key, len, &prefixes->all[i]))
			return true;
	return false;
}

/* In byte order, the shorter first. */
static int compare(const void *a, const void *b)
{
	const struct key_prefix *x = a;
	const struct key_prefix *y = b;
	int c = memcmp(x->text, y->text, min(x->len, y->len));

	return c ? c : (x->len > y->len) - (x->len < y->len);
}

void key_prefixes_sort(struct key_prefixes *prefixes)
{
	uint32_t n = 0;

	qsort(prefixes->all, prefixes->n, sizeof(prefixes->all[0]), compare);
	for (uint32_t i = 0; i < prefixes->n; i++) {
		const struct key_prefix *p = &prefixes->all[i];

		if (n == 0 || !begins(p->text, p->len, &prefixes->all[n - 1]))
			prefixes->all[n++] = *p;
	}
	prefixes->n = n;
}

uint64_t key_prefixes_hash(const struct key_prefixes *prefixes)
{
	uint64_t hash = 0;

	for (uint32_t i = 0; i < prefixes->n; i++)
		hash = hash_xxh3(prefixes->all[i].text, prefixes->all[i].len, hash + 1);
	return hash ? hash : 1;
}
