/* Who is in the cluster. See members.h. */
#include "master/members.h"
#include "admin/admin.h"
#include "base/address.h"
#include "base/cleanup.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/units.h"
#include "master/events.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define DID_NOT_RUN_NS  (2 * MEMBER_BEAT_NS) /* between two looks: this master, and not the others */
#define OUT_TOGETHER_NS (MEMBER_BEAT_NS + MEMBER_BEAT_NS / 2)
#define WEIGHT_SLACK    10u /* a tenth: free bytes of a disk come and go */

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
static struct member *find_id(const struct members *members, uint64_t id)
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
	struct member *m = find_id(members, id);

	return m && !m->removed_s ? m : NULL;
}

bool members_is_gone(const struct members *members, uint64_t id)
{
	const struct member *m = find_id(members, id);

	return m && (m->removed_s || m->out);
}

static bool is_member(const struct member *m)
{
	return m && !m->removed_s;
}

bool members_has_nameless(const struct members *members)
{
	for (uint32_t i = 0; i < members->top; i++)
		if (is_member(members->all[i]) && members->all[i]->id == 0)
			return true;
	return members->n == 0;
}

/* Owns slots, or is to. */
static bool owns(const struct member *m)
{
	return is_member(m) && !m->drain && !m->out;
}

static bool is_alive(const struct member *m)
{
	return m->heard && (m->state == CLUSTER_UP || m->state == CLUSTER_DRAINING);
}

static bool another_owns(const struct members *members, const struct member *than, bool up)
{
	for (uint32_t i = 0; i < members->top; i++) {
		const struct member *m = members->all[i];

		if (m != than && owns(m) && (!up || m->state == CLUSTER_UP))
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

		if (!is_member(m))
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
			"%u workers are called '%.63s': say which by its number, of cachectl "
			"worker list",
			n, text);
	if (!by_name && !other)
		return err_set(e, -ENOENT,
			"there is no worker '%.63s': cachectl worker list shows which there are",
			text);
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
		if (is_member(members->all[i]))
			ret_states[members->all[i]->state]++;
}

uint32_t members_placement(
	const struct members *members, struct placement_worker out[PLACEMENT_MAX], bool *ret_any)
{
	uint32_t n = 0;

	*ret_any = false;
	for (uint32_t i = 0; i < members->top; i++) {
		const struct member *m = members->all[i];

		if (!is_member(m))
			continue;
		out[n++] = (struct placement_worker){ .number = m->number,
			.domain = m->domain,
			.weight = owns(m) ? m->weight : 0,
			.id = m->id };
		*ret_any |= owns(m);
	}
	return n;
}

/* ---- states ---------------------------------------------------------------------------------- */

static void changed(struct members *members, const struct member *m, bool moves)
{
	if (members->on_change)
		members->on_change(members->arg, m, moves);
}

static void note(const struct member *m, enum event_level level, const char *what)
{
	event_note(level, "worker", m->name, "%s (number %u, %s)", what, m->number,
		m->n_addresses ? m->addresses[0] : "no address");
	if (level == EVENT_INFO)
		log_info("worker", "name=%s number=%u state=\"%s\"", m->name, m->number, what);
	else
		log_warn("worker", "name=%s number=%u state=\"%s\"", m->name, m->number, what);
}

static void set_state(struct members *members, struct member *m, enum cluster_state state)
{
	static const char *const said[] = {
		[CLUSTER_UP] = "is up",
		[CLUSTER_DOWN] = "is not heard of any more: deputies serve what it owns",
		[CLUSTER_OUT] = "is out: what it owned is owned by others now",
		[CLUSTER_DRAINING] = "is drained: others own what it owned",
	};

	if (m->state == state)
		return;
	note(m, state == CLUSTER_DOWN || state == CLUSTER_OUT ? EVENT_ERROR : EVENT_INFO,
		said[state]);
	m->state = state;
	changed(members, m, false);
}

static enum cluster_state alive_state(const struct member *m)
{
	return m->drain ? CLUSTER_DRAINING : CLUSTER_UP;
}

/* It is heard of: whatever it was, it is there. */
static void be_heard(struct members *members, struct member *m, uint64_t now)
{
	m->heard = true;
	m->heard_ns = now;
	if (m->out) {
		m->out = false;
		m->stored = false;
		set_state(members, m, alive_state(m));
		changed(members, m, true);
		return;
	}
	set_state(members, m, alive_state(m));
}

