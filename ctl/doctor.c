/* Findings, and what the areas share. See doctor.h. */
#include "ctl/doctor.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/err.h"
#include "base/file.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const level_names[] = { "OK", "WARN", "FAIL" };

void doctor_add(struct doctor *d, enum finding_level level, int status, const char *area,
	const char *fmt, ...)
{
	struct err line = ERR_INIT; /* makes one line of whatever came from outside */
	va_list ap;

	va_start(ap, fmt);
	(void)err_vset(&line, -EIO, fmt, ap); /* returns the code */
	va_end(ap);
	if (level == FINDING_FAIL && d->status == EXIT_OK)
		d->status = status;
	if (d->n == DOCTOR_FINDINGS_MAX)
		return; /* more than all areas have together */
	d->findings[d->n++] =
		(struct finding){ .level = level, .area = area, .text = strdup(line.text) };
}

int doctor_read_number(const char *path, uint64_t *ret_number)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(4096);
	char *end;
	uint64_t number;
	int r = file_read_all(path, &text);

	if (r < 0)
		return r;
	number = strtoull(buf_str(&text), &end, 10);
	if (end == buf_str(&text))
		return -EINVAL;
	*ret_number = number;
	return 0;
}

void doctor_redact_proxy(const char *proxy, char *out, size_t size)
{
	const char *scheme_end = strstr(proxy, "://");
	const char *host = scheme_end ? scheme_end + 3 : proxy;
	size_t len = strcspn(host, "/?#");
	const char *at = memrchr(host, '@', len);
	int scheme = (int)(host - proxy);

	if (at) {
		len -= (size_t)(at + 1 - host);
		host = at + 1;
	}
	(void)snprintf(out, size, "%.*s%.*s", scheme, proxy, (int)len, host); /* cut: shown only */
}

json_t *doctor_json(const struct doctor *d)
{
	json_t *list = json_array();

	for (unsigned int i = 0; i < d->n; i++) {
		const struct finding *f = &d->findings[i];

		(void)json_array_append_new(
			list, json_pack("{s:s, s:s, s:s}", "level", level_names[f->level], "area",
				      f->area, "text",
				      f->text ? f->text : "")); /* without memory: a row less */
	}
	return json_pack("{s:i, s:o}", "status", d->status, "findings", list);
}

void doctor_print(const struct doctor *d, FILE *out)
{
	for (unsigned int i = 0; i < d->n; i++)
		(void)fprintf(out, "%-4s  %-7s  %s\n", level_names[d->findings[i].level],
			d->findings[i].area, d->findings[i].text ? d->findings[i].text : "");
}

void doctor_release(struct doctor *d)
{
	for (unsigned int i = 0; i < d->n; i++)
		free(d->findings[i].text);
	d->n = 0;
}
