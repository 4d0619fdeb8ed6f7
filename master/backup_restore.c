/*
 * Reading a backup: first all of it, to see that it is whole, then again, into a directory next to the
 * one that is to come, which takes its name at the end.
 */
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/file.h"
#include "master/backup_internal.h"

#include <assert.h>
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>

/* What is done with the parts. A NULL is allowed. */
struct taker {
	int (*record)(void *arg, const char *key, const void *value, size_t len);
	int (*table_begin)(void *arg, const char *name);
	int (*table_bytes)(void *arg, const void *data, size_t len);
	int (*table_end)(void *arg);
	void *arg;
};

struct reader {
	struct backup_file in;
	const struct taker *taker;
	json_t *there; /* set of tables */
	json_t *named; /* likewise, by records */
	char *copy;    /* STORE_VALUE_BYTES, COPY_BYTES at least */
	struct backup_stats stats;
	bool ended;
};

static_assert(STORE_VALUE_BYTES <= COPY_BYTES, "a record fits");

static int get_number(const json_t *line, const char *name, uint64_t *ret)
{
	const json_t *value = json_object_get(line, name);

	if (!json_is_integer(value) || json_integer_value(value) < 0)
		return -EBADMSG;
	*ret = (uint64_t)json_integer_value(value);
	return 0;
}

static int get_newline(struct reader *rd)
{
	char end;
	int r = backup_file_get(&rd->in, &end, 1);

	return r == 0 && end != '\n' ? -EBADMSG : r;
}

/* ---- parts ----------------------------------------------------------------------------------- */

static int note(json_t *set, const char *name)
{
	return json_object_set_new(set, name, json_true()) < 0 ? -ENOMEM : 0;
}

static int read_record(struct reader *rd, const char *key, uint64_t bytes)
{
	char table[TABLE_NAME_BYTES];
	int r;

	if (bytes > STORE_VALUE_BYTES || strlen(key) > STORE_KEY_BYTES)
		return -EBADMSG;
	r = backup_file_get(&rd->in, rd->copy, bytes);
	if (r == 0)
		r = get_newline(rd);
	if (r < 0)
		return r;
	rd->stats.records++;
	r = backup_table_of(key, rd->copy, bytes, table);
	if (r == 0)
		r = note(rd->named, table);
	if (r < 0 && r != -ENOENT)
		return r;
	return rd->taker->record ? rd->taker->record(rd->taker->arg, key, rd->copy, bytes) : 0;
}

/* One part of a path, and none that leads elsewhere. */
static bool is_name(const char *name)
{
	return name[0] && name[0] != '.' && !strchr(name, '/') && strlen(name) < TABLE_NAME_BYTES;
}

static int read_table(struct reader *rd, const char *name, uint64_t bytes)
{
	const struct taker *taker = rd->taker;
	int r;

	if (!is_name(name) || json_object_get(rd->there, name))
		return -EBADMSG;
	r = taker->table_begin ? taker->table_begin(taker->arg, name) : 0;
	for (uint64_t at = 0; r == 0 && at < bytes;) {
		size_t n = (size_t)min(bytes - at, (uint64_t)COPY_BYTES);

		r = backup_file_get(&rd->in, rd->copy, n);
		if (r == 0 && taker->table_bytes)
			r = taker->table_bytes(taker->arg, rd->copy, n);
		at += n;
	}
	if (r == 0)
		r = get_newline(rd);
	if (r == 0 && taker->table_end)
		r = taker->table_end(taker->arg);
	if (r < 0)
		return r;
	rd->stats.tables++;
	return note(rd->there, name);
}

/* ---- head and foot --------------------------------------------------------------------------- */

static int read_head(struct reader *rd)
{
	_cleanup_(json_decrefp) json_t *line = NULL;
	uint64_t format;
	const char *uuid;
	const char *time;
	int r = backup_file_get_line(&rd->in, &line);

	if (r < 0)
		return r == -ENOMEM || r == -EIO ? r : -EBADMSG;
	if (get_number(line, "granary_backup", &format) < 0)
		return -EBADMSG;
	if (format != BACKUP_FORMAT)
		return -EPROTONOSUPPORT;
	uuid = json_string_value(json_object_get(line, "cluster"));
	time = json_string_value(json_object_get(line, "time"));
	if (!uuid || strlen(uuid) != sizeof(rd->stats.cluster.uuid) - 1 || !time ||
		strlen(time) >= sizeof(rd->stats.time) ||
		get_number(line, "epoch", &rd->stats.cluster.epoch) < 0)
		return -EBADMSG;
	memcpy(rd->stats.cluster.uuid, uuid, sizeof(rd->stats.cluster.uuid));
	memcpy(rd->stats.time, time, strlen(time) + 1);
	return 0;
}

