/* The generations in use, on disk. See client_seen.h. */
#include "client/client_seen.h"
#include "base/cleanup.h"
#include "base/file.h"
#include "base/hash.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#define SEEN_MAX 256u

static int seen_path(const char *dir, const struct volume_id *volume, char out[PATH_MAX])
{
	char hex[2 * VOLUME_ID_LEN + 1];

	hash_hex(volume->bytes, VOLUME_ID_LEN, hex);
	return snprintf(out, PATH_MAX, "%s/%s.seen", dir, hex) < PATH_MAX ? 0 : -ENAMETOOLONG;
}

bool client_seen_load(const char *dir, const struct volume_id *volume, struct generation_id *ret_id)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(SEEN_MAX);
	struct generation_id id = { .volume = *volume };
	unsigned long long lineage;
	unsigned long long generation;
	char hex[2 * SHA256_BYTES + 1];
	char path[PATH_MAX];

	if (seen_path(dir, volume, path) < 0 || file_read_all(path, &text) < 0 ||
		sscanf(buf_str(&text), "%16llx %llu %64s", &lineage, &generation, hex) != 3 ||
		hash_unhex(hex, id.hash, SHA256_BYTES) < 0)
		return false;
	id.lineage = lineage;
	id.generation = generation;
	*ret_id = id;
	return true;
}

int client_seen_save(const char *dir, const struct generation_id *id)
{
	char hex[2 * SHA256_BYTES + 1];
	char path[PATH_MAX];
	char line[SEEN_MAX];
	int n;
	int r = seen_path(dir, &id->volume, path);

	if (r < 0)
		return r;
	hash_hex(id->hash, SHA256_BYTES, hex);
	n = snprintf(line, sizeof(line), "%016llx %llu %s\n", (unsigned long long)id->lineage,
		(unsigned long long)id->generation, hex); /* fits */
	return file_write_atomic(path, line, (size_t)n, 0600);
}
