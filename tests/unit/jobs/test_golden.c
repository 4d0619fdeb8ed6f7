/*
 * Objects of jobs, compared with golden ones. golden/TYPE has sections: a line `$ FLAGS`, then what differs from the first section,
 * of which every field is listed. Objects also pass the schemas of their kinds, strictly. GRANARY_WRITE_GOLDEN=1 writes the files.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/file.h"
#include "jobs/compile.h"
#include "jobs/field_path.h"
#include "jobs/job_flag.h"
#include "jobs/lint.h"
#include "jobs/schema.h"

#define GOLDEN_BYTES (4u << 20)
#define WORDS_MAX    96
#define LINES_MAX    4096

static const char *top(void)
{
	return "tests/unit/jobs/golden";
}

/* ---- a command line -------------------------------------------------------------------------- */

/* Splits at blanks, but not in '...'; in place. */
static int split_words(char *line, char **words)
{
	int n = 0;
	char *p = line;

	while (*p) {
		char *out = p;

		words[n] = p;
		while (*p && *p != ' ')
			if (*p == '\'') {
				for (p++; *p && *p != '\''; p++)
					*out++ = *p;
				p += *p != '\0';
			} else {
				*out++ = *p++;
			}
		p += *p != '\0';
		*out = '\0';
		assert_true(++n < WORDS_MAX);
	}
	return n;
}

static int compile_line(const char *line, struct job_objects *ret, struct err *e)
{
	char *copy = strdup(line);
	char *words[WORDS_MAX] = { NULL };
	struct option_spec *specs = calloc(JOB_FLAGS_MAX, sizeof(*specs));
	struct job_flag_values *values = calloc(1, sizeof(*values));
	const struct job_type *type = NULL;
	struct job_spec spec;
	json_t *notes = json_array();
	struct option_set set = {
		.program = "submit", .arguments = "", .specs = specs, .max_args = 90, .command = 2
	};
	int n = split_words(copy, words + 1) + 1;
	int args = 0;
	int r;

	assert_int_equal(job_spec_init(&spec), 0);
	r = job_type_find(words[1], &type, e);
	if (r == 0) {
		set.n = job_flag_options(type, specs, 0);
		r = option_parse(&set, n, words, values, &args, e);
	}
	if (r == 0)
		r = job_flag_take(type, values, false, words + 2, args - 1, &spec, notes, e);
	if (r == 0)
		r = job_spec_finish(&spec, e);
	if (r == 0)
		r = job_compile(&spec, ret, e);
	job_spec_release(&spec);
	json_decref(notes);
	free(values);
	free(specs);
	free(copy);
	return r;
}

/* ---- objects as lines ------------------------------------------------------------------------ */

struct lines {
	char *all[LINES_MAX];
	size_t n;
};

static void flatten(struct lines *lines, const char *object, const char *path, json_t *value)
{
	char below[FIELD_PATH_BYTES];
	const char *key;
	json_t *item;
	size_t i;

	if (json_object_size(value) + json_array_size(value) == 0) {
		char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);

		assert_true(lines->n < LINES_MAX);
		assert_true(
			asprintf(&lines->all[lines->n++], "%s %s = %s", object, path, text) > 0);
		free(text);
	}
	json_object_foreach (value, key, item)
		flatten(lines, object, field_path_key(path, key, below), item);
	json_array_foreach (value, i, item)
		flatten(lines, object, field_path_index(path, i, below), item);
}

static void flatten_all(struct lines *lines, const json_t *list)
{
	json_t *object;
	size_t i;

	json_array_foreach (list, i, object)
		flatten(lines, json_string_value(json_object_get(object, "kind")), "", object);
}

static void lines_release(struct lines *lines)
{
	for (size_t i = 0; i < lines->n; i++)
		free(lines->all[i]);
	lines->n = 0;
}

static bool has_line(const struct lines *lines, const char *line)
{
	for (size_t i = 0; i < lines->n; i++)
		if (strcmp(lines->all[i], line) == 0)
			return true;
	return false;
}

/* ---- what the linter finds ------------------------------------------------------------------- */

static struct job_schemas schemas;

