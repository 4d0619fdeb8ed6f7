/* Tokens of a program. See kube_exec.h. */
#include "kube/kube_exec.h"
#include "admin/admin.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/programs.h"
#include "base/secret.h"
#include "kube/kube_token.h"

#include <pthread.h>
#include <string.h>

#define WORDS_MAX    64u
#define VARIABLE     "KUBERNETES_EXEC_INFO="
#define RUN_NS       (60 * CLOCK_SECOND)
#define ANSWER_BYTES (64u << 10)
#define EARLY_S      60

struct kube_exec {
	char *argv[WORDS_MAX + 1];
	char *env[WORDS_MAX + 2]; /* in addition to this process's */
	char *config;
	pthread_mutex_t
		lock; /* of what follows; held while the program runs: others need its token, too */
	char *token;  /* secret; NULL: none */
	int64_t until; /* wall clock, seconds; -1: for ever */
};

void kube_exec_free(struct kube_exec *exec)
{
	if (!exec)
		return;
	for (size_t i = 0; i <= WORDS_MAX; i++)
		free(exec->argv[i]);
	for (size_t i = 0; i <= WORDS_MAX; i++)
		free(exec->env[i]);
	free(exec->config);
	secret_free(exec->token);
	pthread_mutex_destroy(&exec->lock);
	free(exec);
}

/* ---- from the kubeconfig --------------------------------------------------------------------- */

static const char *text_of(const struct yaml_tree_node *map, const char *key)
{
	const struct yaml_tree_node *node = yaml_tree_find(map, key);

	return node && node->kind == YAML_TREE_SCALAR && !yaml_tree_is_null(node) ? node->text : "";
}

static int refuse(const struct kube_exec *exec, struct err *e, const char *why)
{
	return err_set(e, -EINVAL, "kubeconfig %s: exec: %s", exec->config, why);
}

/* A command with a slash is relative to the kubeconfig, others are found by $PATH. */
static int find_program(struct kube_exec *exec, const char *command, struct err *e)
{
	const char *slash = strrchr(exec->config, '/');
	char path[PATH_MAX];

	if (!*command)
		return refuse(exec, e, "command is missing: write the program that prints a token");
	if (command[0] == '/' || (strchr(command, '/') && !slash))
		exec->argv[0] = strdup(command);
	else if (strchr(command, '/') &&
		 asprintf(&exec->argv[0], "%.*s/%s", (int)(slash - exec->config), exec->config,
			 command) < 0)
		exec->argv[0] = NULL;
	else if (!strchr(command, '/') && programs_find(command, path))
		exec->argv[0] = strdup(path);
	else if (!strchr(command, '/'))
		return err_set(e, -EINVAL,
			"kubeconfig %s: program '%s' not found in $PATH: install it", exec->config,
			command);
	return exec->argv[0] ? 0 : err_set(e, -ENOMEM, "out of memory");
}

static int take_words(struct kube_exec *exec, const struct yaml_tree_node *node, struct err *e)
{
	const struct yaml_tree_node *args = yaml_tree_find(node, "args");
	const struct yaml_tree_node *env = yaml_tree_find(node, "env");
	size_t n = 0;

	for (const struct yaml_tree_node *one = args ? args->first : NULL; one; one = one->next) {
		if (++n == WORDS_MAX || one->kind != YAML_TREE_SCALAR)
			return refuse(
				exec, e, "args is not a list of at most 63 texts: shorten it");
		exec->argv[n] = strdup(one->text);
		if (!exec->argv[n])
			return err_set(e, -ENOMEM, "out of memory");
	}
	n = 0;
	for (const struct yaml_tree_node *one = env ? env->first : NULL; one; one = one->next) {
		if (++n == WORDS_MAX || !*text_of(one, "name"))
			return refuse(exec, e,
				"env is not a list of at most 63 names and values: shorten it");
		if (asprintf(&exec->env[n], "%s=%s", text_of(one, "name"), text_of(one, "value")) <
			0) {
			exec->env[n] = NULL;
			return err_set(e, -ENOMEM, "out of memory");
		}
	}
	return 0;
}

/* What the program gets: no terminal, and the cluster if it wants to know. */
static int put_info(struct kube_exec *exec, const struct yaml_tree_node *node, const char *server,
	const char *ca_pem, struct err *e)
{
	bool wants = strcmp(text_of(node, "provideClusterInfo"), "true") == 0;
	size_t len = ca_pem ? strlen(ca_pem) : 0;
	_cleanup_free_ char *ca = malloc(HASH_BASE64_SIZE(len));
	json_t *info = json_pack("{s:s, s:s, s:{s:b}}", "apiVersion", text_of(node, "apiVersion"),
		"kind", "ExecCredential", "spec", "interactive", 0);
	_cleanup_free_ char *text = NULL;

	if (ca && info) {
		hash_base64(ca_pem ? ca_pem : "", len, ca);
		if (!wants || json_object_set_new(json_object_get(info, "spec"), "cluster",
				      json_pack("{s:s, s:s}", "server", server,
					      "certificate-authority-data", ca)) == 0)
			text = admin_json_text(info, JSON_COMPACT);
	}
	json_decref(info);
	if (!text || asprintf(&exec->env[0], VARIABLE "%s", text) < 0) {
		exec->env[0] = NULL;
		return err_set(e, -ENOMEM, "out of memory");
	}
	return 0;
}

