/*
 * Scope-bound resources: a local is released when its scope ends, and leaves it alive by TAKE().
 *
 *	_cleanup_(buf_release) struct buf b;
 *	_cleanup_free_ char *name = strdup(s);
 *	return TAKE(name);
 */
#pragma once

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define _cleanup_(fn) __attribute__((cleanup(fn)))

/* The value of a pointer variable, which is NULL afterwards: ownership moves to the caller. */
#define TAKE(ptr)                                        \
	({                                               \
		__typeof__(ptr) *take_from = &(ptr);     \
		__typeof__(ptr) take_value = *take_from; \
		*take_from = NULL;                       \
		take_value;                              \
	})

/* The same for a file descriptor: the variable is -1 afterwards. */
#define TAKE_FD(fd)                          \
	({                                   \
		int *take_from = &(fd);      \
		int take_value = *take_from; \
		*take_from = -1;             \
		take_value;                  \
	})

/* Makes the function NAME_p(T **) from NAME(T *), for _cleanup_; NAME must accept NULL. */
#define DEFINE_CLEANUP(type, name)           \
	static inline void name##_p(type *p) \
	{                                    \
		name(*p);                    \
	}                                    \
	struct cleanup_needs_semicolon

static inline void cleanup_free(void *p)
{
	free(*(void **)p);
}

static inline void cleanup_close(const int *fd)
{
	if (*fd >= 0)
		(void)close(*fd); /* nothing to do about a failing close of a scope's end */
}

static inline void cleanup_fclose(FILE **f)
{
	if (*f)
		(void)fclose(*f); /* writers check fflush before */
}

#define _cleanup_free_   _cleanup_(cleanup_free)
#define _cleanup_close_  _cleanup_(cleanup_close)
#define _cleanup_fclose_ _cleanup_(cleanup_fclose)
