/* Requests in memory that outlives a crash. See slots.h. */
#include "mount/slots.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/crash_point.h"
#include "base/limits.h"
#include "base/log.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/pidfd.h>
#include <sys/stat.h>
#include <unistd.h>

#define SLOTS_MAGIC        0x31544F4C53524E47ull /* "GNRSLOT1" */
#define SLOTS_VERSION      3u
#define SLOTS_OBJ_MAGIC    0x510751A5u
#define STATE_BITS         4u
#define STATE_MASK         ((1u << STATE_BITS) - 1)
#define SLOTS_FIRST_BYTE   8192u /* of the blame in the head */
#define SLOTS_SOURCES_BYTE 16384u
#define SLOTS_LIVE_BYTE    32768u
#define CLAIM_NS           (10 * CLOCK_SECOND)
#define SLOTS_STEP         SLOTS_MIN /* that get their memory together */

struct slots_head {
	uint64_t magic;
	uint32_t version;
	uint32_t count;
	_Atomic uint32_t phase; /* enum slots_phase */
	_Atomic uint32_t
		handed; /* whoever had it last took nothing on any more, and left on purpose */
	_Atomic uint64_t counters[SLOTS_COUNTERS];
	struct slots_mount mount;
	struct slots_switch switched;
};

static_assert(sizeof(struct slots_head) <= SLOTS_FIRST_BYTE, "the blame follows the head");
static_assert(SLOTS_FIRST_BYTE + 2 * LIMIT_FUSE_SLOTS <= SLOTS_SOURCES_BYTE, "two bytes per slot");
static_assert(SLOTS_SOURCES_BYTE + sizeof(struct slots_sources) <= SLOTS_LIVE_BYTE,
	"the sources end before a switch");
static_assert(SLOTS_LIVE_BYTE + sizeof(struct slots_live) <= SLOTS_SPARE_BYTE,
	"a switch ends before the keeper's slot");

struct slots {
	uint32_t magic;
	uint32_t count;
	struct slots_head *head;
	uint8_t *blame; /* per slot, in the memfd */
	uint8_t *waits; /* likewise: HELD */
	unsigned char *data;
	size_t mapped;
	pthread_mutex_t lock;
	pthread_cond_t freed;
	uint32_t *
		free; /* stack: the last used is the warmest; those without memory are at the bottom */
	uint32_t n_free;
	_Atomic uint32_t populated; /* slots from 0 on that have memory */
	uint32_t waiting;           /* threads in slots_take() */
	uint32_t *left; /* slots that were full when the memory was opened, the lowest last */
	uint32_t n_left;
	bool stopped;
	bool handed; /* it was when this was opened */
	_Atomic uint32_t held;
	_Atomic uint32_t peak;
	_Atomic uint32_t word[]; /* per slot: times taken << STATE_BITS | enum slot_state */
};

/* Rows: from. What a state may become. */
static const uint8_t allowed[SLOT_STATES] = {
	[SLOT_FREE] = 1 << SLOT_READING,
	[SLOT_READING] = 1 << SLOT_FREE | 1 << SLOT_HELD | 1 << SLOT_ANSWERING,
	[SLOT_HELD] = 1 << SLOT_READING | 1 << SLOT_ANSWERING,
	[SLOT_ANSWERING] = 1 << SLOT_FREE,
};

static int size_memory(int fd, uint64_t *ret_size, struct err *e)
{
	struct stat st;

	if (fstat(fd, &st) != 0)
		return err_set(e, err_errno(),
			"the slots' descriptor %d cannot be used: %m: unmount and mount again", fd);
	if (st.st_size == 0) {
		st.st_size = SLOTS_HEAD_BYTES + (off_t)LIMIT_FUSE_SLOTS * SLOT_BYTES;
		if (ftruncate(fd, st.st_size) != 0)
			return err_set(e, err_errno(), "no memory for the slots: %m");
	}
	if (st.st_size < (off_t)(SLOTS_HEAD_BYTES + SLOTS_MIN * SLOT_BYTES))
		return err_set(e, -EINVAL,
			"the slots' memory is too small: %lld bytes: unmount and mount again",
			(long long)st.st_size);
	*ret_size = (uint64_t)st.st_size;
	return 0;
}

