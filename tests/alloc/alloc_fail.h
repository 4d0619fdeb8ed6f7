/*
 * Lets the n-th allocation of our own code fail: malloc and its kin are replaced at link time
 * (-Wl,--wrap), so that libraries allocate as ever. Failed are also what libraries allocate on our
 * behalf and report to us: an XML parser, an unpacked message, a JSON value.
 *
 * A program that is linked with alloc_fail.c maps the file named by GRANARY_ALLOC_CONTROL, if there
 * is one: whoever started it counts and fails from outside, and while it runs.
 * GRANARY_ALLOC_PROGRAM names the one program that does, of those that inherit the variables.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct alloc_control {
	_Atomic uint64_t count;   /* allocations so far */
	_Atomic uint64_t fail_at; /* the number of the one that fails; 0: none */
	_Atomic uint64_t failed;  /* how many did */
	_Atomic uint64_t where; /* of the last: who asked, as an offset from the program's start */
};

/* Counts from 0 again, and fails the n-th; 0: none. */
void alloc_fail(uint64_t n);
/* For what a test does before the part that is to fail: stops failing; returns what alloc_fail() then
 * takes. */
uint64_t alloc_fail_suspend(void);
/* Stops failing. True when one failed since alloc_fail(). */
bool alloc_fail_end(void);
/* Those of the calling thread neither count nor fail from now on. */
void alloc_fail_spare(void);
/* Allocations since alloc_fail(). */
uint64_t alloc_fail_count(void);

/*
 * Calls fn with the first, the second, ... allocation failing, until it ran without. It must return
 * 0 or a negative errno, checks its own results, and leaves nothing behind. The last run must
 * succeed. `stride` > 1 leaves out some of them. Returns how many allocations failed.
 */
uint64_t alloc_sweep(int (*fn)(void *arg), void *arg, uint64_t stride);
