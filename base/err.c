/* Errors with a line of text for the person who must act. See err.h. */
#include "base/err.h"
#include "base/utf8.h"

#include <stdio.h>
#include <string.h>

#define ERRNO_MAX 133 /* EHWPOISON, Linux' last */

int err_vset(struct err *e, int code, const char *fmt, va_list ap)
{
	ensure(code < 0);
	if (!e)
		return code;
	e->code = code;
	(void)vsnprintf(e->text, sizeof(e->text), fmt, ap); /* cut at the maximum: one line */
	utf8_make_line(e->text);
	return code;
}

int err_set(struct err *e, int code, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	(void)err_vset(e, code, fmt, ap); /* returns code */
	va_end(ap);
	return code;
}

int err_prefix(struct err *e, const char *fmt, ...)
{
	char what[256];
	char old[ERR_TEXT_MAX];
	va_list ap;

	if (!e)
		return -EIO;
	va_start(ap, fmt);
	(void)vsnprintf(what, sizeof(what), fmt, ap); /* cut at the maximum */
	va_end(ap);
	memcpy(old, e->text, sizeof(old));
	(void)snprintf(e->text, sizeof(e->text), "%s: %.*s", what,
		(int)(sizeof(e->text) - sizeof(what) - 3), old);
	utf8_make_line(e->text);
	return e->code;
}

int err_advise(struct err *e)
{
	const char *what = NULL;
	size_t len = strlen(e->text);

	if (e->code == -ENOMEM && !strstr(e->text, "free some") && !strstr(e->text, "--memory"))
		what = "free some, or raise the limit of the control group";
	else if ((e->code == -EMFILE || e->code == -ENFILE) && !strstr(e->text, "ulimit"))
		what = "raise the limit of open files (ulimit -n)";
	if (what)
		(void)snprintf(
			e->text + len, sizeof(e->text) - len, ": %s", what); /* cut where long */
	return e->code;
}

int err_default(struct err *e, int code, const char *what)
{
	if (e && (e->code == 0 || e->text[0] == '\0'))
		return err_set(e, code, "%s: %s", what, err_str(code));
	return code;
}

const char *err_str(int code)
{
	static _Thread_local char text[128];

	return strerror_r(-code, text, sizeof(text));
}

const char *err_name(int code)
{
	static _Thread_local char number[16];
	const char *name = strerrorname_np(-code);

	if (name)
		return name;
	(void)snprintf(number, sizeof(number), "E%d", -code);
	return number;
}

int err_of_name(const char *name)
{
	for (int n = 1; name && n <= ERRNO_MAX; n++) {
		const char *known = strerrorname_np(n);

		if (known && strcmp(known, name) == 0)
			return -n;
	}
	return -EIO;
}
