/* Ranges: several units by one GET, from a server that stops, breaks off, refuses or changes in the middle. */
#include "tests/unit/cacheworker/world.h"
#include "tests/unit/ufs/server.h"
#include "ufs/ufs_internal.h"

#define FILES  2u
#define UNITS  12u /* of a file */
#define FILE_B (UNITS * MiB)
#define GETS   64u
#define PART   (64u * KiB) /* that the server sends at once */

/* What the server does with its answers. */
static struct {
	struct world *w;
	_Atomic uint32_t n; /* GETs */
	struct {
		uint64_t start, end; /* of the range that was asked for */
	} gets[GETS];
	_Atomic uint64_t
		stop; /* place in the object at which answers stop for now; UINT64_MAX: none does */
	_Atomic uint32_t broken; /* answers, the first ones, that end there with their connection */
	_Atomic bool hangs;      /* those of more than a unit stop there for good */
	_Atomic bool silent;     /* no answer begins */
	_Atomic bool gone;       /* the next answers are 404 */
	bool goes;               /* all answers but the first one are */
} origin;

static struct server server;

static bool answer(struct server *s, int fd, const char *head)
{
	const char *range = strcasestr(head, "\r\nRange: bytes=");
	struct table_row *row = malloc(sizeof(*row));
	unsigned long long start = 0;
	unsigned long long end = 0;
	unsigned int file = 0;
	uint32_t nth;
	bool keep = true;
	char key[32];
	char text[512];
	int n;

	(void)s;
	ensure(row && range && sscanf(head, "GET /bucket/data/file-%u", &file) == 1 &&
		sscanf(range, "\r\nRange: bytes=%llu-%llu", &start, &end) == 2);
	(void)snprintf(key, sizeof(key), "file-%03u", file);
	ensure(table_find_key(origin.w->table, key, (uint32_t)strlen(key), row) == 0);
	nth = origin.n;
	ensure(nth < GETS);
	origin.gets[nth].start = start;
	origin.gets[nth].end = end + 1;
	origin.n++;
	test_wait(!origin.silent);
	if (origin.gone || (origin.goes && nth > 0)) {
		server_error(fd, 404, "NoSuchKey", "");
		free(row);
		return true;
	}
	n = snprintf(text, sizeof(text),
		"HTTP/1.1 206 x\r\nETag: \"%.*s\"\r\nContent-Length: %llu\r\n"
		"Content-Range: bytes %llu-%llu/%llu\r\n\r\n",
		(int)row->tag_len, row->tag, end - start + 1, start, end,
		(unsigned long long)row->size);
	server_put(fd, text, (size_t)n);
	for (uint64_t at = start; at <= end && keep; at += PART) {
		if (at >= origin.stop && nth < origin.broken)
			keep = false;
		else if (at >= origin.stop && origin.hangs && end - start >= UNIT_BYTES)
			break;
		else if (at >= origin.stop && nth == 0)
			test_wait(at < origin.stop);
		if (keep)
			server_put(fd, (char *)origin.w->model + row->offset + at,
				min((uint64_t)PART, end + 1 - at));
	}
	free(row);
	return keep;
}

static void set_way(struct world *w, bool directory)
{
	Granary__Source way = GRANARY__SOURCE__INIT;
	char endpoint[64];
	char bucket[] = "bucket";
	char prefix[160];

	(void)snprintf(endpoint, sizeof(endpoint), "http://127.0.0.1:%u", server.port);
	(void)snprintf(prefix, sizeof(prefix), "%s/data/", directory ? w->dir : "");
	way.has_scheme = way.has_path_style = way.has_anonymous = true;
	way.scheme = directory ? UFS_FILE : UFS_S3;
	way.path_style = way.anonymous = !directory;
	way.endpoint = directory ? NULL : endpoint;
	way.bucket = directory ? NULL : bucket;
	way.prefix = directory ? prefix : prefix + 1;
	source_set_way(&w->worker, &table_info(w->table)->id.volume, &way);
}

/* Reads here bring no neighbours (FRAME_EXACT). A worker that has the table, and whose origin is the server. */
static struct world *begin(void)
{
	struct world *w = world_new_sized(1 * GiB, FILES, FILE_B, 0);

	memset(&origin, 0, sizeof(origin));
	origin.w = w;
	origin.stop = UINT64_MAX;
	(void)world_read_range(w, world_offset_of(w, 1), BLOCK_BYTES, FRAME_EXACT);
	world_wait_written(w);
	assert_int_equal(world_offset_of(w, 0), 0); /* it lies in one chunk */
	server_start(&server, answer, w);
	set_way(w, false);
	return w;
}

