/* What the fuse engine does, as root and as an ordinary user; see mount_tests.h. */
#pragma once

#include "tests/unit/fuse/mount_tests.h"
#include <sys/sysmacros.h>

void mnt_opens_without_a_request(void **state);
void mnt_image_removed(void **state);
void mnt_connection_cut(void **state);
void mnt_connection_lost(void **state);
void mnt_odd_readers(void **state);

#define MOUNT_FUSE_TESTS                                                                     \
	MOUNT_TESTS, MOUNT_TEST(mnt_opens_without_a_request), MOUNT_TEST(mnt_image_removed), \
		MOUNT_TEST(mnt_connection_cut), MOUNT_TEST(mnt_connection_lost),             \
		MOUNT_TEST(mnt_odd_readers)
