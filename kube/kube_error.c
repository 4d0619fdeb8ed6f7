/* What a status and its body mean. See kube.h. */
#include "admin/admin.h"
#include "kube/kube_internal.h"

#include <string.h>

struct meaning {
	int status;
	const char *reason; /* of the answer's Status; NULL: any */
	int code;
	const char *advice; /* NULL: there is none that holds always */
};

static const struct meaning meanings[] = {
	{ 400, NULL, -EINVAL, "correct the object" },
	{ 401, NULL, -EKEYREJECTED, "renew the credentials" },
	{ 403, NULL, -EACCES, "ask the cluster's administrator for a Role that allows it" },
	{ 404, NULL, -ENOENT,
		"check its name, its namespace and whether its operator is installed" },
	{ 405, NULL, -EINVAL, "check the version of Kubernetes" },
	{ 409, "AlreadyExists", -EEXIST, "choose another name, or delete it first" },
	{ 409, NULL, -EBUSY, "read it again, then repeat the change" },
	{ 410, NULL, -ESTALE, "list again" },
	{ 413, NULL, -EINVAL, "make the object smaller" },
	{ 415, NULL, -EINVAL, "check the version of Kubernetes: 1.25 or later is needed" },
	{ 422, NULL, -EINVAL, "correct the object" },
	{ 429, NULL, -EAGAIN, "try again later" },
};

static const struct meaning *find(int status, const char *reason)
{
	static const struct meaning server = { 0, NULL, -EIO, "see the log of kube-apiserver" };
	static const struct meaning other = { 0, NULL, -EPROTO, "check the server's URL" };

	for (size_t i = 0; i < ARRAY_SIZE(meanings); i++)
		if (meanings[i].status == status &&
			(!meanings[i].reason ||
				(reason && strcmp(reason, meanings[i].reason) == 0)))
			return &meanings[i];
	return status >= 500 ? &server : &other;
}

int kube_refused(const struct kube *kube, const struct kube_request *request, int status,
	const char *body, size_t len, struct err *e)
{
	json_t *json = NULL;
	const struct meaning *meaning;
	const char *message;
	const char *reason;
	int r = admin_json_parse(body, len, 0, &json, NULL);

	if (r < 0)
		json = NULL; /* a page of something between: the status has to do */
	message = json_string_value(json_object_get(json, "message"));
	reason = json_string_value(json_object_get(json, "reason"));
	meaning = find(status, reason);
	if (status == 401)
		r = err_set(e, meaning->code,
			"%s: the credentials are not accepted (401); renew those of %s", kube->name,
			kube->access.from);
	else
		r = err_set(e, meaning->code, "%s: %.700s (%d%s%s); %s", kube->name,
			message && *message ? message : (request->method ? request->method : "GET"),
			status, reason && *reason ? " " : "", reason ? reason : "",
			meaning->advice);
	json_decref(json);
	return r;
}
