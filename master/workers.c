/* Workers, as they describe themselves. See workers.h. */
#include "master/workers.h"
#include "base/cleanup.h"
#include "base/hash.h"
#include "base/map.h"
#include "master/events.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define TEXT_BYTES 256u

struct tier {
	char path[TEXT_BYTES];
	char kind[16];
	char state[16];
	char reason[TEXT_BYTES];
	uint64_t capacity;
	uint64_t used;
};

/* The last that one of them said; kept while it is a member. */
struct said {
	struct map_node by_id;
	uint64_t id;
	uint64_t heard_ns;
	uint64_t run;
	uint64_t uptime_s;
	char version[32];
	struct tier *tiers;
	uint32_t n_tiers;
	uint64_t capacity;
	uint64_t stalls[HISTORY_STALLS];
	uint64_t stall_ns[HISTORY_STALLS];
};

struct workers {
	struct membership *membership;
	pthread_mutex_t lock;
	struct map said;
};

struct workers *workers_new(struct membership *membership)
{
	struct workers *w = calloc(1, sizeof(*w));

	if (!w)
		return NULL;
	if (map_init(&w->said, PLACEMENT_MAX) < 0) {
		free(w);
		return NULL;
	}
	w->membership = membership;
	pthread_mutex_init(&w->lock, NULL);
	return w;
}

static void said_free(struct map_node *node, void *arg)
{
	struct workers *w = arg;
	struct said *said = container_of(node, struct said, by_id);

	map_remove(&w->said, node);
	free(said->tiers);
	free(said);
}

void workers_free(struct workers *w)
{
	if (!w)
		return;
	map_each(&w->said, said_free, w);
	map_release(&w->said);
	pthread_mutex_destroy(&w->lock);
	free(w);
}

struct membership *workers_membership(const struct workers *w)
{
	return w->membership;
}

static uint64_t id_hash(uint64_t id)
{
	return hash_xxh3(&id, sizeof(id), 0);
}

static struct said *find_locked(const struct workers *w, uint64_t id)
{
	for (struct map_node *node = map_first(&w->said, id_hash(id)); node;
		node = map_next_same(node)) {
		struct said *said = container_of(node, struct said, by_id);

		if (said->id == id)
			return said;
	}
	return NULL;
}

static void forget_others(struct map_node *node, void *arg)
{
	struct workers *w = arg;
	const struct said *said = container_of(node, struct said, by_id);
	char name[CLUSTER_NAME_BYTES];

	if (said->id && !membership_name(w->membership, said->id, name))
		said_free(node, w);
}

/* NULL without memory. There are no more than members, and some that were. */
static struct said *make_locked(struct workers *w, uint64_t id)
{
	struct said *said;

	if (w->said.count >= PLACEMENT_MAX)
		map_each(&w->said, forget_others, w);
	said = w->said.count < PLACEMENT_MAX ? calloc(1, sizeof(*said)) : NULL;
	if (!said)
		return NULL;
	said->id = id;
	map_insert(&w->said, &said->by_id, id_hash(id));
	return said;
}

/* ---- reports --------------------------------------------------------------------------------- */

static void take_text(char *out, size_t size, const char *from)
{
	(void)snprintf(out, size, "%s", from ? from : ""); /* cut: for people */
}

static void take_tier(struct tier *to, const Granary__TierReport *m)
{
	take_text(to->path, sizeof(to->path), m->path);
	take_text(to->kind, sizeof(to->kind), m->kind);
	take_text(to->state, sizeof(to->state), m->state);
	take_text(to->reason, sizeof(to->reason), m->reason);
	to->capacity = m->capacity;
	to->used = m->used;
}

/* Told of a tier that is not in the service that it was in before. */
static void note_tier(const struct said *said, const struct tier *tier, const char *name)
{
	bool ok = strcmp(tier->state, "ok") == 0;

	for (uint32_t i = 0; i < said->n_tiers; i++)
		if (strcmp(said->tiers[i].path, tier->path) == 0 &&
			strcmp(said->tiers[i].state, tier->state) == 0)
			return;
	if (ok && said->n_tiers == 0)
		return; /* of a worker that was not known: as it should be */
	event_note(ok ? EVENT_INFO : EVENT_WARN, "tier", tier->path, "%s: %s%s%s", name,
		tier->state, tier->reason[0] ? ": " : "", tier->reason);
}

/* Without memory: as they were. */
static void take_tiers_locked(struct said *said, const Granary__WorkerReport *m, const char *name)
{
	uint32_t n = (uint32_t)min(m->n_tiers, (size_t)WORKER_TIERS_MAX);
	struct tier *tiers = calloc(n + 1, sizeof(*tiers));

	if (!tiers)
		return;
	for (uint32_t i = 0; i < n; i++) {
		take_tier(&tiers[i], m->tiers[i]);
		note_tier(said, &tiers[i], name);
	}
	free(said->tiers);
	said->tiers = tiers;
	said->n_tiers = n;
}

