/*
 * What this process says to workers about the chunk files it has open: which it closed, which it
 * read through since, and, by the answer, which it should close (proto/held.h,
 * cacheworker/holds.h). Once a second while there are any.
 *
 * Threads: client_holds_start() and _stop() on the loop; the rest as client_chunk.h says.
 */
#pragma once

struct client;

/* From now on, unless it runs already. */
void client_holds_start(struct client *client);
void client_holds_stop(struct client *client);
