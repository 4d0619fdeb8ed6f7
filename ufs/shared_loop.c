/* The loop of all decorators. See shared_loop.h. */
#include "ufs/shared_loop.h"
#include "base/cleanup.h"

#include <pthread.h>

static struct {
	pthread_mutex_t lock;
	struct loop *loop;
	unsigned int users;
} shared = { .lock = PTHREAD_MUTEX_INITIALIZER };

struct loop *shared_loop_get(void)
{
	struct loop *loop;

	pthread_mutex_lock(&shared.lock);
	if (!shared.loop)
		shared.loop = loop_new("ufs");
	shared.users += shared.loop != NULL;
	loop = shared.loop;
	pthread_mutex_unlock(&shared.lock);
	return loop;
}

static void nothing(void *arg)
{
	(void)arg;
}

void shared_loop_put(struct loop *loop)
{
	struct loop *last = NULL;

	if (!loop)
		return;
	ensure(!loop_on_thread(loop));
	loop_call(loop, nothing, NULL); /* after all that was posted before */
	pthread_mutex_lock(&shared.lock);
	if (--shared.users == 0)
		last = TAKE(shared.loop);
	pthread_mutex_unlock(&shared.lock);
	loop_free(last);
}
