/* How much memory a process of ours can have at all. */
#pragma once

#include <stdint.h>

/* Bytes: the machine's, or what the control group of this process allows when that is less; 0: not
 * known. */
uint64_t memory_there(void);

/* Bytes that the control groups of this process (version 2) allow; UINT64_MAX: no limit. */
uint64_t memory_group_limit(void);
