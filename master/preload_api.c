/* The routes of preloads. See preload.h. */
#include "base/cleanup.h"
#include "master/service.h"

#include <stdlib.h>
#include <string.h>

/* 0: not a number. */
static uint64_t id_of(const struct admin_request *request)
{
	const char *text = request->param(request, "id");
	char *end;
	uint64_t id;

	if (!text || strspn(text, "0123456789") != strlen(text) || strlen(text) > 18)
		return 0;
	id = strtoull(text, &end, 10);
	return *end ? 0 : id;
}

static int no_such(struct err *e, const struct admin_request *request)
{
	const char *text = request->param(request, "id");

	return err_set(
		e, -ENOENT, "no preload '%.32s': see `cachectl preload list`", text ? text : "");
}

int preload_api_list(
	void *arg, const struct admin_request *request, json_t **ret_json, struct err *e)
{
	const struct service *service = arg;

	(void)request;
	return preloads_json(service->preloads, 0, ret_json, e);
}

int preload_api_get(
	void *arg, const struct admin_request *request, json_t **ret_json, struct err *e)
{
	const struct service *service = arg;
	uint64_t id = id_of(request);

	return id ? preloads_json(service->preloads, id, ret_json, e) : no_such(e, request);
}

/* The group preloads datasets that allow the caller, and sets no rate: others may wait for the same preload. */
static int check_own(struct service *service, const struct admin_request *request,
	uint32_t *ret_user, struct err *e)
{
	_cleanup_(buf_release) struct buf claims = BUF_INIT(CLAIMS_BYTES);
	_cleanup_(dataset_release) struct dataset d = { 0 };
	const char *name = json_string_value(json_object_get(request->body, "dataset"));
	size_t known = 1 + (json_object_get(request->body, "paths") != NULL);
	int r;

	if (admin_right(&request->caller, RIGHTS_OP_USE) == RIGHT_ALL)
		return 0;
	*ret_user = request->caller.peer.uid;
	if (!name || json_object_size(request->body) != known)
		return err_set(e, -EPERM,
			"permission denied: user %u may preload datasets by name, and no more; run "
			"this "
			"as root",
			request->caller.peer.uid);
	r = admin_caller_claims(&request->caller, true, &claims);
	if (r < 0)
		return err_set(e, r, "out of memory");
	return dataset_set_find_allowed(service->datasets, name, buf_str(&claims), &d, e);
}

int preload_api_create(
	void *arg, const struct admin_request *request, json_t **ret_json, struct err *e)
{
	struct service *service = arg;
	struct preload_request preload = {
		.body = request->body,
		.rules = source_rules_of(&service->rules, &request->caller.peer),
	};
	json_t *json = NULL;
	bool joined = false;
	int r = check_own(service, request, &preload.user, e);

	if (r == 0)
		r = preloads_create(service->preloads, &preload, &json, &joined, e);

	if (r < 0)
		return r;
	if (json_object_set_new(json, "joined", json_boolean(joined)) != 0) {
		json_decref(json);
		return err_set(e, -ENOMEM, "out of memory");
	}
	*ret_json = json;
	return 0;
}

int preload_api_cancel(
	void *arg, const struct admin_request *request, json_t **ret_json, struct err *e)
{
	const struct service *service = arg;
	uint64_t id = id_of(request);

	return id ? preloads_cancel(service->preloads, id, ret_json, e) : no_such(e, request);
}
