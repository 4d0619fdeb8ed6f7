/*
 * Files that are shown no more. See gone.h.
 *
 *	offset 0	struct head: which half is written to
 *	4096		half 0: records, the first without a node id ends them
 *	...		half 1, at 4096 + half x 40
 *
 * A half that is full becomes the older one, and what was the older is forgotten.
 */
#include "fuse/tree/gone.h"
#include "base/arena.h"
#include "base/err.h"
#include "base/hash.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#define GONE_MAGIC    0x60DEF11Eu
#define RECORDS_BYTE  4096u
#define FIRST_RECORDS 64u

struct head {
	uint32_t magic;
	uint32_t half;    /* records of each */
	uint32_t current; /* 0 or 1 */
	uint32_t zero;
};

struct half {
	struct gone_file *files;
	uint32_t *table; /* index in files + 1, by node id; 0: free. Twice cap */
	uint32_t n;
	uint32_t cap;
};

struct gone {
	uint32_t magic;
	int fd;
	struct head head;
	struct half half[2];
	pthread_mutex_t lock; /* all of it; a leaf but for the file */
};

static uint32_t *place_in(const struct half *h, uint64_t node)
{
	uint32_t mask = 2 * h->cap - 1;
	uint32_t i = (uint32_t)hash_xxh3(&node, sizeof(node), 0) & mask;

	while (h->table[i] && h->files[h->table[i] - 1].node != node)
		i = (i + 1) & mask;
	return &h->table[i];
}

static uint64_t half_bytes(uint32_t cap)
{
	return cap * (sizeof(struct gone_file) + 2 * sizeof(uint32_t));
}

static void half_clear(struct half *h)
{
	arena_give(ARENA_IMAGE, half_bytes(h->cap));
	free(h->files);
	free(h->table);
	*h = (struct half){ 0 };
}

static int half_grow(struct half *h)
{
	uint32_t cap = h->cap ? 2 * h->cap : FIRST_RECORDS;
	uint64_t more = half_bytes(cap) - half_bytes(h->cap);
	struct gone_file *files;
	uint32_t *table;

	if (!arena_take(ARENA_IMAGE, BUDGET_DEMAND, more))
		return -ENOMEM;
	files = realloc(h->files, cap * sizeof(*files));
	if (files)
		h->files = files;
	table = files ? calloc(2 * (size_t)cap, sizeof(*table)) : NULL;
	if (!table) {
		arena_give(ARENA_IMAGE, more);
		return -ENOMEM;
	}
	free(h->table);
	h->table = table;
	h->cap = cap;
	for (uint32_t i = 0; i < h->n; i++)
		*place_in(h, h->files[i].node) = i + 1;
	return 0;
}

static int half_add(struct half *h, const struct gone_file *file)
{
	int r = h->n == h->cap ? half_grow(h) : 0;

	if (r < 0)
		return r;
	h->files[h->n] = *file;
	*place_in(h, file->node) = ++h->n;
	return 0;
}

static const struct gone_file *half_find(const struct half *h, uint64_t node)
{
	uint32_t at = h->cap ? *place_in(h, node) : 0;

	return at ? &h->files[at - 1] : NULL;
}

static off_t record_byte(const struct gone *gone, uint32_t half, uint32_t i)
{
	uint64_t record = (uint64_t)half * gone->head.half + i;

	return (off_t)(RECORDS_BYTE + record * sizeof(struct gone_file));
}

static int write_all(int fd, const void *data, size_t len, off_t at)
{
	ssize_t n = pwrite(fd, data, len, at);

	if (n == (ssize_t)len)
		return 0;
	return n < 0 ? err_errno() : -ENOSPC;
}

static int load_half(struct gone *gone, uint32_t half)
{
	struct gone_file file;
	int r = 0;

	for (uint32_t i = 0; r == 0 && i < gone->head.half; i++) {
		ssize_t n = pread(gone->fd, &file, sizeof(file), record_byte(gone, half, i));

		if (n < 0)
			return err_errno();
		if (n != (ssize_t)sizeof(file) || file.node == 0)
			break;
		r = half_add(&gone->half[half], &file);
	}
	return r;
}

