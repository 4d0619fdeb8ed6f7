/* Cutting ranges of keys. See lister_split.h. */
#include "ufs/lister_split.h"

#include <string.h>

#define LISTER_DIGITS 8 /* of the numbers that keys are compared as */

int lister_key_cmp(const char *a, size_t a_len, const char *b, size_t b_len)
{
	int c = memcmp(a, b, min(a_len, b_len));

	if (c == 0)
		return a_len < b_len ? -1 : a_len > b_len;
	return c;
}

void lister_key_set(struct lister_key *key, const char *bytes, size_t len)
{
	key->len = (uint32_t)min(len, sizeof(key->bytes));
	memcpy(key->bytes, bytes, key->len);
}

static uint32_t shared_bytes(const char *a, size_t a_len, const char *b, size_t b_len)
{
	size_t n = min(a_len, b_len);
	size_t i = 0;

	while (i < n && a[i] == b[i])
		i++;
	return (uint32_t)i;
}

static void learn_byte(const struct ufs_object *o, uint32_t at, struct lister_lesson *lesson)
{
	unsigned char c = at < o->key_len ? (unsigned char)o->key[at] : 0;

	if (c > ' ' && c < 0x7f)
		lesson->has[c] = true;
}

void lister_learn(const struct ufs_object *objects, uint32_t n, struct lister_lesson *ret_lesson)
{
	struct lister_lesson lesson = { 0 };

	for (uint32_t i = 1; i < n; i++) {
		const struct ufs_object *a = &objects[i - 1];
		const struct ufs_object *b = &objects[i];
		uint32_t at = shared_bytes(a->key, a->key_len, b->key, b->key_len);

		learn_byte(a, at, &lesson);
		learn_byte(b, at, &lesson);
	}
	if (n) {
		const struct ufs_object *middle = &objects[n / 2];
		const struct ufs_object *last = &objects[n - 1];

		lesson.shared =
			shared_bytes(middle->key, middle->key_len, last->key, last->key_len);
		lesson.slashes = memchr(last->key, '/', last->key_len) != NULL;
	}
	*ret_lesson = lesson;
}

void lister_alphabet_add(struct lister_alphabet *alphabet, const struct lister_lesson *lesson)
{
	alphabet->n = 0;
	for (unsigned int c = 0; c < 128; c++) {
		alphabet->has[c] |= lesson->has[c];
		if (alphabet->has[c])
			alphabet->chars[alphabet->n++] = (uint8_t)c;
	}
}

/* Depths at which candidates may lie: from..to, none when from > to. */
static void depths(const struct lister_key *pos, const struct lister_key *high, uint32_t depth,
	uint32_t *ret_from, uint32_t *ret_to)
{
	*ret_from = high ? shared_bytes(pos->bytes, pos->len, high->bytes, high->len) : 0;
	*ret_to = pos->len ? min(depth, pos->len - 1) : 0;
	if (pos->len == 0)
		*ret_from = 1;
}

/* Whether the path to `pos` cut at `at` and followed by `c` is a cut between pos and high. */
static bool is_candidate(const struct lister_key *pos, const struct lister_key *high, uint32_t at,
	uint32_t shared, unsigned char c)
{
	unsigned char here = (unsigned char)pos->bytes[at];

	if (c <= here)
		return false;
	if (!high || at > shared)
		return true;
	if (c == (unsigned char)high->bytes[at])
		return high->len > at + 1;
	return c < (unsigned char)high->bytes[at];
}

/* Counts candidates; stops at number `stop` and makes it. */
static uint32_t walk(const struct lister_alphabet *alphabet, const struct lister_key *pos,
	const struct lister_key *high, uint32_t depth, uint32_t stop, struct lister_key *out)
{
	uint32_t n = 0;
	uint32_t from;
	uint32_t to;

	depths(pos, high, depth, &from, &to);
	for (uint32_t up = 0; from <= to && up <= to - from; up++) {
		uint32_t at = to - up;

		for (uint32_t i = 0; i < alphabet->n; i++) {
			if (!is_candidate(pos, high, at, from, alphabet->chars[i]))
				continue;
			if (out && n == stop) {
				lister_key_set(out, pos->bytes, at);
				out->bytes[out->len++] = (char)alphabet->chars[i];
				return n + 1;
			}
			n++;
		}
	}
	return n;
}

uint32_t lister_candidates(const struct lister_alphabet *alphabet, const struct lister_key *pos,
	const struct lister_key *high, uint32_t depth)
{
	return walk(alphabet, pos, high, depth, 0, NULL);
}

void lister_candidate(const struct lister_alphabet *alphabet, const struct lister_key *pos,
	const struct lister_key *high, uint32_t depth, uint32_t i, struct lister_key *ret_key)
{
	ensure(walk(alphabet, pos, high, depth, i, ret_key) == i + 1);
}

/* The bytes from `at` on as a fraction in the alphabet's base. */
static double fraction(
	const struct lister_alphabet *alphabet, const char *s, size_t len, uint32_t at)
{
	double value = 0;
	double place = 1;

	for (uint32_t i = 0; i < LISTER_DIGITS; i++) {
		unsigned char c = at + i < len ? (unsigned char)s[at + i] : 0;
		uint32_t rank = 0;

		while (rank < alphabet->n && alphabet->chars[rank] <= c)
			rank++;
		place /= alphabet->n + 1;
		value += rank * place;
	}
	return value;
}

double lister_estimate(const struct lister_alphabet *alphabet, const char *first, size_t first_len,
	const struct lister_key *pos, const struct lister_key *high, uint32_t n)
{
	uint32_t at = high ? shared_bytes(pos->bytes, pos->len, high->bytes, high->len) : 0;
	double here = fraction(alphabet, pos->bytes, pos->len, at);
	double end = high ? fraction(alphabet, high->bytes, high->len, at) : 1;
	double span = here - fraction(alphabet, first, first_len, at);

	if (end <= here)
		return 2.0 * n; /* they differ in bytes that are no part of the alphabet: unknown */
	if (span < 1e-9)
		span = 1e-9;
	return n * (end - here) / span;
}