static int check_head(struct slots *slots, struct err *e)
{
	struct slots_head *head = slots->head;

	if (head->magic == 0) {
		head->version = SLOTS_VERSION;
		head->count = slots->count;
		head->magic = SLOTS_MAGIC;
		return 0;
	}
	if (head->magic != SLOTS_MAGIC || head->version != SLOTS_VERSION)
		return err_set(e, -EPROTONOSUPPORT,
			"the slots' memory is of another version of cachefuse: unmount and mount "
			"again");
	if (head->count != slots->count)
		return err_set(
			e, -EINVAL, "the slots' memory changed its size: unmount and mount again");
	return 0;
}

/* A version that knew of one source only began with these. */
static void adopt_sources(struct slots *slots)
{
	const struct slots_mount *m = &slots->head->mount;
	struct slots_sources *sources = slots_sources(slots);

	if (atomic_load(&slots->head->phase) == SLOTS_NEW || sources->layout.n > 0)
		return;
	sources->all[0] = (struct slots_source){
		.volume = m->volume, .lineage = m->lineage, .generation = m->generation
	};
	memcpy(sources->all[0].hash, m->hash, sizeof(m->hash));
	sources->layout = (struct layout_sources){ .n = 1 };
}

/* A page fault inside the kernel's copy of a request would fail it with EIO if there was no memory then. */
static int populate(struct slots *slots, size_t from, size_t end)
{
	if (madvise((unsigned char *)slots->head + from, end - from, MADV_POPULATE_WRITE) == 0)
		return 0;
	LOG_LIMITED(LOG_WARN, "no memory for the requests of a mount",
		"error=%s next=\"continues; a request may fail with EIO\"", err_name(err_errno()));
	return err_errno();
}

/* How many slots from 0 on can have a request that a predecessor left. */
static uint32_t count_used(int fd, const struct slots *slots)
{
	off_t data = 0, hole = 0;

	while ((data = lseek(fd, hole, SEEK_DATA)) >= 0 && (hole = lseek(fd, data, SEEK_HOLE)) >= 0)
		;
	if (hole < 0 || errno != ENXIO)
		return slots->count; /* not known */
	hole = max(hole - (off_t)SLOTS_HEAD_BYTES, (off_t)0);
	return (uint32_t)min(
		(uint64_t)(hole + SLOT_BYTES - 1) / SLOT_BYTES, (uint64_t)slots->count);
}

/* What was used, and some slots more: the others when they are taken. */
static void populate_first(struct slots *slots, int fd)
{
	uint32_t n = max(count_used(fd, slots), SLOTS_STEP);

	if (populate(slots, 0, SLOTS_HEAD_BYTES + (size_t)n * SLOT_BYTES) == -EINVAL) {
		/* Before Linux 5.14: all at once. It is the same memory at the same place. */
		(void)mmap(slots->head, slots->mapped, PROT_READ | PROT_WRITE,
			MAP_SHARED | MAP_POPULATE | MAP_FIXED, fd, 0);
		n = slots->count;
	}
	atomic_store(&slots->populated, n);
}

/* From the end, so that slot 0 comes first. */
static void collect(struct slots *slots)
{
	for (uint32_t i = slots->count; i-- > 0;)
		if (i >= atomic_load(&slots->populated) || slot_len(slots, i) == 0)
			slots->free[slots->n_free++] = i;
		else
			slots->left[slots->n_left++] = i;
}

