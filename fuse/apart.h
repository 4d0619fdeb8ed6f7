/*
 * What a daemon does differently whose keeper mounts for it: it has no rights beyond reading, and
 * may find that what it was to show is there already.
 *
 * Threads: the one that starts the daemon, before there are others.
 */
#pragma once

#include <stdbool.h>
#include "fuse/cachefuse.h"

/* Names what the mount would show, for whoever shares it: c->key. */
void apart_set_key(struct cachefuse *c);
/*
 * Gives up every right that is not needed any more: the keeper has what mounting takes. Nothing
 * without a keeper.
 */
int apart_drop_rights(struct err *e) __must_check;
/*
 * Shows what another daemon of this node serves, instead of serving it too. *ret_shared: there was
 * such a one, and this process has nothing more to do. -EALREADY: it is there already.
 */
int apart_share(struct cachefuse *c, bool *ret_shared, struct err *e) __must_check;
