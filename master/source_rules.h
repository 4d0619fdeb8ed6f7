/*
 * What a source may name that somebody asks for who is not local. Local are root and the master's own user on one of the
 * master's unix sockets: they could read these files anyway. Others who may name a source (holders of the cluster key and of
 * administrators' tokens) name only what the configuration allows:
 *
 *	file-roots		directories at or below which file:// sources are
 *	credential-dirs		directories below which file:/PATH of credentials, and CA files are
 *	local-endpoints		endpoints may be at loopback and link-local addresses
 *
 * Paths are compared without symbolic links, and names of hosts looked up, when the source is named; addresses are checked again
 * at each connection (ufs_config.no_local). A refusal is the same line whether the named thing exists or not. Paths that no
 * caller may name are in ufs/protected.h.
 *
 * Threads: any; blocks on file systems and on DNS.
 */
#pragma once

#include "base/option.h"
#include "net/identity.h"
#include "ufs/ufs.h"

struct source_rules {
	struct option_list file_roots;
	struct option_list credential_dirs;
	bool local_endpoints;
};

/* Those that requests of `peer` obey; NULL: it is local, and may name everything. */
const struct source_rules *source_rules_of(
	const struct source_rules *rules, const struct peer_identity *peer);

/* May `config` be named? `before`: as the source was until now; what is the same in both is allowed. NULL: it is new.
 * -EPERM with a line; -ENXIO: the endpoint's name cannot be looked up. `rules`: of source_rules_of(). A directory that
 * exists is resolved (ufs_config_resolve()), without rules as well; a new source gets `no_local` by the rules. */
int source_rules_check(const struct source_rules *rules, struct ufs_config *config,
	const struct ufs_config *before, struct err *e) __must_check;
