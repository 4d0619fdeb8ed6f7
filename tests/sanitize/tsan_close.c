/*
 * Linked into the unit tests when the thread sanitizer is (SAN=thread). libuv closes its descriptors by
 * syscall(SYS_close, fd), which the sanitizer does not intercept: it takes whoever is given the number next, by a call
 * that it does not intercept either (openat), to race with the loop that made the first one. Here such a close goes
 * through close(), which it does.
 */
#include <dlfcn.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>

long syscall(long number, ...)
{
	static long (*_Atomic real)(long, ...);
	long (*next)(long, ...) = real;
	long a[6];
	va_list args;

	va_start(args, number);
	for (unsigned int i = 0; i < 6; i++)
		a[i] = va_arg(args, long);
	va_end(args);
	if (number == SYS_close)
		return close((int)a[0]);
	if (!next) {
		next = (long (*)(long, ...))dlsym(RTLD_NEXT, "syscall");
		real = next;
	}
	return next(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}