static void end(struct world *w)
{
	origin.stop = UINT64_MAX;
	origin.silent = false;
	world_stop_worker(w);
	server_stop(&server);
	world_end(w);
}

static bool has_begun(struct world *w)
{
	struct fills *fills = &w->worker.fills;
	bool begun;

	pthread_mutex_lock(&fills->lock);
	begun = !fills->pumping && list_empty(&fills->ahead) && list_empty(&fills->active);
	pthread_mutex_unlock(&fills->lock);
	return begun;
}

/* What is not there of it is in flight afterwards: a read that came earlier would have a GET of its own. */
static void announce(struct world *w, uint64_t offset, uint32_t length)
{
	struct rpc_call call = world_make_call(w, FRAME_PREFETCH, offset, length, 0);
	struct err e = ERR_INIT;

	assert_int_equal(rpc_call_wait(w->client, &call, &e), 0);
	rpc_call_release(&call);
	test_wait(has_begun(w));
}

static void check_get(uint32_t nth, uint64_t start, uint64_t end)
{
	assert_true(nth < origin.n);
	assert_int_equal(origin.gets[nth].start, start);
	assert_int_equal(origin.gets[nth].end, end);
}

static void read_file(const struct world *w)
{
	for (uint64_t at = 0; at < FILE_B; at += MiB)
		(void)world_read_range(w, at, MiB, FRAME_EXACT);
}

/* Waits for what has not landed. */
struct reading {
	pthread_t thread;
	struct world *w;
	uint64_t offset;
	uint32_t length;
};

static void *read_one(void *arg)
{
	struct reading *r = arg;

	(void)world_read_range(r->w, r->offset, r->length, FRAME_EXACT);
	return NULL;
}

static void start_reading(struct reading *r, struct world *w, uint64_t offset, uint32_t length)
{
	*r = (struct reading){ .w = w, .offset = offset, .length = length };
	assert_int_equal(pthread_create(&r->thread, NULL, read_one, r), 0);
}

static void read_refused(const struct world *w, uint64_t offset)
{
	struct rpc_call call = world_make_call(w, FRAME_FETCH, offset, BLOCK_BYTES, FRAME_EXACT);
	struct err e = ERR_INIT;

	assert_int_equal(rpc_call_wait(w->client, &call, &e), -ESTALE);
	rpc_call_release(&call);
}

static void *refuse_one(void *arg)
{
	const struct reading *r = arg;

	read_refused(r->w, r->offset);
	return NULL;
}

/* ---- a preload of file 0 ---------------------------------------------------------------------- */

#define BURST (4 * MiB)

/* Its bandwidth is ten times what it may ask for at once. */
static void answer_preload(struct world *w, struct rpc_request *request)
{
	const struct generation_id *id = &table_info(w->table)->id;
	char path[] = "file-000";
	char *paths[] = { path };
	Granary__PreloadJob one = GRANARY__PRELOAD_JOB__INIT;
	Granary__PreloadJob *all[] = { &one };
	Granary__PreloadJobs m = GRANARY__PRELOAD_JOBS__INIT;
	struct net_payload payload = NET_PAYLOAD_NONE;
	uint8_t *packed;

	one.has_id = one.has_volume = one.has_lineage = one.has_generation = true;
	one.has_bandwidth = true;
	one.id = 1;
	one.volume = (ProtobufCBinaryData){ VOLUME_ID_LEN, (uint8_t *)(uintptr_t)id->volume.bytes };
	one.lineage = id->lineage;
	one.generation = id->generation;
	one.paths = paths;
	one.n_paths = 1;
	one.bandwidth = 10 * BURST;
	m.jobs = all;
	m.n_jobs = 1;
	packed = malloc(granary__preload_jobs__get_packed_size(&m));
	payload.parts[0].len = granary__preload_jobs__pack(&m, packed);
	payload.parts[0].data = packed;
	payload.n = 1;
	payload.release = free;
	payload.arg = packed;
	rpc_reply(request, 0, NULL, payload);
}

/* ---- an origin that does not stand by what it gave ------------------------------------------- */

struct forgotten {
	struct ufs_get get;
	struct ufs_get *outer;
};

