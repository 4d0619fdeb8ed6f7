/* What the tests of extents share: the layout of a volume, and its chunks. */
#pragma once

#include "tests/unit/tiers/tier_fixture.h"
#include "base/crash_point.h"
#include "tiers/disk.h"
#include "tiers/extent_internal.h"
#include "tiers/tier_set_internal.h"

#define EXTENT     (4ull * CHUNK_BYTES)
#define RUN_BYTES  (150u << 10) /* three pieces, the last of 22 KiB */
#define RUN_OFFSET (3u << 20)

static inline void layout_in(struct fixture *f, uint64_t used, uint64_t extent_bytes)
{
	const struct chunk_id id = chunk_number(0);
	const struct tier_layout layout = {
		.end = 64 * CHUNK_BYTES, .used = used, .extent_bytes = extent_bytes, .whole = true
	};

	assert_int_equal(tier_set_layout(f->set, &id.volume, id.lineage, &layout), 0);
}

static inline void layout(struct fixture *f, uint64_t used)
{
	layout_in(f, used, EXTENT);
}

static inline struct piece_run run_in(uint64_t n)
{
	return run_of(RUN_OFFSET, RUN_BYTES, n + 1);
}

static inline void write_chunk(struct fixture *f, uint64_t n)
{
	struct piece_run run = run_in(n);

	assert_int_equal(write_run(f, n, &run), 0);
}

static inline void check_chunk(struct fixture *f, uint64_t n)
{
	struct piece_run run = run_in(n);

	assert_int_equal(read_run(f, n, &run), 0);
}

static inline bool in_extent(struct fixture *f, uint64_t n)
{
	struct chunk_id id = chunk_number(n);
	struct chunk *chunk = tier_chunk_find(f->set, &id);
	bool is;

	assert_non_null(chunk);
	is = chunk_extent_bytes(chunk) == EXTENT;
	chunk_unref(chunk);
	return is;
}

static inline void path_of(struct fixture *f, uint64_t extent, char out[500])
{
	(void)snprintf(out, 500, "%s/ext/a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5.%016x/%llu", f->path, 77,
		(unsigned long long)extent);
}

static inline bool file_exists(struct fixture *f, uint64_t extent)
{
	char path[500];

	path_of(f, extent, path);
	return access(path, F_OK) == 0;
}

/* As the thread does in the background. */
static inline void move_all(struct fixture *f)
{
	for (int i = 0; i < 1000 && extents_round(f->set); i++)
		;
}

static inline void no_layout(struct fixture *f)
{
	const struct chunk_id id = chunk_number(0);
	const struct tier_layout part = {
		.end = 64 * CHUNK_BYTES, .used = 10 * CHUNK_BYTES, .extent_bytes = EXTENT
	};

	assert_int_equal(tier_set_layout(f->set, &id.volume, id.lineage, &part), 0);
}

/* Without the thread: the test says when. */
static inline void open_still(struct fixture *f)
{
	fixture_open(f);
	space_stop(f->set);
}

static inline void reopen_still(struct fixture *f)
{
	fixture_close(f);
	open_still(f);
}

static inline void layout_used(struct fixture *f, uint64_t used)
{
	layout(f, used);
	move_all(f);
}
