/*
 * Asks the worker of this node for its chunk map, so that client_local finds what is cached there
 * without asking for each chunk. With the first read, again when that failed, and when a worker
 * that was restarted reports that in answer to the list of open files (client_holds.h).
 *
 * Threads: client_map_ask() on the loop.
 */
#pragma once

#include <stdint.h>

struct client;
struct view_peer;

/* Asks, unless that goes on already, the worker's map is here, or one is not to be had now. */
void client_map_ask(struct client *client);
/* The worker said which map is its own. */
void client_map_told(struct client *client, const struct view_peer *owner, uint64_t start);
