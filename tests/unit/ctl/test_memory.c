/* The memory of a private cluster: its daemons never have more together, whatever is mounted. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "base/units.h"
#include "ctl/supervisor.h"

static struct mount *add(struct supervisor *s, enum mount_state state, uint64_t memory)
{
	struct mount *mount = calloc(1, sizeof(*mount));

	assert_non_null(mount);
	child_init(&mount->child, "mount");
	assert_int_equal(child_arg(&mount->child, "cachefuse"), 0);
	assert_int_equal(child_arg(&mount->child, "--memory"), 0);
	assert_int_equal(child_arg(&mount->child, "%llu", (unsigned long long)memory), 0);
	mount->state = state;
	list_push_back(&s->mounts, &mount->link);
	return mount;
}

static void drop(struct mount *mount)
{
	list_remove(&mount->link);
	child_release(&mount->child);
	free(mount);
}

static void check_sum(uint64_t memory, unsigned int least_mounts)
{
	struct supervisor_config config = { .memory = memory };
	struct supervisor s = { .config = &config };
	struct err e = ERR_INIT;
	struct mount *first = NULL;
	uint64_t first_bytes = 0;
	uint64_t sum = supervisor_memory_worker(&config) + supervisor_memory_master(&config);
	uint64_t bytes;
	unsigned int n = 0;
	int r;

	list_init(&s.mounts);
	while ((r = supervisor_memory_mount(&s, &bytes, &e)) == 0) {
		struct mount *mount = add(&s, n % 2 ? MOUNT_ACTIVE : MOUNT_WAITING, bytes);

		if (n++ == 0) {
			first = mount;
			first_bytes = bytes;
		}
		sum += bytes;
		assert_true(sum <= memory);
		assert_true(bytes >= 32 * MiB && bytes <= first_bytes);
	}
	assert_int_equal(r, -ENOSPC);
	assert_non_null(strstr(e.text, "unmount one"));
	assert_in_range(n, least_mounts, 1000);
	add(&s, MOUNT_GONE, 1 * GiB); /* counts no more */
	add(&s, MOUNT_FAILED, 1 * GiB);
	ensure(first);
	drop(first);
	assert_int_equal(supervisor_memory_mount(&s, &bytes, &e), 0);
	while (!list_empty(&s.mounts))
		drop(list_entry(s.mounts.next, struct mount, link));
	assert_int_equal(supervisor_memory_mount(&s, &bytes, &e), 0);
	assert_int_equal(bytes, first_bytes);
}

static void the_sum_is_never_more(void **state)
{
	(void)state;
	check_sum(128 * MiB, 1);
	check_sum(192 * MiB, 2);
	check_sum(1 * GiB, 6);
	check_sum(64 * GiB, 16);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_sum_is_never_more),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
