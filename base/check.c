/* The end of a process that found a bug in itself: one line, then a core. */
#include "base/check.h"

#include <stdio.h>
#include <stdlib.h>

_Noreturn void check_failed(const char *expr, const char *file, int line, const char *func)
{
	fprintf(stderr, "granary: bug: %s:%d: %s: `%s' does not hold; please report it\n", file,
		line, func, expr);
	abort();
}
