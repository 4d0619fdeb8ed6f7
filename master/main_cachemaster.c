/*
 * cachemaster: owns what cannot be recomputed (sources, generations, slots), lists origins, hands
 * out tables. Never on the path of a warm read.
 *
 *	STATE/lock	held by the one master of this state
 *	STATE/store/	RocksDB: sources, generations, epoch, slots
 *	STATE/tables/	object tables, VOLUME.LINEAGE.GENERATION
 *	STATE/backups/	copies of all that, see backups.h
 *
 * It ends by SIGTERM, or when keeper and last mount are gone (base/alive.h): a master whose
 * keeper was killed serves its mounts until the last one is gone.
 */
#include "admin/admin.h"
#include "admin/listen.h"
#include "admin/audit.h"
#include "base/address.h"
#include "base/alive.h"
#include "base/arena.h"
#include "base/bounds.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/crash_point.h"
#include "base/daemon.h"
#include "base/exit.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/option.h"
#include "base/ready.h"
#include "base/secret.h"
#include "base/units.h"
#include "base/version.h"
#include "master/backups.h"
#include "master/dashboard.h"
#include "master/events.h"
#include "master/follow.h"
#include "master/restore_command.h"
#include "master/service.h"
#include "master/service_accounts.h"
#include "master/token_api.h"
#include "master/workers.h"
#include "net/key_options.h"
#include "net/servers.h"
#include "ufs/protected.h"

#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

#define MASTER_THREADS      16u
#define MASTER_SMALL        4u
#define MASTER_DIRS         4u
#define MASTER_JOINS        2u /* one stores, one takes in what comes meanwhile */
#define MASTER_QUEUE        1024u
#define FIXED_BYTES         (1 * MiB) /* the slot table */
#define LISTING_LEAST       (4 * MiB)
#define REPLIES_LEAST       (2 * MiB)   /* pieces of tables */
#define HISTORY_LEAST       (768 * KiB) /* events, and points of the whole cluster */
#define LIST_REQUESTS       96u
#define LIST_REQUESTS_LEAST 16u
#define LIST_BYTES          (1 * MiB) /* of an answer and what is made of it */
#define LISTING_BYTES       (512 * MiB)
#define ATTEMPT_TIMEOUT     (10 * CLOCK_SECOND) /* one LIST without progress */
#define LIST_DEADLINE \
	(30 * CLOCK_SECOND) /* one LIST with its retries: somebody waits at a terminal */

struct master_options {
	const char *config;
	const char *state;
	const char *cluster;
	struct option_list listen;
	struct key_options keys;
	const char *worker; /* of versions before 0.7, whose files go on to be read */
	const char *admin;
	struct admin_listen admin_listen;
	const char *audit_log;
	struct option_list file_roots;
	struct option_list credential_dirs;
	bool local_endpoints;
	bool admin_may_mint;
	struct service_accounts_config accounts;
	bool believe_unsealed;
	uint64_t memory;
	uint64_t listing_disk;
	uint64_t daily_backups;
	uint64_t history_step;
	uint64_t out_after;
	int ready_fd;
	const char *log_level;
	const char *log_file;
};

static int check_cluster(const char *text, struct err *e)
{
	uint8_t uuid[HELLO_CLUSTER_BYTES];

	return hash_unhex(text, uuid, sizeof(uuid)) == 0
		       ? 0
		       : err_set(e, -EINVAL, "invalid cluster name '%s': use 32 hexadecimal digits",
				 text);
}

static int check_absolute(const char *text, struct err *e)
{
	return text[0] == '/' ? 0
			      : err_set(e, -EINVAL,
					"'%s' is not an absolute path; allowed: /DIRECTORY", text);
}

static int check_keys(const char *text, struct err *e)
{
	if (text[0] == '/' || strncmp(text, "https://", 8) == 0 || strncmp(text, "http://", 7) == 0)
		return 0;
	return err_set(e, -EINVAL,
		"'%s' is neither an absolute path nor a URL; allowed: /FILE, https://HOST/PATH",
		text);
}

