/* See superblock.h. */
#include "keeper/points/superblock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SUPERBLOCK_MAGIC 0x4A71FE0Bu

void superblocks_init(struct superblocks *all)
{
	list_init(&all->all);
	all->n = 0;
}

void superblocks_release(struct superblocks *all)
{
	list_for_each_safe (node, &all->all)
		superblock_remove(all, list_entry(node, struct superblock, link));
}

int superblock_add(struct superblocks *all, unsigned int server, const char *key, dev_t point_dev,
	dev_t fuse_dev, struct superblock **ret_superblock)
{
	struct superblock *s;

	if (!key[0] || strlen(key) >= sizeof(s->key))
		return -EINVAL;
	if (superblock_of_server(all, server))
		return -EEXIST;
	if (all->n >= SUPERBLOCKS_MAX)
		return -ENOSPC;
	s = calloc(1, sizeof(*s));
	if (!s)
		return -ENOMEM;
	s->magic = SUPERBLOCK_MAGIC;
	(void)snprintf(s->key, sizeof(s->key), "%s", key); /* fits */
	s->server = server;
	s->point_dev = point_dev;
	s->fuse_dev = fuse_dev;
	list_init(&s->points);
	list_push_back(&all->all, &s->link);
	all->n++;
	*ret_superblock = s;
	return 0;
}

static void free_point(struct superblock *superblock, struct superblock_point *point)
{
	list_remove(&point->link);
	superblock->n_points--;
	free(point->mountpoint);
	free(point);
}

void superblock_remove(struct superblocks *all, struct superblock *superblock)
{
	CHECK_MAGIC(superblock, SUPERBLOCK_MAGIC);
	list_for_each_safe (node, &superblock->points)
		free_point(superblock, list_entry(node, struct superblock_point, link));
	list_remove(&superblock->link);
	all->n--;
	superblock->magic = 0;
	free(superblock);
}

struct superblock *superblock_find(struct superblocks *all, const char *key)
{
	list_for_each (node, &all->all) {
		struct superblock *s = list_entry(node, struct superblock, link);

		if (!s->closed && s->n_points > 0 && strcmp(s->key, key) == 0)
			return s;
	}
	return NULL;
}

struct superblock *superblock_of_server(struct superblocks *all, unsigned int server)
{
	list_for_each (node, &all->all) {
		struct superblock *s = list_entry(node, struct superblock, link);

		if (s->server == server)
			return s;
	}
	return NULL;
}

struct superblock *superblock_at(struct superblocks *all, const char *mountpoint)
{
	list_for_each (node, &all->all) {
		struct superblock *s = list_entry(node, struct superblock, link);

		if (superblock_point(s, mountpoint))
			return s;
	}
	return NULL;
}

int superblock_point_add(struct superblock *superblock, unsigned int mount, const char *mountpoint)
{
	struct superblock_point *point;

	CHECK_MAGIC(superblock, SUPERBLOCK_MAGIC);
	if (superblock_point(superblock, mountpoint))
		return -EEXIST;
	if (superblock->n_points >= SUPERBLOCK_POINTS_MAX)
		return -ENOSPC;
	point = calloc(1, sizeof(*point));
	if (point)
		point->mountpoint = strdup(mountpoint);
	if (!point || !point->mountpoint) {
		free(point);
		return -ENOMEM;
	}
	point->mount = mount;
	list_push_back(&superblock->points, &point->link);
	superblock->n_points++;
	superblock->closed = false;
	return 0;
}

unsigned int superblock_point_remove(struct superblock *superblock, const char *mountpoint)
{
	struct superblock_point *point = superblock_point(superblock, mountpoint);
	unsigned int mount = point ? point->mount : 0;

	if (point)
		free_point(superblock, point);
	superblock->closed |= superblock->n_points == 0;
	return mount;
}

struct superblock_point *superblock_point(
	const struct superblock *superblock, const char *mountpoint)
{
	list_for_each (node, &superblock->points) {
		struct superblock_point *point = list_entry(node, struct superblock_point, link);

		if (strcmp(point->mountpoint, mountpoint) == 0)
			return point;
	}
	return NULL;
}
