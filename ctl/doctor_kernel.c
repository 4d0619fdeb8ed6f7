/* doctor: what the kernel and fusermount3 can, and which engine that gives. */
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/limits.h"
#include "base/mount_conf.h"
#include "base/programs.h"
#include "client/client.h"
#include "ctl/cache_dir.h"
#include "ctl/doctor.h"
#include "ctl/kernel.h"

#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>

#define PROBE_NS        (20 * CLOCK_SECOND)
#define NATIVE          "native" /* engines by their names, as the probe says them */
#define LOOP            "native (loop)"
#define FUSE_PARAMETERS "/sys/module/fuse/parameters/"

/* ---- engines --------------------------------------------------------------------------------- */

/* What `cachefuse --probe` says, or NULL. Images would lie where the cache is to be. */
static json_t *run_probe(const struct doctor *d, struct err *e)
{
	_cleanup_(buf_release) struct buf out = BUF_INIT(65536);
	char program[PATH_MAX + 16];
	char dir[PATH_MAX];
	char cache[PATH_MAX];
	char *argv[] = { program, (char[]){ "--probe" }, (char[]){ "--image-dir" }, dir,
		d->options->allow_other ? (char[]){ "--allow-other" } : NULL, NULL };
	int status = 0;
	int r = programs_dir(cache, e);
	json_t *json;

	if (r < 0)
		return NULL;
	(void)snprintf(program, sizeof(program), "%s/cachefuse", cache); /* fits */
	if (d->options->cache)
		(void)snprintf(cache, sizeof(cache), "%s", d->options->cache); /* cut: not there */
	else if (cache_dir_default(cache, e) < 0)
		return NULL;
	if (!cache_dir_existing(cache, dir))
		(void)snprintf(dir, sizeof(dir), "/"); /* fits */
	r = programs_run(argv, PROBE_NS, &out, &status);
	if (r < 0 || status != 0) {
		(void)err_set(e, r < 0 ? r : -EIO,
			"%s --probe failed: %s: install the programs next to cachectl, or set "
			"GRANARY_BIN_DIR",
			program, r < 0 ? err_str(r) : "it failed");
		return NULL;
	}
	json = json_loadb(buf_str(&out), out.len, 0, NULL);
	if (!json)
		(void)err_set(e, -EPROTO,
			"%s --probe printed nothing; use the same version of all programs",
			program);
	return json;
}

static const json_t *find_engine(const json_t *probe, const char *name)
{
	const json_t *engine;
	size_t i;

	json_array_foreach (json_object_get(probe, "engines"), i, engine) {
		const char *its = json_string_value(json_object_get(engine, "name"));

		if (its && strcmp(its, name) == 0)
			return engine;
	}
	return NULL;
}

static const char *text_of(const json_t *engine)
{
	const char *text = json_string_value(json_object_get(engine, "text"));

	return text ? text : "not known";
}

static bool can_be_had(const json_t *probe, const char *name)
{
	return json_is_true(json_object_get(find_engine(probe, name), "ok"));
}

/* `option`: of --engine. */
static void add_engine(struct doctor *d, const json_t *probe, const char *name, const char *option,
	const char *cost)
{
	const json_t *engine = find_engine(probe, name);

	if (can_be_had(probe, name))
		doctor_ok(d, "engine", "%s: available", name);
	else if (strcmp(d->options->engine, option) == 0)
		doctor_fail(d, EXIT_KERNEL, "engine", "%s: %s", name, text_of(engine));
	else
		doctor_warn(d, "engine", "%s: unavailable%s: %s", name, cost, text_of(engine));
}

static void check_engines(struct doctor *d)
{
	struct err e = ERR_INIT;
	json_t *probe = run_probe(d, &e);
	const char *first = json_string_value(json_object_get(probe, "auto"));
	const char *protocol = json_string_value(json_object_get(probe, "protocol"));
	const char *asked = d->options->engine;

	if (!probe) {
		doctor_fail(d, EXIT_RUNTIME, "engine", "%s", e.text);
		return;
	}
	/* Over a loop device it is native too, and does where it is not to be had from files. */
	if (can_be_had(probe, NATIVE) || !can_be_had(probe, LOOP))
		add_engine(d, probe, NATIVE, "native",
			", so a cold read and a walk cost the way through a daemon");
	if (!can_be_had(probe, NATIVE) || strcmp(asked, "loop") == 0)
		add_engine(d, probe, LOOP, "loop", "");
	add_engine(d, probe, "fuse", "fuse", ", so no engine is left to fall back to");
	if (strcmp(asked, "auto") == 0 && first)
		doctor_ok(d, "engine", "auto: takes %s", first);
	else if (strcmp(asked, "auto") == 0)
		doctor_fail(d, EXIT_KERNEL, "engine",
			"auto: neither engine can mount here: see the two lines above");
	if (protocol)
		doctor_ok(d, "fuse", "protocol: %s", protocol);
	json_decref(probe);
}

