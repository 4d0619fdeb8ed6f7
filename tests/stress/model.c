/* The bucket of the stress test. See model.h. */
#include "tests/stress/model.h"
#include "base/cleanup.h"
#include "base/file.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

uint64_t model_mix(uint64_t x)
{
	x += 0x9E3779B97F4A7C15ull;
	x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
	x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
	return x ^ (x >> 31);
}

void model_key(uint32_t object, char out[MODEL_KEY])
{
	(void)snprintf(out, MODEL_KEY, "d%u/o%05u", object % 7, object); /* fits */
}

static uint64_t identity(const struct model *m, uint32_t object, uint32_t version)
{
	return model_mix(m->seed ^ model_mix((uint64_t)object << 32 | version));
}

/* Most are small, some cross units and pieces, a few are large. */
uint64_t model_size(const struct model *m, uint32_t object, uint32_t version)
{
	uint64_t x = identity(m, object, version) >> 1;

	if (object % 16 == 0)
		return (3u << 20) + x % (3u << 20);
	if (object % 4 == 0)
		return (1u << 19) + x % (1u << 20);
	return 1 + x % (200u << 10);
}

void model_bytes(const struct model *m, uint32_t object, uint32_t version, uint64_t from,
	size_t len, uint8_t *out)
{
	uint64_t seed = identity(m, object, version);
	uint64_t size = model_size(m, object, version);

	for (size_t i = 0; i < len;) {
		uint64_t at = from + i;
		uint64_t word = model_mix(seed ^ (at / 8 + 1));
		size_t n = min(8 - (size_t)(at % 8), len - i);

		if (at >= size)
			word = 0;
		else if (size - at < n)
			n = (size_t)(size - at);
		memcpy(out + i, (const uint8_t *)&word + (at < size ? at % 8 : 0), n);
		i += n;
	}
}

int model_put(struct model *m, uint32_t object, uint32_t version)
{
	_cleanup_free_ uint8_t *data = NULL;
	char path[PATH_MAX];
	char key[MODEL_KEY];
	uint64_t size = version ? model_size(m, object, version) : 0;
	int r;

	model_key(object, key);
	(void)snprintf(path, sizeof(path), "%s%.2s", m->dir, key); /* fits */
	r = file_mkdirs(path, 0700);
	if (r < 0)
		return r;
	(void)snprintf(path, sizeof(path), "%s%s", m->dir, key);
	/* First, so that a reader who is told that it changed can see that it did. */
	atomic_store(&m->origin_version[object], version);
	if (version == 0)
		return unlink(path) == 0 || errno == ENOENT ? 0 : err_errno();
	data = malloc(size);
	if (!data)
		return -ENOMEM;
	model_bytes(m, object, version, 0, size, data);
	return file_write_atomic(path, data, size, 0600);
}
