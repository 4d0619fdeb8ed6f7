/* What an origin charges. See price.h. */
#include "ctl/price.h"
#include "base/units.h"

#include <math.h>
#include <stdlib.h>

static int parse(const char *option, const char *text, double *ret, struct err *e)
{
	char *end;
	double value;

	if (!text)
		return 0;
	value = strtod(text, &end);
	if (end == text || *end || !isfinite(value) || value < 0)
		return err_set(e, -EINVAL, "--%s: '%s' is not a price; write a number such as 0.09",
			option, text);
	*ret = value;
	return 0;
}

int price_parse(const struct price_options *options, struct price *ret, struct err *e)
{
	struct price price = { .said = options->gib || options->million };
	int r = parse("price-per-gib", options->gib, &price.gib, e);

	if (r == 0)
		r = parse("price-per-million", options->million, &price.million, e);
	if (r == 0)
		*ret = price;
	return r;
}

double price_of(const struct price *price, double bytes, double gets)
{
	return bytes / (double)GiB * price->gib + gets / 1e6 * price->million;
}
