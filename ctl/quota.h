/*
 * A smaller quota evicts cached data at once: computes how much, and asks.
 *
 * Threads: one.
 */
#pragma once

#include <jansson.h>
#include <stdint.h>
#include "base/err.h"

/*
 * Asks on a terminal before a quota evicts data of `what`, such as "dataset d"; elsewhere refuses. `sources` is
 * [{"volume", "cached_bytes", "workers": [{"cached_bytes", "copy_bytes", "whole"}]}]; each volume counts once. `done` is what a refusal prevents:
 * "changed" or "mounted". EXIT_OK: the quota evicts nothing, or that was agreed to; else an exit status with its line.
 */
int quota_confirm(const json_t *sources, uint64_t quota, const char *what, const char *done,
	struct err *e) __must_check;
