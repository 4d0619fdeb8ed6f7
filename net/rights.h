/*
 * Who may ask a daemon for what: the one table that master/rights.c, cacheworker/admit.c and the admin interface obey, and that
 * docs/security.md shows. An operation of the wire that is not in it is unknown: holders of the cluster key and local
 * processes get that answer, all others a refusal.
 *
 * Threads: any.
 */
#pragma once

#include "net/identity.h"
#include "proto/frame.h"

enum rights_daemon {
	RIGHTS_MASTER,
	RIGHTS_WORKER,
	RIGHTS_ADMIN, /* any, by its admin interface */
};

/* The operations of RIGHTS_ADMIN; those of RIGHTS_MASTER and RIGHTS_WORKER are enum frame_op. */
enum rights_admin_op {
	RIGHTS_OP_SHOW,
	RIGHTS_OP_CHANGE,
	RIGHTS_OP_USE,
	RIGHTS_OP_MINT,
	RIGHTS_OP_NAME,
};

enum principal {
	PRINCIPAL_NONE, /* has proved nothing, its token has expired, or it comes by admin-listen */
	PRINCIPAL_CLUSTER, /* has the cluster key */
	PRINCIPAL_LOCAL,   /* root or the daemon's user, on a unix socket */
	PRINCIPAL_OTHER,   /* another user that the socket's mode let in: of admin sockets only */
	PRINCIPAL_TOKEN,
	PRINCIPAL_ADMIN, /* has an administrator's token */
	PRINCIPALS,
};

enum right {
	RIGHT_NONE,
	RIGHT_OWN, /* of the dataset and the volumes that its token names: of a part of one that part */
	RIGHT_WHOLE,      /* the same, but of whole volumes only */
	RIGHT_CONFIGURED, /* what the master's configuration allows */
	RIGHT_ALL,
};

struct rights_row {
	enum rights_daemon daemon;
	uint32_t op;
	const char *what;
	enum right of[PRINCIPALS];
};

const struct rights_row *rights_table(uint32_t *ret_n);

enum principal principal_of(const struct peer_identity *peer);
enum right rights_of(enum principal principal, enum rights_daemon daemon, uint32_t op);
