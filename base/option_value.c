/* Values of options as they lie in a struct. See option_internal.h. */
#include "base/option_internal.h"

#include <string.h>

size_t option_value_bytes(const struct option_spec *spec)
{
	switch (spec->kind) {
	case OPTION_BOOL:
		return sizeof(bool);
	case OPTION_FD:
		return sizeof(int);
	case OPTION_LIST:
		return sizeof(struct option_list);
	case OPTION_STRING:
	case OPTION_CHOICE:
		return sizeof(const char *);
	case OPTION_SIZE:
	case OPTION_RATE:
	case OPTION_DURATION:
	case OPTION_UINT:
	case OPTION_OCTAL:
		break;
	}
	return sizeof(uint64_t);
}

static bool same_text(const char *a, const char *b)
{
	return a == b || (a && b && strcmp(a, b) == 0);
}

bool option_same_value(const struct option_spec *spec, const void *a, const void *b)
{
	const void *x = (const char *)a + spec->offset;
	const void *y = (const char *)b + spec->offset;

	if (spec->kind == OPTION_STRING || spec->kind == OPTION_CHOICE)
		return same_text(*(const char *const *)x, *(const char *const *)y);
	if (spec->kind == OPTION_LIST) {
		const struct option_list *p = x;
		const struct option_list *q = y;

		for (unsigned int i = 0; p->n == q->n && i < p->n; i++)
			if (!same_text(p->values[i], q->values[i]))
				return false;
		return p->n == q->n;
	}
	return memcmp(x, y, option_value_bytes(spec)) == 0;
}

void option_value_text(const struct option_spec *spec, const void *values, char *out, size_t size)
{
	const void *at = (const char *)values + spec->offset;
	const struct option_list *list = at;
	int n = 0;

	out[0] = '\0';
	switch (spec->kind) {
	case OPTION_STRING:
	case OPTION_CHOICE:
		(void)snprintf(out, size, "%s",
			*(const char *const *)at ? *(const char *const *)at : ""); /* cut */
		return;
	case OPTION_BOOL:
		(void)snprintf(out, size, "%s", *(const bool *)at ? "true" : "false");
		return;
	case OPTION_FD:
		(void)snprintf(out, size, "%d", *(const int *)at);
		return;
	case OPTION_LIST:
		for (unsigned int i = 0; i < list->n && n >= 0 && (size_t)n < size; i++)
			n += snprintf(out + n, size - (size_t)n, "%s%s", i ? " " : "",
				list->values[i]); /* cut */
		return;
	case OPTION_SIZE:
	case OPTION_RATE:
	case OPTION_DURATION:
	case OPTION_UINT:
	case OPTION_OCTAL:
		option_number_text(spec, *(const uint64_t *)at, out, size);
		return;
	}
}
