/* Kubeconfigs and service accounts. */
#include "base/cleanup.h"
#include "base/file.h"
#include "base/secret.h"
#include "kube/kube_access.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char dir[] = "/tmp/test_kube_access.XXXXXX";

static const char *path(const char *name)
{
	static char text[256];

	(void)snprintf(text, sizeof(text), "%s/%s", dir, name);
	return text;
}

static void write_text(const char *name, const char *text)
{
	assert_int_equal(file_write_atomic(path(name), text, strlen(text), 0600), 0);
}

#define CONTEXTS                                                                    \
	"contexts:\n- name: a\n  context: {cluster: c, user: u, namespace: team}\n" \
	"- name: b\n  context: {cluster: c}\n"

#define EXEC "exec: {apiVersion: client.authentication.k8s.io/v1, "

static int find(const char *text, const char *context, struct kube_access *ret, struct err *e)
{
	struct kube_choice choice = { .context = context };
	char config[256];

	write_text("config", text);
	(void)snprintf(config, sizeof(config), "%s", path("config"));
	choice.config = config;
	return kube_access_find(&choice, ret, e);
}

static void takes_a_context_with_its_cluster_and_user(void **state)
{
	static const char text[] = "apiVersion: v1\nkind: Config\ncurrent-context: a\n" CONTEXTS
				   "clusters:\n- name: c\n  cluster: {server: 'https://h:6443/', "
				   "certificate-authority-data: Y2E=}\n"
				   "users:\n- name: u\n  user: {client-certificate-data: Y2VydA==, "
				   "client-key: k.pem, token: abc}\n";
	_cleanup_(buf_release) struct buf token = BUF_INIT(KUBE_TOKEN_BYTES);
	struct kube_access a;
	struct err e = ERR_INIT;

	(void)state;
	write_text("k.pem", "key");
	assert_int_equal(find(text, NULL, &a, &e), 0);
	assert_string_equal(a.server, "https://h:6443");
	assert_string_equal(a.name_space, "team");
	assert_string_equal(a.ca_pem, "ca");
	assert_string_equal(a.cert_pem, "cert");
	assert_string_equal(a.key_pem, "key"); /* relative to the kubeconfig */
	assert_int_equal(kube_access_token(&a, &token, &e), 0);
	assert_string_equal(buf_str(&token), "abc");
	kube_access_release(&a);

	assert_int_equal(find(text, "b", &a, &e), 0);
	assert_string_equal(a.name_space, "default");
	assert_null(a.token);
	kube_access_release(&a);
}

/* Each with a word of its line. */
static void refuses_what_it_would_ignore(void **state)
{
	static const struct {
		const char *cluster;
		const char *user;
		const char *word;
	} bad[] = {
		{ "server: 'https://h', insecure-skip-tls-verify: true", "",
			"certificate-authority" },
		{ "server: 'https://h', tls-server-name: x", "", "tls-server-name" },
		{ "server: 'https://h', proxy-url: 'http://p'", "", "https_proxy" },
		{ "server: 'http://h:8001'", "token: abc", "without TLS" },
		{ "server: 'http://localhost.evil'", "tokenFile: abc", "without TLS" },
		{ "server: 'http://127.0.0.1.evil'", "token: abc", "without TLS" },
		{ "server: 'ftp://h'", "", "https://HOST:PORT" },
		{ "server: \"https://h\\r\\nX: y\"", "", "invalid server" },
		{ "certificate-authority-data: Y2E=", "", "no server" },
		{ "server: 'https://h', certificate-authority-data: '%%'", "", "Base64" },
		{ "server: 'https://h', certificate-authority: none.pem", "", "none.pem" },
		{ "server: 'https://h'", "as: \"a\\r\\nX: y\"", "invalid user" },
		{ "server: 'https://h'", "exec: {command: aws}", "apiVersion" },
		{ "server: 'https://h'", EXEC "command: none-such}", "not found in $PATH" },
		{ "server: 'https://h'", EXEC "command: /x, interactiveMode: Always}", "terminal" },
		{ "server: 'https://h'", EXEC "args: [a]}", "command is missing" },
		{ "server: 'https://h'", EXEC "command: /x, env: [a]}", "env is not" },
		{ "server: 'https://h'", "auth-provider: {name: gcp}", "create token" },
		{ "server: 'https://h'", "username: x, password: secret-word", "passwords" },
		{ "server: 'https://h'", "token: \"a\\nb\"", "blank" },
		{ "server: 'https://h'", "client-certificate-data: Y2VydA==", "together" },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		_cleanup_free_ char *text = NULL;
		struct err e = ERR_INIT;
		struct kube_access a;

		assert_true(asprintf(&text,
				    "current-context: a\n" CONTEXTS
				    "clusters: [{name: c, cluster: {%s}}]\n"
				    "users: [{name: u, user: {%s}}]\n",
				    bad[i].cluster, bad[i].user) > 0);
		assert_int_equal(find(text, NULL, &a, &e),
			-EINVAL + (strstr(bad[i].word, "blank") ? EINVAL - ENOKEY : 0));
		if (!strstr(e.text, bad[i].word))
			fail_msg("%s: %s", bad[i].word, e.text);
		assert_null(strstr(e.text, "secret-word"));
	}
}

