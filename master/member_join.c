/* Who comes in, and as whom. See members.h. */
#include "admin/admin.h"
#include "base/address.h"
#include "base/cleanup.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/units.h"
#include "master/events.h"
#include "master/members_internal.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define WEIGHT_SLACK 10u /* a tenth: free bytes of a disk come and go */

/* ---- what a JOIN says ------------------------------------------------------------------------ */

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
		return err_set(e, -EINVAL,
			"a worker without an id cannot join; use the same version on both sides");
	if (!is_name(join->name, false))
		return err_set(e, -EINVAL,
			"invalid worker name '%.80s': give --name with 1 to %u letters, digits, "
			"'.', '_' and '-'",
			join->name ? join->name : "", CLUSTER_NAME_BYTES - 1);
	if (!is_name(join->domain, true))
		return err_set(e, -EINVAL,
			"invalid failure domain '%.80s': give --domain with up to %u letters, "
			"digits, '.', '_' and '-'",
			join->domain ? join->domain : "", CLUSTER_NAME_BYTES - 1);
	if (join->n_addresses == 0)
		return err_set(e, -EINVAL,
			"worker %s has no address that others can reach: give --advertise",
			join->name);
	for (uint32_t i = 0; i < join->n_addresses; i++)
		if (strlen(join->addresses[i]) >= MEMBER_TEXT_BYTES ||
			!is_utf8(join->addresses[i]) || address_check(join->addresses[i], NULL) < 0)
			return err_set(e, -EINVAL,
				"invalid address '%.140s' of worker %s: see --advertise",
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

/* The member whose number a new one takes over; NULL: none. */
static struct member *find_place(const struct members *members, const struct member_join *join)
{
	for (uint32_t i = 0; i < members->top; i++) {
		struct member *m = members->all[i];

		if (member_is(m) && (m->id == 0 || stands_in(m, join)))
			return m;
	}
	return NULL;
}

static int refuse_twin(const struct member *m, const struct member_join *join, struct err *e)
{
	if (m->id == join->id)
		return err_set(e, -EEXIST,
			"worker %s at %s has the same id %016" PRIx64
			" as worker %s at %s, which is up: if its tier's directory was copied, "
			"give one of them its own tier; if it was restarted at another address, it "
			"joins in a few seconds",
			join->name, address_shown(join->addresses, join->n_addresses), join->id,
			m->name, address_shown((const char *const *)m->addresses, m->n_addresses));
	return err_set(e, -EEXIST,
		"worker %s advertises an address of worker %s, which is up: check --advertise of "
		"both",
		join->name, m->name);
}

static uint32_t free_number(const struct members *members)
{
	for (uint32_t i = 0; i < PLACEMENT_MAX; i++)
		if (!members->all[i])
			return i;
	return PLACEMENT_NONE;
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
		m->domain = members_domain(members, domain);
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
	m->full = false;
}

static int make_member(struct members *members, struct member **ret_member, struct err *e)
{
	uint32_t number = free_number(members);
	struct member *m;

	if (number == PLACEMENT_NONE)
		return err_set(e, -ENOSPC,
			"the cluster has %u workers, which is the maximum: remove those that no "
			"longer exist with cachectl worker remove",
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
	struct member *m = members_any_by_id(members, join->id);

	if (m && m->removed_s && m->run == join->run)
		return err_set(e, -EPERM,
			"worker %s was removed from the cluster: end it; when it is started again, "
			"it is a member again",
			join->name);
	if (m && !m->removed_s && m->run != join->run && member_is_alive(m) &&
		(!same_host(m, join) || !same_addresses(m, join)))
		return refuse_twin(m, join, e);
	if (!m) {
		m = find_place(members, join);
		if (m && m->id && member_is_alive(m) && !same_host(m, join))
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
	owned = member_owns(m);
	again = fresh || m->run != join->run || m->id != join->id;
	if (m->removed_s || m->id != join->id) { /* nothing of what it was before is it */
		members->n += m->removed_s != 0;
		m->removed_s = 0;
		m->drain = m->drained = false;
		m->drain_number = 0;
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
			members_set_id(members, m, join->id);
		}
		news |= take_facts(members, m, join, &moves);
	}
	if (news)
		m->stored = false;
	if (again)
		say_joined(m, fresh);
	members_be_heard(members, m, now);
	if (news)
		members_changed(members, m, moves || fresh || member_owns(m) != owned);
	*ret_member = m;
	return 0;
}
