/* Opening a source: answers that are refused, and what a process remembers of a master that lost
 * its memory. */
#include "tests/unit/client/fixture.h"
#include "catalog/generation_seen.h"

/* Generation 2 of the fixture's volume with one more object, as a file of its own. */
static struct table *build_next(struct fix *f, struct table *prev, const char *key, uint64_t size,
	char *path, size_t path_size)
{
	static unsigned int number;
	struct listing *l = listing_new(64 * MiB);

	fix_listing(l);
	if (table_info(prev)->id.generation > 1)
		fix_add(l, "d/more", 4096);
	fix_add(l, key, size);
	snprintf(path, path_size, "%s/next-%u", f->dir, number++);
	return fix_build(f, prev, l, path);
}

static int open_again(struct fix *f, const char *table_path, struct err *e)
{
	struct client_volume *volume;
	int r;

	if (table_path != f->table_path)
		snprintf(f->table_path, sizeof(f->table_path), "%s", table_path);
	*e = ERR_INIT;
	r = client_open_source(f->client, &f->source, true, &volume, NULL, e);
	if (r == 0)
		client_volume_close(volume);
	return r;
}

static void test_guards(void **state)
{
	struct fix *f = *state;
	struct table *one = table_ref(client_volume_table(f->volume));
	struct table *tables[3];
	char first[128];
	char two[128];
	char two_b[128];
	char three_b[128];
	struct err e;

	snprintf(first, sizeof(first), "%s", f->table_path);
	tables[0] = build_next(f, one, "d/more", 4096, two, sizeof(two));
	tables[1] = build_next(f, one, "d/other", 4096, two_b, sizeof(two_b));
	tables[2] = build_next(f, tables[1], "e/last", 4096, three_b, sizeof(three_b));
	assert_int_equal(open_again(f, first, &e), 0);
	assert_int_equal(open_again(f, two, &e), 0);
	assert_int_equal(open_again(f, two, &e), 0);
	/* The master's state was put back to the day before. */
	assert_int_equal(open_again(f, first, &e), -ESTALE);
	assert_non_null(strstr(e.text, "generation 2"));
	/* It went on from there: another second generation, and a third that gives an offset a new
	 * meaning. */
	assert_int_equal(open_again(f, two_b, &e), -ESTALE);
	assert_int_equal(open_again(f, three_b, &e), -ESTALE);
	assert_true(e.text[0] != '\0');
	assert_int_equal(open_again(f, two, &e), 0);
	for (size_t i = 0; i < ARRAY_SIZE(tables); i++)
		table_unref(tables[i]);
	table_unref(one);
}

static void restart_client(struct fix *f, const char *table_path)
{
	client_volume_close(f->volume);
	client_free(f->client);
	f->volume = NULL;
	f->client = NULL;
	snprintf(f->table_path, sizeof(f->table_path), "%s", table_path);
	fix_start_client(f, (struct client_config){ .seen_dir = f->dir });
}

/* Another process, later, knows what this one saw. */
static void test_guard_over_restarts(void **state)
{
	struct fix *f = *state;
	struct table *one = table_ref(client_volume_table(f->volume));
	struct table *tables[2];
	char first[128];
	char two[128];
	char two_b[128];
	struct err e;

	snprintf(first, sizeof(first), "%s", f->table_path);
	tables[0] = build_next(f, one, "d/more", 4096, two, sizeof(two));
	tables[1] = build_next(f, one, "d/other", 4096, two_b, sizeof(two_b));
	restart_client(f, first);
	assert_int_equal(open_again(f, two, &e), 0);
	restart_client(f, two);
	assert_int_equal(open_again(f, first, &e), -ESTALE);
	assert_non_null(strstr(e.text, "generation 2"));
	restart_client(f, two);
	assert_int_equal(open_again(f, two_b, &e), -ESTALE);
	assert_int_equal(open_again(f, two, &e), 0);
	for (size_t i = 0; i < ARRAY_SIZE(tables); i++)
		table_unref(tables[i]);
	table_unref(one);
}

static struct generation_id met_meanwhile;

static void meet_meanwhile(struct fix *f)
{
	assert_int_equal(generation_seen_save(f->dir, &met_meanwhile), 0);
}

