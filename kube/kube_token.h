/* The form of a token. Threads: any. */
#pragma once

#include "base/buf.h"
#include "base/err.h"

#define KUBE_TOKEN_BYTES (32u << 10)

/* A token is one word: what follows it on other lines would become headers. Cuts blanks at its end. `from`: where it was found. -ENOKEY. */
int kube_token_check(const char *from, struct buf *text, struct err *e) __must_check;
