/* Who asks, and whether they may change anything. See admin_internal.h. */
#include "admin/admin_internal.h"

#include <sys/socket.h>
#include <unistd.h>

void admin_caller_of(int fd, struct admin_caller *ret_caller)
{
	struct ucred peer;
	socklen_t len = sizeof(peer);
	int domain = 0;
	socklen_t domain_len = sizeof(domain);

	*ret_caller = (struct admin_caller){ .uid = (uid_t)-1, .gid = (gid_t)-1 };
	/* Other sockets answer SO_PEERCRED too, with nobody. */
	if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &domain_len) != 0 || domain != AF_UNIX ||
		getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) != 0 || peer.uid == (uid_t)-1)
		return;
	*ret_caller = (struct admin_caller){
		.known = true, .uid = peer.uid, .gid = peer.gid, .pid = peer.pid
	};
}

int admin_caller_may_change(const struct admin_caller *caller, struct err *e)
{
	if (caller->via[0])
		return caller->may_change ? 0
					  : err_set(e, -EPERM,
						    "who has %s may only look: changes are for the "
						    "cluster key and administrators' tokens",
						    caller->via);
	if (!caller->known)
		return err_set(e, -EPERM,
			"this address only answers questions: changes are asked for on the "
			"daemon's unix socket");
	if (caller->uid != 0 && caller->uid != geteuid())
		return err_set(e, -EPERM,
			"user %u may only look: changes are for root and the daemon's own user "
			"(%u)",
			caller->uid, geteuid());
	return 0;
}
