/* Memory for O_DIRECT. See direct.h. */
#include "base/direct.h"
#include "base/check.h"

#include <stdlib.h>
#include <sys/mman.h>

void *direct_buffer_new(size_t bytes)
{
	size_t whole = align_up(bytes, (size_t)DIRECT_PAGE_BYTES);
	void *buffer = aligned_alloc(DIRECT_PAGE_BYTES, whole);

	if (buffer)
		/* Small pages do as well. */
		(void)madvise(buffer, whole, MADV_HUGEPAGE);
	return buffer;
}
