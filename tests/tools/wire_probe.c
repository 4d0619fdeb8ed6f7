/*
 * wire-probe: says to a daemon what a test wants, with the keys that the test wants, and what comes back.
 *
 *	wire-probe ask ADDRESS [--data] [--pipelined] [KEYS]	requests from standard input, one a line:
 *		OP VOLUME LINEAGE GENERATION OFFSET LENGTH FLAGS [PAYLOAD]	numbers, hex
 *	prints for each, in their order: status=NAME payload=BYTES fd=0|1 us=MICROSECONDS text=LINE
 *	with --data, before text: data=HEX file=HEX, the payload and what is in the file of the descriptor
 *	with --pipelined, many requests are in flight at a time
 *
 *	wire-probe crowd ADDRESS COUNT [KEYS]	one request from standard input, over COUNT connections that all stay; prints as
 *		`ask` does
 *
 *	wire-probe loop ADDRESS KEYS VOLUME LINEAGE LENGTH	asks for the first bytes of a volume over and over, each time over a
 *		connection of its own with the keys as the files are then, until standard input ends; prints a line for each
 *		time, "0" or what failed
 *
 *	wire-probe fuzz ADDRESS SECONDS SEED [KEYS] [VOLUME LINEAGE]	see wire_fuzz.c
 *
 * KEYS: --cluster-key FILE | --token FILE
 */
#include "tests/tools/wire_probe.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "net/identity.h"
#include "net/net.h"

#include <poll.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CALL_NS    (20 * CLOCK_SECOND)
#define LINE_BYTES (2 * FRAME_SMALL_BYTES + 512)
#define FILE_BYTES (16u << 20)
#define PIPELINE   64u

static _Noreturn void fail(const char *what, const struct err *e)
{
	(void)fprintf(stderr, "wire-probe: %s: %s\n", what, e ? e->text : "");
	exit(1); // NOLINT(concurrency-mt-unsafe): nothing is registered
}

static struct rpc_client *client_of(struct loop *loop, const char *address)
{
	struct rpc_client *client;
	struct err e = ERR_INIT;

	if (rpc_client_new(loop, address, &client, &e) < 0)
		fail(address, &e);
	return client;
}

/* ---- ask ------------------------------------------------------------------------------------- */

static void take_line(const char *line, struct rpc_call *call, uint8_t payload[FRAME_SMALL_BYTES])
{
	char volume[33];
	char hex[2 * FRAME_SMALL_BYTES + 1] = "";
	unsigned long long lineage;
	unsigned long long generation;
	unsigned long long offset;
	unsigned int op;
	unsigned int length;
	unsigned int flags;
	int n = sscanf(line, "%u %32s %llu %llu %llu %u %u %8192s", &op, volume, &lineage,
		&generation, &offset, &length, &flags, hex);

	if (n < 7 || hash_unhex(volume, call->frame.volume.bytes, VOLUME_ID_LEN) < 0 ||
		hash_unhex(hex, payload, strlen(hex) / 2) < 0)
		fail(line, NULL);
	call->frame.op = (uint8_t)op;
	call->frame.lineage = lineage;
	call->frame.generation = generation;
	call->frame.offset = offset;
	call->frame.length = length;
	call->frame.flags = (uint16_t)flags;
	call->payload = NET_PAYLOAD_NONE;
	if (hex[0]) {
		call->payload.parts[0].data = payload;
		call->payload.parts[0].len = strlen(hex) / 2;
		call->payload.n = 1;
	}
}

static void print_hex(const char *name, const uint8_t *data, size_t len)
{
	char hex[2 * BLOCK_BYTES + 1];

	(void)printf(" %s=", name);
	for (size_t at = 0; at < len; at += BLOCK_BYTES) {
		hash_hex(data + at, min(len - at, (size_t)BLOCK_BYTES), hex);
		(void)fputs(hex, stdout);
	}
}

