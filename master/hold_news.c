/* The answer to a mount's word about what it shows: what it should know. See service.h. */
#include "base/hash.h"
#include "master/service.h"
#include "proto/granary.pb-c.h"

#include <string.h>

/* One that was rolled back shows what it was rolled back to. */
static bool follows(
	const struct service *service, const Granary__Hold *m, const struct source_hold *hold)
{
	struct dataset d = { 0 };
	char uuid[DATASET_UUID_TEXT];
	bool yes;

	if (hold->follow_s > 0)
		return true;
	if (m->dataset.len != DATASET_UUID_BYTES || !service->datasets)
		return hold->since_ms > 0;
	hash_hex(m->dataset.data, DATASET_UUID_BYTES, uuid);
	if (dataset_set_find_uuid(service->datasets, uuid, &d, NULL) < 0)
		return false;
	yes = dataset_follows(&d, &hold->volume) ||
	      (hold->since_ms > 0 && !dataset_shown(&d, &hold->volume));
	dataset_release(&d);
	return yes;
}

static uint8_t *pack(const struct service *service, const Granary__Hold *asked,
	const struct source_hold *hold, const struct source_news *news, size_t *ret_len)
{
	Granary__HoldNews m = GRANARY__HOLD_NEWS__INIT;
	Granary__Policy policy = GRANARY__POLICY__INIT;
	Granary__Keepers keepers = GRANARY__KEEPERS__INIT;
	uint32_t numbers[SOURCE_NEWS_KEEPERS];
	uint8_t *packed;

	m.has_follow = m.has_lineage = m.has_generation = m.has_shown_ms = m.has_kept = 1;
	m.follow = follows(service, asked, hold);
	m.lineage = news->newest.lineage;
	m.generation = news->newest.generation;
	m.shown_ms = (uint64_t)news->shown_ms;
	m.kept = news->kept;
	m.has_now_ms = m.has_newest_ms = 1;
	m.newest_ms = (uint64_t)news->newest_ms;
	m.now_ms = (uint64_t)news->now_ms;
	m.has_cached_bytes = news->cached_known;
	m.cached_bytes = news->cached_bytes;
	policy.has_copies = policy.has_direct = 1;
	policy.copies = news->policy.copies;
	policy.direct = news->policy.direct;
	m.policy = asked->policy ? &policy : NULL;
	for (uint32_t i = 0; i < news->n_keepers; i++)
		numbers[i] = news->keepers[i];
	keepers.n_workers = news->n_keepers;
	keepers.workers = numbers;
	m.keepers = asked->policy && news->keepers_known ? &keepers : NULL;
	packed = malloc(granary__hold_news__get_packed_size(&m));
	if (packed)
		*ret_len = granary__hold_news__pack(&m, packed);
	return packed;
}

bool hold_news_answer(
	struct service *service, struct rpc_request *request, const struct source_hold *hold)
{
	Granary__Hold *m = granary__hold__unpack(NULL, request->frame.payload, request->payload);
	struct net_payload payload = NET_PAYLOAD_NONE;
	struct source_news news;
	uint8_t *packed = NULL;
	size_t len = 0;

	if (m && (m->news || m->policy) && source_set_news(service->sources, hold, &news) == 0)
		packed = pack(service, m, hold, &news, &len);
	if (m)
		granary__hold__free_unpacked(m, NULL);
	if (!packed)
		return false;
	payload.parts[0].data = packed;
	payload.parts[0].len = len;
	payload.n = 1;
	payload.release = free;
	payload.arg = packed;
	rpc_reply(request, 0, NULL, payload);
	return true;
}
