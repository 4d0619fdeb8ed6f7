/* The order feed over its socket: what jobs say, what is asked for because of it, and jobs that say
 * nonsense. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/layout.h"
#include "base/little.h"
#include "base/units.h"
#include "base/unix_socket.h"
#include "fuse/order/order_internal.h"
#include "tests/clock/test_clock.h"

#define FILE_ROOM (64u * 1024u) /* of the volume, for each file */
#define FILE_SIZE 50000u
#define ASKED_MAX 100000u
#define WINDOW    (20 * align_up(FILE_SIZE, BLOCK_BYTES))

struct world {
	char dir[64];
	struct order *order;
	uint64_t dev;
	pthread_mutex_t lock;
	uint32_t asked[ASKED_MAX]; /* files, in the order in which they were asked for */
	uint32_t n_asked;
	uint32_t busy; /* so many calls are refused first */
	_Atomic uint64_t capacity;
	_Atomic uint64_t next_dev; /* that the mount is about to have */
	bool all_here;
};

/* "f7" is the seventh file. */
static int find(void *arg, const char *path, uint64_t *ret_offset, uint64_t *ret_size)
{
	(void)arg;
	if (path[0] != 'f')
		return -ENOENT;
	*ret_offset = strtoull(path + 1, NULL, 10) * FILE_ROOM;
	*ret_size = FILE_SIZE;
	return 0;
}

static int prefetch(void *arg, uint64_t offset, uint32_t length)
{
	struct world *w = arg;
	int r = 0;

	pthread_mutex_lock(&w->lock);
	if (w->busy > 0) {
		w->busy--;
		r = -EAGAIN;
	} else if (w->all_here) {
		r = -EALREADY;
	} else {
		assert_true(w->n_asked < ASKED_MAX);
		assert_int_equal(length, align_up(FILE_SIZE, BLOCK_BYTES));
		w->asked[w->n_asked++] = (uint32_t)(offset / FILE_ROOM);
	}
	pthread_mutex_unlock(&w->lock);
	return r;
}

static uint64_t capacity(void *arg)
{
	struct world *w = arg;

	return atomic_load(&w->capacity);
}

static bool shows(void *arg, uint64_t dev)
{
	const struct world *w = arg;

	return atomic_load(&w->next_dev) == dev;
}

static int setup(void **state)
{
	static const struct order_ops ops = {
		.find = find, .prefetch = prefetch, .capacity = capacity, .shows = shows
	};
	struct world *w = calloc(1, sizeof(*w));
	const struct order_config config = {
		.ops = &ops, .arg = w, .window_bytes = WINDOW, .memory = 1 << 20
	};
	struct err e = ERR_INIT;
	struct stat st;
	char path[96];

	(void)snprintf(w->dir, sizeof(w->dir), "/tmp/granary-order.XXXXXX");
	assert_non_null(mkdtemp(w->dir));
	pthread_mutex_init(&w->lock, NULL);
	w->order = order_new(&config);
	assert_non_null(w->order);
	(void)snprintf(path, sizeof(path), "%s/order", w->dir);
	assert_int_equal(order_listen(w->order, path, "m", &e), 0);
	assert_int_equal(stat(w->dir, &st), 0);
	w->dev = st.st_dev;
	order_show(w->order, w->dev);
	/* Others come as far as the socket, and see nothing else. */
	assert_int_equal(st.st_mode & 07777, geteuid() == 0 ? 0711 : 0700);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0755);
	(void)snprintf(path, sizeof(path), "%s/order/m", w->dir);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0666);
	*state = w;
	return 0;
}

static int teardown(void **state)
{
	struct world *w = *state;
	struct arena_use use;
	char path[96];

	order_free(w->order);
	arena_use(ARENA_ORDERS, &use);
	assert_int_equal(use.used, 0);
	(void)snprintf(path, sizeof(path), "%s/order", w->dir);
	assert_int_equal(rmdir(path), 0); /* nothing was left */
	assert_int_equal(rmdir(w->dir), 0);
	pthread_mutex_destroy(&w->lock);
	free(w);
	return 0;
}

/* ---- a job ----------------------------------------------------------------------------------- */

static int connect_to(const struct world *w)
{
	char path[128];
	int fd;

	/* By the device, as jobs do it. */
	(void)snprintf(path, sizeof(path), "%s/order/%u:%u", w->dir, major((dev_t)w->dev),
		minor((dev_t)w->dev));
	assert_int_equal(unix_socket_connect(path, &fd), 0);
	assert_int_equal(fcntl(fd, F_SETFL, 0), 0);
	return fd;
}

