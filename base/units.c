/* Sizes and durations as people write them. See units.h. */
#include "base/units.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

struct unit {
	const char *name;
	uint64_t factor;
};

static const struct unit sizes[] = {
	{ "", 1 },
	{ "B", 1 },
	{ "k", 1024 },
	{ "m", 1048576 },
	{ "g", 1073741824 },
	{ "t", 1099511627776 },
	{ "KiB", 1024 },
	{ "MiB", 1048576 },
	{ "GiB", 1073741824 },
	{ "TiB", 1099511627776 },
	{ "kB", 1000 },
	{ "MB", 1000000 },
	{ "GB", 1000000000 },
	{ "TB", 1000000000000 },
};

static const struct unit bits[] = {
	{ "bit", 1 },
	{ "kbit", 1000 },
	{ "Mbit", 1000000 },
	{ "Gbit", 1000000000 },
	{ "Tbit", 1000000000000 },
};

static const struct unit durations[] = {
	{ "ns", 1 },
	{ "us", 1000 },
	{ "ms", 1000000 },
	{ "s", 1000000000 },
	{ "m", 60 * 1000000000ull },
	{ "h", 3600 * 1000000000ull },
	{ "d", 86400 * 1000000000ull },
};

/* Digits, perhaps with a fraction; whole numbers are exact. */
static int scale(const char *s, size_t digits, uint64_t factor, uint64_t *ret)
{
	uint64_t whole = 0;
	double value;

	if (memchr(s, '.', digits)) {
		value = strtod(s, NULL) * (double)factor;
		if (value >= 0x1p63)
			return -ERANGE;
		*ret = (uint64_t)value;
		return 0;
	}
	for (size_t i = 0; i < digits; i++)
		if (__builtin_mul_overflow(whole, 10, &whole) ||
			__builtin_add_overflow(whole, (uint64_t)(s[i] - '0'), &whole))
			return -ERANGE;
	if (__builtin_mul_overflow(whole, factor, &whole) || whole > INT64_MAX)
		return -ERANGE;
	*ret = whole;
	return 0;
}

static int parse(const char *s, const struct unit *units, size_t n, uint64_t *ret)
{
	size_t digits = strspn(s, "0123456789");
	const char *unit;
	int r;

	if (strcmp(s, "none") == 0) {
		*ret = 0;
		return 0;
	}
	if (digits == 0)
		return -EINVAL;
	if (s[digits] == '.')
		digits += 1 + strspn(s + digits + 1, "0123456789");
	unit = s + digits + strspn(s + digits, " ");
	for (size_t i = 0; i < n; i++) {
		uint64_t value = 0;

		if (strcasecmp(unit, units[i].name) != 0)
			continue;
		r = scale(s, digits, units[i].factor, &value);
		if (r == 0 && !*unit && value < UNITS_BARE_MIN && strspn(s, "0.") != digits)
			return -ENODATA;
		if (r == 0)
			*ret = value;
		return r;
	}
	return -EINVAL;
}

int units_parse_size(const char *s, uint64_t *ret_bytes, struct err *e)
{
	int r = parse(s, sizes, ARRAY_SIZE(sizes), ret_bytes);

	if (r == -ENODATA)
		return err_set(e, -EINVAL,
			"'%s' has no unit: write %sMiB or %sGiB, or %sB for bytes", s, s, s, s);
	if (r == -ERANGE)
		return err_set(e, r, "'%s' is too large a size: write less than 8388608TiB", s);
	if (r < 0)
		return err_set(e, r,
			"'%s' is not a size: write a number and a unit, such as 512MiB, 20GiB or "
			"2TB",
			s);
	return 0;
}

int units_parse_rate(const char *s, uint64_t *ret_bytes, struct err *e)
{
	size_t len = strlen(s);
	uint64_t value = 0;
	char text[32];
	int r = -EINVAL;

	if (len > 2 && strcmp(s + len - 2, "/s") == 0)
		len -= 2;
	if (len > 0 && len < sizeof(text)) {
		memcpy(text, s, len);
		text[len] = '\0';
		r = parse(text, sizes, ARRAY_SIZE(sizes), ret_bytes);
		if (r == -EINVAL && (r = parse(text, bits, ARRAY_SIZE(bits), &value)) == 0)
			*ret_bytes = value / 8;
	}
	if (r == -ENODATA)
		return err_set(e, -EINVAL,
			"'%s' has no unit: write it with one, such as 500MB/s, 1GiB/s or 4Gbit/s",
			s);
	if (r == -ERANGE)
		return err_set(e, r, "'%s' is too high a rate", s);
	if (r < 0)
		return err_set(e, r,
			"'%s' is not a rate: write a number and a unit, such as 500MB/s, 1GiB/s or "
			"4Gbit/s",
			s);
	return 0;
}

int units_parse_duration(const char *s, uint64_t *ret_ns, struct err *e)
{
	int r = parse(s, durations, ARRAY_SIZE(durations), ret_ns);

	if (r == -ERANGE)
		return err_set(e, r, "'%s' is too long a duration: write at most 106751d", s);
	if (r < 0)
		return err_set(e, r,
			"'%s' is not a duration: write a number and a unit, such as 250ms, 30s, 5m "
			"or 2h",
			s);
	return 0;
}

double units_ratio(double part, double of)
{
	return (double)(uint64_t)(part / of * 1000 + 1e-9) /
	       1000; /* 0.939 of its own is 938.999... thousandths */
}

const char *units_percent(double part, double of, char *out, size_t size)
{
	(void)snprintf(out, size, "%.1f%%", 100 * units_ratio(part, of)); /* fits */
	return out;
}

const char *units_age(int64_t seconds, char *out, size_t size)
{
	static const struct {
		int64_t seconds;
		const char *name;
	} units[] = { { 86400, "d" }, { 3600, "h" }, { 60, "m" } };

	for (size_t i = 0; i < ARRAY_SIZE(units); i++)
		if (seconds >= 2 * units[i].seconds) {
			(void)snprintf(out, size, "%lld%s", (long long)(seconds / units[i].seconds),
				units[i].name); /* fits */
			return out;
		}
	(void)snprintf(out, size, "%llds", (long long)max(seconds, (int64_t)0)); /* fits */
	return out;
}

const char *units_duration(uint64_t ns, char *out, size_t size)
{
	/* Each up to twice the next, as units_age(). */
	static const struct {
		double ns;
		const char *name;
	} units[] = { { 3600e9, "h" }, { 60e9, "m" }, { 1e9, "s" }, { 1e6, "ms" } };

	for (size_t i = 0; i < ARRAY_SIZE(units); i++)
		if ((double)ns >= (i < 2 ? 2 : 1) * units[i].ns) {
			(void)snprintf(out, size, "%.1f%s", (double)ns / units[i].ns,
				units[i].name); /* fits */
			return out;
		}
	(void)snprintf(out, size, "%.1fus", (double)ns / 1e3); /* fits */
	return out;
}

const char *units_size(uint64_t bytes, char *out, size_t size)
{
	static const char *const names[] = { "B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB" };
	double value = (double)bytes;
	unsigned int i = 0;

	while (value >= 1023.5 && i < ARRAY_SIZE(names) - 1) {
		value /= 1024;
		i++;
	}
	(void)snprintf(out, size, i == 0 || value >= 99.95 ? "%.0f%s" : "%.1f%s", value, names[i]);
	return out;
}
