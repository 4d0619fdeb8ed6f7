/*
 * Writing a backup. Tables first, then the records of one moment, then the tables that those name
 * and that came meanwhile. A table which is named is one of the newest, or held, and stays; where
 * generations come so fast that one went all the same, all is written again.
 */
#include "admin/admin.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/version.h"
#include "master/backup_internal.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>

#define GENERATION_PREFIX "generation/"
#define ATTEMPTS          8u

int backup_table_of(const char *key, const void *value, size_t len, char out[TABLE_NAME_BYTES])
{
	struct record_generation g;
	char volume[2 * VOLUME_ID_LEN + 1];
	int r;

	if (strncmp(key, GENERATION_PREFIX, sizeof(GENERATION_PREFIX) - 1) != 0)
		return -ENOENT;
	r = record_generation_decode(value, len, &g);
	if (r < 0)
		return r;
	if (!g.kept)
		return -ENOENT;
	hash_hex(g.id.volume.bytes, VOLUME_ID_LEN, volume);
	(void)snprintf(out, TABLE_NAME_BYTES, "%s.%016" PRIx64 ".%" PRIu64, volume, g.id.lineage,
		g.id.generation); /* fits */
	return 0;
}

int backup_failed(struct err *e, int code, const char *file)
{
	return err_set(e, code, "backup file %s: %s: %s", file, err_str(code),
		code == -ENOSPC   ? "free some space, or give a file elsewhere"
		: code == -ENOMEM ? "raise --memory"
				  : "give another file");
}

struct writer {
	struct backup_file out;
	struct store *store;
	int tables_fd;
	json_t *copied; /* set of names */
	json_t *named;  /* likewise, by records */
	char *copy;     /* COPY_BYTES */
	struct backup_stats stats;
};

/* ---- tables ---------------------------------------------------------------------------------- */

static int copy_bytes(struct writer *w, int fd, uint64_t size)
{
	for (uint64_t at = 0; at < size;) {
		size_t n = (size_t)min(size - at, (uint64_t)COPY_BYTES);
		int r = file_pread_exact(fd, w->copy, n, at);

		if (r == 0)
			r = backup_file_put(&w->out, w->copy, n);
		if (r < 0)
			return r;
		at += n;
	}
	return backup_file_put(&w->out, "\n", 1);
}

