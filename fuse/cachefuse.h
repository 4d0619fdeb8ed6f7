/* The parts of the daemon, put together by main_cachefuse.c and looked at by status.c. */
#pragma once

#include <limits.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include "admin/admin.h"
#include "admin/listen.h"
#include "base/config.h"
#include "base/exit.h"
#include "base/key_options.h"
#include "base/option.h"
#include "client/client.h"
#include "fuse/engine.h"
#include "fuse/failures.h"
#include "fuse/images.h"
#include "fuse/mounted.h"
#include "fuse/order.h"
#include "fuse/reader.h"
#include "fuse/seal_client.h"
#include "fuse/share.h"
#include "fuse/slots.h"
#include "fuse/sources.h"
#include "fuse/superblock.h"

#define CACHEFUSE_PROGRAM    "cachefuse"
#define CACHEFUSE_UNSET      UINT64_MAX
#define CACHEFUSE_PRIME_MAX  4000000u /* inodes and names in the kernel: 4.4 GB */
#define CACHEFUSE_FOLLOW_MAX (86400 * CLOCK_SECOND)

struct cachefuse_options {
	const char *config;
	const char *source;
	const char *dataset; /* UUID.VOLUME; NULL: the source itself */
	const char *
		dataset_name; /* instead of source and dataset: resolved by the master for the user in claims */
	const char *claims;  /* of who mounts that, by number (base/claims.h) */
	const char *sources; /* of that, what sources_parse() wants; NULL: the one */
	const char *endpoint;
	const char *region;
	const char *profile;
	const char *ca_file;
	bool path_style;
	bool anonymous;
	const char *credentials;
	bool requester_pays;
	const char *versions; /* auto, on, off */
	bool refresh;
	bool refresh_behind;
	bool replace;
	uint64_t follow; /* ns; 0: not */
	bool follow_dataset;
	bool pinned;      /* it stays at what it is mounted with, whatever its dataset says */
	const char *path; /* directory of the dataset named so: the mount's root; NULL: its root */
	uint64_t generation; /* of that; 0: what it shows */
	bool rolled_back;    /* the dataset, when it was asked for */
	uint64_t quota;      /* CACHEFUSE_UNSET: as it is */
	uint64_t priority;   /* likewise */
	const char *pin;     /* yes, no; NULL: as it is */
	const char *evict;   /* likewise */
	const char *master;
	const char *worker;
	struct key_options keys;
	const char *mountpoint;
	const char *run_dir;
	const char *image_dir;
	const char *admin;
	struct admin_listen admin_listen;
	const char *audit_log;
	const char *order_dir;
	uint64_t uid;
	uint64_t gid;
	uint64_t umask;
	uint64_t memory;
	uint64_t direct_bandwidth; /* bytes a second; 0: not given */
	uint64_t extent_size;
	const char *engine;
	const char *context;
	bool allow_other;
	const char *integrity;
	uint64_t seal_pause;
	uint64_t prime_max; /* CACHEFUSE_UNSET: what fits */
	int ready_fd;
	int fuse_fd;
	int slots_fd;
	int hand_fd;
	int hand_near_fd; /* only held */
	int point_fd;     /* the mount point, opened by who owns it; -1: --mountpoint is opened */
	const char *log_level;
	const char *log_file;
};

/* What it takes, and what it has without; the strings are borrowed from argv. */
extern const struct option_set cachefuse_option_set;
void cachefuse_options_init(struct cachefuse_options *options);

struct cachefuse {
	struct cachefuse_options options;
	struct config *config;       /* where they came from */
	char *mountpoint;            /* absolute, links resolved */
	char shown[LIMIT_URL_BYTES]; /* what df(1) shows of a dataset mounted by name */
	char image[PATH_MAX];
	char key[SUPERBLOCK_KEY_BYTES]; /* of what a mount of it shows */
	struct image_options image_options;
	int dev_fd;
	int slots_fd;
	int point_fd;
	int wake_fd;   /* eventfd of the main thread: something below changed */
	int signal_fd; /* SIGTERM and SIGINT, from the mount on */
	_Atomic bool gone;
	_Atomic bool failed_reads; /* failures has rows without a line in the log */
	struct slots *slots;
	struct share share;
	struct client *client;
	struct sources sources;
	pthread_rwlock_t
		showing;   /* sources, and what the slots say of them, where a mount is live */
	struct live *live; /* NULL: it is not */
	struct reader reader;
	struct follow *follow; /* NULL: it does not */
	int64_t listing_since_ms; /* requested start of a background listing (follow.c), since 1970; 0: none, or no reply yet */
	struct order *order;
	struct failures *failures;
	const struct engine *engine; /* NULL: of a mount taken over, and not known here */
	struct mounted *mounted;
	struct seal_client seal_client;
	struct seal *seal; /* NULL: every extent is served */
	struct admin_server *server;
	char notice[ERR_TEXT_MAX];
	uint64_t started;
	bool taken_over;
	bool shared; /* another daemon serves what it asked for */
};

/*
 * The sources, once there are slots (source.c); each with a line for its status. source_open(): the
 * newest tables. source_hold(): the master keeps what is mounted, or is about to be; of a mount taken
 * over, what its predecessor mounted. source_check_successor(): what is mounted means the same by
 * those tables. source_hold_renew(): every CLIENT_HOLD_EVERY. source_note_shown(): the slots know
 * what the image shows.
 */
/* Opens the newest of the same sources once more. */
int source_open_next(struct cachefuse *c, struct sources *ret, struct err *e) __must_check;
/*
 * Of a dataset's sources ([{"path", "volume", "url", "subtree"}...]) those that have something below the absolute `directory`, as
 * --sources wants them: the directory is their root. None: it is not in the dataset. A new reference.
 */
json_t *source_named_sources(const json_t *mounts, const char *directory);
/* source_named.c, before source_open(): of --dataset-name the options that follow from it. */
enum exit_status source_find_named(struct cachefuse *c, struct err *e) __must_check;
enum exit_status source_open(struct cachefuse *c, struct err *e) __must_check;
enum exit_status source_hold(struct cachefuse *c, struct err *e) __must_check;
enum exit_status source_check_successor(struct cachefuse *c, struct err *e) __must_check;
void source_hold_renew(struct cachefuse *c);
/* Sets which listings each message of `hold` requests. */
void source_request(const struct cachefuse *c, struct client_hold *hold);
/* Tells the session how much of the sources is cached, as last reported by the master. */
void source_note_cached(struct cachefuse *c);
void source_note_shown(struct cachefuse *c, const struct images_result *image);

/* Orders that jobs announce for this mount (announced.c): c->order, for the reader. -ENOMEM. */
int announced_open(struct cachefuse *c) __must_check;
/* Serves jobs from now on, or logs why it cannot: a mount is of use without them. */
void announced_listen(struct cachefuse *c);

/* Routes of the admin socket; their argument is a struct cachefuse. */
const struct admin_route *status_routes(void);
/* Histograms, values with labels, and whether it is ready: c->server's. */
int status_add_metrics(struct cachefuse *c) __must_check;
