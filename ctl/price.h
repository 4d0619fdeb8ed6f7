/*
 * What an origin charges, as a person says it: so much for a GiB, so much for a million GETs. Of whatever
 * currency. Threads: any.
 */
#pragma once

#include <stdbool.h>
#include "base/option.h"

struct price_options {
	const char *gib;
	const char *million;
};

/* For the table of a command whose struct `type` has a struct price_options `member`. */
#define PRICE_OPTION_ROWS(type, member)                                           \
	OPTION_STRING_ROW(type, member.gib, "price-per-gib", "N",                 \
		"Price of a GiB from the origin, such as 0.09 (default: 0)"),     \
		OPTION_STRING_ROW(type, member.million, "price-per-million", "N", \
			"Price of a million GETs, such as 0.4 (default: 0)")

struct price {
	double gib;
	double million;
	bool said; /* one of them was */
};

/* -EINVAL with a line that names the option. */
int price_parse(const struct price_options *options, struct price *ret, struct err *e) __must_check;
double price_of(const struct price *price, double bytes, double gets);
