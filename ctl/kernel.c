/* What mounting needs of the kernel. See kernel.h. */
#include "ctl/kernel.h"
#include "base/buf.h"
#include "base/capabilities.h"
#include "base/cleanup.h"
#include "base/file.h"
#include "base/programs.h"

#include <fcntl.h>
#include <limits.h>
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>

bool kernel_may_mount(void)
{
	return capabilities_effective() & CAPABILITY(CAP_SYS_ADMIN);
}

static bool listed(const char *filesystem)
{
	_cleanup_(buf_release) struct buf list = BUF_INIT(65536);
	char line[64];

	(void)snprintf(line, sizeof(line), "\t%s\n", filesystem); /* names are ours */
	return file_read_all("/proc/filesystems", &list) == 0 && strstr(buf_str(&list), line);
}

/* Asks for a module; whether it came is seen by looking again. */
static void load_module(const char *name)
{
	char *argv[] = { (char[]){ "modprobe" }, (char[]){ "-q" }, strdup(name), NULL };
	posix_spawn_file_actions_t actions;
	pid_t pid;

	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
	if (argv[2] && posix_spawnp(&pid, argv[0], &actions, NULL, argv, environ) == 0)
		(void)waitpid(pid, NULL, 0); /* its effect is looked at, not its status */
	posix_spawn_file_actions_destroy(&actions);
	free(argv[2]);
}

bool kernel_knows(const char *filesystem)
{
	if (!listed(filesystem) && kernel_may_mount())
		load_module(filesystem);
	return listed(filesystem);
}

/* The device belongs to who may open it, and to fusermount3. */
static int check_device(int mode, struct err *e)
{
	if (access("/dev/fuse", mode) != 0 && kernel_may_mount())
		load_module("fuse");
	if (access("/dev/fuse", mode) != 0)
		return err_set(e, -ENODEV,
			"/dev/fuse cannot be opened: %m: load the fuse module, or give the "
			"container the device");
	return 0;
}

static int check_native(struct err *e)
{
	if (!kernel_may_mount())
		return err_set(e, -EPERM, "the native engine needs root (CAP_SYS_ADMIN)");
	if (!kernel_knows("erofs"))
		return err_set(e, -ENODEV,
			"this kernel has no EROFS (CONFIG_EROFS_FS, usable from Linux 5.15)");
	return check_device(R_OK | W_OK, e);
}

static int check_fuse(struct err *e)
{
	char program[PATH_MAX];

	if (kernel_may_mount())
		return check_device(R_OK | W_OK, e);
	if (!programs_fusermount(program))
		return err_set(e, -EPERM,
			"mounting needs root (CAP_SYS_ADMIN), or fusermount3 for other users: run "
			"with sudo, or install fuse3");
	return check_device(F_OK, e);
}

int kernel_check(const char *engine, struct err *e)
{
	struct err other = ERR_INIT;
	int fuse = check_fuse(&other);
	int native;

	if (strcmp(engine, "fuse") == 0)
		return fuse < 0 ? err_set(e, fuse, "%s", other.text) : 0;
	native = check_native(e);
	if (strcmp(engine, "auto") != 0 && native < 0)
		return err_set(e, native, "%s: %s", (const char *)strdupa(e->text),
			fuse == 0 ? "use --engine fuse, or leave --engine out"
				  : "run as root, on a kernel that has it");
	if (strcmp(engine, "auto") != 0 || native == 0 || fuse == 0)
		return 0; /* auto: one of them will do, and the mount's daemon says which */
	return err_set(e, fuse, "%s", other.text);
}
