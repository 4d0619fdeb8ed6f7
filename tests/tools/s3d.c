/* s3d: options, listening sockets, the loop. See s3d.h. */
#include "tests/tools/s3d.h"

#include <fcntl.h>
#include <getopt.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include "base/cleanup.h"
#include "base/file.h"

static const char usage[] =
	"usage: s3d --dir DIR | --synthetic [SHAPE:]N,SIZE,DIRS[,PREFIX] ... | --upstream "
	"IPV4:PORT\n"
	"\n"
	"  SHAPE of the keys     dirs (d00003/o00000042), flat (img_000000042.jpg), hash (16 hex\n"
	"                        digits), classes (train/n00000007/n00000007_42.JPEG), cjk (four\n"
	"                        ideographs)\n"
	"  --listen IPV4:PORT    S3 (127.0.0.1:0; port 0 takes a free one)\n"
	"  --control IPV4:PORT   counters and faults (127.0.0.1:0)\n"
	"  --netns FILE          S3 is served in that network namespace, /proc/PID/ns/net;\n"
	"                        counters and what is behind a proxy stay in this one\n"
	"  --bucket NAME         standalone: the bucket's name (bucket)\n"
	"  --domain NAME         a Host below it is virtual-host style (s3.localhost)\n"
	"  --seed N              random numbers of the faults (1)\n"
	"  --key ID:SECRET[:TOKEN]  checks signatures; may be given several times\n"
	"  --anonymous           beside keys: unsigned requests are allowed\n"
	"  --region NAME         signatures for another region are refused\n"
	"  --requester-pays      beside keys: who does not say that he pays is refused\n"
	"  --versioned           synthetic objects keep their versions\n"
	"  --weak-etags          W/\"...\", which no If-Match fulfils\n"
	"  --hex-etags           without the -1 of objects that were uploaded in parts\n"
	"  --log FILE            one line per request\n"
	"\n"
	"Prints `data=IPV4:PORT control=IPV4:PORT` when it serves. Faults and objects that "
	"change:\n"
	"POST to the control port, see the heads of s3d_control.c and s3d_fault.c.\n";

struct options {
	const char *listen, *control, *dir, *bucket, *upstream, *domain, *log;
	const char *region, *netns;
	const char *synthetic[16];
	const char *keys[S3D_KEYS];
	size_t synthetics, n_keys;
	bool anonymous;
	bool requester_pays, versioned;
	enum s3d_etags etags;
	uint64_t seed;
};

static void options_parse(struct options *o, int argc, char **argv)
{
	static const struct option names[] = { { "listen", 1, 0, 'l' }, { "control", 1, 0, 'c' },
		{ "dir", 1, 0, 'd' }, { "bucket", 1, 0, 'b' }, { "synthetic", 1, 0, 's' },
		{ "upstream", 1, 0, 'u' }, { "domain", 1, 0, 'D' }, { "seed", 1, 0, 'S' },
		{ "log", 1, 0, 'L' }, { "key", 1, 0, 'k' }, { "anonymous", 0, 0, 'a' },
		{ "region", 1, 0, 'r' }, { "requester-pays", 0, 0, 'p' },
		{ "versioned", 0, 0, 'v' }, { "weak-etags", 0, 0, 'w' }, { "hex-etags", 0, 0, 'x' },
		{ "netns", 1, 0, 'n' }, { "help", 0, 0, 'h' }, { 0 } };
	int c;

	*o = (struct options){ .listen = "127.0.0.1:0",
		.control = "127.0.0.1:0",
		.bucket = "bucket",
		.domain = "s3.localhost",
		.seed = 1 };
	while ((c = getopt_long(argc, argv, "", names, NULL)) != -1) {
		switch (c) {
		case 'l':
			o->listen = optarg;
			break;
		case 'c':
			o->control = optarg;
			break;
		case 'd':
			o->dir = optarg;
			break;
		case 'b':
			o->bucket = optarg;
			break;
		case 'u':
			o->upstream = optarg;
			break;
		case 'D':
			o->domain = optarg;
			break;
		case 'L':
			o->log = optarg;
			break;
		case 'S':
			o->seed = strtoull(optarg, NULL, 10);
			break;
		case 'k':
			if (o->n_keys < ARRAY_SIZE(o->keys))
				o->keys[o->n_keys++] = optarg;
			break;
		case 'a':
			o->anonymous = true;
			break;
		case 'r':
			o->region = optarg;
			break;
		case 'n':
			o->netns = optarg;
			break;
		case 'p':
			o->requester_pays = true;
			break;
		case 'v':
			o->versioned = true;
			break;
		case 'w':
			o->etags = S3D_ETAGS_WEAK;
			break;
		case 'x':
			o->etags = S3D_ETAGS_HEX;
			break;
		case 's':
			if (o->synthetics < ARRAY_SIZE(o->synthetic))
				o->synthetic[o->synthetics++] = optarg;
			break;
		default:
			(void)fputs(usage, c == 'h' ? stdout : stderr);
			exit(c == 'h' ? 0 : 2);
		}
	}
	if (optind < argc || (o->dir || o->synthetics) == (o->upstream != NULL)) {
		(void)fputs(usage, stderr);
		exit(2);
	}
}

