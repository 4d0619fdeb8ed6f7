/*
 * Configuration, with every allocation failing once: it is read whole or refused with a line, and a
 * second look changes all that it may or nothing.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/config.h"
#include "base/file.h"
#include "base/yaml_writer.h"
#include "tests/alloc/alloc_fail.h"

struct values {
	const char *config;
	struct option_list tiers;
	const char *state;
	uint64_t rate;
};

static const struct option_spec specs[] = {
	OPTION_STRING_ROW(struct values, config, "config", "FILE", "a file"),
	OPTION_ROW(struct values, tiers, "tier", OPTION_LIST, .reload = true, .help = "places"),
	OPTION_ROW(struct values, state, "state", OPTION_STRING, .reload = true,
		.help = "a directory"),
	OPTION_ROW(struct values, rate, "rate", OPTION_SIZE, .reload = true, .help = "a size"),
};

static const struct option_set set = { .program = "prog",
	.arguments = "",
	.section = "worker",
	.specs = specs,
	.n = ARRAY_SIZE(specs) };

static char dir[] = "/tmp/granary-alloc-XXXXXX";
static char path[sizeof(dir) + 8];

static void write_file(const char *text)
{
	uint64_t at = alloc_fail_suspend();

	assert_int_equal(file_write_atomic(path, text, strlen(text), 0600), 0);
	alloc_fail(at);
}

static int setup(void **state)
{
	(void)state;
	if (!mkdtemp(dir))
		return -1;
	(void)snprintf(path, sizeof(path), "%s/f", dir);
	return setenv("GRANARY_WORKER_RATE", "1MiB", 1);
}

static int teardown(void **state)
{
	(void)state;
	(void)unlink(path);
	return rmdir(dir);
}

static int life(void *arg)
{
	char program[] = "prog";
	char config[] = "--config";
	char *argv[] = { program, config, path, NULL };
	struct values v = { 0 };
	struct config *c = NULL;
	struct err e = ERR_INIT;
	int r;

	(void)arg;
	write_file("worker:\n  tier: [ /a, /b ]\n  state: /one\n");
	r = config_open(&set, 3, argv, &v, sizeof(v), &c, &e);
	if (r < 0) {
		assert_true(e.text[0] && !c && !v.state && v.tiers.n == 0);
		return r;
	}
	assert_string_equal(v.tiers.values[1], "/b");
	assert_string_equal(v.state, "/one");
	write_file("worker:\n  tier: [ /c ]\n  state: /two\n");
	r = config_reload(c, &e);
	assert_string_equal(v.state, r < 0 ? "/one" : "/two");
	assert_string_equal(v.tiers.values[0], r < 0 ? "/a" : "/c");
	assert_true(r >= 0 || e.text[0]);
	config_free(c);
	return r < 0 ? r : 0;
}

static void configuration(void **state)
{
	(void)state;
	assert_true(alloc_sweep(life, NULL, 1) > 20);
}

static int write_yaml(void *arg)
{
	struct buf out = BUF_INIT(1u << 20);
	struct yaml_writer w;
	int r;

	(void)arg;
	yaml_writer_init(&w, &out);
	yaml_writer_list(&w);
	for (int i = 0; i < 1000; i++)
		yaml_writer_text(&w, "text", 4);
	yaml_writer_end(&w);
	r = yaml_writer_finish(&w);
	assert_true(r < 0 || out.len == 7000);
	buf_release(&out);
	return r;
}

static void yaml(void **state)
{
	(void)state;
	assert_true(alloc_sweep(write_yaml, NULL, 1) > 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(configuration),
		cmocka_unit_test(yaml),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
