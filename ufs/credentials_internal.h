/* Where credentials come from: the providers of credentials.h, one file each. */
#pragma once

#include "base/buf.h"
#include "ufs/credentials.h"

#define CREDENTIALS_FILE_MAX  (1u << 20)
#define CREDENTIALS_PATH_MAX  4096
#define CREDENTIALS_TOKEN_MAX (64u * 1024) /* a web identity's, or what a service answers */

struct credentials_provider {
	const char *name;
	/*
	 * Fills in what `c` has not yet. -ENOENT: nothing here says that it is to be asked, or it
	 * has none for us: the next one. Another failure ends the search, with a line. `e` may hold
	 * the line of -ENOENT too, for who asked for this provider alone.
	 */
	int (*find)(const struct credentials_query *query, struct credentials *c, struct err *e);
};

extern const struct credentials_provider credentials_environment;  /* credentials.c */
extern const struct credentials_provider credentials_web_identity; /* credentials_sts.c */
extern const struct credentials_provider credentials_profiles;     /* credentials_file.c */
extern const struct credentials_provider credentials_container;    /* credentials_container.c */
extern const struct credentials_provider credentials_imds;         /* credentials_imds.c */

/* A variable that is set and not empty; else NULL. */
const char *credentials_variable(const char *name);

/* Sets a member that is still NULL from the first `len` bytes of a text that is not empty. */
int credentials_take(char **member, const char *text, size_t len) __must_check;

/* The same for secret_key and session_token, which are memory of base/secret.h. */
int credentials_take_secret(char **member, const char *text, size_t len) __must_check;

/* Says where the keys were found. */
int credentials_place(struct credentials *c, const char *fmt, ...) __printf(2, 3) __must_check;

/* Half a pair of keys is none: frees what there is of them, and wipes the secret ones. */
void credentials_forget_keys(struct credentials *c);

/* credentials_file.c: what "file:PATH" names; `path` without the word. */
int credentials_of_path(const char *path, struct credentials *c, struct err *e) __must_check;
/* Region and endpoint of what it names, added to what is there; a failure is none. */
int credentials_path_settings(const char *path, struct credentials *c) __must_check;
/* Region and endpoint of a profile, added to what is there; a failure is none. */
int credentials_profile_settings(const char *profile, struct credentials *c) __must_check;

/* The token of a web identity for keys. `region` may be NULL. */
int credentials_assume(const struct credentials_query *query, const char *token_file,
	const char *role_arn, const char *session, struct credentials *c,
	struct err *e) __must_check;

/* An answer of the token service at `url`. -ENOKEY with a line, and no member set. */
int credentials_take_sts(int status, const struct buf *body, const char *url, const char *role,
	struct credentials *c, struct err *e) __must_check;

/* A secret of one line in a file, without blanks around it. -ENOKEY with a line. */
int credentials_read_line(
	const char *path, const char *what, struct buf *out, struct err *e) __must_check;

/* {"AccessKeyId": ..., "SecretAccessKey": ..., "Token": ..., "Expiration": ...}, as metadata
 * services answer. -ENOKEY with a line, and no member set. */
int credentials_take_json(const struct buf *json, const char *service, struct credentials *c,
	struct err *e) __must_check;
