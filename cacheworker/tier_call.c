/* Calls to tiers. See tier_call.h. */
#include "cacheworker/tier_call.h"
#include "base/timed_call.h"
#include "cacheworker/duty.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

int tier_call(struct worker *w, int (*run)(void *arg), void (*release)(void *arg), void *arg)
{
	const struct timed_call timed = {
		.pool = w->look, .timeout_ns = w->tier_call_ns, .run = run, .release = release
	};
	int r = timed_call(&timed, arg);

	if (r == -ETIMEDOUT)
		counter_add(&w->counters.stalled, 1);
	return r;
}

/* ---- calls ----------------------------------------------------------------------------------- */

struct call {
	struct tier_set *tiers;
	struct chunk_id id;
	struct tier_admission how;
	struct piece_run run;
	struct chunk *chunk;   /* referenced, as: */
	struct extent *extent; /* or NULL */
	int fd;
};

static void call_free(void *arg)
{
	struct call *call = arg;

	chunk_unref(call->chunk);
	tier_seal_unref(call->extent);
	if (call->fd >= 0)
		(void)close(call->fd); /* nothing was written */
	free(call);
}

static struct call *call_new(struct worker *w, struct chunk *chunk)
{
	struct call *call = calloc(1, sizeof(*call));

	if (!call)
		return NULL;
	call->tiers = w->tiers;
	call->chunk = chunk ? chunk_ref(chunk) : NULL;
	call->fd = -1;
	return call;
}

static int open_fd(void *arg)
{
	struct call *call = arg;

	return chunk_open_fd(call->chunk, &call->fd);
}

static int open_extent(void *arg)
{
	struct call *call = arg;

	return tier_seal_open_fd(call->extent, &call->fd);
}

/* Consumes the call. ret_fd: what it opened; NULL: nothing. */
static int call_tier(struct worker *w, int (*run)(void *arg), struct call *call, int *ret_fd)
{
	int r = tier_call(w, run, call_free, call);

	if (r == -ETIMEDOUT)
		return r; /* it frees itself when it ends */
	if (r == 0 && ret_fd) {
		*ret_fd = call->fd;
		call->fd = -1;
	}
	call_free(call);
	return r;
}

int tier_call_open_fd(struct worker *w, struct chunk *chunk, int *ret_fd)
{
	struct call *call = call_new(w, chunk);

	return call ? call_tier(w, open_fd, call, ret_fd) : -ENOMEM;
}

int tier_call_open_extent(struct worker *w, struct extent *extent, int *ret_fd)
{
	struct call *call = call_new(w, NULL);

	if (!call)
		return -ENOMEM;
	call->extent = tier_seal_ref(extent);
	return call_tier(w, open_extent, call, ret_fd);
}

static int recheck(void *arg)
{
	struct call *call = arg;

	return chunk_recheck(call->chunk, &call->run);
}

int tier_call_recheck(struct worker *w, struct chunk *chunk, const struct piece_run *run)
{
	struct call *call = call_new(w, chunk);

	if (!call)
		return -ENOMEM;
	call->run = *run;
	return call_tier(w, recheck, call, NULL);
}

static int admit(void *arg)
{
	struct call *call = arg;

	return tier_chunk_admit_as(call->tiers, &call->id, &call->how, &call->chunk);
}

int tier_call_admit(struct worker *w, const struct chunk_id *id)
{
	struct chunk *chunk = tier_chunk_find(w->tiers, id);
	struct call *call;

	chunk_unref(chunk);
	if (chunk)
		return 0;
	call = call_new(w, NULL);
	if (!call)
		return -ENOMEM;
	call->id = *id;
	call->how = (struct tier_admission){ .class = worker_class(w, &id->volume, id->chunk),
		.want = TIER_WANT_READ };
	return call_tier(w, admit, call, NULL);
}
