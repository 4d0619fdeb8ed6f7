/* Scripts of requests. See script.h. */
#include "tests/fuzz/script.h"
#include "base/clock.h"
#include "base/little.h"
#include "net/transport.h"
#include "tests/clock/test_clock.h"
#include "tests/fuzz/seeds.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#define CALL_NS       (60 * CLOCK_SECOND)
#define ADDRESS_BYTES 64u
#define LONG          240u /* lengths from there on: the longest */

static const char *const who_names[WHO_COUNT] = { "cluster", "part", "admin" };

/* ---- the clock of the fixtures: here it is the real one -------------------------------------- */

void test_advance(uint64_t ns)
{
	clock_sleep_ns(ns);
}

uint64_t test_wait_begin(void)
{
	return clock_mono_ns();
}

void test_wait_a_little(uint64_t began, const char *condition, const char *file, int line)
{
	(void)condition;
	(void)file;
	(void)line;
	ensure(clock_mono_ns() - began < TEST_WAIT_NS);
	clock_sleep_ns(CLOCK_MS);
}

void test_wait_end(void)
{
}

/* ---- doors ----------------------------------------------------------------------------------- */

static struct door {
	char address[ADDRESS_BYTES];
	struct peer_identity identity;
	struct transport_listener user;
	struct rpc_client *client;
} doors[WHO_COUNT];

static struct transport_ops with_doors;

static void accept_at_door(void *arg, struct transport *transport)
{
	struct door *door = arg;

	transport->peer = door->identity;
	door->user.on_accept(door->user.arg, transport);
}

static void close_door(void *arg)
{
	struct door *door = arg;

	door->user.on_closed(door->user.arg);
}

static int listen_at_door(struct loop *loop, const char *where,
	const struct transport_listener *user, struct transport_listener **ret_listener,
	struct err *e)
{
	struct transport_listener own = { .on_accept = accept_at_door, .on_closed = close_door };

	for (enum who who = 0; who < WHO_COUNT; who++) {
		struct door *door = &doors[who];

		if (!door->address[0] || strcmp(strchr(door->address, ':') + 1, where) != 0)
			continue;
		door->user = *user;
		own.arg = door;
		return transport_fake.listen(loop, where, &own, ret_listener, e);
	}
	return transport_fake.listen(loop, where, user, ret_listener, e);
}

static const struct transport_ops *wrap(const struct transport_ops *ops)
{
	return ops == &transport_fake ? &with_doors : ops;
}

const char *script_address(const struct script *p, enum who who)
{
	with_doors = transport_fake;
	with_doors.listen = listen_at_door;
	net_debug_wrap = wrap;
	(void)snprintf(doors[who].address, sizeof(doors[who].address), "fake:%s-%s", p->name,
		who_names[who]); /* fits */
	return doors[who].address;
}

static void set_identities(const struct script *p)
{
	struct peer_identity token = { .kind = PEER_TOKEN,
		.claims = { .expires_s = UINT64_MAX, .dataset = { 1 } } };
	struct token_claims *claims = &token.claims;

	doors[WHO_CLUSTER].identity.kind = PEER_CLUSTER;
	claims->admin = true;
	claims->serial[0] = WHO_ADMIN;
	doors[WHO_ADMIN].identity = token;
	claims->admin = false;
	if (p->dataset)
		memcpy(claims->dataset, p->dataset, sizeof(claims->dataset));
	claims->serial[0] = WHO_PART;
	claims->n_volumes = 1;
	claims->volumes[0] = p->volume;
	claims->prefix_bytes[0] = (uint16_t)strlen(p->prefix);
	memcpy(claims->prefixes, p->prefix, strlen(p->prefix));
	doors[WHO_PART].identity = token;
}

void script_connect(const struct script *p, struct loop *loop)
{
	struct err e = ERR_INIT;

	set_identities(p);
	for (enum who who = 0; who < WHO_COUNT; who++)
		ensure(rpc_client_new(loop, doors[who].address, &doors[who].client, &e) == 0);
}

void script_close(void)
{
	for (enum who who = 0; who < WHO_COUNT; who++)
		rpc_client_free(doors[who].client);
}

