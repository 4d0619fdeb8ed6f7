/*
 * JSON that is whole or fails. jansson loses characters, members and optional values without a word
 * when memory runs out in the middle (2.14: strbuffer_append_byte() in its lexer, dump_string() of
 * a key), which must not get into a record: so its allocations that fail are counted.
 */
#include "admin/admin.h"
#include "base/cleanup.h"
#include "base/clock.h"

#include <stdlib.h>
#include <string.h>

/* With more, the text of a decimal fraction shows how it is rounded in binary: 0.93899999999999995. */
#define REAL_DIGITS 15

static _Thread_local uint64_t failures;

static void *counted_malloc(size_t n)
{
	void *p = malloc(n);

	if (!p)
		failures++;
	return p;
}

/* Before any value is made. */
__attribute__((constructor)) static void count_allocations(void)
{
	json_set_alloc_funcs(counted_malloc, free);
}

uint64_t admin_json_failures(void)
{
	return failures;
}

char *admin_json_text(const json_t *json, size_t flags)
{
	uint64_t before = failures;
	char *text = json ? json_dumps(json, flags | JSON_REAL_PRECISION(REAL_DIGITS)) : NULL;

	if (failures != before) {
		free(text);
		return NULL;
	}
	return text;
}

json_t *admin_json_string(const char *text)
{
	json_t *json = json_string(text);
	_cleanup_free_ char *ascii = NULL;

	if (json)
		return json;
	ascii = strdup(text);
	if (!ascii) {
		failures++;
		return NULL;
	}
	for (char *c = ascii; *c; c++)
		if ((unsigned char)*c >= 0x80)
			*c = '?';
	return json_string(ascii);
}

json_t *admin_json_time(int64_t wall_ns)
{
	return json_real((double)wall_ns / (double)CLOCK_SECOND);
}

int admin_json_parse(
	const char *text, size_t len, size_t flags, json_t **ret_json, json_error_t *ret_where)
{
	uint64_t before = failures;
	json_t *json = json_loadb(text, len, flags, ret_where);

	if (failures != before) {
		json_decref(json);
		return -ENOMEM;
	}
	if (!json)
		return -EBADMSG;
	*ret_json = json;
	return 0;
}
