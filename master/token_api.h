/*
 * Tokens made for others (net/identity.h): who may change things here may give them out. The master keeps nothing of
 * them: a token ends by its expiry, or when the cluster key that signed it goes. With an administrator's token one for data is
 * made only if the master's configuration allows it (admin-may-mint), and any ends no later than the token used to make it.
 *
 *	POST /v1/datasets/{name}/tokens	{ttl_s}: by default 30 days, or less where the above says so
 *	POST /v1/tokens			{ttl_s}: an administrator's
 *	-> {token, serial, expires}
 *	POST /v1/datasets/{name}/pod-token	{service_account_token, pod_uid}: of a pod (jwt.h) that the dataset allows, for 15 minutes at
 *					most; token: null where this master does not verify tokens of pods
 */
#pragma once

#include "admin/admin.h"

int token_api_create(
	void *arg, const struct admin_request *request, json_t **ret_json, struct err *e);
int token_api_exchange(
	void *arg, const struct admin_request *request, json_t **ret_json, struct err *e);
int token_api_create_admin(
	void *arg, const struct admin_request *request, json_t **ret_json, struct err *e);
