/* Who is in the cluster. See members.h. */
#include "base/hash.h"
#include "master/members_internal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- life ------------------------------------------------------------------------------------ */

int members_init(struct members *members, const struct members_config *config, uint64_t now)
{
	*members = (struct members){ .config = *config, .looked_ns = now, .back_ns = now };
	if (!members->config.down_after_ns)
		members->config.down_after_ns = MEMBER_DOWN_NS;
	return map_init(&members->ids, PLACEMENT_MAX);
}

void member_free(struct member *member)
{
	if (!member)
		return;
	for (uint32_t i = 0; i < member->n_addresses; i++)
		free(member->addresses[i]);
	free(member);
}

void members_release(struct members *members)
{
	for (uint32_t i = 0; i < members->top; i++)
		member_free(members->all[i]);
	map_release(&members->ids);
	*members = (struct members){ 0 };
}

/* ---- looking up ------------------------------------------------------------------------------ */

static uint64_t id_hash(uint64_t id)
{
	return hash_xxh3(&id, sizeof(id), 0);
}

/* Also one whose number rests. */
struct member *members_any_by_id(const struct members *members, uint64_t id)
{
	for (struct map_node *node = id ? map_first(&members->ids, id_hash(id)) : NULL; node;
		node = map_next_same(node)) {
		struct member *m = container_of(node, struct member, by_id);

		if (m->id == id)
			return m;
	}
	return NULL;
}

struct member *members_by_id(const struct members *members, uint64_t id)
{
	struct member *m = members_any_by_id(members, id);

	return m && !m->removed_s ? m : NULL;
}

bool members_is_gone(const struct members *members, uint64_t id)
{
	const struct member *m = members_any_by_id(members, id);

	return m && (m->removed_s || m->out);
}

bool member_is(const struct member *m)
{
	return m && !m->removed_s;
}

bool members_has_nameless(const struct members *members)
{
	for (uint32_t i = 0; i < members->top; i++)
		if (member_is(members->all[i]) && members->all[i]->id == 0)
			return true;
	return members->n == 0;
}

/* Owns slots, or is to. */
bool member_owns(const struct member *m)
{
	return member_is(m) && !m->drain && !m->out;
}

bool member_is_alive(const struct member *m)
{
	return m->heard && (m->state == CLUSTER_UP || m->state == CLUSTER_DRAINING);
}

bool members_another_owns(const struct members *members, const struct member *than, bool up)
{
	for (uint32_t i = 0; i < members->top; i++) {
		const struct member *m = members->all[i];

		if (m != than && member_owns(m) && (!up || m->state == CLUSTER_UP))
			return true;
	}
	return false;
}

static bool is_text(const struct member *m, const char *text)
{
	char number[16];
	char id[17];

	(void)snprintf(number, sizeof(number), "%u", m->number);
	(void)snprintf(id, sizeof(id), "%016" PRIx64, m->id);
	return strcmp(text, number) == 0 || strcmp(text, id) == 0;
}

int members_find(
	struct members *members, const char *text, struct member **ret_member, struct err *e)
{
	struct member *by_name = NULL;
	struct member *other = NULL;
	uint32_t n = 0;

	for (uint32_t i = 0; i < members->top; i++) {
		struct member *m = members->all[i];

		if (!member_is(m))
			continue;
		if (strcmp(m->name, text) == 0) {
			by_name = m;
			n++;
		} else if (is_text(m, text)) {
			other = m;
		}
	}
	if (n > 1)
		return err_set(e, -EEXIST,
			"%u workers have the name '%.63s': give a number, see cachectl worker list",
			n, text);
	if (!by_name && !other)
		return err_set(e, -ENOENT, "no worker '%.63s': see `cachectl worker list`", text);
	*ret_member = by_name ? by_name : other;
	return 0;
}

const char *member_state_name(const struct member *member)
{
	switch (member->state) {
	case CLUSTER_UP:
		return "up";
	case CLUSTER_DOWN:
		return "down";
	case CLUSTER_OUT:
		return "out";
	case CLUSTER_DRAINING:
		break;
	}
	return member->drained ? "drained" : "draining";
}

void members_count(const struct members *members, uint32_t ret_states[MEMBER_STATES])
{
	memset(ret_states, 0, MEMBER_STATES * sizeof(*ret_states));
	for (uint32_t i = 0; i < members->top; i++)
		if (member_is(members->all[i]))
			ret_states[members->all[i]->state]++;
}

