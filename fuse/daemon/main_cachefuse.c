/*
 * cachefuse: mounts one source and serves what the kernel asks for.
 *
 * Start, in order: options; slots; mount point; engine; master, table; image; mounts; admin socket;
 * READY. Each step that fails says why in one line and ends the process with the status of its kind
 * (base/exit.h), nothing left mounted.
 *
 * Started with the slots of a predecessor that died (--fuse-fd, --slots-fd) it takes the mount
 * over: no image, no mount, and first of all the requests that were left.
 *
 * It ends with status 0 when its connection has ended: the kernel has let go of all that it serves. SIGTERM and SIGUSR1 hand over:
 * it ends as well, and its successor goes on. It never unmounts; that is its keeper's.
 */
#include "admin/audit.h"
#include "base/claims.h"
#include "base/arena.h"
#include "base/backoff.h"
#include "base/bounds.h"
#include "base/capabilities.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/daemon.h"
#include "base/exit.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/option.h"
#include "base/ready.h"
#include "base/watchdog.h"
#include "client/client_keys.h"
#include "fuse/daemon/cachefuse.h"
#include "fuse/daemon/follow.h"
#include "fuse/daemon/live.h"
#include "mount/mounter.h"
#include "fuse/daemon/mountpoint.h"
#include "fuse/daemon/probe_command.h"

#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <linux/capability.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>

#define SKIPPED_LOGGED 20u
#define PRIME_LEAST    10000u
#define PRIME_BYTES    1100u /* of an inode and a name */
#define PRIME_SHARE    4u    /* part of the memory available */
#define LOOK_MS        1000  /* the main thread looks around so often */
#define MAKING_NS \
	(10 * CLOCK_SECOND) /* for the superblock of another daemon; then it makes its own */

/*
 * Mount points and credentials of users whose files root may read; what the daemon writes is
 * root's.
 */
#define KEPT CAPABILITY(CAP_DAC_READ_SEARCH)

/* ---- events of other threads ----------------------------------------------------------------- */

static void on_gone(void *arg)
{
	struct cachefuse *c = arg;

	atomic_store(&c->gone, true);
	(void)eventfd_write(c->wake_fd, 1); /* cannot overflow */
}

static void on_failure(void *arg, uint64_t offset, uint32_t length, int status)
{
	struct cachefuse *c = arg;

	if (!failures_note(c->failures, offset, length, status))
		return;
	atomic_store(&c->failed_reads, true);
	(void)eventfd_write(c->wake_fd, 1); /* cannot overflow */
}

static void log_failures(struct cachefuse *c)
{
	struct image_source sources[LAYOUT_SOURCES_MAX];

	pthread_rwlock_rdlock(&c->showing);
	sources_images(&c->sources, sources);
	failures_log(c->failures, sources, c->sources.n);
	pthread_rwlock_unlock(&c->showing);
}

static void log_skipped(void *arg, const char *key, uint32_t key_len, const char *reason)
{
	uint32_t *n = arg;

	if ((*n)++ < SKIPPED_LOGGED)
		log_warn("key left out", "key=\"%.*s\" reason=\"%s\"", (int)key_len, key, reason);
}

/* ---- start ----------------------------------------------------------------------------------- */

static int check_options(struct cachefuse *c, struct err *e)
{
	uint64_t extent = c->options.extent_size;
	char path[PATH_MAX];

	if (extent & (extent - 1))
		return err_set(
			e, -EINVAL, "--extent-size must be a power of two of at least 16MiB");
	if (!c->options.admin && !c->options.run_dir)
		return err_set(e, -EINVAL, "one of --admin and --run-dir is needed");
	if (!c->options.admin) {
		char *socket;

		if (asprintf(&socket, "%s/mount.sock", c->options.run_dir) < 0)
			return err_set(e, -ENOMEM, "out of memory");
		c->options.admin = socket; /* for the life of the process */
	}
	c->image_options = (struct image_options){
		.uid = (uint32_t)c->options.uid,
		.gid = (uint32_t)c->options.gid,
		.umask = (uint32_t)c->options.umask,
		.extent_bytes = extent,
	};
	/* An ordinary user's is not resolved: what it was when the keeper got it counts. */
	c->mountpoint = strdup(!c->options.claims && realpath(c->options.mountpoint, path)
				       ? path
				       : c->options.mountpoint);
	return c->mountpoint ? 0 : err_set(e, -ENOMEM, "out of memory");
}

