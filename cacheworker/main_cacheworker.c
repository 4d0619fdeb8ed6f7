/* cacheworker: the daemon that caches ranges of volumes on this node and serves them. See
 * worker.h. */
#include "cacheworker/scrub.h"
#include "cacheworker/seal.h"
#include "cacheworker/tier_command.h"
#include "cacheworker/tier_option.h"
#include "cacheworker/worker.h"
#include "admin/audit.h"
#include "base/address.h"
#include "base/alive.h"
#include "base/arena.h"
#include "base/bounds.h"
#include "base/daemon.h"
#include "base/log.h"
#include "base/option.h"
#include "base/ready.h"
#include "base/remembered.h"
#include "base/secret.h"
#include "base/units.h"
#include "net/allowance.h"
#include "net/key_options.h"
#include "ufs/protected.h"

#include <stdlib.h>
#include <string.h>

#define MEMORY_TAKEN (32 * MiB) /* accepted: earlier versions named it as the least */
#define MEMORY_LEAST (48 * MiB) /* and so much is used then */

struct options {
	const char *config;
	struct option_list tiers;
	uint64_t capacity;
	bool create;
	bool serve_without_tier;
	struct option_list advertise;
	const char *name;
	const char *domain;
	uint64_t weight;
	uint64_t memory;
	const char *master;
	struct option_list listen;
	struct key_options keys;
	const char *admin;
	struct admin_listen admin_listen;
	const char *audit_log;
	uint64_t origin_requests;
	uint64_t scrub_rate;
	uint64_t scrub_max_age;
	uint64_t seal_rate;
	uint64_t token_bandwidth;
	int ready_fd;
	const char *log_level;
	const char *log_file;
};

static const struct option_spec specs[] = {
	OPTION_STRING_ROW(struct options, config, "config", "FILE",
		"Configuration file, see granary.yaml(5) (default: none)"),
	OPTION_ROW(struct options, tiers, "tier", OPTION_LIST,
		.metavar = "DIR[,kind=KIND][,capacity=SIZE]", .required = true,
		.check = tier_option_check,
		.help = "Directory of cached data; KIND is auto, ram, nvme, ssd or hdd"),
	OPTION_SIZE_ROW(struct options, capacity, "capacity", 0, 0,
		"Capacity of the first tier " OPTION_CAPACITY_DEFAULT),
	OPTION_BOOL_ROW(struct options, create, "create",
		"Create the tier if the directory is missing or empty (default: no)"),
	OPTION_BOOL_ROW(struct options, serve_without_tier, "serve-without-tier",
		"Serve from the origin while no tier can be opened, and end once one can (default: "
		"no)"),
	OPTION_SIZE_ROW(struct options, memory, "memory", MEMORY_TAKEN, 0,
		"Maximum memory, including tiers of kind ram; less than 48MiB counts as 48MiB "
		"(default: 512MiB)"),
	OPTION_ROW(struct options, master, "master", OPTION_STRING, .metavar = "ADDR",
		.required = true, .check = address_check,
		.help = "Address of the master, such as unix:/run/granary/master.rpc"),
	OPTION_ROW(struct options, listen, "listen", OPTION_LIST, .metavar = "ADDR",
		.required = true, .check = address_check,
		.help = "Address to serve on: unix:/PATH for readers of this node, tcp:HOST:PORT "
			"for all"),
	KEY_OPTION_ROWS(struct options, keys),
	OPTION_ROW(struct options, advertise, "advertise", OPTION_LIST, .metavar = "ADDR",
		.check = address_check,
		.help = "Address for other workers and mounts to reach this worker (default: those "
			"of --listen)"),
	OPTION_STRING_ROW(struct options, name, "name", "NAME",
		"Name of the worker: letters, digits, '.', '_', '-' (default: the name of the "
		"host)"),
	OPTION_STRING_ROW(struct options, domain, "domain", "NAME",
		"Failure domain of the worker, such as its rack (default: its host)"),
	OPTION_ROW(struct options, weight, "weight", OPTION_UINT, .max = 1u << 30,
		.help = "Share of the slots relative to other workers (default: the capacity in "
			"GiB)"),
	OPTION_ROW(struct options, admin, "admin", OPTION_STRING, .metavar = "SOCKET",
		.required = true, .help = "Unix socket for /v1 and /metrics"),
	ADMIN_LISTEN_ROWS(struct options, admin_listen),
	OPTION_STRING_ROW(struct options, audit_log, "audit-log", "FILE",
		"File for a line about each change and each refused change (default: none)"),
	OPTION_ROW(struct options, origin_requests, "origin-requests", OPTION_UINT, .min = 1,
		.max = 4096, .help = "Maximum number of GETs in flight per source (default: 256)"),
	OPTION_ROW(struct options, scrub_rate, "scrub-rate", OPTION_SIZE, .reload = true,
		.help = "Bytes per second that the scrub reads; 0: only on request (default: "
			"8MiB)"),
	OPTION_ROW(struct options, scrub_max_age, "scrub-max-age", OPTION_DURATION, .reload = true,
		.help = "Time from one scrub of all cached data to the next; 0: never (default: "
			"7d)"),
	OPTION_ROW(struct options, seal_rate, "seal-rate", OPTION_SIZE, .reload = true,
		.help = "Bytes per second that are read to seal extents for native mounts; 0: none "
			"is sealed (default: 256MiB)"),
	OPTION_ROW(struct options, token_bandwidth, "token-bandwidth", OPTION_SIZE, .reload = true,
		.help = "Bytes per second for all mounts with the same token; 0: unlimited "
			"(default: 0)"),
	OPTION_FD_ROW(struct options, ready_fd, "ready-fd",
		"Descriptor for a line READY or ERROR at start (default: none)"),
	OPTION_ROW(struct options, log_level, "log-level", OPTION_CHOICE,
		.choices = "error|warn|info|debug", .reload = true,
		.help = "Log level (default: info)"),
	OPTION_STRING_ROW(
		struct options, log_file, "log-file", "FILE", "Log file (default: standard error)"),
};

