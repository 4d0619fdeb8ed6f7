/* What is mounted. See mount_table.h. */
#include "base/mount_table.h"
#include "base/cleanup.h"
#include "base/file.h"

#include <linux/major.h>
#include <string.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/sysmacros.h>

/* "\040" and the like back to bytes. */
static void unescape(const char *in, size_t len, char *out, size_t size)
{
	size_t n = 0;

	for (size_t i = 0; i < len && n + 1 < size; i++) {
		if (in[i] == '\\' && i + 3 < len) {
			out[n++] = (char)((in[i + 1] - '0') << 6 | (in[i + 2] - '0') << 3 |
					  (in[i + 3] - '0'));
			i += 3;
		} else {
			out[n++] = in[i];
		}
	}
	out[n] = '\0';
}

/* The word at *p into out; *p moves behind it. */
static bool take_word(const char **p, char *out, size_t size)
{
	size_t len = strcspn(*p, " \n");

	if (len == 0)
		return false;
	if (out)
		unescape(*p, len, out, size);
	*p += len;
	*p += **p == ' ';
	return true;
}

/* 36 35 98:0 /root /point options [optional fields] - type source super-options */
int mount_table_parse(const char *line, struct mount_entry *ret_entry)
{
	struct mount_entry e;
	char dev[32];
	char *end;
	const char *p = line;

	e.id = (int)strtol(line, &end, 10);
	if (end == line || !take_word(&p, NULL, 0) || !take_word(&p, NULL, 0) ||
		!take_word(&p, dev, sizeof(dev)) || !take_word(&p, NULL, 0) ||
		!take_word(&p, e.point, sizeof(e.point)))
		return -EPROTO;
	e.dev_major = (unsigned int)strtoul(dev, &end, 10);
	if (end == dev || *end != ':')
		return -EPROTO;
	e.dev_minor = (unsigned int)strtoul(end + 1, NULL, 10);
	p = strstr(p, " - ");
	if (!p)
		return -EPROTO;
	p += 3;
	if (!take_word(&p, e.type, sizeof(e.type)) || !take_word(&p, e.source, sizeof(e.source)))
		return -EPROTO;
	e.user = 0;
	p = strstr(p, "user_id=");
	if (p && (p[-1] == ',' || p[-1] == ' '))
		e.user = (unsigned int)strtoul(p + 8, NULL, 10);
	*ret_entry = e;
	return 0;
}

typedef int (*entry_fn)(void *arg, const struct mount_entry *entry);

static int each(bool only_ours, entry_fn fn, void *arg)
{
	_cleanup_fclose_ FILE *f = fopen("/proc/self/mountinfo", "re");
	_cleanup_free_ char *line = NULL;
	struct mount_entry entry;
	size_t size = 0;
	int r = 0;

	if (!f)
		return err_errno();
	while (r == 0 && getline(&line, &size, f) > 0)
		if (mount_table_parse(line, &entry) == 0 &&
			(!only_ours || mount_entry_ours(&entry)))
			r = fn(arg, &entry);
	return r;
}

int mount_table_each(entry_fn fn, void *arg)
{
	return each(false, fn, arg);
}

int mount_table_each_ours(entry_fn fn, void *arg)
{
	return each(true, fn, arg);
}

struct wanted {
	const char *point;
	dev_t dev;
	struct mount_entry *entry;
};

static int is_wanted(void *arg, const struct mount_entry *entry)
{
	const struct wanted *wanted = arg;

	if (makedev(entry->dev_major, entry->dev_minor) != wanted->dev ||
		strcmp(entry->point, wanted->point) != 0)
		return 0;
	*wanted->entry = *entry;
	return -EEXIST;
}

static int find(struct wanted wanted)
{
	int r = mount_table_each(is_wanted, &wanted);

	return r == -EEXIST ? 0 : r < 0 ? r : -ENOENT;
}

int mount_table_read(struct buf *text)
{
	return file_read_all("/proc/self/mountinfo", text);
}

int mount_table_find_id_in(const struct buf *text, int id, struct mount_entry *ret_entry)
{
	for (const char *p = buf_str(text); id && *p;) {
		size_t len = strcspn(p, "\n");

		if (strtol(p, NULL, 10) == id) {
			_cleanup_free_ char *line = strndup(p, len);

			return line ? mount_table_parse(line, ret_entry) : -ENOMEM;
		}
		p += len + (p[len] == '\n');
	}
	return -ENOENT;
}

int mount_table_find_id(int id, struct mount_entry *ret_entry)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(MOUNT_TABLE_MAX);
	int r = id ? mount_table_read(&text) : -ENOENT;

	return r < 0 ? r : mount_table_find_id_in(&text, id, ret_entry);
}

