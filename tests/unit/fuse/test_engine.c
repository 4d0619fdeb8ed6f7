/* Which engine, and the line that says why none: for root, an ordinary user, one without rights. */
#include "tests/unit/fuse/nobody.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include "base/clock.h"
#include "fuse/engine/engine.h"
#include "mount/kernel/kernel.h"

struct choice {
	int r;
	const struct engine *engine;
	char why[SLOTS_WHY_BYTES];
	char line[ERR_TEXT_MAX];
	const char *skipped;
};

enum who { AS_WE_ARE, AS_NOBODY, WITHOUT_RIGHTS };

static struct choice *choice;

static void choose_here(const char *wanted, bool allow_other)
{
	char dir[] = "/var/tmp/granary-engine-XXXXXX";
	const struct engine_query query = {
		.engine = wanted,
		.image_dir = mkdtemp(dir),
		.mountpoint = "/mnt",
		.allow_other = allow_other,
	};
	struct err e = ERR_INIT;

	choice->r = engine_choose(&query, &choice->engine, choice->why, &e);
	memcpy(choice->line, e.text, sizeof(e.text));
	rmdir(dir);
}

/* In a process of its own, whose identity it changes. */
static void choose(enum who who, const char *wanted, bool allow_other)
{
	pid_t pid;

	memset(choice, 0, sizeof(*choice));
	pid = fork();
	if (pid == 0) {
		if (who != AS_WE_ARE && geteuid() == 0)
			choice->skipped = become_nobody();
		if (who == WITHOUT_RIGHTS)
			prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
		if (!choice->skipped)
			choose_here(wanted, allow_other);
		_exit(0);
	}
	waitpid(pid, NULL, 0);
	if (choice->skipped) {
		print_message("%s\n", choice->skipped);
		skip();
	}
	print_message("%s%s\n", choice->why, choice->line);
}

static bool have_fusermount(void)
{
	if (access("/usr/bin/fusermount3", X_OK) == 0)
		return true;
	print_message("skipped: no fusermount3\n");
	return false;
}

