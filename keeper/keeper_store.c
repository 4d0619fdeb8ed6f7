/*
 * The service manager's descriptor store (sd_notify(3), FDSTORE): duplicates of what a service's mounts must not lose, for when
 * keeper and daemon die together. Where there is none (a private cache, a container) such a mount is lost: its mount point shows
 * errors, never an empty directory, until `cachectl umount`.
 *
 *	mount-3.fuse  mount-3.slots  mount-3.near  mount-3.far		names in the store
 */
#include "keeper/keeper.h"
#include "base/cleanup.h"
#include "base/log.h"
#include "base/notify.h"
#include "mount/kernel/kernel.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#define PASSED_FIRST 3 /* sd_listen_fds(3) */
#define PARTS        4u

static const char *const parts[PARTS] = { "fuse", "slots", "near", "far" };

struct keeper_passed {
	char *name;
	int fd;
};

static int *part_of(struct mount_fds *fds, unsigned int part)
{
	int *const all[PARTS] = { &fds->fuse, &fds->slots, &fds->near, &fds->far };

	return all[part];
}

/* ---- what an earlier keeper had stored ------------------------------------------------------- */

static unsigned int number_of(const char *name)
{
	const char *text = getenv(name);

	return text ? (unsigned int)strtoul(text, NULL, 10) : 0;
}

void keeper_store_open(struct keeper *k)
{
	unsigned int n =
		number_of("LISTEN_PID") == (unsigned int)getpid() ? number_of("LISTEN_FDS") : 0;
	const char *text = getenv("LISTEN_FDNAMES");
	char *names = strdup(text ? text : "");
	char *rest = names;

	k->passed = n > 0 && names ? calloc(n, sizeof(*k->passed)) : NULL;
	for (unsigned int i = 0; i < n; i++) {
		int fd = PASSED_FIRST + (int)i;
		const char *name = names ? strsep(&rest, ":") : NULL;

		if (fcntl(fd, F_SETFD, FD_CLOEXEC) != 0)
			break;
		if (k->passed)
			k->passed[k->n_passed++] =
				(struct keeper_passed){ strdup(name ? name : ""), fd };
		else
			(void)close(fd); /* a duplicate: the store still has it */
	}
	free(names);
	(void)unsetenv("LISTEN_PID"); /* daemons get none of these */
	(void)unsetenv("LISTEN_FDS");
	(void)unsetenv("LISTEN_FDNAMES");
}

void mount_take_stored(struct keeper *k, struct mount *mount)
{
	for (unsigned int i = 0; i < k->n_passed; i++) {
		struct keeper_passed *p = &k->passed[i];
		size_t len = strlen(mount->child.name);

		if (!p->name || p->fd < 0 || strncmp(p->name, mount->child.name, len) != 0 ||
			p->name[len] != '.')
			continue;
		for (unsigned int part = 0; part < PARTS; part++) {
			int *fd = part_of(&mount->fds, part);

			if (*fd < 0 && p->fd >= 0 && strcmp(p->name + len + 1, parts[part]) == 0)
				*fd = TAKE_FD(p->fd);
		}
	}
}

/* ---- the store ------------------------------------------------------------------------------- */

/* False: the service manager is behind, and gets it again later. Where there is none, nothing is sent. */
static bool put(const char *name, const char *part, const int *fd)
{
	char text[128];

	(void)snprintf(text, sizeof(text), "%s\nFDNAME=%s.%s",
		fd ? "FDSTORE=1\nFDPOLL=0" : "FDSTOREREMOVE=1", name, part); /* fits */
	return notify_send(text, fd, fd ? 1 : 0) != -EAGAIN;
}

bool mount_unstore(struct mount *mount)
{
	/* Also of one that is not stored: a part of it may be, from when the service manager was behind. */
	for (unsigned int part = 0; part < PARTS; part++)
		if (!put(mount->child.name, parts[part], NULL))
			return false;
	mount->stored = false;
	return true;
}

/* FDPOLL=0: a connection that is not used yet is an error to poll(2), by which others are removed. */
static void store(struct mount *mount)
{
	bool all = true;

	if (!mount_unstore(mount))
		return; /* once more */
	for (unsigned int part = 0; all && part < PARTS; part++) {
		const int *fd = part_of(&mount->fds, part);

		all = *fd < 0 || put(mount->child.name, parts[part], fd);
	}
	mount->stored = all; /* else once more */
	mount->stored_connection = kernel_is_fuse(mount->fds.fuse);
}

void keeper_store_look(struct keeper *k)
{
	list_for_each (node, &k->mounts) {
		struct mount *mount = list_entry(node, struct mount, link);

		if (mount->state != MOUNT_ACTIVE || k->config->is_private || mount->lost ||
			mount->fds.fuse < 0)
			continue;
		/* Or fusermount3 has made its connection since. */
		if (!mount->stored ||
			(!mount->stored_connection && kernel_is_fuse(mount->fds.fuse)))
			store(mount);
	}
}

static bool has_mount(const struct keeper *k, const char *name)
{
	list_for_each (node, &k->mounts) {
		const struct mount *mount = list_entry(node, struct mount, link);
		size_t len = strlen(mount->child.name);

		if (strncmp(name, mount->child.name, len) == 0 && name[len] == '.')
			return true;
	}
	return false;
}

void keeper_store_release(struct keeper *k)
{
	for (unsigned int i = 0; i < k->n_passed; i++) {
		struct keeper_passed *p = &k->passed[i];
		char *dot = p->name ? strrchr(p->name, '.') : NULL;

		cleanup_close(&p->fd);
		if (dot && !has_mount(k, p->name)) {
			*dot = '\0';
			(void)put(p->name, dot + 1, NULL); /* or it is passed to the next keeper */
		}
		free(p->name);
	}
	free(k->passed);
	k->passed = NULL;
	k->n_passed = 0;
}