static const struct option_spec specs[] = {
	OPTION_STRING_ROW(struct master_options, config, "config", "FILE",
		"Configuration file, see granary.yaml(5) (default: none)"),
	OPTION_ROW(struct master_options, state, "state", OPTION_STRING, .metavar = "DIR",
		.required = true, .help = "Directory of the master's state; created if missing"),
	OPTION_ROW(struct master_options, cluster, "cluster", OPTION_STRING, .metavar = "UUID",
		.check = check_cluster,
		.help = "Cluster name, 32 hexadecimal digits, for a new state in place of a lost "
			"one (default: random)"),
	OPTION_ROW(struct master_options, listen, "listen", OPTION_LIST, .metavar = "ADDR",
		.required = true, .check = address_check,
		.help = "Address for workers and mounts: unix:/PATH for this node, tcp:HOST:PORT "
			"for all"),
	KEY_OPTION_ROWS(struct master_options, keys),
	OPTION_ROW(struct master_options, worker, "worker", OPTION_STRING, .metavar = "ADDR",
		.hidden = true,
		.help = "Without effect, as workers join on their own (default: none)"),
	OPTION_STRING_ROW(struct master_options, admin, "admin", "SOCKET",
		"Unix socket for /v1 and /metrics (default: none)"),
	ADMIN_LISTEN_ROWS(struct master_options, admin_listen),
	OPTION_STRING_ROW(struct master_options, audit_log, "audit-log", "FILE",
		"File for a line about each change and each refused change (default: none)"),
	OPTION_ROW(struct master_options, file_roots, "file-roots", OPTION_LIST, .metavar = "DIR",
		.check = check_absolute,
		.help = "Directory for file:// sources of callers other than root on this host "
			"(default: none)"),
	OPTION_ROW(struct master_options, credential_dirs, "credential-dirs", OPTION_LIST,
		.metavar = "DIR", .check = check_absolute,
		.help = "Directory for credential and CA files of callers other than root on this "
			"host (default: none)"),
	OPTION_BOOL_ROW(struct master_options, local_endpoints, "local-endpoints",
		"Accept endpoints at loopback and link-local addresses from callers other than "
		"root on this host (default: no)"),
	OPTION_BOOL_ROW(struct master_options, believe_unsealed, "believe-unsealed",
		"Believe generations without this master's seal (default: only on the first run on "
		"the state of an earlier version)"),
	OPTION_BOOL_ROW(struct master_options, admin_may_mint, "admin-may-mint",
		"Accept an administrator's token to create tokens that read data (default: no)"),
	OPTION_STRING_ROW(struct master_options, accounts.issuer, "service-account-issuer", "URL",
		"Issuer of the tokens of pods, as the API server of Kubernetes has it (default: "
		"none)"),
	OPTION_ROW(struct master_options, accounts.keys, "service-account-keys", OPTION_STRING,
		.metavar = "FILE|URL", .check = check_keys,
		.help = "Public keys of that issuer, a JSON Web Key Set: pods that mount a dataset "
			"have to prove by a token what they are (default: none, their nodes are "
			"trusted)"),
	OPTION_STRING_ROW(struct master_options, accounts.audience, "service-account-audience",
		"NAME", "Audience of the tokens of pods (default: granary)"),
	OPTION_STRING_ROW(struct master_options, accounts.ca_file, "service-account-ca", "FILE",
		"Certificates that sign that of the URL of the keys (default: those of the "
		"system)"),
	OPTION_SIZE_ROW(struct master_options, memory, "memory", 16 * MiB, 0,
		"Maximum memory; larger listings are sorted on disk (default: 512MiB)"),
	OPTION_SIZE_ROW(struct master_options, listing_disk, "listing-disk", 1 * MiB, 0,
		"Size on disk of a listing that does not fit the memory; a larger one is refused "
		"(default: half of what is free, 16GiB at most)"),
	OPTION_ROW(struct master_options, daily_backups, "daily-backups", OPTION_UINT,
		.max = BACKUPS_KEEP_MAX,
		.help = "Number of daily backups in the state directory (default: 7)"),
	OPTION_ROW(struct master_options, history_step, "history-step", OPTION_DURATION,
		.metavar = "TIME", .min = DASHBOARD_STEP_LEAST,
		.help = "Time between two of the 2880 points of the dashboard's history (default: "
			"30s)"),
	OPTION_ROW(struct master_options, out_after, "out-after", OPTION_DURATION,
		.metavar = "TIME", .min = CLOCK_SECOND,
		.help = "Time after which the slots of a worker that is down get other owners "
			"(default: 10m)"),
	OPTION_FD_ROW(struct master_options, ready_fd, "ready-fd",
		"Descriptor for a line READY or ERROR at start (default: none)"),
	OPTION_ROW(struct master_options, log_level, "log-level", OPTION_CHOICE,
		.choices = "error|warn|info|debug", .reload = true,
		.help = "Log level (default: info)"),
	OPTION_STRING_ROW(struct master_options, log_file, "log-file", "FILE",
		"Log file (default: standard error)"),
};

