/* Who may ask the admin interface for what: every operation of the table, every principal, of what is there and of what is not,
 * by the way that the principal comes. What is refused says the same of both, and changes nothing. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>

#include "admin/audit.h"
#include "admin/listen.h"
#include "base/hash.h"
#include "master/service.h"
#include "master/token_api.h"
#include "net/transport.h"
#include "proto/granary.pb-c.h"
#include "tests/unit/master/dataset_fixture.h"
#include "tests/unit/net/cluster_key.h"
#include "tests/unit/net/principals.h"

#define TIMEOUT  (60 * CLOCK_SECOND)
#define FAKE     "fake:admin-rights"
#define PRELOADS "/v1/preloads"

/* In path and body '$' is the target, in a body @ the directory and ' is ". */
struct asked {
	enum rights_admin_op op;
	const char *method;
	const char *path;
	const char *body;
	const char *there;     /* NULL: there is no target */
	const char *not_there; /* as long */
};

static const struct asked table[] = {
	{ RIGHTS_OP_SHOW, "GET", "/v1/datasets", NULL, NULL, NULL },
	{ RIGHTS_OP_SHOW, "GET", "/v1/datasets/$", NULL, "mine", "none" },
	{ RIGHTS_OP_SHOW, "GET", "/v1/datasets/$", NULL, "others", "absent" },
	{ RIGHTS_OP_SHOW, "GET", "/v1/datasets/$/generations", NULL, "mine", "none" },
	{ RIGHTS_OP_SHOW, "GET", "/v1/datasets/$/generations", NULL, "others", "absent" },
	{ RIGHTS_OP_CHANGE, "PATCH", "/v1/datasets/$", "{'priority':3}", "mine", "none" },
	{ RIGHTS_OP_CHANGE, "PATCH", "/v1/datasets/$", "{'priority':3}", "others", "absent" },
	{ RIGHTS_OP_CHANGE, "DELETE", "/v1/datasets/$", NULL, "gone", "lost" },
	{ RIGHTS_OP_CHANGE, "POST", "/v1/tokens", "{'ttl_s':60}", NULL, NULL },
	{ RIGHTS_OP_USE, "POST", PRELOADS, "{'dataset':'$'}", "mine", "none" },
	{ RIGHTS_OP_USE, "POST", PRELOADS, "{'dataset':'$'}", "others", "absent" },
	{ RIGHTS_OP_CHANGE, "POST", PRELOADS, "{'dataset':'$','bandwidth':1}", "mine", "none" },
	{ RIGHTS_OP_MINT, "POST", "/v1/datasets/$/tokens", "{'ttl_s':60}", "mine", "none" },
	{ RIGHTS_OP_MINT, "POST", "/v1/datasets/$/tokens", "{}", "others", "absent" },
	{ RIGHTS_OP_NAME, "POST", "/v1/datasets?no_check=1",
		"{'name':'x','mounts':[{'url':'file://@/$'}]}", "origin", "absent" },
	{ RIGHTS_OP_NAME, "POST", "/v1/dataset-previews?no_check=1",
		"{'name':'x','mounts':[{'url':'file://@/$'}]}", "origin", "absent" },
	{ RIGHTS_OP_NAME, "POST", "/v1/datasets?no_check=1",
		"{'name':'x','mounts':[{'url':'s3://b/','credentials':'file:@/$'}]}", "secret",
		"absent" },
	{ RIGHTS_OP_NAME, "POST", "/v1/datasets?no_check=1",
		"{'name':'x','mounts':[{'url':'s3://b/','ca_file':'@/$'}]}", "secret", "absent" },
	{ RIGHTS_OP_NAME, "POST", "/v1/datasets?no_check=1",
		"{'name':'x','mounts':[{'url':'s3://b/','endpoint':'http://$:1','path_style':true}]"
		"}",
		"127.0.0.1", "127.0.0.2" },
	{ RIGHTS_OP_NAME, "POST", PRELOADS, "{'url':'file://@/$'}", "origin", "absent" },
	{ RIGHTS_OP_NAME, "POST", PRELOADS, "{'url':'s3://b/','credentials':'file:@/$'}", "secret",
		"absent" },
	{ RIGHTS_OP_NAME, "POST", PRELOADS, "{'url':'s3://b/','ca_file':'@/$'}", "secret",
		"absent" },
	{ RIGHTS_OP_NAME, "POST", PRELOADS,
		"{'url':'s3://b/','endpoint':'http://$:1','path_style':true}", "127.0.0.1",
		"127.0.0.2" },
};

