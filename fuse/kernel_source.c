/*
 * What df(1) and mount(8) show as the source of an image's mount. See kernel_internal.h.
 *
 * EROFS opens the image by the text that is shown, relative to the working directory of the process that mounts. A file system in
 * memory that is attached nowhere has a link of that name: of "s3://bucket/prefix" it has the directories "s3:" and "bucket", and in
 * it the link "prefix" to the image.
 */
#include "base/cleanup.h"
#include "fuse/kernel_internal.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define ATTRS (MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC)

static int mount_memory(int *ret_fd)
{
	_cleanup_close_ int fs = kernel_fsopen("tmpfs");
	int r = fs < 0 ? err_errno() : kernel_fsconfig(fs, FSCONFIG_SET_STRING, "mode", "0700");

	if (r == 0)
		r = kernel_fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL);
	if (r < 0)
		return r;
	*ret_fd = (int)syscall(SYS_fsmount, fs, FSMOUNT_CLOEXEC, ATTRS);
	return *ret_fd < 0 ? err_errno() : 0;
}

/* One component on: *dir becomes the directory of that name, or the last one is a link. */
static int add_component(int *dir, const char *name, bool last, const char *target)
{
	int next;

	if (last)
		return symlinkat(target, *dir, name) == 0 ? 0 : err_errno();
	if (mkdirat(*dir, name, 0700) != 0)
		return err_errno();
	next = openat(*dir, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (next < 0)
		return err_errno();
	cleanup_close(dir);
	*dir = next;
	return 0;
}

static int add_link(int root, const char *path, const char *target)
{
	_cleanup_close_ int dir = dup(root);
	char name[KERNEL_SOURCE_BYTES];
	int r = dir < 0 ? err_errno() : 0;

	for (const char *p = path; r == 0 && *p;) {
		size_t len = strcspn(p, "/");

		(void)snprintf(name, sizeof(name), "%.*s", (int)len, p); /* as long as path */
		p += len;
		p += strspn(p, "/");
		if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
			return -EINVAL;
		r = add_component(&dir, name, !*p, target);
	}
	return r;
}

int kernel_source_open(
	const char *source, const char *target, char ret_name[KERNEL_SOURCE_BYTES], int *ret_dir)
{
	_cleanup_close_ int root = -1;
	size_t len = strlen(source);
	int r;

	while (len > 0 && source[len - 1] == '/') /* a directory's name is no file's */
		len--;
	if (len == 0 || len >= KERNEL_SOURCE_BYTES || source[0] == '/' || target[0] != '/')
		return -EINVAL;
	memcpy(ret_name, source, len);
	ret_name[len] = '\0';
	r = mount_memory(&root);
	if (r == 0)
		r = add_link(root, ret_name, target);
	if (r == 0)
		*ret_dir = TAKE_FD(root);
	return r;
}