/* One that is missing allows nothing, which its operator did not want. */
static int look_for(const struct option_list *dirs, struct err *e)
{
	for (unsigned int i = 0; i < dirs->n; i++) {
		struct stat st;

		if (stat(dirs->values[i], &st) != 0)
			return err_set(e, err_errno(), "%s: %m; give a directory that exists",
				dirs->values[i]);
		if (!S_ISDIR(st.st_mode))
			return err_set(
				e, -ENOTDIR, "%s is not a directory; give one", dirs->values[i]);
	}
	return 0;
}

static int look(const void *values, const char **ret_option, struct err *e)
{
	const struct master_options *options = values;
	int r = look_for(&options->file_roots, e);

	*ret_option = "file-roots";
	if (r < 0)
		return r;
	r = look_for(&options->credential_dirs, e);
	*ret_option = "credential-dirs";
	if (r < 0)
		return r;
	*ret_option = "service-account-keys";
	if (!options->accounts.keys != !options->accounts.issuer)
		return err_set(e, -EINVAL,
			"one of service-account-keys and service-account-issuer is missing: give "
			"both, or none");
	if (options->accounts.keys && !key_option_file(options->keys.cluster_key))
		return err_set(e, -EINVAL,
			"service-account-keys needs the cluster key, which signs mount tokens: "
			"give "
			"cluster-key, too");
	return net_keys_look(&options->keys, ret_option, e);
}

static const struct option_set options_set = {
	.program = "cachemaster",
	.arguments = "",
	.section = "master",
	.about = "Lists origins, stores generations of datasets, and assigns slots to workers.",
	.look = look,
	.specs = specs,
	.n = ARRAY_SIZE(specs),
};

struct master {
	struct master_options options;
	int lock_fd;
	struct record_cluster cluster;
	struct store *store;
	char tables[PATH_MAX];
	struct source_set *sources;
	struct ufs_limits origins; /* of listings and checks */
	struct membership *membership;
	struct pool *pool;
	struct pool *small;
	struct pool *dirs;
	struct pool *joins;
	struct loop *loop;
	struct service service;
	struct follow *follow;
	struct rpc_servers servers;
	struct admin_server *admin;
	uint64_t started;
};

/* ---- status ---------------------------------------------------------------------------------- */

