/* Who is up, down and out. See members.h. */
#include "base/log.h"
#include "master/events.h"
#include "master/members_internal.h"

#include <inttypes.h>

#define DID_NOT_RUN_NS  (2 * MEMBER_BEAT_NS) /* between two looks: this master, and not the others */
#define OUT_TOGETHER_NS (MEMBER_BEAT_NS + MEMBER_BEAT_NS / 2)

void members_changed(struct members *members, const struct member *m, bool moves)
{
	if (members->on_change)
		members->on_change(members->arg, m, moves);
}

void member_note(const struct member *m, enum event_level level, const char *what)
{
	event_note(level, "worker", m->name, "%s (number %u, %s)", what, m->number,
		m->n_addresses ? m->addresses[0] : "no address");
	if (level == EVENT_INFO)
		log_info("worker", "name=%s number=%u state=\"%s\"", m->name, m->number, what);
	else
		log_warn("worker", "name=%s number=%u state=\"%s\"", m->name, m->number, what);
}

void members_set_state(struct members *members, struct member *m, enum cluster_state state)
{
	static const char *const said[] = {
		[CLUSTER_UP] = "is up",
		[CLUSTER_DOWN] = "is silent: deputies serve its slots",
		[CLUSTER_OUT] = "is out: its slots have other owners now",
		[CLUSTER_DRAINING] = "is drained: its slots have other owners",
	};

	if (m->state == state)
		return;
	member_note(m, state == CLUSTER_DOWN || state == CLUSTER_OUT ? EVENT_ERROR : EVENT_INFO,
		said[state]);
	m->state = state;
	if (state == CLUSTER_DOWN || state == CLUSTER_OUT) {
		m->in_flight = 0; /* what it said last is not so any more */
		m->served_rate = 0;
	}
	members_changed(members, m, false);
}

enum cluster_state member_alive_state(const struct member *m)
{
	return m->drain ? CLUSTER_DRAINING : CLUSTER_UP;
}

void members_be_heard(struct members *members, struct member *m, uint64_t now)
{
	m->heard = true;
	m->heard_ns = now;
	if (m->out || m->passed_over) {
		m->stored = false;
		m->out = m->passed_over = false;
		members_set_state(members, m, member_alive_state(m));
		members_changed(members, m, true);
		return;
	}
	members_set_state(members, m, member_alive_state(m));
}

/* This master was stopped, or its machine slept: what others said meanwhile it could not hear. */
static void make_up_for(struct members *members, uint64_t gap)
{
	log_info("members not watched for a while",
		"ms=%" PRIu64 " next=\"no worker is marked down for it\"",
		(uint64_t)(gap / CLOCK_MS));
	for (uint32_t i = 0; i < members->top; i++)
		if (members->all[i]) {
			members->all[i]->heard_ns += gap;
			members->all[i]->down_ns += gap;
		}
}

static void look_down(struct members *members, uint64_t now)
{
	bool any = false;

	for (uint32_t i = 0; i < members->top; i++) {
		struct member *m = members->all[i];

		if (!member_is(m) || m->state == CLUSTER_OUT)
			continue;
		if (m->state != CLUSTER_DOWN && now > m->heard_ns &&
			now - m->heard_ns > members->config.down_after_ns) {
			members_set_state(members, m, CLUSTER_DOWN);
			m->down_ns = now;
		}
		any |= m->state != CLUSTER_DOWN && m->heard;
	}
	if (any && members->silent)
		members->back_ns = now;
	members->silent = !any;
}

/* Is it to be out, if not now then within `early`? */
static bool is_overdue(
	const struct members *members, const struct member *m, uint64_t now, uint64_t early)
{
	uint64_t since = max(m->down_ns, members->back_ns);

	return member_is(m) && m->state == CLUSTER_DOWN &&
	       now + early >= since + members->config.out_after_ns &&
	       members_another_owns(members, m, false);
}

/* What went together, a rack, was heard of last at different times, a beat apart at most: it is out together, too,
 * which is one new table. */
static void look_out(struct members *members, uint64_t now)
{
	bool any = false;

	for (uint32_t i = 0; i < members->top && !any; i++)
		any = members->all[i] && is_overdue(members, members->all[i], now, 0);
	for (uint32_t i = 0; i < members->top && any; i++) {
		struct member *m = members->all[i];

		if (!m || !is_overdue(members, m, now, OUT_TOGETHER_NS))
			continue;
		m->out = true;
		m->stored = false;
		members_set_state(members, m, CLUSTER_OUT);
		members_changed(members, m, true);
	}
}

void members_look(struct members *members, uint64_t now)
{
	uint64_t gap = now > members->looked_ns ? now - members->looked_ns : 0;

	members->looked_ns = now;
	if (gap > DID_NOT_RUN_NS)
		make_up_for(members, gap);
	look_down(members, now);
	if (!members->silent) /* else it is this master that is cut off */
		look_out(members, now);
}
