/* Threads that nothing waits for. See thread.h. */
#include "base/thread.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>

#define STACK_BYTES (256u * 1024)

int thread_start_detached(void *(*main)(void *arg), void *arg)
{
	pthread_attr_t attr;
	pthread_t thread;
	sigset_t all;
	sigset_t before;
	int r;

	if (pthread_attr_init(&attr) != 0)
		return -ENOMEM;
	(void)pthread_attr_setdetachstate(
		&attr, PTHREAD_CREATE_DETACHED);             /* a constant that exists */
	(void)pthread_attr_setstacksize(&attr, STACK_BYTES); /* likewise */
	(void)sigfillset(&all);                              /* cannot fail */
	(void)pthread_sigmask(SIG_SETMASK, &all, &before);   /* signals are for the main thread */
	r = pthread_create(&thread, &attr, main, arg);
	(void)pthread_sigmask(SIG_SETMASK, &before, NULL);
	(void)pthread_attr_destroy(&attr); /* never fails */
	return -r;
}