static int check_foot(struct reader *rd, const json_t *line, const char *sum)
{
	char wanted[2 * SHA256_BYTES + 1];
	uint64_t records;
	uint64_t tables;
	const char *name;
	json_t *value;

	backup_file_sum(&rd->in, wanted);
	if (get_number(line, "records", &records) < 0 || get_number(line, "tables", &tables) < 0 ||
		records != rd->stats.records || tables != rd->stats.tables ||
		strcmp(sum, wanted) != 0)
		return -EBADMSG;
	json_object_foreach (rd->named, name, value) {
		if (!json_object_get(rd->there, name))
			return -EBADMSG;
	}
	rd->ended = true;
	return getc(rd->in.file) == EOF ? 0 : -EBADMSG; /* and nothing behind it */
}

static int read_part(struct reader *rd)
{
	_cleanup_(json_decrefp) json_t *line = NULL;
	int r = backup_file_get_line(&rd->in, &line);
	const char *key;
	const char *table;
	const char *sum;
	uint64_t bytes;

	if (r < 0)
		return r;
	sum = json_string_value(json_object_get(line, "sha256"));
	if (sum)
		return check_foot(rd, line, sum);
	key = json_string_value(json_object_get(line, "key"));
	table = json_string_value(json_object_get(line, "table"));
	if (get_number(line, "bytes", &bytes) < 0 || !key == !table)
		return -EBADMSG;
	return key ? read_record(rd, key, bytes) : read_table(rd, table, bytes);
}

static int read_all(struct reader *rd, const char *file)
{
	int r;

	rd->there = json_object();
	rd->named = json_object();
	rd->copy = malloc(COPY_BYTES);
	if (!rd->there || !rd->named || !rd->copy)
		return -ENOMEM;
	r = backup_file_open(&rd->in, file, "r");
	if (r == 0)
		r = read_head(rd);
	while (r == 0 && !rd->ended)
		r = read_part(rd);
	rd->stats.bytes = rd->in.bytes;
	return r == -ENODATA ? -EBADMSG : r; /* it ends in the middle */
}

static int read_backup(const char *file, const struct taker *taker, struct backup_stats *ret_stats)
{
	struct reader rd = { .taker = taker };
	int r = read_all(&rd, file);

	if (r == 0)
		*ret_stats = rd.stats;
	backup_file_release(&rd.in);
	json_decref(rd.there);
	json_decref(rd.named);
	free(rd.copy);
	return r;
}

int backup_check(const char *file, struct backup_stats *ret_stats, struct err *e)
{
	static const struct taker none;
	int r = read_backup(file, &none, ret_stats);

	if (r == -EBADMSG)
		return err_set(e, r,
			"%s is not a backup of a master, or is damaged: give another file", file);
	if (r == -EPROTONOSUPPORT)
		return err_set(e, r,
			"%s is a backup of a newer Granary: restore it with that version", file);
	return r < 0 ? backup_failed(e, r, file) : 0;
}

/* ---- a state directory ----------------------------------------------------------------------- */

struct state {
	char path[PATH_MAX]; /* until it has its name */
	int tables_fd;
	int table_fd; /* the one that comes */
	uint64_t at;
	struct store *store;
};

/* What this master sends must not be taken for older than what the last one sent. */
static int put_cluster(struct state *s, const void *value, size_t len)
{
	_cleanup_(buf_release) struct buf next = BUF_INIT(STORE_VALUE_BYTES);
	struct record_cluster cluster;
	int r = record_cluster_decode(value, len, &cluster);

	if (r < 0)
		return r;
	cluster.epoch = max(cluster.epoch, clock_wall_ns() / CLOCK_MS) + 1;
	r = record_cluster_encode(&cluster, &next);
	if (r < 0)
		return r;
	return s->store->ops->write(
		s->store, &(struct store_change){ "cluster", next.data, next.len }, 1);
}