static void send_message(int fd, uint32_t kind, const void *body, uint32_t len)
{
	uint8_t head[ORDER_HEAD_BYTES];

	little_put32(head, kind);
	little_put32(head + 4, len);
	/* It may have been hung up on. */
	if (send(fd, head, sizeof(head), MSG_NOSIGNAL) == sizeof(head) && len > 0)
		(void)!send(fd, body, len, MSG_NOSIGNAL);
}

/* The body of the answer comes to `data`. Its status; 1: the other side has gone. */
static int answer_in(int fd, uint8_t data[ORDER_REPLY_MAX])
{
	ssize_t n = recv(fd, data, ORDER_HEAD_BYTES, MSG_WAITALL);
	uint32_t len;

	if (n != ORDER_HEAD_BYTES)
		return 1;
	len = little_get32(data + 4);
	assert_int_equal(little_get32(data), ORDER_REPLY);
	assert_true(len >= ORDER_REPLY_MIN && len <= ORDER_REPLY_MAX - ORDER_HEAD_BYTES);
	assert_int_equal(recv(fd, data, len, MSG_WAITALL), len);
	return (int32_t)little_get32(data);
}

static int answer(int fd)
{
	uint8_t data[ORDER_REPLY_MAX];

	return answer_in(fd, data);
}

static void send_hello(int fd, uint32_t version, const int *descriptors, uint32_t n)
{
	_Alignas(struct cmsghdr) char control[CMSG_SPACE(4 * sizeof(int))] = { 0 };
	uint8_t data[12];
	struct iovec iov = { .iov_base = data, .iov_len = sizeof(data) };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };
	struct cmsghdr *c;

	little_put32(data, ORDER_HELLO);
	little_put32(data + 4, 4);
	little_put32(data + 8, version);
	if (n > 0) {
		msg.msg_control = control;
		msg.msg_controllen = CMSG_SPACE(n * sizeof(int));
		c = CMSG_FIRSTHDR(&msg);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(n * sizeof(int));
		memcpy(CMSG_DATA(c), descriptors, n * sizeof(int));
	}
	assert_int_equal(sendmsg(fd, &msg, MSG_NOSIGNAL), sizeof(data));
}

static int new_job(const struct world *w)
{
	int fd = connect_to(w);
	int dir = open(w->dir, O_RDONLY | O_DIRECTORY);

	send_hello(fd, ORDER_VERSION, &dir, 1);
	(void)close(dir);
	assert_int_equal(answer(fd), 0);
	return fd;
}

/* A list of the files `first` to `first + n`: its SAMPLES, and LIST in `list`. */
static uint8_t *pack(uint32_t first, uint32_t n, uint32_t *ret_len, uint8_t list[36])
{
	uint8_t *body = malloc(n * 32 + 1);
	uint32_t len = 0;

	for (uint32_t i = 0; i < n; i++) {
		int chars = sprintf((char *)body + len + 20, "f%u", first + i);

		little_put64(body + len, 0);
		little_put64(body + len + 8, 0);
		little_put32(body + len + 16, (uint32_t)chars);
		len += 20 + (uint32_t)chars;
	}
	little_put32(list, n);
	hash_sha256(body, len, list + 4);
	*ret_len = len;
	return body;
}

/* True: the list had to be sent. */
static bool register_files(int fd, uint32_t first, uint32_t n)
{
	uint8_t list[36];
	uint32_t len;
	uint8_t *body = pack(first, n, &len, list);
	int status;

	send_message(fd, ORDER_LIST, list, sizeof(list));
	status = answer(fd);
	if (status == -ENOENT) {
		send_message(fd, ORDER_SAMPLES, body, len);
		assert_int_equal(answer(fd), 0);
	} else {
		assert_int_equal(status, 0);
	}
	free(body);
	return status == -ENOENT;
}

static int listed(int fd)
{
	send_message(fd, ORDER_LISTED, NULL, 0);
	return answer(fd);
}

static int numbers(int fd, uint32_t n, const uint32_t *list, uint32_t sent)
{
	uint8_t body[4096];

	little_put32(body, n);
	for (uint32_t i = 0; i < sent; i++)
		little_put32(body + 4 + (size_t)i * 4, list[i]);
	send_message(fd, ORDER_NUMBERS, body, 4 + sent * 4);
	return answer(fd);
}

static uint32_t n_asked(struct world *w)
{
	uint32_t n;

	pthread_mutex_lock(&w->lock);
	n = w->n_asked;
	pthread_mutex_unlock(&w->lock);
	return n;
}

