/*
 * Addresses of daemons as they are written: "unix:/PATH", "tcp:HOST:PORT", HOST in numbers. What they mean is net/'s
 * to say; this is what a configuration can be refused for before anything starts. Threads: any.
 */
#pragma once

#include "base/err.h"

/* 0, or -EINVAL with what is wrong and what is allowed: an option's `check`. */
int address_check(const char *address, struct err *e) __must_check;
