/* What the worker of a node is asked about the extents of several sources; the client is a fake. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/check.h"
#include "client/client_seal.h"
#include "fuse/daemon/seal_client.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define EXTENT (1ull << 30)

/* ---- the client ------------------------------------------------------------------------------ */

/* Their addresses stand for volumes. */
static char volume_a;
static char volume_b;

static struct fake {
	uint32_t polls;
	uint8_t held[LAYOUT_SOURCES_MAX]; /* of each poll */
	const void *full;                 /* of this volume the worker has no room to know */
	int broken;                       /* what comes of the first poll, if that is not 0 */
} fake;

int client_seal_poll(struct client_volume *volume, uint64_t generation, uint64_t extent_bytes,
	uint64_t first, uint32_t n, const uint8_t *held, struct client_seal *ret_seals,
	struct err *e)
{
	assert_int_equal(extent_bytes, EXTENT);
	assert_int_equal(first, 0);
	assert_true(n <= 8);
	fake.held[fake.polls++] = held ? held[0] : 0xff;
	if (fake.broken)
		return err_set(e, fake.broken, "no worker");
	if ((const void *)volume == fake.full)
		return err_set(e, -ENOSPC, "no room");
	for (uint32_t i = 0; i < n; i++)
		ret_seals[i] = (struct client_seal){ .status = { .state = SEAL_SEALED },
			.epoch = 100 * generation + i };
	return 0;
}

int client_seal_take(struct client_volume *volume, uint64_t generation, uint64_t extent_bytes,
	uint64_t number, struct client_seal *ret_seal, int *ret_fd, struct err *e)
{
	(void)volume;
	(void)extent_bytes;
	(void)e;
	*ret_seal = (struct client_seal){ .epoch = 100 * generation + number };
	*ret_fd = -1;
	return 0;
}

bool client_seal_holds(const struct client_seal *then, const struct client_seal *now)
{
	(void)then;
	(void)now;
	return true;
}

/* ---- a mount --------------------------------------------------------------------------------- */

/* Of three sources: two extents of A, one of B, and the two of A once more. */
struct world {
	int fd;
	struct slots *slots;
	struct seal_client client;
	struct seal_source source;
	struct client_seal seals[5];
};

static void *volume_of(const void *address)
{
	return (void *)(uintptr_t)address;
}

static void world_open(struct world *w)
{
	struct client_volume *const volumes[] = { volume_of(&volume_a), volume_of(&volume_b),
		volume_of(&volume_a) };

	memset(w, 0, sizeof(*w));
	memset(&fake, 0, sizeof(fake));
	w->fd = memfd_create("slots", MFD_CLOEXEC);
	assert_int_equal(slots_open(w->fd, &w->slots, NULL), 0);
	slots_mount(w->slots)->extent_bytes = EXTENT;
	slots_mount(w->slots)->extents = ARRAY_SIZE(w->seals) + 1;
	slots_sources(w->slots)->layout = (struct layout_sources){ .n = 3, .first = { 0, 2, 3 } };
	for (uint32_t i = 0; i < 3; i++)
		slots_sources(w->slots)->all[i].generation = i == 1 ? 9 : 4;
	seal_client_init(&w->client, volumes, w->slots);
	w->source = seal_client_source(&w->client);
}

static void world_close(struct world *w)
{
	slots_free(w->slots);
	(void)close(w->fd);
}

static int poll_all(struct world *w, uint8_t held)
{
	struct err e = ERR_INIT;

	return w->source.poll(w->source.arg, ARRAY_SIZE(w->seals), &held, w->seals, &e);
}

/* ---- tests ----------------------------------------------------------------------------------- */

static void of_each(void **state)
{
	static const uint64_t epochs[] = { 400, 401, 900, 400, 401 };
	struct client_seal taken;
	struct world w;
	int fd;

	(void)state;
	world_open(&w);
	assert_int_equal(poll_all(&w, 1u << 2), 0);
	assert_int_equal(fake.polls, 3);
	for (uint32_t i = 0; i < ARRAY_SIZE(epochs); i++)
		assert_int_equal(w.seals[i].epoch, epochs[i]);
	assert_memory_equal(fake.held, "\0\1\0", 3);
	assert_int_equal(w.source.take(w.source.arg, 4, &taken, &fd, NULL), 0);
	assert_int_equal(taken.epoch, 401);
	world_close(&w);
}

/* The worker knows what a connection holds of a volume: a view must not let go for another. */
static void views_of_one(void **state)
{
	struct world w;

	(void)state;
	world_open(&w);
	assert_int_equal(poll_all(&w, 1u << 0 | 1u << 4), 0);
	assert_memory_equal(fake.held, "\3\0\3", 3);
	world_close(&w);
}

/* Damage of one is seen whatever there is room for of the others. */
static void no_room(void **state)
{
	struct world w;

	(void)state;
	world_open(&w);
	fake.full = &volume_a;
	assert_int_equal(poll_all(&w, 0), 0);
	assert_int_equal(w.seals[0].status.state, SEAL_UNKNOWN);
	assert_int_equal(w.seals[2].status.state, SEAL_SEALED);
	assert_int_equal(w.seals[4].status.state, SEAL_UNKNOWN);
	world_close(&w);

	world_open(&w);
	fake.broken = -ENOSPC;
	assert_int_equal(poll_all(&w, 0), -ENOSPC);
	world_close(&w);

	world_open(&w);
	fake.broken = -ENODEV;
	assert_int_equal(poll_all(&w, 0), -ENODEV);
	assert_int_equal(fake.polls, 1);
	world_close(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(of_each),
		cmocka_unit_test(views_of_one),
		cmocka_unit_test(no_room),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
