/* The log: one line per event whatever is in it, JSON that parses, levels and limits. */
#include "base/log.h"
#include "base/clock.h"
#include "base/limits.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int ends[2];

/* What was written since the last time. */
static const char *written(void)
{
	static char text[65536];
	ssize_t n = read(ends[0], text, sizeof(text) - 1);

	text[n > 0 ? n : 0] = '\0';
	return text;
}

static unsigned int lines(const char *text)
{
	unsigned int n = 0;

	for (; *text; text++)
		n += *text == '\n';
	return n;
}

static void open_log(enum log_level level, enum log_format format)
{
	if (ends[1] == 0)
		assert_int_equal(pipe2(ends, O_NONBLOCK | O_CLOEXEC), 0);
	(void)written();
	log_init("tester", ends[1], level, format);
}

static void levels_are_obeyed(void **state)
{
	enum log_level level = LOG_WARN;

	(void)state;
	open_log(LOG_INFO, LOG_TEXT);
	errno = ENOTTY;
	log_error("one", "n=%d", 1);
	log_info("two", "n=%d", 2);
	log_debug("three", "n=%d", 3);
	log_write(LOG_DEBUG, "four", "n=%d", 4);
	assert_int_equal(errno, ENOTTY);
	assert_int_equal(lines(written()), 2);
	assert_int_equal(log_level_parse("loud", &level), -EINVAL);
	assert_int_equal(level, LOG_WARN);
	assert_int_equal(log_level_parse("debug", &level), 0);
	assert_int_equal(level, LOG_DEBUG);
}

static void text_is_one_line_without_control_characters(void **state)
{
	const char *text;
	char want[64];

	(void)state;
	open_log(LOG_INFO, LOG_TEXT);
	log_warn("origin slow", "key=\"%s\"", "a\r\nb\x1b[2Jc\x7f\td \xc3\xa9");
	text = written();
	assert_int_equal(lines(text), 1);
	assert_int_equal(text[strlen(text) - 1], '\n');
	assert_non_null(strstr(text, " origin slow: key=\"a  b?[2Jc??d \xc3\xa9\"\n"));
	(void)snprintf(want, sizeof(want), "Z warn  tester[%d] origin slow: ", (int)getpid());
	assert_non_null(strstr(text, want));
}

static void json_is_escaped(void **state)
{
	const char *text;

	(void)state;
	open_log(LOG_INFO, LOG_JSON);
	log_warn("origin slow", "key=\"%s\"", "a\\b\nc\x1b\td\x01\xc3\xa9\xe2\x82\xac");
	text = written();
	assert_int_equal(lines(text), 1);
	assert_non_null(strstr(text, "\"fields\":\"key=\\\"a\\\\b c\\u001b\\u0009d\\u0001"
				     "\xc3\xa9\xe2\x82\xac\\\"\"}\n"));
	assert_non_null(strstr(text, "\"level\":\"warn\",\"process\":\"tester\",\"pid\":"));
	assert_non_null(strstr(text, ",\"event\":\"origin slow\","));
	for (const char *c = text; c[1]; c++)
		assert_true((unsigned char)*c >= 0x20);
}

static void json_is_utf8(void **state)
{
	static const char *const bad[] = { "\xff", "\x80", "\xc3", "\xc0\xaf", "\xe2\x82",
		"\xe0\x80\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xf0\x9f\x92" };

	(void)state;
	open_log(LOG_INFO, LOG_JSON);
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		const char *text;

		log_info("key", "<%s>", bad[i]);
		text = written();
		assert_non_null(strstr(text, "<\\ufffd"));
		for (const char *c = text; *c; c++)
			assert_true((unsigned char)*c < 0x80);
	}
	log_info("key", "<%s>", "\xf0\x9f\x92\xbe");
	assert_non_null(strstr(written(), "<\xf0\x9f\x92\xbe>"));
}

static void a_long_line_is_cut_and_stays_whole(void **state)
{
	static const char fillers[] = { 'x', '"', '\x01', '\xff' };
	char long_text[10000];

	(void)state;
	for (size_t i = 0; i < sizeof(fillers); i++) {
		const char *text;
		size_t n;

		memset(long_text, fillers[i], sizeof(long_text));
		long_text[sizeof(long_text) - 1] = '\0';
		open_log(LOG_INFO, LOG_JSON);
		log_info("long", "%s", long_text);
		text = written();
		n = strlen(text);
		assert_int_equal(lines(text), 1);
		assert_true(n > 1000 && n < 4096);
		assert_string_equal(text + n - 3, "\"}\n");
		open_log(LOG_INFO, LOG_TEXT);
		log_info("long", "%s", long_text);
		text = written();
		assert_int_equal(lines(text), 1);
		assert_int_equal(text[strlen(text) - 1], '\n');
	}
}

static void a_limit_counts_what_it_swallows(void **state)
{
	struct log_limit limit = { 0 };
	uint32_t dropped;
	unsigned int passed = 0;

	(void)state;
	for (int i = 0; i < 20; i++) {
		dropped = 77;
		if (log_limit_pass(&limit, 5, &dropped)) {
			passed++;
			assert_int_equal(dropped, 0);
		}
		limit.rate.at_ns = UINT64_MAX; /* no time passes */
	}
	assert_int_equal(passed, 5);
	limit.rate.at_ns = 0; /* much time has passed */
	assert_true(log_limit_pass(&limit, 5, &dropped));
	assert_int_equal(dropped, 15);
	assert_true(log_limit_pass(&limit, 5, &dropped));
	assert_int_equal(dropped, 0);
}

