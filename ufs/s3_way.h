/*
 * How a server is reached: who vouches for it, and whether by the proxy of the environment. The
 * same for an origin's requests (s3_http.c) and for one alone (reach.c).
 *
 * A value; its path is borrowed.
 */
#pragma once

#include "ufs/s3_endpoint.h"
#include "ufs/ufs.h"

struct s3_way {
	const char *ca_file; /* NULL: the system's */
	bool ca_is_dir;      /* a directory as c_rehash makes it */
	bool no_proxy;
};

/*
 * By --ca-file, or else AWS_CA_BUNDLE; `config` is to live as long as the way. -errno with a line
 * when the certificates cannot be read: told now, not with the first request.
 */
int s3_way_find(const struct ufs_config *config, const struct s3_endpoint *endpoint,
	struct s3_way *ret_way, struct err *e) __must_check;

/* Sets what goes for all requests of a curl handle (CURL), once. */
void s3_way_set(const struct s3_way *way, void *easy);