static const struct admin_route routes[] = {
	{ "GET", "/v1/datasets", dataset_api_list, NULL },
	{ "POST", "/v1/datasets", dataset_api_create, "dataset.create" },
	{ "POST", "/v1/dataset-previews", dataset_api_preview, NULL },
	{ "GET", "/v1/datasets/{name}", dataset_api_get, NULL },
	{ "PATCH", "/v1/datasets/{name}", dataset_api_update, "dataset.update" },
	{ "DELETE", "/v1/datasets/{name}", dataset_api_delete, "dataset.delete" },
	{ "GET", "/v1/datasets/{name}/generations", dataset_api_generations, NULL },
	{ "POST", "/v1/datasets/{name}/tokens", token_api_create, "token.create" },
	{ "POST", "/v1/tokens", token_api_create_admin, "token.create" },
	{ "POST", PRELOADS, preload_api_create, "preload.create" },
	{ 0 },
};

static const char *const used[] = { "preload.create", NULL };

static struct {
	struct service service;
	struct pool *none; /* takes no job */
	struct admin_server *admin;
	char socket[128];
	char http[64]; /* admin-listen */
	struct loop *loop;
	struct rpc_server *server;
	struct peer_identity peer; /* who connects to it next */
	struct transport_listener user;
	struct transport_ops ops;
	_Atomic bool expires;
} master;

/* ---- the wire -------------------------------------------------------------------------------- */

static void on_accept(void *arg, struct transport *transport)
{
	(void)arg;
	transport->peer = master.peer;
	master.user.on_accept(master.user.arg, transport);
}

static void on_closed(void *arg)
{
	(void)arg;
	master.user.on_closed(master.user.arg);
}

static int listen_as(struct loop *loop, const char *where, const struct transport_listener *user,
	struct transport_listener **ret_listener, struct err *e)
{
	const struct transport_listener own = { .on_accept = on_accept, .on_closed = on_closed };

	master.user = *user;
	return transport_fake.listen(loop, where, &own, ret_listener, e);
}

static const struct transport_ops *wrap(const struct transport_ops *ops)
{
	return ops == &transport_fake ? &master.ops : ops;
}

static void on_request(struct rpc_request *request, void *arg)
{
	struct peer_identity *peer =
		(struct peer_identity *)(uintptr_t)rpc_conn_peer(request->conn);

	(void)arg;
	if (master.expires)
		peer->claims.expires_s = 1;
	remote_admin_answer(master.service.remote, request);
}

static const struct rpc_server_ops server_ops = { .on_request = on_request };

static void become(enum principal who)
{
	struct dataset mine = df_find("mine");

	master.peer = peer_of(who);
	assert_int_equal(hash_unhex(mine.uuid, master.peer.claims.dataset, TOKEN_DATASET_BYTES), 0);
	master.peer.claims.prefix_bytes[1] = 0; /* no part */
	dataset_release(&mine);
}

static int ask_wire(
	enum principal who, const char *method, const char *path, const char *body, struct err *e)
{
	Granary__AdminAsk m = GRANARY__ADMIN_ASK__INIT;
	Granary__AdminAnswer *answer;
	uint8_t packed[1024];
	struct rpc_call call = { .frame = { .op = FRAME_ADMIN },
		.payload = NET_PAYLOAD_NONE,
		.deadline_ns = clock_mono_ns() + TIMEOUT,
		.reply_fd = -1 };
	struct rpc_client *client;
	int r;