static int put_record(void *arg, const char *key, const void *value, size_t len)
{
	struct state *s = arg;

	if (strcmp(key, "cluster") == 0)
		return put_cluster(s, value, len);
	return s->store->ops->write(s->store, &(struct store_change){ key, value, len }, 1);
}

static int begin_table(void *arg, const char *name)
{
	struct state *s = arg;

	s->at = 0;
	s->table_fd = openat(s->tables_fd, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	return s->table_fd < 0 ? err_errno() : 0;
}

static int put_bytes(void *arg, const void *data, size_t len)
{
	struct state *s = arg;
	int r = file_pwrite_exact(s->table_fd, data, len, s->at);

	s->at += len;
	return r;
}

static int end_table(void *arg)
{
	struct state *s = arg;
	int fd = TAKE_FD(s->table_fd);
	int r = fsync(fd) != 0 ? err_errno() : 0;

	(void)close(fd); /* it is on disk, or given up */
	return r;
}

static int open_state(struct state *s, struct err *e)
{
	char path[PATH_MAX + 16];
	int r;

	if (mkdir(s->path, 0700) != 0)
		return err_errno();
	(void)snprintf(path, sizeof(path), "%s/tables", s->path); /* fits */
	if (mkdir(path, 0700) != 0)
		return err_errno();
	s->tables_fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (s->tables_fd < 0)
		return err_errno();
	(void)snprintf(path, sizeof(path), "%s/store", s->path); /* likewise */
	r = store_rocksdb_open(path, &s->store, e);
	return r;
}

static int fill(struct state *s, const char *file, struct backup_stats *ret_stats, struct err *e)
{
	const struct taker taker = { .record = put_record,
		.table_begin = begin_table,
		.table_bytes = put_bytes,
		.table_end = end_table,
		.arg = s };
	int r = open_state(s, e);

	if (r == 0)
		r = read_backup(file, &taker, ret_stats);
	if (r == 0 && fsync(s->tables_fd) != 0)
		r = err_errno();
	return r;
}

static void close_state(struct state *s)
{
	store_close(s->store);
	if (s->tables_fd >= 0)
		(void)close(s->tables_fd); /* synced, or given up */
	if (s->table_fd >= 0)
		(void)close(s->table_fd); /* given up */
}

/* What was not finished: of this run, or of one that was killed. */
static void remove_dir(const char *path)
{
	DIR *dir = opendir(path);
	const struct dirent *entry;

	while (dir && (entry = readdir(dir)) != NULL) { // NOLINT(concurrency-mt-unsafe): own DIR
		char below[PATH_MAX];

		if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0 ||
			snprintf(below, sizeof(below), "%s/%s", path, entry->d_name) >=
				(int)sizeof(below))
			continue;
		if (unlink(below) != 0 && errno == EISDIR)
			remove_dir(below);
	}
	if (dir)
		(void)closedir(dir); /* read only */
	(void)rmdir(path);           /* may not be there */
}

static int check_target(const char *state, struct err *e)
{
	DIR *dir = opendir(state);
	const struct dirent *entry;
	bool empty = true;

	if (!dir)
		return errno == ENOENT ? 0 : backup_failed(e, err_errno(), state);
	while (empty && (entry = readdir(dir)) != NULL) // NOLINT(concurrency-mt-unsafe): own DIR
		empty = strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0;
	(void)closedir(dir); /* read only */
	if (empty)
		return 0;
	return err_set(e, -EEXIST,
		"%s is not empty: a master's state is restored into an empty directory; move what "
		"is "
		"there away first",
		state);
}

int backup_restore(
	const char *file, const char *state, struct backup_stats *ret_stats, struct err *e)
{
	struct state s = { .tables_fd = -1, .table_fd = -1 };
	int r = check_target(state, e);

	if (r == 0)
		r = backup_check(file, ret_stats, e);
	if (r < 0)
		return r;
	if (snprintf(s.path, sizeof(s.path), "%s.restoring", state) >= (int)sizeof(s.path))
		return err_set(e, -ENAMETOOLONG, "%s: the path is too long", state);
	remove_dir(s.path);
	r = fill(&s, file, ret_stats, e);
	close_state(&s);
	if (r == 0 && rename(s.path, state) != 0) /* an empty one goes with that */
		r = err_errno();
	if (r == 0)
		r = file_sync_parent(state);
	if (r == 0)
		return 0;
	remove_dir(s.path);
	return backup_failed(e, r, state);
}
