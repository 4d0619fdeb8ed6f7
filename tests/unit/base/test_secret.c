/* Secrets: in no core dump, gone when they are freed, and a process whose memory is its own. */
#include "base/secret.h"
#include "base/buf.h"
#include "base/cleanup.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define TEXT "wJalrXUtnFEMI/K7MDENG"

static const char *watched; /* must be wiped when it is unmapped */
static bool unmapped;

/* Instead of libc's, for the program. */
int munmap(void *map, size_t len)
{
	const char *begin = map;

	if (watched && begin <= watched && watched < begin + len) {
		unmapped = true;
		for (size_t i = 0; i < len; i++)
			assert_int_equal(begin[i], 0);
	}
	return (int)syscall(SYS_munmap, map, len);
}

/* Whether the mapping of p has that flag of "VmFlags:" (proc(5)). */
static bool has_flag(const void *p, const char *flag)
{
	_cleanup_fclose_ FILE *f = fopen("/proc/self/smaps", "re");
	char line[512];
	bool here = false;

	assert_non_null(f);
	while (fgets(line, sizeof(line), f)) {
		uintptr_t begin;
		uintptr_t end;

		if (sscanf(line, "%lx-%lx ", &begin, &end) == 2)
			here = begin <= (uintptr_t)p && (uintptr_t)p < end;
		if (here && strncmp(line, "VmFlags:", 8) == 0)
			return strstr(line, flag) != NULL;
	}
	return false;
}

static void in_no_core_dump(void **state)
{
	char *heap = strdup(TEXT);
	char *text = secret_text(TEXT "and more", strlen(TEXT));

	(void)state;
	assert_string_equal(text, TEXT);
	assert_true(has_flag(text, " dd "));
	assert_false(has_flag(heap, " dd "));
	free(heap);
	secret_free(text);
}

static void wiped_when_freed(void **state)
{
	static const size_t sizes[] = { 1, 100, 4080, 4081, 100000 };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		char *secret = secret_new(sizes[i]);

		assert_non_null(secret);
		assert_int_equal((uintptr_t)secret % _Alignof(max_align_t), 0);
		for (size_t k = 0; k < sizes[i]; k++)
			assert_int_equal(secret[k], 0);
		memset(secret, 's', sizes[i]);
		watched = secret;
		unmapped = false;
		secret_free(secret);
		assert_true(unmapped);
		watched = NULL;
	}
	secret_free(NULL);
	assert_null(secret_new(SIZE_MAX - 100));
}

static void a_process_that_hides(void **state)
{
	pid_t pid = fork();
	int status;

	(void)state;
	if (pid == 0) {
		secret_hide_process();
		_exit(prctl(PR_GET_DUMPABLE, 0, 0, 0, 0));
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(in_no_core_dump),
		cmocka_unit_test(wiped_when_freed),
		cmocka_unit_test(a_process_that_hides),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
