/* Objects that their origin refused. See refused.h. */
#include "ufs/refused.h"
#include "base/arena.h"
#include "base/cleanup.h"

#include <assert.h>
#include <stdlib.h>

#define SETS_FIRST 128u
#define SETS_MAX   (REFUSED_MAX / REFUSED_WAYS)

static_assert((SETS_FIRST & (SETS_FIRST - 1)) == 0 && (SETS_MAX & (SETS_MAX - 1)) == 0,
	"a set is found by a mask");

static uint64_t bytes_of(uint32_t sets)
{
	return (uint64_t)sets * REFUSED_WAYS * sizeof(struct refusal);
}

static struct refusal *set_of(const struct refused *refused, uint64_t object)
{
	return &refused->rows[(object & (refused->sets - 1)) * REFUSED_WAYS];
}

static struct refusal *row_of(const struct refused *refused, uint64_t object)
{
	struct refusal *set = refused->sets ? set_of(refused, object) : NULL;

	for (uint32_t i = 0; set && i < REFUSED_WAYS; i++)
		if (set[i].until_ns && set[i].object == object)
			return &set[i];
	return NULL;
}

const struct refusal *refused_find(const struct refused *refused, uint64_t object, uint64_t now_ns)
{
	const struct refusal *row = row_of(refused, object);

	return row && now_ns < row->until_ns ? row : NULL;
}

/* One that is free or forgotten, or NULL. */
static struct refusal *free_row(struct refusal *set, uint64_t now_ns)
{
	for (uint32_t i = 0; i < REFUSED_WAYS; i++)
		if (set[i].until_ns <= now_ns)
			return &set[i];
	return NULL;
}

/* The row of its set that is forgotten first. */
static struct refusal *first_row(struct refusal *set)
{
	struct refusal *first = &set[0];

	for (uint32_t i = 1; i < REFUSED_WAYS; i++)
		if (set[i].until_ns < first->until_ns)
			first = &set[i];
	return first;
}

/* The first sets are few, and there must be some. */
static bool take_memory(uint32_t sets)
{
	if (sets > SETS_FIRST)
		return arena_take(ARENA_TABLES, BUDGET_FILL, bytes_of(sets));
	arena_must(ARENA_TABLES, bytes_of(sets));
	return true;
}

/* Twice as many sets: a set is divided between two, so that each row has a place. False: no memory. */
static bool grow(struct refused *refused)
{
	uint32_t sets = refused->sets ? refused->sets * 2 : SETS_FIRST;
	struct refused old = *refused;

	if (sets > SETS_MAX || !take_memory(sets))
		return false;
	refused->rows = calloc((size_t)sets * REFUSED_WAYS, sizeof(*refused->rows));
	if (!refused->rows) {
		arena_give(ARENA_TABLES, bytes_of(sets));
		*refused = old;
		return false;
	}
	refused->sets = sets;
	for (uint32_t i = 0; i < old.sets * REFUSED_WAYS; i++) {
		struct refusal *row = free_row(set_of(refused, old.rows[i].object), 0);

		if (row && old.rows[i].until_ns)
			*row = old.rows[i];
	}
	refused_release(&old);
	return true;
}

/* Where an object goes that has no row; NULL without memory. */
static struct refusal *take_row(struct refused *refused, uint64_t object, uint64_t now_ns)
{
	struct refusal *row = refused->sets ? free_row(set_of(refused, object), now_ns) : NULL;

	if (!row && grow(refused))
		row = free_row(set_of(refused, object), now_ns);
	if (!row && refused->sets)
		row = first_row(set_of(refused, object));
	return row;
}

void refused_note(struct refused *refused, const struct refusal *what, uint64_t now_ns)
{
	struct refusal *row = row_of(refused, what->object);
	struct refusal next = *what;

	if (row && now_ns < row->until_ns) {
		next.times += row->times;
		next.since_ns = row->since_ns;
	} else {
		next.since_ns = now_ns;
	}
	if (!row)
		row = take_row(refused, what->object, now_ns);
	if (row)
		*row = next;
}

void refused_drop(struct refused *refused, uint64_t object)
{
	struct refusal *row = row_of(refused, object);

	if (row)
		row->until_ns = 0;
}

void refused_release(struct refused *refused)
{
	if (refused->sets)
		arena_give(ARENA_TABLES, bytes_of(refused->sets));
	free(TAKE(refused->rows));
	refused->sets = 0;
}
