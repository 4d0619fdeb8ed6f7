/* The line of a failed command: text for people, an object for programs. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "base/check.h"
#include "base/error_line.h"

/* What error_line_print() writes with that command line. */
static const char *printed(const char *const *argv, const struct err *e, char out[2048])
{
	int copy = dup(STDERR_FILENO);
	int fd = memfd_create("line", MFD_CLOEXEC);
	int argc = 0;
	ssize_t n;

	while (argv[argc])
		argc++;
	assert_true(copy >= 0 && fd >= 0);
	assert_true(dup2(fd, STDERR_FILENO) >= 0);
	error_line_take_form(argc, (char **)(uintptr_t)argv); /* only read */
	assert_int_equal(error_line_print("program", 3, e), 3);
	(void)fflush(stderr);
	assert_true(dup2(copy, STDERR_FILENO) >= 0);
	n = pread(fd, out, 2047, 0);
	assert_true(n >= 0);
	out[n] = '\0';
	(void)close(copy);
	(void)close(fd);
	return out;
}

static void test_forms(void **state)
{
	static const char *const lines[][5] = { { "p", "-o", "json", "x", NULL },
		{ "p", "--output", "yaml", NULL }, { "p", "-ojson", NULL },
		{ "p", "--output=json", NULL }, { "p", "-o=json", "--", NULL } };
	static const char *const texts[][5] = { { "p", "x", NULL },
		{ "p", "--", "-o", "json", NULL }, { "p", "-o", "json", "-otable", NULL },
		{ "p", "-o", NULL } };
	struct err e = ERR_INIT;
	char out[2048];

	(void)state;
	(void)err_set(&e, -ENOENT, "no \"x\" in a\\b: see \xc3\xa9");
	for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
		static const char *const reset[] = { "p", "-otable", NULL };

		(void)printed(reset, &e, out);
		assert_string_equal(
			printed(texts[i], &e, out), "program: no \"x\" in a\\b: see \xc3\xa9\n");
	}
	for (size_t i = 0; i < ARRAY_SIZE(lines); i++)
		assert_string_equal(printed(lines[i], &e, out),
			"{\"error\": {\"code\": \"ENOENT\", \"text\": \"no \\\"x\\\" in a\\\\b: "
			"see \xc3\xa9\"}, \"exit\": 3}\n");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_forms),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
