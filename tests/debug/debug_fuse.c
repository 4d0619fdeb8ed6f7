/*
 * Linked into the debug cachefuse: a request that kills it. GRANARY_CRASH_DIR/poison, a byte of the
 * volume in decimal digits, is what no daemon survives being asked for: it dies by SIGKILL, each
 * time. While the file is there every other READ takes MEANWHILE, so that others are being handled
 * when that happens.
 *
 * By the linker (--wrap=session_new), as a reader that stands before the mount's own.
 */
#include "base/clock.h"
#include "fuse/session/session.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#define MEANWHILE (10 * CLOCK_MS)

int __real_session_new(
	const struct session_config *config, struct session **ret_session, struct err *e);
int __wrap_session_new(
	const struct session_config *config, struct session **ret_session, struct err *e);

/* One mount per process. */
static struct {
	struct reader reader;
	struct reader *real;
	int dir;
} poisoned = { .dir = -1 };

/* UINT64_MAX: nothing is. */
static uint64_t poisonous_byte(void)
{
	char text[32] = "";
	int fd = openat(poisoned.dir, "poison", O_RDONLY | O_CLOEXEC);
	ssize_t n;

	if (fd < 0)
		return UINT64_MAX;
	n = read(fd, text, sizeof(text) - 1);
	(void)close(fd); /* was only read */
	return n > 0 ? strtoull(text, NULL, 10) : UINT64_MAX;
}

static int read_local(struct reader *reader, uint64_t offset, uint32_t length, void *buf)
{
	uint64_t byte = poisonous_byte();

	(void)reader;
	if (byte >= offset && byte - offset < length)
		(void)kill(getpid(), SIGKILL);
	if (byte != UINT64_MAX)
		clock_sleep_ns(MEANWHILE);
	return poisoned.real->ops->read_local(poisoned.real, offset, length, buf);
}

static void hangs(struct reader *reader, bool now)
{
	(void)reader;
	poisoned.real->ops->hangs(poisoned.real, now);
}

static void read_anywhere(struct reader *reader, struct client_read *read)
{
	(void)reader;
	poisoned.real->ops->read(poisoned.real, read);
}

static void cancel(struct reader *reader, struct client_read *read)
{
	(void)reader;
	poisoned.real->ops->cancel(poisoned.real, read);
}

static void note(struct reader *reader, uint64_t offset, uint32_t length)
{
	(void)reader;
	poisoned.real->ops->note(poisoned.real, offset, length);
}

static const struct reader_ops ops = {
	.read_local = read_local,
	.hangs = hangs,
	.read = read_anywhere,
	.cancel = cancel,
	.note = note,
};

int __wrap_session_new(
	const struct session_config *config, struct session **ret_session, struct err *e)
{
	const char *dir = getenv("GRANARY_CRASH_DIR");
	struct session_config with = *config;

	if (dir)
		poisoned.dir = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (poisoned.dir < 0)
		return __real_session_new(config, ret_session, e);
	poisoned.real = config->reader;
	poisoned.reader.ops = &ops;
	with.reader = &poisoned.reader;
	return __real_session_new(&with, ret_session, e);
}
