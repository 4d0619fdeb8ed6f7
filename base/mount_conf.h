/*
 * /etc/fuse.conf: what root lets ordinary users mount, as fusermount3 reads it.
 *
 * Threads: any.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define MOUNT_CONF       "/etc/fuse.conf"
#define MOUNT_CONF_BYTES 65536u /* more of it is not read */

/*
 * Is there a line `key`, or with ret_number a line `key = NUMBER`? `text` is the file's. '#' begins
 * a comment; a last line without its newline does not count, as fusermount3 passes it over.
 */
bool mount_conf_find(const char *text, const char *key, uint64_t *ret_number);
