/* Tables with a descriptor and without. See client_table.h. */
#include "client/client_table.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/log.h"
#include "net/table_pull.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A thousand nodes may wait for one master. */
#define PIECE_PATIENCE (300 * CLOCK_SECOND)
#define SUFFIX         ".table"

static bool same_id(const struct generation_id *a, const struct generation_id *b)
{
	return volume_id_equal(&a->volume, &b->volume) && a->lineage == b->lineage &&
	       a->generation == b->generation && memcmp(a->hash, b->hash, sizeof(a->hash)) == 0;
}

static int open_as(
	const struct client_table_named *named, int fd, struct table **ret_table, struct err *e)
{
	struct table *table;
	int r = table_open(fd, &table, e);

	if (r < 0)
		return r;
	if (named->part ? table_take_cut(table, &named->id, named->cut_hash, named->part) < 0
			: !same_id(&table_info(table)->id, &named->id)) {
		table_unref(table);
		return err_set(e, -EBADMSG,
			"the master sent another object table than it announced: restart the "
			"master");
	}
	*ret_table = table;
	return 0;
}

/* ---- kept ------------------------------------------------------------------------------------ */

static int kept_path(const char *dir, const struct client_table_named *named, char out[PATH_MAX])
{
	const struct generation_id *id = &named->id;
	char volume[2 * VOLUME_ID_LEN + 1];
	char part[18] = "";

	if (named->part)
		(void)snprintf(part, sizeof(part), ".%016" PRIx64, named->part); /* fits */
	hash_hex(id->volume.bytes, VOLUME_ID_LEN, volume);
	return snprintf(out, PATH_MAX, "%s/%s.%016" PRIx64 ".%" PRIu64 "%s" SUFFIX, dir, volume,
		       id->lineage, id->generation, part) < PATH_MAX
		       ? 0
		       : -ENAMETOOLONG;
}

/* Its blocks are looked at, too: who wrote it may have died with half of it on the disk. */
static int kept_open(
	const char *dir, const struct client_table_named *named, struct table **ret_table)
{
	struct table *table = NULL;
	char path[PATH_MAX];
	int r = kept_path(dir, named, path);
	int fd = r == 0 ? open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW) : -1;

	if (fd < 0)
		return -ENOENT;
	r = open_as(named, fd, &table, NULL);
	if (r == 0)
		r = table_verify(table);
	if (r == 0) {
		*ret_table = table;
		return 0;
	}
	table_unref(table);
	if (r != -ENOMEM)
		(void)unlink(path); /* pulled again */
	return r;
}

/* Is that the file of a table of the volume that is older than the one before `id`? */
static bool is_old(const char *name, const struct generation_id *id)
{
	char volume[2 * VOLUME_ID_LEN + 1];
	uint64_t generation;
	uint64_t lineage;
	char *end;

	hash_hex(id->volume.bytes, VOLUME_ID_LEN, volume);
	if (strncmp(name, volume, sizeof(volume) - 1) != 0 || name[sizeof(volume) - 1] != '.')
		return false;
	lineage = strtoull(name + sizeof(volume), &end, 16);
	if (*end != '.')
		return false;
	generation = strtoull(end + 1, &end, 10);
	if (*end == '.' && strcmp(end, SUFFIX) != 0)
		(void)strtoull(end + 1, &end, 16); /* of a part */
	return strcmp(end, SUFFIX) == 0 &&
	       (lineage != id->lineage || generation + 1 < id->generation);
}

static void forget_old(const char *dir, const struct generation_id *id)
{
	const struct dirent *entry;
	DIR *d = opendir(dir);

	while (d && (entry = readdir(d)) != NULL)
		if (is_old(entry->d_name, id))
			(void)unlinkat(dirfd(d), entry->d_name, 0); /* or the next time */
	if (d)
		(void)closedir(d); /* read only */
}

/* For others; without it everything works. `fd` has no name yet. */
static void keep(const char *dir, const struct client_table_named *named, int fd)
{
	char name[64];
	char path[PATH_MAX];
	struct stat st;

	if (fstat(fd, &st) != 0 || st.st_nlink != 0 || kept_path(dir, named, path) < 0)
		return;
	(void)snprintf(name, sizeof(name), "/proc/self/fd/%d", fd); /* fits */
	if (linkat(AT_FDCWD, name, AT_FDCWD, path, AT_SYMLINK_FOLLOW) == 0)
		forget_old(dir, &named->id);
	else if (errno != EEXIST)
		log_debug("table not stored", "dir=\"%s\" error=%s", dir, err_name(-errno));
}

/* ---- from far -------------------------------------------------------------------------------- */

static int pull(struct rpc_client *master, const struct client_table_named *named, const char *dir,
	struct table **ret_table, struct err *e)
{
	const struct generation_id *id = &named->id;
	const struct table_pull ask = { .peer = master,
		.volume = id->volume,
		.lineage = id->lineage,
		.generation = id->generation,
		.patience_ns = PIECE_PATIENCE };
	_cleanup_close_ int file = -1;
	uint64_t began = clock_mono_ns();
	int fd;
	int r = table_pull_file(dir, &file, e);

	if (r == 0)
		r = table_pull(&ask, file, e);
	if (r < 0)
		return r;
	fd = fcntl(file, F_DUPFD_CLOEXEC, 0);
	if (fd < 0)
		return err_set(e, err_errno(), "no descriptor for an object table: %m");
	r = open_as(named, fd, ret_table, e);
	if (r < 0)
		return r;
	log_debug("object table pulled", "generation=%" PRIu64 " bytes=%" PRIu64 " ms=%llu",
		id->generation, table_info(*ret_table)->table_bytes,
		(unsigned long long)((clock_mono_ns() - began) / CLOCK_MS));
	if (dir)
		keep(dir, named, file);
	return 0;
}

int client_table_take(struct rpc_client *master, const struct client_table_named *named, int fd,
	const char *dir, struct table **ret_table, struct err *e)
{
	if (fd >= 0)
		return open_as(named, fd, ret_table, e);
	if (dir && kept_open(dir, named, ret_table) == 0)
		return 0;
	return pull(master, named, dir, ret_table, e);
}
