/* Joining a cluster, and living in it. See member.h. */
#include "cacheworker/member.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/units.h"
#include "base/version.h"
#include "cacheworker/handover.h"
#include "cacheworker/kept.h"
#include "cacheworker/master_call.h"
#include "cacheworker/retention.h"
#include "placement/placement.h"
#include "proto/granary.pb-c.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PATIENCE     (3 * CLOCK_SECOND)
#define JOIN_AGAIN   (CLOCK_SECOND)      /* no answer */
#define REFUSED      (5 * CLOCK_SECOND)  /* it may help to wait */
#define REMOVED      (30 * CLOCK_SECOND) /* an operator did that */
#define BEAT_DEFAULT 1000u               /* ms */
#define BEAT_MAX     60000u
#define HOT_MAX      16u
#define HOT_LEAST    1024u /* KiB a second that are worth telling */

/* ---- messages -------------------------------------------------------------------------------- */

static uint64_t capacity_of(const struct worker *w)
{
	uint64_t capacity = 0;

	for (uint32_t i = 0; i < tier_set_count(w->tiers); i++) {
		struct tier_status status;

		tier_set_status(w->tiers, i, &status);
		capacity += status.capacity;
	}
	return capacity;
}

/* A host's name as a worker's. */
static void name_of_host(char out[CLUSTER_NAME_BYTES])
{
	size_t n;

	if (gethostname(out, CLUSTER_NAME_BYTES) < 0)
		out[0] = '\0';
	out[CLUSTER_NAME_BYTES - 1] = '\0';
	for (n = 0; out[n]; n++)
		if (!isalnum((unsigned char)out[n]) && !strchr("._-", out[n]))
			out[n] = '-';
	if (n == 0)
		memcpy(out, "worker", sizeof("worker"));
}

static int call(struct worker *w, enum frame_op op, const void *packed, size_t len,
	struct master_answer *ret_answer, struct err *e)
{
	const struct frame frame = { .op = (uint8_t)op };

	return master_call(w, frame, packed, len, PATIENCE, ret_answer, e);
}

static int join(struct worker *w, uint32_t *ret_beat_ms, struct err *e)
{
	const struct member_config *config = &w->config->member;
	_cleanup_(master_answer_release) struct master_answer answer = { .fd = -1 };
	_cleanup_free_ uint8_t *packed = NULL;
	uint8_t host[CLUSTER_HOST_BYTES];
	Granary__Join m = GRANARY__JOIN__INIT;
	Granary__Joined *joined;
	int r;

	cluster_host(host);
	m.has_id = m.has_run = m.has_capacity = m.has_weight = m.has_host = 1;
	m.id = w->member.id;
	m.run = w->retention.run;
	m.name = w->member.name;
	m.capacity = capacity_of(w);
	m.weight = config->weight;
	m.domain = (char *)(uintptr_t)(config->domain ? config->domain : ""); /* read only */
	m.host = (ProtobufCBinaryData){ sizeof(host), host };
	m.version = (char *)(uintptr_t)GRANARY_VERSION; /* read only */
	m.addresses = w->member.addresses;
	m.n_addresses = w->member.n_addresses;
	packed = malloc(granary__join__get_packed_size(&m) + 1);
	if (!packed)
		return err_set(e, -ENOMEM, "no memory to join the cluster");
	r = call(w, FRAME_JOIN, packed, granary__join__pack(&m, packed), &answer, e);
	if (r < 0)
		return r;
	joined = granary__joined__unpack(NULL, answer.reply.payload, answer.payload);
	if (!joined)
		return err_set(e, -EBADMSG,
			"invalid answer of the master; use the same version on both sides");
	*ret_beat_ms = joined->beat_ms ? min(joined->beat_ms, BEAT_MAX) : BEAT_DEFAULT;
	granary__joined__free_unpacked(joined, NULL);
	return 0;
}

