/* Looks into /proc. See requester.h. */
#include "fuse/session/requester.h"
#include "base/cleanup.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define STATUS_BYTES 4096u /* of which the signals follow the groups: a few hundred fit */
#define PENDING      "\nSigPnd:\t"

enum requester requester_state(uint32_t pid)
{
	_cleanup_close_ int fd = -1;
	char path[32];
	char text[STATUS_BYTES];
	const char *pending;
	ssize_t n;

	(void)snprintf(path, sizeof(path), "/proc/%u/status", pid); /* fits */
	if (pid != 0)
		fd = open(path, O_RDONLY | O_CLOEXEC);
	n = fd >= 0 ? read(fd, text, sizeof(text) - 1) : -1;
	text[n > 0 ? n : 0] = '\0';
	pending = strstr(text, PENDING);
	if (!pending)
		return REQUESTER_UNKNOWN;
	/* Whatever ends a process becomes a SIGKILL of each of its threads. */
	return strtoull(pending + strlen(PENDING), NULL, 16) >> (SIGKILL - 1) & 1 ? REQUESTER_DIES
										  : REQUESTER_LIVES;
}
