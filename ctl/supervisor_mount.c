/* The command lines of the daemons, and what a mount's daemon is given to survive itself. */
#include "admin/admin.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd_pass.h"
#include "base/file.h"
#include "base/log.h"
#include "ctl/detach.h"
#include "ctl/mount_table.h"
#include "ctl/supervisor.h"

#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>

/* ---- master and worker ----------------------------------------------------------------------- */

static int plan_common(
	struct supervisor *s, struct child *child, const char *program, const char *log)
{
	int r = child_arg(child, "%s/%s", s->bin, program);

	if (r == 0)
		r = child_arg(child, "--log-level");
	if (r == 0)
		r = child_arg(child, "%s", s->config->log_level);
	if (r == 0 && asprintf(&child->log_path, "%s/log/%s.log", s->cache.path, log) < 0) {
		child->log_path = NULL;
		r = -ENOMEM;
	}
	return r;
}

/* "--option value" */
static int plan_text(struct child *child, const char *option, const char *value)
{
	int r = child_arg(child, "%s", option);

	return r == 0 ? child_arg(child, "%s", value) : r;
}

static int plan_number(struct child *child, const char *option, uint64_t value)
{
	int r = child_arg(child, "%s", option);

	return r == 0 ? child_arg(child, "%" PRIu64, value) : r;
}

/* "--option unix:RUN/name" (prefix "unix:") or the bare path (prefix ""). */
static int plan_socket(struct supervisor *s, struct child *child, const char *option,
	const char *prefix, const char *name)
{
	char path[SOCKET_PATH_MAX];
	int r = child_arg(child, "%s", option);

	return r == 0 ? child_arg(child, "%s%s", prefix, cache_dir_socket(&s->cache, name, path))
		      : r;
}

static int plan_master(struct supervisor *s)
{
	struct child *c = &s->master;
	char state[PATH_MAX + 8];
	int r = plan_common(s, c, "cachemaster", "master");

	(void)snprintf(state, sizeof(state), "%s/master", s->cache.path); /* fits */
	if (r == 0)
		r = plan_text(c, "--state", state);
	if (r == 0)
		r = plan_number(c, "--memory", supervisor_memory_master(s->config));
	if (r == 0)
		r = plan_socket(s, c, "--listen", "unix:", "master.rpc");
	if (r == 0)
		r = plan_socket(s, c, "--worker", "unix:", "worker.rpc");
	if (r == 0)
		r = plan_socket(s, c, "--admin", "", "master.sock");
	return r;
}

static int plan_worker(struct supervisor *s)
{
	struct child *c = &s->worker;
	char tier[PATH_MAX + 8];
	int r = plan_common(s, c, "cacheworker", "worker");

	(void)snprintf(tier, sizeof(tier), "%s/tier", s->cache.path); /* fits */
	if (r == 0)
		r = plan_text(c, "--tier", tier);
	if (r == 0)
		r = child_arg(c, "--create");
	if (r == 0 && s->config->capacity)
		r = plan_number(c, "--capacity", s->config->capacity);
	if (r == 0)
		r = plan_number(c, "--memory", supervisor_memory_worker(s->config));
	if (r == 0)
		r = plan_socket(s, c, "--master", "unix:", "master.rpc");
	if (r == 0)
		r = plan_socket(s, c, "--listen", "unix:", "worker.rpc");
	if (r == 0)
		r = plan_socket(s, c, "--admin", "", "worker.sock");
	return r;
}

int supervisor_plan_daemons(struct supervisor *s)
{
	int r = plan_master(s);

	if (r == 0)
		r = plan_worker(s);
	if (r < 0)
		return r;
	s->master.endless = true;
	s->worker.endless = true;
	/* At first a cache that cannot be used is refused; later its readers are more important. */
	s->worker.again = "--serve-without-tier";
	s->master.alive_fd = s->alive[0];
	s->worker.alive_fd = s->alive[0];
	child_keep_fd(&s->master, NULL, s->alive[0]);
	child_keep_fd(&s->worker, NULL, s->alive[0]);
	return 0;
}

/* ---- mounts ---------------------------------------------------------------------------------- */

static const uint8_t allowed_next[] = {
	[MOUNT_WAITING] = 1 << MOUNT_ACTIVE | 1 << MOUNT_FAILED | 1 << MOUNT_GONE,
	[MOUNT_ACTIVE] = 1 << MOUNT_FAILED | 1 << MOUNT_GONE,
	[MOUNT_FAILED] = 0,
	[MOUNT_GONE] = 0,
};

void mount_set_state_locked(struct mount *mount, enum mount_state next)
{
	ensure(allowed_next[mount->state] & 1 << next);
	mount->state = next;
}

