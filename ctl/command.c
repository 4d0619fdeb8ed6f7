/* What all commands share. */
#include "ctl/command.h"

#include <stdio.h>
#include <unistd.h>

int command_fail(int status, const struct err *e)
{
	(void)fprintf(stderr, "cachectl: %s\n", e->text);
	return status;
}

const char *command_hint(void)
{
	return geteuid() == 0 ? "cachectl status lists them" : "those of root are seen with sudo";
}