/* --fuse-fd, or a number for the connection: a /dev/fuse of our own where it can be opened. */
static int open_device(struct cachefuse *c, struct err *e)
{
	c->dev_fd = c->options.fuse_fd;
	if (c->dev_fd < 0)
		c->dev_fd = open("/dev/fuse", O_RDWR | O_CLOEXEC | O_NONBLOCK);
	if (c->dev_fd < 0)
		c->dev_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	return c->dev_fd < 0 ? err_set(e, err_errno(), "/dev/null cannot be opened: %m") : 0;
}

static enum exit_status open_slots(struct cachefuse *c, struct err *e)
{
	c->slots_fd = c->options.slots_fd;
	c->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	c->failures = failures_new();
	if (c->wake_fd < 0 || !c->failures) {
		(void)err_set(e, -ENOMEM, "out of memory or descriptors");
		return EXIT_RUNTIME;
	}
	if (c->slots_fd < 0)
		c->slots_fd = memfd_create("granary-slots", MFD_CLOEXEC);
	if (slots_claim(c->slots_fd, e) < 0 || share_slots(&c->share, c->slots_fd, e) < 0 ||
		slots_open(c->slots_fd, &c->slots, e) < 0)
		return EXIT_RUNTIME;
	c->taken_over = slots_phase(c->slots) != SLOTS_NEW;
	if (c->taken_over)
		c->engine = engine_of_number(slots_mount(c->slots)->engine);
	live_adopt(c->slots);
	if (c->options.fuse_fd < 0 && c->taken_over) {
		(void)err_set(e, -EINVAL, "--slots-fd of a mount needs its --fuse-fd");
		return EXIT_USAGE;
	}
	if (open_device(c, e) < 0)
		return EXIT_RUNTIME;
	/* Helpers that we start must not keep the connection alive. */
	(void)fcntl(c->dev_fd, F_SETFD, FD_CLOEXEC); /* checked when it is used */
	(void)fcntl(c->slots_fd, F_SETFD, FD_CLOEXEC);
	if (c->options.hand_fd >= 0)
		(void)fcntl(c->options.hand_fd, F_SETFD, FD_CLOEXEC);
	if (c->options.hand_near_fd >= 0)
		(void)fcntl(c->options.hand_near_fd, F_SETFD, FD_CLOEXEC);
	return c->options.hand_fd >= 0 && mounter_use(c->options.hand_fd, e) < 0 ? EXIT_RUNTIME
										 : EXIT_OK;
}

static enum exit_status choose_engine(struct cachefuse *c, struct err *e)
{
	const struct engine_query query = {
		.engine = c->options.engine,
		.image_dir = c->options.image_dir,
		.mountpoint = c->mountpoint,
		.allow_other = c->options.allow_other,
		.context = c->options.context,
	};
	char *why = slots_mount(c->slots)->engine_why;
	int r = engine_choose(&query, &c->engine, why, e);

	if (r == -EROFS || r == -ENOSPC || r == -EACCES || r == -EOPNOTSUPP)
		return EXIT_CACHE;
	if (r < 0)
		return EXIT_KERNEL;
	log_info("engine", "engine=%s why=\"%s\"", c->engine->name, why);
	if (c->engine->check_point && c->engine->check_point(&query, e) < 0)
		return EXIT_MOUNTPOINT;
	return EXIT_OK;
}

static int open_point(struct cachefuse *c, struct err *e)
{
	if (c->options.replace)
		return mountpoint_open_mounted(c->mountpoint, &c->point_fd, e);
	if (c->options.point_fd < 0)
		return mountpoint_open(c->mountpoint, &c->point_fd, e);
	c->point_fd = c->options.point_fd;
	(void)fcntl(c->point_fd, F_SETFD, FD_CLOEXEC); /* checked when it is used */
	return mountpoint_check(c->point_fd, c->mountpoint, e);
}

/* What is cheap to know, before anything is listed. */
static enum exit_status check_place(struct cachefuse *c, struct err *e)
{
	enum exit_status status;
	int r;

