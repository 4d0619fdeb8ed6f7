/* Differences of slot tables. See placement_delta.h. */
#include "placement/placement_delta.h"

#include <assert.h>
#include <endian.h>
#include <errno.h>
#include <string.h>

#define FIELDS     4u
#define RUN_BYTES  4u
#define SLOT_BYTES (1u + FIELDS * 2u) /* at most */

enum code { CODE_SAME, CODE_SAID, CODE_MOVED, CODE_OTHER };

static_assert(sizeof(struct placement_slot) == FIELDS * sizeof(uint16_t), "a slot is four numbers");

/* In the order of struct placement_slot. */
static void numbers_of(const struct placement_slot *slot, uint16_t out[FIELDS])
{
	out[0] = slot->owner;
	out[1] = slot->previous;
	out[2] = slot->replicas[0];
	out[3] = slot->replicas[1];
}

/* What codes 2 and 3 mean for each of them. */
static void meanings(
	const struct placement_slot *was, uint16_t moved[FIELDS], uint16_t other[FIELDS])
{
	moved[0] = was->replicas[0];
	moved[1] = was->owner;
	moved[2] = was->replicas[1];
	moved[3] = was->replicas[0];
	other[0] = was->previous;
	other[1] = other[2] = other[3] = PLACEMENT_NOBODY;
}

static size_t encode_slot(
	const struct placement_slot *from, const struct placement_slot *to, uint8_t out[SLOT_BYTES])
{
	uint16_t was[FIELDS];
	uint16_t is[FIELDS];
	uint16_t moved[FIELDS];
	uint16_t other[FIELDS];
	size_t n = 1;

	numbers_of(from, was);
	numbers_of(to, is);
	meanings(from, moved, other);
	out[0] = 0;
	for (uint32_t i = 0; i < FIELDS; i++) {
		enum code code = is[i] == was[i]     ? CODE_SAME
				 : is[i] == moved[i] ? CODE_MOVED
				 : is[i] == other[i] ? CODE_OTHER
						     : CODE_SAID;
		uint16_t number = htole16(is[i]);

		out[0] |= (uint8_t)(code << 2 * i);
		if (code != CODE_SAID)
			continue;
		memcpy(out + n, &number, sizeof(number));
		n += sizeof(number);
	}
	return n;
}

static bool same(const struct placement_slot *a, const struct placement_slot *b)
{
	return memcmp(a, b, sizeof(*a)) == 0;
}

int placement_delta_encode(
	const struct placement_slot *from, const struct placement_slot *to, struct buf *out)
{
	uint8_t slot[SLOT_BYTES];
	uint32_t n;
	int r = 0;

	for (uint32_t s = 0; s < PLACEMENT_SLOTS && r == 0; s += n) {
		uint16_t head[2];

		n = 1;
		if (same(&from[s], &to[s]))
			continue;
		while (s + n < PLACEMENT_SLOTS && !same(&from[s + n], &to[s + n]))
			n++;
		head[0] = htole16((uint16_t)s);
		head[1] = htole16((uint16_t)(n - 1));
		r = buf_append(out, head, sizeof(head));
		for (uint32_t i = 0; i < n && r == 0; i++)
			r = buf_append(out, slot, encode_slot(&from[s + i], &to[s + i], slot));
	}
	return r;
}

/* Takes one slot's change. Returns the bytes it took, 0: there are too few. */
static size_t decode_slot(struct placement_slot *slot, const uint8_t *in, size_t left)
{
	uint16_t is[FIELDS];
	uint16_t moved[FIELDS];
	uint16_t other[FIELDS];
	size_t n = 1;

	if (left < 1)
		return 0;
	numbers_of(slot, is);
	meanings(slot, moved, other);
	for (uint32_t i = 0; i < FIELDS; i++) {
		enum code code = in[0] >> 2 * i & 3u;
		uint16_t number;

		if (code == CODE_SAID && left - n < sizeof(number))
			return 0;
		if (code == CODE_SAID) {
			memcpy(&number, in + n, sizeof(number));
			is[i] = le16toh(number);
			n += sizeof(number);
		} else if (code == CODE_MOVED) {
			is[i] = moved[i];
		} else if (code == CODE_OTHER) {
			is[i] = other[i];
		}
	}
	*slot = (struct placement_slot){ is[0], is[1], { is[2], is[3] } };
	return n;
}

/* The slots of one run; returns the bytes they took, 0: there are too few. */
static size_t walk_run(uint32_t first, uint32_t n, const uint8_t *in, size_t left,
	const struct placement_delta_ops *ops, void *arg)
{
	size_t at = 0;

	for (uint32_t i = 0; i < n; i++) {
		struct placement_slot slot = { 0 };
		size_t took;

		if (ops)
			slot = ops->get(arg, first + i);
		took = decode_slot(&slot, in + at, left - at);
		if (took == 0)
			return 0;
		if (ops)
			ops->put(arg, first + i, slot);
		at += took;
	}
	return at;
}

int placement_delta_walk(
	const void *delta, size_t len, const struct placement_delta_ops *ops, void *arg)
{
	const uint8_t *in = delta;

	while (len > 0) {
		uint16_t head[2];
		uint32_t first;
		uint32_t n;
		size_t took;

		if (len < RUN_BYTES)
			return -EBADMSG;
		memcpy(head, in, sizeof(head));
		first = le16toh(head[0]);
		n = le16toh(head[1]) + 1u;
		in += RUN_BYTES;
		len -= RUN_BYTES;
		took = first + n <= PLACEMENT_SLOTS ? walk_run(first, n, in, len, ops, arg) : 0;
		if (took == 0)
			return -EBADMSG;
		in += took;
		len -= took;
	}
	return 0;
}

static struct placement_slot get_slot(void *arg, uint32_t slot)
{
	return ((const struct placement_slot *)arg)[slot];
}

static void put_slot(void *arg, uint32_t slot, struct placement_slot is)
{
	((struct placement_slot *)arg)[slot] = is;
}

int placement_delta_apply(struct placement_slot *slots, const void *delta, size_t len)
{
	static const struct placement_delta_ops ops = { get_slot, put_slot };

	return placement_delta_walk(delta, len, slots ? &ops : NULL, slots);
}
