/* What the scrub tells and takes: GET and POST /v1/scrub. See scrub.h. */
#include "base/hash.h"
#include "cacheworker/scrub_internal.h"

#include <stdlib.h>
#include <string.h>

static const char *const kinds[] = {
	[SCRUB_DAMAGED] = "damaged",
	[SCRUB_CHANGED] = "changed at the origin",
	[SCRUB_DIFFERS] = "differs from the origin",
};

/* Pieces of damage that are there again. */
static uint64_t repaired(const struct scrub_tally *t)
{
	uint64_t n = 0;

	for (uint32_t i = 0; i < t->n_findings; i++)
		n += t->findings[i].kind == SCRUB_DAMAGED && t->findings[i].repaired;
	return n;
}

static json_t *findings_json(const struct scrub_tally *t)
{
	json_t *all = json_array();

	for (uint32_t i = 0; i < t->n_findings; i++) {
		const struct scrub_finding *f = &t->findings[i];
		json_t *key = json_string(f->key);

		if (!key) /* not UTF-8 */
			key = json_string("?");
		json_array_append_new(
			all, json_pack("{s:o, s:s, s:I, s:I, s:I, s:b}", "key", key, "kind",
				     kinds[f->kind], "chunk", (json_int_t)f->id.chunk, "offset",
				     (json_int_t)f->offset, "length", (json_int_t)f->length,
				     "repaired", (int)f->repaired));
	}
	return all;
}

static json_t *tally_json(const struct scrub_tally *t)
{
	uint64_t damaged = 0;

	for (uint32_t i = 0; i < t->n_findings; i++)
		damaged += t->findings[i].kind == SCRUB_DAMAGED;
	return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:o}", "chunks",
		(json_int_t)t->chunks, "pieces", (json_int_t)t->pieces, "bytes",
		(json_int_t)t->bytes, "bad_pieces", (json_int_t)t->bad, "places",
		(json_int_t)damaged, "repaired_places", (json_int_t)repaired(t), "unknown_chunks",
		(json_int_t)t->unknown, "sampled_units", (json_int_t)t->sampled, "changed_units",
		(json_int_t)t->changed, "differing_units", (json_int_t)t->differ, "failed_units",
		(json_int_t)t->failed, "findings", findings_json(t));
}

json_t *scrub_json(struct worker *w)
{
	struct scrub *s = w->scrub;
	uint64_t unverified = tier_set_unverified(w->tiers);
	json_t *json;

	pthread_mutex_lock(&s->lock);
	json = json_pack("{s:s, s:I, s:I, s:b, s:I, s:b, s:I, s:o, s:o}", "state", s->state, "rate",
		(json_int_t)atomic_load(&w->rates.scrub), "unverified_bytes",
		(json_int_t)unverified, "in_pass", (int)s->in_pass, "pass_started",
		(json_int_t)s->pass_started, "order_done",
		(int)(s->order_done && s->wanted.id == 0), "order",
		(json_int_t)(s->wanted.id ? s->wanted.id : s->order.id), "pass",
		tally_json(&s->pass), "ordered", tally_json(&s->ordered));
	pthread_mutex_unlock(&s->lock);
	return json;
}

int scrub_get(void *arg, const struct admin_request *request, json_t **ret_json, struct err *e)
{
	(void)request;
	*ret_json = scrub_json(arg);
	return *ret_json ? 0 : err_set(e, -ENOMEM, "no memory for the answer");
}

static int parse_order(const json_t *body, struct scrub_order *ret_order, struct err *e)
{
	const char *volume = json_string_value(json_object_get(body, "volume"));
	json_int_t rate = json_integer_value(json_object_get(body, "rate"));
	json_int_t sample = json_integer_value(json_object_get(body, "sample"));
	bool percent = json_is_true(json_object_get(body, "percent")); /* of an older cachectl */
	struct scrub_order order = {
		.rate = (uint64_t)rate,
		.sample = percent ? 0 : (uint64_t)sample,
		.sample_ratio = percent ? (double)sample / 100
					: json_number_value(json_object_get(body, "sample_ratio")),
		.sample_only = json_is_true(json_object_get(body, "sample_only")),
		.one_volume = volume != NULL,
	};

	if (rate < 0 || sample < 0 || !(order.sample_ratio >= 0 && order.sample_ratio <= 1) ||
		(volume && hash_unhex(volume, order.volume.bytes, VOLUME_ID_LEN) < 0))
		return err_set(e, -EINVAL,
			"invalid request: use {\"volume\": HEX, \"rate\": BYTES, \"sample\": "
			"UNITS, \"sample_ratio\": 0 to 1}, all optional");
	*ret_order = order;
	return 0;
}

int scrub_post(void *arg, const struct admin_request *request, json_t **ret_json, struct err *e)
{
	struct worker *w = arg;
	struct scrub *s = w->scrub;
	struct scrub_order order;
	bool busy;
	int r = parse_order(request->body, &order, e);

	if (r < 0)
		return r;
	pthread_mutex_lock(&s->lock);
	busy = s->wanted.id != 0 || (s->order.id != 0 && !s->order_done);
	if (!busy) {
		order.id = ++s->orders;
		s->wanted = order;
		pthread_cond_broadcast(&s->wake);
	}
	pthread_mutex_unlock(&s->lock);
	if (busy)
		return err_set(e, -EBUSY, "a scrub is already in progress: see cachectl status");
	*ret_json = json_pack("{s:I}", "order", (json_int_t)order.id);
	return *ret_json ? 0 : err_set(e, -ENOMEM, "no memory for the answer");
}
