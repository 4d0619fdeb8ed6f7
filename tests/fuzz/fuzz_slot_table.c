/*
 * Fuzzer of the slot tables that a master sends and a process keeps in DIR/slots: two SlotTable messages, of which the first
 * comes from the file and the second from the network. The first byte says what is put right in them, two bytes the length
 * of the first.
 *
 * A table is taken whole or not at all; its peers are bounded; and what was taken, written and read again is the same.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/file.h"
#include "base/hash.h"
#include "base/little.h"
#include "cluster/view_internal.h"
#include "tests/fuzz/seeds.h"

#define HEAD_BYTES 24u
#define FILE_BYTES (1u << 20)

enum put_right {
	RIGHT_SLOTS = 1,    /* has as many as it must, which the message need not contain */
	RIGHT_VERSION = 2,  /* newer than nothing */
	RIGHT_SECOND = 4,   /* a change of the first */
	RIGHT_RAW = 8,      /* the file's bytes are the input's */
	RIGHT_NUMBERS = 16, /* of workers: near the last one */
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* ---- a process that reads it ------------------------------------------------------------------ */

static char dir[] = "/dev/shm/granary-fuzz-XXXXXX";
static struct loop *loop;
static struct rpc_client *nobody;

static void stop(void)
{
	char path[64];

	rpc_client_free(nobody);
	loop_free(loop);
	(void)snprintf(path, sizeof(path), "%s/slots", dir); /* fits */
	(void)unlink(path);
	(void)rmdir(dir);
}

static void start(void)
{
	struct err e = ERR_INIT;

	loop = loop_new("fuzz");
	ensure(loop && mkdtemp(dir));
	ensure(rpc_client_new(loop, "fake:nobody", &nobody, &e) == 0);
	ensure(atexit(stop) == 0);
}

static void put_file(const uint8_t *data, size_t size)
{
	char path[64];
	FILE *file;

	(void)snprintf(path, sizeof(path), "%s/slots", dir); /* fits */
	file = fopen(path, "w");
	ensure(file && fwrite(data, 1, size, file) == size && fclose(file) == 0);
}

/* The message as it is kept. */
static void put_message(const Granary__SlotTable *message)
{
	static uint8_t file[FILE_BYTES];
	size_t length = granary__slot_table__get_packed_size(message);

	if (HEAD_BYTES + length + 8 > sizeof(file))
		length = 0;
	memcpy(file, "GRNSLOTS\1\0\0\0\0\0\0\0", 16);
	little_put64(file + 16, length);
	if (length)
		(void)granary__slot_table__pack(message, file + HEAD_BYTES);
	little_put64(file + HEAD_BYTES + length, hash_xxh3(file, HEAD_BYTES + length, 0));
	put_file(file, HEAD_BYTES + length + 8);
}

static struct view *open_view(void)
{
	struct view_config config = { .master = nobody, .dir = dir };
	struct err e = ERR_INIT;
	struct view *view;

	ensure(view_open(loop, &config, 0, &view, &e) == 0);
	return view;
}

static uint8_t slots[PLACEMENT_SLOTS * 8];

/* What is known: the version, and a hash of slots and members. */
struct known {
	uint64_t epoch;
	uint64_t sequence;
	uint64_t hash;
};

static struct known known_of(struct view *view)
{
	struct known known = { 0 };
	static uint64_t words[PLACEMENT_MAX];

	view_version(view, &known.epoch, &known.sequence);
	for (uint32_t i = 0; i < PLACEMENT_MAX; i++) {
		const struct member *m = view->members[i];

		words[i] = 0;
		if (!m)
			continue;
		ensure(m->number == i && m->n_addresses >= 1 &&
			m->n_addresses <= CLUSTER_ADDRESSES);
		words[i] = hash_xxh3(m->addresses, sizeof(m->addresses), m->id + m->state) | 1;
	}
	known.hash = hash_xxh3((const void *)view->slots, sizeof(slots), 0);
	known.hash = hash_xxh3(words, sizeof(words), known.hash);
	return known;
}

struct taking {
	struct view *view;
	const Granary__SlotTable *message;
	struct err e;
	int r;
};

static void take(void *arg)
{
	struct taking *taking = arg;
	bool changed;

	taking->r = view_take(taking->view, taking->message, &changed, &taking->e);
}

static void take_second(struct view *view, const Granary__SlotTable *message)
{
	struct taking taking = { .view = view, .message = message };
	struct known before = known_of(view);
	struct known after;

	loop_call(loop, take, &taking);
	after = known_of(view);
	if (taking.r < 0) {
		fuzz_check_line(&taking.e);
		ensure(memcmp(&before, &after, sizeof(before)) == 0);
	} else {
		ensure(after.epoch > before.epoch ||
			(after.epoch == before.epoch && after.sequence >= before.sequence));
	}
	ensure(view->n_peers <= VIEW_PEERS_MAX);
}

