/* JSON as YAML. See yaml_out.h. */
#include "ctl/yaml_out.h"
#include "admin/admin.h"
#include "base/cleanup.h"
#include "base/yaml_writer.h"
#include "ctl/command.h"

#include <string.h>

#define DEPTH_MAX (YAML_WRITER_DEPTH - 1)

static void write_value(struct yaml_writer *w, const json_t *json, unsigned int depth);

static void write_object(struct yaml_writer *w, const json_t *json, unsigned int depth)
{
	const char *name;
	json_t *value;

	yaml_writer_map(w);
	json_object_foreach ((json_t *)(uintptr_t)json, name, value) { /* only read */
		yaml_writer_key(w, name);
		write_value(w, value, depth);
	}
	yaml_writer_end(w);
}

static void write_array(struct yaml_writer *w, const json_t *json, unsigned int depth)
{
	const json_t *value;
	size_t i;

	yaml_writer_list(w);
	json_array_foreach (json, i, value)
		write_value(w, value, depth);
	yaml_writer_end(w);
}

/* The recursion ends where the writer does. */
static void write_value(struct yaml_writer *w, const json_t *json, unsigned int depth)
{
	if (depth > DEPTH_MAX && (json_is_object(json) || json_is_array(json)))
		w->error = w->error ? w->error : -E2BIG;
	if (w->error)
		return;
	if (json_is_object(json))
		write_object(w, json, depth + 1);
	else if (json_is_array(json))
		write_array(w, json, depth + 1);
	else if (json_is_string(json))
		yaml_writer_text(w, json_string_value(json), json_string_length(json));
	else if (json_is_integer(json))
		yaml_writer_integer(w, json_integer_value(json));
	else if (json_is_real(json))
		yaml_writer_real(w, json_real_value(json));
	else if (json_is_boolean(json))
		yaml_writer_bool(w, json_is_true(json));
	else
		yaml_writer_null(w);
}

int yaml_out(const json_t *json, FILE *out)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(YAML_OUT_BYTES);
	struct yaml_writer w;
	int r;

	yaml_writer_init(&w, &text);
	write_value(&w, json, 0);
	r = w.error ? w.error : yaml_writer_finish(&w);
	if (r < 0)
		return r;
	return fwrite(text.data, 1, text.len, out) == text.len && fflush(out) == 0 ? 0 : -EIO;
}

int yaml_out_as(const char *format, const json_t *json, FILE *out)
{
	_cleanup_free_ char *text = NULL;

	if (strcmp(format, "yaml") == 0)
		return yaml_out(json, out);
	text = admin_json_text(json, JSON_INDENT(2));
	if (!text)
		return -ENOMEM;
	return fprintf(out, "%s\n", text) < 0 || fflush(out) != 0 ? -EIO : 0;
}

int yaml_out_answer(const char *format, const json_t *json)
{
	struct err e = ERR_INIT;
	int r = json ? yaml_out_as(format, json, stdout) : -ENOMEM;

	if (r == 0)
		return EXIT_OK;
	(void)err_set(&e, r, "the output cannot be written: %s: check that standard output is open",
		err_str(r));
	return command_fail(EXIT_RUNTIME, &e);
}

int yaml_out_made(const char *format, json_t *json)
{
	int status = yaml_out_answer(format, json);

	json_decref(json);
	return status;
}

bool output_is_table(const char *format)
{
	return strcmp(format, "table") == 0 || strcmp(format, "wide") == 0;
}
