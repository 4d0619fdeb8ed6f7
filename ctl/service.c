/* Where a service's daemons are. See service.h. */
#include "ctl/service.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define KEEPER "/keeper"
#define ROOM   24u /* for the names of sockets, as struct cache_dir has it */

const char *service_run(char out[SOCKET_PATH_MAX])
{
	const char *base = secure_getenv("GRANARY_RUN_DIR");

	if (!base || base[0] != '/' || strlen(base) + sizeof(KEEPER) + ROOM > SOCKET_PATH_MAX)
		base = "/run/granary";
	(void)snprintf(out, SOCKET_PATH_MAX, "%s" KEEPER, base); /* fits */
	return out;
}

bool service_is_run(const char *run)
{
	char its[SOCKET_PATH_MAX];

	return strcmp(run, service_run(its)) == 0;
}

bool service_there(void)
{
	char run[SOCKET_PATH_MAX];
	struct stat st;

	return stat(service_run(run), &st) == 0 && S_ISDIR(st.st_mode);
}

int service_path(const char *run, const char *name, char out[SOCKET_PATH_MAX])
{
	int base = (int)strlen(run) - (int)strlen(KEEPER);
	int daemon = (int)strcspn(name, ".");
	int n;

	if (service_is_run(run) &&
		(strncmp(name, "master.", 7) == 0 || strncmp(name, "worker.", 7) == 0))
		n = snprintf(out, SOCKET_PATH_MAX, "%.*s/%.*s/%s", base, run, daemon, name, name);
	else
		n = snprintf(out, SOCKET_PATH_MAX, "%s/%s", run, name);
	return n < SOCKET_PATH_MAX ? 0 : -ENAMETOOLONG;
}
