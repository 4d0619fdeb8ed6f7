/*
 * Fuzzer of the messages between a mount's daemon and the keeper. The first byte picks: 0 a request, 1 the bytes of an
 * answer, of any size; the second how many descriptors come along. What follows are patches of a sound request (offset u16,
 * length - 1 u8, bytes; or 255 and the byte that all texts from there on are filled with), or the answer's bytes.
 *
 * What is received leaves no descriptor open and none that a program would inherit; a request that passes has texts that
 * end and the descriptors of its op; one that does not has a line. Those that touch no mount are served, too.
 */
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>
#include "base/little.h"
#include "keeper/points/mounter_internal.h"
#include "tests/fuzz/seeds.h"

#define FILL 255

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int a_file(void)
{
	static int fd = -1;

	if (fd < 0)
		fd = memfd_create("device", MFD_CLOEXEC);
	ensure(fd >= 0);
	return fd;
}

static void send_with(int socket, const void *message, size_t size, uint32_t n_fds)
{
	int fds[MOUNTER_FDS_MAX];

	for (uint32_t i = 0; i < n_fds; i++)
		fds[i] = a_file();
	ensure(mounter_send(socket, message, size, fds, n_fds) == 0);
}

/* ---- requests -------------------------------------------------------------------------------- */

static void check_request(const struct mounter_request *request, uint32_t n_fds)
{
	struct err e = ERR_INIT;
	int r = mounter_check(request, n_fds, &e);

	if (r < 0) {
		fuzz_check_line(&e);
		return;
	}
	ensure(request->op < MOUNTER_OPS && n_fds <= MOUNTER_FDS_MAX && n_fds == request->n_fds);
	ensure(memchr(request->path, '\0', sizeof(request->path)));
	ensure(memchr(request->label, '\0', sizeof(request->label)));
	if (request->op == MOUNTER_ATTACH || request->op == MOUNTER_SHARE)
		ensure(request->key[0] && memchr(request->key, '\0', sizeof(request->key)));
	if (request->op == MOUNTER_MOUNT_FUSE)
		ensure(memchr(request->source, '\0', sizeof(request->source)));
}

/* These write no more than what the keeper knows. */
static bool may_serve(const struct mounter_request *request)
{
	return request->op == MOUNTER_LOCAL || request->op == MOUNTER_NEWER ||
	       request->op == MOUNTER_CONNECTION || request->op >= MOUNTER_OPS;
}

static void serve(const struct mounter_request *request, uint32_t n_fds)
{
	struct mounter_peer_config config = {
		.id = 1, .mountpoint = "/m", .admin = "/a", .image_dir = "/i", .fuse_fd = -1
	};
	struct mounter_answer answer;
	struct mounter_host *host;
	struct mounter_peer *peer;
	struct pollfd p = { .events = POLLIN };
	int wake_fd = eventfd(0, EFD_CLOEXEC);
	int fds[MOUNTER_FDS_MAX];
	uint32_t n;
	int ends[2];

	ensure(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0);
	config.socket = ends[0];
	ensure(wake_fd >= 0 && mounter_host_new(wake_fd, &host) == 0);
	ensure(mounter_peer_new(host, &config, &peer) == 0);
	send_with(ends[1], request, sizeof(*request), n_fds);
	mounter_serve(peer);
	p.fd = ends[1];
	while (poll(&p, 1, -1) != 1) /* libFuzzer's timer interrupts it */
		ensure(errno == EINTR);
	ensure(mounter_receive(ends[1], &answer, sizeof(answer), fds, &n) == 0);
	ensure(answer.magic == MOUNTER_MAGIC && answer.serial == request->serial && n == 0);
	ensure(answer.code <= 0 && memchr(answer.text, '\0', sizeof(answer.text)));
	mounter_peer_free(peer); /* waits for the request's thread */
	mounter_host_free(host);
	(void)close(ends[0]);
	(void)close(ends[1]);
	(void)close(wake_fd);
}

static void patch(uint8_t *message, size_t bytes, const uint8_t *p, const uint8_t *end)
{
	while (end - p > 3) {
		size_t at = little_get16(p) % bytes;
		size_t n = min((size_t)p[2] + 1, (size_t)(end - p) - 3);

		n = min(n, bytes - at);
		if (p[2] == FILL) {
			n = 1;
			memset(message + at, p[3], min((size_t)PATH_MAX, bytes - at));
		} else {
			memcpy(message + at, p + 3, n);
		}
		p += 3 + n;
	}
}

