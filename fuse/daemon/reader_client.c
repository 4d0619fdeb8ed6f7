/* The client library as a mount's reader. See reader.h. */
#include "fuse/session/reader.h"
#include "base/check.h"
#include "fuse/order/order.h"

#include <errno.h>
#include <string.h>

/*
 * The set that is read from, which nobody closes until set_release(). Who was slower than a switch
 * takes the next one.
 */
static struct reader_set *set_take(struct reader *reader)
{
	for (;;) {
		uint32_t now = atomic_load(&reader->now);
		struct reader_set *set = &reader->sets[now];

		atomic_fetch_add(&set->users, 1);
		if (atomic_load(&reader->now) == now)
			return set;
		atomic_fetch_sub(&set->users, 1);
	}
}

static void set_release(struct reader_set *set)
{
	atomic_fetch_sub(&set->users, 1);
}

/* The volume that a place is in. */
static struct client_volume *volume_of(const struct reader_set *set, uint64_t place)
{
	uint32_t source = place_source(place);

	ensure(source < set->n);
	return set->volumes[source];
}

static int read_local(struct reader *reader, uint64_t offset, uint32_t length, void *buf)
{
	struct reader_set *set = set_take(reader);
	int r = client_read_local(volume_of(set, offset), place_offset(offset), length, buf);

	set_release(set);
	return r;
}

static bool borrow(
	struct reader *reader, uint64_t offset, uint32_t length, struct reader_loan *ret_loan)
{
	struct reader_set *set = set_take(reader);

	ret_loan->set = set;
	if (client_borrow(volume_of(set, offset), place_offset(offset), length, &ret_loan->loan))
		return true;
	set_release(set);
	return false;
}

static void give(struct reader *reader, struct reader_loan *loan)
{
	(void)reader;
	client_give(&loan->loan);
	set_release(loan->set);
}

static void read_anywhere(struct reader *reader, struct client_read *read)
{
	struct reader_set *set = set_take(reader);
	struct client_volume *volume = volume_of(set, read->offset);

	read->exact = reader->order && order_covers(reader->order, read->offset, read->length);
	read->offset = place_offset(read->offset);
	client_read(volume, read); /* under way: the volume is not idle */
	set_release(set);
}

static void cancel(struct reader *reader, struct client_read *read)
{
	(void)reader;
	client_read_cancel(read->volume, read);
}

/* One disk: of all volumes. */
static void hangs(struct reader *reader, bool now)
{
	struct reader_set *set = set_take(reader);

	client_local_hangs(set->volumes[0], now);
	set_release(set);
}

/* Of what was announced nobody has to guess what comes next. */
static void note(struct reader *reader, uint64_t offset, uint32_t length)
{
	struct reader_set *set;

	if (reader->order && order_note_read(reader->order, offset, length))
		return;
	set = set_take(reader);
	client_note_read(volume_of(set, offset), place_offset(offset), length);
	set_release(set);
}

static const struct reader_ops ops = {
	.read_local = read_local,
	.borrow = borrow,
	.give = give,
	.hangs = hangs,
	.read = read_anywhere,
	.cancel = cancel,
	.note = note,
};

void reader_client_init(struct reader *reader, struct client_volume *volume)
{
	memset(reader, 0, sizeof(*reader));
	reader->ops = &ops;
	reader_client_add(reader, volume);
}

void reader_client_add(struct reader *reader, struct client_volume *volume)
{
	struct reader_set *set = &reader->sets[0];

	ensure(set->n < LAYOUT_SOURCES_MAX);
	set->volumes[set->n++] = volume;
}

int reader_client_switch(
	struct reader *reader, struct client_volume *const *volumes, uint32_t n, uint32_t *ret_set)
{
	uint32_t next = 0;

	ensure(n <= LAYOUT_SOURCES_MAX);
	while (next < READER_SETS && reader->sets[next].n > 0)
		next++;
	if (next == READER_SETS)
		return -EBUSY;
	memcpy(reader->sets[next].volumes, volumes, n * sizeof(*volumes));
	reader->sets[next].n = n;
	*ret_set = atomic_exchange(&reader->now, next);
	return 0;
}

bool reader_client_left(const struct reader *reader, uint32_t set)
{
	return atomic_load(&reader->now) != set && atomic_load(&reader->sets[set].users) == 0;
}

void reader_client_closed(struct reader *reader, uint32_t set)
{
	/* Users may be counted, who look whether it is the one and go: set_take(). */
	ensure(atomic_load(&reader->now) != set);
	reader->sets[set].n = 0;
}
