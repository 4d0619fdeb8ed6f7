/*
 * How fast a tier's disk is, and what a tier in memory needs. The kernel is asked once, when the
 * tier opens. Threads: any.
 */
#pragma once

#include "base/err.h"
#include "tiers/tiers.h"

struct tier;

/* RAM for tmpfs; else what the kernel says of the disk beneath; SSD where it says nothing. */
enum tier_kind kind_of_directory(int dir_fd);

/*
 * A tier in memory must lie on tmpfs (-EINVAL), have a capacity (-EINVAL) that its filesystem, the
 * machine's memory and the control group leave room for (-ENOSPC); each with its line. *ret_swaps:
 * the kernel may swap it out.
 */
int kind_check_ram(const struct tier *tier, bool *ret_swaps, struct err *e) __must_check;
