/* LISTs and probes that are tried again. See retry_internal.h. */
#include "ufs/retry_internal.h"
#include "base/clock.h"

#define RETRY_PROBES_MAX 3u
#define RETRY_LISTS_MAX \
	8u /* failures in a row that are neither an overload nor a lost connection */
#define RETRY_LISTS_CAP_NS (250 * CLOCK_MS) /* a person waits for an error that is likely true */

static bool is_closing(struct retry *retry)
{
	bool closing;

	pthread_mutex_lock(&retry->lock);
	closing = retry->closing;
	pthread_mutex_unlock(&retry->lock);
	return closing;
}

int retry_list_page(struct ufs *ufs, const struct ufs_page_request *request, struct ufs_page *page,
	struct err *e)
{
	struct retry *retry = retry_of(ufs);
	uint64_t deadline = clock_mono_ns() + ufs->limits.deadline_ns;
	unsigned int refusals = 0;

	for (unsigned int attempt = 0;; attempt++) {
		int r = ufs_list_page(ufs->lower, request, page, e);
		uint64_t delay = retry_backoff_ns(attempt, page->retry_after_ns);

		refusals = retry_passes(r) ? 0 : refusals + 1;
		if (refusals)
			delay = min(delay, RETRY_LISTS_CAP_NS);
		if (r == 0 || retry_is_final(r) || refusals >= RETRY_LISTS_MAX ||
			is_closing(retry) || clock_mono_ns() + delay >= deadline)
			return r;
		counter_add(&ufs->counters->retries, 1);
		ufs_list_sleep(ufs, request, delay);
	}
}

/* A person waits: what may have been said by mistake is asked again, but not for long. */
static bool probe_again(int status)
{
	return status != 0 && !retry_is_final(status) && status != -ENOENT &&
	       status != -ETIMEDOUT && status != -ECONNREFUSED && status != -EHOSTUNREACH &&
	       status != -ENOMEM;
}

int retry_probe(struct ufs *ufs, struct err *e)
{
	for (unsigned int attempt = 1;; attempt++) {
		int r = ufs_probe(ufs->lower, e);

		if (!probe_again(r) || attempt == RETRY_PROBES_MAX)
			return r;
		counter_add(&ufs->counters->retries, 1);
		ufs_list_sleep(ufs, NULL, retry_backoff_ns(attempt - 1, 0));
	}
}
