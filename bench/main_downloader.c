/*
 * bench-downloader: what a cold read is compared with: a plain client that copies an object into a
 * file by ranged GETs on a few connections, or a list of objects into a directory.
 *
 *	bench-downloader URL FILE			one object, --range bytes per request
 *	bench-downloader --list KEYS URL DIRECTORY	objects URL/KEY, one request each
 *
 * HTTP without TLS, unsigned, one thread per connection, blocking calls; bytes are not checked.
 * Files are written through the page cache and not synced, or with --direct by O_DIRECT (one object
 * only), or with --discard not at all. Prints one JSON line: files, bytes, seconds, CPU seconds.
 */
#include "base/buf.h"
#include "base/clock.h"
#include "base/cleanup.h"
#include "base/option.h"
#include "base/units.h"
#include "bench/cpu.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>

#define HEAD_BYTES      (16u * 1024u)
#define PIECE           ((size_t)MiB) /* received and written at once */
#define ALIGNMENT       4096u
#define CONNECTIONS_MAX 64u

struct options {
	const char *list;
	uint64_t connections;
	uint64_t range;
	bool direct;
	bool discard;
};

static const struct option_spec specs[] = {
	OPTION_STRING_ROW(struct options, list, "list", "FILE",
		"keys below URL, one a line; into a directory"),
	OPTION_ROW(struct options, connections, "connections", OPTION_UINT, .min = 1,
		.max = CONNECTIONS_MAX, .help = "requests at a time; 8"),
	OPTION_SIZE_ROW(struct options, range, "range", PIECE, 0, "bytes of one request; 8MiB"),
	OPTION_BOOL_ROW(struct options, direct, "direct", "write with O_DIRECT"),
	OPTION_BOOL_ROW(struct options, discard, "discard",
		"receive only, as a load generator does; the files are empty"),
};

static const struct option_set option_set = { .program = "bench-downloader",
	.arguments = "URL TARGET",
	.about = "Copies objects from an HTTP server into files and says how fast.",
	.specs = specs,
	.n = ARRAY_SIZE(specs),
	.min_args = 2,
	.max_args = 2 };

/* All connections', read only while they run but for what is atomic. */
struct download {
	struct options options;
	char host[256];
	char port[16];
	const char *path; /* of the URL, with its leading '/' */
	const char *target;
	struct addrinfo *address;
	char **keys; /* of --list */
	size_t n_keys;
	uint64_t size; /* of the one object */
	int fd;        /* its file */
	_Atomic uint64_t next;
	_Atomic uint64_t bytes;
	_Atomic int status; /* the first error */
};

struct connection {
	struct download *download;
	pthread_t thread;
	int fd;
	char head[HEAD_BYTES];
	size_t have; /* bytes in head, of which head_len are the head: the rest is body */
	size_t head_len;
	char *buffer; /* PIECE */
};

static int connect_to(struct connection *c)
{
	const struct addrinfo *address = c->download->address;
	int one = 1;

	ensure(address); /* parse_url() found one */
	c->fd = socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (c->fd < 0 || connect(c->fd, address->ai_addr, address->ai_addrlen) != 0)
		return err_errno();
	(void)setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)); /* slower without */
	return 0;
}

static int send_all(int fd, const char *data, size_t len)
{
	while (len) {
		ssize_t n = send(fd, data, len, MSG_NOSIGNAL);

		if (n < 0)
			return err_errno();
		data += n;
		len -= (size_t)n;
	}
	return 0;
}

