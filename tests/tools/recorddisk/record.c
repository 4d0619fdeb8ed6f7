/* The record of a disk. See record.h. */
#include "tests/tools/recorddisk/record.h"
#include "base/cleanup.h"
#include "base/file.h"
#include "base/hash.h"

#include <stdbool.h>
#include <stdlib.h>

int record_create(struct record *r, const char *path)
{
	*r = (struct record){ .file = fopen(path, "wxe") };
	return r->file ? 0 : err_errno();
}

int record_open(struct record *r, const char *path)
{
	*r = (struct record){ .file = fopen(path, "re") };
	return r->file ? 0 : err_errno();
}

void record_release(struct record *r)
{
	if (r->file)
		(void)fclose(r->file); /* flushed by each append */
	r->file = NULL;
}

int record_append(
	struct record *r, enum record_kind kind, uint64_t offset, const void *data, uint64_t length)
{
	struct record_event event = {
		.magic = RECORD_MAGIC, .kind = kind, .offset = offset, .length = length
	};

	if (fwrite(&event, sizeof(event), 1, r->file) != 1 ||
		(length && fwrite(data, length, 1, r->file) != 1) || fflush(r->file) != 0)
		return err_errno();
	r->next++;
	return 0;
}

int record_read(struct record *r, struct record_event *ret_event, void *data)
{
	struct record_event event;

	if (fread(&event, sizeof(event), 1, r->file) != 1)
		return ferror(r->file) ? -EIO : 0;
	if (event.magic != RECORD_MAGIC || event.length > RECORD_DATA_MAX)
		return -EBADMSG;
	if (event.length && fread(data, event.length, 1, r->file) != 1)
		return feof(r->file) ? 0 : -EIO; /* still being written: not there yet */
	r->next++;
	*ret_event = event;
	return 1;
}

static bool lets_through(const struct record_choice *choice, uint64_t number, uint64_t place)
{
	uint64_t dice[2] = { number, place };

	return hash_xxh3(dice, sizeof(dice), choice->seed) % 1000 < choice->keep;
}

static int apply_write(int fd, const struct record_event *event, const char *data, uint64_t number,
	const struct record_choice *choice)
{
	uint64_t unit = choice && choice->unit ? choice->unit : event->length;
	int r = 0;

	for (uint64_t done = 0; done < event->length && r == 0;) {
		/* Units lie on the disk, not in the write. */
		uint64_t length = unit == event->length ? unit
							: min(unit - (event->offset + done) % unit,
								  event->length - done);

		if (!choice || lets_through(choice, number, done))
			r = file_pwrite_exact(fd, data + done, length, event->offset + done);
		done += length;
	}
	return r;
}

int record_apply(
	const char *path, int fd, uint64_t from, uint64_t to, const struct record_choice *choice)
{
	_cleanup_(record_release) struct record record;
	_cleanup_free_ char *data = malloc(RECORD_DATA_MAX);
	struct record_event event;
	int r = record_open(&record, path);

	if (r == 0 && !data)
		r = -ENOMEM;
	while (r == 0 && record.next < to) {
		uint64_t number = record.next;
		int found = record_read(&record, &event, data);

		if (found <= 0)
			return found < 0 ? found : -ENODATA;
		if (number >= from && event.kind == RECORD_WRITE)
			r = apply_write(fd, &event, data, number, choice);
	}
	return r;
}
