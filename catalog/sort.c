/* Natural merge sort. See catalog_internal.h. */
#include "catalog/catalog_internal.h"
#include "base/cleanup.h"

#include <stdlib.h>

/* Index after the sorted run that starts at `from`. */
static size_t run_end(const char *base, size_t n, size_t width, size_t from,
	sort_compare_fn *compare, const void *arg)
{
	size_t i = from + 1;

	while (i < n && compare(base + (i - 1) * width, base + i * width, arg) <= 0)
		i++;
	return min(i, n);
}

/* Merges [a, middle) and [middle, end) of `from` to the same place of `to`. Inlined for a fixed
 * width. */
static inline __attribute__((always_inline)) void merge(char *to, const char *from, size_t width,
	size_t a, size_t middle, size_t end, sort_compare_fn *compare, const void *arg)
{
	size_t b = middle;
	char *out = to + a * width;

	while (a < middle && b < end) {
		bool first = compare(from + a * width, from + b * width, arg) <= 0;

		memcpy(out, from + (first ? a++ : b++) * width, width);
		out += width;
	}
	memcpy(out, from + a * width, (middle - a) * width);
	out += (middle - a) * width;
	memcpy(out, from + b * width, (end - b) * width);
}

/* One pass: merges neighbouring runs pairwise. Returns how many runs were there. */
static size_t pass(char *to, const char *from, size_t n, size_t width, sort_compare_fn *compare,
	const void *arg)
{
	size_t runs = 0;

	for (size_t a = 0; a < n;) {
		size_t middle = run_end(from, n, width, a, compare, arg);
		size_t end = middle < n ? run_end(from, n, width, middle, compare, arg) : n;

		runs += middle < n ? 2 : 1;
		if (width == 8)
			merge(to, from, 8, a, middle, end, compare, arg);
		else
			merge(to, from, 16, a, middle, end, compare, arg);
		a = end;
	}
	return runs;
}

int sort_runs(void *base, size_t n, size_t width, sort_compare_fn *compare, const void *arg)
{
	_cleanup_free_ char *second = NULL;
	char *from = base;
	char *to;

	ensure(width == 8 || width == 16);
	if (n < 2 || run_end(base, n, width, 0, compare, arg) == n)
		return 0;
	second = malloc(n * width);
	if (!second)
		return -ENOMEM;
	to = second;
	for (;;) {
		size_t runs = pass(to, from, n, width, compare, arg);
		char *swap = from;

		from = to;
		to = swap;
		if (runs <= 2)
			break;
	}
	if (from != base)
		memcpy(base, from, n * width);
	return 0;
}
