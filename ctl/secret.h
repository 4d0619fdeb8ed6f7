/* Files of keys and tokens, as commands write them (key_command.c). */
#pragma once

#include "base/err.h"

/* A new file that only its owner may read; one that is there is left alone. */
int secret_write(const char *path, const char *text, struct err *e) __must_check;
