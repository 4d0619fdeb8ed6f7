/* What the parts of the keeper's side share. See mounter_peer.h. */
#pragma once

#include <pthread.h>
#include "base/mount_table.h"
#include "mount/kernel/kernel.h"
#include "keeper/points/mounter_peer.h"
#include "mount/mounter_wire.h"
#include "keeper/points/superblock.h"

#define MOUNTER_HOST_MAGIC 0x4A71FE0Cu
#define MOUNTER_PEER_MAGIC 0x4A71FE0Du

/* What is about to be done to mount points. */
struct mounter_intent {
	uint32_t op;         /* enum mounter_op; 0: nothing */
	uint32_t serial;     /* of the request */
	unsigned int server; /* whose superblock is attached */
	dev_t from;          /* st_dev of what it replaces; 0: nothing of ours */
	dev_t to;
};

struct mounter_host {
	uint32_t magic;
	int wake_fd;
	int (*save)(void *arg); /* NULL: nobody needs to know */
	void *save_arg;
	pthread_mutex_t lock; /* a leaf; never held over a call that may wait */
	pthread_cond_t idle;
	/* Held over whatever changes what a mount point shows, and until it shows it: of two that
	 * came beneath the same mount one would stay hidden. Taken before `lock`. */
	pthread_mutex_t moving;
	struct superblocks superblocks;
	struct list peers;
	unsigned int busy;
};

struct mounter_peer {
	uint32_t magic;
	struct list link;
	struct mounter_host *host;
	struct mounter_peer_config config; /* its strings are ours */
	bool busy;                         /* a request is under way */

	/* Under the host's lock. */
	enum mounter_point point;
	unsigned int server;
	struct mounter_intent intent;
	bool ended; /* its daemon never came to serve: nothing is begun for it any more */
	char *making; /* key of what its daemon is about to attach, since none shows it; NULL: nothing */
	bool newer; /* MOUNTER_NEWER came */
	char newer_why[ERR_TEXT_MAX];

	/* Of who works on a request, one at a time. */
	dev_t fuse_dev; /* of the connection mounted for it; written under the lock */
	dev_t made_dev; /* of the last image mounted for it; likewise */
	int *local;     /* devices that came for the next image: LIMIT_DEVICES; -1: none */
	struct detach_helper helper;

	int mount_id;       /* the mount that was attached for it; 0: not known. Under the lock */
	unsigned int holds; /* mounter_peer_hold(); under the lock */
	int moved; /* it was moved: 1 when it is taken off, -errno when it cannot be; 0: it was not. Of the loop */
};

/* One request and what is to be answered. */
struct mounter_job {
	struct mounter_peer *peer;
	struct mounter_request request;
	struct mounter_answer answer;
	int fds[MOUNTER_FDS_MAX];
	uint32_t n_fds;
	int fd; /* goes with the answer; -1: none */
	struct err err;
};

/* ---- mounter_peer.c -------------------------------------------------------------------------- */

/* Those that came for an image that was never mounted. */
void mounter_drop_local(struct mounter_peer *peer);
/* That mount's peer; NULL: it is not known. */
struct mounter_peer *mounter_peer_of_locked(struct mounter_host *host, unsigned int mount);
/* Writes down what the request is about to do; with a line when that cannot be. */
int mounter_begin(struct mounter_job *job, const struct mounter_intent *intent) __must_check;
/* It was done, or will not be. */
void mounter_begun_not(struct mounter_peer *peer);
/* What a later keeper has to know is written down now. Without any lock. */
int mounter_save(struct mounter_host *host) __must_check;

/* ---- mounter_points.c: where superblocks are attached ---------------------------------------- */

int mounter_do_attach(struct mounter_job *job) __must_check;
int mounter_do_share(struct mounter_job *job) __must_check;
int mounter_do_switch(struct mounter_job *job) __must_check;
int mounter_do_any_point(struct mounter_job *job) __must_check;
/* End what an earlier keeper began; -ENOENT: it was not done, nor will be. */
int mounter_renew_attach(struct mounter_job *job) __must_check; /* or a share */
int mounter_renew_switch(struct mounter_job *job) __must_check;
