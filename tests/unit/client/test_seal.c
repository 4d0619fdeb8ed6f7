/* Asking for sealed extents: pages, what is held, what a hostile worker may send, and when what was
 * taken is good no more. */
#include "tests/unit/client/fixture.h"
#include "base/cleanup.h"
#include "client/client_seal.h"
#include "locate/extent_format.h"

#define EXTENT  CHUNK_BYTES /* the least that one may be */
#define EXTENTS 5000u       /* more than a page */

/* What the worker does. */
static struct {
	unsigned int asked;
	uint32_t lengths[4];
	uint8_t held[4][SEAL_HELD_BYTES];
	uint64_t end;
	enum seal_state state;
	const char *path; /* a file for who takes one; NULL: none */
	int flags;
	bool garbage;
	bool unasked; /* a descriptor nobody asked for */
} worker;

static struct seal_status status_for(uint64_t number)
{
	return (struct seal_status){ .state = worker.state, .findings = (uint32_t)(number % 7) };
}

static void on_seal(struct fix *f, struct rpc_request *request)
{
	const struct frame *frame = &request->frame;
	struct seal_status *states = calloc(frame->length, sizeof(*states));
	struct net_payload payload = NET_PAYLOAD_NONE;
	struct seal_ask ask;
	size_t len;

	(void)f;
	assert_non_null(states);
	assert_int_equal(seal_ask_unpack(request->payload, frame->payload, frame->length, &ask), 0);
	assert_int_equal(frame->extent, EXTENT);
	if (worker.asked < ARRAY_SIZE(worker.lengths)) {
		worker.lengths[worker.asked] = frame->length;
		memcpy(worker.held[worker.asked], ask.held, sizeof(ask.held));
	}
	worker.asked++;
	worker.end = ask.end;
	for (uint32_t i = 0; i < frame->length; i++)
		states[i] = status_for(frame->offset + i);
	payload.arg = seal_states_pack(77, states, frame->length, &len);
	free(states);
	if (worker.garbage)
		len--;
	payload.parts[0].data = payload.arg;
	payload.parts[0].len = len;
	payload.n = 1;
	payload.release = free;
	if ((ask.take || worker.unasked) && worker.path) {
		payload.fd = open(worker.path, worker.flags | O_CLOEXEC);
		assert_true(payload.fd >= 0);
	}
	rpc_reply(request, 0, NULL, payload);
}

static struct fix *start(void)
{
	struct fix *f = fix_new(NULL);

	memset(&worker, 0, sizeof(worker));
	worker.state = SEAL_SEALED;
	f->on_seal = on_seal;
	assert_int_equal(fix_start_client(f, (struct client_config){ 0 }), 0);
	return f;
}

static int poll_all(struct fix *f, uint64_t generation, const uint8_t *held,
	struct client_seal *seals, struct err *e)
{
	return client_seal_poll(f->volume, generation, EXTENT, 0, EXTENTS, held, seals, e);
}

static uint64_t generation_of(struct fix *f)
{
	return table_info(client_volume_table(f->volume))->id.generation;
}

static void test_pages(void **state)
{
	struct client_seal *seals = calloc(EXTENTS, sizeof(*seals));
	uint8_t held[(EXTENTS + 7) / 8];
	struct fix *f = start();
	struct err e = ERR_INIT;

	(void)state;
	memset(held, 0xff, sizeof(held)); /* also bits of which there is no extent */
	held[0] = 0xfe;
	if (poll_all(f, generation_of(f), held, seals, &e) < 0)
		fail_msg("%s", e.text);
	assert_int_equal(worker.asked, 2);
	assert_int_equal(worker.lengths[0], SEAL_PAGE);
	assert_int_equal(worker.lengths[1], EXTENTS - SEAL_PAGE);
	assert_int_equal(worker.held[0][0], 0xfe);
	assert_int_equal(worker.held[0][SEAL_HELD_BYTES - 1], 0xff);
	assert_int_equal(worker.held[1][(EXTENTS - SEAL_PAGE) / 8 - 1], 0xff);
	assert_int_equal(worker.held[1][(EXTENTS - SEAL_PAGE) / 8], 0);
	assert_int_equal(worker.end, table_info(client_volume_table(f->volume))->end);
	for (uint32_t i = 0; i < EXTENTS; i++) {
		assert_int_equal(seals[i].status.state, SEAL_SEALED);
		assert_int_equal(seals[i].status.findings, i % 7);
		assert_int_equal(seals[i].epoch, 77);
	}
	/* Of an earlier generation nobody here knows how far it went. */
	assert_int_equal(poll_all(f, generation_of(f) - 1, NULL, seals, &e), 0);
	assert_true(worker.end == UINT64_MAX);
	assert_int_equal(worker.held[3][0], 0);
	free(seals);
	fix_free(f);
}

