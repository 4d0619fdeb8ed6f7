/* cachecsi: the CSI node plugin of this host. See plugin.h. */
#include "base/backoff.h"
#include "base/clock.h"
#include "base/option.h"
#include "base/daemon.h"
#include "base/exit.h"
#include "base/log.h"
#include "base/ready.h"
#include "base/units.h"
#include "base/unix_socket.h"
#include "csi/grpc_server.h"
#include "csi/plugin.h"

#include <string.h>
#include <unistd.h>

#define PROGRAM         "cachecsi"
#define PLUGIN_MEMORY   (64 * MiB)
#define REGISTER_NS     (1 * CLOCK_SECOND) /* from a failed registration to the next; doubles */
#define REGISTER_MAX_NS (60 * CLOCK_SECOND)

struct options {
	const char *endpoint;
	const char *registration;
	const char *kubelet_endpoint;
	const char *keeper;
	const char *name;
	const char *node;
	const char *log_level;
	const char *log_file;
	int ready_fd;
};

/* A path, also as unix://PATH and unix:PATH. */
static const char *path_of(const char *address)
{
	if (strncmp(address, "unix://", 7) == 0)
		return address + 7;
	return strncmp(address, "unix:", 5) == 0 ? address + 5 : address;
}

static int check_socket(const char *text, struct err *e)
{
	if (path_of(text)[0] != '/')
		return err_set(e, -EINVAL,
			"'%s' is not the path of a unix socket; allowed: unix:///DIR/NAME.sock",
			text);
	return unix_socket_check(path_of(text), e);
}

static const struct option_spec specs[] = {
	OPTION_ROW(struct options, endpoint, "endpoint", OPTION_STRING, .metavar = "PATH",
		.check = check_socket,
		.help = "Socket for the calls of kubelet (default: unix:///csi/csi.sock)"),
	OPTION_ROW(struct options, registration, "registration", OPTION_STRING, .metavar = "PATH",
		.check = check_socket,
		.help = "Socket at which kubelet asks for the plugin, such as "
			"/registration/csi.granary.io-reg.sock (default: none)"),
	OPTION_ROW(struct options, kubelet_endpoint, "kubelet-endpoint", OPTION_STRING,
		.metavar = "PATH", .check = check_socket,
		.help = "Path of the endpoint on the host, as kubelet reaches it (default: that "
			"of the endpoint)"),
	OPTION_ROW(struct options, keeper, "keeper", OPTION_STRING, .metavar = "PATH",
		.check = check_socket,
		.help = "Socket of the mount keeper for this client (default: "
			"/run/granary/keeper/clients/csi/keeper.sock)"),
	OPTION_STRING_ROW(struct options, name, "driver", "NAME",
		"Name of the driver (default: " PLUGIN_NAME ")"),
	OPTION_STRING_ROW(struct options, node, "node", "NAME",
		"Name of the node (default: that of the host)"),
	OPTION_FD_ROW(struct options, ready_fd, "ready-fd",
		"Descriptor for a line READY or ERROR at start (default: none)"),
	OPTION_ROW(struct options, log_level, "log-level", OPTION_CHOICE,
		.choices = "error|warn|info|debug", .help = "Log level (default: info)"),
	OPTION_STRING_ROW(
		struct options, log_file, "log-file", "FILE", "Log file (default: standard error)"),
};

static const struct option_set set = {
	.program = PROGRAM,
	.arguments = "",
	.about = "The CSI node plugin: mounts datasets as volumes of pods, through the mount "
		 "keeper of the host.",
	.specs = specs,
	.n = ARRAY_SIZE(specs),
};

struct running {
	const struct options *options;
	struct plugin plugin;
	struct grpc_service service;
	struct grpc_service registration;
	struct grpc_server *servers[2]; /* NULL: none */
	struct loop_timer *again;       /* to the next registration; NULL: none */
	struct backoff backoff;         /* between two */
	struct err e;
};

static void register_again(struct running *r);

