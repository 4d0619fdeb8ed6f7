/* Text in columns. See columns.h. */
#include "ctl/columns.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

int columns_init(
	struct columns *columns, const char *const *titles, unsigned int n, unsigned int right)
{
	ensure(n <= COLUMNS_MAX);
	*columns = (struct columns){ .n = n, .right = right };
	return columns_add(columns, titles);
}

void columns_release(struct columns *columns)
{
	for (unsigned int i = 0; i < columns->n_rows * columns->n; i++)
		free(columns->cells[i]);
	free(columns->cells);
	*columns = (struct columns){ 0 };
}

int columns_add(struct columns *columns, const char *const *cells)
{
	size_t at = (size_t)columns->n_rows * columns->n;
	char **grown;

	if (columns->n_rows == COLUMNS_ROWS_MAX)
		return -ENOBUFS;
	grown = realloc(columns->cells, (at + columns->n) * sizeof(*grown));
	if (!grown)
		return -ENOMEM;
	columns->cells = grown;
	for (unsigned int i = 0; i < columns->n; i++) {
		grown[at + i] = strdup(cells[i] ? cells[i] : "-");
		if (grown[at + i])
			continue;
		while (i-- > 0)
			free(grown[at + i]);
		return -ENOMEM;
	}
	columns->n_rows++;
	return 0;
}

/* Of the control characters: the bytes of one; 0: it is none. Those beyond ASCII are U+0080 to
 * U+009F. */
static size_t control(const char *text)
{
	unsigned char first = (unsigned char)text[0];
	unsigned char second = first ? (unsigned char)text[1] : 0;

	if (first == 0xc2 && second >= 0x80 && second < 0xa0)
		return 2;
	return first < 0x20 || first == 0x7f;
}

void columns_put(const char *text, FILE *out)
{
	while (*text) {
		size_t n = control(text);

		(void)fputc(n ? '?' : *text, out);
		text += n ? n : 1;
	}
}

/* Characters, not bytes, of UTF-8. */
static size_t characters(const char *text)
{
	size_t n = 0;

	for (; *text; text++)
		n += ((unsigned char)*text & 0xc0) != 0x80;
	return n;
}

void columns_print(const struct columns *columns, FILE *out)
{
	size_t widths[COLUMNS_MAX] = { 0 };

	for (unsigned int i = 0; i < columns->n_rows * columns->n; i++)
		widths[i % columns->n] = max(widths[i % columns->n], characters(columns->cells[i]));
	for (unsigned int i = 0; i < columns->n_rows * columns->n; i++) {
		unsigned int column = i % columns->n;
		bool last = column == columns->n - 1;
		bool right = columns->right >> column & 1;
		int pad = (int)(widths[column] - characters(columns->cells[i]));

		(void)fprintf(out, "%*s", right ? pad : 0, "");
		columns_put(columns->cells[i], out);
		(void)fprintf(out, "%*s%s", right || last ? 0 : pad, "", last ? "\n" : "  ");
	}
}
