/*
 * Access lists of datasets, and claims of callers: strings that are compared byte by byte.
 *
 *	allow	"uid:alice,gid:ml", "*"			access list of a dataset
 *	claims	"uid:1000,uid:alice,gid:100,gid:users"	claims of a caller, made by the daemon that it is connected to
 *		"namespace:team,serviceaccount:team/train"	of a pod, made by the keeper of its node
 *
 * A caller may use the dataset when one of its claims is in `allow`, or `allow` has "*". The master only compares: names of users
 * are looked up on the caller's host. A caller is a user or a pod: neither claims what the other does.
 *
 * Threads: any.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include "base/buf.h"
#include "base/err.h"

#define CLAIMS_FORM_BYTES 336u /* of one form, with its NUL */
#define CLAIMS_USER_BYTES 72u  /* of one that names a user or a group */
#define CLAIMS_GROUPS     256u /* of a caller; of further ones nothing is claimed */
#define CLAIMS_ALLOW_MAX  64u  /* forms of a dataset */
/* Of all claims of a caller: "uid:4294967295,uid:NAME,", and so of each group. */
#define CLAIMS_BYTES ((1 + CLAIMS_GROUPS) * (16u + CLAIMS_USER_BYTES))

/*
 * "uid:NAME", "uid:NUMBER", "gid:NAME", "gid:NUMBER", "namespace:NAME", "serviceaccount:NAMESPACE/NAME" or "*". -EINVAL with a line.
 */
int claims_check_form(const char *form, struct err *e) __must_check;

/*
 * Appends what a user and its groups claim, by number and by name; `names` false: by number. A name
 * that no form can have is left out.
 */
int claims_add_user(
	struct buf *out, uid_t uid, const gid_t *groups, uint32_t n, bool names) __must_check;
/* Appends what a pod claims. `account` may be NULL; without a namespace it claims nothing. -EINVAL: no such names. */
int claims_add_pod(struct buf *out, const char *name_space, const char *account) __must_check;
/* Appends the names to claims by number, as they are on this host; those of a pod stay as they are. */
int claims_add_names(struct buf *out, const char *numbers) __must_check;

/* Are they a pod's? */
bool claims_of_pod(const char *claims);

/* `allow` and `claims` may be NULL, which matches nothing. */
bool claims_match(const char *allow, const char *claims);

/* The claim that a line for people names: "uid:alice". Returns out. */
const char *claims_caller(const char *claims, char out[CLAIMS_FORM_BYTES]);
