/* What doctor finds, in places made to be found wanting. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/units.h"
#include "ctl/doctor.h"

static char dir[64];
static struct doctor_options options;
static struct doctor d;

static const char *in(const char *name)
{
	static char path[4][256];
	static unsigned int turn;
	char *out = path[turn++ % 4];

	(void)snprintf(out, sizeof(path[0]), "%s/%s", dir, name);
	return out;
}

static int setup(void **state)
{
	(void)state;
	(void)snprintf(dir, sizeof(dir), "/var/tmp/granary-dr.XXXXXX");
	if (!mkdtemp(dir) || setenv("GRANARY_BIN_DIR", in("bin"), 1) != 0 ||
		setenv("GRANARY_RUN_DIR", in("run"), 1) != 0)
		return -1;
	options = (struct doctor_options){ .engine = "auto", .memory = 128 * MiB };
	d = (struct doctor){ .options = &options };
	return 0;
}

static int teardown(void **state)
{
	char command[128];

	(void)state;
	doctor_release(&d);
	(void)snprintf(command, sizeof(command), "rm -rf %s", dir);
	return system(command);
}

/* A finding that says so, of that level. */
static void expect(enum finding_level level, const char *area, const char *says)
{
	for (unsigned int i = 0; i < d.n; i++)
		if (d.findings[i].level == level && strcmp(d.findings[i].area, area) == 0 &&
			strstr(d.findings[i].text, says))
			return;
	doctor_print(&d, stderr);
	fail_msg("no %s finding of level %d says \"%s\"", area, (int)level, says);
}

static void test_findings(void **state)
{
	json_t *json;
	char *text = NULL;
	size_t size = 0;
	FILE *out;

	(void)state;
	doctor_ok(&d, "one", "fine");
	assert_int_equal(d.status, EXIT_OK);
	doctor_warn(&d, "two", "costs %d", 3);
	assert_int_equal(d.status, EXIT_OK);
	doctor_fail(&d, EXIT_CACHE, "three", "from outside: %s", "a\nb\033[1m");
	doctor_fail(&d, EXIT_ORIGIN, "four", "later");
	assert_int_equal(d.status, EXIT_CACHE);
	out = open_memstream(&text, &size);
	doctor_print(&d, out);
	assert_int_equal(fclose(out), 0);
	assert_string_equal(text, "OK    one      fine\n"
				  "WARN  two      costs 3\n"
				  "FAIL  three    from outside: a?b?[1m\n"
				  "FAIL  four     later\n");
	free(text);
	json = doctor_json(&d);
	assert_int_equal(json_integer_value(json_object_get(json, "status")), EXIT_CACHE);
	assert_int_equal(json_array_size(json_object_get(json, "findings")), 4);
	json_decref(json);
	for (unsigned int i = 0; i < 2 * DOCTOR_FINDINGS_MAX; i++)
		doctor_ok(&d, "many", "%u", i);
	assert_int_equal(d.n, DOCTOR_FINDINGS_MAX);
}

static void test_reads(void **state)
{
	uint64_t number = 0;
	char proxy[32];

	(void)state;
	assert_int_equal(file_write_atomic(in("number"), "77\n", 3, 0600), 0);
	assert_int_equal(doctor_read_number(in("number"), &number), 0);
	assert_int_equal(number, 77);
	assert_int_equal(file_write_atomic(in("number"), "max\n", 4, 0600), 0);
	assert_int_equal(doctor_read_number(in("number"), &number), -EINVAL);
	assert_int_equal(doctor_read_number(in("none"), &number), -ENOENT);
	doctor_redact_proxy("http://me:secret@proxy:3128/x", proxy, sizeof(proxy));
	assert_string_equal(proxy, "http://proxy:3128");
	doctor_redact_proxy("me:sec@ret@proxy", proxy, sizeof(proxy));
	assert_string_equal(proxy, "proxy");
	doctor_redact_proxy("proxy:1/a@b", proxy, sizeof(proxy));
	assert_string_equal(proxy, "proxy:1");
}

static void look_at_cache(const char *path)
{
	doctor_release(&d);
	d.status = EXIT_OK;
	options.cache = path;
	doctor_cache(&d);
}

static void test_cache(void **state)
{
	struct stat st;

	(void)state;
	look_at_cache(in("new/er"));
	assert_int_equal(d.status, EXIT_OK);
	expect(FINDING_OK, "cache", "will be created");
	assert_int_equal(stat(in("new"), &st), -1);
	assert_int_equal(file_mkdirs(in("empty"), 0700), 0);
	look_at_cache(in("empty"));
	expect(FINDING_OK, "cache", "empty, will be used");
	assert_int_equal(rmdir(in("empty")), 0); /* nothing was left there */
	assert_int_equal(file_mkdirs(in("foreign/x"), 0700), 0);
	look_at_cache(in("foreign"));
	assert_int_equal(d.status, EXIT_CACHE);
	expect(FINDING_FAIL, "cache", "not a Granary cache");
	assert_int_equal(file_write_atomic(in("file"), "", 0, 0600), 0);
	look_at_cache(in("file"));
	assert_int_equal(d.status, EXIT_CACHE);
	expect(FINDING_FAIL, "cache", "not a directory");
	options.cache_size = 1ull << 60;
	look_at_cache(in("huge"));
	expect(FINDING_FAIL, "cache", "smaller than");
	options.cache_size = 0;
	if (access("/dev/shm", W_OK) != 0)
		return;
	look_at_cache("/dev/shm/none");
	assert_int_equal(d.status, EXIT_OK);
	expect(FINDING_WARN, "cache", "lost at a reboot");
	options.engine = "native";
	look_at_cache("/dev/shm/none");
	assert_int_equal(d.status, EXIT_CACHE);
}

