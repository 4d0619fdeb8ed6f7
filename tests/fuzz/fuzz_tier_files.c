/*
 * Fuzzer of what a worker finds on its disk besides chunks: the first byte picks the foot of an extent file, a row of the
 * index, the tier's identity, the generation that was seen last, the master that was met.
 *
 * Sums are put right first, so that damage gets past them. What decodes encodes to the same bytes, or to a file that reads
 * the same, within the format's bounds; what is refused leaves nothing behind.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/buf.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/little.h"
#include "catalog/generation_seen.h"
#include "locate/extent_format.h"
#include "net/fence.h"
#include "tests/fuzz/seeds.h"
#include "tiers/identity_internal.h"
#include "tiers/index_internal.h"

#define TEXT_BYTES 4096u
#define FOOT_BYTES 72u /* that are not zero */
#define UNTOUCHED  0x5a

enum parser {
	PARSER_FOOT,
	PARSER_ROW,
	PARSER_IDENTITY,
	PARSER_SEEN,
	PARSER_FENCE,
	PARSERS,
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* ---- bytes ----------------------------------------------------------------------------------- */

static void check_foot(const uint8_t *data, size_t size)
{
	uint8_t bytes[EXTENT_FOOT_BYTES] = { 0 };
	uint8_t again[EXTENT_FOOT_BYTES];
	struct extent_foot foot;

	memcpy(bytes, data, min(size, sizeof(bytes)));
	if (size > FOOT_BYTES && size < sizeof(bytes)) {
		/* A power of two: from half of the least to twice the most. */
		little_put64(bytes + 48, (uint64_t)CHUNK_BYTES / 2 << bytes[FOOT_BYTES] % 22);
		bytes[FOOT_BYTES] = 0;
	}
	if (size < sizeof(bytes))
		little_put64(bytes + 64, hash_xxh3(bytes, 64, 0));
	if (extent_foot_decode(bytes, &foot) < 0)
		return;
	extent_foot_encode(&foot, again);
	ensure(memcmp(bytes, again, FOOT_BYTES) == 0);
	ensure(extent_bytes_valid(foot.extent_bytes));
	ensure(foot.extent_bytes >= CHUNK_BYTES && foot.extent_bytes <= EXTENT_BYTES_MAX);
	ensure(extent_bytes_of_file(extent_file_bytes(foot.extent_bytes)) == foot.extent_bytes);
	ensure(extent_foot_offset(foot.extent_bytes) + EXTENT_FOOT_BYTES ==
		extent_file_bytes(foot.extent_bytes));
}

/* The number of a chunk in an extent, and its place there. */
static void check_place(const uint8_t *data, size_t size)
{
	uint64_t length;
	uint64_t bytes;
	struct chunk_place place;

	if (size < 16)
		return;
	length = little_get64(data);
	bytes = extent_bytes_of_file(length);
	ensure(!bytes || extent_file_bytes(bytes) == length);
	bytes = (uint64_t)CHUNK_BYTES << length % 20;
	if (!extent_bytes_valid(bytes))
		return;
	place = extent_place(bytes, little_get64(data + 8));
	ensure(place.data % CHUNK_BYTES == 0 && place.data + CHUNK_BYTES <= bytes);
	ensure(place.head >= bytes && place.head + CHUNK_META_BYTES <= extent_foot_offset(bytes));
}

static void check_row(const uint8_t *data, size_t size)
{
	uint8_t key[INDEX_KEY_BYTES];
	uint8_t value[INDEX_VALUE_BYTES];
	size_t key_len = min(size, (size_t)INDEX_KEY_BYTES);
	struct index_row row;

	if (index_row_decode(data, key_len, data + key_len, size - key_len, &row) < 0)
		return;
	ensure(size == INDEX_KEY_BYTES + INDEX_VALUE_BYTES);
	index_key_encode(&row.id, key);
	index_value_encode(&row, value);
	ensure(memcmp(key, data, sizeof(key)) == 0);
	value[0] = data[INDEX_KEY_BYTES]; /* an older version is read, too */
	ensure(memcmp(value, data + INDEX_KEY_BYTES, sizeof(value)) == 0);
}

/* ---- files ----------------------------------------------------------------------------------- */

#define SEEN_NAME "01000000000000000000000000000000.seen"

static char directory[] = "/dev/shm/granary-fuzz-XXXXXX";

static const char *in_directory(const char *name)
{
	static char path[128];

	(void)snprintf(path, sizeof(path), "%s/%s", directory, name); /* fits */
	return path;
}

/* Plain, as atomic writes wait for the disk. */
static void put_file(const char *name, const void *data, size_t size)
{
	FILE *file = fopen(in_directory(name), "w");

	ensure(file && fwrite(data, 1, size, file) == size && fclose(file) == 0);
}

static void remove_directory(void)
{
	static const char *const names[] = { IDENTITY_NAME, SEEN_NAME, "cluster" };

	for (unsigned int i = 0; i < ARRAY_SIZE(names); i++)
		(void)unlink(in_directory(names[i]));
	(void)rmdir(directory);
}

static void make_directory(void)
{
	static bool made;

	if (!made)
		ensure(mkdtemp(directory) && atexit(remove_directory) == 0);
	made = true;
}

static void check_identity(const uint8_t *data, size_t size)
{
	struct identity identity;
	struct identity again;
	struct err e = ERR_INIT;
	struct buf text = BUF_INIT(2 * TEXT_BYTES);
	const char *last;

	memset(&identity, UNTOUCHED, sizeof(identity));
	ensure(buf_append(&text, data, size) == 0);
	last = memmem(buf_str(&text), text.len, "\ncheck ", 7);
	if (last && strlen(buf_str(&text)) == text.len) { /* of the text before it */
		text.len = (size_t)(last + 1 - text.data);
		ensure(buf_printf(&text, "check %016llx\n",
			       (unsigned long long)hash_xxh3(text.data, text.len, 0)) == 0);
	}
	put_file(IDENTITY_NAME, buf_str(&text), text.len);
	buf_release(&text);
	if (identity_load(directory, &identity, &e) < 0) {
		fuzz_check_line(&e);
		ensure(identity.uuid[0] == UNTOUCHED && identity.boot_id[0] == UNTOUCHED);
		return;
	}
	ensure(identity.features == 0 && identity.format <= IDENTITY_FORMAT);
	ensure(memchr(identity.uuid, '\0', sizeof(identity.uuid)) &&
		memchr(identity.boot_id, '\0', sizeof(identity.boot_id)) &&
		memchr(identity.device, '\0', sizeof(identity.device)));
	ensure(identity_store(directory, &identity) == 0);
	ensure(identity_load(directory, &again, &e) == 0);
	ensure(strcmp(identity.uuid, again.uuid) == 0 &&
		strcmp(identity.boot_id, again.boot_id) == 0);
	ensure(strcmp(identity.device, again.device) == 0 && identity.boot == again.boot);
	ensure(identity.capacity == again.capacity && identity.starts == again.starts &&
		identity.filesystem == again.filesystem);
}

static void check_seen(const uint8_t *data, size_t size)
{
	static const struct volume_id volume = { { 1 } };
	struct generation_id id;
	struct generation_id again;

	put_file(SEEN_NAME, data, size);
	if (generation_seen_load(directory, &volume, &id) < 0)
		return;
	ensure(volume_id_equal(&id.volume, &volume));
	ensure(generation_seen_save(directory, &id) == 0);
	ensure(generation_seen_load(directory, &volume, &again) == 0);
	ensure(id.lineage == again.lineage && id.generation == again.generation &&
		memcmp(id.hash, again.hash, SHA256_BYTES) == 0 &&
		memcmp(id.seal, again.seal, SHA256_BYTES) == 0);
}

static void check_fence(const uint8_t *data, size_t size)
{
	struct err e = ERR_INIT;
	struct fence fence;
	struct fence again;

	put_file("cluster", data, size);
	fence_init(&fence);
	fence_init(&again);
	if (fence_load(&fence, directory, &e) < 0) {
		fuzz_check_line(&e);
	} else if (fence.stored) {
		ensure(fence.met.epoch > 0);
		fence.stored = false;
		(void)unlink(in_directory("cluster"));
		ensure(fence_save(&fence, directory) == 0);
		ensure(fence_load(&again, directory, &e) == 0 && again.stored);
		ensure(again.met.epoch == fence.met.epoch &&
			memcmp(again.met.cluster, fence.met.cluster, HELLO_CLUSTER_BYTES) == 0);
	}
	fence_release(&fence);
	fence_release(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	make_directory();
	if (size == 0 || size > TEXT_BYTES + 1)
		return 0;
	switch ((enum parser)(data[0] % PARSERS)) {
	case PARSER_FOOT:
		check_foot(data + 1, size - 1);
		check_place(data + 1, size - 1);
		break;
	case PARSER_ROW:
		check_row(data + 1, size - 1);
		break;
	case PARSER_IDENTITY:
		check_identity(data + 1, size - 1);
		break;
	case PARSER_SEEN:
		check_seen(data + 1, size - 1);
		break;
	case PARSER_FENCE:
	case PARSERS:
		check_fence(data + 1, size - 1);
		break;
	}
	return 0;
}

/* ---- seeds ----------------------------------------------------------------------------------- */

static void seed_file(enum parser parser, const char *name, const char *file)
{
	struct buf text = BUF_INIT(TEXT_BYTES);

	ensure(file_read_all(in_directory(file), &text) == 0);
	fuzz_seed_for((uint8_t)parser, name, text.data, text.len);
	buf_release(&text);
}

void fuzz_seeds(void)
{
	const struct extent_foot foot = { .volume = { { 1 } },
		.lineage = 2,
		.number = 3,
		.file_id = 4,
		.extent_bytes = 64 * CHUNK_BYTES };
	struct index_row row = { .id = { .volume = { { 1 } }, .lineage = 2, .chunk = 3 },
		.file = 4,
		.boot = 5,
		.complete = true,
		.extent = true,
		.class = TIER_COPY };
	const struct generation_id seen = {
		.volume = { { 1 } }, .lineage = 2, .generation = 3, .hash = { 4 }
	};
	uint8_t bytes[EXTENT_FOOT_BYTES];
	struct identity identity;
	struct fence fence;

	make_directory();
	extent_foot_encode(&foot, bytes);
	fuzz_seed_for(PARSER_FOOT, "foot", bytes, FOOT_BYTES);
	bytes[FOOT_BYTES] = 1;
	fuzz_seed_for(PARSER_FOOT, "foot-of-a-chunk", bytes, FOOT_BYTES + 1);
	index_key_encode(&row.id, bytes);
	index_value_encode(&row, bytes + INDEX_KEY_BYTES);
	fuzz_seed_for(PARSER_ROW, "row", bytes, INDEX_KEY_BYTES + INDEX_VALUE_BYTES);
	identity_init(&identity);
	(void)snprintf(identity.device, sizeof(identity.device), "uuid:4f1e"); /* fits */
	identity.capacity = 1ull << 40;
	ensure(identity_store(directory, &identity) == 0);
	seed_file(PARSER_IDENTITY, "identity", IDENTITY_NAME);
	ensure(generation_seen_save(directory, &seen) == 0);
	seed_file(PARSER_SEEN, "seen", SEEN_NAME);
	fence_init(&fence);
	fence.met = (struct hello_master){ .cluster = { 1 }, .epoch = 2 };
	ensure(fence_save(&fence, directory) == 0);
	fence_release(&fence);
	seed_file(PARSER_FENCE, "fence", "cluster");
}
