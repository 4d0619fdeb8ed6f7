/* The greeting: there and back, and what a hostile one gets. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <string.h>
#include "proto/hello.h"

static void test_round_trip(void **state)
{
	struct hello hello = { .process = "cacheworker", .version = 1, .pid = UINT32_MAX };
	struct hello back;
	uint8_t out[HELLO_BYTES_MAX];
	size_t n = hello_pack(&hello, out);

	(void)state;
	assert_int_equal(hello_unpack(out, n, &back), 0);
	assert_string_equal(back.process, "cacheworker");
	assert_int_equal(back.version, 1);
	assert_int_equal(back.pid, UINT32_MAX);
	/* Cut anywhere inside a field it does not decode; never a crash. */
	assert_int_equal(hello_unpack(out, n - 1, &back), -EBADMSG);
}

/* What a client says over TLS, byte for byte: who it is, and the proof. */
static void test_golden(void **state)
{
	struct hello hello = { .process = "cachefuse",
		.version = 2,
		.pid = 7,
		.has_nonce = true,
		.has_proof = true,
		.identity_len = 3,
		.identity = "t:x" };
	static const uint8_t head[] = { 0x0a, 9, 'c', 'a', 'c', 'h', 'e', 'f', 'u', 's', 'e', 0x10,
		2, 0x18, 7, 0x32, 16 };
	static const uint8_t middle[] = { 0x3a, 3, 't', ':', 'x', 0x42, 32 };
	uint8_t golden[sizeof(head) + HELLO_NONCE_BYTES + sizeof(middle) + HELLO_PROOF_BYTES];
	uint8_t out[HELLO_BYTES_MAX];
	uint8_t *at = golden;
	struct hello back;
	size_t n;

	(void)state;
	memset(hello.nonce, 'n', sizeof(hello.nonce));
	memset(hello.proof, 'p', sizeof(hello.proof));
	at = mempcpy(at, head, sizeof(head));
	at = mempcpy(at, hello.nonce, sizeof(hello.nonce));
	at = mempcpy(at, middle, sizeof(middle));
	at = mempcpy(at, hello.proof, sizeof(hello.proof));
	n = (size_t)(at - golden);
	assert_int_equal(hello_pack(&hello, out), n);
	assert_memory_equal(out, golden, n);
	assert_int_equal(hello_unpack(golden, n, &back), 0);
	assert_true(back.has_nonce && back.has_proof && !back.refused);
	assert_int_equal(back.identity_len, 3);
	assert_memory_equal(back.identity, "t:x", 3);
	assert_memory_equal(back.proof, hello.proof, sizeof(back.proof));
	/* And what a server answers to who is not who it says. */
	hello = (struct hello){ .version = 2, .refused = true };
	n = hello_pack(&hello, out);
	assert_int_equal(hello_unpack(out, n, &back), 0);
	assert_true(back.refused && !back.has_proof && back.identity_len == 0);
}

static void test_longest(void **state)
{
	struct hello hello = { .version = UINT32_MAX, .pid = UINT32_MAX };
	struct hello back;
	uint8_t out[HELLO_BYTES_MAX];

	(void)state;
	memset(hello.process, 'x', sizeof(hello.process) - 1);
	assert_int_equal(hello_unpack(out, hello_pack(&hello, out), &back), 0);
	assert_string_equal(back.process, hello.process);
}

static void test_hostile(void **state)
{
	static const uint8_t control[] = { 0x0a, 3, 'a', '\n', 'b', 0x10, 1 };
	static const uint8_t garbage[] = { 0xff, 0xff, 0xff, 0xff, 0xff, 0xff };
	struct hello back;

	(void)state;
	assert_int_equal(hello_unpack(control, sizeof(control), &back), 0);
	assert_string_equal(back.process, "a?b");
	assert_int_equal(hello_unpack(garbage, sizeof(garbage), &back), -EBADMSG);
	assert_int_equal(hello_unpack("", 0, &back), 0); /* all fields are optional */
	assert_int_equal(back.version, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_round_trip),
		cmocka_unit_test(test_golden),
		cmocka_unit_test(test_longest),
		cmocka_unit_test(test_hostile),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
