/* An origin that misbehaves as the fault plane says, around another (ufs/ufs_internal.h). */
#pragma once

#include "base/err.h"

struct faults;
struct ufs;

/* Owns `lower` when it succeeds; `faults` is borrowed. */
int ufs_fault_new(
	struct ufs *lower, struct faults *faults, struct ufs **ret_ufs, struct err *e) __must_check;

/* Every origin opened from here on, as the process's own plane says. Once per process. */
void ufs_fault_install(void);
