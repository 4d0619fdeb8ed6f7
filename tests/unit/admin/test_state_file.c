/* What is written down can be read again. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "admin/admin.h"
#include "admin/state_file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char path[] = "/tmp/granary-state.XXXXXX";

/* A state with `n` bytes of text in it; the caller's to free. */
static char *state_of(size_t n)
{
	char *text = malloc(n + 64);
	int head;

	assert_non_null(text);
	head = snprintf(text, n + 64, "{\"format\": 1, \"text\": \"");
	memset(text + head, 'x', n);
	memcpy(text + head + n, "\"}", sizeof("\"}"));
	return text;
}

/* 64 mounts of 16 sources with the longest paths and keys. */
static void long_one(void **state)
{
	const size_t n = (size_t)64 * 16 * 3 * 1024;
	char *text = state_of(n);
	uint64_t saved = 0;
	json_t *json = NULL;

	(void)state;
	assert_int_equal(state_file_write(path, text, &saved), 1);
	assert_int_equal(state_file_write(path, text, &saved), 0);
	assert_int_equal(state_file_read(path, 2, &json), -EPROTONOSUPPORT);
	assert_int_equal(state_file_read(path, 1, &json), 0);
	assert_int_equal(json_string_length(json_object_get(json, "text")), n);
	json_decref(json);
	free(text);
}

/* What could not be read again is not written in the place of what can. */
static void too_long(void **state)
{
	char *text = state_of(STATE_FILE_BYTES);
	char *before = state_of(3);
	uint64_t saved = 0;
	json_t *json = NULL;

	(void)state;
	assert_int_equal(state_file_write(path, before, &saved), 1);
	assert_int_equal(state_file_write(path, text, &saved), -EFBIG);
	assert_int_equal(state_file_read(path, 1, &json), 0);
	assert_string_equal(json_string_value(json_object_get(json, "text")), "xxx");
	json_decref(json);
	free(before);
	free(text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(long_one),
		cmocka_unit_test(too_long),
	};
	int fd = mkstemp(path);
	int r;

	if (fd < 0)
		return 1;
	(void)close(fd);
	r = cmocka_run_group_tests(tests, NULL, NULL);
	(void)unlink(path);
	return r;
}