/* 0: nobody, or somebody who cannot be seen from here. */
static pid_t claimant(int fd)
{
	struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET };

	return fcntl(fd, F_GETLK, &lock) == 0 && lock.l_type != F_UNLCK ? lock.l_pid : 0;
}

static void end_claimant(int fd)
{
	pid_t pid = claimant(fd);
	_cleanup_close_ int pidfd = pid > 0 ? pidfd_open(pid, 0) : -1;

	if (pidfd < 0 || claimant(fd) != pid) /* the number may have been given again meanwhile */
		return;
	LOG_LIMITED(LOG_WARN, "another daemon of this mount is ended", "pid=%d", (int)pid);
	(void)pidfd_send_signal(pidfd, SIGKILL, NULL, 0); /* gone: its claim is, too */
}

/* A lock of the process, not of the open file, which all daemons of a mount have in common. */
int slots_claim(int fd, struct err *e)
{
	const struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
	uint64_t deadline = clock_mono_ns() + CLAIM_NS;

	while (fcntl(fd, F_SETLK, &lock) != 0) {
		if (errno != EAGAIN && errno != EACCES)
			return err_set(e, err_errno(),
				"the slots' descriptor %d cannot be used: %m: unmount and mount "
				"again",
				fd);
		if (clock_mono_ns() > deadline)
			return err_set(e, -EBUSY,
				"another daemon serves this mount and does not end: process %d",
				(int)claimant(fd));
		end_claimant(fd);
		clock_sleep_ns(CLOCK_MS);
	}
	return 0;
}

int slots_open(int fd, struct slots **ret_slots, struct err *e)
{
	uint64_t size = 0;
	uint64_t count;
	struct slots *slots;
	void *memory;
	int r = size_memory(fd, &size, e);

	if (r < 0)
		return r;
	count = min((size - SLOTS_HEAD_BYTES) / SLOT_BYTES, (uint64_t)LIMIT_FUSE_SLOTS);
	memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (memory == MAP_FAILED)
		return err_set(
			e, err_errno(), "the slots' memory cannot be mapped: %m: free some memory");
	slots = calloc(1, sizeof(*slots) + count * sizeof(slots->word[0]));
	if (slots) {
		slots->free = calloc(count, sizeof(slots->free[0]));
		slots->left = calloc(count, sizeof(slots->left[0]));
	}
	if (!slots || !slots->free || !slots->left) {
		(void)munmap(memory, size); /* just mapped */
		if (slots) {
			free(slots->free);
			free(slots->left);
		}
		free(slots);
		return err_set(e, -ENOMEM, "out of memory");
	}
	slots->magic = SLOTS_OBJ_MAGIC;
	slots->count = (uint32_t)count;
	slots->mapped = size;
	slots->head = memory;
	slots->blame = (uint8_t *)memory + SLOTS_FIRST_BYTE;
	slots->waits = slots->blame + LIMIT_FUSE_SLOTS;
	slots->data = (unsigned char *)memory + SLOTS_HEAD_BYTES;
	pthread_mutex_init(&slots->lock, NULL);
	pthread_cond_init(&slots->freed, NULL);
	populate_first(slots, fd);
	r = check_head(slots, e);
	if (r < 0) {
		slots_free(slots);
		return r;
	}
	slots->handed = atomic_exchange(&slots->head->handed, 0) != 0;
	adopt_sources(slots);
	collect(slots);
	*ret_slots = slots;
	return 0;
}

void slots_free(struct slots *slots)
{
	if (!slots)
		return;
	CHECK_MAGIC(slots, SLOTS_OBJ_MAGIC);
	slots->magic = 0;
	(void)munmap(slots->head, slots->mapped); /* mapped by slots_open() */
	pthread_cond_destroy(&slots->freed);
	pthread_mutex_destroy(&slots->lock);
	free(slots->free);
	free(slots->left);
	free(slots);
}

uint32_t slots_count(const struct slots *slots)
{
	return slots->count;
}

