/* Generations and tables next to the tier. See kept.h. */
#include "cacheworker/kept.h"
#include "base/cleanup.h"
#include "base/file.h"
#include "base/log.h"
#include "catalog/generation_seen.h"

#include <dirent.h>
#include <endian.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SEEN_DIR      "seen"
#define LINEAGE_NAME  "%s.%016" PRIx64 ".%s"
#define TABLE         "table"
#define SOURCE        "source"
#define SUM_BYTES     8u /* XXH3 of the rest, before what was said of a source */
#define EVICTED       "evicted"
#define EVICTED_PATHS "evicted-paths"
#define WORKER_ID     "worker"
#define TABLE_HEAD    192u /* a table's header holds its hash */
#define COPY_BUFFER   65536u

/* Else the directory may be the bare one of a missing disk, which is to stay bare. */
static bool tier_is_there(const struct worker *w)
{
	char path[PATH_MAX];

	return w->tiers && tier_set_count(w->tiers) > 0 &&
	       snprintf(path, sizeof(path), "%s/" LAYOUT_TIER_FILE, w->config->tier) < PATH_MAX &&
	       access(path, F_OK) == 0;
}

static int dir_path(const struct worker *w, char out[PATH_MAX])
{
	if (!tier_is_there(w))
		return -ENODEV;
	return snprintf(out, PATH_MAX, "%s/" SEEN_DIR, w->config->tier) < PATH_MAX ? 0
										   : -ENAMETOOLONG;
}

/* Of something that is kept of a lineage; `what`: which. */
static int lineage_path(const struct worker *w, const struct volume_id *volume, uint64_t lineage,
	const char *what, char out[PATH_MAX])
{
	char hex[2 * VOLUME_ID_LEN + 1];

	if (!tier_is_there(w))
		return -ENODEV;
	hash_hex(volume->bytes, VOLUME_ID_LEN, hex);
	return snprintf(out, PATH_MAX, "%s/" SEEN_DIR "/" LINEAGE_NAME, w->config->tier, hex,
		       lineage, what) < PATH_MAX
		       ? 0
		       : -ENAMETOOLONG;
}

int kept_dir(const struct worker *w, char out[PATH_MAX])
{
	int r = dir_path(w, out);

	return r < 0 ? r : file_mkdirs(out, 0700);
}

static int worker_id_load(const char *path, uint64_t *ret_id)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(64);
	char *end;
	uint64_t id;
	int r = file_read_all(path, &text);

	if (r < 0)
		return r;
	id = strtoull(buf_str(&text), &end, 16);
	if (id == 0 || *end != '\n')
		return -EBADMSG;
	*ret_id = id;
	return 0;
}

int kept_worker_id(const struct worker *w, uint64_t *ret_id, struct err *e)
{
	char path[PATH_MAX];
	char dir[PATH_MAX];
	char text[32];
	uint64_t id;
	int r = kept_dir(w, dir);

	do {
		hash_random(&id, sizeof(id));
	} while (id == 0);
	if (r == -ENODEV) {
		*ret_id = id;
		return 0;
	}
	if (r == 0 && snprintf(path, sizeof(path), "%s/" WORKER_ID, dir) >= PATH_MAX)
		r = -ENAMETOOLONG;
	if (r < 0)
		return err_set(e, r, "%s: the worker's id cannot be stored there: %s",
			w->config->tier, err_str(r));
	r = worker_id_load(path, ret_id);
	if (r == 0)
		return 0;
	if (r == -ENOENT || r == -EBADMSG) {
		(void)snprintf(text, sizeof(text), "%016" PRIx64 "\n", id);
		r = file_write_atomic(path, text, strlen(text), 0600);
	}
	if (r < 0)
		return err_set(e, r, "%s: the worker's id cannot be stored: %s", path, err_str(r));
	*ret_id = id;
	return 0;
}

int kept_seen_load(
	const struct worker *w, const struct volume_id *volume, struct generation_id *ret_seen)
{
	char dir[PATH_MAX];
	int r = dir_path(w, dir);

	return r < 0 ? r : generation_seen_load(dir, volume, ret_seen);
}

int kept_seen_save(const struct worker *w, const struct generation_id *id)
{
	char dir[PATH_MAX];
	int r = dir_path(w, dir);

	if (r == 0)
		r = file_mkdirs(dir, 0700);
	return r < 0 ? r : generation_seen_save(dir, id);
}

int kept_fence_load(struct worker *w, struct err *e)
{
	char dir[PATH_MAX];

	return dir_path(w, dir) < 0 ? 0 : fence_load(&w->fence, dir, e);
}