/* The registration last: kubelet calls the other as soon as it sees it. */
static void open_sockets(void *arg)
{
	struct running *r = arg;
	const struct options *o = r->options;

	if (grpc_server_new(
		    r->plugin.loop, path_of(o->endpoint), &r->service, &r->servers[0], &r->e) < 0 ||
		!o->registration)
		return;
	(void)!grpc_server_new(r->plugin.loop, path_of(o->registration), &r->registration,
		&r->servers[1], &r->e); /* in r->e */
}

/* kubelet sees a socket that is made, not one that it asked before. */
static void on_again(void *arg)
{
	struct running *r = arg;
	struct err e = ERR_INIT;

	r->again = NULL;
	grpc_server_free(r->servers[1]);
	r->servers[1] = NULL;
	if (grpc_server_new(r->plugin.loop, path_of(r->options->registration), &r->registration,
		    &r->servers[1], &e) < 0) {
		LOG_LIMITED(LOG_ERROR, "registration not served", "why=\"%s\"", e.text);
		register_again(r);
	}
}

/* Later: the call in which kubelet reports its failure is answered first. */
static void register_again(struct running *r)
{
	if (!r->again)
		r->again = loop_timer_start(r->plugin.loop, backoff_next(&r->backoff), on_again, r);
}

static void on_registered(void *arg, bool is_registered)
{
	struct running *r = arg;

	if (is_registered)
		backoff_reset(&r->backoff);
	else
		register_again(r);
}

static void close_sockets(void *arg)
{
	struct running *r = arg;

	loop_timer_stop(r->again);
	grpc_server_free(r->servers[1]);
	grpc_server_free(r->servers[0]);
	csi_publish_end(&r->plugin);
}

static int open_plugin(struct running *r)
{
	struct plugin *p = &r->plugin;
	const struct options *o = r->options;

	p->name = o->name;
	p->node = o->node;
	p->endpoint = path_of(o->kubelet_endpoint ? o->kubelet_endpoint : o->endpoint);
	p->on_registered = on_registered;
	p->register_arg = r;
	r->backoff = (struct backoff){ .min_ns = REGISTER_NS, .max_ns = REGISTER_MAX_NS };
	list_init(&p->waiting);
	budget_init(&p->messages, PLUGIN_MESSAGES_BYTES);
	p->loop = loop_new("csi");
	if (!p->loop)
		return err_set(&r->e, -ENOMEM, "cannot start the loop: out of memory or threads");
	keeper_calls_init(&p->keeper, p->loop, path_of(o->keeper));
	r->service = (struct grpc_service){ plugin_methods, p, &p->messages, &p->n_calls };
	r->registration =
		(struct grpc_service){ plugin_registration_methods, p, &p->messages, &p->n_calls };
	loop_call(p->loop, open_sockets, r);
	return r->e.code;
}

int main(int argc, char **argv)
{
	static char host[256];
	struct options options = { .endpoint = "unix:///csi/csi.sock",
		.keeper = "/run/granary/keeper/clients/csi/keeper.sock",
		.name = PLUGIN_NAME,
		.node = host,
		.log_level = "info",
		.ready_fd = -1 };
	struct running running = { .options = &options };
	struct err e = ERR_INIT;
	sigset_t signals;
	int r;

	if (gethostname(host, sizeof(host) - 1) != 0)
		(void)snprintf(host, sizeof(host), "localhost"); /* fits */
	(void)option_parse_or_exit(&set, argc, argv, &options);  /* takes no arguments */
	if (daemon_begin("csi", options.log_level, options.log_file, &e) < 0)
		return ready_error(options.ready_fd, PROGRAM, EXIT_USAGE, &e);
	daemon_keep_memory(PLUGIN_MEMORY);
	daemon_signals_block(&signals);
	r = open_plugin(&running);
	if (r == 0) {
		ready_ok(options.ready_fd, "{}");
		log_info("serving", "endpoint=%s driver=%s node=%s", options.endpoint, options.name,
			options.node);
		daemon_signals_wait(&signals, NULL, NULL, NULL);
	}
	if (running.plugin.loop) {
		loop_call(running.plugin.loop, close_sockets, &running);
		loop_free(running.plugin.loop);
	}
	return r == 0 ? EXIT_OK : ready_error(options.ready_fd, PROGRAM, EXIT_RUNTIME, &running.e);
}
