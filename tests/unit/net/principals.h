/* One of each kind of those who ask, for tests of what they may. */
#pragma once

#include "net/rights.h"

/* The token is of volume 1 whole, and of a part of volume 2. */
struct peer_identity peer_of(enum principal principal);
struct volume_id volume_number(uint8_t n);