/* Sends a request and receives the head of its answer; `length` 0: the whole object. */
static int ask(struct connection *c, const char *method, const char *key, uint64_t offset,
	uint64_t length, uint64_t *ret_body)
{
	struct buf request = BUF_INIT(HEAD_BYTES);
	char *end = NULL;
	const char *value;
	int r = buf_printf(&request, "%s %s%s%s HTTP/1.1\r\nHost: %s:%s\r\n", method,
		c->download->path, *key ? "/" : "", key, c->download->host, c->download->port);

	if (r == 0 && length)
		r = buf_printf(&request, "Range: bytes=%llu-%llu\r\n", (unsigned long long)offset,
			(unsigned long long)(offset + length - 1));
	if (r == 0)
		r = buf_puts(&request, "\r\n");
	if (r == 0)
		r = send_all(c->fd, request.data, request.len);
	buf_release(&request);
	c->have = 0;
	while (r == 0 && !end) {
		ssize_t n = recv(c->fd, c->head + c->have, sizeof(c->head) - 1 - c->have, 0);

		if (n <= 0)
			return n < 0 ? err_errno() : -ECONNRESET;
		c->have += (size_t)n;
		c->head[c->have] = '\0';
		end = strstr(c->head, "\r\n\r\n");
		if (!end && c->have == sizeof(c->head) - 1)
			return -EPROTO;
	}
	if (r < 0)
		return r;
	c->head_len = (size_t)(end - c->head) + 4;
	value = strcasestr(c->head, "\r\nContent-Length:");
	if (strncmp(c->head, "HTTP/1.1 20", 11) != 0 || !value || value > end)
		return -EPROTO;
	*ret_body = strtoull(value + strlen("\r\nContent-Length:"), NULL, 10);
	return 0;
}

/* Up to PIECE bytes of the body that has `left` more, in c->buffer. */
static ssize_t receive(struct connection *c, uint64_t left)
{
	size_t want = min((uint64_t)PIECE, left);
	size_t got = min(c->have - c->head_len, want);

	memcpy(c->buffer, c->head + c->head_len, got);
	c->head_len += got;
	while (got < want) {
		ssize_t n = recv(c->fd, c->buffer + got, want - got, 0);

		if (n <= 0)
			return n < 0 ? err_errno() : -ECONNRESET;
		got += (size_t)n;
	}
	return (ssize_t)got;
}

static int write_all(const struct download *d, int fd, char *data, size_t len, uint64_t offset)
{
	if (d->options.discard)
		return 0;
	if (d->options.direct && len % ALIGNMENT) /* the file's end; cut off afterwards */
		len = align_up(len, ALIGNMENT);
	while (len) {
		ssize_t n = pwrite(fd, data, len, (off_t)offset);

		if (n < 0)
			return err_errno();
		data += n;
		offset += (uint64_t)n;
		len -= (size_t)n;
	}
	return 0;
}

static int copy_body(struct connection *c, int fd, uint64_t offset, uint64_t left)
{
	while (left) {
		ssize_t n = receive(c, left);
		int r;

		if (n < 0)
			return (int)n;
		r = write_all(c->download, fd, c->buffer, (size_t)n, offset);
		if (r < 0)
			return r;
		atomic_fetch_add(&c->download->bytes, (uint64_t)n);
		offset += (uint64_t)n;
		left -= (uint64_t)n;
	}
	return 0;
}

static int copy_range(struct connection *c, uint64_t number)
{
	struct download *d = c->download;
	uint64_t offset = number * d->options.range;
	uint64_t length = min(d->options.range, d->size - offset);
	uint64_t body;
	int r = ask(c, "GET", "", offset, length, &body);

	if (r == 0 && body != length)
		r = -EPROTO;
	return r ? r : copy_body(c, d->fd, offset, length);
}

static int copy_key(struct connection *c, uint64_t number)
{
	struct download *d = c->download;
	_cleanup_free_ char *path = NULL;
	_cleanup_close_ int fd = -1;
	uint64_t body;
	int r = ask(c, "GET", d->keys[number], 0, 0, &body);

	if (r < 0)
		return r;
	/* Flat: making directories is no part of a download. */
	if (asprintf(&path, "%s/%llu", d->target, (unsigned long long)number) < 0)
		return -ENOMEM;
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	return fd < 0 ? err_errno() : copy_body(c, fd, 0, body);
}

static void *run_connection(void *arg)
{
	struct connection *c = arg;
	struct download *d = c->download;
	uint64_t n = d->keys ? d->n_keys : (d->size + d->options.range - 1) / d->options.range;
	int r = connect_to(c);
	uint64_t i;

	while (r == 0 && atomic_load(&d->status) == 0 && (i = atomic_fetch_add(&d->next, 1)) < n)
		r = d->keys ? copy_key(c, i) : copy_range(c, i);
	if (r < 0)
		atomic_store(&d->status, r);
	if (c->fd >= 0)
		(void)close(c->fd); /* all was received, or it failed */
	return NULL;
}