/* ---- steps ----------------------------------------------------------------------------------- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t ended = PTHREAD_COND_INITIALIZER;

static void on_done(struct rpc_call *call, int status)
{
	struct step *step = container_of(call, struct step, call);

	pthread_mutex_lock(&lock);
	step->done = true;
	step->status = status;
	pthread_cond_broadcast(&ended);
	pthread_mutex_unlock(&lock);
}

static void await(const struct step *step)
{
	pthread_mutex_lock(&lock);
	while (!step->done)
		pthread_cond_wait(&ended, &lock);
	pthread_mutex_unlock(&lock);
}

static void fill_frame(const struct script *p, struct step *step, const uint8_t *b)
{
	struct frame *frame = &step->call.frame;

	*frame = (struct frame){ .op = step->request->op,
		.class = step->kind & KIND_CLASS ? FRAME_AHEAD : FRAME_DEMAND,
		.flags = b[2] & (uint16_t) ~(FRAME_REPLY | FRAME_FD),
		.volume = p->volume,
		.lineage = p->lineage ^ (step->kind & KIND_LINEAGE ? 1 : 0),
		.generation = p->generation - (step->kind & KIND_GENERATION ? 1 : 0),
		.offset = little_get16(b + 4) % (p->blocks + 8) * BLOCK_BYTES,
		.length = (b[6] < LONG ? b[6] % 16 + 1u : 256u) * BLOCK_BYTES };
	frame->volume.bytes[0] ^= step->kind & KIND_VOLUME;
	frame->offset += b[7] & 1;
	frame->length += b[7] & 2;
	if (b[7] & 4)
		frame->offset |= 1ull << (b[7] >> 2);
	if (b[7] & 8)
		frame->extent = 1ull << (b[7] >> 3);
}

/* Returns the bytes of the script that it took. */
static size_t begin(const struct script *p, struct step *step, const uint8_t *b, size_t size)
{
	size_t raw = 0;
	size_t len;

	*step = (struct step){
		.request = &p->requests[b[0] % p->n_requests], .who = b[1] % WHO_COUNT, .kind = b[3]
	};
	fill_frame(p, step, b);
	len = p->pack ? p->pack(step) : 0;
	if (step->kind & KIND_RAW) {
		len = raw = min((size_t)(b[1] >> 2), size - STEP_BYTES);
		memcpy(step->payload, b + STEP_BYTES, raw);
	}
	step->call.payload = NET_PAYLOAD_NONE;
	step->call.payload.parts[0].data = step->payload;
	step->call.payload.parts[0].len = len;
	step->call.payload.n = len > 0;
	step->call.deadline_ns = clock_mono_ns() + CALL_NS;
	step->call.on_done = on_done;
	step->call.reply_fd = -1;
	rpc_call(doors[step->who].client, &step->call);
	if (step->kind & KIND_CANCEL)
		rpc_cancel(doors[step->who].client, &step->call);
	if (!(step->kind & KIND_AT_ONCE))
		await(step);
	return STEP_BYTES + raw;
}

static bool may_succeed(const struct step *step)
{
	return step->who == WHO_CLUSTER ||
	       (step->who == WHO_ADMIN ? step->request->admin : step->request->part);
}

/* Neither bytes nor a line: what the step itself says does not count. */
static void check_names(const struct script *p, const struct step *step)
{
	const char *text = step->call.reply_payload;
	size_t len = step->status < 0 && text ? strlen(text) : step->call.reply.payload;

	if ((step->who == WHO_PART || (step->who == WHO_ADMIN && !step->request->admin)) && text &&
		!(step->kind & KIND_RAW))
		ensure(!memmem(text, len, p->others, strlen(p->others)));
}

static void check(const struct script *p, const struct step *step)
{
	ensure(step->status != -ETIMEDOUT);
	ensure(step->status < 0 || may_succeed(step));
	check_names(p, step);
	p->check(step);
}

void script_run(const struct script *p, const uint8_t *data, size_t size)
{
	static struct step steps[STEPS_MAX];
	unsigned int n = 0;

	while (size >= STEP_BYTES && n < STEPS_MAX) {
		size_t took = begin(p, &steps[n++], data, size);

		data += took;
		size -= took;
	}
	for (unsigned int i = 0; i < n; i++) {
		await(&steps[i]);
		check(p, &steps[i]);
		rpc_call_release(&steps[i].call);
	}
}

/* ---- seeds ----------------------------------------------------------------------------------- */

static void put(
	uint8_t **at, uint32_t request, enum who who, uint8_t kind, uint16_t block, uint8_t length)
{
	uint8_t *b = *at;

	memset(b, 0, STEP_BYTES);
	b[0] = (uint8_t)request;
	b[1] = (uint8_t)who;
	b[2] = FRAME_LOCAL_OK;
	b[3] = kind;
	little_put16(b + 4, block);
	b[6] = length;
	*at += STEP_BYTES;
}

void script_seeds(const struct script *p)
{
	uint8_t bytes[STEPS_MAX * STEP_BYTES];
	char name[32];
	uint8_t *at;

	for (uint32_t r = 0; r < p->n_requests; r++) {
		at = bytes;
		for (uint32_t i = 0; i < 2 * WHO_COUNT; i++)
			put(&at, r, i % WHO_COUNT, i < WHO_COUNT ? 0 : KIND_SHOWS, 0, 3);
		(void)snprintf(name, sizeof(name), "request-%u", r); /* fits */
		fuzz_seed(name, bytes, (size_t)(at - bytes));
	}
	for (uint32_t first = 0; first < 2; first++) {
		at = bytes;
		for (uint16_t i = 0; i < 10; i++) {
			put(&at, 0, first ? WHO_CLUSTER : WHO_PART, KIND_AT_ONCE,
				(uint16_t)(i * 256), 255);
			put(&at, i % 4, WHO_PART, 0, (uint16_t)(i * 256), 255);
			put(&at, i % 4, WHO_CLUSTER, 0, (uint16_t)(i * 256), 255);
		}
		(void)snprintf(name, sizeof(name), "first-%s", who_names[!first]); /* fits */
		fuzz_seed(name, bytes, (size_t)(at - bytes));
	}
}
