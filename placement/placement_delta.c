/* Differences of slot tables. See placement_delta.h. */
#include "placement/placement_delta.h"

#include <assert.h>
#include <endian.h>
#include <errno.h>
#include <string.h>

#define FIELDS     4u
#define HEAD_BYTES 4u
#define SKIP_MORE  255u
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
	other[1] = other[2] = other[3] = PLACEMENT_NONE;
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

static int encode_skip(uint32_t skip, struct buf *out)
{
	const uint8_t more = SKIP_MORE;
	uint8_t last;
	int r = 0;

	for (; skip >= SKIP_MORE && r == 0; skip -= SKIP_MORE)
		r = buf_append(out, &more, 1);
	last = (uint8_t)skip;
	return r == 0 ? buf_append(out, &last, 1) : r;
}

static int encode_slots(
	const struct placement_slot *from, const struct placement_slot *to, struct buf *out)
{
	uint8_t slot[SLOT_BYTES];
	uint32_t next = 0;
	int r = 0;

	for (uint32_t s = 0; s < PLACEMENT_SLOTS && r == 0; s++) {
		if (same(&from[s], &to[s]))
			continue;
		r = encode_skip(s - next, out);
		if (r == 0)
			r = buf_append(out, slot, encode_slot(&from[s], &to[s], slot));
		next = s + 1;
	}
	return r;
}

int placement_delta_encode(
	const struct placement_slot *from, const struct placement_slot *to, struct buf *out)
{
	uint32_t length = 0;
	size_t at = out->len;
	int r = buf_append(out, &length, HEAD_BYTES);

	if (r == 0)
		r = encode_slots(from, to, out);
	if (r < 0 || out->len == at + HEAD_BYTES) {
		if (out->data)
			out->len = at; /* nothing of it */
		return r;
	}
	length = htole32((uint32_t)(out->len - at - HEAD_BYTES));
	memcpy(out->data + at, &length, HEAD_BYTES);
	return 0;
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

/* How many slots are left out before the next; returns the bytes it took, 0: there are too few. */
static size_t decode_skip(const uint8_t *in, size_t left, uint32_t *ret_skip)
{
	size_t n = 0;

	*ret_skip = 0;
	while (n < left && *ret_skip < PLACEMENT_SLOTS) {
		*ret_skip += in[n];
		if (in[n++] < SKIP_MORE)
			return n;
	}
	return 0;
}

static int walk_slots(
	const uint8_t *in, size_t len, const struct placement_delta_ops *ops, void *arg)
{
	uint32_t s = 0;
	uint32_t skip;

	for (; len > 0; s++) {
		struct placement_slot slot = { 0 };
		size_t took = decode_skip(in, len, &skip);

		s += skip;
		if (took == 0 || s >= PLACEMENT_SLOTS)
			return -EBADMSG;
		in += took;
		len -= took;
		if (ops)
			slot = ops->get(arg, s);
		took = decode_slot(&slot, in, len);
		if (took == 0)
			return -EBADMSG;
		if (ops)
			ops->put(arg, s, slot);
		in += took;
		len -= took;
	}
	return 0;
}

int placement_delta_walk(
	const void *delta, size_t len, const struct placement_delta_ops *ops, void *arg)
{
	const uint8_t *in = delta;
	int r = 0;

	while (len > 0 && r == 0) {
		uint32_t length;

		if (len < HEAD_BYTES)
			return -EBADMSG;
		memcpy(&length, in, HEAD_BYTES);
		length = le32toh(length);
		in += HEAD_BYTES;
		len -= HEAD_BYTES;
		if (length > len)
			return -EBADMSG;
		r = walk_slots(in, length, ops, arg);
		in += length;
		len -= length;
	}
	return r;
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
