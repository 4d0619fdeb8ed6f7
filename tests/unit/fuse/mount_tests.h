/* What both engines must do alike; see mount_fixture.h. MOUNT_TESTS lists them. */
#pragma once

#include "tests/unit/fuse/mount_fixture.h"
#include <sys/prctl.h>

void mnt_serves(void **state);
void mnt_errors_are_errors(void **state);
void mnt_stalled_readers(void **state);
void mnt_busy(void **state);
void mnt_force(void **state);
void mnt_busy_for_a_moment(void **state);
void mnt_in_use_elsewhere(void **state);
void mnt_lazy(void **state);
void mnt_unmounted_by_hand(void **state);

/*
 * Reads everything again and again, from the daemon each time, until told; status 0 unless a read
 * failed.
 */
pid_t mnt_reader_of_all(uint32_t seed, const _Atomic bool *stop);

void mnt_takeover(void **state);
void mnt_unmounted_while_dead(void **state);
bool mnt_is_mounted(void);
void mnt_killed_before_ready(void **state);

#define MOUNT_TEST(name) cmocka_unit_test_setup_teardown(name, mnt_setup, mnt_teardown)

#define MOUNT_TESTS                                                                                \
	MOUNT_TEST(mnt_serves), MOUNT_TEST(mnt_errors_are_errors),                                 \
		MOUNT_TEST(mnt_stalled_readers), MOUNT_TEST(mnt_busy), MOUNT_TEST(mnt_force),      \
		MOUNT_TEST(mnt_busy_for_a_moment), MOUNT_TEST(mnt_in_use_elsewhere),               \
		MOUNT_TEST(mnt_lazy), MOUNT_TEST(mnt_unmounted_by_hand), MOUNT_TEST(mnt_takeover), \
		MOUNT_TEST(mnt_unmounted_while_dead), MOUNT_TEST(mnt_killed_before_ready)
