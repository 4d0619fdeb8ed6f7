/* The options of cachefuse. See cachefuse.h. */
#include "base/option.h"
#include "base/units.h"
#include "client/client_keys.h"
#include "fuse/cachefuse.h"

#include <unistd.h>

#define MEMORY_DEFAULT (512 * MiB)

#define STRING(member, name, meta, ...)                                                      \
	OPTION_ROW(struct cachefuse_options, member, name, OPTION_STRING, .metavar = (meta), \
		__VA_ARGS__)

static const struct option_spec specs[] = {
	STRING(config, "config", "FILE", .help = "read options from FILE, too: granary.yaml(5)"),
	STRING(source, "source", "URL", .required = true,
		.help = "what to mount: s3://bucket/prefix or file:///dir"),
	STRING(dataset, "dataset", "UUID.VOLUME", .hidden = true,
		.help = "what the master knows of that source"),
	STRING(dataset_name, "dataset-name", "NAME", .hidden = true,
		.help = "Name of the dataset to mount, resolved by the master; requires --claims"),
	STRING(claims, "claims", "TEXT", .hidden = true,
		.help = "User and groups that the dataset has to allow, by number"),
	STRING(sources, "sources", "JSON", .hidden = true,
		.help = "which sources of the dataset are shown where"),
	STRING(endpoint, "endpoint", "URL", .help = "S3 endpoint; the provider's for the region"),
	STRING(region, "region", "NAME", .help = "region of the bucket"),
	STRING(profile, "profile", "NAME", .help = "profile of the shared credentials file"),
	STRING(profile, "profile-name", "NAME", .hidden = true, .help = "the same as --profile"),
	OPTION_BOOL_ROW(struct cachefuse_options, anonymous, "anonymous",
		"send requests without a signature: a public bucket"),
	STRING(credentials, "credentials", "REF",
		.help = "where the keys are: env:PREFIX_, file:/PATH, profile:NAME, web-identity, "
			"container, imds, anonymous"),
	OPTION_BOOL_ROW(struct cachefuse_options, requester_pays, "requester-pays",
		"pay for the requests, as some buckets ask"),
	OPTION_ROW(struct cachefuse_options, versions, "versions", OPTION_CHOICE,
		.choices = "auto|on|off",
		.help = "read objects by the id of their version, where the bucket keeps them; "
			"auto"),
	STRING(ca_file, "ca-file", "FILE", .help = "certificates to trust; the system's"),
	OPTION_BOOL_ROW(struct cachefuse_options, path_style, "path-style",
		"bucket in the path, not in the host name"),
	OPTION_BOOL_ROW(struct cachefuse_options, refresh, "refresh",
		"list the source again before mounting"),
	OPTION_ROW(struct cachefuse_options, refresh_behind, "refresh-behind", OPTION_BOOL,
		.hidden = true,
		.help = "mount the last known generation and list the source in the background"),
	OPTION_ROW(struct cachefuse_options, replace, "replace", OPTION_BOOL, .hidden = true,
		.help = "take the place of the mount of ours at the mount point"),
	OPTION_ROW(struct cachefuse_options, follow, "follow", OPTION_DURATION, .min = CLOCK_SECOND,
		.max = CACHEFUSE_FOLLOW_MAX,
		.help = "have the source listed again that often, and show what has changed"),
	OPTION_ROW(struct cachefuse_options, follow_dataset, "follow-dataset", OPTION_BOOL,
		.hidden = true, .help = "likewise, as often as the dataset says"),
	OPTION_ROW(struct cachefuse_options, rolled_back, "rolled-back", OPTION_BOOL,
		.hidden = true, .help = "what the dataset shows is not the newest"),
	OPTION_SIZE_ROW(struct cachefuse_options, quota, "quota", 0, 0,
		"bytes of the source that a worker keeps at most; with --refresh"),
	OPTION_ROW(struct cachefuse_options, priority, "priority", OPTION_UINT, .max = PRIORITY_MAX,
		.help = "of two sources the lower loses its bytes first; with --refresh"),
	OPTION_ROW(struct cachefuse_options, pin, "pin", OPTION_CHOICE, .choices = "yes|no",
		.help = "never evicted for another source's sake; with --refresh"),
	OPTION_ROW(struct cachefuse_options, evict, "evict", OPTION_CHOICE,
		.choices = TIER_EVICT_CHOICES,
		.help = "whether a full source makes room for itself; with --refresh"),
	STRING(master, "master", "ADDR", .required = true, .help = "address of the master"),
	STRING(worker, "worker", "ADDR", .help = "address of this node's worker"),
	KEY_OPTION_ROWS(struct cachefuse_options, keys),
	STRING(mountpoint, "mountpoint", "DIR", .required = true,
		.help = "where to mount: an empty directory"),
	STRING(run_dir, "run-dir", "DIR",
		.help = "private directory: the admin socket, mount.sock, is there unless --admin "
			"names another place"),
	STRING(image_dir, "image-dir", "DIR", .required = true,
		.help = "private directory for images, on a disk"),
	STRING(order_dir, "order-dir", "DIR", .hidden = true,
		.help = "where jobs look for the socket on which they announce their order"),
	STRING(admin, "admin", "SOCKET", .help = "path of the unix socket for /v1 and /metrics"),
	ADMIN_LISTEN_ROWS(struct cachefuse_options, admin_listen),
	STRING(audit_log, "audit-log", "FILE",
		.help = "append a line about everything that somebody changes, or tries to"),
	OPTION_ROW(struct cachefuse_options, uid, "uid", OPTION_UINT, .max = UINT32_MAX - 1,
		.help = "owner of the files; who mounts"),
	OPTION_ROW(struct cachefuse_options, gid, "gid", OPTION_UINT, .max = UINT32_MAX - 1,
		.help = "group of the files; who mounts"),
	OPTION_ROW(struct cachefuse_options, umask, "umask", OPTION_OCTAL, .max = 0777,
		.help = "permissions taken away; 022"),
	OPTION_SIZE_ROW(
		struct cachefuse_options, memory, "memory", 32 * MiB, 0, "memory at most; 512MiB"),
	OPTION_SIZE_ROW(struct cachefuse_options, direct_bandwidth, "direct-bandwidth", MiB, 0,
		"bytes a second of a source that are read from the origin while no worker answers, "
		"for datasets with `direct`; 64MiB"),
	OPTION_ROW(struct cachefuse_options, extent_size, "extent-size", OPTION_SIZE,
		.hidden = true, .min = CHUNK_BYTES,
		.help = "size of the image's devices, a power of two"),
	OPTION_ROW(struct cachefuse_options, engine, "engine", OPTION_CHOICE,
		.choices = "auto|native|loop|fuse",
		.help = "who shows the files: the kernel (EROFS, as root; loop: from a loop "
			"device) or this daemon; auto"),
	STRING(context, "context", "LABEL", .help = "SELinux label of all files"),
	OPTION_BOOL_ROW(struct cachefuse_options, allow_other, "allow-other",
		"let other users read what an ordinary user mounts"),
	OPTION_ROW(struct cachefuse_options, integrity, "integrity", OPTION_CHOICE,
		.choices = "sealed|strict",
		.help = "native engine: let the kernel read complete, verified extents from this "
			"node's files (sealed), or have every read checked by this daemon "
			"(strict); sealed"),
	OPTION_ROW(struct cachefuse_options, seal_pause, "seal-pause", OPTION_UINT, .hidden = true,
		.min = 1, .max = UINT32_MAX, .metavar = "MS",
		.help = "between two changes to more sealed extents; 30000"),
	OPTION_ROW(struct cachefuse_options, prime_max, "prime-max", OPTION_UINT,
		.max = CACHEFUSE_PRIME_MAX, .metavar = "N",
		.help = "files whose attributes a listing may leave in the kernel, 1.1 KB each; "
			"what fits a quarter of the memory available"),
	OPTION_FD_ROW(struct cachefuse_options, ready_fd, "ready-fd",
		"write READY or ERROR there once it is known"),
	OPTION_FD_ROW(struct cachefuse_options, fuse_fd, "fuse-fd",
		"an open /dev/fuse, kept by whoever starts a successor; or /dev/null"),
	OPTION_FD_ROW(struct cachefuse_options, slots_fd, "slots-fd",
		"a memfd for requests, kept likewise"),
	OPTION_FD_ROW(struct cachefuse_options, hand_fd, "hand-fd",
		"a socket of the keeper, which mounts for this daemon"),
	OPTION_ROW(struct cachefuse_options, hand_near_fd, "hand-near-fd", OPTION_FD,
		.hidden = true,
		.help = "the other end of --hand-fd, which a later keeper takes from here"),
	OPTION_ROW(struct cachefuse_options, point_fd, "point-fd", OPTION_FD, .hidden = true,
		.help = "Descriptor of the mount point, opened by its owner"),
	OPTION_ROW(struct cachefuse_options, log_level, "log-level", OPTION_CHOICE,
		.choices = "error|warn|info|debug", .reload = true, .help = "what to log; info"),
	STRING(log_file, "log-file", "FILE", .help = "append the log there, not to standard error"),
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
	.about = "The mount daemon: mounts a source, through the kernel's EROFS or by itself, and "
		 "serves what is not resident.",
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
		.seal_pause = SEAL_PAUSE / CLOCK_MS,
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