static int get_status(
	void *arg, const struct admin_request *request, json_t **ret_json, struct err *e)
{
	struct master *m = container_of((struct service *)arg, struct master, service);
	uint32_t n;
	const struct counter_info *table = master_counter_table(&n);
	struct membership_sum sum;
	json_t *json;

	membership_sum(m->membership, &sum);
	json = json_pack(
		"{s:s, s:i, s:s, s:s, s:I, s:s, s:o*, s:{s:I, s:i, s:i, s:i, s:i}, s:o*, s:I}",
		"process", "cachemaster", "pid", (int)getpid(), "version", GRANARY_VERSION,
		"cluster", m->cluster.uuid, "epoch", (json_int_t)m->cluster.epoch, "state",
		m->options.state, "sources",
		source_set_json(m->sources, request->query(request, "workers") != NULL), "slots",
		"sequence", (json_int_t)sum.sequence, "up", (int)sum.states[CLUSTER_UP], "down",
		(int)sum.states[CLUSTER_DOWN], "out", (int)sum.states[CLUSTER_OUT], "draining",
		(int)sum.states[CLUSTER_DRAINING], "counters",
		admin_counters_json(table, n, &m->service.counters), "uptime_s",
		(json_int_t)((clock_mono_ns() - m->started) / CLOCK_SECOND));
	if (!json)
		return err_set(e, -ENOMEM, "out of memory");
	(void)json_object_set_new(json,
		"time", /* for a comparison of clocks; absent without memory */
		admin_json_time((int64_t)clock_wall_ns()));
	*ret_json = json;
	return 0;
}

/* What members of the group may do with datasets that allow them. */
static const char *const used[] = { "preload.create", NULL };

static const struct admin_route routes[] = {
	{ "GET", "/v1/status", get_status, NULL },
	{ "GET", "/v1/datasets", dataset_api_list, NULL },
	{ "POST", "/v1/datasets", dataset_api_create, "dataset.create" },
	{ "POST", "/v1/dataset-previews", dataset_api_preview, NULL },
	{ "GET", "/v1/datasets/{name}", dataset_api_get, NULL },
	{ "PATCH", "/v1/datasets/{name}", dataset_api_update, "dataset.update" },
	{ "DELETE", "/v1/datasets/{name}", dataset_api_delete, "dataset.delete" },
	{ "GET", "/v1/datasets/{name}/generations", dataset_api_generations, NULL },
	{ "GET", "/v1/datasets/{name}/diff", dataset_api_diff, NULL },
	{ "POST", "/v1/datasets/{name}/rollback", dataset_api_rollback, "dataset.rollback" },
	{ "POST", "/v1/datasets/{name}/pin", dataset_api_pin, "dataset.pin" },
	{ "POST", "/v1/datasets/{name}/evict", dataset_api_evict, "dataset.evict" },
	{ "POST", "/v1/datasets/{name}/tokens", token_api_create, "token.create" },
	{ "POST", "/v1/datasets/{name}/pod-token", token_api_exchange, NULL },
	{ "POST", "/v1/tokens", token_api_create_admin, "token.create" },
	{ "GET", "/v1/workers", workers_api_list, NULL },
	{ "GET", "/v1/workers/{name}", workers_api_get, NULL },
	{ "POST", "/v1/workers/{name}/drain", workers_api_drain, "worker.drain" },
	{ "POST", "/v1/workers/{name}/undrain", workers_api_undrain, "worker.undrain" },
	{ "DELETE", "/v1/workers/{name}", workers_api_remove, "worker.remove" },
	{ "GET", "/v1/slots", workers_api_slots, NULL },
	{ "GET", "/v1/slots/{slot}", workers_api_slot, NULL },
	{ "GET", "/v1/history", dashboard_api_history, NULL },
	{ "GET", "/v1/events", events_api_list, NULL },
	{ "GET", "/v1/backups", backups_api_list, NULL },
	{ "POST", "/v1/backups", backups_api_create, "backup.create" },
	{ "GET", "/v1/preloads", preload_api_list, NULL },
	{ "POST", "/v1/preloads", preload_api_create, "preload.create" },
	{ "GET", "/v1/preloads/{id}", preload_api_get, NULL },
	{ "DELETE", "/v1/preloads/{id}", preload_api_cancel, "preload.cancel" },
	{ 0 },
};