/* This master was stopped, or its machine slept: what others said meanwhile it could not hear. */
static void make_up_for(struct members *members, uint64_t gap)
{
	log_info("members not watched for a while",
		"ms=%" PRIu64 " next=\"nobody is called down for it\"", (uint64_t)(gap / CLOCK_MS));
	for (uint32_t i = 0; i < members->top; i++)
		if (members->all[i]) {
			members->all[i]->heard_ns += gap;
			members->all[i]->down_ns += gap;
		}
}

static void look_down(struct members *members, uint64_t now)
{
	bool anybody = false;

	for (uint32_t i = 0; i < members->top; i++) {
		struct member *m = members->all[i];

		if (!is_member(m) || m->state == CLUSTER_OUT)
			continue;
		if (m->state != CLUSTER_DOWN && now > m->heard_ns &&
			now - m->heard_ns > members->config.down_after_ns) {
			set_state(members, m, CLUSTER_DOWN);
			m->down_ns = now;
		}
		anybody |= m->state != CLUSTER_DOWN && m->heard;
	}
	if (anybody && members->nobody)
		members->back_ns = now;
	members->nobody = !anybody;
}

/* Is it to be out, if not now then within `early`? */
static bool is_overdue(
	const struct members *members, const struct member *m, uint64_t now, uint64_t early)
{
	uint64_t since = max(m->down_ns, members->back_ns);

	return is_member(m) && m->state == CLUSTER_DOWN &&
	       now + early >= since + members->config.out_after_ns &&
	       another_owns(members, m, false);
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
		set_state(members, m, CLUSTER_OUT);
		changed(members, m, true);
	}
}

void members_look(struct members *members, uint64_t now)
{
	uint64_t gap = now > members->looked_ns ? now - members->looked_ns : 0;

	members->looked_ns = now;
	if (gap > DID_NOT_RUN_NS)
		make_up_for(members, gap);
	look_down(members, now);
	if (!members->nobody) /* else it is this master that is cut off */
		look_out(members, now);
}

/* ---- joining --------------------------------------------------------------------------------- */

static bool is_name(const char *text, bool may_be_empty)
{
	size_t len = text ? strlen(text) : 0;

	if (len == 0)
		return may_be_empty && text;
	if (len >= CLUSTER_NAME_BYTES)
		return false;
	for (size_t i = 0; i < len; i++)
		if (!isalnum((unsigned char)text[i]) && !strchr("._-", text[i]))
			return false;
	return true;
}

/* As the store and answers have texts. */
static bool is_utf8(const char *text)
{
	json_t *json = json_string(text);
	bool is = json != NULL;

	json_decref(json);
	return is;
}

int member_join_check(const struct member_join *join, struct err *e)
{
	if (join->id == 0)
		return err_set(
			e, -EINVAL, "a worker without an id cannot join: do versions differ?");
	if (!is_name(join->name, false))
		return err_set(e, -EINVAL,
			"a worker cannot be called '%.80s': give --name 1 to %u letters, digits, "
			"'.', '_' and '-'",
			join->name ? join->name : "", CLUSTER_NAME_BYTES - 1);
	if (!is_name(join->domain, true))
		return err_set(e, -EINVAL,
			"'%.80s' is no failure domain: give --domain up to %u letters, digits, "
			"'.', '_' and '-'",
			join->domain ? join->domain : "", CLUSTER_NAME_BYTES - 1);
	if (join->n_addresses == 0)
		return err_set(e, -EINVAL,
			"worker %s says no address at which it is reached: give --advertise",
			join->name);
	for (uint32_t i = 0; i < join->n_addresses; i++)
		if (strlen(join->addresses[i]) >= MEMBER_TEXT_BYTES ||
			!is_utf8(join->addresses[i]) || address_check(join->addresses[i], NULL) < 0)
			return err_set(e, -EINVAL,
				"'%.140s' is no address at which worker %s can be reached: see "
				"--advertise",
				join->addresses[i], join->name);
	return 0;
}

static bool has_address(const struct member *m, const char *address)
{
	for (uint32_t i = 0; i < m->n_addresses; i++)
		if (strcmp(m->addresses[i], address) == 0)
			return true;
	return false;
}

static bool same_addresses(const struct member *m, const struct member_join *join)
{
	if (m->n_addresses != join->n_addresses)
		return false;
	for (uint32_t i = 0; i < m->n_addresses; i++)
		if (strcmp(m->addresses[i], join->addresses[i]) != 0)
			return false;
	return true;
}

static bool same_host(const struct member *m, const struct member_join *join)
{
	return memcmp(m->host, join->host, CLUSTER_HOST_BYTES) == 0;
}

