/* The table of rights. See rights.h. */
#include "net/rights.h"

#define FOR_CLUSTER       [PRINCIPAL_CLUSTER] = RIGHT_ALL, [PRINCIPAL_LOCAL] = RIGHT_ALL
#define AND_TOKENS(right) [PRINCIPAL_TOKEN] = (right)
#define AND_ADMINS        [PRINCIPAL_ADMIN] = RIGHT_ALL
#define AND_ALL_OTHERS    [PRINCIPAL_OTHER] = RIGHT_ALL, [PRINCIPAL_NONE] = RIGHT_ALL

static const struct rights_row table[] = {
	{ RIGHTS_MASTER, FRAME_OPEN_SOURCE, "open a dataset",
		{ FOR_CLUSTER, AND_TOKENS(RIGHT_OWN) } },
	{ RIGHTS_MASTER, FRAME_REFRESH, "have its source listed",
		{ FOR_CLUSTER, AND_TOKENS(RIGHT_OWN) } },
	{ RIGHTS_MASTER, FRAME_GET_TABLE, "a generation and its names",
		{ FOR_CLUSTER, AND_TOKENS(RIGHT_OWN) } },
	{ RIGHTS_MASTER, FRAME_TABLE, "pieces of the object table",
		{ FOR_CLUSTER, AND_TOKENS(RIGHT_OWN) } },
	{ RIGHTS_MASTER, FRAME_HOLD, "keep a generation in use",
		{ FOR_CLUSTER, AND_TOKENS(RIGHT_OWN) } },
	{ RIGHTS_MASTER, FRAME_GET_SLOTS, "names and addresses of workers",
		{ FOR_CLUSTER, AND_TOKENS(RIGHT_ALL), AND_ADMINS } },
	{ RIGHTS_MASTER, FRAME_ADMIN, "questions of `cachectl` (below)",
		{ FOR_CLUSTER, AND_TOKENS(RIGHT_OWN), AND_ADMINS } },
	{ RIGHTS_MASTER, FRAME_JOIN, "join as a worker", { FOR_CLUSTER } },
	{ RIGHTS_MASTER, FRAME_BEAT, "heartbeats", { FOR_CLUSTER } },
	{ RIGHTS_MASTER, FRAME_GET_RETENTION, "retained generations and policies",
		{ FOR_CLUSTER } },
	{ RIGHTS_MASTER, FRAME_PRELOAD, "take part in preloads", { FOR_CLUSTER } },
	{ RIGHTS_WORKER, FRAME_FETCH, "bytes", { FOR_CLUSTER, AND_TOKENS(RIGHT_OWN) } },
	{ RIGHTS_WORKER, FRAME_FETCH_CACHED, "bytes that are cached",
		{ FOR_CLUSTER, AND_TOKENS(RIGHT_OWN) } },
	{ RIGHTS_WORKER, FRAME_PREFETCH, "have bytes cached",
		{ FOR_CLUSTER, AND_TOKENS(RIGHT_OWN) } },
	{ RIGHTS_WORKER, FRAME_RECHECK, "have bytes verified",
		{ FOR_CLUSTER, AND_TOKENS(RIGHT_OWN) } },
	{ RIGHTS_WORKER, FRAME_FILE, "descriptors of chunk files",
		{ FOR_CLUSTER, AND_TOKENS(RIGHT_WHOLE) } },
	{ RIGHTS_WORKER, FRAME_SEAL, "descriptors of sealed extents",
		{ FOR_CLUSTER, AND_TOKENS(RIGHT_WHOLE) } },
	{ RIGHTS_WORKER, FRAME_HELD, "give descriptors back",
		{ FOR_CLUSTER, AND_TOKENS(RIGHT_ALL) } },
	{ RIGHTS_WORKER, FRAME_MAP, "the map of all cached chunks", { FOR_CLUSTER } },
	{ RIGHTS_WORKER, FRAME_ROOM, "ask for room", { FOR_CLUSTER } },
	{ RIGHTS_WORKER, FRAME_SEEK, "take bytes over from another worker", { FOR_CLUSTER } },
	{ RIGHTS_WORKER, FRAME_REFUSED, "report an object that the origin refused",
		{ FOR_CLUSTER } },
	{ RIGHTS_ADMIN, RIGHTS_OP_SHOW,
		"show datasets, workers, slots, history; names of files (`dataset diff`, `show "
		"--left-out`)",
		{ FOR_CLUSTER, AND_TOKENS(RIGHT_OWN), AND_ADMINS, AND_ALL_OTHERS } },
	{ RIGHTS_ADMIN, RIGHTS_OP_CHANGE,
		"create, change, evict, delete datasets; preloads; drain and remove workers; "
		"backups; make an administrator's token",
		{ FOR_CLUSTER, AND_ADMINS } },
	{ RIGHTS_ADMIN, RIGHTS_OP_USE,
		"mount and preload datasets, unmount (the group: datasets whose `allow` names the "
		"caller; its own mounts)",
		{ FOR_CLUSTER, AND_ADMINS, [PRINCIPAL_OTHER] = RIGHT_OWN } },
	{ RIGHTS_ADMIN, RIGHTS_OP_MINT, "make a token for data (`admin-may-mint`)",
		{ FOR_CLUSTER, [PRINCIPAL_ADMIN] = RIGHT_CONFIGURED } },
	{ RIGHTS_ADMIN, RIGHTS_OP_NAME,
		"name in a source: `file://DIR` (`file-roots`); a file of credentials, a CA file "
		"(`credential-dirs`); an endpoint at a loopback or link-local address "
		"(`local-endpoints`)",
		{ [PRINCIPAL_LOCAL] = RIGHT_ALL,
			[PRINCIPAL_CLUSTER] = RIGHT_CONFIGURED,
			[PRINCIPAL_ADMIN] = RIGHT_CONFIGURED } },
};

const struct rights_row *rights_table(uint32_t *ret_n)
{
	*ret_n = ARRAY_SIZE(table);
	return table;
}

enum principal principal_of(const struct peer_identity *peer)
{
	switch (peer->kind) {
	case PEER_UNKNOWN:
		break;
	case PEER_NODE:
		return peer_is_local(peer) ? PRINCIPAL_LOCAL : PRINCIPAL_OTHER;
	case PEER_CLUSTER:
		return PRINCIPAL_CLUSTER;
	case PEER_TOKEN:
		if (!peer_is_current(peer))
			break;
		return peer->claims.admin ? PRINCIPAL_ADMIN : PRINCIPAL_TOKEN;
	}
	return PRINCIPAL_NONE;
}

enum right rights_of(enum principal principal, enum rights_daemon daemon, uint32_t op)
{
	for (uint32_t i = 0; i < ARRAY_SIZE(table); i++)
		if (table[i].daemon == daemon && table[i].op == op)
			return table[i].of[principal];
	/* An unknown operation: the daemon says that it is. */
	return principal == PRINCIPAL_CLUSTER || principal == PRINCIPAL_LOCAL ? RIGHT_ALL
									      : RIGHT_NONE;
}