	if (c->options.replace && !mounter_may_attach_beneath()) {
		(void)err_set(e, -EOPNOTSUPP, "--replace needs root and Linux 6.5 or newer");
		return EXIT_KERNEL;
	}
	r = open_point(c, e);
	if (r < 0)
		return EXIT_MOUNTPOINT;
	r = file_mkdirs(c->options.image_dir, 0700);
	if (r < 0) {
		(void)err_set(e, r,
			"the image directory %s cannot be created: %s: give another --cache",
			c->options.image_dir, err_str(r));
		return EXIT_CACHE;
	}
	status = choose_engine(c, e);
	return status == EXIT_OK && (c->options.follow || c->options.refresh_behind) &&
			       !follow_possible(c->engine, e)
		       ? EXIT_KERNEL
		       : status;
}

/* Not by the number of a process, which are given again. */
static void only_own(struct cachefuse *c)
{
	uint64_t number;

	hash_random(&number, sizeof(number));
	(void)snprintf(c->key, sizeof(c->key), "only %016" PRIx64, number);
}

/* What is shown ends with the token of the daemon that serves it, which pods of the same service account renew. */
static size_t add_account(const struct cachefuse *c, char *out, size_t size)
{
	const char *claims = c->options.claims ? c->options.claims : "";
	uint8_t sum[SHA256_BYTES];
	char text[2 * SHA256_BYTES + 1];

	if (!c->options.keys.token || !claims_of_pod(claims))
		return 0;
	hash_sha256(claims, strlen(claims), sum);
	hash_hex(sum, sizeof(sum), text);
	return (size_t)max(snprintf(out, size, " account=%s", text), 0);
}

/* Names what the mount would show, for whoever shares it: c->key. */
static void set_key(struct cachefuse *c)
{
	const char *name = slots_mount(c->slots)->image;
	const char *label = c->options.context ? c->options.context : "";
	/* One that moves on under its superblock is the same in all generations of a lineage, whatever it
	 * shows by now. Where a certain one is asked for, it is not what is asked for. */
	bool live = follow_is_live(c);
	bool own = c->options.refresh_behind || /* its generation changes on its own */
		   (live && (c->options.replace || c->options.rolled_back));
	int len = live ? (int)strcspn(name, ".") : (int)strlen(name);
	int n = snprintf(c->key, sizeof(c->key), "%s %s %.*s %s", c->engine->name,
		c->options.integrity, len, name, label);

	if (live && n < (int)sizeof(c->key))
		n += snprintf(c->key + n, sizeof(c->key) - (size_t)n, " lineage=%" PRIx64,
			slots_mount(c->slots)->lineage);

	if (c->options.prime_max != CACHEFUSE_UNSET && n < (int)sizeof(c->key)) /* asked for */
		n += snprintf(c->key + n, sizeof(c->key) - (size_t)n, " prime=%" PRIu64,
			c->options.prime_max);
	if (n < (int)sizeof(c->key))
		n += (int)add_account(c, c->key + n, sizeof(c->key) - (size_t)n);
	if (n < (int)sizeof(c->key))
		n += (int)follow_key(c, c->key + n, sizeof(c->key) - (size_t)n);
	if (own || n >= (int)sizeof(c->key)) /* or too long for a key: nobody's but its own */
		only_own(c);
}

static enum exit_status make_image(struct cachefuse *c, struct err *e)
{
	struct image_source sources[LAYOUT_SOURCES_MAX];
	struct slots_mount *m = slots_mount(c->slots);
	struct images_result image;
	uint64_t begin = clock_mono_ns();
	uint32_t skipped = 0;
	int r;

	c->image_options.one_device = c->engine->one_device;
	sources_images(&c->sources, sources);
	r = images_get(c->options.image_dir, sources, c->sources.n, &c->image_options, log_skipped,
		&skipped, &image, e);

	if (r == -ENOMEM || r == -EINVAL || r == -EBADMSG || r == -E2BIG)
		return EXIT_RUNTIME;
	if (r == -ENOENT && c->options.path) {
		(void)err_set(e, r, "dataset %s has no directory '%s': check the path",
			c->options.dataset_name, c->options.path);
		return EXIT_USAGE;
	}
	if (r == -ENOENT && sources_composed(&c->sources)) /* what is to be shown of one is gone */
		return EXIT_ORIGIN;
	if (r < 0)
		return EXIT_CACHE;
	source_note_shown(c, &image);
	m->files = image.info.files;
	m->directories = image.info.directories;
	m->skipped = image.info.skipped;
	m->image_bytes = image.info.image_bytes;
	m->extent_bytes = image.info.extent_bytes;
	m->extents = image.info.extents;
	m->volume_offset = image.info.volume_offset;
	(void)snprintf(m->image, sizeof(m->image), "%s", image.name); /* the same size */
	set_key(c);
	log_info("image ready", "name=%s files=%" PRIu64 " bytes=%" PRIu64 " reused=%d ms=%" PRIu64,
		m->image, m->files, m->image_bytes, image.reused,
		(uint64_t)((clock_mono_ns() - begin) / CLOCK_MS));
	return EXIT_OK;
}

