/* Holding descriptors for who dies. See hold.h. */
#include "fuse/hold.h"
#include "base/capabilities.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/hash.h"
#include "fuse/mounter_wire.h"

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define HOLD_NAME  "granary-hold"
#define SOCKET_AT  3 /* numbers in the holder */
#define BOOK_AT    4
#define SETTLES_NS (5 * CLOCK_SECOND) /* to begin, and to take what was sent */

struct hold_book {
	uint64_t token;
	_Atomic uint32_t begun;   /* it has the numbers below */
	_Atomic uint32_t settled; /* its owner is gone, and all that it sent is here */
	_Atomic int32_t fds[HOLD_PLACES][HOLD_FDS]; /* numbers in the holder; -1: none */
	_Atomic uint64_t holds_ns;                  /* without an owner */
};

struct hold_message {
	uint32_t place;
	uint32_t has; /* bits: which of the descriptors come; 0: the place is dropped */
};

/* ---- the holder: only system calls, as its owner may have threads ---------------------------- */

static void close_place(struct hold_book *book, uint32_t place)
{
	for (unsigned int i = 0; i < HOLD_FDS; i++) {
		int fd = atomic_exchange(&book->fds[place][i], -1);

		if (fd >= 0)
			(void)close(fd); /* a duplicate */
	}
}

static void take(struct hold_book *book, const struct hold_message *message,
	const int fds[MOUNTER_FDS_MAX], uint32_t n_fds)
{
	uint32_t at = 0;

	if (message->place < HOLD_PLACES)
		close_place(book, message->place);
	for (unsigned int i = 0; i < HOLD_FDS && message->place < HOLD_PLACES; i++)
		if (message->has & 1u << i && at < n_fds)
			atomic_store(&book->fds[message->place][i], fds[at++]);
	while (at < n_fds)
		(void)close(fds[at++]); /* a duplicate */
}

/* Until the owner is gone. */
static void serve(struct hold_book *book)
{
	struct pollfd p = { .fd = SOCKET_AT, .events = POLLIN };
	int r;

	do {
		struct hold_message message;
		int fds[MOUNTER_FDS_MAX];
		uint32_t n_fds = 0;

		(void)poll(&p, 1, -1); /* EINTR: looks */
		r = mounter_receive(SOCKET_AT, &message, sizeof(message), fds, &n_fds);
		if (r == 0)
			take(book, &message, fds, n_fds);
	} while (r == 0 || r == -EAGAIN || r == -EBADMSG);
}

/* A connection that is gone says so, whatever is asked for; a descriptor that is none never does. */
static uint32_t drop_gone(struct hold_book *book, struct pollfd polls[HOLD_PLACES])
{
	uint32_t left = 0;

	for (uint32_t place = 0; place < HOLD_PLACES; place++) {
		int fd = atomic_load(&book->fds[place][0]);

		polls[place] = (struct pollfd){ .fd = fd };
		if (fd < 0)
			continue;
		if (poll(&polls[place], 1, 0) == 1 && polls[place].revents & (POLLERR | POLLHUP)) {
			close_place(book, place);
			polls[place].fd = -1;
		}
		left += polls[place].fd >= 0;
	}
	return left;
}

_Noreturn static void holder_main(int socket, int memory, struct hold_book *book)
{
	struct pollfd polls[HOLD_PLACES];
	uint64_t deadline;
	sigset_t all;
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	sigfillset(&all);
	(void)sigprocmask(SIG_SETMASK, &all, NULL); /* its owner ends it, by SIGKILL */
	(void)setsid();
	(void)prctl(PR_SET_NAME, HOLD_NAME);
	/* Above the numbers to be: the two may lie where the other is to go. */
	socket = fcntl(socket, F_DUPFD_CLOEXEC, BOOK_AT + 1);
	memory = fcntl(memory, F_DUPFD_CLOEXEC, BOOK_AT + 1);
	if (socket < 0 || memory < 0 || dup2(socket, SOCKET_AT) < 0 || dup2(memory, BOOK_AT) < 0)
		_exit(1);
	for (int fd = 0; fd < SOCKET_AT; fd++)
		(void)dup2(null, fd);
	(void)close_range(BOOK_AT + 1, UINT_MAX, 0);
	(void)prctl(
		PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0); /* the next owner's is no parent */
	if (geteuid() == 0 && capabilities_keep(0) < 0)
		_exit(1);
	atomic_store(&book->begun, 1);
	serve(book);
	atomic_store(&book->settled, 1);
	deadline = clock_mono_ns() + atomic_load(&book->holds_ns);
	while (drop_gone(book, polls) > 0) {
		uint64_t now = clock_mono_ns();

		if (now >= deadline)
			break;
		(void)poll(polls, HOLD_PLACES, (int)((deadline - now) / CLOCK_MS) + 1);
	}
	_exit(0);
}

/* ---- its owner ------------------------------------------------------------------------------- */

static int open_book(struct hold *hold, int *ret_memory)
{
	int memory = memfd_create(HOLD_NAME, MFD_CLOEXEC);
	void *map = MAP_FAILED;
	int r;

	if (memory >= 0 && ftruncate(memory, sizeof(struct hold_book)) == 0)
		map = mmap(NULL, sizeof(struct hold_book), PROT_READ | PROT_WRITE, MAP_SHARED,
			memory, 0);
	if (map == MAP_FAILED) {
		r = err_errno();
		cleanup_close(&memory);
		return r;
	}
	hold->book = map;
	hash_random(&hold->token, sizeof(hold->token));
	hold->token >>= 1; /* JSON has signed numbers */
	hold->book->token = hold->token;
	for (uint32_t place = 0; place < HOLD_PLACES; place++)
		for (unsigned int i = 0; i < HOLD_FDS; i++)
			atomic_init(&hold->book->fds[place][i], -1);
	*ret_memory = memory;
	return 0;
}