/* -ENOENT: it was removed. */
static int copy_table(struct writer *w, const char *name)
{
	_cleanup_close_ int fd = openat(w->tables_fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	struct stat st;
	int r;

	if (fd < 0 || fstat(fd, &st) != 0)
		return err_errno();
	if (!S_ISREG(st.st_mode))
		return 0;
	r = backup_file_put_line(
		&w->out, json_pack("{s:s, s:I}", "table", name, "bytes", (json_int_t)st.st_size));
	if (r == 0)
		r = copy_bytes(w, fd, (uint64_t)st.st_size);
	if (r == 0 && json_object_set_new(w->copied, name, json_true()) < 0)
		r = -ENOMEM;
	w->stats.tables++;
	return r;
}

/* What is there now. */
static int copy_tables(struct writer *w)
{
	int fd = openat(w->tables_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	const struct dirent *entry;
	int r = 0;

	if (!dir) {
		r = err_errno();
		if (fd >= 0)
			(void)close(fd); /* nothing was read */
		return r;
	}
	while (r == 0 && (entry = readdir(dir)) != NULL) { // NOLINT(concurrency-mt-unsafe): own DIR
		if (!strchr(entry->d_name, '.') || entry->d_name[0] == '.')
			continue;
		r = copy_table(w, entry->d_name);
		if (r == -ENOENT) /* no generation needs it any more */
			r = 0;
	}
	(void)closedir(dir); /* read only */
	return r;
}

/* ---- records --------------------------------------------------------------------------------- */

static int write_record(void *arg, const char *key, const void *value, size_t len)
{
	struct writer *w = arg;
	char table[TABLE_NAME_BYTES];
	int r = backup_file_put_line(
		&w->out, json_pack("{s:s, s:I}", "key", key, "bytes", (json_int_t)len));

	if (r == 0)
		r = backup_file_put(&w->out, value, len);
	if (r == 0)
		r = backup_file_put(&w->out, "\n", 1);
	if (r < 0)
		return r;
	w->stats.records++;
	if (strcmp(key, "cluster") == 0)
		return record_cluster_decode(value, len, &w->stats.cluster);
	r = backup_table_of(key, value, len, table);
	if (r == 0 && json_object_set_new(w->named, table, json_true()) < 0)
		r = -ENOMEM;
	return r == -ENOENT ? 0 : r;
}

static int copy_missing(struct writer *w)
{
	const char *name;
	json_t *value;

	json_object_foreach (w->named, name, value) {
		int r = json_object_get(w->copied, name) ? 0 : copy_table(w, name);

		if (r < 0)
			return r;
	}
	return 0;
}

/* ---- the file -------------------------------------------------------------------------------- */

static int write_head(struct writer *w)
{
	_cleanup_(buf_release) struct buf value = BUF_INIT(STORE_VALUE_BYTES);
	int r = w->store->ops->get(w->store, "cluster", &value);

	if (r == 0)
		r = record_cluster_decode(value.data, value.len, &w->stats.cluster);
	if (r < 0)
		return r;
	clock_wall_text(w->stats.time, sizeof(w->stats.time));
	return backup_file_put_line(&w->out,
		json_pack("{s:i, s:s, s:I, s:s, s:s}", "granary_backup", BACKUP_FORMAT, "cluster",
			w->stats.cluster.uuid, "epoch", (json_int_t)w->stats.cluster.epoch, "time",
			w->stats.time, "version", GRANARY_VERSION));
}

static int write_foot(struct writer *w)
{
	char sum[2 * SHA256_BYTES + 1];

	backup_file_sum(&w->out, sum);
	return backup_file_put_line(
		&w->out, json_pack("{s:I, s:I, s:s}", "records", (json_int_t)w->stats.records,
				 "tables", (json_int_t)w->stats.tables, "sha256", sum));
}

static int write_all(struct writer *w)
{
	int r = write_head(w);

	if (r == 0)
		r = copy_tables(w);
	if (r == 0)
		r = w->store->ops->scan(w->store, "", write_record, w);
	if (r == 0)
		r = copy_missing(w);
	if (r == 0)
		r = write_foot(w);
	w->stats.bytes = w->out.bytes;
	return r == 0 ? backup_file_close(&w->out, true) : r;
}

static int writer_open(struct writer *w, const char *tables, const char *path)
{
	w->tables_fd = open(tables, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	w->copied = json_object();
	w->named = json_object();
	w->copy = malloc(COPY_BYTES);
	if (w->tables_fd < 0)
		return err_errno();
	if (!w->copied || !w->named || !w->copy)
		return -ENOMEM;
	return backup_file_open(&w->out, path, "w");
}

static void writer_release(struct writer *w)
{
	backup_file_release(&w->out);
	if (w->tables_fd >= 0)
		(void)close(w->tables_fd); /* read only */
	json_decref(w->copied);
	json_decref(w->named);
	free(w->copy);
}

/* -EAGAIN: a table that the records name went meanwhile. */
static int write_once(
	struct store *store, const char *tables, const char *path, struct backup_stats *ret_stats)
{
	struct writer w = { .store = store, .tables_fd = -1 };
	int r = writer_open(&w, tables, path);

	if (r == 0) {
		r = write_all(&w);
		if (r == -ENOENT)
			r = -EAGAIN;
	}
	if (r == 0)
		*ret_stats = w.stats;
	writer_release(&w);
	return r;
}

int backup_write(struct store *store, const char *tables, const char *file,
	struct backup_stats *ret_stats, struct err *e)
{
	struct backup_stats stats;
	char path[PATH_MAX];
	int r = -EAGAIN;

	if (snprintf(path, sizeof(path), "%s.new", file) >= (int)sizeof(path))
		return err_set(e, -ENAMETOOLONG, "%s: the path is too long", file);
	for (unsigned int i = 0; i < ATTEMPTS && r == -EAGAIN; i++)
		r = write_once(store, tables, path, &stats);
	if (r == 0 && rename(path, file) != 0)
		r = err_errno();
	if (r == 0)
		r = file_sync_parent(file);
	else
		(void)unlink(path); /* may not be there */
	if (r == -EAGAIN)
		return err_set(e, -ENOENT,
			"an object table of the master's records was not found, or was removed too "
			"soon: try again; if this persists, refresh a mount of its source");
	if (r == 0)
		*ret_stats = stats;
	return r < 0 ? backup_failed(e, r, file) : 0;
}

json_t *backup_time_json(const struct backup_stats *stats)
{
	int64_t seconds;

	return clock_parse(stats->time, &seconds) == 0 ? json_integer(seconds) : json_null();
}
