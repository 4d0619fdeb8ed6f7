/* See token_api.h. */
#include "master/token_api.h"
#include "admin/audit.h"
#include "base/claims.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "master/service.h"
#include "master/service_accounts.h"

#include <string.h>

#define TTL_DEFAULT_S (30 * 86400ull)
#define TTL_LEAST_S   1ull
#define TTL_MOST_S    (10 * 365 * 86400ull)
#define TTL_POD_S     900ull /* of a pod, whose token is exchanged again before */

/* A token that is made with another one ends no later than that: at its time, and with its cluster key. */
static int bound(
	const struct peer_identity *peer, bool asked, struct token_claims *claims, struct err *e)
{
	uint64_t until_s = peer->claims.expires_s;
	char until[CLOCK_TEXT_MAX];

	if (peer->kind != PEER_TOKEN)
		return 0;
	claims->key_id = peer->claims.key_id;
	if (claims->expires_s > until_s && asked)
		return err_set(e, -EPERM,
			"the new token would outlive the token used to create it, which expires "
			"%s: give a shorter --ttl, or none",
			clock_text(until_s, until));
	claims->expires_s = min(claims->expires_s, until_s);
	return 0;
}

static int take_ttl(const struct admin_request *request, struct token_claims *claims, struct err *e)
{
	const json_t *ttl = json_object_get(request->body, "ttl_s");
	json_int_t s = ttl ? json_integer_value(ttl) : (json_int_t)TTL_DEFAULT_S;

	if ((ttl && !json_is_integer(ttl)) || s < (json_int_t)TTL_LEAST_S ||
		s > (json_int_t)TTL_MOST_S)
		return err_set(e, -EINVAL, "'ttl_s' must be seconds, from %llu to %llu (ten years)",
			TTL_LEAST_S, TTL_MOST_S);
	claims->expires_s = clock_wall_ns() / CLOCK_SECOND + (uint64_t)s;
	return bound(&request->caller.peer, ttl != NULL, claims, e);
}

/* By its serial the audit log names who uses it later. */
static void note(const struct admin_request *request, const json_t *token)
{
	json_t *after = json_pack("{s:O*, s:O*}", "serial", json_object_get(token, "serial"),
		"expires", json_object_get(token, "expires"));

	audit_change(request->changes, NULL, after);
	json_decref(after);
}

static int make(const struct admin_request *request, struct token_claims *claims, json_t **ret_json,
	struct err *e)
{
	char serial[2 * sizeof(claims->serial) + 1];
	char text[TOKEN_TEXT_MAX];
	int r;

	hash_random(claims->serial, sizeof(claims->serial));
	r = token_make(claims, text, e);
	if (r < 0)
		return r;
	hash_hex(claims->serial, sizeof(claims->serial), serial);
	*ret_json = json_pack("{s:s, s:s, s:I}", "token", text, "serial", serial, "expires",
		(json_int_t)claims->expires_s);
	explicit_bzero(text, sizeof(text));
	if (!*ret_json)
		return err_set(e, -ENOMEM, "out of memory");
	note(request, *ret_json);
	return 0;
}

/* Adds a source of the dataset. One that is contained in another is harmless. */
static int add_source(struct token_claims *claims, const struct dataset_mount *m, struct err *e)
{
	size_t len = m->subtree ? strlen(m->subtree) : 0;
	size_t used = 0;

	for (uint32_t i = 0; i < claims->n_volumes; i++)
		used += claims->prefix_bytes[i];
	if (len > TOKEN_PREFIX_BYTES - used)
		return err_set(e, -E2BIG,
			"the prefixes of the dataset's sources do not fit into a token: %u bytes "
			"are "
			"the most; divide the dataset",
			TOKEN_PREFIX_BYTES);
	memcpy(claims->prefixes + used, m->subtree ? m->subtree : "", len);
	claims->prefix_bytes[claims->n_volumes] = (uint16_t)len;
	claims->volumes[claims->n_volumes++] = m->volume;
	return 0;
}

/* Of all sources of the dataset. */
static int claims_of(const struct dataset *d, struct token_claims *claims, struct err *e)
{
	int r = hash_unhex(d->uuid, claims->dataset, sizeof(claims->dataset));

	if (r < 0)
		return err_set(e, r, "the dataset has no UUID");
	for (uint32_t i = 0; i < d->n_mounts && r == 0; i++)
		r = add_source(claims, &d->mounts[i], e);
	return r;
}