static void print_file(int fd)
{
	uint8_t *data = malloc(FILE_BYTES);
	ssize_t n = data ? pread(fd, data, FILE_BYTES, 0) : -1;

	if (n > 0)
		print_hex("file", data, (size_t)n);
	free(data);
}

/* A request in flight. */
struct asked {
	struct rpc_call call;
	uint8_t payload[FRAME_SMALL_BYTES];
	uint64_t began_ns;
	uint64_t ended_ns;
	int status;
	sem_t done;
};

static void on_done(struct rpc_call *call, int status)
{
	struct asked *asked = call->arg;

	asked->status = status;
	asked->ended_ns = clock_mono_ns();
	ensure(sem_post(&asked->done) == 0);
}

static void begin(struct rpc_client *client, const char *line, struct asked *asked)
{
	asked->call = (struct rpc_call){ .on_done = on_done, .arg = asked };
	ensure(sem_init(&asked->done, 0, 0) == 0);
	take_line(line, &asked->call, asked->payload);
	asked->began_ns = clock_mono_ns();
	asked->call.deadline_ns = asked->began_ns + CALL_NS;
	rpc_call(client, &asked->call);
}

/* Waits for its answer and prints it. */
static void finish(struct asked *asked, bool data)
{
	struct rpc_call *call = &asked->call;
	const char *text;
	int r;

	while (sem_wait(&asked->done) != 0)
		; /* EINTR */
	r = asked->status;
	text = r < 0 ? call->reply_payload : NULL;
	(void)printf("status=%s payload=%u fd=%d us=%llu", r < 0 ? err_name(r) : "0",
		r < 0 ? 0 : call->reply.payload, call->reply_fd >= 0,
		(unsigned long long)((asked->ended_ns - asked->began_ns) / 1000));
	if (data && r == 0 && call->reply_payload)
		print_hex("data", call->reply_payload, call->reply.payload);
	if (data && call->reply_fd >= 0)
		print_file(call->reply_fd);
	(void)printf(" text=%s\n", r < 0 && !text ? err_str(r) : text ? text : "");
	(void)fflush(stdout);
	rpc_call_release(call);
	(void)sem_destroy(&asked->done); /* nobody waits */
}

static int run_ask(const char *address, bool data, unsigned int depth)
{
	struct loop *loop = loop_new("probe");
	struct rpc_client *client = client_of(loop, address);
	struct asked *ring = calloc(depth, sizeof(*ring));
	char line[LINE_BYTES];
	uint64_t begun = 0;
	uint64_t finished = 0;

	if (!ring)
		fail("out of memory", NULL);
	while (fgets(line, sizeof(line), stdin)) {
		if (begun == finished + depth)
			finish(&ring[finished++ % depth], data);
		begin(client, line, &ring[begun++ % depth]);
		if (depth == 1)
			finish(&ring[finished++ % depth], data);
	}
	while (finished < begun)
		finish(&ring[finished++ % depth], data);
	rpc_client_free(client);
	loop_free(loop);
	free(ring);
	return 0;
}

/* ---- crowd ----------------------------------------------------------------------------------- */

static int run_crowd(const char *address, unsigned int count)
{
	struct loop *loop = loop_new("probe");
	struct rpc_client **clients = calloc(count, sizeof(struct rpc_client *));
	static struct asked asked;
	char line[LINE_BYTES];

	if (!clients || !fgets(line, sizeof(line), stdin))
		fail("a line is missing", NULL);
	for (unsigned int i = 0; i < count; i++) {
		clients[i] = client_of(loop, address);
		begin(clients[i], line, &asked);
		finish(&asked, false);
	}
	for (unsigned int i = 0; i < count; i++)
		rpc_client_free(clients[i]);
	free(clients);
	loop_free(loop);
	return 0;
}

/* ---- loop ------------------------------------------------------------------------------------ */

