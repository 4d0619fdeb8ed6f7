/* Who is on this node. See view.h. */
#include "base/file.h"
#include "base/hash.h"
#include "cluster/view.h"

#include <stdlib.h>
#include <string.h>

#define BOOT_FILE "/proc/sys/kernel/random/boot_id"

void cluster_host(uint8_t ret_host[CLUSTER_HOST_BYTES])
{
	const char *said = secure_getenv(
		"GRANARY_HOST"); // NOLINT(concurrency-mt-unsafe): no thread changes it
	struct buf b = BUF_INIT(256);
	uint8_t hash[SHA256_BYTES];

	/* Not the machine's id: containers have others, or none. */
	if (!said && file_read_all(BOOT_FILE, &b) == 0)
		said = buf_str(&b);
	if (!said || !*said)
		said = "-";
	hash_sha256(said, strlen(said), hash);
	memcpy(ret_host, hash, CLUSTER_HOST_BYTES);
	buf_release(&b);
}

const char *cluster_state_name(enum cluster_state state)
{
	static const char *const names[] = {
		[CLUSTER_UP] = "up",
		[CLUSTER_DOWN] = "down",
		[CLUSTER_OUT] = "out",
		[CLUSTER_DRAINING] = "draining",
	};

	return (size_t)state < ARRAY_SIZE(names) ? names[state] : "unknown";
}