int kube_exec_new(const struct yaml_tree_node *node, const char *config, const char *server,
	const char *ca_pem, struct kube_exec **ret_exec, struct err *e)
{
	struct kube_exec *exec = calloc(1, sizeof(*exec));
	int r = -ENOMEM;

	if (!exec)
		return err_set(e, r, "out of memory");
	ensure(pthread_mutex_init(&exec->lock, NULL) == 0);
	exec->config = strdup(config);
	if (!exec->config)
		(void)err_set(e, r, "out of memory"); /* r */
	else if (strncmp(text_of(node, "apiVersion"), "client.authentication.k8s.io/v1", 31) != 0)
		r = refuse(exec, e,
			"apiVersion is not client.authentication.k8s.io/v1 or v1beta1: update the "
			"kubeconfig");
	else if (strcmp(text_of(node, "interactiveMode"), "Always") == 0)
		r = refuse(exec, e,
			"interactiveMode Always is not supported: use a program that needs no "
			"terminal");
	else
		r = find_program(exec, text_of(node, "command"), e);
	if (r == 0)
		r = take_words(exec, node, e);
	if (r == 0)
		r = put_info(exec, node, server, ca_pem, e);
	if (r < 0) {
		kube_exec_free(exec);
		return r;
	}
	*ret_exec = exec;
	return 0;
}

/* ---- running it ------------------------------------------------------------------------------ */

/* Its variables come first: of two with one name, getenv(3) takes that. */
static int run(struct kube_exec *exec, struct buf *answer, struct err *e)
{
	size_t n = 0;
	size_t own = 0;
	_cleanup_free_ char **env = NULL;
	int status = 0;
	int r;

	while (environ[n])
		n++;
	env = calloc(n + WORDS_MAX + 2, sizeof(*env));
	if (!env)
		return err_set(e, -ENOMEM, "out of memory");
	for (; exec->env[own]; own++)
		env[own] = exec->env[own];
	memcpy(env + own, environ, n * sizeof(*env));
	r = programs_run_in(env, exec->argv, RUN_NS, answer, &status);
	if (r < 0)
		return err_set(e, r == -ENOMEM ? r : -ENOKEY,
			"%s, which kubeconfig %s names for a token: %s; run it by hand",
			exec->argv[0], exec->config, err_str(r));
	return status == 0 ? 0
			   : err_set(e, -ENOKEY,
				     "%s, which kubeconfig %s names for a token, ended with status "
				     "%d; run it by hand",
				     exec->argv[0], exec->config, status);
}

static int take_token(struct kube_exec *exec, const json_t *status, struct err *e)
{
	_cleanup_(secret_release_buf) struct buf text = BUF_INIT(KUBE_TOKEN_BYTES);
	const char *token = json_string_value(json_object_get(status, "token"));
	const char *until = json_string_value(json_object_get(status, "expirationTimestamp"));
	int r;

	if (!token)
		return err_set(e, -ENOKEY,
			"%s, which kubeconfig %s names for a token, printed none; update it",
			exec->argv[0], exec->config);
	r = buf_puts(&text, token);
	r = r < 0 ? err_set(e, -ENOKEY, "the token of %s is too long; update it", exec->argv[0])
		  : kube_token_check(exec->argv[0], &text, e);
	if (r < 0)
		return r;
	exec->token = secret_text(text.data, text.len);
	if (!until || clock_parse(until, &exec->until) < 0)
		exec->until = -1;
	return exec->token ? 0 : err_set(e, -ENOMEM, "out of memory");
}

static int renew(struct kube_exec *exec, struct err *e)
{
	_cleanup_(secret_release_buf) struct buf answer = BUF_INIT(ANSWER_BYTES);
	json_t *json = NULL;
	int r = run(exec, &answer, e);

	if (r < 0)
		return r;
	if (admin_json_parse(buf_str(&answer), answer.len, 0, &json, NULL) < 0)
		json = NULL; /* then it has no token */
	r = take_token(exec, json_object_get(json, "status"), e);
	json_decref(json);
	return r;
}

int kube_exec_token(struct kube_exec *exec, struct buf *out, struct err *e)
{
	int64_t now = (int64_t)(clock_wall_ns() / CLOCK_SECOND);
	int r = 0;

	pthread_mutex_lock(&exec->lock);
	if (exec->token && exec->until >= 0 && now + EARLY_S >= exec->until)
		secret_free(TAKE(exec->token));
	if (!exec->token)
		r = renew(exec, e);
	if (r == 0)
		r = buf_puts(out, exec->token) < 0 ? err_set(e, -ENOMEM, "out of memory") : 0;
	pthread_mutex_unlock(&exec->lock);
	return r;
}

void kube_exec_forget(struct kube_exec *exec)
{
	pthread_mutex_lock(&exec->lock);
	secret_free(TAKE(exec->token));
	pthread_mutex_unlock(&exec->lock);
}