/* Means the same wherever it is said. */
static bool is_global(const char *address)
{
	return strncmp(address, "tcp:", 4) == 0 && strncmp(address, "tcp:127.", 8) != 0 &&
	       strncmp(address, "tcp:localhost:", 14) != 0 && strncmp(address, "tcp:[::1]", 9) != 0;
}

/* For people: where other hosts reach it, if they do. */
static const char *address_shown(const char *const *addresses, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		if (is_global(addresses[i]))
			return addresses[i];
	return n > 0 ? addresses[0] : "no address";
}

/* Who can only be gone when `join` listens where he did. */
static bool stands_in(const struct member *m, const struct member_join *join)
{
	for (uint32_t i = 0; i < join->n_addresses; i++)
		if (has_address(m, join->addresses[i]) &&
			(same_host(m, join) || is_global(join->addresses[i])))
			return true;
	return false;
}

/* Whose number a newcomer takes over: NULL: nobody's. */
static struct member *find_place(const struct members *members, const struct member_join *join)
{
	for (uint32_t i = 0; i < members->top; i++) {
		struct member *m = members->all[i];

		if (is_member(m) && (m->id == 0 || stands_in(m, join)))
			return m;
	}
	return NULL;
}

static int refuse_twin(const struct member *m, const struct member_join *join, struct err *e)
{
	if (m->id == join->id)
		return err_set(e, -EEXIST,
			"worker %s at %s has the same id %016" PRIx64
			" as worker %s at %s, which was heard a moment ago: if its tier's "
			"directory was copied, give one of them a tier of its own; if it was "
			"started again at another address, it is let in in some seconds",
			join->name, address_shown(join->addresses, join->n_addresses), join->id,
			m->name, address_shown((const char *const *)m->addresses, m->n_addresses));
	return err_set(e, -EEXIST,
		"worker %s says that it is reached at an address of worker %s, which is up: check "
		"--advertise of both",
		join->name, m->name);
}

static uint32_t free_number(const struct members *members)
{
	for (uint32_t i = 0; i < PLACEMENT_MAX; i++)
		if (!members->all[i])
			return i;
	return PLACEMENT_NOBODY;
}

static uint16_t domain_of(const struct members *members, const char *name)
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

static void set_id(struct members *members, struct member *m, uint64_t id)
{
	if (m->id)
		map_remove(&members->ids, &m->by_id);
	m->id = id;
	if (m->id)
		map_insert(&members->ids, &m->by_id, id_hash(id));
}

