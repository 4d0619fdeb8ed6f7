/* Who may ask a worker for what: every operation, every principal, of a volume that is its token's, of one of which a part is,
 * and of another. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <string.h>

#include "cacheworker/admit.h"
#include "tests/unit/net/principals.h"

enum whose {
	OWN,
	OWN_PART,
	OTHERS,
};

static struct err asked;

static int ask(const struct peer_identity *peer, uint32_t op, enum whose whose)
{
	const struct frame frame = { .op = (uint8_t)op,
		.volume = volume_number((uint8_t)(1 + whose)) };

	asked = ERR_INIT;
	return admit_check(peer, &frame, &asked);
}

static int wanted(enum principal principal, uint32_t op, enum whose whose)
{
	switch (rights_of(principal, RIGHTS_WORKER, op)) {
	case RIGHT_ALL:
		return 0;
	case RIGHT_OWN:
		return whose == OTHERS ? -ENXIO : 0;
	case RIGHT_WHOLE:
		return whose == OWN ? 0 : whose == OTHERS ? -ENXIO : -EOPNOTSUPP;
	case RIGHT_CONFIGURED: /* of the admin interface */
	case RIGHT_NONE:
		break;
	}
	/* Asked by every mount on a worker's host, which then does without. */
	return principal == PRINCIPAL_TOKEN && op == FRAME_MAP ? -EOPNOTSUPP : -ENXIO;
}

static void test_every_cell(void **state)
{
	struct err refusal = ERR_INIT;

	(void)state;
	(void)peer_sees_nothing(&refusal);
	for (enum principal p = 0; p < PRINCIPALS; p++) {
		struct peer_identity peer = peer_of(p);

		for (uint32_t op = 0; op <= UINT8_MAX; op++)
			for (enum whose whose = OWN; whose <= OTHERS; whose++) {
				int r = ask(&peer, op, whose);

				if (r != wanted(p, op, whose))
					fail_msg("principal %d, operation %u, %d: %d", (int)p, op,
						(int)whose, r);
				if (r == -ENXIO)
					assert_string_equal(asked.text, refusal.text);
			}
	}
}

/* The few that matter most, by hand. */
static void test_tokens(void **state)
{
	struct peer_identity token = peer_of(PRINCIPAL_TOKEN);
	struct peer_identity admin = peer_of(PRINCIPAL_ADMIN);

	(void)state;
	assert_int_equal(ask(&token, FRAME_FETCH, OWN), 0);
	assert_int_equal(ask(&token, FRAME_FETCH, OWN_PART), 0);
	assert_int_equal(ask(&token, FRAME_FETCH, OTHERS), -ENXIO);
	assert_int_equal(ask(&token, FRAME_FILE, OWN), 0);
	assert_int_equal(ask(&token, FRAME_FILE, OWN_PART), -EOPNOTSUPP);
	assert_int_equal(ask(&token, FRAME_SEAL, OWN_PART), -EOPNOTSUPP);
	assert_int_equal(ask(&token, FRAME_MAP, OWN), -EOPNOTSUPP);
	assert_int_equal(ask(&token, FRAME_SEEK, OWN), -ENXIO);
	assert_int_equal(ask(&admin, FRAME_FETCH, OWN), -ENXIO);
	token.claims.expires_s = 1;
	assert_int_equal(ask(&token, FRAME_FETCH, OWN), -ENXIO);
	assert_int_equal(ask(&token, FRAME_HELD, OWN), -ENXIO);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_every_cell),
		cmocka_unit_test(test_tokens),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
