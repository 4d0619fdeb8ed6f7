/*
 * The master's memory: what cannot be recomputed, as ordered text keys with values, behind one
 * table of operations (RocksDB here; a consensus store fits the same shape).
 *
 *	cluster				{"uuid", "epoch"}
 *	source/VOLUME			how the origin is reached, current lineage, next serial
 *	generation/VOLUME/SERIAL	one immutable version of a source's table
 *	dataset/UUID			{"name", "mounts", ...}: a named source
 *	asked/VOLUME/SERIAL		epoch in which it was last asked for
 *	member/NUMBER, slots		members, and who owns which slot
 *	dataset/UUID			a named set of sources, and what is wanted of their bytes
 *	preload/ID			a job that loads a source, and how far it is
 *
 * Threads: any. All operations block on the disk; none is called on a loop. A write is durable when
 * it returns: a master that forgot what it handed out would hand it out again with another meaning.
 */
#pragma once

#include <stddef.h>
#include "base/buf.h"
#include "base/err.h"

#define STORE_VALUE_BYTES (1024u * 1024u) /* one value */
#define STORE_KEY_BYTES   255u

struct store {
	const struct store_ops *ops;
};

/* One of the changes of a write. */
struct store_change {
	const char *key;
	const void *value; /* NULL: delete the key, which need not be there */
	size_t len;
};

/* A negative return ends the scan with that error. */
typedef int (*store_visit)(void *arg, const char *key, const void *value, size_t len);

struct store_ops {
	/* Appends the value to `value` (bounded by its max). -ENOENT: no such key. */
	int (*get)(struct store *store, const char *key, struct buf *value);
	/* All changes or none, durable on return. -EIO, -ENOSPC: nothing changed. */
	int (*write)(struct store *store, const struct store_change *changes, unsigned int n);
	/* Every key that starts with `prefix`, in byte order. */
	int (*scan)(struct store *store, const char *prefix, store_visit visit, void *arg);
	void (*close)(struct store *store);
};

/*
 * Opens or creates the store in `dir`. -EBUSY: another process has it; -EBADMSG: damaged; -EACCES,
 * -EROFS, -ENOSPC: each with its line.
 */
int store_rocksdb_open(const char *dir, struct store **ret_store, struct err *e) __must_check;

static inline void store_close(struct store *store)
{
	if (store)
		store->ops->close(store);
}
