/* Memory for O_DIRECT. See direct.h. */
#include "base/direct.h"
#include "base/check.h"

#include <stdlib.h>
#include <sys/mman.h>

void *direct_buffer_new(size_t bytes)
{
	void *buffer = aligned_alloc(DIRECT_PAGE_BYTES, align_up(bytes, (size_t)DIRECT_PAGE_BYTES));
	size_t huge = align_down(bytes, (size_t)DIRECT_PAGE_BYTES);

	if (buffer && huge)
		/* Small pages work, too. */
		(void)madvise(buffer, huge, MADV_HUGEPAGE);
	return buffer;
}
