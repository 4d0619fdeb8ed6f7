/* Kubeconfigs and service accounts. See kube_access.h. */
#include "kube/kube_access.h"
#include "kube/kube_exec.h"
#include "base/cleanup.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/secret.h"
#include "base/yaml_tree.h"

#include <stdlib.h>
#include <string.h>

#define PEM_BYTES   (256u << 10)
#define CONFIGS_MAX 16u
#define PATH_BYTES  4096u

void kube_access_release(struct kube_access *access)
{
	free(access->server);
	free(access->name_space);
	free(access->ca_pem);
	free(access->cert_pem);
	secret_free(access->key_pem);
	secret_free(access->token);
	kube_exec_free(access->exec);
	free(access->token_file);
	free(access->as);
	free(access->from);
	*access = (struct kube_access){ 0 };
}

/* ---- texts ----------------------------------------------------------------------------------- */

static int copy(const char *text, char **ret, struct err *e)
{
	*ret = strdup(text);
	return *ret ? 0 : err_set(e, -ENOMEM, "out of memory");
}

static __printf(3, 4) int print(char **ret, struct err *e, const char *format, ...)
{
	va_list ap;
	int n;

	va_start(ap, format);
	n = vasprintf(ret, format, ap);
	va_end(ap);
	if (n >= 0)
		return 0;
	*ret = NULL;
	return err_set(e, -ENOMEM, "out of memory");
}

static int copy_secret(const char *text, size_t len, char **ret, struct err *e)
{
	*ret = secret_text(text, len);
	return *ret ? 0 : err_set(e, -ENOMEM, "out of memory");
}

int kube_access_token(const struct kube_access *access, struct buf *out, struct err *e)
{
	_cleanup_(secret_release_buf) struct buf text = BUF_INIT(KUBE_TOKEN_BYTES);
	int r;

	if (access->exec)
		return kube_exec_token(access->exec, out, e);
	if (!access->token && !access->token_file)
		return 0;
	if (access->token)
		r = buf_puts(out, access->token);
	else if ((r = file_read_all(access->token_file, &text)) < 0)
		return err_set(e, r == -ENOMEM ? r : -ENOKEY,
			"cannot read the token in %s: %s; write a new one there",
			access->token_file, err_str(r));
	else if ((r = kube_token_check(access->token_file, &text, e)) < 0)
		return r;
	else
		r = buf_append(out, text.data, text.len);
	return r < 0 ? err_set(e, r, "cannot send the token: %s", err_str(r)) : 0;
}

bool kube_access_renew(const struct kube_access *access)
{
	if (access->exec)
		kube_exec_forget(access->exec);
	return access->exec || access->token_file;
}

/* ---- kubeconfig ------------------------------------------------------------------------------ */

/* Several files are one, as with kubectl: the first that has a name has it for all. */
struct configs {
	struct yaml_tree *trees[CONFIGS_MAX];
	char *paths[CONFIGS_MAX];
	unsigned int n;
};

/* A map of one of them. */
struct part {
	const struct yaml_tree_node *map;
	const char *path;
};

static void configs_release(struct configs *c)
{
	for (unsigned int i = 0; i < c->n; i++) {
		yaml_tree_free(c->trees[i]);
		free(c->paths[i]);
	}
}

static int add_config(struct configs *c, const char *path, struct err *e)
{
	int r;

	if (c->n == CONFIGS_MAX)
		return err_set(e, -EINVAL,
			"KUBECONFIG names more than %u files: give --config FILE", CONFIGS_MAX);
	r = yaml_tree_read(path, &c->trees[c->n], e);
	if (r < 0)
		return r == -ENOENT || r == -ENOMEM ? r : err_prefix(e, "kubeconfig");
	c->paths[c->n] = strdup(path);
	c->n++;
	return c->paths[c->n - 1] ? 0 : err_set(e, -ENOMEM, "out of memory");
}

static const char *text_of(struct part part, const char *key)
{
	const struct yaml_tree_node *node = yaml_tree_find(part.map, key);

	return node && node->kind == YAML_TREE_SCALAR && !yaml_tree_is_null(node) && *node->text
		       ? node->text
		       : NULL;
}

/* The map `key` of the entry of that name: contexts: [{name: x, context: {...}}]. */
static int find_part(const struct configs *c, const char *list, const char *key, const char *name,
	struct part *ret, struct err *e)
{
	for (unsigned int i = 0; i < c->n; i++) {
		const struct yaml_tree_node *all = yaml_tree_find(c->trees[i]->root, list);

		for (const struct yaml_tree_node *one = all ? all->first : NULL; one;
			one = one->next) {
			struct part entry = { one, c->paths[i] };
			const char *its = text_of(entry, "name");

			if (!its || strcmp(its, name) != 0)
				continue;
			*ret = (struct part){ yaml_tree_find(one, key), c->paths[i] };
			return 0;
		}
	}
	return err_set(e, -EINVAL, "kubeconfig %s: %s '%s' not found; see `kubectl config view`",
		c->paths[0], key, name);
}

