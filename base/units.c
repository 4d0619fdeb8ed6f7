/* Sizes and durations as people write them. See units.h. */
#include "base/units.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

struct unit {
	const char *name;
	double factor;
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
	{ "kB", 1e3 },
	{ "MB", 1e6 },
	{ "GB", 1e9 },
	{ "TB", 1e12 },
};

static const struct unit durations[] = {
	{ "ns", 1 },
	{ "us", 1e3 },
	{ "ms", 1e6 },
	{ "s", 1e9 },
	{ "m", 60e9 },
	{ "h", 3600e9 },
	{ "d", 86400e9 },
};

static int parse(const char *s, const struct unit *units, size_t n, uint64_t *ret)
{
	char *end;
	double value;

	if (*s < '0' || *s > '9')
		return -EINVAL;
	value = strtod(s, &end);
	while (*end == ' ')
		end++;
	for (size_t i = 0; i < n; i++) {
		if (strcasecmp(end, units[i].name) != 0)
			continue;
		value *= units[i].factor;
		if (!isfinite(value) || value >= 9.2e18)
			return -ERANGE;
		*ret = (uint64_t)value;
		return 0;
	}
	return -EINVAL;
}

int units_parse_size(const char *s, uint64_t *ret_bytes, struct err *e)
{
	int r = parse(s, sizes, ARRAY_SIZE(sizes), ret_bytes);

	if (r < 0)
		return err_set(e, r,
			"'%s' is not a size: write a number and a unit, such as 512MiB, 20GiB or "
			"2TB",
			s);
	return 0;
}

int units_parse_duration(const char *s, uint64_t *ret_ns, struct err *e)
{
	int r = parse(s, durations, ARRAY_SIZE(durations), ret_ns);

	if (r < 0)
		return err_set(e, r,
			"'%s' is not a duration: write a number and a unit, such as 250ms, 30s, 5m "
			"or 2h",
			s);
	return 0;
}

const char *units_size(uint64_t bytes, char *out, size_t size)
{
	static const char *const names[] = { "B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB" };
	double value = (double)bytes;
	unsigned int i = 0;

	while (value >= 1023.95 && i < ARRAY_SIZE(names) - 1) {
		value /= 1024;
		i++;
	}
	(void)snprintf(out, size, i == 0 || value >= 99.95 ? "%.0f%s" : "%.1f%s", value, names[i]);
	return out;
}
