/* YAML in block style. See yaml_writer.h. */
#include "base/yaml_writer.h"

#include <errno.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define INDENT 2

void yaml_writer_init(struct yaml_writer *w, struct buf *out)
{
	memset(w, 0, sizeof(*w));
	w->out = out;
}

static void keep(struct yaml_writer *w, int r)
{
	if (r < 0 && w->error == 0)
		w->error = r;
}

static void put(struct yaml_writer *w, const char *text)
{
	if (w->error == 0)
		keep(w, buf_puts(w->out, text));
}

/* Begins the line of the next item of the level at w->depth - 1, unless it is begun. */
static void begin_item(struct yaml_writer *w)
{
	struct yaml_writer_level *level = &w->levels[w->depth - 1];

	if (level->n == 0 && level->broken)
		put(w, "\n");
	if (level->n > 0 || !level->bare)
		for (unsigned int i = 0; i < (w->depth - 1) * INDENT; i++)
			put(w, " ");
	level->n++;
}

/* Begins a value; true when it stands after a key, on the key's line. */
static bool begin_value(struct yaml_writer *w)
{
	struct yaml_writer_level *level;

	ensure(!w->done);
	if (w->depth == 0)
		return false;
	level = &w->levels[w->depth - 1];
	if (level->list) {
		begin_item(w);
		put(w, "- ");
		return false;
	}
	ensure(level->valued);
	level->valued = false;
	return true;
}

static void scalar(struct yaml_writer *w, const char *text)
{
	if (w->error != 0)
		return;
	if (begin_value(w))
		put(w, " ");
	put(w, text);
	put(w, "\n");
	w->done = w->depth == 0;
}

/* What of a container that is too deep is left out is never seen: the writer has failed. */
static void begin_container(struct yaml_writer *w, bool list)
{
	struct yaml_writer_level *level;
	bool after_key;

	if (w->error != 0)
		return;
	if (w->depth == YAML_WRITER_DEPTH) {
		keep(w, -E2BIG);
		return;
	}
	after_key = begin_value(w);
	level = &w->levels[w->depth];
	*level = (struct yaml_writer_level){ .list = list, .broken = after_key };
	level->bare = w->depth > 0 && !after_key;
	w->depth++;
}

void yaml_writer_map(struct yaml_writer *w)
{
	begin_container(w, false);
}

void yaml_writer_list(struct yaml_writer *w)
{
	begin_container(w, true);
}

void yaml_writer_end(struct yaml_writer *w)
{
	struct yaml_writer_level *level;

	if (w->error != 0)
		return;
	ensure(w->depth > 0);
	level = &w->levels[w->depth - 1];
	ensure(!level->valued);
	if (level->n == 0) {
		put(w, level->broken ? " " : "");
		put(w, level->list ? "[]\n" : "{}\n");
	}
	w->depth--;
	w->done = w->depth == 0;
}

/* ---- text ------------------------------------------------------------------------------------ */

static bool is_word(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '/';
}

/* Truths and nothings of YAML 1.1 and 1.2; numbers begin with no letter. */
static bool is_reserved(const char *text, size_t len)
{
	static const char *const words[] = { "y", "n", "yes", "no", "on", "off", "true", "false",
		"null" };

	for (size_t i = 0; i < ARRAY_SIZE(words); i++)
		if (strlen(words[i]) == len && strncasecmp(text, words[i], len) == 0)
			return true;
	return false;
}

/* May it stand without quotes? */
static bool is_plain(const char *text, size_t len)
{
	if (len == 0 || !is_word(text[0]) || is_reserved(text, len) || text[len - 1] == ' ' ||
		text[len - 1] == ':')
		return false;
	for (size_t i = 1; i < len; i++) {
		char c = text[i];

		if (c == ':' && text[i + 1] == ' ')
			return false;
		if (!is_word(c) && !(c >= '0' && c <= '9') && (!c || !strchr(".-+=@%:~ ", c)))
			return false;
	}
	return true;
}

/* The character at `s`, at most `left` bytes; *ret_bytes is 1 and the result U+FFFD when it is none.
 */
