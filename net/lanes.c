/* The lanes of a process. See lanes.h. */
#include "net/lanes.h"
#include "base/err.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>

struct slots {
	struct lane_memory memory;
	void **unused; /* a stack */
	unsigned int n;
	unsigned int n_unused;
};

static struct {
	pthread_mutex_t lock; /* of the stacks; a leaf */
	const struct lane_ops *ops;
	struct slots land;
	struct slots serve;
} lanes = { .lock = PTHREAD_MUTEX_INITIALIZER };

static void slots_release(struct slots *s)
{
	if (s->memory.base)
		(void)munmap(s->memory.base, s->memory.bytes); /* of ours */
	free(s->unused);
	*s = (struct slots){ 0 };
}

static int slots_init(struct slots *s, unsigned int n, unsigned int domain)
{
	void *base = mmap(NULL, (size_t)n * LANES_SLOT_BYTES, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (base == MAP_FAILED)
		return -ENOMEM;
	s->memory = (struct lane_memory){
		.base = base, .bytes = (size_t)n * LANES_SLOT_BYTES, .domains = domain
	};
	s->unused = calloc(n, sizeof(*s->unused));
	if (!s->unused)
		return -ENOMEM;
	s->n = n;
	while (s->n_unused < n) {
		s->unused[s->n_unused] = (char *)base + (size_t)s->n_unused * LANES_SLOT_BYTES;
		s->n_unused++;
	}
	return 0;
}

int lanes_start(const struct lanes_options *options)
{
	int r;

	ensure(!lanes.ops && options->slots > 0);
	r = slots_init(&lanes.land, options->slots, LANE_LAND);
	if (r == 0)
		r = slots_init(&lanes.serve, options->slots, LANE_SERVE);
	if (r < 0) {
		slots_release(&lanes.land);
		slots_release(&lanes.serve);
		return r;
	}
	lanes.ops = options->ops;
	ensure(lanes.ops->add(&lanes.land.memory) == 0 &&
		lanes.ops->add(&lanes.serve.memory) == 0); /* the first ones */
	return 0;
}

void lanes_stop(void)
{
	if (!lanes.ops)
		return;
	ensure(lanes.land.n_unused == lanes.land.n && lanes.serve.n_unused == lanes.serve.n);
	lanes.ops->remove(&lanes.land.memory);
	lanes.ops->remove(&lanes.serve.memory);
	lanes.ops = NULL;
	slots_release(&lanes.land);
	slots_release(&lanes.serve);
}

const struct lane_ops *lanes_ops(void)
{
	return lanes.ops;
}

static struct slots *slots_of(unsigned int domain)
{
	return domain == LANE_LAND ? &lanes.land : &lanes.serve;
}

void *lanes_take(unsigned int domain)
{
	struct slots *s = slots_of(domain);
	void *slot = NULL;

	pthread_mutex_lock(&lanes.lock);
	if (s->n_unused > 0)
		slot = s->unused[--s->n_unused];
	pthread_mutex_unlock(&lanes.lock);
	return slot;
}

void lanes_give(unsigned int domain, void *slot)
{
	struct slots *s = slots_of(domain);

	pthread_mutex_lock(&lanes.lock);
	ensure(s->n_unused < s->n);
	s->unused[s->n_unused++] = slot;
	pthread_mutex_unlock(&lanes.lock);
}

unsigned int lanes_used(unsigned int domain)
{
	struct slots *s = slots_of(domain);
	unsigned int n;

	pthread_mutex_lock(&lanes.lock);
	n = s->n - s->n_unused;
	pthread_mutex_unlock(&lanes.lock);
	return n;
}
