/* Datasets over HTTP: requests to calls. See dataset.h. */
#include "base/cleanup.h"
#include "master/dataset.h"
#include "master/service.h"

#include <string.h>

static struct dataset_set *datasets_of(void *arg)
{
	struct service *service = arg;

	return service->datasets;
}

static bool is_set(const struct admin_request *request, const char *name)
{
	const char *value = request->query(request, name);

	return value && strcmp(value, "0") != 0;
}

/* A number of the query; absent: 0. */
static int get_number(
	const struct admin_request *request, const char *name, uint64_t *ret, struct err *e)
{
	const char *text = request->query(request, name);
	char *end;

	*ret = 0;
	if (!text)
		return 0;
	errno = 0;
	*ret = strtoull(text, &end, 10);
	if (errno || end == text || *end || *text == '-' || *ret > INT64_MAX)
		return err_set(e, -EINVAL, "'%s' wants a number", name);
	return 0;
}

static int answer(
	struct dataset_set *set, const struct dataset *d, json_t **ret_json, struct err *e)
{
	*ret_json = dataset_json(set, d);
	return *ret_json ? 0 : err_set(e, -ENOMEM, "out of memory");
}

int dataset_api_list(
	void *arg, const struct admin_request *request, json_t **ret_json, struct err *e)
{
	struct dataset_set *set = datasets_of(arg);
	uint64_t failures = admin_json_failures();
	struct dataset *all = NULL;
	json_t *list = json_array();
	uint32_t n = 0;
	int r = dataset_set_all(set, &all, &n);

	(void)request;
	for (uint32_t i = 0; i < n; i++) {
		(void)json_array_append_new(list, dataset_json(set, &all[i])); /* counted */
		dataset_release(&all[i]);
	}
	free(all);
	if (r == 0)
		*ret_json = json_pack("{s:o}", "datasets", list);
	else
		json_decref(list);
	if (r == 0 && admin_json_failures() == failures)
		return 0;
	json_decref(*ret_json);
	*ret_json = NULL;
	return err_set(e, -ENOMEM, "out of memory");
}

int dataset_api_create(
	void *arg, const struct admin_request *request, json_t **ret_json, struct err *e)
{
	struct dataset_set *set = datasets_of(arg);
	_cleanup_(dataset_release) struct dataset d = { 0 };
	int r = dataset_create(set, request->body, !is_set(request, "no_check"), &d, e);

	return r == 0 ? answer(set, &d, ret_json, e) : r;
}

int dataset_api_get(
	void *arg, const struct admin_request *request, json_t **ret_json, struct err *e)
{
	struct dataset_set *set = datasets_of(arg);
	_cleanup_(dataset_release) struct dataset d = { 0 };
	json_t *left_out = NULL;
	int r = dataset_set_find(set, request->param(request, "name"), &d, e);

	if (r == 0)
		r = answer(set, &d, ret_json, e);
	if (r < 0 || !is_set(request, "left_out") || !json_object_get(*ret_json, "generation"))
		return r;
	r = dataset_left_out_json(
		dataset_sources(set), &d.mounts[0].volume, d.shown.generation, &left_out, e);
	if (r == 0 && json_object_set_new(*ret_json, "left_out", left_out) < 0)
		r = err_set(e, -ENOMEM, "out of memory");
	if (r < 0) {
		json_decref(*ret_json);
		*ret_json = NULL;
	}
	return r;
}

int dataset_api_update(
	void *arg, const struct admin_request *request, json_t **ret_json, struct err *e)
{
	struct dataset_set *set = datasets_of(arg);
	_cleanup_(dataset_release) struct dataset d = { 0 };
	int r = dataset_update(set, request->param(request, "name"), request->body, &d, e);

	return r == 0 ? answer(set, &d, ret_json, e) : r;
}

int dataset_api_delete(
	void *arg, const struct admin_request *request, json_t **ret_json, struct err *e)
{
	(void)ret_json; /* {} */
	return dataset_delete(
		datasets_of(arg), request->param(request, "name"), is_set(request, "force"), e);
}

