/* Kinds of objects that jobs read. See kinds.h. */
#include "cacheworker/kinds.h"
#include "base/check.h"
#include "base/hash.h"

#include <stdatomic.h>
#include <string.h>

#define CREDIT_BITS 20u
#define CREDIT_MAX  ((UINT64_C(1) << CREDIT_BITS) - 1)
#define CLASS_BITS  2u /* a size class spans a factor of 4 */

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

static bool is_letter(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c & 0x80);
}

/* Appends text[0, len) to `out`, with '#' for each word that has a digit. Returns its new length. */
static uint32_t append_shape(char *out, uint32_t n, const char *text, uint32_t len)
{
	uint32_t i = 0;

	while (i < len) {
		uint32_t start = i;
		bool digits = false;

		while (i < len && (is_digit(text[i]) || is_letter(text[i])))
			digits |= is_digit(text[i++]);
		if (digits) {
			out[n++] = '#';
		} else if (i > start) {
			memcpy(out + n, text + start, i - start);
			n += i - start;
		}
		if (i < len && !is_digit(text[i]) && !is_letter(text[i]))
			out[n++] = text[i++];
	}
	return n;
}

static unsigned int size_class(uint64_t size)
{
	return (63 - (unsigned int)__builtin_clzll(size | 1)) / CLASS_BITS;
}

/* An object's kind, and the wider one: its suffix and size class in every directory. */
struct kind_pair {
	uint64_t kind;
	uint64_t wide;
};

/* Salted with the address, so that no key can be chosen to displace the kind of another one. */
static void kinds_of(const struct kinds *kinds, const struct table_row *row, struct kind_pair *ret)
{
	uint64_t seed = (uint64_t)(uintptr_t)kinds ^ size_class(row->size);
	char shape[LIMIT_KEY_BYTES + 1]; /* at most the key's length */
	uint32_t directory = row->key_len;
	uint32_t suffix = row->key_len;
	uint32_t prefix;
	uint32_t n;

	while (directory > 0 && row->key[directory - 1] != '/')
		directory--;
	while (suffix > directory && row->key[suffix - 1] != '.')
		suffix--;
	if (suffix == directory) /* there is none */
		suffix = row->key_len;
	prefix = append_shape(shape, 0, row->key, directory);
	n = append_shape(shape, prefix, row->key + suffix, row->key_len - suffix);
	ret->kind = hash_xxh3(shape, n, seed);
	ret->wide = hash_xxh3(shape + prefix, n - prefix, ~seed);
}

static _Atomic uint64_t *slot_of(struct kinds *kinds, uint64_t kind)
{
	return &kinds->slots[kind % KINDS_MAX];
}

static uint64_t tag_of(uint64_t kind)
{
	return kind & ~CREDIT_MAX;
}

static bool is_in(uint64_t slot, uint64_t kind)
{
	return (slot & ~CREDIT_MAX) == tag_of(kind);
}

static uint64_t credit_in(uint64_t slot, uint64_t kind)
{
	return is_in(slot, kind) ? slot & CREDIT_MAX : 0;
}

static bool slot_has_credit(_Atomic uint64_t *slot, uint64_t kind)
{
	return credit_in(atomic_load_explicit(slot, memory_order_relaxed), kind) > 0;
}

/* True: the kind was there already. */
static bool slot_pay(_Atomic uint64_t *slot, uint64_t kind, uint32_t requests)
{
	uint64_t before = atomic_load_explicit(slot, memory_order_relaxed);
	uint64_t after;

	do
		after = tag_of(kind) | min(credit_in(before, kind) + requests, CREDIT_MAX);
	while (!atomic_compare_exchange_weak_explicit(
		slot, &before, after, memory_order_relaxed, memory_order_relaxed));
	return is_in(before, kind);
}

/* False: it has no credit. */
static bool slot_spend(_Atomic uint64_t *slot, uint64_t kind)
{
	uint64_t before = atomic_load_explicit(slot, memory_order_relaxed);

	while (credit_in(before, kind) > 0)
		if (atomic_compare_exchange_weak_explicit(
			    slot, &before, before - 1, memory_order_relaxed, memory_order_relaxed))
			return true;
	return false;
}

void kinds_pay(struct kinds *kinds, const struct table_row *row, uint32_t requests)
{
	struct kind_pair of;

	kinds_of(kinds, row, &of);
	if (!slot_pay(slot_of(kinds, of.kind), of.kind, requests))
		(void)slot_pay(slot_of(kinds, of.wide), of.wide, requests);
}

bool kinds_have_credit(struct kinds *kinds, const struct table_row *row)
{
	struct kind_pair of;

	kinds_of(kinds, row, &of);
	return slot_has_credit(slot_of(kinds, of.kind), of.kind) ||
	       slot_has_credit(slot_of(kinds, of.wide), of.wide);
}

void kinds_spend(struct kinds *kinds, const struct table_row *row)
{
	struct kind_pair of;

	kinds_of(kinds, row, &of);
	if (!slot_spend(slot_of(kinds, of.kind), of.kind))
		(void)slot_spend(slot_of(kinds, of.wide), of.wide);
}
