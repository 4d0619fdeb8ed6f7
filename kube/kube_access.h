/*
 * Where a cluster's API is, and the credentials of requests: from a kubeconfig, or from the service account of the pod that this
 * process runs in.
 *
 * Only what a request needs is read. A kubeconfig that names a password or an option that would weaken the check of the server is refused,
 * with what to write instead. The program that one names for a token (exec) is run without a shell.
 *
 * Lifetime: texts are the access's, until kube_access_release(). Secrets are in memory of base/secret.h. Threads: any.
 */
#pragma once

#include <stdbool.h>
#include "base/buf.h"
#include "base/err.h"
#include "kube/kube_token.h"

#define KUBE_ACCOUNT_DIR "/var/run/secrets/kubernetes.io/serviceaccount"

/* What the caller chose; all may be NULL. Borrowed while a function runs. */
struct kube_choice {
	const char *
		config; /* a kubeconfig. NULL: $KUBECONFIG, ~/.kube/config, then the pod's service account */
	const char *context;     /* of the kubeconfig. NULL: its current-context */
	const char *as;          /* user to impersonate */
	bool in_cluster;         /* the pod's service account, whatever else exists */
	const char *account_dir; /* NULL: KUBE_ACCOUNT_DIR. For tests */
};

struct kube_access {
	char *server;           /* URL without a slash at its end */
	char *name_space;       /* where objects are that name none */
	char *ca_pem;           /* NULL: the system's authorities */
	char *cert_pem;         /* NULL: none */
	char *key_pem;          /* secret */
	char *token;            /* secret; NULL: none, or token_file */
	struct kube_exec *exec; /* NULL: none; kube_exec.h */
	char *token_file; /* read for each request: it is replaced before the token in it expires */
	char *as;         /* NULL: no user is impersonated */
	char *from;       /* where this was found, for lines for people */
};

/* -EINVAL: of the kubeconfig; -ENOKEY: no access was found. Each with its line, which has no secret. */
int kube_access_find(const struct kube_choice *choice, struct kube_access *ret_access,
	struct err *e) __must_check;
void kube_access_release(struct kube_access *access);

/* Appends the token of now; nothing when there is none. -ENOKEY: token_file cannot be read. */
int kube_access_token(
	const struct kube_access *access, struct buf *out, struct err *e) __must_check;
/* The token of this access was not accepted. True: another attempt may send another one. */
bool kube_access_renew(const struct kube_access *access);