int mount_table_find_at(const char *point, dev_t dev, struct mount_entry *ret_entry)
{
	return find((struct wanted){ .point = point, .dev = dev, .entry = ret_entry });
}

struct search {
	const char *path;
	struct mount_entry *nearest;
	size_t best; /* length of its point; 0: none yet */
};

/* Is `path` that directory, or below it? */
static bool is_above(const char *point, const char *path)
{
	size_t len = strlen(point);

	return strncmp(path, point, len) == 0 &&
	       (len == 1 || path[len] == '\0' || path[len] == '/');
}

static int look(void *arg, const struct mount_entry *entry)
{
	struct search *search = arg;
	size_t len = strlen(entry->point);

	if (!is_above(entry->point, search->path) || len < search->best)
		return 0;
	*search->nearest = *entry;
	search->best = len;
	return 0;
}

static int find_above(bool only_ours, const char *path, struct mount_entry *ret_entry)
{
	struct mount_entry entry;
	struct search search = { .path = path, .nearest = &entry };
	int r = each(only_ours, look, &search);

	if (r < 0)
		return r;
	if (search.best == 0)
		return -ENOENT;
	*ret_entry = entry;
	return 0;
}

int mount_table_find_above(const char *path, struct mount_entry *ret_entry)
{
	return find_above(true, path, ret_entry);
}

int mount_table_filesystem(const char *path, struct mount_entry *ret_entry)
{
	return find_above(false, path, ret_entry);
}

int mount_table_find(const char *point, struct mount_entry *ret_entry)
{
	_cleanup_fclose_ FILE *f = fopen("/proc/self/mountinfo", "re");
	_cleanup_free_ char *line = NULL;
	struct mount_entry entry;
	size_t size = 0;
	int r = -ENOENT;

	if (!f)
		return err_errno();
	while (getline(&line, &size, f) > 0) {
		if (mount_table_parse(line, &entry) < 0 || strcmp(entry.point, point) != 0)
			continue;
		*ret_entry = entry; /* a later line lies on top */
		r = 0;
	}
	return r;
}

struct cover {
	const char *point;
	dev_t dev;
	struct mount_entry *top;
	bool found;   /* the sought mount */
	bool covered; /* by `top` */
};

/* A later line is on top, unless it was attached beneath (MOVE_MOUNT_BENEATH): the caller checks what the path leads to. */
static int look_cover(void *arg, const struct mount_entry *entry)
{
	struct cover *cover = arg;

	if (!is_above(entry->point, cover->point))
		return 0;
	if (strcmp(entry->point, cover->point) == 0 &&
		(cover->dev ? makedev(entry->dev_major, entry->dev_minor) == cover->dev
			    : mount_entry_ours(entry))) {
		cover->found = true;
		cover->covered = false;
	} else if (cover->found) {
		cover->covered = true;
		*cover->top = *entry;
	}
	return 0;
}

int mount_table_find_cover(const char *point, dev_t dev, struct mount_entry *ret_top)
{
	struct mount_entry top;
	struct cover cover = { .point = point, .dev = dev, .top = &top };
	int r = mount_table_each(look_cover, &cover);

	if (r < 0 || !cover.covered)
		return r < 0 ? r : -ENOENT;
	*ret_top = top;
	return 0;
}

/* A loop device over the one file of a FUSE mount that is shown nowhere: its path is its name. */
static bool is_our_loop(const struct mount_entry *entry)
{
	static const char deleted[] = "/" MOUNT_LOOP_NAME " (deleted)";
	char file[sizeof(deleted) + 1] = "";
	char path[64];
	FILE *f;

	if (entry->dev_major != LOOP_MAJOR)
		return false;
	(void)snprintf(path, sizeof(path), "/sys/dev/block/%u:%u/loop/backing_file",
		entry->dev_major, entry->dev_minor); /* fits */
	f = fopen(path, "re");
	if (!f)
		return false;
	if (!fgets(file, sizeof(file), f))
		file[0] = '\0';
	(void)fclose(f); /* was only read */
	file[strcspn(file, "\n")] = '\0';
	return strcmp(file, "/" MOUNT_LOOP_NAME) == 0 || strcmp(file, deleted) == 0;
}

bool mount_entry_ours(const struct mount_entry *entry)
{
	if (strcmp(entry->type, "fuse.granary") == 0)
		return true;
	return strcmp(entry->type, "erofs") == 0 &&
	       (strstr(entry->source, "://") || strstr(entry->source, "/images/") ||
		       strcmp(entry->source, "granary") == 0 || is_our_loop(entry));
}