static int forget_room(struct ufs_get *get, uint64_t at, struct ufs_room *ret_room)
{
	const struct forgotten *f = get->arg;

	return f->outer->on_room(f->outer, at, ret_room);
}

static void forget_progress(struct ufs_get *get, uint64_t bytes)
{
	const struct forgotten *f = get->arg;

	f->outer->on_progress(f->outer, bytes);
}

/* An attempt that failed brought nothing, whatever it told before. */
static void forget_done(struct ufs_get *get, int status, const struct err *e)
{
	struct forgotten *f = get->arg;
	struct ufs_get *outer = f->outer;

	outer->got = status < 0 ? 0 : get->got;
	free(f);
	outer->on_done(outer, status, e);
}

static int forget_get(struct ufs *ufs, struct ufs_get *outer)
{
	struct forgotten *f = calloc(1, sizeof(*f));

	*f = (struct forgotten){ .get = *outer, .outer = outer };
	f->get.on_room = outer->on_room ? forget_room : NULL;
	f->get.on_progress = forget_progress;
	f->get.on_done = forget_done;
	f->get.arg = f;
	return ufs_get(ufs->lower, &f->get);
}

static void forget_free(struct ufs *ufs)
{
	ufs_free(ufs->lower);
	ufs_base_release(ufs);
	free(ufs);
}

static int forget_wrap(struct ufs *lower, struct ufs **ret_ufs, struct err *e)
{
	static const struct ufs_ops ops = {
		.name = "forgetful",
		.get = forget_get,
		.free = forget_free,
	};
	struct ufs *ufs = calloc(1, sizeof(*ufs));

	(void)e;
	assert_int_equal(ufs_base_init(ufs, &ops, lower, &lower->limits), 0);
	*ret_ufs = ufs;
	return 0;
}

/* ---- tests ------------------------------------------------------------------------------------ */

/* One GET; each unit is there, and a part of the next, while it stands still. */
static void lands_unit_by_unit(void **state)
{
	struct world *w = begin();

	(void)state;
	origin.stop = 3 * MiB + 4 * PART;
	announce(w, 0, FILE_B);
	(void)world_read_range(w, 0, MiB, FRAME_EXACT);
	(void)world_read_range(w, 2 * MiB, MiB, FRAME_EXACT);
	(void)world_read_range(w, 3 * MiB, 2 * PART, FRAME_EXACT);
	assert_int_equal(origin.n, 1);
	check_get(0, 0, FILE_B);
	origin.stop = UINT64_MAX;
	world_wait_written(w);
	read_file(w);
	assert_int_equal(origin.n, 1);
	assert_int_equal(counter_get(&w->worker.counters.ranges), 1);
	assert_int_equal(counter_get(&w->worker.counters.ranges_cut), 0);
	end(w);
}

/* What came stays; the rest is asked for from its first byte on. */
static void breaks_off(void **state)
{
	struct world *w = begin();

	(void)state;
	origin.stop = 3 * MiB + 4 * PART;
	origin.broken = 1;
	announce(w, 0, FILE_B);
	test_wait(origin.n == 2);
	origin.stop = UINT64_MAX;
	world_wait_written(w);
	read_file(w);
	assert_int_equal(origin.n, 2);
	check_get(0, 0, FILE_B);
	check_get(1, 3 * MiB + 4 * PART, FILE_B);
	assert_int_equal(counter_get(&w->worker.counters.failed_units), 0);
	end(w);
}

/* A reader far behind gets its unit while the first GET stands still, and that ends before the unit. */
static void is_cut_for_a_reader(void **state)
{
	struct world *w = begin();

	(void)state;
	origin.stop = MiB + 4 * PART;
	announce(w, 0, FILE_B);
	(void)world_read_range(w, 0, MiB, FRAME_EXACT); /* it has begun */
	(void)world_read_range(w, 10 * MiB, MiB, FRAME_EXACT);
	assert_int_equal(origin.n, 2);
	check_get(1, 10 * MiB, FILE_B);
	assert_int_equal(counter_get(&w->worker.counters.ranges_cut), 1);
	origin.stop = UINT64_MAX;
	world_wait_written(w);
	read_file(w);
	assert_int_equal(origin.n, 2);
	assert_int_equal(counter_get(&w->worker.counters.failed_units), 0);
	end(w);
}