static bool is_asked(struct world *w, uint32_t file)
{
	bool found = false;

	pthread_mutex_lock(&w->lock);
	for (uint32_t i = 0; i < w->n_asked; i++)
		found |= w->asked[i] == file;
	pthread_mutex_unlock(&w->lock);
	return found;
}

static void wait_asked(struct world *w, uint32_t n)
{
	test_wait(n_asked(w) >= n);
	assert_int_equal(n_asked(w), n);
}

static void read_file(const struct world *w, uint32_t file)
{
	assert_true(order_note_read(w->order, (uint64_t)file * FILE_ROOM, FILE_ROOM));
}

/* ---- what is asked for ----------------------------------------------------------------------- */

/* Ranks connect, and announce one after the other: together they ask for what one job would. */
static void test_ranks_begin(void **state)
{
	struct world *w = *state;
	uint32_t list[200];
	int fds[4];

	atomic_store(&w->capacity, 1ull << 40);
	for (uint32_t i = 0; i < ARRAY_SIZE(fds); i++)
		fds[i] = new_job(w);
	for (uint32_t i = 0; i < ARRAY_SIZE(fds); i++) {
		(void)register_files(fds[i], 0, 1000);
		for (uint32_t k = 0; k < ARRAY_SIZE(list); k++)
			list[k] = i * 200 + k;
		assert_int_equal(numbers(fds[i], ARRAY_SIZE(list), list, ARRAY_SIZE(list)), 0);
		send_message(fds[i], ORDER_HITS, NULL, 0);
		assert_int_equal(answer(fds[i]), 0); /* the feed has asked for what it may */
		assert_int_equal(n_asked(w), (i + 1) * ORDER_START_FILES / ARRAY_SIZE(fds));
	}
	for (uint32_t i = 1; i < ARRAY_SIZE(fds); i++)
		(void)close(fds[i]);
	/* The rest of the first order; a rank that ends later may have asked for more, too. */
	test_wait(is_asked(w, ARRAY_SIZE(list) - 1));
	(void)close(fds[0]);
}

static void test_listed(void **state)
{
	struct world *w = *state;
	int fd = new_job(w);

	assert_false(order_covers(w->order, 100 * FILE_ROOM, BLOCK_BYTES));
	assert_true(register_files(fd, 100, 200));
	assert_int_equal(listed(fd), 0);
	wait_asked(w, 20); /* a window */
	for (uint32_t i = 0; i < 200; i++) {
		assert_int_equal(w->asked[i], 100 + i);
		read_file(w, 100 + i);
		wait_asked(w, min(i + 21, 200u));
	}
	assert_true(order_covers(w->order, 100 * FILE_ROOM, BLOCK_BYTES));
	assert_false(order_note_read(w->order, 99 * FILE_ROOM, BLOCK_BYTES));
	assert_false(order_covers(w->order, 300 * FILE_ROOM, BLOCK_BYTES));
	(void)close(fd);
}

/* What a rank of two reads of n files: every second one, in an order of no pattern. */
static int announce_rank(int fd, uint32_t rank, uint32_t n, uint32_t *order)
{
	for (uint32_t k = 0; k < n / 2; k++)
		order[k] = (2 * k + rank) * 7 % n; /* 7 and n have no common factor */
	return numbers(fd, n / 2, order, n / 2);
}

/* Ranks name the same list: it is sent once; each is run ahead of, by half a window. */
static void test_ranks(void **state)
{
	struct world *w = *state;
	uint32_t order[2][500];
	int fds[2];

	for (uint32_t rank = 0; rank < 2; rank++) {
		fds[rank] = new_job(w);
		assert_int_equal(register_files(fds[rank], 0, 1000), rank == 0);
	}
	for (uint32_t rank = 0; rank < 2; rank++) {
		assert_int_equal(announce_rank(fds[rank], rank, 1000, order[rank]), 0);
		wait_asked(w,
			rank ? 30 : 20); /* the first had the whole window until the second came */
	}
	for (uint32_t k = 0; k < 10; k++) {
		read_file(w, order[0][k]);
		read_file(w, order[1][k]);
	}
	wait_asked(w, 40);
	for (uint32_t i = 0; i < 40; i++) {
		bool found = false;

		for (uint32_t k = 0; k < 20; k++)
			found |= order[0][k] == w->asked[i] || order[1][k] == w->asked[i];
		assert_true(found);
	}
	(void)close(fds[0]);
	(void)close(fds[1]);
}

