/* The master over the cluster's wire. See master_wire.h. */
#include "ctl/master_wire.h"
#include "admin/admin.h"
#include "base/address.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "client/client_admin.h"
#include "client/client_keys.h"
#include "ctl/node_config.h"
#include "ctl/service.h"

#include <stdio.h>
#include <stdlib.h>

#define AGAIN_NS (10 * CLOCK_SECOND) /* one that does not answer is not waited for each time */

/* Of this process, until its end: bars and waits ask again and again. */
static struct {
	struct client_admin *admin;
	char address[SOCKET_PATH_MAX];
	const char *token;
	uint64_t failed_ns; /* when nobody answered last; 0: not yet */
	struct err failed;
} wire;

void master_wire_use_token(const char *file)
{
	wire.token = file;
}

bool master_wire_of_node(char out[SOCKET_PATH_MAX])
{
	static struct node_config config; /* paths: large */
	struct err ignored = ERR_INIT;

	return node_config_read(&config, &ignored) == 0 && strncmp(config.master, "tcp:", 4) == 0 &&
	       master_wire_take(config.master, out, &ignored) == 0;
}

int master_wire_take(const char *given, char out[SOCKET_PATH_MAX], struct err *e)
{
	int r = address_check(given, e);

	if (r == 0 && snprintf(out, SOCKET_PATH_MAX, MASTER_WIRE "%s", given) >= SOCKET_PATH_MAX)
		return err_set(e, -EINVAL, "'%.80s' is too long for an address", given);
	return r;
}

static int connect_to(const char *address, struct err *e)
{
	static struct node_config config; /* paths: large */
	struct err why = ERR_INIT;
	struct key_options keys;
	int r;

	if (wire.admin && strcmp(wire.address, address) == 0)
		return 0;
	client_admin_close(wire.admin);
	wire.admin = NULL;
	if (wire.failed_ns && clock_mono_ns() - wire.failed_ns < AGAIN_NS)
		return err_set(e, wire.failed.code, "%s", wire.failed.text);
	r = node_config_read(&config, &why);
	if (r == 0) {
		keys = node_config_keys(&config);
		if (wire.token) {
			keys.cluster_key = NULL;
			keys.token = wire.token;
		}
		r = client_keys_open(&keys, &why);
		if (r == -EACCES && !wire.token && service_there())
			return err_set(e, -EPERM,
				"permission denied: the master is on another host (%s), and only "
				"root may use this host's keys; run this as root, or on the "
				"master's host",
				address + strlen(MASTER_WIRE));
	}
	if (r == 0)
		r = client_admin_open(address + strlen(MASTER_WIRE), &wire.admin, &why);
	if (r == -ECONNREFUSED) {
		wire.failed_ns = clock_mono_ns();
		(void)err_set(&wire.failed, r,
			"the master is unavailable: %s; mounts and workers continue without it",
			why.text);
		return err_set(e, r, "%s", wire.failed.text);
	}
	if (r < 0) /* of this node's files; an origin's keys have the same codes */
		return err_set(e, r == -EINVAL ? r : -ECONNREFUSED, "%s", why.text);
	(void)snprintf(wire.address, sizeof(wire.address), "%s", address); /* fits */
	return 0;
}

int master_wire_call(const char *address, const char *method, const char *path, const json_t *body,
	uint64_t timeout_ns, json_t **ret_json, struct err *e)
{
	_cleanup_(buf_release) struct buf answer = BUF_INIT(ADMIN_ANSWER_BYTES);
	_cleanup_free_ char *text = body ? admin_json_text(body, JSON_COMPACT) : NULL;
	unsigned int status = 0;
	int r = connect_to(address, e);

	if (r < 0)
		return r;
	if (body && !text)
		return err_set(e, -ENOMEM, "out of memory");
	r = client_admin_ask(wire.admin,
		method ? method
		: body ? "POST"
		       : "GET",
		path, text, text ? strlen(text) : 0, timeout_ns, &status, &answer, e);
	return r < 0 ? r
		     : admin_take_answer(status, path, buf_str(&answer), answer.len, ret_json, e);
}
