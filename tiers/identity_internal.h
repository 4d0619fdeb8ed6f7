/*
 * The identity of a tier: its file granary.tier, text of one "name value" per line.
 *
 *	granary tier
 *	format 1
 *	features 0
 *	uuid 0c9f...		made with the tier
 *	device uuid:4f1e...	the filesystem it was made on (base/device.h)
 *	filesystem 8300...	as statfs named it at the last start
 *	capacity 0		said by `tier init`; 0: not said
 *	boot 3			counts the boots that wrote here; a chunk remembers its own
 *	boot_id 7f5c...		of the last start
 *	starts 12		how often it was opened: the prefix of file ids
 *	check 9ab1...		XXH3 of all above
 *
 * Threads: one at a time per directory; the tier's lock sees to it.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include "base/err.h"
#include "base/device.h"
#include "base/layout.h"

#define IDENTITY_NAME   LAYOUT_TIER_FILE
#define IDENTITY_FORMAT 1u
#define IDENTITY_UUID   36

struct identity {
	char uuid[IDENTITY_UUID + 1];
	char boot_id[IDENTITY_UUID + 1];
	char device[DEVICE_TEXT]; /* "" in a tier made before it was written down */
	uint64_t filesystem;
	uint64_t capacity; /* bytes */
	uint64_t starts;
	uint64_t features; /* none exist yet; unknown ones are refused */
	uint32_t format;
	uint32_t boot;
};

/* A new tier's: random uuid, no boot yet. */
void identity_init(struct identity *identity);
/*
 * The first file id of this start. Ids count up from there, and no other start of the tier gives
 * one of these 2^32: its number, of which the prefix is made, is durable before the first file is.
 */
uint64_t identity_first_file(const struct identity *identity);
/*
 * -ENOENT: no such file (`e` is not set). -ENOTEMPTY: not a tier's. -EPROTONOSUPPORT: newer format
 * or features. -EBADMSG: damaged.
 */
int identity_load(const char *dir, struct identity *ret_identity, struct err *e) __must_check;
int identity_store(const char *dir, const struct identity *identity) __must_check;

/* The kernel's boot id. */
int identity_boot_id(char out[IDENTITY_UUID + 1]) __must_check;