static int server_set_source(struct s3d *s, const struct options *o, struct err *e)
{
	char host[64];
	unsigned int port;
	int r = 0;

	if (o->upstream) {
		if (sscanf(o->upstream, "%63[0-9.]:%u", host, &port) != 2 || port > 65535 ||
			uv_ip4_addr(host, (int)port, &s->upstream))
			return err_set(e, -EINVAL, "--upstream %s: it is IPV4:PORT", o->upstream);
		return 0;
	}
	s->store = s3d_store_new(o->bucket, o->dir, o->versioned, o->etags);
	if (!s->store)
		return err_set(e, -ENOMEM, "no memory");
	for (size_t i = 0; i < o->synthetics && r == 0; i++)
		r = s3d_store_add_synthetic(s->store, o->synthetic[i], e);
	return r ? r : s3d_store_scan(s->store, e);
}

static int server_set_auth(struct s3d *s, const struct options *o, struct err *e)
{
	int r = 0;

	s->auth.anonymous = o->anonymous;
	s->auth.requester_pays = o->requester_pays;
	(void)snprintf(s->auth.region, sizeof(s->auth.region), "%s", o->region ? o->region : "");
	for (size_t i = 0; i < o->n_keys && r == 0; i++)
		r = s3d_auth_add(&s->auth, o->keys[i], e);
	return r;
}

static int enter(int fd, const char *what, struct err *e)
{
	if (fd < 0 || setns(fd, CLONE_NEWNET))
		return err_set(
			e, err_errno(), "network namespace %s: %s", what, err_str(err_errno()));
	return 0;
}

/* A socket stays where it was made. */
static int server_listen(struct s3d *s, const struct options *o, char *ret_data, struct err *e)
{
	_cleanup_close_ int here = -1;
	_cleanup_close_ int there = -1;
	int r;
	int back;

	if (!o->netns)
		return s3d_conn_listen(s, o->listen, false, &s->data_listener, ret_data, e);
	here = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
	there = open(o->netns, O_RDONLY | O_CLOEXEC);
	r = here < 0 ? err_errno() : enter(there, o->netns, e);
	if (r)
		return r;
	r = s3d_conn_listen(s, o->listen, false, &s->data_listener, ret_data, e);
	back = enter(here, "of its own", e);
	return r ? r : back;
}

static int server_start(struct s3d *s, const struct options *o, struct err *e)
{
	char data[S3D_ADDRESS], control[S3D_ADDRESS];
	int r;

	s->domain = o->domain;
	list_init(&s->conns);
	list_init(&s->idle_upstreams);
	s3d_faults_init(&s->faults, o->seed, !o->upstream);
	if (o->log) {
		s->log = fopen(o->log, "ae");
		if (!s->log)
			return err_set(e, err_errno(), "cannot write %s", o->log);
		(void)setvbuf(s->log, NULL, _IOLBF, 0); /* only slower to appear without */
	}
	(void)uv_loop_init(&s->loop); /* without memory the first listener fails */
	r = server_set_auth(s, o, e);
	if (r == 0)
		r = server_set_source(s, o, e);
	if (r == 0)
		r = server_listen(s, o, data, e);
	if (r == 0)
		r = s3d_conn_listen(s, o->control, true, &s->control_listener, control, e);
	if (r)
		return r;
	(void)printf("data=%s control=%s\n", data, control);
	return fflush(stdout) ? err_errno() : 0;
}

static void on_signal(uv_signal_t *signal, int number)
{
	(void)number;
	uv_stop(signal->loop);
}

static void on_walk(uv_handle_t *handle, void *arg)
{
	(void)arg;
	if (!uv_is_closing(handle))
		uv_close(handle, NULL);
}

static void server_stop(struct s3d *s)
{
	list_for_each_safe (node, &s->conns)
		s3d_conn_close(list_entry(node, struct s3d_conn, link));
	s3d_proxy_close_idle(s);
	uv_walk(&s->loop, on_walk, NULL);
	(void)uv_run(&s->loop, UV_RUN_DEFAULT); /* runs the closing callbacks */
	(void)uv_loop_close(&s->loop);
	(void)s3d_faults_remove(&s->faults, 0);
	s3d_store_free(s->store);
	if (s->log)
		(void)fclose(s->log);
}

int main(int argc, char **argv)
{
	static struct s3d server;
	struct options options;
	struct err e = ERR_INIT;
	struct rlimit files;
	uv_signal_t term, interrupt;

	options_parse(&options, argc, argv);
	if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
		files.rlim_cur = files.rlim_max;
		(void)setrlimit(RLIMIT_NOFILE, &files); /* fewer connections without */
	}
	(void)signal(SIGPIPE, SIG_IGN);
	if (server_start(&server, &options, &e)) {
		(void)fprintf(stderr, "s3d: %s\n", e.text);
		return 1;
	}
	(void)uv_signal_init(&server.loop, &term);
	(void)uv_signal_init(&server.loop, &interrupt);
	(void)uv_signal_start(&term, on_signal, SIGTERM);
	(void)uv_signal_start(&interrupt, on_signal, SIGINT);
	(void)uv_run(&server.loop, UV_RUN_DEFAULT); /* until a signal stops it */
	server_stop(&server);
	return 0;
}
