/* Forms of callers. See claims.h. */
#include "base/claims.h"
#include "base/cleanup.h"

#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME_CHARS       "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._@$-"
#define PREFIX           4u /* "uid:" */
#define NAMESPACE        "namespace:"
#define ACCOUNT          "serviceaccount:"
#define KUBERNETES_CHARS "abcdefghijklmnopqrstuvwxyz0123456789-"
#define TEXT_BYTES       16384u
#define TEXT_MAX         (TEXT_BYTES << 10) /* a group of a million members */

static bool is_form(const char *form, size_t len)
{
	return len > PREFIX && len < CLAIMS_USER_BYTES &&
	       (strncmp(form, "uid:", PREFIX) == 0 || strncmp(form, "gid:", PREFIX) == 0) &&
	       form[PREFIX] != '-' && strspn(form + PREFIX, NAME_CHARS) >= len - PREFIX;
}

/* A name of Kubernetes: letters, digits and '-', in names of accounts '.', too. */
static bool is_kubernetes(const char *name, size_t len, bool dots)
{
	return len > 0 && len <= (dots ? 253u : 63u) && name[0] != '-' &&
	       strspn(name, dots ? KUBERNETES_CHARS "." : KUBERNETES_CHARS) >= len;
}

/* "namespace:NAME", "serviceaccount:NAMESPACE/NAME" */
static bool is_pod_form(const char *form, size_t len)
{
	const char *name = form + sizeof(ACCOUNT) - 1;
	const char *slash;

	if (len > sizeof(NAMESPACE) - 1 && strncmp(form, NAMESPACE, sizeof(NAMESPACE) - 1) == 0)
		return is_kubernetes(
			form + sizeof(NAMESPACE) - 1, len - sizeof(NAMESPACE) + 1, false);
	if (len < sizeof(ACCOUNT) || strncmp(form, ACCOUNT, sizeof(ACCOUNT) - 1) != 0)
		return false;
	slash = memchr(name, '/', (size_t)(form + len - name));
	return slash && is_kubernetes(name, (size_t)(slash - name), false) &&
	       is_kubernetes(slash + 1, (size_t)(form + len - slash - 1), true);
}

int claims_check_form(const char *form, struct err *e)
{
	size_t len = strlen(form);

	if (strcmp(form, "*") == 0 || is_form(form, len) || is_pod_form(form, len))
		return 0;
	return err_set(e, -EINVAL,
		"invalid entry '%.80s' of 'allow': use uid:NAME, gid:NAME (or a number), "
		"namespace:NAME, serviceaccount:NAMESPACE/NAME, or *",
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

		if (is_pod_form(form, len)) {
			r = buf_printf(out, "%s%.*s", out->len ? "," : "", (int)len, form);
			continue;
		}
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

int claims_add_pod(struct buf *out, const char *name_space, const char *account)
{
	char form[CLAIMS_FORM_BYTES];
	int n;
	int r;

	if (!name_space)
		return account ? -EINVAL : 0;
	n = snprintf(form, sizeof(form), NAMESPACE "%s", name_space);
	if (n >= (int)sizeof(form) || !is_pod_form(form, (size_t)n))
		return -EINVAL;
	r = add(out, form);
	if (r < 0 || !account)
		return r;
	n = snprintf(form, sizeof(form), ACCOUNT "%s/%s", name_space, account);
	if (n >= (int)sizeof(form) || !is_pod_form(form, (size_t)n))
		return -EINVAL;
	return add(out, form);
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

bool claims_of_pod(const char *claims)
{
	return strstr(claims, "namespace:") != NULL || strstr(claims, "serviceaccount:") != NULL;
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
		if ((strncmp(form, "uid:", PREFIX) == 0 ||
			    strncmp(form, NAMESPACE, sizeof(NAMESPACE) - 1) == 0) &&
			len < CLAIMS_FORM_BYTES)
			(void)snprintf(out, CLAIMS_FORM_BYTES, "%.*s", (int)len, form); /* fits */
	return out;
}
