/* Requests that came over the cluster's wire, for the same routes. See admin.h. */
#include "admin/server_internal.h"
#include "base/cleanup.h"

#include <stdlib.h>
#include <string.h>

static int put_json(const json_t *json, struct buf *out)
{
	_cleanup_free_ char *text = admin_json_text(json, JSON_COMPACT | JSON_ENCODE_ANY);

	if (json && !text)
		return -ENOMEM;
	return buf_puts(out, text ? text : "{}");
}

static int put_error(int code, const char *text, struct buf *out)
{
	json_t *json = admin_error_json(code, text);
	int r = json ? put_json(json, out) : -ENOMEM;

	json_decref(json);
	return r;
}

/* `path`: the asker's, up to its query. */
static int find(const struct admin_server *server, const struct admin_ask *ask, char *path,
	struct admin_handled *call, const struct admin_route **ret_route, const char **ret_text)
{
	_cleanup_(buf_release) struct buf allow = BUF_INIT(256);
	int r;

	call->query_text = strchr(path, '?');
	if (call->query_text)
		*call->query_text++ = '\0';
	r = admin_find_route(server, ask->method, path, &call->params, ret_route, &allow);
	if (r < 0)
		*ret_text = admin_no_route(r);
	return r;
}

int admin_server_ask(struct admin_server *server, const struct admin_ask *ask,
	unsigned int *ret_status, struct buf *out)
{
	_cleanup_free_ char *path = strdup(ask->path);
	struct admin_handled call = { 0 };
	const struct admin_route *route = NULL;
	const char *text = NULL;
	struct err e = ERR_INIT;
	json_t *json = NULL;
	int r;

	CHECK_MAGIC(server, ADMIN_SERVER_MAGIC);
	if (!path)
		return -ENOMEM;
	counter_add(&server->counters.requests, 1);
	r = find(server, ask, path, &call, &route, &text);
	if (r == -ENOMEM)
		return r;
	if (r == 0) {
		r = admin_handle(
			server, route, &call, &ask->caller, ask->body, ask->len, &json, &e);
		text = e.text;
	}
	*ret_status = MHD_HTTP_OK;
	if (r < 0)
		*ret_status = r == -EOPNOTSUPP && !route ? MHD_HTTP_METHOD_NOT_ALLOWED
							 : admin_http_status(r);
	r = r == 0 ? put_json(json, out) : put_error(r, text, out);
	json_decref(json);
	return r;
}
