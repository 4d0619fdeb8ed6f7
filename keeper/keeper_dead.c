/*
 * A mount whose daemon does not come back. For --dead-after its readers wait; then the keeper itself
 * answers EIO: to what the last daemon left in its slots, and to what the kernel asks from then on,
 * until a daemon serves. A reader that could wait for ever holds up a shutdown.
 *
 * The slots are touched only while no daemon runs. What is read here goes into a slot of the keeper's
 * own, in the head of the same memory: were it killed between read and answer, the next one answers.
 */
#include "keeper/keeper.h"
#include "base/log.h"
#include "mount/request.h"
#include "mount/slots.h"

#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/pidfd.h>
#include <unistd.h>

#define REFUSED_AT_ONCE 256u /* then other mounts have their turn */

/* ---- answers --------------------------------------------------------------------------------- */

static void answer_eio(struct mount *mount, const void *data, size_t len)
{
	const struct fuse_out_header head = {
		.len = sizeof(head), .error = -EIO, .unique = request_unique_of_refused(data, len)
	};

	if (head.unique == 0)
		return; /* nobody waits for an answer */
	mount->refused++;
	if (write(mount->fds.fuse, &head, sizeof(head)) < 0 && errno != ENOENT)
		LOG_LIMITED(LOG_WARN, "answer refused by the kernel", "mountpoint=\"%s\" error=%s",
			mount->mountpoint, err_name(err_errno()));
}

/* The head of its slots, to be unmapped; NULL: there is none yet. */
static unsigned char *map_head(const struct mount *mount)
{
	void *head;

	if (lseek(mount->fds.slots, 0, SEEK_END) < (off_t)SLOTS_HEAD_BYTES)
		return NULL;
	head = mmap(
		NULL, SLOTS_HEAD_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, mount->fds.slots, 0);
	return head == MAP_FAILED ? NULL : head;
}

/* The first word of a request is its length: 0 says that the slot is free. */
static void refuse_in(struct mount *mount, unsigned char *spare)
{
	_Atomic uint32_t *word = (_Atomic uint32_t *)(void *)spare;
	uint32_t len = min(atomic_load(word), SLOT_BYTES);

	if (len)
		answer_eio(mount, spare, len);
	atomic_store(word, 0);
}

void mount_refuse_spare(struct mount *mount)
{
	unsigned char *head = mount->fds.slots >= 0 ? map_head(mount) : NULL;

	if (!head)
		return;
	refuse_in(mount, head + SLOTS_SPARE_BYTE);
	(void)munmap(head, SLOTS_HEAD_BYTES); /* just mapped */
}

void mount_refuse(struct mount *mount)
{
	unsigned char *head = map_head(mount);

	for (unsigned int i = 0; head && i < REFUSED_AT_ONCE; i++) {
		unsigned char *spare = head + SLOTS_SPARE_BYTE;

		if (read(mount->fds.fuse, spare, SLOT_BYTES) > 0) {
			refuse_in(mount, spare);
			continue;
		}
		if (errno == EINTR || errno == ENOENT)
			continue;
		mount->lost = errno != EAGAIN;
		break;
	}
	if (head)
		(void)munmap(head, SLOTS_HEAD_BYTES); /* just mapped */
}

static void refuse_left(struct mount *mount)
{
	struct err e = ERR_INIT;
	struct slots *slots = NULL;
	uint32_t blame;
	uint32_t slot;

	if (slots_open(mount->fds.slots, &slots, &e) < 0) {
		LOG_LIMITED(LOG_ERROR, "slots not opened", "mountpoint=\"%s\" why=\"%s\"",
			mount->mountpoint, e.text);
		return;
	}
	while (slots_take_left(slots, &slot, &blame) == 0) {
		answer_eio(mount, slot_data(slots, slot), slot_len(slots, slot));
		(void)!slot_move(slots, slot, SLOT_READING, SLOT_FREE); /* it was taken so */
	}
	slots_free(slots);
}

/* ---- when ------------------------------------------------------------------------------------ */

/* It had a daemon, and is to have one again. */
static bool bereft(const struct mount *mount)
{
	const struct child *c = &mount->child;

	return mount->state == MOUNT_ACTIVE && c->served && mount->fds.fuse >= 0 &&
	       mount->fds.slots >= 0 && (c->state == CHILD_WAITING || c->state == CHILD_STARTING);
}

static void begin_refusing(struct mount *mount)
{
	int flags = fcntl(mount->fds.fuse, F_GETFL);

	(void)fcntl(mount->fds.fuse, F_SETFL, flags | O_NONBLOCK); /* as its daemons do */
	mount->dead = true;
	mount->left_refused = false;
	log_error("no daemon serves", "mountpoint=\"%s\" next=\"its readers get EIO\" why=\"%s\"",
		mount->mountpoint, mount->child.failure.text);
}

void mount_look_dead(struct keeper *k, struct mount *mount)
{
	const struct child *c = &mount->child;
	uint64_t now = clock_mono_ns();

	if (!bereft(mount)) {
		if (mount->dead)
			log_info("a daemon serves again", "mountpoint=\"%s\" refused=%" PRIu64,
				mount->mountpoint, mount->refused);
		mount->dead_since = 0;
		mount->dead = false;
		return;
	}
	if (mount->dead_since == 0)
		mount->dead_since = now;
	if (!mount->dead && now - mount->dead_since >= k->config->dead_after_ns)
		begin_refusing(mount);
	if (!mount->dead)
		return;
	if (c->state == CHILD_STARTING) {
		mount->left_refused = false; /* it may leave some too */
		if (now - c->since_ns >= k->config->dead_after_ns)
			(void)pidfd_send_signal(c->pidfd, SIGKILL, NULL, 0); /* it hangs; or gone */
	} else if (!mount->left_refused) {
		refuse_left(mount);
		mount->left_refused = true;
	}
}

uint64_t mount_dead_due(const struct keeper *k, const struct mount *mount)
{
	uint64_t due;

	if (mount->dead_since == 0)
		return 0;
	if (!mount->dead)
		return mount->dead_since + k->config->dead_after_ns;
	due = mount->child.since_ns + k->config->dead_after_ns;
	/* Killed already: its end is seen, or it is looked at again in a second. */
	return mount->child.state == CHILD_STARTING && due > clock_mono_ns() ? due : 0;
}
