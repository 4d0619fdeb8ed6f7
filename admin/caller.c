/* Who asks, and what it may. See admin_internal.h. */
#include "admin/admin_internal.h"
#include "base/cleanup.h"
#include "base/hash.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* SO_PEERGROUPS: as they were when it connected; of more than fit the first ones. */
static void add_groups(int fd, struct admin_caller *caller)
{
	_cleanup_free_ gid_t *all = NULL;
	socklen_t len = 0;

	caller->groups[0] = caller->gid;
	caller->n_groups = 1;
	if (getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, NULL, &len) == 0 || errno != ERANGE)
		return; /* none further */
	all = malloc(len);
	if (!all || getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, all, &len) != 0)
		return;
	len = min(len, (CLAIMS_GROUPS - 1) * (socklen_t)sizeof(gid_t));
	memcpy(caller->groups + 1, all, len);
	caller->n_groups += (uint32_t)(len / sizeof(gid_t));
}

void admin_caller_of(int fd, struct admin_caller *ret_caller)
{
	struct ucred cred;
	socklen_t len = sizeof(cred);
	int domain = 0;
	socklen_t domain_len = sizeof(domain);

	*ret_caller = (struct admin_caller){ .peer.uid = (uid_t)-1, .gid = (gid_t)-1 };
	/* Other sockets answer SO_PEERCRED too, with no user. */
	if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &domain_len) != 0 || domain != AF_UNIX ||
		getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) != 0 || cred.uid == (uid_t)-1)
		return;
	*ret_caller = (struct admin_caller){
		.peer = { .kind = PEER_NODE, .uid = cred.uid }, .gid = cred.gid, .pid = cred.pid
	};
	add_groups(fd, ret_caller);
}

int admin_caller_claims(const struct admin_caller *caller, bool names, struct buf *out)
{
	if (caller->peer.kind != PEER_NODE)
		return 0;
	return claims_add_user(out, caller->peer.uid, caller->groups, caller->n_groups, names);
}

const char *admin_caller_via(const struct admin_caller *caller, char out[ADMIN_VIA_BYTES])
{
	const struct token_claims *claims = &caller->peer.claims;
	char serial[2 * sizeof(claims->serial) + 1];

	if (caller->peer.kind == PEER_CLUSTER)
		return "cluster key";
	hash_hex(claims->serial, sizeof(claims->serial), serial);
	(void)snprintf(out, ADMIN_VIA_BYTES, "token %s", serial); /* fits */
	return out;
}

int admin_caller_may_change(const struct admin_caller *caller, struct err *e)
{
	char via[ADMIN_VIA_BYTES];

	if (admin_right(caller, RIGHTS_OP_CHANGE) != RIGHT_NONE)
		return 0;
	if (caller->peer.kind == PEER_UNKNOWN)
		return err_set(e, -EPERM,
			"permission denied: this address is read-only; send changes to the "
			"daemon's unix socket");
	if (caller->peer.kind == PEER_NODE)
		return err_set(e, -EPERM,
			"permission denied: user %u may only read; run this as root or as the "
			"daemon's own user (%u)",
			caller->peer.uid, geteuid());
	return err_set(e, -EPERM,
		"permission denied: %s may only read; use the cluster key or an administrator's "
		"token",
		admin_caller_via(caller, via));
}