static void take_stalls_locked(struct said *said, const Granary__WorkerReport *m)
{
	for (size_t i = 0; i < HISTORY_STALLS; i++) {
		said->stalls[i] = i < m->n_stalls ? m->stalls[i] : 0;
		said->stall_ns[i] = i < m->n_stall_ns ? m->stall_ns[i] : 0;
	}
}

/* One that is no member is not listened to; a report without an id is of the only one. */
void workers_report(struct workers *w, const Granary__WorkerReport *m)
{
	char name[CLUSTER_NAME_BYTES] = "worker-0";
	struct said *said;

	if (!w || (m->id && !membership_name(w->membership, m->id, name)))
		return;
	pthread_mutex_lock(&w->lock);
	said = find_locked(w, m->id);
	if (!said)
		said = make_locked(w, m->id);
	if (said) {
		take_tiers_locked(said, m, name);
		said->heard_ns = clock_mono_ns();
		said->run = m->run;
		said->uptime_s = m->uptime_s;
		said->capacity = m->capacity;
		take_text(said->version, sizeof(said->version), m->version);
		take_stalls_locked(said, m);
	}
	pthread_mutex_unlock(&w->lock);
}

struct sum {
	struct workers *w;
	struct history_cluster all;
};

static void add_said(struct map_node *node, void *arg)
{
	struct sum *sum = arg;
	const struct said *said = container_of(node, struct said, by_id);

	if (!membership_counts(sum->w->membership, said->id))
		return;
	sum->all.capacity += said->capacity;
	for (uint32_t i = 0; i < said->n_tiers; i++)
		sum->all.used += said->tiers[i].used;
	for (size_t i = 0; i < HISTORY_STALLS; i++)
		sum->all.stalls[i] += said->stalls[i];
}

void workers_sum(struct workers *w, struct history_cluster *ret_cluster)
{
	struct sum sum = { .w = w };

	pthread_mutex_lock(&w->lock);
	map_each(&w->said, add_said, &sum);
	pthread_mutex_unlock(&w->lock);
	*ret_cluster = sum.all;
}

uint64_t workers_used(struct workers *w, uint64_t id)
{
	const struct said *said;
	uint64_t used = 0;

	pthread_mutex_lock(&w->lock);
	said = find_locked(w, id);
	for (uint32_t i = 0; said && i < said->n_tiers; i++)
		used += said->tiers[i].used;
	pthread_mutex_unlock(&w->lock);
	return used;
}

/* ---- for people ------------------------------------------------------------------------------ */

static json_t *tiers_json(const struct said *said)
{
	json_t *all = json_array();

	for (uint32_t i = 0; i < said->n_tiers; i++) {
		const struct tier *t = &said->tiers[i];

		(void)json_array_append_new(all, /* failures are counted */
			json_pack("{s:o, s:o, s:o, s:o, s:I, s:I}", "path",
				admin_json_string(t->path), "kind", admin_json_string(t->kind),
				"state", admin_json_string(t->state), "reason",
				admin_json_string(t->reason), "capacity", (json_int_t)t->capacity,
				"used", (json_int_t)t->used));
	}
	return all;
}

static json_t *stalls_json(const uint64_t stalls[HISTORY_STALLS], uint64_t unit)
{
	return json_pack("{s:I, s:I, s:I, s:I}", "master", (json_int_t)(stalls[0] / unit), "memory",
		(json_int_t)(stalls[1] / unit), "disk", (json_int_t)(stalls[2] / unit), "origin",
		(json_int_t)(stalls[3] / unit));
}

/* As above, what follows, too. */
static void set(json_t *json, const char *name, json_t *value)
{
	(void)json_object_set_new(json, name, value);
}

static json_t *addresses_json(const struct membership_worker *one)
{
	json_t *all = json_array();

	for (uint32_t i = 0; i < one->member.n_addresses; i++)
		(void)json_array_append_new(all, admin_json_string(one->addresses[i]));
	return all;
}

/* That others use. */
static const char *address_of(const struct membership_worker *one)
{
	for (uint32_t i = 0; i < one->member.n_addresses; i++)
		if (strncmp(one->addresses[i], "unix:", 5) != 0)
			return one->addresses[i];
	return one->member.n_addresses ? one->addresses[0] : "";
}

