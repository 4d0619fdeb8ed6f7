/*
 * A tree for a session whose READs are of any bytes, and whose directories have 100 bytes and name
 * three nodes. The files are those of the extents, one after the other. GETATTR finds no memory as
 * often as the counter says.
 */
#pragma once

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <stdatomic.h>
#include <string.h>
#include "mount/request.h"
#include "fuse/tree/tree.h"

#define EXTENT       (64ull << 20)
#define UNKNOWN_NODE 77u

extern struct tree unaligned_tree;
extern _Atomic uint32_t unaligned_no_memory;