/* A path in a kubeconfig is relative to its directory. */
static int resolve(struct part part, const char *path, char **ret, struct err *e)
{
	const char *slash = strrchr(part.path, '/');

	if (path[0] == '/' || !slash)
		return copy(path, ret, e);
	return print(ret, e, "%.*s/%s", (int)(slash - part.path), part.path, path);
}

/* Appends what a text in Base64 stands for. */
static int decode(const char *text, struct buf *out)
{
	size_t len = strlen(text) / 4 * 3;
	int r = buf_reserve(out, len);

	if (r == 0)
		r = hash_decode_base64(text, out->data + out->len, &len);
	if (r < 0)
		return r;
	out->len += len;
	out->data[out->len] = '\0';
	return 0;
}

/* KEY-data in Base64, or the file that KEY names; neither: nothing is appended. */
static int take_pem(struct part part, const char *key, struct buf *out, struct err *e)
{
	_cleanup_free_ char *path = NULL;
	char data_key[64];
	const char *data;
	const char *file = text_of(part, key);
	int r;

	(void)snprintf(data_key, sizeof(data_key), "%s-data", key); /* fits */
	data = text_of(part, data_key);
	if (data) {
		r = decode(data, out);
		return r == 0 ? 0
			      : err_set(e, r == -ENOMEM ? r : -EINVAL,
					"kubeconfig %s: %s is not Base64 of at most %u bytes: "
					"encode the file with `base64 -w0`",
					part.path, data_key, PEM_BYTES);
	}
	if (!file)
		return 0;
	r = resolve(part, file, &path, e);
	if (r < 0)
		return r;
	r = file_read_all(path, out);
	return r == 0 ? 0
		      : err_set(e, r == -ENOMEM ? r : -EINVAL,
				"kubeconfig %s: cannot read %s %s: %s", part.path, key, path,
				err_str(r));
}

struct refused {
	const char *key;
	const char *instead;
};

/* What would be ignored otherwise, or weakens the check of the server. */
static int refuse(struct part part, const struct refused *all, struct err *e)
{
	for (; all->key; all++) {
		const struct yaml_tree_node *node = yaml_tree_find(part.map, all->key);

		if (node && !yaml_tree_is_null(node) &&
			!(node->kind == YAML_TREE_SCALAR && strcmp(node->text, "false") == 0))
			return err_set(e, -EINVAL, "kubeconfig %s:%u: %s is not supported: %s",
				part.path, node->line, all->key, all->instead);
	}
	return 0;
}

static int check_server(struct part part, const char *server, struct err *e)
{
	if (!server)
		return err_set(e, -EINVAL, "kubeconfig %s: the cluster has no server: add its URL",
			part.path);
	for (const char *s = server; *s; s++)
		if ((unsigned char)*s <= ' ' || (unsigned char)*s >= 0x7f)
			return err_set(e, -EINVAL,
				"kubeconfig %s: invalid server '%s': write https://HOST:PORT",
				part.path, server);
	if (strncmp(server, "https://", 8) != 0 && strncmp(server, "http://", 7) != 0)
		return err_set(e, -EINVAL,
			"kubeconfig %s: invalid server '%s': write https://HOST:PORT", part.path,
			server);
	return 0;
}

static int take_cluster(struct part part, struct kube_access *a, struct err *e)
{
	static const struct refused refused[] = {
		{ "insecure-skip-tls-verify",
			"name the cluster's authority by certificate-authority-data" },
		{ "tls-server-name", "use the server's name that is in its certificate" },
		{ "proxy-url", "set https_proxy in the environment" },
		{ 0 },
	};
	_cleanup_(buf_release) struct buf pem = BUF_INIT(PEM_BYTES);
	const char *server = text_of(part, "server");
	int r = refuse(part, refused, e);

	if (r == 0)
		r = check_server(part, server, e);
	if (r == 0)
		r = copy(server, &a->server, e);
	for (size_t n = r == 0 ? strlen(a->server) : 0; n && a->server[n - 1] == '/'; n--)
		a->server[n - 1] = '\0';
	if (r == 0)
		r = take_pem(part, "certificate-authority", &pem, e);
	return r == 0 && pem.len ? copy(pem.data, &a->ca_pem, e) : r;
}