void kept_fence_save(struct worker *w)
{
	char dir[PATH_MAX];
	int r = dir_path(w, dir);

	if (r == -ENODEV)
		return;
	if (r == 0)
		r = file_mkdirs(dir, 0700);
	if (r == 0)
		r = fence_save(&w->fence, dir);
	if (r < 0)
		LOG_LIMITED(LOG_WARN, "master not stored",
			"tier=\"%s\" error=%s next=\"tried again\"", w->config->tier, err_name(r));
}

/* Of a number that is kept; `name`: what kind. */
static int number_path(const struct worker *w, const struct volume_id *volume, const char *name,
	char out[PATH_MAX])
{
	char hex[2 * VOLUME_ID_LEN + 1];

	if (!tier_is_there(w))
		return -ENODEV;
	hash_hex(volume->bytes, VOLUME_ID_LEN, hex);
	return snprintf(out, PATH_MAX, "%s/" SEEN_DIR "/%s.%s", w->config->tier, hex, name) <
			       PATH_MAX
		       ? 0
		       : -ENAMETOOLONG;
}

static int number_load(const struct worker *w, const struct volume_id *volume, const char *name,
	uint64_t *ret_number)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(64);
	char path[PATH_MAX];
	char *end;
	uint64_t number;
	int r = number_path(w, volume, name, path);

	if (r == 0)
		r = file_read_all(path, &text);
	if (r < 0)
		return r;
	number = strtoull(buf_str(&text), &end, 10);
	if (text.len == 0 || *end != '\n')
		return -EBADMSG;
	*ret_number = number;
	return 0;
}

static int number_save(
	const struct worker *w, const struct volume_id *volume, const char *name, uint64_t number)
{
	char path[PATH_MAX];
	char text[32];
	int r = dir_path(w, path);

	if (r == 0)
		r = file_mkdirs(path, 0700);
	if (r == 0)
		r = number_path(w, volume, name, path);
	if (r < 0)
		return r;
	(void)snprintf(text, sizeof(text), "%" PRIu64 "\n", number); /* fits */
	return file_write_atomic(path, text, strlen(text), 0600);
}

int kept_evicted_load(const struct worker *w, const struct volume_id *volume, uint64_t *ret_number)
{
	return number_load(w, volume, EVICTED, ret_number);
}

int kept_evicted_save(const struct worker *w, const struct volume_id *volume, uint64_t number)
{
	return number_save(w, volume, EVICTED, number);
}

int kept_evicted_paths_load(
	const struct worker *w, const struct volume_id *volume, uint64_t *ret_number)
{
	return number_load(w, volume, EVICTED_PATHS, ret_number);
}

int kept_evicted_paths_save(const struct worker *w, const struct volume_id *volume, uint64_t number)
{
	return number_save(w, volume, EVICTED_PATHS, number);
}

/* The header's hash covers the rest. */
static bool same_table(const char *path, int fd)
{
	_cleanup_close_ int there = open(path, O_RDONLY | O_CLOEXEC);
	uint8_t a[TABLE_HEAD];
	uint8_t b[TABLE_HEAD];

	return there >= 0 && file_pread_exact(there, a, sizeof(a), 0) == 0 &&
	       file_pread_exact(fd, b, sizeof(b), 0) == 0 && memcmp(a, b, sizeof(a)) == 0;
}

static int copy_bytes(int from, int to)
{
	_cleanup_free_ char *buffer = malloc(COPY_BUFFER);
	struct stat st;
	uint64_t at = 0;
	int r = 0;

	if (!buffer)
		return -ENOMEM;
	if (fstat(from, &st) != 0)
		return err_errno();
	while (r == 0 && at < (uint64_t)st.st_size) {
		size_t n = min((uint64_t)st.st_size - at, (uint64_t)COPY_BUFFER);

		r = file_pread_exact(from, buffer, n, at);
		if (r == 0)
			r = file_pwrite_exact(to, buffer, n, at);
		at += n;
	}
	return r;
}

/* A second name for the master's file, or, on another filesystem, a copy. Nothing is synced: a
 * damaged table is found out and only costs its bytes being fetched again. */
static int link_or_copy(int fd, const char *path)
{
	_cleanup_close_ int to = -1;
	char name[64];
	int r;

	(void)unlink(path);                                         /* of an earlier attempt */
	(void)snprintf(name, sizeof(name), "/proc/self/fd/%d", fd); /* fits */
	if (linkat(AT_FDCWD, name, AT_FDCWD, path, AT_SYMLINK_FOLLOW) == 0)
		return 0;
	to = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (to < 0)
		return err_errno();
	r = copy_bytes(fd, to);
	if (r < 0)
		(void)unlink(path); /* half of it is no table */
	return r;
}