int members_enter(struct members *members, struct member *m)
{
	if (m->number >= PLACEMENT_MAX || members->all[m->number] || find_id(members, m->id)) {
		member_free(m);
		return -EBADMSG;
	}
	m->domain = domain_of(members, m->domain_name);
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

static int take_addresses(struct member *m, const struct member_join *join)
{
	char *copies[CLUSTER_ADDRESSES] = { NULL };
	bool whole = true;

	for (uint32_t i = 0; i < join->n_addresses; i++) {
		copies[i] = strdup(join->addresses[i]);
		whole &= copies[i] != NULL;
	}
	if (!whole) {
		for (uint32_t i = 0; i < join->n_addresses; i++)
			free(copies[i]);
		return -ENOMEM;
	}
	for (uint32_t i = 0; i < m->n_addresses; i++)
		free(m->addresses[i]);
	memcpy(m->addresses, copies, sizeof(copies));
	m->n_addresses = join->n_addresses;
	return 0;
}

/* What was given counts; what follows from a disk, only when it is quite another. */
static uint32_t weight_of(const struct member *m, const struct member_join *join)
{
	uint32_t now = join->weight;

	if (now)
		return now;
	now = (uint32_t)min(max(join->capacity / GiB, (uint64_t)1), (uint64_t)UINT32_MAX);
	if (m->weight &&
		(now > m->weight ? now - m->weight : m->weight - now) <= m->weight / WEIGHT_SLACK)
		return m->weight;
	return now;
}

static void domain_name(const struct member_join *join, char out[CLUSTER_NAME_BYTES])
{
	char hex[2 * CLUSTER_HOST_BYTES + 1];

	hash_hex(join->host, CLUSTER_HOST_BYTES, hex);
	(void)snprintf(out, CLUSTER_NAME_BYTES, "%s%.12s", join->domain[0] ? join->domain : "host-",
		join->domain[0] ? "" : hex); /* fits */
}

/* Takes down what it says; *ret_moves: slots may move. True: something changed. */
static bool take_facts(
	struct members *members, struct member *m, const struct member_join *join, bool *ret_moves)
{
	char domain[CLUSTER_NAME_BYTES];
	uint32_t weight = weight_of(m, join);
	bool news;

	domain_name(join, domain);
	*ret_moves = weight != m->weight || strcmp(domain, m->domain_name) != 0;
	news = *ret_moves || !same_host(m, join) || strcmp(m->name, join->name) != 0 ||
	       strncmp(m->version, join->version, sizeof(m->version) - 1) != 0;
	m->weight = weight;
	if (strcmp(domain, m->domain_name) != 0) {
		m->domain_name[0] = '\0'; /* not to be found as its own */
		m->domain = domain_of(members, domain);
	}
	memcpy(m->domain_name, domain, sizeof(domain));
	memcpy(m->host, join->host, CLUSTER_HOST_BYTES);
	(void)snprintf(m->name, sizeof(m->name), "%s", join->name);          /* checked */
	(void)snprintf(m->version, sizeof(m->version), "%s", join->version); /* cut: for people */
	for (char *c = m->version; *c; c++)
		if (!isprint((unsigned char)*c))
			*c = '?';
	m->capacity = min(join->capacity, (uint64_t)INT64_MAX);
	m->run = join->run;
	return news;
}

static void forget_beats(struct member *m)
{
	m->in_flight = 0;
	m->served_bytes = m->served_rate = 0;
	m->n_hot = 0;
	m->counted = false;
	m->drain_told = false;
	m->full = false;
}

static int make_member(struct members *members, struct member **ret_member, struct err *e)
{
	uint32_t number = free_number(members);
	struct member *m;

	if (number == PLACEMENT_NOBODY)
		return err_set(e, -ENOSPC,
			"the cluster has %u workers, which is the most: cachectl worker remove "
			"those that are gone",
			PLACEMENT_MAX);
	m = calloc(1, sizeof(*m));
	if (!m)
		return err_set(e, -ENOMEM, "the master has no memory for another worker");
	m->number = (uint16_t)number;
	*ret_member = m;
	return 0;
}

/* Who it is by what the master knows: a member, one whose number it has from now on, or NULL. */
static int recognise(struct members *members, const struct member_join *join,
	struct member **ret_member, struct err *e)
{
	struct member *m = find_id(members, join->id);

	if (m && m->removed_s && m->run == join->run)
		return err_set(e, -EPERM,
			"worker %s was removed from the cluster: end it; when it is started again, "
			"it is a member again",
			join->name);
	if (m && !m->removed_s && m->run != join->run && is_alive(m) &&
		(!same_host(m, join) || !same_addresses(m, join)))
		return refuse_twin(m, join, e);
	if (!m) {
		m = find_place(members, join);
		if (m && m->id && is_alive(m) && !same_host(m, join))
			return refuse_twin(m, join, e);
	}
	*ret_member = m;
	return 0;
}

static void say_joined(const struct member *m, bool fresh)
{
	char size[16];

	event_note(EVENT_INFO, "worker", m->name, "%s: number %u, version %s, capacity %s, at %s",
		fresh ? "joined" : "was started again", m->number, m->version,
		units_size(m->capacity, size, sizeof(size)),
		address_shown((const char *const *)m->addresses, m->n_addresses));
	log_info("worker joined",
		"name=%s number=%u id=%016" PRIx64 " address=%s weight=%u domain=%s", m->name,
		m->number, m->id, address_shown((const char *const *)m->addresses, m->n_addresses),
		m->weight, m->domain_name);
}

int members_join(struct members *members, const struct member_join *join, uint64_t now,
	int64_t now_s, struct member **ret_member, struct err *e)
{
	struct member *m = NULL;
	bool fresh;
	bool again;
	bool owned;
	bool moves;
	bool news;
	int r = recognise(members, join, &m, e);

	if (r < 0)
		return r;
	fresh = !m;
	if (fresh)
		r = make_member(members, &m, e);
	if (r < 0 || !m)
		return r;
	news = !same_addresses(m, join);
	if (news && take_addresses(m, join) < 0) {
		if (fresh)
			member_free(m);
		return err_set(e, -ENOMEM, "the master has no memory for another worker");
	}
	owned = owns(m);
	again = fresh || m->run != join->run || m->id != join->id;
	if (m->removed_s || m->id != join->id) { /* nothing of what it was before is it */
		members->n += m->removed_s != 0;
		m->removed_s = 0;
		m->drain = m->drained = false;
		m->joined_s = now_s;
		news = true;
	}
	if (again)
		forget_beats(m);
	if (fresh) {
		m->id = join->id;
		m->joined_s = now_s;
		(void)take_facts(members, m, join, &moves);
		r = members_enter(members, m);
		ensure(r == 0); /* its number was free, its id not known */
		news = true;
	} else {
		if (m->id != join->id) {
			m->replaces = true;
			m->replaced = m->id;
			set_id(members, m, join->id);
		}
		news |= take_facts(members, m, join, &moves);
	}
	if (news)
		m->stored = false;
	if (again)
		say_joined(m, fresh);
	be_heard(members, m, now);
	if (news)
		changed(members, m, moves || fresh || owns(m) != owned);
	*ret_member = m;
	return 0;
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
	m->counted = beat->has_only_copies && m->drain_told;
	m->only_copies = beat->only_copies;
	if (!m->counted || m->only_copies > 0 || m->drained)
		return;
	m->drained = true;
	m->stored = false;
	note(m, EVENT_INFO, "is drained: nothing is on it alone");
	changed(members, m, false); /* to be stored */
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
	be_heard(members, m, now);
	take_copies(members, m, beat);
	m->drain_told = m->drain;
	return m;
}

/* ---- drain and remove ------------------------------------------------------------------------ */

void members_take_back_drain(struct members *members, struct member *m, bool drain)
{
	m->drain = drain;
	m->drained = m->counted = m->drain_told = false;
	m->only_copies = 0;
	m->stored = false;
	if (m->state == CLUSTER_UP || m->state == CLUSTER_DRAINING)
		set_state(members, m, alive_state(m));
	changed(members, m, true);
}

int members_drain(struct members *members, struct member *m, bool drain, struct err *e)
{
	if (m->drain == drain)
		return 0;
	if (drain && !m->out && !another_owns(members, m, true))
		return err_set(e, -EBUSY,
			"worker %s is the only one that is up: there is nobody to own what it has: "
			"start another first",
			m->name);
	members_take_back_drain(members, m, drain);
	return 0;
}

bool member_is_drained(const struct member *m)
{
	return m->drain && m->drained;
}

static int may_remove(const struct member *m, uint64_t bytes, struct err *e)
{
	char size[16];

	if (member_is_drained(m))
		return 0;
	if (m->state == CLUSTER_UP)
		return err_set(e, -EBUSY,
			"worker %s is up: cachectl worker drain %s --wait first; --force fetches "
			"what only it has from the origin again",
			m->name, m->name);
	if (m->state == CLUSTER_DRAINING && m->counted)
		return err_set(e, -EBUSY,
			"worker %s has %s that nobody else has yet: wait (cachectl worker drain %s "
			"--wait); --force fetches them from the origin again",
			m->name, units_size(m->only_copies, size, sizeof(size)), m->name);
	if (m->state == CLUSTER_DRAINING)
		return err_set(e, -EBUSY,
			"worker %s is being drained, and has not said yet what only it has: wait "
			"(cachectl worker drain %s --wait)",
			m->name, m->name);
	if (bytes > 0)
		return err_set(e, -EBUSY,
			"worker %s is %s and has %s that may be nowhere else: start it and drain "
			"it; --force fetches them from the origin again",
			m->name, member_state_name(m), units_size(bytes, size, sizeof(size)));
	return 0;
}

int members_remove(struct members *members, struct member *m, uint64_t bytes, bool force,
	int64_t now_s, struct err *e)
{
	int r = 0;

	if (owns(m) && members->n > 1 && !another_owns(members, m, false))
		return err_set(e, -EBUSY,
			"worker %s is the only one that owns anything: cachectl worker undrain "
			"another, or start one",
			m->name);
	if (!force)
		r = may_remove(m, bytes, e);
	if (r < 0)
		return r;
	note(m, EVENT_WARN, "was removed");
	m->removed_s = max(now_s, (int64_t)1);
	m->stored = false;
	members->n--;
	changed(members, m, true);
	return 0;
}

uint32_t members_rested(struct members *members, int64_t now_s, uint16_t *numbers, uint32_t max)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < members->top && n < max; i++) {
		struct member *m = members->all[i];

		if (!m || !m->removed_s || !m->stored || now_s - m->removed_s < MEMBER_REST_S)
			continue;
		set_id(members, m, 0);
		members->all[i] = NULL;
		numbers[n++] = m->number;
		member_free(m);
	}
	return n;
}
