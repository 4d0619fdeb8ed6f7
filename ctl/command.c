/* What all commands share. */
#include "ctl/command.h"
#include "base/mount_table.h"

#include <stdio.h>
#include <unistd.h>

int command_fail(int status, struct err *e)
{
	(void)err_advise(e); /* returns the code */
	(void)fprintf(stderr, "cachectl: %s\n", e->text);
	return status;
}

const char *command_as_user(unsigned int user, char *out, size_t size)
{
	if (user == 0)
		(void)snprintf(out, size, "sudo cachectl");
	else
		(void)snprintf(out, size, "sudo -u '#%u' cachectl", user); /* short */
	return out;
}

int command_not_found(const char *path, struct err *e)
{
	struct mount_entry entry;
	char as[64];

	if (mount_table_find_above(path, &entry) < 0)
		return err_set(e, -ENOENT,
			"%s is not a mount of Granary, nor below one: cachectl status lists them",
			path);
	if (entry.user != geteuid())
		return err_set(e, -EACCES,
			"%s is a mount of user %u, whose daemons answer only that user: run %s",
			entry.point, entry.user, command_as_user(entry.user, as, sizeof(as)));
	return err_set(e, -ECONNREFUSED,
		"%s is mounted, but no daemon of it is found: cachectl umount %s takes it off "
		"(with another GRANARY_RUN_DIR or XDG_RUNTIME_DIR, say the same now)",
		entry.point, entry.point);
}