/* The hottest slots since the last time, in pairs with their rates. */
static size_t take_hot(struct member *member, uint64_t over_ns, uint32_t out[2 * HOT_MAX])
{
	uint64_t ms = max(over_ns / CLOCK_MS, 1ull);
	size_t n = 0;

	for (uint32_t slot = 0; slot < PLACEMENT_SLOTS; slot++) {
		uint32_t kib = atomic_load_explicit(&member->rates[slot], memory_order_relaxed);
		uint32_t least = 0;
		uint64_t rate;

		if (kib == 0)
			continue;
		atomic_fetch_sub(&member->rates[slot], kib);
		rate = kib * 1000ull / ms;
		if (rate < HOT_LEAST)
			continue;
		if (n < HOT_MAX) {
			least = (uint32_t)n++;
		} else {
			for (uint32_t i = 1; i < HOT_MAX; i++)
				if (out[2 * i + 1] < out[2 * least + 1])
					least = i;
			if (out[2 * least + 1] >= rate)
				continue;
		}
		out[2 * least] = slot;
		out[2 * least + 1] = (uint32_t)min(rate, (uint64_t)UINT32_MAX);
	}
	return 2 * n;
}

/* True: it is another. */
static bool take_drain(struct member *member, uint32_t drain)
{
	bool other;

	pthread_mutex_lock(&member->lock);
	other = atomic_exchange(&member->drain, drain) != drain;
	if (other)
		member->only_copies = MEMBER_UNCOUNTED;
	pthread_mutex_unlock(&member->lock);
	return other;
}

static void follow(struct worker *w, const Granary__BeatAnswer *m)
{
	uint64_t epoch;
	uint64_t sequence;

	view_version(w->view, &epoch, &sequence);
	if (m->epoch > epoch || (m->epoch == epoch && m->sequence > sequence))
		view_stale(w->view);
	if (take_drain(&w->member, !m->drain ? MEMBER_NO_DRAIN : max(m->drain_number, 1u)))
		handover_wake(w);
	if (m->news > atomic_exchange(&w->member.news, m->news))
		retention_wake(w);
}

/* *ret_known: the master knows this worker. */
static int beat(struct worker *w, uint64_t over_ns, bool *ret_known, struct err *e)
{
	_cleanup_(master_answer_release) struct master_answer answer = { .fd = -1 };
	struct member *member = &w->member;
	Granary__Beat m = GRANARY__BEAT__INIT;
	Granary__BeatAnswer *known;
	uint32_t hot[2 * HOT_MAX];
	uint8_t packed[512];
	int r;

	m.has_id = m.has_run = m.has_number = m.has_in_flight = m.has_served_bytes = m.has_full = 1;
	m.id = member->id;
	m.run = w->retention.run;
	m.number = view_self(w->view);
	m.in_flight = atomic_load(&member->in_flight);
	m.served_bytes = counter_get(&member->served_bytes);
	m.full = tier_set_full(w->tiers);
	m.hot = hot;
	m.n_hot = take_hot(member, over_ns, hot);
	pthread_mutex_lock(&member->lock);
	m.drain = member->drain;
	m.only_copies = member->only_copies;
	pthread_mutex_unlock(&member->lock);
	m.has_drain = m.drain != MEMBER_NO_DRAIN;
	m.has_only_copies = m.has_drain && m.only_copies != MEMBER_UNCOUNTED;
	ensure(granary__beat__get_packed_size(&m) <= sizeof(packed));
	r = call(w, FRAME_BEAT, packed, granary__beat__pack(&m, packed), &answer, e);
	if (r < 0)
		return r;
	known = granary__beat_answer__unpack(NULL, answer.reply.payload, answer.payload);
	if (!known)
		return err_set(e, -EBADMSG,
			"invalid answer of the master; use the same version on both sides");
	*ret_known = !known->unknown;
	if (!known->unknown)
		follow(w, known);
	granary__beat_answer__free_unpacked(known, NULL);
	return 0;
}

/* ---- the work -------------------------------------------------------------------------------- */

/* Said once for each kind. */
static void note_trouble(struct member *member, int r, const char *what, const char *text)
{
	if (r != member->said && r != -ECANCELED)
		log_warn("not in the cluster",
			"while=%s error=%s reason=\"%s\" next=\"tried again; the present slot "
			"table stays in use\"",
			what, err_name(r), text);
	member->said = r;
}

static void note_heard(struct member *member)
{
	if (member->said != 0)
		log_info("in the cluster again", "name=%s", member->name);
	member->said = 0;
}

static uint64_t pause_after(int r)
{
	if (r == -EPERM)
		return REMOVED;
	return r == -EEXIST || r == -EOPNOTSUPP || r == -EINVAL ? REFUSED : JOIN_AGAIN;
}

