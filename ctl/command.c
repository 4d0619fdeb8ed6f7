/* What all commands share. */
#include "ctl/command.h"

#include <stdio.h>

int command_fail(int status, const struct err *e)
{
	(void)fprintf(stderr, "cachectl: %s\n", e->text);
	return status;
}
