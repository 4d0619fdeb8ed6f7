/* Who may ask the master for what: every operation, every principal, of what is its token's and of something else; and who
 * is believed. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <string.h>

#include "master/rights.h"
#include "proto/granary.pb-c.h"
#include "tests/unit/net/principals.h"

static struct err asked;

/* The dataset of a request, and a volume of it: of the token's, or of others. */
struct about {
	uint8_t dataset[TOKEN_DATASET_BYTES];
	struct volume_id volume;
};

static size_t pack(uint32_t op, struct about *about, uint8_t out[256])
{
	const ProtobufCBinaryData dataset = { sizeof(about->dataset), about->dataset };
	const ProtobufCBinaryData volume = { VOLUME_ID_LEN, about->volume.bytes };
	Granary__OpenSource open = GRANARY__OPEN_SOURCE__INIT;
	Granary__GetTable get = GRANARY__GET_TABLE__INIT;
	Granary__Hold hold = GRANARY__HOLD__INIT;

	open.has_dataset = hold.has_dataset = true;
	open.has_volume = get.has_volume = hold.has_volume = true;
	open.dataset = hold.dataset = dataset;
	open.volume = get.volume = hold.volume = volume;
	switch (op) {
	case FRAME_OPEN_SOURCE:
	case FRAME_REFRESH:
		return granary__open_source__pack(&open, out);
	case FRAME_GET_TABLE:
		return granary__get_table__pack(&get, out);
	case FRAME_HOLD:
		return granary__hold__pack(&hold, out);
	default:
		return 0;
	}
}

static int ask(const struct peer_identity *peer, uint32_t op, struct about *about)
{
	uint8_t payload[256];
	const struct rpc_request request = {
		.frame = { .op = (uint8_t)op,
			.volume = about->volume,
			.payload = (uint32_t)pack(op, about, payload) },
		.payload = payload,
	};

	asked = ERR_INIT;
	return rights_check(peer, &request, &asked);
}

static struct about about_volume(uint8_t dataset, uint8_t volume)
{
	struct about about = { .volume = volume_number(volume) };

	memset(about.dataset, dataset, sizeof(about.dataset));
	return about;
}

static int wanted(enum principal principal, uint32_t op, bool own)
{
	enum right right = rights_of(principal, RIGHTS_MASTER, op);

	/* Which dataset they concern is not in the frame. */
	if (right == RIGHT_ALL || (right == RIGHT_OWN && (own || op == FRAME_ADMIN)))
		return 0;
	return -ENXIO;
}

static void test_every_cell(void **state)
{
	struct about of_token[] = { about_volume(7, 1), about_volume(7, 2) };
	struct about other = about_volume(8, 3);
	struct err refusal = ERR_INIT;

	(void)state;
	(void)peer_sees_nothing(&refusal);
	for (enum principal p = 0; p < PRINCIPALS; p++) {
		struct peer_identity peer = peer_of(p);

		for (uint32_t op = 0; op <= UINT8_MAX; op++) {
			int r = ask(&peer, op, &other);

			if (r != wanted(p, op, false))
				fail_msg("principal %d, operation %u: %d", (int)p, op, r);
			if (r == -ENXIO)
				assert_string_equal(asked.text, refusal.text);
			for (size_t i = 0; i < ARRAY_SIZE(of_token); i++)
				if (ask(&peer, op, &of_token[i]) != wanted(p, op, true))
					fail_msg("principal %d, operation %u, its own", (int)p, op);
		}
	}
}

/* The dataset alone is not enough, nor the volume. */
static void test_both_are_its_own(void **state)
{
	struct peer_identity peer = peer_of(PRINCIPAL_TOKEN);
	struct about wrong[] = { about_volume(7, 3), about_volume(8, 1) };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
		assert_int_equal(ask(&peer, FRAME_OPEN_SOURCE, &wrong[i]), -ENXIO);
		assert_int_equal(ask(&peer, FRAME_REFRESH, &wrong[i]), -ENXIO);
		assert_int_equal(ask(&peer, FRAME_HOLD, &wrong[i]), -ENXIO);
	}
	peer.claims.expires_s = 1;
	wrong[0] = about_volume(7, 1);
	assert_int_equal(ask(&peer, FRAME_OPEN_SOURCE, &wrong[0]), -ENXIO);
	assert_int_equal(ask(&peer, FRAME_GET_SLOTS, &wrong[0]), -ENXIO);
}

static void test_join(void **state)
{
	struct peer_identity peer = peer_of(PRINCIPAL_OTHER);
	struct about about = about_volume(7, 1);

	(void)state;
	assert_int_equal(ask(&peer, FRAME_JOIN, &about), -ENXIO);
	peer.uid = 0;
	assert_int_equal(ask(&peer, FRAME_JOIN, &about), 0);
}

/* What a token has seen, or somebody of a socket's group, begins no lineage. */
static void test_contradict(void **state)
{
	static const bool believed[PRINCIPALS] = {
		[PRINCIPAL_CLUSTER] = true, [PRINCIPAL_LOCAL] = true
	};

	(void)state;
	for (enum principal p = 0; p < PRINCIPALS; p++) {
		const struct peer_identity peer = peer_of(p);

		assert_int_equal(rights_contradict(&peer), believed[p]);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_every_cell),
		cmocka_unit_test(test_both_are_its_own),
		cmocka_unit_test(test_join),
		cmocka_unit_test(test_contradict),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