/* Two orders take turns, range by range. */
static void test_turns(void **state)
{
	struct world *w = *state;
	uint32_t order[500];
	uint32_t even = 0;
	int fds[2];

	pthread_mutex_lock(&w->lock);
	w->busy = UINT32_MAX; /* until both are known */
	pthread_mutex_unlock(&w->lock);
	for (uint32_t rank = 0; rank < 2; rank++) {
		fds[rank] = new_job(w);
		(void)register_files(fds[rank], 0, 1000);
		assert_int_equal(announce_rank(fds[rank], rank, 1000, order), 0);
	}
	pthread_mutex_lock(&w->lock);
	w->busy = 0;
	pthread_mutex_unlock(&w->lock);
	wait_asked(w, 20);
	for (uint32_t i = 0; i < 10; i++)
		even += w->asked[i] % 2 == 0;
	assert_in_range(even, 4, 6);
	(void)close(fds[0]);
	(void)close(fds[1]);
}

static void test_numbers(void **state)
{
	static const uint32_t list[] = { 5, 3, 5, 9, 0 };
	static const uint32_t expected[] = { 5, 3, 5, 9, 0 };
	struct world *w = *state;
	int fd = new_job(w);

	(void)register_files(fd, 0, 10);
	assert_int_equal(numbers(fd, 5, list, 5), 0);
	wait_asked(w, 5);
	assert_memory_equal(w->asked, expected, sizeof(expected));
	assert_int_equal(numbers(fd, 0, list, 0), 0);
	(void)close(fd);
}

/* What HITS answers. */
static void check_hits(int fd, uint64_t reads, uint64_t hits, bool suspended)
{
	uint8_t data[ORDER_REPLY_MAX] = { 0 };

	send_message(fd, ORDER_HITS, NULL, 0);
	assert_int_equal(answer_in(fd, data), 0);
	assert_int_equal(little_get64(data + 24), reads);
	assert_int_equal(little_get64(data + 32), hits);
	assert_int_equal(little_get32(data + 4), suspended);
}

/* The window of the only order, once it is full. */
static struct order_window full_window(struct world *w)
{
	struct order_window window;

	do {
		pthread_mutex_lock(&w->order->lock);
		window = list_entry(w->order->feeds.next, struct order_feed, link)->window;
		pthread_mutex_unlock(&w->order->lock);
	} while (order_window_room(&window) && sched_yield() == 0);
	return window;
}

/*
 * A job reads backwards what it announced forwards. Its order is suspended: nothing more is asked for, and
 * reads bring their neighbours. It is resumed when reads follow it, from where they are on.
 */
static void test_wrong_order(void **state)
{
	struct world *w = *state;
	const struct order_counters *counters = order_counters(w->order);
	int fd = new_job(w);
	const uint32_t asked = 20; /* and nothing more by reads that do not follow */
	uint32_t first;

	(void)register_files(fd, 0, 1000);
	assert_int_equal(listed(fd), 0);
	wait_asked(w, 20);
	check_hits(fd, 0, 0, false);
	for (uint32_t i = 0; i < ORDER_JUDGED; i++) {
		/* Beyond the window of an order that nothing followed yet: it brings its neighbours. */
		assert_false(order_note_read(w->order, (uint64_t)(999 - i) * FILE_ROOM, FILE_ROOM));
		(void)full_window(w);
	}
	check_hits(fd, ORDER_JUDGED, 0, true);
	assert_int_equal(counter_get(&counters->suspended), 1);
	assert_int_equal(counter_get(&counters->misses), ORDER_JUDGED);
	assert_false(order_covers(w->order, 500 * FILE_ROOM, BLOCK_BYTES));
	assert_false(order_note_read(w->order, 500 * FILE_ROOM, BLOCK_BYTES));
	/* Somebody else's reads say nothing about it. */
	assert_false(order_note_read(w->order, 2000 * FILE_ROOM, BLOCK_BYTES));
	check_hits(fd, ORDER_JUDGED + 1, 0, true);
	first = (uint32_t)full_window(w).n_passed;
	for (uint32_t i = 0; i <= ORDER_ENOUGH; i++) { /* the first follows none */
		assert_true(full_window(w).off);
		assert_int_equal(n_asked(w), asked);
		(void)order_note_read(w->order, (uint64_t)(first + i) * FILE_ROOM, FILE_ROOM);
	}
	check_hits(fd, ORDER_JUDGED + 2 + ORDER_ENOUGH, ORDER_ENOUGH, false);
	assert_true(order_covers(w->order, 500 * FILE_ROOM, BLOCK_BYTES));
	assert_int_equal(counter_get(&counters->hits), ORDER_ENOUGH);
	assert_int_equal(counter_get(&counters->suspended), 1);
	/* From the first that was not read on. */
	wait_asked(w, asked + 20);
	for (uint32_t i = 0; i < 20; i++)
		assert_int_equal(w->asked[asked + i], first + ORDER_ENOUGH + 1 + i);
	(void)close(fd);
}