static int parse_url(struct download *d, const char *url)
{
	size_t host_len;
	size_t port_len;

	if (strncmp(url, "http://", 7) != 0)
		return -EINVAL;
	url += 7;
	host_len = strcspn(url, ":/");
	if (url[host_len] != ':' || host_len >= sizeof(d->host))
		return -EINVAL;
	memcpy(d->host, url, host_len);
	url += host_len + 1;
	port_len = strcspn(url, "/");
	if (url[port_len] != '/' || port_len >= sizeof(d->port))
		return -EINVAL;
	memcpy(d->port, url, port_len);
	d->path = url + port_len;
	return getaddrinfo(d->host, d->port, &(struct addrinfo){ .ai_socktype = SOCK_STREAM },
		       &d->address)
		       ? -EHOSTUNREACH
		       : 0;
}

static int read_keys(struct download *d)
{
	_cleanup_fclose_ FILE *f = fopen(d->options.list, "re");
	_cleanup_free_ char *line = NULL;
	size_t size = 0;
	ssize_t n;

	if (!f)
		return err_errno();
	while ((n = getline(&line, &size, f)) > 0) {
		char **more = d->keys;

		if (line[n - 1] == '\n')
			line[n - 1] = '\0';
		if (d->n_keys % 4096 == 0)
			more = realloc(d->keys, (d->n_keys + 4096) * sizeof(*more));
		if (!more)
			return -ENOMEM;
		d->keys = more;
		d->keys[d->n_keys] = TAKE(line);
		d->n_keys++;
		size = 0;
	}
	return d->n_keys ? 0 : -ENODATA;
}

/* The object's size, and its file. */
static int open_object(struct download *d, struct connection *c)
{
	int r = connect_to(c);

	if (r == 0)
		r = ask(c, "HEAD", "", 0, 0, &d->size);
	if (c->fd >= 0)
		(void)close(c->fd); /* nothing more is asked on it */
	if (r < 0)
		return r;
	ensure(d->target); /* an argument */
	d->fd = open(d->target,
		O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | (d->options.direct ? O_DIRECT : 0),
		0600);
	return d->fd < 0 ? err_errno() : 0;
}

static int run(struct download *d, struct connection *connections)
{
	uint64_t n = d->options.connections;
	uint64_t started = 0;

	for (uint64_t i = 0; i < n; i++) {
		connections[i] = (struct connection){ .download = d, .fd = -1 };
		connections[i].buffer = aligned_alloc(ALIGNMENT, PIECE);
		if (!connections[i].buffer)
			return -ENOMEM;
	}
	if (!d->keys) {
		int r = open_object(d, &connections[0]);

		if (r < 0)
			return r;
	}
	while (started < n && pthread_create(&connections[started].thread, NULL, run_connection,
				      &connections[started]) == 0)
		started++;
	for (uint64_t i = 0; i < started; i++)
		pthread_join(connections[i].thread, NULL);
	if (started < n)
		return -EAGAIN;
	if (d->options.direct && ftruncate(d->fd, (off_t)d->size) != 0)
		return err_errno();
	return atomic_load(&d->status);
}

int main(int argc, char **argv)
{
	static struct connection connections[CONNECTIONS_MAX];
	static struct download d = { .options = { .connections = 8, .range = 8 * MiB }, .fd = -1 };
	uint64_t began;
	double seconds;
	int r;

	(void)option_parse_or_exit(&option_set, argc, argv, &d.options); /* exactly two arguments */
	d.target = argv[2];
	r = parse_url(&d, argv[1]);
	if (r == 0 && d.options.list)
		r = read_keys(&d);
	began = clock_mono_ns();
	if (r == 0)
		r = run(&d, connections);
	seconds = (double)(clock_mono_ns() - began) / 1e9;
	if (r < 0) {
		fprintf(stderr, "bench-downloader: %s: %s\n", argv[1], err_str(r));
		return EXIT_FAILURE;
	}
	printf("{\"files\": %zu, \"bytes\": %llu, \"seconds\": %.6f, \"cpu\": %.6f}\n",
		d.keys ? d.n_keys : 1, (unsigned long long)d.bytes, seconds, cpu_seconds());
	return EXIT_SUCCESS;
}
