/*
 * A backup: all that a master cannot find out again, in one file. Lines of JSON tell what follows,
 * so that a person can look into it:
 *
 *	{"granary_backup": 1, "cluster": "9f...", "epoch": 7, "time": "...", "version": "..."}
 *	{"key": "source/4a...", "bytes": 312}		then so many bytes, and a line's end
 *	{"table": "4a....1b....12", "bytes": 40960}	likewise
 *	{"records": 40, "tables": 2, "sha256": "..."}	hash of every byte before this line
 *
 * Records are those of one moment, with every table that they name. A restored master has the next
 * epoch and not less than the milliseconds since 1970, so that its tables are not taken for older ones
 * than those of the master before it; what its askers have seen tells what it does not know
 * (source.h).
 *
 * Threads: any that may block. One backup_write() to a file at a time.
 */
#pragma once

#include "base/err.h"
#include "master/record.h"
#include "master/store.h"

#define BACKUP_FORMAT 1

struct backup_stats {
	struct record_cluster cluster;
	char time[40]; /* when it was made, as text: that of its first line */
	uint64_t records;
	uint64_t tables;
	uint64_t bytes; /* of the file */
};

/*
 * Writes `file` (0600), which then is there whole or as it was before. `tables`: directory of the
 * tables. Sources may change meanwhile. -ENOSPC, -EACCES, -EIO with a line.
 */
int backup_write(struct store *store, const char *tables, const char *file,
	struct backup_stats *ret_stats, struct err *e) __must_check;

/* Reads all of it. -EBADMSG: no backup, or damaged; -EPROTONOSUPPORT: of a newer format. */
int backup_check(const char *file, struct backup_stats *ret_stats, struct err *e) __must_check;

/* stats.time, or null if it is not a time. NULL without memory. */
json_t *backup_time_json(const struct backup_stats *stats) __must_check;

/*
 * Makes the state directory `state` from it. It must be empty or missing (-EEXIST), and is there
 * whole or not at all.
 */
int backup_restore(const char *file, const char *state, struct backup_stats *ret_stats,
	struct err *e) __must_check;
