/*
 * Clients of a service's keeper that are programs of this host, such as the CSI plugin: each has a socket of its own, RUN/clients/NAME/keeper.sock,
 * where it mounts datasets by name below its roots, and unmounts those. It needs no rights, and has no others: the socket of the keeper
 * itself, where root may do everything, stays out of its reach.
 *
 *	POST /v1/mounts			{"dataset_name", "mountpoint", "token", "until", ...: members[]} -> {"id"}:
 *					the same mount for the same token; makes the directory. Refused after `until` (CLOCK_MONOTONIC, ns)
 *	GET  /v1/mount?id=N		as the keeper's, of a mount below its roots; one that has failed is forgotten then
 *	GET  /v1/mount?mountpoint=PATH&status=1		the same, with what the mount's daemon says of itself
 *	POST /v1/unmount		{"mountpoint", "mode"}: everything of ours that is mounted there; removes the directory. -EAGAIN: once more
 *
 * Such a mount is one of an ordinary user (keeper_user.c) whose uid is the keeper's: it is attached to a directory that was opened here,
 * whatever its path leads to by then. What it may show the master decides by the claims of the pod, for which it relies on the client; or by
 * the pod's service-account token, which is exchanged at the master for a mount token, in a file of the mount's directory that each
 * further request replaces. With it the mount's daemon has no other key: its reads end when the token does.
 */
#include "keeper/keeper.h"
#include "base/claims.h"
#include "base/cleanup.h"
#include "base/dataset_name.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mount_table.h"
#include "base/option.h"
#include "base/secret.h"
#include "client/client_admin.h"
#include "client/client_keys.h"
#include "client/client_token.h"
#include "keeper/points/unmount_helper.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define CLIENTS_MAX  4u
#define ROOTS_MAX    8u
#define NAME_BYTES   32u
#define LAYERS_MAX   64u                /* of mounts at one mount point */
#define STATUS_NS    (150 * CLOCK_MS)   /* of a mount's daemon, which may hang */
#define MASTER_NS    (3 * CLOCK_SECOND) /* of the master, to a pod's token */
#define MASTER_BYTES (64u << 10)        /* of such a request, and of its answer */
#define POINT_MODE   01500              /* of a directory that is made here, and removed again */

struct keeper_client {
	struct keeper *k;
	char name[NAME_BYTES];
	char *given[ROOTS_MAX]; /* roots, as configured */
	char *roots[ROOTS_MAX]; /* without links */
	unsigned int n_roots;
	struct admin_server *admin;
};

struct keeper_clients {
	struct keeper_client all[CLIENTS_MAX];
	unsigned int n;
};

/* ---- options --------------------------------------------------------------------------------- */

static bool is_name(const char *name, size_t len)
{
	return len > 0 && len < NAME_BYTES &&
	       strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789-") >= len;
}

/* One that does not exist yet has no links. */
static int add_root(struct keeper_client *c, unsigned int n, const char *path, size_t len)
{
	while (len > 1 && path[len - 1] == '/')
		len--;
	c->given[n] = strndup(path, len);
	if (!c->given[n])
		return -ENOMEM;
	c->roots[n] = realpath(c->given[n], NULL);
	if (!c->roots[n])
		c->roots[n] = strdup(c->given[n]);
	return c->roots[n] ? 0 : -ENOMEM;
}

/* "csi,root=/var/lib/kubelet/pods". With ret NULL it is only checked. */
static int parse(const char *text, struct keeper_client *ret, struct err *e)
{
	size_t len = strcspn(text, ",");
	unsigned int n = 0;

	if (!is_name(text, len))
		return err_set(e, -EINVAL,
			"invalid client '%.64s'; allowed: NAME,root=DIR with a name of a-z, 0-9 "
			"and "
			"'-'",
			text);
	if (ret)
		(void)snprintf(ret->name, sizeof(ret->name), "%.*s", (int)len, text); /* fits */
	for (const char *p = text + len; *p; p += strcspn(p, ",")) {
		size_t size = strcspn(++p, ",");

		if (strncmp(p, "root=/", 6) != 0 || n == ROOTS_MAX)
			return err_set(e, -EINVAL,
				"invalid client '%.64s'; allowed: up to %u of root=DIR after its "
				"name, each an absolute path",
				text, ROOTS_MAX);
		if (ret) {
			ret->n_roots = n + 1;
			if (add_root(ret, n, p + 5, size - 5) < 0)
				return err_set(e, -ENOMEM, "out of memory");
		}
		n++;
	}
	return n > 0 ? 0
		     : err_set(e, -EINVAL, "client '%.64s' has no root; allowed: NAME,root=DIR",
			       text);
}

