/* Parked requests for the slot table. See watch.h. */
#include "master/watch.h"

#include <stdatomic.h>
#include <stdlib.h>

void watch_init(struct watch *watch)
{
	watch->n = 0;
	list_init(&watch->parked);
}

bool watch_park(struct watch *watch, struct rpc_request *request, const struct watch_ask *ask)
{
	struct watch_ask *own;

	if (atomic_load(&request->cancelled))
		return false;
	own = malloc(sizeof(*own));
	if (!own)
		return false;
	*own = *ask;
	request->priv = own;
	list_push_back(&watch->parked, &request->link);
	watch->n++;
	return true;
}

bool watch_is_due(
	const struct watch_ask *ask, uint64_t epoch, uint64_t sequence, uint64_t news, uint64_t now)
{
	return ask->epoch != epoch || ask->sequence != sequence ||
	       (ask->wants_news && ask->news != news) || now >= ask->until_ns;
}

void watch_collect(struct watch *watch, uint64_t epoch, uint64_t sequence, uint64_t news,
	uint64_t now, struct list *ready)
{
	struct list *node = watch->parked.next;

	while (node != &watch->parked) {
		struct rpc_request *request = list_entry(node, struct rpc_request, link);

		node = node->next;
		if (!watch_is_due(request->priv, epoch, sequence, news, now))
			continue;
		list_remove(&request->link);
		list_push_back(ready, &request->link);
	}
}

struct rpc_request *watch_take(struct watch *watch, struct list *ready, struct watch_ask *ret_ask)
{
	struct list *node = list_pop_front(ready);
	struct rpc_request *request = node ? list_entry(node, struct rpc_request, link) : NULL;
	struct watch_ask *ask;

	if (!request)
		return NULL;
	ask = request->priv;
	request->priv = NULL;
	*ret_ask = *ask;
	free(ask);
	watch->n--;
	return request;
}

bool watch_cancelled(struct watch *watch, struct rpc_request *request)
{
	if (list_empty(&request->link))
		return false;
	list_remove(&request->link);
	free(request->priv);
	request->priv = NULL;
	watch->n--;
	return true;
}
