/* When a mount changes its devices. The mounts themselves: test_native. */
#include "fuse/engine/seal.h"
#include "fuse/engine/engine.h"
#include "fuse/engine/mounted_internal.h"
#include "tests/clock/test_clock.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#define PAUSE (30 * CLOCK_SECOND)
#define N     16u

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
		.since_ns = PAUSE,
		.pause_ns = PAUSE,
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
	v.view.since_ns = 10 * PAUSE; /* and so for long */
	assert_int_equal(seal_choose(&v.view), SEAL_GROW);
}

static void waits(void **state)
{
	struct view v;

	(void)state;
	view(&v, N, 0);
	v.view.since_ns = PAUSE - 1;
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
	for (uint32_t i = 0; i < N; i++) { /* the worker was restarted, and verifies again */
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
static _Atomic uint32_t findings_of_source; /* in each extent */
static _Atomic uint32_t polls;

static int poll_source(
	void *arg, uint32_t n, const uint8_t *held, struct client_seal *ret, struct err *e)
{
	(void)arg;
	(void)held;
	if (poll_fails)
		return err_set(e, poll_fails, "nobody is there");
	memset(ret, 0, n * sizeof(*ret));
	for (uint32_t i = 0; i < n && i < sealed_of_source; i++) {
		ret[i].epoch = 1;
		ret[i].status.state = SEAL_SEALED;
		ret[i].status.findings = findings_of_source;
	}
	atomic_fetch_add(&polls, 1);
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
		.pause_ns = PAUSE,
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

/* Descriptors of half of what may be open at most. */
static void many_extents(void **state)
{
	enum { EXTENTS = 200, MAY_BE_OPEN = 600, TAKEN = (MAY_BE_OPEN - 256) / 2 };
	const struct seal_config config = {
		.source = { .poll = poll_source, .take = take_source },
		.extents = EXTENTS,
		.pause_ns = PAUSE,
	};
	struct mounted_devices devices;
	struct rlimit before;
	struct rlimit less;
	struct seal *seal = seal_new(&config);

	(void)state;
	assert_non_null(seal);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
	less = (struct rlimit){ .rlim_cur = MAY_BE_OPEN, .rlim_max = before.rlim_max };
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &less), 0);
	sealed_of_source = EXTENTS;
	take_fails_at = -1;
	seal_devices(seal, &devices);
	assert_int_equal(devices.n, TAKEN);
	seal_devices_release(seal);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
	seal_free(seal);
}

/* ---- a mount that was taken over ------------------------------------------------------------- */

/* Of an engine that has no second superblock to give: what is not as it was shows as a reason. */
struct taken_over {
	struct engine engine;
	struct mounted mounted;
	struct seal *seal;
	int memory;
};

/* It shows the first eight extents as they were with so many findings each. */
static void take_over(struct taken_over *t, uint32_t findings)
{
	const struct seal_config config = {
		.source = { .poll = poll_source, .take = take_source },
		.extents = N,
		.pause_ns = PAUSE,
	};
	struct client_seal seals[N] = { 0 };
	struct slots_switch *s;
	struct err e = ERR_INIT;

	memset(t, 0, sizeof(*t));
	t->memory = memfd_create("test-seal", MFD_CLOEXEC);
	assert_int_equal(ftruncate(t->memory, SLOTS_HEAD_BYTES + SLOTS_MIN * SLOT_BYTES), 0);
	t->mounted.magic = MOUNTED_MAGIC;
	t->mounted.engine = &t->engine;
	pthread_mutex_init(&t->mounted.supers, NULL);
	assert_int_equal(slots_open(t->memory, &t->mounted.config.slots, &e), 0);
	for (uint32_t i = 0; i < N; i++)
		seals[i] = (struct client_seal){ .epoch = 1,
			.status = { .state = SEAL_SEALED, .findings = findings } };
	s = slots_switch(t->mounted.config.slots);
	s->local[0] = 0xff;
	s->now = (struct slots_super){ .dev = 1, .number = 1, .local = 8 };
	s->now.mark = seal_mark(N, s->local, seals);
	sealed_of_source = N;
	take_fails_at = -1;
	atomic_store(&polls, 0);
	t->seal = seal_new(&config);
	assert_non_null(t->seal);
	assert_int_equal(seal_start(t->seal, &t->mounted, &e), 0);
}

static void let_go(struct taken_over *t)
{
	seal_free(t->seal);
	slots_free(t->mounted.config.slots);
	pthread_mutex_destroy(&t->mounted.supers);
	(void)close(t->memory);
}

/* Each look forgets what the last one said before it says it again. */
static bool is_stuck(struct taken_over *t)
{
	struct seal_report report;

	seal_report(t->seal, &report);
	return strstr(report.why, "damaged or lost") != NULL;
}

static void successors(void **state)
{
	struct taken_over t;

	(void)state;
	findings_of_source = 3;
	take_over(&t, 3);                    /* as its predecessor had it */
	test_wait(atomic_load(&polls) >= 2); /* the first look has ended */
	assert_false(is_stuck(&t));
	findings_of_source = 4; /* one more, while it looks */
	test_wait(is_stuck(&t));
	let_go(&t);
	take_over(&t, 3); /* one more, which came while there was no daemon */
	test_wait(is_stuck(&t));
	test_wait(atomic_load(&polls) >= 10);
	test_wait(is_stuck(&t)); /* until it is mounted again */
	let_go(&t);
	findings_of_source = 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(grows),
		cmocka_unit_test(waits),
		cmocka_unit_test(drops),
		cmocka_unit_test(marks),
		cmocka_unit_test(new_mount),
		cmocka_unit_test(many_extents),
		cmocka_unit_test(successors),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
