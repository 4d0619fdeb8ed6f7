/*
 * What sealing needs of extents (docs/decisions/sealing.md): to find one, to keep it while a kernel
 * has it as a device, to know what of it was verified, and whether that still holds.
 *
 * Verified is noted by chunk: tier_seal_begin() before the pieces that are there are read and
 * checked, tier_seal_end() after that went well. A *mark* is
 *
 *	fresh	nothing was written into the chunk since: all that is present was verified
 *	there	pieces came since, but none of those verified is damaged or gone
 *	none	never verified, a piece was damaged, or the chunk left the extent
 *
 * Who holds an extent keeps its chunks where they are: nothing of it is moved or renamed, nor evicted
 * but for a volume of higher priority or a smaller quota, which an operator asked for. Such an extent
 * goes whole, by unlink; its bytes stay charged as long as somebody has a reference.
 *
 * Threads: any. None but tier_seal_open_fd() and tier_seal_unref() waits for a disk.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include "tiers/tiers.h"

struct extent;

/* Whether extents may have that size. */
bool tier_seal_bytes_valid(uint64_t extent_bytes);

/* Bytes of the volume's extents; 0: it does not lie in extents. */
uint64_t tier_seal_extent_bytes(
	struct tier_set *set, const struct volume_id *volume, uint64_t lineage);

/* The extent of that number, referenced; NULL: there is none in which chunks are found by now. */
struct extent *tier_seal_find(
	struct tier_set *set, const struct volume_id *volume, uint64_t lineage, uint64_t number);
struct extent *tier_seal_ref(struct extent *extent);
void tier_seal_unref(struct extent *extent); /* NULL is allowed; may close files */

struct tier_seal_facts {
	uint64_t file;    /* no other file has that id, ever */
	uint64_t bytes;   /* of the extent */
	uint32_t damages; /* pieces found damaged in it since it was opened */
	uint64_t changes; /* grows when a mark goes */
	uint64_t written; /* blocks that became present since it was opened */
	bool out;         /* its disk is not in service */
	bool memory;      /* its tier is a tmpfs */
};
void tier_seal_facts(const struct extent *extent, struct tier_seal_facts *ret_facts);

/* Every change of damages in the set: one look tells that nothing was found. */
uint64_t tier_seal_damages(const struct tier_set *set);

/* Keeps it; as often let go of. The reference is the caller's besides. */
void tier_seal_hold(struct extent *extent);
void tier_seal_let_go(struct extent *extent);

enum tier_seal_mark { TIER_SEAL_NONE, TIER_SEAL_THERE, TIER_SEAL_FRESH };

/* Whether the chunk lies in the extent. */
bool tier_seal_has(const struct extent *extent, const struct chunk *chunk);
/* What to give to tier_seal_end(). */
uint64_t tier_seal_begin(const struct chunk *chunk);
/* Its pieces were verified. False: one was found damaged meanwhile, or it left the extent. -ENOMEM
 * is false, too: it is verified again. */
bool tier_seal_end(struct extent *extent, const struct chunk *chunk, uint64_t begun) __must_check;
enum tier_seal_mark tier_seal_mark(struct extent *extent, const struct chunk *chunk);

/* Whether somebody has the chunk in a held extent. */
bool tier_seal_is_held(const struct chunk *chunk);

/* A new descriptor of its file, read-only. -ENOENT: it is gone; -EIO. */
int tier_seal_open_fd(struct extent *extent, int *ret_fd) __must_check;
