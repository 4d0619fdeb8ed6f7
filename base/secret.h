/*
 * Memory for secrets: keys of the cluster, of tokens, of buckets. Each has pages of its own, which no core dump contains
 * (MADV_DONTDUMP) and which are wiped when they are freed. For what lives longer than a function; a local copy is wiped with
 * explicit_bzero() where it ends.
 *
 * Threads: any.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include "base/buf.h"

/* Zeroed memory of n bytes, n > 0, aligned as that of malloc(3); NULL without memory. */
void *secret_new(size_t n);
/* A copy of the first `len` bytes of a text, with a NUL. */
char *secret_text(const char *text, size_t len);
/* Wipes, then frees; NULL is allowed. */
void secret_free(void *secret);
/* Wipes a buffer that held a secret, then releases it. */
void secret_release_buf(struct buf *b);

/*
 * From now on this process leaves no core dump, and only a process with CAP_SYS_PTRACE reads its memory or takes its
 * descriptors: also its own user's other processes do not. The files of its /proc/PID/ are root's then.
 */
void secret_hide_process(void);