static int take_user(struct part part, struct kube_access *a, struct err *e)
{
	static const struct refused refused[] = {
		{ "auth-provider", "write a token there, such as that of `kubectl create token`" },
		{ "username", "servers take no passwords any more: use a token or a certificate" },
		{ "password", "servers take no passwords any more: use a token or a certificate" },
		{ "as-uid", "use --as" },
		{ "as-groups", "use --as" },
		{ "as-user-extra", "use --as" },
		{ 0 },
	};
	_cleanup_(buf_release) struct buf cert = BUF_INIT(PEM_BYTES);
	_cleanup_(secret_release_buf) struct buf key = BUF_INIT(PEM_BYTES);
	_cleanup_(secret_release_buf) struct buf token = BUF_INIT(KUBE_TOKEN_BYTES);
	const char *text = text_of(part, "token");
	const char *as = text_of(part, "as");
	int r = refuse(part, refused, e);

	if (r == 0)
		r = take_pem(part, "client-certificate", &cert, e);
	if (r == 0)
		r = take_pem(part, "client-key", &key, e);
	if (r == 0 && cert.len)
		r = copy(cert.data, &a->cert_pem, e);
	if (r == 0 && key.len)
		r = copy_secret(key.data, key.len, &a->key_pem, e);
	if (r == 0 && !a->cert_pem != !a->key_pem)
		return err_set(e, -EINVAL,
			"kubeconfig %s: client-certificate and client-key are needed together",
			part.path);
	if (r == 0 && as && !a->as)
		r = copy(as, &a->as, e);
	if (r == 0 && text) {
		r = buf_puts(&token, text);
		r = r < 0 ? err_set(e, r,
				    "kubeconfig %s: the token is too long: write the token and "
				    "nothing else there",
				    part.path)
			  : kube_token_check(part.path, &token, e);
		return r < 0 ? r : copy_secret(token.data, token.len, &a->token, e);
	}
	text = text_of(part, "tokenFile");
	if (r == 0 && text)
		return resolve(part, text, &a->token_file, e);
	return r == 0 && yaml_tree_find(part.map, "exec")
		       ? kube_exec_new(yaml_tree_find(part.map, "exec"), part.path, a->server,
				 a->ca_pem, &a->exec, e)
		       : r;
}

static int take_context(const struct configs *c, const struct kube_choice *choice,
	struct kube_access *a, struct err *e)
{
	const char *name = choice->context;
	struct part context = { .path = "" };
	struct part part = { .path = "" };
	const char *cluster;
	const char *user;
	const char *name_space;
	int r;

	for (unsigned int i = 0; i < c->n && !name; i++)
		name = text_of((struct part){ c->trees[i]->root, c->paths[i] }, "current-context");
	if (!name)
		return err_set(e, -EINVAL,
			"kubeconfig %s has no current-context: give --kube-context, or run "
			"`kubectl "
			"config use-context`",
			c->paths[0]);
	r = find_part(c, "contexts", "context", name, &context, e);
	if (r < 0)
		return r;
	cluster = text_of(context, "cluster");
	user = text_of(context, "user");
	name_space = text_of(context, "namespace");
	if (!cluster)
		return err_set(e, -EINVAL,
			"kubeconfig %s: context '%s' names no cluster: add `cluster: NAME`",
			context.path, name);
	r = find_part(c, "clusters", "cluster", cluster, &part, e);
	if (r == 0)
		r = take_cluster(part, a, e);
	if (r == 0 && user)
		r = find_part(c, "users", "user", user, &part, e);
	if (r == 0 && user)
		r = take_user(part, a, e);
	if (r == 0)
		r = copy(name_space ? name_space : "default", &a->name_space, e);
	if (r == 0)
		r = print(&a->from, e, "context '%s' of %s", name, context.path);
	return r;
}

/* ---- where from ------------------------------------------------------------------------------ */

/* -ENOENT: none of the files exists. */
static int read_listed(struct configs *c, const char *list, struct err *e)
{
	char path[PATH_BYTES];
	int r = 0;

	while (*list && r == 0) {
		size_t n = strcspn(list, ":");

		if (n >= sizeof(path))
			return err_set(
				e, -EINVAL, "a path in KUBECONFIG is too long: give --config FILE");
		memcpy(path, list, n);
		path[n] = '\0';
		list += n + (list[n] == ':');
		if (n)
			r = add_config(c, path, e);
		r = r == -ENOENT ? 0 : r;
	}
	return r < 0 ? r : c->n ? 0 : -ENOENT;
}