	become(who);
	assert_int_equal(rpc_client_new(master.loop, FAKE, &client, e), 0);
	m.method = (char *)(uintptr_t)method;
	m.path = (char *)(uintptr_t)path;
	m.has_body = body != NULL;
	m.body = (ProtobufCBinaryData){ body ? strlen(body) : 0, (uint8_t *)(uintptr_t)body };
	call.payload.parts[0].data = packed;
	call.payload.parts[0].len = granary__admin_ask__pack(&m, packed);
	call.payload.n = 1;
	r = rpc_call_wait(client, &call, e);
	if (r == 0) {
		answer =
			granary__admin_answer__unpack(NULL, call.reply.payload, call.reply_payload);
		assert_non_null(answer);
		r = admin_take_answer(answer->status, path, (const char *)answer->body.data,
			answer->body.len, NULL, e);
		granary__admin_answer__free_unpacked(answer, NULL);
	}
	rpc_call_release(&call);
	rpc_client_free(client);
	return r;
}

/* As by its socket, to which another user of the host would come. */
static int ask_socket(
	enum principal who, const char *method, const char *path, const char *body, struct err *e)
{
	_cleanup_(buf_release) struct buf out = BUF_INIT(ADMIN_ANSWER_BYTES);
	const struct admin_ask question = { .method = method,
		.path = path,
		.body = body,
		.len = body ? strlen(body) : 0,
		.caller.peer = peer_of(who) };
	unsigned int status = 0;

	assert_int_equal(admin_server_ask(master.admin, &question, &status, &out), 0);
	return admin_take_answer(status, path, buf_str(&out), out.len, NULL, e);
}

/* ---- one question ---------------------------------------------------------------------------- */

/* With `target` for each '$'; the caller's to free. */
static char *put(const char *text, const char *target)
{
	struct buf out = BUF_INIT(1024);

	for (; *text; text++)
		assert_int_equal(
			*text == '$' && target ? buf_puts(&out, target) : buf_append(&out, text, 1),
			0);
	assert_int_equal(buf_append(&out, "", 1), 0);
	return out.data;
}

static void mask(char *text, const char *target)
{
	for (char *at = strstr(text, target); at; at = strstr(at, target))
		memset(at, '*', strlen(target));
}

/* What is refused says the same of every target: its name is masked in the line. */
static int ask(enum principal who, const struct asked *a, const char *target, struct err *e)
{
	_cleanup_free_ char *path = put(a->path, target);
	_cleanup_free_ char *text = a->body ? put(a->body, target) : NULL;
	json_t *body = text ? df_body(text) : NULL;
	_cleanup_free_ char *packed = body ? admin_json_text(body, 0) : NULL;
	int r;

	*e = ERR_INIT;
	if (who == PRINCIPAL_NONE || who == PRINCIPAL_LOCAL)
		r = admin_call(who == PRINCIPAL_LOCAL ? master.socket : master.http, a->method,
			path, body, TIMEOUT, NULL, e);
	else if (who == PRINCIPAL_OTHER)
		r = ask_socket(who, a->method, path, packed, e);
	else
		r = ask_wire(who, a->method, path, packed, e);
	if (target)
		mask(e->text, target);
	json_decref(body);
	return r;
}

/* What a question that was allowed may have changed. */
static void put_back(void)
{
	int deleted = dataset_delete(df.set, "x", true, &df.e);
	int created = df_create("{'name':'gone','mounts':[{'url':'file://@/origin'}]}");

	assert_true(deleted == 0 || deleted == -ENOENT);
	assert_true(created == 0 || created == -EEXIST);
	assert_int_equal(df_update("mine", "{'priority':1}"), 0);
	assert_int_equal(df_update("others", "{'priority':1}"), 0);
}

