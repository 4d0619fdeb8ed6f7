/*
 * recorddisk: a disk that records what is written to it, and disks as a power cut leaves them.
 *
 *	recorddisk serve --image IMAGE [--record FILE] DIR	DIR/disk for a loop device (disk.h)
 *	recorddisk list --record FILE				its flushes and marks, as JSON
 *	recorddisk apply --record FILE --from N --to M IMAGE	writes events [N, M) into an image,
 *		[--keep 0..1000 --unit BYTES --seed N]		or what the dice let through
 *
 * `serve` prints "ready" once it is mounted and ends with the unmount. tests/e2e/power.py makes
 * power cuts of it.
 */
#include "base/cleanup.h"
#include "base/option.h"
#include "tests/tools/recorddisk/disk.h"
#include "tests/tools/recorddisk/record.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define KEEP_ALL 1000u

struct options {
	const char *image;
	const char *record;
	uint64_t from;
	uint64_t to;
	uint64_t keep;
	uint64_t unit;
	uint64_t seed;
};

static const struct option_spec specs[] = {
	OPTION_STRING_ROW(struct options, image, "image", "FILE", "serve: the disk's bytes"),
	OPTION_STRING_ROW(struct options, record, "record", "FILE", "what was written"),
	OPTION_ROW(struct options, from, "from", OPTION_UINT,
		.help = "apply: number of the first event"),
	OPTION_ROW(struct options, to, "to", OPTION_UINT, .help = "apply: number after the last"),
	OPTION_ROW(struct options, keep, "keep", OPTION_UINT, .max = KEEP_ALL,
		.help = "apply: parts of writes in a thousand that are kept"),
	OPTION_ROW(struct options, unit, "unit", OPTION_UINT,
		.help = "apply: bytes of a part; 0: whole writes"),
	OPTION_ROW(struct options, seed, "seed", OPTION_UINT, .help = "apply: of the dice"),
};

static const struct option_set option_set = { .program = "recorddisk",
	.arguments = "serve DIR | list | apply IMAGE",
	.about = "A disk that records, and what a power cut leaves of it.",
	.specs = specs,
	.n = ARRAY_SIZE(specs),
	.min_args = 1,
	.max_args = 2 };

static int serve(const struct options *o, const char *dir, struct err *e)
{
	struct disk *disk;
	int r = disk_open(o->image, o->record, dir, &disk, e);

	if (r < 0)
		return r;
	printf("ready\n");
	(void)fflush(stdout); /* the reader sees its end otherwise */
	r = disk_serve(disk);
	disk_free(disk);
	return r < 0 ? err_set(e, r, "serving ended: %s", err_str(r)) : 0;
}

/* {"events": N, "bytes": N, "flushes": [N, ...], "marks": [[N, "TEXT"], ...]} */
static int list(const struct options *o, struct err *e)
{
	_cleanup_(record_release) struct record record;
	_cleanup_free_ char *data = malloc(RECORD_DATA_MAX);
	_cleanup_free_ char *marks = NULL;
	size_t marks_len;
	_cleanup_fclose_ FILE *text = open_memstream(&marks, &marks_len);
	struct record_event event;
	uint64_t bytes = 0;
	const char *comma = "";
	int r = record_open(&record, o->record);

	if (r < 0 || !data || !text)
		return err_set(e, r < 0 ? r : -ENOMEM, "%s: cannot be read", o->record);
	printf("{\"flushes\": [");
	while ((r = record_read(&record, &event, data)) > 0) {
		if (event.kind == RECORD_WRITE)
			bytes += event.length;
		if (event.kind == RECORD_FLUSH) {
			printf("%s%" PRIu64, comma, record.next - 1);
			comma = ", ";
		}
		if (event.kind == RECORD_MARK)
			fprintf(text, "%s[%" PRIu64 ", \"%.*s\"]", ftell(text) ? ", " : "",
				record.next - 1, (int)event.length, data);
	}
	(void)fflush(text); /* memory */
	printf("], \"marks\": [%s], \"events\": %" PRIu64 ", \"bytes\": %" PRIu64 "}\n", marks,
		record.next, bytes);
	return r < 0 ? err_set(e, r, "%s: not a record", o->record) : 0;
}

static int apply(const struct options *o, const char *image, struct err *e)
{
	struct record_choice choice = {
		.seed = o->seed, .keep = (uint32_t)o->keep, .unit = (uint32_t)o->unit
	};
	_cleanup_close_ int fd = open(image, O_RDWR | O_CLOEXEC);
	int r;

	if (fd < 0)
		return err_set(e, err_errno(), "%s: %m", image);
	r = record_apply(o->record, fd, o->from, o->to, o->keep == KEEP_ALL ? NULL : &choice);
	return r < 0 ? err_set(e, r, "%s into %s: %s", o->record, image, err_str(r)) : 0;
}

int main(int argc, char **argv)
{
	struct options o = { .keep = KEEP_ALL };
	struct err e = ERR_INIT;
	int args = option_parse_or_exit(&option_set, argc, argv, &o);
	int r;

	if (strcmp(argv[1], "serve") == 0 && args == 2 && o.image)
		r = serve(&o, argv[2], &e);
	else if (strcmp(argv[1], "list") == 0 && o.record)
		r = list(&o, &e);
	else if (strcmp(argv[1], "apply") == 0 && args == 2 && o.record)
		r = apply(&o, argv[2], &e);
	else
		r = err_set(&e, -EINVAL,
			"%s: serve --image FILE DIR, list --record FILE or apply --record FILE "
			"IMAGE",
			argv[1]);
	if (r < 0)
		fprintf(stderr, "recorddisk: %s\n", e.text);
	return r < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}
