/*
 * The memory of a keeper's mounts (--memory).
 *
 * What each daemon may take at most (its own --memory) is set when it starts: half of the whole for the first, a quarter of what has not
 * been given out for a further one, MOUNT_LEAST at least, with which a mount works. A newer generation gets what the one in whose place
 * it comes has: an index that just fits must fit again.
 *
 * Most mounts use a small part of their maximum, and many are idle. So what decides whether there is room for one more is not the sum of
 * the maxima but what daemons use now. IDLE_BYTES of each daemon do not count: it has these before it reads anything.
 */
#include "keeper/keeper.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/file.h"
#include "base/units.h"

#include <stdlib.h>
#include <string.h>

#define MOUNT_LEAST (32 * MiB)
#define IDLE_BYTES  (4 * MiB)
/* Times the whole that may be used when a newer generation comes: the one that it replaces ends, or shrinks, soon. */
#define SUCCESSORS_MOST 3u

/* What its command line says, also when an earlier keeper wrote it. */
static uint64_t memory_of(const struct child *child)
{
	for (unsigned int i = 0; i + 1 < child->n_args; i++)
		if (strcmp(child->args[i], "--memory") == 0)
			return strtoull(child->args[i + 1], NULL, 10);
	return 0;
}

/* It has its own daemon, or will have one. */
static bool has_daemon(const struct mount *mount)
{
	return mount->state == MOUNT_ACTIVE &&
	       (mount->child.state != CHILD_STOPPED || !mount_is_shared(mount));
}

/* A row of /proc/PID/status, in bytes; 0: it has none. */
static uint64_t row_bytes(const char *status, const char *name)
{
	const char *row = strstr(status, name);

	return row ? strtoull(row + strlen(name), NULL, 10) * KiB : 0;
}

/* What it has of its own: not the pages of programs and libraries, which daemons share. */
static uint64_t used_by(const struct child *child)
{
	_cleanup_(buf_release) struct buf status = BUF_INIT(8192);
	char path[64];
	uint64_t bytes;

	(void)snprintf(path, sizeof(path), "/proc/%d/status", (int)child->pid); /* fits */
	if (!child_running(child) || file_read_all(path, &status) < 0)
		return 0;
	bytes = row_bytes(buf_str(&status), "\nRssAnon:") +
		row_bytes(buf_str(&status), "\nRssShmem:") +
		row_bytes(buf_str(&status), "\nVmSwap:"); /* it comes back */
	return bytes > IDLE_BYTES ? bytes - IDLE_BYTES : 0;
}

struct use {
	uint64_t given; /* the sum of the maxima */
	uint64_t used;
	unsigned int n; /* daemons */
	const struct mount *largest;
	uint64_t largest_used;
};

static struct use count_use(const struct keeper *k)
{
	struct use use = { 0 };

	list_for_each (node, &k->mounts) {
		const struct mount *mount = list_entry(node, struct mount, link);
		uint64_t used;

		if (!has_daemon(mount))
			continue;
		used = used_by(&mount->child);
		use.n++;
		use.given += memory_of(&mount->child);
		use.used += used;
		if (used >= use.largest_used) {
			use.largest = mount;
			use.largest_used = used;
		}
	}
	return use;
}

int keeper_memory_mount(const struct keeper *k, uint64_t *ret_bytes, struct err *e)
{
	struct use use = count_use(k);
	uint64_t whole = k->config->memory;
	uint64_t left = whole > use.given ? whole - use.given : 0;
	char all[16];
	char used[16];
	char most[16];

	if (use.n > 0 && use.used + MOUNT_LEAST > whole)
		return err_set(e, -ENOSPC,
			"%u mounts of this cache use %s of the %s of memory for mounts, %s of it "
			"by %s: unmount one, or unmount all and give more --memory, or use another "
			"--cache",
			use.n, units_size(use.used, used, sizeof(used)),
			units_size(whole, all, sizeof(all)),
			units_size(use.largest_used, most, sizeof(most)),
			use.largest->mountpoint ? use.largest->mountpoint : "one");
	*ret_bytes = max(use.n == 0 ? left / 2 : left / 4, MOUNT_LEAST);
	return 0;
}

int keeper_memory_successor(
	const struct keeper *k, const struct mount *shown, uint64_t *ret_bytes, struct err *e)
{
	uint64_t memory = max(memory_of(&shown->child), memory_of(&keeper_server(k, shown)->child));

	if (count_use(k).used + MOUNT_LEAST > SUCCESSORS_MOST * k->config->memory)
		return err_set(e, -ENOSPC,
			"the memory of this cache is in use by older generations with open files: "
			"close these files, or unmount and mount again");
	*ret_bytes = max(memory, MOUNT_LEAST);
	return 0;
}