static size_t preloads(void)
{
	json_t *json = NULL;
	size_t n;

	assert_int_equal(preloads_json(master.service.preloads, 0, &json, &df.e), 0);
	n = json_array_size(json_object_get(json, "preloads"));
	json_decref(json);
	return n;
}

static void is_as_put_back(void)
{
	struct dataset *all = NULL;
	uint32_t n = 0;

	assert_int_equal(dataset_set_all(df.set, &all, &n), 0);
	assert_int_equal(n, 3);
	for (uint32_t i = 0; i < n; i++) {
		assert_true(strcmp(all[i].name, "gone") == 0 || all[i].policy.to.priority == 1);
		dataset_release(&all[i]);
	}
	free(all);
}

/* ---- tests ----------------------------------------------------------------------------------- */

static void configure(bool allows)
{
	static char dir[sizeof(fixture_dir)];
	struct option_list dirs = { { dir }, allows };

	(void)snprintf(dir, sizeof(dir), "%s", fixture_dir);
	master.service.rules = (struct source_rules){
		.file_roots = dirs, .credential_dirs = dirs, .local_endpoints = allows
	};
	master.service.admin_may_mint = allows;
}

static bool is_allowed(enum principal who, const struct asked *a, bool configured)
{
	enum right right = rights_of(who, RIGHTS_ADMIN, a->op);

	if (right == RIGHT_CONFIGURED)
		return configured;
	if (right == RIGHT_OWN)
		return a->there && strcmp(a->there, "mine") == 0;
	return right == RIGHT_ALL;
}

/* The result of a call that is allowed. The pool of preloads takes no job, so that no source is opened. */
static int answer_of(const struct asked *a)
{
	return strcmp(a->path, PRELOADS) == 0 ? -EAGAIN : 0;
}

static void allowed(enum principal who, const struct asked *a)
{
	struct err e;
	int r = ask(who, a, a->there, &e);

	if (r != answer_of(a))
		fail_msg("principal %d, %s %s: %d %s", (int)who, a->method, a->path, r, e.text);
	put_back();
	if (a->not_there && a->op != RIGHTS_OP_NAME && who != PRINCIPAL_TOKEN &&
		who != PRINCIPAL_OTHER)
		assert_int_equal(ask(who, a, a->not_there, &e), -ENOENT);
}

static void refused(enum principal who, const struct asked *a)
{
	size_t before = preloads();
	struct err of_other;
	struct err e;
	int r = ask(who, a, a->there, &e);

	if (r != -EPERM && !(r == -ENOENT && who == PRINCIPAL_TOKEN && a->op == RIGHTS_OP_SHOW))
		fail_msg("principal %d, %s %s: %d %s", (int)who, a->method, a->path, r, e.text);
	assert_int_equal(ask(who, a, a->not_there, &of_other), r);
	assert_string_equal(of_other.text, e.text);
	assert_int_equal(preloads(), before);
	is_as_put_back();
}

static void test_every_cell(void **state)
{
	uint32_t seen = 0;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
		seen |= 1u << table[i].op;
		for (enum principal who = 0; who < PRINCIPALS; who++) {
			for (int configured = 0; configured < 2; configured++) {
				configure(configured);
				if (is_allowed(who, &table[i], configured))
					allowed(who, &table[i]);
				else
					refused(who, &table[i]);
			}
		}
	}
	assert_int_equal(seen, (2u << RIGHTS_OP_NAME) - 1);
}

/* Its token expires after the request was let in: nothing is answered, whatever it is about. */
static void test_expires(void **state)
{
	static const struct asked all[] = {
		{ RIGHTS_OP_SHOW, "GET", "/v1/datasets", NULL, NULL, NULL },
		{ RIGHTS_OP_SHOW, "GET", "/v1/datasets/$", NULL, "mine", "none" },
		{ RIGHTS_OP_CHANGE, "POST", "/v1/tokens", "{}", NULL, NULL },
	};
	struct err refusal = ERR_INIT;
	struct err e;

	(void)state;
	(void)peer_sees_nothing(&refusal);
	master.expires = true;
	for (enum principal who = PRINCIPAL_TOKEN; who <= PRINCIPAL_ADMIN; who++) {
		for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
			assert_int_equal(ask(who, &all[i], all[i].there, &e), -ENXIO);
			assert_string_equal(e.text, refusal.text);
			assert_int_equal(ask(who, &all[i], all[i].not_there, &e), -ENXIO);
			assert_string_equal(e.text, refusal.text);
		}
	}
	master.expires = false;
}