/* What the linter finds as a line each; none may be an error. Each kind has a schema, which the linter compares with. */
static void add_findings(struct buf *out, const json_t *list, const char *line)
{
	json_t *findings = json_array();
	struct err e = ERR_INIT;
	const json_t *one;
	size_t i;

	json_array_foreach (list, i, one)
		assert_non_null(job_schema_of(&schemas,
			json_string_value(json_object_get(one, "apiVersion")),
			json_string_value(json_object_get(one, "kind"))));
	assert_int_equal(job_lint(list, findings, &e), 0);
	json_array_foreach (findings, i, one)
		assert_int_equal(buf_printf(out, "lint: %s %s\n",
					 json_string_value(json_object_get(one, "rule")),
					 json_string_value(json_object_get(one, "field"))),
			0);
	if (job_lint_errors(findings) > 0)
		fail_msg("%s: %s", line, json_dumps(findings, JSON_INDENT(1)));
	json_decref(findings);
}

/* ---- golden files ---------------------------------------------------------------------------- */

static unsigned int n_objects;

static void write_section(struct buf *out, const char *line, const struct lines *first)
{
	struct job_objects objects;
	struct lines lines = { 0 };
	struct err e = ERR_INIT;
	int r = compile_line(line, &objects, &e);

	assert_int_equal(buf_printf(out, "$ %s\n", line), 0);
	if (r < 0) {
		assert_int_equal(buf_printf(out, "refused: %s\n\n", e.text), 0);
		return;
	}
	n_objects += (unsigned int)json_array_size(objects.list);
	flatten_all(&lines, objects.list);
	for (size_t i = 0; i < lines.n; i++)
		if (!first || !has_line(first, lines.all[i]))
			assert_int_equal(
				buf_printf(out, "%s%s\n", first ? "+" : "", lines.all[i]), 0);
	for (size_t i = 0; first && i < first->n; i++)
		if (!has_line(&lines, first->all[i]))
			assert_int_equal(buf_printf(out, "-%s\n", first->all[i]), 0);
	add_findings(out, objects.list, line);
	assert_int_equal(buf_puts(out, "\n"), 0);
	lines_release(&lines);
	job_objects_release(&objects);
}

/* The file again, made of its own command lines. */
static void make_again(const char *text, struct buf *out)
{
	struct lines first = { 0 };
	char *copy = strdup(text);
	char *rest = copy;
	char *line;

	while ((line = strsep(&rest, "\n"))) {
		struct job_objects objects;
		struct err e = ERR_INIT;

		if (line[0] != '$')
			continue;
		write_section(out, line + 2, first.n ? &first : NULL);
		if (first.n == 0) {
			assert_int_equal(compile_line(line + 2, &objects, &e), 0);
			flatten_all(&first, objects.list);
			job_objects_release(&objects);
		}
	}
	lines_release(&first);
	free(copy);
}

static void show_difference(const char *path, const char *old, const char *new)
{
	size_t at = 0;
	size_t begin;

	while (old[at] && old[at] == new[at])
		at++;
	for (begin = at; begin > 0 && old[begin - 1] != '\n'; begin--)
		;
	fail_msg("%s: differs:\n-%.300s\n+%.300s\nGRANARY_WRITE_GOLDEN=1 writes it again", path,
		old + begin, new + begin);
}

static void check_file(const char *type)
{
	_cleanup_(buf_release) struct buf old = BUF_INIT(GOLDEN_BYTES);
	_cleanup_(buf_release) struct buf new = BUF_INIT(GOLDEN_BYTES);
	char path[128];
	FILE *f;

	(void)snprintf(path, sizeof(path), "%s/%s", top(), type);
	assert_int_equal(file_read_all(path, &old), 0);
	make_again(buf_str(&old), &new);
	if (getenv("GRANARY_WRITE_GOLDEN")) { // NOLINT(concurrency-mt-unsafe): one thread
		f = fopen(path, "w");
		assert_non_null(f);
		assert_int_equal(fwrite(new.data, 1, new.len, f), new.len);
		assert_int_equal(fclose(f), 0);
	} else if (strcmp(buf_str(&old), buf_str(&new)) != 0) {
		show_difference(path, buf_str(&old), buf_str(&new));
	}
}

static void golden(void **state)
{
	struct err e = ERR_INIT;

	(void)state;
	assert_int_equal(job_schemas_open(&schemas, &e), 0);
	for (unsigned int i = 0; job_type_at(i); i++)
		check_file(job_type_at(i)->name);
	job_schemas_close(&schemas);
	print_message("%u golden objects\n", n_objects);
	assert_true(n_objects >= 300);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(golden),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