int token_api_create(
	void *arg, const struct admin_request *request, json_t **ret_json, struct err *e)
{
	const struct service *service = arg;
	_cleanup_(dataset_release) struct dataset d = { 0 };
	struct token_claims claims = { 0 };
	enum right right = admin_right(&request->caller, RIGHTS_OP_MINT);
	int r;

	_Static_assert(TOKEN_DATASET_BYTES == DATASET_UUID_BYTES, "the same");
	_Static_assert(TOKEN_VOLUMES_MAX >= DATASET_MOUNTS_MAX, "all of them");
	if (right != RIGHT_ALL && !(right == RIGHT_CONFIGURED && service->admin_may_mint))
		return err_set(e, -EPERM,
			"permission denied: an administrator's token cannot create tokens for "
			"data; set admin-may-mint of the master, or create the token on the "
			"master's host");
	r = take_ttl(request, &claims, e);
	if (r == 0)
		r = dataset_set_find(service->datasets, request->param(request, "name"), &d, e);
	if (r == 0)
		r = claims_of(&d, &claims, e);
	return r == 0 ? make(request, &claims, ret_json, e) : r;
}

/* ---- tokens of pods -------------------------------------------------------------------------- */

/* Why it is refused is for the log of this host only. */
static int refuse_pod(const char *why, struct err *e)
{
	LOG_LIMITED(LOG_WARN, "service-account token refused", "why=\"%s\"", why);
	return err_set(e, -EPERM,
		"permission denied: the token of the pod's service account was refused; see the "
		"log "
		"of the master");
}

/* The pod that the token is bound to, which must be the one that the volume is of. */
static int verify_pod(
	const struct service *service, const json_t *body, struct jwt_pod *ret, struct err *e)
{
	const char *token = json_string_value(json_object_get(body, "service_account_token"));
	const char *id = json_string_value(json_object_get(body, "pod_uid"));
	struct err why = ERR_INIT;
	int r;

	if (!token || !id)
		return err_set(e, -EINVAL, "'service_account_token' and 'pod_uid' must be texts");
	r = service_accounts_verify(service->accounts, token, strlen(token), ret, &why);
	if (r == -EKEYREJECTED || r == -ENOKEY)
		return refuse_pod(why.text, e);
	if (r < 0)
		return err_set(e, r, "%s", why.text);
	return strcmp(ret->pod_id, id) == 0 ? 0 : refuse_pod("the token is of another pod", e);
}

/* The dataset, if it allows the pod; whether it exists is not for others. */
static int find_for_pod(const struct service *service, const struct admin_request *request,
	const struct jwt_pod *pod, struct dataset *ret, struct err *e)
{
	_cleanup_(buf_release) struct buf claims = BUF_INIT(CLAIMS_BYTES);

	if (claims_add_pod(&claims, pod->name_space, pod->account) < 0)
		return refuse_pod("the names of namespace and service account are invalid", e);
	return dataset_set_find_allowed(
		service->datasets, request->param(request, "name"), buf_str(&claims), ret, e);
}

int token_api_exchange(
	void *arg, const struct admin_request *request, json_t **ret_json, struct err *e)
{
	const struct service *service = arg;
	_cleanup_(dataset_release) struct dataset d = { 0 };
	struct token_claims claims = { .expires_s = clock_wall_ns() / CLOCK_SECOND + TTL_POD_S };
	struct jwt_pod pod = { 0 };
	int r;

	if (admin_right(&request->caller, RIGHTS_OP_MINT) != RIGHT_ALL)
		return err_set(e, -EPERM,
			"permission denied: only a node with the cluster key exchanges tokens of "
			"pods");
	if (!service->accounts) { /* the caller's word is taken for what the pod is */
		*ret_json = json_pack("{s:n}", "token");
		return *ret_json ? 0 : err_set(e, -ENOMEM, "out of memory");
	}
	r = verify_pod(service, request->body, &pod, e);
	if (r == 0)
		r = find_for_pod(service, request, &pod, &d, e);
	if (r < 0)
		return r;
	claims.expires_s = min(claims.expires_s, pod.expires_s);
	r = claims_of(&d, &claims, e);
	return r == 0 ? make(request, &claims, ret_json, e) : r;
}

int token_api_create_admin(
	void *arg, const struct admin_request *request, json_t **ret_json, struct err *e)
{
	struct token_claims claims = { .admin = true };
	int r = take_ttl(request, &claims, e);

	(void)arg; /* needs nothing of the master's */
	return r == 0 ? make(request, &claims, ret_json, e) : r;
}
