/*
 * The API of Kubernetes, as far as this project needs it: requests for one object, lists by pages, discovery. Watches are in
 * kube_watch.h, events in kube_event.h.
 *
 * Every call blocks until its answer is complete, refused, or late. A request that the server throttles (429) is sent again after the
 * time that the answer names; others are sent again after a lost connection or a failure of the server. All
 * attempts of a call end within KUBE_PATIENCE_NS.
 *
 * Errors are negative errnos, each with a line for people:
 *
 *	-ENOENT		object, or kind, not found
 *	-EEXIST		an object of that name exists
 *	-EBUSY		conflict: the object was changed meanwhile, or another manager owns the field
 *	-ESTALE		the resourceVersion is too old (410): list again
 *	-EINVAL		the object is invalid (400, 422)
 *	-EACCES		the user may not do this
 *	-EKEYREJECTED	the credentials are not accepted
 *	-EAGAIN		throttled for longer than the call may take
 *	-EIO		the server failed
 *	-ECONNREFUSED, -EHOSTUNREACH, -ETIMEDOUT, -EPROTO	the server cannot be reached, or does not speak HTTP
 *	-ECANCELED	given up
 *
 * Lifetime: a client lives longer than the calls on it. Threads: any number at once; there are no globals.
 */
#pragma once

#include <jansson.h>
#include <stdatomic.h>
#include <stdbool.h>
#include "base/cleanup.h"
#include "base/err.h"
#include "kube/kube_access.h"

#define KUBE_ANSWER_BYTES (32u << 20) /* of one answer: a page of a list */
#define KUBE_PATIENCE_NS  (60 * 1000000000ull)
#define KUBE_ATTEMPT_NS   (30 * 1000000000ull)
#define KUBE_PAGE_OBJECTS 500u

struct kube;

/* `given_up`, which may be NULL, becomes true: calls end with -ECANCELED soon. Borrowed. */
int kube_new(const struct kube_choice *choice, const _Atomic bool *given_up, struct kube **ret_kube,
	struct err *e) __must_check;
void kube_free(struct kube *kube);
DEFINE_CLEANUP(struct kube *, kube_free);

const char *kube_namespace(const struct kube *kube); /* of requests that name none */
const char *kube_server(const struct kube *kube);    /* its URL */

/* ---- one request ----------------------------------------------------------------------------- */

struct kube_request {
	const char *method; /* NULL: GET */
	const char *path;   /* "/api/v1/namespaces/x/pods?limit=1", with its query */
	const char *type;   /* Content-Type of the body; NULL: application/json */
	const json_t *body; /* NULL: none */
	bool once;          /* not sent again when it may have arrived */
};

/* *ret_json, a new reference, may be NULL. */
int kube_call(struct kube *kube, const struct kube_request *request, json_t **ret_json,
	struct err *e) __must_check;
/* The same for an answer that is a text, such as a log: given to see() as it arrives, without a bound on its length or on the time
 * that it takes. A negative value of see() ends the call and is returned. */
int kube_call_text(struct kube *kube, const char *path,
	int (*see)(void *arg, const char *data, size_t len), void *arg, struct err *e) __must_check;

/* ---- objects --------------------------------------------------------------------------------- */

/* A kind of objects. Texts are borrowed. */
struct kube_kind {
	const char *api_version; /* "v1", "kubeflow.org/v1" */
	const char *plural;      /* "pytorchjobs" */
	bool cluster_wide;       /* has no namespace */
};

/* How an object is written. */
struct kube_write {
	const char *manager; /* fieldManager */
	bool dry_run;        /* checked by the server, not stored */
	bool force;          /* of an apply: takes fields from other managers */
};

/*
 * A creation, too, is sent again when its answer is lost: -EEXIST may be of an object that the call itself created.
 * `name_space` NULL: the client's. Unknown and repeated fields are refused by the server (fieldValidation=Strict). An object is
 * named by its metadata. ret_json may be NULL.
 */
int kube_get(struct kube *kube, const struct kube_kind *kind, const char *name_space,
	const char *name, json_t **ret_json, struct err *e) __must_check;
int kube_create(struct kube *kube, const struct kube_kind *kind, const char *name_space,
	const json_t *object, const struct kube_write *how, json_t **ret_json,
	struct err *e) __must_check;
/* Server-side apply. */
int kube_apply(struct kube *kube, const struct kube_kind *kind, const char *name_space,
	const char *name, const json_t *object, const struct kube_write *how, json_t **ret_json,
	struct err *e) __must_check;
/* A JSON merge patch. `subresource`, such as "scale", may be NULL. */
int kube_patch(struct kube *kube, const struct kube_kind *kind, const char *name_space,
	const char *name, const char *subresource, const json_t *patch,
	const struct kube_write *how, json_t **ret_json, struct err *e) __must_check;
/* Deletes the object if it has that uid (NULL: whichever it is), and what it owns afterwards. */
int kube_delete(struct kube *kube, const struct kube_kind *kind, const char *name_space,
	const char *name, const char *uid, const struct kube_write *how,
	struct err *e) __must_check;

/* Which objects a list or a watch has. */
struct kube_query {
	const char *name_space; /* NULL: the client's; "": all */
	const char *labels;     /* a label selector; NULL: all */
	const char *fields;     /* a field selector; NULL: all */
};

/*
 * Calls see(arg, object) with each, page by page; what is not 0 ends the list and is returned. The list begins again when a page
 * has expired, and restart(arg), which may be NULL, is called like see(). *ret_version, may be NULL, is the list's resourceVersion (to be
 * freed), from which a watch goes on.
 */
int kube_list(struct kube *kube, const struct kube_kind *kind, const struct kube_query *query,
	int (*see)(void *arg, json_t *object), int (*restart)(void *arg), void *arg,
	char **ret_version, struct err *e) __must_check;

/* The path of a kind's objects or, with a name, of one of them. `more` is appended: "/log", "?watch=1", or NULL. */
int kube_path(const struct kube *kube, const struct kube_kind *kind, const char *name_space,
	const char *name, const char *more, struct buf *out, struct err *e) __must_check;
/* Appends a text as a part of a path or of a query. */
int kube_put_escaped(struct buf *out, const char *text) __must_check;

/* ---- discovery ------------------------------------------------------------------------------- */

#define KUBE_NAME_BYTES 254u

struct kube_resource {
	char plural[KUBE_NAME_BYTES];
	bool cluster_wide;
};

/* How objects of `kind` are named in paths. Remembered by the client. -ENOENT: the server does not have it. */
int kube_find_kind(struct kube *kube, const char *api_version, const char *kind,
	struct kube_resource *ret, struct err *e) __must_check;
