/* fsopen(2) and its kin. See kernel.h. */
#include "mount/kernel/kernel.h"
#include "base/capabilities.h"
#include "base/cleanup.h"
#include "base/file.h"
#include "base/log.h"
#include "mount/kernel/kernel_internal.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <linux/fs.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#define NOT_HERE                                                                                 \
	"EROFS may not be mounted from a user namespace or where a security module forbids it: " \
	"run it as root outside"
#define IMAGE_ATTRS     (MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV)
#define MEMORY_ATTRS    (MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC)
#define SOURCE_BYTES    256 /* the longest text of a mount option, and its end */
#define SUPERBLOCKS_MAX 1024u

/* Linux 6.9: where sysfs has the file system, "erofs/erofs-N". */
struct sysfs_path {
	uint8_t len;
	char name[128];
};
#ifndef FS_IOC_GETFSSYSFSPATH
#define FS_IOC_GETFSSYSFSPATH _IOR(0x15, 1, struct sysfs_path)
#endif

#define PREFIX     "erofs-"
#define PREFIX_LEN (sizeof(PREFIX) - 1)

/* ---- system calls without a wrapper in Debian 12's C library for every header we include ----- */

int kernel_fsopen(const char *type)
{
	return (int)syscall(SYS_fsopen, type, FSOPEN_CLOEXEC);
}

int kernel_fsconfig(int fs, unsigned int cmd, const char *key, const char *value)
{
	return syscall(SYS_fsconfig, fs, cmd, key, value, 0) < 0 ? err_errno() : 0;
}

static _Thread_local const char *label;

void kernel_label(const char *context)
{
	label = context;
}

bool kernel_has_selinux(void)
{
	return access("/sys/fs/selinux/enforce", F_OK) == 0;
}

int kernel_set_label(int fs)
{
	return label ? kernel_fsconfig(fs, FSCONFIG_SET_STRING, "context", label) : 0;
}

/* What the kernel says in words about a failed step ("e erofs: ..."), or the errno's text. */
const char *kernel_complaint(int fs, int code, char text[256])
{
	ssize_t n = read(fs, text, 255);

	if (n <= 2)
		return err_str(code);
	text[n] = '\0';
	text[strcspn(text, "\n")] = '\0';
	return text + 2; /* after "e " */
}

static int create(int fs)
{
	return kernel_fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL);
}

static int by_number(const void *a, const void *b)
{
	return *(const int *)a - *(const int *)b;
}

int kernel_write_setting(const char *path, const char *value)
{
	_cleanup_close_ int fd = open(path, O_WRONLY | O_CLOEXEC);

	return fd < 0 || write(fd, value, strlen(value)) < 0 ? err_errno() : 0;
}

void kernel_close_others(const int *keep, uint32_t n)
{
	unsigned int from = 0;

	for (uint32_t i = 0; i < n; i++) {
		if (keep[i] < 0 || (unsigned int)keep[i] < from)
			continue;
		if ((unsigned int)keep[i] > from) /* what stays open only stays longer */
			(void)close_range(from, (unsigned int)keep[i] - 1, 0);
		from = (unsigned int)keep[i] + 1;
	}
	(void)close_range(from, UINT_MAX, 0);
}

/*
 * In a process of its own: it opens files of the private FUSE mount, and who waits for such an
 * answer cannot be killed. Were it this process, then killed before it has answered itself it would
 * never end, and nobody would learn of it. The helper does not hold the connection: it ends with
 * it. Its working directory is `dir`, which may be -1.
 */
static int create_apart(int fs, const struct kernel_image *image, int dir)
{
	uint32_t n = image->local ? image->extents : 0;
	int *keep = calloc(n + 3, sizeof(*keep));
	int status = 0;
	pid_t pid;

	if (!keep)
		return -ENOMEM;
	keep[n] = fs;
	keep[n + 1] = image->fuse_mount_fd;
	keep[n + 2] = dir;
	if (n)
		memcpy(keep, image->local, n * sizeof(*keep));
	qsort(keep, n + 3, sizeof(*keep), by_number);
	pid = fork();
	if (pid == 0) {
		/* Only system calls: other threads' locks were copied as they were. */
		kernel_close_others(keep, n + 3);
		if (dir >= 0 && fchdir(dir) != 0)
			_exit(errno & 0xff);
		_exit(-create(fs) & 0xff);
	}
	free(keep);
	if (pid < 0)
		return err_errno();
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return err_errno();
	return WIFEXITED(status) ? -WEXITSTATUS(status) : -EIO;
}