/* All that could be sent to others is an address of this host. */
static bool is_alone(const struct options *options)
{
	const char *const *all =
		options->advertise.n ? options->advertise.values : options->listen.values;
	uint32_t n = options->advertise.n ? options->advertise.n : options->listen.n;

	for (uint32_t i = 0; i < n; i++)
		if (!address_is_own(all[i]))
			return false;
	return true;
}

/*
 * Of a cluster of several hosts: it would own slots that no other host can ask it for. One whose master is on this host
 * may be all there is, with mounts on the same host: that is logged when it starts.
 */
static int check_reachable(const struct options *options, struct err *e)
{
	if (!is_alone(options) || address_is_here(options->master))
		return 0;
	return err_set(e, -EINVAL,
		"the master is on another host (%s), and no other host can reach this worker: "
		"listen on tcp:HOST:PORT of this host, too, or give --advertise",
		options->master);
}

/* All addresses of the node are none that could be sent to another one. */
static int check_advertised(const struct options *options, struct err *e)
{
	for (uint32_t i = 0; i < options->listen.n && options->advertise.n == 0; i++) {
		const char *address = options->listen.values[i];

		if (strncmp(address, "tcp:0.0.0.0:", 12) == 0 ||
			strncmp(address, "tcp:[::]:", 9) == 0)
			return err_set(e, -EINVAL,
				"other hosts cannot reach this worker at --listen %s: give "
				"--advertise tcp:HOST:PORT, too",
				address);
	}
	return check_reachable(options, e);
}

static int look(const void *values, const char **ret_option, struct err *e)
{
	const struct options *options = values;
	int r = check_advertised(options, e);

	if (r < 0) {
		*ret_option = "listen";
		return r;
	}
	return net_keys_look(&options->keys, ret_option, e);
}

static const struct option_set option_set = {
	.program = "cacheworker",
	.arguments = "",
	.section = "worker",
	.about = "Caches ranges of volumes on this node and serves them to readers.\n`cacheworker "
		 "tier init DIR` creates a tier.",
	.look = look,
	.specs = specs,
	.n = ARRAY_SIZE(specs),
};

static enum exit_status status_of(const struct err *e)
{
	switch (-e->code) {
	case ENOTEMPTY:
	case ENOSPC:
	case EACCES:
	case EROFS:
	case EPROTONOSUPPORT:
	case ENOENT:
	case ENOTDIR:
	case ENODEV:
	case EXDEV:
		return EXIT_CACHE;
	case ENOKEY:
	case EADDRNOTAVAIL:
		return EXIT_USAGE;
	case EBUSY:
	case EADDRINUSE:
		return EXIT_BUSY;
	default:
		return EXIT_RUNTIME;
	}
}

static void take_member(const struct options *options, struct member_config *member)
{
	member->name = options->name;
	member->domain = options->domain;
	member->weight = (uint32_t)options->weight;
	for (uint32_t i = 0; i < options->advertise.n && i < MEMBER_ADDRESSES; i++)
		member->advertise[member->n_advertise++] = options->advertise.values[i];
}

/* What is used of --memory, of which `*rest` is not for tiers in memory. */
static uint64_t whole_memory(uint64_t asked, uint64_t *rest)
{
	uint64_t more = *rest < MEMORY_LEAST ? MEMORY_LEAST - *rest : 0;
	char said[16];
	char used[16];

	if (more)
		log_warn("memory is too small", "memory=%s used=%s next=\"raise --memory\"",
			units_size(asked, said, sizeof(said)),
			units_size(asked + more, used, sizeof(used)));
	*rest += more;
	return asked + more;
}