static void a_limited_place_says_so(void **state)
{
	unsigned int n;

	(void)state;
	open_log(LOG_INFO, LOG_TEXT);
	for (int i = 0; i < 100; i++)
		LOG_LIMITED(LOG_WARN, "peer", "n=%d", i);
	n = lines(written());
	assert_in_range(n, 5, 50); /* ten seconds for a hundred lines at most */
}

#define FLOOD 50000u /* lines: more than pass in four minutes */

static void a_flood_is_left_out_and_told(void **state)
{
	struct log_use before;
	struct log_use use;
	const char *text;

	(void)state;
	open_log(LOG_INFO, LOG_TEXT);
	log_use(&before);
	for (unsigned int i = 0; i < FLOOD; i++)
		log_info("flood", "i=%u", i);
	log_use(&use);
	/* Those that say how many were left out are lines too. */
	assert_in_range(
		use.lines - before.lines + use.left_out - before.left_out, FLOOD, 2 * FLOOD);
	assert_true(use.left_out > before.left_out);
	assert_true(use.lines - before.lines >= LIMIT_LOG_BURST / 2);
	do { /* until one is left out that none has told of */
		log_use(&before);
		log_info("flood", "i=%u", FLOOD);
		log_use(&use);
	} while (use.left_out == before.left_out);
	while (*written())
		; /* more than fits at once */
	errno = ENOTTY;
	log_error("important", "why=\"%m\""); /* has a quarter of the burst */
	text = written();
	assert_int_equal(lines(text), 2);
	assert_non_null(strstr(text, "lines left out: lines="));
	assert_non_null(strstr(text, strerror(ENOTTY)));
	log_error("again", "n=1");
	assert_int_equal(lines(written()), 1); /* told once */
}

static uint64_t size_of(const char *path)
{
	struct stat st;

	return stat(path, &st) == 0 ? (uint64_t)st.st_size : UINT64_MAX;
}

/* A log that is written to for a year has two files. */
static void a_file_has_a_maximum(void **state)
{
	char dir[] = "/tmp/granary-test-XXXXXX";
	char path[64];
	char old[64];
	char text[1500];
	int fd;

	(void)state;
	assert_non_null(mkdtemp(dir));
	(void)snprintf(path, sizeof(path), "%s/log", dir);
	(void)snprintf(old, sizeof(old), "%s/log.1", dir);
	fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, LIMIT_LOG_BYTES - 2000), 0);
	memset(text, 'x', sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	log_init("tester", fd, LOG_INFO, LOG_TEXT);
	log_bound_file(path);
	log_info("one", "%s", text);
	assert_int_equal(size_of(old), UINT64_MAX);
	log_info("two", "%s", text);
	assert_in_range(size_of(old), LIMIT_LOG_BYTES, LIMIT_LOG_BYTES + 2 * sizeof(text));
	assert_int_equal(size_of(path), 0);
	log_info("three", "%s", text);
	assert_in_range(size_of(path), sizeof(text), 2 * sizeof(text)); /* the same descriptor */
	assert_int_equal(unlink(path), 0);
	assert_int_equal(unlink(old), 0);
	assert_int_equal(rmdir(dir), 0);
	open_log(LOG_INFO, LOG_TEXT);
	assert_int_equal(close(fd), 0);
}

/* What somebody put in its place meanwhile is not written to. */
static void a_new_file_is_no_link(void **state)
{
	char dir[] = "/tmp/granary-test-XXXXXX";
	char path[64];
	char other[64];
	int fd;

	(void)state;
	assert_non_null(mkdtemp(dir));
	(void)snprintf(path, sizeof(path), "%s/log", dir);
	(void)snprintf(other, sizeof(other), "%s/other", dir);
	fd = open(other, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	assert_int_equal(close(fd), 0);
	fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, LIMIT_LOG_BYTES), 0);
	log_init("tester", fd, LOG_INFO, LOG_TEXT);
	log_bound_file(path);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(symlink(other, path), 0);
	log_info("one", "a=1"); /* is one too many */
	log_info("two", "a=1");
	assert_int_equal(size_of(other), 0);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(unlink(other), 0);
	assert_int_equal(rmdir(dir), 0);
	open_log(LOG_INFO, LOG_TEXT);
	assert_int_equal(close(fd), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_file_has_a_maximum),
		cmocka_unit_test(a_new_file_is_no_link),
		cmocka_unit_test(levels_are_obeyed),
		cmocka_unit_test(text_is_one_line_without_control_characters),
		cmocka_unit_test(json_is_escaped),
		cmocka_unit_test(json_is_utf8),
		cmocka_unit_test(a_long_line_is_cut_and_stays_whole),
		cmocka_unit_test(a_limit_counts_what_it_swallows),
		cmocka_unit_test(a_limited_place_says_so),
		cmocka_unit_test(a_flood_is_left_out_and_told),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