/* Two jobs announce the same samples, one of them backwards. What the first reads in its order is a hit of its
 * own, and no miss of the other; what nobody is to read next is a miss of both. */
static void test_two_orders(void **state)
{
	struct world *w = *state;
	const struct order_counters *counters = order_counters(w->order);
	uint32_t backwards[500];
	int fds[2];

	for (uint32_t k = 0; k < 500; k++)
		backwards[k] = 499 - k;
	for (uint32_t i = 0; i < 2; i++) {
		fds[i] = new_job(w);
		(void)register_files(fds[i], 0, 500);
		assert_int_equal(i ? numbers(fds[i], 500, backwards, 500) : listed(fds[i]), 0);
	}
	for (uint32_t k = 0; k < 50; k++) {
		test_wait(is_asked(w, k));
		read_file(w, k);
	}
	check_hits(fds[0], 50, 50, false);
	check_hits(fds[1], 0, 0, false);
	assert_false(order_note_read(w->order, 250 * FILE_ROOM, FILE_ROOM));
	check_hits(fds[0], 51, 50, false);
	check_hits(fds[1], 1, 0, false);
	assert_int_equal(counter_get(&counters->hits), 50);
	assert_int_equal(counter_get(&counters->misses), 1);
	(void)close(fds[0]);
	(void)close(fds[1]);
}

/* The window is a part of the node's tiers once these are known. */
static void test_capacity(void **state)
{
	struct world *w = *state;
	int fd = new_job(w);

	(void)register_files(fd, 0, 1000);
	assert_int_equal(listed(fd), 0);
	wait_asked(w, 20);
	atomic_store(&w->capacity, ORDER_TIER_SHARE * 2 * WINDOW);
	read_file(w, 0);
	wait_asked(w, 41);
	atomic_store(&w->capacity, ORDER_TIER_SHARE * WINDOW);
	for (uint32_t k = 1; k < 100; k++) {
		test_wait(is_asked(w, k));
		read_file(w, k);
	}
	wait_asked(w, 120);
	(void)close(fd);
}

/* A worker that takes nothing for a while: later, and all of it. */
static void test_busy(void **state)
{
	struct world *w = *state;
	int fd = new_job(w);

	w->busy = 5;
	(void)register_files(fd, 0, 10);
	assert_int_equal(listed(fd), 0);
	wait_asked(w, 10);
	for (uint32_t i = 0; i < 10; i++)
		assert_int_equal(w->asked[i], i);
	(void)close(fd);
}

/* What is here takes no room in the window. */
static void test_present(void **state)
{
	struct world *w = *state;
	int fd = new_job(w);

	w->all_here = true;
	(void)register_files(fd, 0, 1000);
	assert_int_equal(listed(fd), 0);
	test_wait(counter_get(&order_counters(w->order)->present) >= 1000);
	assert_int_equal(n_asked(w), 0);
	(void)close(fd);
}

/* Its connection is its life. */
static void test_forgotten(void **state)
{
	struct world *w = *state;
	int fd = new_job(w);

	(void)register_files(fd, 0, 100);
	assert_int_equal(listed(fd), 0);
	wait_asked(w, 20);
	(void)close(fd);
	test_wait(!order_covers(w->order, 0, BLOCK_BYTES));
	fd = new_job(w);
	assert_true(register_files(fd, 0, 100)); /* the list went with it */
	assert_int_equal(listed(fd), 0);
	send_message(fd, ORDER_FORGET, NULL, 0);
	assert_int_equal(answer(fd), 0);
	assert_false(order_covers(w->order, 0, BLOCK_BYTES));
	(void)close(fd);
}

/* ---- who may, and nonsense ------------------------------------------------------------------- */