enum slots_phase slots_phase(const struct slots *slots)
{
	return (enum slots_phase)atomic_load(&slots->head->phase);
}

void slots_set_phase(struct slots *slots, enum slots_phase phase)
{
	ensure(slots_phase(slots) <= phase);
	CRASH_POINT("mount.step");
	atomic_store(&slots->head->phase, (uint32_t)phase);
	CRASH_POINT("mount.stepped");
}

void slots_hand_over(struct slots *slots)
{
	atomic_store(&slots->head->handed, 1);
}

bool slots_were_handed(const struct slots *slots)
{
	return slots->handed;
}

struct slots_mount *slots_mount(struct slots *slots)
{
	return &slots->head->mount;
}

struct slots_sources *slots_sources(struct slots *slots)
{
	return (struct slots_sources *)(void *)((unsigned char *)slots->head + SLOTS_SOURCES_BYTE);
}

struct slots_live *slots_live(struct slots *slots)
{
	return (struct slots_live *)(void *)((unsigned char *)slots->head + SLOTS_LIVE_BYTE);
}

struct slots_switch *slots_switch(struct slots *slots)
{
	return &slots->head->switched;
}

void *slots_counters(struct slots *slots)
{
	return slots->head->counters;
}

void *slot_data(struct slots *slots, uint32_t slot)
{
	ensure(slot < slots->count);
	return slots->data + (size_t)slot * SLOT_BYTES;
}

/* The kernel writes the word too, by a system call of the thread that owns the slot. */
static _Atomic uint32_t *len_word(struct slots *slots, uint32_t slot)
{
	return slot_data(slots, slot);
}

uint32_t slot_len(struct slots *slots, uint32_t slot)
{
	return min(atomic_load(len_word(slots, slot)), SLOT_BYTES);
}

uint32_t slot_ticket(struct slots *slots, uint32_t slot)
{
	ensure(slot < slots->count);
	return atomic_load(&slots->word[slot]) >> STATE_BITS;
}

enum slot_state slot_state(struct slots *slots, uint32_t slot)
{
	ensure(slot < slots->count);
	return (enum slot_state)(atomic_load(&slots->word[slot]) & STATE_MASK);
}

static void count_held(struct slots *slots)
{
	uint32_t held = atomic_fetch_add(&slots->held, 1) + 1;
	uint32_t peak = atomic_load(&slots->peak);

	while (held > peak && !atomic_compare_exchange_weak(&slots->peak, &peak, held))
		;
}

static void put_free(struct slots *slots, uint32_t slot)
{
	pthread_mutex_lock(&slots->lock);
	slots->free[slots->n_free++] = slot;
	if (slots->waiting)
		pthread_cond_signal(&slots->freed);
	pthread_mutex_unlock(&slots->lock);
}

static bool move_word(struct slots *slots, uint32_t slot, uint32_t word, enum slot_state to)
{
	enum slot_state from = (enum slot_state)(word & STATE_MASK);
	uint32_t ticket = (word >> STATE_BITS) + (to == SLOT_READING);

	if (to == SLOT_ANSWERING)
		CRASH_POINT("slot.answering");
	if (to == SLOT_FREE)
		CRASH_POINT("slot.answered");
	if (to == SLOT_FREE) /* before the state: nobody else may have the slot yet */
		atomic_store(len_word(slots, slot), 0);
	if (to == SLOT_HELD)
		CRASH_POINT("slot.held");
	if (to == SLOT_HELD) /* likewise */
		slots->waits[slot] = 1;
	if (!atomic_compare_exchange_strong(
		    &slots->word[slot], &word, ticket << STATE_BITS | (uint32_t)to))
		return false;
	if (from == SLOT_HELD)
		slots->waits[slot] = 0;
	if (to == SLOT_HELD)
		count_held(slots);
	if (from == SLOT_HELD)
		atomic_fetch_sub(&slots->held, 1);
	if (to == SLOT_FREE)
		put_free(slots, slot);
	return true;
}