static void test_bad_answers(void **state)
{
	struct client_seal *seals = calloc(EXTENTS, sizeof(*seals));
	struct fix *f = start();
	struct err e = ERR_INIT;
	struct client_seal seal;
	int fd = -1;

	(void)state;
	worker.garbage = true;
	assert_int_equal(poll_all(f, 1, NULL, seals, &e), -EBADMSG);
	assert_int_equal(client_seal_take(f->volume, 1, EXTENT, 0, &seal, &fd, &e), -EBADMSG);
	worker.garbage = false;
	worker.unasked = true;
	worker.path = "/dev/null";
	assert_int_equal(poll_all(f, 1, NULL, seals, &e), 0);
	worker.unasked = false;
	worker.path = NULL;
	/* Sealed, it says, and sends nothing. */
	assert_int_equal(client_seal_take(f->volume, 1, EXTENT, 0, &seal, &fd, &e), -EAGAIN);
	assert_int_equal(fd, -1);
	/* One that knows nothing of it. */
	f->on_seal = NULL;
	f->recheck = 0;
	assert_true(poll_all(f, 1, NULL, seals, &e) < 0);
	fix_stop_worker(f);
	free(seals);
	fix_free(f);
}

/* An extent's file as a worker makes it. */
static void make_extent(struct fix *f, const char *path, struct extent_foot foot)
{
	uint8_t bytes[EXTENT_FOOT_BYTES];
	int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	(void)f;
	assert_true(fd >= 0);
	extent_foot_encode(&foot, bytes);
	assert_int_equal(ftruncate(fd, (off_t)extent_file_bytes(EXTENT)), 0);
	assert_int_equal(
		file_pwrite_exact(fd, bytes, sizeof(bytes), extent_foot_offset(EXTENT)), 0);
	(void)close(fd);
}

static int take(struct fix *f, const char *path, int flags)
{
	struct err e = ERR_INIT;
	struct client_seal seal;
	int fd = -1;
	int r;

	worker.path = path;
	worker.flags = flags;
	r = client_seal_take(f->volume, generation_of(f), EXTENT, 2, &seal, &fd, &e);
	if (r == 0) {
		assert_int_equal(seal.status.findings, 2);
		assert_int_equal(seal.epoch, 77);
		assert_true(fd >= 0);
		(void)close(fd);
	} else {
		assert_int_equal(fd, -1);
		assert_true(e.text[0] != 0);
	}
	return r;
}