int kernel_create_and_mount(int fs, const struct kernel_image *image, int dir, unsigned int attrs,
	int *ret_fd, char text[256], const char **ret_why)
{
	int fd;
	int r = image ? create_apart(fs, image, dir) : create(fs);

	if (r < 0) {
		*ret_why = kernel_complaint(fs, r, text);
		return r;
	}
	fd = (int)syscall(SYS_fsmount, fs, FSMOUNT_CLOEXEC, attrs);
	if (fd < 0) {
		r = err_errno();
		*ret_why = kernel_complaint(fs, r, text);
		return r;
	}
	*ret_fd = fd;
	return 0;
}

/* ---- the source that is shown ---------------------------------------------------------------- */

/*
 * What df(1) and mount(8) show as the source of an image's mount.
 *
 * EROFS opens the image by the text that is shown, relative to the working directory of the process that mounts. A file system in
 * memory that is attached nowhere has a link of that name: of "s3://bucket/prefix" it has the directories "s3:" and "bucket", and in
 * it the link "prefix" to the image.
 */
static int mount_memory(int *ret_fd)
{
	_cleanup_close_ int fs = kernel_fsopen("tmpfs");
	int r = fs < 0 ? err_errno() : kernel_fsconfig(fs, FSCONFIG_SET_STRING, "mode", "0700");

	if (r == 0)
		r = kernel_fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL);
	if (r < 0)
		return r;
	*ret_fd = (int)syscall(SYS_fsmount, fs, FSMOUNT_CLOEXEC, MEMORY_ATTRS);
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
	char name[SOURCE_BYTES];
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

/*
 * A directory in which `ret_name`, that is `source` without slashes at its end, leads to the file `target`: a process that mounts
 * `ret_name` from there mounts that file. -EINVAL: too long, or no name that can be given to a file.
 */