/* Only HELD is contended (who answers?); whoever is in another state has the slot alone. */
bool slot_move(struct slots *slots, uint32_t slot, enum slot_state from, enum slot_state to)
{
	uint32_t word;

	CHECK_MAGIC(slots, SLOTS_OBJ_MAGIC);
	ensure(slot < slots->count && (allowed[from] & 1 << to));
	word = atomic_load(&slots->word[slot]);
	return (word & STATE_MASK) == from && move_word(slots, slot, word, to);
}

bool slot_move_ticket(struct slots *slots, uint32_t slot, uint32_t ticket, enum slot_state from,
	enum slot_state to)
{
	uint32_t word = ticket << STATE_BITS | (uint32_t)from;

	CHECK_MAGIC(slots, SLOTS_OBJ_MAGIC);
	ensure(slot < slots->count && (allowed[from] & 1 << to));
	return move_word(slots, slot, word, to);
}

/* Slots are taken from 0 on, so all below have memory, or their takers are here as well. */
static void populate_slot(struct slots *slots, uint32_t slot)
{
	uint32_t from = atomic_load(&slots->populated);
	uint32_t end = min(slot - slot % SLOTS_STEP + SLOTS_STEP, slots->count);

	if (slot < from || populate(slots, SLOTS_HEAD_BYTES + (size_t)from * SLOT_BYTES,
				   SLOTS_HEAD_BYTES + (size_t)end * SLOT_BYTES) < 0)
		return;
	while (from < end && !atomic_compare_exchange_weak(&slots->populated, &from, end))
		;
}

int slots_take(struct slots *slots, uint32_t *ret_slot)
{
	uint32_t slot;

	pthread_mutex_lock(&slots->lock);
	while (slots->n_free == 0 && !slots->stopped) {
		slots->waiting++;
		pthread_cond_wait(&slots->freed, &slots->lock);
		slots->waiting--;
	}
	if (slots->stopped) {
		pthread_mutex_unlock(&slots->lock);
		return -EAGAIN;
	}
	slot = slots->free[--slots->n_free];
	pthread_mutex_unlock(&slots->lock);
	populate_slot(slots, slot);
	slots->blame[slot] = 0;
	slots->waits[slot] = 0;
	atomic_store(len_word(slots, slot), 0);
	ensure(slot_move(slots, slot, SLOT_FREE, SLOT_READING));
	*ret_slot = slot;
	return 0;
}

void slots_wake(struct slots *slots)
{
	pthread_mutex_lock(&slots->lock);
	slots->stopped = true;
	pthread_cond_broadcast(&slots->freed);
	pthread_mutex_unlock(&slots->lock);
}

int slots_take_left(struct slots *slots, uint32_t *ret_slot, uint32_t *ret_blame)
{
	uint32_t slot;
	uint32_t blame;

	pthread_mutex_lock(&slots->lock);
	if (slots->n_left == 0) {
		pthread_mutex_unlock(&slots->lock);
		return -ENOENT;
	}
	slot = slots->left[--slots->n_left];
	pthread_mutex_unlock(&slots->lock);
	blame = slots->blame[slot];
	if (!slots->handed)
		blame += slots->waits[slot] ? SLOTS_BLAME_WAITED : SLOTS_BLAME_HANDLED;
	slots->blame[slot] = (uint8_t)min(blame, (uint32_t)UINT8_MAX);
	slots->waits[slot] = 0;
	ensure(slot_move(slots, slot, SLOT_FREE, SLOT_READING));
	*ret_blame = slots->blame[slot];
	*ret_slot = slot;
	return 0;
}

void slots_use(struct slots *slots, struct slots_use *ret_use)
{
	ret_use->max = slots->count;
	ret_use->held = atomic_load(&slots->held);
	ret_use->peak = atomic_load(&slots->peak);
}
