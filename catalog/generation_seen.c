/* The generations in use, on disk. See generation_seen.h. */
#include "catalog/generation_seen.h"
#include "base/cleanup.h"
#include "base/crash_point.h"
#include "base/file.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SEEN_MAX 320u
#define END_MAX  32u

static int seen_path(const char *dir, const struct volume_id *volume, char out[PATH_MAX])
{
	char hex[2 * VOLUME_ID_LEN + 1];

	hash_hex(volume->bytes, VOLUME_ID_LEN, hex);
	return snprintf(out, PATH_MAX, "%s/%s.seen", dir, hex) < PATH_MAX ? 0 : -ENAMETOOLONG;
}

/* The number before a blank; moves `at` behind that. */
static int take_number(const char **at, int base, uint64_t *ret_number)
{
	uint64_t number;
	char *end;

	errno = 0;
	number = strtoull(*at, &end, base);
	if (errno || end == *at || *end != ' ')
		return -EBADMSG;
	*ret_number = number;
	*at = end + 1;
	return 0;
}

/* The checksum of a line's fields, as it stands behind them. */
static void end_of(const char *line, size_t len, char out[END_MAX])
{
	(void)snprintf(out, END_MAX, " %016" PRIx64 "\n", hash_xxh3(line, len, 0)); /* fits */
}

/* Is the line as it was written? `end`: where its fields end. Earlier versions wrote no checksum. */
static bool is_intact(const char *line, const char *end)
{
	char wanted[END_MAX];

	end_of(line, (size_t)(end - line), wanted);
	return strcmp(end, "\n") == 0 || strcmp(end, wanted) == 0;
}

/* 32 bytes in hex; moves `at` behind them. */
static int take_hash(const char **at, uint8_t out[SHA256_BYTES])
{
	char hex[2 * SHA256_BYTES + 1];

	if (strlen(*at) < sizeof(hex) - 1)
		return -EBADMSG;
	memcpy(hex, *at, sizeof(hex) - 1);
	hex[sizeof(hex) - 1] = '\0';
	*at += sizeof(hex) - 1;
	return hash_unhex(hex, out, SHA256_BYTES) == 0 ? 0 : -EBADMSG;
}

/* Is there more than a checksum? Earlier versions wrote no seal. */
static bool has_seal(const char *at)
{
	return *at == ' ' && strlen(at) > END_MAX;
}

int generation_seen_load(
	const char *dir, const struct volume_id *volume, struct generation_id *ret_id)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(SEEN_MAX);
	struct generation_id id = { .volume = *volume };
	char path[PATH_MAX];
	const char *at;
	int r = seen_path(dir, volume, path);

	if (r == 0)
		r = file_read_all(path, &text);
	if (r < 0)
		return r == -ENOBUFS ? -EBADMSG : r;
	at = buf_str(&text);
	if (take_number(&at, 16, &id.lineage) < 0 || take_number(&at, 10, &id.generation) < 0 ||
		take_hash(&at, id.hash) < 0)
		return -EBADMSG;
	if (has_seal(at) && (at++, take_hash(&at, id.seal) < 0))
		return -EBADMSG;
	if (!is_intact(buf_str(&text), at))
		return -EBADMSG;
	*ret_id = id;
	return 0;
}

int generation_seen_save(const char *dir, const struct generation_id *id)
{
	char hex[2 * SHA256_BYTES + 1];
	char seal[2 * SHA256_BYTES + 1];
	char path[PATH_MAX];
	char line[SEEN_MAX];
	int n;
	int r = seen_path(dir, &id->volume, path);

	if (r < 0)
		return r;
	hash_hex(id->hash, SHA256_BYTES, hex);
	hash_hex(id->seal, SHA256_BYTES, seal);
	n = snprintf(line, sizeof(line), "%016" PRIx64 " %" PRIu64 " %s %s", id->lineage,
		id->generation, hex, seal); /* fits */
	end_of(line, (size_t)n, line + n);
	r = file_write_atomic(path, line, strlen(line), 0600);
	CRASH_POINT("seen.stored");
	return r;
}
