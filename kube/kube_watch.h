/*
 * A watch: all objects of a kind as they are now, then each change.
 *
 * It goes on over lost connections and restarts of the server, from the last version that it has seen; where the server has forgotten
 * that version (410) it lists again. Bookmarks keep the version new where objects seldom change.
 *
 * Threads: blocks the caller's.
 */
#pragma once

#include "kube/kube.h"

enum kube_change {
	KUBE_LISTING, /* all objects follow, each as KUBE_PRESENT: what is not among them does not exist. No object */
	KUBE_PRESENT,
	KUBE_LISTED, /* that were all. No object */
	KUBE_ADDED,
	KUBE_MODIFIED,
	KUBE_DELETED,
};

struct kube_watch {
	struct kube_kind kind;
	struct kube_query query;
	/* `object` is borrowed. What is not 0 ends the watch. */
	int (*see)(void *arg, enum kube_change change, json_t *object);
	void *arg;
	uint64_t end_ns; /* of clock_mono_ns(): ends with -ETIMEDOUT; 0: never */
};

/* What see() returned; or an error that does not pass: -EACCES, -ENOENT, -EINVAL, -EKEYREJECTED, -ECANCELED, -ETIMEDOUT. */
int kube_watch(struct kube *kube, const struct kube_watch *watch, struct err *e) __must_check;
