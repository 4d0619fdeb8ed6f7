/* The YAML writer: the form of every nesting, what is quoted, and that it reads back. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/yaml_tree.h"
#include "base/yaml_writer.h"

static void text(struct yaml_writer *w, const char *value)
{
	yaml_writer_text(w, value, strlen(value));
}

static void form_of_every_nesting(void **state)
{
	struct buf out = BUF_INIT(4096);
	struct yaml_writer w;

	(void)state;
	yaml_writer_init(&w, &out);
	yaml_writer_map(&w);
	yaml_writer_key(&w, "name");
	text(&w, "a b");
	yaml_writer_key(&w, "files");
	yaml_writer_integer(&w, -5);
	yaml_writer_key(&w, "ratio");
	yaml_writer_real(&w, 0.5);
	yaml_writer_key(&w, "whole");
	yaml_writer_real(&w, 2);
	yaml_writer_key(&w, "pin");
	yaml_writer_bool(&w, true);
	yaml_writer_key(&w, "ttl");
	yaml_writer_null(&w);
	yaml_writer_key(&w, "empty");
	yaml_writer_map(&w);
	yaml_writer_end(&w);
	yaml_writer_key(&w, "mounts");
	yaml_writer_list(&w);
	yaml_writer_map(&w);
	yaml_writer_key(&w, "path");
	text(&w, "/");
	yaml_writer_key(&w, "tags");
	yaml_writer_list(&w);
	text(&w, "x");
	yaml_writer_list(&w);
	yaml_writer_integer(&w, 1);
	yaml_writer_integer(&w, 2);
	yaml_writer_end(&w);
	yaml_writer_end(&w);
	yaml_writer_end(&w);
	yaml_writer_list(&w);
	yaml_writer_end(&w);
	yaml_writer_end(&w);
	yaml_writer_end(&w);
	assert_int_equal(yaml_writer_finish(&w), 0);
	assert_string_equal(buf_str(&out), "name: a b\n"
					   "files: -5\n"
					   "ratio: 0.5\n"
					   "whole: 2.0\n"
					   "pin: true\n"
					   "ttl: null\n"
					   "empty: {}\n"
					   "mounts:\n"
					   "  - path: /\n"
					   "    tags:\n"
					   "      - x\n"
					   "      - - 1\n"
					   "        - 2\n"
					   "  - []\n");
	buf_release(&out);
}

static void what_could_mean_more_is_quoted(void **state)
{
	static const char *const plain[] = { "a", "/data/x", "s3://b/p", "a b", "x=1,2", "a:b",
		"_x", "Null-ish" };
	static const char *const quoted[] = { "", "yes", "No", "TRUE", "null", "~", "1", "1e3",
		"0x10", "1:30", "-", "- a", "a: b", "a:", "a #b", "a ", " a", "#", "*a", "&a", "!a",
		"@a", "%a", "'a'", "\"a\"", "a\\b", "a\nb", "a\tb", "\x01", "[a]", "{a}", "a,b]",
		".inf", "2026-11-22", "\xc3\xa4", "=", "<<" };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(plain) + ARRAY_SIZE(quoted); i++) {
		bool is_plain = i < ARRAY_SIZE(plain);
		const char *value = is_plain ? plain[i] : quoted[i - ARRAY_SIZE(plain)];
		struct buf out = BUF_INIT(4096);
		struct yaml_tree *tree = NULL;
		struct yaml_writer w;

		yaml_writer_init(&w, &out);
		yaml_writer_map(&w);
		yaml_writer_key(&w, value);
		text(&w, value);
		yaml_writer_end(&w);
		assert_int_equal(yaml_writer_finish(&w), 0);
		/* No comma in plain text: within [ ] it would end it. */
		if (strcmp(value, "x=1,2") == 0)
			is_plain = false;
		if ((buf_str(&out)[0] != '"') != is_plain)
			fail_msg("'%s' is written: %s", value, buf_str(&out));
		assert_int_equal(yaml_tree_parse("f", out.data, out.len, &tree, NULL), 0);
		assert_string_equal(tree->root->first->key, value);
		assert_string_equal(tree->root->first->text, value);
		yaml_tree_free(tree);
		buf_release(&out);
	}
}

static void bytes_that_are_no_text_are_replaced(void **state)
{
	static const struct {
		const char *bytes;
		const char *written;
	} cases[] = {
		{ "a\xff", "\"a\\ufffd\"\n" },
		{ "\xc3", "\"\\ufffd\"\n" },
		{ "\xed\xa0\x80", "\"\\ufffd\\ufffd\\ufffd\"\n" },
		{ "\xe2\x80\xa8", "\"\\u2028\"\n" },
		{ "\xc2\x85", "\"\\u0085\"\n" },
		{ "\xf0\x9f\x8c\xbe", "\"\xf0\x9f\x8c\xbe\"\n" },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct buf out = BUF_INIT(4096);
		struct yaml_writer w;

		yaml_writer_init(&w, &out);
		text(&w, cases[i].bytes);
		assert_int_equal(yaml_writer_finish(&w), 0);
		assert_string_equal(buf_str(&out), cases[i].written);
		buf_release(&out);
	}
}

static void reals_stay_reals(void **state)
{
	static const struct {
		double value;
		const char *written;
	} cases[] = { { 1e300, "1.0e+300\n" }, { 0.1, "0.1\n" }, { 2.5e-7, "2.5e-07\n" },
		{ 1.0 / 3, "0.3333333333333333\n" }, { NAN, ".nan\n" }, { -INFINITY, "-.inf\n" },
		{ INFINITY, ".inf\n" }, { 3, "3.0\n" } };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct buf out = BUF_INIT(64);
		struct yaml_writer w;

		yaml_writer_init(&w, &out);
		yaml_writer_real(&w, cases[i].value);
		assert_int_equal(yaml_writer_finish(&w), 0);
		assert_string_equal(buf_str(&out), cases[i].written);
		buf_release(&out);
	}
}

static void what_does_not_fit_is_told_at_the_end(void **state)
{
	struct buf out = BUF_INIT(8);
	struct yaml_writer w;

	(void)state;
	yaml_writer_init(&w, &out);
	yaml_writer_list(&w);
	for (int i = 0; i < 100; i++)
		text(&w, "abc");
	yaml_writer_end(&w);
	assert_int_equal(yaml_writer_finish(&w), -ENOBUFS);
	buf_release(&out);
	out = BUF_INIT(4096);
	yaml_writer_init(&w, &out);
	for (unsigned int i = 0; i <= YAML_WRITER_DEPTH; i++)
		yaml_writer_list(&w);
	for (unsigned int i = 0; i <= YAML_WRITER_DEPTH; i++)
		yaml_writer_end(&w);
	assert_int_equal(yaml_writer_finish(&w), -E2BIG);
	buf_release(&out);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(form_of_every_nesting),
		cmocka_unit_test(what_could_mean_more_is_quoted),
		cmocka_unit_test(bytes_that_are_no_text_are_replaced),
		cmocka_unit_test(reals_stay_reals),
		cmocka_unit_test(what_does_not_fit_is_told_at_the_end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