int dataset_api_generations(
	void *arg, const struct admin_request *request, json_t **ret_json, struct err *e)
{
	struct dataset_set *set = datasets_of(arg);
	_cleanup_(dataset_release) struct dataset d = { 0 };
	json_t *list;
	int r = dataset_set_find(set, request->param(request, "name"), &d, e);

	if (r < 0)
		return r;
	list = source_set_generations_json(dataset_sources(set), &d.mounts[0].volume);
	*ret_json = list ? json_pack("{s:o, s:I}", "generations", list, "shown",
				   (json_int_t)d.shown.generation)
			 : NULL;
	return *ret_json ? 0 : err_set(e, -ENOMEM, "out of memory");
}

int dataset_api_diff(
	void *arg, const struct admin_request *request, json_t **ret_json, struct err *e)
{
	struct dataset_set *set = datasets_of(arg);
	_cleanup_(dataset_release) struct dataset d = { 0 };
	uint64_t from = 0;
	uint64_t to = 0;
	uint64_t limit = 0;
	int r = dataset_set_find(set, request->param(request, "name"), &d, e);

	if (r == 0)
		r = get_number(request, "from", &from, e);
	if (r == 0)
		r = get_number(request, "to", &to, e);
	if (r == 0)
		r = get_number(request, "limit", &limit, e);
	if (r == 0 && from == 0)
		r = err_set(e, -EINVAL, "'from' is needed: the number of a generation");
	if (r < 0)
		return r;
	limit = limit ? min(limit, (uint64_t)DIFF_PAGE_MAX) : DIFF_PAGE;
	return dataset_diff_json(dataset_sources(set), &d.mounts[0].volume, from, to,
		request->query(request, "after"), (uint32_t)limit, ret_json, e);
}

/* {"generation": N}; `null_too`: null, or 0, is allowed. */
static int get_generation(
	const struct admin_request *request, bool null_too, uint64_t *ret, struct err *e)
{
	const json_t *value = json_object_get(request->body, "generation");

	*ret = 0;
	if (null_too && json_is_null(value))
		return 0;
	if (!json_is_integer(value) || json_integer_value(value) < (null_too ? 0 : 1))
		return err_set(e, -EINVAL, "'generation' wants the number of a generation");
	*ret = (uint64_t)json_integer_value(value);
	return 0;
}

int dataset_api_rollback(
	void *arg, const struct admin_request *request, json_t **ret_json, struct err *e)
{
	struct dataset_set *set = datasets_of(arg);
	_cleanup_(dataset_release) struct dataset d = { 0 };
	uint64_t generation = 0;
	int r = get_generation(request, true, &generation, e);

	if (r == 0)
		r = dataset_rollback(set, request->param(request, "name"), generation, &d, e);
	return r == 0 ? answer(set, &d, ret_json, e) : r;
}

int dataset_api_pin(
	void *arg, const struct admin_request *request, json_t **ret_json, struct err *e)
{
	struct dataset_set *set = datasets_of(arg);
	_cleanup_(dataset_release) struct dataset d = { 0 };
	const json_t *pin = json_object_get(request->body, "pin");
	uint64_t generation = 0;
	int r = get_generation(request, false, &generation, e);

	if (r == 0 && pin && !json_is_boolean(pin))
		r = err_set(e, -EINVAL, "'pin' wants true or false");
	if (r == 0)
		r = dataset_pin(set, request->param(request, "name"), generation,
			!json_is_false(pin), &d, e);
	return r == 0 ? answer(set, &d, ret_json, e) : r;
}

int dataset_api_evict(
	void *arg, const struct admin_request *request, json_t **ret_json, struct err *e)
{
	uint64_t serial = 0;
	int r = dataset_evict(datasets_of(arg), request->param(request, "name"),
		is_set(request, "force"), &serial, e);

	if (r < 0)
		return r;
	*ret_json = json_pack("{s:I}", "serial", (json_int_t)serial);
	return *ret_json ? 0 : err_set(e, -ENOMEM, "out of memory");
}