static void test_hello(void **state)
{
	struct world *w = *state;
	int path = open(w->dir, O_PATH);
	int other = open("/proc", O_RDONLY);
	int dir = open(w->dir, O_RDONLY);
	const int many[4] = { dir, other, path, dir };
	int fd = connect_to(w);
	struct stat st;

	send_hello(fd, ORDER_VERSION, NULL, 0);
	assert_int_equal(answer(fd), -EACCES);
	assert_int_equal(answer(fd), 1);
	(void)close(fd);
	fd = connect_to(w);
	send_hello(fd, ORDER_VERSION, &other, 1);
	assert_int_equal(answer(fd), -EACCES);
	(void)close(fd);
	fd = connect_to(w);
	send_hello(fd, ORDER_VERSION, &path, 1);
	assert_int_equal(answer(fd), -EACCES);
	(void)close(fd);
	fd = connect_to(w);
	send_hello(fd, ORDER_VERSION + 1, &dir, 1);
	assert_int_equal(answer(fd), -EPROTONOSUPPORT);
	(void)close(fd);
	fd = connect_to(w);
	send_hello(fd, ORDER_VERSION, many, 4);
	assert_int_equal(answer(fd), 0);
	(void)close(fd);
	fd = connect_to(w);
	send_message(fd, ORDER_LIST, NULL, 0);
	assert_in_range(-answer(fd), 0, 200);
	(void)close(fd);
	/* The mount has another device now: who knew the earlier one is welcome. */
	order_show(w->order, w->dev + 1);
	order_show(w->order, w->dev);
	fd = new_job(w);
	(void)close(fd);
	/* So is a job that is quicker than order_show(). */
	assert_int_equal(fstat(other, &st), 0);
	atomic_store(&w->next_dev, st.st_dev);
	fd = connect_to(w);
	send_hello(fd, ORDER_VERSION, &other, 1);
	assert_int_equal(answer(fd), 0);
	(void)close(fd);
	(void)close(path);
	(void)close(other);
	(void)close(dir);
}

static void test_refused(void **state)
{
	static const uint32_t beyond[] = { 1, 10 };
	struct world *w = *state;
	uint8_t list[36];
	uint32_t len;
	uint8_t *body = pack(0, 10, &len, list);
	int fd = new_job(w);

	assert_int_equal(listed(fd), -EINVAL); /* of what? */
	(void)register_files(fd, 0, 10);
	assert_int_equal(numbers(fd, 2, beyond, 2), -ERANGE);
	(void)close(fd);

	fd = new_job(w); /* longer than it said */
	assert_int_equal(numbers(fd, 1, beyond, 1), -EINVAL);
	(void)register_files(fd, 0, 10);
	assert_int_equal(numbers(fd, 1, beyond, 2), -EPROTO);
	(void)close(fd);

	fd = new_job(w); /* more than a job may have */
	little_put32(list, UINT32_MAX);
	send_message(fd, ORDER_LIST, list, sizeof(list));
	assert_int_equal(answer(fd), -E2BIG);
	little_put32(list, 1 << 20); /* and more than the mount has memory for, which has no disk */
	send_message(fd, ORDER_LIST, list, sizeof(list));
	assert_int_equal(answer(fd), -ENOMEM);
	little_put32(list, 9); /* one sample too many */
	send_message(fd, ORDER_LIST, list, sizeof(list));
	assert_int_equal(answer(fd), -ENOENT);
	send_message(fd, ORDER_SAMPLES, body, len);
	assert_int_equal(answer(fd), -EPROTO);
	(void)close(fd);

	fd = new_job(w); /* not the list that was named */
	little_put32(list, 10);
	list[20] ^= 1;
	send_message(fd, ORDER_LIST, list, sizeof(list));
	assert_int_equal(answer(fd), -ENOENT);
	send_message(fd, ORDER_SAMPLES, body, len);
	assert_int_equal(answer(fd), -EBADMSG);
	(void)close(fd);

	fd = new_job(w); /* paths that reach out of the message, and with NUL */
	send_message(fd, ORDER_LIST, list, sizeof(list));
	assert_int_equal(answer(fd), -ENOENT);
	little_put32(body + 16, 65000);
	send_message(fd, ORDER_SAMPLES, body, len);
	assert_int_equal(answer(fd), -EPROTO);
	(void)close(fd);
	fd = new_job(w);
	send_message(fd, ORDER_LIST, list, sizeof(list));
	assert_int_equal(answer(fd), -ENOENT);
	little_put32(body + 16, 2);
	body[20] = 0;
	send_message(fd, ORDER_SAMPLES, body, len);
	assert_int_equal(answer(fd), -EPROTO);
	(void)close(fd);

	fd = new_job(w);
	send_message(fd, 77, NULL, 0);
	assert_int_equal(answer(fd), -EPROTO);
	assert_int_equal(answer(fd), 1);
	(void)close(fd);
	free(body);
}

