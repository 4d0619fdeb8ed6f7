/* Quantities of Kubernetes. See quantity.h. */
#include "jobs/quantity.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NANO     QUANTITY_ONE
#define NANO_MAX ((__int128)INT64_MAX * NANO)
#define WORK_MAX ((__int128)1 << 125) /* before it is divided by a power of ten */

static const struct unit {
	const char *name;
	long long factor; /* of 1; below 1: of 10^-9, negative */
} units[] = {
	{ "n", -1 },
	{ "u", -1000 },
	{ "m", -1000000 },
	{ "", 1 },
	{ "k", 1000 },
	{ "M", 1000000 },
	{ "G", 1000000000 },
	{ "T", 1000000000000 },
	{ "P", 1000000000000000 },
	{ "E", 1000000000000000000 },
	{ "Ki", 1ll << 10 },
	{ "Mi", 1ll << 20 },
	{ "Gi", 1ll << 30 },
	{ "Ti", 1ll << 40 },
	{ "Pi", 1ll << 50 },
	{ "Ei", 1ll << 60 },
};

/* 10^-9 of the unit that `text` is, 0: none. "e3" and "E3" are powers of ten. */
static __int128 unit_nano(const char *text)
{
	char *end;
	long power;
	__int128 nano = NANO;

	for (size_t i = 0; i < ARRAY_SIZE(units); i++)
		if (strcmp(text, units[i].name) == 0)
			return units[i].factor < 0 ? -units[i].factor
						   : (__int128)units[i].factor * NANO;
	if ((*text != 'e' && *text != 'E') || strlen(text) > 4)
		return 0;
	power = strtol(text + 1, &end, 10);
	if (*end || end == text + 1 || text[1] == ' ' || power < -9 || power > 18)
		return 0;
	for (; power > 0; power--)
		nano *= 10;
	for (; power < 0; power++)
		nano /= 10;
	return nano;
}

int quantity_parse(const char *text, struct quantity *ret)
{
	__int128 whole = 0;
	__int128 scale = 1;
	__int128 unit;
	bool point = false;
	size_t digits = 0;
	const char *p = text;

	for (; (*p >= '0' && *p <= '9') || (*p == '.' && !point); p++) {
		if (*p == '.') {
			point = true;
			continue;
		}
		if (++digits > 20)
			return -EINVAL;
		whole = whole * 10 + (*p - '0');
		scale *= point ? 10 : 1;
	}
	unit = digits ? unit_nano(p) : 0;
	if (unit == 0 || (whole && unit > WORK_MAX / whole))
		return -EINVAL;
	whole = (whole * unit + scale - 1) / scale;
	if (whole > NANO_MAX)
		return -EINVAL;
	*ret = (struct quantity){ .nano = whole, .binary = *p && strchr(p, 'i') };
	return 0;
}

struct quantity quantity_add(struct quantity a, struct quantity b, unsigned int times)
{
	bool most = times && b.nano > (NANO_MAX - a.nano) / times;

	return (struct quantity){ .nano = most ? NANO_MAX : a.nano + b.nano * times,
		.binary = a.binary || b.binary };
}

const char *quantity_text(struct quantity q, char *out)
{
	__int128 milli = (q.nano + NANO / 1000 - 1) / (NANO / 1000);
	__int128 whole = (milli + 999) / 1000;
	int unit = 0;

	if (milli % 1000 != 0 && milli <= (__int128)UINT64_MAX) {
		(void)snprintf(out, QUANTITY_BYTES, "%llum", (unsigned long long)milli); /* fits */
		return out;
	}
	while (q.binary && whole && whole % 1024 == 0 && unit < 6) {
		whole /= 1024;
		unit++;
	}
	(void)snprintf(out, QUANTITY_BYTES, "%llu%s", (unsigned long long)whole,
		unit ? units[9 + unit].name : ""); /* fits */
	return out;
}

int quantity_check(const char *text, struct err *e)
{
	struct quantity q;

	if (quantity_parse(text, &q) == 0)
		return 0;
	return err_set(e, -EINVAL,
		"'%s' is not a quantity: write a number with a unit of Kubernetes, such as 8, "
		"500m or 16Gi",
		text);
}
