/* How much memory a process of ours can have. Bytes; threads: any. */
#pragma once

#include <stdint.h>

/* The machine's, or what the control group of this process allows when that is less; 0: not
 * known. */
uint64_t memory_there(void);

/* What the kernel expects to have for new programs without swapping; 0: not known. */
uint64_t memory_available(void);

/* What the control groups of this process (version 2) allow; UINT64_MAX: no limit. */
uint64_t memory_group_limit(void);
