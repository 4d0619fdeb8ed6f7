/*
 * What an image says of itself and of its devices: super block and device table, and before that how
 * the volumes are divided. See image_internal.h.
 */
#include "catalog/image_internal.h"
#include "base/file.h"

#include <stdio.h>

/* ---- devices --------------------------------------------------------------------------------- */

/* How many extents a volume takes. Behind those of a device that others follow on there is always
 * something that is never asked for: no read of one volume runs on into the next. */
static uint64_t extents_of(const struct image_shape *s, uint32_t source, uint64_t extent_bytes)
{
	uint64_t end = table_info(s->sources[source].table)->end;

	if (s->options->one_device && s->n > 1)
		return end / extent_bytes + 1;
	return end / extent_bytes + (end % extent_bytes != 0);
}

/* Of all volumes, UINT64_MAX: more than any image has. */
static uint64_t extents_count(const struct image_shape *s, uint64_t extent_bytes)
{
	uint64_t n = 0;

	for (uint32_t i = 0; i < s->n; i++) {
		n += extents_of(s, i, extent_bytes);
		if (n > LIMIT_DEVICES)
			return UINT64_MAX;
	}
	return n;
}

int image_shape_choose(struct image_shape *s)
{
	struct layout_sources *sources = &s->info.sources;
	uint64_t bytes = s->options->extent_bytes;

	if (bytes == 0)
		for (bytes = EXTENT_MIN; bytes <= EXTENT_MAX; bytes *= 2)
			if (extents_count(s, bytes) <= LIMIT_DEVICES)
				break;
	if (bytes < CHUNK_BYTES || bytes > EXTENT_MAX || (bytes & (bytes - 1)))
		return -EINVAL;
	if (extents_count(s, bytes) > LIMIT_DEVICES)
		return s->n > 1 ? -E2BIG : -EINVAL;
	sources->n = s->n;
	s->info.extent_bytes = bytes;
	s->info.extents = 0;
	for (uint32_t i = 0; i < s->n; i++) {
		sources->first[i] = s->info.extents;
		s->end = s->info.extents * bytes + table_info(s->sources[i].table)->end;
		s->info.extents += (uint32_t)extents_of(s, i, bytes);
	}
	s->info.extents++;
	return 0;
}

/* ---- head ------------------------------------------------------------------------------------ */

/* What makes the image one device's. */
static void super_one_device(const struct image_shape *s, struct erofs_super *super)
{
	super->feature_incompat = EROFS_INCOMPAT_CHUNKED;
	super->blocks = (uint32_t)((s->info.volume_offset + s->end) / BLOCK_BYTES);
	super->extra_devices = 0;
	super->device_slot = 0;
}

/* A name for what the image shows. */
static void set_uuid(const struct image_shape *s, uint8_t uuid[16])
{
	uint8_t digest[SHA256_BYTES];
	struct hash_sha256 *h;

	memcpy(digest, table_info(s->sources[0].table)->id.hash, sizeof(digest));
	h = s->n > 1 ? hash_sha256_new() : NULL; /* without memory: the first one's */
	for (uint32_t i = 0; h && i < s->n; i++)
		hash_sha256_update(h, table_info(s->sources[i].table)->id.hash, SHA256_BYTES);
	if (h)
		hash_sha256_final(h, digest);
	memcpy(uuid, digest, 16);
}

/* The kernel only adds these up, and shows the sum as the size of the file system: it is that of the files, wherever they are. */
static uint32_t device_blocks(const struct image_shape *s, uint32_t i)
{
	uint64_t most = s->info.extent_bytes / BLOCK_BYTES;
	uint64_t before = i * most;

	return s->blocks > before ? (uint32_t)min(s->blocks - before, most) : 1;
}

/* Device `i`: its tag is the volume and the extent's number there. */
static int device_write(const struct image_shape *s, int fd, uint32_t i)
{
	const struct layout_sources *sources = &s->info.sources;
	uint32_t source = layout_source_of_device(sources, i);
	struct erofs_device device = { .blocks = device_blocks(s, i) };
	char volume[2 * VOLUME_ID_LEN + 1];

	hash_hex(table_info(s->sources[source].table)->id.volume.bytes, VOLUME_ID_LEN, volume);
	(void)snprintf((char *)device.tag, sizeof(device.tag), "%s:%u", volume,
		i - sources->first[source]); /* fits */
	return file_pwrite_exact(
		fd, &device, sizeof(device), IMAGE_DEVICES_OFFSET + (uint64_t)i * sizeof(device));
}

int image_head_write(const struct image_shape *s, int fd, uint64_t blocks)
{
	uint32_t slots = s->options->one_device ? 0 : s->info.extents;
	struct erofs_super super = {
		.magic = EROFS_MAGIC,
		.block_bits = BLOCK_BITS,
		.root_nid = IMAGE_ROOT_OFFSET >> EROFS_NID_BITS,
		.inodes = s->info.files + s->info.directories,
		.build_time = (uint64_t)s->built_at,
		.blocks = (uint32_t)blocks,
		.feature_incompat = EROFS_INCOMPAT_CHUNKED | EROFS_INCOMPAT_DEVICES,
		.extra_devices = (uint16_t)s->info.extents,
		.device_slot = IMAGE_DEVICES_OFFSET / EROFS_SLOT_BYTES,
	};
	int r;

	set_uuid(s, super.uuid);
	memcpy(super.volume_name, "granary", sizeof("granary"));
	if (s->options->one_device)
		super_one_device(s, &super);
	r = file_pwrite_exact(fd, &super, sizeof(super), EROFS_SUPER_OFFSET);
	for (uint32_t i = 0; r == 0 && i < slots; i++)
		r = device_write(s, fd, i);
	return r;
}