static bool told_to_end(void)
{
	struct pollfd p = { .fd = STDIN_FILENO, .events = POLLIN };
	char byte;

	return poll(&p, 1, 0) > 0 && read(STDIN_FILENO, &byte, 1) <= 0;
}

static int run_loop(const char *address, const struct probe_volume *volume, uint32_t length)
{
	struct loop *loop = loop_new("probe");

	while (!told_to_end()) {
		struct rpc_client *client;
		struct rpc_call call = { .deadline_ns = clock_mono_ns() + CALL_NS,
			.frame = { .op = FRAME_FETCH,
				.volume = volume->id,
				.lineage = volume->lineage,
				.length = length } };
		struct err e = ERR_INIT;

		if (net_keys_reload(&e) < 0)
			fail("keys", &e);
		client = client_of(loop, address);
		if (rpc_call_wait(client, &call, &e) == 0 && call.reply.length != length)
			(void)err_set(&e, -EIO, "%u bytes", call.reply.length);
		(void)printf("%s\n", e.text[0] ? e.text : "0");
		(void)fflush(stdout);
		rpc_call_release(&call);
		rpc_client_free(client);
	}
	loop_free(loop);
	return 0;
}

/* ---- start ----------------------------------------------------------------------------------- */

/* Takes an option out of the arguments; was it there? */
static bool take_option(int *n, char **argv, const char *option)
{
	for (int i = 0; i < *n; i++) {
		if (strcmp(argv[i], option) != 0)
			continue;
		memmove(argv + i, argv + i + 1, (size_t)(*n - i - 1) * sizeof(*argv));
		--*n;
		return true;
	}
	return false;
}

/* Takes --cluster-key and --token out of the arguments; how many are left. */
static int take_keys(int argc, char **argv, struct net_keys_config *keys)
{
	int n = 0;

	for (int i = 0; i < argc; i++) {
		if (i + 1 < argc && strcmp(argv[i], "--cluster-key") == 0)
			keys->cluster_key = argv[++i];
		else if (i + 1 < argc && strcmp(argv[i], "--token") == 0)
			keys->token = argv[++i];
		else
			argv[n++] = argv[i];
	}
	return n;
}

static struct probe_volume take_volume(char **argv)
{
	struct probe_volume volume = { .lineage = strtoull(argv[1], NULL, 10) };

	if (hash_unhex(argv[0], volume.id.bytes, VOLUME_ID_LEN) < 0)
		fail(argv[0], NULL);
	return volume;
}

int main(int argc, char **argv)
{
	struct net_keys_config keys = { 0 };
	struct err e = ERR_INIT;
	int n = take_keys(argc, argv, &keys);
	bool pipelined;
	bool data;

	log_init("wire-probe", STDERR_FILENO, LOG_WARN, LOG_TEXT);
	if ((keys.cluster_key || keys.token) && net_keys_load(&keys, &e) < 0)
		fail("keys", &e);
	data = take_option(&n, argv, "--data");
	pipelined = take_option(&n, argv, "--pipelined");
	if (n == 3 && strcmp(argv[1], "ask") == 0)
		return run_ask(argv[2], data, pipelined ? PIPELINE : 1);
	if (n == 4 && strcmp(argv[1], "crowd") == 0)
		return run_crowd(argv[2], (unsigned int)strtoul(argv[3], NULL, 10));
	if (n == 6 && strcmp(argv[1], "loop") == 0) {
		struct probe_volume volume = take_volume(argv + 3);

		return run_loop(argv[2], &volume, (uint32_t)strtoul(argv[5], NULL, 10));
	}
	if ((n == 5 || n == 7) && strcmp(argv[1], "fuzz") == 0) {
		struct probe_volume volume = { 0 };

		if (n == 7)
			volume = take_volume(argv + 5);
		return wire_fuzz(
			argv[2], strtoull(argv[3], NULL, 10), strtoull(argv[4], NULL, 10), &volume);
	}
	fail("usage: see the head of tests/tools/wire_probe.c", NULL);
}
