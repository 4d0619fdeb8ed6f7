/* The options of cachefuse. */
#include "mount/cachefuse_options.h"
#include "base/layout.h"
#include "base/policy.h"
#include "base/units.h"
#include "client/client_keys.h"

#include <unistd.h>

#define MEMORY_DEFAULT (512 * MiB)

#define STRING(member, name, meta, ...)                                                      \
	OPTION_ROW(struct cachefuse_options, member, name, OPTION_STRING, .metavar = (meta), \
		__VA_ARGS__)

static const struct option_spec specs[] = {
	STRING(config, "config", "FILE",
		.help = "Configuration file, see granary.yaml(5) (default: none)"),
	STRING(source, "source", "URL", .required = true,
		.help = "Source to mount: s3://BUCKET/PREFIX, obs://BUCKET/PREFIX or "
			"file:///DIRECTORY"),
	STRING(dataset, "dataset", "UUID.VOLUME", .hidden = true,
		.help = "Dataset and volume of the source at the master"),
	STRING(dataset_name, "dataset-name", "NAME", .hidden = true,
		.help = "Name of the dataset to mount, resolved by the master; requires --claims"),
	STRING(path, "path", "DIR", .hidden = true,
		.help = "Directory of that dataset to mount (default: all of it)"),
	OPTION_ROW(struct cachefuse_options, generation, "generation", OPTION_UINT, .hidden = true,
		.min = 1, .max = INT64_MAX,
		.help = "Generation of that dataset to mount (default: the one it shows)"),
	OPTION_ROW(struct cachefuse_options, pinned, "pinned", OPTION_BOOL, .hidden = true,
		.help = "Do not follow the sources of that dataset"),
	STRING(claims, "claims", "TEXT", .hidden = true,
		.help = "User and groups that the dataset has to allow, by number"),
	STRING(sources, "sources", "JSON", .hidden = true,
		.help = "Sources of the dataset and their paths"),
	STRING(endpoint, "endpoint", "URL",
		.help = "URL of the S3 server (default: that of the provider)"),
	STRING(region, "region", "NAME",
		.help = "Region of the bucket (default: AWS_REGION, that of the profile, or "
			"us-east-1)"),
	STRING(profile, "profile", "NAME",
		.help = "Section of the shared credentials file (default: AWS_PROFILE, or "
			"default)"),
	STRING(profile, "profile-name", "NAME", .hidden = true, .help = "The same as --profile"),
	OPTION_BOOL_ROW(struct cachefuse_options, anonymous, "anonymous",
		"Send no credentials: a public bucket (default: send them)"),
	STRING(credentials, "credentials", "REF",
		.help = "Reference to the keys, not the keys: env:PREFIX_, file:/PATH, "
			"profile:NAME, web-identity, container, imds or anonymous (default: the "
			"places where Amazon's tools look)"),
	OPTION_BOOL_ROW(struct cachefuse_options, requester_pays, "requester-pays",
		"Pay for the requests, as some buckets require (default: no)"),
	OPTION_ROW(struct cachefuse_options, versions, "versions", OPTION_CHOICE,
		.choices = "auto|on|off",
		.help = "Read objects by version id, where the bucket keeps versions (default: "
			"auto)"),
	STRING(ca_file, "ca-file", "FILE",
		.help = "File or directory of the certificates that sign that of the endpoint "
			"(default: those of the system)"),
	OPTION_BOOL_ROW(struct cachefuse_options, path_style, "path-style",
		"Name the bucket in the path, not in the host name (default: as the endpoint "
		"allows)"),
	OPTION_BOOL_ROW(struct cachefuse_options, refresh, "refresh",
		"List the source again before mounting (default: no)"),
	OPTION_ROW(struct cachefuse_options, refresh_behind, "refresh-behind", OPTION_BOOL,
		.hidden = true,
		.help = "Mount the last known generation and list the source in the background"),
	OPTION_ROW(struct cachefuse_options, replace, "replace", OPTION_BOOL, .hidden = true,
		.help = "Replace the mount of this daemon's user at the mount point"),
	OPTION_ROW(struct cachefuse_options, follow, "follow", OPTION_DURATION, .min = CLOCK_SECOND,
		.max = CACHEFUSE_FOLLOW_MAX,
		.help = "Interval at which the source is listed again and changes are shown "
			"(default: none)"),
	OPTION_ROW(struct cachefuse_options, follow_dataset, "follow-dataset", OPTION_BOOL,
		.hidden = true, .help = "Follow the source at the interval of the dataset"),
	OPTION_ROW(struct cachefuse_options, rolled_back, "rolled-back", OPTION_BOOL,
		.hidden = true, .help = "The dataset was rolled back"),
	OPTION_SIZE_ROW(struct cachefuse_options, quota, "quota", 0, 0,
		"Quota of this source on each worker; with --refresh (default: unchanged, or "
		"none)"),
	OPTION_ROW(struct cachefuse_options, priority, "priority", OPTION_UINT, .max = PRIORITY_MAX,
		.help = "Priority of this source: the lowest makes room first; with --refresh "
			"(default: unchanged, or 0)"),
	OPTION_ROW(struct cachefuse_options, pin, "pin", OPTION_CHOICE, .choices = "yes|no",
		.help = "Do not evict this source for another; with --refresh (default: unchanged, "
			"or no)"),
	OPTION_ROW(struct cachefuse_options, evict, "evict", OPTION_CHOICE,
		.choices = TIER_EVICT_CHOICES,
		.help = "What to do when the cache is full: bypass it (never), or evict the least "
			"recently used chunks (lru); with --refresh (default: unchanged, or "
			"never)"),
	STRING(master, "master", "ADDR", .required = true, .help = "Address of the master"),
	STRING(worker, "worker", "ADDR",
		.help = "Address of the worker of this node (default: none)"),
	KEY_OPTION_ROWS(struct cachefuse_options, keys),
	STRING(mountpoint, "mountpoint", "DIR", .required = true,
		.help = "Mount point, an empty directory"),
	STRING(run_dir, "run-dir", "DIR",
		.help = "Private directory for the admin socket, mount.sock (default: none; then "
			"--admin is required)"),
	STRING(image_dir, "image-dir", "DIR", .required = true,
		.help = "Private directory for images, on a disk"),
	STRING(order_dir, "order-dir", "DIR", .hidden = true,
		.help = "Directory of the socket on which jobs announce their order"),
	STRING(admin, "admin", "SOCKET",
		.help = "Unix socket for /v1 and /metrics (default: mount.sock in --run-dir)"),
	ADMIN_LISTEN_ROWS(struct cachefuse_options, admin_listen),
	STRING(audit_log, "audit-log", "FILE",
		.help = "File for a line about each change and each refused change (default: "
			"none)"),
	OPTION_ROW(struct cachefuse_options, uid, "uid", OPTION_UINT, .max = UINT32_MAX - 1,
		.help = "Owner of the files (default: the calling user)"),
	OPTION_ROW(struct cachefuse_options, gid, "gid", OPTION_UINT, .max = UINT32_MAX - 1,
		.help = "Group of the files (default: that of the calling user)"),
	OPTION_ROW(struct cachefuse_options, umask, "umask", OPTION_OCTAL, .max = 0777,
		.help = "Permissions that the files lack (default: 022)"),
	OPTION_SIZE_ROW(struct cachefuse_options, memory, "memory", 32 * MiB, 0,
		"Maximum memory (default: 512MiB)"),
	OPTION_SIZE_ROW(struct cachefuse_options, direct_bandwidth, "direct-bandwidth", MiB, 0,
		"Bytes per second that are read from the origin while no worker answers, for "
		"datasets with `direct` (default: 64MiB)"),
	OPTION_ROW(struct cachefuse_options, extent_size, "extent-size", OPTION_SIZE,
		.hidden = true, .min = CHUNK_BYTES,
		.help = "Size of the image's devices, a power of two"),
	OPTION_ROW(struct cachefuse_options, engine, "engine", OPTION_CHOICE,
		.choices = "auto|native|loop|fuse",
		.help = "Engine that reads the image: the kernel (native, or loop: from a loop "
			"device) or this daemon (fuse) (default: auto)"),
	STRING(context, "context", "LABEL", .help = "SELinux label of all files (default: none)"),
	OPTION_BOOL_ROW(struct cachefuse_options, allow_other, "allow-other",
		"Let other users read, as far as --umask allows; fuse engine (default: no)"),
	OPTION_ROW(struct cachefuse_options, integrity, "integrity", OPTION_CHOICE,
		.choices = "sealed|strict",
		.help = "Let the kernel read complete, verified extents from local files (sealed), "
			"or check each read in this daemon (strict); native engine (default: "
			"sealed)"),
	OPTION_ROW(struct cachefuse_options, seal_pause, "seal-pause", OPTION_UINT, .hidden = true,
		.min = 1, .max = UINT32_MAX, .metavar = "MS",
		.help = "Time between two changes to more sealed extents"),
	OPTION_ROW(struct cachefuse_options, prime_max, "prime-max", OPTION_UINT,
		.max = CACHEFUSE_PRIME_MAX, .metavar = "N",
		.help = "Maximum number of files whose attributes a listing leaves in the kernel, "
			"1.1 KB each (default: a quarter of the available memory)"),
	OPTION_FD_ROW(struct cachefuse_options, ready_fd, "ready-fd",
		"Descriptor for a line READY or ERROR at start (default: none)"),
	OPTION_FD_ROW(struct cachefuse_options, fuse_fd, "fuse-fd",
		"Descriptor of /dev/fuse, stored by the keeper, or of /dev/null (default: none)"),
	OPTION_FD_ROW(struct cachefuse_options, slots_fd, "slots-fd",
		"Descriptor of the memory for requests, stored by the keeper (default: none)"),
	OPTION_FD_ROW(struct cachefuse_options, hand_fd, "hand-fd",
		"Descriptor of a socket of the keeper, which mounts for this daemon (default: "
		"none)"),
	OPTION_ROW(struct cachefuse_options, hand_near_fd, "hand-near-fd", OPTION_FD,
		.hidden = true, .help = "The other end of --hand-fd, for a later keeper"),
	OPTION_ROW(struct cachefuse_options, point_fd, "point-fd", OPTION_FD, .hidden = true,
		.help = "Descriptor of the mount point, opened by its owner"),
	OPTION_ROW(struct cachefuse_options, log_level, "log-level", OPTION_CHOICE,
		.choices = "error|warn|info|debug", .reload = true,
		.help = "Log level (default: info)"),
	STRING(log_file, "log-file", "FILE", .help = "Log file (default: standard error)"),
};