/* ---- both ways ------------------------------------------------------------------------------- */

static void receive(int socket, void *message, size_t bytes)
{
	int fds[MOUNTER_FDS_MAX];
	uint32_t n = 0;
	int r = mounter_receive(socket, message, bytes, fds, &n);

	ensure(r == 0 || r == -EBADMSG || r == -ENODATA);
	for (uint32_t i = 0; r == 0 && i < n; i++) {
		ensure(fcntl(fds[i], F_GETFD) & FD_CLOEXEC);
		(void)close(fds[i]);
	}
}

static void pass(const void *message, size_t sent, uint32_t n_fds, void *received, size_t bytes)
{
	int free_fd = fuzz_free_fd();
	int ends[2];

	ensure(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0);
	send_with(ends[0], message, sent, n_fds);
	receive(ends[1], received, bytes);
	(void)close(ends[0]);
	(void)close(ends[1]);
	ensure(fuzz_free_fd() == free_fd);
}

union message {
	struct mounter_request request;
	uint8_t bytes[sizeof(struct mounter_request)];
};

static void try_request(const uint8_t *data, size_t size, uint32_t n_fds)
{
	static union message sent;
	static union message received;

	memset(&sent, 0, sizeof(sent));
	sent.request.magic = MOUNTER_MAGIC;
	sent.request.n_fds = n_fds;
	patch(sent.bytes, sizeof(sent.bytes), data, data + size);
	pass(sent.bytes, sizeof(sent.bytes), n_fds, received.bytes, sizeof(received.bytes));
	ensure(memcmp(sent.bytes, received.bytes, sizeof(sent.bytes)) == 0);
	check_request(&received.request, n_fds);
	if (may_serve(&sent.request))
		serve(&sent.request, n_fds);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct mounter_answer answer;
	uint32_t n_fds;

	(void)a_file();
	if (size < 2)
		return 0;
	n_fds = data[1] % (MOUNTER_FDS_MAX + 1);
	if (data[0] % 2 == 0)
		try_request(data + 2, size - 2, n_fds);
	else
		pass(data + 2, size - 2, n_fds, &answer, sizeof(answer));
	return 0;
}

/* ---- seeds ----------------------------------------------------------------------------------- */

static size_t put(uint8_t *out, size_t at, const void *bytes, uint8_t n)
{
	little_put16(out, (uint16_t)at);
	out[2] = (uint8_t)(n - 1);
	memcpy(out + 3, bytes, n);
	return 3u + n;
}

static void seed(
	const char *name, enum mounter_op op, uint8_t n_fds, const char *path, const char *key)
{
	uint8_t bytes[1024] = { n_fds };
	const uint8_t number[4] = { (uint8_t)op };
	size_t n = 1;

	n += put(bytes + n, offsetof(struct mounter_request, op), number, sizeof(number));
	n += put(bytes + n, offsetof(struct mounter_request, path), path,
		(uint8_t)(strlen(path) + 1));
	n += put(bytes + n, offsetof(struct mounter_request, key), key, (uint8_t)(strlen(key) + 1));
	fuzz_seed_for(0, name, bytes, n);
}

void fuzz_seeds(void)
{
	static uint8_t answer[1 + sizeof(struct mounter_answer)];
	const struct mounter_answer sound = { .magic = MOUNTER_MAGIC, .serial = 1, .n_fds = 1 };

	seed("attach", MOUNTER_ATTACH, 2, "/mnt/data", "key");
	seed("local", MOUNTER_LOCAL, 3, "", "\x01\x01\x01");
	seed("newer", MOUNTER_NEWER, 0, "", "");
	seed("mount-fuse", MOUNTER_MOUNT_FUSE, 1, "", "s3://bucket/prefix");
	seed("no-op", MOUNTER_OPS, 0, "", "");
	answer[0] = 1;
	memcpy(answer + 1, &sound, sizeof(sound));
	fuzz_seed_for(1, "answer", answer, sizeof(answer));
}
