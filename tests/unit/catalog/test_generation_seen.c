/* What is remembered of a generation comes back, and nothing else does. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include "base/file.h"
#include "catalog/generation_seen.h"

#define DIR_TEMPLATE "/tmp/granary-seen.XXXXXX"
#define HASH         "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

static char dir[] = DIR_TEMPLATE;
static char file[64];
static struct generation_id id = { .lineage = 0xfedcba9876543210, .generation = 1234567890123 };

static int setup(void **state)
{
	(void)state;
	memcpy(dir, DIR_TEMPLATE, sizeof(dir));
	memset(id.volume.bytes, 0xab, VOLUME_ID_LEN);
	memset(id.hash, 0x5c, sizeof(id.hash));
	memset(id.seal, 0x3e, sizeof(id.seal));
	if (!mkdtemp(dir))
		return -1;
	(void)snprintf(file, sizeof(file), "%s/abababababababababababababababab.seen", dir);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	(void)unlink(file); /* not every test makes it */
	return rmdir(dir);
}

static void remembers(void **state)
{
	struct generation_id got;

	(void)state;
	assert_int_equal(generation_seen_load(dir, &id.volume, &got), -ENOENT);
	assert_int_equal(generation_seen_save(dir, &id), 0);
	assert_int_equal(generation_seen_load(dir, &id.volume, &got), 0);
	assert_memory_equal(&got, &id, sizeof(got));
	id.generation++;
	assert_int_equal(generation_seen_save(dir, &id), 0);
	assert_int_equal(generation_seen_load(dir, &id.volume, &got), 0);
	assert_true(got.generation == id.generation);
	assert_int_equal(generation_seen_save("/nowhere/at/all", &id), -ENOENT);
}

static void refuses(void **state)
{
	static const char *const bad[] = { "", "\n", "12 ", "12 13\n", "xyz 1 " HASH "\n",
		"1 99999999999999999999999 " HASH "\n", "1 2 " HASH, "1 2 " HASH "3\n",
		"1 2x" HASH "\n", "1 2 z" HASH "\n" };
	static const char good[] = "1 2 " HASH "\n";
	static const uint8_t none[SHA256_BYTES];
	struct generation_id got;
	char text[512];

	(void)state;
	assert_int_equal(file_write_atomic(file, good, strlen(good), 0600), 0);
	memset(&got, 1, sizeof(got));
	assert_int_equal(generation_seen_load(dir, &id.volume, &got), 0);
	assert_memory_equal(got.seal, none, sizeof(none)); /* of an earlier version */
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		assert_int_equal(file_write_atomic(file, bad[i], strlen(bad[i]), 0600), 0);
		assert_int_equal(generation_seen_load(dir, &id.volume, &got), -EBADMSG);
	}
	memset(text, '1', sizeof(text));
	assert_int_equal(file_write_atomic(file, text, sizeof(text), 0600), 0);
	assert_int_equal(generation_seen_load(dir, &id.volume, &got), -EBADMSG);
}

/* A damaged line would contradict the master, for which a new lineage follows. */
static void damage_is_found(void **state)
{
	struct generation_id got;
	struct buf text = BUF_INIT(512);

	(void)state;
	assert_int_equal(generation_seen_save(dir, &id), 0);
	assert_int_equal(file_read_all(file, &text), 0);
	for (size_t bit = 0; bit < 8 * text.len; bit++) {
		text.data[bit / 8] ^= (uint8_t)(1u << bit % 8);
		assert_int_equal(file_write_atomic(file, text.data, text.len, 0600), 0);
		assert_int_equal(generation_seen_load(dir, &id.volume, &got), -EBADMSG);
		text.data[bit / 8] ^= (uint8_t)(1u << bit % 8);
	}
	assert_int_equal(file_write_atomic(file, text.data, text.len, 0600), 0);
	assert_int_equal(generation_seen_load(dir, &id.volume, &got), 0);
	buf_release(&text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(remembers, setup, teardown),
		cmocka_unit_test_setup_teardown(refuses, setup, teardown),
		cmocka_unit_test_setup_teardown(damage_is_found, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
