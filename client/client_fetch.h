/*
 * client_read(): one range from wherever it is. See client.h for the contract, client_fetch.c for the states.
 */
#pragma once

#include "base/check.h"

struct client;
struct client_volume;

/* Allocates what reads need, once. -ENOMEM. */
int client_fetch_init(struct client *client, unsigned int io_threads) __must_check;
/* No read may be under way. On the loop's thread or after its end. */
void client_fetch_release(struct client *client);
/* Stops the timers; on the loop. */
void client_fetch_stop(void *client);

/* Marks the volume as closing and ends its reads with -ECANCELED, soon. Any thread. */
void client_fetch_cancel_all(struct client_volume *volume);