static enum exit_status mount_exit(int r)
{
	switch (-r) {
	case ENOTBLK:
	case EPERM:
	case EINVAL:
	case EUSERS: /* as many mounts as an ordinary user may have */
		return EXIT_KERNEL;
	case EOPNOTSUPP:
		return EXIT_CACHE;
	case EACCES:
		return EXIT_MOUNTPOINT;
	default:
		return EXIT_RUNTIME;
	}
}

/* What a listing may leave in the kernel: what fits a quarter of the memory available. */
static uint64_t choose_prime_max(const struct cachefuse *c)
{
	if (c->options.prime_max != CACHEFUSE_UNSET)
		return c->options.prime_max;
	return max(
		min(memory_available() / PRIME_SHARE / PRIME_BYTES, (uint64_t)CACHEFUSE_PRIME_MAX),
		(uint64_t)PRIME_LEAST);
}

/* What was found of the source is there now. A mount that is taken over goes on with what it has. */
static int check_memory(struct cachefuse *c, struct err *e)
{
	struct err why = ERR_INIT;
	int r = arena_start_done("--memory", &why);

	if (r == 0)
		return 0;
	if (!c->taken_over)
		return err_set(e, r, "%s", why.text);
	log_warn("memory", "why=\"%s\" next=\"serving with what it has\"", why.text);
	return 0;
}

/* The mount point has another device number. */
static void on_switch(void *arg)
{
	const struct cachefuse *c = arg;

	(void)eventfd_write(c->wake_fd, 1); /* cannot overflow */
}

/* Only for an engine whose devices may be files. */
static int open_seal(struct cachefuse *c, struct err *e)
{
	const struct slots_mount *m = slots_mount(c->slots);
	const struct seal_config config = {
		.source = seal_client_source(&c->seal_client),
		.extents = m->extents - 1,
		.pause_ns = c->options.seal_pause * CLOCK_MS,
		.on_switch = on_switch,
		.arg = c,
	};

	if (!c->engine || !c->engine->again || m->extents < 2 ||
		strcmp(c->options.integrity, "strict") == 0)
		return 0;
	seal_client_init(&c->seal_client, c->reader.sets[0].volumes, c->slots);
	c->seal = seal_new(&config);
	return c->seal ? 0 : err_set(e, -ENOMEM, "out of memory");
}

/* Status, metrics and orders over the socket beside the mount. */
static int open_admin(struct cachefuse *c, struct err *e)
{
	const struct counter_info *table;
	uint32_t n;
	int r = admin_server_new(c->options.admin, status_routes(), c, &c->server, e);

	if (r == 0) {
		table = session_counter_table(&n);
		r = admin_server_add_counters(
			c->server, table, n, session_counters(mounted_session(c->mounted)));
	}
	if (r == 0) {
		table = client_counter_table(&n);
		r = admin_server_add_counters(c->server, table, n, client_counters(c->client));
	}
	if (r == 0) {
		table = order_counter_table(&n);
		r = admin_server_add_counters(c->server, table, n, order_counters(c->order));
	}
	if (r == 0)
		r = status_add_metrics(c);
	if (r == 0)
		r = admin_server_listen(c->server, &c->options.admin_listen, NULL, e);
	return r;
}

/* What df(1) shows; by "://" others find the mount (mount_entry_ours()). A dataset mounted by name has no URL. */
static const char *shown_source(struct cachefuse *c)
{
	const char *source = c->options.source;

	if (strstr(source, "://"))
		return source;
	(void)snprintf(c->shown, sizeof(c->shown), "granary://%s", source); /* a name fits */
	return c->shown;
}

