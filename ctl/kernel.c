/* What mounting needs of the kernel. See kernel.h. */
#include "ctl/kernel.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/file.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <spawn.h>
#include <stdbool.h>
#include <string.h>
#include <sys/wait.h>

static bool may_mount(void)
{
	_cleanup_(buf_release) struct buf status = BUF_INIT(65536);
	const char *line;

	if (file_read_all("/proc/self/status", &status) < 0)
		return geteuid() == 0;
	line = strstr(buf_str(&status), "\nCapEff:");
	return line && (strtoull(line + 8, NULL, 16) >> CAP_SYS_ADMIN & 1);
}

static bool knows_erofs(void)
{
	_cleanup_(buf_release) struct buf list = BUF_INIT(65536);

	return file_read_all("/proc/filesystems", &list) == 0 &&
	       strstr(buf_str(&list), "\terofs\n");
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

int kernel_check(struct err *e)
{
	if (!may_mount())
		return err_set(e, -EPERM, "mounting needs root (CAP_SYS_ADMIN): run with sudo");
	if (!knows_erofs())
		load_module("erofs");
	if (!knows_erofs())
		return err_set(e, -ENODEV,
			"this kernel has no EROFS (CONFIG_EROFS_FS, since 5.4; file-backed since "
			"6.12): use a kernel "
			"that has it");
	if (access("/dev/fuse", R_OK | W_OK) != 0) {
		load_module("fuse");
		if (access("/dev/fuse", R_OK | W_OK) != 0)
			return err_set(e, -ENODEV,
				"/dev/fuse cannot be opened: %m: load the fuse module, or give the "
				"container the device");
	}
	return 0;
}