/* ---- start ----------------------------------------------------------------------------------- */

static int open_state(struct master *m, struct err *e)
{
	char path[PATH_MAX];
	int r = file_mkdirs(m->options.state, 0700);

	if (r < 0)
		return err_set(e, r,
			"cannot create state directory %s: %s; create it for this user, or give "
			"another --state",
			m->options.state, err_str(r));
	if (snprintf(m->tables, sizeof(m->tables), "%s/tables", m->options.state) >=
			(int)sizeof(m->tables) ||
		snprintf(path, sizeof(path), "%s/lock", m->options.state) >= (int)sizeof(path))
		return err_set(e, -ENAMETOOLONG, "%s: the path is too long: give a shorter --cache",
			m->options.state);
	m->lock_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (m->lock_fd < 0)
		return err_set(
			e, err_errno(), "%s cannot be opened: %m: give another --cache", path);
	if (flock(m->lock_fd, LOCK_EX | LOCK_NB) != 0)
		return err_set(e, -EBUSY,
			"%s is in use by another master: end its mounts, or give another --cache",
			m->options.state);
	r = file_mkdirs(m->tables, 0700);
	if (r < 0)
		return err_set(e, r, "%s cannot be created: %s: give another --cache", m->tables,
			err_str(r));
	(void)snprintf(path, sizeof(path), "%s/store", m->options.state); /* shorter than tables' */
	return store_rocksdb_open(path, &m->store, e);
}

/* Each run has an epoch of its own, higher than all before: also than that of a state which is lost,
 * or of which this is an older copy. */
static int begin_epoch(struct master *m, struct err *e)
{
	static const uint8_t none[SHA256_BYTES];
	_cleanup_(buf_release) struct buf value = BUF_INIT(STORE_VALUE_BYTES);
	_cleanup_(buf_release) struct buf next = BUF_INIT(STORE_VALUE_BYTES);
	int r = m->store->ops->get(m->store, "cluster", &value);

	if (r == -ENOENT) {
		uint8_t uuid[16];

		hash_random(uuid, sizeof(uuid));
		r = m->options.cluster ? hash_unhex(m->options.cluster, uuid, sizeof(uuid)) : 0;
		hash_hex(uuid, sizeof(uuid), m->cluster.uuid);
	} else if (r == 0) {
		r = record_cluster_decode(value.data, value.len, &m->cluster);
		if (r < 0)
			return record_refuse(e, r, "a cluster");
		/* Of an earlier version: what was seen of it has no seal yet. */
		if (memcmp(m->cluster.seal_key, none, sizeof(none)) == 0)
			m->options.believe_unsealed = true;
	}
	if (r == 0 && m->options.cluster && strcasecmp(m->options.cluster, m->cluster.uuid) != 0)
		return err_set(e, -EINVAL,
			"--cluster: %s is the state of cluster %s: give another --state, or leave "
			"--cluster out",
			m->options.state, m->cluster.uuid);
	m->cluster.epoch = max(m->cluster.epoch + 1, clock_wall_ns() / CLOCK_MS);
	if (memcmp(m->cluster.seal_key, none, sizeof(none)) == 0)
		hash_random(m->cluster.seal_key, sizeof(m->cluster.seal_key));
	if (r == 0)
		r = record_cluster_encode(&m->cluster, &next);
	if (r == 0)
		r = m->store->ops->write(
			m->store, &(struct store_change){ "cluster", next.data, next.len }, 1);
	CRASH_POINT("epoch.begun");
	if (r < 0)
		return err_set(e, r, "the store in %s cannot be used: %s: give another --cache",
			m->options.state, err_str(r));
	return 0;
}

static void tell_workers(void *arg)
{
	struct master *m = arg;

	membership_news(m->membership);
}

/* What it had of sources counts no more. */
static void forget_worker(void *arg, uint64_t id)
{
	const struct master *m = arg;

	source_set_forget_worker(m->sources, id);
}

