/*
 * Listings whose dataset is deleted: those that nobody else waits for end, the others go on, over a real store and a
 * directory as the origin.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <pthread.h>
#include "tests/unit/master/dataset_fixture.h"
#include "master/preload.h"
#include "master/service.h"
#include "master/source_internal.h"
#include "proto/granary.pb-c.h"
#include "tests/clock/test_clock.h"
#include "tests/unit/net/call_result.h"

#define BY_NAME "{'dataset':'x'}"
#define BY_URL  "{'url':'file://@/origin'}"

/* A wait as a dataset's own; its flight stays at its beginning. */
struct gate {
	struct source_wait wait;
	pthread_t thread;
	bool wanted;
	_Atomic bool flies;
	_Atomic bool go_on;
	_Atomic bool done;
	int status;
};

static struct dataset x;
static struct preloads *preloads;
static struct gate gates[2];

/* A mount of the dataset, of which the master's service lists the source. */
struct mount {
	struct loop *loop;
	struct service service;
	struct rpc_server *server;
	struct rpc_client *client;
	struct rpc_call call;
	uint8_t packed[64]; /* the request */
	struct call_result result;
};

static struct mount x_mount;

static bool stay(struct source_wait *wait)
{
	struct gate *gate = container_of(wait, struct gate, wait);

	atomic_store(&gate->flies, true);
	test_wait(atomic_load(&gate->go_on));
	return gate->wanted;
}

static void passed(
	struct source_wait *wait, int status, struct source_answer *answer, const struct err *why)
{
	struct gate *gate = container_of(wait, struct gate, wait);

	(void)answer;
	(void)why;
	gate->status = status;
	atomic_store(&gate->done, true);
}

static void gate_init(struct gate *gate, bool wanted)
{
	*gate = (struct gate){ .wait = { .config = &x.mounts[0].config,
				       .refresh = true,
				       .is_wanted = stay,
				       .of_dataset = true,
				       .on_done = passed },
		.wanted = wanted };
	list_init(&gate->wait.link);
}

static void *fly(void *arg)
{
	source_open(df.sources, &((struct gate *)arg)->wait);
	return NULL;
}

/* A flight that stays, on a thread of its own. */
static void begin(struct gate *gate, bool wanted)
{
	gate_init(gate, wanted);
	assert_int_equal(pthread_create(&gate->thread, NULL, fly, gate), 0);
	test_wait(atomic_load(&gate->flies));
}

static void pass(struct gate *gate)
{
	atomic_store(&gate->go_on, true);
	test_wait(atomic_load(&gate->done));
}

static struct source *source_of_x(void)
{
	struct source *source;

	pthread_mutex_lock(&df.sources->lock);
	source = source_find_locked(df.sources, &x.mounts[0].volume);
	pthread_mutex_unlock(&df.sources->lock);
	assert_non_null(source);
	return source;
}

static uint32_t waiting(void)
{
	struct source *source = source_of_x();
	uint32_t n = 0;

	pthread_mutex_lock(&df.sources->lock);
	list_for_each (node, &source->waiters)
		n++;
	pthread_mutex_unlock(&df.sources->lock);
	return n;
}

static void open_preloads(void)
{
	const struct preloads_config config = {
		.store = df.store, .sources = df.sources, .datasets = df.set, .pool = df.pool
	};

	assert_int_equal(preloads_new(&config, &preloads, &df.e), 0);
}

static void preload_x(const char *text)
{
	json_t *body = df_body(text);
	json_t *answer = NULL;
	bool joined;

	assert_int_equal(preloads_create(preloads, &(struct preload_request){ .body = body },
				 &answer, &joined, &df.e),
		0);
	assert_false(joined);
	json_decref(answer);
	json_decref(body);
}

static void check_preload(const char *state, const char *reason)
{
	json_t *json = NULL;

	assert_int_equal(preloads_json(preloads, 1, &json, &df.e), 0);
	assert_string_equal(json_string_value(json_object_get(json, "state")), state);
	assert_non_null(strstr(json_string_value(json_object_get(json, "reason")), reason));
	json_decref(json);
}