/* While the master's answer is in progress another process here meets a generation that is newer. */
static void test_newer_meanwhile(void **state)
{
	struct fix *f = *state;
	struct table *one = table_ref(client_volume_table(f->volume));
	struct generation_id seen;
	struct table *next;
	char first[128];
	char two[128];
	struct err e;

	snprintf(first, sizeof(first), "%s", f->table_path);
	next = build_next(f, one, "d/more", 4096, two, sizeof(two));
	met_meanwhile = table_info(next)->id;
	restart_client(f, first);
	f->on_open = meet_meanwhile;
	assert_int_equal(open_again(f, first, &e), 0);
	f->on_open = NULL;
	/* That is still known, and an answer to a later question is to be as new. */
	assert_int_equal(generation_seen_load(f->dir, &met_meanwhile.volume, &seen), 0);
	assert_int_equal(seen.generation, met_meanwhile.generation);
	assert_int_equal(open_again(f, first, &e), -ESTALE);
	table_unref(next);
	table_unref(one);
}

/* A new lineage is the master's way out, and is taken. */
static void test_new_lineage(void **state)
{
	struct fix *f = *state;
	struct listing *l = listing_new(64 * MiB);
	char path[128];
	char first[128];
	struct err e;

	snprintf(first, sizeof(first), "%s", f->table_path);
	fix_listing(l);
	snprintf(path, sizeof(path), "%s/lineage", f->dir);
	table_unref(fix_build(f, NULL, l, path));
	assert_int_equal(open_again(f, path, &e), 0);
	assert_int_equal(open_again(f, path, &e), 0);
}

static void test_damaged_table(void **state)
{
	struct fix *f = *state;
	char command[320];
	struct err e;

	snprintf(command, sizeof(command), "head -c 100 %s > %s/short", f->table_path, f->dir);
	assert_int_equal(system(command), 0);
	/* The master's answer says the right things about a table that is cut off. */
	snprintf(f->sent_path, sizeof(f->sent_path), "%s/short", f->dir);
	assert_int_equal(open_again(f, f->table_path, &e), -EBADMSG);
	assert_true(e.text[0] != '\0');
	f->sent_path[0] = '\0';
	assert_int_equal(open_again(f, f->table_path, &e), 0);
}

static void test_other_table_than_announced(void **state)
{
	struct fix *f = *state;
	struct table *one = table_ref(client_volume_table(f->volume));
	char two[128];
	struct err e;

	table_unref(build_next(f, one, "d/more", 4096, two, sizeof(two)));
	snprintf(f->sent_path, sizeof(f->sent_path), "%s", two);
	assert_int_equal(open_again(f, f->table_path, &e), -EBADMSG);
	f->sent_path[0] = '\0';
	table_unref(one);
}

static void test_master_refuses(void **state)
{
	struct fix *f = *state;
	struct err e;

	f->master_fails = true;
	assert_int_equal(open_again(f, f->table_path, &e), -EKEYREJECTED);
	assert_string_equal(e.text, "the key was refused by http://127.0.0.1:9");
	f->master_fails = false;
}

static void test_too_little_memory(void **state)
{
	struct budget budget;
	struct client_config config = { .master = "unix:/nowhere", .budget = &budget };
	struct client *client = NULL;
	struct err e = ERR_INIT;

	(void)state;
	budget_init(&budget, MiB);
	assert_int_equal(client_new(&config, &client, &e), -EINVAL);
	assert_true(e.text[0] != '\0');
	budget_init(&budget, 64 * MiB);
	config.master = "carrier-pigeon:/nowhere";
	e = ERR_INIT;
	assert_true(client_new(&config, &client, &e) < 0);
	assert_true(e.text[0] != '\0');
	client_free(NULL);
}

#define CASE(fn) cmocka_unit_test_setup_teardown(fn, fix_setup, fix_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(test_guards),
		CASE(test_guard_over_restarts),
		CASE(test_newer_meanwhile),
		CASE(test_new_lineage),
		CASE(test_damaged_table),
		CASE(test_other_table_than_announced),
		CASE(test_master_refuses),
		cmocka_unit_test(test_too_little_memory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
