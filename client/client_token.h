/* What a token says, for those above client/ (net/identity.h: token_read()). */
#pragma once

#include "net/identity.h" /* IWYU pragma: export */