static bool await(const _Atomic uint32_t *flag)
{
	uint64_t deadline = clock_mono_ns() + SETTLES_NS;

	while (!atomic_load(flag)) {
		if (clock_mono_ns() > deadline)
			return false;
		clock_sleep_ns(CLOCK_MS / 4);
	}
	return true;
}

int hold_begin(struct hold *hold, uint64_t holds_ns)
{
	_cleanup_close_ int memory = -1;
	int ends[2];
	int r;

	*hold = (struct hold){ .socket = -1 };
	r = open_book(hold, &memory);
	if (r < 0)
		return r;
	atomic_init(&hold->book->holds_ns, holds_ns);
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
		r = err_errno();
		hold_end(hold);
		return r;
	}
	hold->pid = fork();
	if (hold->pid == 0)
		holder_main(ends[1], memory, hold->book);
	r = hold->pid < 0 ? err_errno() : 0;
	hold->socket = ends[0];
	(void)close(ends[1]); /* the holder's */
	if (r == 0 && !await(&hold->book->begun))
		r = -ETIMEDOUT;
	if (r < 0)
		hold_end(hold);
	return r;
}

void hold_set_time(struct hold *hold, uint64_t holds_ns)
{
	if (hold->book)
		atomic_store(&hold->book->holds_ns, holds_ns);
}

void hold_end(struct hold *hold)
{
	if (hold->pid > 0) {
		(void)kill(hold->pid, SIGKILL); /* our child: nobody else has its number */
		(void)waitpid(hold->pid, NULL, 0);
	}
	if (hold->book)
		(void)munmap(hold->book, sizeof(*hold->book)); /* just what was mapped */
	if (hold->socket >= 0)
		(void)close(hold->socket); /* nothing is written any more */
	*hold = (struct hold){ .socket = -1 };
}

bool hold_lost(struct hold *hold)
{
	if (hold->pid <= 0 || waitpid(hold->pid, NULL, WNOHANG) != hold->pid)
		return false;
	hold->pid = 0;
	hold_end(hold);
	return true;
}

int hold_put(struct hold *hold, unsigned int place, const int fds[HOLD_FDS])
{
	struct hold_message message = { .place = place };
	int sent[HOLD_FDS];
	uint32_t n = 0;

	ensure(place < HOLD_PLACES);
	for (unsigned int i = 0; i < HOLD_FDS; i++) {
		if (fds[i] < 0)
			continue;
		message.has |= 1u << i;
		sent[n++] = fds[i];
	}
	return hold->pid > 0 ? mounter_send(hold->socket, &message, sizeof(message), sent, n) : 0;
}

void hold_drop(struct hold *hold, unsigned int place)
{
	static const int none[HOLD_FDS] = { -1, -1, -1, -1 };

	if (hold_put(hold, place, none) < 0)
		hold_end(hold); /* better nothing than what must not be kept; it is begun again */
}

/* ---- another's ------------------------------------------------------------------------------- */

int hold_find(pid_t pid, uint64_t token, struct hold_other *ret_other)
{
	_cleanup_close_ int pidfd = pid > 0 ? pidfd_open(pid, 0) : -1;
	_cleanup_close_ int memory = pidfd >= 0 ? pidfd_getfd(pidfd, BOOK_AT, 0) : -1;
	struct hold_book *book = MAP_FAILED;

	*ret_other = (struct hold_other){ .pidfd = -1 };
	if (memory >= 0 && lseek(memory, 0, SEEK_END) == (off_t)sizeof(*book))
		book = mmap(NULL, sizeof(*book), PROT_READ, MAP_SHARED, memory, 0);
	if (book == MAP_FAILED)
		return -ESRCH;
	if (book->token != token || !await(&book->settled)) {
		(void)munmap(book, sizeof(*book)); /* just what was mapped */
		return -ESRCH;
	}
	*ret_other = (struct hold_other){ .pidfd = TAKE_FD(pidfd), .book = book };
	return 0;
}

int hold_take(const struct hold_other *other, unsigned int place, unsigned int which, int *ret_fd)
{
	int number = other->pidfd >= 0 && place < HOLD_PLACES && which < HOLD_FDS
			     ? atomic_load(&other->book->fds[place][which])
			     : -1;
	int fd = number >= 0 ? pidfd_getfd(other->pidfd, number, 0) : -1;

	if (fd < 0)
		return -EBADF;
	*ret_fd = fd;
	return 0;
}

void hold_release(struct hold_other *other)
{
	if (other->pidfd < 0)
		return;
	(void)pidfd_send_signal(other->pidfd, SIGKILL, NULL, 0);  /* or gone */
	(void)waitid(P_PIDFD, (id_t)other->pidfd, NULL, WEXITED); /* where it is our child */
	(void)munmap(other->book, sizeof(*other->book));          /* just what was mapped */
	cleanup_close(&other->pidfd);
	*other = (struct hold_other){ .pidfd = -1 };
}
