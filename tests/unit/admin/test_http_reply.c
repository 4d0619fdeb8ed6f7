/* The parser of HTTP answers: each form of body, cut at every byte, and what is no answer. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <string.h>
#include "admin/http_reply.h"

/* Feeds `text` in steps of `step` bytes, then the end when `closed`. The parser's result; body in
 * `out`. */
static int parse(
	const char *text, size_t step, bool closed, struct buf *out, unsigned int *ret_status)
{
	size_t len = strlen(text);
	struct http_reply reply;
	int r = 0;

	http_reply_init(&reply, out);
	for (size_t at = 0; at < len && r == 0; at += step)
		r = http_reply_feed(&reply, text + at, min(step, len - at));
	if (r == 0 && closed)
		r = http_reply_end(&reply);
	else if (r == 0 && reply.state != HTTP_DONE)
		r = -EAGAIN;
	*ret_status = reply.status;
	http_reply_release(&reply);
	return r;
}

static void check(const char *text, bool closed, unsigned int status, const char *body)
{
	for (size_t step = 1; step <= strlen(text); step++) {
		struct buf out = BUF_INIT(1000);
		unsigned int got;

		assert_int_equal(parse(text, step, closed, &out, &got), 0);
		assert_int_equal(got, status);
		assert_string_equal(buf_str(&out), body);
		buf_release(&out);
	}
}

static void test_forms(void **state)
{
	(void)state;
	check("HTTP/1.1 200 OK\r\ncontent-length:  5 \r\nX: y\r\n\r\nhello", false, 200, "hello");
	check("HTTP/1.1 404 \r\nContent-Length: 0\r\n\r\n", false, 404, "");
	check("HTTP/1.0 200 OK\r\n\r\nto the end", true, 200, "to the end");
	check("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n6;x=y\r\n "
	      "world\r\n0\r\nT: v\r\n\r\n",
		false, 200, "hello world");
	check("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", false,
		200, "ok");
	check("HTTP/1.1 204 No Content\r\n\r\n", false, 204, "");
	/* Chunked wins over a length, and what follows the answer is left out. */
	check("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: "
	      "3\r\n\r\nA\r\n0123456789\r\n0\r\n\r\nmore",
		false, 200, "0123456789");
}

static void refuse(const char *text, bool closed, int code)
{
	struct buf out = BUF_INIT(1000);
	unsigned int status;

	assert_int_equal(parse(text, 7, closed, &out, &status), code);
	buf_release(&out);
}

static void test_hostile(void **state)
{
	static char longest[40000];

	(void)state;
	refuse("SSH-2.0-OpenSSH\r\n\r\n", true, -EBADMSG);
	refuse("HTTP/1.1 2x0 OK\r\n\r\n", true, -EBADMSG);
	refuse("HTTP/1.1 200 OK\r\nno colon\r\n\r\n", true, -EBADMSG);
	refuse("HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", true, -EBADMSG);
	refuse("HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n", true, -EBADMSG);
	refuse("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxx", true,
		-EBADMSG);
	refuse("HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n", true, -EBADMSG);
	refuse("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n", true, -EBADMSG);
	refuse("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nabc\r\n", true, -EBADMSG);
	refuse("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nshort", true, -EBADMSG);
	refuse("HTTP/1.1 200 OK\r\nContent-Le", true, -EBADMSG);
	refuse("", true, -EBADMSG);
	refuse("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhel", false, -EAGAIN);
	memset(longest, 'x', sizeof(longest) - 1);
	refuse(longest, true, -ENOBUFS); /* headers without an end */
	memcpy(longest, "HTTP/1.1 200 OK\r\n\r\n", 19);
	refuse(longest, true, -ENOBUFS); /* a body beyond the caller's bound */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_forms),
		cmocka_unit_test(test_hostile),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