int kept_table_save(const struct worker *w, const struct generation_id *id, int fd)
{
	char temporary[PATH_MAX + 8];
	char path[PATH_MAX];
	char dir[PATH_MAX];
	int r = lineage_path(w, &id->volume, id->lineage, TABLE, path);

	if (r == 0)
		r = dir_path(w, dir);
	if (r < 0 || same_table(path, fd))
		return r;
	r = file_mkdirs(dir, 0700);
	if (r < 0)
		return r;
	(void)snprintf(temporary, sizeof(temporary), "%s.new", path);
	r = link_or_copy(fd, temporary);
	if (r == 0 && rename(temporary, path) != 0)
		r = err_errno();
	(void)unlink(temporary); /* rename() leaves both names of one file */
	return r;
}

int kept_table_open(const struct worker *w, const struct volume_id *volume, uint64_t lineage,
	struct table **ret_table)
{
	struct table *table;
	char path[PATH_MAX];
	int r = lineage_path(w, volume, lineage, TABLE, path);
	int fd;

	if (r < 0)
		return r;
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return err_errno();
	r = table_open(fd, &table, NULL);
	if (r < 0)
		return r;
	if (!volume_id_equal(&table_info(table)->id.volume, volume) ||
		table_info(table)->id.lineage != lineage) {
		table_unref(table);
		return -EBADMSG;
	}
	*ret_table = table;
	return 0;
}

void kept_table_remove(const struct worker *w, const struct volume_id *volume, uint64_t lineage)
{
	char path[PATH_MAX];

	if (lineage_path(w, volume, lineage, SOURCE, path) == 0)
		(void)unlink(path); /* nothing is to be had by it without the table */
	if (lineage_path(w, volume, lineage, TABLE, path) == 0)
		(void)unlink(path); /* found again at the next start */
}

int kept_source_save(const struct worker *w, const struct generation_id *id, const struct buf *said)
{
	_cleanup_(buf_release) struct buf file = BUF_INIT(said->len + SUM_BYTES);
	uint64_t sum = htole64(hash_xxh3(said->data, said->len, 0));
	char path[PATH_MAX];
	int r = lineage_path(w, &id->volume, id->lineage, SOURCE, path);

	if (r == 0)
		r = buf_append(&file, &sum, sizeof(sum));
	if (r == 0)
		r = buf_append(&file, said->data, said->len);
	return r < 0 ? r : file_write_atomic(path, file.data, file.len, 0600);
}

int kept_source_load(
	const struct worker *w, const struct volume_id *volume, uint64_t lineage, struct buf *said)
{
	_cleanup_(buf_release) struct buf file = BUF_INIT(said->max + SUM_BYTES);
	char path[PATH_MAX];
	uint64_t sum;
	int r = lineage_path(w, volume, lineage, SOURCE, path);

	if (r == 0)
		r = file_read_all(path, &file);
	if (r < 0)
		return r;
	if (file.len < SUM_BYTES)
		return -EBADMSG;
	memcpy(&sum, file.data, sizeof(sum));
	if (le64toh(sum) != hash_xxh3(file.data + SUM_BYTES, file.len - SUM_BYTES, 0))
		return -EBADMSG;
	return buf_append(said, file.data + SUM_BYTES, file.len - SUM_BYTES);
}

uint32_t kept_lineages(
	const struct worker *w, const struct volume_id *volume, uint64_t out[KEPT_LINEAGES])
{
	char hex[2 * VOLUME_ID_LEN + 1];
	const struct dirent *entry;
	char path[PATH_MAX];
	uint32_t n = 0;
	DIR *dir;

	hash_hex(volume->bytes, VOLUME_ID_LEN, hex);
	dir = dir_path(w, path) == 0 ? opendir(path) : NULL;
	if (!dir)
		return 0;
	while (n < KEPT_LINEAGES && (entry = readdir(dir))) {
		const char *name = entry->d_name;
		char *end;
		uint64_t lineage;

		if (strncmp(name, hex, sizeof(hex) - 1) != 0 || name[sizeof(hex) - 1] != '.')
			continue;
		lineage = strtoull(name + sizeof(hex), &end, 16);
		if (strcmp(end, ".table") == 0)
			out[n++] = lineage;
	}
	(void)closedir(dir); /* read only */
	return n;
}
