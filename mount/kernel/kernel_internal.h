/* What kernel*.c share: fsopen(2) and its kin, with the kernel's words. */
#pragma once

#include <linux/mount.h>
#include "base/err.h"
#include "mount/kernel/kernel.h"

#define KERNEL_READ_AHEAD_KB "1024" /* docs/decisions/read-ahead.md */
#define KERNEL_BDI_DIR       "/sys/class/bdi"

/* A file system context, closed at exec, or -1 with errno. */
int kernel_fsopen(const char *type) __must_check;
/* FSCONFIG_SET_STRING or FSCONFIG_SET_FLAG (value NULL). */
int kernel_fsconfig(int fs, unsigned int cmd, const char *key, const char *value) __must_check;
/* What the kernel says in words about a failed step, or the errno's text. */
const char *kernel_complaint(int fs, int code, char text[256]);
/*
 * The detached mount of a configured context; `image`: what it opens, NULL for nothing; `dir`: where its source is, -1: anywhere.
 * *ret_why points into `text`, and is written on failure only.
 */
int kernel_create_and_mount(int fs, const struct kernel_image *image, int dir, unsigned int attrs,
	int *ret_fd, char text[256], const char **ret_why) __must_check;

/* Of kernel_label(): one option more for the context, where there is one. */
int kernel_set_label(int fs) __must_check;
/* A detached mount of EROFS, nothing set on it. */
int kernel_mount_erofs(const struct kernel_image *image, int *ret_fd, struct err *e) __must_check;
/* Writes a file of sysfs, as it is: 0 or a negative errno. */
int kernel_write_setting(const char *path, const char *value) __must_check;
/* Closes every descriptor but those, which are in ascending order; only system calls. */
void kernel_close_others(const int *keep, uint32_t n);
/* Asks for a module, `option` NULL or "NAME=VALUE"; whether it came is to be seen otherwise. */
void kernel_load_module(const char *name, const char *option);
