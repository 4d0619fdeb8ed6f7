/* Reading the chunk map. See chunk_map.h. */
#include "base/err.h"
#include "locate/chunk_map_internal.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#define READ_ATTEMPTS 8u /* an entry that changes that often is not known for now */

struct chunk_map {
	struct chunk_map_view view;
	uint64_t start;
};

uint64_t chunk_map_bytes(uint32_t slots)
{
	return sizeof(struct chunk_map_head) +
	       (uint64_t)slots * (sizeof(struct chunk_map_entry) + sizeof(struct chunk_map_bits));
}

uint32_t chunk_map_slots(uint64_t bytes)
{
	uint32_t slots = CHUNK_MAP_SLOTS_MIN;

	while (slots < CHUNK_MAP_SLOTS_MAX && chunk_map_bytes(slots * 2) <= bytes)
		slots *= 2;
	return slots;
}

struct chunk_map_view chunk_map_view_of(void *memory, uint32_t slots)
{
	char *at = memory;

	return (struct chunk_map_view){
		.head = memory,
		.entries = (void *)(at + sizeof(struct chunk_map_head)),
		.bits = (void *)(at + sizeof(struct chunk_map_head) +
				 (size_t)slots * sizeof(struct chunk_map_entry)),
		.slots = slots,
	};
}

static int check_head(const struct chunk_map_head *head, uint64_t file_bytes)
{
	uint32_t slots = head->slots;

	if (head->magic != CHUNK_MAP_MAGIC)
		return -EBADMSG;
	if (head->version != CHUNK_MAP_VERSION || head->zero != 0)
		return -EPROTONOSUPPORT;
	if (slots < CHUNK_MAP_SLOTS_MIN || slots > CHUNK_MAP_SLOTS_MAX || (slots & (slots - 1)) ||
		head->start == 0 || chunk_map_bytes(slots) != file_bytes)
		return -EBADMSG;
	return 0;
}

int chunk_map_open(int fd, struct chunk_map **ret_map)
{
	const int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE;
	struct chunk_map *map;
	struct stat st;
	void *memory;
	int have;
	int r;

	if (fstat(fd, &st) != 0)
		return err_errno();
	have = fcntl(fd, F_GET_SEALS); /* negative: it can have none */
	/* What could be cut would be a SIGBUS some day. */
	if (have < 0 || (have & seals) != seals ||
		st.st_size < (off_t)chunk_map_bytes(CHUNK_MAP_SLOTS_MIN) ||
		st.st_size > (off_t)chunk_map_bytes(CHUNK_MAP_SLOTS_MAX))
		return -EBADMSG;
	map = calloc(1, sizeof(*map));
	if (!map)
		return -ENOMEM;
	memory = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
	if (memory == MAP_FAILED) {
		r = err_errno();
		free(map);
		return r;
	}
	r = check_head(memory, (uint64_t)st.st_size);
	if (r < 0) {
		(void)munmap(memory, (size_t)st.st_size); /* as it was mapped */
		free(map);
		return r;
	}
	map->start = ((const struct chunk_map_head *)memory)->start;
	map->view = chunk_map_view_of(
		memory, (uint32_t)(((uint64_t)st.st_size - sizeof(struct chunk_map_head)) /
				   (chunk_map_bytes(1) - chunk_map_bytes(0))));
	*ret_map = map;
	return 0;
}

void chunk_map_close(struct chunk_map *map)
{
	if (!map)
		return;
	(void)munmap(map->view.head, chunk_map_bytes(map->view.slots)); /* as it was mapped */
	free(map);
}

uint64_t chunk_map_start(const struct chunk_map *map)
{
	return map->start;
}

static void load_row(
	const struct chunk_map_entry *entry, struct chunk_map_row *row, uint32_t *ret_flags)
{
	uint64_t volume[2] = {
		atomic_load_explicit(&entry->volume[0], memory_order_acquire),
		atomic_load_explicit(&entry->volume[1], memory_order_acquire),
	};

	memcpy(row->id.volume.bytes, volume, sizeof(volume));
	row->id.lineage = atomic_load_explicit(&entry->lineage, memory_order_acquire);
	row->id.chunk = atomic_load_explicit(&entry->chunk, memory_order_acquire);
	row->file = atomic_load_explicit(&entry->file, memory_order_acquire);
	row->extent = atomic_load_explicit(&entry->extent, memory_order_acquire);
	row->tier = atomic_load_explicit(&entry->tier, memory_order_acquire) % CHUNK_MAP_TIERS;
	*ret_flags = atomic_load_explicit(&entry->flags, memory_order_acquire);
}

bool chunk_map_read(const struct chunk_map_entry *entry, struct chunk_map_row *ret_row,
	uint32_t *ret_flags, uint64_t *ret_seq)
{
	for (uint32_t i = 0; i < READ_ATTEMPTS; i++) {
		uint64_t seq = atomic_load_explicit(&entry->seq, memory_order_acquire);

		if (seq % 2)
			continue;
		load_row(entry, ret_row, ret_flags);
		if (atomic_load_explicit(&entry->seq, memory_order_relaxed) != seq)
			continue;
		*ret_seq = seq;
		return true;
	}
	return false;
}

uint32_t chunk_map_find(const struct chunk_map *map, const struct chunk_id *id,
	struct chunk_map_row *ret_row, uint64_t *ret_seq)
{
	uint32_t slots = map->view.slots;
	uint32_t first = chunk_map_first(id, slots);

	for (uint32_t i = 0; i < CHUNK_MAP_PROBE; i++) {
		uint32_t slot = (first + i) & (slots - 1);
		struct chunk_map_row row;
		uint32_t flags;
		uint64_t seq;

		if (!chunk_map_read(&map->view.entries[slot], &row, &flags, &seq))
			continue;
		if (seq == 0)
			break;
		if (!(flags & CHUNK_MAP_LIVE) || !chunk_id_equal(&row.id, id))
			continue;
		*ret_row = row;
		*ret_seq = seq;
		return slot;
	}
	return CHUNK_MAP_NONE;
}

bool chunk_map_holds(const struct chunk_map *map, uint32_t slot, uint64_t seq)
{
	ensure(slot < map->view.slots);
	return atomic_load_explicit(&map->view.entries[slot].seq, memory_order_acquire) == seq;
}

bool chunk_map_load(const struct chunk_map *map, uint32_t slot, uint64_t seq,
	uint64_t ret_bits[CHUNK_MAP_WORDS])
{
	const struct chunk_map_entry *entry = &map->view.entries[slot];
	const struct chunk_map_bits *bits = &map->view.bits[slot];

	if (!chunk_map_holds(map, slot, seq))
		return false;
	if (atomic_load_explicit(&entry->flags, memory_order_acquire) & CHUNK_MAP_COMPLETE)
		memset(ret_bits, 0xff, CHUNK_MAP_WORDS * sizeof(*ret_bits));
	else
		for (uint32_t w = 0; w < CHUNK_MAP_WORDS; w++)
			ret_bits[w] = atomic_load_explicit(&bits->words[w], memory_order_acquire);
	return atomic_load_explicit(&entry->seq, memory_order_relaxed) == seq;
}

bool chunk_map_away(const struct chunk_map *map, uint32_t tier)
{
	return atomic_load_explicit(&map->view.head->away, memory_order_acquire) >>
		       (tier % CHUNK_MAP_TIERS) &
	       1;
}

uint64_t chunk_map_capacity(const struct chunk_map *map)
{
	return atomic_load_explicit(&map->view.head->capacity, memory_order_acquire);
}