static int open_membership(struct master *m, struct err *e)
{
	const struct membership_config config = {
		.store = m->store,
		.epoch = m->cluster.epoch,
		.out_after_ns = m->options.out_after,
		.grace_ns = GRACE_NS,
		.on_gone = forget_worker,
		.arg = m,
	};
	int r = membership_new(&config, &m->membership, e);

	if (r == 0)
		source_set_name_workers(m->sources, preload_worker_name, m->membership);
	if (r == 0 && membership_start(m->membership) < 0)
		r = err_set(e, -EAGAIN,
			"cannot start threads: raise the limit on processes (ulimit -u)");
	return r;
}

static int open_datasets(struct master *m, struct err *e)
{
	const struct dataset_set_config config = {
		.store = m->store,
		.sources = m->sources,
		.pool = m->pool,
		.limits = &m->origins,
		.on_change = tell_workers,
		.arg = m,
	};

	return dataset_set_new(&config, &m->service.datasets, e);
}

static int open_preloads(struct master *m, struct err *e)
{
	const struct preloads_config config = {
		.store = m->store,
		.sources = m->sources,
		.datasets = m->service.datasets,
		.pool = m->pool,
		.owners = preload_owners,
		.name_of = preload_worker_name,
		.owners_arg = m->membership,
	};

	return preloads_new(&config, &m->service.preloads, e);
}

static int open_backups(struct master *m, struct err *e)
{
	const struct backups_config config = {
		.store = m->store,
		.state = m->options.state,
		.tables = m->tables,
		.keep = m->options.daily_backups,
	};

	return backups_new(&config, &m->service.backups, e);
}

static int open_dashboard(struct master *m, struct err *e)
{
	const struct dashboard_config config = {
		.datasets = m->service.datasets,
		.sources = m->sources,
		.membership = m->membership,
		.step_ns = m->options.history_step,
	};

	return dashboard_new(&config, &m->service.dashboard, e);
}

static int serve(struct master *m, struct err *e)
{
	uint32_t n;
	const struct counter_info *table = master_counter_table(&n);
	int r;

	m->loop = loop_new("master");
	m->pool = pool_new("master-work", MASTER_THREADS, MASTER_QUEUE);
	m->small = pool_new("master-small", MASTER_SMALL, MASTER_QUEUE);
	m->dirs = pool_new("master-dirs", MASTER_DIRS, MASTER_QUEUE);
	m->joins = pool_new("master-joins", MASTER_JOINS, PLACEMENT_MAX);
	m->service.pieces = m->small ? table_pieces_new(m->sources, m->small) : NULL;
	if (!m->loop || !m->pool || !m->small || !m->dirs || !m->joins || !m->service.pieces)
		return err_set(e, -ENOMEM, "out of memory or threads");
	m->service.sources = m->sources;
	m->service.membership = m->membership;
	m->service.pool = m->pool;
	m->service.small = m->small;
	m->service.dirs = m->dirs;
	m->service.joins = m->joins;
	m->service.rules = (struct source_rules){ .file_roots = m->options.file_roots,
		.credential_dirs = m->options.credential_dirs,
		.local_endpoints = m->options.local_endpoints };
	m->service.admin_may_mint = m->options.admin_may_mint;
	if (m->options.accounts.keys &&
		service_accounts_new(&m->options.accounts, &m->service.accounts, e) < 0)
		return e->code;
	m->service.self.epoch = m->cluster.epoch;
	r = hash_unhex(m->cluster.uuid, m->service.self.cluster, HELLO_CLUSTER_BYTES);
	if (r < 0)
		return err_set(e, r, "the store in %s has no cluster name: restore a backup",
			m->options.state);
	r = open_datasets(m, e);
	if (r == 0)
		r = open_preloads(m, e);
	if (r == 0)
		r = open_backups(m, e);
	if (r < 0)
		return r;
	m->follow = follow_new(&(struct follow_config){ .sources = m->sources,
		.datasets = m->service.datasets,
		.membership = m->membership });
	if (!m->follow)
		return err_set(e, -ENOMEM, "out of memory or threads");
	if (m->options.admin) {
		r = open_dashboard(m, e);
		if (r == 0)
			r = admin_server_new(m->options.admin, routes, &m->service, &m->admin, e);
		if (r == 0)
			admin_server_set_pages(m->admin, dashboard_pages);
		if (r == 0)
			admin_server_allow_use(m->admin, used);
		if (r == 0)
			r = admin_server_add_counters(m->admin, table, n, &m->service.counters);
		if (r == 0)
			r = service_add_metrics(&m->service, m->admin);
		if (r == 0)
			r = admin_server_listen(m->admin, &m->options.admin_listen, NULL, e);
		if (r < 0)
			return err_default(e, r, "the admin socket cannot be served");
		m->service.remote = remote_admin_new(m->admin, m->service.datasets);
		if (!m->service.remote)
			return err_set(e, -ENOMEM, "out of memory or threads");
	}
	r = rpc_servers_open(&m->servers, m->loop, m->options.listen.values, m->options.listen.n,
		&service_ops, &m->service, e);
	if (r == 0) {
		membership_listen(m->membership, m->loop);
		atomic_store(&m->service.serving, true);
	}
	return r;
}

