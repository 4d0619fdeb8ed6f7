/* Which route a path means. Pure. See admin_internal.h. */
#include "admin/admin_internal.h"

#include <string.h>

static int hex(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* The byte that "%2F" stands for; -1: no such. */
static int escaped(const char *at, size_t left)
{
	int high = left >= 3 ? hex(at[1]) : -1;
	int low = left >= 3 ? hex(at[2]) : -1;

	return high < 0 || low < 0 ? -1 : high * 16 + low;
}

/* Decodes one part of a path. Its length; -EINVAL: it cannot be a name. */
static int decode_part(const char *part, size_t len, char out[ADMIN_PARAM_BYTES])
{
	int n = 0;

	for (size_t i = 0; i < len;) {
		bool is_escape = part[i] == '%';
		int c = is_escape ? escaped(part + i, len - i) : (unsigned char)part[i];

		if (c <= 0 || c == '/' || n + 1 >= ADMIN_PARAM_BYTES)
			return -EINVAL;
		out[n++] = (char)c;
		i += is_escape ? 3 : 1;
	}
	out[n] = '\0';
	return n;
}

/* Does that part of a pattern stand for any? */
static bool is_param(const char *pattern, size_t len)
{
	return len > 2 && pattern[0] == '{' && pattern[len - 1] == '}';
}

static bool match_part(
	const char *pattern, size_t pattern_len, const char *part, struct admin_params *params)
{
	struct admin_param *param = &params->list[params->n];

	if (!is_param(pattern, pattern_len))
		return strncmp(pattern, part, pattern_len) == 0 && part[pattern_len] == '\0';
	ensure(params->n < ADMIN_PARAMS_MAX); /* of our own tables */
	param->name = pattern + 1;
	param->name_len = pattern_len - 2;
	(void)snprintf(param->value, sizeof(param->value), "%s", part); /* fits */
	params->n++;
	return true;
}

int admin_route_match(const char *pattern, const char *path, struct admin_params *ret_params)
{
	struct admin_params params = { 0 };
	char part[ADMIN_PARAM_BYTES];

	while (*pattern == '/' && *path == '/') {
		size_t want = strcspn(++pattern, "/");
		size_t have = strcspn(++path, "/");
		int r = decode_part(path, have, part);

		if (r < 0)
			return is_param(pattern, want) ? r : 0;
		if ((r == 0 && is_param(pattern, want)) ||
			!match_part(pattern, want, part, &params))
			return 0;
		pattern += want;
		path += have;
	}
	if (*pattern || *path)
		return 0;
	*ret_params = params;
	return 1;
}

/* In place: "a%20b" -> "a b", as a '+' does. -EINVAL: with NUL, or half an escape. */
static int decode_value(char *value)
{
	char *out = value;

	for (const char *in = value; *in;) {
		int c = *in == '%'   ? escaped(in, strlen(in))
			: *in == '+' ? ' '
				     : (unsigned char)*in;

		if (c <= 0)
			return -EINVAL;
		in += *in == '%' ? 3 : 1;
		*out++ = (char)c;
	}
	*out = '\0';
	return 0;
}

int admin_query_parse(char *text, struct admin_query *ret_query, struct err *e)
{
	struct admin_query query = { 0 };
	char *pair;

	while ((pair = strsep(&text, "&")) != NULL) {
		char *name = strsep(&pair, "=");

		if (!*name && !pair) /* "a=1&&b=2&" */
			continue;
		if (query.n == ADMIN_QUERY_MAX)
			return err_set(e, -EINVAL, "the query has more than %u names: send fewer",
				ADMIN_QUERY_MAX);
		if (admin_query_find(&query, name)) /* a check before may have seen the other */
			return err_set(e, -EINVAL,
				"'%.64s' occurs twice in the query: send it once", name);
		if (pair && decode_value(pair) < 0)
			return err_set(e, -EINVAL, "invalid value of '%.64s' in the query", name);
		query.names[query.n] = name;
		query.values[query.n++] = pair ? pair : "";
	}
	*ret_query = query;
	return 0;
}

const char *admin_query_find(const struct admin_query *query, const char *name)
{
	for (unsigned int i = 0; i < query->n; i++)
		if (strcmp(query->names[i], name) == 0)
			return query->values[i];
	return NULL;
}

const char *admin_params_find(const struct admin_params *params, const char *name)
{
	for (unsigned int i = 0; i < params->n; i++) {
		const struct admin_param *param = &params->list[i];

		if (strlen(name) == param->name_len &&
			strncmp(param->name, name, param->name_len) == 0)
			return param->value;
	}
	return NULL;
}