static json_t *noted;

static void note_changes(void *arg, const struct audit_act *act)
{
	(void)arg;
	json_decref(noted);
	noted = json_deep_copy(act->changes);
}

/* The audit log names a token by its serial: who made it is found by that. */
static void test_audit_of_tokens(void **state)
{
	static const char *const paths[] = { "/v1/tokens", "/v1/datasets/mine/tokens" };
	struct err e = ERR_INIT;

	(void)state;
	audit_watch(note_changes, NULL);
	for (size_t i = 0; i < ARRAY_SIZE(paths); i++) {
		json_t *token = NULL;
		json_t *changes;

		assert_int_equal(
			admin_call(master.socket, "POST", paths[i], NULL, TIMEOUT, &token, &e), 0);
		changes = json_pack("{s:{s:n, s:O}, s:{s:n, s:O}}", "serial", "old", "new",
			json_object_get(token, "serial"), "expires", "old", "new",
			json_object_get(token, "expires"));
		assert_true(json_equal(noted, changes));
		json_decref(changes);
		json_decref(token);
	}
	audit_watch(NULL, NULL);
	json_decref(TAKE(noted));
}

static int set_up(void **state)
{
	struct preloads_config preloads = { 0 };
	struct err e = ERR_INIT;
	uint16_t port = 0;
	char text[128];

	if (df_setup(state) < 0 || with_cluster_key(state) < 0)
		return -1;
	assert_int_equal(file_write_atomic(fixture_in("secret"), "x", 1, 0600), 0);
	(void)snprintf(text, sizeof(text),
		"{'name':'mine','mounts':[{'url':'file://@/origin'}],'allow':['uid:%u']}",
		peer_of(PRINCIPAL_OTHER).uid); /* fits */
	assert_int_equal(df_create(text), 0);
	assert_int_equal(df_create("{'name':'others','mounts':[{'url':'file://@/origin'}]}"), 0);
	put_back();
	master.service.datasets = df.set;
	master.none = pool_new("none", 1, 0);
	preloads = (struct preloads_config){ df.store, df.sources, df.set, .pool = master.none };
	assert_int_equal(preloads_new(&preloads, &master.service.preloads, &e), 0);
	(void)snprintf(master.socket, sizeof(master.socket), "%s", fixture_in("admin.sock"));
	assert_int_equal(
		admin_server_new(master.socket, routes, &master.service, &master.admin, &e), 0);
	admin_server_allow_use(master.admin, used);
	assert_int_equal(admin_server_listen(master.admin,
				 &(struct admin_listen){ .address = "127.0.0.1:0" }, &port, &e),
		0);
	(void)snprintf(master.http, sizeof(master.http), ADMIN_TCP "127.0.0.1:%u", port);
	master.service.remote = remote_admin_new(master.admin, df.set);
	assert_non_null(master.service.remote);
	master.ops = transport_fake;
	master.ops.listen = listen_as;
	net_debug_wrap = wrap;
	master.loop = loop_new("test");
	return rpc_server_new(master.loop, FAKE, &server_ops, NULL, &master.server, &e);
}

static int tear_down(void **state)
{
	rpc_server_free(master.server);
	remote_admin_free(master.service.remote);
	admin_server_free(master.admin);
	loop_free(master.loop);
	pool_free(master.none);
	preloads_free(master.service.preloads);
	net_debug_wrap = NULL;
	return without_cluster_key(state) | df_teardown(state);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_every_cell, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_expires, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_audit_of_tokens, set_up, tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