/* What SIGHUP may change. */
struct live {
	const struct options *options;
	struct worker_config *config;
	struct worker *worker;
};

static void on_change(void *arg)
{
	struct live *live = arg;

	daemon_log_level(live->options->log_level);
	live->config->scrub_rate = live->options->scrub_rate;
	live->config->scrub_max_age = live->options->scrub_max_age;
	live->config->seal_rate = live->options->seal_rate;
	allowance_set_bandwidth(live->options->token_bandwidth);
	worker_set_rates(live->worker, live->config);
}

int main(int argc, char **argv)
{
	struct options options = { .memory = 512 * MiB,
		.origin_requests = 256,
		.keys = KEY_OPTIONS_INIT,
		.ready_fd = -1,
		.log_level = "info",
		.scrub_rate = SCRUB_RATE,
		.scrub_max_age = SCRUB_MAX_AGE,
		.seal_rate = SEAL_RATE };
	static struct tier_options tiers; /* paths: large */
	struct worker_config config;
	uint64_t memory;
	uint64_t whole;
	struct err e = ERR_INIT;
	struct worker worker;
	struct live live = { &options, &config, &worker };
	_cleanup_(config_free_p) struct config *file = NULL;
	char remembered[PATH_MAX];
	sigset_t signals;

	if (argc > 1 && strcmp(argv[1], "tier") == 0)
		return tier_command(argc - 1, argv + 1);
	file = config_open_or_exit(&option_set, argc, argv, &options, sizeof(options));
	if (daemon_begin("worker", options.log_level, options.log_file, &e) < 0)
		return ready_error(options.ready_fd, "cacheworker", EXIT_USAGE, &e);
	secret_hide_process();
	if (bounds_check_descriptors(&e) < 0 || admin_check_listen(&options.admin_listen, &e) < 0 ||
		audit_open(options.audit_log, "cacheworker", &e) < 0 ||
		check_advertised(&options, &e) < 0 || net_keys_open(&options.keys, &e) < 0)
		return ready_error(options.ready_fd, "cacheworker", EXIT_USAGE, &e);
	if (tier_options_parse(&tiers, &options.tiers, options.capacity, options.create,
		    remembered_dir(remembered), &e) < 0 ||
		tier_options_memory(&tiers, options.memory, MEMORY_TAKEN, &memory, &e) < 0)
		return ready_error(options.ready_fd, "cacheworker", EXIT_USAGE, &e);
	whole = whole_memory(options.memory, &memory);
	daemon_signals_block(&signals);
	daemon_hangup_block(file, &signals);
	if (alive_watch() < 0)
		log_warn("orphan watch not started", "next=\"the daemon ends only by a signal\"");
	config = (struct worker_config){
		.tier = tier_options_home(&tiers),
		.tiers = tiers.configs,
		.n_tiers = tiers.n,
		.memory = memory,
		.master = options.master,
		.listen = options.listen.values,
		.n_listen = options.listen.n,
		.admin = options.admin,
		.admin_listen = options.admin_listen,
		.without_tier = options.serve_without_tier,
		.scrub_rate = options.scrub_rate,
		.scrub_max_age = options.scrub_max_age,
		.seal_rate = options.seal_rate,
		.origin_requests = bounds_descriptor_share(1, (uint32_t)options.origin_requests),
	};
	take_member(&options, &config.member);
	allowance_set_bandwidth(options.token_bandwidth);
	protected_add(options.config);
	protected_add(key_option_file(options.keys.cluster_key));
	protected_add(key_option_file(options.keys.token));
	worker_memory_open(whole, whole - memory);
	if (worker_open(&worker, &config, &e) < 0 || arena_start_done("--memory", &e) < 0) {
		worker_close(&worker);
		return ready_error(options.ready_fd, "cacheworker", status_of(&e), &e);
	}
	ready_ok(options.ready_fd, "{}");
	for (uint32_t i = 0; i < worker.servers.n; i++)
		log_info("serving", "tier=%s tiers=%u listen=%s", config.tier, tiers.n,
			rpc_server_address(worker.servers.all[i]));
	if (is_alone(&options) && !address_is_own(options.master))
		log_warn("no other host can reach this worker",
			"master=%s next=\"mounts of other hosts wait for its data: listen on "
			"tcp:HOST:PORT, too\"",
			options.master);
	daemon_signals_wait(&signals, file, on_change, &live);
	worker_close(&worker);
	return EXIT_OK;
}