/* Time until the next try. */
static uint64_t try_to_join(struct worker *w)
{
	struct member *member = &w->member;
	struct err e = ERR_INIT;
	int r;

	member->beat_ms = BEAT_DEFAULT;
	r = join(w, &member->beat_ms, &e);
	if (r < 0) {
		note_trouble(member, r, "joining", e.text);
		return pause_after(r);
	}
	member->said = 0;
	member->joined = true;
	member->beat_ns = clock_mono_ns();
	log_info("joined the cluster", "name=%s id=%016llx", member->name,
		(unsigned long long)member->id);
	view_stale(w->view);
	return member->beat_ms * CLOCK_MS;
}

static uint64_t send_beat(struct worker *w)
{
	struct member *member = &w->member;
	uint64_t now = clock_mono_ns();
	struct err e = ERR_INIT;
	int r = beat(w, now - member->beat_ns, &member->joined, &e);

	member->beat_ns = now;
	if (r < 0)
		note_trouble(member, r, "beating", e.text);
	else if (member->joined) /* else it has to join again, and may not */
		note_heard(member);
	return member->joined ? member->beat_ms * CLOCK_MS : 0;
}

static uint64_t run(void *arg)
{
	struct worker *w = arg;

	if (atomic_load(&w->member.closing))
		return PERIODIC_IDLE;
	return w->member.joined ? send_beat(w) : try_to_join(w);
}

int member_init(struct worker *w, struct err *e)
{
	struct member *member = &w->member;
	const struct member_config *config = &w->config->member;

	pthread_mutex_init(&member->lock, NULL);
	member->open = true;
	member->only_copies = MEMBER_UNCOUNTED;
	if (config->name)
		(void)snprintf(member->name, sizeof(member->name), "%s", config->name);
	else
		name_of_host(member->name);
	member->rates = calloc(PLACEMENT_SLOTS, sizeof(*member->rates));
	if (!member->rates)
		return err_set(e, -ENOMEM, "no memory for the rates of slots");
	return kept_worker_id(w, &member->id, e);
}

int member_keep_addresses(struct worker *w)
{
	const struct member_config *config = &w->config->member;
	struct member *member = &w->member;
	uint32_t n = config->n_advertise ? config->n_advertise : w->servers.n;

	for (uint32_t i = 0; i < min(n, MEMBER_ADDRESSES); i++) {
		const char *address = config->n_advertise ? config->advertise[i]
							  : rpc_server_address(w->servers.all[i]);

		member->addresses[i] = strdup(address);
		if (!member->addresses[i])
			return -ENOMEM;
		member->n_addresses++;
	}
	return 0;
}

void member_start(struct worker *w)
{
	w->member.work = (struct periodic_work){ .name = "member", .run = run, .arg = w };
	periodic_start(w->work, &w->member.work, 0);
}

void member_stop(struct worker *w)
{
	atomic_store(&w->member.closing, true);
}

void member_close(struct worker *w)
{
	struct member *member = &w->member;

	if (!member->open)
		return;
	periodic_stop(&member->work);
	free(TAKE(member->rates));
	while (member->n_addresses > 0)
		free(member->addresses[--member->n_addresses]);
	pthread_mutex_destroy(&member->lock);
	member->open = false;
}

/* ---- for others ------------------------------------------------------------------------------ */

void member_note_served(struct worker *w, uint32_t slot, uint64_t bytes)
{
	counter_add(&w->member.served_bytes, bytes);
	(void)atomic_fetch_add_explicit(&w->member.rates[slot % PLACEMENT_SLOTS],
		(uint32_t)min(bytes / KiB, (uint64_t)UINT32_MAX / 2), memory_order_relaxed);
}

uint32_t member_drain(const struct worker *w)
{
	return atomic_load(&w->member.drain);
}

bool member_draining(const struct worker *w)
{
	return member_drain(w) != MEMBER_NO_DRAIN;
}

void member_set_only_copies(struct worker *w, uint32_t drain, uint64_t bytes)
{
	struct member *member = &w->member;

	pthread_mutex_lock(&member->lock);
	if (drain != MEMBER_NO_DRAIN && atomic_load(&member->drain) == drain)
		member->only_copies = bytes;
	pthread_mutex_unlock(&member->lock);
}
