/* A mount's memory. See share.h. */
#include "fuse/daemon/share.h"
#include "base/arena.h"
#include "base/daemon.h"
#include "base/limits.h"
#include "base/units.h"
#include "client/client.h"
#include "mount/slots.h"

#include <sys/stat.h>
#include <unistd.h>

#define FIXED_BYTES   (9 * MiB) /* a buffer for each thread, reads under way */
#define ANSWERS_LEAST (4 * MiB) /* four of the largest */
#define SLOTS_LEAST   256u
#define CHUNKS_LEAST  16u

static uint64_t slots_bytes(uint64_t memory)
{
	uint64_t slots = max(
		min(memory / 8 / SLOT_BYTES, (uint64_t)LIMIT_FUSE_SLOTS), (uint64_t)SLOTS_LEAST);

	return SLOTS_HEAD_BYTES + slots * SLOT_BYTES;
}

static uint64_t chunks(uint64_t memory)
{
	return max(min(memory / 4 / CLIENT_CHUNK_BYTES, (uint64_t)LIMIT_CHUNK_FDS),
		(uint64_t)CHUNKS_LEAST);
}

static uint64_t answers(uint64_t memory)
{
	return max(memory / 4, ANSWERS_LEAST);
}

static void share_out(uint64_t memory)
{
	arena_share(ARENA_SLOTS, slots_bytes(memory), 0);
	arena_share(ARENA_PIECES, chunks(memory) * CLIENT_CHUNK_BYTES, 0);
	arena_share(ARENA_ANSWERS, ANSWERS_LEAST, answers(memory));
	arena_share(ARENA_TABLES, memory / 8, 0);
	arena_share(ARENA_ORDERS, 0, memory / 4);
}

int share_open(struct share *share, uint64_t memory, struct err *e)
{
	share->slots_bytes = slots_bytes(memory);
	share->chunks = (uint32_t)chunks(memory);
	daemon_keep_memory(memory);
	arena_open(memory, share_out);
	arena_must(ARENA_FIXED, FIXED_BYTES);
	budget_init_user(&share->answers, answers(memory), ARENA_ANSWERS);
	return arena_start_check("--memory", e);
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
