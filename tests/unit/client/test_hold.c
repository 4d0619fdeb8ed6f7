/* What a mount says of the generation it shows: at once, again, and that it ends; masters that are
 * away, silent, or keep it no more. */
#include "tests/unit/client/fixture.h"
#include "base/cleanup.h"
#include "client/client_internal.h"
#include "tests/clock/test_clock.h"

#define HOLD_DEADLINE (60 * CLOCK_SECOND)

struct world {
	struct fix *f;
	struct generation_id id;
	pthread_mutex_t lock;
	/* Under lock: */
	unsigned int said;
	unsigned int ended;
	uint8_t mount[16];
	bool asked; /* for news */
	bool asked_policy;
	bool direct; /* of the policy in the news */
	uint32_t copies;
	uint32_t follow_s;
	uint64_t since_ms;
	int status;       /* of the answers */
	bool silent;      /* they are kept back */
	struct list kept; /* requests */
};

static struct world world;

static struct net_payload news(void)
{
	Granary__HoldNews m = GRANARY__HOLD_NEWS__INIT;
	Granary__Policy policy = GRANARY__POLICY__INIT;
	struct net_payload payload = NET_PAYLOAD_NONE;
	uint8_t *packed;

	m.has_follow = m.has_lineage = m.has_generation = m.has_shown_ms = m.has_kept = 1;
	m.follow = m.kept = 1;
	m.lineage = 7;
	m.generation = 5;
	m.shown_ms = 1234;
	m.has_now_ms = m.has_newest_ms = 1;
	m.newest_ms = 4321;
	m.now_ms = 5678;
	policy.has_copies = policy.has_direct = 1;
	policy.copies = world.copies;
	policy.direct = world.direct;
	m.policy = world.asked_policy ? &policy : NULL;
	packed = malloc(granary__hold_news__get_packed_size(&m));
	assert_non_null(packed);
	payload.parts[0].len = granary__hold_news__pack(&m, packed);
	payload.parts[0].data = packed;
	payload.n = 1;
	payload.release = free;
	payload.arg = packed;
	return payload;
}

static void answer(struct rpc_request *request, int status)
{
	struct err e = ERR_INIT;

	if (status < 0)
		(void)err_set(&e, status, "not kept");
	if (status < 0)
		rpc_reply_err(request, status, &e);
	else
		rpc_reply(request, 0, NULL,
			world.asked || world.asked_policy ? news() : NET_PAYLOAD_NONE);
}

static void on_hold(struct fix *f, struct rpc_request *request)
{
	struct world *w = &world;
	Granary__Hold *m = granary__hold__unpack(NULL, request->frame.payload, request->payload);
	bool silent;
	int status;

	(void)f;
	assert_non_null(m);
	assert_int_equal(m->mount.len, sizeof(w->mount));
	assert_int_equal(m->lineage, w->id.lineage);
	assert_int_equal(m->generation, w->id.generation);
	assert_memory_equal(m->volume.data, w->id.volume.bytes, VOLUME_ID_LEN);
	pthread_mutex_lock(&w->lock);
	if (w->said++ == 0)
		memcpy(w->mount, m->mount.data, sizeof(w->mount));
	assert_memory_equal(w->mount, m->mount.data, sizeof(w->mount));
	w->ended += m->end != 0;
	w->asked = m->news;
	w->asked_policy = m->policy;
	w->follow_s = m->follow_s;
	w->since_ms = m->since_ms;
	status = w->status;
	silent = w->silent;
	if (silent)
		list_push_back(&w->kept, &request->link);
	pthread_mutex_unlock(&w->lock);
	granary__hold__free_unpacked(m, NULL);
	if (!silent)
		answer(request, status);
}

static struct world *world_new(void)
{
	world = (struct world){ .f = fix_new(NULL), .id = { .lineage = 7, .generation = 3 } };
	volume_id_of_source("s3://bucket/", &world.id.volume);
	pthread_mutex_init(&world.lock, NULL);
	list_init(&world.kept);
	world.f->on_hold = on_hold;
	(void)fix_start_client(world.f, (struct client_config){ 0 });
	return &world;
}

static void stop_master(struct world *w)
{
	rpc_server_free(TAKE(w->f->master));
}

static void start_master(struct world *w)
{
	static const struct rpc_server_ops ops = { .on_request = fix_on_master };
	struct err e = ERR_INIT;

	if (rpc_server_new(w->f->loop, w->f->master_address, &ops, w->f, &w->f->master, &e) < 0)
		fail_msg("%s", e.text);
}

static void world_free(struct world *w)
{
	struct list kept = LIST_INIT(kept);
	struct list *node;

	pthread_mutex_lock(&w->lock);
	list_splice_back(&kept, &w->kept);
	pthread_mutex_unlock(&w->lock);
	while ((node = list_pop_front(&kept)))
		answer(list_entry(node, struct rpc_request, link), 0);
	fix_free(w->f);
	pthread_mutex_destroy(&w->lock);
}

static unsigned int times_said(struct world *w)
{
	unsigned int said;

	pthread_mutex_lock(&w->lock);
	said = w->said;
	pthread_mutex_unlock(&w->lock);
	return said;
}

static unsigned int times_ended(struct world *w)
{
	unsigned int ended;

	pthread_mutex_lock(&w->lock);
	ended = w->ended;
	pthread_mutex_unlock(&w->lock);
	return ended;
}

