/* Members in the store. See members.h. */
#include "admin/admin.h"
#include "base/cleanup.h"
#include "base/hash.h"
#include "master/members_internal.h"
#include "master/record.h"

#include <inttypes.h>
#include <string.h>

#define MEMBER_FORMAT 1
#define MEMBER_PREFIX "member/"

void member_key(uint16_t number, char out[32])
{
	(void)snprintf(out, 32, MEMBER_PREFIX "%05u", number); /* fits */
}

/* ---- writing --------------------------------------------------------------------------------- */

static json_t *hex(const void *data, size_t len)
{
	char text[2 * CLUSTER_HOST_BYTES + 1];

	hash_hex(data, len, text);
	return json_string(text);
}

static json_t *addresses_json(const struct member *m)
{
	json_t *all = json_array();

	for (uint32_t i = 0; i < m->n_addresses; i++)
		(void)json_array_append_new(
			all, json_string(m->addresses[i])); /* failures are counted */
	return all;
}

int member_encode(const struct member *m, struct buf *out)
{
	uint64_t failures = admin_json_failures();
	json_auto_t *json =
		json_pack("{s:i, s:i, s:o, s:o, s:s, s:s, s:o, s:s, s:o, s:I, s:I, s:I, s:I, s:b, "
			  "s:b, s:b, s:b}",
			"format", MEMBER_FORMAT, "number", (int)m->number, "id",
			json_sprintf("%016" PRIx64, m->id), "run",
			json_sprintf("%016" PRIx64, m->run), "name", m->name, "domain",
			m->domain_name, "host", hex(m->host, sizeof(m->host)), "version",
			m->version, "addresses", addresses_json(m), "weight", (json_int_t)m->weight,
			"capacity", (json_int_t)m->capacity, "joined", (json_int_t)m->joined_s,
			"removed", (json_int_t)m->removed_s, "drain", (int)m->drain, "drained",
			(int)m->drained, "out", (int)m->out, "passed-over", (int)m->passed_over);
	_cleanup_free_ char *text = failures == admin_json_failures() && json
					    ? admin_json_text(json, JSON_COMPACT | JSON_SORT_KEYS)
					    : NULL;

	return text ? buf_puts(out, text) : -ENOMEM;
}

/* ---- reading --------------------------------------------------------------------------------- */

static bool get_number(const json_t *json, const char *name, json_int_t most, json_int_t *ret)
{
	const json_t *value = json_object_get(json, name);

	*ret = json_integer_value(value);
	return json_is_integer(value) && *ret >= 0 && *ret <= most;
}

static bool get_text(const json_t *json, const char *name, char *out, size_t size)
{
	const char *text = json_string_value(json_object_get(json, name));

	return text && strlen(text) < size && snprintf(out, size, "%s", text) >= 0;
}

static bool get_addresses(const json_t *json, struct member *m)
{
	const json_t *all = json_object_get(json, "addresses");

	if (!json_is_array(all) || json_array_size(all) > CLUSTER_ADDRESSES)
		return false;
	for (size_t i = 0; i < json_array_size(all); i++) {
		const char *text = json_string_value(json_array_get(all, i));

		if (!text || strlen(text) >= MEMBER_TEXT_BYTES)
			return false;
		m->addresses[m->n_addresses] = strdup(text);
		if (!m->addresses[m->n_addresses])
			return false;
		m->n_addresses++;
	}
	return true;
}

static bool is_set(const json_t *json, const char *name)
{
	return json_is_true(json_object_get(json, name));
}

static int decode(const json_t *json, struct member *m)
{
	const char *host = json_string_value(json_object_get(json, "host"));
	json_int_t format;
	json_int_t number;
	json_int_t weight;
	json_int_t capacity;
	json_int_t joined;
	json_int_t removed;

	if (!get_number(json, "format", INT32_MAX, &format) || format < 1)
		return -EBADMSG;
	if (format != MEMBER_FORMAT)
		return -EPROTONOSUPPORT;
	if (!get_number(json, "number", PLACEMENT_MAX - 1, &number) ||
		!get_number(json, "weight", UINT32_MAX, &weight) || weight == 0 ||
		!get_number(json, "capacity", INT64_MAX, &capacity) ||
		!get_number(json, "joined", INT64_MAX, &joined) ||
		!get_number(json, "removed", INT64_MAX, &removed) ||
		record_u64_hex(json, "id", &m->id) < 0 || m->id == 0 ||
		record_u64_hex(json, "run", &m->run) < 0 ||
		!get_text(json, "name", m->name, sizeof(m->name)) ||
		!get_text(json, "domain", m->domain_name, sizeof(m->domain_name)) ||
		!get_text(json, "version", m->version, sizeof(m->version)) || !host ||
		hash_unhex(host, m->host, sizeof(m->host)) < 0 || !get_addresses(json, m))
		return -EBADMSG;
	m->number = (uint16_t)number;
	m->weight = (uint32_t)weight;
	m->capacity = (uint64_t)capacity;
	m->joined_s = joined;
	m->removed_s = removed;
	m->drain = is_set(json, "drain");
	m->drain_number = m->drain ? member_drain_number() : 0;
	m->drained = is_set(json, "drained");
	m->out = is_set(json, "out");
	m->passed_over = is_set(json, "passed-over");
	return 0;
}

struct loading {
	struct members *members;
	uint64_t now;
};

/* A worker that was passed over stays down until its first beat; otherwise the first step would give it slots. */
static enum cluster_state loaded_state(const struct member *m)
{
	if (m->out)
		return CLUSTER_OUT;
	return m->passed_over && !m->drain ? CLUSTER_DOWN : member_alive_state(m);
}

static int load_one(void *arg, const char *key, const void *value, size_t len)
{
	const struct loading *loading = arg;
	const struct members_config *config = &loading->members->config;
	json_auto_t *json = NULL;
	struct member *m;
	int r = admin_json_parse(value, len, 0, &json, NULL);

	(void)key;
	if (r < 0)
		return r;
	m = calloc(1, sizeof(*m));
	if (!m)
		return -ENOMEM;
	r = decode(json, m);
	if (r < 0) {
		member_free(m);
		return r;
	}
	m->stored = true;
	m->heard_ns = loading->now;
	if (config->grace_ns > MEMBER_DOWN_NS)
		m->heard_ns += config->grace_ns - MEMBER_DOWN_NS;
	m->state = loaded_state(m);
	m->down_ns = m->heard_ns; /* like the others, it has the grace period to report */
	return members_enter(loading->members, m);
}

/* Up to version 0.6 there was one worker, and the master made its id up. */
static int load_old(struct members *members, struct store *store, uint64_t now)
{
	_cleanup_(buf_release) struct buf value = BUF_INIT(64);
	int r;

	if (members->top > 0)
		return 0;
	r = store->ops->get(store, "worker/0", &value);
	if (r == -ENOENT)
		return 0;
	return r < 0 ? r : members_seed(members, now);
}

int members_load(struct members *members, struct store *store, uint64_t now, struct err *e)
{
	struct loading loading = { members, now };
	int r = store->ops->scan(store, MEMBER_PREFIX, load_one, &loading);

	if (r == 0)
		r = load_old(members, store, now);
	if (r == -EPROTONOSUPPORT || r == -EBADMSG)
		return record_refuse(e, r, "a worker");
	return r == 0 ? 0
		      : err_set(e, r,
				"the master's records of its workers cannot be read: %s: check the "
				"disk of its state",
				err_str(r));
}
