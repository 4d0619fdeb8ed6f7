/* Programs: found, run for their answer, and given up. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/programs.h"

#define PATIENCE (60 * CLOCK_SECOND) /* for what must come */

static int run(const char *script, uint64_t timeout_ns, struct buf *out, int *ret_status)
{
	char text[256];
	char *argv[] = { (char[]){ "/bin/sh" }, (char[]){ "-c" }, text, NULL };

	(void)strncpy(text, script, sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	return programs_run(argv, timeout_ns, out, ret_status);
}

static void test_run(void **state)
{
	struct buf out = BUF_INIT(64);
	int status = -1;

	(void)state;
	assert_int_equal(run("echo hello; echo no >&2; exit 3", PATIENCE, &out, &status), 0);
	assert_int_equal(status, 3);
	assert_string_equal(buf_str(&out), "hello\n");
	assert_int_equal(run("kill -9 $$", PATIENCE, &out, &status), -EIO);
	assert_int_equal(run("exec sleep 1000", 100 * CLOCK_MS, &out, &status), -ETIMEDOUT);
	assert_int_equal(run("while echo much; do :; done", PATIENCE, &out, &status), -ENOBUFS);
	buf_release(&out);
}

static void test_find(void **state)
{
	char path[PATH_MAX];
	struct err e = ERR_INIT;

	(void)state;
	assert_int_equal(setenv("PATH", "/nowhere::/bin", 1), 0);
	assert_non_null(programs_find("sh", path));
	assert_string_equal(path, "/bin/sh");
	assert_null(programs_find("no-such-program", path));
	assert_int_equal(setenv("PATH", "/nowhere", 1), 0);
	assert_non_null(programs_find("sh", path)); /* a usual place */
	assert_int_equal(setenv("GRANARY_BIN_DIR", "/x/bin", 1), 0);
	assert_int_equal(programs_dir(path, &e), 0);
	assert_string_equal(path, "/x/bin");
	assert_int_equal(unsetenv("GRANARY_BIN_DIR"), 0);
	assert_int_equal(programs_dir(path, &e), 0);
	assert_int_equal(path[0], '/');
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_run),
		cmocka_unit_test(test_find),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
