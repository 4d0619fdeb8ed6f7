/*
 * libgranary: a job's side of an announced order. See granary.h; what goes over the socket is in
 * client/order_proto.h. Goes into a library of its own, for programs that are not ours: nothing
 * here logs, aborts on what others say, or keeps a descriptor of the mount open, which would keep
 * it busy.
 */
#include "client/granary.h"
#include "base/cleanup.h"
#include "base/err.h"
#include "base/hash.h"
#include "base/little.h"
#include "client/order_proto.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/time.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define DEADLINE_MS 1000
#define SAMPLE_NS   20000 /* more for each sample of a list: the mount looks it up */
#define NUMBER_NS   1000  /* and of an order, which it sorts */
#define NS_PER_MS   1000000
#define NS_PER_S    1000000000
#define US_PER_S    1000000
#define BASES       5 /* directories that may have a socket */

struct granary_order {
	int fd;
	bool listed;
	uint32_t deadline_ms;
	int64_t until_ns; /* of the call that is made */
	uint64_t unknown;
	struct granary_hits hits;
	char error[512];
	uint8_t frame[ORDER_FRAME_MAX];
};

static int fail(struct granary_order *order, int code, const char *text)
{
	(void)snprintf(order->error, sizeof(order->error), "%s", text); /* cut, if it must be */
	return code;
}

/* A message that was not sent or answered whole leaves nothing to go on with. */
static int lose(struct granary_order *order, int code)
{
	(void)shutdown(order->fd, SHUT_RDWR); /* the mount forgets the order */
	if (code == -EAGAIN)
		return fail(order, -ETIMEDOUT, "the mount's daemon timed out: open another order");
	return fail(order, code, "the mount's daemon closed the connection: open another order");
}

/* ---- deadlines ------------------------------------------------------------------------------- */

static int64_t now_ns(void)
{
	struct timespec now;

	(void)clock_gettime(CLOCK_MONOTONIC, &now); /* there is one */
	return (int64_t)now.tv_sec * NS_PER_S + now.tv_nsec;
}

/* A call begins, for which the mount works so long. */
static void begin(struct granary_order *order, int64_t work_ns)
{
	order->error[0] = '\0';
	order->until_ns = now_ns() + (int64_t)order->deadline_ms * NS_PER_MS + work_ns;
}

/* The next send or receive ends with the call's deadline. -EAGAIN: it has passed. */
static int bound(struct granary_order *order, int option)
{
	int64_t left_us = (order->until_ns - now_ns()) / 1000;
	struct timeval time = { .tv_sec = left_us / US_PER_S, .tv_usec = left_us % US_PER_S };

	if (left_us <= 0) /* zero would be no timeout */
		return -EAGAIN;
	return setsockopt(order->fd, SOL_SOCKET, option, &time, sizeof(time)) == 0 ? 0 : -errno;
}

/* ---- where ----------------------------------------------------------------------------------- */

/* The mount point that `path` is below, in place. */
static int find_root(char path[PATH_MAX], dev_t *ret_dev)
{
	struct stat st;
	dev_t dev;

	if (stat(path, &st) != 0)
		return err_errno();
	dev = st.st_dev;
	while (strcmp(path, "/") != 0) {
		char above[PATH_MAX];
		char *slash;

		memcpy(above, path, PATH_MAX);
		slash = strrchr(above, '/');
		slash[slash == above] = '\0';
		if (stat(above, &st) != 0 || st.st_dev != dev)
			break;
		memcpy(path, above, PATH_MAX);
	}
	*ret_dev = dev;
	return 0;
}

/* In a directory of root or of this user: in /tmp somebody else may have been faster. */
static bool trusted_socket(const char *path)
{
	char directory[PATH_MAX];
	struct stat st;
	char *slash;

	(void)snprintf(directory, sizeof(directory), "%s", path); /* shorter */
	slash = strrchr(directory, '/');
	if (!slash || stat(path, &st) != 0 || !S_ISSOCK(st.st_mode))
		return false;
	*slash = '\0';
	return stat(directory, &st) == 0 && (st.st_uid == 0 || st.st_uid == geteuid());
}

/* As cachectl chooses the directories of sockets; "": one that is not set. */
static void find_bases(char out[BASES][PATH_MAX])
{
	const char *run = secure_getenv("GRANARY_RUN_DIR");
	const char *xdg = secure_getenv("XDG_RUNTIME_DIR");

	(void)snprintf(out[0], PATH_MAX, "%s", run ? run : "");
	(void)snprintf(out[1], PATH_MAX, "/run/granary");
	(void)snprintf(out[2], PATH_MAX, "%s%s", xdg ? xdg : "", xdg ? "/granary" : "");
	(void)snprintf(out[3], PATH_MAX, "/run/user/%u/granary", getuid());
	(void)snprintf(out[4], PATH_MAX, "/tmp/granary-%u", getuid());
}

/* ---- messages -------------------------------------------------------------------------------- */