/* Whatever slots say, somebody or nobody is found. */
static void find(struct view *view)
{
	for (uint64_t chunk = 0; chunk < 64; chunk++) {
		struct view_candidates found;

		view_find(view, 1, chunk, &found);
		ensure(found.n <= VIEW_CANDIDATES && found.n_up <= found.n);
		for (uint32_t i = 0; i < found.n; i++)
			ensure(found.peers[i]);
	}
}

static void check_views(const Granary__SlotTable *second)
{
	struct view *view = open_view();
	struct known first;
	struct known again;

	if (second)
		take_second(view, second);
	find(view);
	first = known_of(view);
	pthread_mutex_lock(&view->lock);
	view->unsaved = first.epoch > 0 || first.sequence > 0;
	pthread_mutex_unlock(&view->lock);
	view_close(view); /* which writes it */
	view = open_view();
	again = known_of(view);
	ensure(memcmp(&first, &again, sizeof(first)) == 0 ||
		(first.epoch == 0 && first.sequence == 0));
	view_close(view);
}

/* ---- messages -------------------------------------------------------------------------------- */

static void put_right(Granary__SlotTable *m, uint8_t what, uint8_t seed)
{
	if (what & RIGHT_SLOTS) {
		for (size_t i = 0; i < sizeof(slots); i++)
			slots[i] = (uint8_t)(i % 2 ? seed >> 6 : i * seed >> 4);
		if (m->has_slots)
			free(m->slots.data);
		m->has_slots = 1;
		m->slots = (ProtobufCBinaryData){ sizeof(slots),
			memcpy(malloc(sizeof(slots)), slots, sizeof(slots)) };
	}
	for (size_t i = 0; what & RIGHT_NUMBERS && i < m->n_workers; i++)
		m->workers[i]->number = PLACEMENT_MAX - 4 + m->workers[i]->number % 6;
	if (what & RIGHT_VERSION) {
		m->has_epoch = m->has_sequence = 1;
		m->epoch = m->epoch % 8 + 1;
		m->sequence = m->sequence % 8 + 1;
	}
}

static void check_messages(const uint8_t *data, size_t size)
{
	uint8_t what = size > 3 ? data[0] : 0;
	size_t length = size > 3 ? min((size_t)little_get16(data + 1), size - 3) : 0;
	Granary__SlotTable *first;
	Granary__SlotTable *second;

	if (size <= 3)
		return;
	data += 3;
	size -= 3;
	first = granary__slot_table__unpack(NULL, length, data);
	second = granary__slot_table__unpack(NULL, size - length, data + length);
	if (first)
		put_right(first, what, data[0]);
	if (second)
		put_right(second, what & RIGHT_NUMBERS, 0);
	if (second && what & RIGHT_SECOND && first) {
		second->has_epoch = second->has_since = second->has_sequence = 1;
		second->epoch = first->epoch;
		second->since = first->sequence;
		second->sequence = first->sequence + 1;
	}
	if (first && !(what & RIGHT_RAW))
		put_message(first);
	else
		put_file(data, length);
	check_views(second);
	if (first)
		granary__slot_table__free_unpacked(first, NULL);
	if (second)
		granary__slot_table__free_unpacked(second, NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (!loop)
		start();
	check_messages(data, size);
	return 0;
}

/* ---- seeds ----------------------------------------------------------------------------------- */

/* A table of one worker, without slots, and a change of it. */
static void seed_messages(uint8_t what, uint32_t number, const char *name)
{
	Granary__SlotTable m = GRANARY__SLOT_TABLE__INIT;
	Granary__Worker w = GRANARY__WORKER__INIT;
	Granary__Worker *workers[] = { &w };
	char address[] = "tcp:10.0.0.1:7000";
	char *addresses[] = { address };
	uint32_t hot[] = { 1, 2 };
	uint8_t bytes[1024] = { what };
	size_t first;
	size_t second;

	m.has_epoch = m.has_sequence = m.has_slots_sequence = 1;
	m.epoch = m.sequence = m.slots_sequence = 1;
	m.workers = workers;
	m.n_workers = 1;
	m.hot = hot;
	m.n_hot = ARRAY_SIZE(hot);
	w.has_number = w.has_id = w.has_state = 1;
	w.number = number;
	w.id = 2;
	w.addresses = addresses;
	w.n_addresses = 1;
	w.name = address;
	first = granary__slot_table__pack(&m, bytes + 3);
	little_put16(bytes + 1, (uint16_t)first);
	m.has_since = 1;
	m.since = m.sequence++;
	w.state = CLUSTER_DOWN;
	second = granary__slot_table__pack(&m, bytes + 3 + first);
	fuzz_seed(name, bytes, 3 + first + second);
}

void fuzz_seeds(void)
{
	seed_messages(RIGHT_SLOTS | RIGHT_VERSION | RIGHT_SECOND, 1, "change");
	seed_messages(RIGHT_SLOTS | RIGHT_VERSION | RIGHT_NUMBERS, 1, "last-numbers");
	seed_messages(RIGHT_SLOTS | RIGHT_VERSION, PLACEMENT_MAX, "number-too-high");
	seed_messages(RIGHT_VERSION, 1, "no-slots");
	seed_messages(RIGHT_SLOTS, 1, "whole");
}
