/*
 * What of EROFS we write (Linux fs/erofs/erofs_fs.h), little-endian, blocks of 4 KiB:
 *
 *	0     1024      1152       1280                    the next block
 *	| -   | super   | root     | device slots, 128 each | blocks of inodes and of directories
 *
 * meta_blkaddr is 0, so an inode's nid is its offset / 32; the root's must fit 16 bits and is 36.
 * A file with bytes is "chunk based": after its inode one index of 8 bytes per chunk names device
 * and block. A directory is "flat plain": its blocks lie together, each with its dirents, then
 * their names, the whole in memcmp order.
 */
#pragma once

#include <assert.h>
#include <stdint.h>

#define EROFS_MAGIC            0xE0F5E1E2u
#define EROFS_SUPER_OFFSET     1024u
#define EROFS_INCOMPAT_CHUNKED 0x4u
#define EROFS_INCOMPAT_DEVICES 0x8u
#define EROFS_NID_BITS         5u
#define EROFS_LAYOUT_PLAIN     (0u << 1 | 1u) /* i_format: layout, extended inode */
#define EROFS_LAYOUT_CHUNKED   (4u << 1 | 1u)
#define EROFS_CHUNK_INDEXES    0x20u /* i_u of a chunk based inode, | log2 of the chunk's blocks */
#define EROFS_TYPE_FILE        1u
#define EROFS_TYPE_DIRECTORY   2u
#define EROFS_SLOT_BYTES       128u
#define EROFS_TAG_BYTES        64u

struct erofs_super {
	uint32_t magic;
	uint32_t checksum;
	uint32_t feature_compat;
	uint8_t block_bits;
	uint8_t ext_slots;
	uint16_t root_nid;
	uint64_t inodes;
	uint64_t build_time;
	uint32_t build_time_nsec;
	uint32_t blocks;
	uint32_t meta_block;
	uint32_t xattr_block;
	uint8_t uuid[16];
	uint8_t volume_name[16];
	uint32_t feature_incompat;
	uint16_t compression;
	uint16_t extra_devices;
	uint16_t device_slot; /* offset of the table / EROFS_SLOT_BYTES */
	uint8_t zero[38];
};
static_assert(sizeof(struct erofs_super) == 128, "disk format");

struct erofs_device {
	uint8_t tag[EROFS_TAG_BYTES];
	uint32_t blocks;
	uint32_t mapped_block;
	uint8_t zero[56];
};
static_assert(sizeof(struct erofs_device) == EROFS_SLOT_BYTES, "disk format");

struct erofs_inode {
	uint16_t format;
	uint16_t xattr_count;
	uint16_t mode;
	uint16_t zero0;
	uint64_t size;
	uint32_t u; /* first block of a directory, chunk format of a file */
	uint32_t ino;
	uint32_t uid;
	uint32_t gid;
	uint64_t mtime;
	uint32_t mtime_nsec;
	uint32_t nlink;
	uint8_t zero1[16];
};
static_assert(sizeof(struct erofs_inode) == 64, "disk format");

struct erofs_chunk {
	uint16_t advise;
	uint16_t device; /* 1 is the first extent */
	uint32_t block;
};
static_assert(sizeof(struct erofs_chunk) == 8, "disk format");

struct erofs_dirent {
	uint64_t nid;
	uint16_t name_offset;
	uint8_t type;
	uint8_t zero;
} __attribute__((packed));
static_assert(sizeof(struct erofs_dirent) == 12, "disk format");
