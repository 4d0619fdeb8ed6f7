#include "tests/unit/cacheworker/freeze.h"

static void run_freeze(struct loop_task *task)
{
	struct freeze *freeze = container_of(task, struct freeze, task);

	pthread_mutex_lock(&freeze->lock);
	pthread_mutex_unlock(&freeze->lock);
}

void freeze_begin(struct freeze *freeze, struct cluster *c, uint32_t i)
{
	struct worker *w = &c->nodes[i].worker;

	for (uint32_t k = 0; k < NODES; k++)
		view_set_hangs(c->nodes[k].worker.view, VIEW_HANGS);
	*freeze = (struct freeze){ .task.run = run_freeze, .loop = w->loop };
	pthread_mutex_init(&freeze->lock, NULL);
	pthread_mutex_lock(&freeze->lock);
	loop_post(w->loop, &freeze->task);
}

static void run_nothing(void *arg)
{
	(void)arg;
}

void freeze_end(struct freeze *freeze, struct cluster *c, uint32_t i)
{
	for (uint32_t k = 0; k < NODES; k++)
		view_set_hangs(
			c->nodes[k].worker.view, VIEW_HANGS * c->nodes[k].config.peer_patience);
	pthread_mutex_unlock(&freeze->lock);
	loop_call(freeze->loop, run_nothing, NULL);
	pthread_mutex_destroy(&freeze->lock);
	for (uint32_t k = 0; k < NODES; k++)
		test_wait(k == i || !view_hangs(view_peer(c->nodes[k].worker.view, (uint16_t)i)));
}
