/* See log_file.h. */
#include "base/log_file.h"
#include "base/limits.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

void log_file_set(struct log_file *file, int fd, const char *path)
{
	struct stat st;

	pthread_mutex_lock(&file->lock);
	free(file->path);
	file->fd = fd;
	file->path = path ? strdup(path) : NULL;
	file->bytes = path && fstat(fd, &st) == 0 ? (uint64_t)st.st_size : 0;
	pthread_mutex_unlock(&file->lock);
}

/* Another process may have begun the new file already: then it is only opened. What cannot be done
 * now is tried again after as many bytes. */
static void begin_locked(struct log_file *file)
{
	char old[PATH_MAX];
	struct stat ours;
	struct stat there;
	int fd;

	file->bytes = 0;
	if (snprintf(old, sizeof(old), "%s.1", file->path) >= (int)sizeof(old))
		return;
	if (fstat(file->fd, &ours) == 0 && stat(file->path, &there) == 0 &&
		ours.st_ino == there.st_ino && ours.st_dev == there.st_dev &&
		rename(file->path, old) != 0)
		return;
	fd = open(file->path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return;
	(void)dup3(fd, file->fd, O_CLOEXEC); /* else the old one grows on */
	(void)close(fd);                     /* file->fd is the one in use */
}

void log_file_count(struct log_file *file, uint64_t n)
{
	pthread_mutex_lock(&file->lock);
	file->bytes += n;
	if (file->path && file->bytes > LIMIT_LOG_BYTES)
		begin_locked(file);
	pthread_mutex_unlock(&file->lock);
}
