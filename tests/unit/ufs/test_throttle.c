/* Bounds on bytes and requests a second: over an origin that only takes note. */
#include "ufs/ufs_internal.h"
#include "base/clock.h"
#include "tests/clock/test_clock.h"

#include <pthread.h>
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define GETS 600u

/* What came to the lower origin, in order; it never answers by itself. */
struct noting {
	struct ufs base;
	pthread_mutex_t lock;
	pthread_cond_t news;
	struct ufs_get *gets[GETS];
	unsigned int n;
	unsigned int lists;
	unsigned int promoted, cancelled;
};

static struct noting *noting_of(struct ufs *ufs)
{
	return container_of(ufs, struct noting, base);
}

static int note_get(struct ufs *ufs, struct ufs_get *get)
{
	struct noting *n = noting_of(ufs);

	pthread_mutex_lock(&n->lock);
	n->gets[n->n++] = get;
	pthread_cond_signal(&n->news);
	pthread_mutex_unlock(&n->lock);
	return 0;
}

static void note_promote(struct ufs *ufs, struct ufs_get *get, enum ufs_class class)
{
	(void)get;
	(void)class;
	noting_of(ufs)->promoted++;
}

static void note_cancel(struct ufs *ufs, struct ufs_get *get)
{
	(void)get;
	noting_of(ufs)->cancelled++;
}

static int note_list(struct ufs *ufs, const struct ufs_page_request *request, struct ufs_page *page,
	struct err *e)
{
	(void)request;
	(void)page;
	(void)e;
	pthread_mutex_lock(&noting_of(ufs)->lock);
	noting_of(ufs)->lists++;
	pthread_cond_signal(&noting_of(ufs)->news);
	pthread_mutex_unlock(&noting_of(ufs)->lock);
	return 0;
}

static uint64_t note_range_bytes(struct ufs *ufs)
{
	(void)ufs;
	return 1u << 20;
}

static void note_free(struct ufs *ufs)
{
	ufs_base_release(ufs);
}

static const struct ufs_ops noting_ops = { .name = "noting",
	.get = note_get,
	.range_bytes = note_range_bytes,
	.promote = note_promote,
	.cancel = note_cancel,
	.list_page = note_list,
	.free = note_free };

static struct noting lower;
static struct ufs *throttle;

static void begin(uint64_t bytes_per_s, uint64_t requests_per_s)
{
	struct ufs_limits limits = UFS_LIMITS_DEFAULT;

	limits.bytes_per_s = bytes_per_s;
	limits.requests_per_s = requests_per_s;
	memset(&lower, 0, sizeof(lower));
	pthread_mutex_init(&lower.lock, NULL);
	pthread_cond_init(&lower.news, NULL);
	assert_int_equal(ufs_base_init(&lower.base, &noting_ops, NULL, &limits), 0);
	assert_int_equal(ufs_throttle_new(&lower.base, &throttle), 0);
}

static void wait_for(unsigned int n)
{
	pthread_mutex_lock(&lower.lock);
	while (lower.n < n)
		pthread_cond_wait(&lower.news, &lower.lock);
	pthread_mutex_unlock(&lower.lock);
}

static unsigned int came(void)
{
	unsigned int n;

	pthread_mutex_lock(&lower.lock);
	n = lower.n;
	pthread_mutex_unlock(&lower.lock);
	return n;
}

struct one {
	struct ufs_get get;
	_Atomic int ended; /* its status, 1 before */
};

static void on_done(struct ufs_get *get, int status, const struct err *e)
{
	(void)e;
	atomic_store(&container_of(get, struct one, get)->ended, status);
}

static void ask(struct one *one, enum ufs_class class, uint64_t length)
{
	*one = (struct one){ .get = { .key = "k",
				     .key_len = 1,
				     .size = length,
				     .length = length,
				     .class = class,
				     .on_done = on_done },
		.ended = 1 };
	assert_int_equal(ufs_get(throttle, &one->get), 0);
}