static uint32_t decode(const unsigned char *s, size_t left, size_t *ret_bytes)
{
	static const uint32_t least[] = { 0, 0, 0x80, 0x800, 0x10000 };
	size_t n = s[0] < 0x80 ? 1 : s[0] < 0xc2 ? 0 : s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : 4;
	uint32_t c = n == 1 ? s[0] : n == 2 ? s[0] & 0x1fu : n == 3 ? s[0] & 0xfu : s[0] & 7u;

	*ret_bytes = 1;
	if (n == 0 || n > left || s[0] > 0xf4)
		return 0xfffd;
	for (size_t i = 1; i < n; i++) {
		if ((s[i] & 0xc0) != 0x80)
			return 0xfffd;
		c = c << 6 | (s[i] & 0x3fu);
	}
	if (c < least[n] || (c >= 0xd800 && c <= 0xdfff) || c > 0x10ffff)
		return 0xfffd;
	*ret_bytes = n;
	return c;
}

/* What YAML allows to be written as it is, between double quotes. */
static bool is_printable(uint32_t c)
{
	if (c < 0x80)
		return c >= 0x20 && c != '"' && c != '\\' && c != 0x7f;
	return c >= 0xa0 && c != 0x2028 && c != 0x2029 && c != 0xfeff && c != 0xfffd &&
	       c != 0xfffe && c != 0xffff;
}

static void quoted(struct yaml_writer *w, const char *text, size_t len)
{
	put(w, "\"");
	for (size_t i = 0, n; i < len && w->error == 0; i += n) {
		uint32_t c = decode((const unsigned char *)text + i, len - i, &n);

		if (is_printable(c))
			keep(w, buf_append(w->out, text + i, n));
		else if (c == '"' || c == '\\')
			keep(w, buf_printf(w->out, "\\%c", (char)c));
		else if (c == '\n' || c == '\t')
			put(w, c == '\n' ? "\\n" : "\\t");
		else
			keep(w, buf_printf(w->out, "\\u%04x", c)); /* none is past U+FFFF */
	}
	put(w, "\"");
}

static void put_text(struct yaml_writer *w, const char *text, size_t len)
{
	if (!is_plain(text, len))
		quoted(w, text, len);
	else if (w->error == 0)
		keep(w, buf_append(w->out, text, len));
}

void yaml_writer_key(struct yaml_writer *w, const char *key)
{
	struct yaml_writer_level *level;

	if (w->error != 0)
		return;
	ensure(w->depth > 0);
	level = &w->levels[w->depth - 1];
	ensure(!level->list && !level->valued);
	begin_item(w);
	level->valued = true;
	put_text(w, key, strlen(key));
	put(w, ":");
}

void yaml_writer_text(struct yaml_writer *w, const char *text, size_t len)
{
	if (w->error != 0)
		return;
	if (begin_value(w))
		put(w, " ");
	put_text(w, text, len);
	put(w, "\n");
	w->done = w->depth == 0;
}

void yaml_writer_integer(struct yaml_writer *w, long long value)
{
	char text[32];

	(void)snprintf(text, sizeof(text), "%lld", value); /* fits */
	scalar(w, text);
}

/* As few digits as give the same value again; with a point, without which 1.1 sees no real. */
static void real_text(double value, char out[48])
{
	char digits[40];
	int places = 15;
	size_t n;

	do
		(void)snprintf(digits, sizeof(digits), "%.*g", places, value); /* fits */
	while (strtod(digits, NULL) != value && ++places <= 17);
	n = strcspn(digits, "e");
	(void)snprintf(out, 48, "%.*s%s%s", (int)n, digits, memchr(digits, '.', n) ? "" : ".0",
		digits + n); /* fits */
}

void yaml_writer_real(struct yaml_writer *w, double value)
{
	char text[48];

	if (isnan(value) || isinf(value)) {
		scalar(w, isnan(value) ? ".nan" : value > 0 ? ".inf" : "-.inf");
		return;
	}
	real_text(value, text);
	scalar(w, text);
}

void yaml_writer_bool(struct yaml_writer *w, bool value)
{
	scalar(w, value ? "true" : "false");
}

void yaml_writer_null(struct yaml_writer *w)
{
	scalar(w, "null");
}

int yaml_writer_finish(struct yaml_writer *w)
{
	ensure(w->error != 0 || w->done);
	return w->error;
}