/* A stream is not: readers of what comes next, and of what is near them. */
static void is_not_cut_for_a_stream(void **state)
{
	struct reading readings[4];
	struct world *w = begin();

	(void)state;
	origin.stop = MiB + 4 * PART;
	announce(w, 0, FILE_B);
	(void)world_read_range(w, 0, MiB, FRAME_EXACT);
	for (uint32_t i = 0; i < ARRAY_SIZE(readings); i++) {
		uint64_t waits = counter_get(&w->worker.counters.waits);

		start_reading(&readings[i], w, (2 + i * 3) * MiB, MiB);
		test_wait(counter_get(&w->worker.counters.waits) > waits);
	}
	origin.stop = UINT64_MAX;
	for (uint32_t i = 0; i < ARRAY_SIZE(readings); i++)
		pthread_join(readings[i].thread, NULL);
	world_wait_written(w);
	read_file(w);
	assert_int_equal(origin.n, 1);
	assert_int_equal(counter_get(&w->worker.counters.ranges_cut), 0);
	end(w);
}

/* Its first GET ends with the last byte that is wanted of it, and does not wait for the next one. */
static void is_cut_and_stops(void **state)
{
	struct world *w = begin();

	(void)state;
	origin.stop = MiB + 4 * PART;
	announce(w, 0, FILE_B);
	(void)world_read_range(w, 0, MiB, FRAME_EXACT);
	(void)world_read_range(w, 10 * MiB, MiB, FRAME_EXACT);
	origin.stop = 10 * MiB;
	/* Not by the timeout of an answer that stands still. */
	assert_true(test_wait_for(UFS_LIMITS_DEFAULT.request_timeout_ns / 2,
		!counter_get(&w->worker.counters.flights)));
	read_file(w);
	assert_int_equal(origin.n, 2);
	end(w);
}

/* A cut range that breaks off asks for no more than it has left. */
static void is_cut_and_breaks_off(void **state)
{
	struct world *w = begin();

	(void)state;
	origin.stop = MiB + 4 * PART;
	announce(w, 0, FILE_B);
	(void)world_read_range(w, 0, MiB, FRAME_EXACT);
	(void)world_read_range(w, 10 * MiB, MiB, FRAME_EXACT);
	test_wait(counter_get(&w->worker.counters.flights) == 9);
	origin.broken = 1;
	origin.stop = 4 * MiB;
	test_wait(origin.n == 3);
	origin.stop = UINT64_MAX;
	world_wait_written(w);
	check_get(2, 4 * MiB, 10 * MiB);
	read_file(w);
	assert_int_equal(origin.n, 3);
	end(w);
}

/* An object that is gone costs one request for all its units, and one more for its first reader. */
static void is_refused(void **state)
{
	struct world *w = begin();

	(void)state;
	origin.gone = true;
	announce(w, 0, FILE_B);
	world_wait_written(w);
	assert_int_equal(origin.n, 1);
	assert_int_equal(counter_get(&w->worker.counters.failed_units), UNITS);
	for (uint64_t at = 0; at < FILE_B; at += MiB)
		read_refused(w, at);
	announce(w, 0, FILE_B);
	world_wait_written(w);
	assert_int_equal(origin.n, 2);
	end(w);
}

/* Before the first answer, readers cut it: the parts of an object that is gone cost two requests, not three. */
static void is_cut_and_refused(void **state)
{
	struct reading readings[2];
	struct world *w = begin();

	(void)state;
	origin.silent = true;
	announce(w, 0, FILE_B);
	test_wait(origin.n == 1);
	for (uint32_t i = 0; i < ARRAY_SIZE(readings); i++) {
		readings[i] = (struct reading){ .w = w, .offset = (10 - i * 4) * MiB };
		assert_int_equal(
			pthread_create(&readings[i].thread, NULL, refuse_one, &readings[i]), 0);
		test_wait(counter_get(&w->worker.counters.ranges_cut) == i + 1);
	}
	origin.gone = true;
	origin.silent = false;
	for (uint32_t i = 0; i < ARRAY_SIZE(readings); i++)
		pthread_join(readings[i].thread, NULL);
	world_wait_written(w);
	assert_int_equal(origin.n, 2);
	end(w);
}

/* A bandwidth makes ranges shorter, but not as short as a unit: the burst, and as much that is owed. */
static void is_paid_for(void **state)
{
	struct world *w = begin();

	(void)state;
	atomic_store(&w->preload, answer_preload);
	test_wait(counter_get(&w->worker.counters.preload_units) == UNITS);
	assert_true(origin.gets[0].end >= 2 * BURST);
	assert_true(origin.n <= 2);
	end(w);
}