static void unbounded(void **state)
{
	struct one ones[50];

	(void)state;
	begin(0, 0);
	for (size_t i = 0; i < ARRAY_SIZE(ones); i++)
		ask(&ones[i], UFS_PREFETCH, 1 << 20);
	assert_int_equal(came(), ARRAY_SIZE(ones));
	assert_int_equal(counter_get(&lower.base.counters->throttled), 0);
	ufs_free(throttle);
}

/* Never faster than that; how much slower depends on the machine. */
static void requests(void **state)
{
	static struct one ones[GETS];
	uint64_t began = clock_mono_ns();

	(void)state;
	begin(0, 1000);
	for (size_t i = 0; i < GETS; i++)
		ask(&ones[i], UFS_DEMAND, 1);
	wait_for(GETS);
	assert_true(clock_mono_ns() - began >= (GETS - 250) * CLOCK_SECOND / 1000);
	ufs_free(throttle);
}

static void bytes(void **state)
{
	struct one ones[8];
	uint64_t began = clock_mono_ns();

	(void)state;
	begin(10 << 20, 0);
	for (size_t i = 0; i < ARRAY_SIZE(ones); i++) /* the last one may begin once 7 are paid */
		ask(&ones[i], UFS_FILL, 1 << 20);
	wait_for(ARRAY_SIZE(ones));
	assert_true(clock_mono_ns() - began >= (70 - 25) * CLOCK_SECOND / 100);
	ufs_free(throttle);
}

/* One byte a second: after the first nothing goes until the bound does. */
static void order(void **state)
{
	struct one first, prefetch, fill, demand, raised;

	(void)state;
	begin(1, 0);
	ask(&first, UFS_PREFETCH, 1000);
	wait_for(1);
	ask(&prefetch, UFS_PREFETCH, 1);
	ask(&raised, UFS_PREFETCH, 1);
	ask(&fill, UFS_FILL, 1);
	ask(&demand, UFS_DEMAND, 1);
	ufs_promote(throttle, &raised.get, UFS_DEMAND);
	ufs_promote(throttle, &first.get, UFS_DEMAND);
	assert_int_equal(lower.promoted, 1); /* that one is with the lower */
	assert_int_equal(came(), 1);
	assert_int_equal(counter_get(&lower.base.counters->throttled), 4);
	assert_int_equal(ufs_set_rates(throttle, 0, 0), 0);
	wait_for(5);
	assert_ptr_equal(lower.gets[1], &demand.get);
	assert_ptr_equal(lower.gets[2], &raised.get);
	assert_ptr_equal(lower.gets[3], &fill.get);
	assert_ptr_equal(lower.gets[4], &prefetch.get);
	assert_int_equal(raised.get.class, UFS_DEMAND);
	ufs_free(throttle);
}

/* Who waits at one rate waits no longer than another one asks for. */
static void other_rates(void **state)
{
	struct one first, second, third;

	(void)state;
	begin(1, 0);
	ask(&first, UFS_DEMAND, 1000);
	ask(&second, UFS_DEMAND, 10 << 20);
	test_advance(20 * CLOCK_MS); /* a timer for 1,000 s is set */
	assert_int_equal(ufs_set_rates(throttle, 1 << 30, 0), 0);
	wait_for(2);
	assert_int_equal(ufs_set_rates(throttle, 1000, 0), 0); /* 10 MiB are owed, or some of it */
	ask(&third, UFS_DEMAND, 1);
	wait_for(3);
	ufs_free(throttle);
}