static int look(const void *values, const char **ret_option, struct err *e)
{
	const struct cachefuse_options *options = values;

	return client_keys_look(&options->keys, ret_option, e);
}

const struct option_set cachefuse_option_set = {
	.program = CACHEFUSE_PROGRAM,
	.arguments = "",
	.section = "mount",
	.started = true,
	.about = "The mount daemon: mounts a source, by the kernel's EROFS or by FUSE, and serves "
		 "reads of it.",
	.look = look,
	.specs = specs,
	.n = ARRAY_SIZE(specs),
};

void cachefuse_options_init(struct cachefuse_options *options)
{
	*options = (struct cachefuse_options){
		.ready_fd = -1,
		.fuse_fd = -1,
		.slots_fd = -1,
		.hand_fd = -1,
		.hand_near_fd = -1,
		.point_fd = -1,
		.engine = "auto",
		.prime_max = CACHEFUSE_UNSET,
		.integrity = "sealed",
		.seal_pause = CACHEFUSE_SEAL_PAUSE / CLOCK_MS,
		.uid = getuid(),
		.gid = getgid(),
		.umask = 022,
		.quota = CACHEFUSE_UNSET,
		.priority = CACHEFUSE_UNSET,
		.memory = MEMORY_DEFAULT,
		.keys = KEY_OPTIONS_INIT,
		.log_level = "info",
	};
}
