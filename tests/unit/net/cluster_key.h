/* The keys of the cluster that a test is: servers and clients that it makes from then on have them, and speak over TCP. */
#pragma once

#include <stdbool.h>

/* encrypt_data: bytes of volumes, too. As an error: 0, or what net_keys_load() says. */
int cluster_key_load(bool encrypt_data);
int cluster_key_forget(void);

/* For cmocka. */
int with_cluster_key(void **state);
int without_cluster_key(void **state);
