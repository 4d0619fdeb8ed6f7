/* Writing the chunk map. See chunk_map.h. */
#include "base/err.h"
#include "locate/chunk_map_internal.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct chunk_map_writer {
	struct chunk_map_view view;
	int fd;
	uint64_t start;
	void (*on_store)(void *arg);
	void *on_store_arg;
	/* Read by others, too: */
	_Atomic uint32_t used;
	_Atomic uint64_t refused;
};

/* Fuller than that, chains grow past CHUNK_MAP_PROBE. */
static uint32_t most(const struct chunk_map_writer *writer)
{
	return writer->view.slots / 4 * 3;
}

/* It cannot be mapped for writing, or cut, from now on; this mapping stays. */
static int make_memory(struct chunk_map_writer *writer, uint32_t slots)
{
	const int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL;
	size_t bytes = chunk_map_bytes(slots);
	void *memory;

	writer->fd = memfd_create("granary-chunk-map", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (writer->fd < 0 || ftruncate(writer->fd, (off_t)bytes) != 0)
		return err_errno();
	memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, writer->fd, 0);
	if (memory == MAP_FAILED)
		return err_errno();
	writer->view = chunk_map_view_of(memory, slots);
	return fcntl(writer->fd, F_ADD_SEALS, seals) == 0 ? 0 : err_errno();
}

int chunk_map_writer_new(uint32_t slots, struct chunk_map_writer **ret_writer)
{
	struct chunk_map_writer *writer;
	int r;

	ensure(slots >= CHUNK_MAP_SLOTS_MIN && slots <= CHUNK_MAP_SLOTS_MAX &&
		(slots & (slots - 1)) == 0);
	writer = calloc(1, sizeof(*writer));
	if (!writer)
		return -ENOMEM;
	writer->fd = -1;
	r = make_memory(writer, slots);
	if (r < 0) {
		chunk_map_writer_free(writer);
		return r;
	}
	do {
		hash_random(&writer->start, sizeof(writer->start));
	} while (writer->start == 0);
	*writer->view.head = (struct chunk_map_head){
		.magic = CHUNK_MAP_MAGIC,
		.version = CHUNK_MAP_VERSION,
		.start = writer->start,
		.slots = slots,
	};
	*ret_writer = writer;
	return 0;
}

void chunk_map_writer_free(struct chunk_map_writer *writer)
{
	if (!writer)
		return;
	if (writer->view.head)
		(void)munmap(writer->view.head,
			chunk_map_bytes(writer->view.slots)); /* as it was mapped */
	if (writer->fd >= 0)
		(void)close(writer->fd); /* memory */
	free(writer);
}

uint64_t chunk_map_writer_start(const struct chunk_map_writer *writer)
{
	return writer->start;
}

int chunk_map_writer_fd(const struct chunk_map_writer *writer, int *ret_fd)
{
	char path[32];
	int fd;

	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", writer->fd);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return err_errno();
	*ret_fd = fd;
	return 0;
}

/* ---- stores ---------------------------------------------------------------------------------- */

static void store64(struct chunk_map_writer *writer, _Atomic uint64_t *at, uint64_t value)
{
	if (writer->on_store)
		writer->on_store(writer->on_store_arg);
	atomic_store_explicit(at, value, memory_order_release);
}

static void store32(struct chunk_map_writer *writer, _Atomic uint32_t *at, uint32_t value)
{
	if (writer->on_store)
		writer->on_store(writer->on_store_arg);
	atomic_store_explicit(at, value, memory_order_release);
}

/* The writer's own look at what it stored. */
#define load(at) atomic_load_explicit(at, memory_order_relaxed)

/* Readers rely on nothing of the entry until end_change(); nor before, when a writer died within
 * one. */
static void begin_change(struct chunk_map_writer *writer, struct chunk_map_entry *entry)
{
	store64(writer, &entry->seq, load(&entry->seq) | 1);
}

static void end_change(struct chunk_map_writer *writer, struct chunk_map_entry *entry)
{
	store64(writer, &entry->seq, load(&entry->seq) + 1);
}

/* ---- entries --------------------------------------------------------------------------------- */

static bool is_chunk(const struct chunk_map_entry *entry, const struct chunk_id *id)
{
	uint64_t volume[2] = { load(&entry->volume[0]), load(&entry->volume[1]) };

	return load(&entry->flags) & CHUNK_MAP_LIVE && load(&entry->chunk) == id->chunk &&
	       load(&entry->lineage) == id->lineage &&
	       memcmp(volume, id->volume.bytes, sizeof(volume)) == 0;
}

/* The chunk's slot, or CHUNK_MAP_NONE; *ret_free is one where it could be put. */
static uint32_t find_slot(
	const struct chunk_map_writer *writer, const struct chunk_id *id, uint32_t *ret_free)
{
	uint32_t slots = writer->view.slots;
	uint32_t first = chunk_map_first(id, slots);

	*ret_free = CHUNK_MAP_NONE;
	for (uint32_t i = 0; i < CHUNK_MAP_PROBE; i++) {
		uint32_t slot = (first + i) & (slots - 1);
		const struct chunk_map_entry *entry = &writer->view.entries[slot];

		if (is_chunk(entry, id))
			return slot;
		if (*ret_free == CHUNK_MAP_NONE && !(load(&entry->flags) & CHUNK_MAP_LIVE))
			*ret_free = slot;
		if (load(&entry->seq) == 0)
			break;
	}
	return CHUNK_MAP_NONE;
}

static bool all_set(const uint64_t bits[CHUNK_MAP_WORDS])
{
	for (uint32_t w = 0; w < CHUNK_MAP_WORDS; w++)
		if (bits[w] != UINT64_MAX)
			return false;
	return true;
}