static int open_source(
	const char *source, const char *target, char ret_name[SOURCE_BYTES], int *ret_dir)
{
	_cleanup_close_ int root = -1;
	size_t len = strlen(source);
	int r;

	while (len > 0 && source[len - 1] == '/') /* a directory's name is no file's */
		len--;
	if (len == 0 || len >= SOURCE_BYTES || source[0] == '/' || target[0] != '/')
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

/* ---- superblocks ----------------------------------------------------------------------------- */

static uint32_t number_of_name(const char *name)
{
	return strncmp(name, PREFIX, PREFIX_LEN) == 0
		       ? (uint32_t)strtoul(name + PREFIX_LEN, NULL, 10)
		       : 0;
}

/* Of superblocks of EROFS that are there. */
struct numbers {
	uint32_t n;
	uint32_t number[SUPERBLOCKS_MAX];
};

static void list_superblocks(struct numbers *ret)
{
	DIR *dir = opendir(KERNEL_BDI_DIR);
	const struct dirent *entry;

	ret->n = 0;
	while (dir && (entry = readdir(dir)) != NULL && ret->n < SUPERBLOCKS_MAX) {
		uint32_t number = number_of_name(entry->d_name);

		if (number)
			ret->number[ret->n++] = number;
	}
	if (dir)
		(void)closedir(dir); /* read only */
}

/* By the kernel's own word. */
static uint32_t ask_number(int mount_fd)
{
	_cleanup_close_ int root = openat(mount_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct sysfs_path path = { 0 };
	const char *name;

	if (root < 0 || ioctl(root, FS_IOC_GETFSSYSFSPATH, &path) != 0)
		return 0;
	path.name[sizeof(path.name) - 1] = '\0';
	name = strrchr(path.name, '/');
	return name ? number_of_name(name + 1) : 0;
}

static bool was_there(const struct numbers *set, uint32_t number)
{
	for (uint32_t i = 0; i < set->n; i++)
		if (set->number[i] == number)
			return true;
	return false;
}

/* The only one that is new; 0 when there are several. */
static uint32_t guess_number(const struct numbers *before)
{
	struct numbers after;
	uint32_t found = 0;

	list_superblocks(&after);
	for (uint32_t i = 0; i < after.n; i++) {
		if (was_there(before, after.number[i]))
			continue;
		if (found)
			return 0;
		found = after.number[i];
	}
	return found;
}

static void bdi_path(uint32_t number, const char *file, char path[96])
{
	(void)snprintf(path, 96, KERNEL_BDI_DIR "/" PREFIX "%u%s", number, file); /* fits */
}

static int set_read_ahead(uint32_t number)
{
	char path[96];

	bdi_path(number, "/read_ahead_kb", path);
	return kernel_write_setting(path, KERNEL_READ_AHEAD_KB);
}

/*
 * The number of a superblock just mounted, before which those were there; 0: not to be known. Its
 * read-ahead is set.
 */
static uint32_t begin_superblock(int mount_fd, const struct numbers *before)
{
	uint32_t number = ask_number(mount_fd);

	if (!number)
		number = guess_number(before);
	if (!number || set_read_ahead(number) < 0)
		log_warn("read-ahead not set",
			"dir=" KERNEL_BDI_DIR " effect=\"large reads are slower\"");
	return number;
}

bool kernel_superblock_lives(uint32_t number)
{
	char path[96];

	bdi_path(number, "", path);
	return access(path, F_OK) == 0 || access(KERNEL_BDI_DIR, F_OK) != 0;
}

bool kernel_directio_is_safe(void)
{
	/* Stable series, and their first release that surely has the fix. */
	static const struct {
		unsigned long minor;
		unsigned long patch;
	} fixed[] = { { 12, 80 }, { 18, 20 } };
	struct utsname name = { 0 };
	unsigned long version[3] = { 0 };
	const char *at = name.release;

	if (uname(&name) != 0)
		return false;
	for (size_t i = 0; i < 3; i++) {
		char *end;

		version[i] = strtoul(at, &end, 10);
		if (end == at || *end != '.')
			break;
		at = end + 1;
	}
	for (size_t i = 0; i < ARRAY_SIZE(fixed) && version[0] == 6; i++)
		if (version[1] == fixed[i].minor)
			return version[2] >= fixed[i].patch;
	return version[0] >= 7;
}

/* ---- EROFS ----------------------------------------------------------------------------------- */

/* Is this kernel 6.12 or newer, by its own words? */
static bool kernel_is_new(const char *release)
{
	char *end;
	unsigned long version = strtoul(release, &end, 10);

	return version > 6 || (version == 6 && *end == '.' && strtoul(end + 1, NULL, 10) >= 12);
}

/* The words for an image that the kernel did not take. */
static int image_error(int code, const char *image, const char *why, struct err *e)
{
	struct utsname name = { 0 };

	if (code == -EPERM)
		return err_set(e, code, NOT_HERE);
	/* Before 5.16 it does not know what `device` is. */
	if (code != -ENOTBLK && !(code == -EINVAL && strstr(why, "Unknown parameter 'device'")))
		return err_set(e, code, "the kernel did not mount the image %s: %s", image, why);
	if (uname(&name) != 0 || !kernel_is_new(name.release))
		return err_set(e, -ENOTBLK,
			"kernel %s mounts EROFS from block devices only: images in files need 6.12 "
			"or newer",
			name.release);
	return err_set(e, -EOPNOTSUPP,
		"the file system of %.*s cannot hold images (tmpfs and overlayfs cannot, or the "
		"kernel lacks CONFIG_EROFS_FS_BACKED_BY_FILE): choose a directory on a disk",
		(int)(strrchr(image, '/') - image), image);
}

static int add_devices(int fs, const struct kernel_image *image)
{
	int r = 0;

	for (uint32_t i = 0; i < image->extents && r == 0; i++) {
		bool here = image->local && image->local[i] >= 0;
		char path[64];

		if (here)
			(void)snprintf(
				path, sizeof(path), "/proc/self/fd/%d", image->local[i]); /* fits */
		else
			(void)snprintf(path, sizeof(path), "/proc/self/fd/%d/%u",
				image->fuse_mount_fd, i); /* fits */
		r = kernel_fsconfig(fs, FSCONFIG_SET_STRING, "device", path);
	}
	return r;
}

/* The image as `name` from `dir`, which may be -1. */
static int mount_erofs(
	const struct kernel_image *image, const char *name, int dir, int *ret_fd, struct err *e)
{
	_cleanup_close_ int fs = kernel_fsopen("erofs");
	char text[256];
	const char *why = NULL;
	int r;

	if (fs < 0 && errno == EPERM)
		return err_set(e, -EPERM, NOT_HERE);
	if (fs < 0)
		return err_set(e, -ENODEV, "this kernel has no EROFS: %m");
	r = kernel_fsconfig(fs, FSCONFIG_SET_STRING, "source", name);
	if (r == 0)
		r = kernel_fsconfig(fs, FSCONFIG_SET_FLAG, "ro", NULL);
	if (r == 0 && image->directio)
		r = kernel_fsconfig(fs, FSCONFIG_SET_FLAG, "directio", NULL);
	if (r == 0)
		r = kernel_set_label(fs);
	if (r == 0)
		r = add_devices(fs, image);
	if (r < 0)
		why = kernel_complaint(fs, r, text);
	else
		r = kernel_create_and_mount(fs, image, dir, IMAGE_ATTRS, ret_fd, text, &why);
	return r < 0 ? image_error(r, image->path, why, e) : 0;
}

int kernel_mount_erofs(const struct kernel_image *image, int *ret_fd, struct err *e)
{
	_cleanup_close_ int dir = -1;
	char name[SOURCE_BYTES];
	int r;

	if (image->source && open_source(image->source, image->path, name, &dir) == 0) {
		r = mount_erofs(image, name, dir, ret_fd, e);
		/* The link may be why: a security module forbids it, or the path has as many as the kernel follows. */
		if (r != -EACCES && r != -EPERM && r != -ENOENT && r != -ELOOP)
			return r;
	}
	return mount_erofs(image, image->path, -1, ret_fd, e);
}

int kernel_mount_image(const struct kernel_image *image, int *ret_fd,
	struct kernel_superblock *ret_super, struct err *e)
{
	struct numbers before;
	struct stat st;
	int fd = -1;
	int r;

	list_superblocks(&before);
	r = kernel_mount_erofs(image, &fd, e);
	if (r < 0)
		return r;
	if (fstatat(fd, "", &st, AT_EMPTY_PATH) != 0) {
		r = err_set(
			e, err_errno(), "the mounted image %s does not answer: %m", image->path);
		(void)close(fd); /* ends the mount */
		return r;
	}
	*ret_super = (struct kernel_superblock){
		.dev = st.st_dev,
		.number = begin_superblock(fd, &before),
	};
	*ret_fd = fd;
	return 0;
}

int kernel_attach(int mount_fd, int point_fd, struct err *e)
{
	if (syscall(SYS_move_mount, mount_fd, "", point_fd, "",
		    MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH) != 0)
		return err_set(e, err_errno(), "the image cannot be mounted there: %m");
	return 0;
}

/* ---- what there is --------------------------------------------------------------------------- */

bool kernel_may_mount(void)
{
	return capabilities_effective() & CAPABILITY(CAP_SYS_ADMIN);
}

static bool has_filesystem(const char *name)
{
	_cleanup_(buf_release) struct buf list = BUF_INIT(65536);
	char line[32];

	(void)snprintf(line, sizeof(line), "\t%s\n", name); /* fits */
	return file_read_all("/proc/filesystems", &list) == 0 && strstr(buf_str(&list), line);
}

void kernel_load_module(const char *name, const char *option)
{
	char *argv[] = { (char[]){ "modprobe" }, (char[]){ "-q" }, strdup(name),
		option ? strdup(option) : NULL, NULL };
	char *envp[] = { (char[]){ "PATH=/usr/sbin:/usr/bin:/sbin:/bin" }, NULL };
	pid_t pid;

	if (argv[2] && posix_spawnp(&pid, "modprobe", NULL, NULL, argv, envp) == 0)
		(void)waitpid(pid, NULL, 0); /* /proc/filesystems tells whether it helped */
	free(argv[2]);
	free(argv[3]);
}

int kernel_need_filesystem(const char *name, struct err *e)
{
	if (!has_filesystem(name))
		kernel_load_module(name, NULL);
	if (!has_filesystem(name))
		return err_set(e, -ENODEV,
			"this kernel has no %s: load or install the module of that name (EROFS: "
			"Linux 6.12 for images in files, 5.15 for those on a loop device)",
			name);
	return 0;
}
