/* What all commands share. */
#include "ctl/command.h"
#include "base/error_line.h"
#include "base/mount_table.h"

#include <pwd.h>
#include <stdio.h>
#include <unistd.h>

int command_fail(int status, struct err *e)
{
	(void)err_advise(e); /* returns the code */
	return error_line_print("cachectl", status, e);
}

int command_exit(int r)
{
	switch (-r) {
	case 0:
		return EXIT_OK;
	case EINVAL:
	case ENOENT: /* a dataset, generation, preload or worker of that name */
	case ERANGE:
	case EOPNOTSUPP:
	case EEXIST:
		return EXIT_USAGE;
	case ENOTDIR: /* not a mount point */
		return EXIT_MOUNTPOINT;
	case EACCES:
	case ENOKEY:
	case EKEYREJECTED:
	case ENXIO:
	case EREMCHG:
		return EXIT_ORIGIN;
	case ENOMEDIUM: /* not a cache directory */
		return EXIT_CACHE;
	case EBUSY:
		return EXIT_BUSY;
	default:
		return EXIT_RUNTIME;
	}
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
		return err_set(
			e, -ENOENT, "%s is not a mount of Granary: see `cachectl status`", path);
	if (entry.user != geteuid())
		return err_set(e, -EACCES, "permission denied: %s is a mount of user %u; run %s",
			entry.point, entry.user, command_as_user(entry.user, as, sizeof(as)));
	return err_set(e, -ECONNREFUSED,
		"no daemon of the mount %s found: set GRANARY_RUN_DIR or "
		"XDG_RUNTIME_DIR as for its mount, or unmount it with `cachectl "
		"umount %s`",
		entry.point, entry.point);
}

const char *command_user_name(uid_t user, char out[COMMAND_USER_BYTES])
{
	char text[16384];
	struct passwd row;
	struct passwd *found = NULL;

	if (getpwuid_r(user, &row, text, sizeof(text), &found) == 0 && found)
		(void)snprintf(out, COMMAND_USER_BYTES, "%s", row.pw_name); /* cut: for people */
	else
		(void)snprintf(out, COMMAND_USER_BYTES, "%u", user); /* fits */
	return out;
}