static void add_report(json_t *json, const struct said *said, uint64_t now)
{
	set(json, "version", admin_json_string(said->version));
	set(json, "uptime_s",
		json_integer((json_int_t)(said->uptime_s + (now - said->heard_ns) / CLOCK_SECOND)));
	set(json, "capacity", json_integer((json_int_t)said->capacity));
	set(json, "tiers", tiers_json(said));
	set(json, "stalls", stalls_json(said->stalls, 1));
	set(json, "stall_s", stalls_json(said->stall_ns, CLOCK_SECOND));
}

/* Why it is not drained yet; NULL: its data is being handed over. */
static json_t *waits_for(const struct membership_worker *one)
{
	const struct member *m = &one->member;

	if (m->drained)
		return NULL;
	if (m->state == CLUSTER_DOWN || m->state == CLUSTER_OUT)
		return json_sprintf("worker %s is %s: start it; cachectl worker remove %s --force "
				    "fetches data stored only on it from the origin again",
			m->name, member_state_name(m), m->name);
	if (one->stuck)
		return json_string(
			"all other workers are full: start another, or increase the capacity of "
			"one; cachectl worker remove --force fetches what is left from the origin "
			"again");
	if (one->waiting)
		return json_sprintf(
			"worker %s is down and owns %u slots that are leaving worker %s: start it, "
			"or move them now with cachectl worker remove %s --force (automatic after "
			"--out-after)",
			one->waits_for, one->waiting, m->name, one->waits_for);
	if (!m->counted)
		return json_sprintf("counting data stored only on worker %s", m->name);
	return NULL;
}

static void add_drain(json_t *json, const struct membership_worker *one)
{
	const struct member *m = &one->member;
	json_t *why = m->drain ? waits_for(one) : NULL;

	set(json, "draining", json_boolean(m->drain));
	if (!m->drain)
		return;
	set(json, "drained", json_boolean(m->drained));
	if (m->counted || m->drained)
		set(json, "only_copies",
			json_integer((json_int_t)(m->drained ? 0 : m->only_copies)));
	if (why)
		set(json, "waits_for", why);
}

static json_t *worker_json(const struct membership_worker *one, const struct said *said)
{
	const struct member *m = &one->member;
	uint64_t now = clock_mono_ns();
	json_t *json = json_pack("{s:i, s:s, s:o, s:o, s:o, s:s, s:s, s:I, s:i, s:i, s:i, s:i}",
		"number", (int)m->number, "name", m->name, "id", json_sprintf("%016" PRIx64, m->id),
		"address", admin_json_string(address_of(one)), "addresses", addresses_json(one),
		"state", member_state_name(m), "domain", m->domain_name, "weight",
		(json_int_t)m->weight, "slots", (int)one->owned, "share", (int)one->share,
		"replicas", (int)one->replica, "leaving", (int)one->leaving);

	if (!json)
		return NULL;
	set(json, "joined_at", json_integer((json_int_t)m->joined_s));
	set(json, "version", admin_json_string(m->version));
	set(json, "capacity", json_integer((json_int_t)m->capacity));
	if (m->heard)
		set(json, "last_seen_s",
			json_integer((json_int_t)((now - min(now, m->heard_ns)) / CLOCK_SECOND)));
	set(json, "in_flight", json_integer((json_int_t)m->in_flight));
	set(json, "served_bytes", json_integer((json_int_t)m->served_bytes));
	set(json, "served_rate", json_integer((json_int_t)m->served_rate));
	set(json, "full", json_boolean(m->full));
	add_drain(json, one);
	if (said)
		add_report(json, said, now);
	return json;
}

int workers_json(struct workers *w, const char *name, json_t **ret_json, struct err *e)
{
	uint64_t failures = admin_json_failures();
	uint32_t n = 0;
	uint16_t number = 0;
	_cleanup_free_ struct membership_worker *all = membership_workers(w->membership, &n);
	json_t *json = NULL;
	int r = all ? 0 : -ENOMEM;

	if (r == 0 && name)
		r = membership_number(w->membership, name, &number, e);
	if (r < 0)
		return err_default(e, r, "out of memory");
	if (!name)
		json = json_array();
	pthread_mutex_lock(&w->lock);
	for (uint32_t i = 0; i < n; i++) {
		const struct said *said = find_locked(w, all[i].member.id);

		if (!name)
			(void)json_array_append_new(
				json, worker_json(&all[i], said)); /* as above */
		else if (all[i].member.number == number)
			json = worker_json(&all[i], said);
	}
	pthread_mutex_unlock(&w->lock);
	if (!json || admin_json_failures() != failures) { /* or it was removed just now */
		json_decref(json);
		return err_set(e, -ENOMEM, "out of memory");
	}
	*ret_json = json;
	return 0;
}
