/*
 * The way to an S3 endpoint, one request long, for `cachectl doctor`: how far it is, what its clock
 * says. No keys are needed, and none are sent.
 *
 * Threads: any; blocks.
 */
#pragma once

#include <stdint.h>
#include "ufs/ufs.h"

struct ufs_reach {
	char url[288];    /* scheme and host that was asked */
	char address[72]; /* "10.0.0.1:443": of the endpoint, or of the proxy */
	char proxy[256];  /* as the environment has it, secrets and all; "" none */
	uint64_t name_ns; /* each step's own time; 0: there was none */
	uint64_t connect_ns;
	uint64_t tls_ns;
	uint64_t first_byte_ns; /* from the request to the answer */
	int status;             /* of HTTP; any is an answer */
	char key[160];       /* id of the access key that would be used; "" none, or none found */
	char key_place[256]; /* where it is found */
	int64_t date;        /* the endpoint's clock, in seconds since 1970; -1: it says none */
};

/* `config`: of scheme UFS_S3 or UFS_OBS. The line of a failure names what of name, connection, proxy or
 * certificate it is. */
int ufs_reach(const struct ufs_config *config, uint64_t timeout_ns, struct ufs_reach *ret_reach,
	struct err *e) __must_check;
