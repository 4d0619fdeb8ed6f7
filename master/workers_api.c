/* The routes of workers and slots. See workers.h. */
#include "master/dashboard.h"
#include "master/service.h"
#include "master/workers.h"

#include <string.h>

static struct workers *workers_of(void *arg)
{
	const struct service *service = arg;

	return dashboard_workers(service->dashboard);
}

static const char *name_of(const struct admin_request *request)
{
	return request->param(request, "name");
}

int workers_api_list(
	void *arg, const struct admin_request *request, json_t **ret_json, struct err *e)
{
	json_t *all = NULL;
	int r = workers_json(workers_of(arg), NULL, &all, e);

	(void)request;
	if (r < 0)
		return r;
	*ret_json = json_pack("{s:o}", "workers", all);
	return *ret_json ? 0 : err_set(e, -ENOMEM, "out of memory");
}

int workers_api_get(
	void *arg, const struct admin_request *request, json_t **ret_json, struct err *e)
{
	return workers_json(workers_of(arg), name_of(request), ret_json, e);
}

static int drain(
	void *arg, const struct admin_request *request, bool on, json_t **ret_json, struct err *e)
{
	const struct service *service = arg;
	int r = membership_drain(service->membership, name_of(request), on, e);

	return r == 0 ? workers_json(workers_of(arg), name_of(request), ret_json, e) : r;
}

int workers_api_drain(
	void *arg, const struct admin_request *request, json_t **ret_json, struct err *e)
{
	return drain(arg, request, true, ret_json, e);
}

int workers_api_undrain(
	void *arg, const struct admin_request *request, json_t **ret_json, struct err *e)
{
	return drain(arg, request, false, ret_json, e);
}

static uint64_t bytes_of(void *arg, uint64_t id)
{
	return workers_used(arg, id);
}

int workers_api_remove(
	void *arg, const struct admin_request *request, json_t **ret_json, struct err *e)
{
	const struct service *service = arg;
	const char *force = request->query(request, "force");
	bool forced = force && (strcmp(force, "1") == 0 || strcmp(force, "true") == 0);

	(void)ret_json; /* {} */
	return membership_remove(
		service->membership, name_of(request), forced, bytes_of, workers_of(arg), e);
}

int workers_api_slots(
	void *arg, const struct admin_request *request, json_t **ret_json, struct err *e)
{
	(void)request;
	return workers_slots_json(workers_of(arg), ret_json, e);
}

int workers_api_slot(
	void *arg, const struct admin_request *request, json_t **ret_json, struct err *e)
{
	return workers_slot_json(workers_of(arg), request->param(request, "slot"), ret_json, e);
}