int keeper_client_check(const char *text, struct err *e)
{
	return parse(text, NULL, e);
}

/* ---- mount points ---------------------------------------------------------------------------- */

/* A path below a root. Its parts are no links, and no mount points but the last: what is mounted below a root is never on the way. */
struct point {
	char path[PATH_MAX]; /* without links */
	const char *root;    /* the client's */
	const char *name;    /* in path: its last part */
};

static bool has_parts_of_dots(const char *path)
{
	for (const char *p = path; p; p = strchr(p + 1, '/')) {
		size_t n = strcspn(p + 1, "/");

		if (n == 0 || (p[1] == '.' && (n == 1 || (n == 2 && p[2] == '.'))))
			return true;
	}
	return false;
}

static int resolve(
	const struct keeper_client *c, const char *path, struct point *ret, struct err *e)
{
	for (unsigned int i = 0; i < c->n_roots; i++) {
		size_t len = strlen(c->given[i]);
		const char *below;

		if (strncmp(path, c->given[i], len) != 0 || path[len] != '/')
			continue;
		below = path + len;
		if (has_parts_of_dots(below))
			break;
		if (snprintf(ret->path, sizeof(ret->path), "%s%s", c->roots[i], below) >=
			(int)sizeof(ret->path))
			return err_set(
				e, -ENAMETOOLONG, "the mount point is too long: %.64s...", path);
		ret->root = c->roots[i];
		ret->name = strrchr(ret->path, '/') + 1;
		return 0;
	}
	return err_set(e, -EINVAL,
		"%.256s is not below a directory of client %s; allowed: root=DIR of "
		"keeper.client",
		path, c->name);
}

static int open_below(int dir, const char *path, int *ret_fd)
{
	const struct open_how how = { .flags = O_PATH | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW,
		.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_XDEV };
	long fd = syscall(SYS_openat2, dir, path, &how, sizeof(how));

	if (fd < 0)
		return err_errno();
	*ret_fd = (int)fd;
	return 0;
}

