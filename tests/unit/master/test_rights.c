/* Who may join: a socket's group may not. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>
#include <unistd.h>

#include "master/rights.h"
#include "net/identity.h"

static void test_join(void **state)
{
	struct peer_identity peer = { .kind = PEER_NODE, .uid = geteuid() };
	struct err e = ERR_INIT;

	(void)state;
	assert_int_equal(rights_join(&peer, &e), 0);
	peer.uid = 0;
	assert_int_equal(rights_join(&peer, &e), 0);
	peer.uid = geteuid() + 1;
	assert_int_equal(rights_join(&peer, &e), -EPERM);
	assert_non_null(strstr(e.text, "may not run a worker"));
	peer.uid = (uint32_t)-1; /* not known */
	assert_int_equal(rights_join(&peer, &e), -EPERM);
	peer.kind = PEER_CLUSTER;
	assert_int_equal(rights_join(&peer, &e), 0);
}

/* What a token has seen, or somebody of a socket's group, begins no lineage. */
static void test_contradict(void **state)
{
	struct peer_identity peer = { .kind = PEER_CLUSTER };

	(void)state;
	assert_true(rights_contradict(&peer));
	peer.kind = PEER_TOKEN;
	assert_false(rights_contradict(&peer));
	peer.claims.admin = true;
	assert_false(rights_contradict(&peer));
	peer.kind = PEER_UNKNOWN;
	assert_false(rights_contradict(&peer));
	peer.kind = PEER_NODE;
	assert_true(rights_contradict(&peer)); /* root */
	peer.uid = geteuid();
	assert_true(rights_contradict(&peer));
	peer.uid = geteuid() + 1;
	assert_false(rights_contradict(&peer));
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_join),
		cmocka_unit_test(test_contradict) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
