/* A file that is written next to its place and renamed into it. See catalog_internal.h. */
#include "catalog/catalog_internal.h"
#include "base/crash_point.h"
#include "base/file.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

int output_open(struct output *o, const char *path, struct err *e)
{
	*o = OUTPUT_NONE;
	if (snprintf(o->path, sizeof(o->path), "%s", path) >= (int)sizeof(o->path) ||
		snprintf(o->temp, sizeof(o->temp), "%s.new", path) >= (int)sizeof(o->temp))
		return err_set(e, -ENAMETOOLONG,
			"cannot write %.64s...: the path is too long: give a shorter --cache",
			path);
	o->fd = open(o->temp, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (o->fd < 0) {
		int r = err_errno();

		return err_set(e, r, "cannot create %s: %s: check the disk of the cache", o->temp,
			err_str(r));
	}
	return 0;
}

int output_publish(struct output *o, struct err *e)
{
	int r = 0;

	CRASH_POINT("output.written");
	if (fsync(o->fd) != 0 || rename(o->temp, o->path) != 0)
		r = err_errno();
	CRASH_POINT("output.named");
	if (r == 0) {
		(void)close(o->fd); /* synced already */
		o->fd = -1;
		r = file_sync_parent(o->path);
	}
	return r < 0 ? err_set(e, r, "cannot write %s: %s: check the disk of the cache", o->path,
			       err_str(r))
		     : 0;
}

void output_release(struct output *o)
{
	if (o->fd < 0)
		return;
	(void)close(o->fd); /* the file is thrown away */
	(void)unlink(o->temp);
	o->fd = -1;
}
