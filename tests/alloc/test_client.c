/* A client that opens a source and reads, with every allocation of its own failing once. */
#include "tests/unit/client/fixture.h"
#include "tests/alloc/alloc_fail.h"

static int open_volume(struct fix *f)
{
	const struct client_config config = {
		.master = f->master_address, .budget = &f->budget, .seen_dir = f->dir
	};
	struct buf notice = BUF_INIT(256);
	struct err e = ERR_INIT;
	int r = client_new(&config, &f->client, &e);

	if (r == 0)
		r = client_open_source(f->client, &f->source, false, &f->volume, &notice, &e);
	assert_true(r == 0 || e.text[0]);
	buf_release(&notice);
	return r;
}

static int read_range(struct fix *f, const char *key, uint32_t length)
{
	struct fix_read *r = fix_read_start(f, fix_object(f, key)->offset, length);
	int status;

	pthread_mutex_lock(&r->lock);
	while (!r->done)
		pthread_cond_wait(&r->ended, &r->lock);
	status = r->status;
	pthread_mutex_unlock(&r->lock);
	fix_read_end(f, r, status); /* compares what succeeded */
	return status;
}

static int read_some(struct fix *f)
{
	int r = read_range(f, "b/large", 1u << 20);

	if (r == 0)
		r = read_range(f, "a/small-07", 128 * KiB);
	if (r == 0) {
		r = fix_read_local(f, fix_object(f, "b/large")->offset, 64 * KiB);
		r = r == -EAGAIN ? 0 : r; /* not known to be here: allowed, and asked again */
	}
	return r;
}

static int open_and_read(void *arg)
{
	struct fix *f = arg;
	int r;

	f->client = NULL;
	f->volume = NULL;
	r = open_volume(f);
	if (r == 0) {
		r = read_some(f);
		if (r < 0 && !alloc_fail_end())
			fail_msg("a read failed by itself: %d", r);
		if (r < 0)
			assert_int_equal(read_some(f), 0); /* the next one is right */
	}
	if (f->volume)
		client_volume_close(f->volume);
	client_free(f->client);
	f->client = NULL;
	f->volume = NULL;
	assert_int_equal(f->budget.used, 0);
	return r;
}

static void spare(void *arg)
{
	(void)arg;
	alloc_fail_spare();
}

static int setup(void **state)
{
	struct fix *f = fix_new(NULL);

	loop_call(f->loop, spare, NULL); /* master and worker */
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct fix *f = *state;

	assert_int_equal(open_volume(f), 0); /* which fix_free() closes */
	fix_free(f);
	return 0;
}

static void test_descriptors(void **state)
{
	struct fix *f = *state;

	f->local = true;
	assert_true(alloc_sweep(open_and_read, f, 1) > 20);
}

static void test_bytes(void **state)
{
	struct fix *f = *state;

	f->local = false;
	assert_true(alloc_sweep(open_and_read, f, 1) > 20);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_descriptors, setup, teardown),
		cmocka_unit_test_setup_teardown(test_bytes, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
