/* Seeds that fuzzers make themselves. See seeds.h. */
#include "tests/fuzz/seeds.h"
#include "base/check.h"
#include "base/file.h"
#include "base/log.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define SEED_BYTES (1u << 20)

int LLVMFuzzerInitialize(int *argc, char ***argv);

static const char *seed_dir;

void fuzz_seed(const char *name, const void *data, size_t len)
{
	char path[PATH_MAX];
	int fd;

	ensure(snprintf(path, sizeof(path), "%s/seed-%s", seed_dir, name) < (int)sizeof(path));
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	ensure(fd >= 0 && file_pwrite_exact(fd, data, len, 0) == 0);
	(void)close(fd);
}

void fuzz_seed_for(uint8_t parser, const char *name, const void *data, size_t len)
{
	static uint8_t bytes[SEED_BYTES];

	ensure(len < sizeof(bytes));
	bytes[0] = parser;
	memcpy(bytes + 1, data, len);
	fuzz_seed(name, bytes, len + 1);
}

/* What is logged is not looked at, and takes time. */
static void log_nowhere(void)
{
	int fd = open("/dev/null", O_WRONLY | O_CLOEXEC);

	ensure(fd >= 0);
	log_init("fuzz", fd, LOG_ERROR, LOG_TEXT);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	struct stat st;

	log_nowhere();
	if (fuzz_start)
		fuzz_start();
	for (int i = 1; i < *argc && !seed_dir; i++)
		if ((*argv)[i][0] != '-' && stat((*argv)[i], &st) == 0 && S_ISDIR(st.st_mode))
			seed_dir = (*argv)[i];
	if (seed_dir && fuzz_seeds)
		fuzz_seeds();
	return 0;
}

const char *fuzz_file(const void *data, size_t len)
{
	static char path[64];
	static int fd = -1;

	if (fd < 0)
		fd = memfd_create("fuzz", MFD_CLOEXEC);
	ensure(fd >= 0 && ftruncate(fd, 0) == 0 && file_pwrite_exact(fd, data, len, 0) == 0);
	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd); /* fits */
	return path;
}

void fuzz_check_line(const struct err *e)
{
	ensure(e->code < 0 && e->text[0] && !strchr(e->text, '\n'));
}

int fuzz_free_fd(void)
{
	int fd = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 0);

	ensure(fd >= 0);
	(void)close(fd);
	return fd;
}