static void test_hostile_descriptors(void **state)
{
	struct fix *f = start();
	const struct extent_foot good = { .volume = f->volume_id,
		.lineage = f->lineage,
		.number = 2,
		.file_id = 9,
		.extent_bytes = EXTENT };
	struct extent_foot foot = good;
	char path[128];

	(void)state;
	(void)snprintf(path, sizeof(path), "%s/extent", f->dir);
	make_extent(f, path, good);
	assert_int_equal(take(f, path, O_RDONLY), 0);
	assert_int_equal(take(f, path, O_RDWR), -EBADMSG);
	assert_int_equal(take(f, path, O_WRONLY), -EBADMSG);
	assert_int_equal(take(f, path, O_PATH), -EBADMSG);
	assert_int_equal(take(f, "/dev/zero", O_RDONLY), -EBADMSG);
	assert_int_equal(take(f, f->dir, O_RDONLY), -EBADMSG);
	worker.state = SEAL_VERIFYING;
	assert_int_equal(take(f, path, O_RDONLY), -EAGAIN);
	worker.state = SEAL_SEALED;
	/* Another extent, volume, lineage, size. */
	foot.number = 3;
	make_extent(f, path, foot);
	assert_int_equal(take(f, path, O_RDONLY), -EBADMSG);
	foot = good;
	foot.volume.bytes[5] ^= 1;
	make_extent(f, path, foot);
	assert_int_equal(take(f, path, O_RDONLY), -EBADMSG);
	foot = good;
	foot.lineage++;
	make_extent(f, path, foot);
	assert_int_equal(take(f, path, O_RDONLY), -EBADMSG);
	foot = good;
	foot.extent_bytes *= 2;
	make_extent(f, path, foot);
	assert_int_equal(take(f, path, O_RDONLY), -EBADMSG);
	/* Shorter, longer, without a foot. */
	make_extent(f, path, good);
	assert_int_equal(truncate(path, (off_t)extent_file_bytes(EXTENT) - 4096), 0);
	assert_int_equal(take(f, path, O_RDONLY), -EBADMSG);
	assert_int_equal(truncate(path, (off_t)extent_file_bytes(EXTENT)), 0);
	assert_int_equal(take(f, path, O_RDONLY), -EBADMSG);
	make_extent(f, path, good);
	assert_int_equal(truncate(path, (off_t)extent_file_bytes(EXTENT) + 4096), 0);
	assert_int_equal(take(f, path, O_RDONLY), -EBADMSG);
	/* Somebody else's file. */
	make_extent(f, path, good);
	if (geteuid() == 0) {
		assert_int_equal(chown(path, 65534, 65534), 0);
		assert_int_equal(take(f, path, O_RDONLY), -EBADMSG);
		assert_int_equal(chown(path, 0, 0), 0);
	}
	assert_int_equal(take(f, path, O_RDONLY), 0);
	fix_free(f);
}

static struct client_seal seal_of(uint64_t epoch, enum seal_state state, enum seal_why why,
	uint32_t findings, uint64_t missing)
{
	return (struct client_seal){ .epoch = epoch,
		.status = {
			.state = state, .why = why, .findings = findings, .missing = missing } };
}

static void test_holds(void **state)
{
	const struct client_seal then = seal_of(1, SEAL_SEALED, SEAL_WHY_NONE, 3, 0);
	const struct {
		struct client_seal now;
		bool holds;
	} cases[] = {
		{ seal_of(1, SEAL_SEALED, SEAL_WHY_NONE, 3, 0), true },
		/* A finding, repaired or not. */
		{ seal_of(1, SEAL_SEALED, SEAL_WHY_NONE, 4, 0), false },
		{ seal_of(1, SEAL_INCOMPLETE, SEAL_WHY_FINDING, 4, 4096), false },
		{ seal_of(1, SEAL_INCOMPLETE, SEAL_WHY_FINDING, 4, 0), false },
		/* A worker that started again counts from its start. */
		{ seal_of(2, SEAL_UNKNOWN, SEAL_WHY_TABLE, 0, 0), true },
		{ seal_of(2, SEAL_INCOMPLETE, SEAL_WHY_QUIET, 0, 0), true },
		{ seal_of(2, SEAL_VERIFYING, SEAL_WHY_NONE, 0, 0), true },
		{ seal_of(2, SEAL_SEALED, SEAL_WHY_NONE, 0, 0), true },
		{ seal_of(2, SEAL_SEALED, SEAL_WHY_NONE, 3, 0), false },
		{ seal_of(2, SEAL_VERIFYING, SEAL_WHY_NONE, 1, 0), false },
		/* Bytes, the file, the disk are gone. */
		{ seal_of(1, SEAL_INCOMPLETE, SEAL_WHY_NONE, 3, 4096), false },
		{ seal_of(1, SEAL_ABSENT, SEAL_WHY_NONE, 3, 0), false },
		{ seal_of(1, SEAL_REFUSED, SEAL_WHY_TIER, 3, 0), false },
		{ seal_of(1, SEAL_REFUSED, SEAL_WHY_NOT_HELD, 3, 4096), false },
		/* The file is what it was. */
		{ seal_of(1, SEAL_REFUSED, SEAL_WHY_NOT_HELD, 3, 0), true },
		{ seal_of(2, SEAL_REFUSED, SEAL_WHY_OFF, 0, 0), true },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
		assert_int_equal(client_seal_holds(&then, &cases[i].now), cases[i].holds);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_pages),
		cmocka_unit_test(test_bad_answers),
		cmocka_unit_test(test_hostile_descriptors),
		cmocka_unit_test(test_holds),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
