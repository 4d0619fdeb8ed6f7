/* UTF-8. See utf8.h. */
#include "base/utf8.h"

size_t utf8_bytes(const char *text)
{
	const unsigned char *s = (const unsigned char *)text;
	size_t n = s[0] < 0x80 ? 1 : s[0] < 0xc2 ? 0 : s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : 4;

	if (s[0] > 0xf4)
		return 0;
	for (size_t i = 1; i < n; i++)
		if ((s[i] & 0xc0) != 0x80)
			return 0;
	/* Overlong, surrogates, past U+10FFFF. */
	if ((s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] > 0x9f) ||
		(s[0] == 0xf0 && s[1] < 0x90) || (s[0] == 0xf4 && s[1] > 0x8f))
		return 0;
	return n;
}

bool utf8_is(const char *s)
{
	while (*s) {
		size_t n = utf8_bytes(s);

		if (n == 0)
			return false;
		s += n;
	}
	return true;
}

void utf8_make_line(char *s)
{
	while (*s) {
		size_t n = utf8_bytes(s);

		if (n == 0 || (unsigned char)*s < 0x20 || *s == 0x7f)
			*s = '?';
		s += n ? n : 1;
	}
}
