/* Cutting ranges of keys. See lister_split.h. */
#include "ufs/lister_split.h"

#include <math.h>
#include <string.h>

#define SPLIT_LEVELS      40u
#define LISTER_NEAR       2u /* levels that are cut into pages; those above are probed */
#define LISTER_NEAR_PARTS 8  /* pages that a level has to be counted */
#define LISTER_FAR_PARTS  4u
#define LISTER_KEYS_MAX   1e12
#define LISTER_CUT_MAX    (LIMIT_KEY_BYTES - 12) /* bytes, before the further characters */

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

static bool is_rest(char c)
{
	return ((unsigned char)c & 0xc0) == 0x80;
}

/* Bytes that both begin with, whole characters. */
static uint32_t shared_bytes(const char *a, size_t a_len, const char *b, size_t b_len)
{
	size_t n = min(a_len, b_len);
	size_t i = 0;

	while (i < n && a[i] == b[i])
		i++;
	while (i > 0 && ((i < a_len && is_rest(a[i])) || (i < b_len && is_rest(b[i]))))
		i--;
	return (uint32_t)i;
}

/* ---- characters ------------------------------------------------------------------------------ */

/* The character at the start of `s`: plain ASCII or UTF-8 (RFC 3629); false: neither. */
static bool symbol_take(const char *s, size_t len, struct lister_symbol *ret_symbol)
{
	unsigned char c = len ? (unsigned char)s[0] : 0;
	unsigned char next = len > 1 ? (unsigned char)s[1] : 0;
	uint8_t n = c < 0x80 ? 1 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4;

	if (c < ' ' || c == 0x7f || (c >= 0x80 && c < 0xc2) || c > 0xf4 || n > len)
		return false;
	for (uint8_t i = 1; i < n; i++)
		if (!is_rest(s[i]))
			return false;
	/* Longer than need be, surrogates, beyond the last; U+FFFE and U+FFFF are no characters. */
	if ((c == 0xe0 && next < 0xa0) || (c == 0xed && next > 0x9f) ||
		(c == 0xf0 && next < 0x90) || (c == 0xf4 && next > 0x8f) ||
		(c == 0xef && next == 0xbf && (unsigned char)s[2] > 0xbd))
		return false;
	*ret_symbol = (struct lister_symbol){ .len = n };
	memcpy(ret_symbol->bytes, s, n);
	return true;
}

static int symbol_cmp(const struct lister_symbol *a, const struct lister_symbol *b)
{
	return lister_key_cmp(a->bytes, a->len, b->bytes, b->len);
}

