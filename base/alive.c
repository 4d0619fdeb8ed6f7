/* Ends a daemon that is not needed any more. See alive.h. */
#include "base/alive.h"
#include "base/log.h"
#include "base/thread.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

static void *watch(void *arg)
{
	int fd = (int)(intptr_t)arg;
	char byte;
	ssize_t n;

	do
		n = read(fd, &byte, 1);
	while (n > 0 || (n < 0 && errno == EINTR));
	log_info("no process needs this daemon", "fd=%d", fd);
	(void)kill(getpid(), SIGTERM); /* ourselves: cannot fail */
	return NULL;
}

int alive_watch(void)
{
	const char *text = getenv(ALIVE_ENV); // NOLINT(concurrency-mt-unsafe): before other threads
	int fd = text ? atoi(text) : -1;      // NOLINT(cert-err34-c): -1 and 0 are both no pipe

	if (fd <= 2 || fcntl(fd, F_SETFD, FD_CLOEXEC) != 0)
		return 0; /* no keeper started it */
	return thread_start_detached(watch, (void *)(intptr_t)fd);
}