static void cancel(void **state)
{
	struct one first, given_up, left;

	(void)state;
	begin(1, 1);
	ask(&first, UFS_DEMAND, 1000);
	wait_for(1);
	ask(&given_up, UFS_DEMAND, 1);
	ask(&left, UFS_DEMAND, 1);
	ufs_cancel(throttle, &given_up.get);
	ufs_cancel(throttle, &given_up.get);
	test_wait(atomic_load(&given_up.ended) != 1);
	assert_int_equal(given_up.ended, -ECANCELED);
	ufs_cancel(throttle, &first.get);
	assert_int_equal(lower.cancelled, 1);
	assert_int_equal(left.ended, 1);
	ufs_free(throttle);
	assert_int_equal(left.ended, -ECANCELED);
	assert_int_equal(came(), 1);
}

/* They count among the requests, and end when nobody waits for them. */
static void lists(void **state)
{
	const struct ufs_page_request request = { 0 };
	uint64_t began = clock_mono_ns();
	struct ufs_page page;

	(void)state;
	begin(0, 20);
	ufs_page_init(&page);
	for (unsigned int i = 0; i < 12; i++)
		assert_int_equal(ufs_list_page(throttle, &request, &page, NULL), 0);
	assert_int_equal(lower.lists, 12);
	assert_true(clock_mono_ns() - began >= (12 - 6) * CLOCK_SECOND / 20);
	ufs_list_cancel(throttle);
	assert_int_equal(ufs_list_page(throttle, &request, &page, NULL), -ECANCELED);
	ufs_page_release(&page);
	ufs_free(throttle);
}

/* Bytes that GETs owe do not hold up a LIST, neither one that finds the queues empty nor one that waits. */
static void lists_owe_no_bytes(void **state)
{
	const struct ufs_page_request request = { 0 };
	struct one first, one;
	struct ufs_page page;

	(void)state;
	begin(1, 5500);
	ask(&first, UFS_DEMAND, 1000000);
	wait_for(1);
	ufs_page_init(&page);
	assert_int_equal(ufs_list_page(throttle, &request, &page, NULL), 0);
	ask(&one, UFS_DEMAND, 1); /* for days */
	assert_int_equal(ufs_list_page(throttle, &request, &page, NULL), 0);
	assert_int_equal(lower.lists, 2);
	assert_int_equal(came(), 1);
	ufs_page_release(&page);
	ufs_free(throttle);
}

struct lister {
	pthread_t thread;
	_Atomic bool given_up;
	int status;
};

static void *list_one(void *arg)
{
	struct lister *l = arg;
	struct ufs_page_request request = { .given_up = &l->given_up };
	struct ufs_page page;

	ufs_page_init(&page);
	l->status = ufs_list_page(throttle, &request, &page, NULL);
	ufs_page_release(&page);
	return NULL;
}

static void begin_lists(struct lister *listers, unsigned int n)
{
	uint64_t before = counter_get(&lower.base.counters->lists_throttled);

	for (unsigned int i = 0; i < n; i++) {
		atomic_store(&listers[i].given_up, false);
		assert_int_equal(
			pthread_create(&listers[i].thread, NULL, list_one, &listers[i]), 0);
	}
	test_wait(counter_get(&lower.base.counters->lists_throttled) >= before + n);
}

/* LISTs wait with GETs, and go at once when the bound does. */
static void lists_wait(void **state)
{
	struct lister listers[20];
	struct one first, one;

	(void)state;
	begin(1, 1);
	assert_int_equal(counter_get(&lower.base.counters->bound_bytes), 1);
	assert_int_equal(counter_get(&lower.base.counters->bound_requests), 1);
	ask(&first, UFS_DEMAND, 1000000);
	wait_for(1);
	ask(&one, UFS_DEMAND, 1); /* for days */
	begin_lists(listers, ARRAY_SIZE(listers));
	assert_int_equal(came(), 1);
	assert_int_equal(ufs_set_rates(throttle, 0, 0), 0);
	for (unsigned int i = 0; i < ARRAY_SIZE(listers); i++) {
		pthread_join(listers[i].thread, NULL);
		assert_int_equal(listers[i].status, 0);
	}
	wait_for(2);
	assert_int_equal(lower.lists, ARRAY_SIZE(listers));
	assert_int_equal(counter_get(&lower.base.counters->bound_requests), 0);
	ufs_free(throttle);
}

