/*
 * The fuse engine as root: real mounts. Needs CAP_SYS_ADMIN and /dev/fuse; skipped without, and
 * says so.
 */
#include "tests/unit/fuse/mount_fuse_tests.h"

int main(void)
{
	const struct CMUnitTest tests[] = {
		MOUNT_FUSE_TESTS,
	};

	if (!kernel_may_mount())
		why_not = "skipped: needs CAP_SYS_ADMIN";
	fixture_engine = &engine_fuse;
	fixture_magic = 0x65735546;
	fixture_error = ESTALE;
	return cmocka_run_group_tests(tests, setup_group, teardown_group);
}
