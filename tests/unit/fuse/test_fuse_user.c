/*
 * The fuse engine as an ordinary user, through fusermount3. The process becomes user 65534 in a
 * mount namespace of its own, where /dev/fuse is as udev makes it. Skipped, saying so, where that
 * cannot be had.
 */
#include "tests/unit/fuse/mount_fuse_tests.h"

#include "tests/unit/fuse/nobody.h"

int main(void)
{
	const struct CMUnitTest tests[] = {
		MOUNT_FUSE_TESTS,
	};

	if (geteuid() == 0)
		why_not = become_nobody();
	fixture_engine = &engine_fuse;
	fixture_magic = 0x65735546;
	fixture_error = ESTALE;
	fixture_user = true;
	fixture_kept = true;
	return cmocka_run_group_tests(tests, setup_group, teardown_group);
}