static void names_what_is_missing(void **state)
{
	struct kube_access a;
	struct err e = ERR_INIT;

	(void)state;
	assert_int_equal(find("clusters: []\n", NULL, &a, &e), -EINVAL);
	assert_non_null(strstr(e.text, "current-context"));
	assert_int_equal(find("current-context: z\n" CONTEXTS, NULL, &a, &e), -EINVAL);
	assert_non_null(strstr(e.text, "context 'z' not found"));
	assert_int_equal(find("current-context: a\n" CONTEXTS, NULL, &a, &e), -EINVAL);
	assert_non_null(strstr(e.text, "cluster 'c' not found"));
	assert_int_equal(find("current-context: [\n", NULL, &a, &e), -EINVAL);
	assert_int_equal(
		kube_access_find(&(struct kube_choice){ .config = "/none" }, &a, &e), -EINVAL);
	assert_non_null(strstr(e.text, "none not found"));
}

/* The first file that has a name has it for all. */
static void several_files_are_one(void **state)
{
	char list[512];
	struct kube_access a;
	struct err e = ERR_INIT;

	(void)state;
	write_text("one",
		"current-context: a\ncontexts: [{name: a, context: {cluster: c, user: u}}]\n");
	write_text("two",
		"current-context: b\nclusters: [{name: c, cluster: {server: 'https://two'}}]\n"
		"users: [{name: u, user: {tokenFile: token}}]\n");
	(void)snprintf(list, sizeof(list), "%s/none:%s/one:%s/two", dir, dir, dir);
	assert_int_equal(setenv("KUBECONFIG", list, 1), 0);
	assert_int_equal(kube_access_find(&(struct kube_choice){ 0 }, &a, &e), 0);
	assert_string_equal(a.server, "https://two");
	assert_string_equal(a.token_file, path("token"));
	kube_access_release(&a);
	assert_int_equal(setenv("KUBECONFIG", "/none", 1), 0);
	assert_int_equal(kube_access_find(&(struct kube_choice){ 0 }, &a, &e), -EINVAL);
	assert_int_equal(unsetenv("KUBECONFIG"), 0);
}

static void a_pod_has_its_service_account(void **state)
{
	struct kube_choice choice = { .in_cluster = true, .account_dir = dir, .as = "jane" };
	_cleanup_(secret_release_buf) struct buf token = BUF_INIT(KUBE_TOKEN_BYTES);
	struct kube_access a;
	struct err e = ERR_INIT;

	(void)state;
	assert_int_equal(unsetenv("KUBERNETES_SERVICE_HOST"), 0);
	assert_int_equal(kube_access_find(&choice, &a, &e), -ENOKEY);
	assert_int_equal(setenv("KUBERNETES_SERVICE_HOST", "fd00::1", 1), 0);
	assert_int_equal(setenv("KUBERNETES_SERVICE_PORT", "443", 1), 0);
	assert_int_equal(kube_access_find(&choice, &a, &e), -ENOKEY); /* no ca.crt */
	write_text("ca.crt", "ca");
	write_text("namespace", "ml");
	assert_int_equal(kube_access_find(&choice, &a, &e), 0);
	assert_string_equal(a.server, "https://[fd00::1]:443");
	assert_string_equal(a.name_space, "ml");
	assert_string_equal(a.as, "jane");

	/* The token is replaced while the process runs. */
	assert_int_equal(kube_access_token(&a, &token, &e), -ENOKEY);
	write_text("token", "first\n");
	assert_int_equal(kube_access_token(&a, &token, &e), 0);
	assert_string_equal(token.data, "first");
	write_text("token", "second");
	buf_clear(&token);
	assert_int_equal(kube_access_token(&a, &token, &e), 0);
	assert_string_equal(token.data, "second");
	write_text("token", "two words");
	assert_int_equal(kube_access_token(&a, &token, &e), -ENOKEY);
	assert_null(strstr(e.text, "two words"));
	write_text("token", "");
	assert_int_equal(kube_access_token(&a, &token, &e), -ENOKEY);
	kube_access_release(&a);
}