static void store_bits(struct chunk_map_writer *writer, struct chunk_map_bits *at,
	const uint64_t bits[CHUNK_MAP_WORDS])
{
	for (uint32_t w = 0; w < CHUNK_MAP_WORDS; w++)
		if (load(&at->words[w]) != bits[w])
			store64(writer, &at->words[w], bits[w]);
}

static void replace(struct chunk_map_writer *writer, uint32_t slot, const struct chunk_map_row *row,
	const uint64_t bits[CHUNK_MAP_WORDS])
{
	struct chunk_map_entry *entry = &writer->view.entries[slot];
	bool complete = all_set(bits);
	uint64_t volume[2];

	memcpy(volume, row->id.volume.bytes, sizeof(volume));
	begin_change(writer, entry);
	store64(writer, &entry->volume[0], volume[0]);
	store64(writer, &entry->volume[1], volume[1]);
	store64(writer, &entry->lineage, row->id.lineage);
	store64(writer, &entry->chunk, row->id.chunk);
	store64(writer, &entry->file, row->file);
	store64(writer, &entry->extent, row->extent);
	store32(writer, &entry->tier, row->tier);
	if (!complete) /* else their memory need not even exist */
		store_bits(writer, &writer->view.bits[slot], bits);
	store32(writer, &entry->flags, CHUNK_MAP_LIVE | (complete ? CHUNK_MAP_COMPLETE : 0));
	end_change(writer, entry);
}

/* The chunk lies where the entry says, and no bit of it goes. */
static bool only_adds(const struct chunk_map_writer *writer, uint32_t slot,
	const struct chunk_map_row *row, const uint64_t bits[CHUNK_MAP_WORDS])
{
	const struct chunk_map_entry *entry = &writer->view.entries[slot];
	const struct chunk_map_bits *had = &writer->view.bits[slot];

	if (load(&entry->file) != row->file || load(&entry->extent) != row->extent ||
		load(&entry->tier) != row->tier)
		return false;
	if (load(&entry->flags) & CHUNK_MAP_COMPLETE)
		return all_set(bits);
	for (uint32_t w = 0; w < CHUNK_MAP_WORDS; w++)
		if (load(&had->words[w]) & ~bits[w])
			return false;
	return true;
}

static void add_bits(
	struct chunk_map_writer *writer, uint32_t slot, const uint64_t bits[CHUNK_MAP_WORDS])
{
	struct chunk_map_entry *entry = &writer->view.entries[slot];

	if (load(&entry->flags) & CHUNK_MAP_COMPLETE)
		return;
	store_bits(writer, &writer->view.bits[slot], bits);
	if (all_set(bits))
		store32(writer, &entry->flags, CHUNK_MAP_LIVE | CHUNK_MAP_COMPLETE);
}

bool chunk_map_put(struct chunk_map_writer *writer, const struct chunk_map_row *row,
	const uint64_t bits[CHUNK_MAP_WORDS])
{
	uint32_t free_slot;
	uint32_t slot = find_slot(writer, &row->id, &free_slot);

	ensure(row->tier < CHUNK_MAP_TIERS);
	if (slot == CHUNK_MAP_NONE &&
		(free_slot == CHUNK_MAP_NONE || load(&writer->used) >= most(writer))) {
		atomic_fetch_add_explicit(&writer->refused, 1, memory_order_relaxed);
		return false;
	}
	if (slot == CHUNK_MAP_NONE) {
		replace(writer, free_slot, row, bits);
		atomic_fetch_add_explicit(&writer->used, 1, memory_order_relaxed);
	} else if (only_adds(writer, slot, row, bits)) {
		add_bits(writer, slot, bits);
	} else {
		replace(writer, slot, row, bits);
	}
	return true;
}

void chunk_map_remove(struct chunk_map_writer *writer, const struct chunk_id *id)
{
	uint32_t free_slot;
	uint32_t slot = find_slot(writer, id, &free_slot);
	struct chunk_map_entry *entry;

	if (slot == CHUNK_MAP_NONE)
		return;
	entry = &writer->view.entries[slot];
	begin_change(writer, entry);
	store32(writer, &entry->flags, 0);
	end_change(writer, entry);
	atomic_fetch_sub_explicit(&writer->used, 1, memory_order_relaxed);
}

void chunk_map_set_away(struct chunk_map_writer *writer, uint64_t tiers)
{
	if (load(&writer->view.head->away) != tiers)
		store64(writer, &writer->view.head->away, tiers);
}

void chunk_map_set_capacity(struct chunk_map_writer *writer, uint64_t bytes)
{
	if (load(&writer->view.head->capacity) != bytes)
		store64(writer, &writer->view.head->capacity, bytes);
}

bool chunk_map_chunk_at(
	const struct chunk_map_writer *writer, uint32_t slot, struct chunk_id *ret_id)
{
	struct chunk_map_row row;
	uint32_t flags;
	uint64_t seq;

	if (slot >= writer->view.slots ||
		!chunk_map_read(&writer->view.entries[slot], &row, &flags, &seq) ||
		!(flags & CHUNK_MAP_LIVE))
		return false;
	*ret_id = row.id;
	return true;
}

void chunk_map_writer_use(const struct chunk_map_writer *writer, struct chunk_map_use *ret_use)
{
	*ret_use = (struct chunk_map_use){
		.used = load(&writer->used),
		.max = most(writer),
		.refused = load(&writer->refused),
	};
}

void chunk_map_writer_on_store(struct chunk_map_writer *writer, void (*fn)(void *arg), void *arg)
{
	writer->on_store_arg = arg;
	writer->on_store = fn;
}
