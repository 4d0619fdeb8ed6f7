/*
 * An API server of Kubernetes for tests: stores any object under its path, lists by pages, watches, and fails on command.
 *
 * It checks no schema. Deleting an object deletes what it owns. All requests are recorded. Another process changes it by POST /fake:
 * {"put": {path: object or null}, "set": {"fails": 2}, "hidden": apiVersion}.
 */
#pragma once

#include <jansson.h>
#include "tests/unit/ufs/server.h"

#define FAKE_KUBE_REQUESTS 4096u
#define FAKE_KUBE_CHANGES  4096u

struct fake_kube_kind {
	const char *api_version;
	const char *kind;
	const char *plural;
	bool cluster_wide;
};

struct fake_kube_change {
	long long version;
	char *path;
	json_t *event; /* {"type", "object"} */
};

struct fake_kube {
	struct server server;
	pthread_mutex_t lock; /* of all that follows */
	pthread_cond_t changed;
	json_t *objects; /* path: object */
	long long version;
	long long forgotten; /* watches from versions below are answered with 410 */
	struct fake_kube_change changes[FAKE_KUBE_CHANGES];
	unsigned int n_changes;
	char *requests[FAKE_KUBE_REQUESTS]; /* head and body, as they came */
	unsigned int n_requests;
	unsigned int watches_ended; /* changes: all watches end */
	bool stopping;
	const struct fake_kube_kind *kinds; /* ends with { 0 } */
	char url[64];
	char hidden[64]; /* an apiVersion that it has not got; "": none */
	FILE *log;       /* gets each request as a line of JSON; NULL: none */

	/* What it does with the requests to come; each counts down to 0. */
	const char *token;      /* the only one that is accepted; NULL: any */
	unsigned int throttles; /* 429 with retry_after */
	unsigned int retry_after;
	unsigned int fails;        /* 500 */
	unsigned int closes;       /* the connection ends without an answer */
	unsigned int loses;        /* the request is carried out, its answer lost */
	unsigned int conflicts;    /* of writes: 409 */
	unsigned int expires;      /* of pages after the first: 410 */
	unsigned int breaks;       /* of watches: end in the middle of a change */
	unsigned int watch_errors; /* of watches: an ERROR of 410 in the answer */
};

void fake_kube_start(struct fake_kube *kube);
void fake_kube_stop(struct fake_kube *kube);

/* Writes a kubeconfig for it: context "fake", namespace "team". */
void fake_kube_config(const struct fake_kube *kube, const char *path, const char *token);

#define fake_kube_set(kube, field, value)            \
	do {                                         \
		pthread_mutex_lock(&(kube)->lock);   \
		(kube)->field = (value);             \
		pthread_mutex_unlock(&(kube)->lock); \
	} while (0)

/* Stores an object as if a client had, and tells watches. NULL: deletes it. */
void fake_kube_put(struct fake_kube *kube, const char *path, json_t *object);
/* A copy; NULL: there is none. */
json_t *fake_kube_object(struct fake_kube *kube, const char *path);
/* Ends all watches as the server does when their time is over. */
void fake_kube_end_watches(struct fake_kube *kube);
/* Sends the newest version to all watches. */
void fake_kube_bookmark(struct fake_kube *kube);
/* Requests so far whose first line begins so. */
unsigned int fake_kube_count(struct fake_kube *kube, const char *begin);
/* The last of them, borrowed until the fake stops; NULL: none. */
const char *fake_kube_last(struct fake_kube *kube, const char *begin);
