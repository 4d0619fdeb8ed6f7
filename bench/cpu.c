/* See cpu.h. */
#include "bench/cpu.h"

#include <sys/resource.h>

static double seconds(const struct timeval *t)
{
	return (double)t->tv_sec + (double)t->tv_usec / 1e6;
}

double cpu_seconds(void)
{
	struct rusage usage = { 0 };

	(void)getrusage(RUSAGE_SELF, &usage); /* fails only on a bad argument */
	return seconds(&usage.ru_utime) + seconds(&usage.ru_stime);
}
