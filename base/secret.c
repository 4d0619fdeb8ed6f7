/* Pages of their own for secrets. See secret.h. */
#include "base/secret.h"

#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

/* Before the bytes of each. */
struct head {
	_Alignas(max_align_t) size_t mapped; /* with the head, whole pages */
};

void *secret_new(size_t n)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	size_t mapped = (sizeof(struct head) + n + page - 1) / page * page;
	struct head *head;

	if (n > SIZE_MAX / 2)
		return NULL;
	head = mmap(NULL, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (head == MAP_FAILED)
		return NULL;
	(void)madvise(head, mapped, MADV_DONTDUMP); /* whole pages, just mapped: cannot fail */
	head->mapped = mapped;
	return head + 1;
}

char *secret_text(const char *text, size_t len)
{
	char *secret = secret_new(len + 1);

	if (secret)
		memcpy(secret, text, len);
	return secret;
}

void secret_free(void *secret)
{
	struct head *head;
	size_t mapped;

	if (!secret)
		return;
	head = (struct head *)secret - 1;
	mapped = head->mapped;
	explicit_bzero(head, mapped);
	(void)munmap(head, mapped); /* just what was mapped */
}

void secret_release_buf(struct buf *b)
{
	if (b->data)
		explicit_bzero(b->data, b->cap);
	buf_release(b);
}

void secret_hide_process(void)
{
	(void)prctl(PR_SET_DUMPABLE, 0, 0, 0, 0); /* a value that exists: cannot fail */
}