/* First that is not below `symbol`. */
static uint32_t symbol_rank(
	const struct lister_alphabet *alphabet, const struct lister_symbol *symbol)
{
	uint32_t low = 0;
	uint32_t high = alphabet->n;

	while (low < high) {
		uint32_t middle = (low + high) / 2;

		if (symbol_cmp(&alphabet->symbols[middle], symbol) < 0)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static bool symbol_is_in(const struct lister_alphabet *alphabet, const struct lister_symbol *symbol)
{
	uint32_t rank = symbol_rank(alphabet, symbol);

	return rank < alphabet->n && symbol_cmp(&alphabet->symbols[rank], symbol) == 0;
}

static void symbol_add(struct lister_alphabet *alphabet, const struct lister_symbol *symbol)
{
	uint32_t rank = symbol_rank(alphabet, symbol);

	if (alphabet->n == LISTER_SYMBOLS || symbol_is_in(alphabet, symbol))
		return;
	memmove(&alphabet->symbols[rank + 1], &alphabet->symbols[rank],
		(alphabet->n - rank) * sizeof(*symbol));
	alphabet->symbols[rank] = *symbol;
	alphabet->n++;
}

void lister_alphabet_add(struct lister_alphabet *alphabet, const struct lister_alphabet *more)
{
	for (uint32_t i = 0; i < more->n; i++)
		symbol_add(alphabet, &more->symbols[i]);
}

/* ---- what a page teaches --------------------------------------------------------------------- */

/* The character of a key at a byte; none is there: of length 0. */
static struct lister_symbol symbol_at(const struct ufs_object *o, uint32_t at)
{
	struct lister_symbol symbol = { 0 };

	if (at < o->key_len)
		(void)symbol_take(o->key + at, o->key_len - at, &symbol); /* stays 0 */
	return symbol;
}

/* Keys of one sibling at depth `shared`, in the second half of the page. Where that shows few
 * siblings, most of them in part, those one character deeper tell more. */
static double keys_of_sibling(const struct ufs_object *objects, uint32_t n, uint32_t shared,
	const struct lister_alphabet *alphabet)
{
	struct lister_symbol before[2] = { 0 };
	uint32_t siblings = 0;
	uint32_t below = 0;
	const uint32_t looked_at = n - n / 2;
	double half = looked_at;

	for (uint32_t i = n / 2; i < n; i++) {
		struct lister_symbol here = symbol_at(&objects[i], shared);
		struct lister_symbol next = symbol_at(&objects[i], shared + here.len);
		bool other = i == n / 2 || symbol_cmp(&here, &before[0]) != 0;

		siblings += other;
		below += other || symbol_cmp(&next, &before[1]) != 0;
		before[0] = here;
		before[1] = next;
	}
	half /= siblings - 0.5; /* the outermost are there in part */
	if (siblings > 3 || below < siblings + 2)
		return half;
	return fmax(half, looked_at / (below - 0.5) * alphabet->n);
}

void lister_learn(const struct ufs_object *objects, uint32_t n, struct lister_lesson *ret_lesson)
{
	struct lister_lesson *lesson = ret_lesson;
	struct lister_symbol symbol;

	*lesson = (struct lister_lesson){ .keys = 1 };
	for (uint32_t i = 1; i < n; i++) {
		const struct ufs_object *a = &objects[i - 1];
		const struct ufs_object *b = &objects[i];
		uint32_t at = shared_bytes(a->key, a->key_len, b->key, b->key_len);

		if (at < a->key_len && symbol_take(a->key + at, a->key_len - at, &symbol))
			symbol_add(&lesson->alphabet, &symbol);
		if (at < b->key_len && symbol_take(b->key + at, b->key_len - at, &symbol))
			symbol_add(&lesson->alphabet, &symbol);
	}
	if (n) {
		const struct ufs_object *middle = &objects[n / 2];
		const struct ufs_object *last = &objects[n - 1];

		lesson->shared =
			shared_bytes(middle->key, middle->key_len, last->key, last->key_len);
		lesson->keys = keys_of_sibling(objects, n, lesson->shared, &lesson->alphabet);
		for (uint32_t i = 0; i < last->key_len; i++)
			lesson->slashes += last->key[i] == '/';
	}
}

/* ---- levels ---------------------------------------------------------------------------------- */

/* The siblings after pos at one byte of it. */
struct level {
	uint32_t at;
	uint32_t first, n; /* their symbols in the alphabet */
	uint32_t wide[2];  /* how many symbols may follow one, and another after that; 1: nothing */
	double keys;       /* of all siblings, expected */
	uint32_t most, parts;
};

/* Where the characters of pos begin, as far as it is UTF-8 and not beyond the one after `depth`. */
static uint32_t find_starts(const struct lister_key *pos, uint32_t depth, uint32_t *starts)
{
	struct lister_symbol symbol;
	uint32_t n = 0;

	for (uint32_t at = 0; at < pos->len && at < LISTER_CUT_MAX; at += symbol.len) {
		if (!symbol_take(pos->bytes + at, pos->len - at, &symbol))
			break;
		starts[n++] = at;
		if (at > depth)
			break;
	}
	return n;
}

static bool level_make(const struct lister_alphabet *alphabet, const struct lister_spot *spot,
	uint32_t at, uint32_t shared, struct level *ret_level)
{
	const struct lister_key *pos = spot->pos;
	const struct lister_key *high = spot->high;
	struct lister_symbol here;
	struct lister_symbol end;
	uint32_t from;
	uint32_t to = alphabet->n;

	if (!symbol_take(pos->bytes + at, pos->len - at, &here))
		return false;
	from = symbol_rank(alphabet, &here);
	if (from == alphabet->n || symbol_cmp(&alphabet->symbols[from], &here) != 0)
		return false; /* a separator: nothing is expected next to it */
	from++;
	if (high && at == shared && symbol_take(high->bytes + at, high->len - at, &end)) {
		to = symbol_rank(alphabet, &end);
		to += to < alphabet->n && symbol_cmp(&alphabet->symbols[to], &end) == 0 &&
		      high->len > at + end.len;
	}
	*ret_level = (struct level){ .at = at, .first = from, .n = to > from ? to - from : 0 };
	return to > from;
}

/* How many symbols may follow at `at`: all, or only what stands there. */
static uint32_t width_at(
	const struct lister_alphabet *alphabet, const struct lister_key *pos, uint32_t at)
{
	struct lister_symbol symbol;

	return at < pos->len && symbol_take(pos->bytes + at, pos->len - at, &symbol) &&
			       symbol_is_in(alphabet, &symbol)
		       ? alphabet->n
		       : 1;
}

/* Levels from the deepest up; how many. */
static uint32_t levels_find(const struct lister_alphabet *alphabet, const struct lister_spot *spot,
	struct level levels[SPLIT_LEVELS])
{
	const struct lister_key *pos = spot->pos;
	uint32_t starts[LIMIT_KEY_BYTES];
	uint32_t n_starts = find_starts(pos, spot->depth, starts);
	uint32_t shared = 0;
	uint32_t n = 0;
	double keys = max(spot->keys, 1.0);

	if (n_starts && starts[n_starts - 1] > spot->depth)
		keys /= width_at(alphabet, pos, starts[n_starts - 1]);
	if (spot->high)
		shared = shared_bytes(pos->bytes, pos->len, spot->high->bytes, spot->high->len);
	for (uint32_t i = n_starts; i-- > 0 && n < SPLIT_LEVELS;) {
		uint32_t at = starts[i];
		struct lister_symbol here = { 0 };
		uint32_t next;

		if (at < shared || at < spot->floor)
			break;
		(void)symbol_take(pos->bytes + at, pos->len - at, &here); /* one begins there */
		next = at + here.len;
		if (level_make(alphabet, spot, at, shared, &levels[n])) {
			levels[n].keys = levels[n].n * keys;
			levels[n].wide[0] = width_at(alphabet, pos, next);
			levels[n].wide[1] = levels[n].wide[0];
			n++;
		}
		keys = min(keys * width_at(alphabet, pos, at), LISTER_KEYS_MAX);
	}
	return n;
}

double lister_estimate(const struct lister_alphabet *alphabet, const struct lister_spot *spot)
{
	struct level levels[SPLIT_LEVELS];
	uint32_t n = levels_find(alphabet, spot, levels);
	double keys = spot->page_n / 2.0; /* what the levels do not show */

	for (uint32_t i = 0; i < n; i++)
		keys += levels[i].keys;
	return min(keys, LISTER_KEYS_MAX);
}

/* ---- cuts ------------------------------------------------------------------------------------ */

static void put_symbol(
	struct lister_key *key, const struct lister_alphabet *alphabet, uint32_t number)
{
	const struct lister_symbol *symbol = &alphabet->symbols[number];

	memcpy(key->bytes + key->len, symbol->bytes, symbol->len);
	key->len += symbol->len;
}

/* How many parts each level is cut into, `want` in all. Near levels are likelier to be there than
 * far ones, which are probed to find the end. */
static void parts_give(struct level *levels, uint32_t n, uint32_t page_n, uint32_t want)
{
	uint32_t near = 0;

	for (uint32_t i = 0; i < n; i++) {
		struct level *level = &levels[i];
		double parts = ceil(level->keys / (LISTER_FULL * max(page_n, 1u)));
		double places = (double)level->n * level->wide[0] * level->wide[1];
		uint32_t share = i + 1 == n ? want : (want + 1) / 2;

		level->most = (uint32_t)fmin(fmin(fmax(parts, 1), places),
			near < LISTER_NEAR ? 65536 : LISTER_FAR_PARTS);
		near += parts >= LISTER_NEAR_PARTS;
		level->parts = min(level->most, share);
		want -= level->parts;
	}
	for (uint32_t i = 0; i < n && want; i++) { /* what is left over, nearest first */
		uint32_t more = min(levels[i].most - levels[i].parts, want);

		levels[i].parts += more;
		want -= more;
	}
}

/* Cut number i of a level: its first sibling is number 0. */
static void cut_make(const struct lister_alphabet *alphabet, const struct lister_spot *spot,
	const struct level *level, uint32_t i, struct lister_key *ret_cut)
{
	uint64_t second = level->wide[1];
	uint64_t below = (uint64_t)level->wide[0] * second;
	uint64_t place;

	ensure(below && level->parts);
	place = i * (level->n * below) / level->parts;

	lister_key_set(ret_cut, spot->pos->bytes, level->at);
	put_symbol(ret_cut, alphabet, level->first + (uint32_t)(place / below));
	if (place % below)
		put_symbol(ret_cut, alphabet, (uint32_t)(place % below / second));
	if (place % second)
		put_symbol(ret_cut, alphabet, (uint32_t)(place % second));
}

static bool is_inside(const struct lister_spot *spot, const struct lister_key *key)
{
	return lister_key_cmp(key->bytes, key->len, spot->pos->bytes, spot->pos->len) > 0 &&
	       (!spot->high || lister_key_cmp(key->bytes, key->len, spot->high->bytes,
				       spot->high->len) < 0);
}

/* Parts of equal length, none shorter than a page. */
static uint32_t cuts_even(const struct lister_alphabet *alphabet, const struct lister_spot *spot,
	struct level *levels, uint32_t n_levels, uint32_t want, struct lister_key *ret_cuts)
{
	double total = 0;
	double begin = 0; /* keys before the level */
	double step;
	uint32_t l = 0;
	uint32_t n = 0;

	for (uint32_t i = 0; i < n_levels; i++)
		total += levels[i].keys;
	step = fmax(LISTER_FULL * max(spot->page_n, 1u), total / (want + 1));
	for (double at = step; at < total && n < want; at += step) {
		double places;

		while (l + 1 < n_levels && at >= begin + levels[l].keys)
			begin += levels[l++].keys;
		places = (double)levels[l].n * levels[l].wide[0] * levels[l].wide[1];
		levels[l].parts = (uint32_t)fmin(places, 1e9);
		cut_make(alphabet, spot, &levels[l],
			(uint32_t)((at - begin) / levels[l].keys * levels[l].parts), &ret_cuts[n]);
		n += is_inside(spot, &ret_cuts[n]);
	}
	return n;
}

uint32_t lister_cuts(const struct lister_alphabet *alphabet, const struct lister_spot *spot,
	uint32_t want, struct lister_key *ret_cuts)
{
	struct level levels[SPLIT_LEVELS] = { 0 };
	uint32_t n_levels = levels_find(alphabet, spot, levels);
	uint32_t n = 0;

	if (spot->even)
		return cuts_even(alphabet, spot, levels, n_levels, want, ret_cuts);
	parts_give(levels, n_levels, spot->page_n, want);
	for (uint32_t l = 0; l < n_levels; l++)
		for (uint32_t i = 0; i < levels[l].parts && n < want; i++) {
			cut_make(alphabet, spot, &levels[l], i, &ret_cuts[n]);
			n += is_inside(spot, &ret_cuts[n]);
		}
	return n;
}

void lister_pad(const struct lister_alphabet *alphabet, uint32_t depth, struct lister_key *key)
{
	while (alphabet->n && key->len <= depth && key->len < LISTER_CUT_MAX)
		put_symbol(key, alphabet, 0);
}