static void mount_x(void)
{
	Granary__OpenSource m = GRANARY__OPEN_SOURCE__INIT;
	uint8_t uuid[DATASET_UUID_BYTES];
	char address[128];

	x_mount = (struct mount){ .loop = loop_new("mount"),
		.service = { .sources = df.sources,
			.datasets = df.set,
			.pool = df.pool,
			.small = df.pool,
			.dirs = df.pool },
		.call = { .frame = { .op = FRAME_OPEN_SOURCE },
			.on_done = call_result_note,
			.arg = &x_mount.result } };
	(void)snprintf(address, sizeof(address), "unix:%s/rpc", fixture_dir);
	assert_int_equal(rpc_server_new(x_mount.loop, address, &service_ops, &x_mount.service,
				 &x_mount.server, &df.e),
		0);
	assert_int_equal(rpc_client_new(x_mount.loop, address, &x_mount.client, &df.e), 0);
	assert_int_equal(hash_unhex(x.uuid, uuid, sizeof(uuid)), 0);
	m.has_dataset = m.has_refresh = m.refresh = 1;
	m.dataset = (ProtobufCBinaryData){ sizeof(uuid), uuid };
	x_mount.call.payload.n = 1;
	x_mount.call.payload.parts[0].data = x_mount.packed;
	x_mount.call.payload.parts[0].len = granary__open_source__pack(&m, x_mount.packed);
	rpc_call(x_mount.client, &x_mount.call);
}

static void unmount(void)
{
	rpc_client_free(x_mount.client);
	rpc_server_free(x_mount.server);
	loop_free(x_mount.loop);
	x_mount = (struct mount){ .loop = NULL };
}

static struct source_view view_of_x(void)
{
	struct source_view view;

	assert_int_equal(source_set_view(df.sources, &x.mounts[0].volume, &view), 0);
	return view;
}

/* A dataset that is not listed yet. */
static int setup(void **state)
{
	if (df_setup(state) < 0)
		return -1;
	df_create_unlisted("{'name':'x'," SOURCE "}", &x);
	open_preloads();
	return 0;
}

static int teardown(void **state)
{
	df_drain();
	unmount();
	preloads_free(preloads);
	dataset_release(&x);
	return df_teardown(state);
}

/* ---------------------------------------------------------------------------------------------- */

/* A preload and a first mount by URL wait for the next flight. */
static void others_wait_for_the_next(void **state)
{
	struct gate mount;

	(void)state;
	begin(&gates[0], true);
	gate_init(&mount, true);
	mount.wait.is_wanted = NULL;
	mount.wait.of_dataset = false;
	mount.wait.refresh = false;
	source_open(df.sources, &mount.wait);
	preload_x(BY_URL);
	test_wait(waiting() == 2);
	assert_int_equal(dataset_delete(df.set, "x", true, &df.e), 0);
	pass(&gates[0]);
	assert_int_equal(pthread_join(gates[0].thread, NULL), 0);
	assert_int_equal(gates[0].status, 0);
	assert_true(atomic_load(&mount.done));
	assert_int_equal(mount.status, 0);
	check_preload("waiting", "");
	assert_int_equal(view_of_x().newest.id.generation, 1); /* one listing served all */
}

/* `gates[1]` and a preload, or the mount (NULL), are in one flight, which stays. */
static void fly_with(const char *preload)
{
	begin(&gates[0], false);
	gate_init(&gates[1], true);
	source_open(df.sources, &gates[1].wait);
	if (preload)
		preload_x(preload);
	else
		mount_x();
	test_wait(waiting() == 2);
	pass(&gates[0]);
	assert_int_equal(gates[0].status, -ECANCELED);
	test_wait(atomic_load(&gates[1].flies));
	assert_int_equal(waiting(), 0);
}