/* The program counts its runs, and prints what it was given. */
static void a_program_prints_tokens(void **state)
{
	static const char script[] =
		"#!/bin/sh\n"
		"echo run >>\"$OUT\"\n"
		"case $KUBERNETES_EXEC_INFO in *'\"server\":\"https://h\"'*) ;; *) exit 4;; esac\n"
		"echo \"{\\\"status\\\": {\\\"token\\\": \\\"t-$1-$(wc -l <\"$OUT\")\\\","
		" \\\"expirationTimestamp\\\": \\\"$WHEN\\\"}}\"\n";
	const char *const when[] = { "2999-01-01T00:00:00Z", "2000-01-01T00:00:00Z" };

	(void)state;
	write_text("give", script);
	assert_int_equal(chmod(path("give"), 0700), 0);
	for (size_t i = 0; i < ARRAY_SIZE(when); i++) {
		_cleanup_(secret_release_buf) struct buf token = BUF_INIT(KUBE_TOKEN_BYTES);
		_cleanup_free_ char *text = NULL;
		struct err e = ERR_INIT;
		struct kube_access a;

		(void)unlink(path("out"));
		assert_true(
			asprintf(&text,
				"current-context: a\n" CONTEXTS
				"clusters: [{name: c, cluster: {server: 'https://h'}}]\n"
				"users: [{name: u, user: {" EXEC "command: ./give, args: ['a;b'], "
				"provideClusterInfo: true, env: [{name: OUT, value: '%s'}, "
				"{name: WHEN, value: '%s'}]}}}]\n",
				path("out"), when[i]) > 0);
		assert_int_equal(find(text, NULL, &a, &e), 0);
		assert_int_equal(kube_access_token(&a, &token, &e), 0);
		assert_string_equal(token.data, "t-a;b-1");
		buf_clear(&token);
		assert_int_equal(kube_access_token(&a, &token, &e), 0);
		assert_string_equal(token.data, i == 0 ? "t-a;b-1" : "t-a;b-2");
		assert_true(kube_access_renew(&a));
		buf_clear(&token);
		assert_int_equal(kube_access_token(&a, &token, &e), 0);
		assert_string_equal(token.data, i == 0 ? "t-a;b-2" : "t-a;b-3");
		kube_access_release(&a);
	}
}

static void what_a_program_prints_instead(void **state)
{
	static const struct {
		const char *script;
		const char *word;
	} bad[] = {
		{ "exit 3", "status 3" },
		{ "echo secret-word", "printed none" },
		{ "echo '{}'", "printed none" },
		{ "printf '%s' '{\"status\": {\"token\": \"a\\nsecret-word\"}}'", "blank" },
		{ "echo '{\"status\": {\"token\": \"\"}}'", "empty" },
		{ "head -c 100000 /dev/zero", "run it by hand" },
		{ "kill -9 $$", "run it by hand" },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		_cleanup_(secret_release_buf) struct buf token = BUF_INIT(KUBE_TOKEN_BYTES);
		_cleanup_free_ char *script = NULL;
		struct err e = ERR_INIT;
		struct kube_access a;

		assert_true(asprintf(&script, "#!/bin/sh\n%s\n", bad[i].script) > 0);
		write_text("give", script);
		assert_int_equal(chmod(path("give"), 0700), 0);
		assert_int_equal(find("current-context: a\n" CONTEXTS
				      "clusters: [{name: c, cluster: {server: 'https://h'}}]\n"
				      "users: [{name: u, user: {" EXEC "command: ./give}}}]\n",
					 NULL, &a, &e),
			0);
		assert_int_equal(kube_access_token(&a, &token, &e), -ENOKEY);
		if (!strstr(e.text, bad[i].word))
			fail_msg("%s: %s", bad[i].word, e.text);
		assert_null(strstr(e.text, "secret-word"));
		kube_access_release(&a);
	}
}

static int set_up(void **state)
{
	(void)state;
	return mkdtemp(dir) ? 0 : -1;
}

static int tear_down(void **state)
{
	(void)state;
	file_remove_tree(dir);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(takes_a_context_with_its_cluster_and_user),
		cmocka_unit_test(refuses_what_it_would_ignore),
		cmocka_unit_test(names_what_is_missing),
		cmocka_unit_test(several_files_are_one),
		cmocka_unit_test(a_program_prints_tokens),
		cmocka_unit_test(what_a_program_prints_instead),
		cmocka_unit_test(a_pod_has_its_service_account),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