/* One that nobody waits for any more leaves the queue, and the others go on. */
static void lists_given_up(void **state)
{
	struct lister listers[8];
	struct one first, one;

	(void)state;
	begin(1, 1);
	ask(&first, UFS_DEMAND, 1000000);
	wait_for(1);
	ask(&one, UFS_DEMAND, 1);
	begin_lists(listers, ARRAY_SIZE(listers));
	for (unsigned int i = 0; i < ARRAY_SIZE(listers); i += 2)
		atomic_store(&listers[i].given_up, true);
	for (unsigned int i = 0; i < ARRAY_SIZE(listers); i += 2)
		pthread_join(listers[i].thread, NULL);
	assert_int_equal(ufs_set_rates(throttle, 0, 0), 0);
	for (unsigned int i = 1; i < ARRAY_SIZE(listers); i += 2) {
		pthread_join(listers[i].thread, NULL);
		assert_int_equal(listers[i].status, 0);
	}
	assert_in_range(lower.lists, ARRAY_SIZE(listers) / 2, ARRAY_SIZE(listers));
	wait_for(2);
	ufs_free(throttle);
}

static void *list_many(void *arg)
{
	struct lister *l = arg;
	struct ufs_page_request request = { .given_up = &l->given_up };
	struct ufs_page page;

	ufs_page_init(&page);
	while ((l->status = ufs_list_page(throttle, &request, &page, NULL)) == 0)
		;
	ufs_page_release(&page);
	return NULL;
}

/* Where requests are few, GETs and LISTs take turns. */
static void turns(void **state)
{
	static struct one ones[GETS]; /* twelve seconds of them, if the lister is late */
	struct lister lister = { .given_up = false };
	unsigned int n;

	(void)state;
	begin(0, 1);
	ask(&ones[0], UFS_DEMAND, 1);
	wait_for(1);
	for (unsigned int i = 1; i < ARRAY_SIZE(ones); i++)
		ask(&ones[i], UFS_DEMAND, 1);
	assert_int_equal(pthread_create(&lister.thread, NULL, list_many, &lister), 0);
	test_wait(counter_get(&lower.base.counters->lists_throttled) > 0);
	assert_int_equal(ufs_set_rates(throttle, 0, 50), 0);
	pthread_mutex_lock(&lower.lock);
	while (lower.lists < 10)
		pthread_cond_wait(&lower.news, &lower.lock);
	n = lower.n;
	pthread_mutex_unlock(&lower.lock);
	assert_true(n < ARRAY_SIZE(ones)); /* LISTs did not wait until all GETs had gone */
	atomic_store(&lister.given_up, true);
	pthread_join(lister.thread, NULL);
	assert_int_equal(lister.status, -ECANCELED);
	ufs_free(throttle);
}

/* No request for more than a quarter of a second's bytes: those of readers wait for it. */
static void ranges(void **state)
{
	(void)state;
	begin(0, 0);
	assert_int_equal(ufs_range_bytes(throttle), 1u << 20);
	assert_int_equal(ufs_throttle_set(throttle, 1000, 0), 0);
	assert_int_equal(ufs_range_bytes(throttle), 250);
	assert_int_equal(ufs_throttle_set(throttle, 1u << 30, 0), 0);
	assert_int_equal(ufs_range_bytes(throttle), 1u << 20);
	ufs_free(throttle);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(unbounded),
		cmocka_unit_test(requests),
		cmocka_unit_test(bytes),
		cmocka_unit_test(order),
		cmocka_unit_test(other_rates),
		cmocka_unit_test(cancel),
		cmocka_unit_test(lists),
		cmocka_unit_test(lists_owe_no_bytes),
		cmocka_unit_test(lists_wait),
		cmocka_unit_test(lists_given_up),
		cmocka_unit_test(turns),
		cmocka_unit_test(ranges),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
