/* When a mount changes its devices. The mounts themselves: test_native. */
#include "fuse/seal.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#define N 16u

struct view {
	struct seal_view view;
	uint8_t shown[N / 8];
	struct client_seal then[N];
	struct client_seal now[N];
};

/* The first `sealed` extents are, the first `shown` of them are devices; the last switch was long
 * ago. */
static struct seal_view *view(struct view *v, uint32_t sealed, uint32_t shown)
{
	memset(v, 0, sizeof(*v));
	for (uint32_t i = 0; i < N; i++) {
		v->then[i].epoch = v->now[i].epoch = 7;
		v->now[i].status.state = i < sealed ? SEAL_SEALED : SEAL_INCOMPLETE;
		v->now[i].status.missing = i < sealed ? 0 : 4096;
		if (i < shown) {
			v->then[i].status.state = SEAL_SEALED;
			v->shown[i / 8] |= (uint8_t)(1u << (i % 8));
		}
	}
	v->view = (struct seal_view){
		.n = N,
		.shown = v->shown,
		.then = v->then,
		.now = v->now,
		.since_ns = SEAL_PAUSE,
		.pause_ns = SEAL_PAUSE,
	};
	return &v->view;
}

static void grows(void **state)
{
	struct view v;

	(void)state;
	assert_int_equal(seal_choose(view(&v, 0, 0)), SEAL_STAY);
	assert_int_equal(seal_choose(view(&v, 1, 0)), SEAL_STAY); /* of sixteen: not yet */
	assert_int_equal(seal_choose(view(&v, 2, 0)), SEAL_GROW);
	assert_int_equal(seal_choose(view(&v, N, 0)), SEAL_GROW);
	assert_int_equal(seal_choose(view(&v, N, N)), SEAL_STAY);
	assert_int_equal(seal_choose(view(&v, N, N - 1)), SEAL_GROW); /* the last one */
	assert_int_equal(seal_choose(view(&v, 9, 8)), SEAL_STAY);
	v.view.since_ns = 10 * SEAL_PAUSE; /* and so for long */
	assert_int_equal(seal_choose(&v.view), SEAL_GROW);
}

static void waits(void **state)
{
	struct view v;

	(void)state;
	view(&v, N, 0);
	v.view.since_ns = SEAL_PAUSE - 1;
	assert_int_equal(seal_choose(&v.view), SEAL_STAY);
	view(&v, N, 0);
	v.view.old = SEAL_OLD_MAX - 1;
	assert_int_equal(seal_choose(&v.view), SEAL_GROW);
	v.view.old = SEAL_OLD_MAX;
	assert_int_equal(seal_choose(&v.view), SEAL_STAY);
	view(&v, 1, 0); /* the smallest volume */
	v.view.n = 1;
	assert_int_equal(seal_choose(&v.view), SEAL_GROW);
}

static void drops(void **state)
{
	struct view v;

	(void)state;
	view(&v, N, N);
	v.now[N - 1].status.findings =
		1; /* sealed again since, but the kernel may have it cached */
	assert_int_equal(seal_choose(&v.view), SEAL_DROP);
	v.view.since_ns = 0;
	v.view.old = 1000;
	assert_int_equal(seal_choose(&v.view), SEAL_DROP);
	view(&v, N, 3);
	v.now[2].status.state = SEAL_INCOMPLETE;
	v.now[2].status.missing = 1;
	assert_int_equal(seal_choose(&v.view), SEAL_DROP);
	view(&v, N, 3);
	v.now[3].status.findings = 1; /* not shown: of no interest */
	assert_int_equal(seal_choose(&v.view), SEAL_GROW);
	view(&v, N, N);
	for (uint32_t i = 0; i < N; i++) { /* the worker was restarted, and verifies anew */
		v.now[i].epoch = 8;
		v.now[i].status.state = SEAL_VERIFYING;
	}
	assert_int_equal(seal_choose(&v.view), SEAL_STAY);
}

static void marks(void **state)
{
	struct view v;
	uint64_t mark;

	(void)state;
	view(&v, N, 0);
	assert_int_equal(seal_mark(N, v.shown, v.now), 0);
	view(&v, N, 5);
	mark = seal_mark(N, v.shown, v.now);
	assert_int_not_equal(mark, 0);
	v.now[5].status.findings = 1;
	assert_int_equal(seal_mark(N, v.shown, v.now), mark);
	v.now[4].status.findings = 1;
	assert_int_not_equal(seal_mark(N, v.shown, v.now), mark);
	v.now[4].status.findings = 0;
	v.now[0].epoch++;
	assert_int_not_equal(seal_mark(N, v.shown, v.now), mark);
	v.now[0].epoch--;
	v.shown[0] |= 1u << 5;
	v.now[5].status.findings = 0;
	assert_int_not_equal(seal_mark(N, v.shown, v.now), mark);
}

/* ---- a new mount ----------------------------------------------------------------------------- */

static uint32_t sealed_of_source; /* the first so many */
static int poll_fails;
static int take_fails_at;

static int poll_source(
	void *arg, uint32_t n, const uint8_t *held, struct client_seal *ret, struct err *e)
{
	(void)arg;
	(void)held;
	if (poll_fails)
		return err_set(e, poll_fails, "nobody is there");
	memset(ret, 0, n * sizeof(*ret));
	for (uint32_t i = 0; i < n && i < sealed_of_source; i++)
		ret[i].status.state = SEAL_SEALED;
	return 0;
}

static int take_source(
	void *arg, uint32_t extent, struct client_seal *ret, int *ret_fd, struct err *e)
{
	(void)arg;
	assert_true(extent < sealed_of_source);
	if ((int)extent == take_fails_at)
		return err_set(e, -EAGAIN, "not any more");
	*ret = (struct client_seal){ .epoch = 1, .status.state = SEAL_SEALED };
	*ret_fd = dup(2);
	return 0;
}

static int open_descriptors(void)
{
	int n = 0;

	for (int fd = 0; fd < 1024; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

static void new_mount(void **state)
{
	const struct seal_config config = {
		.source = { .poll = poll_source, .take = take_source },
		.extents = N,
		.pause_ns = SEAL_PAUSE,
	};
	struct mounted_devices devices;
	struct seal *seal = seal_new(&config);
	int before = open_descriptors();

	(void)state;
	assert_non_null(seal);
	poll_fails = -ENODEV;
	seal_devices(seal, &devices);
	assert_int_equal(devices.n, 0);
	assert_int_equal(devices.local[0], -1);
	poll_fails = 0;
	sealed_of_source = 9;
	take_fails_at = 4;
	seal_devices(seal, &devices);
	assert_int_equal(devices.n, 8);
	assert_int_not_equal(devices.mark, 0);
	assert_true(devices.local[0] >= 0);
	assert_int_equal(devices.local[4], -1);
	assert_int_equal(devices.local[9], -1);
	assert_int_equal(devices.local[N], -1); /* the device behind the extents never is */
	assert_int_equal(open_descriptors(), before + 8);
	seal_devices_release(seal);
	assert_int_equal(open_descriptors(), before);
	seal_free(seal);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(grows),
		cmocka_unit_test(waits),
		cmocka_unit_test(drops),
		cmocka_unit_test(marks),
		cmocka_unit_test(new_mount),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
