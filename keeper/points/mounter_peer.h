/*
 * The keeper's side of mounter.h: what daemons of mounts request, and where the superblocks of a node are attached.
 *
 *	SOCK_SEQPACKET ──► mounter_serve() ──► kernel.h
 *	                     │ on a thread of its own: any may wait
 *	                     └──► superblocks (superblock.h)
 *
 * Threads: any; one request of a peer at a time.
 */
#pragma once

#include <stdbool.h>
#include <sys/types.h>
#include <jansson.h>
#include "base/buf.h"
#include "base/err.h"
#include "keeper/points/unmount_helper.h"

/* Of one keeper: its superblocks, and the requests under way. */
struct mounter_host;
/* One daemon that may ask: of a mount, for as long as the keeper knows that. */
struct mounter_peer;

/* `wake_fd`: an eventfd (borrowed) that is written when a request has ended. */
int mounter_host_new(int wake_fd, struct mounter_host **ret_host) __must_check;
/*
 * `save`, from any thread, with none of the host's locks held: writes mounter_peer_save() of all
 * peers down, before something is done to a mount point and before it is said to be done.
 */
void mounter_host_keep(struct mounter_host *host, int (*save)(void *arg), void *arg);
/* After its peers. NULL is allowed. */
void mounter_host_free(struct mounter_host *host);
/* Requests under way: before the keeper replaces itself it waits until there are none; those that
 * come meanwhile stay in their sockets as long as nobody calls mounter_serve(). */
unsigned int mounter_host_busy(struct mounter_host *host);

struct mounter_peer_config {
	unsigned int id;        /* of the mount; unique */
	const char *mountpoint; /* where it may mount; copied */
	const char *admin;      /* its daemon's admin socket; copied */
	const char *image_dir;  /* where its images lie; copied */
	int socket;             /* our end, borrowed; the other is the daemon's --hand-fd */
	int fuse_fd;            /* the place for its connection: dup3() puts it there; borrowed */
	bool owned;             /* the mount point is an ordinary user's (user_point.h) */
	uid_t owner;            /* of an owned one */
	int point_fd; /* of an owned one: where it is attached, whatever its daemon sends; borrowed; -1: it is attached */
};
int mounter_peer_new(struct mounter_host *host, const struct mounter_peer_config *config,
	struct mounter_peer **ret_peer) __must_check;
/*
 * Its daemon is gone for good: what still shows its superblock, here and at mount points that share
 * it, is taken off. Not when only the keeper ends.
 */
void mounter_peer_clear(struct mounter_peer *peer);
/*
 * No request is under way, so that it can be freed without waiting. Else one that waits for the
 * daemon is ended, and wake_fd tells when it has.
 */
bool mounter_peer_idle(struct mounter_peer *peer);
/*
 * Waits for the end of a request under way; one that waits for the daemon ends with the connection,
 * which is cut. Nothing is unmounted. NULL is allowed.
 */
void mounter_peer_free(struct mounter_peer *peer);

/* It is not freed until mounter_peer_drop(). With what makes sure that it is there. */
void mounter_peer_hold(struct mounter_peer *peer);
void mounter_peer_drop(struct mounter_peer *peer);

struct mounter_unmounted {
	uint32_t others; /* mount points that show it still */
	bool in_use; /* there are none, but something uses it elsewhere: its daemon serves it until that ends */
	dev_t dev; /* st_dev of what was shown */
};
/*
 * Detaches its mount, wherever that is now. It and its server are held. `daemon`, `slots`: as in struct unmount, of the server.
 * Errors as unmount_detach(); -ENOENT: it is not mounted. Waits: not the loop's.
 */
int mounter_peer_unmount(struct mounter_peer *peer, enum unmount_mode mode, int daemon, int slots,
	struct mounter_unmounted *ret, struct err *e) __must_check;

/* Its point_fd is about to be closed. */
void mounter_peer_forget_point(struct mounter_peer *peer);

/* Has it a connection that is not gone? */
bool mounter_peer_connected(const struct mounter_peer *peer);
/* It had one, made by the keeper, and that is gone. */
bool mounter_peer_gone(const struct mounter_peer *peer);
/* What the loop polls for POLLIN, then calls mounter_serve(); -1 while a request is under way. */
int mounter_peer_fd(const struct mounter_peer *peer);
/* Takes one request; a thread works on it and answers. Never blocks. */
void mounter_serve(struct mounter_peer *peer);

/* ---- what became of a mount, for the keeper's states and its status -------------------------- */

enum mounter_point {
	MOUNTER_NONE,   /* nothing was attached yet */
	MOUNTER_OWN,    /* its daemon's superblock is at its mount point */
	MOUNTER_SHARED, /* another daemon's is: its own ended with status 0, and the mount lives */
	MOUNTER_DETACHED, /* unmounted or replaced there; its daemon lives on for other mount points
			   * or open files, and the mount point is free for a new mount */
};
enum mounter_point mounter_peer_point(const struct mounter_peer *peer);
/*
 * Looks where its mount is: DETACHED when it is not there any more. A mount that was moved has another mount point from then on, but
 * an ordinary user's is detached. Call it once a second and when something ended; not at the same time as mounter_serve(). `mounts`:
 * the kernel's list, read a moment ago (mount_table_read()); NULL: it is read.
 */
void mounter_peer_look(struct mounter_peer *peer, const struct buf *mounts);
/* Where its mount is, or is to be. Borrowed, until the next look. */
const char *mounter_peer_mountpoint(const struct mounter_peer *peer);
/*
 * Its daemon ended before it served: what it asked to be done to a mount point is not begun any more.
 * False when it was begun: what comes of it is known once that request has ended (wake_fd).
 */
bool mounter_peer_end(struct mounter_peer *peer) __must_check;
/* Mount points that show what its daemon serves. */
unsigned int mounter_peer_points(const struct mounter_peer *peer);
/* Mounts of more than one user have shown what its daemon serves: one of them may not break the others' readers. */
bool mounter_peer_has_many_owners(const struct mounter_peer *peer);
/* SHARED: id of the mount whose daemon serves it; else its own. */
unsigned int mounter_peer_server(const struct mounter_peer *peer);
/* Its daemon knows of a newer generation (mounter_newer()), and was not answered since. */
bool mounter_peer_newer(const struct mounter_peer *peer);
/* That was looked at; what it is told when it says so again, why nothing came of it; NULL: nothing. */
void mounter_peer_answer_newer(struct mounter_peer *peer, const char *why);
/* Adds members to a mount's row of the status: "point", and "server", "socket" when it is shared. */
int mounter_peer_json(const struct mounter_peer *peer, json_t *row) __must_check;

/* What a later keeper has to know, for keeper.json; a new reference, NULL without memory. */
json_t *mounter_peer_save(const struct mounter_peer *peer);
/* After all peers exist: what mounter_peer_save() said. Foreign members are left out. */
void mounter_peer_load(struct mounter_peer *peer, const json_t *saved);
/*
 * After all were loaded, when the keeper before may have died over a request: what it began to do
 * to a mount point is ended or undone, by what the kernel shows, and daemons that wait get their
 * answer. Before mounter_serve().
 */
void mounter_host_renew(struct mounter_host *host);