/* ---- FUSE ------------------------------------------------------------------------------------ */

static void check_fusermount(struct doctor *d)
{
	char path[PATH_MAX];
	struct stat st;

	if (!programs_fusermount(path)) {
		doctor_warn(d, "fuse",
			"fusermount3: not found, so only root can mount: install the package "
			"fuse3");
		return;
	}
	if (stat(path, &st) == 0 && st.st_uid == 0 && (st.st_mode & S_ISUID))
		doctor_ok(d, "fuse", "fusermount3: %s, for ordinary users", path);
	else
		doctor_warn(d, "fuse",
			"fusermount3: %s is not set-user-id root: only root can mount: chmod u+s "
			"it",
			path);
}

static void check_device(struct doctor *d)
{
	struct stat st;

	if (stat("/dev/fuse", &st) != 0)
		doctor_warn(d, "fuse",
			"/dev/fuse: %m: nothing can be mounted: load the module fuse, or give the "
			"container the device");
	else if ((st.st_mode & 0666) != 0666)
		doctor_warn(d, "fuse",
			"/dev/fuse: mode %04o: ordinary users cannot mount: chmod 666 it, as udev "
			"does",
			st.st_mode & 07777);
	else
		doctor_ok(d, "fuse", "/dev/fuse: there, for all users");
}

static void check_conf(struct doctor *d)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(MOUNT_CONF_BYTES);
	uint64_t number = 0;
	bool there = file_read_all(MOUNT_CONF, &text) == 0;

	if (there && mount_conf_find(buf_str(&text), "user_allow_other", NULL))
		doctor_ok(
			d, "fuse", "user_allow_other: set: ordinary users may give --allow-other");
	else if (geteuid() != 0)
		doctor_warn(d, "fuse",
			"user_allow_other: not set: only you can read your mounts: as root, "
			"add the line user_allow_other to " MOUNT_CONF);
	if (there && mount_conf_find(buf_str(&text), "mount_max", &number))
		doctor_ok(d, "fuse", "mount_max: %llu mounts of ordinary users",
			(unsigned long long)number);
}

/* A mount must outlive an origin that stalls for as long as a READ may wait for it. */
static void check_timeout(struct doctor *d, const char *name)
{
	char path[64];
	uint64_t seconds;

	(void)snprintf(path, sizeof(path), "/proc/sys/fs/fuse/%s", name); /* fits */
	if (doctor_read_number(path, &seconds) == 0 && seconds > 0 &&
		seconds < CLIENT_READ_DEADLINE / CLOCK_SECOND)
		doctor_warn(d, "fuse",
			"%s: the kernel ends a mount whose origin stalls for %llus: write 0 to %s",
			name, (unsigned long long)seconds, path);
}

/* What the kernel takes away from a mount of an ordinary user, or from all. */
static void check_parameters(struct doctor *d)
{
	uint64_t number;

	if (doctor_read_number(FUSE_PARAMETERS "max_user_bgreq", &number) == 0) {
		if (number >= LIMIT_FUSE_SLOTS)
			doctor_ok(d, "fuse", "max_user_bgreq: %llu", (unsigned long long)number);
		else if (geteuid() != 0)
			doctor_warn(d, "fuse",
				"max_user_bgreq: %llu: that many reads of a stalled "
				"origin delay all other reads of your mounts: as root, write %u "
				"to " FUSE_PARAMETERS "max_user_bgreq",
				(unsigned long long)number, LIMIT_FUSE_SLOTS);
		else
			doctor_ok(d, "fuse",
				"max_user_bgreq: %llu, for mounts of ordinary users; yours are not "
				"bound by it",
				(unsigned long long)number);
	}
	check_timeout(d, "default_request_timeout");
	check_timeout(d, "max_request_timeout");
}

void doctor_kernel(struct doctor *d)
{
	struct utsname name;

	if (uname(&name) == 0)
		doctor_ok(d, "kernel", "%s %s, %s; %s", name.sysname, name.release, name.machine,
			kernel_may_mount() ? "you may mount (CAP_SYS_ADMIN)"
					   : "you may mount through fusermount3 only");
	check_engines(d);
	check_device(d);
	check_fusermount(d);
	check_conf(d);
	check_parameters(d);
}
