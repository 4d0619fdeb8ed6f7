/* Patterns of paths. See glob.h. */
#include "base/glob.h"

#include <string.h>

/* A star to which the match can go back, for it to stand for more. */
struct star {
	const char *pattern; /* behind it; NULL: none */
	const char *path;    /* behind what it stands for */
};

struct match {
	const char *pattern;
	const char *pattern_end;
	const char *path;
	const char *path_end;
	struct star one; /* within a name */
	struct star two; /* over slashes */
	bool whole;      /* `two` stands for whole names */
};

/* Behind a class's end; NULL: it has none. */
static const char *class_end(const char *at, const char *end)
{
	at += at < end && *at == '!';
	if (at < end && *at == ']') /* the first is one of the class */
		at++;
	while (at < end && *at != ']')
		at++;
	return at < end ? at + 1 : NULL;
}

static bool in_class(const char *at, const char *end, char c)
{
	bool negated = *at == '!';
	bool found = false;

	for (at += negated; at < end - 1; at++) {
		unsigned char low = (unsigned char)*at;
		unsigned char high = low;

		if (at + 3 < end && at[1] == '-') {
			high = (unsigned char)at[2];
			at += 2;
		}
		found |= (unsigned char)c >= low && (unsigned char)c <= high;
	}
	return found != negated;
}

/* One byte of the path by one part of the pattern that is no star. */
static bool step(struct match *m)
{
	const char *at = m->pattern;
	const char *end;
	char c = *m->path;

	if (at == m->pattern_end)
		return false;
	if (*at == '?' && c == '/')
		return false;
	if (*at == '[' && (end = class_end(at + 1, m->pattern_end)) != NULL) {
		if (c == '/' || !in_class(at + 1, end, c))
			return false;
		m->pattern = end;
	} else {
		at += *at == '\\' && at + 1 < m->pattern_end;
		if (*at != c && *m->pattern != '?')
			return false;
		m->pattern = at + 1;
	}
	m->path++;
	return true;
}

/* Takes the star that the pattern is at. */
static void take_star(struct match *m)
{
	bool twice = m->pattern + 1 < m->pattern_end && m->pattern[1] == '*';

	if (!twice) {
		m->pattern++;
		m->one = (struct star){ m->pattern, m->path };
		return;
	}
	while (m->pattern < m->pattern_end && *m->pattern == '*')
		m->pattern++;
	m->whole = m->pattern < m->pattern_end && *m->pattern == '/';
	m->pattern += m->whole;
	m->two = (struct star){ m->pattern, m->path };
	m->one.pattern = NULL;
}

/* The last star stands for more; false when none can. */
static bool go_back(struct match *m)
{
	if (m->one.pattern && m->one.path < m->path_end && *m->one.path != '/') {
		m->path = ++m->one.path;
		m->pattern = m->one.pattern;
		return true;
	}
	m->one.pattern = NULL;
	if (!m->two.pattern || m->two.path >= m->path_end)
		return false;
	if (m->whole) {
		const char *slash = memchr(m->two.path, '/', (size_t)(m->path_end - m->two.path));

		if (!slash)
			return false;
		m->two.path = slash;
	}
	m->path = ++m->two.path;
	m->pattern = m->two.pattern;
	return true;
}

bool glob_match(const char *pattern, const char *path, size_t path_len)
{
	struct match m = { .path = path, .path_end = path + path_len };

	m.pattern = pattern + strspn(pattern, "/");
	m.pattern_end = m.pattern + strlen(m.pattern);
	while (m.pattern_end > m.pattern && m.pattern_end[-1] == '/' &&
		(m.pattern_end - 1 == m.pattern || m.pattern_end[-2] != '\\'))
		m.pattern_end--;
	if (m.pattern == m.pattern_end)
		return true;
	for (;;) {
		if (m.pattern < m.pattern_end && *m.pattern == '*')
			take_star(&m);
		else if (m.pattern == m.pattern_end && (m.path == m.path_end || *m.path == '/'))
			return true;
		else if ((m.path == m.path_end || !step(&m)) && !go_back(&m))
			return false;
	}
}

int glob_check(const char *pattern, struct err *e)
{
	const char *end = pattern + strlen(pattern);

	if (!*pattern)
		return err_set(e, -EINVAL, "the pattern is empty: give one such as 'train/*.jpg'");
	for (const char *at = pattern; at < end; at++) {
		if (*at == '\\') {
			if (++at == end)
				return err_set(e, -EINVAL,
					"'%s' ends with a backslash: write two for a literal one",
					pattern);
			continue;
		}
		if (*at != '[')
			continue;
		at = class_end(at + 1, end);
		if (!at)
			return err_set(e, -EINVAL,
				"'%s' has a '[' without its ']': write '\\[' for a literal one",
				pattern);
		at--;
	}
	return 0;
}
