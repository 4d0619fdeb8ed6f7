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
		mnt.why_not = "skipped: needs CAP_SYS_ADMIN";
	mnt.engine = &engine_fuse;
	mnt.magic = 0x65735546;
	mnt.error = ESTALE;
	return cmocka_run_group_tests(tests, mnt_setup_group, mnt_teardown_group);
}
