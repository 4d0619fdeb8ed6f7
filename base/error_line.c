/* The line of a failed command. See error_line.h. */
#include "base/error_line.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static bool as_object;

/* The value of -o in `word`, or in `next`; NULL: `word` is another one. */
static const char *form_in(const char *word, const char *next)
{
	static const char name[] = "--output=";

	if (strcmp(word, "-o") == 0 || strcmp(word, "--output") == 0)
		return next;
	if (strncmp(word, name, sizeof(name) - 1) == 0)
		return word + sizeof(name) - 1;
	return strncmp(word, "-o", 2) == 0 ? word + 2 + (word[2] == '=') : NULL;
}

void error_line_take_form(int argc, char **argv)
{
	for (int i = 1; i < argc && argv[i] && strcmp(argv[i], "--") != 0; i++) {
		const char *form = form_in(argv[i], argv[i + 1]);

		if (form)
			as_object = strcmp(form, "json") == 0 || strcmp(form, "yaml") == 0;
	}
}

/* Texts of errors are one line of UTF-8. */
static void put_quoted(const char *text)
{
	(void)fputc('"', stderr);
	for (; *text; text++)
		(void)fprintf(stderr, *text == '"' || *text == '\\' ? "\\%c" : "%c", *text);
	(void)fputc('"', stderr);
}

int error_line_print(const char *program, int status, const struct err *e)
{
	if (!as_object) {
		(void)fprintf(stderr, "%s: %s\n", program, e->text);
		return status;
	}
	(void)fprintf(stderr,
		"{\"error\": {\"code\": \"%s\", \"text\": ", e->code ? err_name(e->code) : "EIO");
	put_quoted(e->text);
	(void)fprintf(stderr, "}, \"exit\": %d}\n", status);
	return status;
}