/* Its bytes would be written to what readers have: what is not whole fails, and is asked for again. */
static void comes_twice(void **state)
{
	struct world *w;

	(void)state;
	ufs_debug_wrap = forget_wrap;
	w = begin();
	origin.stop = 3 * MiB + 4 * PART;
	origin.broken = 1;
	announce(w, 0, FILE_B);
	world_wait_written(w);
	assert_int_equal(counter_get(&w->worker.counters.failed_units), UNITS - 3);
	assert_int_equal(origin.n, 1);
	read_file(w);
	assert_int_equal(origin.n, 1 + UNITS - 3);
	end(w);
	ufs_debug_wrap = NULL;
}

/* It goes in the middle: what came before is right and stays. */
static void is_refused_in_the_middle(void **state)
{
	struct world *w = begin();

	(void)state;
	origin.stop = 3 * MiB + 4 * PART;
	origin.broken = 1;
	origin.goes = true;
	announce(w, 0, FILE_B);
	(void)world_read_range(w, 2 * MiB, MiB, FRAME_EXACT);
	world_wait_written(w);
	for (uint64_t at = 0; at < 3 * MiB; at += MiB)
		(void)world_read_range(w, at, MiB, FRAME_EXACT);
	read_refused(w, 3 * MiB);
	read_refused(w, 11 * MiB);
	assert_int_equal(origin.n, 3); /* one that broke off, and two that were refused */
	end(w);
}

/* What has not landed is asked for in the other way. */
static void takes_another_way(void **state)
{
	struct reading reading;
	struct world *w = begin();

	(void)state;
	origin.stop = 2 * MiB + 4 * PART;
	announce(w, 0, FILE_B);
	(void)world_read_range(w, MiB, MiB, FRAME_EXACT);
	start_reading(&reading, w, 3 * MiB, MiB);
	set_way(w, true);
	pthread_join(reading.thread, NULL);
	world_wait_written(w);
	assert_int_equal(origin.n, 1);
	assert_int_equal(counter_get(&w->worker.counters.failed_units), 0);
	read_file(w);
	end(w);
}

/* A worker that closes waits for no server. */
static void closes(void **state)
{
	struct world *w = begin();

	(void)state;
	origin.stop = 2 * MiB + 4 * PART;
	origin.hangs = true;
	announce(w, 0, FILE_B);
	(void)world_read_range(w, MiB, MiB, FRAME_EXACT);
	end(w);
}

/* The deadline is one unit's: where bytes come, but slowly, the rest has deadlines of its own. */
static void has_time_for_each_unit(void **state)
{
	struct world *w = begin();

	(void)state;
	origin.stop = 2 * MiB + 4 * PART;
	origin.hangs = true;
	announce(w, 0, FILE_B);
	world_wait_written(w);
	assert_int_equal(counter_get(&w->worker.counters.failed_units), 0);
	read_file(w);
	end(w);
}

/* Whose bytes may be on the tier at another place, as its source has changed. */
static void is_sought_on_the_tier(void **state)
{
	struct world *w = begin();
	struct table *first = w->table;
	char path[160];

	(void)state;
	(void)snprintf(path, sizeof(path), "%s/data/file-001", w->dir);
	assert_int_equal(unlink(path), 0);
	w->table = world_make_table(w, "table2");
	assert_true(table_info(w->table)->dead_rows > 0);
	announce(w, 0, FILE_B);
	world_wait_written(w);
	assert_int_equal(origin.n, 1);
	check_get(0, 0, FILE_B);
	read_file(w);
	assert_int_equal(origin.n, 1);
	end(w);
	table_unref(first);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(lands_unit_by_unit),
		cmocka_unit_test(breaks_off),
		cmocka_unit_test(is_cut_for_a_reader),
		cmocka_unit_test(is_not_cut_for_a_stream),
		cmocka_unit_test(is_cut_and_stops),
		cmocka_unit_test(is_cut_and_breaks_off),
		cmocka_unit_test(is_refused),
		cmocka_unit_test(is_cut_and_refused),
		cmocka_unit_test(is_refused_in_the_middle),
		cmocka_unit_test(is_paid_for),
		cmocka_unit_test(comes_twice),
		cmocka_unit_test(takes_another_way),
		cmocka_unit_test(closes),
		cmocka_unit_test(is_sought_on_the_tier),
		cmocka_unit_test(has_time_for_each_unit),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