static int open_parent(const struct point *point, int *ret_fd)
{
	_cleanup_close_ int root = -1;
	const char *below;
	char parent[PATH_MAX];

	ensure(point->root); /* resolved */
	below = point->path + strlen(point->root) + 1;
	root = open(point->root, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (root < 0)
		return err_errno();
	if (below == point->name) {
		*ret_fd = TAKE_FD(root);
		return 0;
	}
	(void)snprintf(
		parent, sizeof(parent), "%.*s", (int)(point->name - below - 1), below); /* fits */
	return open_below(root, parent, ret_fd);
}

/* Opens it, after it was made where it did not exist. -1 where something is mounted at it. No other file system is asked: without locks. */
static int open_point(const struct point *point, int *ret_fd, struct err *e)
{
	_cleanup_close_ int parent = -1;
	int r = open_parent(point, &parent);

	if (r < 0)
		return err_set(
			e, r, "cannot open the directory above %s: %s", point->path, err_str(r));
	r = open_below(parent, point->name, ret_fd);
	if (r == -ENOENT && mkdirat(parent, point->name, 0700) == 0 &&
		fchmodat(parent, point->name, POINT_MODE, 0) != 0)
		return err_set(e, err_errno(), "%s cannot be created: %m", point->path);
	if (r == -ENOENT)
		r = open_below(parent, point->name, ret_fd);
	if (r == -EXDEV)
		return 0;
	return r < 0 ? err_set(e, r, "%s cannot be used: %s", point->path, err_str(r)) : 0;
}

/* Removes what open_point() made, as its mode says. */
static int remove_point(const struct point *point, struct err *e)
{
	_cleanup_close_ int parent = -1;
	_cleanup_close_ int fd = -1;
	struct stat st;
	int r = open_parent(point, &parent);

	if (r == 0)
		r = open_below(parent, point->name, &fd);
	if (r == -ENOENT)
		return 0;
	if (r == 0 && fstat(fd, &st) == 0 &&
		((st.st_mode & 07777) != POINT_MODE || st.st_uid != geteuid()))
		return 0;
	if (r == 0 && unlinkat(parent, point->name, AT_REMOVEDIR) != 0 && errno != ENOENT)
		r = err_errno();
	return r < 0 ? err_set(e, r, "%s cannot be removed: %s", point->path, err_str(r)) : 0;
}

/* ---- its mounts ------------------------------------------------------------------------------ */

static bool is_of(const struct keeper_client *c, const struct mount *mount)
{
	if (!mount->owned || mount->owner != geteuid())
		return false;
	for (unsigned int i = 0; i < c->n_roots; i++) {
		size_t len = strlen(c->roots[i]);

		if (strncmp(mount->mountpoint, c->roots[i], len) == 0 &&
			mount->mountpoint[len] == '/')
			return true;
	}
	return false;
}

/* The one that is there, or about to be; else one whose failure was not read; NULL. */
static struct mount *find_locked(const struct keeper_client *c, const char *path)
{
	struct mount *found = NULL;

	list_for_each (node, &c->k->mounts) {
		struct mount *mount = list_entry(node, struct mount, link);

		if (strcmp(mount->mountpoint, path) != 0 || !is_of(c, mount) ||
			mount->state == MOUNT_GONE ||
			mounter_peer_point(mount->peer) == MOUNTER_DETACHED)
			continue;
		if (mount->state == MOUNT_ACTIVE)
			return mount;
		found = mount;
	}
	return found;
}

/* Of root or of another user: not the client's to touch. */
static bool has_others_locked(const struct keeper_client *c, const char *path)
{
	list_for_each (node, &c->k->mounts) {
		const struct mount *mount = list_entry(node, struct mount, link);

		if (strcmp(mount->mountpoint, path) == 0 && !is_of(c, mount) &&
			mount->state == MOUNT_ACTIVE &&
			mounter_peer_point(mount->peer) != MOUNTER_DETACHED)
			return true;
	}
	return false;
}

static struct mount *find_id_locked(const struct keeper_client *c, unsigned int id)
{
	list_for_each (node, &c->k->mounts) {
		struct mount *mount = list_entry(node, struct mount, link);

		if (mount->id == id && is_of(c, mount))
			return mount;
	}
	return NULL;
}

/* The keeper's own user, at a socket that no other reaches. */
static int check_caller(const struct admin_request *request, struct err *e)
{
	if (admin_right(&request->caller, RIGHTS_OP_USE) == RIGHT_ALL)
		return 0;
	return err_set(e, -EPERM, "permission denied: this socket is for user %u", geteuid());
}

static int resolve_body(const struct keeper_client *c, const struct admin_request *request,
	struct point *ret, struct err *e)
{
	const char *path = json_string_value(json_object_get(request->body, "mountpoint"));
	int r = check_caller(request, e);

	if (r < 0)
		return r;
	return path ? resolve(c, path, ret, e) : err_set(e, -EINVAL, "the mountpoint is missing");
}

/* Detaches the topmost of what is mounted there, if that is a mount of ours. -ENOENT: nothing is. -EPERM: something else is. */
static int detach_layer(const char *path, enum unmount_mode mode, struct err *e)
{
	struct unmount u = {
		.path = path, .connection = -1, .daemon = -1, .slots = -1, .mode = mode
	};
	struct detach_helper helper = { 0 };
	struct mount_entry entry;
	int r;

	if (mount_table_find(path, &entry) < 0)
		return -ENOENT;
	if (!mount_entry_ours(&entry))
		return err_set(e, -EPERM,
			"permission denied: another file system (%s) is mounted at %s: unmount it "
			"first",
			entry.type, path);
	u.mount_id = entry.id;
	u.dev = makedev(entry.dev_major, entry.dev_minor);
	r = unmount_detach(&u, &helper, e);
	unmount_helper_leave(&helper);
	return r;
}

/* ---- mount ----------------------------------------------------------------------------------- */

/* "namespace:NAME,serviceaccount:NAMESPACE/NAME" */
static int make_claims(const json_t *body, struct buf *out, struct err *e)
{
	const char *name_space = json_string_value(json_object_get(body, "namespace"));
	const char *account = json_string_value(json_object_get(body, "account"));

	if (claims_add_pod(out, name_space, account) == 0)
		return 0;
	return err_set(e, -EINVAL, "invalid namespace or service account of the pod");
}

static const struct member {
	const char *name;
	json_type type;      /* JSON_TRUE: or JSON_FALSE */
	bool is_forwarded;   /* to keeper_add_locked() */
	const char *choices; /* "a|b"; NULL: any */
} members[] = {
	{ "dataset_name", JSON_STRING, true, NULL },
	{ "mountpoint", JSON_STRING, false, NULL }, /* resolved */
	{ "token", JSON_INTEGER, true, NULL },
	{ "until", JSON_INTEGER, false, NULL },
	{ "namespace", JSON_STRING, false, NULL }, /* in the claims */
	{ "account", JSON_STRING, false, NULL },
	{ "pod_uid", JSON_STRING, false, NULL }, /* the master's to check, as the next */
	{ "service_account_token", JSON_STRING, false, NULL },
	{ "engine", JSON_STRING, true, "auto|native|loop|fuse" },
	{ "integrity", JSON_STRING, true, "sealed|strict" },
	{ "generation", JSON_INTEGER, true, NULL },
	{ "path", JSON_STRING, true, NULL },
	{ "follow_dataset", JSON_TRUE, true, NULL },
};

static int check_member(const char *name, const json_t *value, struct err *e)
{
	for (size_t i = 0; i < ARRAY_SIZE(members); i++) {
		const struct member *m = &members[i];

		if (strcmp(m->name, name) != 0)
			continue;
		if (m->type == JSON_TRUE ? !json_is_boolean(value) : json_typeof(value) != m->type)
			return err_set(e, -EINVAL, "member '%s' has a value of another type", name);
		if (m->choices && !option_is_choice(m->choices, json_string_value(value)))
			return err_set(e, -EINVAL, "invalid member '%s': use %s", name, m->choices);
		return 0;
	}
	return err_set(
		e, -EINVAL, "unknown member '%.64s': use the same version on both sides", name);
}

/* A directory of the dataset: relative, without empty, "." and ".." parts. */
static int check_path(const char *path, struct err *e)
{
	char absolute[PATH_MAX];

	if (!path)
		return 0;
	if (snprintf(absolute, sizeof(absolute), "/%s", path) < (int)sizeof(absolute) &&
		!has_parts_of_dots(absolute))
		return 0;
	return err_set(e, -EINVAL,
		"invalid path '%.256s': use a directory of the dataset, without '.' and '..'",
		path);
}

static int check_members(const json_t *body, struct err *e)
{
	const char *name = json_string_value(json_object_get(body, "dataset_name"));
	const json_t *generation = json_object_get(body, "generation");
	const char *key;
	json_t *value;

	json_object_foreach ((json_t *)(uintptr_t)body, key, value) /* only read */
		if (check_member(key, value, e) < 0)
			return e->code;
	if (json_integer_value(json_object_get(body, "token")) == 0)
		return err_set(e, -EINVAL, "the token is missing");
	if (generation && json_integer_value(generation) < 1)
		return err_set(e, -EINVAL, "invalid generation: use a number from 1");
	if (check_path(json_string_value(json_object_get(body, "path")), e) < 0)
		return e->code;
	return dataset_check_name(name ? name : "", e);
}

/* As keeper_add_locked() wants it. It stays at its generation, unless it is to follow. */
static json_t *forwarded_of(
	const json_t *body, const char *path, const char *claims, bool own_token)
{
	json_t *forwarded = json_pack("{s:O, s:s, s:s, s:s, s:i, s:i, s:b, s:b}", "source",
		json_object_get(body, "dataset_name"), "mountpoint", path, "claims", claims,
		"umask", "022", "uid", 0, "gid", 0, "pinned",
		!json_is_true(json_object_get(body, "follow_dataset")), "own_token",
		(int)own_token);
	int r = forwarded ? 0 : -1;

	for (size_t i = 0; i < ARRAY_SIZE(members) && r == 0; i++) {
		json_t *value = json_object_get(body, members[i].name);

		if (value && members[i].is_forwarded)
			r = json_object_set(forwarded, members[i].name, value);
	}
	if (r == 0)
		return forwarded;
	json_decref(forwarded);
	return NULL;
}

/* 0: the same was requested before; -EEXIST: another is there; -ENOENT. */
static int find_same_locked(const struct keeper_client *c, const char *path, uint64_t token,
	struct mount **ret_mount, struct err *e)
{
	struct mount *mount = find_locked(c, path);

	if (!mount)
		return -ENOENT;
	if (mount->state == MOUNT_FAILED &&
		(mount->token != token || mount->forget_ns <= clock_mono_ns()))
		return -ENOENT; /* its failure was read, or is of no interest any more */
	if (mount->token != token)
		return err_set(e, -EEXIST,
			"%s is mounted already, as another volume or with other attributes", path);
	*ret_mount = mount;
	return 0;
}

/* `point_fd`: of its mount point; -1: something is mounted there. */
static int add_locked(const struct keeper_client *c, const json_t *forwarded, const char *path,
	int *point_fd, struct mount **ret_mount, struct err *e)
{
	struct mount_owner owner = { .uid = geteuid(), .point_fd = *point_fd };
	int r = keeper_user_check_all(c->k, e);

	if (r == 0 && *point_fd < 0)
		r = err_set(e, -EEXIST, "%s is the mount point of something else", path);
	if (r == 0)
		r = keeper_add_locked(c->k, forwarded, &owner, ret_mount, e);
	*point_fd = owner.point_fd;
	return r;
}

/* ---- mount tokens ---------------------------------------------------------------------------- */

/* Exchanges the pod's token at the master. `token` is empty where the master takes this host's word for what the pod is. */
static int exchange(
	const struct keeper_client *c, const json_t *body, struct buf *token, struct err *e)
{
	_cleanup_(secret_release_buf) struct buf request = BUF_INIT(MASTER_BYTES);
	_cleanup_(secret_release_buf) struct buf answer = BUF_INIT(MASTER_BYTES);
	const json_t *own = json_object_get(body, "service_account_token");
	const char *pod = json_string_value(json_object_get(body, "pod_uid"));
	struct client_admin *master = NULL;
	char socket[SOCKET_PATH_MAX];
	char address[SOCKET_PATH_MAX + 8];
	char path[128];
	json_t *json = NULL;
	unsigned int status = 0;
	char *text;
	int r;

	if (!own)
		return 0;
	json = json_pack("{s:O, s:s}", "service_account_token", own, "pod_uid", pod ? pod : "");
	text = admin_json_text(json, JSON_COMPACT);
	r = text ? buf_puts(&request, text) : -ENOMEM;
	free(text);
	json_decref(json);
	json = NULL;
	if (r < 0)
		return err_set(
			e, r, "the pod's token cannot be sent to the master: %s", err_str(r));
	(void)snprintf(path, sizeof(path), "/v1/datasets/%s/pod-token",
		json_string_value(json_object_get(body, "dataset_name"))); /* fits: checked */
	(void)snprintf(address, sizeof(address), "unix:%s",
		keeper_path(c->k, "master.rpc", socket)); /* fits */
	r = client_admin_open(c->k->config->master ? c->k->config->master : address, &master, e);
	if (r == 0)
		r = client_admin_ask(master, "POST", path, request.data, request.len, MASTER_NS,
			&status, &answer, e);
	client_admin_close(master);
	if (r == 0)
		r = admin_take_answer(status, path, buf_str(&answer), answer.len, &json, e);
	if (r == 0 && json_is_string(json_object_get(json, "token")))
		r = buf_puts(token, json_string_value(json_object_get(json, "token")));
	json_decref(json);
	return r;
}

/* Replaces that of the daemon that serves the mount, which may be another mount's. */
static int store_token(const struct keeper_client *c, const struct mount *mount,
	const struct buf *token, struct err *e)
{
	char path[KEEPER_TOKEN_PATH_MAX];
	int r;

	if (token->len == 0)
		return 0;
	r = file_write_atomic(
		mount_token_path(keeper_server(c->k, mount), path), token->data, token->len, 0600);
	return r < 0 ? err_set(e, r, "%s cannot be written: %s", path, err_str(r)) : 0;
}

/* 0 with the mount, new or the one that the same request made before. */
static int take_mount(const struct keeper_client *c, const json_t *forwarded, uint64_t until,
	const char *path, const struct buf *token, int *point_fd, json_t **ret_json, struct err *e)
{
	uint64_t number = (uint64_t)json_integer_value(json_object_get(forwarded, "token"));
	struct mount *mount = NULL;
	int r;

	pthread_mutex_lock(&c->k->lock);
	if (until && clock_mono_ns() > until) /* its client does not wait, and may have unmounted */
		r = err_set(e, -ETIMEDOUT, "the request is too late: try again");
	else
		r = find_same_locked(c, path, number, &mount, e);
	if (r == -ENOENT)
		r = add_locked(c, forwarded, path, point_fd, &mount, e);
	if (r == 0 && mount) /* before its daemon is started, by a thread that waits for the lock */
		r = store_token(c, mount, token, e);
	if (r == 0 && mount)
		*ret_json = json_pack("{s:i}", "id", (int)mount->id);
	pthread_mutex_unlock(&c->k->lock);
	keeper_wake(c->k);
	return r == 0 && !*ret_json ? err_set(e, -ENOMEM, "out of memory") : r;
}

/* Opens the mount point. A mount of ours that no keeper knows any more, whose daemon cannot come back, gives way. */
static int prepare_point(
	const struct keeper_client *c, const struct point *point, int *ret_fd, struct err *e)
{
	bool is_known;
	int r = open_point(point, ret_fd, e);

	if (r < 0 || *ret_fd >= 0)
		return r;
	pthread_mutex_lock(&c->k->lock);
	is_known = find_locked(c, point->path) || has_others_locked(c, point->path);
	pthread_mutex_unlock(&c->k->lock);
	if (is_known || detach_layer(point->path, UNMOUNT_LAZY, NULL) < 0)
		return 0;
	log_info("lost mount detached", "mountpoint=\"%s\"", point->path);
	return open_point(point, ret_fd, e);
}

static int post_mounts(
	void *arg, const struct admin_request *request, json_t **ret_json, struct err *e)
{
	const struct keeper_client *c = arg;
	_cleanup_(buf_release) struct buf claims = BUF_INIT(CLAIMS_BYTES);
	_cleanup_(secret_release_buf) struct buf token = BUF_INIT(MASTER_BYTES);
	_cleanup_close_ int point_fd = -1;
	json_t *forwarded = NULL;
	struct point point = { 0 };
	int r = resolve_body(c, request, &point, e);

	if (r == 0)
		r = check_members(request->body, e);
	if (r == 0)
		r = make_claims(request->body, &claims, e);
	if (r == 0)
		r = exchange(c, request->body, &token, e);
	if (r == 0)
		r = prepare_point(c, &point, &point_fd, e);
	if (r < 0)
		return r;
	forwarded = forwarded_of(request->body, point.path, buf_str(&claims), token.len > 0);
	r = forwarded
		    ? take_mount(c, forwarded,
			      (uint64_t)json_integer_value(json_object_get(request->body, "until")),
			      point.path, &token, &point_fd, ret_json, e)
		    : err_set(e, -ENOMEM, "out of memory");
	json_decref(forwarded);
	return r;
}

/* ---- its state ------------------------------------------------------------------------------- */

static int find_asked(const struct keeper_client *c, const struct admin_request *request,
	json_t **ret_json, char socket[SOCKET_PATH_MAX], char token[KEEPER_TOKEN_PATH_MAX],
	struct err *e)
{
	const char *path = request->query(request, "mountpoint");
	uint64_t failures = admin_json_failures();
	struct mount *mount;
	struct point point = { 0 };
	uint64_t id = 0;
	int r = check_caller(request, e);

	if (r == 0 && path)
		r = resolve(c, path, &point, e);
	else if (r == 0)
		r = admin_query_number(request, "id", 0, &id, e);
	if (r < 0)
		return r;
	pthread_mutex_lock(&c->k->lock);
	mount = path ? find_locked(c, point.path) : find_id_locked(c, (unsigned int)id);
	if (mount) {
		if (mount->state == MOUNT_FAILED && !path)
			mount->forget_ns = clock_mono_ns();
		*ret_json = mount_json(c->k, mount);
		(void)mount_token_path(keeper_server(c->k, mount), token); /* returns it */
		(void)snprintf(socket, SOCKET_PATH_MAX, "%s",
			json_string_value(json_object_get(*ret_json, "socket"))); /* fits */
	}
	pthread_mutex_unlock(&c->k->lock);
	keeper_wake(c->k); /* frees what has failed */
	if (!mount)
		return err_set(e, -ENOENT, "client %s has no such mount", c->name);
	return admin_json_failures() == failures ? 0 : err_set(e, -ENOMEM, "out of memory");
}

static int get_mount(
	void *arg, const struct admin_request *request, json_t **ret_json, struct err *e)
{
	char socket[SOCKET_PATH_MAX] = "";
	char token[KEEPER_TOKEN_PATH_MAX];
	struct token_claims claims;
	uint8_t pin[PIN_BYTES];
	json_t *json = NULL;
	json_t *status = NULL;
	int r = find_asked(arg, request, &json, socket, token, e);

	if (r < 0) {
		json_decref(json);
		return r;
	}
	/* A daemon that does not answer leaves it out. */
	if (request->query(request, "status") &&
		admin_call(socket, NULL, "/v1/status", NULL, STATUS_NS, &status, NULL) == 0)
		(void)json_object_set_new(json, "status", status);
	if (request->query(request, "status") && access(token, F_OK) == 0 &&
		token_read(token, &claims, pin, NULL) == 0)
		(void)json_object_set_new(json, "token_expired",
			json_boolean(claims.expires_s <= clock_wall_ns() / CLOCK_SECOND));
	*ret_json = json;
	return 0;
}

/* ---- unmount --------------------------------------------------------------------------------- */

/* *ret_id: of a mount of the client at its mount point; 0: it has none there. One that is not attached yet is given up: -EAGAIN until that has come to its end. */
static int find_attached(
	const struct keeper_client *c, const char *path, unsigned int *ret_id, struct err *e)
{
	struct mount *mount;
	int r = 0;

	pthread_mutex_lock(&c->k->lock);
	mount = find_locked(c, path);
	if (has_others_locked(c, path)) {
		r = err_set(e, -EPERM, "permission denied: %s is a mount of another user", path);
	} else if (mount && mount->state == MOUNT_FAILED) {
		mount->forget_ns = clock_mono_ns();
	} else if (mount && mounter_peer_point(mount->peer) != MOUNTER_NONE) {
		*ret_id = mount->id;
	} else if (mount) {
		mount->given_up = true;
		r = err_set(e, -EAGAIN, "%s is being mounted, which is ended first", path);
	}
	pthread_mutex_unlock(&c->k->lock);
	keeper_wake(c->k);
	return r;
}

/* Its own mount, by the one way in which mounts are unmounted. */
static int unmount_own(const struct keeper_client *c, const struct admin_request *request,
	unsigned int id, struct err *e)
{
	struct admin_request canonical = *request;
	json_t *answer = NULL;
	json_t *body = json_pack(
		"{s:i, s:O*}", "id", (int)id, "mode", json_object_get(request->body, "mode"));
	int r = body ? 0 : err_set(e, -ENOMEM, "out of memory");

	canonical.body = body;
	if (r == 0)
		r = keeper_unmount(c->k, &canonical, &answer, e);
	json_decref(answer);
	json_decref(body);
	return r;
}

/* One layer less. -ENOENT: there is none left. */
static int peel(const struct keeper_client *c, const struct admin_request *request,
	const char *path, enum unmount_mode mode, struct err *e)
{
	unsigned int id = 0;
	int r = find_attached(c, path, &id, e);

	if (r == 0 && id)
		r = unmount_own(c, request, id, e);
	else if (r == 0)
		r = detach_layer(path, mode, e);
	/* Another layer covers it, or it has ended meanwhile. */
	return r == -ESTALE || (r == -ENOENT && id) ? detach_layer(path, mode, e) : r;
}

static int post_unmount(
	void *arg, const struct admin_request *request, json_t **ret_json, struct err *e)
{
	const struct keeper_client *c = arg;
	const char *text = json_string_value(json_object_get(request->body, "mode"));
	enum unmount_mode mode = UNMOUNT_NORMAL;
	struct point point = { 0 };
	int r = resolve_body(c, request, &point, e);

	*ret_json = NULL;
	if (r == 0 && text && (unmount_mode_of(text, &mode) < 0 || mode == UNMOUNT_FORCE))
		r = err_set(e, -EINVAL, "invalid mode: use \"normal\" or \"lazy\"");
	for (unsigned int i = 0; i < LAYERS_MAX && r == 0; i++)
		r = peel(c, request, point.path, mode, e);
	if (r == 0)
		return err_set(e, -EAGAIN, "%s has further mounts: try again", point.path);
	return r == -ENOENT ? remove_point(&point, e) : r;
}

/* ---- its socket ------------------------------------------------------------------------------ */

static const struct admin_route routes[] = {
	{ "POST", "/v1/mounts", post_mounts, "mount" },
	{ "GET", "/v1/mount", get_mount, NULL },
	{ "POST", "/v1/unmount", post_unmount, "unmount" },
	{ 0 },
};

/* What is at its socket's place is the client's doing, which may write to the directory: no other keeper has this one's lock. */
static int serve(struct keeper_client *c, struct err *e)
{
	char path[SOCKET_PATH_MAX];
	char name[sizeof("clients//keeper.sock") + NAME_BYTES];
	int r;

	(void)snprintf(name, sizeof(name), "clients/%s", c->name); /* fits */
	if (strlen(c->k->config->run) + strlen(name) + sizeof("//keeper.sock") > sizeof(path))
		return err_set(e, -ENAMETOOLONG, "%s is too long for the sockets of clients",
			c->k->config->run);
	r = file_mkdirs(keeper_path(c->k, name, path), 0700);
	if (r < 0)
		return err_set(e, r, "%s cannot be created: %s", path, err_str(r));
	(void)snprintf(name, sizeof(name), "clients/%s/keeper.sock", c->name); /* fits */
	(void)unlink(keeper_path(c->k, name, path)); /* or the next fails */
	return admin_server_new(path, routes, c, &c->admin, e);
}

/* One that cannot be served does not end the keeper. */
static int open_client(struct keeper_client *c, const char *text, struct err *e)
{
	struct err why = ERR_INIT;
	int r = parse(text, c, e);

	for (const struct keeper_client *other = c->k->clients->all; other < c && r == 0; other++)
		if (strcmp(other->name, c->name) == 0)
			r = err_set(e, -EINVAL, "client '%s' is configured twice", c->name);
	if (r == 0 && serve(c, &why) < 0)
		log_error("client not served", "client=%s why=\"%s\"", c->name, why.text);
	return r;
}

int keeper_clients_open(struct keeper *k, struct err *e)
{
	const struct option_list *texts = &k->config->clients;
	int r = 0;

	if (texts->n > CLIENTS_MAX)
		return err_set(e, -EINVAL, "%u clients: the maximum is %u", texts->n, CLIENTS_MAX);
	k->clients = texts->n ? calloc(1, sizeof(*k->clients)) : NULL;
	if (texts->n && !k->clients)
		return err_set(e, -ENOMEM, "out of memory");
	if (texts->n) /* to exchange tokens of pods at the master */
		r = client_keys_open(&k->config->keys, e);
	for (unsigned int i = 0; i < texts->n && r == 0; i++) {
		struct keeper_client *c = &k->clients->all[k->clients->n++];

		c->k = k;
		r = open_client(c, texts->values[i], e);
	}
	return r;
}

void keeper_clients_close(struct keeper *k)
{
	for (unsigned int i = 0; k->clients && i < k->clients->n; i++) {
		struct keeper_client *c = &k->clients->all[i];

		admin_server_free(c->admin);
		for (unsigned int n = 0; n < c->n_roots; n++) {
			free(c->given[n]);
			free(c->roots[n]);
		}
	}
	free(TAKE(k->clients));
}