/* Answers are parsed as they come; with little memory or few descriptors there are fewer at once. */
static unsigned int list_requests(uint64_t memory)
{
	uint64_t n = min(memory / LIST_BYTES, (uint64_t)LIST_REQUESTS);

	return bounds_descriptor_share(1, (uint32_t)max(n, (uint64_t)LIST_REQUESTS_LEAST));
}

/* A listing spills what it has no room for; the table made of it cannot. */
static void share_out(uint64_t memory)
{
	arena_share(ARENA_LISTING, LISTING_LEAST, memory / 8 * 5);
	arena_share(ARENA_TABLES, memory / 4, 0);
	arena_share(ARENA_CONNECTIONS, memory / 32, memory / 2); /* a large cluster has many */
	arena_share(ARENA_REPLIES, REPLIES_LEAST, memory / 8);
	arena_share(ARENA_HISTORY, HISTORY_LEAST, memory / 16);
}

static void protect(const struct master_options *o)
{
	protected_add(o->config);
	protected_add(o->state);
	protected_add(key_option_file(o->keys.cluster_key));
	protected_add(key_option_file(o->keys.token));
	for (unsigned int i = 0; i < o->credential_dirs.n; i++)
		protected_add(o->credential_dirs.values[i]);
}

static int start(struct master *m, struct err *e)
{
	int r = bounds_check_descriptors(e);

	daemon_keep_memory(m->options.memory);
	arena_open(m->options.memory, share_out);
	arena_must(ARENA_FIXED, FIXED_BYTES);
	if (r == 0)
		r = open_state(m, e);
	protect(&m->options);
	if (r == 0)
		r = begin_epoch(m, e);
	m->origins = (struct ufs_limits){ .max_requests = 4,
		.list_requests = list_requests(m->options.memory),
		.request_timeout_ns = ATTEMPT_TIMEOUT,
		.deadline_ns = LIST_DEADLINE };
	if (r == 0) {
		struct source_set_config config = {
			.store = m->store,
			.tables = m->tables,
			.epoch = m->cluster.epoch,
			.listing_bytes = m->options.memory / 2,
			.listing_disk = m->options.listing_disk,
			.limits = m->origins,
			.hold_ns = HOLD_NS,
			.grace_ns = GRACE_NS,
			.believe_unsealed = m->options.believe_unsealed,
		};

		memcpy(config.seal_key, m->cluster.seal_key, sizeof(config.seal_key));
		r = source_set_new(&config, &m->sources, e);
	}
	if (r == 0)
		r = open_membership(m, e);
	if (r == 0)
		r = arena_start_done("--memory", e);
	return r == 0 ? serve(m, e) : r;
}

