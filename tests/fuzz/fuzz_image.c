/*
 * Fuzzer of the image reader: no image may crash it or keep it busy, and whatever it answers obeys
 * the rules of a sound image.
 *
 * The first byte chooses what the rest is: 0 an image as it stands; else patches of a sound image,
 * each of three bytes of offset, one of length - 1 (low three bits), and the bytes.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
#include "base/cleanup.h"
#include "base/file.h"
#include "catalog/catalog.h"
#include "tests/fuzz/image_walk.h"

#define IMAGE_MAX (512u << 10)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint8_t sound[IMAGE_MAX];
static size_t sound_bytes;

static void add(struct listing *l, const char *key, uint64_t size)
{
	ensure(listing_add(l, key, (uint32_t)strlen(key), size, 1700000000123000000, "t", 1) == 0);
}

/* Names of several blocks, files with one index, with some, with more than a block of them. */
static struct listing *sound_listing(void)
{
	struct listing *l = listing_new(16 << 20);
	char key[300];

	ensure(l);
	add(l, "!before/dots", 1);
	add(l, "a", 1);
	add(l, "a/b/c/d", 5000);
	add(l, "empty", 0);
	add(l, "big/17", 17 << 20);
	add(l, "big/40", 40 << 20);
	add(l, "big/600", 600ull << 20);
	for (uint32_t i = 0; i < 40; i++) {
		snprintf(key, sizeof(key), "many/%0200u", i);
		add(l, key, i * 1000);
	}
	return l;
}

static void sound_build(void)
{
	struct image_options options = { .umask = 022, .extent_bytes = CHUNK_BYTES };
	static const struct volume_id volume = { { 1 } };
	char dir[] = "/dev/shm/granary-fuzz-XXXXXX";
	struct listing *l = sound_listing();
	struct image_info info;
	struct table *table;
	char table_path[64];
	char path[64];
	int fd;

	ensure(mkdtemp(dir));
	snprintf(table_path, sizeof(table_path), "%s/table", dir);
	snprintf(path, sizeof(path), "%s/image", dir);
	ensure(generation_build(&volume, NULL, l, table_path, NULL, NULL, NULL) == 0);
	listing_free(l);
	fd = open(table_path, O_RDONLY | O_CLOEXEC);
	ensure(table_open(fd, &table, NULL) == 0);
	ensure(image_build(table, &options, path, NULL, NULL, &info, NULL) == 0);
	table_unref(table);
	ensure(info.image_bytes <= sizeof(sound));
	fd = open(path, O_RDONLY | O_CLOEXEC);
	ensure(fd >= 0 && file_pread_exact(fd, sound, info.image_bytes, 0) == 0);
	(void)close(fd);
	(void)unlink(table_path);
	(void)unlink(path);
	(void)rmdir(dir);
	sound_bytes = info.image_bytes;
}

static void patch(uint8_t *image, const uint8_t *p, const uint8_t *end)
{
	while (end - p > 4) {
		size_t at = (p[0] | (size_t)p[1] << 8 | (size_t)p[2] << 16) % sound_bytes;
		size_t n = (p[3] & 7u) + 1;

		p += 4;
		n = min(n, (size_t)(end - p));
		n = min(n, sound_bytes - at);
		memcpy(image + at, p, n);
		p += n;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static uint8_t image[IMAGE_MAX];
	struct image *reader;
	size_t len;
	int fd;

	if (!sound_bytes)
		sound_build();
	if (size < 2 || size > sizeof(image))
		return 0;
	if (data[0] == 0) {
		len = size - 1;
		memcpy(image, data + 1, len);
	} else {
		len = sound_bytes;
		memcpy(image, sound, len);
		patch(image, data + 1, data + size);
	}
	fd = memfd_create("image", MFD_CLOEXEC);
	ensure(fd >= 0 && file_pwrite_exact(fd, image, len, 0) == 0);
	if (image_open(fd, CHUNK_BYTES, NULL, &reader, NULL) < 0)
		return 0;
	(void)image_walk(reader, CHUNK_BYTES, len);
	image_close(reader);
	return 0;
}
