/* The seed of an object's piece checksums, and the id of a volume. See catalog.h. */
#include "catalog/catalog.h"

#define SEED_VERSION 0x4752414e41525931ull /* "GRANARY1": other bytes, other checksums */

void volume_id_of_source(const char *source, struct volume_id *ret_id)
{
	uint8_t digest[SHA256_BYTES];

	hash_sha256(source, strlen(source), digest);
	memcpy(ret_id->bytes, digest, VOLUME_ID_LEN);
}

/* The key's hash seeds the tag's, so that ("a", "bc") and ("ab", "c") differ. */
uint64_t piece_object_seed(const char *key, uint32_t key_len, const char *tag, uint32_t tag_len)
{
	return hash_xxh3(tag, tag_len, hash_xxh3(key, key_len, SEED_VERSION));
}
