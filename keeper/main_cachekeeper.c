/* cachekeeper: keeps the mounts of one cache directory on this node. See keeper.h. */
#include "admin/audit.h"
#include "base/address.h"
#include "base/cleanup.h"
#include "base/config.h"
#include "base/daemon.h"
#include "base/exit.h"
#include "base/log.h"
#include "base/notify.h"
#include "base/option.h"
#include "base/ready.h"
#include "base/units.h"
#include "client/client_keys.h"
#include "keeper/keeper.h"
#include "keeper/keeper_file.h"

#define PROGRAM "cachekeeper"

struct options {
	const char *config_file;
	struct keeper_config config;
	const char *log_file;
	int ready_fd;
};

static int check_worker(const char *text, struct err *e)
{
	return strcmp(text, KEEPER_NO_WORKER) == 0 ? 0 : address_check(text, e);
}

static const struct option_spec specs[] = {
	OPTION_STRING_ROW(struct options, config_file, "config", "FILE",
		"Configuration file of the keeper and its mounts, see granary.yaml(5) (default: "
		"none)"),
	OPTION_ROW(struct options, config.cache, "cache", OPTION_STRING, .metavar = "DIR",
		.required = true, .help = "Cache directory"),
	OPTION_ROW(struct options, config.run, "run", OPTION_STRING, .metavar = "DIR",
		.required = true, .help = "Private directory for sockets and state"),
	OPTION_STRING_ROW(struct options, config.cachefuse, "cachefuse", "PATH",
		"Program that serves a mount (default: cachefuse in the directory of this "
		"program)"),
	OPTION_SIZE_ROW(struct options, config.memory, "memory", 32 * MiB, 0,
		"Memory of all mounts together when one is added, with --private of all daemons "
		"(default: 384MiB)"),
	OPTION_BOOL_ROW(struct options, config.is_private, "private",
		"Start and end master and worker, too, as `cachectl mount --cache DIR` does "
		"(default: no)"),
	OPTION_SIZE_ROW(struct options, config.capacity, "capacity", 64 * MiB, 0,
		"With --private: size of the cache " OPTION_CAPACITY_DEFAULT),
	OPTION_ROW(struct options, config.dead_after_ns, "dead-after", OPTION_DURATION,
		.min = CLOCK_SECOND / 10, .reload = true,
		.help = "Time without the daemon of a mount after which its readers get EIO "
			"(default: 30s)"),
	OPTION_ROW(struct options, config.user_mounts, "user-mounts", OPTION_UINT,
		.max = KEEPER_MOUNTS - KEEPER_RESERVED, .reload = true,
		.help = "Maximum number of mounts of each ordinary user (default: 16)"),
	OPTION_ROW(struct options, config.clients, "client", OPTION_LIST,
		.metavar = "NAME,root=DIR", .check = keeper_client_check,
		.help = "Client that mounts datasets below its directories, at the socket "
			"RUN/clients/NAME/keeper.sock, such as the CSI plugin (default: none)"),
	OPTION_BOOL_ROW(
		struct options, config.stay, "stay", "Run without any mount, too (default: no)"),
	OPTION_BOOL_ROW(struct options, config.leave_mounts, "leave-mounts",
		"Leave the mounts to the next keeper when this one ends (default: no)"),
	ADMIN_LISTEN_ROWS(struct options, config.admin_listen),
	OPTION_STRING_ROW(struct options, config.audit_log, "audit-log", "FILE",
		"File for a line about each change and each refused change, also of the mounts "
		"(default: none)"),
	OPTION_ROW(struct options, config.master, "master", OPTION_STRING, .metavar = "ADDR",
		.check = address_check,
		.help = "Address of the master (default: unix:RUN/master.rpc)"),
	OPTION_ROW(struct options, config.worker, "worker", OPTION_STRING, .metavar = "ADDR",
		.check = check_worker,
		.help = "Address of the worker of this node, or " KEEPER_NO_WORKER
			" (default: unix:RUN/worker.rpc)"),
	KEY_OPTION_ROWS(struct options, config.keys),
	OPTION_ROW(struct options, config.again, "again", OPTION_BOOL, .hidden = true,
		.help = "End at once if no mount was recovered"),
	OPTION_FD_ROW(struct options, ready_fd, "ready-fd",
		"Descriptor for a line READY or ERROR at start (default: none)"),
	OPTION_ROW(struct options, config.log_level, "log-level", OPTION_CHOICE,
		.choices = "error|warn|info|debug", .reload = true,
		.help = "Log level (default: info)"),
	OPTION_STRING_ROW(
		struct options, log_file, "log-file", "FILE", "Log file (default: standard error)"),
};

static int look(const void *values, const char **ret_option, struct err *e)
{
	const struct options *options = values;

	return client_keys_look(&options->config.keys, ret_option, e);
}

static const struct option_set set = {
	.program = PROGRAM,
	.arguments = "",
	.section = "keeper",
	.about = "The mount keeper of one cache directory: stores the descriptors and the state of "
		 "mounts, and\nstarts and restarts their daemons.",
	.look = look,
	.specs = specs,
	.n = ARRAY_SIZE(specs),
};

int main(int argc, char **argv)
{
	struct options options = {
		.config = { .memory = 384 * MiB,
			.user_mounts = KEEPER_OWNED,
			.dead_after_ns = KEEPER_DEAD_AFTER,
			.keys = KEY_OPTIONS_INIT,
			.log_level = "info" },
		.ready_fd = -1,
	};
	struct err e = ERR_INIT;
	_cleanup_(config_free_p) struct config *config = NULL;

	config = config_open_or_exit(&set, argc, argv, &options, sizeof(options));
	options.config.file = config;
	if (options.config.is_private) {
		notify_forget(); /* of the command that started it */
		options.config.private_memory = options.config.memory;
		options.config.memory = keeper_daemons_rest(&options.config);
	}
	if (daemon_begin("keeper", options.config.log_level, options.log_file, &e) < 0 ||
		admin_check_listen(&options.config.admin_listen, &e) < 0 ||
		audit_open(options.config.audit_log, PROGRAM, &e) < 0 ||
		keeper_file_take(&options.config, &e) < 0)
		return ready_error(options.ready_fd, PROGRAM, EXIT_USAGE, &e);
	return keeper_run(&options.config, options.ready_fd);
}
