#include "tests/unit/catalog/fixture.h"

const struct volume_id fixture_volume = { { 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15,
	16 } };

char fixture_dir[64];

int fixture_setup(void **state)
{
	(void)state;
	snprintf(fixture_dir, sizeof(fixture_dir), "/var/tmp/granary-catalog-XXXXXX");
	return mkdtemp(fixture_dir) ? 0 : -1;
}

int fixture_teardown(void **state)
{
	char command[128];

	(void)state;
	snprintf(command, sizeof(command), "rm -rf %s", fixture_dir);
	return system(command);
}

const char *fixture_path(const char *name)
{
	static char paths[8][128];
	static unsigned int next;
	char *p = paths[next++ % 8];

	snprintf(p, sizeof(paths[0]), "%s/%s", fixture_dir, name);
	return p;
}

uint64_t fixture_random(uint64_t *state)
{
	*state ^= *state >> 12;
	*state ^= *state << 25;
	*state ^= *state >> 27;
	return *state * 0x2545F4914F6CDD1Dull;
}

void fixture_add(struct listing *l, const char *key, uint64_t size, const char *tag)
{
	int r = listing_add(l, key, (uint32_t)strlen(key), size, 1700000000123000000, tag,
		(uint32_t)strlen(tag));

	assert_int_equal(r, 0);
}

struct table *fixture_open(const char *path)
{
	struct table *t = NULL;
	struct err e = ERR_INIT;
	int r = table_open(open(path, O_RDONLY | O_CLOEXEC), &t, &e);

	if (r < 0)
		print_message("%s\n", e.text);
	assert_int_equal(r, 0);
	return t;
}

struct table *fixture_build(
	struct table *prev, struct listing *l, const char *name, struct generation_stats *stats)
{
	const char *path = fixture_path(name);
	struct err e = ERR_INIT;
	int r = generation_build(&fixture_volume, prev, l, path, NULL, stats, &e);

	listing_free(l);
	if (r == -EALREADY)
		return NULL;
	if (r < 0)
		print_message("%s\n", e.text);
	assert_int_equal(r, 0);
	return fixture_open(path);
}
