/* The client library as a mount's reader. See reader.h. */
#include "fuse/reader.h"
#include "fuse/order.h"

static int read_local(struct reader *reader, uint64_t offset, uint32_t length, void *buf)
{
	return client_read_local(reader->volume, offset, length, buf);
}

static void read_anywhere(struct reader *reader, struct client_read *read)
{
	read->exact = reader->order && order_covers(reader->order, read->offset, read->length);
	client_read(reader->volume, read);
}

static void cancel(struct reader *reader, struct client_read *read)
{
	client_read_cancel(reader->volume, read);
}

static void hangs(struct reader *reader, bool now)
{
	client_local_hangs(reader->volume, now);
}

/* Of what was announced nobody has to guess what comes next. */
static void note(struct reader *reader, uint64_t offset, uint32_t length)
{
	if (!reader->order || !order_note_read(reader->order, offset, length))
		client_note_read(reader->volume, offset, length);
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
	reader->ops = &ops;
	reader->volume = volume;
	reader->order = NULL;
}