uint32_t members_placement(
	const struct members *members, struct placement_worker out[PLACEMENT_MAX], bool *ret_any)
{
	uint32_t n = 0;

	*ret_any = false;
	for (uint32_t i = 0; i < members->top; i++) {
		const struct member *m = members->all[i];

		if (!member_is(m))
			continue;
		out[n++] = (struct placement_worker){ .number = m->number,
			.domain = m->domain,
			.weight = member_owns(m) ? m->weight : 0,
			.down = m->state == CLUSTER_DOWN,
			.id = m->id };
		*ret_any |= member_owns(m);
	}
	return n;
}

void members_pass_over(struct members *members)
{
	for (uint32_t i = 0; i < members->top; i++) {
		struct member *m = members->all[i];

		if (!member_owns(m) || m->state != CLUSTER_DOWN || m->passed_over)
			continue;
		m->passed_over = true;
		m->stored = false;
	}
}

/* ---- numbers and ids ------------------------------------------------------------------------- */

uint16_t members_domain(const struct members *members, const char *name)
{
	uint32_t next = 0;

	for (uint32_t i = 0; i < members->top; i++) {
		const struct member *m = members->all[i];

		if (!m)
			continue;
		if (strcmp(m->domain_name, name) == 0)
			return m->domain;
		next = max(next, m->domain + 1u);
	}
	return (uint16_t)min(
		next, (uint32_t)UINT16_MAX); /* numbers are used up: shared from there on */
}

void members_set_id(struct members *members, struct member *m, uint64_t id)
{
	if (m->id)
		map_remove(&members->ids, &m->by_id);
	m->id = id;
	if (m->id)
		map_insert(&members->ids, &m->by_id, id_hash(id));
}

int members_enter(struct members *members, struct member *m)
{
	if (m->number >= PLACEMENT_MAX || members->all[m->number] ||
		members_any_by_id(members, m->id)) {
		member_free(m);
		return -EBADMSG;
	}
	m->domain = members_domain(members, m->domain_name);
	members->all[m->number] = m;
	members->top = max(members->top, m->number + 1u);
	members->n += !m->removed_s;
	if (m->id)
		map_insert(&members->ids, &m->by_id, id_hash(m->id));
	return 0;
}

int members_seed(struct members *members, uint64_t now)
{
	struct member *m;

	if (members->all[0])
		return 0;
	m = calloc(1, sizeof(*m));
	if (!m)
		return -ENOMEM;
	(void)snprintf(m->name, sizeof(m->name), "worker-0");
	m->weight = 1;
	m->stored = true; /* nothing of it is */
	m->heard_ns = now + members->config.grace_ns;
	return members_enter(members, m);
}

/* ---- beats ----------------------------------------------------------------------------------- */

static void take_hot(struct member *m, const struct member_beat *beat)
{
	m->n_hot = 0;
	for (uint32_t i = 0; i + 1 < beat->n_hot && m->n_hot < MEMBER_HOT; i += 2) {
		if (beat->hot[i] >= PLACEMENT_SLOTS)
			continue;
		m->hot[m->n_hot] = (uint16_t)beat->hot[i];
		m->hot_kib[m->n_hot++] = beat->hot[i + 1];
	}
}

static void take_copies(struct members *members, struct member *m, const struct member_beat *beat)
{
	if (!m->drain)
		return;
	m->counted = beat->has_only_copies && beat->drain == m->drain_number;
	m->only_copies = beat->only_copies;
	if (!m->counted || m->only_copies > 0 || m->drained)
		return;
	m->drained = true;
	m->stored = false;
	member_note(m, EVENT_INFO, "is drained: nothing is on it alone");
	members_changed(members, m, false); /* to be stored */
}

struct member *members_beat(struct members *members, const struct member_beat *beat, uint64_t now)
{
	struct member *m = members_by_id(members, beat->id);

	if (!m || m->run != beat->run)
		return NULL;
	if (now > m->heard_ns && m->heard && beat->served_bytes >= m->served_bytes)
		m->served_rate =
			(uint64_t)min((double)(beat->served_bytes - m->served_bytes) *
					      (double)CLOCK_SECOND / (double)(now - m->heard_ns),
				0x1p62); /* whatever it says */
	m->served_bytes = beat->served_bytes;
	m->in_flight = beat->in_flight;
	m->full = beat->full;
	take_hot(m, beat);
	members_be_heard(members, m, now);
	take_copies(members, m, beat);
	return m;
}
