/*
 * What fuzzers share: seeds that they make themselves, and a few checks.
 *
 * A fuzzer that defines fuzz_seeds() makes its seeds with the encoders of the product, so that they are of the present
 * format without anybody's care. They are written into the first directory of its command line before libFuzzer reads
 * it. tests/fuzz/corpus has what no encoder makes: text of others, and inputs that found something.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include "base/err.h"

/* Calls the two below. */
void fuzz_seeds(void) __attribute__((weak));
/* Before all inputs, however long it takes. */
void fuzz_start(void) __attribute__((weak));
void fuzz_seed(const char *name, const void *data, size_t len);
/* Of an input whose first byte says which parser it is for. */
void fuzz_seed_for(uint8_t parser, const char *name, const void *data, size_t len);

/* A path where a file with these bytes can be read, until the next call. */
const char *fuzz_file(const void *data, size_t len);

/* A refusal says why, on one line. */
void fuzz_check_line(const struct err *e);

/* Lowest descriptor that is free: the same before and after what leaves none open. */
int fuzz_free_fd(void);