void mount_free(struct mount *mount)
{
	if (!mount)
		return;
	child_release(&mount->child);
	cleanup_close(&mount->fuse_fd);
	cleanup_close(&mount->slots_fd);
	cleanup_close(&mount->hand[0]);
	cleanup_close(&mount->hand[1]);
	free(mount->source);
	free(mount->mountpoint);
	free(mount);
}

struct mount *mount_new(
	struct supervisor *s, unsigned int id, const char *source, const char *mountpoint)
{
	struct mount *mount = calloc(1, sizeof(*mount));
	char name[32];

	if (!mount)
		return NULL;
	(void)snprintf(name, sizeof(name), "mount-%u", id); /* fits */
	child_init(&mount->child, name);
	list_init(&mount->link);
	mount->child.adoptable = true;
	mount->id = id;
	mount->fuse_fd = -1;
	mount->slots_fd = -1;
	mount->hand[0] = mount->hand[1] = -1;
	mount->source = strdup(source);
	mount->mountpoint = strdup(mountpoint);
	(void)cache_dir_socket(&s->cache, name, mount->run);
	(void)snprintf(name, sizeof(name), "mount-%u.sock", id); /* fits */
	(void)cache_dir_socket(&s->cache, name, mount->socket);
	if (!mount->source || !mount->mountpoint) {
		mount_free(mount);
		return NULL;
	}
	return mount;
}

/* A connection lives as long as anybody holds its descriptor: while we do, readers wait out a crash
 * of the daemon. */
static int mount_open_fds(struct mount *mount, struct err *e)
{
	mount->fuse_fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);
	if (mount->fuse_fd < 0) /* fusermount3 may open it for us: a place for what it gives */
		mount->fuse_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	if (mount->fuse_fd < 0)
		return err_set(e, err_errno(),
			"no descriptor for a mount: %m: raise the limit of open files (ulimit -n)");
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, mount->hand) != 0) {
		mount->hand[0] = mount->hand[1] = -1;
		return err_set(e, err_errno(),
			"no descriptors for a mount: %m: raise the limit of open files (ulimit "
			"-n)");
	}
	mount->slots_fd =
		memfd_create("granary-slots", MFD_CLOEXEC); /* its daemon gives it a size */
	if (mount->slots_fd < 0)
		return err_set(e, err_errno(),
			"no memory for the requests of a mount: %m: free some, or give less "
			"--memory");
	return 0;
}

void mount_take_hand(struct mount *mount)
{
	for (;;) {
		_cleanup_close_ int fd = -1;
		int r = mount->hand[0] < 0 ? -ENODATA
					   : fd_pass_receive(mount->hand[0], MSG_DONTWAIT, &fd);

		if (r == -EBADMSG)
			continue;
		if (r < 0)
			return;
		if (dup3(fd, mount->fuse_fd, O_CLOEXEC) < 0)
			log_error("a mount's connection is not kept: it will not survive its "
				  "daemon",
				"mountpoint=\"%s\" cause=%s", mount->mountpoint,
				err_name(err_errno()));
	}
}

void mount_clear_point(struct mount *mount)
{
	struct mount_entry entry;
	struct err e = ERR_INIT;

	mount_take_hand(mount);
	cleanup_close(&mount->fuse_fd); /* the last one: whatever reads there gets an error now */
	mount->fuse_fd = -1;
	if (mount->point_taken || mount_table_find(mount->mountpoint, &entry) < 0 ||
		!mount_entry_ours(&entry))
		return;
	if (detach_mount(mount->mountpoint, true, &e) < 0)
		log_error("a failed mount stays", "mountpoint=\"%s\" why=\"%s\"", mount->mountpoint,
			e.text);
}

/* Options that are passed on as they came, when they came. */
static int plan_wishes(struct child *c, const json_t *wish)
{
	static const char *const texts[][2] = {
		{ "endpoint", "--endpoint" },
		{ "region", "--region" },
		{ "profile", "--profile" },
		{ "ca_file", "--ca-file" },
		{ "umask", "--umask" },
		{ "engine", "--engine" },
		{ "context", "--context" },
		{ "integrity", "--integrity" },
		{ "pin", "--pin" },
		{ "evict", "--evict" },
	};
	static const char *const numbers[][2] = {
		{ "uid", "--uid" },
		{ "gid", "--gid" },
		{ "extent_size", "--extent-size" },
		{ "prime_max", "--prime-max" },
		{ "seal_pause", "--seal-pause" },
		{ "quota", "--quota" },
		{ "priority", "--priority" },
	};
	static const char *const flags[][2] = {
		{ "path_style", "--path-style" },
		{ "anonymous", "--anonymous" },
		{ "allow_other", "--allow-other" },
	};
	int r = 0;

	for (size_t i = 0; i < ARRAY_SIZE(texts) && r == 0; i++) {
		const char *text = json_string_value(json_object_get(wish, texts[i][0]));

		if (text)
			r = plan_text(c, texts[i][1], text);
	}
	for (size_t i = 0; i < ARRAY_SIZE(numbers) && r == 0; i++) {
		const json_t *number = json_object_get(wish, numbers[i][0]);

		if (json_is_integer(number))
			r = plan_number(c, numbers[i][1], (uint64_t)json_integer_value(number));
	}
	for (size_t i = 0; i < ARRAY_SIZE(flags) && r == 0; i++)
		if (json_is_true(json_object_get(wish, flags[i][0])))
			r = child_arg(c, "%s", flags[i][1]);
	return r;
}

