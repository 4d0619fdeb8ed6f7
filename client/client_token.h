/* What files of keys and tokens say, for those above client/ (net/identity.h: keys_read(), token_read()). */
#pragma once

#include "net/identity.h" /* IWYU pragma: export */
