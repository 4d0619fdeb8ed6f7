/*
 * How a server is reached: who vouches for it, whether by the proxy of the environment, and to which addresses connections may
 * be made. The same for an origin's requests (s3_http.c) and for one alone (reach.c).
 *
 * A value; its path is borrowed.
 */
#pragma once

#include "ufs/s3_endpoint.h"
#include "ufs/ufs.h"

#define S3_ADDRESS_MAX 64u /* "ADDRESS:PORT" */
#define S3_PROXIES_MAX 8u

struct s3_way {
	const char *ca_file; /* NULL: the system's */
	bool ca_is_dir;      /* a directory as c_rehash makes it */
	bool no_proxy;
	bool no_local; /* no connections to local addresses (local_address.h), but to these: */
	char proxies[S3_PROXIES_MAX]
		    [S3_ADDRESS_MAX]; /* the environment's that are at such addresses */
	unsigned int n_proxies;
};

/* Refuses connections of one curl handle. Belongs to the owner of the handle, and lives as long. */
struct s3_guard {
	const struct s3_way *way;
	char refused
		[S3_ADDRESS_MAX]; /* the last address that was refused; "": none. Cleared by the owner */
};

/*
 * By --ca-file, or else AWS_CA_BUNDLE; `config` is to live as long as the way. -errno with a line
 * when the certificates cannot be read: reported now, not with the first request. With config->no_local it looks up the proxies of
 * the environment, and so may block.
 */
int s3_way_find(const struct ufs_config *config, const struct s3_endpoint *endpoint,
	struct s3_way *ret_way, struct err *e) __must_check;

/* Sets what goes for all requests of a curl handle (CURL), once. `guard` is set up for it where way->no_local; `way` then lives as
 * long as the handle. */
void s3_way_set(const struct s3_way *way, void *easy, struct s3_guard *guard);