static enum exit_status serve(struct cachefuse *c, struct err *e)
{
	struct mounted_devices devices = { 0 };
	const struct mounted_config config = {
		.engine = c->engine,
		.mountpoint = c->mountpoint,
		.source = shown_source(c),
		.image = c->image,
		.key = c->key,
		.point_fd = c->point_fd,
		.replace = c->options.replace,
		.dev_fd = c->dev_fd,
		.kept = c->options.fuse_fd >= 0,
		.hand_fd = c->options.hand_fd,
		.slots = c->slots,
		.reader = &c->reader,
		.devices = c->taken_over || !c->seal ? NULL : &devices,
		.allow_other = c->options.allow_other,
		.context = c->options.context,
		.live = follow_is_live(c),
		.prime_max = choose_prime_max(c),
		.on_failure = on_failure,
		.on_gone = on_gone,
		.arg = c,
	};
	int r;

	if (snprintf(c->image, sizeof(c->image), "%s/%s", c->options.image_dir,
		    slots_mount(c->slots)->image) >= (int)sizeof(c->image)) {
		(void)err_set(e, -ENAMETOOLONG, "%s: the path is too long: give a shorter --cache",
			c->options.image_dir);
		return EXIT_CACHE;
	}
	if (config.devices)
		seal_devices(c->seal, &devices);
	r = mounted_new(&config, &c->mounted, e);
	cleanup_close(&c->point_fd); /* it would keep what lay there */
	c->point_fd = -1;
	if (config.devices)
		seal_devices_release(c->seal);
	if (r < 0)
		return mount_exit(r);
	r = check_memory(c, e);
	if (r == 0 && c->seal)
		r = seal_start(c->seal, c->mounted, e);
	if (r == 0)
		r = live_open(c);
	if (r == 0)
		r = follow_open(c);
	if (r == 0)
		r = open_admin(c, e);
	if (r == 0) {
		announced_listen(c);
		return EXIT_OK;
	}
	(void)err_default(e, r, "the admin socket cannot be served");
	return EXIT_RUNTIME;
}

/*
 * Gives up every right that is not needed any more: the keeper has what mounting takes. Nothing
 * without a keeper.
 */
