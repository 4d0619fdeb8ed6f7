/* What writing and reading a backup share. */
#pragma once

#include <jansson.h>
#include "master/backup.h"
#include "master/backup_file.h"

#define TABLE_NAME_BYTES 96u /* "VOLUME.LINEAGE.GENERATION" */
#define COPY_BYTES       (1u << 20)

/* The table that a record names, if it is one of a generation whose table is kept. -ENOENT: it is
 * not; -EBADMSG, -ENOMEM. */
int backup_table_of(
	const char *key, const void *value, size_t len, char out[TABLE_NAME_BYTES]) __must_check;

/* A line for what may go wrong with a file of that name, so that it says what to do. */
int backup_failed(struct err *e, int code, const char *file);
