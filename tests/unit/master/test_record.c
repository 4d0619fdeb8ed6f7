/* Records of the master: what is written comes back, what is older has its defaults. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "master/record.h"

static struct record_source sample(void)
{
	return (struct record_source){
		.volume = { { 1, 2, 3 } },
		.config = { .scheme = UFS_S3,
			.bucket = (char *)(uintptr_t) "b",
			.prefix = (char *)(uintptr_t) "p/" },
		.policy = { .quota = 7ull << 40,
			.priority = -3,
			.pin = true,
			.evict = TIER_EVICT_LRU },
		.text = (char *)(uintptr_t) "s3 b p",
	};
}

static void policy_comes_back(void **state)
{
	struct record_source record = sample();
	struct record_source back;
	struct buf text = BUF_INIT(4096);

	(void)state;
	assert_int_equal(record_source_encode(&record, &text), 0);
	assert_int_equal(record_source_decode(text.data, text.len, &back), 0);
	assert_true(back.policy.quota == 7ull << 40);
	assert_int_equal(back.policy.priority, -3);
	assert_true(back.policy.pin);
	assert_int_equal(back.policy.evict, TIER_EVICT_LRU);
	record_source_release(&back);
	buf_release(&text);
}

static int decode(const char *policy, struct record_source *ret)
{
	struct buf text = BUF_INIT(4096);
	int r = buf_printf(&text,
		"{\"format\":1,\"volume\":\"00112233445566778899aabbccddeeff\",\"scheme\":1,"
		"\"text\":\"t\",\"bucket\":\"b\",\"prefix\":\"\"%s}",
		policy);

	assert_int_equal(r, 0);
	r = record_source_decode(text.data, text.len, ret);
	buf_release(&text);
	return r;
}

static void older_record(void **state)
{
	struct record_source back;

	(void)state;
	assert_int_equal(decode("", &back), 0);
	assert_true(back.policy.quota == 0 && back.policy.priority == 0);
	assert_true(!back.policy.pin && back.policy.evict == TIER_EVICT_NEVER);
	record_source_release(&back);
}

static void impossible_policies(void **state)
{
	struct record_source back;

	(void)state;
	assert_int_equal(decode(",\"quota\":-1", &back), -EBADMSG);
	assert_int_equal(decode(",\"priority\":3000000000", &back), -EBADMSG);
	assert_true(decode(",\"evict\":\"sometimes\"", &back) < 0);
}

static void parts_of_a_policy(void **state)
{
	struct tier_policy policy = { .quota = 5, .pin = true };
	struct policy_change change = { .to = { .quota = 9, .priority = 4 },
		.parts = POLICY_PRIORITY };

	(void)state;
	assert_true(policy_apply(&policy, &change));
	assert_int_equal(policy.quota, 5);
	assert_int_equal(policy.priority, 4);
	assert_true(policy.pin);
	assert_false(policy_apply(&policy, &change));
	change.parts = POLICY_QUOTA | POLICY_PIN;
	assert_true(policy_apply(&policy, &change));
	assert_int_equal(policy.quota, 9);
	assert_false(policy.pin);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(policy_comes_back),
		cmocka_unit_test(older_record),
		cmocka_unit_test(impossible_policies),
		cmocka_unit_test(parts_of_a_policy),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
