/*
 * bench-wire: what a read from a peer is compared with: a loop of pread(2) and write(2) at one end of
 * a TCP connection, a loop of read(2) at the other.
 *
 *	bench-wire serve HOST:PORT FILE		sends the file, again and again, --bytes in all
 *	bench-wire take HOST:PORT		takes it
 *
 * One connection, --piece bytes per call. Each end prints one JSON line: bytes, seconds (of the taker,
 * from its first byte on), CPU seconds. Bytes are not looked at.
 */
#include "base/clock.h"
#include "base/cleanup.h"
#include "base/option.h"
#include "base/units.h"
#include "bench/cpu.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define PIECE_MAX (16 * MiB)

struct options {
	uint64_t bytes;
	uint64_t piece;
};

static const struct option_spec specs[] = {
	OPTION_SIZE_ROW(struct options, bytes, "bytes", MiB, 0, "to be sent; 1GiB"),
	OPTION_SIZE_ROW(struct options, piece, "piece", 4096, 0, "bytes of one call; 1MiB"),
};

static const struct option_set option_set = { .program = "bench-wire",
	.arguments = "serve|take HOST:PORT [FILE]",
	.about = "Sends a file over TCP by the plainest loop and says how fast.",
	.specs = specs,
	.n = ARRAY_SIZE(specs),
	.min_args = 2,
	.max_args = 3 };

static int parse(const char *text, struct sockaddr_in *ret)
{
	char host[64];
	const char *colon = strrchr(text, ':');

	*ret = (struct sockaddr_in){ .sin_family = AF_INET };
	if (!colon || (size_t)(colon - text) >= sizeof(host))
		return -EINVAL;
	memcpy(host, text, (size_t)(colon - text));
	host[colon - text] = '\0';
	ret->sin_port = htons((uint16_t)strtoul(colon + 1, NULL, 10));
	return inet_pton(AF_INET, host, &ret->sin_addr) == 1 ? 0 : -EINVAL;
}

static int accept_one(const struct sockaddr_in *address)
{
	_cleanup_close_ int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	const int one = 1;
	int fd;

	if (listener < 0 ||
		setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) != 0 ||
		bind(listener, (const struct sockaddr *)address, sizeof(*address)) != 0 ||
		listen(listener, 1) != 0)
		return err_errno();
	puts("ready");
	(void)fflush(stdout); /* who waits for it sees that it does not come */
	fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	if (fd >= 0) /* as ours are; slower without */
		(void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	return fd < 0 ? err_errno() : fd;
}

static int send_all(int fd, const char *data, size_t n)
{
	while (n) {
		ssize_t sent = send(fd, data, n, MSG_NOSIGNAL);

		if (sent < 0)
			return err_errno();
		data += sent;
		n -= (size_t)sent;
	}
	return 0;
}

static int serve(const struct options *o, const struct sockaddr_in *address, const char *path,
	char *buffer, uint64_t *ret_bytes)
{
	_cleanup_close_ int file = open(path, O_RDONLY | O_CLOEXEC);
	_cleanup_close_ int fd = -1;
	struct stat st = { 0 };
	uint64_t at = 0;
	int r = file < 0 || fstat(file, &st) != 0 ? err_errno() : 0;

	if (r < 0 || st.st_size == 0)
		return r < 0 ? r : -ENODATA;
	fd = accept_one(address);
	r = min(fd, 0);
	for (*ret_bytes = 0; r == 0 && *ret_bytes < o->bytes;) {
		ssize_t n = pread(file, buffer, min(o->piece, o->bytes - *ret_bytes), (off_t)at);

		if (n < 0)
			return err_errno();
		r = send_all(fd, buffer, (size_t)n);
		*ret_bytes += (uint64_t)n;
		at = at + (uint64_t)n < (uint64_t)st.st_size ? at + (uint64_t)n : 0;
	}
	return r;
}

static int take(const struct options *o, const struct sockaddr_in *address, char *buffer,
	uint64_t *ret_bytes)
{
	_cleanup_close_ int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	ssize_t n = 1;

	if (fd < 0 || connect(fd, (const struct sockaddr *)address, sizeof(*address)) != 0)
		return err_errno();
	for (*ret_bytes = 0; n > 0 && *ret_bytes < o->bytes; *ret_bytes += (uint64_t)max(n, 0l))
		n = recv(fd, buffer, min(o->piece, o->bytes - *ret_bytes), MSG_WAITALL);
	return n < 0 ? err_errno() : n == 0 ? -ECONNRESET : 0;
}

int main(int argc, char **argv)
{
	struct options options = { .bytes = GiB, .piece = MiB };
	_cleanup_free_ char *buffer = NULL;
	struct sockaddr_in address;
	uint64_t bytes = 0;
	uint64_t began;
	bool serves;
	int n;
	int r;

	n = option_parse_or_exit(&option_set, argc, argv, &options);
	serves = strcmp(argv[1], "serve") == 0;
	buffer = aligned_alloc(4096, PIECE_MAX);
	r = options.piece > PIECE_MAX || serves != (n == 3) ? -EINVAL : parse(argv[2], &address);
	if (r == 0 && !buffer)
		r = -ENOMEM;
	began = clock_mono_ns();
	if (r == 0)
		r = serves ? serve(&options, &address, argv[3], buffer, &bytes)
			   : take(&options, &address, buffer, &bytes);
	if (r < 0) {
		fprintf(stderr, "bench-wire: %s %s: %s\n", argv[1], argv[2], err_str(r));
		return EXIT_FAILURE;
	}
	printf("{\"bytes\": %llu, \"seconds\": %.6f, \"cpu\": %.6f}\n", (unsigned long long)bytes,
		(double)(clock_mono_ns() - began) / 1e9, cpu_seconds());
	return EXIT_SUCCESS;
}
