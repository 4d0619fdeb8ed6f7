/* The client library as a mount's reader. See reader.h. */
#include "fuse/reader.h"
#include "base/check.h"
#include "fuse/order.h"

/* The volume that a place is in. */
static struct client_volume *volume_of(const struct reader *reader, uint64_t place)
{
	uint32_t source = place_source(place);

	ensure(source < reader->n_volumes);
	return reader->volumes[source];
}

static int read_local(struct reader *reader, uint64_t offset, uint32_t length, void *buf)
{
	return client_read_local(volume_of(reader, offset), place_offset(offset), length, buf);
}

static void read_anywhere(struct reader *reader, struct client_read *read)
{
	struct client_volume *volume = volume_of(reader, read->offset);

	read->exact = reader->order && order_covers(reader->order, read->offset, read->length);
	read->offset = place_offset(read->offset);
	client_read(volume, read);
}

static void cancel(struct reader *reader, struct client_read *read)
{
	(void)reader;
	client_read_cancel(read->volume, read);
}

/* One disk: of all volumes. */
static void hangs(struct reader *reader, bool now)
{
	client_local_hangs(reader->volumes[0], now);
}

/* Of what was announced nobody has to guess what comes next. */
static void note(struct reader *reader, uint64_t offset, uint32_t length)
{
	if (!reader->order || !order_note_read(reader->order, offset, length))
		client_note_read(volume_of(reader, offset), place_offset(offset), length);
}

static const struct reader_ops ops = {
	.read_local = read_local,
	.hangs = hangs,
	.read = read_anywhere,
	.cancel = cancel,
	.note = note,
};

void reader_client_init(struct reader *reader, struct client_volume *volume)
{
	*reader = (struct reader){ .ops = &ops };
	reader_client_add(reader, volume);
}

void reader_client_add(struct reader *reader, struct client_volume *volume)
{
	ensure(reader->n_volumes < LAYOUT_SOURCES_MAX);
	reader->volumes[reader->n_volumes++] = volume;
}