static int send_all(struct granary_order *order, const uint8_t *data, size_t len)
{
	while (len > 0) {
		int r = bound(order, SO_SNDTIMEO);
		ssize_t n = r == 0 ? send(order->fd, data, len, MSG_NOSIGNAL) : -1;

		if (r == 0 && n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return lose(order, r < 0 ? r : -errno);
		data += n;
		len -= (size_t)n;
	}
	return 0;
}

/* The body is in order->frame behind its head. */
static int send_frame(struct granary_order *order, uint32_t kind, uint32_t body)
{
	little_put32(order->frame, kind);
	little_put32(order->frame + 4, body);
	return send_all(order, order->frame, ORDER_HEAD_BYTES + body);
}

static int receive(struct granary_order *order, uint8_t *data, size_t len)
{
	while (len > 0) {
		int r = bound(order, SO_RCVTIMEO);
		ssize_t n = r == 0 ? recv(order->fd, data, len, 0) : -1;

		if (r == 0 && n < 0 && errno == EINTR)
			continue;
		if (n == 0)
			r = -ECONNRESET;
		if (n <= 0)
			return lose(order, r < 0 ? r : -errno);
		data += n;
		len -= (size_t)n;
	}
	return 0;
}

static int answer(struct granary_order *order)
{
	uint8_t *body = order->frame + ORDER_HEAD_BYTES;
	uint32_t len;
	int status;
	int r = receive(order, order->frame, ORDER_HEAD_BYTES);

	if (r < 0)
		return r;
	len = little_get32(order->frame + 4);
	if (little_get32(order->frame) != ORDER_REPLY || len < ORDER_REPLY_MIN ||
		len >= ORDER_BODY_MAX)
		return fail(order, -EPROTO, "no answer of a Granary mount");
	r = receive(order, body, len);
	if (r < 0)
		return r;
	body[len] = '\0';
	status = (int32_t)little_get32(body);
	order->unknown = little_get64(body + 16);
	order->hits = (struct granary_hits){
		.reads = little_get64(body + 24),
		.hits = little_get64(body + 32),
		.suspended = little_get32(body + 4) != 0,
	};
	if (status < 0)
		return fail(order, status, (const char *)body + ORDER_REPLY_MIN);
	return 0;
}

static int ask(struct granary_order *order, uint32_t kind, uint32_t body)
{
	int r = send_frame(order, kind, body);

	return r < 0 ? r : answer(order);
}

/* A process that can open the mount may announce: with a descriptor of it. */
static int greet(struct granary_order *order, int root)
{
	_Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int))] = { 0 };
	struct iovec iov = { .iov_base = order->frame, .iov_len = ORDER_HEAD_BYTES + 4 };
	struct msghdr msg = {
		.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = control,
		.msg_controllen = sizeof(control),
	};
	struct cmsghdr *c = CMSG_FIRSTHDR(&msg);

	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(c), &root, sizeof(root));
	little_put32(order->frame, ORDER_HELLO);
	little_put32(order->frame + 4, 4);
	little_put32(order->frame + 8, ORDER_VERSION);
	/* A mount that takes no more jobs answers before it hangs up. */
	if (sendmsg(order->fd, &msg, MSG_NOSIGNAL) < 0 && errno != EPIPE)
		return err_errno();
	return answer(order);
}

/* ---- life ------------------------------------------------------------------------------------ */

static int connect_to(struct granary_order *order, const struct sockaddr_un *address)
{
	int r;

	cleanup_close(&order->fd);
	order->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (order->fd < 0)
		return err_errno();
	r = bound(order, SO_SNDTIMEO); /* of connect(), too */
	if (r == 0 && connect(order->fd, (const struct sockaddr *)address, sizeof(*address)) != 0)
		r = err_errno();
	return r == -EAGAIN ? -ETIMEDOUT : r;
}

/* A daemon that was killed leaves its socket, and the device's number may already belong to another mount: the next is tried. */
static int find_feed(struct granary_order *order, dev_t dev)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	const char *given = secure_getenv("GRANARY_SOCKET");
	char bases[BASES][PATH_MAX];
	int r = -ENOENT;

	if (given) {
		given += strncmp(given, "unix:", 5) == 0 ? 5 : 0;
		return snprintf(address.sun_path, sizeof(address.sun_path), "%s", given) <
				       (int)sizeof(address.sun_path)
			       ? connect_to(order, &address)
			       : -ENOENT;
	}
	find_bases(bases);
	for (size_t i = 0; i < BASES && (r == -ENOENT || r == -ECONNREFUSED); i++)
		if (bases[i][0] &&
			snprintf(address.sun_path, sizeof(address.sun_path), "%s/order/%u:%u",
				bases[i], major(dev), minor(dev)) < (int)sizeof(address.sun_path) &&
			trusted_socket(address.sun_path))
			r = connect_to(order, &address);
	return r;
}