/* Lists that memory does not hold go to files; where there is no room for those, the job is told why. */
static void test_long(void **state)
{
	struct world *w = *state;
	uint8_t data[ORDER_REPLY_MAX] = { 0 };
	uint8_t list[36] = { 0 };
	int fd = new_job(w);

	w->order->space = (struct order_space){
		.directory = "/var/tmp", .memory = 24 * MiB, .disk = 1024 * MiB
	};
	little_put32(list, 10000000);
	send_message(fd, ORDER_LIST, list, sizeof(list));
	assert_int_equal(answer(fd), -ENOENT); /* to be sent */
	assert_in_range(w->order->space.disk_used, 10000000 * 4, 10000000 * 20);
	(void)close(fd);
	fd = new_job(w);
	w->order->space.directory = "/none";
	send_message(fd, ORDER_LIST, list, sizeof(list));
	assert_int_equal(answer_in(fd, data), -EIO);
	assert_string_equal((char *)data + ORDER_REPLY_MIN,
		"the order cannot be stored in /none: No such file or directory");
	assert_true(register_files(fd, 0, 10)); /* a shorter one is welcome */
	send_message(fd, ORDER_NUMBERS, list, 4);
	assert_int_equal(answer(fd), -EIO);
	assert_int_equal(answer(fd), 1); /* the job may be sending others */
	assert_int_equal(counter_get(&order_counters(w->order)->refused), 2);
	(void)close(fd);
}

/*
 * A job that reads no answer, and shuts down with one waiting and more said before: there is no room
 * for that answer ever, and what was said is not answered beside it.
 */
static void test_shut_down(void **state)
{
	struct world *w = *state;
	uint8_t head[ORDER_HEAD_BYTES];
	int fd = new_job(w);
	int other;

	assert_int_equal(fcntl(fd, F_SETFL, O_NONBLOCK), 0);
	little_put32(head, ORDER_FORGET);
	little_put32(head + 4, 0);
	/* Until its answers fill this side's buffer, and its messages that of the other. */
	for (uint32_t full = 0; full < 100;) {
		if (send(fd, head, sizeof(head), MSG_NOSIGNAL) == sizeof(head)) {
			full = 0;
			continue;
		}
		full++;
		test_advance(CLOCK_MS);
	}
	assert_int_equal(shutdown(fd, SHUT_RDWR), 0);
	other = new_job(w); /* the feed lives */
	(void)close(other);
	(void)close(fd);
}