static void stop(struct master *m)
{
	if (m->sources)
		source_set_stop(m->sources);
	membership_listen(m->membership, NULL);
	rpc_servers_close(&m->servers);
	remote_admin_free(m->service.remote);
	if (m->admin)
		admin_server_free(m->admin);
	follow_stop(m->follow);
	pool_free(m->small); /* may still hand over to the last, as the next */
	table_pieces_free(m->service.pieces);
	pool_free(m->dirs);
	pool_free(m->joins);
	pool_free(m->pool);
	follow_free(m->follow); /* its waits may have been answered by flights of that pool */
	if (m->loop)
		loop_free(m->loop);
	dashboard_free(m->service.dashboard);
	membership_free(m->membership);
	backups_free(m->service.backups);
	preloads_free(m->service.preloads);
	dataset_set_free(m->service.datasets);
	service_accounts_free(m->service.accounts);
	source_set_free(m->sources);
	store_close(m->store);
	if (m->lock_fd >= 0)
		(void)close(m->lock_fd); /* gives the lock up */
}

static enum exit_status exit_of(int r)
{
	if (r == -EBUSY)
		return EXIT_BUSY;
	if (r == -EMFILE || r == -ENOKEY)
		return EXIT_USAGE;
	return r == -EADDRINUSE || r == -ENOMEM ? EXIT_RUNTIME : EXIT_CACHE;
}

static void on_change(void *arg)
{
	const struct master *m = arg;

	daemon_log_level(m->options.log_level);
}

int main(int argc, char **argv)
{
	struct master m = {
		.options = { .ready_fd = -1,
			.keys = KEY_OPTIONS_INIT,
			.log_level = "info",
			.memory = LISTING_BYTES,
			.daily_backups = 7,
			.history_step = DASHBOARD_STEP,
			.out_after = MEMBER_OUT_NS,
			.accounts.audience = "granary" },
		.lock_fd = -1,
		.started = clock_mono_ns(),
	};
	struct err e = ERR_INIT;
	_cleanup_(config_free_p) struct config *file = NULL;
	sigset_t signals;
	int r;

	if (argc > 1 && strcmp(argv[1], "restore") == 0)
		return restore_command(argv[0], argc - 1, argv + 1);
	file = config_open_or_exit(&options_set, argc, argv, &m.options, sizeof(m.options));
	r = daemon_begin("master", m.options.log_level, m.options.log_file, &e);
	secret_hide_process();
	bounds_mostly_connections();
	if (r == 0)
		r = admin_check_listen(&m.options.admin_listen, &e);
	if (r == 0)
		r = net_keys_open(&m.options.keys, &e);
	if (r == 0)
		r = audit_open(m.options.audit_log, "cachemaster", &e);
	if (r < 0)
		return ready_error(m.options.ready_fd, "cachemaster", EXIT_USAGE, &e);
	daemon_signals_block(&signals);
	daemon_hangup_block(file, &signals);
	r = alive_watch();
	if (r == 0)
		r = start(&m, &e);
	if (r < 0) {
		(void)err_default(&e, r, "the master cannot start");
		stop(&m);
		return ready_error(m.options.ready_fd, "cachemaster", exit_of(r), &e);
	}
	if (m.options.worker)
		log_warn("option without effect",
			"option=worker next=\"remove it: workers join on their own\"");
	for (uint32_t i = 0; i < m.servers.n; i++)
		log_info("serving", "epoch=%" PRIu64 " listen=%s state=\"%s\"", m.cluster.epoch,
			rpc_server_address(m.servers.all[i]), m.options.state);
	ready_ok(m.options.ready_fd, "{}");
	daemon_signals_wait(&signals, file, on_change, &m);
	stop(&m);
	return EXIT_OK;
}
