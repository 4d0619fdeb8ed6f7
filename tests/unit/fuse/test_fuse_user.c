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
		mnt.why_not = become_nobody();
	mnt.engine = &engine_fuse;
	mnt.magic = 0x65735546;
	mnt.error = ESTALE;
	mnt.user = true;
	mnt.kept = true;
	return cmocka_run_group_tests(tests, mnt_setup_group, mnt_teardown_group);
}