static void setup_shared(void)
{
	choice = mmap(
		NULL, sizeof(*choice), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_true(choice != MAP_FAILED);
}

static void asked_for(void **state)
{
	(void)state;
	if (!kernel_may_mount())
		skip();
	choose(AS_WE_ARE, "fuse", false);
	assert_int_equal(choice->r, 0);
	assert_ptr_equal(choice->engine, &engine_fuse);
	assert_string_equal(choice->why, "fuse: requested");
}

static void automatic_as_root(void **state)
{
	struct err e = ERR_INIT;

	(void)state;
	if (!kernel_may_mount() || kernel_probe("/var/tmp", &e) < 0)
		skip();
	choose(AS_WE_ARE, "auto", false);
	assert_int_equal(choice->r, 0);
	assert_ptr_equal(choice->engine, &engine_native);
	assert_string_equal(choice->why, "auto: this kernel mounts EROFS from files");
}

static void automatic_as_a_user(void **state)
{
	(void)state;
	if (!have_fusermount())
		skip();
	choose(AS_NOBODY, "auto", false);
	assert_int_equal(choice->r, 0);
	assert_ptr_equal(choice->engine, &engine_fuse);
	assert_non_null(
		strstr(choice->why, "auto: not native: mounting EROFS needs CAP_SYS_ADMIN"));
}

static void native_as_a_user(void **state)
{
	(void)state;
	if (!have_fusermount())
		skip();
	choose(AS_NOBODY, "native", false);
	assert_int_equal(choice->r, -EPERM);
	assert_non_null(strstr(choice->line, "or use --engine fuse"));
}

static void neither(void **state)
{
	(void)state;
	if (!have_fusermount())
		skip();
	choose(WITHOUT_RIGHTS, "auto", false);
	assert_int_equal(choice->r, -EPERM);
	assert_non_null(strstr(choice->line, "neither engine can mount here"));
	assert_non_null(strstr(choice->line, "no_new_privs"));
	assert_non_null(strstr(choice->line, "CAP_SYS_ADMIN"));
	choose(WITHOUT_RIGHTS, "native", false);
	assert_int_equal(choice->r, -EPERM);
	assert_null(strstr(choice->line, "--engine fuse")); /* which would not help */
}

static void for_others(void **state)
{
	FILE *conf = fopen("/etc/fuse.conf", "re");
	char line[128];
	bool allowed = false;

	(void)state;
	while (conf && fgets(line, sizeof(line), conf))
		allowed |= strcmp(line, "user_allow_other\n") == 0;
	if (conf)
		fclose(conf);
	if (!have_fusermount())
		skip();
	choose(AS_NOBODY, "fuse", true);
	assert_int_equal(choice->r, allowed ? 0 : -EPERM);
	if (!allowed)
		assert_non_null(strstr(choice->line, "user_allow_other"));
}

/* The reason names the directory, and is cut; /v1/status is to show it all the same. */
static void cut_between_characters(void **state)
{
	(void)state;
	if (!kernel_may_mount())
		skip();
	for (int shift = 0; shift < 2; shift++) {
		char dir[300];
		struct engine_query query = { .engine = "auto", .image_dir = dir };
		struct err e = ERR_INIT;
		json_t *json;

		/* A name of this run: others, or one that was killed, may have theirs there. */
		(void)snprintf(dir, sizeof(dir), "/dev/shm/%s%016llx", shift ? "xx" : "x",
			(unsigned long long)clock_mono_ns());
		while (strlen(dir) < 240)
			(void)strncat(dir, "\xc3\xa9", 3);
		assert_int_equal(mkdir(dir, 0700), 0);
		assert_int_equal(engine_choose(&query, &choice->engine, choice->why, &e), 0);
		assert_int_equal(rmdir(dir), 0);
		json = json_string(choice->why);
		assert_non_null(json);
		json_decref(json);
	}
}

/* Where SELinux runs this needs a label of its policy, which is not ours to know. */
static void label_without_selinux(void **state)
{
	const struct engine_query query = { .engine = "auto",
		.image_dir = "/var/tmp",
		.mountpoint = "/mnt",
		.context = "u:r:t:s0" };
	struct err e = ERR_INIT;

	(void)state;
	if (kernel_has_selinux())
		skip();
	assert_int_equal(engine_choose(&query, &choice->engine, choice->why, &e), -EINVAL);
	assert_non_null(strstr(e.text, "SELinux"));
	assert_non_null(strstr(e.text, "leave it out"));
}

/* The kernel is told: without SELinux it knows no such option. */
static void label_is_passed(void **state)
{
	struct err e = ERR_INIT;
	int fd = -1;
	int mount_fd = -1;
	dev_t dev = 0;

	(void)state;
	if (!kernel_may_mount() || kernel_has_selinux() || kernel_probe("/var/tmp", &e) < 0)
		skip();
	kernel_label("u:r:t:s0");
	assert_true(kernel_probe("/var/tmp", &e) < 0);
	assert_non_null(strstr(e.text, "context"));
	assert_int_equal(kernel_open_fuse(&fd, &e), 0);
	assert_true(kernel_mount_fuse(fd, "shown", &mount_fd, &dev, &e) < 0);
	assert_non_null(strstr(e.text, "context"));
	assert_int_equal(kernel_mount_fuse(fd, NULL, &mount_fd, &dev, &e), 0); /* ours alone */
	close(mount_fd);
	close(fd);
	kernel_label(NULL);
	assert_int_equal(kernel_probe("/var/tmp", &e), 0);
}

/* Over a loop device where files are not to be had: a directory in memory holds no image. */
static void native_over_a_loop_device(void **state)
{
	char dir[] = "/dev/shm/granary-engine-XXXXXX";
	struct engine_query query = { .engine = "native", .mountpoint = "/mnt" };
	struct err e = ERR_INIT;

	(void)state;
	if (!kernel_may_mount() || kernel_probe_loop(&e) < 0)
		skip();
	query.image_dir = mkdtemp(dir);
	assert_int_equal(engine_choose(&query, &choice->engine, choice->why, &e), 0);
	assert_ptr_equal(choice->engine, &engine_loop);
	assert_string_equal(choice->why, "native: requested");
	query.engine = "auto";
	assert_int_equal(engine_choose(&query, &choice->engine, choice->why, &e), 0);
	assert_ptr_equal(choice->engine, &engine_loop);
	assert_non_null(strstr(choice->why, "auto: not from files: the file system of /dev/shm"));
	assert_int_equal(rmdir(dir), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(asked_for),
		cmocka_unit_test(automatic_as_root),
		cmocka_unit_test(automatic_as_a_user),
		cmocka_unit_test(native_as_a_user),
		cmocka_unit_test(neither),
		cmocka_unit_test(for_others),
		cmocka_unit_test(cut_between_characters),
		cmocka_unit_test(label_without_selinux),
		cmocka_unit_test(label_is_passed),
		cmocka_unit_test(native_over_a_loop_device),
	};

	setup_shared();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
