/* Sizes, durations and rates as people write them. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include "base/err.h"

#define KiB (1024ull)
#define MiB (1024ull * KiB)
#define GiB (1024ull * MiB)
#define TiB (1024ull * GiB)

/* A number without a unit is bytes from here on. A smaller one is refused: its unit was probably forgotten. */
#define UNITS_BARE_MIN MiB

/*
 * "20GiB", "512MiB", "1.5TB", "4096B", "64k": bytes. KiB, MiB, GiB, TiB and the bare letters k m g t
 * are powers of 1024; kB, MB, GB, TB of 1000. "none" and "0" are 0. -EINVAL with a line naming the text and
 * the units allowed, -ERANGE from 2^63.
 */
int units_parse_size(const char *s, uint64_t *ret_bytes, struct err *e) __must_check;

/* "500MB/s", "1GiB/s", "64M", "4Gbit/s": bytes per second; a bit's units are powers of 1000. "none", "0" and
 * errors as above. */
int units_parse_rate(const char *s, uint64_t *ret_bytes, struct err *e) __must_check;

/* "30s", "5m", "2h", "1d", "250ms": nanoseconds; "none" is 0; errors as above. */
int units_parse_duration(const char *s, uint64_t *ret_ns, struct err *e) __must_check;

/* part / of, in thousandths, rounded down so that 1 is all of it; `of` > 0. A ratio in JSON: 0.939. */
double units_ratio(double part, double of);
/* The same for people: "93.9%". size >= 8. Returns out. */
const char *units_percent(double part, double of, char *out, size_t size);

/* "40s", "5m", "3h", "12d": one unit, rounded down; less than 0 is "0s". size >= 24. Returns out. */
const char *units_age(int64_t seconds, char *out, size_t size);

/* "12.3us", "4.5ms", "1.5s", "3.4m", "2.1h": what something takes, with one digit behind the point. size >= 24. Returns out. */
const char *units_duration(uint64_t ns, char *out, size_t size);

/* "1.4GiB": three digits, power of 1024. size >= 16. Returns out. */
const char *units_size(uint64_t bytes, char *out, size_t size);
