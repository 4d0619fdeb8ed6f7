/* Damage from outside. See damage.h. */
#include "tests/stress/damage.h"
#include "base/cleanup.h"
#include "base/err.h"
#include "tiers/identity_internal.h"
#include "tiers/index_internal.h"

#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define FILES_MAX 512u

/* nftw() gives its callback no argument. */
static struct {
	char *paths[FILES_MAX];
	uint32_t n;
} found;

static int note(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st;
	(void)ftw;
	if (type == FTW_F && found.n < FILES_MAX) {
		found.paths[found.n] = strdup(path);
		found.n += found.paths[found.n] != NULL;
	}
	return 0;
}

static int by_name(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

static void collect(const char *tier, const char *under)
{
	char path[PATH_MAX];

	(void)snprintf(path, sizeof(path), "%s/%s", tier, under);
	(void)nftw(path, note, 16, FTW_PHYS); /* what goes meanwhile is left out */
}

static void flip(const char *path, uint64_t random)
{
	_cleanup_close_ int fd = -1;
	struct stat st;
	uint8_t byte;
	off_t at;

	if (chmod(path, 0600) != 0)
		return;
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st) != 0 || st.st_size == 0)
		return;
	/* Half of them where head and table are. */
	at = random & 1 && st.st_size > 65536 ? st.st_size - 1 - (off_t)(random / 16 % 53248)
					      : (off_t)(random / 16 % (uint64_t)st.st_size);
	if (pread(fd, &byte, 1, at) != 1)
		return;
	byte ^= (uint8_t)(1u << random / 2 % 8);
	(void)(pwrite(fd, &byte, 1, at) < 0); /* or it stays whole */
}

void damage_file(const char *tier, uint64_t random)
{
	const char *path;

	found.n = 0;
	collect(tier, "chk");
	collect(tier, "ext");
	if (found.n == 0)
		return;
	qsort(found.paths, found.n, sizeof(found.paths[0]), by_name);
	path = found.paths[random / 64 % found.n];
	switch (random % 16) {
	case 0:
		(void)unlink(path); /* or it is gone already */
		break;
	case 1:
		(void)(truncate(path, (off_t)(random / 1024 % (8u << 20))) < 0); /* likewise */
		break;
	default:
		flip(path, random / 4096);
	}
	for (uint32_t i = 0; i < found.n; i++)
		free(found.paths[i]);
}

int damage_boot(const char *tier)
{
	struct identity identity;
	int r = identity_load(tier, &identity, NULL);

	if (r < 0)
		return r;
	memset(identity.boot_id, '1', IDENTITY_UUID);
	return identity_store(tier, &identity);
}

int damage_index(const char *tier, bool gone)
{
	char path[PATH_MAX];
	FILE *file;

	(void)snprintf(path, sizeof(path), "%s/index", tier);
	if (gone)
		return index_dir_remove(path);
	(void)snprintf(path, sizeof(path), "%s/index/CURRENT", tier);
	file = fopen(path, "we");
	if (!file)
		return err_errno();
	(void)fputs("nothing\n", file); /* or it is empty, which says as little */
	return fclose(file) == 0 ? 0 : err_errno();
}
