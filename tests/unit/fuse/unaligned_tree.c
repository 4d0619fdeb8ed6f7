#include "tests/unit/fuse/unaligned_tree.h"

#define LISTED 3u

_Atomic uint32_t unaligned_no_memory;

static int unaligned_range(
	struct tree *tree, void *scratch, const struct request *req, struct tree_range *ret)
{
	uint64_t at = (req->nodeid - REQUEST_EXTENT_NODE(0)) * EXTENT + req->read.offset;

	(void)tree;
	assert_int_equal(*(uint64_t *)scratch, 0);
	ret->skip = at % 4096;
	ret->offset = at - ret->skip;
	ret->size = req->read.size;
	ret->length = (ret->skip + ret->size + 4095) / 4096 * 4096;
	return 0;
}

static int unaligned_readdir(
	struct tree *tree, void *scratch, const struct request *req, struct tree_entries *entries)
{
	(void)tree;
	(void)scratch;
	(void)req;
	memset(entries->buf, 'e', 100);
	entries->len = 100;
	entries->given = min(entries->prime, (uint64_t)LISTED);
	return 0;
}

static int unaligned_getattr(struct tree *tree, void *scratch, uint64_t node, struct stat *ret)
{
	(void)tree;
	(void)scratch;
	if (atomic_load(&unaligned_no_memory) > 0) {
		atomic_fetch_sub(&unaligned_no_memory, 1);
		return -ENOMEM;
	}
	*ret = (struct stat){ .st_ino = node };
	return 0;
}

static uint64_t unaligned_give(struct tree *tree, uint64_t node)
{
	(void)tree;
	return node;
}

/* What it does not know is of a daemon before. */
static uint64_t unaligned_forget(struct tree *tree, uint64_t node, uint64_t lookups)
{
	(void)tree;
	return node == UNKNOWN_NODE ? 0 : lookups;
}

static const struct tree_ops unaligned_ops = {
	.getattr = unaligned_getattr,
	.give = unaligned_give,
	.forget = unaligned_forget,
	.range = unaligned_range,
	.readdir = unaligned_readdir,
};

struct tree unaligned_tree = { .ops = &unaligned_ops,
	.scratch_bytes = 8,
	.prime_max = 2 * LISTED + 1,
	.write_status = -EROFS };