static void land(void)
{
	pass(&gates[1]);
	assert_int_equal(pthread_join(gates[0].thread, NULL), 0);
}

static void others_are_in_the_flight(void **state)
{
	(void)state;
	fly_with(BY_URL);
	assert_int_equal(dataset_delete(df.set, "x", true, &df.e), 0);
	land();
	assert_int_equal(gates[1].status, 0);
	check_preload("waiting", "");
}

static void a_mount_shows_the_source(void **state)
{
	struct source_hold hold = { .volume = x.mounts[0].volume, .generation = 1, .mount = "m" };

	(void)state;
	df_list("x");
	hold.lineage = view_of_x().newest.id.lineage;
	assert_int_equal(source_set_hold(df.sources, &hold, &df.e), 0);
	begin(&gates[0], true);
	assert_int_equal(dataset_delete(df.set, "x", true, &df.e), 0);
	pass(&gates[0]);
	assert_int_equal(pthread_join(gates[0].thread, NULL), 0);
	assert_int_equal(gates[0].status, 0);
}

/* It says nothing of the origin. */
static void nobody_else_waits(void **state)
{
	(void)state;
	df_list("x");
	fixture_put("c", "c");
	begin(&gates[0], true);
	assert_int_equal(dataset_delete(df.set, "x", true, &df.e), 0);
	pass(&gates[0]);
	assert_int_equal(pthread_join(gates[0].thread, NULL), 0);
	assert_int_equal(gates[0].status, -ECANCELED);
	assert_int_equal(view_of_x().newest.id.generation, 1);
	assert_int_equal(view_of_x().failure.code, 0);
	gate_init(&gates[0], true); /* the next listing is not ended */
	atomic_store(&gates[0].go_on, true);
	source_open(df.sources, &gates[0].wait);
	assert_int_equal(gates[0].status, 0);
	assert_int_equal(view_of_x().newest.id.generation, 2);
}

/* Of the dataset: it would load what nobody can mount, and a bucket that lists without end could not be left. */
static void a_preload_of_the_dataset(void **state)
{
	(void)state;
	fly_with(BY_NAME);
	assert_int_equal(dataset_delete(df.set, "x", true, &df.e), 0);
	land();
	assert_int_equal(gates[1].status, -ECANCELED);
	check_preload("failed", "was canceled");
}

/* It would show what nobody can mount. */
static void a_mount_of_the_dataset(void **state)
{
	(void)state;
	fly_with(NULL);
	assert_int_equal(dataset_delete(df.set, "x", true, &df.e), 0);
	land();
	assert_int_equal(gates[1].status, -ECANCELED);
	test_wait(x_mount.result.n > 0);
	assert_int_equal(x_mount.result.status, -ECANCELED);
}

static void a_mount_of_the_dataset_waits(void **state)
{
	(void)state;
	begin(&gates[0], true);
	mount_x();
	test_wait(waiting() == 1);
	assert_int_equal(dataset_delete(df.set, "x", true, &df.e), 0);
	pass(&gates[0]);
	assert_int_equal(gates[0].status, -ECANCELED);
	assert_int_equal(pthread_join(gates[0].thread, NULL), 0);
	test_wait(x_mount.result.n > 0);
}

/* Unless the master ends: the next one goes on with it. */
static void a_preload_of_the_next_master(void **state)
{
	(void)state;
	fly_with(BY_NAME);
	source_set_stop(df.sources);
	land();
	assert_int_equal(gates[1].status, -ECANCELED);
	check_preload("listing", "");
	df_drain();
	preloads_free(preloads);
	df_reopen();
	open_preloads();
	df_drain();
	check_preload("waiting", "");
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		CASE(others_wait_for_the_next),
		CASE(others_are_in_the_flight),
		CASE(a_mount_shows_the_source),
		CASE(nobody_else_waits),
		CASE(a_preload_of_the_dataset),
		CASE(a_mount_of_the_dataset),
		CASE(a_mount_of_the_dataset_waits),
		CASE(a_preload_of_the_next_master),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
