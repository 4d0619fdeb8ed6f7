/* A mount's memory. See share.h. */
#include "fuse/share.h"
#include "base/arena.h"
#include "base/daemon.h"
#include "base/limits.h"
#include "base/units.h"
#include "client/client.h"
#include "fuse/slots.h"

#include <sys/stat.h>
#include <unistd.h>

#define FIXED_BYTES   (9 * MiB) /* a buffer for each thread, reads under way */
#define ANSWERS_LEAST (4 * MiB) /* four of the largest */
#define SLOTS_LEAST   256u
#define CHUNKS_LEAST  16u

int share_open(struct share *share, uint64_t memory, struct err *e)
{
	uint64_t slots = max(
		min(memory / 8 / SLOT_BYTES, (uint64_t)LIMIT_FUSE_SLOTS), (uint64_t)SLOTS_LEAST);

	share->slots_bytes = SLOTS_HEAD_BYTES + slots * SLOT_BYTES;
	share->chunks =
		(uint32_t)max(min(memory / 4 / CLIENT_CHUNK_BYTES, (uint64_t)LIMIT_CHUNK_FDS),
			(uint64_t)CHUNKS_LEAST);
	daemon_keep_memory(memory);
	arena_open(memory);
	arena_share(ARENA_ANSWERS, ANSWERS_LEAST, max(memory / 4, ANSWERS_LEAST));
	arena_share(ARENA_PIECES, (uint64_t)share->chunks * CLIENT_CHUNK_BYTES, 0);
	arena_share(ARENA_TABLES, memory / 8, 0);
	arena_must(ARENA_FIXED, FIXED_BYTES);
	budget_init_user(&share->answers, max(memory / 4, ANSWERS_LEAST), ARENA_ANSWERS);
	return arena_start_check("--memory", share->slots_bytes, e);
}

int share_slots(const struct share *share, int fd, struct err *e)
{
	struct stat st;

	if (fstat(fd, &st) != 0)
		return err_set(e, err_errno(),
			"the slots' descriptor %d cannot be used: %m: "
			"unmount and mount again",
			fd);
	if (st.st_size == 0) {
		st.st_size = (off_t)share->slots_bytes;
		if (ftruncate(fd, st.st_size) != 0)
			return err_set(e, err_errno(),
				"no memory for the requests of a mount: %m: free some");
	}
	arena_must(ARENA_SLOTS, (uint64_t)st.st_size);
	return 0;
}
