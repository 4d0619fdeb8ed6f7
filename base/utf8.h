/* Texts in UTF-8. Pure. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* Bytes of the character at `s`, 1 for the NUL; 0 when it is none (overlong, a surrogate, past
 * U+10FFFF, cut). Does not read behind a NUL. */
size_t utf8_bytes(const char *s);
bool utf8_is(const char *s);
/* Makes `s` one line of UTF-8, as JSON and terminals need it: control characters and bytes that are of no character
 * become '?'. */
void utf8_make_line(char *s);
