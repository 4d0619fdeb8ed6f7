#include "tests/unit/fuse/synthetic.h"

#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>

#define SYNTHETIC_SLOW_NS (100 * CLOCK_MS)

static uint64_t synthetic_word(uint64_t offset)
{
	uint64_t x = offset / 8 * 0x9E3779B97F4A7C15ull;

	x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
	return x ^ (x >> 31);
}

void synthetic_fill(uint64_t offset, uint32_t length, void *buf)
{
	uint64_t *words = buf;

	for (uint32_t i = 0; i < length / 8; i++)
		words[i] = synthetic_word(offset + 8 * (uint64_t)i);
}

/* Wakes all processes that await_change(). A futex: one that is killed while it waits leaves nothing behind. */
static void say_change(_Atomic uint32_t *changes)
{
	atomic_fetch_add(changes, 1);
	(void)syscall(SYS_futex, changes, FUTEX_WAKE, INT_MAX, NULL, NULL, 0); /* always valid */
}

/* Returns when it is not `seen` any more, or earlier. */
static void await_change(_Atomic uint32_t *changes, uint32_t seen)
{
	(void)syscall(SYS_futex, changes, FUTEX_WAIT, seen, NULL, NULL, 0);
}

static bool synthetic_in(struct synthetic_range *r, uint64_t offset, uint32_t length)
{
	return offset < atomic_load(&r->to) && atomic_load(&r->from) < offset + length;
}

static int synthetic_read_local(struct reader *reader, uint64_t offset, uint32_t length, void *buf)
{
	struct synthetic *s = container_of(reader, struct synthetic, reader);

	assert_true(length <= LIMIT_PAYLOAD_BYTES);
	if (synthetic_in(&s->control->kill, offset, length))
		(void)kill(getpid(), SIGKILL);
	if (synthetic_in(&s->control->slow, offset, length))
		test_advance(SYNTHETIC_SLOW_NS);
	if (synthetic_in(&s->control->stall, offset, length) ||
		synthetic_in(&s->control->fail, offset, length) ||
		synthetic_in(&s->control->later, offset, length))
		return -EAGAIN;
	if (atomic_load(&s->control->hanging) > 0)
		return -EAGAIN;
	for (uint32_t seen = atomic_load(&s->control->changes);
		synthetic_in(&s->control->hang, offset, length);
		seen = atomic_load(&s->control->changes))
		await_change(&s->control->changes, seen);
	synthetic_fill(offset, length, buf);
	atomic_store(&s->last, buf);
	return 0;
}

static void synthetic_hangs(struct reader *reader, bool now)
{
	struct synthetic *s = container_of(reader, struct synthetic, reader);

	if (now)
		atomic_fetch_add(&s->control->hanging, 1);
	else
		atomic_fetch_sub(&s->control->hanging, 1);
}

static void synthetic_read(struct reader *reader, struct client_read *read)
{
	struct synthetic *s = container_of(reader, struct synthetic, reader);

	assert_true(read->length <= LIMIT_PAYLOAD_BYTES);
	pthread_mutex_lock(&s->lock);
	list_push_back(&s->parked, &read->link);
	pthread_mutex_unlock(&s->lock);
	atomic_fetch_add(&s->control->reads, 1);
	say_change(&s->control->changes);
}

static void synthetic_cancel(struct reader *reader, struct client_read *read)
{
	struct synthetic *s = container_of(reader, struct synthetic, reader);
	bool mine = false;

	atomic_fetch_add(&s->control->cancels, 1);
	pthread_mutex_lock(&s->lock);
	if (!list_empty(&read->link)) {
		list_remove(&read->link);
		mine = true;
	}
	pthread_mutex_unlock(&s->lock);
	if (mine)
		read->on_done(read, -ECANCELED, NULL);
}

static void synthetic_note(struct reader *reader, uint64_t offset, uint32_t length)
{
	struct synthetic *s = container_of(reader, struct synthetic, reader);

	(void)offset;
	(void)length;
	atomic_fetch_add(&s->control->notes, 1);
}

static const struct reader_ops synthetic_ops = {
	.read_local = synthetic_read_local,
	.hangs = synthetic_hangs,
	.read = synthetic_read,
	.cancel = synthetic_cancel,
	.note = synthetic_note,
};

/* The first parked read that is not stalled (any more), unlinked. */
static struct client_read *synthetic_next(struct synthetic *s)
{
	struct client_read *found = NULL;

	pthread_mutex_lock(&s->lock);
	list_for_each (node, &s->parked) {
		struct client_read *read = list_entry(node, struct client_read, link);

		if (!synthetic_in(&s->control->stall, read->offset, read->length)) {
			list_remove(&read->link);
			found = read;
			break;
		}
	}
	pthread_mutex_unlock(&s->lock);
	return found;
}

static void *synthetic_main(void *arg)
{
	struct synthetic *s = arg;
	void *buf = malloc(LIMIT_PAYLOAD_BYTES);
	struct client_read *read;

	while (!atomic_load(&s->ending)) {
		while ((read = synthetic_next(s)) != NULL) {
			if (synthetic_in(&s->control->fail, read->offset, read->length)) {
				read->on_done(read, -ESTALE, NULL);
				continue;
			}
			synthetic_fill(read->offset, read->length, buf);
			read->on_done(read, 0, buf);
		}
		test_advance(CLOCK_MS);
	}
	free(buf);
	return NULL;
}

struct synthetic_control *synthetic_control_new(void)
{
	struct synthetic_control *c =
		mmap(NULL, sizeof(*c), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	assert_true(c != MAP_FAILED);
	c->stall.changes = c->fail.changes = c->later.changes = &c->changes;
	c->hang.changes = c->slow.changes = c->kill.changes = &c->changes;
	return c;
}

void synthetic_start(struct synthetic *s, struct synthetic_control *control)
{
	memset(s, 0, sizeof(*s));
	s->reader.ops = &synthetic_ops;
	s->control = control;
	pthread_mutex_init(&s->lock, NULL);
	list_init(&s->parked);
	assert_int_equal(pthread_create(&s->thread, NULL, synthetic_main, s), 0);
}

void synthetic_stop(struct synthetic *s)
{
	atomic_store(&s->ending, true);
	say_change(&s->control->changes);
	pthread_join(s->thread, NULL);
	assert_true(list_empty(&s->parked));
	pthread_mutex_destroy(&s->lock);
}

void synthetic_set(struct synthetic_range *r, uint64_t from, uint64_t to)
{
	atomic_store(&r->to, 0);
	atomic_store(&r->from, from);
	atomic_store(&r->to, to);
	say_change(r->changes);
}