/* A link in the directory's place leads root nowhere. */
static void test_directory_is_a_link(void **state)
{
	static const struct order_ops ops = { .find = find, .prefetch = prefetch };
	struct world *w = *state;
	const struct order_config config = { .ops = &ops, .arg = w };
	struct order *order = order_new(&config);
	struct err e = ERR_INIT;
	char link[96];
	char other[96];
	struct stat st;

	(void)snprintf(link, sizeof(link), "%s/link", w->dir);
	(void)snprintf(other, sizeof(other), "%s/other", w->dir);
	assert_int_equal(mkdir(other, 0700), 0);
	assert_int_equal(symlink("other", link), 0);
	assert_true(order_listen(order, link, "x", &e) < 0);
	assert_non_null(strstr(e.text, "/link"));
	assert_int_equal(stat(other, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0700);
	order_free(order);
	assert_int_equal(unlink(link), 0);
	assert_int_equal(rmdir(other), 0);
}

/* The mount shows another generation: jobs are hung up on, and come back. */
static void test_changed(void **state)
{
	struct world *w = *state;
	int fd = new_job(w);

	(void)register_files(fd, 0, 10);
	assert_int_equal(listed(fd), 0);
	order_changed(w->order);
	assert_int_equal(answer(fd), 1);
	(void)close(fd);
	fd = new_job(w);
	assert_true(register_files(fd, 0, 10)); /* the places of its list are looked up again */
	(void)close(fd);
}

/* A refresh while files are open: the mount's next daemon listens at the same name, while the previous one
 * lives. */
static void test_replaced(void **state)
{
	static const struct order_ops ops = { .find = find, .prefetch = prefetch };
	struct world *w = *state;
	const struct order_config config = { .ops = &ops, .arg = w, .memory = 1 << 20 };
	struct order *previous = w->order;
	struct err e = ERR_INIT;
	int fd = new_job(w);
	struct stat st;
	char path[96];

	order_show(previous, w->dev); /* nothing has changed */
	(void)register_files(fd, 0, 10);
	w->order = order_new(&config);
	(void)snprintf(path, sizeof(path), "%s/order", w->dir);
	assert_int_equal(order_listen(w->order, path, "m", &e), 0);
	order_show(w->order, w->dev);
	order_show(previous, w->dev);
	assert_int_equal(answer(fd), 1); /* hung up on */
	(void)close(fd);
	fd = new_job(w);
	assert_int_equal(counter_get(&order_counters(w->order)->jobs), 1);
	assert_int_equal(counter_get(&order_counters(previous)->jobs), 0);
	order_show(previous, w->dev + 1); /* its device is nobody's business any more */
	order_free(previous);
	(void)snprintf(path, sizeof(path), "%s/order/m", w->dir);
	assert_int_equal(lstat(path, &st), 0);
	(void)close(fd);
	fd = new_job(w);
	(void)close(fd);
}

/* Two name a list that neither has: one sends it, the other waits, also when the first goes away
 * over it. */
static void test_waits_for_the_list(void **state)
{
	struct world *w = *state;
	uint8_t list[36];
	uint32_t len;
	uint8_t *body = pack(0, 10, &len, list);
	int first = new_job(w);
	int second = new_job(w);
	int third = new_job(w);

	send_message(first, ORDER_LIST, list, sizeof(list));
	assert_int_equal(answer(first), -ENOENT);
	send_message(second, ORDER_LIST, list, sizeof(list));
	(void)close(first);
	assert_int_equal(answer(second), -ENOENT);
	send_message(third, ORDER_LIST, list, sizeof(list));
	send_message(second, ORDER_SAMPLES, body, len);
	assert_int_equal(answer(second), 0);
	assert_int_equal(answer(third), 0);
	assert_int_equal(listed(third), 0);
	wait_asked(w, 10);
	(void)close(second);
	(void)close(third);
	free(body);
}

static void test_many(void **state)
{
	struct world *w = *state;
	int fds[ORDER_JOBS];
	int fd;

	for (uint32_t i = 0; i < ORDER_JOBS; i++)
		fds[i] = new_job(w);
	fd = connect_to(w);
	assert_int_equal(answer(fd), -EUSERS);
	assert_int_equal(answer(fd), 1);
	(void)close(fd);
	assert_int_equal(counter_get(&order_counters(w->order)->refused), 1);
	for (uint32_t i = 0; i < ORDER_JOBS; i++)
		(void)close(fds[i]);
	test_wait(counter_get(&order_counters(w->order)->jobs) == 0);
	/* Those who say nothing make room for those who do. */
	for (uint32_t i = 0; i < ORDER_JOBS; i++)
		fds[i] = connect_to(w);
	fd = new_job(w);
	(void)close(fd);
	for (uint32_t i = 0; i < ORDER_JOBS; i++)
		(void)close(fds[i]);
}

/* Random messages, well formed by their heads: no crash, and an honest job is served. */
static void test_noise(void **state)
{
	struct world *w = *state;
	uint32_t seed = 5;
	int fd;

	for (int round = 0; round < 200; round++) {
		fd = new_job(w);
		(void)register_files(fd, 0, 5);
		for (int i = 0; i < 5; i++) {
			uint8_t body[200];
			uint32_t len;

			for (size_t at = 0; at < sizeof(body); at++) {
				seed = seed * 1664525 + 1013904223;
				body[at] = seed >> 28 ? 0 : (uint8_t)(seed >> 16);
			}
			len = (seed >> 8) % 5 ? (seed >> 12) % (uint32_t)sizeof(body) : 28;
			send_message(fd, 1 + (seed >> 20) % 8, body, len);
		}
		(void)close(fd);
	}
	fd = new_job(w);
	(void)register_files(fd, 500, 3);
	pthread_mutex_lock(&w->lock);
	w->n_asked = 0;
	pthread_mutex_unlock(&w->lock);
	assert_int_equal(listed(fd), 0);
	test_wait(is_asked(w, 502));
	(void)close(fd);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_ranks_begin),
		TEST(test_listed),
		TEST(test_ranks),
		TEST(test_turns),
		TEST(test_numbers),
		TEST(test_wrong_order),
		TEST(test_two_orders),
		TEST(test_capacity),
		TEST(test_busy),
		TEST(test_present),
		TEST(test_forgotten),
		TEST(test_hello),
		TEST(test_refused),
		TEST(test_long),
		TEST(test_shut_down),
		TEST(test_changed),
		TEST(test_replaced),
		TEST(test_directory_is_a_link),
		TEST(test_waits_for_the_list),
		TEST(test_many),
		TEST(test_noise),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
