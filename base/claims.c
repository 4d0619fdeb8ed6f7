/* Forms of callers. See claims.h. */
#include "base/claims.h"
#include "base/cleanup.h"

#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME_CHARS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._@$-"
#define PREFIX     4u /* "uid:" */
#define TEXT_BYTES 16384u
#define TEXT_MAX   (TEXT_BYTES << 10) /* a group of a million members */

static bool is_form(const char *form, size_t len)
{
	return len > PREFIX && len < CLAIMS_FORM_BYTES &&
	       (strncmp(form, "uid:", PREFIX) == 0 || strncmp(form, "gid:", PREFIX) == 0) &&
	       form[PREFIX] != '-' && strspn(form + PREFIX, NAME_CHARS) >= len - PREFIX;
}

int claims_check_form(const char *form, struct err *e)
{
	if (strcmp(form, "*") == 0 || is_form(form, strlen(form)))
		return 0;
	return err_set(e, -EINVAL,
		"invalid entry '%.80s' of 'allow': use uid:NAME, gid:NAME (or a number), or *",
		form);
}

static int add(struct buf *out, const char *form)
{
	return buf_printf(out, "%s%s", out->len ? "," : "", form);
}

static int add_number(struct buf *out, const char *kind, unsigned long number)
{
	char form[CLAIMS_FORM_BYTES];

	(void)snprintf(form, sizeof(form), "%s:%lu", kind, number); /* fits */
	return add(out, form);
}

/* In `*text`, which is the caller's to free. NULL: it has none, or none is known. */
static const char *name_of(const char *kind, unsigned long number, char **text)
{
	struct passwd user;
	struct group group;
	struct passwd *found_user = NULL;
	struct group *found_group = NULL;
	int r = ERANGE;

	/* A group has the names of all its members with it. */
	for (size_t size = TEXT_BYTES; r == ERANGE && size <= TEXT_MAX; size *= 4) {
		free(*text);
		*text = malloc(size);
		if (!*text)
			return NULL;
		r = kind[0] == 'u' ? getpwuid_r((uid_t)number, &user, *text, size, &found_user)
				   : getgrgid_r((gid_t)number, &group, *text, size, &found_group);
	}
	if (r != 0)
		return NULL;
	return found_user ? user.pw_name : found_group ? group.gr_name : NULL;
}

/* A user, or a group, without a name has its number only. */
static int add_name(struct buf *out, const char *kind, unsigned long number)
{
	_cleanup_free_ char *text = NULL;
	char form[CLAIMS_FORM_BYTES];
	const char *name = name_of(kind, number, &text);
	int n = name ? snprintf(form, sizeof(form), "%s:%s", kind, name) : 0;

	/* A name of digits could be the number of another user. */
	if (n <= 0 || !is_form(form, (size_t)n) ||
		strspn(form + PREFIX, "0123456789") == (size_t)n - PREFIX)
		return 0;
	return add(out, form);
}

int claims_add_user(struct buf *out, uid_t uid, const gid_t *groups, uint32_t n, bool names)
{
	int r = add_number(out, "uid", uid);

	if (r == 0 && names)
		r = add_name(out, "uid", uid);
	for (uint32_t i = 0; i < n && r == 0; i++) {
		r = add_number(out, "gid", groups[i]);
		if (r == 0 && names)
			r = add_name(out, "gid", groups[i]);
	}
	return r;
}

/* The form at *p, which moves behind it. False: there is none. */
static bool next(const char **p, const char **ret_form, size_t *ret_len)
{
	*p += **p == ',';
	*ret_form = *p;
	*ret_len = strcspn(*p, ",");
	*p += *ret_len;
	return *ret_len > 0;
}

int claims_add_names(struct buf *out, const char *numbers)
{
	const char *form;
	size_t len;
	int r = 0;

	while (r == 0 && next(&numbers, &form, &len)) {
		char kind[PREFIX] = "";
		char *end;
		unsigned long number;

		if (!is_form(form, len))
			return -EINVAL;
		memcpy(kind, form, PREFIX - 1);
		number = strtoul(form + PREFIX, &end, 10);
		if (end != form + len)
			return -EINVAL;
		r = add_number(out, kind, number);
		if (r == 0)
			r = add_name(out, kind, number);
	}
	return r;
}

static bool has(const char *claims, const char *form, size_t len)
{
	const char *claim;
	size_t claim_len;

	while (next(&claims, &claim, &claim_len))
		if (claim_len == len && memcmp(claim, form, len) == 0)
			return true;
	return false;
}

bool claims_match(const char *allow, const char *claims)
{
	const char *form;
	size_t len;

	if (!allow || !claims)
		return false;
	while (next(&allow, &form, &len))
		if ((len == 1 && form[0] == '*') || has(claims, form, len))
			return true;
	return false;
}

const char *claims_caller(const char *claims, char out[CLAIMS_FORM_BYTES])
{
	const char *form;
	size_t len;

	(void)snprintf(out, CLAIMS_FORM_BYTES, "%s", "this caller"); /* fits */
	for (unsigned int i = 0; i < 2 && next(&claims, &form, &len); i++)
		if (strncmp(form, "uid:", PREFIX) == 0 && len < CLAIMS_FORM_BYTES)
			(void)snprintf(out, CLAIMS_FORM_BYTES, "%.*s", (int)len, form); /* fits */
	return out;
}