static void test_limits(void **state)
{
	(void)state;
	doctor_limits(&d);
	assert_int_equal(d.status, EXIT_OK);
	expect(FINDING_OK, "limits", in("run"));
	doctor_release(&d);
	options.memory = 1ull << 60;
	doctor_limits(&d);
	assert_int_equal(d.status, EXIT_USAGE);
	expect(FINDING_FAIL, "limits", "--memory");
}

/* A stand-in for cachefuse that prints `answer`. */
static void look_at_kernel(const char *engine, const char *answer)
{
	char text[512];
	int n = snprintf(
		text, sizeof(text), "#!/bin/sh\n[ \"$1\" = --probe ] && echo '%s'\n", answer);

	assert_int_equal(file_mkdirs(in("bin"), 0755), 0);
	assert_int_equal(file_write_atomic(in("bin/cachefuse"), text, (size_t)n, 0755), 0);
	doctor_release(&d);
	d.status = EXIT_OK;
	options.engine = engine;
	options.cache = in("cache");
	doctor_kernel(&d);
}

#define ONLY_FUSE                                                                                  \
	"{\"engines\": [{\"name\": \"native\", \"ok\": false, \"text\": \"no erofs\"},"            \
	" {\"name\": \"fuse\", \"ok\": true, \"text\": \"\"}], \"auto\": \"fuse\", \"protocol\": " \
	"\"7.9\"}"
#define ONLY_LOOP                                                                            \
	"{\"engines\": [{\"name\": \"native\", \"ok\": false, \"text\": \"block devices\"}," \
	" {\"name\": \"native (loop)\", \"ok\": true, \"text\": \"\"},"                      \
	" {\"name\": \"fuse\", \"ok\": true, \"text\": \"\"}], \"auto\": \"native (loop)\"}"
#define NEITHER                                                                         \
	"{\"engines\": [{\"name\": \"native\", \"ok\": false, \"text\": \"no erofs\"}," \
	" {\"name\": \"fuse\", \"ok\": false, \"text\": \"no device\"}]}"

static void test_kernel(void **state)
{
	(void)state;
	look_at_kernel("auto", ONLY_FUSE);
	assert_int_equal(d.status, EXIT_OK);
	expect(FINDING_WARN, "engine", "no erofs");
	expect(FINDING_OK, "engine", "auto: takes fuse");
	expect(FINDING_OK, "fuse", "7.9");
	look_at_kernel("native", ONLY_FUSE);
	assert_int_equal(d.status, EXIT_KERNEL);
	expect(FINDING_FAIL, "engine", "native: no erofs");
	look_at_kernel("native", ONLY_LOOP); /* is what it gets */
	assert_int_equal(d.status, EXIT_OK);
	expect(FINDING_OK, "engine", "native (loop): available");
	look_at_kernel("loop", ONLY_FUSE);
	assert_int_equal(d.status, EXIT_KERNEL);
	expect(FINDING_FAIL, "engine", "native (loop): not known");
	look_at_kernel("auto", NEITHER);
	assert_int_equal(d.status, EXIT_KERNEL);
	expect(FINDING_FAIL, "engine", "neither");
	look_at_kernel("auto", "nonsense");
	assert_int_equal(d.status, EXIT_RUNTIME);
	assert_int_equal(unlink(in("bin/cachefuse")), 0);
	doctor_release(&d);
	doctor_kernel(&d);
	expect(FINDING_FAIL, "engine", "GRANARY_BIN_DIR");
}

static void test_origin(void **state)
{
	char url[128];

	(void)state;
	d.url = "nonsense";
	doctor_origin(&d);
	assert_int_equal(d.status, EXIT_USAGE);
	(void)snprintf(url, sizeof(url), "file://%s", dir);
	d.url = url;
	assert_int_equal(file_write_atomic(in("object"), "bytes", 5, 0600), 0);
	doctor_release(&d);
	d.status = EXIT_OK;
	doctor_origin(&d);
	assert_int_equal(d.status, EXIT_OK);
	expect(FINDING_OK, "origin", "may be listed");
	expect(FINDING_OK, "origin", "objects may be read");
	assert_int_equal(setenv("AWS_ACCESS_KEY_ID", "AKID", 1), 0);
	assert_int_equal(setenv("AWS_SECRET_ACCESS_KEY", "hush", 1), 0);
	d.url = "s3://bucket/";
	options.origin.endpoint = "http://127.0.0.1:1";
	doctor_release(&d);
	doctor_origin(&d);
	assert_int_equal(d.status, EXIT_ORIGIN);
	expect(FINDING_FAIL, "origin", "127.0.0.1:1");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_findings, setup, teardown),
		cmocka_unit_test_setup_teardown(test_reads, setup, teardown),
		cmocka_unit_test_setup_teardown(test_cache, setup, teardown),
		cmocka_unit_test_setup_teardown(test_limits, setup, teardown),
		cmocka_unit_test_setup_teardown(test_kernel, setup, teardown),
		cmocka_unit_test_setup_teardown(test_origin, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