static int drop_rights(struct err *e)
{
	int r;

	if (!mounter_is_apart())
		return 0;
	r = capabilities_keep(KEPT);
	if (r == 0 && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
		r = err_errno();
	return r < 0 ? err_set(e, r,
			       "cannot drop privileges: %s: allow capset(2) if a sandbox forbids "
			       "it",
			       err_str(r))
		     : 0;
}

/*
 * Shows what another daemon of this node serves, instead of serving it too. *ret_shared: there was
 * such a one, and this process has nothing more to do. -EALREADY: it is there already.
 */
static int share_other(struct cachefuse *c, bool *ret_shared, struct err *e)
{
	const struct mounter_attach attach = {
		.mount_fd = -1,
		.point_fd = c->point_fd,
		.mountpoint = c->mountpoint,
		.key = c->key,
		.replace = c->options.replace,
	};
	struct backoff backoff = { .min_ns = 20 * CLOCK_MS, .max_ns = 200 * CLOCK_MS };
	uint64_t until = clock_mono_ns() + MAKING_NS;
	int r;

	while ((r = mounter_share(&attach, e)) == -EINPROGRESS && clock_mono_ns() < until)
		clock_sleep_ns(backoff_next(&backoff));
	*ret_shared = r == 0;
	if (r == -ENOENT || r == -EINPROGRESS)
		return 0;
	if (r == 0)
		log_info("shared", "mountpoint=\"%s\" key=\"%s\"", c->mountpoint, c->key);
	return r;
}

/* What another daemon of this node shows already need not be served twice. */
static enum exit_status share(struct cachefuse *c, struct err *e)
{
	int r = share_other(c, &c->shared, e);

	if (r == -EALREADY) {
		(void)err_set(e, r, "nothing has changed: %s shows generation %" PRIu64 " already",
			c->mountpoint, slots_mount(c->slots)->generation);
		if (c->sources.n > 1)
			(void)err_set(e, r,
				"nothing has changed: %s shows the newest of all its sources "
				"already",
				c->mountpoint);
		return EXIT_UNCHANGED;
	}
	return r < 0 ? mount_exit(r) : EXIT_OK;
}

/* Until here SIGTERM simply ended the process: nothing was mounted. */
static int open_signals(struct cachefuse *c, struct err *e)
{
	sigset_t signals;

	daemon_signals_block(&signals);
	daemon_hangup_block(c->config, &signals);
	sigaddset(&signals, SIGUSR1); /* a successor is to take over */
	sigaddset(&signals, SIGUSR2); /* its mount is being unmounted: what is read gets EIO */
	pthread_sigmask(SIG_BLOCK, &signals, NULL);
	c->signal_fd = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
	return c->signal_fd < 0 ? err_set(e, err_errno(),
					  "no descriptor for signals: %m: raise the limit of open "
					  "files (ulimit -n)")
				: 0;
}

static enum exit_status start(struct cachefuse *c, struct err *e)
{
	enum exit_status status = check_options(c, e) < 0 ? EXIT_USAGE : EXIT_OK;

	if (status == EXIT_OK && (bounds_check_descriptors(e) < 0 ||
					 share_open(&c->share, c->options.memory, e) < 0))
		status = EXIT_USAGE;
	if (status == EXIT_OK)
		status = open_slots(c, e);
	if (status == EXIT_OK && !c->taken_over)
		status = check_place(c, e);
	if (status == EXIT_OK && drop_rights(e) < 0)
		status = EXIT_KERNEL;
	if (status == EXIT_OK && c->options.dataset_name)
		status = source_find_named(c, e);
	if (status == EXIT_OK)
		status = source_open(c, e);
	if (status == EXIT_OK)
		status = source_hold(c, e);
	if (status == EXIT_OK)
		status = c->taken_over ? source_check_successor(c, e) : make_image(c, e);
	if (status == EXIT_OK && !c->taken_over)
		status = share(c, e);
	if (status != EXIT_OK || c->shared)
		return status;
	if (open_signals(c, e) < 0 || open_seal(c, e) < 0)
		return EXIT_RUNTIME;
	return serve(c, e);
}

static void stop(struct cachefuse *c)
{
	if (c->server)
		admin_server_free(c->server); /* first: its handlers look at the rest */
	follow_close(c);                      /* its thread looks at what is held */
	seal_free(c->seal);                   /* its thread looks at the mount */
	mounted_free(c->mounted);
	order_free(c->order);
	live_close(c);
	sources_release(&c->sources);
	pthread_rwlock_destroy(&c->showing);
	client_free(c->client);
	failures_free(c->failures);
	slots_free(c->slots);
	cleanup_close(&c->point_fd);
	cleanup_close(&c->dev_fd);
	cleanup_close(&c->slots_fd);
	cleanup_close(&c->wake_fd);
	cleanup_close(&c->signal_fd);
	free(c->mountpoint);
}

/* ---- life ------------------------------------------------------------------------------------ */

static void tell_ready(struct cachefuse *c)
{
	const struct slots_mount *m = slots_mount(c->slots);
	const char *engine = c->shared ? c->engine->name : mounted_engine(c->mounted)->name;
	json_t *json = json_pack(
		"{s:i, s:s, s:s, s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:b, s:b}", "pid",
		(int)getpid(), "mountpoint", c->mountpoint, "source", c->options.source, "engine",
		engine, "engine_why", m->engine_why, "admin", c->options.admin, "files",
		(json_int_t)m->files, "directories", (json_int_t)m->directories, "skipped",
		(json_int_t)m->skipped, "bytes", (json_int_t)m->bytes, "generation",
		(json_int_t)m->generation, "taken_over", c->taken_over, "shared", c->shared);
	char *text;

	if (json && c->notice[0])
		(void)json_object_set_new(
			json, "notice", json_string(c->notice)); /* only a remark */
	text = json ? json_dumps(json, JSON_COMPACT | JSON_PRESERVE_ORDER) : NULL;
	if (!c->shared) {
		mounted_settle(c->mounted);
		order_show(
			c->order, mounted_point_dev(c->mounted)); /* a job may announce at once */
	}
	ready_ok(c->options.ready_fd, text ? text : "{}");
	free(text);
	json_decref(json);
	log_info("serving",
		"mountpoint=\"%s\" source=\"%s\" engine=%s generation=%" PRIu64 " files=%" PRIu64
		" taken_over=%d shared=%d",
		c->mountpoint, c->options.source, engine, m->generation, m->files, c->taken_over,
		c->shared);
}

/*
 * A successor goes on with connection and slots: nothing of the mount may be torn down here. Without a keeper there is none, and
 * the mount ends with this process. `must`: in the middle of a switch of devices, too, which the successor ends.
 */
static void hand_over(struct cachefuse *c, bool must)
{
	int r = mounted_hand_over(c->mounted);

	if (r == -ENODEV)
		return; /* it ends, as the connection has */
	if (r < 0 && !must) {
		log_warn("not handed over", "cause=%s", err_name(r));
		return;
	}
	log_info("handed over", "mountpoint=\"%s\" pid=%d", c->mountpoint, (int)getpid());
	_exit(EXIT_OK);
}

static void on_change(void *arg)
{
	const struct cachefuse *c = arg;

	daemon_log_level(c->options.log_level);
}

static void on_signal(struct cachefuse *c, uint32_t number)
{
	if (number == SIGHUP) {
		daemon_reload(c->config, on_change, c);
		return;
	}
	if (number == SIGUSR2) {
		log_info("requests are refused", "mountpoint=\"%s\"", c->mountpoint);
		session_refuse(mounted_session(c->mounted), true);
		return;
	}
	hand_over(c, number != SIGUSR1);
}

static void run(struct cachefuse *c)
{
	struct pollfd wait[2] = { { .fd = c->signal_fd, .events = POLLIN },
		{ .fd = c->wake_fd, .events = POLLIN } };

	uint64_t renewed = c->follow ? 0 : clock_mono_ns(); /* its first word asked for no news */

	while (!atomic_load(&c->gone)) {
		struct signalfd_siginfo info;
		eventfd_t events;

		if (clock_mono_ns() - renewed >= follow_hold_every(c)) {
			live_renew(c);
			source_hold_renew(c);
			renewed = clock_mono_ns();
		}
		source_note_cached(c);
		order_show(c->order, mounted_point_dev(c->mounted));
		/* If the session's threads do not turn, the keeper starts another daemon. */
		if (session_turns(mounted_session(c->mounted)))
			watchdog_beat(WATCHDOG_WAIT_NS);
		/* EINTR: look around */
		(void)poll(wait, 2, LOOK_MS);
		(void)eventfd_read(c->wake_fd, &events); /* only a wake-up */
		if (read(c->signal_fd, &info, sizeof(info)) == (ssize_t)sizeof(info))
			on_signal(c, info.ssi_signo);
		if (atomic_exchange(&c->failed_reads, false))
			log_failures(c);
	}
	log_info("ended", "mountpoint=\"%s\"", c->mountpoint);
}

/* One that a keeper started writes what the keeper writes: a mount is not lost over it when the disk
 * has become read-only since. */
static int open_audit(const struct cachefuse_options *options, struct err *e)
{
	int r = audit_open(options->audit_log, CACHEFUSE_PROGRAM, e);

	if (r == 0 || options->hand_fd < 0)
		return r;
	log_error("no audit log", "why=\"%s\" next=\"the mount continues without it\"", e->text);
	*e = ERR_INIT;
	return 0;
}

int main(int argc, char **argv)
{
	struct cachefuse c = {
		.dev_fd = -1,
		.slots_fd = -1,
		.point_fd = -1,
		.wake_fd = -1,
		.signal_fd = -1,
		.started = clock_mono_ns(),
	};
	_cleanup_(config_free_p) struct config *config = NULL;
	struct err e = ERR_INIT;
	enum exit_status status;

	pthread_rwlock_init(&c.showing, NULL);
	cachefuse_options_init(&c.options);
	if (argc > 1 && strcmp(argv[1], "--probe") == 0)
		return probe_command(argc, argv);
	config = config_open_or_exit(
		&cachefuse_option_set, argc, argv, &c.options, sizeof(c.options));
	c.config = config;
	if (daemon_begin("fuse", c.options.log_level, c.options.log_file, &e) < 0 ||
		admin_check_listen(&c.options.admin_listen, &e) < 0 ||
		open_audit(&c.options, &e) < 0 || client_keys_open(&c.options.keys, &e) < 0)
		return ready_error(c.options.ready_fd, CACHEFUSE_PROGRAM, EXIT_USAGE, &e);
	status = start(&c, &e);
	if (status != EXIT_OK) {
		stop(&c);
		return ready_error(c.options.ready_fd, CACHEFUSE_PROGRAM, status, &e);
	}
	tell_ready(&c);
	if (!c.shared)
		run(&c);
	stop(&c);
	return EXIT_OK;
}