/* What a daemon before us wrote; of an empty file, or of other sizes: nothing. */
static int load(struct gone *gone, uint32_t half)
{
	ssize_t n = pread(gone->fd, &gone->head, sizeof(gone->head), 0);
	int r;

	if (n < 0)
		return err_errno();
	if (n != (ssize_t)sizeof(gone->head) || gone->head.magic != GONE_MAGIC ||
		gone->head.half != half || gone->head.current > 1) {
		gone->head = (struct head){ .magic = GONE_MAGIC, .half = half };
		if (ftruncate(gone->fd, 0) != 0)
			return err_errno();
		return write_all(gone->fd, &gone->head, sizeof(gone->head), 0);
	}
	r = load_half(gone, 0);
	return r < 0 ? r : load_half(gone, 1);
}

int gone_open(const char *path, bool fresh, uint32_t half, struct gone **ret_gone)
{
	struct gone *gone = calloc(1, sizeof(*gone));
	int r;

	if (!gone)
		return -ENOMEM;
	gone->magic = GONE_MAGIC;
	pthread_mutex_init(&gone->lock, NULL);
	gone->fd =
		open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC | (fresh ? O_TRUNC : 0), 0600);
	r = gone->fd < 0 ? err_errno() : load(gone, half);
	if (r < 0) {
		gone_free(gone);
		return r;
	}
	(void)flock(gone->fd, LOCK_SH | LOCK_NB); /* in use, as image_use.h has it */
	*ret_gone = gone;
	return 0;
}

void gone_free(struct gone *gone)
{
	if (!gone)
		return;
	CHECK_MAGIC(gone, GONE_MAGIC);
	half_clear(&gone->half[0]);
	half_clear(&gone->half[1]);
	if (gone->fd >= 0)
		(void)close(gone->fd); /* written, and of no use after a crash of the machine */
	pthread_mutex_destroy(&gone->lock);
	gone->magic = 0;
	free(gone);
}

/* The older half is forgotten, and written anew. */
static int turn(struct gone *gone)
{
	static const struct gone_file none;
	uint32_t next = !gone->head.current;
	struct head head = gone->head;
	int r = write_all(gone->fd, &none, sizeof(none), record_byte(gone, next, 0));

	head.current = next;
	if (r == 0)
		r = write_all(gone->fd, &head, sizeof(head), 0);
	if (r < 0)
		return r;
	half_clear(&gone->half[next]);
	gone->head = head;
	return 0;
}

static int add_locked(struct gone *gone, const struct gone_file *file)
{
	static const struct gone_file none;
	struct half *h = &gone->half[gone->head.current];
	int r = 0;

	if (half_find(&gone->half[0], file->node) || half_find(&gone->half[1], file->node))
		return 0;
	if (h->n == gone->head.half)
		r = turn(gone);
	h = &gone->half[gone->head.current];
	/* What follows is of the last time that this half was written. */
	if (r == 0 && h->n + 1 < gone->head.half)
		r = write_all(gone->fd, &none, sizeof(none),
			record_byte(gone, gone->head.current, h->n + 1));
	if (r == 0)
		r = write_all(
			gone->fd, file, sizeof(*file), record_byte(gone, gone->head.current, h->n));
	return r < 0 ? r : half_add(h, file);
}

int gone_add(struct gone *gone, const struct gone_file *file)
{
	int r;

	CHECK_MAGIC(gone, GONE_MAGIC);
	ensure(file->node != 0);
	pthread_mutex_lock(&gone->lock);
	r = add_locked(gone, file);
	pthread_mutex_unlock(&gone->lock);
	return r;
}

int gone_find(struct gone *gone, uint64_t node, struct gone_file *ret)
{
	const struct gone_file *file;

	CHECK_MAGIC(gone, GONE_MAGIC);
	pthread_mutex_lock(&gone->lock);
	file = half_find(&gone->half[0], node);
	if (!file)
		file = half_find(&gone->half[1], node);
	if (file)
		*ret = *file;
	pthread_mutex_unlock(&gone->lock);
	return file ? 0 : -ESTALE;
}

uint64_t gone_count(struct gone *gone)
{
	uint64_t n;

	pthread_mutex_lock(&gone->lock);
	n = (uint64_t)gone->half[0].n + gone->half[1].n;
	pthread_mutex_unlock(&gone->lock);
	return n;
}