static int read_configs(const struct kube_choice *choice, struct configs *c, struct err *e)
{
	// NOLINTNEXTLINE(concurrency-mt-unsafe): read only
	const char *list = getenv("KUBECONFIG");
	// NOLINTNEXTLINE(concurrency-mt-unsafe): read only
	const char *home = getenv("HOME");
	char path[PATH_BYTES];
	int r;

	if (choice->config) {
		r = add_config(c, choice->config, e);
		return r == -ENOENT ? err_set(e, -EINVAL,
					      "kubeconfig %s not found: give a file that exists",
					      choice->config)
				    : r;
	}
	if (list && *list) {
		r = read_listed(c, list, e);
		return r == -ENOENT ? err_set(e, -EINVAL,
					      "no file of KUBECONFIG=%s exists: set it to one that "
					      "does, or give --config FILE",
					      list)
				    : r;
	}
	if (!home || snprintf(path, sizeof(path), "%s/.kube/config", home) >= (int)sizeof(path))
		return -ENOENT;
	return add_config(c, path, e);
}

static int take_account(const char *dir, struct kube_access *a, struct err *e)
{
	_cleanup_(buf_release) struct buf ca = BUF_INIT(PEM_BYTES);
	_cleanup_(buf_release) struct buf name_space = BUF_INIT(256);
	// NOLINTNEXTLINE(concurrency-mt-unsafe): read only
	const char *host = getenv("KUBERNETES_SERVICE_HOST");
	// NOLINTNEXTLINE(concurrency-mt-unsafe): read only
	const char *port = getenv("KUBERNETES_SERVICE_PORT");
	bool six = host && strchr(host, ':') != NULL;
	char path[PATH_BYTES];
	int r;

	if (!host || !*host)
		return err_set(e, -ENOKEY,
			"no access to a cluster found: give --config FILE, or set KUBECONFIG");
	(void)snprintf(path, sizeof(path), "%s/ca.crt", dir); /* cut: not found */
	r = file_read_all(path, &ca);
	if (r < 0)
		return err_set(e, -ENOKEY,
			"service account of this pod: cannot read %s: %s; do not set "
			"automountServiceAccountToken to false",
			path, err_str(r));
	(void)snprintf(path, sizeof(path), "%s/namespace", dir); /* as above */
	r = file_read_all(path, &name_space);
	if (r < 0)
		buf_clear(&name_space); /* a pod has it; what runs elsewhere may lack it */
	r = copy(buf_str(&ca), &a->ca_pem, e);
	if (r == 0)
		r = copy(name_space.len ? name_space.data : "default", &a->name_space, e);
	if (r == 0)
		r = print(&a->server, e, six ? "https://[%s]:%s" : "https://%s:%s", host,
			port && *port ? port : "443");
	if (r == 0)
		r = print(&a->token_file, e, "%s/token", dir);
	return r == 0 ? copy("the service account of this pod", &a->from, e) : r;
}

/* A name with a newline would become headers. */
static int check_user(const struct kube_access *a, struct err *e)
{
	for (const char *s = a->as ? a->as : ""; *s; s++)
		if ((unsigned char)*s < ' ' || (unsigned char)*s >= 0x7f)
			return err_set(e, -EINVAL, "invalid user '%s': use printable ASCII", a->as);
	return 0;
}

/* Credentials are sent over TLS, or do not leave this host. */
static int check_secrets(const struct kube_access *a, struct err *e)
{
	const char *host;
	size_t n;

	ensure(a->server);
	if (strncmp(a->server, "http://", 7) != 0 ||
		(!a->token && !a->token_file && !a->exec && !a->key_pem))
		return 0;
	host = a->server + 7;
	n = strcspn(host, *host == '[' ? "]" : ":/");
	if ((n == 9 && strncmp(host, "localhost", n) == 0) ||
		(strncmp(host, "127.", 4) == 0 && strspn(host, "0123456789.") == n) ||
		(n == 4 && strncmp(host, "[::1", n) == 0))
		return 0;
	return err_set(e, -EINVAL, "%s: credentials are not sent to %s without TLS: write https://",
		a->from, a->server);
}

int kube_access_find(
	const struct kube_choice *choice, struct kube_access *ret_access, struct err *e)
{
	const char *dir = choice->account_dir ? choice->account_dir : KUBE_ACCOUNT_DIR;
	struct kube_access a = { 0 };
	struct configs configs = { 0 };
	int r = choice->in_cluster ? -ENOENT : read_configs(choice, &configs, e);

	if (r == 0 || r == -ENOENT) {
		bool in_pod = r == -ENOENT;

		r = choice->as ? copy(choice->as, &a.as, e) : 0;
		if (r == 0)
			r = in_pod ? take_account(dir, &a, e)
				   : take_context(&configs, choice, &a, e);
	}
	configs_release(&configs);
	if (r == 0)
		r = check_secrets(&a, e);
	if (r == 0)
		r = check_user(&a, e);
	if (r < 0) {
		kube_access_release(&a);
		return r;
	}
	*ret_access = a;
	return 0;
}
