/* FRAME_SEAL's messages: what is packed comes back; what a hostile peer sends is refused. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "proto/frame.h"
#include "proto/granary.pb-c.h"
#include "proto/seal.h"

static void test_ask(void **state)
{
	struct seal_ask ask = { .take = true, .end = UINT64_MAX - 1 };
	uint8_t out[SEAL_ASK_BYTES];
	struct seal_ask back;
	size_t n;

	(void)state;
	memset(ask.held, 0xff, sizeof(ask.held));
	n = seal_ask_pack(&ask, SEAL_PAGE, out);
	assert_true(n <= SEAL_ASK_BYTES);
	assert_int_equal(seal_ask_unpack(out, n, SEAL_PAGE, &back), 0);
	assert_true(back.take);
	assert_int_equal(back.end, UINT64_MAX - 1);
	assert_memory_equal(back.held, ask.held, sizeof(ask.held));
	/* More bits than extents. */
	assert_int_equal(seal_ask_unpack(out, n, SEAL_PAGE - 8, &back), -EBADMSG);
	assert_int_equal(seal_ask_unpack(out, n, SEAL_PAGE - 1, &back), -EBADMSG);
	assert_int_equal(seal_ask_unpack(out, n, SEAL_PAGE + 1, &back), -EBADMSG);
	assert_int_equal(seal_ask_unpack(out, n - 1, SEAL_PAGE, &back), -EBADMSG);
	/* Nothing said: the least that it can mean. */
	assert_int_equal(seal_ask_unpack("", 0, 5, &back), 0);
	assert_false(back.take);
	assert_int_equal(back.end, UINT64_MAX);
	assert_int_equal(back.held[0], 0);
}

static void test_states(void **state)
{
	struct seal_status *states = calloc(SEAL_PAGE, sizeof(*states));
	struct seal_status *back = calloc(SEAL_PAGE, sizeof(*back));
	uint64_t epoch = 0;
	uint8_t *packed;
	size_t len;

	(void)state;
	/* Not one like its neighbour, and the longest numbers. */
	for (uint32_t i = 0; i < SEAL_PAGE; i++)
		states[i] = (struct seal_status){ .state = i % SEAL_STATES,
			.why = i % SEAL_WHYS,
			.percent = (uint8_t)(i % 101),
			.findings = UINT32_MAX - i,
			.missing = UINT64_MAX - i };
	packed = seal_states_pack(UINT64_MAX, states, SEAL_PAGE, &len);
	assert_non_null(packed);
	assert_true(len <= SEAL_STATES_BYTES);
	assert_int_equal(seal_states_unpack(packed, len, SEAL_PAGE, &epoch, back), 0);
	assert_true(epoch == UINT64_MAX);
	for (uint32_t i = 0; i < SEAL_PAGE; i++) {
		assert_int_equal(back[i].state, states[i].state);
		assert_int_equal(back[i].why, states[i].why);
		assert_int_equal(back[i].percent, states[i].percent);
		assert_int_equal(back[i].findings, states[i].findings);
		assert_true(back[i].missing == states[i].missing);
	}
	assert_int_equal(seal_states_unpack(packed, len, SEAL_PAGE - 1, &epoch, back), -EBADMSG);
	assert_int_equal(seal_states_unpack(packed, len - 1, SEAL_PAGE, &epoch, back), -EBADMSG);
	free(packed);
	/* Equal ones are one run. */
	memset(states, 0, SEAL_PAGE * sizeof(*states));
	packed = seal_states_pack(7, states, SEAL_PAGE, &len);
	assert_non_null(packed);
	assert_true(len < 32);
	assert_int_equal(seal_states_unpack(packed, len, SEAL_PAGE, &epoch, back), 0);
	assert_int_equal(epoch, 7);
	free(packed);
	free(states);
	free(back);
}

static int unpack_runs(uint64_t *runs, size_t n_runs, uint32_t n)
{
	Granary__SealStates m = GRANARY__SEAL_STATES__INIT;
	struct seal_status back[8];
	uint8_t packed[256];
	uint64_t epoch;
	size_t len;

	m.runs = runs;
	m.n_runs = n_runs;
	assert_true(granary__seal_states__get_packed_size(&m) <= sizeof(packed));
	len = granary__seal_states__pack(&m, packed);
	return seal_states_unpack(packed, len, n, &epoch, back);
}

static void test_hostile_states(void **state)
{
	uint64_t good[] = { 3, SEAL_SEALED, 0, 0, 1, 0, 5, SEAL_ABSENT, 0, 0, 0, 0 };
	const struct {
		size_t at;
		uint64_t value;
	} bad[] = { { 0, 0 }, { 0, 4 }, { 0, UINT64_MAX }, { 1, SEAL_STATES }, { 2, SEAL_WHYS },
		{ 3, 101 }, { 4, UINT64_MAX }, { 6, 6 }, { 6, 4 }, { 7, UINT64_MAX } };

	(void)state;
	assert_int_equal(unpack_runs(good, 12, 8), 0);
	assert_int_equal(unpack_runs(good, 11, 8), -EBADMSG);
	assert_int_equal(unpack_runs(good, 6, 8), -EBADMSG);
	assert_int_equal(unpack_runs(good, 0, 8), -EBADMSG);
	assert_int_equal(unpack_runs(good, 0, 0), 0);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		uint64_t runs[12];

		memcpy(runs, good, sizeof(runs));
		runs[bad[i].at] = bad[i].value;
		assert_int_equal(unpack_runs(runs, 12, 8), -EBADMSG);
	}
}

static void test_frame_limits(void **state)
{
	struct frame frame = { .op = FRAME_SEAL, .length = SEAL_PAGE, .payload = SEAL_ASK_BYTES };
	uint8_t bytes[FRAME_BYTES];
	struct frame back;

	(void)state;
	assert_int_equal(frame_check(&frame), 0);
	frame.length++;
	frame_encode(&frame, bytes);
	assert_int_equal(frame_decode(bytes, &back), -EMSGSIZE);
	frame.length--;
	frame.payload++;
	assert_int_equal(frame_check(&frame), -EMSGSIZE);
	frame.flags = FRAME_REPLY;
	frame.payload = SEAL_STATES_BYTES;
	assert_int_equal(frame_check(&frame), 0);
	frame.payload++;
	frame_encode(&frame, bytes);
	assert_int_equal(frame_decode(bytes, &back), -EMSGSIZE);
}

static void test_names(void **state)
{
	(void)state;
	for (int i = 0; i < SEAL_STATES; i++)
		assert_string_not_equal(seal_state_name((enum seal_state)i), "unknown");
	for (int i = 0; i < SEAL_WHYS; i++)
		assert_string_not_equal(seal_why_text((enum seal_why)i), "unknown");
	assert_string_equal(seal_state_name(SEAL_STATES), "unknown");
	assert_string_equal(seal_why_text((enum seal_why)99), "unknown");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_ask),
		cmocka_unit_test(test_states),
		cmocka_unit_test(test_hostile_states),
		cmocka_unit_test(test_frame_limits),
		cmocka_unit_test(test_names),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