/* A hold's first and last words wait for a second at most to be answered: the master may hear them later. */
static void await_times(unsigned int (*times)(struct world *w), struct world *w, unsigned int n)
{
	test_wait(times(w) >= n);
	assert_int_equal(times(w), n);
}

static void renew_until_heard(struct world *w, struct client_hold *hold)
{
	unsigned int said = times_said(w);

	while (times_said(w) == said) {
		client_hold_renew(hold);
		test_advance(CLOCK_MS);
	}
}

static void test_said_again_and_ended(void **state)
{
	struct world *w = world_new();
	struct client_hold *hold;

	(void)state;
	hold = client_hold_begin(w->f->client, &w->id);
	assert_non_null(hold);
	await_times(times_said, w, 1);
	for (unsigned int i = 0; i < 3; i++)
		renew_until_heard(w, hold);
	assert_int_equal(times_ended(w), 0);
	client_hold_end(hold);
	await_times(times_ended, w, 1);
	client_hold_end(NULL);
	world_free(w);
}

/* The master is not there at first: no error, and it hears of the mount later. */
static void test_master_away(void **state)
{
	struct world *w = world_new();
	struct client_hold *hold;

	(void)state;
	stop_master(w);
	hold = client_hold_begin(w->f->client, &w->id);
	assert_non_null(hold);
	assert_int_equal(times_said(w), 0);
	start_master(w);
	renew_until_heard(w, hold);
	client_hold_end(hold);
	world_free(w);
}

/* It does not answer: nobody waits for ever, and nothing piles up. */
static void test_master_silent(void **state)
{
	struct world *w = world_new();
	struct client_hold *hold;
	uint64_t begin;

	(void)state;
	w->silent = true;
	begin = clock_mono_ns();
	hold = client_hold_begin(w->f->client, &w->id);
	assert_non_null(hold);
	client_hold_renew(hold);
	client_hold_renew(hold);
	assert_true(times_said(w) <= 2);
	client_hold_end(hold);
	assert_true(clock_mono_ns() - begin < HOLD_DEADLINE);
	world_free(w);
}

/* It keeps the generation no more: said in the log, once; the mount goes on. */
static void test_not_kept(void **state)
{
	struct world *w = world_new();
	struct client_hold *hold;

	(void)state;
	w->status = -ESTALE;
	hold = client_hold_begin(w->f->client, &w->id);
	assert_non_null(hold);
	renew_until_heard(w, hold);
	client_hold_end(hold);
	await_times(times_ended, w, 1);
	world_free(w);
}

/* Who asks for news gets them with the next answer. */
static void test_news(void **state)
{
	struct world *w = world_new();
	struct client_hold_news heard;
	struct client_hold *hold;
	uint64_t deadline = clock_mono_ns() + HOLD_DEADLINE;

	(void)state;
	hold = client_hold_begin(w->f->client, &w->id);
	assert_non_null(hold);
	client_hold_news(hold, &heard);
	assert_int_equal(heard.heard_ns, 0);
	client_hold_follow(hold, 9, 77);
	do {
		assert_true(clock_mono_ns() < deadline);
		renew_until_heard(w, hold);
		client_hold_news(hold, &heard);
	} while (!heard.heard_ns);
	assert_true(heard.follow);
	assert_int_equal(heard.lineage, 7);
	assert_int_equal(heard.generation, 5);
	assert_int_equal(heard.shown_ms, 1234);
	assert_int_equal(heard.newest_ms, 4321);
	assert_int_equal(heard.now_ms, 5678);
	assert_int_equal(heard.since_ms, 77); /* as the master was asked */
	assert_int_equal(w->follow_s, 9);
	assert_int_equal(w->since_ms, 77);
	client_hold_end(hold);
	world_free(w);
}

/* What the policy says of readers is heard with the next answer, for or against. */
static void test_policy(void **state)
{
	struct world *w = world_new();
	struct client_volume *volume = w->f->volume;
	struct client_hold_news heard;
	struct client_hold *hold;

	(void)state;
	w->id.volume = volume->id;
	volume->origin.config.prefix = strdup(""); /* of a source that can be read from here */
	w->direct = true;
	w->copies = 2;
	assert_false(atomic_load(&volume->origin.allowed));
	hold = client_hold_begin(w->f->client, &w->id);
	assert_non_null(hold);
	for (uint64_t deadline = clock_mono_ns() + HOLD_DEADLINE;
		!atomic_load(&volume->origin.allowed);) {
		assert_true(clock_mono_ns() < deadline);
		renew_until_heard(w, hold);
	}
	assert_int_equal(atomic_load(&volume->copies), 2);
	client_hold_news(hold, &heard);
	assert_int_equal(heard.heard_ns, 0); /* were not asked for */
	pthread_mutex_lock(&w->lock);
	w->direct = false;
	w->copies = COPIES_AUTO;
	pthread_mutex_unlock(&w->lock);
	for (uint64_t deadline = clock_mono_ns() + HOLD_DEADLINE;
		atomic_load(&volume->origin.allowed);) {
		assert_true(clock_mono_ns() < deadline);
		renew_until_heard(w, hold);
	}
	assert_int_equal(atomic_load(&volume->copies), COPIES_AUTO);
	client_hold_end(hold);
	world_free(w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_said_again_and_ended),
		cmocka_unit_test(test_master_away),
		cmocka_unit_test(test_master_silent),
		cmocka_unit_test(test_not_kept),
		cmocka_unit_test(test_news),
		cmocka_unit_test(test_policy),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
