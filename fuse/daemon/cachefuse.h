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
#include "client/client.h"
#include "mount/cachefuse_options.h"
#include "fuse/engine/engine.h"
#include "fuse/daemon/failures.h"
#include "fuse/daemon/images.h"
#include "fuse/engine/mounted.h"
#include "mount/mounter.h"
#include "fuse/order/order.h"
#include "fuse/session/reader.h"
#include "fuse/daemon/seal_client.h"
#include "fuse/daemon/share.h"
#include "mount/slots.h"
#include "fuse/daemon/sources.h"

struct cachefuse {
	struct cachefuse_options options;
	struct config *config;       /* where they came from */
	char *mountpoint;            /* absolute, links resolved */
	char shown[LIMIT_URL_BYTES]; /* what df(1) shows of a dataset mounted by name */
	char image[PATH_MAX];
	char key[MOUNTER_KEY_BYTES]; /* of what a mount of it shows */
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