static int plan_fixed(struct supervisor *s, struct mount *mount, uint64_t memory)
{
	struct child *c = &mount->child;
	char images[PATH_MAX + 8];
	int r = plan_common(s, c, "cachefuse", c->name);

	(void)snprintf(images, sizeof(images), "%s/images", s->cache.path); /* fits */
	if (r == 0)
		r = plan_text(c, "--source", mount->source);
	if (r == 0)
		r = plan_text(c, "--mountpoint", mount->mountpoint);
	if (r == 0)
		r = plan_socket(s, c, "--master", "unix:", "master.rpc");
	if (r == 0)
		r = plan_socket(s, c, "--worker", "unix:", "worker.rpc");
	if (r == 0)
		r = plan_text(c, "--run-dir", mount->run);
	if (r == 0)
		r = plan_text(c, "--image-dir", images);
	if (r == 0)
		r = plan_text(c, "--admin", mount->socket);
	if (r == 0)
		r = plan_number(c, "--memory", memory);
	return r;
}

/* The daemon's command line; its descriptors are open. `wish`: the body of POST /v1/mounts. */
static int mount_plan(
	struct supervisor *s, struct mount *mount, const json_t *wish, uint64_t memory)
{
	struct child *c = &mount->child;
	int r = plan_fixed(s, mount, memory);

	if (r == 0)
		r = plan_wishes(c, wish);
	if (r == 0)
		r = child_arg(c, "--refresh"); /* last: left out when it is started again */
	if (r < 0)
		return r;
	child_keep_fd(c, NULL, s->alive[1]);
	child_keep_fd(c, "--fuse-fd", mount->fuse_fd);
	child_keep_fd(c, "--slots-fd", mount->slots_fd);
	child_keep_fd(c, "--hand-fd", mount->hand[1]);
	return 0;
}

int supervisor_add_locked(
	struct supervisor *s, const json_t *wish, struct mount **ret_mount, struct err *e)
{
	const char *source = json_string_value(json_object_get(wish, "source"));
	const char *mountpoint = json_string_value(json_object_get(wish, "mountpoint"));
	uint64_t token = (uint64_t)json_integer_value(json_object_get(wish, "token"));
	struct mount_entry entry;
	struct mount *mount;
	uint64_t memory;
	int r;

	if (!source || !mountpoint || mountpoint[0] != '/')
		return err_set(e, -EINVAL, "a mount needs a source and an absolute mountpoint");
	if (s->ending)
		return err_set(
			e, -EAGAIN, "the supervisor of %s is ending: try again", s->cache.path);
	if (s->n_mounts >= SUPERVISOR_MOUNTS)
		return err_set(e, -ENOSPC,
			"this cache has %u mounts, the most it takes: use another --cache",
			s->n_mounts);
	list_for_each (node, &s->mounts) {
		struct mount *other = list_entry(node, struct mount, link);

		if ((other->state != MOUNT_WAITING && other->state != MOUNT_ACTIVE) ||
			strcmp(other->mountpoint, mountpoint) != 0)
			continue;
		if (!token || other->token != token)
			return err_set(
				e, -EEXIST, "%s is already mounted, or about to be", mountpoint);
		*ret_mount = other;
		return 0;
	}
	r = supervisor_memory_mount(s, &memory, e);
	if (r < 0)
		return r;
	mount = mount_new(s, s->next_id, source, mountpoint);
	if (!mount)
		return err_set(e, -ENOMEM, "out of memory");
	mount->point_taken = mount_table_find(mountpoint, &entry) == 0;
	r = file_mkdirs(mount->run, 0700);
	if (r < 0)
		(void)err_set(e, r, "%s cannot be made: %s", mount->run, err_str(r));
	else
		r = mount_open_fds(mount, e);
	if (r == 0)
		r = mount_plan(s, mount, wish, memory);
	if (r < 0) {
		mount_free(mount);
		return err_default(e, r, "the mount cannot be prepared");
	}
	mount->token = token;
	s->next_id++;
	s->n_mounts++;
	list_push_back(&s->mounts, &mount->link);
	*ret_mount = mount;
	return 0;
}