int granary_order_open(const char *path, uint32_t deadline_ms, struct granary_order **ret_order)
{
	_cleanup_close_ int root = -1;
	struct granary_order *order;
	char real[PATH_MAX];
	dev_t dev = 0;
	int r;

	if (!realpath(path, real))
		return err_errno();
	r = find_root(real, &dev);
	if (r < 0)
		return r;
	root = open(real, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (root < 0)
		return err_errno();
	order = calloc(1, sizeof(*order));
	if (!order)
		return -ENOMEM;
	order->fd = -1;
	order->deadline_ms = deadline_ms ? deadline_ms : DEADLINE_MS;
	begin(order, 0);
	r = find_feed(order, dev);
	if (r == 0)
		r = greet(order, root);
	if (r < 0) {
		granary_order_close(order);
		return r;
	}
	*ret_order = order;
	return 0;
}

void granary_order_close(struct granary_order *order)
{
	if (!order)
		return;
	cleanup_close(&order->fd);
	free(order);
}

uint64_t granary_order_unknown(const struct granary_order *order)
{
	return order->unknown;
}

const char *granary_order_error(const struct granary_order *order)
{
	return order->error;
}

/* ---- samples --------------------------------------------------------------------------------- */

/* Puts as many samples from *at on as fit behind the head of order->frame. -EINVAL: a path is none. */
static int pack(struct granary_order *order, const struct granary_sample *samples, uint32_t n,
	uint32_t *at, uint32_t *ret_len)
{
	uint8_t *body = order->frame + ORDER_HEAD_BYTES;
	uint32_t len = 0;

	for (; *at < n; ++*at) {
		const struct granary_sample *sample = &samples[*at];
		size_t path_len = strlen(sample->path);

		if (path_len >= ORDER_PATH_MAX)
			return fail(order, -ENAMETOOLONG, "a sample's path is too long");
		if (len + ORDER_SAMPLE_MIN + path_len > ORDER_BODY_MAX)
			break;
		little_put64(body + len, sample->offset);
		little_put64(body + len + 8, sample->length);
		little_put32(body + len + 16, (uint32_t)path_len);
		memcpy(body + len + ORDER_SAMPLE_MIN, sample->path, path_len);
		len += ORDER_SAMPLE_MIN + (uint32_t)path_len;
	}
	*ret_len = len;
	return 0;
}

static int name_list(struct granary_order *order, const struct granary_sample *samples, uint32_t n)
{
	uint8_t digest[SHA256_BYTES];
	struct hash_sha256 *sha = hash_sha256_new();
	uint32_t at = 0;
	uint32_t len;
	int r = 0;

	if (!sha)
		return fail(order, -ENOMEM, "out of memory");
	while (at < n && r == 0) {
		r = pack(order, samples, n, &at, &len);
		if (r == 0)
			hash_sha256_update(sha, order->frame + ORDER_HEAD_BYTES, len);
	}
	hash_sha256_final(sha, digest);
	if (r < 0)
		return r;
	little_put32(order->frame + ORDER_HEAD_BYTES, n);
	memcpy(order->frame + ORDER_HEAD_BYTES + 4, digest, sizeof(digest));
	return ask(order, ORDER_LIST, 4 + sizeof(digest));
}

int granary_order_samples(
	struct granary_order *order, const struct granary_sample *samples, uint32_t n)
{
	uint32_t at = 0;
	uint32_t len;
	int r;

	begin(order, (int64_t)n * SAMPLE_NS);
	order->listed = false;
	r = name_list(order, samples, n);
	if (r == -ENOENT) {
		do {
			r = pack(order, samples, n, &at, &len);
			if (r == 0)
				r = send_frame(order, ORDER_SAMPLES, len);
		} while (r == 0 && at < n);
		if (r == 0)
			r = answer(order);
	}
	if (r == 0) {
		order->listed = true;
		order->error[0] = '\0';
	}
	return r;
}

/* ---- orders ---------------------------------------------------------------------------------- */

static int announce_numbers(struct granary_order *order, const uint32_t *numbers, uint32_t n)
{
	uint8_t *body = order->frame + ORDER_HEAD_BYTES;
	uint32_t at = 0;
	int r;

	do {
		uint32_t len = 4;

		little_put32(body, n);
		for (; at < n && len + 4 <= ORDER_BODY_MAX; at++, len += 4)
			little_put32(body + len, numbers[at]);
		r = send_frame(order, ORDER_NUMBERS, len);
	} while (r == 0 && at < n);
	return r < 0 ? r : answer(order);
}

int granary_announce(struct granary_order *order, const uint32_t *numbers, uint32_t n)
{
	begin(order, (int64_t)n * NUMBER_NS);
	if (!order->listed)
		return fail(order, -EINVAL, "an order needs samples first");
	return numbers ? announce_numbers(order, numbers, n) : ask(order, ORDER_LISTED, 0);
}

int granary_announce_nothing(struct granary_order *order)
{
	begin(order, 0);
	return ask(order, ORDER_FORGET, 0);
}

int granary_order_hits(struct granary_order *order, struct granary_hits *ret_hits)
{
	int r;

	begin(order, 0);
	r = ask(order, ORDER_HITS, 0);
	if (r == 0)
		*ret_hits = order->hits;
	return r;
}
